"""Sessions without a watcher are checked by any process that runs."""

import os
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.hook_protocol import WorkAfterReply
from switchgear._agents.registry import dialect_of
from switchgear._core.types import Record, Signal
from switchgear._detectors import Silence
from switchgear._hooks import session_check
from switchgear._hooks.decide import decide
from switchgear._hooks.session import Notes, folder_id
from switchgear._hooks.session_check import (
    ENDED_AFTER_S,
    CheckResult,
    SessionChecks,
    active_sessions,
    check_unwatched_session,
    check_watched_session,
)
from switchgear._stores.base import Transaction
from switchgear._stuck.escalation import StepTaken
from unit.hook_calls import Guarded, batch, before, claude

WORKS = CheckResult(Notes(works=True), next_check_s=5.0)


class Walk:
    """Rounds over given session checks, and their effects."""

    def __init__(self, **looks: CheckResult | Exception) -> None:
        self.looks = looks
        self.seen: list[str] = []
        self.helped: list[tuple[str, str]] = []
        self.found: list[str] | Exception = []
        self.checks = SessionChecks(
            self._look, lambda *about: self.helped.append(about), self._find
        )

    def _find(self) -> list[str]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def _look(self, session: str) -> CheckResult:
        self.seen.append(session)
        found = self.looks[session]
        if isinstance(found, Exception):
            raise found
        return found

    def at(self, now_s: float) -> list[str]:
        """The sessions that a round at this time checks."""
        self.seen = []
        self.checks.start_due(now_s)
        thread = self.checks._thread
        if thread is not None:
            thread.join()
        return self.seen


def test_a_session_is_checked_when_it_is_due() -> None:
    walk = Walk(a=WORKS)
    walk.checks.add("a")
    assert [walk.at(now_s) for now_s in (0.0, 4.0, 5.0)] == [["a"], [], ["a"]]


def test_a_session_that_is_over_is_no_longer_checked() -> None:
    walk = Walk(a=CheckResult(Notes(ended=True)), b=CheckResult(Notes(), is_responsible=False))
    walk.checks.add("a")
    walk.checks.add("b")
    assert walk.at(0.0) == ["a", "b"]
    assert walk.at(1e9) == []


def test_an_error_of_one_session_does_not_affect_another() -> None:
    walk = Walk(a=OSError("gone"), b=WORKS)
    walk.checks.add("a")
    walk.checks.add("b")
    assert walk.at(0.0) == ["a", "b"]
    assert walk.at(100.0) == ["a", "b"]


def test_the_escalation_agent_is_started_with_the_evidence() -> None:
    stopped = CheckResult(Notes(works=True, stop="what is known"), taken=StepTaken("escalate", ()))
    walk = Walk(a=stopped)
    walk.checks.add("a")
    walk.at(0.0)
    assert walk.helped == [("a", "what is known")]


def test_sessions_are_searched_at_intervals() -> None:
    walk = Walk(a=WORKS, b=WORKS)
    walk.found = ["a"]
    assert walk.at(0.0) == ["a"]
    walk.found = ["a", "b"]
    assert walk.at(5.0) == ["a"]
    assert walk.at(session_check.SEARCH_EVERY_S) == ["a", "b"]


def test_a_store_that_cannot_be_read_is_read_again() -> None:
    walk = Walk(a=WORKS)
    walk.found = OSError("gone")
    assert walk.at(0.0) == []
    walk.found = ["a"]
    assert walk.at(session_check.SEARCH_EVERY_S) == ["a"]


# Which sessions are looked at


def session(agent: Guarded, silent_s: float, root: str | None = None, **noted: Any) -> CheckResult:
    """Check a session that worked and then was silent."""
    agent.call("Bash", {"command": "make"})
    agent.hear(batch(("Bash", {"command": "make"}, "t")))

    def note(tx: Transaction) -> None:
        tx.note = Notes.load(tx.note)._replace(**{"works": True, **noted}).dump()

    agent.store.transact("session/s1", note)
    agent.clock.advance(silent_s)
    policy = agent.known.policy_for("session/s1")
    return check_unwatched_session(agent.store, "s1", policy, agent.known.interventions, root)


def notes_of(agent: Guarded) -> Notes:
    return agent.store.transact("session/s1", lambda tx: Notes.load(tx.note))


def stuck_and_only_told(folder: Path, config: str = "") -> Guarded:
    """An agent that repeats itself and then is silent, checked by a watcher that takes no step."""
    careful = 'circuits: [{match: "progress/*", policy: careful}]\n'  # six equal calls alone go on
    agent = Guarded(folder, config + careful)
    for number in range(6):
        agent.call("Read", {"file_path": "a"}, str(number))
    agent.clock.advance(130.0)
    policy = agent.known.policy_for("session/s1")
    looked = check_unwatched_session(agent.store, "s1", policy)
    assert agent.phase("session/s1") == "open"
    assert looked.taken is None
    return agent


def silence(agent: Guarded) -> float:
    found = agent.store.get("session/s1")
    assert found is not None
    [at] = [n for n, each in enumerate(found.policy.detectors) if isinstance(each, Silence)]
    return found.policy.detectors[at].heat(found.circuit.memories[at], agent.clock())


@pytest.fixture
def agent(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def test_a_silence_without_another_watcher_is_recorded(agent: Guarded) -> None:
    assert not session(agent, 90.0).ends
    assert 0.7 < silence(agent) < 0.8


def test_a_session_with_a_live_watcher_is_not_checked(agent: Guarded) -> None:
    assert session(agent, 90.0, watcher=os.getpid()).ends
    assert silence(agent) == 0.0


def test_a_session_whose_watcher_ended_is_checked(agent: Guarded) -> None:
    assert not session(agent, 90.0, watcher=2**22 + 1).ends
    assert silence(agent) > 0.7


def test_a_session_watched_on_another_host_is_not_checked(agent: Guarded) -> None:
    assert session(agent, 90.0, watcher=2**22 + 1, host="elsewhere").ends
    assert silence(agent) == 0.0


def test_a_session_of_another_host_without_a_watcher_is_checked(agent: Guarded) -> None:
    assert not session(agent, 90.0, watcher=0, host="elsewhere").ends
    assert silence(agent) > 0.7


def test_a_session_that_is_over_is_not_silent(agent: Guarded) -> None:
    assert session(agent, 90.0, ended=True, limit_s=1.0).ends
    policy = agent.known.policy_for("session/s1")
    assert check_watched_session(agent.store, "s1", policy, agent.known.interventions).ends
    assert silence(agent) == 0.0
    assert notes_of(agent).stop is None


def test_session_checks_leave_the_interrupt_to_the_watcher(agent: Guarded) -> None:
    looked = session(agent, 90.0, limit_s=60.0)
    assert not looked.interrupts
    assert notes_of(agent).stop is None
    policy = agent.known.policy_for("session/s1")
    assert check_watched_session(agent.store, "s1", policy, agent.known.interventions).interrupts


@pytest.mark.parametrize("own", [True, False])
def test_only_sessions_of_the_named_project_are_checked(
    agent: Guarded, tmp_path: Path, *, own: bool
) -> None:
    (tmp_path / "other").mkdir()
    folder = agent.known.root if own else str(tmp_path / "other")
    assert session(agent, 90.0, folder_id(folder)).ends is not own
    assert (silence(agent) > 0.0) is own


def test_a_watcher_takes_no_step_and_reports_nothing(tmp_path: Path) -> None:
    agent = stuck_and_only_told(tmp_path)
    notes = notes_of(agent)
    assert (notes.pending, notes.stop, notes.tried) == ((), None, ())


def test_the_next_hook_takes_the_step_that_was_left(tmp_path: Path) -> None:
    agent = stuck_and_only_told(tmp_path)
    ruling = agent.hear(before("Read"))
    assert ruling.action == "warn"
    assert "AGENT APPEARS STUCK" in ruling.text
    assert "no tool call for 130 s" in ruling.text
    assert "STUCK" not in agent.hear(before("Read")).text, "once"


def test_a_pending_escalation_agent_is_started_in_the_project_of_the_session(
    tmp_path: Path,
) -> None:
    agent = stuck_and_only_told(
        tmp_path, "interventions: {when_alone: [escalate], escalate: codex}\n"
    )
    errands: list[WorkAfterReply] = []
    facts, warns = agent.facts(before("Read")), dialect_of(agent.agent).warns
    assert decide(facts, agent.known, agent.store, warns, errands).action == "stop"
    assert [(each.root, each.escalate, bool(each.evidence)) for each in errands] == [
        (str(tmp_path), "codex", True)
    ]


def test_no_step_is_taken_when_an_operator_has_resumed_the_agent(tmp_path: Path) -> None:
    agent = stuck_and_only_told(tmp_path)
    agent.hear(claude("UserPromptSubmit", prompt="go on"))
    assert agent.hear(before("Read")).action == "allow"
    assert agent.store.get("ladder/session/s1") is None


def test_an_agent_without_events_for_an_hour_counts_as_ended(agent: Guarded) -> None:
    assert session(agent, ENDED_AFTER_S + 1.0).ends
    assert silence(agent) == 0.0


def test_a_silence_limit_of_hours_is_watched_for_as_long(tmp_path: Path) -> None:
    agent = Guarded(
        tmp_path,
        "circuits: [{match: session/*, policy: {detectors: [silence: {limit_s: 7200}]}}]\n",
    )
    assert not session(agent, 7000.0).ends
    agent.clock.advance(7000.0)
    assert active_sessions(agent.store) == ["s1"]
    policy = agent.known.policy_for("session/s1")
    assert not check_unwatched_session(agent.store, "s1", policy).ends
    assert agent.phase("session/s1") == "open"
    agent.clock.advance(401.0)
    assert check_unwatched_session(agent.store, "s1", policy).ends


def test_active_sessions_are_found_by_their_circuits(agent: Guarded) -> None:
    session(agent, 1.0)
    agent.store.apply(
        "session/s1/agent/a", agent.known.policy_for("session/x"), Record(Signal()), 1e9
    )
    agent.store.apply("op/shell", agent.known.policy_for("op/shell"), Record(Signal(ok=True)), 1e9)
    assert active_sessions(agent.store) == ["s1"]
    agent.clock.advance(ENDED_AFTER_S)
    assert active_sessions(agent.store) == []


def test_the_sessions_are_bounded() -> None:
    walk = Walk()
    for number in range(session_check.MAX_SESSIONS + 5):
        walk.checks.add(str(number))
    walk.looks = {str(number): WORKS for number in range(session_check.MAX_SESSIONS + 5)}
    assert walk.at(0.0) == [str(number) for number in range(5, session_check.MAX_SESSIONS + 5)]
