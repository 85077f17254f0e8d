"""What cannot be delivered is set aside and reported, and a delivery has one deadline for all of it."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from switchgear._config import ConfigError, load_config
from switchgear._fleet import delivery as delivery_module
from switchgear._fleet.delivery import (
    ATTEMPTS_PER_CHECK,
    MOST_ASIDE,
    Delivery,
    deliver,
    notice,
    target_from_text,
)
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.http_post import post, retry_after
from switchgear._fleet.manifest import agent, crew
from switchgear._fleet.targets import (
    Command,
    Desktop,
    NotSent,
    Slack,
    Target,
    Unsendable,
    Webhook,
    header_text,
)
from switchgear.testing import FakeClock
from timeouts import LIMIT_S

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
HOSTILE = [
    "provider/a\u2013b",
    "provider/two\nlines",
    "provider/x\r\nX-Injected: yes",
    "provider/\x1b[31mred\x00",
    "provider/" + "long" * 100,
    "provider/\U0001f600",
    "provider/\u202eright to left",
    "provider/ends with a space ",
    "provider/%0d%0a",
    "provider/ünïcode",
]


def _received(line: socket.socket) -> bytes:
    if data := line.recv(65536):
        return data
    raise ConnectionError("the client has closed the connection")  # else a loop reads forever


class RawServer:
    """A server on loopback: `respond` gets the request and the connection, and may violate the protocol."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.respond: Callable[[bytes, socket.socket], None] = lambda _, line: line.sendall(OK)
        self.closing = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/hook"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(line,), daemon=True).start()

    def _one(self, line: socket.socket) -> None:
        with line:
            line.settimeout(LIMIT_S)
            data = b""
            try:
                while b"\r\n\r\n" not in data:
                    data += _received(line)
                head, _, body = data.partition(b"\r\n\r\n")
                [length] = [
                    int(one.split(b":")[1])
                    for one in head.split(b"\r\n")
                    if one.lower().startswith(b"content-length")
                ]
                while len(body) < length:
                    body += _received(line)
                self.requests.append(head + b"\r\n\r\n" + body)
                self.respond(head + b"\r\n\r\n" + body, line)
            except OSError:
                return

    @property
    def circuits(self) -> list[str]:
        return [json.loads(one.partition(b"\r\n\r\n")[2])["circuit"] for one in self.requests]

    def close(self) -> None:
        self.closing.set()
        self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait for a connection
        self._socket.close()
        self._thread.join(LIMIT_S)


@pytest.fixture
def server() -> Iterator[RawServer]:
    made = RawServer()
    yield made
    made.close()


class Stage:
    def __init__(self, url: str = "memory:") -> None:
        self.clock = FakeClock(1_700_000_000.0)
        people = crew([agent(name="coder", owner="ana", provider="p", model="m")])
        self.fleet = Fleet.open(url, people, clock=self.clock)

    def event(self, circuit: str) -> None:
        self.fleet.panel.breaker(circuit).hold_open(by="ana", why="test")

    def delivery(self, target: Target) -> Delivery:
        return Delivery(self.fleet, target)


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_of_a_circuit_is_delivered_and_so_is_what_comes_after_it(
    server: RawServer, name: str
) -> None:
    stage = Stage()
    for circuit in ("provider/before", name, "provider/after"):
        stage.event(circuit)
    delivery = stage.delivery(Webhook(server.url))
    assert delivery.run_once() == 3
    assert server.circuits[0] == "provider/before"
    assert server.circuits[2] == "provider/after"
    head = server.requests[1].partition(b"\r\n\r\n")[0]
    assert b"\r\nX-Injected" not in head
    assert [line for line in head.split(b"\r\n") if line.startswith(b"Switchgear-Id: ")]
    assert head.isascii()
    assert delivery.pending().aside == 0


def test_ids_of_long_names_that_begin_the_same_differ(server: RawServer) -> None:
    stage = Stage()
    for end in "ab":
        stage.event("provider/" + "long" * 100 + end)
    stage.delivery(Webhook(server.url)).run_once()
    ids = {json.loads(one.partition(b"\r\n\r\n")[2])["id"] for one in server.requests}
    assert len(ids) == 2


def test_headers_hold_printable_ascii_only() -> None:
    for text in (*HOSTILE, "\ud800", " x ", "x" * 5000):
        found = header_text(text)
        assert found.isascii()
        assert found.isprintable()
        assert found == found.strip()
        assert len(found) <= 1000


class Broken(Command):
    """A target with a defect: it raises an unexpected exception for some circuits."""

    __slots__ = ()

    def send(self, message: dict[str, Any], now_s: float) -> None:
        if "bad" in message["circuit"]:
            raise UnicodeEncodeError("latin-1", "x", 0, 1, "no")


def test_a_message_that_a_target_cannot_build_is_set_aside_at_once_and_the_rest_continues() -> None:
    stage, target = Stage(), Broken("true")
    for circuit in ("provider/bad", "provider/good", "provider/bad2", "provider/good2"):
        stage.event(circuit)
    delivery = stage.delivery(target)
    assert delivery.run_once() == 2
    found = delivery.pending()
    assert (found.waiting, found.aside) == (0, 2)
    assert "UnicodeEncodeError" in found.aside_why
    assert [one["id"] for one in delivery.set_aside()] == ["provider/bad#1", "provider/bad2#1"]


def test_a_message_that_the_server_calls_wrong_is_set_aside_at_once(server: RawServer) -> None:
    def respond(request: bytes, line: socket.socket) -> None:
        status = b"422 No" if b"poison" in request else b"200 OK"
        line.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    server.respond = respond
    stage = Stage()
    for circuit in ("provider/poison", "provider/good"):
        stage.event(circuit)
    delivery = stage.delivery(Webhook(server.url))
    assert delivery.run_once() == 1
    assert delivery.pending()[5:] == (1, "the answer was HTTP 422")


def test_a_single_message_that_keeps_failing_does_not_block_the_others(
    server: RawServer,
) -> None:
    def respond(request: bytes, line: socket.socket) -> None:
        status = b"500 No" if b"poison" in request else b"200 OK"
        line.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    server.respond = respond
    stage = Stage()
    for circuit in ("provider/poison", "provider/good"):
        stage.event(circuit)
    delivery = stage.delivery(Webhook(server.url))
    sent = 0
    for _ in range(ATTEMPTS_PER_CHECK):
        sent += delivery.run_once()
        stage.clock.advance(600.0)
    assert sent == 1
    assert delivery.pending().waiting == 0
    assert "HTTP 500, while other notifications are delivered" in delivery.pending().aside_why


def test_a_server_that_is_down_for_everything_loses_nothing(server: RawServer) -> None:
    server.respond = lambda _, line: line.sendall(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
    stage = Stage()
    for circuit in ("provider/a", "provider/b"):
        stage.event(circuit)
    delivery = stage.delivery(Webhook(server.url))
    for _ in range(3 * ATTEMPTS_PER_CHECK):
        delivery.run_once()
        stage.clock.advance(600.0)
    found = delivery.pending()
    assert (found.waiting, found.why, found.aside) == (2, "the answer was HTTP 503", 0)
    server.respond = lambda _, line: line.sendall(OK)
    assert delivery.run_once() == 2


def test_messages_that_are_set_aside_are_bounded_and_counted() -> None:
    stage, target = Stage(), Broken("true")
    for number in range(MOST_ASIDE + 5):
        stage.event(f"provider/bad{number}")
    delivery = stage.delivery(target)
    delivery.run_once()
    assert len(delivery.set_aside()) == MOST_ASIDE
    assert delivery.pending().aside == MOST_ASIDE + 5
    assert delivery.forget_set_aside() == MOST_ASIDE + 5
    assert delivery.pending().aside == 0


def test_messages_that_were_set_aside_can_be_sent_again(server: RawServer) -> None:
    server.respond = lambda _, line: line.sendall(b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")
    stage = Stage()
    stage.event("provider/a")
    delivery = stage.delivery(Webhook(server.url))
    delivery.run_once()
    assert delivery.retry_set_aside() == 0
    assert delivery.pending().aside == 1
    server.respond = lambda _, line: line.sendall(OK)
    assert delivery.retry_set_aside() == 1
    assert delivery.pending().aside == 0


def test_a_message_that_still_cannot_be_built_does_not_block_other_messages_set_aside(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.respond = lambda _, line: line.sendall(b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")
    monkeypatch.setenv("SLACK_URL", server.url)
    stage = Stage()
    stage.event("provider/a")
    delivery = stage.delivery(Slack("SLACK_URL"))

    def fails(*_: object) -> None:
        raise KeyError("a defect")

    with monkeypatch.context() as broken:
        broken.setattr(delivery_module, "message_of", fails)
        delivery.run_once()
    stage.event("provider/b")
    delivery.run_once()
    server.respond = lambda _, line: line.sendall(OK)
    assert delivery.retry_set_aside() == 1
    assert [one["id"] for one in delivery.set_aside()] == ["provider/a#1"]


def test_retry_after_is_respected_even_with_now(server: RawServer) -> None:
    server.respond = lambda _, line: line.sendall(
        b"HTTP/1.1 429 No\r\nRetry-After: 90\r\nContent-Length: 0\r\n\r\n"
    )
    stage = Stage()
    stage.event("provider/a")
    delivery = stage.delivery(Webhook(server.url))
    delivery.run_once()
    assert delivery.pending().next_s == pytest.approx(stage.clock() + 90.0)
    delivery.run_once(now=True)
    assert len(server.requests) == 1


def test_deliver_does_not_wait_for_the_pause_after_a_failure(server: RawServer) -> None:
    server.respond = lambda _, line: line.sendall(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
    stage = Stage()
    stage.event("provider/a")
    delivery = stage.delivery(Webhook(server.url))
    delivery.run_once()
    delivery.run_once(now=True)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("99999999999", 3600.0),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10.0),
        ("Tue, 14 Nov 2000 22:13:30 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("²", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, seconds: float | None) -> None:
    assert retry_after({"Retry-After": header}, 1_700_000_000.0) == seconds


def drip(line: socket.socket, head: bytes, closing: threading.Event) -> None:
    """Send bytes slowly, forever: no single wait is long."""
    line.sendall(head)
    while not closing.wait(0.01):
        line.sendall(b"x")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 ",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_response_that_drips_ends_at_the_deadline(server: RawServer, head: bytes) -> None:
    server.respond = lambda _, line: drip(line, head, server.closing)
    began_s = time.monotonic()
    found = post(server.url, b"{}", {}, 0.3)
    assert time.monotonic() - began_s < LIMIT_S
    assert found.status == (200 if b"\r\n\r\n" in head else None)
    if head.endswith((b"/1.1 ", b"X: ")):
        assert "within 0.3 s" in found.problem


def test_an_endless_response_is_judged_by_its_status(server: RawServer) -> None:
    def respond(_: bytes, line: socket.socket) -> None:
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not server.closing.is_set():
            line.sendall(b"x" * 65536)

    server.respond = respond
    assert post(server.url, b"{}", {}, 20.0).status == 200


def test_a_name_server_that_never_answers_is_within_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        released.wait(LIMIT_S)
        raise OSError("late")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    began_s = time.monotonic()
    with pytest.raises(NotSent, match=r"within 0.2 s"):
        Webhook("http://example.invalid/", timeout_s=0.2).send({"id": "x"}, 0.0)
    assert time.monotonic() - began_s < LIMIT_S
    released.set()


def test_a_handshake_that_never_ends_is_within_the_deadline(server: RawServer) -> None:
    url = server.url.replace("http://", "https://")
    began_s = time.monotonic()
    with pytest.raises(NotSent) as refused:
        Webhook(url, timeout_s=0.3).send({"id": "x"}, 0.0)
    assert refused.value.may_help
    assert time.monotonic() - began_s < LIMIT_S


def test_a_command_whose_children_hold_its_output_open_ends_at_the_deadline() -> None:
    run = f"{sys.executable} -c \"import subprocess; subprocess.run(['sleep', '600'])\""
    began_s = time.monotonic()
    with pytest.raises(NotSent, match=r"longer than 0.5 s"):
        Command(run, timeout_s=0.5).send({"id": "x"}, 0.0)
    assert time.monotonic() - began_s < LIMIT_S


def test_a_command_that_leaves_a_child_behind_has_still_succeeded() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '600'])"
    began_s = time.monotonic()
    Command(f'{sys.executable} -c "{code}"', timeout_s=30.0).send({"id": "x"}, 0.0)
    assert time.monotonic() - began_s < LIMIT_S


def test_a_command_that_writes_without_end_is_ended_and_only_the_end_of_its_output_is_kept() -> (
    None
):
    code = "import sys\nwhile True: sys.stderr.write('x' * 10000)"
    with pytest.raises(NotSent, match="longer than"):
        Command(f'{sys.executable} -c "{code}"', timeout_s=0.5).send({"id": "x"}, 0.0)
    code = "import sys; sys.stderr.write('y' * 10**6 + 'the end'); sys.exit(3)"
    with pytest.raises(NotSent, match="exit code 3") as refused:
        Command(f'{sys.executable} -c "{code}"', timeout_s=30.0).send({"id": "x"}, 0.0)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://host:99999/",
        "http://host:x/",
        "http://[::1",
        "http://a b/",
        "http:///path",
        "gopher://x/",
        "http://x/\n",
        "http://" + "ü" * 70 + "/",
    ],
)
def test_a_url_that_no_request_can_have_is_refused_by_the_configuration(
    tmp_path: Path, url: str
) -> None:
    path = tmp_path / "switchgear.yaml"
    path.write_text(f"notifications:\n  - webhook: {{url: {json.dumps(url)}}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="it must be an http or https URL"):
        load_config(path)


def test_a_url_with_non_ascii_characters_is_sent_encoded(server: RawServer) -> None:
    Webhook(server.url + "/ä b?q=ö").send({"id": "x"}, 0.0)
    assert server.requests[0].startswith(b"POST /hook/%C3%A4%20b?q=%C3%B6 HTTP/1.1")


def test_a_user_and_a_password_of_a_url_become_a_header(server: RawServer) -> None:
    Webhook(server.url.replace("http://", "http://ana:p%40ss@")).send({"id": "x"}, 0.0)
    assert b"Authorization: Basic YW5hOnBAc3M=" in server.requests[0]
    assert b"ana" not in server.requests[0].partition(b"Authorization")[0]


def test_a_desktop_gets_a_popup_without_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "args"
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {out}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sys, "platform", "linux")
    Desktop().send(notice("run $(id) ended\n--x", severity="SEV2", circuit="loop/a"), 0.0)
    assert out.read_text().splitlines() == [
        "--app-name=Switchgear",
        "--urgency=critical",
        "--",
        "Switchgear: loop/a",
        "[SEV2] run $(id) ended --x",
    ]


def test_a_missing_desktop_is_reported_and_blocks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(Unsendable, match="notify-send") as caught:
        Desktop().send(notice("x"), 0.0)
    said = str(caught.value)
    assert "Errno" not in said
    assert "is not installed" in said
    assert "apt install libnotify-bin" in said
    assert "command:PROGRAM" in said, "another way to be notified"


def test_a_desktop_on_macos_gets_its_text_as_arguments_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "args"
    program = tmp_path / "osascript"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$3" "$4" > {out}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sys, "platform", "darwin")
    Desktop().send(notice('x" & quit', severity="SEV1", circuit="loop/a"), 0.0)
    assert out.read_text().splitlines() == ["Switchgear: loop/a", '[SEV1] x" & quit']


def test_a_desktop_that_refuses_a_popup_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "notify-send"
    program.write_text("#!/bin/sh\necho no display >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(Unsendable, match="exit code 1: no display"):
        Desktop().send(notice("x"), 0.0)


def test_a_missing_command_is_named_with_a_solution() -> None:
    with pytest.raises(NotSent, match="'no-such-program' cannot be started") as caught:
        Command("no-such-program --x").send(notice("x"), 0.0)
    assert "Errno" not in str(caught.value)
    assert caught.value.may_help, "it may be installed meanwhile"


def test_a_notice_goes_to_all_targets_at_once_and_none_holds_another_up() -> None:
    slow = Command("sleep 600", timeout_s=30.0, name="slow")
    fast = Command("true", name="fast")
    other = Command("true", match="provider/*", name="other")
    began_s = time.monotonic()
    message = notice("run r1 ended", severity="SEV2", circuit="loop/a", owners=["ana"])
    found = deliver([slow, fast, other], message, 1.0)
    assert time.monotonic() - began_s < LIMIT_S
    assert [(one.target, one.sent) for one in found] == [("slow", False), ("fast", True)]
    assert found[0].why


def test_options_name_targets() -> None:
    assert target_from_text("desktop") == Desktop()
    assert target_from_text("https://x.example/y") == Webhook("https://x.example/y")
    assert target_from_text("command:page --now") == Command("page --now")
    for bad in ("", "mail", "command:", "ftp://x", "slack:", "http://"):
        with pytest.raises(ValueError, match="must"):
            target_from_text(bad)
