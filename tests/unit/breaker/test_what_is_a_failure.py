"""What counts as a failure: by type, by a predicate on the exception, by a predicate on the result."""

import asyncio
import concurrent.futures
import logging
import math
from typing import Any

import pytest

from switchgear import CircuitBreaker, Phase, Rejected
from switchgear._breaker.signals import ExceptionTest
from switchgear._core.errors import Refusal
from switchgear.testing import FakeClock
from unit.shapes import driven


class RateLimited(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"{status}")
        self.status = status


def raises(error: BaseException) -> None:
    raise error


def counted(breaker: CircuitBreaker, error: BaseException) -> str:
    """Whether the breaker counts this exception as `failed` or as `ignored`."""
    before = breaker.totals
    with pytest.raises(type(error)) as caught:
        breaker.call(raises, error)
    assert caught.value is error
    now = breaker.totals
    assert (now.failed - before.failed) + (now.ignored - before.ignored) == 1
    return "failed" if now.failed > before.failed else "ignored"


@pytest.mark.parametrize("error", [ValueError(), OSError(), TimeoutError(), RateLimited(500)])
def test_by_default_every_exception_is_a_failure(error: Exception) -> None:
    assert counted(CircuitBreaker("api", clock=FakeClock()), error) == "failed"


@pytest.mark.parametrize(
    ("failure_if", "error", "verdict"),
    [
        (OSError, ConnectionError(), "failed"),
        (OSError, ValueError(), "ignored"),
        ((OSError, RateLimited), RateLimited(429), "failed"),
        ((OSError, RateLimited), ValueError(), "ignored"),
        (lambda error: error.status >= 500, RateLimited(503), "failed"),
        (lambda error: error.status >= 500, RateLimited(404), "ignored"),
        (lambda error: "yes", RateLimited(404), "failed"),
        (lambda error: None, RateLimited(404), "ignored"),
    ],
)
def test_failure_if_defines_which_exceptions_are_failures(
    failure_if: ExceptionTest, error: Exception, verdict: str
) -> None:
    breaker = CircuitBreaker("api", failure_if=failure_if, clock=FakeClock())
    assert counted(breaker, error) == verdict


@pytest.mark.parametrize(
    ("ignore", "error", "verdict"),
    [
        (ValueError, ValueError(), "ignored"),
        (ValueError, KeyError(), "failed"),
        ((ValueError, KeyError), KeyError(), "ignored"),
        ((), ValueError(), "failed"),
        (lambda error: error.status == 404, RateLimited(404), "ignored"),
        (lambda error: error.status == 404, RateLimited(500), "failed"),
    ],
)
def test_ignore_defines_which_exceptions_do_not_count(
    ignore: ExceptionTest, error: Exception, verdict: str
) -> None:
    breaker = CircuitBreaker("api", ignore=ignore, clock=FakeClock())
    assert counted(breaker, error) == verdict


def test_ignore_wins_over_failure_if() -> None:
    breaker = CircuitBreaker("api", failure_if=OSError, ignore=TimeoutError, clock=FakeClock())
    assert counted(breaker, TimeoutError()) == "ignored"
    assert counted(breaker, OSError()) == "failed"


def test_the_predicates_see_the_exception_itself() -> None:
    seen, error = list[BaseException](), ValueError("this one")

    def look(error: BaseException) -> bool:
        seen.append(error)
        return False

    counted(CircuitBreaker("api", ignore=look, failure_if=look, clock=FakeClock()), error)
    assert [each is error for each in seen] == [True, True]


def test_results_without_evidence_neither_add_to_nor_end_failures_in_a_row() -> None:
    breaker = CircuitBreaker("api", threshold=3, ignore=ValueError, clock=FakeClock())
    for error in (OSError(), ValueError(), OSError(), ValueError()):
        counted(breaker, error)
    assert breaker.state == "closed"
    counted(breaker, OSError())
    assert breaker.state == "open"


NEVER_EVIDENCE = [
    KeyboardInterrupt(),
    SystemExit(1),
    GeneratorExit(),
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    StopIteration(),
    StopAsyncIteration(),
    BaseExceptionGroup("shutdown", [KeyboardInterrupt()]),
]


@pytest.mark.parametrize("error", NEVER_EVIDENCE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("failure_if", [Exception, BaseException, lambda _: True])
def test_interruptions_are_never_evidence_whatever_failure_if_is(
    error: BaseException, failure_if: ExceptionTest
) -> None:
    breaker = CircuitBreaker("api", threshold=1, failure_if=failure_if, clock=FakeClock())
    assert counted(breaker, error) == "ignored"
    assert breaker.state == "closed"


def test_a_cancelled_future_of_the_standard_library_is_not_evidence() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    future: concurrent.futures.Future[str] = concurrent.futures.Future()
    future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        breaker.call(future.result)
    assert breaker.state == "closed"


def test_the_end_of_an_iterator_is_a_result() -> None:
    breaker = CircuitBreaker("rows", threshold=1, clock=FakeClock())
    rows = iter([1, 2])
    assert [breaker.call(next, rows), breaker.call(next, rows)] == [1, 2]
    with pytest.raises(StopIteration):
        breaker.call(next, rows)
    assert breaker.state == "closed"


def test_a_refusal_by_an_inner_circuit_is_not_evidence_against_the_outer() -> None:
    inner = CircuitBreaker("inner", threshold=1, clock=FakeClock())
    outer = CircuitBreaker("outer", threshold=1, failure_if=lambda _: True, clock=FakeClock())
    inner.hold_open(by="ann", why="test")
    with pytest.raises(Rejected) as refused:
        outer.call(inner.call, int)
    assert refused.value.circuit == "inner"
    assert outer.state == "closed"


# Results


def test_a_bad_result_is_returned_and_counts_as_a_failure() -> None:
    breaker = CircuitBreaker(
        "api", threshold=2, failure_if_result=lambda answer: not answer, clock=FakeClock()
    )
    assert [breaker.call(lambda: ""), breaker.call(lambda: "")] == ["", ""]
    assert breaker.state == "open"


def test_a_good_result_ends_bad_results_in_a_row() -> None:
    breaker = CircuitBreaker(
        "api", threshold=2, failure_if_result=lambda answer: not answer, clock=FakeClock()
    )
    for answer in ("", "fine", "", "fine", ""):
        breaker.call(str, answer)
    assert breaker.state == "closed"
    assert breaker.totals.failed == 3
    assert breaker.totals.succeeded == 2


def test_a_bad_result_of_a_probe_opens_again() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker(
        "api", threshold=1, failure_if_result=lambda answer: not answer, clock=clock
    )
    breaker.call(lambda: "")
    clock.advance(60.0)
    breaker.call(lambda: "")
    assert breaker.state == "open"
    clock.advance(119.0)
    assert breaker.state == "open"


def test_an_awaited_result_is_evaluated_and_not_the_coroutine() -> None:
    seen = list[object]()

    async def answer() -> str:
        return "fine"

    breaker = CircuitBreaker("api", failure_if_result=seen.append, clock=FakeClock())  # type: ignore[arg-type]
    driven(breaker.acall(answer))
    driven(breaker.call(answer))
    driven(breaker(answer)())
    assert seen == ["fine", "fine", "fine"]


# Predicates that break


def broken(_: Any) -> bool:
    raise RuntimeError("the predicate is broken")


@pytest.mark.parametrize("field", ["failure_if", "ignore"])
def test_a_predicate_that_raises_never_replaces_the_callers_exception(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    hooks: dict[str, Any] = {field: broken}
    breaker, error = CircuitBreaker("api", clock=FakeClock(), **hooks), ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        breaker.call(raises, error)
    assert caught.value is error
    assert caught.value.__context__ is None
    assert breaker.totals.failed == 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "'api'" in caplog.text
    assert "the predicate is broken" in caplog.text


def test_a_result_predicate_that_raises_never_replaces_the_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    breaker = CircuitBreaker("api", failure_if_result=broken, clock=FakeClock())
    assert breaker.call(lambda: "answer") == "answer"
    assert breaker.totals.succeeded == 1
    assert len(caplog.records) == 1
    assert "the predicate is broken" in caplog.text


REFUSED = Rejected("inner", Refusal(Phase.OPEN, "down", math.inf, None), 0.0)


@pytest.mark.parametrize(
    ("settings", "members", "verdict"),
    [
        ({}, [OSError()], "failed"),
        ({}, [REFUSED, concurrent.futures.CancelledError()], "ignored"),
        ({}, [REFUSED, OSError()], "failed"),
        ({}, [ExceptionGroup("inner", [REFUSED])], "ignored"),
        ({}, [ExceptionGroup("inner", [REFUSED, OSError()])], "failed"),
        ({"ignore": ValueError}, [ValueError()], "ignored"),
        ({"ignore": ValueError}, [ValueError(), OSError()], "failed"),
        ({"ignore": lambda error: error.status == 404}, [RateLimited(404)], "ignored"),
        ({"ignore": ExceptionGroup}, [OSError()], "ignored"),
        ({"failure_if": OSError}, [ValueError()], "ignored"),
        ({"failure_if": OSError}, [ValueError(), OSError()], "failed"),
        ({"failure_if": lambda error: error.status >= 500}, [RateLimited(404)], "ignored"),
        ({"failure_if": lambda error: error.status >= 500}, [RateLimited(503)], "failed"),
        ({"failure_if": ExceptionGroup}, [OSError()], "failed"),
        ({"failure_if": ExceptionGroup}, [REFUSED], "ignored"),
    ],
)
def test_a_group_is_a_failure_if_one_of_its_members_is(
    settings: dict[str, Any], members: list[Exception], verdict: str
) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock(), **settings)
    assert counted(breaker, ExceptionGroup("many", members)) == verdict


def test_a_group_with_a_cancellation_counts_as_interrupted() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    group = BaseExceptionGroup("many", [asyncio.CancelledError(), OSError()])
    assert counted(breaker, group) == "ignored"
