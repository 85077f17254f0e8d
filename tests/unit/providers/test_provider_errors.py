"""Errors of providers are classified as the real SDKs raise them against a server on loopback."""

import json
import pickle
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from switchgear import CircuitBreaker, Phase, Rejected, Signal
from switchgear._config import preset_policy
from switchgear._providers.errors import (
    ProviderError,
    agent_signal,
    classify,
    classify_response,
    is_provider_failure,
    provider_signal,
    was_not_started,
)
from switchgear._providers.table import ProviderErrorKind
from switchgear.testing import FakeClock

Answer = tuple[int, dict[str, str], Any]


class Provider:
    """A server on loopback that gives one answer to everything."""

    def __init__(self) -> None:
        self.answer: Answer = (200, {}, {})
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                status, headers, body = outer.answer
                self.rfile.read(int(self.headers.get("content-length", 0)))
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                kind = "text/plain" if isinstance(body, str) else "application/json"
                for name, value in {"content-type": kind, **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    """Each client reads the certificates of all authorities, although the server has plain HTTP."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


def ask_anthropic(url: str, timeout_s: float = 30, *, stream: bool = False) -> None:
    import anthropic  # noqa: PLC0415  takes a second, and one worker needs it

    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0, timeout=timeout_s) as client:
        answer = client.messages.create(
            model="m",
            max_tokens=1,
            messages=[{"role": "user", "content": "hello"}],
            stream=stream,
        )
        list(answer)


def ask_openai(url: str, timeout_s: float = 30) -> None:
    import openai  # noqa: PLC0415  takes a second, and one worker needs it

    with openai.OpenAI(api_key="k", base_url=url, max_retries=0, timeout=timeout_s) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])


def ask_google(url: str, timeout_s: float = 30) -> None:
    from google import genai  # noqa: PLC0415  takes a second, and one worker needs it

    options = genai.types.HttpOptions(base_url=url, timeout=int(timeout_s * 1000))
    client = genai.Client(api_key="k", http_options=options)
    try:
        client.models.generate_content(model="m", contents="hello")
    finally:
        client.close()


def raised(ask: Callable[..., None], *args: Any, **options: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        ask(*args, **options)
    return caught.value


def claude(kind: str, message: str = "no") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def gpt(code: str | None, kind: str, message: str = "no") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def gemini(code: int, status: str, message: str = "no", *details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "status": status, "message": message, "details": list(details)}}


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
OVER_QUOTA = "You exceeded your current quota, please check your plan and billing details."
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}

ANTHROPIC: list[tuple[Answer, ProviderErrorKind, float | None]] = [
    ((429, {"retry-after": "20"}, claude("rate_limit_error")), ProviderErrorKind.RATE_LIMIT, 20.0),
    (
        (429, {"Retry-After-Ms": "1500"}, claude("rate_limit_error")),
        ProviderErrorKind.RATE_LIMIT,
        1.5,
    ),
    ((529, {}, claude("overloaded_error")), ProviderErrorKind.OVERLOAD, None),
    ((503, {"retry-after": "5"}, "upstream connect error"), ProviderErrorKind.OVERLOAD, 5.0),
    ((500, {}, claude("api_error")), ProviderErrorKind.OUTAGE, None),
    ((502, {}, "<html>bad gateway</html>"), ProviderErrorKind.OUTAGE, None),
    ((504, {}, claude("timeout_error")), ProviderErrorKind.TIMEOUT, None),
    ((401, {}, claude("authentication_error", "invalid x-api-key")), ProviderErrorKind.AUTH, None),
    ((403, {}, claude("permission_error")), ProviderErrorKind.AUTH, None),
    ((402, {}, claude("billing_error")), ProviderErrorKind.QUOTA, None),
    (
        (400, {}, claude("invalid_request_error", "Your credit balance is too low to access")),
        ProviderErrorKind.QUOTA,
        None,
    ),
    (
        (400, {}, claude("invalid_request_error", "prompt is too long: 210000 tokens > 200000")),
        ProviderErrorKind.CONTEXT_LENGTH,
        None,
    ),
    ((413, {}, claude("request_too_large")), ProviderErrorKind.CONTEXT_LENGTH, None),
    (
        (400, {}, claude("invalid_request_error", "Output blocked by content filtering policy")),
        ProviderErrorKind.CONTENT_POLICY,
        None,
    ),
    (
        (400, {"retry-after": "9"}, claude("invalid_request_error", "max_tokens: required")),
        ProviderErrorKind.BAD_REQUEST,
        None,
    ),
    ((404, {}, claude("not_found_error", "model: m")), ProviderErrorKind.BAD_REQUEST, None),
]
OPENAI: list[tuple[Answer, ProviderErrorKind, float | None]] = [
    (
        (429, {"retry-after": "7"}, gpt("rate_limit_exceeded", "tokens")),
        ProviderErrorKind.RATE_LIMIT,
        7.0,
    ),
    (
        (429, {}, gpt("insufficient_quota", "insufficient_quota", OVER_QUOTA)),
        ProviderErrorKind.QUOTA,
        None,
    ),
    ((503, {}, gpt("slow_down", "server_error")), ProviderErrorKind.OVERLOAD, None),
    ((500, {}, gpt(None, "server_error")), ProviderErrorKind.OUTAGE, None),
    ((401, {}, gpt("invalid_api_key", "invalid_request_error")), ProviderErrorKind.AUTH, None),
    ((403, {}, gpt("unsupported_country", "request_forbidden")), ProviderErrorKind.AUTH, None),
    (
        (400, {}, gpt("context_length_exceeded", "invalid_request_error")),
        ProviderErrorKind.CONTEXT_LENGTH,
        None,
    ),
    (
        (400, {}, gpt("content_filter", "invalid_request_error")),
        ProviderErrorKind.CONTENT_POLICY,
        None,
    ),
    (
        (400, {}, gpt("content_policy_violation", "image_generation_user_error")),
        ProviderErrorKind.CONTENT_POLICY,
        None,
    ),
    ((400, {}, gpt(None, "invalid_request_error", "bad 'n'")), ProviderErrorKind.BAD_REQUEST, None),
    ((422, {}, gpt(None, "invalid_request_error")), ProviderErrorKind.BAD_REQUEST, None),
]
GOOGLE: list[tuple[Answer, ProviderErrorKind, float | None]] = [
    (
        (429, {}, gemini(429, "RESOURCE_EXHAUSTED", OVER_QUOTA, RETRY_INFO)),
        ProviderErrorKind.RATE_LIMIT,
        34.0,
    ),
    (
        (429, {}, gemini(429, "RESOURCE_EXHAUSTED", "Try again later.")),
        ProviderErrorKind.RATE_LIMIT,
        None,
    ),
    ((429, {}, gemini(429, "RESOURCE_EXHAUSTED", OVER_QUOTA)), ProviderErrorKind.QUOTA, None),
    (
        (503, {}, gemini(503, "UNAVAILABLE", "The model is overloaded.")),
        ProviderErrorKind.OVERLOAD,
        None,
    ),
    ((500, {}, gemini(500, "INTERNAL")), ProviderErrorKind.OUTAGE, None),
    ((504, {}, gemini(504, "DEADLINE_EXCEEDED")), ProviderErrorKind.TIMEOUT, None),
    (
        (400, {}, gemini(400, "INVALID_ARGUMENT", "API key not valid.", BAD_KEY)),
        ProviderErrorKind.AUTH,
        None,
    ),
    ((403, {}, gemini(403, "PERMISSION_DENIED")), ProviderErrorKind.AUTH, None),
    (
        (400, {}, gemini(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum")),
        ProviderErrorKind.CONTEXT_LENGTH,
        None,
    ),
    ((400, {}, gemini(400, "INVALID_ARGUMENT", "bad field")), ProviderErrorKind.BAD_REQUEST, None),
]
ALL = [
    pytest.param(ask, *row, id=f"{name}-{row[0][0]}-{row[1]}-{index}")
    for name, ask, rows in (
        ("anthropic", ask_anthropic, ANTHROPIC),
        ("openai", ask_openai, OPENAI),
        ("google", ask_google, GOOGLE),
    )
    for index, row in enumerate(rows)
]


@pytest.mark.parametrize(("ask", "answer", "kind", "retry_after_s"), ALL)
def test_exceptions_of_the_real_sdks_are_classified(
    provider: Provider,
    ask: Callable[[str], None],
    answer: Answer,
    kind: ProviderErrorKind,
    retry_after_s: float | None,
) -> None:
    provider.answer = answer
    error = raised(ask, provider.url)
    found = classify(error)
    assert found is not None
    assert (found.kind, found.status, found.retry_after_s) == (kind, answer[0], retry_after_s)
    assert found.text.startswith(type(error).__name__)
    against = kind in {"rate_limit", "overload", "outage", "timeout"}
    told = provider_signal(error, 1.0)
    assert told.ok is (False if against else None)
    assert told.retry_after_s == retry_after_s
    assert is_provider_failure(error) is against
    mine = kind in {"context_length", "content_policy", "bad_request"}
    assert agent_signal(error).ok is (False if mine else None)
    assert found.may_fail_over is (kind not in {"auth", "content_policy", "bad_request"})


@pytest.mark.parametrize(("ask", "answer", "kind", "retry_after_s"), ALL)
def test_bare_responses_are_classified_in_the_same_way(
    ask: Callable[[str], None], answer: Answer, kind: ProviderErrorKind, retry_after_s: float | None
) -> None:
    status, headers, body = answer
    data = body if isinstance(body, str) else json.dumps(body).encode()
    for shape in (data, body):
        found = classify_response(status, headers, shape)
        assert found is not None
        assert (found.kind, found.retry_after_s) == (kind, retry_after_s)


@pytest.mark.parametrize("ask", [ask_anthropic, ask_openai, ask_google])
def test_a_refused_connection_is_an_outage(ask: Callable[[str], None]) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = server.server_address[1]
    server.server_close()
    found = classify(raised(ask, f"http://127.0.0.1:{port}"))
    assert found is not None
    assert found.kind is ProviderErrorKind.OUTAGE
    assert found.status is None


@pytest.mark.parametrize("ask", [ask_anthropic, ask_openai, ask_google])
def test_a_request_that_takes_too_long_is_a_timeout(ask: Callable[..., None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes calls and never answers
        found = classify(raised(ask, f"http://127.0.0.1:{silent.getsockname()[1]}", 0.05))
    assert found is not None
    assert found.kind is ProviderErrorKind.TIMEOUT


@pytest.mark.parametrize(
    ("status", "kind", "retry_after_s"),
    [
        (400, ProviderErrorKind.BAD_REQUEST, None),
        (401, ProviderErrorKind.AUTH, None),
        (429, ProviderErrorKind.RATE_LIMIT, 7.0),
        (500, ProviderErrorKind.OUTAGE, None),
        (503, ProviderErrorKind.OVERLOAD, None),
    ],
)
def test_exceptions_of_urllib_are_classified_by_their_status(
    provider: Provider, status: int, kind: ProviderErrorKind, retry_after_s: float | None
) -> None:
    provider.answer = (status, {"retry-after": "7"} if status == 429 else {}, "no")
    with pytest.raises(HTTPError) as caught:
        urlopen(provider.url, data=b"")
    found = classify(caught.value)
    caught.value.close()
    assert found is not None
    assert (found.kind, found.status, found.retry_after_s) == (kind, status, retry_after_s)
    assert found.may_fail_over is (status not in {400, 401}), "a person must hear of a bad key"


def test_a_refused_connection_of_urllib_is_an_outage() -> None:
    found = classify(URLError("refused"))
    assert found is not None
    assert found.kind is ProviderErrorKind.OUTAGE


def test_only_an_error_with_such_a_status_means_that_no_work_was_done() -> None:
    class Answered(Exception):
        status_code: object = 429

    class Strange(Exception):
        @property
        def response(self) -> object:
            raise RuntimeError("no")

    assert was_not_started(Answered())
    wrapping = RuntimeError("a tool failed after 12 paid calls")
    wrapping.__cause__ = Answered()
    assert classify(wrapping) is not None
    assert not was_not_started(wrapping)
    assert not was_not_started(Strange())
    assert not was_not_started(ValueError("429"))


def test_a_timeout_of_the_caller_is_a_timeout_too() -> None:
    found = classify(TimeoutError())
    assert found is not None
    assert found.kind is ProviderErrorKind.TIMEOUT


def test_a_stream_that_breaks_has_status_200_and_is_evaluated_by_its_body(
    provider: Provider,
) -> None:
    body = f"event: error\ndata: {json.dumps(claude('overloaded_error'))}\n\n"
    provider.answer = (200, {"content-type": "text/event-stream"}, body)
    found = classify(raised(ask_anthropic, provider.url, stream=True))
    assert found is not None
    assert found.kind is ProviderErrorKind.OVERLOAD
    assert classify_response(200, {}, claude("overloaded_error")) is not None
    assert classify_response(200, {}, {"type": "message", "content": []}) is None


def test_a_retry_after_may_be_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    found = classify_response(503, {"Retry-After": later}, "")
    assert found is not None
    assert found.retry_after_s is not None
    assert 80 < found.retry_after_s <= 91


def test_an_exception_that_wraps_a_provider_error_is_classified_by_its_cause(
    provider: Provider,
) -> None:
    provider.answer = (429, {"retry-after": "3"}, gpt("rate_limit_exceeded", "tokens"))
    wrapper = RuntimeError("the model failed")
    wrapper.__cause__ = raised(ask_openai, provider.url)
    assert classify(wrapper) == ProviderError(
        ProviderErrorKind.RATE_LIMIT, 429, 3.0, "RuntimeError: the model failed"
    )


@pytest.mark.parametrize(
    "error", [ValueError("429 rate limit"), KeyError("x"), KeyboardInterrupt(), GeneratorExit()]
)
def test_other_exceptions_are_not_provider_errors(error: BaseException) -> None:
    assert classify(error) is None
    assert provider_signal(error) == Signal()


def test_an_agents_own_exception_counts_against_the_agent_alone() -> None:
    assert agent_signal(ValueError("no")).ok is False
    assert agent_signal(KeyboardInterrupt()).ok is None


class Hostile(Exception):
    """An object whose attributes all raise."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_hostile_exceptions_and_bodies_are_handled() -> None:
    assert classify(Hostile()) is None
    deep = "[" * 100_000 + "]" * 100_000
    nested = {"error": {"error": {"error": 7}}}
    bodies: list[Any] = [deep, "{" * 300_000, b"\xff\xfe", nested, [[[[]]]]]
    for body in bodies:
        found = classify_response(500, {}, body)
        assert found is not None
        assert found.kind is ProviderErrorKind.OUTAGE
    shown = classify_response(500, {}, {"message": "key=sk-abcdefghijklmnopqrst\x1b[31m"})
    assert shown is not None
    assert "sk-abc" not in shown.text
    assert "\x1b" not in shown.text
    assert pickle.loads(pickle.dumps(shown)) == shown


def test_a_rate_limit_opens_the_dependency_for_the_requested_time_and_a_bad_key_does_not(
    provider: Provider,
) -> None:
    import anthropic  # noqa: PLC0415  takes a second, and one worker needs it

    clock = FakeClock()
    breaker = CircuitBreaker(
        "provider/anthropic",
        policy=preset_policy("external_dep"),
        failure_if=is_provider_failure,
        clock=clock,
    )
    provider.answer = (401, {}, claude("authentication_error"))
    for _ in range(5):
        with pytest.raises(anthropic.AuthenticationError):
            breaker.call(ask_anthropic, provider.url)
    assert breaker.state is Phase.CLOSED
    provider.answer = (429, {"retry-after": "20"}, claude("rate_limit_error"))
    with pytest.raises(anthropic.RateLimitError):
        breaker.call(ask_anthropic, provider.url)
    with pytest.raises(Rejected) as refused:
        breaker.call(ask_anthropic, provider.url)
    assert refused.value.retry_after_s == pytest.approx(20.0)
