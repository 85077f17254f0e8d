"""Rounds: sessions without a watcher of their own are looked at by whoever runs anyway."""

import os
from pathlib import Path

import pytest

from switchgear.core.detectors import Silence
from switchgear.core.types import Signal, Tell
from switchgear.hooks import rounds
from switchgear.hooks.rounds import Rounds
from switchgear.hooks.sessions import Notes
from switchgear.hooks.watching import GONE_S, Look, at_work, look_for_a_watcher
from switchgear.ladder import Climb
from switchgear.stores.base import Transaction
from unit.hook_calls import Guarded, batch

WORKS = Look(Notes(works=True), every_s=5.0)


class Walk:
    """Rounds over looks that are given, and what they did."""

    def __init__(self, **looks: Look | Exception) -> None:
        self.looks = looks
        self.seen: list[str] = []
        self.helped: list[tuple[str, str]] = []
        self.found: list[str] | Exception = []
        self.rounds = Rounds(self._look, lambda *about: self.helped.append(about), self._find)

    def _find(self) -> list[str]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def _look(self, session: str) -> Look:
        self.seen.append(session)
        found = self.looks[session]
        if isinstance(found, Exception):
            raise found
        return found

    def at(self, now_s: float) -> list[str]:
        """Whom a round at this time looks at."""
        self.seen = []
        self.rounds.tick(now_s)
        thread = self.rounds._under_way
        if thread is not None:
            thread.join()
        return self.seen


def test_a_session_is_looked_at_as_often_as_it_asks() -> None:
    walk = Walk(a=WORKS)
    walk.rounds.add("a")
    assert [walk.at(now_s) for now_s in (0.0, 4.0, 5.0)] == [["a"], [], ["a"]]


def test_a_session_that_is_over_is_let_go() -> None:
    walk = Walk(a=Look(Notes(ended=True)), b=Look(Notes(), known=False))
    walk.rounds.add("a")
    walk.rounds.add("b")
    assert walk.at(0.0) == ["a", "b"]
    assert walk.at(1e9) == []


def test_the_trouble_of_one_session_is_not_that_of_another() -> None:
    walk = Walk(a=OSError("gone"), b=WORKS)
    walk.rounds.add("a")
    walk.rounds.add("b")
    assert walk.at(0.0) == ["a", "b"]
    assert walk.at(100.0) == ["a", "b"]


def test_help_is_called_with_the_evidence() -> None:
    stopped = Look(Notes(works=True, stop="what is known"), taken=Climb("escalate", ()))
    walk = Walk(a=stopped)
    walk.rounds.add("a")
    walk.at(0.0)
    assert walk.helped == [("a", "what is known")]


def test_sessions_are_looked_for_now_and_then() -> None:
    walk = Walk(a=WORKS, b=WORKS)
    walk.found = ["a"]
    assert walk.at(0.0) == ["a"]
    walk.found = ["a", "b"]
    assert walk.at(5.0) == ["a"]
    assert walk.at(rounds.FIND_S) == ["a", "b"]


def test_a_store_that_cannot_be_asked_is_asked_again() -> None:
    walk = Walk(a=WORKS)
    walk.found = OSError("gone")
    assert walk.at(0.0) == []
    walk.found = ["a"]
    assert walk.at(rounds.FIND_S) == ["a"]


# Which sessions are looked at


def session(agent: Guarded, silent_s: float, watcher: int | None = 0) -> Look:
    """A look at a session that worked, and was silent then."""
    agent.call("Bash", {"command": "make"})
    agent.hear(batch(("Bash", {"command": "make"}, "t")))

    def note(tx: Transaction) -> None:
        tx.note = Notes.load(tx.note)._replace(watcher=watcher, works=True).dump()

    agent.store.transact("session/s1", note)
    agent.clock.advance(silent_s)
    policy = agent.known.policy_for("session/s1")
    return look_for_a_watcher(agent.store, "s1", policy, agent.known.interventions)


def silence(agent: Guarded) -> float:
    found = agent.store.get("session/s1")
    assert found is not None
    [at] = [n for n, each in enumerate(found.policy.detectors) if isinstance(each, Silence)]
    return found.policy.detectors[at].heat(found.circuit.memories[at], agent.clock())


@pytest.fixture
def agent(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def test_a_silence_that_nobody_else_tells_is_told(agent: Guarded) -> None:
    assert not session(agent, 90.0).ends
    assert 0.7 < silence(agent) < 0.8


def test_a_session_whose_watcher_lives_is_left_to_it(agent: Guarded) -> None:
    assert session(agent, 90.0, watcher=os.getpid()).ends
    assert silence(agent) == 0.0


def test_an_agent_that_was_not_heard_of_for_an_hour_is_gone(agent: Guarded) -> None:
    assert session(agent, GONE_S + 1.0).ends
    assert silence(agent) == 0.0


def test_sessions_at_work_are_known_by_their_circuits(agent: Guarded) -> None:
    session(agent, 1.0)
    agent.store.apply(
        "session/s1/agent/a", agent.known.policy_for("session/x"), Tell(Signal()), 1e9
    )
    agent.store.apply("op/shell", agent.known.policy_for("op/shell"), Tell(Signal(ok=True)), 1e9)
    assert at_work(agent.store) == ["s1"]
    agent.clock.advance(GONE_S)
    assert at_work(agent.store) == []


def test_the_sessions_are_bounded() -> None:
    walk = Walk()
    for number in range(rounds.LONGEST + 5):
        walk.rounds.add(str(number))
    walk.looks = {str(number): WORKS for number in range(rounds.LONGEST + 5)}
    assert walk.at(0.0) == [str(number) for number in range(5, rounds.LONGEST + 5)]
