"""ASGI: a refusal is 503 with Retry-After, the health endpoint shows the circuits."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from switchgear import Panel, Rejected
from switchgear.errors import BudgetRefused, NoRoute, StoreUnavailable
from switchgear.integrations.asgi import Message, Receive, RefusalMiddleware, Scope, Send, guard
from switchgear.testing import FakeClock, force_state

App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def works(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


def get(app: App, path: str = "/", method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(_call(app, {"type": "http", "method": method, "path": path}, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:])


async def _call(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


def refusing(error: BaseException, *, begun: bool = False, cause: bool = False) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if cause:
            raise RuntimeError("the model failed") from error
        raise error

    return app


def rejected(wait_s: float | None = 42.2) -> Rejected:
    clock = FakeClock(1000.0)
    panel = Panel("memory:", clock=clock)
    breaker = panel.breaker("provider/anthropic")
    force_state(breaker, "open", retry_after_s=wait_s)
    with pytest.raises(Rejected) as caught, breaker:
        pass
    return caught.value


def test_a_refusal_is_503_with_the_wait_rounded_up() -> None:
    status, headers, body = get(guard(refusing(rejected())))
    assert (status, headers["retry-after"]) == (503, "43")
    assert json.loads(body)["retry_after_s"] == 43
    assert b"anthropic" not in body, "strangers learn nothing of other services"
    assert headers["content-length"] == str(len(body))


def test_a_refusal_without_an_end_has_no_retry_after() -> None:
    for error in (rejected(None), BudgetRefused("team", "nothing is left", 0)):
        status, headers, _ = get(guard(refusing(error)))
        assert status == 503
        assert "retry-after" not in headers
    status, headers, _ = get(guard(refusing(NoRoute("coder", "pause", "all are open", 5.0))))
    assert (status, headers["retry-after"]) == (503, "5")


def test_a_refusal_is_found_behind_the_exception_of_an_sdk() -> None:
    assert get(guard(refusing(rejected(), cause=True)))[0] == 503


def test_only_a_group_of_refusals_counts_as_a_refusal() -> None:
    assert get(guard(refusing(ExceptionGroup("tasks", [rejected(), rejected()]))))[0] == 503
    with pytest.raises(ExceptionGroup):
        get(guard(refusing(ExceptionGroup("tasks", [rejected(), KeyError("x")]))))


def answers_500_and_raises(error: BaseException, *, more: bool = False) -> App:
    """Answer 500 and raise, as Starlette does for every exception of an application."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"trouble", "more_body": more})
        raise error

    return app


def test_a_refusal_that_the_framework_answers_with_500_is_503() -> None:
    status, headers, body = get(guard(answers_500_and_raises(rejected())))
    assert (status, headers["retry-after"]) == (503, "43")
    assert b"trouble" not in body


@pytest.mark.parametrize("more", [False, True])
def test_other_responses_with_500_are_sent(more: bool) -> None:
    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"tr", "more_body": True})
        await send({"type": "http.response.body", "body": b"ouble"})

    assert get(guard(answers)) == (500, {}, b"trouble")
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/"}
    # With more to come, the response began to stream: the refusal is too late.
    error: Exception = rejected() if more else KeyError("x")
    with pytest.raises(type(error)):
        asyncio.run(_call(guard(answers_500_and_raises(error, more=more)), scope, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


@pytest.mark.parametrize("accepts", [False, True])
@pytest.mark.parametrize("can_answer", [False, True])
def test_a_websocket_is_refused_by_its_handshake_or_closed(accepts: bool, can_answer: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if accepts:
            await send({"type": "websocket.accept"})
        raise rejected()

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    extensions: dict[str, Any] = {"websocket.http.response": {}} if can_answer else {}
    scope = {"type": "websocket", "path": "/", "extensions": extensions}
    asyncio.run(_call(guard(app), scope, receive, send))
    if accepts or not can_answer:
        assert (sent[-1]["type"], sent[-1]["code"]) == ("websocket.close", 1013)
    else:
        assert [message["type"] for message in sent] == [
            "websocket.http.response.start",
            "websocket.http.response.body",
        ]
        assert (sent[0]["status"], dict(sent[0]["headers"])[b"retry-after"]) == (503, b"43")


def test_a_websocket_that_is_closed_already_raises() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.close", "code": 1000})
        raise rejected()

    async def nothing(*_: Any) -> Any:
        return {}

    with pytest.raises(Rejected):
        asyncio.run(_call(guard(app), {"type": "websocket"}, nothing, nothing))


def test_other_errors_and_started_responses_pass() -> None:
    with pytest.raises(KeyError):
        get(guard(refusing(KeyError("x"))))
    with pytest.raises(Rejected):
        get(guard(refusing(rejected(), begun=True)))


def test_successful_responses_pass_unchanged() -> None:
    assert get(guard(works)) == (200, {}, b"fine")


def test_other_connection_types_pass_unchanged() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        return {}

    asyncio.run(_call(guard(app), {"type": "lifespan"}, nothing, nothing))
    asyncio.run(_call(guard(app), {"type": "websocket"}, nothing, nothing))
    assert seen == ["lifespan", "websocket"]


def test_the_health_endpoint_shows_whether_a_required_circuit_is_open() -> None:
    panel = Panel("memory:", clock=FakeClock(1000.0))
    optional, needed = panel.breaker("tool/search"), panel.breaker("provider/anthropic")
    for breaker in (optional, needed):
        with breaker:
            pass
    panel.flush()
    app = guard(works, panel=panel, required=["provider/*"])
    status, _, body = get(app, "/healthz")
    assert (status, json.loads(body)) == (200, {"status": "ok", "circuits": 2, "open": 0})
    force_state(optional, "open")
    status, _, body = get(app, "/healthz")
    assert (status, json.loads(body)["status"]) == (200, "degraded")
    force_state(needed, "open", retry_after_s=30.0)
    status, headers, body = get(app, "/healthz")
    assert (status, json.loads(body)["status"], headers["retry-after"]) == (503, "down", "30")
    assert b"anthropic" not in body
    detailed = get(guard(works, panel=panel, details=True), "/healthz")[2]
    names = {each["name"] for each in json.loads(detailed)["open_circuits"]}
    assert names == {"tool/search", "provider/anthropic"}
    assert get(app, "/healthz", "HEAD")[2] == b""
    assert get(app, "/healthz", "POST")[0] == 200, "only GET and HEAD ask for health"


def test_a_circuit_that_an_operator_holds_open_counts_as_open() -> None:
    panel = Panel("memory:")
    panel.breaker("api").hold_open(by="me", why="maintenance")
    assert get(guard(works, panel=panel, required=["api"]), "/healthz")[0] == 503


def test_without_the_store_health_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: object) -> None:
        raise StoreUnavailable("redis://cache", "connection refused", "start it")

    panel = Panel("memory:")
    monkeypatch.setattr(panel, "acircuits", lost)
    for required, status in (((), 200), (("api",), 503)):
        found = get(RefusalMiddleware(works, panel=panel, required=required), "/healthz")
        assert (found[0], json.loads(found[2])) == (status, {"status": "unknown"})
    told = get(guard(works, panel=panel, details=True), "/healthz")[2]
    assert b"connection refused" in told


def test_without_a_panel_the_path_belongs_to_the_application() -> None:
    assert get(guard(works), "/healthz")[2] == b"fine"
