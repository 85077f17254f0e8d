"""The same answers over HTTP, for agents that can post their hooks: no process has to start.

Only for this machine and this user: it listens on 127.0.0.1, wants a token that lies in a file of
mode 0600, and refuses what a web page in a browser could send (another `Host`, any `Origin`). A
request is bounded in size and time, and is answered in a single write.

- `POST /hooks/<agent>`: a hook's JSON in, the agent's own JSON out.
- `GET /health`: whether it is there, and for which project.
"""

import json
import os
import socket
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore
from time import monotonic
from typing import Any, NamedTuple

from switchgear.hooks.answering import (
    LARGEST_BYTES,
    TOO_LARGE,
    Opener,
    answer,
    refused_unread,
    whole_project,
)
from switchgear.hooks.command import AGENTS
from switchgear.hooks.compiled import compiled
from switchgear.hooks.errands import run as run_errand
from switchgear.hooks.errands import start_help
from switchgear.hooks.rounds import Rounds
from switchgear.hooks.ruling import Reply
from switchgear.hooks.sessions import note_name
from switchgear.hooks.watching import Look, at_work, look_for_a_watcher
from switchgear.hooks.whereabouts import folder_mark

HOST = "127.0.0.1"
PATIENCE_S = 10.0
"""How long a client may take over its request."""
MOST_AT_ONCE = 64
"""Requests that are answered at the same time; more are told to come again."""
LONGEST_TOKEN = 200
MOST_DROPPED = 64 * 1024 * 1024
"""Bytes of a body that is too large which are still taken from the line."""


class Answer(NamedTuple):
    """What a request gets."""

    status: int
    body: bytes = b""


class HookServer(ThreadingHTTPServer):
    """Answers hooks of one project. Start it with `serve_forever`, stop it with `shutdown`.

    - `root`: the project; `token`: what requests must bring; `port`: 0 picks a free one.
    - `open_store`: gives the store that a configuration names; called for each request, from
      several threads.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, root: str, token: str, open_store: Opener, *, port: int = 0) -> None:
        if not token:
            raise ValueError("token is empty: a server of hooks must have one")
        self.root = whole_project(root)
        self.open_store = open_store
        self._token = token.encode()
        self.places = BoundedSemaphore(MOST_AT_ONCE)
        self.rounds = Rounds(self._look, self._call_for_help, self._sessions)
        super().__init__((HOST, port), _Handler)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def has_token(self, header: str | None) -> bool:
        """Whether a request may be answered; takes as long either way."""
        given = (header or "").removeprefix("Bearer ").strip().encode(errors="replace")
        return compare_digest(given[:LONGEST_TOKEN], self._token)

    def service_actions(self) -> None:
        """Between requests: see to it that silent sessions are looked at."""
        self.rounds.tick(monotonic())

    def _look(self, session: str) -> Look:
        """Only at a session of this project: of others neither the policy nor the plan is ours."""
        known = compiled(self.root)
        policy, plan = known.policy_for(note_name(session)), known.interventions
        mark = folder_mark(self.root)
        return look_for_a_watcher(self.open_store(known), session, policy, plan, mark)

    def _sessions(self) -> list[str]:
        return at_work(self.open_store(compiled(self.root)))

    def _call_for_help(self, session: str, evidence: str) -> None:
        escalate = compiled(self.root).interventions.escalate
        if escalate:
            start_help(escalate, evidence, session, root=self.root)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    """One connection. Used by one thread."""

    server: HookServer
    protocol_version = "HTTP/1.1"
    server_version = "switchgear"
    sys_version = ""
    timeout = PATIENCE_S
    _unread = 0
    """Bytes of a body that nobody reads."""

    def setup(self) -> None:
        """Answers are small, and somebody waits for them."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        """The health of the server."""
        refused = self._refused()
        if refused is not None:
            self._reply(refused)
        elif self.path == "/health":
            body = json.dumps({"ok": True, "root": self.server.root, "pid": os.getpid()})
            self._reply(Answer(200, body.encode()))
        else:
            self._reply(_error(404, "there is nothing here"))

    def do_POST(self) -> None:
        """A hook call."""
        refused = self._refused()
        if refused is not None:
            self.close_connection = True  # its body is not read
        self._reply(self._hook() if refused is None else refused)
        if self._unread:
            self._let_go()

    def _refused(self) -> Answer | None:
        """Why a request is not even looked at."""
        allowed = {f"{HOST}:{self.server.port}", f"localhost:{self.server.port}"}
        if self.headers.get("Host", "").lower() not in allowed:
            return _error(403, "the Host must be this machine: 127.0.0.1 and the port")
        if self.headers.get("Origin") is not None:
            return _error(403, "no web page may ask")
        if not self.server.has_token(self.headers.get("Authorization")):
            return _error(401, "the header 'Authorization: Bearer TOKEN' is missing or wrong")
        return None

    def _hook(self) -> Answer:
        agent = self.path.removeprefix("/hooks/")
        if not self.path.startswith("/hooks/") or agent not in AGENTS:
            self.close_connection = True
            return _error(404, f"the path must be /hooks/ and one of {', '.join(AGENTS)}")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 12):
            self.close_connection = True
            return _error(411, "the header Content-Length is missing, or no number")
        if int(length) > LARGEST_BYTES:
            return self._refused_unread(
                agent, int(length), f"{agent} sent what cannot be used: {TOO_LARGE}"
            )
        if not self.server.places.acquire(blocking=False):
            why = f"{MOST_AT_ONCE} requests are being answered already"
            return self._refused_unread(agent, int(length), why)
        try:
            raw = self.rfile.read(int(length))
            reply = answer(agent, raw, self.server.root, self.server.open_store)
        finally:
            self.server.places.release()
        if reply.errand is not None:
            # The agent is nobody's parent here: its session is watched by the server itself.
            if reply.errand.watch:
                self.server.rounds.add(reply.errand.session)
            run_errand(reply.errand._replace(watch=False))
        return _answer(agent, reply)

    def _refused_unread(self, agent: str, length: int, why: str) -> Answer:
        """The answer to a call whose body is not read: it is said and counted all the same."""
        self.close_connection = True
        self._unread = length
        return _answer(agent, refused_unread(agent, why, self.server.root, self.server.open_store))

    def _let_go(self) -> None:
        """Take what is still sent, so that the client reads its answer before the line is cut."""
        self.wfile.flush()
        left = min(self._unread, MOST_DROPPED)
        while left > 0 and (part := self.rfile.read1(min(left, 1 << 16))):
            left -= len(part)

    def _reply(self, given: Answer) -> None:
        close = "Connection: close\r\n" if self.close_connection else ""
        head = (
            f"HTTP/1.1 {given.status} {self.responses[given.status][0]}\r\n"
            "Content-Type: application/json\r\nCache-Control: no-store\r\n"
            f"Content-Length: {len(given.body)}\r\n{close}\r\n"
        )
        self.wfile.write(head.encode() + given.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name in http.server
        """Nothing: what happens is in the events."""


def _answer(agent: str, reply: Reply) -> Answer:
    """A reply as JSON: what a process says on standard error and by its exit code is a message here.

    Without a word the agent goes on: an empty object is one.
    """
    body = reply.stdout
    if not body and reply.stderr:
        said = {"systemMessage": reply.stderr}
        if reply.code == 2:
            said |= {"decision": "deny" if agent == "gemini" else "block", "reason": reply.stderr}
        body = json.dumps(said)
    return Answer(200, body.encode(errors="replace") or b"{}")


def _error(status: int, why: str) -> Answer:
    return Answer(status, json.dumps({"error": why}).encode())
