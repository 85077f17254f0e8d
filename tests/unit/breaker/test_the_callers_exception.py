"""The caller receives the same exception object, without anything added by Switchgear."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import switchgear
from switchgear import CircuitBreaker, Policy, Rejected, detectors
from switchgear.testing import FakeClock
from unit.shapes import ALL, Shape

TIMED = Policy([detectors.ConsecutiveFailures(5), detectors.SlowCalls(slow_s=10.0)])
every_shape = pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.__name__)


def broken(_: object) -> bool:
    raise RuntimeError("a hook is broken")


SETTINGS: list[dict[str, Any]] = [
    {},
    {"threshold": 1},
    {"policy": TIMED},
    {"failure_if_result": bool},
    {"failure_if": broken, "ignore": broken},
    {"threshold": 1, "sinks": [broken]},
]


@every_shape
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "+".join(settings) or "default")
def test_the_caller_gets_the_same_exception_with_its_cause_context_notes_and_arguments(
    shape: Shape, settings: dict[str, Any]
) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock(), **settings)
    cause, context = KeyError("cause"), LookupError("context")
    error = ConnectionError("down", 7)
    error.add_note("a note of the caller")

    def fails() -> None:
        try:
            raise context
        except LookupError:
            raise error from cause

    with pytest.raises(ConnectionError) as raised:
        shape(breaker, fails)
    assert raised.value is error
    assert raised.value.__cause__ is cause
    assert raised.value.__context__ is context
    assert context.__context__ is None
    assert raised.value.__suppress_context__
    assert raised.value.__notes__ == ["a note of the caller"]
    assert raised.value.args == ("down", 7)


class BreakingClock(FakeClock):
    """A clock that breaks while the guarded function runs."""

    broken = False

    def __call__(self) -> float:
        if self.broken:
            raise ZeroDivisionError("the clock is broken")
        return super().__call__()


class BreakingDetector(detectors.ConsecutiveFailures):
    def fold(self, *_: Any) -> Any:
        raise ZeroDivisionError("the detector is broken")


BROKEN_PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "clock": dict,
    "clock of a timed policy": lambda: {"policy": TIMED},
    "clock and predicate": lambda: {"failure_if_result": bool},
    "detector": lambda: {"policy": Policy([BreakingDetector(5)])},
    "detector under a worried policy": lambda: {
        "policy": Policy([BreakingDetector(5)], tripping_at=0.5)
    },
}
every_broken_part = pytest.mark.parametrize("part", BROKEN_PARTS)


@every_shape
@every_broken_part
def test_a_clock_or_detector_that_breaks_afterwards_replaces_no_exception(
    shape: Shape, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock, error = BreakingClock(), ConnectionError("mine")
    breaker = CircuitBreaker("api", clock=clock, **BROKEN_PARTS[part]())

    def fails() -> None:
        clock.broken = part.startswith("clock")
        raise error

    with pytest.raises(ConnectionError) as raised:
        shape(breaker, fails)
    assert raised.value is error
    assert raised.value.__context__ is None
    assert "circuit 'api' could not record a call" in caplog.text
    assert "is broken" in caplog.text


@every_shape
@every_broken_part
def test_a_clock_or_detector_that_breaks_afterwards_replaces_no_result(
    shape: Shape, part: str
) -> None:
    clock = BreakingClock()
    breaker = CircuitBreaker("api", clock=clock, **BROKEN_PARTS[part]())

    def gives() -> str:
        clock.broken = part.startswith("clock")
        return "answer"

    for _ in range(2):
        clock.broken = False
        assert shape(breaker, gives) in ("answer", ["answer"], None)


@every_shape
def test_an_interrupt_while_recording_is_raised_with_the_exception_as_its_context(
    shape: Shape,
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock(), sinks=[interrupt])
    error = ConnectionError("mine")

    def fails() -> None:
        raise error

    with pytest.raises(KeyboardInterrupt) as raised:
        shape(breaker, fails)
    assert raised.value.__context__ is error


@every_shape
def test_an_exception_from_none_stays_from_none(shape: Shape) -> None:
    def fails() -> None:
        try:
            raise KeyError("hidden")
        except KeyError:
            raise ConnectionError from None

    with pytest.raises(ConnectionError) as raised:
        shape(CircuitBreaker("api", clock=FakeClock()), fails)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def innermost(error: BaseException) -> traceback.FrameSummary:
    return traceback.extract_tb(error.__traceback__)[-1]


@every_shape
def test_the_traceback_ends_where_it_was_raised_and_has_few_frames_of_switchgear(
    shape: Shape,
) -> None:
    def the_line_that_fails() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError) as raised:
        shape(CircuitBreaker("api", clock=FakeClock()), the_line_that_fails)
    assert innermost(raised.value).name == "the_line_that_fails"
    frames = traceback.extract_tb(raised.value.__traceback__)
    package = Path(switchgear.__file__).parent  # the checkout may be called "switchgear", too
    ours = [frame.name for frame in frames if Path(frame.filename).is_relative_to(package)]
    assert len(ours) <= 5, ours
    assert not {"tell", "failed", "_apply", "step"} & set(ours)


@every_shape
def test_one_exception_object_raised_again_and_again_grows_no_chain(shape: Shape) -> None:
    breaker, error = CircuitBreaker("api", threshold=99, clock=FakeClock()), ConnectionError()

    def fails() -> None:
        raise error.with_traceback(None)

    lengths = set[int]()
    for _ in range(5):
        with pytest.raises(ConnectionError) as raised:
            shape(breaker, fails)
        lengths.add(len(traceback.extract_tb(raised.value.__traceback__)))
        assert raised.value.__context__ is None
    assert len(lengths) == 1


class Unhashable(Exception):
    __hash__ = None  # type: ignore[assignment]


class NeverEqual(Exception):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare me")

    __hash__ = Exception.__hash__


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("do not print me")

    __repr__ = __str__


class Secretive(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"do not look at my {name}")


@pytest.mark.parametrize("kind", [Unhashable, NeverEqual, Unprintable, Secretive])
def test_exceptions_that_cannot_be_inspected_reach_the_caller_and_count(
    kind: type[Exception],
) -> None:
    breaker, error = CircuitBreaker("api", threshold=1, clock=FakeClock()), kind()

    def fails() -> None:
        raise error

    caught = list[bool]()
    try:
        breaker.call(fails)
    except BaseException as raised:  # pytest.raises would look at it
        caught.append(raised is error)
    assert caught == [True]
    assert breaker.state == "open"
    with pytest.raises(Rejected, match=kind.__name__):
        breaker.call(int)


@pytest.mark.parametrize(
    "make",
    [lambda: ExceptionGroup("many", [ValueError(), OSError()]), lambda: RecursionError("deep")],
)
def test_groups_and_errors_of_the_interpreter_are_failures_like_others(
    make: Callable[[], Exception],
) -> None:
    breaker, error = CircuitBreaker("api", clock=FakeClock()), make()

    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        breaker.call(fails)
    assert raised.value is error
    assert breaker.totals.failed == 1
