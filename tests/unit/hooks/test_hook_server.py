"""Hooks over HTTP: the same answers, for this machine and this user only."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear._cli.serve import read_or_create_token, serve
from switchgear._hooks import server as serving
from switchgear._hooks.command import AGENTS
from switchgear._hooks.handler import MAX_INPUT_BYTES, answer
from switchgear._hooks.hook_config import config_of
from switchgear._hooks.process import open_store
from switchgear._hooks.server import HookServer
from switchgear._hooks.session_check import CheckResult
from switchgear._stores.sqlite import SqliteStore
from timeouts import LIMIT_S
from trusted_config import write_config
from unit.hook_calls import after, before, claude

TOKEN = "a-token-for-this-test"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HookServer]:
    (tmp_path / ".git").mkdir()
    made = HookServer(str(tmp_path), TOKEN, open_store)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join(LIMIT_S)
    made.server_close()


def ask(
    server: HookServer,
    body: bytes | None,
    path: str = "/hooks/claude-code",
    method: str = "POST",
    **headers: str,
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    given = {"Authorization": f"Bearer {TOKEN}", **headers}
    given = {name.replace("_", "-"): value for name, value in given.items() if value}
    connection.request(method, path, body=body, headers=given)
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def raw(data: Any) -> bytes:
    return json.dumps(data).encode()


def test_a_hook_is_answered_and_recorded(server: HookServer) -> None:
    assert ask(server, raw(before("Bash", {"command": "git push"}))) == (200, {})
    assert ask(server, raw(after("Bash", {"command": "git push"}))) == (200, {})
    found = SqliteStore(Path(server.root) / ".switchgear" / "state.db").get("op/git_operations")
    assert found is not None
    assert found.circuit.totals.succeeded == 1


def test_a_refusal_has_the_format_of_the_agent(server: HookServer) -> None:
    status, told = ask(server, raw(before("Bash", {"command": "switchgear reset x"})))
    assert status == 200
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"


def undecided(server: HookServer, agent: str = "claude-code") -> list[str]:
    """The reported calls that could not be decided."""
    store = SqliteStore(Path(server.root) / ".switchgear" / "state.db")
    found = store.get(f"hooks/{agent}")
    told = [entry.event for entry in store.events() if entry.event.kind == "undecided"]
    assert (0 if found is None else found.circuit.totals.ignored) == len(told)
    return [event.reason for event in told]


def test_bad_input_is_refused_reported_and_counted(server: HookServer) -> None:
    status, told = ask(server, b"{")
    assert (status, told["decision"]) == (200, "block")
    assert "cannot be checked: claude-code sent an invalid event" in told["systemMessage"]
    (reason,) = undecided(server)
    assert "it is not JSON" in reason


@pytest.mark.parametrize(
    ("agent", "decision"), [("claude-code", "block"), ("codex", "block"), ("gemini", "deny")]
)
@pytest.mark.parametrize("on_trouble", ["admit", "refuse"])
def test_bad_input_is_refused_whatever_is_configured_about_circuits(
    server: HookServer, agent: str, decision: str, on_trouble: str
) -> None:
    config = Path(server.root) / "switchgear.yaml"
    write_config(config, f"hooks: {{on_trouble: {on_trouble}}}\n")
    status, told = ask(server, b"[]", f"/hooks/{agent}")
    assert (status, told["decision"]) == (200, decision)
    assert "cannot be checked" in told["reason"]
    assert len(undecided(server, agent)) == 1


def test_a_plugin_receives_that_it_could_not_be_decided(server: HookServer) -> None:
    status, told = ask(server, b"{", "/hooks/opencode")
    assert (status, told["action"]) == (200, "deny")
    assert "cannot be checked" in told["text"]


def test_a_body_that_is_too_large_is_not_read_but_answered_and_counted(server: HookServer) -> None:
    status, told = ask(server, b"x" * (MAX_INPUT_BYTES + 1))
    assert status == 200
    assert told["decision"] == "block"
    assert "larger than 4 MiB" in told["systemMessage"]
    assert len(undecided(server)) == 1


def test_a_request_above_the_limit_gets_an_error(server: HookServer) -> None:
    while server.request_slots.acquire(blocking=False):
        pass
    status, told = ask(server, raw(before()))
    assert status == 200
    assert told["decision"] == "block"
    assert "64 requests are being answered already" in told["systemMessage"]
    assert len(undecided(server)) == 1


def test_a_store_that_cannot_be_reached_is_reported_over_http_too(
    server: HookServer, tmp_path: Path
) -> None:
    write_config(tmp_path / "switchgear.yaml", "hooks: {on_trouble: refuse}\nstore: 'memory:'\n")
    status, told = ask(server, raw(before()))
    assert status == 200
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "could not decide" in told["systemMessage"]


def is_refused(told: Any, agent: str = "claude-code") -> bool:
    """Whether the answer makes the agent drop the call."""
    if agent in {"opencode", "pi"}:
        return bool(told["action"] == "deny")
    return bool(told["decision"] == ("deny" if agent == "gemini" else "block") and told["reason"])


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Bearer ", TOKEN[:-1], "x" * 10_000])
def test_nothing_is_decided_without_the_token(server: HookServer, header: str) -> None:
    status, told = ask(server, raw(before()), Authorization=header)
    assert status == 200, "agents take every other status for approval"
    assert is_refused(told)
    assert "Authorization: Bearer TOKEN" in told["reason"]
    assert server.root not in json.dumps(told)
    assert not (Path(server.root) / ".switchgear" / "state.db").exists(), "strangers write nothing"


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"x" * 300_000, b'{"a":1}']
)
def test_unreadable_input_without_a_token_is_refused(
    server: HookServer, agent: str, body: bytes
) -> None:
    status, told = ask(server, body, f"/hooks/{agent}", Authorization="Bearer wrong")
    assert status == 200
    assert is_refused(told, agent)


@pytest.mark.parametrize("event", ["Stop", "PostToolUse", "UserPromptSubmit", "SessionEnd"])
def test_an_event_with_nothing_to_refuse_only_reports_what_is_wrong(
    server: HookServer, event: str
) -> None:
    status, told = ask(server, raw(claude(event)), Authorization="Bearer wrong")
    assert (status, list(told)) == (200, ["systemMessage"])
    assert "Authorization: Bearer TOKEN" in told["systemMessage"]


def test_requests_of_web_pages_are_refused(server: HookServer) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        status, told = ask(server, raw(before()), **headers)
        assert status == 200
        assert is_refused(told)
        assert server.root not in json.dumps(told)
    assert ask(server, raw(before()), Host=f"localhost:{server.port}") == (200, {})
    assert ask(server, None, "/health", "GET", Origin="http://evil.example")[0] == 403


@pytest.mark.parametrize("length", ["many", "9" * 40, "-1", "1e3", "\uff10"])
def test_a_request_without_a_length_is_refused_unread(server: HookServer, length: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as line:
        head = f"POST /hooks/claude-code HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
        line.sendall(head.encode())
        found = line.recv(65536)
    assert found.startswith(b"HTTP/1.1 200 ")
    assert is_refused(json.loads(found.partition(b"\r\n\r\n")[2]))


@pytest.mark.parametrize(
    "path", ["/", "/hooks", "/hooks/", "/hooks/vim", "/hooks/claude-code/", "claude-code", "*"]
)
def test_a_call_to_another_path_is_refused(server: HookServer, path: str) -> None:
    status, told = ask(server, raw(before()), path)
    assert status == 200
    assert is_refused(told)
    assert "the path must be /hooks/" in told["reason"]


def test_other_paths_are_not_found(server: HookServer) -> None:
    assert ask(server, None, "/hooks/codex", "GET")[0] == 404
    assert ask(server, None, "/health", "GET", Authorization="Bearer wrong")[0] == 401


def test_a_defect_of_the_server_refuses_the_call(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise AssertionError("a defect")

    monkeypatch.setattr(serving, "answer", broken)
    status, told = ask(server, raw(before()))
    assert status == 200
    assert is_refused(told)
    assert "AssertionError: a defect" in told["reason"]


def test_work_after_a_decision_cannot_change_the_answer(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(serving, "emit_in_background", broken)
    monkeypatch.setattr(serving, "run_after_reply", broken)
    assert ask(server, raw(claude("UserPromptSubmit", prompt="go"))) == (200, {})
    _, told = ask(server, raw(before("Bash", {"command": "rm -rf /etc"})))
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_the_health_of_the_hook_server_can_be_queried(server: HookServer) -> None:
    status, told = ask(server, None, "/health", "GET")
    assert (status, told["ok"], told["root"]) == (200, True, server.root)


def test_a_connection_is_used_again(server: HookServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    for number in range(3):
        body = raw(before(call=f"t{number}"))
        connection.request("POST", "/hooks/codex", body, {"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"{}")
    connection.close()


def test_the_hook_server_listens_on_this_machine_only(server: HookServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_a_server_without_a_token_cannot_be_created(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="token is empty"):
        HookServer(str(tmp_path), "", open_store)


def test_a_token_is_created_once_and_kept_private(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "serve.token"
    token = read_or_create_token(str(place))
    assert len(token) >= 32
    assert place.stat().st_mode & 0o777 == 0o600
    assert read_or_create_token(str(place)) == token


def test_a_port_in_use_is_reported_in_a_sentence(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(server.root)
    ran = CliRunner().invoke(serve, ["--port", str(server.port)])
    assert ran.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{server.port}: Address already in use" in ran.output


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("short", 0o600, "must hold one word of at least 16 characters"),
        ("two words that are long", 0o600, "must hold one word"),
        ("a-token-that-is-long-enough", 0o644, "can be read by others; run: chmod 600"),
    ],
)
def test_an_invalid_token_file_is_reported(tmp_path: Path, text: str, mode: int, says: str) -> None:
    place = tmp_path / "token"
    place.write_text(text)
    place.chmod(mode)
    ran = CliRunner().invoke(serve, ["--port", "0", "--token-file", str(place)])
    assert ran.exit_code == 2
    assert says in ran.output


def test_a_silent_session_is_watched_by_the_server(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    names: list[str] = []

    def look(session: str) -> CheckResult:
        names.append(session)
        looked.set()
        return server._check_session(session)

    monkeypatch.setattr(server.session_checks, "_check", look)
    ask(server, raw(claude("UserPromptSubmit", prompt="go")))
    assert looked.wait(LIMIT_S)
    assert names[0] == "s1"
    assert not server._check_session("s1").ends


def test_a_server_without_events_creates_no_store(server: HookServer) -> None:
    server.session_checks.run_due(1e9)
    assert (Path(server.root) / ".switchgear" / "hooks.json").exists(), "it has looked"
    assert not (Path(server.root) / ".switchgear" / "state.db").exists()


def test_a_session_of_another_project_in_the_same_store_is_not_the_servers(
    server: HookServer, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    store = open_store(config_of(server.root))
    for session, root in (("s1", server.root), ("s2", str(other))):
        prompt = raw(claude("UserPromptSubmit", session, prompt="go"))
        answer("claude-code", prompt, root, lambda _: store)
    assert [server._check_session(session).ends for session in ("s1", "s2")] == [False, True]
