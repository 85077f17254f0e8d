"""The server's rounds: sessions whose hooks come over HTTP are watched by it."""

from switchgear.hooks import rounds
from switchgear.hooks.rounds import Rounds
from switchgear.hooks.sessions import Notes
from switchgear.hooks.watching import Look
from switchgear.ladder import Climb

WORKS = Look(Notes(works=True), every_s=5.0)


class Walk:
    """Rounds over looks that are given, and what they did."""

    def __init__(self, **looks: Look | Exception) -> None:
        self.looks = looks
        self.seen: list[str] = []
        self.helped: list[tuple[str, str]] = []
        self.rounds = Rounds(self._look, lambda *about: self.helped.append(about))

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


def test_the_sessions_are_bounded() -> None:
    walk = Walk()
    for number in range(rounds.LONGEST + 5):
        walk.rounds.add(str(number))
    walk.looks = {str(number): WORKS for number in range(rounds.LONGEST + 5)}
    assert walk.at(0.0) == [str(number) for number in range(5, rounds.LONGEST + 5)]
