"""The stuck probability: what raises it, what calms it, what it refuses to be."""

import math

import pytest

from switchgear._core.types import AgentStep, Signal
from switchgear._detectors.stuck_probability import (
    FEATURES,
    StuckProbability,
    Trail,
    moved_on,
    probability,
    shows,
)

AGAIN = AgentStep("bash", "make test", "1 failed", "Let me run the tests once more")
NONE = dict.fromkeys(FEATURES, 0.0)


def after(*signals: Signal) -> Trail:
    detector = StuckProbability()
    memory = detector.start()
    for signal in signals:
        memory = detector.fold(memory, signal, 0.0)
    return memory


def shown_by(*signals: Signal) -> dict[str, float]:
    """What the last of them shows."""
    shown, _ = shows(after(*signals[:-1]).book, signals[-1])
    return dict(zip(FEATURES, shown, strict=True))


def test_a_first_step_shows_nothing_but_that_it_failed() -> None:
    assert shown_by(Signal(ok=False, error="no", step=AGAIN)) == {**NONE, "errors": 1.0}
    assert shown_by(Signal(ok=True, step=AGAIN)) == NONE


def test_the_same_failing_step_again_shows_everything_but_silence_and_talk() -> None:
    again = Signal(ok=False, error="no", step=AGAIN)
    assert shown_by(again, again) == {**dict.fromkeys(FEATURES, 1.0), "silence": 0.0, "talk": 0.0}


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (AgentStep("bash", "cat other", "1 failed", "Something else"), {"known_output": 1.0, "habit": 1 / 3}),
        (AgentStep("bash", "make all", "1 failed\nnew", None), {"known_output": 0.5, "habit": 2 / 3}),
        (AgentStep("read", "parser", "", None), {"silence": 1.0}),
        (AgentStep("bash", "make test", None, None), {"repeats": 1.0, "known_output": 1.0, "silence": 1.0, "habit": 1.0}),
        (AgentStep("", "", None, "Let me run the tests once again"), {"talk": 1.0, "echo": 5 / 7}),
        (AgentStep("", "Let me run the tests once more"), {"talk": 1.0, "echo": 1.0}),
    ],
)  # fmt: skip
def test_what_a_step_shares_with_those_before_is_shown(
    act: AgentStep, expected: dict[str, float]
) -> None:
    found = shown_by(Signal(ok=True, step=AGAIN), Signal(ok=True, step=act))
    assert found == pytest.approx({**NONE, **expected}, abs=0.005)


def test_another_error_is_no_same_error() -> None:
    first = Signal(ok=False, error="no such file", step=AGAIN)
    other = Signal(ok=False, error="division by zero", step=AGAIN)
    assert shown_by(first, other)["same_errors"] == 0.0
    assert shown_by(first, other, first)["same_errors"] == 1.0


def test_each_step_counts_a_tenth_of_the_averages() -> None:
    failed = Signal(ok=False, error="no", step=AGAIN)
    errors = [after(*[failed] * count).averages[0] for count in (0, 1, 2, 3)]
    assert errors == pytest.approx([0.0, 0.1, 0.19, 0.271])


def test_new_work_calms_it() -> None:
    detector = StuckProbability()
    memory = detector.fold(
        detector.start(), Signal(ok=False, error="no", step=AGAIN, count=30), 0.0
    )
    assert detector.heat(memory, 0.0) > 1.1
    for number in range(12):
        word = "abcdefghijklm"[number] * 5
        act = AgentStep(
            "edit", f"{word} {word}{word}", f"{word} saved", f"Next {word} now {word}{word}"
        )
        memory = detector.fold(memory, Signal(ok=True, step=act), 0.0)
    assert detector.heat(memory, 0.0) < 0.7


def test_the_model_is_a_logistic_function() -> None:
    assert probability(0.0, (1.0,), (0.0,)) == 0.5
    assert probability(-1.0, (2.0, -3.0), (1.0, 0.5)) == pytest.approx(1 / (1 + math.exp(0.5)))
    assert probability(1e9, (), ()) == pytest.approx(1.0)
    assert probability(-1e9, (), ()) == pytest.approx(0.0, abs=1e-20)


def test_a_million_equal_steps_cost_no_more_than_those_that_change_something() -> None:
    detector = StuckProbability()
    often = Signal(ok=False, error="no", step=AGAIN, count=10**9)
    memory = detector.fold(detector.start(), often, 0.0)
    assert detector.fold(memory, often, 0.0) == memory
    assert memory.averages[0] == pytest.approx(1.0)


def test_the_reason_names_what_speaks_most_for_it() -> None:
    detector = StuckProbability(0.8, -2.0, **{**NONE, "errors": 5.0, "talk": 4.0})
    memory = detector.fold(
        detector.start(), Signal(ok=False, step=AgentStep("", "", None, "no")), 0.0
    )
    said = "stuck with a probability of 25 % (threshold 80 %): errors 10 %, talk 10 %"
    assert detector.reason(memory, 0.0) == said


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"bias": 3.0}, "bias is 3.0: it must be so low that nothing at all does not trip"),
        ({"bias": -40.0}, "threshold is 0.9: it must be so low that a step repeated for ever"),
        ({"threshold": 1.0}, "threshold is 1.0: it must be above 0 and below 1"),
        ({"threshold": 0.0}, "threshold is 0.0: it must be above 0 and below 1"),
        ({"echo": math.nan}, "echo is nan: it must be a finite number"),
    ],
)
def test_a_model_that_trips_at_once_or_never_is_refused(
    fields: dict[str, float], rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        StuckProbability(**fields)


def test_a_loop_of_talk_alone_is_enough_to_be_able_to_fire() -> None:
    weights = {**NONE, "talk": 5.0, "echo": 5.0}
    detector = StuckProbability(0.9, -5.0, **weights)
    talk = Signal(step=AgentStep("", "", None, "I am done, as I said before"), count=80)
    assert detector.heat(detector.fold(detector.start(), talk, 0.0), 0.0) >= 1.0


def test_its_numbers_to_begin_with() -> None:
    assert StuckProbability().fields() == {
        "threshold": 0.9,
        "bias": -4.0,
        "errors": 1.0,
        "same_errors": 2.0,
        "repeats": 3.0,
        "known_output": 2.0,
        "silence": 0.0,
        "talk": 1.0,
        "echo": 3.0,
        "habit": 1.0,
    }


def test_at_the_threshold_itself_nothing_at_all_would_trip() -> None:
    with pytest.raises(ValueError, match=r"bias is 0\.0: it must be so low"):
        StuckProbability(0.5, 0.0)


def test_a_loop_that_only_comes_up_to_the_threshold_is_not_enough() -> None:
    with pytest.raises(ValueError, match=r"threshold is 0\.5: it must be so low"):
        StuckProbability(0.5, -1.0, **{**NONE, "habit": 1.0})
    assert StuckProbability(0.5, -1.0, **{**NONE, "habit": 1.1}).threshold == 0.5


def test_a_trail_is_loaded_with_full_averages_and_owes_nothing() -> None:
    detector = StuckProbability()
    averages, book = detector.dump(after(Signal(ok=True, step=AGAIN)))
    loaded = detector.load([[1.0] * len(FEATURES), [5, *book[1:]]])
    assert loaded.averages == (1.0,) * len(FEATURES)
    assert loaded.book.points == 0
    assert len(averages) == len(FEATURES)


def test_the_least_probability_is_that_of_a_score_of_sixty() -> None:
    assert probability(-1e9, (), ()) == 1.0 / (1.0 + math.exp(60.0))
    assert probability(1e9, (), ()) == 1.0


def test_one_step_moves_on_as_the_detector_does() -> None:
    steps = [Signal(ok=False, error="no", step=AGAIN)] * 3
    moved = Trail()
    for step in steps:
        moved = moved_on(moved, step)
    assert moved == after(*steps) != Trail()
