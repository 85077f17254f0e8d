"""Answers hooks over HTTP, for agents that can post their events instead of starting a process.

The resident process decides the events, as it does for hook processes (`resident.py`). Without one, the server
decides an event itself with the same function, and starts a resident process for the next event.

The server is for this machine and this user only: it listens on 127.0.0.1, requires a token that is stored in a
file of mode 0600, and refuses requests that a web page in a browser could send (another `Host`, any `Origin`).
The size of a request is limited; there is a deadline for reading it and another for deciding it. Every request is
answered, in a single write. Slow clients do not delay others: a request uses a slot only after it has arrived,
and when there are too many connections, the one that has been sending for longest is refused and closed.

Agents treat every status but 2xx as an approval. So a `POST` that is not decided for any reason (a wrong token,
host or path, no length, too many connections, a defect) gets status 200 and a body that refuses the call and
contains nothing about the project. Only other methods get error statuses.

- `POST /hooks/<agent>`: receives the JSON of an event, returns the agent's own JSON.
- `GET /health`: returns the project and the process id of the server.
"""

import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader, RawIOBase
from threading import BoundedSemaphore, Lock
from time import monotonic
from typing import Any, NamedTuple

from switchgear._agents.fields import parsed
from switchgear._agents.hook_protocol import BadInput, Reply
from switchgear._agents.registry import dialect_of
from switchgear._core.types import Event
from switchgear._hooks.after_reply import RecordingStore, emit_in_background, start_escalation_agent
from switchgear._hooks.after_reply import run as run_after_reply
from switchgear._hooks.client import event_id
from switchgear._hooks.command import AGENTS
from switchgear._hooks.handler import (
    MAX_INPUT_BYTES,
    TOO_LARGE,
    Opener,
    answer,
    containing_project,
    refuse_unreadable,
    reply_at_deadline,
)
from switchgear._hooks.hook_config import HookConfig, config_of
from switchgear._hooks.process import has_store
from switchgear._hooks.session import folder_id, note_name
from switchgear._hooks.session_check import (
    CheckResult,
    SessionChecks,
    active_sessions,
    check_unwatched_session,
)
from switchgear._hooks.undecided import Pending, reply_without_event, unreadable_ruling
from switchgear._stores.base import Store

HOST = "127.0.0.1"
REQUEST_TIMEOUT_S = 10.0
"""Seconds for a client to send its request, from the first byte to the last."""
IDLE_TIMEOUT_S = 60.0
"""Seconds for which a connection without a request is kept."""
MAX_REQUESTS = 64
"""Maximum number of requests that are decided at the same time; further ones are refused."""
MAX_CONNECTIONS = 192
"""Maximum number of open connections; for a new one, the connection that has been sending for longest is closed."""
DRAIN_TIMEOUT_S = 2.0
"""Seconds for which the unused rest of a body is read, so that the client can read the answer."""
RESIDENT_GRACE_S = 1.0
"""Seconds by which the server's deadline for an event is later than that of the resident process."""
MAX_TOKEN_CHARS = 200
MAX_UNAUTHORIZED_BYTES = 256 * 1024
"""A larger body without a valid token is not read; a smaller one is read only for the name of its event."""
MAX_DISCARDED_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes of a refused body that are read and discarded."""
_OTHER_METHODS = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"PATCH", b"DELETE", b"TRACE"))

Ask = Callable[[str, str, bytes, float], tuple[int, bytes, bytes, bytes] | None]
"""Receives agent, project, input and arrival time; returns exit code, standard output, standard error and refusal."""

HOOK_CALL = b"POST /hooks/"
"""The first bytes of a hook call; other connections can be handed over."""


def _is_local(connection: socket.socket) -> bool:
    return connection.getsockname()[0] in {HOST, f"::ffff:{HOST}"}


class Answer(NamedTuple):
    status: int
    body: bytes = b""


class HookServer(ThreadingHTTPServer):
    """Answers the hooks of one project. Start it with `serve_forever`, stop it with `shutdown`.

    - `root`: the project; `token`: the token that requests must contain; `port`: 0 selects a free port.
    - `open_store`: opens the store of a configuration; called from several threads.
    - `ask`: has the resident process decide an event, see `resident.ask`; default: the server decides it.
    - `start`: starts a resident process; called after an event that the server decided.
    - `host`: the address to listen on. Hooks are answered on 127.0.0.1 only, also for another address.
    - `hand_over`: takes over a connection that does not begin with a hook call, and returns whether it did;
      default: this server answers it.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        root: str,
        token: str,
        open_store: Opener,
        *,
        port: int = 0,
        ask: Ask | None = None,
        start: Callable[[], object] = lambda: None,
        host: str = HOST,
        hand_over: Callable[..., bool] | None = None,
    ) -> None:
        if not token:
            raise ValueError("token is empty: a server of hooks must have one")
        self.hand_over = hand_over
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.root = containing_project(root)
        self._ask = ask
        self.start_resident = start
        self.open_store = open_store
        self._token = token.encode()
        self.request_slots = BoundedSemaphore(MAX_REQUESTS)
        self.session_checks = SessionChecks(
            self._check_session, self._start_escalation, self._sessions
        )
        self._lock = Lock()
        self._connections: dict[socket.socket, _Connection] = {}
        self._handed_over: set[socket.socket] = set()
        super().__init__((host, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def has_token(self, header: str | None) -> bool:
        """Whether the token is valid, compared in constant time."""
        given = (header or "").removeprefix("Bearer ").strip().encode(errors="replace")
        return compare_digest(given[:MAX_TOKEN_CHARS], self._token)

    def decided_by_resident(self, agent: str, raw: bytes, began_s: float) -> Reply | None:
        """The reply of the resident process; `None`: it did not decide the event.

        Raises TimeoutError if it received the event and did not reply in time.
        """
        response = None if self._ask is None else self._ask(agent, self.root, raw, began_s)
        if response is None:
            return None
        code, *texts = response
        out, err, refusal = (text.decode(errors="replace") for text in texts)
        return Reply(out, err, code, refusal=refusal)

    def service_actions(self) -> None:
        """Answer overdue requests and check silent sessions; called between requests."""
        now_s = monotonic()
        with self._lock:
            overdue = [each for each in self._connections.values() if each.is_overdue(now_s)]
        for connection in overdue:
            connection.answer_overdue()
        self.session_checks.start_due(now_s)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection. If there are too many, close the one that has been sending for longest."""
        if self._was_handed_over(request):
            self.close_request(request)
            return
        with self._lock:
            slowest = None
            if len(self._connections) >= MAX_CONNECTIONS:
                sending = [each for each in self._connections.values() if each.is_sending]
                slowest = min(sending, key=lambda each: each.since_s, default=None)
                if slowest is not None:
                    self._connections.pop(slowest.socket)
            is_full = len(self._connections) >= MAX_CONNECTIONS
            if not is_full:
                self._connections[request] = _Connection(request)
        if slowest is not None:
            slowest.turn_away()
        if is_full:
            _Connection(request).turn_away()
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.connection_state(request).turn_away("no thread can be started for this request")
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Shut down a connection; one that was handed over is only closed in this process."""
        with self._lock:
            self._connections.pop(request, None)
            was_handed_over = request in self._handed_over
            self._handed_over.discard(request)
        if was_handed_over:
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def _was_handed_over(self, request: socket.socket) -> bool:
        """Hand over a connection whose first bytes have arrived, without starting a thread for it."""
        if self.hand_over is None:
            return False
        try:
            first_bytes = request.recv(len(HOOK_CALL), socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            return False
        may_be_hook_call = HOOK_CALL.startswith(first_bytes) and _is_local(request)
        return bool(first_bytes) and not may_be_hook_call and self.hand_over(request, wait=False)

    def forget(self, request: Any) -> None:
        """Stop tracking a connection that another process has taken over."""
        with self._lock:
            self._connections.pop(request, None)
            self._handed_over.add(request)

    def connection_state(self, request: Any) -> "_Connection":
        """The state of a connection; a connection that was turned away counts as answered."""
        with self._lock:
            return self._connections.get(request) or _Connection(request, is_answered=True)

    def _check_session(self, session: str) -> CheckResult:
        """Check a session, if it belongs to this project."""
        config = config_of(self.root)
        policy, plan = config.policy_for(note_name(session)), config.interventions
        mark = folder_id(self.root)
        committed: list[Event] = []
        store: Any = RecordingStore(self.open_store(config), committed)
        result = check_unwatched_session(store, session, policy, plan, mark)
        if config.listens:
            emit_in_background(self.root, committed)
        return result

    def _sessions(self) -> list[str]:
        config = config_of(self.root)
        return active_sessions(self.open_store(config)) if has_store(config) else []

    def _start_escalation(self, session: str, evidence: str) -> None:
        escalate = config_of(self.root).interventions.escalate
        if escalate:
            start_escalation_agent(escalate, evidence, session, root=self.root)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing when a client closes its connection."""


class _Connection:
    """The state of one connection. Used by its own thread and the server's thread."""

    def __init__(self, request: socket.socket, *, is_answered: bool = False) -> None:
        self.socket = request
        self.since_s = monotonic()
        """When the connection was opened, its last request was answered, or its current decision began."""
        self.is_sending = True
        self._deciding: tuple[str, Pending] | None = None
        """The agent and the state of the request that is being decided; `None`: none is."""
        self._is_answered = is_answered
        self._lock = Lock()

    def wait_for_request(self) -> None:
        with self._lock:
            self.is_sending, self._deciding = True, None
            self.since_s = monotonic()

    def decide(self, agent: str, pending: Pending) -> None:
        with self._lock:
            self.is_sending, self._deciding = False, (agent, pending)
            self.since_s = monotonic()

    def is_overdue(self, now_s: float) -> bool:
        """Whether the deadline of the request that is being decided has passed."""
        request = self._deciding
        return request is not None and now_s > request[1].due_s()

    def may_answer(self) -> bool:
        """Whether the request is unanswered. From then on, the deadline does not answer it."""
        with self._lock:
            self._deciding = None
            return not self._is_answered

    def answer_overdue(self) -> None:
        """Answer the request that is being decided in place of its thread, and close the connection."""
        with self._lock:
            request, self._deciding = self._deciding, None
            self._is_answered = self._is_answered or request is not None
        if request is not None:
            self._send_and_close(_answer(request[0], reply_at_deadline(*request)))

    def turn_away(self, why: str = "") -> None:
        """Refuse the request without reading the rest, and close. Default reason: too many connections."""
        with self._lock:
            was_answered, self._is_answered = self._is_answered, True
        if not was_answered:
            why = why or f"{MAX_CONNECTIONS} connections are open, and this one was the slowest"
            self._send_and_close(refusal(AGENTS[0], why))

    def _send_and_close(self, answer: Answer) -> None:
        # Does not wait for a client that does not read: it receives only what fits into its buffer.
        with suppress(OSError):
            self.socket.send(_as_bytes(answer, is_last=True), socket.MSG_DONTWAIT)
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class _BodyReader(RawIOBase):
    """Reads the bytes of a connection, with one deadline for a whole request."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until_s: float | None = None

    def wait_for_request(self) -> None:
        """Reset the deadline; the next one starts with the first byte of the next request."""
        self._until_s = None

    def allow(self, seconds: float) -> None:
        self._until_s = monotonic() + seconds

    @property
    def has_begun(self) -> bool:
        return self._until_s is not None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived. Raises `TimeoutError` after the deadline."""
        left_s = IDLE_TIMEOUT_S if self._until_s is None else self._until_s - monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        size = self._connection.recv_into(buffer)
        if self._until_s is None and size:
            self.allow(REQUEST_TIMEOUT_S)
        return size


class _Handler(BaseHTTPRequestHandler):
    """One connection. Used by one thread."""

    server: HookServer
    protocol_version = "HTTP/1.1"
    server_version = "switchgear"
    sys_version = ""
    _unread = 0

    def setup(self) -> None:
        """Send responses without delay, because clients wait for them, and read with a deadline."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._state = self.server.connection_state(self.request)
        self._reader = _BodyReader(self.connection)
        self.rfile.close()
        self.rfile = BufferedReader(self._reader, 1 << 16)

    def handle(self) -> None:
        """Serve the connection here, or hand it over if it does not begin with a hook call."""
        if self.server.hand_over is None or self._may_begin_with_a_hook_call():
            super().handle()
        elif self.server.hand_over(self.connection):
            self.server.forget(self.request)
        elif _is_local(self.connection):
            super().handle()

    def _may_begin_with_a_hook_call(self) -> bool:
        """Whether the first bytes may be a hook call; they are not consumed."""
        if not _is_local(self.connection):
            return False
        self.connection.settimeout(IDLE_TIMEOUT_S)
        try:
            first_bytes = self.connection.recv(len(HOOK_CALL), socket.MSG_PEEK)
        except OSError:
            return True  # the handler reports the error
        return HOOK_CALL.startswith(first_bytes)

    def handle_one_request(self) -> None:
        """Handle one request; a client that takes too long gets an error."""
        self._reader.wait_for_request()
        self._state.wait_for_request()
        try:
            self._read_request()
        except TimeoutError:
            self.close_connection = True
            if self._reader.has_begun:
                why = f"the request was not complete after {REQUEST_TIMEOUT_S:g} s"
                self._answer_incomplete(408, why)

    def _read_request(self) -> None:
        self.raw_requestline = b""
        self.raw_requestline = self.rfile.readline(65537)
        if len(self.raw_requestline) > 65536:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
        elif not self.raw_requestline:
            self.close_connection = True
        elif self.parse_request():
            method = {"GET": self.do_GET, "POST": self.do_POST}.get(self.command)
            if method is None:
                self.send_error(501)
            else:
                method()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer an error of the HTTP parser in the same form as other errors."""
        self.close_connection = True
        status = int(code)
        self._answer_incomplete(status, explain or message or self.responses[status][0])

    def _answer_incomplete(self, status: int, why: str) -> None:
        """Answer a request that could not be read; if it may be a hook call, refuse the call."""
        is_other = self.raw_requestline.split(b" ")[0] in _OTHER_METHODS
        self._reply(_error(status, why) if is_other else refusal(AGENTS[0], why))

    def do_GET(self) -> None:
        refused = self._header_error()
        if refused is not None:
            self._reply(_error(*refused))
        elif self.path == "/health":
            body = json.dumps({"ok": True, "root": self.server.root, "pid": os.getpid()})
            self._reply(Answer(200, body.encode()))
        else:
            self._reply(_error(404, "there is no such page"))

    def do_POST(self) -> None:
        afterwards: list[Callable[[], object]] = []
        agent = self.path.removeprefix("/hooks/")
        refused = self._header_error()
        if refused is None and (agent not in AGENTS or agent == self.path):
            refused = (404, f"the path must be /hooks/ and one of {', '.join(AGENTS)}")
        try:
            if refused is None:
                answer = self._hook(agent, afterwards)
            else:
                answer = self._undecided_answer(agent, refused[1])
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001  agents take a closed connection for an approval
            self.close_connection = True
            answer = refusal(agent, f"{type(error).__name__}: {error}")
        self._reply(answer)
        for each in afterwards:
            with suppress(Exception):  # the request is answered already
                each()
        if self._unread:
            self._discard_body()

    def _undecided_answer(self, agent: str, why: str) -> Answer:
        """The answer to a request that is not checked; only the name of its event is read."""
        self.close_connection = True
        length = self._length() or 0
        if length > MAX_UNAUTHORIZED_BYTES:
            self._unread = length
            return refusal(agent, why)
        agent = agent if agent in AGENTS else AGENTS[0]
        if dialect_of(agent).is_surely_not_before_a_tool(parsed(self.rfile.read(length))):
            return Answer(200, json.dumps({"systemMessage": f"switchgear: {why}"}).encode())
        return refusal(agent, why)

    def _header_error(self) -> tuple[int, str] | None:
        """The status and the reason if the headers are rejected; `None`: they are accepted."""
        allowed = {f"{HOST}:{self.server.port}", f"localhost:{self.server.port}"}
        if self.headers.get("Host", "").lower() not in allowed:
            return 403, "the Host must be this machine: 127.0.0.1 and the port"
        if self.headers.get("Origin") is not None:
            return 403, "requests from web pages are refused"
        if not self.server.has_token(self.headers.get("Authorization")):
            return 401, "the header 'Authorization: Bearer TOKEN' is missing or wrong"
        return None

    def _hook(self, agent: str, afterwards: list[Callable[[], object]]) -> Answer:
        """Decide a call; the tasks to do after the answer are added to `afterwards`."""
        try:
            raw = self._body(agent)
            if not self.server.request_slots.acquire(blocking=False):
                raise BadInput(f"{MAX_REQUESTS} requests are being answered already")
        except BadInput as error:
            self.close_connection = True
            pending, opener = Pending(), self.server.open_store
            self._state.decide(agent, pending)
            why = str(error)
            return _answer(agent, refuse_unreadable(agent, why, self.server.root, opener, pending))
        began_s, committed = monotonic(), list[Event]()
        try:
            self._state.decide(agent, Pending(began_s + RESIDENT_GRACE_S))
            reply = self.server.decided_by_resident(agent, raw, began_s)
            if reply is not None:
                return _answer(agent, reply)
            afterwards.append(self.server.start_resident)
            pending = Pending(event=event_id(began_s))
            self._state.decide(agent, pending)

            def open_recording(config: HookConfig) -> Store:
                store = self.server.open_store(config)
                return RecordingStore(store, committed) if config.listens else store

            reply = answer(agent, raw, self.server.root, open_recording, pending)
        except TimeoutError:
            return refusal(agent, "the resident process did not reply in time")
        finally:
            self.server.request_slots.release()
        afterwards.append(lambda: emit_in_background(self.server.root, committed))
        work = reply.work_after
        if work is not None:
            # The agent's process is unknown here: the server itself checks the session.
            if work.watch:
                afterwards.append(lambda: self.server.session_checks.add(work.session))
            afterwards.append(lambda: run_after_reply(work, None))
        return _answer(agent, reply)

    def _body(self, agent: str) -> bytes:
        """The body of a hook call. Raises `BadInput` if it cannot be read."""
        length = self._length()
        if length is None:
            raise BadInput("the header Content-Length is missing or is not a number")
        if length > MAX_INPUT_BYTES:
            self._unread = length
            raise BadInput(f"{agent} sent an invalid event: {TOO_LARGE}")
        try:
            raw = self.rfile.read(length)
        except TimeoutError:
            why = f"{agent} took longer than {REQUEST_TIMEOUT_S:g} s to send its request"
            raise BadInput(why) from None
        if len(raw) < length:
            raise BadInput(f"{agent} closed the connection during its request")
        return raw

    def _length(self) -> int | None:
        """The length of the body; `None`: missing, or not a number."""
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers:
            return None
        return int(length) if length.isascii() and length.isdigit() and len(length) < 12 else None

    def _discard_body(self) -> None:
        """Read the rest of a request, because some clients read the answer only after they have sent everything."""
        left = min(self._unread, MAX_DISCARDED_BYTES)
        self._reader.allow(DRAIN_TIMEOUT_S)
        with suppress(TimeoutError):
            while left > 0 and (part := self.rfile.read1(min(left, 1 << 16))):
                left -= len(part)

    def _reply(self, answer: Answer) -> None:
        if not self._state.may_answer():
            self.close_connection = True  # it was overdue, and is answered already
            return
        self.connection.settimeout(REQUEST_TIMEOUT_S)
        self.wfile.write(_as_bytes(answer, is_last=self.close_connection))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name in http.server
        """Log nothing: events report what happens."""


def _answer(agent: str, reply: Reply) -> Answer:
    """A reply as JSON; the standard error and the exit code of a hook process become a message.

    A reply without output is an empty object: the agent continues.
    """
    body = reply.stdout
    if not body and reply.stderr:
        fields = {"systemMessage": reply.stderr}
        if reply.code == 2:
            fields |= {"decision": "deny" if agent == "gemini" else "block", "reason": reply.stderr}
        body = json.dumps(fields)
    return Answer(200, body.encode(errors="replace") or b"{}")


def _as_bytes(answer: Answer, *, is_last: bool) -> bytes:
    """The HTTP response. `is_last`: the connection is closed after it."""
    close = "Connection: close\r\n" if is_last else ""
    head = (
        f"HTTP/1.1 {answer.status} {BaseHTTPRequestHandler.responses[answer.status][0]}\r\n"
        "Content-Type: application/json\r\nCache-Control: no-store\r\n"
        f"Content-Length: {len(answer.body)}\r\n{close}\r\n"
    )
    return head.encode() + answer.body


def refusal(agent: str, why: str) -> Answer:
    """Refuse a call whose event was not read."""
    agent = agent if agent in AGENTS else AGENTS[0]
    return _answer(agent, reply_without_event(agent, unreadable_ruling(why)))


def _error(status: int, why: str) -> Answer:
    return Answer(status, json.dumps({"error": why}).encode())
