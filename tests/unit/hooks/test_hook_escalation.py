"""Escalation and time limits through the hooks: hints and warnings come once, agents take over, time ends."""

from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.hook_protocol import Ruling, WorkAfterReply
from switchgear._agents.registry import dialect_of
from switchgear._hooks.decide import decide
from switchgear._hooks.interrupt import is_headless
from switchgear._hooks.session import TIME_VARIABLE, WATCHED_VARIABLE, Notes
from unit.hook_calls import Guarded, after, before, claude

READ = {"file_path": "a.py"}


@pytest.fixture
def agent(tmp_path: Path) -> Guarded:
    """An agent that is evaluated by its stuck score alone: the progress detectors would trip earlier."""
    return Guarded(tmp_path, "interventions: {progress: false}\n")


def looping(agent: Guarded, calls: int) -> list[Ruling]:
    """Reads the same file again and again."""
    rulings = []
    for number in range(calls):
        rulings.append(agent.call("Read", READ, f"c{number}", result="the same"))
        agent.clock.advance(2.0)
    return rulings


def with_errands(agent: Guarded, data: dict[str, Any]) -> list[WorkAfterReply]:
    errands: list[WorkAfterReply] = []
    warns = dialect_of(agent.agent).warns
    decide(agent.facts(data), agent.known, agent.store, warns, errands)
    return errands


def test_a_stuck_agent_reads_the_hint_once(agent: Guarded) -> None:
    hinted = [each.text for each in looping(agent, 30) if "AGENT APPEARS STUCK" in each.text]
    assert len(hinted) == 1
    assert "Agent: claude-code (s1)\nStuck score: 90/100" in hinted[0]
    assert "- 21 calls without a file change (more than 20 trips) (+50)" in hinted[0]


def test_a_file_that_changes_restarts_the_escalation(agent: Guarded) -> None:
    looping(agent, 21)
    agent.call("Write", {"file_path": "b.py", "content": "x"}, "w1")
    note = agent.store.transact("session/s1", lambda tx: tx.note)
    assert Notes.load(note).tried == ()
    hinted = [each for each in looping(agent, 30) if "Try a different approach." in each.text]
    assert len(hinted) == 1


def test_a_run_that_watches_its_agent_takes_the_step_itself(
    agent: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WATCHED_VARIABLE, "1")
    assert not [each for each in looping(agent, 30) if "AGENT APPEARS STUCK" in each.text]
    note = agent.store.transact("session/s1", lambda tx: tx.note)
    assert Notes.load(note).tried == ()


def test_the_escalation_agent_is_started_once_with_the_evidence(tmp_path: Path) -> None:
    plan = "interventions: {when_alone: [escalate], escalate: codex, progress: false}"
    agent = Guarded(tmp_path, plan)
    looping(agent, 20)
    agent.hear(before("Read", READ, "last"))
    [errand] = with_errands(agent, after("Read", READ, "last", "the same"))
    assert (errand.escalate, errand.session) == ("codex", "s1")
    assert errand.evidence.startswith("AGENT APPEARS STUCK")
    assert "The agent is stopped. The escalation agent takes over." in errand.evidence
    assert agent.hear(before("Read", READ, "more")).action == "stop"


def test_the_first_hook_of_a_session_requests_a_watcher_and_no_other_does(agent: Guarded) -> None:
    [errand] = with_errands(agent, claude("SessionStart", source="startup"))
    assert errand.watch
    assert (errand.agent, errand.root) == ("claude-code", str(agent.folder))
    assert with_errands(agent, before(call="t1")) == []


# Time


def said(agent: Guarded, *at_s: float) -> list[str]:
    """The texts that the agent receives at these times, in seconds since its first call."""
    start_s, heard = agent.clock(), []
    for number, at in enumerate(at_s):
        agent.clock.advance(start_s + at - agent.clock())
        ruling = agent.hear(after("Read", {"file_path": f"{number}.py"}, f"c{number}", str(at)))
        heard.append(ruling.text.partition("\n")[0])
    return heard


def test_warnings_are_sent_through_the_hook_once_each_and_the_end_stops(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, "timeouts: {session_s: 600}")
    heard = said(agent, 0.0, 300.0, 421.0, 430.0, 541.0, 550.0)
    assert heard == [
        "",
        "",
        "TIME WARNING: 30% budget remaining. Start wrapping up.",
        "",
        "TIME WARNING: 10% budget remaining. Commit now.",
        "",
    ]
    agent.clock.advance(60.0)
    over = agent.hear(before(call="late"))
    assert over.action == "stop"
    assert over.text.startswith("TIME OVER: the 10 minutes for this task are used up.")


def test_the_hooks_of_a_runs_agent_use_the_time_of_the_run(
    agent: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIME_VARIABLE, f"{agent.clock() - 500.0} 600")
    assert said(agent, 0.0, 50.0) == [
        "TIME WARNING: 16% budget remaining. Start wrapping up.",
        "TIME WARNING: 8% budget remaining. Commit now.",
    ]


@pytest.mark.parametrize("told", ["", "soon", "1 2 3", "5 0", "nan"])
def test_an_unreadable_time_limit_is_ignored(
    agent: Guarded, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setenv(TIME_VARIABLE, told)
    assert said(agent, 0.0, 1e6) == ["", ""]


def test_a_stopped_session_is_notified_once(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, "interventions: {when_alone: [], progress: false}")

    def notices() -> list[str]:
        looping(agent, 19)
        told = [
            [before("Read", READ, f"n{n}"), after("Read", READ, f"n{n}", "the same")]
            for n in range(4)
        ]
        events = [event for pair in told for event in pair]
        errands = [errand for event in events for errand in with_errands(agent, event)]
        return [errand.notice for errand in errands if errand.notice]

    [notice] = notices()
    assert notice.startswith("Switchgear stopped session s1: ")
    assert "switchgear reset s1 --why TEXT" in notice
    agent.hear(claude("UserPromptSubmit", prompt="go on"))
    assert len(notices()) == 1, "it was stopped again"


@pytest.mark.parametrize(
    ("agent", "line", "headless"),
    [
        ("claude-code", "claude -p fix", True),
        ("claude-code", "claude", False),
        ("codex", "codex exec fix", True),
        ("gemini", "gemini --prompt fix", True),
        ("opencode", "opencode run fix", True),
        ("opencode", "opencode", False),
        ("pi", "pi --print fix", True),
    ],
)
def test_a_headless_agent_is_identified_by_its_command_line(
    agent: str, line: str, *, headless: bool
) -> None:
    assert is_headless(agent, line.split()) is headless
