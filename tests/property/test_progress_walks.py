"""Long random histories of agents: after each step a detector agrees with the full history.

Few words, files, errors and states, so that all of them come again and again, in every order.
"""

from random import Random
from typing import Any

import pytest

from property import naive_debts, naive_stagnation
from switchgear import _detectors
from switchgear._core.types import AgentStep, Signal

WALKS = range(40)
STEPS = 50
ARGS = (
    *("ls src", "ls lib", "sed -n 1,9p a.py", "sed -n 20,30p a.py", "make 1", "make all 22"),
    *("a.py\nx = 1", "b.py\nx = 2", "grep parser src/a.py", "grep lexer src/a.py", "", "pytest"),
    "notes.md one two three four five six seven eight nine",
    *("touch x1", "touch y", "note z", "note q"),
)
RESULTS = (
    *(None, None, "", "  \n", "ok", "one\ntwo\nthree", "two\nthree\nfour", "12:00:01 one\ntwo"),
    *(
        "job cb45b7 is lost",
        "job 8d1f0a is lost",
        "port 81 is taken by a7x",
        "port 9 is taken by b2",
    ),
    *("took 3.5 s\none", "took 9 s\none", "five\nsix", "five\nsix\nseven\neight"),
)
THOUGHTS = (
    *(None, None, "no", "look again", "look at parser", "look at the parser now"),
    *("look at the lexer now", "the parser fails again and again", "build all of it first"),
    *("perhaps other people know more about those three tests",),
)
ERRORS = (None, None, "exit code 1", "exit code 2", "no such file /a", "no such file /b", "denied")
STATES = (None, None, None, "s1", "s2", "s3", "s4")
TESTS = (None, None, None, "", "test_a", "test_a test_b", "test_c")
CONTEXTS = (None, None, None, None, None, None, 0.9, 0.5, 0.46, 0.45, 0.25, 0.1)


def signal(chance: Random) -> Signal:
    ok = chance.choice((None, True, True, False, False, False))
    act = AgentStep(
        chance.choice(("bash", "bash", "bash", "edit", "")),
        chance.choice(ARGS),
        chance.choice(RESULTS),
        chance.choice(THOUGHTS),
    )
    return Signal(
        ok=ok,
        error=None if ok else chance.choice(ERRORS),
        step=act if chance.random() < 0.9 else None,
        state=chance.choice(STATES),
        failing_tests=chance.choice(TESTS),
        context_used=chance.choice(CONTEXTS),
        count=chance.choice((1, 1, 1, 1, 2, 3)),
    )


def configured(kind: type[Any], chance: Random) -> Any:
    """The detector with its defaults, or with other numbers."""
    more = {
        "limit": chance.choice((1.5, 3.0, 6.0)),
        "usual": chance.choice((0.1, 0.25, 0.5)),
        "credit": chance.choice((0.05, 0.1, 0.3, 1.0)),
        "remember": chance.choice((1, 2, 8)),
    }
    fields = kind.__slots__
    chosen = {name: value for name, value in more.items() if name in fields}
    return kind(**chosen) if chance.random() < 0.7 else kind()


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(
    ("kind", "tell"),
    [
        (_detectors.RepeatedThoughts, naive_debts.words),
        (_detectors.RepeatedActions, naive_debts.actions),
        (_detectors.RepeatedErrors, naive_debts.errors),
        (_detectors.IdleTalk, naive_debts.talk),
    ],
    ids=lambda part: getattr(part, "kind", ""),
)
def test_a_score_equals_that_of_the_full_history(kind: type[Any], tell: Any, walk: int) -> None:
    chance = Random(f"{kind.kind} {walk}")
    detector, story = configured(kind, chance), naive_debts.Story()
    memory, history = detector.start(), list[tuple[float, Signal]]()
    for _ in range(STEPS):
        history.append((0.0, signal(chance)))
        memory = detector.fold(memory, history[-1][1], 0.0)
        naive_debts.hear(tell, detector, story, history[-1][1])
        expected = naive_debts.reading_of(detector, story)
        assert detector.heat(memory, 0.0) == expected.heat, history
        assert detector.reason(memory, 0.0) == expected.reason, history
        memory = detector.load(detector.dump(memory))


@pytest.mark.parametrize("walk", WALKS)
def test_stagnation_agrees_with_the_full_history(walk: int) -> None:
    chance = Random(walk)
    detector = _detectors.Stagnation(chance.choice((1.5, 3.0, 9.0)))
    memory, told = detector.start(), naive_stagnation.Told()
    for _ in range(4 * STEPS):
        heard = signal(chance)
        memory = detector.fold(memory, heard, 0.0)
        naive_stagnation.tell(detector, told, heard)
        expected = naive_stagnation.reading_of(detector, told)
        assert detector.heat(memory, 0.0) == expected.heat
        assert detector.reason(memory, 0.0) == expected.reason
        memory = detector.load(detector.dump(memory))


def test_a_new_file_earns_nothing_while_a_result_goes_up_and_down() -> None:
    detector, told = _detectors.Stagnation(), naive_stagnation.Told()
    polls = [AgentStep("bash", "poll", f"value {number}") for number in (1, 5, 3, 2, 4, 3, 2)]
    memory, points = detector.start(), list[int]()
    for act in (*polls, AgentStep("bash", "src/new.py", "value 3")):
        memory = detector.fold(memory, Signal(ok=True, step=act), 0.0)
        naive_stagnation.tell(detector, told, Signal(ok=True, step=act))
        assert detector.heat(memory, 0.0) == naive_stagnation.reading_of(detector, told).heat
        points.append(memory.points)
    assert min(points[-2:]) > 0
