"""`switchgear runs` reads only what it shows."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear._cli import main
from switchgear._run.record import RunFolder, runs_root


def test_the_last_runs_are_listed_without_reading_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    root = runs_root(tmp_path)
    for number in range(1, 6):
        (root / f"r{number}").mkdir(parents=True)
    read: list[str] = []

    def fake_read(folder: RunFolder) -> dict[str, Any]:
        read.append(folder.id)
        return {"id": folder.id, "task": f"task {folder.id}"}

    monkeypatch.setattr(RunFolder, "read", fake_read)
    shown = CliRunner().invoke(main, ["runs", "--last", "2"], catch_exceptions=False).output
    assert read == ["r4", "r5"]
    assert "task r5" in shown
    assert "3 earlier; `switchgear runs` shows all" in shown
    everything = CliRunner().invoke(main, ["runs"], catch_exceptions=False).output
    assert "task r1" in everything
    assert "earlier" not in everything
