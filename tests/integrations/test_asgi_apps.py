"""The ASGI middleware in a real application: Starlette with its own test client."""

import pytest

pytest.importorskip("starlette.testclient")

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from switchgear import Panel
from switchgear.integrations.asgi import RefusalMiddleware
from switchgear.testing import FakeClock


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
