"""A scripted model API on loopback: what real agent CLIs talk to in the tests.

It speaks the four wire formats, streamed or not, and plays one scenario. No key is checked and
nothing leaves the machine.
"""

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from e2e.agents.scripts_of_models import SCENARIOS, Turn, turn_of
from e2e.agents.wire_formats import (
    answer,
    answers_in,
    api_of,
    call_shell,
    events,
    failure,
    fill,
    tools_of,
)


class ScriptedApi:
    """A server in a thread. `requests` counts the requests with tools, which are the agent's turns.

    `refuse()` closes the port, so that connections are refused, as with a dead provider.
    """

    def __init__(self, scenario: str = "short") -> None:
        self.play(scenario)
        self.requests = 0
        self.bodies: list[str] = []
        self.side_text = ""
        """The answer to a question without tools; empty: one of the shape that is asked for."""
        self.side_bodies: list[str] = []
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._open = False

    def play(self, scenario: str) -> None:
        if scenario not in SCENARIOS:
            raise ValueError(f"no scenario {scenario!r}; known: {', '.join(SCENARIOS)}")
        self.scenario = scenario

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def refuse(self) -> None:
        if self._open:
            self._open = False
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def heard(self, raw: bytes) -> None:
        """The complete request with tools, as the model receives it."""
        with self._lock:
            self.requests += 1
            self.bodies.append(raw.decode(errors="replace"))

    def turn(self, answers: int) -> Turn:
        """The answer for a request that already has this number of answers."""
        return turn_of(self.scenario, answers)

    def __enter__(self) -> Self:
        self._open = True
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refuse()


def _handler_for(api_server: ScriptedApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.reply({})

        def do_GET(self) -> None:
            models = [{"id": name, "object": "model"} for name in ("gpt-5", "claude-sonnet-4-5")]
            self.reply({"object": "list", "data": models, "models": [], "has_more": False})

        def do_POST(self) -> None:
            raw = self.body()
            path = self.path.partition("?")[0]
            try:
                body = json.loads(raw or b"{}")
                self.answer(path, body, raw)
            except (BrokenPipeError, ConnectionResetError):
                pass
            except Exception as problem:
                api_server.problems.append(f"{path}: {problem!r}")
                self.reply({"error": {"message": f"the script failed: {problem!r}"}}, 400)

        def answer(self, path: str, body: dict[str, Any], raw: bytes) -> None:
            if path.endswith(("/count_tokens", ":countTokens")):
                self.reply({"input_tokens": 100, "totalTokens": 100})
                return
            api = api_of(path)
            if api is None:
                self.reply({"error": {"message": "no such path"}}, 404)
                return
            tools = tools_of(api, body)
            if tools:
                api_server.heard(raw)
                turn = api_server.turn(answers_in(api, body))
            else:  # a side question, such as a title
                api_server.side_bodies.append(raw.decode(errors="replace"))
                turn = api_server.turn(0)
                text = api_server.side_text or side_answer(body)
                turn = turn if turn.status != 200 else Turn(text=text)
            if turn.status != 200:
                wait = (
                    {} if turn.retry_after_s is None else {"retry-after": str(turn.retry_after_s)}
                )
                self.reply(failure(api, turn), turn.status, wait)
                return
            call = call_shell(tools, turn.shell) if turn.shell else None
            model = str(body.get("model") or path.rpartition("/")[2].partition(":")[0])
            whole = answer(api, turn, call, model)
            if body.get("stream") or "streamGenerateContent" in path:
                self.stream(api, whole)
            else:
                self.reply(whole)

        def stream(self, api: str, whole: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            for name, data in events(api, whole):
                head = f"event: {name}\n" if name else ""
                text = data if isinstance(data, str) else json.dumps(data)
                self.wfile.write(f"{head}data: {text}\n\n".encode())
                self.wfile.flush()

        def body(self) -> bytes:
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                raw = b""
                while size := int(self.rfile.readline().strip() or b"0", 16):
                    raw += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            return gzip.decompress(raw) if self.headers.get("content-encoding") == "gzip" else raw

        def reply(
            self, body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
        ) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    return Handler


def side_answer(body: dict[str, Any]) -> str:
    """A side question with a schema gets an answer of its shape."""
    config = body.get("generationConfig") or {}
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    return json.dumps(fill({}, schema)) if schema else "A short title"
