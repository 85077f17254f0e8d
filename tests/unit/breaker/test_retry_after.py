"""A Retry-After of the service sets how long the circuit stays open."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from fractions import Fraction
from typing import Any
from unittest.mock import MagicMock

import pytest

from switchgear import CircuitBreaker, Rejected, Signal
from switchgear._breaker.signals import retry_after_s
from switchgear.testing import FakeClock

NOW = datetime(2025, 3, 1, 12, 0, 0, tzinfo=UTC)
BY_BACKOFF_S = 60.0


class RateLimited(Exception):
    """An exception with whatever attributes an SDK gives it."""

    def __init__(self, **attributes: object) -> None:
        super().__init__("429")
        self.__dict__.update(attributes)


class Response:
    def __init__(self, headers: object) -> None:
        self.headers = headers


class Headers(Mapping[str, str]):
    """Headers as httpx and requests have them: names in any case."""

    def __init__(self, **headers: str) -> None:
        self._headers = {name.lower().replace("_", "-"): value for name, value in headers.items()}

    def __getitem__(self, name: str) -> str:
        return self._headers[name.lower()]

    def __iter__(self) -> Any:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


def wait_after(error: Exception) -> float | None:
    """How long a circuit stays open that is opened by this exception."""
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())

    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        breaker.call(fails)
    with pytest.raises(Rejected) as refused:
        breaker.call(int)
    return refused.value.retry_after_s


@pytest.mark.parametrize(
    ("attributes", "wait_s"),
    [
        ({"retry_after_s": 12}, 12.0),
        ({"retry_after_s": 0.5}, 0.5),
        ({"retry_after": 12.5}, 12.5),
        ({"retry_after": "12"}, 12.0),
        ({"retry_after": timedelta(minutes=2)}, 120.0),
        ({"retry_after": Decimal("1.5")}, 1.5),
        ({"retry_after": b"12"}, 12.0),
    ],
)
def test_an_attribute_of_the_exception_sets_the_wait(
    attributes: dict[str, Any], wait_s: float
) -> None:
    assert wait_after(RateLimited(**attributes)) == wait_s


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "7"}, 7.0),
        ({"RETRY-AFTER": "7"}, 7.0),
        ({"rEtRy-AfTeR": " 7 "}, 7.0),
        ({"retry-after": 7}, 7.0),
        ({"retry-after": b"7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Retry-After-Ms": "1500"}, 1.5),
        ({"Retry-After-MS": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        (Headers(Retry_After="7"), 7.0),
        (Headers(RETRY_AFTER_MS="700"), 0.7),
    ],
)
def test_a_header_of_the_response_counts_in_any_case(headers: object, wait_s: float) -> None:
    assert wait_after(RateLimited(response=Response(headers))) == wait_s
    assert wait_after(RateLimited(headers=headers)) == wait_s


def test_a_header_may_be_an_http_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", NOW.timestamp)
    date = format_datetime(NOW + timedelta(seconds=90), usegmt=True)
    assert date == "Sat, 01 Mar 2025 12:01:30 GMT"
    assert wait_after(RateLimited(response=Response({"retry-after": date}))) == 90.0


def test_a_date_in_the_past_requests_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", NOW.timestamp)
    date = format_datetime(NOW - timedelta(hours=1), usegmt=True)
    assert wait_after(RateLimited(response=Response({"retry-after": date}))) == BY_BACKOFF_S


@pytest.mark.parametrize(
    "garbage",
    [
        *("", "  ", "soon", "-5", "0", "nan", "inf", "1e999", "7 s", "\x00", b"\xff"),
        *(True, [], {}, object, Fraction(1, 2)),
    ],
    ids=repr,
)
def test_garbage_requests_no_wait(garbage: object) -> None:
    assert wait_after(RateLimited(retry_after_s=garbage)) == BY_BACKOFF_S
    assert wait_after(RateLimited(headers={"retry-after": garbage})) == BY_BACKOFF_S
    assert wait_after(RateLimited(headers={"retry-after-ms": garbage})) == BY_BACKOFF_S


@pytest.mark.parametrize("headers", [None, {}, "retry-after: 7", 7, object], ids=repr)
def test_headers_in_an_unknown_form_request_no_wait(headers: object) -> None:
    assert wait_after(RateLimited(response=Response(headers))) == BY_BACKOFF_S


def test_the_mocks_of_a_test_request_no_wait() -> None:
    assert wait_after(RateLimited(response=MagicMock(status_code=503))) == BY_BACKOFF_S
    assert wait_after(RateLimited(retry_after=MagicMock())) == BY_BACKOFF_S


class Method(RateLimited):
    def retry_after(self) -> float:
        return 5.0


class Raising(RateLimited):
    @property
    def retry_after(self) -> float:
        raise RuntimeError("not known")


@pytest.mark.parametrize("kind", [Method, Raising])
def test_an_attribute_that_cannot_be_used_hides_no_header(kind: type[RateLimited]) -> None:
    assert wait_after(kind(response=Response({"retry-after": "7"}))) == 7.0
    assert wait_after(RateLimited(retry_after="soon", headers={"retry-after": "7"})) == 7.0


def test_an_exception_that_raises_when_it_is_inspected_requests_no_wait() -> None:
    class Hostile(Exception):
        @property
        def response(self) -> object:
            raise RuntimeError("no response")

    assert wait_after(Hostile()) == BY_BACKOFF_S


def test_a_circuit_cannot_stay_open_for_more_than_an_hour() -> None:
    assert wait_after(RateLimited(retry_after_s=86_400)) == 3600.0


def test_a_retry_after_counts_from_the_failure_that_opened_the_circuit() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=2, clock=clock)
    breaker.record(Signal(ok=False, retry_after_s=500.0))
    clock.advance(1.0)
    breaker.record(Signal(ok=False, retry_after_s=7.0))
    clock.advance(6.5)
    assert breaker.state == "open"
    clock.advance(0.5)
    assert breaker.state == "half_open"


def test_a_retry_after_sets_the_wait_after_a_failed_probe_and_the_backoff_continues() -> None:
    clock, waits = FakeClock(), list[float | None]()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    for asked_s in (None, 7.0, None, None):
        breaker.record(Signal(ok=False, retry_after_s=asked_s))
        with pytest.raises(Rejected) as refused:
            breaker.call(int)
        waits.append(refused.value.retry_after_s)
        clock.advance(refused.value.retry_after_s or 0.0)
    assert waits == [60.0, 7.0, 240.0, 300.0]


def asks(wait_s: float) -> Exception:
    error = Exception("429")
    error.retry_after_s = wait_s  # type: ignore[attr-defined]
    return error


def raised_from(cause: BaseException) -> Exception:
    try:
        raise ValueError("wrapped") from cause
    except ValueError as error:
        return error


def test_a_retry_after_is_found_in_the_cause_of_an_exception() -> None:
    assert retry_after_s(raised_from(raised_from(asks(7.0)))) == 7.0


def test_the_nearest_retry_after_is_used() -> None:
    near = asks(3.0)
    near.__cause__ = asks(70.0)
    assert retry_after_s(raised_from(near)) == 3.0


def test_the_longest_retry_after_of_a_group_counts() -> None:
    group = ExceptionGroup(
        "several", [ValueError("x"), asks(3.0), raised_from(asks(99.0)), asks(9.0)]
    )
    assert retry_after_s(group) == 9.0
    assert retry_after_s(ExceptionGroup("deep", [ExceptionGroup("er", [asks(4.0)])])) == 4.0


def test_an_exception_handled_inside_the_call_sets_the_wait() -> None:
    def wraps() -> None:
        try:
            raise asks(17.0)
        except Exception:
            raise RuntimeError("no answer")  # noqa: B904

    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    with pytest.raises(RuntimeError):
        breaker.call(wraps)
    assert breaker.snapshot().outage.cooldown_s == 17.0


def test_a_failure_of_another_provider_that_is_being_handled_sets_no_wait() -> None:
    def second() -> None:
        raise RuntimeError("the fallback fails too")

    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    with pytest.raises(RuntimeError):
        try:
            raise asks(17.0)
        except Exception:
            breaker.call(second)
    assert breaker.snapshot().outage.cooldown_s == 60.0


def test_a_cause_of_none_requests_no_wait() -> None:
    error = RuntimeError("x")
    error.__context__ = asks(5.0)
    assert retry_after_s(error) == 5.0
    error.__suppress_context__ = True
    assert retry_after_s(error) is None


def test_circular_and_endless_chains_are_read_once() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert retry_after_s(one) is None
    last: Exception = asks(5.0)
    for _ in range(500):
        last = raised_from(last)
    assert retry_after_s(last) is None
    many = ExceptionGroup("many", [ValueError(str(number)) for number in range(100_000)])
    assert retry_after_s(many) is None
