"""Sinks receive every event after the commit; what they do changes nothing."""

import logging
from typing import NoReturn

import pytest

from switchgear import CircuitBreaker, Event, Phase, Rejected
from switchgear.testing import FakeClock


def fails() -> NoReturn:
    raise ConnectionError("down")


def broken(event: Event) -> NoReturn:
    raise RuntimeError("the sink is broken")


def test_every_sink_receives_every_event_in_order_with_the_state_it_describes() -> None:
    clock, first, second = FakeClock(), list[Event](), list[Event]()
    states = list[tuple[Phase, Phase]]()

    def compare(event: Event) -> None:
        states.append((event.after, breaker.state))

    breaker = CircuitBreaker(
        "api", threshold=1, clock=clock, sinks=[first.append, compare, second.append]
    )
    with pytest.raises(ConnectionError):
        breaker.call(fails)
    clock.advance(60.0)
    breaker.call(int)
    assert [event.after for event in first] == ["open", "half_open", "closed"]
    assert second == first
    assert [event_says == state for event_says, state in states] == [True, True, True]


def test_a_sink_that_raises_changes_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock, heard = FakeClock(), list[Event]()
    breaker = CircuitBreaker("api", threshold=1, clock=clock, sinks=[broken, heard.append])
    error = ConnectionError("mine")

    def mine() -> None:
        raise error

    with pytest.raises(ConnectionError) as raised:
        breaker.call(mine)
    assert raised.value is error
    assert raised.value.__context__ is None
    assert breaker.state == "open"
    with pytest.raises(Rejected):
        breaker.call(int)
    clock.advance(60.0)
    assert breaker.call(int) == 0
    assert breaker.state == "closed"
    assert [event.seq for event in heard] == [1, 2, 3]
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 3
    assert errors[0].name == "switchgear"
    assert "a sink of circuit 'api' failed" in caplog.text
    assert "the sink is broken" in caplog.text


def test_an_override_succeeds_although_a_sink_raises() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock(), sinks=[broken])
    breaker.hold_open(by="ann", why="test")
    with pytest.raises(Rejected):
        breaker.call(int)


def test_an_interrupt_in_a_sink_is_not_swallowed_and_the_state_stays() -> None:
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock(), sinks=[interrupted])
    with pytest.raises(KeyboardInterrupt):
        breaker.call(fails)
    assert breaker.state == "open"


def test_changing_the_list_of_sinks_later_does_not_change_the_breaker() -> None:
    heard, sinks = list[Event](), list[object]()
    sinks.append(heard.append)
    breaker = CircuitBreaker("api", clock=FakeClock(), sinks=sinks)  # type: ignore[arg-type]
    sinks.clear()
    breaker.hold_open(by="ann", why="test")
    assert len(heard) == 1
