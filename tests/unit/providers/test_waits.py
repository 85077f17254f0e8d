"""The wait that a response requests, and what a response means for the circuit."""

from email.utils import formatdate
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_streams import EVENTS, anthropic_events, sse
from switchgear._providers.errors import classify, classify_response
from switchgear._providers.traffic import ModelProtocol
from switchgear._providers.usage import Metered, ResponseMeter
from switchgear._providers.verdicts import TRUNCATED, judge_response
from switchgear._providers.waits import wait_s

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "42"}, 42.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"RETRY-AFTER": formatdate(NOW_S + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW_S - 90, usegmt=True)}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "99999999999"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "250ms"}, 0.25),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "17"}, 17.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(NOW_S + 5)}, 5.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str((NOW_S + 5) * 1000)}, 5.0),
        (
            {
                "x-ratelimit-remaining-requests": "12",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "30s",
            },
            30.0,
        ),
        ({"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "6m0s"}, None),
        ({"x-ratelimit-reset-requests": "8s", "x-ratelimit-reset-tokens": "3s"}, 3.0),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:30Z",
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2027-01-15T08:01:00+00:00",
            },
            60.0,
        ),
        (
            {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": str(int(NOW_S) + 7200),
            },
            7200.0,
        ),
        (
            {
                "anthropic-ratelimit-unified-5h-status": "allowed",
                "anthropic-ratelimit-unified-5h-reset": str(int(NOW_S) + 7200),
            },
            None,
        ),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "5 parsecs"}, None),
    ],
)
def test_a_429_has_its_requested_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert wait_s(429, headers, NOW_S) == seconds


def test_exhausted_limits_require_no_wait_after_a_success() -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}
    assert wait_s(200, headers, NOW_S) is None
    assert wait_s(400, headers, NOW_S) is None
    assert wait_s(529, headers, NOW_S) == 360.0


@given(
    headers=st.dictionaries(
        st.sampled_from(
            [
                "retry-after",
                "retry-after-ms",
                "x-ratelimit-reset",
                "x-ratelimit-remaining",
                "other",
                "anthropic-ratelimit-x-reset",
                "anthropic-ratelimit-x-remaining",
            ]
        ),
        st.text(max_size=30) | st.integers().map(str) | st.floats().map(str),
    )
)
def test_no_header_raises(headers: dict[str, str]) -> None:
    found = wait_s(429, headers, NOW_S)
    assert found is None or 0 < found <= 31 * 86_400


def test_rate_limits_reach_the_circuit_by_exceptions_and_by_responses() -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}

    class Limited(Exception):
        response = SimpleNamespace(status_code=429, headers=headers)

    by_exception, by_response = classify(Limited()), classify_response(429, headers)
    assert by_exception is not None
    assert by_response is not None
    assert by_exception.retry_after_s == by_response.retry_after_s == 360.0


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_errors_of_the_provider_are_failures(status: int) -> None:
    found = judge_response(status, {"retry-after": "7"}, b"not json")
    assert found.outcome == "failure"
    signal = found.signal(seconds=0.5)
    assert (signal.ok, signal.retry_after_s, signal.seconds) == (False, 7.0, 0.5)
    assert str(status) in (signal.error or "")


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 413, 422])
def test_errors_of_the_caller_are_not_evidence(status: int) -> None:
    found = judge_response(status)
    assert found.outcome == "ignored"
    assert found.signal().ok is None


def test_a_used_up_quota_is_not_evidence_against_the_provider() -> None:
    body = {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}
    assert judge_response(429, {}, body).outcome == "ignored"


@pytest.mark.parametrize("status", [200, 201, 204, 302, 304])
def test_other_responses_are_successes(status: int) -> None:
    assert judge_response(status).outcome == "success"
    assert judge_response(status, metered=Metered(complete=True)).signal(1.0, 77) == (
        judge_response(status).signal(1.0, 77)
    )


def test_a_stream_that_breaks_off_is_a_failure() -> None:
    meter = ResponseMeter(ModelProtocol.ANTHROPIC_MESSAGES, stream=True, content_type=EVENTS)
    meter.feed(sse(*anthropic_events(stop=False), named=True))
    found = judge_response(200, {}, metered=meter.finish())
    assert found.outcome == "failure"
    assert found.signal().error == TRUNCATED


def test_an_error_event_is_a_failure_and_a_request_error_is_not() -> None:
    for kind, outcome in (("overloaded_error", "failure"), ("invalid_request_error", "ignored")):
        meter = ResponseMeter(ModelProtocol.ANTHROPIC_MESSAGES, stream=True, content_type=EVENTS)
        meter.feed(sse({"type": "error", "error": {"type": kind, "message": "x"}}, named=True))
        assert judge_response(200, {}, metered=meter.finish()).outcome == outcome
