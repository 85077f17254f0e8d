"""The sessions that the resident process watches: when that ends, which agents are stopped or get help."""

import os
import signal
import subprocess
import sys

import pytest

from switchgear._agents.hook_protocol import Moment
from switchgear._hooks import session, session_check
from switchgear._hooks.session import Notes, host_id
from switchgear._hooks.session_check import (
    CheckedSession,
    CheckResult,
    WatchedProcess,
    WatchedSession,
    check_and_act,
)
from switchgear._stores.base import Transaction
from switchgear._stores.memory import MemoryStore
from switchgear._stuck.escalation import StepTaken


class FakeAgent(WatchedProcess):
    """A process that only remembers its signals."""

    signals: list[signal.Signals] = []  # noqa: RUF012  set anew by each test
    alive = True

    @property
    def is_running(self) -> bool:
        return type(self).alive

    def send(self, number: signal.Signals) -> None:
        self.signals.append(number)


@pytest.fixture
def agent() -> FakeAgent:
    FakeAgent.signals, FakeAgent.alive = [], True
    return FakeAgent(1, "")


WORKS = Notes(works=True, heard_s=5.0)
OVER = CheckResult(WORKS._replace(ended=True))


def visits(agent: FakeAgent, *looks: CheckResult | Exception) -> tuple[str, list[str], float]:
    """Why a session with these checks is no longer watched, the escalation agent it got, and when."""
    left, helped, now_s = list(looks), list[str](), 0.0

    def look(_: WatchedSession) -> CheckResult:
        found = left.pop(0) if left else OVER
        if isinstance(found, Exception):
            raise found
        return found

    done = CheckedSession(WatchedSession(agent, "/p", "s1", {}, 0.0, 0.0))
    while not done.ends:
        now_s = done.session.due_s
        done = check_and_act(done.session, now_s, look, lambda _, evidence: helped.append(evidence))
    return done.ends, helped, now_s


def test_watching_ends_with_the_session(agent: FakeAgent) -> None:
    assert visits(agent, CheckResult(WORKS), CheckResult(WORKS)) == (
        "the session is over",
        [],
        10.0,
    )
    assert visits(agent, CheckResult(Notes(), is_responsible=False))[0] == "the session is over"


def test_watching_ends_with_the_agent(agent: FakeAgent) -> None:
    FakeAgent.alive = False
    assert visits(agent)[0] == session_check.AGENT_ENDED


def test_watching_ends_after_a_day(agent: FakeAgent) -> None:
    assert (
        visits(agent, *[CheckResult(WORKS, next_check_s=5000.0)] * 30)[0]
        == "it was watched for a day"
    )


def test_a_store_that_is_gone_for_a_while_is_read_again(agent: FakeAgent) -> None:
    gone = [OSError("gone")] * (session_check.MAX_FAILURES - 1)
    assert visits(agent, *gone)[0] == "the session is over"
    assert visits(agent, *gone, OSError("gone"))[0] == "the store cannot be reached"


def test_an_agent_that_waits_for_its_user_is_looked_at_less_often(agent: FakeAgent) -> None:
    rests = WORKS._replace(works=False)
    assert (
        visits(agent, CheckResult(WORKS), CheckResult(rests), CheckResult(rests))[2]
        == 5.0 + 2 * session_check.IDLE_CHECK_S
    )


def test_an_agent_that_must_stop_is_interrupted_and_ended_if_it_stays_silent(
    agent: FakeAgent,
) -> None:
    visits(agent, CheckResult(WORKS, interrupts=True), *[CheckResult(WORKS)] * 5)
    assert agent.signals == [signal.SIGINT, signal.SIGTERM]


def test_an_agent_that_obeys_is_not_ended(agent: FakeAgent) -> None:
    rests = WORKS._replace(works=False)
    visits(agent, CheckResult(WORKS, interrupts=True), *[CheckResult(rests)] * 5)
    assert agent.signals == [signal.SIGINT]


def test_the_escalation_agent_is_started_with_the_evidence(agent: FakeAgent) -> None:
    stopped = WORKS._replace(stop="what is known")
    _, helped, _ = visits(agent, CheckResult(stopped, taken=StepTaken("escalate", ("nudge",))))
    assert helped == ["what is known"]


def test_a_process_with_a_reused_id_is_another_process() -> None:
    me = WatchedProcess.of(os.getpid())
    assert me.is_running
    assert not WatchedProcess(os.getpid(), "long ago").is_running
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    found = WatchedProcess.of(gone.pid)
    gone.wait()
    assert not found.is_running


@pytest.mark.parametrize(
    ("known", "moment", "needed"),
    [
        (None, Moment.SESSION_START, True),
        (None, Moment.AFTER_TOOL, True),
        (None, Moment.SESSION_END, False),
        (0, Moment.BEFORE_TOOL, False),
        (0, Moment.PROMPT, True),
    ],
)
def test_a_watcher_is_started_where_there_is_none(
    known: int | None, moment: Moment, *, needed: bool
) -> None:
    assert session.needs_watcher(Notes(watcher=known), moment) is needed


def test_no_second_watcher_is_started() -> None:
    assert not session.needs_watcher(Notes(watcher=os.getpid(), host=host_id()), Moment.PROMPT)


def test_a_session_that_continues_on_another_host_gets_a_watcher_there() -> None:
    notes = Notes(watcher=os.getpid(), host="one")
    stays = session.after_event(notes, Moment.AFTER_TOOL, 5.0, host="one")
    moves = session.after_event(notes, Moment.AFTER_TOOL, 5.0, host="another")
    assert not session.needs_watcher(stays, Moment.AFTER_TOOL)
    assert session.needs_watcher(moves, Moment.AFTER_TOOL)


@pytest.mark.parametrize(("other", "over"), [(None, True), (0, False), (1, False)])
def test_the_session_of_a_gone_agent_is_over_unless_another_process_watches_it(
    other: int | None, *, over: bool
) -> None:
    store, noted = MemoryStore(), os.getpid() if other is None else other

    def begin(tx: Transaction) -> None:
        tx.note = Notes(watcher=noted, works=True).dump()

    store.transact("session/s1", begin)
    store.transact("session/s1", lambda inside: session_check.end_session(inside, os.getpid()))
    notes = store.transact("session/s1", lambda tx: Notes.load(tx.note))
    assert notes.ended is over
    assert notes.watcher == (None if over else noted)
