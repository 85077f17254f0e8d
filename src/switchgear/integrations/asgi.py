"""ASGI (Starlette, FastAPI, Litestar, Django, Quart): a refusal becomes 503 with Retry-After.

`app = guard(app, panel=panel)`, or `app.add_middleware(RefusalMiddleware, panel=panel)`. Needs no package:
ASGI is a calling convention.
"""

import json
import math
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from switchgear._breaker.views import View
from switchgear._core.errors import StoreError
from switchgear._core.types import Mode, Phase
from switchgear._panel.panel import Panel
from switchgear.integrations._refusals import RefusalError, refusal_in, retry_after_s

__all__ = ["RefusalMiddleware", "guard"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def guard(
    app: App,
    *,
    panel: Panel | None = None,
    health_path: str | None = "/healthz",
    required: Sequence[str] = (),
    details: bool = False,
) -> "RefusalMiddleware":
    """The application behind the middleware; the arguments are those of `RefusalMiddleware`."""
    return RefusalMiddleware(
        app, panel=panel, health_path=health_path, required=required, details=details
    )


class RefusalMiddleware:
    """Answers 503 with Retry-After where the application raises a refusal, and a health endpoint.

    - `panel`: the circuits of the health endpoint; without it there is none.
    - `health_path`: where it answers GET and HEAD; `None`: nowhere.
    - `required`: names or globs of circuits without which the application cannot work: while one of
      them is open, the health endpoint answers 503. Others only make it "degraded", with 200.
    - `details`: answer with the names and reasons of open circuits; leave it off for public services.

    A refusal is `Rejected`, `BudgetRefused` or `NoRoute`, also as the cause of another exception
    (`raise … from`). Where the response has started, the exception passes: a status cannot be changed.
    """

    def __init__(
        self,
        app: App,
        *,
        panel: Panel | None = None,
        health_path: str | None = "/healthz",
        required: Sequence[str] = (),
        details: bool = False,
    ) -> None:
        self.app = app
        self._panel = panel
        self._health_path = health_path if panel is not None else None
        self._required = tuple(required)
        self._details = details

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asks = scope.get("method") in {"GET", "HEAD"}
        if asks and self._health_path is not None and scope.get("path") == self._health_path:
            await self._health(scope, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            refused = refusal_in(error)
            if refused is None or begun:
                raise
            await _answer(scope, send, 503, _body(refused), retry_after_s(refused))

    async def _health(self, scope: Scope, send: Send) -> None:
        if self._panel is None:
            return
        try:
            views = await self._panel.acircuits()
            required = {
                view.name for glob in self._required for view in await self._panel.acircuits(glob)
            }
        except StoreError as error:
            status = 503 if self._required else 200
            reason = {"status": "unknown", "reason": str(error)} if self._details else {}
            await _answer(scope, send, status, {"status": "unknown", **reason})
            return
        opened = [view for view in views if view.verdict.phase is Phase.OPEN]
        opened += [view for view in views if _is_held(view) and view not in opened]
        down = any(view.name in required for view in opened)
        found: dict[str, Any] = {
            "status": "down" if down else "degraded" if opened else "ok",
            "circuits": len(views),
            "open": len(opened),
        }
        if self._details:
            found["open_circuits"] = [
                {
                    "name": view.name,
                    "reason": view.verdict.reason,
                    "retry_after_s": view.verdict.retry_after_s,
                    "required": view.name in required,
                }
                for view in opened[:100]
            ]
        waits = [view.verdict.retry_after_s for view in opened if view.name in required]
        known = [wait for wait in waits if wait is not None]
        wait_s = max(known) if down and len(known) == len(waits) else None
        await _answer(scope, send, 503 if down else 200, found, wait_s)


def _is_held(view: View) -> bool:
    return view.circuit.mode is Mode.HELD_OPEN


def _body(refused: RefusalError) -> dict[str, Any]:
    """What the client reads: no names and no errors of other services."""
    wait_s = retry_after_s(refused)
    return {
        "error": "service_unavailable",
        "message": "a service that this request needs is unavailable; try again later",
        "retry_after_s": None if wait_s is None else math.ceil(wait_s),
    }


async def _answer(
    scope: Scope, send: Send, status: int, body: dict[str, Any], wait_s: float | None = None
) -> None:
    data = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if wait_s is not None:  # rounded up: a client must not come back too early
        headers.append((b"retry-after", str(max(1, math.ceil(wait_s))).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    empty = scope.get("method") == "HEAD"
    await send({"type": "http.response.body", "body": b"" if empty else data})
