"""The ASGI middleware in a real application: Starlette with its own test client."""

import asyncio
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("starlette.testclient")

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from switchgear import CircuitBreaker, Panel, Rejected
from switchgear.integrations.asgi import RefusalMiddleware, guard
from switchgear.testing import FakeClock, force_state


def test_five_failures_open_the_circuit_and_the_proxy_answers_the_sixth_request() -> None:
    clock = FakeClock(1000.0)
    panel = Panel("memory:", clock=clock)
    breaker = panel.breaker("provider/x")
    made = {"requests": 0, "up": False}

    async def answer(request: Request) -> PlainTextResponse:
        async with breaker:
            made["requests"] += 1
            if not made["up"]:
                raise ConnectionError("down")
        return PlainTextResponse("fine")

    guarded = Middleware(RefusalMiddleware, panel=panel, required=["provider/*"])
    app = Starlette(routes=[Route("/", answer)], middleware=[guarded])
    client = TestClient(app, raise_server_exceptions=False)
    assert [client.get("/").status_code for _ in range(5)] == [500] * 5
    refused = client.get("/")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "60")
    assert made["requests"] == 5
    assert client.get("/healthz").status_code == 503
    clock.advance(61)
    made["up"] = True
    assert client.get("/").text == "fine"
    assert client.get("/healthz").json()["status"] == "ok"


def refusing_app(breaker: CircuitBreaker) -> Starlette:
    async def answer(request: Request) -> PlainTextResponse:
        async with asyncio.TaskGroup() as tasks, breaker:
            tasks.create_task(asyncio.sleep(0))
        return PlainTextResponse("fine")

    async def stream(request: Request) -> StreamingResponse:
        async def parts() -> AsyncIterator[str]:
            yield "one"
            async with breaker:
                yield "two"

        return StreamingResponse(parts())

    async def talk(socket: WebSocket) -> None:
        if socket.url.path == "/accepted":
            await socket.accept()
        async with breaker:
            await socket.accept()

    return Starlette(
        routes=[
            Route("/", answer),
            Route("/stream", stream),
            WebSocketRoute("/handshake", talk),
            WebSocketRoute("/accepted", talk),
        ]
    )


def test_an_application_can_be_guarded_from_outside() -> None:
    """Starlette itself answers an exception with 500, and raises it then."""
    panel = Panel("memory:")
    breaker = panel.breaker("provider/x")
    force_state(breaker, "open", retry_after_s=42.0)
    client = TestClient(guard(refusing_app(breaker), panel=panel))
    refused = client.get("/")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "42")
    with pytest.raises(Rejected):
        client.get("/stream")  # it has begun
    with (
        pytest.raises(WebSocketDenialResponse) as denied,
        client.websocket_connect("/handshake"),
    ):
        pass
    assert (denied.value.status_code, denied.value.headers["retry-after"]) == (503, "42")
    with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect("/accepted") as one:
        one.receive_text()
    assert closed.value.code == 1013
