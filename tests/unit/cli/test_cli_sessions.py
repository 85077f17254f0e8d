"""`switchgear sessions`, and names that are found by their beginning."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear._agents.hook_protocol import Ruling
from switchgear._agents.registry import dialect_of
from switchgear._cli import main
from switchgear._core.types import Record, Signal
from switchgear._hooks.decide import decide
from switchgear._hooks.hook_config import HookConfig, config_of
from switchgear._hooks.interrupt import began_at
from switchgear._hooks.session import Notes, host_id
from switchgear._stores.base import Store, Transaction
from switchgear._stores.url import open_store
from timeouts import LIMIT_S
from unit.hook_calls import Data, after, before, claude, failed

FIRST = "0198f3aa-1111-7000-8000-00000000000a"
SECOND = "0198f3aa-2222-7000-8000-00000000000b"


def run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


class Project:
    """A project whose agents are guarded, over the project's own store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: HookConfig = config_of(str(folder))
        self.store: Store = open_store(self.known.store)

    def hear(self, data: Data, session: str) -> str:
        return self._ruling(data, session).action

    def text(self, data: Data, session: str) -> str:
        return self._ruling(data, session).text

    def _ruling(self, data: Data, session: str) -> Ruling:
        event = {**data, "session_id": session, "cwd": str(self.folder)}
        dialect = dialect_of("claude-code")
        return decide(dialect.read(event), self.known, self.store, dialect.warns)

    def work(self, session: str, prompt: str = "fix the parser") -> None:
        self.hear(claude("UserPromptSubmit", prompt=prompt), session)
        self.hear(before("Bash", {"command": "make test"}, "t1"), session)
        self.hear(after("Bash", {"command": "make test"}, "t1"), session)

    def spend(self, session: str, micros: int) -> None:
        policy = self.known.policy_for("session/x")
        message = Record(Signal(ok=True, cost_micros=micros))
        self.store.apply(f"session/{session}", policy, message, self.store.now_s())

    def stop(self, session: str) -> None:
        """Repeat a failing command until the agent is stopped, after the nudge."""
        self.work(session)
        for number in range(40):
            if self.hear(before("Bash", {"command": "make"}, f"f{number}"), session) == "stop":
                return
            self.hear(failed("Bash", {"command": "make"}, f"f{number}", "Exit code 2"), session)
        raise AssertionError("it was never stopped")

    def change(self, session: str, **fields: object) -> None:
        def work(tx: Transaction) -> None:
            tx.note = Notes.load(tx.note)._replace(**fields).dump()  # type: ignore[arg-type]

        self.store.transact(f"session/{session}", work)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SWITCHGEAR_")]:
        monkeypatch.delenv(name)
    (tmp_path / ".git").mkdir()
    found = Project(tmp_path)
    yield found
    found.store.close()


def rows() -> dict[str, dict[str, object]]:
    return {row["id"]: row for row in json.loads(run("sessions", "--all", "--json").output)}


def test_a_session_is_one_circuit(project: Project) -> None:
    project.stop(FIRST)
    names = [found.circuit.key for found in project.store.find()]
    assert [name for name in names if not name.startswith("op/")] == [f"session/{FIRST}"]


def test_sessions_show_agent_project_task_state_spend_and_last_step(project: Project) -> None:
    project.work(FIRST, "fix the parser\x1b[2J and TOKEN=abcdefgh12345678")
    row = rows()[FIRST]
    assert (row["agent"], row["project"]) == ("claude-code", str(project.folder))
    assert row["state"] == "working"
    assert str(row["task"]).startswith("fix the parser")
    assert "abcdefgh12345678" not in str(row["task"])
    assert row["last_step"] == "Bash make test"
    assert row["spent_micros"] is None
    drawn = run("sessions").output
    assert "unknown" in drawn, "unknown cost is never $0.00"
    assert "\x1b[2J" not in drawn


def test_status_show_sessions_and_intervene_agree_on_a_stopped_session(project: Project) -> None:
    project.stop(FIRST)
    listed = run("sessions").output
    assert "was stopped at" in listed
    assert "type a message to the agent: it starts over" in listed
    assert f"switchgear reset {FIRST[:13]}" in listed
    assert "escalate" not in listed, "no hand-over is configured"
    status = json.loads(run("status", f"session/{FIRST}", "--json").output)
    assert status[0]["phase"] == "open"
    assert "open" in run("show", FIRST).output.splitlines()[0]
    block = run("intervene", FIRST).output
    assert block.startswith("Stopped since")
    assert "[Resume agent]" in block
    assert "[Hand over]" not in block
    assert "[Extend timeout]" not in block, "it has no time limit"
    assert "[Pause agent]" not in block, "its process is not known"
    assert rows()[FIRST]["state"] == "stopped"


def test_one_score_is_shown_for_a_session_everywhere(project: Project) -> None:
    warnings = ""
    for number in range(5):
        project.hear(before("Read", {"file_path": "a"}, f"r{number}"), FIRST)
        warnings += project.text(after("Read", {"file_path": "a"}, f"r{number}"), FIRST)
    assert "Switchgear warns: score 56 (trips at 60): no progress for 8.35 steps" in warnings
    score = {"points": pytest.approx(60 * 8.35 / 9, abs=0.1), "threshold": 60.0}
    row, listed = rows()[FIRST], run("sessions").output.splitlines()
    assert row["score"] == score
    assert listed[0].split()[3] == "SCORE"
    assert listed[1].split()[3] == "56"
    [status] = json.loads(run("status", "session/*", "--json").output)
    shown = json.loads(run("show", FIRST, "--json").output)
    assert status["score"] == score
    assert {**shown["score"], "shares": 0} == {**score, "shares": 0}
    assert "score 56/100" in run("status", "session/*").output.splitlines()[1]
    assert "\nScore 56/100, trips at 60\n" in run("show", FIRST).output
    assert "Stuck score: 56/100" in run("intervene", FIRST).output
    assert row["heat"] == status["heat"] == shown["heat"] == pytest.approx(8.35 / 9, abs=0.001)


def test_a_session_in_its_first_call_is_listed_and_can_be_stopped(project: Project) -> None:
    """The call may be a build of an hour, or a sub-agent."""
    project.hear(claude("SessionStart"), FIRST)
    assert run("sessions", "--all", "--json").output.strip() == "[]", "no work has begun"
    project.hear(claude("UserPromptSubmit", prompt="fix the parser"), FIRST)
    assert rows()[FIRST]["state"] == "working"
    project.hear(before("Bash", {"command": "make all"}, "t1"), FIRST)
    assert run("intervene", FIRST, "--do", "abort").exit_code == 0
    assert project.hear(before("Bash", {"command": "ls"}, "t2"), FIRST) == "stop"


def test_the_user_s_next_message_resumes_a_stopped_session_and_the_agent_s_own_calls_do_not(
    project: Project,
) -> None:
    project.stop(FIRST)
    assert project.hear(before("Read", {"file_path": "a"}, "x1"), FIRST) == "stop"
    project.hear(claude("SessionStart", source="compact"), FIRST)
    assert project.hear(before("Read", {"file_path": "a"}, "x2"), FIRST) == "stop"
    project.hear(claude("UserPromptSubmit", prompt="try the other file"), FIRST)
    assert project.hear(before("Read", {"file_path": "a"}, "x3"), FIRST) in {"allow", "warn"}
    row = rows()[FIRST]
    assert row["state"] == "trying again", "no progress was measured yet"
    assert str(row["reason"]).startswith("no evidence since the reset (the same error 4 times")


def test_a_reset_by_the_start_of_its_id_resumes_a_session(project: Project) -> None:
    project.stop(FIRST)
    done = run("reset", FIRST[:13], "--why", "I looked at it")
    assert done.exit_code == 0, done.output
    assert project.hear(before("Read", {"file_path": "a"}, "x1"), FIRST) in {"allow", "warn"}


def test_intervene_resumes_a_session(project: Project) -> None:
    project.stop(FIRST)
    done = run("intervene", FIRST, "--do", "resume", "--why", "I looked at it")
    assert done.output == "the agent may continue\n"
    assert project.hear(before("Read", {"file_path": "a"}, "x1"), FIRST) in {"allow", "warn"}


def test_an_ambiguous_start_names_the_circuits_that_begin_with_it(project: Project) -> None:
    project.work(FIRST)
    project.work(SECOND)
    done = run("show", "0198f3aa")
    assert done.exit_code == 2
    assert "is ambiguous: 2 circuits begin with it" in done.stderr
    assert run("show", "0198f3aa-2").exit_code == 0
    assert "2 circuits: 2 closed" in run("status", "0198f3aa").output


def test_an_ended_session_is_reported_as_ended(project: Project) -> None:
    project.work(FIRST)
    project.hear(claude("SessionEnd", reason="exit"), FIRST)
    assert "ended at" in run("intervene", FIRST).output
    refused = run("intervene", FIRST, "--do", "nudge")
    assert refused.exit_code == 2
    assert "--do nudge is no longer possible" in refused.stderr
    assert run("sessions").output == (
        "No guarded session is active; 1 ended session: `switchgear sessions --all`.\n"
    )
    assert rows()[FIRST]["state"] == "ended"


def test_an_action_that_is_not_possible_is_refused(project: Project) -> None:
    project.work(FIRST)
    for key, why in (
        ("escalate", "names no agent under interventions.escalate"),
        ("extend", "has no time limit"),
        ("pause", "no running process of the agent is known"),
        ("continue", "is not paused"),
        ("resume", "is not stopped"),
    ):
        done = run("intervene", FIRST, "--do", key)
        assert done.exit_code == 2, key
        assert f"--do {key} is not possible here (" in done.stderr
        assert why in done.stderr


def state_of(pid: int) -> str:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return text.rpartition(")")[2].split()[0]


def test_an_agent_is_paused_with_what_it_started_and_continued(project: Project) -> None:
    project.work(FIRST)
    script = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    agent = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        began = began_at(agent.pid)
        project.change(FIRST, pid=agent.pid, pid_began=began, host=host_id())
        assert "[Pause agent]" in run("intervene", FIRST).output
        paused = run("intervene", FIRST, "--do", "pause")
        assert paused.output.startswith(f"paused process {agent.pid}")
        os.waitpid(agent.pid, os.WUNTRACED)
        assert state_of(agent.pid) == "T"
        assert rows()[FIRST]["state"] == "paused"
        done = run("intervene", FIRST, "--do", "continue")
        assert done.output.startswith(f"continued process {agent.pid}")
        assert state_of(agent.pid) != "T"
        project.change(FIRST, pid=agent.pid, pid_began="1")
        refused = run("intervene", FIRST, "--do", "pause")
        assert refused.exit_code == 2, "another process has its number by now"
    finally:
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()


def test_a_stop_has_one_text_for_the_agent_and_another_for_people(project: Project) -> None:
    project.stop(FIRST)
    dialect = dialect_of("claude-code")
    event = {**before("Read", {"file_path": "a"}, "z"), "session_id": FIRST}
    facts = dialect.read({**event, "cwd": str(project.folder)})
    ruling = decide(facts, project.known, project.store, dialect.warns)
    reply = json.loads(dialect.write(ruling, facts).stdout)
    for_agent = reply["hookSpecificOutput"]["permissionDecisionReason"]
    assert "Do not call any more tools" in for_agent
    assert "switchgear reset" not in for_agent, "an agent may not reset its own circuit"
    assert f"Switchgear stopped session {FIRST}" in reply["stopReason"]
    assert f"switchgear reset {FIRST} --why" in reply["stopReason"]


def test_an_operator_s_hold_stops_a_session_and_a_message_does_not_lift_it(
    project: Project,
) -> None:
    project.work(FIRST)
    assert run("hold", "open", FIRST, "--why", "wait for me").exit_code == 0
    assert rows()[FIRST]["state"] == "stopped"
    project.hear(claude("UserPromptSubmit", prompt="go on"), FIRST)
    assert project.hear(before("Read", {"file_path": "a"}, "x1"), FIRST) == "stop"
    listed = run("sessions").output
    assert "held open by " in listed
    assert f"release: switchgear release {FIRST[:13]} --why TEXT" in listed
    assert "type a message" not in listed, "it would not lift the hold"
    done = run("intervene", FIRST, "--do", "resume", "--why", "looked at it")
    assert done.output == "the agent may continue\n"
    assert project.hear(before("Read", {"file_path": "a"}, "x2"), FIRST) in {"allow", "warn"}


def test_the_end_of_the_time_opens_the_circuit_too(project: Project) -> None:
    project.work(FIRST)
    project.change(FIRST, limit_s=0.001, began_s=1.0)
    assert project.hear(before("Read", {"file_path": "a"}, "x1"), FIRST) == "stop"
    found = project.store.get(f"session/{FIRST}")
    assert found is not None
    assert found.circuit.phase == "open"
    assert found.circuit.outage.reason.startswith("TIME OVER")
    assert "[Extend timeout]" in run("intervene", FIRST).output
    listed = run("sessions").output
    assert f"switchgear intervene {FIRST[:13]} --do extend" in listed
    assert "type a message" not in listed, "it would not add time"
    assert run("intervene", FIRST, "--do", "extend", "--for", "1000000h").exit_code == 0
    assert project.hear(before("Read", {"file_path": "a"}, "x2"), FIRST) in {"allow", "warn"}


def test_silence_of_a_paused_agent_is_not_evidence(project: Project) -> None:
    from switchgear._hooks.session import silence_s  # noqa: PLC0415

    notes = Notes(heard_s=0.0, works=True)
    assert silence_s(notes, 500.0) == 500.0
    assert silence_s(notes._replace(paused=True), 500.0) == 0.0


def test_a_session_without_evidence_is_shown_as_working(project: Project) -> None:
    project.work(FIRST)
    project.store.apply(
        f"session/{FIRST}", project.known.policy_for("session/x"), Record(Signal(ok=True)), 1.0
    )
    done = run("intervene", FIRST)
    assert done.output.startswith(f"Session {FIRST} (claude-code) is working.")


def test_a_session_that_ended_while_stopped_still_shows_why(project: Project) -> None:
    project.stop(FIRST)
    project.work(SECOND)
    for each in (FIRST, SECOND):
        project.hear(claude("SessionEnd", reason="exit"), each)
    assert "2 ended sessions, 1 of them stopped: `switchgear sessions" in run("sessions").output
    assert "2 ended sessions, 1 of them stopped: `switchgear sessions" in run("status").output
    listed = " ".join(run("sessions", "--all").output.split())
    assert "and has ended: " in listed
    assert f"continue it with a new message: claude --resume {FIRST}" in listed
    assert rows()[FIRST]["reason"]
    assert rows()[SECOND]["reason"] == ""
    output = run("intervene", FIRST).output
    assert f", stopped: {rows()[FIRST]['reason']}"[:60] in output
    assert f"to continue it: claude --resume {FIRST}" in output


def test_one_ended_session_is_reported_in_the_singular(project: Project) -> None:
    project.stop(FIRST)
    project.hear(claude("SessionEnd", reason="other"), FIRST)
    assert "1 ended session, which was stopped: `switchgear" in run("sessions").output


def test_the_cost_since_a_reset_is_not_shown_as_that_of_the_session(project: Project) -> None:
    project.work(FIRST)
    project.spend(FIRST, 500_000)
    assert "since the last reset" not in run("show", FIRST).output
    assert run("reset", FIRST, "--why", "looked at it").exit_code == 0
    project.spend(FIRST, 500_000)
    assert "$0.50 since the last reset" in run("show", FIRST).output


def test_a_hint_for_an_agent_that_is_not_stuck_does_not_call_it_stuck(project: Project) -> None:
    project.work(FIRST)
    assert run("intervene", FIRST, "--do", "nudge", "--hint", "Use b.txt").exit_code == 0
    (hint,) = Notes.load(note_of(project)).pending
    assert hint == "Switchgear: a hint from your operator: Use b.txt"
    shown = " ".join(run("events", f"session/{FIRST}").output.split())
    assert 'nudge: hint "Use b.txt", requested by' in shown


def test_a_session_that_a_person_gives_up_shows_their_reason_and_does_not_offer_it_again(
    project: Project,
) -> None:
    project.work(FIRST)
    assert run("intervene", FIRST, "--do", "abort", "--why", "wrong branch").exit_code == 0
    shown = " ".join(run("sessions").output.split())
    assert "given up, requested by" in shown
    assert ": wrong branch - type a message to the agent" in shown
    assert "nothing found" not in shown
    assert "--do abort" not in shown


def test_a_message_to_all_agents_stops_none_that_was_released(project: Project) -> None:
    project.work(FIRST)
    assert run("intervene", FIRST, "--do", "abort").exit_code == 0
    assert run("reset", f"session/{FIRST}", "--why", "a mistake").exit_code == 0
    for _ in range(3):
        run("record", "op/git", "failure", "--error", "no network")
    done = run("intervene", "op/git", "--do", "skip", "--why", "not needed")
    assert "1 agent notified" in done.output
    assert project.hear(before("Bash", {"command": "make test"}, "t2"), FIRST) != "stop"


def note_of(project: Project) -> str | None:
    return project.store.transact(f"session/{FIRST}", lambda tx: tx.note)


@pytest.mark.parametrize("columns", [40, 64, 80, 100, 150, 200])
def test_sessions_fit_the_terminal_and_every_column_can_be_read(
    project: Project, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    long = project.folder / "a-project-with-a-very-long-name-indeed"
    project.stop(FIRST)
    project.work(SECOND, "make the parser accept comments in every place where blanks may stand")
    project.change(FIRST, project=str(long), agent="an-agent-with-a-long-name")
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run("sessions").output.splitlines()
    assert all(len(line) <= columns for line in lines), lines
    text = " ".join(" ".join(lines).split())
    for word in (FIRST[:13], SECOND[:13], "stopped", "working", "unknown", "parser", "make test"):
        assert word in text, (word, lines)
    if columns >= 80:
        head = ["SESSION", "AGENT", "STATE", "SCORE", "PROJECT", "SPENT", "SEEN"]
        assert lines[0].split()[:7] == head
    else:
        assert "SCORE" not in lines[0]
        assert "score 60; fix the parser" in text
        [row] = [line for line in lines if line.startswith(SECOND[:13])]
        at = lines[0].index("STATE")
        assert row[at:].startswith("working"), "long names move no column"


def test_in_a_pipe_a_session_is_a_line_and_nothing_is_cut(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    task = "make the parser accept comments in every place where blanks may stand"
    project.work(FIRST, task)
    lines = run("sessions").output.splitlines()
    assert lines[1].startswith(FIRST[:13])
    assert f"{task} > Bash make test" in lines[1]
    assert lines[2:] == ["", "1 session: 1 working"]


def test_status_leaves_out_ended_sessions_unless_they_are_held_or_named(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # at 80 the names are shortened
    project.work(FIRST)
    project.work(SECOND)
    project.hear(claude("SessionEnd", reason="other"), FIRST)
    shown = run("status").output
    assert f"session/{SECOND}" in shown
    assert f"session/{FIRST}" not in shown
    assert "1 ended session: `switchgear sessions --all`" in shown
    names = [row["name"] for row in json.loads(run("status", "--json").output)]
    assert f"session/{FIRST}" not in names
    assert f"session/{SECOND}" in names
    assert f"session/{FIRST}" in run("status", "--all").output
    assert f"session/{FIRST}" in run("status", f"session/{FIRST}").output
    held = run("hold", "open", f"session/{FIRST}", "--why", "I want to look at it")
    assert held.exit_code == 0, held.output
    assert f"session/{FIRST}" in run("status").output, "whoever holds it has to release it"


def test_a_session_without_recent_events_is_left_out_too(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    project.work(FIRST)
    assert f"session/{FIRST}" in run("status").output
    project.change(FIRST, heard_s=project.store.now_s() - 100_000, watcher=0)
    assert f"session/{FIRST}" not in run("status").output


def test_a_session_without_a_batch_gets_no_offer_to_continue_a_batch(project: Project) -> None:
    project.stop(FIRST)
    block = run("intervene", FIRST).output
    assert "[Abort task]         - Mark failed, stop agent" in block
    assert "batch" not in block


def test_an_intervention_reaches_the_configured_sinks(project: Project) -> None:
    from switchgear._config.trust import trust_file  # noqa: PLC0415

    project.stop(FIRST)
    heard = project.folder / "heard.jsonl"
    config = project.folder / "switchgear.yaml"
    config.write_text(f"sinks: [{{jsonl: {{path: '{heard}'}}}}]\n")
    trust_file(str(config))
    done = run("intervene", FIRST, "--do", "resume", "--why", "I looked at it")
    assert done.exit_code == 0, done.output
    events = [json.loads(line) for line in heard.read_text().splitlines()]
    assert any(event["kind"] == "intervened" for event in events)


def test_silence_that_watch_records_reaches_the_configured_sinks(project: Project) -> None:
    from switchgear._cli.context import Session, StoreChoice  # noqa: PLC0415
    from switchgear._cli.views.circuits import session_checker  # noqa: PLC0415
    from switchgear._config import DEFAULT  # noqa: PLC0415
    from switchgear._core.types import Event  # noqa: PLC0415
    from switchgear._panel.panel import Panel  # noqa: PLC0415

    heard: list[Event] = []
    for number in range(6):
        project.hear(before("Read", {"file_path": "a"}, f"r{number}"), FIRST)
        project.hear(after("Read", {"file_path": "a"}, f"r{number}"), FIRST)
    project.change(FIRST, works=True, heard_s=project.store.now_s() - 130, watcher=0)
    panel = Panel(project.known.store)
    config = DEFAULT._replace(sinks=(heard.append,))
    with Session(panel, config, store=StoreChoice(project.known.store, "given")) as session:
        tick = session_checker(session)
        give_up_s = time.monotonic() + LIMIT_S
        while not heard and time.monotonic() < give_up_s:
            tick()
            time.sleep(0.05)
    assert [event.circuit for event in heard] == [f"session/{FIRST}"]
    assert "no tool call for" in heard[0].reason
