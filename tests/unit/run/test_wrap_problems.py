"""A wrapped program that cannot be started, or whose wrapper is ended."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from switchgear._run.wrap import WrapSettings, run_wrapped
from timeouts import LIMIT_S, ended


def test_a_python_file_without_python_is_reported_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prog.py").write_text("print('hello')\n")
    report = run_wrapped(["prog.py"], WrapSettings(store=f"sqlite:///{tmp_path}/state.db"))
    assert "switchgear wrap python prog.py" in report.last_refusal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_its_children_as_it_ends_a_run(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = "import signal; print('started', flush=True); signal.pause()"
    command = [sys.executable, "-m", "switchgear", "wrap", "--", sys.executable, "-c", program]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    with ended(process):
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        assert process.wait(LIMIT_S) == 130
