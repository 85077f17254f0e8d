"""A full disk ends a run with its own reason; what can be saved is saved, and the message shows how to continue."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear._measure import saved_refs
from switchgear._measure.git import GitTree
from switchgear._measure.git_command import GitError
from switchgear._run import record
from switchgear._run.exit_reasons import EXIT_CODES, ExitReason
from switchgear._run.record import AgentLog, RunFolder
from switchgear._run.result import RunResult
from unit.runner_stage import Stage

WORKS = "write(f'n{n}', 'x'); usage(0.1); tell(type='result', text='more', success=None)"
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "elsewhere"))
    return Stage(tmp_path)


def fails_from(
    monkeypatch: pytest.MonkeyPatch,
    stage: Stage,
    where: Any,
    name: str,
    *,
    error: Exception = FULL,
    ever: bool = False,
) -> None:
    """A function fails as soon as the second iteration has begun to work."""
    whole: Callable[..., Any] = getattr(where, name)

    def full(*arguments: Any, **named: Any) -> Any:
        if ever or (stage.folder / "n2").exists():
            raise error
        return whole(*arguments, **named)

    monkeypatch.setattr(where, name, full)


def check(stage: Stage, result: RunResult) -> None:
    assert result.exit_reason is ExitReason.DISK_FULL
    assert (result.exit_code, EXIT_CODES[ExitReason.DISK_FULL].code) == (17, 17)
    assert "the disk is full" in result.reason
    assert "free some space, then continue" in result.reason
    assert result.resume is not None
    assert f"resume {result.run}" in result.resume
    assert f"continue: {result.resume}" in result.text()
    assert (stage.folder / "n2").exists()


def test_a_record_that_cannot_be_written_ends_the_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_from(monkeypatch, stage, RunFolder, "add")
    result = stage.run(WORKS)
    check(stage, result)
    assert stage.git("show", f"refs/switchgear/runs/{result.run}:n2") == "x"
    assert stage.run_json()["end"]["exit_reason"] == "disk_full"
    assert result.state.spent_micros == 200_000, "what the iteration cost is counted"


def test_a_run_json_that_cannot_be_written_is_written_elsewhere(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_from(monkeypatch, stage, RunFolder, "write")
    result = stage.run(WORKS)
    check(stage, result)
    [note] = [each for each in result.notes if "could not be written to its folder" in each]
    place = Path(note.rpartition(" to ")[2].removesuffix(" instead"))
    held = json.loads(place.read_text())
    assert held["end"]["exit_reason"] == "disk_full"
    assert held["state"]["spent_micros"] == 200_000


def test_an_agent_log_that_cannot_be_written_stops_the_agent_and_counts_its_cost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = AgentLog.write

    def full(log: AgentLog, text: str) -> None:
        if (stage.folder / "n2").exists():
            log.problem = FULL
        write(log, text)

    monkeypatch.setattr(AgentLog, "write", full)
    result = stage.run(WORKS + "\ntell(type='text', text='on and on')\nif n == 2: time.sleep(60)")
    check(stage, result)
    assert result.state.iterations == 2


@pytest.mark.parametrize("error", [FULL, GitError("git: error: No space left on device")])
def test_a_measurement_that_cannot_be_written_down_ends_the_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fails_from(monkeypatch, stage, GitTree, "mark", error=error)
    check(stage, stage.run(WORKS))


def test_a_save_that_does_not_fit_into_git_is_an_archive_elsewhere(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pack = saved_refs._pack

    def full(folder: Path, entries: Any, place: Path, *rest: Any) -> None:
        if place.is_relative_to(stage.folder):
            raise FULL
        pack(folder, entries, place, *rest)

    fails_from(monkeypatch, stage, RunFolder, "add")
    fails_from(monkeypatch, stage, GitTree, "_commit", error=GitError("No space left on device"))
    monkeypatch.setattr(saved_refs, "_pack", full)
    result = stage.run(WORKS)
    check(stage, result)
    assert result.checkpoint is not None
    archive = Path(result.checkpoint.how.removeprefix("tar -xzf "))
    assert archive.is_relative_to(tmp_path / "elsewhere")
    assert any("git could not store it: No space left" in note for note in result.notes)


def test_work_that_cannot_be_saved_anywhere_is_reported(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_from(monkeypatch, stage, RunFolder, "add")
    fails_from(monkeypatch, stage, RunFolder, "write")
    fails_from(monkeypatch, stage, record, "write_json")
    fails_from(monkeypatch, stage, GitTree, "_commit", error=GitError("No space left on device"))
    fails_from(monkeypatch, stage, saved_refs, "_pack")
    result = stage.run(WORKS)
    check(stage, result)
    assert result.checkpoint is None
    assert any(note.startswith("the work was not saved: no archive") for note in result.notes)
    assert any("nowhere else either" in note for note in result.notes)


def test_a_run_on_a_full_disk_costs_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "free_bytes", lambda _: 999_999)
    result = stage.run("write('n1', 'x')")
    assert result.exit_reason is ExitReason.DISK_FULL
    assert "999 kB are free at" in result.reason
    assert not (stage.folder / "n1").exists()


def test_a_disk_that_is_full_before_the_first_write_ends_the_run_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = stage.runner("write('n1', 'x')")
    fails_from(monkeypatch, stage, RunFolder, "write", ever=True)
    result = runner.run()
    assert result.exit_reason is ExitReason.DISK_FULL
    assert not (stage.folder / "n1").exists()


def test_a_run_continues_after_space_was_freed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fails_from(patch, stage, RunFolder, "add")
        first = stage.run(WORKS)
    check(stage, first)
    result = stage.run(WORKS, state=first.state, max_iterations=4)
    assert (result.exit_reason, result.state.iterations) == ("max_iterations", 4)


def test_the_reserved_disk_space_is_released(stage: Stage) -> None:
    result = stage.run("write('a', 'b')")
    assert stage.record is not None
    assert result.success
    assert not (stage.record.notes / "reserve").exists()


def test_a_partial_line_is_removed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "1")
    folder.make()
    folder.add({"number": 1})
    limit = (tmp_path / "runs" / "1" / "iterations.jsonl").stat().st_size + 5
    script = f"""
import resource, sys
from pathlib import Path
from switchgear._run.record import RunFolder
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    RunFolder(Path(sys.argv[1])).add({{"number": 2}})
except OSError as error:
    print(error.errno)
"""
    command = [sys.executable, "-c", script, str(folder.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{errno.EFBIG}\n"
    folder.add({"number": 3})
    assert [facts["number"] for facts in folder.iterations()] == [1, 3]
