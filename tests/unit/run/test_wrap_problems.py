"""A wrapped program that cannot be started."""

from pathlib import Path

import pytest

from switchgear._run.wrap import WrapSettings, run_wrapped


def test_a_python_file_without_python_is_reported_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prog.py").write_text("print('hello')\n")
    report = run_wrapped(["prog.py"], WrapSettings(store=f"sqlite:///{tmp_path}/state.db"))
    assert "switchgear wrap python prog.py" in report.last_refusal
