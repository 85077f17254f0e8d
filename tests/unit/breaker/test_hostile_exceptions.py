"""Exceptions whose attributes raise: the caller gets the exception, and it counts."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from depth import for_each
from switchgear import CircuitBreaker
from switchgear._breaker.signals import describe, retry_after_s
from switchgear._core.errors import is_interrupt
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import agent, crew
from switchgear._providers.errors import (
    agent_signal,
    classify,
    is_provider_failure,
    provider_signal,
    was_not_started,
)
from switchgear.integrations._agent_run import is_model_failure
from switchgear.integrations._refusals import refusal_in
from switchgear.testing import FakeClock
from unit.shapes import ALL, Shape

every_shape = pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.__name__)

THROWN = (
    *(ValueError, AttributeError, RecursionError, MemoryError, KeyboardInterrupt, SystemExit),
    *(GeneratorExit, BaseException, StopIteration),
)
READ = (
    *(
        "retry_after_s",
        "retry_after",
        "response",
        "headers",
        "status_code",
        "http_status",
        "status",
    ),
    *("code", "type", "body", "details", "error", "args", "message", "request", "exceptions"),
    *("__cause__", "__context__", "__suppress_context__", "__traceback__", "__notes__"),
    *("__class__", "__dict__", "__str__", "__repr__", "__eq__", "__hash__", "__bool__"),
)
"""What is read of an exception, and what could be."""


def hostile(name: str, thrown: type[BaseException]) -> Exception:
    """An exception of which one attribute raises."""

    def raises(*_: Any) -> Any:
        raise thrown

    called = {"__str__", "__repr__", "__eq__", "__hash__", "__bool__"}
    attribute: Any = raises if name in called else property(raises)
    kind = type("Hostile", (Exception,), {name: attribute})
    made: Exception = kind("down")
    return made


class AllRaise(Exception):
    """An exception of which nothing can be read."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class NeverEnds(Exception):
    """An exception whose attributes recurse."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self, f"{name}_")

    def __str__(self) -> str:
        return str(self)


class Endless:
    """Headers that have no end."""

    def get(self, _: str) -> None:
        return None

    def __iter__(self) -> Iterator[str]:
        while True:
            yield "x-more"


class EvilText(str):
    __slots__ = ()

    def __getitem__(self, _: Any) -> str:
        raise SystemExit

    def isprintable(self) -> bool:
        raise SystemExit


class SaysEvil(Exception):
    headers = Endless()

    def __str__(self) -> str:
        return EvilText("evil")


class Huge(Exception):
    def __str__(self) -> str:
        return "x" * 50_000_000


class Metaclass(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit


class StrangeKind(Exception, metaclass=Metaclass):
    pass


def strange() -> list[Exception]:
    made = [AllRaise(), NeverEnds("x"), SaysEvil(), Huge(), StrangeKind("x")]
    group = ExceptionGroup("several", [AllRaise(), ValueError("plain")])
    return [*made, group]


HOSTILE = [
    *((name, thrown) for name in READ for thrown in THROWN),
]


@for_each("name", READ)
@every_shape
def test_the_caller_gets_a_hostile_exception_and_it_counts(shape: Shape, name: str) -> None:
    breaker = CircuitBreaker("api", threshold=len(THROWN), clock=FakeClock())
    for thrown in THROWN:
        error = hostile(name, thrown)
        caught = outcome(lambda error=error: shape(breaker, thrower(error)))  # type: ignore[misc]
        assert caught is error
    assert breaker.state == "open"


@for_each("name", READ)
def test_a_reservation_a_route_and_a_retry_pass_it_on_too(name: str) -> None:
    people = crew([agent(name="coder", owner="ana", provider="anthropic", model="opus")])
    with Fleet.open("memory:", people) as fleet:
        budgets = fleet.panel.budgets
        budgets.open("team", 1_000_000)

        def reserved(error: Exception) -> None:
            with budgets.reserve("team", 1):
                raise error

        def routed(error: Exception) -> None:
            with fleet.route("coder"):
                raise error

        for thrown in THROWN:
            error = hostile(name, thrown)
            assert outcome(lambda error=error: reserved(error)) is error  # type: ignore[misc]
            assert outcome(lambda error=error: routed(error)) is error  # type: ignore[misc]
            called = lambda _, error=error: thrower(error)()  # noqa: E731
            assert outcome(lambda called=called: fleet.call("coder", called)) is error  # type: ignore[misc]
            assert refusal_in(error) is None
            assert is_model_failure(error)
        assert budgets.free_micros("team") == 1_000_000 - len(THROWN), "all are settled"


@for_each("number", range(len(strange())))
@every_shape
def test_unusual_exceptions_reach_the_caller_too(shape: Shape, number: int) -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    error = strange()[number]
    assert outcome(lambda: shape(breaker, thrower(error))) is error
    assert breaker.state == "open"


@pytest.mark.parametrize("field", ["failure_if", "ignore", "success_if"])
@pytest.mark.parametrize("thrown", THROWN)
def test_a_predicate_that_raises_on_it_does_not_replace_it(
    field: str, thrown: type[BaseException]
) -> None:
    def reads(error: Any) -> bool:
        return error.status == 404  # type: ignore[no-any-return]

    options: dict[str, Any] = {field: reads}
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock(), **options)
    error = hostile("status", thrown)
    assert outcome(lambda: breaker.call(thrower(error))) is error
    assert breaker.state == "open"


@pytest.mark.parametrize(
    "read",
    [
        *(describe, retry_after_s, classify, provider_signal, agent_signal),
        *(is_provider_failure, was_not_started),
    ],
)
def test_functions_that_read_exceptions_never_raise(read: Callable[[BaseException], Any]) -> None:
    errors = [hostile(name, thrown) for name, thrown in HOSTILE]
    for error in [*errors, *strange()]:
        read(error)
        wrapped = ValueError("wrapped")
        wrapped.__cause__ = error
        read(wrapped)


def test_a_text_without_end_is_cut() -> None:
    assert len(describe(Huge())) < 300


def test_logging_what_cannot_be_logged_does_not_replace_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise SystemExit

    logger = logging.getLogger("switchgear")
    monkeypatch.setattr(logger, "handlers", [Broken()])
    breaker = CircuitBreaker("api", ignore=lambda _: 1 / 0 > 0, clock=FakeClock())
    error = ValueError("mine")
    assert outcome(lambda: breaker.call(thrower(error))) is error


def test_a_real_interrupt_in_code_of_switchgear_is_not_swallowed() -> None:
    ours = compile("def ours():\n    raise KeyboardInterrupt", "ours", "exec")
    names: dict[str, Any] = {"__name__": "switchgear._breaker.signals"}
    exec(ours, names)
    real, theirs = outcome(names["ours"]), outcome(thrower(KeyboardInterrupt()))
    assert real is not None
    assert theirs is not None
    assert is_interrupt(real)
    assert not is_interrupt(theirs)
    assert not is_interrupt(SystemExit())


def thrower(error: BaseException) -> Callable[[], Any]:
    def throws() -> None:
        raise error

    return throws


def outcome(work: Callable[[], Any]) -> BaseException | None:
    """The exception that the function raises, of any type."""
    try:
        work()
    except BaseException as error:
        return error
    return None
