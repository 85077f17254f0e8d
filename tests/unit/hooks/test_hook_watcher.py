"""The watcher of a session: when it ends, whom it stops, whom it calls for help."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from switchgear._agents.hook_protocol import Moment
from switchgear._hooks import session, session_watcher
from switchgear._hooks.host_id import here
from switchgear._hooks.session import Notes
from switchgear._hooks.session_check import Look
from switchgear._hooks.session_watcher import Agent, Watcher
from switchgear._stores.base import Transaction
from switchgear._stores.memory import MemoryStore
from switchgear._stuck.escalation import StepTaken
from switchgear.testing import FakeClock


class FakeAgent(Agent):
    """A process that only remembers its signals."""

    signals: list[signal.Signals] = []  # noqa: RUF012  set anew by each test
    alive = True

    @property
    def lives(self) -> bool:
        return type(self).alive

    def send(self, number: signal.Signals) -> None:
        self.signals.append(number)


@pytest.fixture
def agent() -> FakeAgent:
    FakeAgent.signals, FakeAgent.alive = [], True
    return FakeAgent(1, "")


WORKS = Notes(works=True, heard_s=5.0)
OVER = Look(WORKS._replace(ended=True))


def watched(agent: FakeAgent, *looks: Look | Exception) -> tuple[str, list[str], float]:
    """Why a watcher of these looks ended, the help it called, and how much time passed."""
    clock, left, helped = FakeClock(0.0), list(looks), list[str]()

    def look() -> Look:
        found = left.pop(0) if left else OVER
        if isinstance(found, Exception):
            raise found
        return found

    why = Watcher(look, agent, help_=helped.append, clock=clock, sleep=clock.advance).run()
    return why, helped, clock()


def test_it_ends_with_the_session(agent: FakeAgent) -> None:
    assert watched(agent, Look(WORKS), Look(WORKS)) == ("the session is over", [], 10.0)
    assert watched(agent, Look(Notes(), known=False))[0] == "the session is over"


def test_it_ends_with_the_agent(agent: FakeAgent) -> None:
    FakeAgent.alive = False
    assert watched(agent)[0] == "the agent is gone"


def test_it_ends_after_a_day(agent: FakeAgent) -> None:
    assert watched(agent, *[Look(WORKS, every_s=5000.0)] * 30)[0] == "it has watched for a day"


def test_a_store_that_is_gone_for_a_while_is_asked_again(agent: FakeAgent) -> None:
    gone = [OSError("gone")] * (session_watcher.MOST_FAILURES - 1)
    assert watched(agent, *gone)[0] == "the session is over"
    assert watched(agent, *gone, OSError("gone"))[0] == "the store cannot be asked"


def test_an_agent_that_must_stop_is_interrupted_and_ended_if_it_stays_silent(
    agent: FakeAgent,
) -> None:
    watched(agent, Look(WORKS, interrupts=True), *[Look(WORKS)] * 5)
    assert agent.signals == [signal.SIGINT, signal.SIGTERM]


def test_an_agent_that_obeys_is_not_ended(agent: FakeAgent) -> None:
    rests = WORKS._replace(works=False)
    watched(agent, Look(WORKS, interrupts=True), *[Look(rests)] * 5)
    assert agent.signals == [signal.SIGINT]


def test_help_is_called_with_the_evidence(agent: FakeAgent) -> None:
    stopped = WORKS._replace(stop="what is known")
    _, helped, _ = watched(agent, Look(stopped, taken=StepTaken("escalate", ("nudge",))))
    assert helped == ["what is known"]


def test_a_process_that_has_another_ones_number_is_another() -> None:
    me = Agent.of(os.getpid())
    assert me.lives
    assert not Agent(os.getpid(), "long ago").lives
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    found = Agent.of(gone.pid)
    gone.wait()
    assert not found.lives


def test_only_one_watches_a_session(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert session_watcher._alone(path)
    command = (
        f"from switchgear._hooks import session_watcher as watcher; print(watcher._alone({path!r}))"
    )
    words = [sys.executable, "-c", command]
    other = subprocess.run(words, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "False"


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


def test_a_watcher_that_lives_is_enough() -> None:
    assert not session.needs_watcher(Notes(watcher=os.getpid(), host=here()), Moment.PROMPT)


def test_a_session_that_goes_on_elsewhere_gets_a_watcher_there() -> None:
    notes = Notes(watcher=os.getpid(), host="one")
    stays = session.attend(notes, Moment.AFTER_TOOL, 5.0, host="one")
    moves = session.attend(notes, Moment.AFTER_TOOL, 5.0, host="another")
    assert not session.needs_watcher(stays, Moment.AFTER_TOOL)
    assert session.needs_watcher(moves, Moment.AFTER_TOOL)


@pytest.mark.parametrize(("other", "over"), [(None, True), (0, False), (1, False)])
def test_a_watcher_whose_agent_is_gone_ends_the_session_unless_another_watches(
    other: int | None, *, over: bool
) -> None:
    store, noted = MemoryStore(), os.getpid() if other is None else other

    def begin(tx: Transaction) -> None:
        tx.note = Notes(watcher=noted, works=True).dump()

    store.transact("session/s1", begin)
    store.transact("session/s1", session_watcher._gone)
    notes = store.transact("session/s1", lambda tx: Notes.load(tx.note))
    assert notes.ended is over
    assert notes.watcher == (None if over else noted)
