"""A large batch saves each change as one line; complete lines are read after a cut."""

import json
from pathlib import Path

import pytest

from switchgear._run.batch.model import Progress, Status
from switchgear._run.batch.record import WHOLE_TASKS, BatchFolder, BatchState

COUNT = WHOLE_TASKS + 50


@pytest.fixture
def home(tmp_path: Path) -> BatchFolder:
    made = BatchFolder(tmp_path / "b1")
    made.path.mkdir()
    return made


def state(count: int = COUNT) -> BatchState:
    return BatchState("b1", "tasks.yaml", "/", {f"t{n}": Progress() for n in range(count)})


def change(home: BatchFolder, kept: BatchState, name: str, status: Status) -> None:
    kept.progress[name] = kept.progress[name]._replace(status=status)
    home.write(kept, name)


def statuses(home: BatchFolder) -> dict[str, Status]:
    return {name: each.status for name, each in BatchFolder(home.path).read()[0].progress.items()}


def test_changes_are_added_and_read(home: BatchFolder) -> None:
    kept = state()
    home.write(kept)
    whole = (home.path / "batch.json").read_bytes()
    change(home, kept, "t1", Status.RUNNING)
    change(home, kept, "t1", Status.DONE)
    change(home, kept, "t2", Status.RUNNING)
    assert (home.path / "batch.json").read_bytes() == whole
    read = statuses(home)
    assert (read["t1"], read["t2"], read["t3"]) == (Status.DONE, Status.RUNNING, Status.WAITING)


def test_a_line_that_was_cut_off_is_left_out(home: BatchFolder) -> None:
    kept = state()
    home.write(kept)
    change(home, kept, "t1", Status.DONE)
    change(home, kept, "t2", Status.DONE)
    [journal] = home.path.glob("changes-*.jsonl")
    journal.write_bytes(journal.read_bytes()[:-10])
    read = statuses(home)
    assert (read["t1"], read["t2"]) == (Status.DONE, Status.WAITING)


def test_the_journal_of_an_older_file_is_not_applied_to_a_newer_one(home: BatchFolder) -> None:
    kept = state()
    home.write(kept)
    change(home, kept, "t1", Status.RUNNING)
    [old] = home.path.glob("changes-*.jsonl")
    text = old.read_bytes()
    kept.progress["t1"] = kept.progress["t1"]._replace(status=Status.DONE)
    home.write(kept)
    assert not old.exists()
    old.write_bytes(text)  # as if the process had been killed before it removed it
    assert statuses(home)["t1"] is Status.DONE


def test_another_process_continues_with_its_own_journal(home: BatchFolder) -> None:
    kept = state()
    home.write(kept)
    change(home, kept, "t1", Status.DONE)
    again = BatchFolder(home.path)
    held, _ = again.read()
    again.write(held)
    change(again, held, "t2", Status.DONE)
    read = statuses(home)
    assert (read["t1"], read["t2"]) == (Status.DONE, Status.DONE)


def test_the_journal_is_folded_into_the_file_before_it_is_longer_than_that(
    home: BatchFolder,
) -> None:
    kept = state()
    home.write(kept)
    for number in range(COUNT + 1):
        change(home, kept, f"t{number % 7}", Status.RUNNING)
    held = json.loads((home.path / "batch.json").read_bytes())
    assert held["journal"] == 2
    assert held["progress"]["t1"]["status"] == "running"


def test_a_small_batch_is_one_file(home: BatchFolder) -> None:
    kept = state(3)
    home.write(kept)
    change(home, kept, "t1", Status.DONE)
    assert not list(home.path.glob("changes-*.jsonl"))
    assert json.loads((home.path / "batch.json").read_bytes())["progress"]["t1"]["status"] == "done"
