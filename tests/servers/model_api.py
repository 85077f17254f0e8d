"""A scripted model API on loopback: supports every protocol, and fails as a test configures it."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from model_streams import SAMPLES
from switchgear._providers.traffic import ModelProtocol, protocol_of
from timeouts import LIMIT_S

_NAMES = {
    ModelProtocol.ANTHROPIC_MESSAGES: "anthropic",
    ModelProtocol.OPENAI_CHAT: "chat",
    ModelProtocol.OPENAI_RESPONSES: "responses",
    ModelProtocol.GEMINI_GENERATE: "gemini",
    ModelProtocol.GEMINI_STREAM: "gemini stream",
}


class Reply(NamedTuple):
    """How one request is answered instead of as usual."""

    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012  never changed
    body: bytes | None = None
    """`None`: the usual answer, or an error message."""
    cut_at: int | None = None
    """The response ends cleanly after so many bytes."""
    breaks: bool = False
    """The connection is closed in the middle of the response."""
    hangs: bool = False
    """After half of the response nothing comes until the test ends."""


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    payload: Any

    @property
    def model(self) -> str:
        """The model that the request names, in its path or its body."""
        in_path = re.search(r"/models/([^/:]+):", self.path)
        named = self.payload.get("model", "") if isinstance(self.payload, dict) else ""
        return in_path[1] if in_path else str(named)


class ModelApi:
    """The API while it runs: `url`, what it received, and what it answers next."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.received: list[Received] = []
        self.script: list[Reply] = []
        self.always: Reply | None = None
        self.models_down: set[str] = set()
        """Models that answer with status 503."""
        self.ended = threading.Event()

    def fail(self, times: int, status: int = 503, **headers: str) -> None:
        """Answer the next requests with an error."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.script += [Reply(status, named)] * times

    def reply_to(self, received: Received) -> Reply:
        if received.model in self.models_down:
            return Reply(503)
        if self.script:
            return self.script.pop(0)
        return self.always or Reply()


def body_of(path: str, payload: Any) -> tuple[str, bytes]:
    """The usual answer: its content type and body."""
    protocol = protocol_of(path)
    if protocol is ModelProtocol.ANTHROPIC_COUNT_TOKENS:
        return "application/json", b'{"input_tokens": 12}'
    if protocol is None:
        return "application/json", b'{"data": []}'
    is_stream = isinstance(payload, dict) and payload.get("stream") is True
    name = _NAMES[protocol]
    sample = SAMPLES[f"{name} stream" if is_stream else name]
    return sample.content_type, sample.body


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    api: ModelApi


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        api = self.server.api
        text = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            payload = json.loads(text) if text else None
        except ValueError:
            payload = text
        received = Received(self.path, dict(self.headers.items()), payload)
        api.received.append(received)
        reply = api.reply_to(received)
        kind, body = body_of(self.path, payload)
        if reply.status >= 400:
            kind = "application/json"
            body = json.dumps({"error": {"message": f"scripted {reply.status}"}}).encode()
        if reply.body is not None:
            body = reply.body
        body = body[: reply.cut_at]
        self.send_response(reply.status)
        for name, value in {"content-type": kind, **reply.headers}.items():
            self.send_header(name, value)
        if reply.breaks or reply.hangs:
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if reply.hangs:
                api.ended.wait(LIMIT_S)
            self.close_connection = True
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for start in range(0, len(body), 97):
            chunk = body[start : start + 97]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True


@contextmanager
def model_api() -> Iterator[ModelApi]:
    """The API on a private port of loopback."""
    server = _Server(("127.0.0.1", 0), _Handler)
    api = server.api = ModelApi(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(LIMIT_S)
