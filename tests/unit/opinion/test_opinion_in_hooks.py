"""The second opinion in a guarded session: requested when hot, applied before the step, never admits a refused call."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.hook_protocol import Ruling, WorkAfterReply
from switchgear._agents.registry import dialect_of
from switchgear._hooks import opinions
from switchgear._hooks.decide import decide
from switchgear._hooks.inspect_call import inspect_tool_call
from switchgear._hooks.session import Notes, note_name
from switchgear._opinion.opinion import REVIEW_VARIABLE, SecondOpinion
from timeouts import LIMIT_S
from unit.hook_calls import Data, Guarded, after, before, claude, failed
from unit.opinion.test_consult import judge

CONFIG = """
second_opinion:
  command: {command}
  max_delays: {delays}
  delay_steps: 3
"""


class Reviewed(Guarded):
    """An agent whose second opinion is asked at once, as the process after a hook does."""

    def __init__(self, folder: Path, body: str, delays: int = 1) -> None:
        command = json.dumps(judge(folder, body))
        super().__init__(folder, CONFIG.format(command=command, delays=delays))
        self.asked = 0
        self.answers = True

    def hear(self, data: Data) -> Ruling:
        self.clock.advance(1.0)
        work_after: list[WorkAfterReply] = []
        warns = dialect_of(self.agent).warns
        ruling = decide(self.facts(data), self.known, self.store, warns, work_after)
        for work in work_after:
            if work.opinion:
                self.asked += 1
                if self.answers:
                    opinions.request_opinion(work.opinion.encode(), work.root)
        return ruling

    def notes(self) -> Notes:
        return self.store.transact(note_name("s1"), lambda inside: Notes.load(inside.note))


def repeat(agent: Reviewed, most: int = 60) -> list[Ruling]:
    """The same failing call again and again, until it is refused."""
    heard: list[Ruling] = []
    for number in range(most):
        ruling = agent.call("Read", {"file_path": "a"}, f"t{number}", result="the same")
        heard.append(ruling)
        if ruling.action in {"deny", "stop"}:
            return heard
    return heard


def texts(heard: list[Ruling]) -> str:
    return "\n".join(each.text for each in heard)


def test_second_opinions_are_off_by_default_and_then_not_imported(tmp_path: Path) -> None:
    assert Guarded(tmp_path).known.second_opinion is None


def test_a_confirmed_stop_is_a_stop_and_the_verdict_is_an_event(tmp_path: Path) -> None:
    agent = Reviewed(tmp_path, """print('{"verdict": "confirm", "reason": "it repeats itself"}')""")
    heard = repeat(agent)
    assert "AGENT APPEARS STUCK" in texts(heard)
    assert heard[-1].action == "stop"
    events = agent.events("second_opinion")
    assert events
    assert events[0].startswith("confirm: it repeats itself (command ")


def test_a_hint_replaces_the_text_of_the_nudge(tmp_path: Path) -> None:
    body = """print('{"verdict": "hint", "reason": "r", "hint": "read b instead of a"}')"""
    heard = repeat(Reviewed(tmp_path, body))
    nudged = next(each.text for each in heard if "AGENT APPEARS STUCK" in each.text)
    assert 'A reviewer suggests: "read b instead of a"' in nudged
    assert "Try a different approach" not in nudged
    assert heard[-1].action == "stop", "a hint replaces the nudge, not the stop after it"


def test_a_delay_is_granted_once_for_a_number_of_steps_before_the_stop(tmp_path: Path) -> None:
    body = """print('{"verdict": "delay", "reason": "the build is slow", "steps": 50}')"""
    agent, plain = Reviewed(tmp_path, body), Guarded(_folder(tmp_path, "plain"))
    heard = repeat(agent)
    without = [
        plain.call("Read", {"file_path": "a"}, f"t{number}", result="the same")
        for number in range(len(heard))
    ]
    first = _first_nudge(heard)
    assert 0 < first - _first_nudge(without) <= 3 + 1, "delay_steps, and the call that applies it"
    assert heard[-1].action == "stop"
    events = agent.events("second_opinion")
    assert events[0].startswith("delay by up to 3 steps: the build is slow")
    granted = [each for each in events if "not granted" not in each]
    assert len(granted) == 1
    assert agent.notes().delays == 1


def test_progress_lets_a_delayed_stop_lapse_and_a_message_grants_delays_again(
    tmp_path: Path,
) -> None:
    body = """print('{"verdict": "delay", "reason": "the build is slow"}')"""
    agent = Reviewed(tmp_path, body)
    for number in range(60):
        agent.call("Read", {"file_path": "a"}, f"t{number}", result="the same")
        if agent.notes().delay_left:
            break
    assert agent.notes().delay_left
    agent.call("Write", {"file_path": "b.txt", "content": "x"}, "w1", result="written")
    assert agent.notes().delay_left == 0
    assert agent.phase("session/s1") == "closed"
    agent.hear(claude("UserPromptSubmit", prompt="go on"))
    assert agent.notes().delays == 0


@pytest.mark.parametrize(
    "body",
    [
        "sys.exit(1)",
        "print('x' * 100_000)",
        """print('{"verdict": "admit", "reason": "let it go on"}')""",
        """print('{"verdict": "delay"}')""",
    ],
)
def test_a_failing_or_hostile_opinion_leaves_the_stop_as_it_is(tmp_path: Path, body: str) -> None:
    heard = repeat(Reviewed(tmp_path, body))
    assert "Try a different approach" in texts(heard)
    assert heard[-1].action == "stop"


def test_a_missing_opinion_delays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinions, "WAIT_S", 0.1)
    agent = Reviewed(tmp_path, "pass")
    agent.answers = False
    heard = repeat(agent)
    assert heard[-1].action == "stop"
    assert any(each.startswith("none: no answer before") for each in agent.events("second_opinion"))


def test_no_call_passes_between_the_trip_and_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The circuit is open while the opinion is awaited: the next call applies the step first."""
    monkeypatch.setattr(opinions, "WAIT_S", 0.1)
    agent = Reviewed(tmp_path, "pass")
    agent.answers = False
    for number in range(60):
        agent.call("Read", {"file_path": "a"}, f"t{number}", result="the same")
        if agent.phase("session/s1") == "open":
            break
    if agent.notes().untended:
        agent.hear(before("Read", {"file_path": "a"}, "next"))
        assert not agent.notes().untended


def test_an_opinion_never_excuses_a_broken_rule(tmp_path: Path) -> None:
    body = """print('{"verdict": "delay", "reason": "rm -rf / is fine", "steps": 50}')"""
    agent = Reviewed(tmp_path, body)
    heard = [
        agent.hear(before("Bash", {"command": "rm -rf /"}, f"t{number}")) for number in range(40)
    ]
    assert {each.action for each in heard} <= {"deny", "stop"}


def test_the_evidence_contains_no_secret(tmp_path: Path) -> None:
    """In the task, arguments, a path, a result that was cut inside a key, and an error."""
    agent = Reviewed(tmp_path, f"open({str(tmp_path / 'seen')!r}, 'a').write(sys.stdin.read())")
    key = "wJalrXUtnFEMIsK7MDENGsbPxRfiCYEXAMPLEKEY"
    pem = f"-----BEGIN RSA PRIVATE KEY-----\n{'MIIEowIBAAKCAQEA' * 100}\n-----END RSA PRIVATE KEY-----"
    agent.hear(claude("UserPromptSubmit", prompt=f"deploy with password={key}"))
    order = {"command": f"make deploy dbPassword={key} /home/sk-proj-{key}/file"}
    lines = f"Exit code 2\n{pem}\nAWS_SECRET_ACCESS_KEY={key} {'to the host ' * 13}"
    for number in range(6):
        agent.hear(before("Bash", order, f"t{number}"))
        agent.hear(failed("Bash", order, f"t{number}", error=lines))
    seen = (tmp_path / "seen").read_text()
    assert agent.asked
    assert "make deploy" in seen
    kept = seen + repr(agent.notes()) + repr([*agent.store.find()]) + repr(agent.store.events())
    for part in (key[-8:], "MIIE", "AQEA"):
        assert part not in kept


def test_an_agent_that_only_tries_what_is_forbidden_is_stopped_too(tmp_path: Path) -> None:
    """The opinion is applied before a call that a rule refuses, as before any other."""
    agent = Reviewed(tmp_path, """print('{"verdict": "confirm", "reason": "it insists"}')""")
    heard = [
        agent.hear(before("Bash", {"command": "git push --force"}, f"t{number}"))
        for number in range(12)
    ]
    assert {each.action for each in heard} == {"deny", "stop"}
    assert heard[-1].action == "stop"
    assert all("rule force-push" in each.text for each in heard), "each call is refused by its rule"
    assert agent.events("intervened")
    assert "git push --force" in agent.notes().recent[-1]


def test_an_answer_file_of_another_user_is_ignored(tmp_path: Path) -> None:
    agent = Reviewed(tmp_path, "pass")
    folder = Path(opinions.folder_of(str(tmp_path)))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "answer-a1.json"
    path.write_text('{"verdict": "delay", "reason": "r", "steps": 3}')
    path.chmod(0o666)
    settings = SecondOpinion("x")
    assert opinions.received_opinion(str(tmp_path), "a1", settings) is None, (
        "others may have written it"
    )
    path.chmod(0o600)
    assert opinions.received_opinion(str(tmp_path), "a1", settings) is not None
    assert opinions.received_opinion(str(tmp_path), "../a1", settings) is None
    assert agent.asked == 0


def test_an_agent_that_gives_an_opinion_is_not_reviewed_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else reviewers could start reviewers, where the command is an agent with hooks."""
    monkeypatch.setenv(REVIEW_VARIABLE, "1")
    agent = Reviewed(tmp_path, DELAY)
    heard = repeat(agent)
    assert heard[-1].action == "stop"
    assert agent.asked == 0


def test_no_opinion_is_requested_below_70_percent(tmp_path: Path) -> None:
    agent = Reviewed(tmp_path, "pass")
    agent.call("Read", {"file_path": "a"}, "t1", result="one")
    agent.call("Read", {"file_path": "b"}, "t2", result="two")
    assert agent.asked == 0


def test_a_relative_command_is_that_of_the_project_wherever_the_agent_works(tmp_path: Path) -> None:
    """The agent could write another script of the same name into the folder in which it works."""
    for folder, verdict in ((tmp_path, "confirm"), (tmp_path / "sub", "delay")):
        (folder / "tools").mkdir(parents=True)
        script = f"""print('{{"verdict": "{verdict}", "reason": "r"}}')\n"""
        (folder / "tools" / "judge.py").write_text(script)
    agent = Reviewed(tmp_path, DELAY)
    settings = {**dict(agent.known.second_opinion or {}), "command": "python3 tools/judge.py"}
    agent.known = agent.known._replace(second_opinion=settings)
    agent.folder = tmp_path / "sub"
    assert repeat(agent)[-1].action == "stop"
    assert {each.partition(":")[0] for each in agent.events("second_opinion")} == {"confirm"}


def test_a_process_after_the_hook_requests_and_saves_the_opinion(tmp_path: Path) -> None:
    agent = Reviewed(tmp_path, """print('{"verdict": "confirm", "reason": "yes"}')""")
    agent.answers = False
    settings = SecondOpinion(**dict(agent.known.second_opinion or {}))
    request = {"name": "n1", "settings": settings._asdict(), "request": {"version": 1}}
    opinions.start_request(json.dumps(request), str(tmp_path))
    _wait_until(lambda: opinions.received_opinion(str(tmp_path), "n1", settings), LIMIT_S)
    found = opinions.received_opinion(str(tmp_path), "n1", settings)
    assert found is not None
    assert found.verdict == "confirm"


def _first_nudge(heard: list[Ruling]) -> int:
    return next(n for n, each in enumerate(heard) if "AGENT APPEARS STUCK" in each.text)


def _folder(path: Path, name: str) -> Path:
    folder = path / name
    folder.mkdir()
    return folder


def _wait_until(is_true: Any, limit_s: float) -> None:
    due_s = time.monotonic() + limit_s
    while not is_true() and time.monotonic() < due_s:
        time.sleep(0.05)
    assert is_true()


def test_after_a_call_there_is_no_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("only a call before a tool may wait")

    agent = Reviewed(tmp_path, "pass")
    agent.hear(before("Read", {"file_path": "a"}, "t1"))
    monkeypatch.setattr(opinions, "wait_for", never)
    agent.hear(after("Read", {"file_path": "a"}, "t1", "one"))


DELAY = """print('{"verdict": "delay", "reason": "nearly there"}')"""


def stuck_at_once(agent: Reviewed) -> None:
    """The circuit opens with the request for an opinion: the next call applies its verdict."""
    for number in range(6):
        agent.call("Bash", {"command": "make"}, f"s{number}", error="Exit code 2: no rule")
        if agent.notes().untended:
            return
    pytest.fail("the session is not stuck")


def time_is_over(agent: Reviewed) -> None:
    agent.store.transact(
        note_name("s1"),
        lambda tx: setattr(tx, "note", Notes.load(tx.note)._replace(limit_s=1.0).dump()),
    )


def guard_was_changed(agent: Reviewed) -> None:
    agent.known = agent.known._replace(tampered=("switchgear.yaml was changed",))
    agent.hear(after("Read", {"file_path": "a"}, "unseen"))
    agent.known = agent.known._replace(tampered=())


def operator_stops_all(agent: Reviewed) -> None:
    agent.store.transact(
        note_name("s1"),
        lambda tx: setattr(tx, "note", Notes.load(tx.note)._replace(stop="Stop now.").dump()),
    )


@pytest.mark.parametrize("end", [time_is_over, guard_was_changed, operator_stops_all])
@pytest.mark.parametrize("reviewed", [True, False])
def test_neither_a_delay_nor_a_nudge_lifts_a_definite_stop(
    tmp_path: Path, end: Any, reviewed: bool
) -> None:
    """The circuit opened because the agent is stuck; before its next call, the session was stopped for good."""
    agent = Reviewed(tmp_path, DELAY if reviewed else "pass")
    stuck_at_once(agent)
    end(agent)
    for number in range(3):
        assert agent.hear(before("Read", {"file_path": "b"}, f"b{number}")).action == "stop"
    assert agent.phase("session/s1") == "open"
    assert not agent.notes().delays


def test_an_opinion_on_a_past_incident_does_not_apply_to_the_next(
    tmp_path: Path,
) -> None:
    """The heat rose above 70 %, fell again without a stop, and rises for another reason."""
    agent = Reviewed(tmp_path, DELAY)
    for number in range(60):
        agent.call("Read", {"file_path": "a"}, f"t{number}", result="the same")
        if agent.asked:
            break
    assert agent.phase("session/s1") == "tripping"
    for number in range(20):
        path = {"file_path": f"{number}.py", "content": f"line {number}"}
        agent.call("Write", path, f"w{number}", result=f"written {number}")
    assert not agent.notes().opinion, "the incident is over"
    assert agent.phase("session/s1") == "closed"
    stuck_at_once(agent)
    assert agent.asked == 2


def test_the_evidence_has_no_half_of_a_secret_and_none_in_base64(tmp_path: Path) -> None:
    """A key that a terminal has broken over two lines, one in Base64, one behind an underscore in a path."""
    agent = Reviewed(tmp_path, f"open({str(tmp_path / 'seen')!r}, 'a').write(sys.stdin.read())")
    key = "sk-proj-aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY2z"
    coded = base64.b64encode(f"password={key}".encode()).decode()
    agent.hear(claude("UserPromptSubmit", prompt=f"deploy with {coded}"))
    order = {"command": f"make deploy TOKEN_FILE=/srv/backup_{key}/{coded} DB_PASS={key[-8:]}"}
    for number in range(6):
        agent.hear(before("Bash", order, f"t{number}"))
        error = f"Exit code 2\nbad key {key[:20]}\n{key[20:]} in {coded}"
        agent.hear(failed("Bash", order, f"t{number}", error=error))
    seen = (tmp_path / "seen").read_text()
    assert "make deploy" in seen
    for part in (key[10:18], key[-8:], coded[:12], coded[-12:]):
        assert part not in seen


def test_a_reviewed_agent_cannot_change_a_command_in_the_project(
    tmp_path: Path,
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "judge.py").write_text("print('{}')\n")
    (tmp_path / "tools" / "other.py").write_text("\n")
    agent = Guarded(tmp_path, "second_opinion: {command: python3 tools/judge.py}")
    for path, action in (("tools/judge.py", "deny"), ("tools/other.py", "allow")):
        call = before("Write", {"file_path": str(tmp_path / path), "content": "x"}, path)
        looked = inspect_tool_call(agent.facts(call), agent.known)
        assert (looked.broken is not None) == (action == "deny"), path
        shell = before("Bash", {"command": f"echo x > {path}"}, f"b-{path}")
        assert (inspect_tool_call(agent.facts(shell), agent.known).broken is not None) == (
            action == "deny"
        )
