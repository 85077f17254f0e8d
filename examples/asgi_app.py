"""A web application whose provider is down, for `uvicorn examples.asgi_app:app`: 503 with Retry-After."""

from typing import Any

from switchgear import Panel
from switchgear.integrations.asgi import guard

panel = Panel("memory:")
breaker = panel.breaker("provider/example")


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Stands in for an application that calls a provider."""
    async with breaker:
        raise ConnectionError("connection refused")


app = guard(answer, panel=panel, required=["provider/*"])
