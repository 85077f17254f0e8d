"""Sinks that use breakers: events that they cause are delivered afterwards, in order."""

from threading import Barrier, Thread

import pytest

from switchgear import CircuitBreaker, Event, Policy, Signal, detectors
from switchgear.testing import FakeClock
from timeouts import LIMIT_S


def test_a_sink_that_moves_its_own_circuit_receives_all_events_in_order() -> None:
    first, last = list[int](), list[int]()

    def resets(event: Event) -> None:
        first.append(event.seq)
        if event.after == "tripping" and event.seq == 1:
            breaker.reset(by="sink", why="worried")

    policy = Policy([detectors.ConsecutiveFailures(2)], tripping_at=0.5)
    breaker = CircuitBreaker(
        "api",
        policy=policy,
        clock=FakeClock(),
        sinks=[resets, lambda event: last.append(event.seq)],
    )
    breaker.record(Signal(ok=False, count=2))
    assert first == last == [1, 2, 3, 4]
    assert breaker.state == "closed"


def test_events_of_two_circuits_that_move_each_other_keep_their_order() -> None:
    heard = list[tuple[str, int]]()

    def note(event: Event) -> None:
        heard.append((event.circuit, event.seq))
        if event.circuit == "a" and event.after == "open":
            second.record(Signal(ok=False))

    first = CircuitBreaker("a", threshold=1, clock=FakeClock(), sinks=[note, note])
    second = CircuitBreaker("b", threshold=1, clock=FakeClock(), sinks=[note])
    first.record(Signal(ok=False))
    assert heard == [("a", 1), ("a", 1), ("b", 1)]


def test_events_of_an_interrupted_sink_are_delivered_next_time() -> None:
    heard = list[int]()

    def interrupted_once(event: Event) -> None:
        heard.append(event.seq)
        if len(heard) == 1:
            raise KeyboardInterrupt

    policy = Policy([detectors.ConsecutiveFailures(2)], tripping_at=0.5)
    breaker = CircuitBreaker("api", policy=policy, clock=FakeClock(), sinks=[interrupted_once])
    with pytest.raises(KeyboardInterrupt):
        breaker.record(Signal(ok=False, count=2))
    breaker.reset(by="ada", why="again")
    assert heard == [1, 2, 3, 4]


def test_a_thread_does_not_wait_for_the_sinks_of_another() -> None:
    meeting = Barrier(2, timeout=LIMIT_S)
    breakers = [
        CircuitBreaker(name, threshold=1, sinks=[lambda _: meeting.wait()]) for name in ("a", "b")
    ]
    threads = [Thread(target=breaker.record, args=(Signal(ok=False),)) for breaker in breakers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not meeting.broken
