"""The HTTP application: the API of `endpoints`, the event stream, metrics and the files of the page.

Responses are JSON, except the stream, metrics and diffs. Errors are `{"error": sentence, "code": word}`.
Every request is checked by `access` first; refused requests are counted.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from switchgear._console.access import (
    FAILURES_AT_ONCE,
    FAILURES_PER_S,
    REQUESTS_AT_ONCE,
    REQUESTS_PER_S,
    SECURITY_HEADERS,
    Denied,
    Places,
    RequestRate,
    Role,
    Tokens,
    bearer,
)
from switchgear._console.actions import LONGEST_KEY, Actions, ApiAnswer, Conflict, operator_digest
from switchgear._console.endpoints import ENDPOINTS, Endpoint, document
from switchgear._console.metrics import ConsoleMetrics
from switchgear._console.requests import RequestMissing
from switchgear._console.sources import NotFound, Sources, state_of
from switchgear._console.stream import Client, EventHub, cursor_key
from switchgear._console.values import finite
from switchgear._core.errors import OverrideRefused, StoreError, SwitchgearError
from switchgear._fleet.incidents import IncidentTrouble
from switchgear._hooks.server import refusal
from switchgear._report.environment import DESIGN
from switchgear._run.batch.record import BatchUnreadable
from switchgear._run.record import RunUnreadable
from switchgear._stores.base import Entry, checked_glob
from switchgear._text.glob import matcher

LARGEST_BODY = 64 * 1024
MOST_LISTED = 10_000
DIGEST_S = 1.0
"""Seconds for which the digest of the store's operator token is cached."""
PAGES = (
    "now",
    "circuit",
    "circuits",
    "session",
    "sessions",
    "run",
    "runs",
    "fleet",
    "incidents",
    "batch",
)
MEDIA = {
    "js": "text/javascript",
    "css": "text/css",
    "html": "text/html",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}

GUARDED = ("/v1", "/metrics", "/health", "/hooks")
"""Paths that need a token."""
OPENAPI = "/v1/openapi.json"

Handler = Callable[[Request], Awaitable[Response]]


class ApiProblem(Exception):
    """A request that cannot be processed."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response in JSON: ASCII, with null for numbers that JSON does not have."""
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False)
    return Response(text, status, dict(headers or {}), media_type="application/json")


def as_error(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    return as_json({"error": message, "code": code}, status, headers)


class Console:
    """The handlers of requests: methods with the name of the endpoint, or `read` and `act`."""

    def __init__(self, sources: Sources, tokens: Tokens, places: Places) -> None:
        self.sources = sources
        self.actions = Actions(sources)
        self.hub = EventHub(sources)
        self.metrics_text = ConsoleMetrics(sources)
        self.hub.listeners.append(self._count_event)
        self.tokens = tokens
        self.places = places
        self._digest: tuple[float, str | None] = (float("-inf"), None)
        self._now: tuple[float, dict[str, Any]] | None = None
        self._now_lock = asyncio.Lock()

    def _count_event(self, entry: Entry) -> None:
        """Count an event, and drop the cached *Now*."""
        self.metrics_text.record(entry.event)
        self._now = None

    # Tokens

    async def role_of(self, token: str) -> Role | None:
        """The role of a token. If the store has a digest, it is that of the only operator token."""
        at_s, digest = self._digest
        if time.monotonic() - at_s > DIGEST_S:
            try:
                digest = await asyncio.to_thread(operator_digest, self.sources)
            except StoreError:
                digest = digest or self.sources.panel.store.operator.digest
            self._digest = (time.monotonic(), digest)
        return self.tokens.role_of(token, digest)

    # Handlers

    async def now(self, _request: Request) -> Response:
        """What needs attention; computed at most once a second for all clients."""
        async with self._now_lock:
            kept = self._now
            if kept is None or time.monotonic() - kept[0] > 0.5:
                rows = list((await self.hub.known()).values())
                value = await asyncio.to_thread(self.sources.now, rows)
                kept = self._now = (time.monotonic(), {**value, "problem": self.hub.problem})
        return as_json(kept[1])

    async def circuits(self, request: Request) -> Response:
        limit = _int(request, "limit", MOST_LISTED)
        glob, state = _glob(request), request.query_params.get("state")
        matches, after_name = matcher(glob), request.query_params.get("after_name", "")
        rows = sorted((await self.hub.known()).items())
        found = [
            row for name, row in rows if matches(name) and (state is None or state_of(row) == state)
        ]
        rest = [row for row in found if row["name"] > after_name]
        more = rest[limit - 1]["name"] if len(rest) > limit else None
        return as_json({"circuits": rest[:limit], "next": more, "total": len(found)})

    async def events(self, request: Request) -> Response:
        """The events after a cursor, as a stream or as a list."""
        after = request.headers.get("last-event-id") or request.query_params.get("after") or None
        if after is not None:
            try:
                cursor_key(after)
            except ValueError as error:
                raise ApiProblem(422, "cursor", str(error)) from None
        glob = _glob(request)
        if "text/event-stream" not in request.headers.get("accept", ""):
            limit = _int(request, "limit", 100)
            found = await asyncio.to_thread(self.sources.events, after, glob, limit)
            return as_json({"events": found})
        await self.hub.start()
        abort = request.scope.get("state", {}).get("abort")
        client = Client(glob, views=_flag(request, "views"), drop=abort or (lambda: None))
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(
            self.hub.serve(client, after), headers=headers, media_type="text/event-stream"
        )

    async def read(self, endpoint: Endpoint, request: Request) -> Response:
        """Respond with the result of one of the `READERS`: a text, or a value as JSON."""
        found = await asyncio.to_thread(READERS[endpoint.name], self.sources, request)
        return PlainTextResponse(found) if isinstance(found, str) else as_json(found)

    async def role(self, request: Request) -> Response:
        """The role of the token, and the facts about the server that the page shows."""
        role: Role = request.scope["switchgear.role"]
        label = self.sources.panel.store.label
        return as_json({"role": role.name.lower(), "store": label, "root": str(self.sources.root)})

    async def metrics(self, _request: Request) -> Response:
        rows = list((await self.hub.known()).values())
        numbers = {"clients": self.hub.clients, "dropped": self.hub.dropped}
        text = await asyncio.to_thread(self.metrics_text.text, rows, numbers)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def health(self, _request: Request) -> Response:
        facts = {"ok": not self.hub.problem, "root": str(self.sources.root), "pid": os.getpid()}
        return as_json({**facts, "console": True, "problem": self.hub.problem})

    async def act(self, endpoint: Endpoint, request: Request) -> Response:
        """Process a POST by the method of `Actions` with the endpoint's name."""
        given = await _json(request, empty=endpoint.name == "acquire")
        name, key = _name(request), _idempotency_key(request)
        answer = await asyncio.to_thread(getattr(self.actions, endpoint.name), name, given, key)
        if endpoint.name == "intervene":
            await self.hub.refresh(f"session/{name}")
        elif endpoint.name == "override" or answer.body.get("events"):
            await self.hub.refresh(name)
        if endpoint.role is Role.OPERATOR:
            self._now = None
        return _action_response(answer)


READERS: dict[str, Callable[[Sources, Request], Any]] = {
    "circuit": lambda sources, request: sources.circuit(
        _name(request), _int(request, "events", 50, 0, 1_000)
    ),
    "sessions": lambda sources, request: {
        "sessions": sources.sessions(everything=_flag(request, "all"))
    },
    "session": lambda sources, request: sources.session(_name(request)),
    "runs": lambda sources, request: {"runs": sources.runs(_int(request, "limit", 100))},
    "run": lambda sources, request: sources.run(_name(request)),
    "run_diff": lambda sources, request: sources.run_diff(_name(request)),
    "run_log": lambda sources, request: sources.run_log(
        _name(request), _int(request, "iteration", 1, 1, 1_000_000)
    ),
    "batches": lambda sources, request: {"batches": sources.batches(_int(request, "limit", 50))},
    "batch": lambda sources, request: sources.batch(_name(request)),
    "budgets": lambda sources, _: {"budgets": sources.budgets()},
    "incidents": lambda sources, request: {
        "incidents": sources.incidents(everything=_flag(request, "all"))
    },
    "incident": lambda sources, request: sources.incident(_name(request)),
    "requests": lambda sources, _: {"requests": sources.requests()},
    "fleet": lambda sources, _: sources.fleet(),
}
"""The functions of endpoints that only read the installation, by name. Called in a thread."""


def _action_response(answer: ApiAnswer) -> Response:
    headers = {"idempotency-replayed": "true"} if answer.is_replay else {}
    retry_s = answer.body.get("retry_after_s")
    if answer.body.get("admitted") is False and isinstance(retry_s, int | float):
        headers["retry-after"] = str(max(1, -int(-retry_s // 1)))
    return as_json(answer.body, headers=headers)


# Reading requests


def _name(request: Request) -> str:
    """The name in the path: of a circuit, a session, a run and so on."""
    return str(next(iter(request.path_params.values())))


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= LONGEST_KEY:
        raise ApiProblem(422, "invalid", f"Idempotency-Key must have 1 to {LONGEST_KEY} characters")
    return None if key is None else f"{request.scope['switchgear.caller']} {key}"


def _glob(request: Request) -> str:
    return checked_glob(request.query_params.get("glob") or "*")


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() in {"1", "true", "yes"}


def _int(request: Request, name: str, default: int, least: int = 1, most: int = MOST_LISTED) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        rule = f"it must be a whole number from {least} to {most}"
        raise ApiProblem(422, "invalid", f"{name} is {text[:40]!r}: {rule}")
    return int(text)


async def _json(request: Request, *, empty: bool = False) -> dict[str, Any]:
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_BODY:
                raise ApiProblem(413, "too_large", f"a request has at most {LARGEST_BODY:,} bytes")
    except ClientDisconnect:
        raise ApiProblem(400, "incomplete", "the request ended early") from None
    if not body and empty:
        return {}
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise ApiProblem(415, "media_type", "the Content-Type must be application/json")
    try:
        given = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise ApiProblem(400, "invalid_json", "the body is not valid JSON") from None
    if not isinstance(given, dict):
        raise ApiProblem(422, "invalid", "the body must be a JSON object")
    return given


# The application


class RequestGate:
    """Checks every request before the application sees it, and adds the security headers."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console
        self._requests = RequestRate(REQUESTS_PER_S, REQUESTS_AT_ONCE)
        self._failures = RequestRate(FAILURES_PER_S, FAILURES_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if scope["method"] == "POST" and scope["path"].startswith("/hooks/"):
            # Agents treat an error as approval, so only the hook endpoint may respond to them.
            agent = scope["path"].removeprefix("/hooks/")
            given = refusal(agent, "hooks are answered on 127.0.0.1, on a connection of their own")
            headers = {"connection": "close"}
            answer = Response(given.body, given.status, headers, media_type="application/json")
            await answer(scope, receive, guarded)
            return
        denied = await self._denial(scope)
        if denied is not None:
            self._console.metrics_text.refuse(denied.reason)
            headers = {"www-authenticate": "Bearer"} if denied.status == 401 else {}
            headers["connection"] = "close"
            answer = as_error(denied.status, denied.reason, denied.message, headers)
            await answer(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def end_streams(self) -> None:
        """End all event streams, so that the server can exit."""
        self._console.hub.end_clients()

    async def _denial(self, scope: Scope) -> Denied | None:
        headers = Headers(scope=scope)
        if any(len(headers.getlist(name)) > 1 for name in ("host", "origin", "authorization")):
            return Denied(400, "host", "Host, Origin and Authorization must be sent once")
        path: str = scope["path"]
        is_open = not path.startswith(GUARDED) or path == OPENAPI
        is_page = is_open and scope["method"] in {"GET", "HEAD"}
        denied = self._console.places.denied(headers, is_page=is_page)
        if denied is not None or is_open:
            return denied  # the files of the page contain no data
        address = scope["client"][0] if scope.get("client") else "local"
        token = bearer(headers.get("authorization"))
        role = None if token is None else await self._console.role_of(token)
        if role is None or token is None:
            return self._deny_unknown(address, token)
        if not self._requests.allows(f"{address} {role}", time.monotonic()):
            return Denied(429, "rate", f"more than {REQUESTS_PER_S:g} requests per second")
        needed = role_needed(scope["method"], path)
        if role < needed:
            reason = "read_only" if role is Role.READ else "role"
            return Denied(403, reason, f"this needs the {needed.name.lower()} token")
        caller = sha256(token.encode(errors="replace")).hexdigest()
        scope["switchgear.role"], scope["switchgear.caller"] = role, caller
        return None

    def _deny_unknown(self, address: str, token: str | None) -> Denied:
        if not self._failures.allows(address, time.monotonic()):
            return Denied(429, "rate", "too many requests without a valid token")
        if token is None:
            return Denied(401, "no_token", "the header 'Authorization: Bearer TOKEN' is missing")
        return Denied(401, "wrong_token", "the token is not valid here")


def role_needed(method: str, path: str) -> Role:
    """The minimum role for a request; unknown requests need the operator role, except for reading."""
    if method in {"GET", "HEAD", "OPTIONS"}:
        return Role.READ
    return next(
        (
            each.role
            for each in ENDPOINTS
            if each.method == method and path.endswith(each.path.rpartition("/")[2])
        ),
        Role.OPERATOR,
    )


_MISSING = (NotFound, RunUnreadable, BatchUnreadable, IncidentTrouble, RequestMissing)
_ANSWERS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], int, str], ...] = (
    (_MISSING, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (OverrideRefused, 403, "refused"),
    (StoreError, 503, "store"),
    (SwitchgearError, 422, "invalid"),
    (ValueError, 422, "invalid"),
)
"""Status and code for the exceptions of handlers; the first match applies."""


def _guard_handler(handler: Handler) -> Handler:
    """The handler, with error responses in place of its exceptions."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ApiProblem as problem:
            return as_error(problem.status, problem.code, str(problem))
        except Exception as error:
            for kind, status, code in _ANSWERS:
                if isinstance(error, kind):
                    return as_error(status, code, str(error))
            raise

    return answer


def _route(endpoint: Endpoint, console: Console) -> Route:
    path = endpoint.path.replace("{key}", "{key:path}")
    handler: Handler
    if endpoint.method == "POST":
        handler = partial(console.act, endpoint)
    elif endpoint.name in READERS:
        handler = partial(console.read, endpoint)
    else:
        handler = getattr(console, endpoint.name)
    return Route(path, _guard_handler(handler), methods=[endpoint.method], name=endpoint.name)


async def _openapi(_request: Request) -> Response:
    return as_json(document())


async def _design(_request: Request) -> Response:
    return Response(DESIGN, headers={"cache-control": "no-cache"}, media_type="text/css")


async def _static(request: Request) -> Response:
    """A file of the page; the addresses of views return the page itself."""
    name = request.path_params.get("path", "")
    if not name or name.partition("/")[0] in PAGES:
        name = "index.html"
    folder = files("switchgear._console").joinpath("static")
    found = folder
    for part in name.split("/"):
        if part in {"", ".", ".."} or "\\" in part or part.startswith("."):
            return as_error(404, "not_found", "there is no such page")
        found = found.joinpath(part)
    media = MEDIA.get(name.rpartition(".")[2])
    if media is None or not found.is_file():
        return as_error(404, "not_found", "there is no such page")
    headers = {"cache-control": "no-cache"}
    return Response(found.read_bytes(), headers=headers, media_type=media)


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 500:
        logging.getLogger("switchgear").error("%s failed", request.url.path, exc_info=error)
    names = {404: "not_found", 405: "method"}
    message = error.detail if isinstance(error, HTTPException) else "an error in the server"
    headers = error.headers if isinstance(error, HTTPException) else None
    return as_error(status, names.get(status, "http"), message, headers)


def make_app(sources: Sources, tokens: Tokens, places: Places) -> ASGIApp:
    console = Console(sources, tokens, places)
    # The longest paths first, because the name of a circuit may contain slashes.
    ordered = sorted(ENDPOINTS, key=lambda each: -each.path.count("/"))
    routes = [
        Route(OPENAPI, _openapi, methods=["GET"]),
        Route("/design.css", _design, methods=["GET"]),
        *(_route(each, console) for each in ordered),
        Route("/{path:path}", _static, methods=["GET"]),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.console = console
        await console.hub.start()
        yield
        await console.hub.stop()

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _http_error},
    )
    app.router.redirect_slashes = False
    return RequestGate(app, console)
