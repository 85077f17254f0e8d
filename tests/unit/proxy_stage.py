"""A proxy in a thread, and an upstream whose answers a test writes byte by byte."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from switchgear import Panel
from switchgear._providers.upstreams import upstream
from switchgear._proxy.access_log import AccessLog
from switchgear._proxy.guard import GuardSettings, proxy_policy
from switchgear._proxy.http1 import Limits
from switchgear._proxy.relay import RelaySettings
from switchgear._proxy.worker import Worker, WorkerSettings, listen, run_worker
from timeouts import LIMIT_S, end, eventually


class Heard(NamedTuple):
    """A request as the upstream received it."""

    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()

    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


Speak = Callable[[socket.socket, Heard], None]


class FakeUpstream:
    """A server that answers each request with `speak`, which may write anything, at any pace."""

    def __init__(self, speak: Speak) -> None:
        self.speak = speak
        self.heard: list[Heard] = []
        self._server = socket.create_server(("127.0.0.1", 0), backlog=600)
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._stops = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._stops = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while not self._stops:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(LIMIT_S)
            buffered = b""
            while True:
                found, buffered = read_message(client, buffered)
                if found is None:
                    return
                self.heard.append(found)
                self.speak(client, found)
                if client.fileno() < 0:
                    return


def received(client: socket.socket) -> bytes:
    """The next bytes. Raises ConnectionError at the end: a loop would read it forever."""
    if data := client.recv(65536):
        return data
    raise ConnectionError("the other side has closed the connection")


def read_message(client: socket.socket, data: bytes = b"") -> tuple[Heard | None, bytes]:
    """One HTTP message from a socket, and what came after it."""
    while b"\r\n\r\n" not in data:
        more = client.recv(65536)
        if not more:
            return None, b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        whole = b""
        while True:
            while b"\r\n" not in body:
                body += received(client)
            size, _, body = body.partition(b"\r\n")
            length = int(size, 16)
            while len(body) < length + 2:
                body += received(client)
            whole += body[:length]
            body = body[length + 2 :]
            if not length:
                return Heard(head, whole), body
    length = 0
    for line in lower.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        more = client.recv(65536)
        if not more:
            return None, b""
        body += more
    return Heard(head, body[:length]), body[length:]


def reply(
    body: bytes | dict[str, Any],
    status: int = 200,
    headers: str = "",
    content_type: str = "application/json",
) -> bytes:
    """A whole response."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} Status\r\ncontent-type: {content_type}\r\n{headers}"
    return f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw


def answers(*responses: bytes) -> Speak:
    """Answer with these, one after another; the last one again and again."""
    left = list(responses)

    def speak(client: socket.socket, _: Heard) -> None:
        client.sendall(left.pop(0) if len(left) > 1 else left[0])

    return speak


def message(
    usage: dict[str, int] | None = None, model: str = "claude-sonnet-4-5"
) -> dict[str, Any]:
    """A response of the Messages API."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "usage": usage or {"input_tokens": 1000, "output_tokens": 100},
    }


def sse(*events: dict[str, Any]) -> bytes:
    """Events of the Messages API as a stream."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def message_stream(output: int = 100, cut: bool = False) -> bytes:
    """A streamed response of the Messages API; `cut`: without its end."""
    start = message({"input_tokens": 1000, "output_tokens": 1})
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    ]
    if not cut:
        events += [
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": output}},
            {"type": "message_stop"},
        ]
    return sse(*events)


def ask(text: str = "hello", **more: Any) -> dict[str, Any]:
    """A request of the Messages API."""
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": text}],
        **more,
    }


def loop_history(
    calls: int, result: str = "Exit code 1\nno such file", start: int = 0, failed: bool = True
) -> list[dict[str, Any]]:
    """A conversation in which the same command is called again and again."""
    turns: list[dict[str, Any]] = [{"role": "user", "content": "fix the build"}]
    for number in range(start, start + calls):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash"}
        turns.append({"role": "assistant", "content": [{**use, "input": {"command": "make"}}]})
        done = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": result}
        turns.append({"role": "user", "content": [{**done, "is_error": failed}]})
    return turns


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Stage:
    """A running proxy."""

    def __init__(self, port: int, panel: Panel, worker: Worker, log: list[str]) -> None:
        self.port = port
        self.panel = panel
        self.worker = worker
        self.log = log

    def post(
        self,
        body: dict[str, Any] | bytes,
        path: str = "/v1/messages",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request(
            "POST", path, raw, {"content-type": "application/json", **(headers or {})}
        )

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            got = {name.lower(): value for name, value in response.getheaders()}
            try:
                return Reply(response.status, got, response.read())
            except http.client.IncompleteRead as cut:
                return Reply(response.status, got, cut.partial)
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """Send bytes, and read until the proxy closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as client:
            client.sendall(data)
            return read_all(client)

    def open(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)

    def settled(self, root: str) -> int:
        """What a budget has spent, once nothing is reserved."""

        def is_settled() -> bool:
            node = self.panel.budgets.book(root).nodes.get(root)
            return node is not None and not node.held_micros

        eventually(is_settled, f"the budget {root} is settled")
        return self.panel.budgets.book(root).nodes[root].spent_micros


def read_all(client: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(65536):
            data += more
    return data


class _Lines:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def write(self, text: str) -> None:
        self._lines.append(text)

    def flush(self) -> None:
        pass


@contextlib.contextmanager
def proxying(
    *upstreams: FakeUpstream,
    store: str | Panel = "memory:",
    guard: GuardSettings = GuardSettings(),  # noqa: B008
    limits: Limits = Limits(),  # noqa: B008
    drain_s: float = 30.0,
    keys: dict[str, str] | None = None,
    **relay: Any,
) -> Iterator[Stage]:
    """A proxy in front of upstreams: the first is `anthropic`, `openai` and `google`, others `backup`…"""
    names = ["backup", "third"]
    first = upstreams[0]
    given = keys or {}
    found = {
        name: upstream(name, first.url, key=given.get(name, ""))
        for name in ("anthropic", "openai", "google")
    }
    for name, each in zip(names, upstreams[1:], strict=False):
        found[name] = upstream(name, each.url, "anthropic")
    fallbacks = {"anthropic": tuple(names[: len(upstreams) - 1])}
    panel = store if isinstance(store, Panel) else Panel(store, policies=_policy)
    log: list[str] = []
    settings = WorkerSettings(
        RelaySettings(found, fallbacks, **relay), guard, limits, drain_s=drain_s
    )
    worker = Worker(panel, settings, AccessLog(_Lines(log)))  # type: ignore[arg-type]
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    ready = threading.Event()
    thread = threading.Thread(target=run_worker, args=(worker, listening, ready.set))
    thread.start()
    try:
        assert ready.wait(LIMIT_S)
        yield Stage(port, panel, worker, log)
    finally:
        worker.stop()
        thread.join(LIMIT_S)
        for each in upstreams:
            each.close()
        panel.close()
        assert not thread.is_alive()


def _policy(name: str) -> Any:
    return proxy_policy(name, lambda _: None) if name.startswith(("provider/", "key/")) else None


class ProxyProcess:
    """`switchgear proxy` as a separate process."""

    def __init__(self, folder: Path, url: str, *options: str, store: str = "") -> None:
        self.store = store or f"sqlite:///{folder}/state.db"
        command = [
            sys.executable,
            "-m",
            "switchgear",
            "proxy",
            "--port",
            "0",
            "--store",
            self.store,
        ]
        for name in ("anthropic", "openai", "google"):
            command += ["--upstream", f"{name}={url}"]
        self.process = subprocess.Popen(
            [*command, *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"https?://127\.0\.0\.1:(\d+)", line)
        if found is None:
            self.process.kill()
            raise AssertionError(self.process.communicate())
        self.port = int(found[1])
        self.client = Stage(self.port, None, None, [])  # type: ignore[arg-type]

    def workers(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def send_stream(self) -> socket.socket:
        """A request whose response is still coming."""
        raw = json.dumps(ask(stream=True)).encode()
        client = self.client.open()
        head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
        data = b""
        while b"message_start" not in data:
            data += received(client)
        return client


@contextlib.contextmanager
def process(folder: Path, url: str, *options: str, store: str = "") -> Iterator[ProxyProcess]:
    made = ProxyProcess(folder, url, *options, store=store)
    try:
        yield made
    finally:
        pids = made.workers() if made.process.poll() is None else []
        made.process.terminate()
        try:
            made.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        end(made.process)
