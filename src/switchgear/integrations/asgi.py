"""ASGI (Starlette, FastAPI, Litestar, Django, Quart): a refusal becomes 503 with Retry-After.

`app = guard(app, panel=panel)`, or `app.add_middleware(RefusalMiddleware, panel=panel)`. Needs no package,
because ASGI is only a calling convention.
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


class RefusalMiddleware:
    """Answers 503 with Retry-After if the application raises a refusal, and adds a health endpoint.

    - `panel`: the circuits of the health endpoint; without a panel, there is no such endpoint.
    - `health_path`: the path of the endpoint, for GET and HEAD; `None`: no endpoint.
    - `required`: names or globs of circuits without which the application cannot work. While one of
      them is open, the health endpoint answers 503. Other open circuits make it "degraded", with 200.
    - `details`: whether to include the names and reasons of open circuits; leave it off for public
      services.

    A refusal is `Rejected`, `BudgetRefused` or `NoRoute`, also as the cause of another exception
    (`raise … from`). After the start of the response the exception is raised, because the status cannot be
    changed. The handshake of a websocket is answered with 503 if the server supports that; otherwise the
    websocket is closed with code 1013.
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
        kind = scope["type"]
        if kind not in {"http", "websocket"}:
            await self.app(scope, receive, send)
            return
        asks = kind == "http" and scope.get("method") in {"GET", "HEAD"}
        if asks and self._health_path is not None and scope.get("path") == self._health_path:
            await self._health(scope, send)
            return
        sending = _HeldError(send)
        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            refused = refusal_in(error)
            if refused is None or sending.begun:
                await sending.release()
                raise
            if kind == "http":
                await _answer(scope, send, 503, _body(refused), retry_after_s(refused))
            else:
                await _refuse_websocket(scope, sending, refused)
        else:
            await sending.release()

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


guard = RefusalMiddleware


class _HeldError:
    """Sends the messages of the application, but holds a response with status 500 until the application ends.

    Starlette and FastAPI send a 500 for an exception of the application before they raise it.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: list[Message] = []
        self.begun = False
        """Whether a response has started or a websocket was closed, so that a refusal cannot be answered."""
        self.is_accepted = False
        """Whether a websocket was accepted."""

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if not self.begun and message.get("status") == 500:
            self._held.append(message)
            return
        if self._held:
            self._held.append(message)
            if message.get("more_body"):
                await self.release()  # a streamed response
            return
        self.is_accepted = self.is_accepted or kind == "websocket.accept"
        self.begun = self.begun or kind in _BEGINNINGS
        await self._send(message)

    async def release(self) -> None:
        """Send the held messages."""
        self.begun = self.begun or bool(self._held)
        while self._held:
            await self._send(self._held.pop(0))


_BEGINNINGS = frozenset(("http.response.start", "websocket.close", "websocket.http.response.start"))
_TRY_AGAIN_LATER = 1013
"""The close code of a refused websocket."""


async def _refuse_websocket(scope: Scope, send: _HeldError, refused: RefusalError) -> None:
    """Answer a handshake with 503 if the server supports it; otherwise close the connection."""
    if send.is_accepted or "websocket.http.response" not in (scope.get("extensions") or {}):
        await send(
            {"type": "websocket.close", "code": _TRY_AGAIN_LATER, "reason": "try again later"}
        )
        return
    await _answer(
        scope, send, 503, _body(refused), retry_after_s(refused), kind="websocket.http.response"
    )


def _is_held(view: View) -> bool:
    return view.circuit.mode is Mode.HELD_OPEN


def _body(refused: RefusalError) -> dict[str, Any]:
    """The body of the response, without names or errors of other services."""
    wait_s = retry_after_s(refused)
    return {
        "error": "service_unavailable",
        "message": "a service that this request needs is unavailable; try again later",
        "retry_after_s": None if wait_s is None else math.ceil(wait_s),
    }


async def _answer(
    scope: Scope,
    send: Send,
    status: int,
    body: dict[str, Any],
    wait_s: float | None = None,
    *,
    kind: str = "http.response",
) -> None:
    data = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if wait_s is not None:  # rounded up, so that clients do not return too early
        headers.append((b"retry-after", str(max(1, math.ceil(wait_s))).encode()))
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    empty = scope.get("method") == "HEAD"
    await send({"type": f"{kind}.body", "body": b"" if empty else data})
