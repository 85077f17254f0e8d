"""Requesting a second opinion: commands, the scripted model API, the cache, the budget, the time limit."""

import json
import os
import shlex
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.agents.fake_llm import ScriptedApi
from switchgear._opinion import opinion
from switchgear._opinion.consult import FOLDER, consult, consult_in_thread
from switchgear._opinion.opinion import Opinion, SecondOpinion, StuckEvidence
from timeouts import LIMIT_S

CONFIRM = '{"verdict": "confirm", "reason": "it repeats itself"}'
EVIDENCE = StuckEvidence(
    "claude", "fix the parser", 1.0, ("the same error 5 times",), (), ("Bash make",)
)


def judge(folder: Path, body: str) -> str:
    """A command that runs a Python script."""
    path = folder / f"judge-{len(list(folder.glob('judge-*')))}.py"
    path.write_text(f"import json, os, sys, time\n{body}\n")
    return f"{shlex.quote(sys.executable)} -I -S {shlex.quote(str(path))}"


def asked(
    folder: Path, settings: SecondOpinion, evidence: StuckEvidence = EVIDENCE, **environ: str
) -> Opinion:
    request = evidence.request(settings)
    return consult(settings, request, str(folder / FOLDER), str(folder), {**os.environ, **environ})


def test_a_command_reads_the_evidence_and_answers(tmp_path: Path) -> None:
    body = """
asked = json.load(sys.stdin)
print(json.dumps({"verdict": "delay", "reason": asked["task"], "steps": asked["most_steps"]}))
"""
    settings = SecondOpinion(judge(tmp_path, body), delay_steps=7)
    found = asked(tmp_path, settings)
    assert (found.verdict, found.reason, found.steps) == ("delay", "fix the parser", 7)
    assert stat.S_IMODE((tmp_path / FOLDER).stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("print('certainly!')", "not a JSON object"),
        ("sys.exit(3)", "exit code 3"),
        ("print('x' * 200_000)", "larger than 64 KiB"),
        ("pass", "not a JSON object"),
        (f"print({CONFIRM!r}); sys.exit(1)", "exit code 1"),
    ],
)
def test_a_command_that_fails_gives_no_opinion(tmp_path: Path, body: str, why: str) -> None:
    found = asked(tmp_path, SecondOpinion(judge(tmp_path, body)))
    assert found.verdict == "none"
    assert why in found.reason


@pytest.mark.parametrize("command", ["/no/such/program", "'unbalanced"])
def test_a_command_that_cannot_start_gives_no_opinion(tmp_path: Path, command: str) -> None:
    assert asked(tmp_path, SecondOpinion(command)).verdict == "none"


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    body = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("child", "w").write(str(child.pid))
time.sleep(600)
"""
    found = asked(tmp_path, SecondOpinion(judge(tmp_path, body), timeout_s=3.0))
    assert (found.verdict, found.reason) == ("none", "no answer within 3 s")
    child = int((tmp_path / "child").read_text())
    for _ in range(600):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if "Z" in Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[:1]:
            return
        time.sleep(0.05)
    pytest.fail("the child of the command still runs")


@pytest.mark.parametrize("api", ["anthropic", "openai"])
def test_a_model_is_consulted_over_http_and_its_cost_is_counted(tmp_path: Path, api: str) -> None:
    model = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-5"}[api]
    settings = SecondOpinion(model=model, api=api, key_env="TEST_KEY", base_url_env="TEST_URL")
    with ScriptedApi() as server:
        server.side_text = f"```json\n{CONFIRM}\n```"
        url = server.url if api == "anthropic" else f"{server.url}/v1"
        found = asked(tmp_path, settings, TEST_KEY="k-1", TEST_URL=url)
        assert (found.verdict, found.reason) == ("confirm", "it repeats itself")
        assert found.cost_micros is not None
        assert found.cost_micros > 0
        [body] = server.side_bodies
        assert "fix the parser" in body
        assert "the same error 5 times" in body
    spent = json.loads((tmp_path / FOLDER / "spent.json").read_text())
    assert (spent["calls"], spent["micros"]) == (1, found.cost_micros)


@pytest.mark.parametrize("scenario", ["server-errors", "overloaded", "rate-limited"])
def test_a_model_api_that_fails_gives_no_opinion(tmp_path: Path, scenario: str) -> None:
    settings = SecondOpinion(model="claude-sonnet-4-5", base_url_env="TEST_URL")
    with ScriptedApi(scenario) as server:
        found = asked(tmp_path, settings, TEST_URL=server.url, ANTHROPIC_API_KEY="k")
    assert found.verdict == "none"
    assert "the model API answered" in found.reason


def test_a_dead_model_api_gives_no_opinion(tmp_path: Path) -> None:
    with ScriptedApi() as server:
        url = server.url
    settings = SecondOpinion(model="m", base_url_env="TEST_URL")
    found = asked(tmp_path, settings, TEST_URL=url, ANTHROPIC_API_KEY="k")
    assert (found.verdict, "cannot be reached" in found.reason) == ("none", True)


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [
        ("http://example.com", "k", "must be https"),
        ("file:///etc/passwd", "k", "must be https"),
        ("http://127.0.0.1.example.com", "k", "must be https"),
        ("http://127.0.0.1:1", "", "no API key in $ANTHROPIC_API_KEY"),
        ("http://127.0.0.1:1", "a\nb", "no API key in $ANTHROPIC_API_KEY"),
    ],
)
def test_the_key_goes_to_no_address_that_would_show_it(
    tmp_path: Path, url: str, key: str, why: str
) -> None:
    settings = SecondOpinion(model="m", base_url_env="TEST_URL")
    found = asked(tmp_path, settings, TEST_URL=url, ANTHROPIC_API_KEY=key)
    assert found.verdict == "none"
    assert why in found.reason


def test_no_proxy_sees_a_request_to_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is plain HTTP, so the proxy could read the key."""
    with ScriptedApi() as server, ScriptedApi() as proxy:
        server.side_text = CONFIRM
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("NO_PROXY", "")
        settings = SecondOpinion(model="m", base_url_env="TEST_URL")
        found = asked(tmp_path, settings, TEST_URL=server.url, ANTHROPIC_API_KEY="k")
        assert found.verdict == "confirm"
        assert proxy.side_bodies == []
        assert len(server.side_bodies) == 1


def test_a_redirect_is_not_followed_with_the_key(tmp_path: Path) -> None:
    with ScriptedApi() as real, _raw_server(_redirect_to(real.url)) as url:
        settings = SecondOpinion(model="m", base_url_env="TEST_URL")
        found = asked(tmp_path, settings, TEST_URL=url, ANTHROPIC_API_KEY="k")
        assert (found.verdict, found.reason) == ("none", "the model API answered 307")
        assert real.side_bodies == []


def test_a_slow_api_is_given_up_at_the_time_limit(tmp_path: Path) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)

    with _raw_server(drip) as url:
        settings = SecondOpinion(model="m", base_url_env="TEST_URL", timeout_s=1.0)
        found = asked(tmp_path, settings, TEST_URL=url, ANTHROPIC_API_KEY="k")
    assert (found.verdict, found.reason) == ("none", "no answer within 1 s")


def test_a_process_that_must_not_hang_does_not_wait_for_a_header_that_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"x-y: z\r\n")
            time.sleep(0.2)

    with _raw_server(drip) as url:
        monkeypatch.setenv("TEST_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        settings = SecondOpinion(model="m", base_url_env="TEST_URL", timeout_s=1.0)
        request = EVIDENCE.request(settings)
        found = consult_in_thread(settings, request, str(tmp_path / FOLDER), str(tmp_path))
    assert found.verdict == "none"


def test_an_opinion_on_the_same_evidence_is_requested_once(tmp_path: Path) -> None:
    body = f"open('asked', 'a').write('x'); print({CONFIRM!r})"
    settings = SecondOpinion(judge(tmp_path, body))
    first, again = asked(tmp_path, settings), asked(tmp_path, settings)
    assert (first.verdict, again.verdict) == ("confirm", "confirm")
    assert again.source.endswith(", cached")
    passed_on = opinion.loaded(opinion.dumped(again), settings)
    assert passed_on is not None
    assert passed_on.sentence().endswith(", cached)")  # as the event of a hook shows it
    assert not first.sentence().endswith(", cached)")
    other = EVIDENCE._replace(indicators=("another error",))
    asked(tmp_path, settings, other)
    assert (tmp_path / "asked").read_text() == "xx"


def test_an_edited_command_is_consulted_again(tmp_path: Path) -> None:
    settings = SecondOpinion(judge(tmp_path, f"print({CONFIRM!r})"))
    assert asked(tmp_path, settings).verdict == "confirm"
    [script] = tmp_path.glob("judge-*")
    script.write_text("""print('{"verdict": "delay", "reason": "edited"}')\n""")
    os.utime(script, (1.0, 1.0))
    assert asked(tmp_path, settings).verdict == "delay"


def test_processes_that_a_command_leaves_running_do_not_delay_its_answer(tmp_path: Path) -> None:
    """The child has the pipe of the answer, and a session of its own, so it is not ended with the command."""
    body = f"""
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open("child", "w").write(str(child.pid))
print({CONFIRM!r})
"""
    try:
        found = asked(tmp_path, SecondOpinion(judge(tmp_path, body), timeout_s=LIMIT_S))
        assert (found.verdict, found.reason) == ("confirm", "it repeats itself")
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_command_whose_answer_no_longer_matters_is_ended(tmp_path: Path) -> None:
    """Else it would work on, and cost money, after the run that asked it has ended."""
    noted = tmp_path / "pid"
    body = f"""
open({str(noted)!r} + "-draft", "w").write(str(os.getpid()))
os.rename({str(noted)!r} + "-draft", {str(noted)!r})
time.sleep(600)
"""
    settings = SecondOpinion(judge(tmp_path, body), timeout_s=LIMIT_S)
    request, folder = EVIDENCE.request(settings), str(tmp_path / FOLDER)
    found = consult(settings, request, folder, str(tmp_path), is_abandoned=noted.exists)
    assert (found.verdict, found.reason) == ("none", "not waited for: the run ends")
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)


def test_a_missing_opinion_is_not_cached(tmp_path: Path) -> None:
    settings = SecondOpinion(judge(tmp_path, "open('asked', 'a').write('x'); print('?')"))
    asked(tmp_path, settings)
    asked(tmp_path, settings)
    assert (tmp_path / "asked").read_text() == "xx"


def test_the_calls_of_a_day_are_limited(tmp_path: Path) -> None:
    settings = SecondOpinion(judge(tmp_path, f"print({CONFIRM!r})"), calls_per_day=2)
    found = [
        asked(tmp_path, settings, EVIDENCE._replace(task=f"task {number}")) for number in range(3)
    ]
    assert [each.verdict for each in found] == ["confirm", "confirm", "none"]
    assert found[2].reason == "2 opinions in 24 h (limit 2)"


def test_a_model_is_not_consulted_beyond_its_budget(tmp_path: Path) -> None:
    settings = SecondOpinion(
        model="claude-sonnet-4-5", base_url_env="TEST_URL", budget_micros=1_000
    )
    with ScriptedApi() as server:
        found = asked(tmp_path, settings, TEST_URL=server.url, ANTHROPIC_API_KEY="k")
        assert server.side_bodies == []
    assert (found.verdict, found.reason.startswith("budget: ")) == ("none", True)


@pytest.mark.parametrize(
    "content", ["", "{", '{"calls": 1}', '{"began_s": "x", "calls": 0, "micros": 0}']
)
def test_a_damaged_record_of_spending_does_not_restore_the_budget(
    tmp_path: Path, content: str
) -> None:
    settings = SecondOpinion(judge(tmp_path, f"print({CONFIRM!r})"))
    ledger = tmp_path / FOLDER / "spent.json"
    ledger.parent.mkdir(mode=0o700)
    ledger.write_text(content)
    ledger.chmod(0o600)
    found = asked(tmp_path, settings)
    assert (found.verdict, found.reason.startswith("unknown spend: ")) == ("none", True)
    ledger.unlink()
    assert asked(tmp_path, settings).verdict == "confirm"


def test_a_folder_that_cannot_be_used_gives_no_opinion(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file in its place")
    assert asked(tmp_path, SecondOpinion(judge(tmp_path, f"print({CONFIRM!r})"))).verdict == "none"


def _redirect_to(url: str) -> Any:
    def answer(connection: socket.socket) -> None:
        head = f"HTTP/1.1 307 Go\r\nlocation: {url}/v1/messages\r\ncontent-length: 0\r\n\r\n"
        connection.sendall(head.encode())

    return answer


@contextmanager
def _raw_server(answer: Any) -> Iterator[str]:
    """A server that reads one request and answers with raw bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            connection, _ = listener.accept()
            with closing(connection):
                connection.recv(65_536)
                answer(connection)
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
