"""One deadline for a hook, whatever it waits for: the agent is answered as configured."""

import _thread
import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from switchgear import Panel
from switchgear._core.types import EventKind
from switchgear._hooks import process
from switchgear._hooks.client import RESIDENT_VARIABLE
from switchgear._hooks.hook_config import config_of
from switchgear._hooks.undecided import SPILL
from timeouts import LIMIT_S
from trusted_config import write_config
from unit.hook_calls import after, before

HOOK = """
import sys
from switchgear._hooks import client, undecided as pending, process
pending.CIRCUITS_S = float(sys.argv[1])
sys.argv[1:] = ["claude-code", "--root", sys.argv[2]]
client.run()
"""
STILL = "the circuits could not be consulted in time: the store is busy or slow"


def hook(project: Path, data: bytes | dict[str, Any], circuits_s: float) -> tuple[int, str, str]:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    line = [sys.executable, "-c", HOOK, str(circuits_s), str(project)]
    done = subprocess.run(
        line,
        input=raw,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, RESIDENT_VARIABLE: "off"},
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    write_config(tmp_path / "switchgear.yaml", "hooks: {on_trouble: refuse}\n")
    config_of(str(tmp_path))
    assert hook(tmp_path, before(), 60.0) == (0, "", "")
    return tmp_path


@pytest.fixture
def busy(project: Path) -> Iterator[sqlite3.Connection]:
    """The store, locked by another process."""
    with closing(sqlite3.connect(project / ".switchgear" / "state.db")) as db:
        db.isolation_level = None
        db.execute("BEGIN IMMEDIATE")
        yield db


def test_a_busy_store_is_waited_for_until_the_deadline_and_the_call_is_refused(
    project: Path, busy: sqlite3.Connection
) -> None:
    code, out, _ = hook(project, before(), 0.2)
    told = json.loads(out)["hookSpecificOutput"]
    assert (code, told["permissionDecision"]) == (0, "deny")
    assert STILL in told["permissionDecisionReason"]
    busy.execute("ROLLBACK")
    assert hook(project, before(call="t2"), 60.0) == (0, "", "")
    with Panel(f"sqlite:///{project}/.switchgear/state.db") as panel:
        [event] = [
            entry.event
            for entry in panel.events(glob="hooks/claude-code")
            if entry.event.kind is EventKind.UNDECIDED
        ]
    assert STILL in event.reason


@pytest.mark.usefixtures("busy")
def test_an_event_after_a_tool_is_not_refused_at_the_deadline(project: Path) -> None:
    code, out, _ = hook(project, after(), 0.2)
    assert code == 0
    told = json.loads(out)
    assert told.keys() == {"systemMessage"}
    assert f"could not decide, and admitted: {STILL}" in told["systemMessage"]


@pytest.mark.usefixtures("busy")
def test_a_rule_refuses_although_the_store_is_busy(project: Path) -> None:
    write_config(project / "switchgear.yaml", "hooks: {on_trouble: admit}\n")
    code, out, _ = hook(project, before("Bash", {"command": "rm -rf /etc"}), 0.2)
    told = json.loads(out)["hookSpecificOutput"]
    assert (code, told["permissionDecision"]) == (0, "deny")
    assert "rule deletes/outside: /etc" in told["permissionDecisionReason"]


def test_unreadable_input_is_answered_in_time_and_counted(
    project: Path, busy: sqlite3.Connection
) -> None:
    code, out, err = hook(project, b"{", 0.2)
    assert (code, out) == (2, "")
    assert "cannot be checked: claude-code sent an invalid event" in err
    busy.execute("ROLLBACK")
    assert hook(project, before(call="t2"), 60.0) == (0, "", "")
    with Panel(f"sqlite:///{project}/.switchgear/state.db") as panel:
        (entry,) = panel.events(glob="hooks/claude-code")
    assert entry.event.kind is EventKind.UNDECIDED
    assert "claude-code sent an invalid event" in entry.event.reason


@pytest.mark.usefixtures("busy")
def test_a_log_of_undecided_calls_in_use_does_not_delay_a_hook(project: Path) -> None:
    with (project / ".switchgear" / SPILL).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "deny" in hook(project, before(), 0.2)[1]


@pytest.mark.parametrize("in_time", [True, False])
def test_either_the_hook_or_the_deadline_answers(
    monkeypatch: pytest.MonkeyPatch, *, in_time: bool
) -> None:
    over, threads, late = threading.Event(), [], []

    def start(work: Any, _: tuple[()]) -> None:
        threads.append(threading.Thread(target=work))
        threads[0].start()

    started = SimpleNamespace(allocate_lock=_thread.allocate_lock, start_new_thread=start)
    monkeypatch.setattr(process, "_thread", started)
    clock = SimpleNamespace(sleep=lambda _: over.wait(), monotonic=lambda: float(over.is_set()))
    monkeypatch.setattr(process, "time", clock)
    may_answer: Any = process.start_deadline(lambda: late.append("answered"), lambda: 1.0)
    assert not in_time or may_answer()
    over.set()
    threads[0].join()
    assert late == ([] if in_time else ["answered"])
    assert in_time or not may_answer(blocking=False)
