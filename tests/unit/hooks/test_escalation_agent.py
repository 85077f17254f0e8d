"""The escalation agent: it receives the evidence, and its result is logged."""

import sys
from pathlib import Path

import pytest

from switchgear._hooks import escalation_agent


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    path = tmp_path / "evidence.txt"
    path.write_text("AGENT APPEARS STUCK\n")
    return path


def test_the_escalation_agent_works_in_the_folder_with_the_evidence_in_its_prompt(
    tmp_path: Path, evidence: Path
) -> None:
    (tmp_path / "klaus.py").write_text(
        "import os, pathlib, sys\n"
        "pathlib.Path('seen').write_text(sys.argv[1] + os.environ['SWITCHGEAR_EVIDENCE'])\n"
    )
    who = f"{sys.executable} -S klaus.py {{prompt}}"
    log = tmp_path / "log"
    assert escalation_agent.main(["", str(tmp_path), who, str(evidence), str(log)]) == 0
    seen = (tmp_path / "seen").read_text()
    assert "Take over: find out why" in seen
    assert "AGENT APPEARS STUCK" in seen
    assert seen.endswith(str(evidence))
    assert "[end] exited, exit code 0" in log.read_text()


@pytest.mark.parametrize(
    ("who", "says"),
    [
        ("kodex", "could not be run: there is no agent 'kodex'"),
        ("no-such-program-at-all {prompt}", "[end] not_found"),
        ("false {prompt}", "[end] exited, exit code 1"),
    ],
)
def test_an_escalation_agent_that_cannot_start_is_logged(
    tmp_path: Path, evidence: Path, who: str, says: str
) -> None:
    log = tmp_path / "log"
    assert escalation_agent.main(["", str(tmp_path), who, str(evidence), str(log)]) == 1
    assert says in log.read_text()
