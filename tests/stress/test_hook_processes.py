"""Many hook processes at once, a resident process that is killed, and a hundred thousand events."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.hook_process import command, stop_residents, use
from switchgear._hooks import client, resident
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


SESSIONS = 16
KILLS = 100


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder with a resident process of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(client.RESIDENT_VARIABLE, "60")
    yield tmp_path / "state"
    stop_residents(tmp_path / "state")


def ended_by_chance(state: Path, chance: random.Random) -> bool:
    """Kill the resident process, with all its workers in half of the cases. False: none runs."""
    for lock in (state / "switchgear" / "run").glob("*.lock"):
        words = lock.read_text().split()
        line = Path(f"/proc/{words[0]}/cmdline") if words else None
        if line is None or not line.exists() or str(lock.parent) not in line.read_text():
            continue
        pid = int(words[0])
        with suppress(ProcessLookupError):
            if chance.random() < 0.5 and os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
            return True
    return False


@pytest.mark.timeout(3000)
def test_a_resident_process_that_is_killed_a_hundred_times_loses_nothing(
    project: Path, state: Path
) -> None:
    """Sixteen sessions call tools; in the meantime it is killed at random, and started again by hooks."""
    line, over, made = command(project), threading.Event(), [0] * SESSIONS
    wrong: list[Any] = []

    def work(session: int) -> None:
        while not over.is_set() and not wrong:
            number = made[session]
            for event in (before, after):
                call = event("Read", {"file_path": f"{number}.py"}, f"{session}-{number}")
                raw = json.dumps({**call, "session_id": f"k{session}-{number // 20}"}).encode()
                done = subprocess.run(
                    line, input=raw, capture_output=True, check=False, timeout=PATIENCE_S
                )
                if (done.returncode, done.stdout, done.stderr) != (0, b"", b""):
                    wrong.append(done)
            made[session] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(SESSIONS)]
    for thread in threads:
        thread.start()
    kills, chance = 0, random.Random(7)
    while kills < KILLS and not wrong:
        time.sleep(chance.random() * 0.6)
        kills += ended_by_chance(state, chance)
    over.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    store = SqliteStore(project / ".switchgear" / "state.db")
    found = store.get("op/file_read")
    assert found is not None
    totals = found.circuit.totals
    calls = sum(made)
    sys.stderr.write(f"{kills} kills, {calls} calls of {SESSIONS} sessions, {totals}\n")
    assert totals.succeeded == calls
    assert totals.failed == totals.late == totals.refused == 0
    assert store.get("hooks/claude-code") is None, "no event was left undecided"


def memory_kb(pid: int) -> dict[int, int]:
    """The memory of a process and its children, each page shared among those that use it."""
    found: dict[int, int] = {}
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (pid, *map(int, children)):
        with suppress(OSError):
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
            found[each] = int(text.partition("\nPss:")[2].split()[0])
    return found


@pytest.mark.timeout(7200)
def test_a_hundred_thousand_events_of_a_hundred_sessions_take_no_more_memory(
    project: Path, state: Path
) -> None:
    use("resident")
    pid = resident.status()["pid"]  # type: ignore[index]
    events = int(os.environ.get("SWITCHGEAR_EVENTS", "100000"))
    words = ["claude-code", "--root", str(project)]
    samples: list[tuple[int, int]] = []

    def send(number: int) -> None:
        session, call = number % 100, number // 200
        event = before if number // 100 % 2 == 0 else after
        data = event("Read", {"file_path": f"{session}-{call}.py"}, f"{session}-{call}")
        raw = json.dumps({**data, "session_id": f"m{session}-{call // 20}"}).encode()
        for _ in range(5):
            line = client.open_connection(words)
            assert line is not None
            found = client.ask(line, words, raw, time.monotonic())
            if found is not None:  # else a hook would decide itself
                break
        assert found == (0, b"", b"", b"")

    for number in range(events):
        send(number)
        if number % (events // 1000) == 0:
            found = memory_kb(pid)
            samples.append((found[pid], sum(found.values())))
    # A process that answers grows until another one takes its place: peaks of many are compared.
    blocks = [samples[first : first + 50] for first in range(0, len(samples), 50)]
    used = [(max(each[0] for each in block), max(each[1] for each in block)) for block in blocks]
    sys.stderr.write(f"most kB of the process, and with its children: {used}\n")
    assert resident.status()["pid"] == pid  # type: ignore[index]
    assert max(whole for _, whole in used) < 60_000, used
    early, late = used[len(used) // 4], used[-1]
    assert late[0] < early[0] * 1.05 + 500, used
    assert late[1] < early[1] * 1.15 + 2_000, used
