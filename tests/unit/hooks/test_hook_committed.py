"""Hooks remember the events that they commit, each once, and change nothing about their store."""

from typing import Any

import pytest

from switchgear import Signal
from switchgear._budgets.tree import Open
from switchgear._config import Config, preset_policy
from switchgear._core.types import Event, Record
from switchgear._fleet.categories import default_breakers
from switchgear._fleet.manifest import agent, crew
from switchgear._hooks import after_reply as handing
from switchgear._hooks.after_reply import RecordingStore, emit_in_background
from switchgear._stores.memory import MemoryStore
from switchgear.fleet import Fleet
from switchgear.testing import FakeClock

BAD = Record(Signal(violation="rule x"))


def test_events_of_transactions_and_messages_are_collected_and_notes_are_kept() -> None:
    found: list[Event] = []
    store = RecordingStore(MemoryStore(clock=FakeClock(0.0)), found)
    policy = preset_policy("constitutional")

    def work(inside: Any) -> str:
        inside.note = "kept"
        inside.apply("rules/a", policy, BAD)
        return f"{inside.note} at {inside.now_s}"

    assert store.transact("n", work) == "kept at 0.0"
    store.apply("rules/b", policy, BAD, 0.0)
    assert [event.circuit for event in found] == ["rules/a", "rules/b"]
    assert store.transact("n", lambda inside: inside.note) == "kept"


def test_a_repeated_transaction_is_collected_once_and_a_failed_one_not_at_all() -> None:
    found: list[Event] = []
    inner = MemoryStore(clock=FakeClock(0.0))
    policy = preset_policy("constitutional")

    class Twice:
        def transact(self, name: str, work: Any) -> Any:
            with pytest.raises(ZeroDivisionError):
                inner.transact(name, lambda inside: (work(inside), 1 // 0))
            return inner.transact(name, work)

    RecordingStore(Twice(), found).transact(
        "n", lambda inside: inside.apply("rules/a", policy, BAD)
    )
    assert len(found) == 1

    class Fails:
        def transact(self, name: str, work: Any) -> Any:
            inner.transact(name, work)
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        RecordingStore(Fails(), found).transact("m", lambda i: i.apply("rules/b", policy, BAD))
    assert len(found) == 1


def test_without_an_event_nothing_is_started_and_a_failed_start_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[bytes] = []

    def start(module: str, folder: str, *, stdin: bytes = b"") -> None:
        started.append(stdin)
        raise OSError("no more processes")

    monkeypatch.setattr("switchgear._hooks.after_reply.start_detached", start)
    emit_in_background("/", [])
    assert started == []
    store = MemoryStore(clock=FakeClock(0.0))
    [event] = store.apply("rules/a", preset_policy("constitutional"), BAD, 0.0).events
    many = [event] * (handing.MAX_EVENTS + 10)
    emit_in_background("/", many)
    assert started[0].count(b"rules/a") == handing.MAX_EVENTS
    assert many == []


def test_a_fleet_begins_though_its_store_is_gone() -> None:
    people = crew([agent(name="coder", owner="ana", provider="p", model="m")])
    config = Config(
        store="redis://127.0.0.1:1/0",
        crew=people,
        breakers=default_breakers(),
        budgets=(Open("atlas", 1_000_000),),
    )
    fleet = Fleet.from_config(config)
    assert fleet.route("coder").worker == "coder"
    fleet.close()
