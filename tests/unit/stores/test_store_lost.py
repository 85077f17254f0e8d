"""The behaviour while a shared store is unavailable, and when it is back."""

import asyncio

import pytest

from switchgear import Mode, Phase, Policy, Rejected, Signal
from switchgear._core import evidence
from switchgear._core.errors import StoreFull, StoreTooNew, StoreUnavailable
from switchgear._core.types import EventKind, Message, Step
from switchgear._panel.panel import Panel
from switchgear._stores import memory
from switchgear.testing import FlakyStore
from unit.lost_store import BAD, POLICY, STRICT, Bench


def test_calls_continue_and_an_event_records_it() -> None:
    bench = Bench()
    bench.store.cut()
    assert bench.breaker.call(len, "abc") == 3
    with pytest.raises(ZeroDivisionError):
        bench.breaker.call(lambda: 1 / 0)
    assert bench.kinds() == [EventKind.STORE_LOST]
    assert "flaky: cannot be reached: it was cut off" in bench.heard[0].reason
    assert bench.breaker.call(len, "abc") == 3


def test_the_last_known_state_applies_and_continues_in_memory() -> None:
    bench = Bench()
    bench.breaker.record(BAD._replace(count=2))
    bench.store.cut()
    bench.breaker.record(BAD)
    with pytest.raises(Rejected, match="3 failures in a row"):
        bench.breaker.call(len, "abc")
    assert bench.kinds() == [EventKind.STORE_LOST, EventKind.MOVED]
    bench.clock.advance(10.0)
    assert bench.breaker.call(len, "abc") == 3
    assert bench.breaker.state == "closed"


def test_on_return_the_store_receives_everything_once_and_in_order() -> None:
    bench = Bench()
    bench.breaker.call(len, "abc")
    bench.breaker.record(BAD)
    bench.store.cut()
    for _ in range(5):
        bench.breaker.call(len, "abc")
    bench.breaker.record(BAD._replace(error="last"))
    bench.store.mend()
    bench.clock.advance(1.0)
    bench.breaker.refresh()
    assert bench.breaker.totals[:2] == (6, 2)
    assert bench.stored().totals[:2] == (6, 2)
    assert bench.stored().failures[-1].error == "last"
    assert bench.kinds() == [EventKind.STORE_LOST, EventKind.STORE_BACK]
    assert "is back after 1 s; 6 missed updates were saved to it" in bench.heard[-1].reason
    assert [entry.event.kind for entry in bench.store.events()] == [EventKind.STORE_BACK]


def test_a_trip_during_the_outage_happens_in_the_store_too() -> None:
    bench = Bench()
    bench.store.cut()
    for _ in range(3):
        bench.breaker.record(BAD)
    assert bench.breaker.state == "open"
    bench.store.mend()
    bench.clock.advance(1.0)
    bench.breaker.refresh()
    assert bench.breaker.state == "open"
    assert bench.stored().phase is Phase.OPEN
    with pytest.raises(Rejected):
        bench.breaker.call(len, "abc")


def test_a_process_that_is_alone_stays_open_on_return(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in files and on servers, where processes report to each other.
    monkeypatch.setattr(FlakyStore, "process", lambda _: "p1", raising=False)
    monkeypatch.setattr(memory, "step", evidence.fold)
    bench = Bench()
    bench.breaker.record(BAD)
    bench.store.cut()
    bench.breaker.record(BAD._replace(count=2))
    assert bench.breaker.state == "open"
    bench.store.mend()
    bench.clock.advance(1.0)
    bench.breaker.refresh()
    assert bench.stored().phase is Phase.OPEN, "all that the process recorded is judged at once"
    with pytest.raises(Rejected):
        bench.breaker.call(len, "abc")


def test_a_trip_by_other_processes_in_the_meantime_is_read_on_return() -> None:
    bench = Bench()
    other = Panel(bench.store, clock=bench.clock).breaker("api", POLICY)
    bench.store.cut()
    assert bench.breaker.call(len, "abc") == 3
    bench.store.mend()
    for _ in range(3):
        other.record(BAD)
    bench.clock.advance(1.0)
    with pytest.raises(Rejected, match="3 failures in a row"):
        bench.breaker.call(len, "abc")


def test_a_store_that_comes_back_empty_gets_the_last_known_state() -> None:
    bench = Bench()
    for _ in range(3):
        bench.breaker.record(BAD)
    bench.store.cut()
    bench.clock.advance(1.0)
    with pytest.raises(Rejected):
        bench.breaker.call(len, "abc")
    bench.breaker.refresh()  # and finds the store gone
    assert bench.breaker.state == "open"
    bench.store.mend(empty=True)
    bench.clock.advance(1.0)
    bench.breaker.refresh()
    assert bench.breaker.state == "open"
    assert bench.stored().phase is Phase.OPEN
    assert bench.stored().totals.failed == 3


def test_versions_never_fall_for_readers_when_the_store_lost_some() -> None:
    bench = Bench()
    for _ in range(20):
        bench.breaker.record(Signal(ok=True))
    before = bench.breaker.snapshot().version
    bench.store.cut()
    for _ in range(20):
        bench.breaker.record(Signal(ok=True))
    away = bench.breaker.snapshot().version
    bench.store.mend()
    bench.clock.advance(1.0)
    back = bench.breaker.snapshot().version
    assert before < away < back
    bench.breaker.hold_open(by="ada", why="drill")
    with pytest.raises(Rejected, match="held open by ada"):
        bench.breaker.call(len, "abc")


def test_the_store_is_tried_about_once_a_second_not_at_every_call() -> None:
    bench = Bench()
    bench.store.cut()
    for _ in range(100):
        bench.breaker.record(BAD)
    assert bench.store.tries == 1
    bench.clock.advance(0.99)
    bench.breaker.record(BAD)
    assert bench.store.tries == 1
    bench.clock.advance(0.01)
    bench.breaker.record(BAD)
    assert bench.store.tries == 2


def test_one_outage_is_one_event_each_way_however_many_tries_it_takes() -> None:
    bench = Bench()
    bench.store.cut()
    for _ in range(5):
        bench.breaker.record(Signal(ok=True))
        bench.clock.advance(1.0)
    bench.store.mend()
    bench.breaker.record(Signal(ok=True))
    assert bench.kinds() == [EventKind.STORE_LOST, EventKind.STORE_BACK]
    assert bench.stored().totals.succeeded == 6


def test_a_store_that_is_lost_again_during_the_replay_records_nothing_twice() -> None:
    bench = Bench()
    bench.store.cut()
    for error in ("a", "b", "c"):
        bench.breaker.record(Signal(ok=False, error=error))
    bench.store.mend()
    bench.clock.advance(1.0)
    real = bench.store.apply
    told: list[Message] = []

    def fails_at_the_second(key: str, policy: Policy, message: Message, now_s: float) -> Step:
        told.append(message)
        if len(told) == 2:
            raise StoreUnavailable("flaky:", "gone again", "wait")
        return real(key, policy, message, now_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "apply", fails_at_the_second)
        bench.breaker.record(Signal(ok=True))
    bench.clock.advance(1.0)
    bench.breaker.record(Signal(ok=True))
    totals = bench.stored().totals
    assert (totals.failed, totals.succeeded) == (3, 2)


def test_a_full_store_counts_as_unavailable_and_the_event_reports_that_it_is_full() -> None:
    bench = Bench()
    bench.store.cut(StoreFull("flaky:", "no space left", "make room"))
    bench.breaker.record(BAD)
    assert "flaky: is full: no space left; make room" in bench.heard[0].reason


def test_an_override_raises_while_the_store_is_unavailable() -> None:
    bench = Bench()
    bench.store.cut()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        bench.breaker.hold_open(by="ada", why="drill")
    bench.breaker.record(BAD)
    with pytest.raises(StoreUnavailable):
        bench.breaker.hold_open(by="ada", why="drill")
    assert bench.breaker.mode is Mode.AUTO


# Strict


def test_a_strict_circuit_refuses_while_its_store_is_unavailable_and_admits_afterwards() -> None:
    bench = Bench(STRICT)
    assert bench.breaker.call(len, "abc") == 3
    bench.store.cut()
    with pytest.raises(Rejected, match="its policy is strict and its state unknown") as refused:
        bench.breaker.call(len, "abc")
    assert refused.value.retry_after_s == 1.0
    assert bench.kinds() == [EventKind.STORE_LOST]
    bench.store.mend()
    bench.clock.advance(1.0)
    assert bench.breaker.call(len, "abc") == 3
    assert bench.stored().totals.refused == 1
    assert bench.stored().totals.succeeded == 2


def test_a_strict_circuit_reads_the_store_before_every_call() -> None:
    bench = Bench(STRICT)
    other = Panel(bench.store, clock=bench.clock).breaker("api", STRICT)
    assert bench.breaker.call(len, "abc") == 3
    other.hold_open(by="ada", why="drill")
    with pytest.raises(Rejected, match="held open by ada"):
        bench.breaker.call(len, "abc")
    other.release(by="ada", why="over")
    assert bench.breaker.call(len, "abc") == 3


# Polling


def test_changes_of_other_processes_are_read_when_the_snapshot_is_old() -> None:
    bench = Bench()
    other = Panel(bench.store, clock=bench.clock).breaker("api", POLICY)
    assert bench.breaker.call(len, "abc") == 3
    for _ in range(3):
        other.record(BAD)
    bench.clock.advance(0.1)
    with pytest.raises(Rejected):
        bench.breaker.call(len, "abc")
    other.reset(by="ada", why="fixed")
    bench.clock.advance(0.1)
    assert bench.breaker.call(len, "abc") == 3


def test_successes_of_several_are_counted_in_one_circuit() -> None:
    bench = Bench()
    other = Panel(bench.store, clock=bench.clock).breaker("api", POLICY)
    guarded = bench.breaker(len)
    for _ in range(10):
        guarded("abc")
        with other:
            bench.clock.advance(0.03)
    bench.breaker.refresh()
    other.refresh()
    assert bench.breaker.snapshot().totals.succeeded == bench.stored().totals.succeeded
    assert other.totals.succeeded == 20


# Async


def test_an_event_loop_behaves_the_same() -> None:
    bench = Bench()

    async def fails() -> None:
        raise KeyError("x")

    async def works() -> int:
        return 3

    async def main() -> None:
        assert await bench.breaker.acall(works) == 3
        bench.store.cut()
        for _ in range(3):
            with pytest.raises(KeyError):
                await bench.breaker.acall(fails)
        with pytest.raises(Rejected):
            await bench.breaker.acall(works)
        bench.store.mend()
        bench.clock.advance(1.0)
        with pytest.raises(Rejected):
            async with bench.breaker:
                pytest.fail("it was admitted")

    asyncio.run(main())
    bench.breaker.refresh()
    assert bench.stored().phase is Phase.OPEN
    assert bench.stored().totals[:2] == (1, 3)


# One circuit's trouble


def test_an_unreadable_circuit_does_not_affect_the_others() -> None:
    bench = Bench()
    other = bench.panel.breaker("other", POLICY)
    real = bench.store.apply

    def newer(key: str, policy: Policy, message: Message, now_s: float) -> Step:
        if key == "api":
            raise StoreTooNew("flaky:", "circuit 'api' is of a newer schema", "upgrade")
        return real(key, policy, message, now_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "apply", newer)
        bench.breaker.record(BAD)
        other.record(BAD)
        bench.clock.advance(1.0)
        bench.breaker.record(BAD)
        other.record(BAD)
        assert not bench.panel.store.is_lost
        assert [event.circuit for event in bench.heard] == ["api"]
        found = bench.store.get("other")
        assert found is not None
        assert found.circuit.totals.failed == 2
    bench.clock.advance(1.0)
    bench.breaker.record(Signal(ok=True))
    assert bench.stored().totals[:2] == (1, 2)
    assert bench.kinds() == [EventKind.STORE_LOST, EventKind.STORE_BACK]


def test_a_breaker_can_be_created_while_the_store_is_unavailable() -> None:
    bench = Bench()
    bench.store.cut()
    breaker = bench.panel.breaker("new")
    assert breaker.call(len, "abc") == 3
    assert EventKind.STORE_LOST in [event.kind for event in bench.heard]
