"""One process at a time works on a task: the lock belongs to the system, so it never becomes stale."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from switchgear._run.circuits import task_name
from switchgear._run.record import is_alive, process_began
from switchgear._run.run_lock import RunConflict, RunLock, folder_lock, is_held, task_lock
from unit.runner_stage import Stage

HOLDS = """
import sys, time
from pathlib import Path
from switchgear._run.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]), "the task", "run 17")
print("held", flush=True)
time.sleep(600)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_held_lock_names_its_holder_and_a_killed_holder_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        with pytest.raises(RunConflict) as conflict:
            RunLock(path, "the task")
        assert f"the task is already running: run 17, process {process.pid}" in str(conflict.value)
        assert conflict.value.holder.pid == process.pid
        assert is_held(path) is True
        process.kill()
    assert is_held(path) is False
    RunLock(path, "the task").release()


def test_a_zombie_process_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holder(path)
    began = process_began(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and nobody has taken note
    try:
        assert not is_alive({"pid": process.pid, "pid_began": began, "end": None})
        RunLock(path, "the task").release()
    finally:
        process.communicate()


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder"])
def test_a_lock_that_is_not_a_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    path, target = tmp_path / "lock", tmp_path / "precious"
    if kind in {"link", "dangling"}:
        if kind == "link":
            target.write_text("keep me")
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(OSError, match="is not a regular file: remove it and try again"):
        RunLock(path, "the task")
    assert target.exists() == (kind == "link")
    if kind == "link":
        assert target.read_text() == "keep me"


def test_a_lock_file_that_was_replaced_is_not_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with RunLock(path, "the task"):
        path.unlink()
        with RunLock(path, "the task"):
            assert is_held(path) is True
    assert is_held(path) is False


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "what": 3}', "null", "9" * 9999])
def test_any_content_of_a_lock_file_is_harmless(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock"
    with RunLock(path, "the task"):
        path.write_text(text)
        with pytest.raises(RunConflict, match="another process"):
            RunLock(path, "the task")


def test_a_second_run_of_the_same_task_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    first = stage.runner("write('a', 'b')")
    runs = (stage.folder / ".switchgear" / "runs").resolve()
    with pytest.raises(RunConflict) as conflict:
        task_lock(runs, task_name(stage.folder, first.context.options))
    assert first.context.record.id in str(conflict.value)
    with pytest.raises(RunConflict):
        folder_lock(first.context.record.path, "run")
    assert first.run().exit_reason == "completed"
    task_lock(runs, task_name(stage.folder, first.context.options)).release()
    folder_lock(first.context.record.path, "run").release()


def test_the_description_of_a_holder_is_json(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with RunLock(path, "the task", "run 17"):
        held = json.loads(path.read_text())
    assert (held["pid"], held["what"]) == (os.getpid(), "run 17")
    assert held["started_at"].startswith(time.strftime("%Y", time.gmtime()))
