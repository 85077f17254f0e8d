"""Fifty hook processes on one session at once: nothing is lost, and nobody waits for ever."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.hook_process import command
from switchgear._hooks.open_calls import load
from switchgear._hooks.session import Notes, note_name
from switchgear._stores.sqlite import SqliteStore
from unit.hook_calls import after, before, claude, failed

pytestmark = pytest.mark.stress

HOOKS = 50
PATIENCE_S = 300.0


def all_at_once(project: Path, inputs: list[dict[str, Any]]) -> list[tuple[int, str, str]]:
    """Start a process for each, then give all of them their input; wait with a bound."""
    line = command(project)
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in inputs
    ]
    for process, data in zip(started, inputs, strict=True):
        assert process.stdin is not None
        process.stdin.write(json.dumps(data))
        process.stdin.close()
        process.stdin = None
    done = [process.communicate(timeout=PATIENCE_S) for process in started]
    return [
        (process.returncode, out, err) for process, (out, err) in zip(started, done, strict=True)
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def test_fifty_hooks_of_one_session_lose_nothing(project: Path) -> None:
    args = [{"file_path": f"{number}.py"} for number in range(HOOKS)]
    quiet = [(0, "", "")] * HOOKS

    began = [before("Read", args[n], f"r{n}") for n in range(HOOKS)]
    assert all_at_once(project, began) == quiet
    store = SqliteStore(project / ".switchgear" / "state.db")
    note = store.transact(note_name("s1"), lambda inside: inside.note)
    calls = load(Notes.load(note).more).calls
    assert sorted(call.id for call in calls) == sorted(f"r{n}" for n in range(HOOKS))

    ended = [
        failed("Read", args[n], f"r{n}", error=f"no such file {n}")
        if n % 10 == 0
        else after("Read", args[n], f"r{n}")
        for n in range(HOOKS)
    ]
    answers = all_at_once(project, ended)
    assert {(code, err) for code, _, err in answers} == {(0, "")}
    found = store.get("op/file_read")
    assert found is not None
    totals = found.circuit.totals
    assert totals.succeeded + totals.failed + totals.late == HOOKS
    assert totals.refused == 0
    state = load(Notes.load(store.transact(note_name("s1"), lambda inside: inside.note)).more)
    assert state.calls == ()
    assert not state.lanes
    session = store.get(note_name("s1"))
    assert session is not None
    assert session.circuit.totals.failed >= 1
    numbers = [e.event.seq for e in store.events() if e.event.circuit == "op/file_read"]
    assert numbers == list(range(1, len(numbers) + 1))


def test_fifty_hooks_that_cannot_decide_are_all_counted(project: Path) -> None:
    bad = [claude("MadeUp", number=number) for number in range(HOOKS)]
    answers = all_at_once(project, bad)
    assert {code for code, _, _ in answers} == {2}, "what cannot be read is refused"
    assert all("refused" in err for _, _, err in answers)
    found = SqliteStore(project / ".switchgear" / "state.db").get("hooks/claude-code")
    assert found is not None
    assert found.circuit.totals.ignored == HOOKS
    assert found.circuit.event_seq == HOOKS
