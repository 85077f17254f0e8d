"""`switchgear demo`, help and errors of the command, in a separate process."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from timeouts import LIMIT_S

ROOT = Path(__file__).parents[2]


def switchgear(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "switchgear", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_the_demo_shows_a_circuit_that_opens_probes_and_closes(tmp_path: Path) -> None:
    done = switchgear("demo", "--speed", "2", home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    phases = re.findall(r"[●○◐] (\S+)", done.stdout)
    assert phases[:3] == ["closed", "open", "half-open"]
    assert phases[-2:] == ["half-open", "closed"]
    assert "5 failures in a row (threshold 5); next try in 1 s" in done.stdout
    assert re.search(r"answered +60 of 60", done.stdout)


def test_the_demo_writes_no_escape_codes_into_a_pipe(tmp_path: Path) -> None:
    done = switchgear("demo", "--speed", "20", home=tmp_path)
    assert "\x1b" not in done.stdout


def test_the_demo_leaves_no_files(tmp_path: Path) -> None:
    switchgear("demo", "--speed", "20", home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_speed_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = switchgear("demo", "--speed", "0", home=tmp_path)
    assert done.returncode == 2
    assert "0.0 is not in the range 0.1<=x<=20.0" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.stress
def test_the_first_command_of_the_readme_is_stopped_by_the_breaker_and_succeeds(
    tmp_path: Path,
) -> None:
    """As `make demo` runs it, but for the environment that is there already and the folder."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^demo:.*\n\t@scripts/venv .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    command = recipe[1].replace("\t@$(BIN)/switchgear", f"{sys.executable} -m switchgear")
    began_s = time.monotonic()
    done = subprocess.run(
        ["sh", "-c", command.replace("$$", "$")],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    took_s = time.monotonic() - began_s
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.index("worked in") < done.stdout.index("failed in")
    assert done.stdout.index("nudge: 2 failures in a row (threshold 3); 2 it") < done.stdout.index(
        "circuit_breaker:"
    )
    assert "kept: 1 file (+2 -2 lines); git -C" in done.stdout
    report = re.search(r"report: (\S+)", done.stdout)
    assert report is not None
    assert "circuit_breaker" in Path(report[1]).read_text(encoding="utf-8")
    assert took_s > 10, "long enough to be watched"


def test_an_unknown_verb_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = switchgear("dmeo", home=tmp_path)
    assert done.returncode == 2
    assert "No such command 'dmeo'" in done.stderr


def test_help_and_version_are_printed(tmp_path: Path) -> None:
    assert "Circuit breakers for AI agents" in switchgear("--help", home=tmp_path).stdout
    assert re.fullmatch(
        r"switchgear, version \d+\.\d+\.\d+\n", switchgear("--version", home=tmp_path).stdout
    )
