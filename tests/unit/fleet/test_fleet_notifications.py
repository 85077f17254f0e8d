"""Notifications: at least once, in order, retried, without delaying calls; against a real server."""

import hashlib
import hmac
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from switchgear import Panel, Signal
from switchgear._config import Config, ConfigError, load_config
from switchgear._fleet.delivery import SHELF, Delivery
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import Crew, agent, crew, story
from switchgear._fleet.targets import Command, NotSent, Slack, Target, Webhook, sign, verify
from switchgear._fleet.watcher import Watcher
from switchgear._stores.base import ledger_of
from switchgear.testing import FakeClock
from timeouts import LIMIT_S

KEY = "a key that nobody knows"


class Receiver:
    """A server on loopback that answers as configured, and saves what it receives."""

    def __init__(self) -> None:
        self.status = 200
        self.hangs = False
        self.asked = threading.Event()
        self.released = threading.Event()
        self.got: list[tuple[dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.got.append((dict(self.headers.items()), body))
                outer.asked.set()
                if outer.hangs:
                    outer.released.wait(LIMIT_S)
                    return
                self.send_response(outer.status)
                if outer.status == 302:
                    self.send_header("location", "http://127.0.0.1:1/")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def people() -> Crew:
    one = agent(name="coder", owner="ana", provider="p", model="m", stories=["S-1"])
    return crew([one], [story(name="S-1", owner="cy")])


class Stage:
    def __init__(self, url: str = "memory:") -> None:
        self.clock = FakeClock(1_700_000_000.0)
        self.fleet = Fleet.open(url, people(), clock=self.clock)

    def trip(self, count: int) -> None:
        for number in range(count):
            breaker = self.fleet.panel.breaker(f"provider/p{number % 2}")
            breaker.hold_open(by="ana", why=f"number {number}")
            breaker.release(by="ana", why="back")

    def delivery(self, target: Target) -> Delivery:
        return Delivery(self.fleet, target)

    def trouble(self, target: Target) -> dict[str, Any]:
        value = ledger_of(self.fleet.panel.store.inner).value(SHELF, f"notify/{target.name}")
        found: dict[str, Any] = value["trouble"]
        return found


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db"])
def test_everything_arrives_once_and_in_order_without_failures(
    receiver: Receiver, tmp_path: Path, url: str
) -> None:
    stage = Stage(url.format(tmp_path))
    stage.trip(4)
    delivery = stage.delivery(Webhook(receiver.url))
    assert delivery.run_once() == 8
    assert delivery.run_once() == 0
    for circuit in ("provider/p0", "provider/p1"):
        assert [one["seq"] for one in receiver.bodies if one["circuit"] == circuit] == [1, 2, 3, 4]
    stage.fleet.close()


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_server_that_fails_is_tried_again_with_longer_pauses_and_nothing_is_lost(
    receiver: Receiver, status: int
) -> None:
    stage, target = Stage(), Webhook(receiver.url)
    stage.trip(2)
    delivery = stage.delivery(target)
    receiver.status = status
    pauses = []
    for _ in range(6):
        assert delivery.run_once() == 0
        pauses.append(stage.trouble(target)["next_s"] - stage.clock())
        assert delivery.run_once() == 0, "not before its time"
        stage.clock.advance(pauses[-1])
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert len(receiver.got) == 6
    assert {one["id"] for one in receiver.bodies} == {"provider/p0#1"}, (
        "the first one blocks the rest"
    )
    receiver.status = 200
    assert delivery.run_once() == 4
    assert [one["id"] for one in receiver.bodies[6:]] == [
        *("provider/p0#1", "provider/p0#2", "provider/p1#1", "provider/p1#2")
    ]
    assert stage.trouble(target) == {}


def test_pauses_end_at_ten_minutes(receiver: Receiver) -> None:
    stage, target = Stage(), Webhook(receiver.url)
    stage.trip(1)
    receiver.status = 500
    for _ in range(15):
        stage.delivery(target).run_once()
        pause_s = stage.trouble(target)["next_s"] - stage.clock()
        stage.clock.advance(pause_s)
    assert pause_s == 600.0


def test_a_permanently_rejected_message_is_set_aside_and_reported(receiver: Receiver) -> None:
    stage, target = Stage(), Webhook(receiver.url)
    stage.trip(1)
    receiver.status = 403
    for _ in range(5):
        stage.delivery(target).run_once()
        stage.clock.advance(700.0)
    receiver.status = 200
    stage.delivery(target).run_once()
    [aside] = stage.delivery(target).set_aside()
    assert (aside["id"], aside["why"]) == ("provider/p0#1", "the answer was HTTP 403")
    assert receiver.bodies[-1]["id"] == "provider/p0#2"


def test_a_server_that_hangs_times_out_and_no_decision_waits_for_it(receiver: Receiver) -> None:
    stage, target = Stage(), Webhook(receiver.url, timeout_s=20.0)
    stage.trip(1)
    receiver.hangs = True
    sending = threading.Thread(target=stage.delivery(target).run_once)
    sending.start()
    assert receiver.asked.wait(LIMIT_S)
    for _ in range(100):
        stage.fleet.route("coder").record(ok=True)
    stage.trip(1)
    assert sending.is_alive(), "all that was decided while it hung"
    receiver.released.set()
    sending.join(LIMIT_S)
    assert stage.trouble(target)["failed"] == 1


def test_a_server_that_hangs_longer_than_it_may_is_tried_again(receiver: Receiver) -> None:
    stage, target = Stage(), Webhook(receiver.url, timeout_s=0.1)
    stage.trip(1)
    receiver.hangs = True
    assert stage.delivery(target).run_once() == 0
    assert "timed out" in stage.trouble(target)["why"]
    receiver.hangs = False
    stage.clock.advance(1.0)
    assert stage.delivery(target).run_once() == 2


def test_only_one_of_several_sends_at_a_time(receiver: Receiver) -> None:
    stage, target = Stage(), Webhook(receiver.url)
    stage.trip(1)
    receiver.hangs = True
    first, second = stage.delivery(target), stage.delivery(target)
    sending = threading.Thread(target=first.run_once)
    sending.start()
    assert receiver.asked.wait(LIMIT_S)
    assert second.run_once() == 0
    assert len(receiver.got) == 1
    receiver.released.set()
    sending.join(LIMIT_S)


CHILD = """
import sys
from switchgear import Panel
from switchgear.config import load_config
from switchgear._fleet.delivery import Delivery
from switchgear._fleet.fleet import Fleet

config = load_config(sys.argv[1])
fleet = Fleet(Panel.from_config(config), config.crew, config.breakers)  # no thread that sends, too
fleet.panel.breaker("provider/p").hold_open(by="ana", why="committed")
Delivery(fleet, config.notifications[0]).run_once()
"""


def test_after_a_kill_during_sending_another_process_sends_it_again(
    receiver: Receiver, tmp_path: Path
) -> None:
    path = tmp_path / "switchgear.yaml"
    path.write_text(
        f"store: sqlite:///{tmp_path}/state.db\n"
        "agents: {coder: {owner: ana, provider: p, model: m}}\n"
        f"notifications: [{{webhook: {{url: '{receiver.url}', timeout_s: 30}}}}]\n"
    )
    receiver.hangs = True
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)])
    try:
        assert receiver.asked.wait(LIMIT_S)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(LIMIT_S)
    receiver.released.set()
    receiver.hangs = False
    config = load_config(path)
    clock = FakeClock(time.time() + 5.0)
    with Fleet(Panel.from_config(config, clock=clock), config.crew, config.breakers) as fleet:
        [target] = config.notifications
        assert Delivery(fleet, target).run_once() == 0, "its turn has not ended yet"
        clock.advance(61.0)
        assert Delivery(fleet, target).run_once() == 1
    assert [one["id"] for one in receiver.bodies] == ["provider/p#1", "provider/p#1"]


def test_a_signature_has_the_time_in_it_and_can_be_checked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_KEY", KEY)
    stage = Stage()
    stage.trip(1)
    stage.delivery(Webhook(receiver.url, secret_env="HOOK_KEY")).run_once()
    headers, body = receiver.got[0]
    header = headers["Switchgear-Signature"]
    now_s = stage.clock()
    digest = hmac.new(KEY.encode(), f"{int(now_s)}.".encode() + body, hashlib.sha256).hexdigest()
    assert header == f"t={int(now_s)},v1={digest}"
    assert verify(KEY, body, header, now_s=now_s)
    assert not verify(KEY, body + b" ", header, now_s=now_s)
    assert not verify("another", body, header, now_s=now_s)
    assert not verify(KEY, body, header, now_s=now_s + 301), "an old one sent again"
    assert not verify(KEY, body, sign(KEY, body, 1).replace("t=1", "t=2"), now_s=2)
    for bad in ("", "t=,v1=", "t=x,v1=y", "t=9" * 50, "t=²,v1="):
        assert not verify(KEY, body, bad, now_s=now_s)
    assert headers["Switchgear-Id"] == "provider/p0#1"


def test_a_missing_key_is_an_error_and_not_an_unsigned_message(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_KEY", raising=False)
    stage, target = Stage(), Webhook(receiver.url, secret_env="HOOK_KEY")
    stage.trip(1)
    assert stage.delivery(target).run_once() == 0
    assert receiver.got == []
    assert "HOOK_KEY is not set" in stage.trouble(target)["why"]


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.status = 302
    with pytest.raises(NotSent, match="HTTP 302"):
        Webhook(receiver.url).send({"id": "x", "text": "x"}, 0.0)


def test_slack_gets_a_line_in_which_nothing_is_markup(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_URL", receiver.url)
    stage = Stage()
    stage.fleet.panel.breaker("rules/coder").record(Signal(violation="rule <!channel> & more"))
    stage.delivery(Slack("SLACK_URL")).run_once()
    [body] = receiver.bodies
    assert body == {"text": "[SEV1] rules/coder #1 closed → open: rule &lt;!channel&gt; &amp; more"}
    monkeypatch.setenv("SLACK_URL", "file:///etc/passwd?secret")
    with pytest.raises(NotSent) as refused:
        Slack("SLACK_URL").send({"id": "x", "text": "x"}, 0.0)
    assert "passwd" not in str(refused.value)


def test_a_command_gets_json_on_its_input_and_no_shell_reads_it(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    script = tmp_path / "take.py"
    script.write_text(f"import sys; open({str(out)!r}, 'a').write(sys.stdin.read() + sys.argv[1])")
    stage = Stage()
    stage.fleet.panel.breaker("rules/coder").record(Signal(violation="rule $(touch owned)"))
    target = Command(f"{sys.executable} {script} '$(touch owned);'", timeout_s=30.0)
    assert stage.delivery(target).run_once() == 1
    line, argument = out.read_text().splitlines()
    message = json.loads(line)
    assert message["owners"] == ["ana", "cy"]
    assert message["severity"] == "SEV1"
    assert message["incident"]
    assert argument == "$(touch owned);"
    with pytest.raises(NotSent, match="exit code 3"):
        Command(f"{sys.executable} -c 'raise SystemExit(3)'", timeout_s=30.0).send({"id": "x"}, 0)
    with pytest.raises(NotSent, match="No such file"):
        Command("no-such-program-here").send({"id": "x"}, 0)


def test_a_target_receives_only_what_it_matches_and_no_old_events(
    receiver: Receiver,
) -> None:
    stage = Stage()
    stage.trip(1)
    stage.clock.advance(4000.0)
    stage.fleet.panel.breaker("story/S-1").record(Signal(cost_micros=99_000_000))
    stage.trip(1)
    assert stage.delivery(Webhook(receiver.url, match="story/*")).run_once() == 1
    assert stage.delivery(Webhook(receiver.url, match="provider/*", name="deps")).run_once() == 2
    assert receiver.bodies[0]["owners"] == ["cy"]


def test_a_target_that_was_down_for_hours_from_its_first_message_on_still_gets_it(
    receiver: Receiver,
) -> None:
    stage, target = Stage(), Webhook(receiver.url)
    stage.trip(1)
    receiver.status = 503
    stage.delivery(target).run_once()
    stage.clock.advance(50_000.0)
    receiver.status = 200
    assert stage.delivery(target).run_once() == 2


class Dies(BaseException):
    """An exception that no code catches, like a kill."""


def test_a_delivered_message_is_not_sent_again_after_a_kill(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, target = Stage(), Webhook(receiver.url)
    stage.trip(1)
    send, sent = Webhook.send, list[str]()

    def dying(self: Webhook, message: dict[str, Any], now_s: float) -> None:
        if sent:
            raise Dies
        sent.append(message["id"])
        send(self, message, now_s)

    monkeypatch.setattr(Webhook, "send", dying)
    with pytest.raises(Dies):
        stage.delivery(target).run_once()
    monkeypatch.setattr(Webhook, "send", send)
    assert stage.delivery(target).run_once() == 1
    assert [one["id"] for one in receiver.bodies] == ["provider/p0#1", "provider/p0#2"]


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "switchgear.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_targets_are_configured_and_hold_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_KEY", KEY)
    config = load(
        tmp_path,
        "notifications:\n"
        "  - webhook: {url: 'https://example.com/x', secret_env: HOOK_KEY, match: 'provider/*'}\n"
        "  - slack: {url_env: SLACK_URL, name: team}\n"
        "  - command: {run: 'notify --all', timeout_s: 5}\n",
    )
    webhook, slack, command = config.notifications
    assert webhook == Webhook("https://example.com/x", "HOOK_KEY", "provider/*")
    assert (slack, command) == (
        Slack("SLACK_URL", name="team"),
        Command("notify --all", timeout_s=5),
    )
    assert KEY not in repr(config) + repr(config.notifications)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("webhook: {url: 'ftp://x'}", "it must be an http or https URL"),
        ("webhook: {}", "webhook needs the key 'url'"),
        ("webhook: {url: 'http://x', secret: y}", "unknown key; did you mean 'secret_env'?"),
        ("webhook: {url: 'http://x', secret_env: 'a b'}", "the name of an environment variable"),
        ("webhook: {url: 'http://x', timeout_s: 31}", "it must be at most 30 seconds"),
        ("slack: {url_env: ''}", "it must be a text that is not empty"),
        ('command: {run: "a \'b"}', "No closing quotation"),
        ("email: {}", "unknown kind 'email'"),
    ],
)
def test_bad_targets_are_reported_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, f"notifications:\n  - {text}\n")
    assert message in str(refused.value)
    assert "switchgear.yaml:2" in str(refused.value)


def test_two_targets_of_one_name_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give it a name of its own"):
        load(tmp_path, "notifications: [{slack: {url_env: A}}, {slack: {url_env: A}}]")


def test_a_watcher_sends_and_writes_in_the_background(receiver: Receiver, tmp_path: Path) -> None:
    fleet = Fleet.open("memory:", people())
    watcher = Watcher(fleet, str(tmp_path), [Webhook(receiver.url)], every_s=0.01)
    with watcher:
        fleet.panel.breaker("rules/coder").record(Signal(violation="rule x"))
        assert receiver.asked.wait(LIMIT_S)
    assert receiver.bodies[0]["circuit"] == "rules/coder"
    assert (tmp_path / "world-state.json").exists()
    watcher.note()  # what its thread may have left
    assert len(list(watcher.incidents.all())) == 1
    assert not [one for one in threading.enumerate() if one.name == "switchgear-watch"]
    fleet.close()
