"""A refusal contains the circuit, the reason, the wait and the last error."""

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from switchgear import CircuitBreaker, Latched, Phase, Policy, Rejected, Signal, detectors
from switchgear._core import errors
from switchgear._core.errors import SwitchgearError, WrongContext
from switchgear._core.wire import WireError, load_circuit
from switchgear._text.formats import duration
from switchgear.testing import FakeClock
from unit.shapes import driven


class APIStatusError(Exception):
    pass


def overloaded() -> str:
    raise APIStatusError("529 overloaded")


def up() -> str:
    return "answer"


def tripped(clock: FakeClock) -> CircuitBreaker:
    breaker = CircuitBreaker("provider/anthropic", clock=clock)
    for _ in range(5):
        with pytest.raises(APIStatusError):
            breaker.call(overloaded)
    return breaker


def test_a_refusal_carries_the_facts_as_fields() -> None:
    clock = FakeClock()
    breaker = tripped(clock)
    clock.advance(18.0)
    with pytest.raises(Rejected) as refused:
        breaker.call(up)
    assert refused.value.circuit == "provider/anthropic"
    assert refused.value.phase is Phase.OPEN
    assert refused.value.reason == "5 failures in a row (threshold 5)"
    assert refused.value.retry_after_s == 42.0
    assert refused.value.last_error == "APIStatusError: 529 overloaded"


def test_the_text_of_a_refusal_follows_the_style_guide() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("provider/anthropic", clock=clock)
    for _ in range(5):
        breaker.record(Signal(ok=False, error="529 overloaded"))
    clock.advance(18.0)
    with pytest.raises(Rejected) as refused:
        breaker.call(up)
    assert str(refused.value) == (
        "circuit 'provider/anthropic' is open: 5 failures in a row (threshold 5), "
        'last "529 overloaded"; retries in 42 s'
    )


def test_the_text_of_a_half_open_refusal_reports_that_a_probe_is_under_way() -> None:
    clock = FakeClock()
    breaker = tripped(clock)
    clock.advance(60.0)
    breaker.enter()
    clock.advance(18.0)
    with pytest.raises(Rejected) as refused:
        breaker.call(up)
    assert refused.value.phase is Phase.HALF_OPEN
    assert refused.value.retry_after_s == 42.0
    assert str(refused.value) == (
        "circuit 'provider/anthropic' is half-open: a probe is under way, after 5 failures in a "
        'row (threshold 5), last "APIStatusError: 529 overloaded"; retries in 42 s'
    )


def test_the_text_after_a_failed_probe_reports_it() -> None:
    clock = FakeClock()
    breaker = tripped(clock)
    for wait_s in (60.0, 120.0):
        clock.advance(wait_s)
        with pytest.raises(APIStatusError):
            breaker.call(overloaded)
    with pytest.raises(Rejected) as refused:
        breaker.call(up)
    assert str(refused.value) == (
        "circuit 'provider/anthropic' is open: probe failed (2 in a row), "
        'last "APIStatusError: 529 overloaded"; retries in 4 min'
    )


def test_the_text_of_a_latched_circuit_reports_that_it_waits_for_a_reset() -> None:
    policy = Policy([detectors.ConsecutiveFailures(1)], Latched())
    breaker = CircuitBreaker("rules/no-secrets", policy=policy, clock=FakeClock())
    breaker.record(Signal(ok=False, error="a key in the output"))
    with pytest.raises(Rejected) as refused:
        breaker.call(up)
    assert refused.value.retry_after_s is None
    assert str(refused.value) == (
        "circuit 'rules/no-secrets' is open: 1 failure in a row (threshold 1), "
        'last "a key in the output"; it stays open until it is reset'
    )


def test_the_text_of_a_held_circuit_names_its_operator_and_the_release() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    breaker.hold_open(by="ann", why="maintenance")
    with pytest.raises(Rejected) as refused:
        breaker.call(up)
    assert refused.value.retry_after_s is None
    assert refused.value.reason == "held open by ann: maintenance"
    # Not "is closed: held open ...", and a reset would not help.
    assert str(refused.value) == (
        "circuit 'api' is held open by ann: maintenance; it stays open until it is released"
    )


def test_a_hold_keeps_its_author_after_another_operator_resets_the_evidence() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    breaker.hold_open(by="ann", why="maintenance")
    breaker.reset(by="bob", why="old evidence")
    with pytest.raises(Rejected, match="held open by ann: maintenance"):
        breaker.call(up)


def test_a_circuit_without_an_error_text_does_not_mention_one() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    breaker.record(Signal(ok=False))
    with pytest.raises(Rejected) as refused:
        breaker.call(up)
    assert refused.value.last_error is None
    assert str(refused.value) == (
        "circuit 'api' is open: 1 failure in a row (threshold 1); retries in 60 s"
    )


def test_the_wait_counts_down_to_the_moment_of_the_probe() -> None:
    clock, waits = FakeClock(), list[float | None]()
    breaker = tripped(clock)
    while clock() < 60.0:
        with pytest.raises(Rejected) as refused:
            breaker.call(up)
        waits.append(refused.value.retry_after_s)
        clock.advance(15.0)
    assert waits == [60.0, 45.0, 30.0, 15.0]
    assert breaker.call(up) == "answer"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.04, "0.1 s"),
        (0.35, "0.4 s"),
        (9.94, "10 s"),
        (3.0, "3 s"),
        (41.2, "42 s"),
        (60.0000000001, "60 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (121.0, "3 min"),
        (7140.0, "119 min"),
        (7199.0, "2 h"),
        (7200.0, "2 h"),
        (7201.0, "3 h"),
        (1e308, "over 100 years"),
    ],
)
def test_a_wait_is_readable_and_rounded_up(seconds: float, text: str) -> None:
    assert duration(seconds) == text


async def aup() -> str:
    return "answer"


def stream() -> Iterator[int]:
    yield 1


def refusals(breaker: CircuitBreaker) -> list[Callable[[], object]]:
    return [
        lambda: breaker.call(up),
        breaker(up),
        breaker.enter,
        breaker.__enter__,
        lambda: driven(breaker.acall(aup)),
        lambda: next(breaker(stream)()),
    ]


@pytest.mark.parametrize("phase", ["open", "half_open"])
def test_every_refusal_is_a_new_object_without_a_traceback_of_earlier_ones(phase: str) -> None:
    clock = FakeClock()
    breaker = tripped(clock)
    if phase == "half_open":
        clock.advance(60.0)
        breaker.enter()
    for refuse in refusals(breaker):
        seen = []
        for _ in range(20):
            with pytest.raises(Rejected) as refused:
                refuse()
            seen.append(refused.value)
            assert len(refused.traceback) <= 6
            assert refused.value.__context__ is None
            assert refused.value.__cause__ is None
        assert len({id(error) for error in seen}) == 20


def latched() -> Rejected:
    policy = Policy([detectors.ConsecutiveFailures(1)], Latched())
    breaker = CircuitBreaker("api", policy=policy, clock=FakeClock())
    breaker.record(Signal(ok=False))
    with pytest.raises(Rejected) as refused:
        breaker.call(up)
    return refused.value


def waiting() -> Rejected:
    with pytest.raises(Rejected) as refused:
        tripped(FakeClock()).call(up)
    return refused.value


def wrong_context() -> WrongContext:
    with pytest.raises(WrongContext) as raised:
        CircuitBreaker("api").__exit__(None, None, None)
    return raised.value


def unreadable() -> WireError:
    with pytest.raises(WireError) as raised:
        load_circuit(Policy([detectors.ConsecutiveFailures(1)]), "nonsense")
    return raised.value


def root() -> SwitchgearError:
    return SwitchgearError("anything")


def order_refused() -> errors.OverrideRefused:
    return errors.OverrideRefused("api")


STORE_ERRORS = (
    errors.StoreError,
    errors.StoreUnavailable,
    errors.StoreFull,
    errors.StoreReadOnly,
    errors.StoreCorrupt,
    errors.StoreTooNew,
)
MAKERS: tuple[Callable[[], Exception], ...] = (
    latched,
    waiting,
    wrong_context,
    unreadable,
    root,
    order_refused,
    partial(errors.BudgetRefused, "team/wave", "$2.00 requested, $1.00 of $5.00 free", 1_000_000),
    partial(
        errors.NoRoute, "coder", "requeue", "provider/p: 3 failures in 60 s (threshold 3)", 60.0
    ),
    partial(errors.LockTimeout, "db", "ada", 3.0),
    partial(errors.LockLost, "db", 7),
    *(partial(kind, "sqlite:///x", "it is so", "do this") for kind in STORE_ERRORS),
)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_pickling(make: Callable[[], Exception], protocol: int) -> None:
    error = make()
    assert facts(pickle.loads(pickle.dumps(error, protocol))) == facts(error)


def facts(error: Exception) -> list[object]:
    fields = ("circuit", "phase", "reason", "retry_after_s", "last_error")
    return [type(error), error.args, str(error), *(getattr(error, name, None) for name in fields)]


def test_the_test_above_covers_every_error() -> None:
    ours = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    ours = {kind for kind in ours if issubclass(kind, SwitchgearError)}
    assert ours == {type(make()) for make in MAKERS} - {WireError}


def test_one_base_class_catches_every_error() -> None:
    assert all(isinstance(make(), SwitchgearError | WireError) for make in MAKERS)


@pytest.mark.parametrize("args", [(), ("x",), ("x", "y", 1.0)])
def test_an_error_created_by_other_code_can_be_printed(args: tuple[Any, ...]) -> None:
    assert str(Rejected(*args)) == str(Exception(*args))
