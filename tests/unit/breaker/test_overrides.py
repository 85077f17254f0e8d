"""Overrides by operators; each is an event with operator and reason."""

from collections.abc import Callable
from typing import Any

import pytest

from switchgear import CircuitBreaker, Event, EventKind, Mode, Phase, Rejected, Signal
from switchgear.testing import FakeClock

FAILED = Signal(ok=False, error="down")


def fails() -> None:
    raise ConnectionError("down")


def tripped(clock: FakeClock, **settings: Any) -> CircuitBreaker:
    breaker = CircuitBreaker("api", threshold=1, clock=clock, **settings)
    breaker.record(FAILED)
    assert breaker.state == "open"
    return breaker


@pytest.mark.parametrize(
    ("order", "mode", "reason"),
    [
        (CircuitBreaker.hold_open, Mode.HELD_OPEN, "mode held_open"),
        (CircuitBreaker.hold_closed, Mode.HELD_CLOSED, "mode held_closed"),
        (CircuitBreaker.shadow, Mode.SHADOW, "mode shadow"),
        (CircuitBreaker.release, Mode.AUTO, "mode auto"),
        (CircuitBreaker.reset, Mode.AUTO, "reset"),
    ],
)
def test_each_override_is_one_event_with_operator_and_reason(
    order: Callable[..., None], mode: Mode, reason: str
) -> None:
    clock, seen = FakeClock(7.0), list[Event]()
    breaker = CircuitBreaker("api", clock=clock, sinks=[seen.append])
    order(breaker, by="ann", why="maintenance")
    assert seen == [
        Event(
            circuit="api",
            seq=1,
            at_s=7.0,
            kind=EventKind.ORDERED,
            before=Phase.CLOSED,
            after=Phase.CLOSED,
            mode=mode,
            generation=seen[0].generation,
            reason=reason,
            by="ann",
            why="maintenance",
        )
    ]
    assert breaker.mode is mode


def test_held_open_refuses_everything_regardless_of_the_evidence_until_released() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    breaker.hold_open(by="ann", why="test")
    for _ in range(3):
        clock.advance(1e6)
        with pytest.raises(Rejected, match="held open by ann: test"):
            breaker.call(int)
    assert breaker.state == "closed"
    breaker.release(by="ann", why="done")
    assert breaker.call(int) == 0
    assert breaker.totals.refused == 3


def test_held_closed_admits_everything_and_evidence_still_accumulates() -> None:
    clock = FakeClock()
    breaker = tripped(clock)
    breaker.hold_closed(by="ann", why="we need it")
    for _ in range(3):
        assert breaker.call(int) == 0
    assert breaker.state == "open"
    assert breaker.totals.overruled == 3
    breaker.release(by="ann", why="done")
    with pytest.raises(Rejected):
        breaker.call(int)


def test_shadow_counts_what_it_would_have_refused_and_refuses_nothing() -> None:
    breaker, seen = CircuitBreaker("api", threshold=2, clock=FakeClock()), list[str]()
    breaker.shadow(by="ann", why="trying it")

    def notes_and_fails() -> None:
        seen.append("ran")
        fails()

    for _ in range(5):
        with pytest.raises(ConnectionError):
            breaker.call(notes_and_fails)
    assert len(seen) == 5
    assert breaker.state == "open"
    assert breaker.totals.overruled == 3
    assert breaker.totals.refused == 0


def test_after_a_release_the_phase_follows_the_evidence() -> None:
    clock = FakeClock()
    breaker = tripped(clock)
    breaker.hold_closed(by="ann", why="test")
    clock.advance(60.0)
    breaker.release(by="ann", why="done")
    assert breaker.state == "half_open"


def test_a_reset_closes_clears_the_evidence_and_emits_an_event() -> None:
    seen = list[Event]()
    breaker = tripped(FakeClock(), sinks=[seen.append])
    breaker.reset(by="ann", why="fixed")
    assert breaker.state == "closed"
    assert breaker.heat == 0.0
    assert sum(breaker.totals) == 0
    assert [(event.seq, event.kind, event.after) for event in seen] == [
        (1, EventKind.MOVED, Phase.OPEN),
        (2, EventKind.ORDERED, Phase.OPEN),
        (3, EventKind.MOVED, Phase.CLOSED),
    ]
    assert breaker.call(int) == 0


def test_a_reset_starts_the_backoff_over() -> None:
    clock = FakeClock()
    breaker = tripped(clock)
    clock.advance(60.0)
    breaker.record(FAILED)
    breaker.reset(by="ann", why="fixed")
    breaker.record(FAILED)
    with pytest.raises(Rejected) as refused:
        breaker.call(int)
    assert refused.value.retry_after_s == 60.0


def test_a_reset_does_not_release_a_hold() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    breaker.hold_open(by="ann", why="test")
    breaker.reset(by="bob", why="fixed")
    assert breaker.mode is Mode.HELD_OPEN
    with pytest.raises(Rejected):
        breaker.call(int)


def test_results_of_calls_in_progress_at_a_reset_are_stale() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())

    def reset_then_fail() -> None:
        breaker.reset(by="ann", why="fixed")
        fails()

    with pytest.raises(ConnectionError):
        breaker.call(reset_then_fail)
    assert breaker.state == "closed"
    assert breaker.totals.late == 1


def test_every_event_of_a_circuit_is_numbered_without_gaps_and_continues_the_one_before() -> None:
    clock, seen = FakeClock(), list[Event]()
    breaker = CircuitBreaker("api", threshold=1, clock=clock, sinks=[seen.append])
    breaker.record(FAILED)
    clock.advance(60.0)
    breaker.enter()
    clock.advance(60.0)
    assert breaker.state == "half_open"
    breaker.record(FAILED)
    breaker.hold_open(by="ann", why="test")
    breaker.shadow(by="bob", why="test")
    breaker.release(by="ann", why="test")
    clock.advance(120.0)
    breaker.call(int)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert [event.kind for event in seen].count(EventKind.PROBE_EXPIRED) == 1
    for before, after in zip(seen[:-1], seen[1:], strict=True):
        assert after.before is before.after
        assert after.at_s >= before.at_s
    assert seen[-1].after is Phase.CLOSED
