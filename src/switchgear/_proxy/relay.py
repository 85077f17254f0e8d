"""One request through the proxy: route, guard, forward, meter, record.

    bytes -> route -> session, loop, key, budget -> upstream's circuit -> forward -> meter -> record, settle

Bodies pass unchanged in both directions. A response is written as it arrives, and is read no faster than
the client reads it. After the first byte of a response, the request is never sent to another upstream.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._config.proxy import is_loopback
from switchgear._core.errors import Rejected
from switchgear._core.types import Permit
from switchgear._providers.errors import ProviderError
from switchgear._providers.table import ProviderErrorKind
from switchgear._providers.traffic import ModelProtocol, ModelRequest, parsed_json, read_request
from switchgear._providers.upstreams import Upstream
from switchgear._providers.usage import Metered, ResponseMeter
from switchgear._providers.verdicts import ResponseVerdict, judge_response
from switchgear._proxy.access_log import AccessLog, LogEntry
from switchgear._proxy.client import UpstreamClient, UpstreamResponse, origin_of
from switchgear._proxy.guard import AdmittedCall, CallRefused, Guard, ProxiedCall
from switchgear._proxy.headers import TOKEN_HEADER, is_token, request_headers, response_headers
from switchgear._proxy.hints import with_hint
from switchgear._proxy.history import PendingCall, pending_call
from switchgear._proxy.http1 import BadRequest, Connection, Disconnected, Headers, Request
from switchgear._proxy.identity import Identity, identify
from switchgear._proxy.refusals import (
    HttpAnswer,
    ProxyRefusal,
    Reaction,
    answer,
    failure,
    header_value,
)
from switchgear._proxy.routes import BadRoute, ProxyRoute, route, upstream_url
from switchgear._text.redact import redact

_STORE_AWAY = (b"x-switchgear-store", b"unavailable")
_LARGE = 256 * 1024
"""Size in bytes above which a body is parsed beside the event loop."""
_MOST_ERROR = 256 * 1024
"""Maximum bytes of an error response that are read before it is classified."""
_MOST_STORED = 4 * 1024 * 1024
_SAVE_S = 0.05
"""Seconds that the end of a stored response waits until other workers can look up its session."""
_CONNECTION_ERRORS = (TimeoutError, OSError)


class RelaySettings(NamedTuple):
    """Where requests go, and which clients may send them."""

    upstreams: Mapping[str, Upstream]
    fallbacks: Mapping[str, tuple[str, ...]] = {}
    """The upstreams that replace an upstream whose circuit is open, in order."""
    token_digest: bytes | None = None
    """The SHA-256 of the token that every request needs; `None`: no token, and local hosts only."""
    hosts: frozenset[str] = frozenset()
    """Host names that requests may address, in addition to the loopback."""
    body_bytes: int = 64 * 1024 * 1024
    connect_s: float = 10.0
    read_s: float = 600.0
    """Seconds that an upstream may be silent, before and during the response."""
    hint: bool = False
    """Whether a warning is added to the request as a hint for the model."""


class Forwarded(NamedTuple):
    """The result of forwarding a request to one upstream."""

    is_done: bool
    """Whether the client has its response; if not, the next upstream may be tried."""
    failed: HttpAnswer | None = None
    """The response to send if no other upstream is tried."""


class Relay:
    """Forwards the requests of one worker. Used in one event loop."""

    def __init__(self, guard: Guard, settings: RelaySettings, log: AccessLog | None = None) -> None:
        self._guard = guard
        self._settings = settings
        self._names = frozenset(settings.upstreams)
        self._log = log
        self._after: set[asyncio.Future[Any]] = set()
        """Tasks that record results after the response."""
        self._client = UpstreamClient(settings.connect_s, settings.read_s)

    async def close(self) -> None:
        """Wait until everything is recorded, and close the connections to upstreams."""
        while self._after:
            await asyncio.wait(self._after)
        self._client.close()

    async def handle(self, request: Request, connection: Connection) -> None:
        """Answer one request. Raises `BadRequest`, `Disconnected`."""
        started_s = time.monotonic()
        if request.target == b"/healthz" and request.method in {"GET", "HEAD"}:
            _send(connection, self._health())
            return
        self._check_host(request)
        try:
            found = route(request.target, request.headers, self._names)
        except BadRoute as error:
            raise BadRequest(400, str(error)) from None
        self._check_token(request, found)
        to = self._settings.upstreams.get(found.upstream)
        if to is None:
            raise BadRequest(404, f"there is no upstream {found.upstream!r}")
        entry = LogEntry(request.method, found.path, to.name)
        try:
            if found.protocol is None or request.method != "POST":
                await self._pass_through(request, connection, found, to, entry)
            else:
                await self._forward_guarded(request, connection, found, to, entry)
        except (Disconnected, asyncio.CancelledError):
            entry.note = "disconnected"
            raise
        except BadRequest as error:
            entry.status = error.status
            raise
        finally:
            if found.protocol is not None:
                self._guard.counts.request(to.name, _outcome(entry))
            if self._log is not None:
                self._log.write(entry, time.monotonic() - started_s)

    def _health(self) -> HttpAnswer:
        away = {"store": "unavailable"} if self._guard.is_store_away else {}
        body = json.dumps({"status": "ok", **away}).encode()
        return HttpAnswer(200, ((b"content-type", b"application/json"),), body)

    # Access

    def _check_host(self, request: Request) -> None:
        """Reject requests to other host names and from web pages of other sites. Raises `BadRequest`."""
        if self._settings.token_digest is not None:
            return
        if not self._is_local(request.header(b"host").decode("latin-1")):
            raise BadRequest(421, "the Host header names another machine; see --allow-host")
        scheme, _, origin = request.header(b"origin").decode("latin-1").partition("://")
        if scheme.lower() in {"http", "https", "null"} and not self._is_local(origin):
            raise BadRequest(403, "a page of another site sent the request; see --allow-host")

    def _is_local(self, host: str) -> bool:
        host = host.lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return name in self._settings.hosts or is_loopback(name)

    def _check_token(self, request: Request, found: ProxyRoute) -> None:
        digest = self._settings.token_digest
        if digest is None:
            return
        given = request.header(TOKEN_HEADER).decode("latin-1") or found.token
        if not given or not is_token(given, digest):
            raise BadRequest(401, "this proxy needs its token in the header x-switchgear-token")

    # Requests that are not guarded

    async def _pass_through(
        self,
        request: Request,
        connection: Connection,
        found: ProxyRoute,
        to: Upstream,
        entry: LogEntry,
    ) -> None:
        headers = request_headers(request.headers, to)
        data: AsyncIterator[bytes] | None = None
        if request.has_body:
            if request.length is not None:
                if request.length > self._settings.body_bytes:
                    raise BadRequest(413, f"the body has {request.length} bytes")
                headers.append((b"Content-Length", b"%d" % request.length))
            data = self._parts(request)
        try:
            response = await self._open(request.method, to, found.path, headers, data)
        except _CONNECTION_ERRORS as error:
            entry.status = 502
            _send(connection, failure(502, _unreachable(to, error), to.family))
            return
        entry.status = response.status
        try:
            if (moved := _cross_host(to, response)) is not None:
                _send(connection, failure(502, moved, to.family))
                return
            headers = response_headers(response.headers)
            connection.send_head(response.status, response.reason, headers)
            if not response.is_complete:
                connection.flush_head()
            while chunk := await response.read():
                await connection.send(chunk)
            connection.end()
        except _CONNECTION_ERRORS:
            entry.note = "broken off"
            connection.abort()
        finally:
            response.close()

    async def _parts(self, request: Request) -> AsyncIterator[bytes]:
        size = 0
        while part := await request.next_part():
            size += len(part)
            if size > self._settings.body_bytes:
                raise BadRequest(413, "the body is too large")
            yield part

    # Model calls

    async def _forward_guarded(
        self,
        request: Request,
        connection: Connection,
        found: ProxyRoute,
        to: Upstream,
        entry: LogEntry,
    ) -> None:
        body = await request.read(self._settings.body_bytes)
        received_s = time.monotonic()
        call = await self._read_call(request, found, to, body)
        model, identity = call.request, call.identity
        entry.model, entry.session, entry.key = model.model, identity.session, identity.key
        try:
            admission = await self._guard.admit(call)
        except CallRefused as refused:
            self._refuse(connection, refused.refusal, call, entry)
            self._guard.counts.overhead(time.monotonic() - received_s)
            return
        before_s = time.monotonic() - received_s
        forwarding = _Forwarding(request, connection, found, body, call, admission, entry, before_s)
        is_plain = not request.header(b"content-encoding")  # no hint in a compressed body
        if admission.warning and self._settings.hint and is_plain:
            forwarding.body = with_hint(model.protocol, model.payload, admission.warning) or body
        try:
            await self._forward(forwarding, to)
        finally:
            if not forwarding.is_settled or admission.key is not None:
                self._spawn(self._settle(forwarding, None, None))

    async def _read_call(
        self, request: Request, found: ProxyRoute, to: Upstream, body: bytes
    ) -> ProxiedCall:
        headers = _as_texts(request.headers)

        def read() -> ProxiedCall | None:
            model = read_request(to.host, found.path, headers, body)
            if model is None:
                return None
            sender = identify(found.session, headers, found.path, model.protocol, model.payload)
            return ProxiedCall(sender, model)

        is_large = len(body) > _LARGE or "content-encoding" in headers
        call = await self._guard.run_in_thread(read) if is_large else read()
        if call is None:
            raise BadRequest(400, "the request could not be read")
        previous = call.request.payload.get("previous_response_id")
        if isinstance(previous, str) and previous:
            session = await self._guard.session_of_response(previous, call.identity.session)
            call = call._replace(identity=call.identity._replace(session=session))
        return call

    async def _forward(self, forwarding: "_Forwarding", to: Upstream) -> None:
        names = (to.name, *self._settings.fallbacks.get(to.name, ()))
        rejected: list[Rejected] = []
        last: HttpAnswer | None = None
        for index, name in enumerate(names):
            upstream = self._settings.upstreams[name]
            try:
                entered = await self._guard.enter(name, forwarding.call.request.model)
            except Rejected as error:
                rejected.append(error)
                continue
            forwarding.entry.upstream = name
            forwarding.is_own_key = not upstream.key
            done = await self._attempt(
                forwarding, upstream, entered, has_next=index + 1 < len(names)
            )
            if done.is_done:
                return
            last = done.failed
        if last is not None:
            forwarding.entry.status = last.status
            await self._settle(forwarding, None, None)
            _send(forwarding.connection, last)
            return
        waits = [error.retry_after_s for error in rejected if error.retry_after_s is not None]
        first = rejected[0]
        why = f"Switchgear: {redact(str(first), 600)}."
        reaction = Reaction.WAIT if waits else Reaction.STOP
        await self._settle(forwarding, None, None)
        refusal = ProxyRefusal(reaction, why, "circuit", min(waits, default=None), first.circuit)
        self._refuse(forwarding.connection, refusal, forwarding.call, forwarding.entry)
        self._guard.counts.overhead(forwarding.before_s)

    async def _attempt(
        self,
        forwarding: "_Forwarding",
        to: Upstream,
        entered: tuple[CircuitBreaker, Permit],
        *,
        has_next: bool,
    ) -> Forwarded:
        started_s = time.monotonic()
        response: UpstreamResponse | None = None
        is_recorded = False

        async def record(verdict: ResponseVerdict | None) -> None:
            nonlocal is_recorded
            is_recorded = True
            await self._guard.record(entered, verdict, time.monotonic() - started_s)

        try:
            headers = request_headers(forwarding.request.headers, to, is_metered=True)
            response = await self._open("POST", to, forwarding.found.path, headers, forwarding.body)
            if (moved := _cross_host(to, response)) is not None:
                await record(None)
                return Forwarded(is_done=False, failed=failure(502, moved, to.family))
            if response.status >= 400:
                return await self._forward_error(forwarding, response, record, has_next=has_next)
            return await self._stream(forwarding, response, record, entered)
        except _CONNECTION_ERRORS as error:
            await record(_connection_verdict(error))
            status = 504 if isinstance(error, TimeoutError) else 502
            failed = failure(status, _unreachable(to, error), to.family)
            return Forwarded(is_done=False, failed=failed)
        finally:
            if response is not None:
                response.close()
            if not is_recorded:
                self._spawn(self._guard.record(entered, None, 0.0))

    async def _forward_error(
        self,
        forwarding: "_Forwarding",
        response: UpstreamResponse,
        record: Any,
        *,
        has_next: bool,
    ) -> Forwarded:
        """Forward an error response, after it is classified and recorded."""
        head = bytearray()
        is_whole = False
        while len(head) < _MOST_ERROR:
            chunk = await response.read()
            if not chunk:
                is_whole = True
                break
            head += chunk
        given = _as_texts(response.headers)
        verdict = judge_response(response.status, given, bytes(head), now_s=time.time())
        await record(verdict)
        error = verdict.error
        if verdict.outcome == "failure" and has_next and error is not None and error.may_fail_over:
            kept = tuple(response_headers(response.headers))
            return Forwarded(is_done=False, failed=HttpAnswer(response.status, kept, bytes(head)))
        forwarding.entry.status = response.status
        await self._settle(forwarding, Metered(), verdict)
        self._send_head(forwarding, response, "")
        await forwarding.connection.send(bytes(head))
        while not is_whole and (chunk := await response.read()):
            await forwarding.connection.send(chunk)
        forwarding.connection.end()
        return Forwarded(is_done=True)

    async def _stream(
        self,
        forwarding: "_Forwarding",
        response: UpstreamResponse,
        record: Any,
        entered: tuple[CircuitBreaker, Permit],
    ) -> Forwarded:
        """Forward a response as it arrives, and meter it."""
        breaker, permit = entered
        model = forwarding.call.request
        meter = ResponseMeter(
            model.protocol,
            stream=model.is_stream,
            content_type=response.header(b"content-type"),
            content_encoding=response.header(b"content-encoding"),
        )
        stored = _Stored() if _is_stored(model) else None
        forwarding.entry.status = response.status
        self._send_head(forwarding, response, breaker.last_known.phase.value)
        try:
            is_whole, last = await _pump(forwarding, response, meter, stored)
        except (Disconnected, asyncio.CancelledError):
            self._spawn(self._settle(forwarding, meter.finish(ended=False), None))
            raise
        metered = meter.finish(ended=is_whole)
        verdict = judge_response(response.status, metered=metered)
        if metered.usage is not None:
            forwarding.entry.tokens = (metered.usage.input, metered.usage.output)
        is_ordinary = verdict.outcome == "success" and not permit.probe
        if is_ordinary:
            self._settle_money(forwarding, metered, verdict)
        else:  # recorded even if the client disconnects now
            await asyncio.shield(
                self._spawn(self._record_outcome(forwarding, metered, verdict, record))
            )
        if stored is not None and is_whole and forwarding.call.identity.session:
            response_id, calls = stored.read()
            if response_id:
                session = forwarding.call.identity.session
                saving = self._spawn(self._guard.remember_response(response_id, session, calls))
                # The next request may go to another worker.
                await asyncio.wait({saving}, timeout=_SAVE_S)
        await forwarding.connection.send(last)
        if is_whole and (metered.complete or response.is_framed):
            forwarding.connection.end()
        else:  # so that the client detects an incomplete response
            forwarding.connection.abort()
        if is_ordinary:  # recorded after the response, so the client does not wait
            await record(verdict)
            await self._record_key(forwarding, verdict)
        return Forwarded(is_done=True)

    async def _record_outcome(
        self, forwarding: "_Forwarding", metered: Metered, verdict: ResponseVerdict, record: Any
    ) -> None:
        await self._settle(forwarding, metered, verdict)
        await record(verdict)

    async def _settle(
        self, forwarding: "_Forwarding", metered: Metered | None, verdict: ResponseVerdict | None
    ) -> None:
        self._settle_money(forwarding, metered, verdict)
        await self._record_key(forwarding, verdict)

    async def _record_key(self, forwarding: "_Forwarding", verdict: ResponseVerdict | None) -> None:
        """Record the result in the circuit of the client's key, if that key was sent."""
        await self._guard.record_key(
            forwarding.admission, verdict if forwarding.is_own_key else None
        )

    def _settle_money(
        self, forwarding: "_Forwarding", metered: Metered | None, verdict: ResponseVerdict | None
    ) -> None:
        if not forwarding.is_settled:
            forwarding.is_settled = True
            forwarding.entry.cost_micros = self._guard.settle(
                forwarding.admission, metered, verdict
            )

    # Writing

    def _send_head(self, forwarding: "_Forwarding", response: UpstreamResponse, phase: str) -> None:
        headers = response_headers(response.headers)
        headers += _own_headers(forwarding.admission, forwarding.call.identity, phase)
        if self._guard.is_store_away:
            headers.append(_STORE_AWAY)
        forwarding.connection.send_head(response.status, response.reason, headers)
        self._guard.counts.overhead(forwarding.before_s + time.monotonic() - response.head_s)

    def _refuse(
        self, connection: Connection, refusal: ProxyRefusal, call: ProxiedCall, entry: LogEntry
    ) -> None:
        made = answer(refusal, call.request.protocol, call.identity.agent)
        entry.status, entry.refused = made.status, refusal.cause
        if refusal.cause == "store":
            made = made._replace(headers=(*made.headers, _STORE_AWAY))
        if call.identity.session:
            session = (b"x-switchgear-session", header_value(call.identity.session))
            made = made._replace(headers=(*made.headers, session))
        _send(connection, made)

    async def _open(
        self,
        method: str,
        to: Upstream,
        path: str,
        headers: Headers,
        data: bytes | AsyncIterator[bytes] | None,
    ) -> UpstreamResponse:
        origin, before = origin_of(to.url)
        url = upstream_url(to, path)
        target = url[len(to.url) - len(before) :].encode("ascii")
        return await self._client.request(method.encode(), origin, target, headers, data)

    def _spawn(self, work: Awaitable[Any]) -> "asyncio.Future[Any]":
        task = asyncio.ensure_future(work)
        self._after.add(task)
        task.add_done_callback(self._after.discard)
        return task


async def _pump(
    forwarding: "_Forwarding",
    response: UpstreamResponse,
    meter: ResponseMeter,
    stored: "_Stored | None",
) -> tuple[bool, bytes]:
    """Forward and meter a body; returns whether it is complete, and its last part, which is not sent yet.

    The last part is sent after the response is recorded, because the client may act on it at once.
    """
    last = b""
    try:
        if not (chunk := response.ready()):
            forwarding.connection.flush_head()
            chunk = await response.read()
        while chunk:
            if response.is_at_end:
                last = chunk
            else:
                await forwarding.connection.send(chunk)
            meter.feed(chunk)
            if stored is not None:
                stored.feed(chunk)
            chunk = await response.read()
    except _CONNECTION_ERRORS as error:
        forwarding.entry.note = f"broken off: {type(error).__name__}"
        return False, last
    return True, last


@dataclass(slots=True)
class _Forwarding:
    """The state of one guarded request."""

    request: Request
    connection: Connection
    found: ProxyRoute
    body: bytes
    call: ProxiedCall
    admission: AdmittedCall
    entry: LogEntry
    before_s: float
    """Seconds from the last byte of the request until it is forwarded."""
    is_settled: bool = False
    is_own_key: bool = True
    """Whether the client's key was sent, and not that of the upstream."""


class _Stored:
    """Collects a stored response, whose id and tool calls the next request refers to."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, chunk: bytes) -> None:
        if len(self._data) < _MOST_STORED:
            self._data += chunk

    def read(self) -> tuple[str, list[PendingCall]]:
        """The id and the tool calls; the id is empty if the response is unreadable."""
        found: Any = parsed_json(bytes(self._data))
        if not isinstance(found, dict):
            lines = bytes(self._data).split(b"\n")
            last = next((line for line in reversed(lines) if b'"response.completed"' in line), b"")
            event = parsed_json(last.removeprefix(b"data:"))
            found = event.get("response") if isinstance(event, dict) else None
        if not isinstance(found, dict) or not isinstance(found.get("id"), str):
            return "", []
        items = [item for item in found.get("output") or () if isinstance(item, dict)]
        calls = [pending_call(item) for item in items if "call_id" in item]
        return found["id"], calls


def _is_stored(model: ModelRequest) -> bool:
    is_responses = model.protocol is ModelProtocol.OPENAI_RESPONSES
    return is_responses and model.payload.get("store") is not False


def _own_headers(admission: AdmittedCall, identity: Identity, phase: str) -> Headers:
    made: Headers = []
    if phase:
        made.append((b"x-switchgear-circuit", phase.encode()))
    if identity.session:
        made.append((b"x-switchgear-session", header_value(identity.session)))
    known = admission.session
    if known is not None:
        made.append((b"x-switchgear-heat", b"%.2f" % min(1.0, known.heat)))
        spent = known.spent_micros
        if spent is not None:
            made.append((b"x-switchgear-cost", b"%.6f" % (spent / 1e6)))
    if admission.warning:
        made.append((b"x-switchgear-warning", header_value(redact(admission.warning, 400))))
    return made


def _as_texts(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers as texts, with names in lower case; of headers with the same name, the last."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


def _send(connection: Connection, made: HttpAnswer) -> None:
    headers = [each for each in made.headers if each[0].lower() != b"content-length"]
    headers.append((b"content-length", b"%d" % len(made.body)))
    connection.send_head(made.status, b"", headers)
    connection.write(made.body)
    connection.end()


def _outcome(entry: LogEntry) -> str:
    if entry.refused:
        return "refused"
    if entry.note == "disconnected":
        return "disconnected"
    return "success" if 200 <= entry.status < 400 and not entry.note else "failure"


def _cross_host(to: Upstream, response: UpstreamResponse) -> str | None:
    """Why a redirect is not forwarded: a client could send its key to another host; else `None`."""
    if not 300 <= response.status < 400:
        return None
    own = urlsplit(to.url)
    for name, value in response.headers:
        if name.lower() != b"location":
            continue
        # Many clients read a backslash as a slash.
        location = value.decode("latin-1").replace("\\", "/")
        try:
            target = urlsplit(urljoin(f"{to.url}/", location))
        except ValueError:
            break
        if (target.scheme, target.netloc) != (own.scheme, own.netloc):
            break
    else:
        return None
    return f"upstream {to.name!r} redirects to another host, which is not followed"


def _connection_verdict(error: BaseException) -> ResponseVerdict:
    is_late = isinstance(error, TimeoutError)
    kind = ProviderErrorKind.TIMEOUT if is_late else ProviderErrorKind.OUTAGE
    text = redact(f"{type(error).__name__}: {error}")
    return ResponseVerdict("failure", ProviderError(kind, None, None, text))


def _unreachable(to: Upstream, error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"Switchgear: upstream {to.name!r} did not answer in time"
    return f"Switchgear: upstream {to.name!r} cannot be reached: {redact(str(error), 200)}"
