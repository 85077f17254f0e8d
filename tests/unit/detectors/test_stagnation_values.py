"""The parts of `Stagnation`: what is kept of a step, how two results compare, the boundaries."""

from typing import Any

import pytest

from switchgear import AgentStep, Signal
from switchgear._detectors import Stagnation, stagnation
from switchgear._detectors.progress import dump
from switchgear._detectors.stagnation import Earlier, StepTrail

WORDS, LINES, OTHER = frozenset({1, 2}), frozenset({3, 4}), frozenset({8, 9})


def earlier(
    call: int = 1,
    *numbers: float,
    failed: bool = False,
    is_new: bool = False,
    words: frozenset[int] = WORDS,
    lines: frozenset[int] | None = LINES,
    shape: int = 0,
    bare: int = 0,
) -> Earlier:
    return Earlier(7, failed, shape, numbers, is_new, words, lines, call, bare)


@pytest.mark.parametrize("ids", [(1, 2), (1, 2, 3), (1, 2, 3, 4)])
def test_an_earlier_step_is_loaded_with_the_ids_that_its_version_saved(
    ids: tuple[int, ...],
) -> None:
    loaded = stagnation._load_earlier([dump(ids), True, False, [5], dump((6,)), None])
    call, bare = (*ids[2:], -1, -1)[:2]
    assert loaded == Earlier(1, True, 2, (5,), False, frozenset({6}), None, call, bare)


@pytest.mark.parametrize(
    ("ids", "failed", "is_new"),
    [
        ((1,), True, True),
        ((1, 2, 3, 4, 5), True, True),
        ((1, 2), 2, True),
        ((1, 2), True, 2),
    ],
)
def test_an_earlier_step_that_no_version_saved_is_refused(
    ids: tuple[int, ...], failed: Any, is_new: Any
) -> None:
    with pytest.raises(ValueError, match="must be the text of a step"):
        stagnation._load_earlier([dump(ids), failed, is_new, [], "", None])


def test_of_a_long_text_the_first_and_the_last_half_of_the_room_are_kept() -> None:
    numbers = tuple(range(100))
    assert stagnation._first_and_last(numbers) == frozenset({*range(32), *range(68, 100)})
    assert stagnation._first_and_last(numbers[:64]) == frozenset(range(64))
    assert stagnation._first_and_last(numbers[:65]) == frozenset(range(65)) - {32}


@pytest.mark.parametrize(("count", "counts"), [(-1, False), (0, True), (1, True)])
def test_a_thought_counts_from_the_minimum_number_of_words(count: int, *, counts: bool) -> None:
    thought = frozenset(range(stagnation.FEWEST + count))
    assert stagnation._is_compared(StepTrail(), earlier(), thought) is counts


@pytest.mark.parametrize(
    ("one", "other", "percent"),
    [
        (frozenset(), frozenset(), 100),
        (frozenset(), LINES, 0),
        (LINES, LINES, 100),
        (None, frozenset(), 0),
        (frozenset(), None, 0),
    ],
)
def test_two_empty_results_are_the_same_and_an_unknown_one_resembles_none(
    one: frozenset[int] | None, other: frozenset[int] | None, percent: int
) -> None:
    assert stagnation._result_resemblance(one, other) == percent


@pytest.mark.parametrize(
    ("before", "step", "attempt", "expected"),
    [
        # The share of the attempt counts for failures of another call only.
        ([earlier(2)], earlier(1), 50, (stagnation.AGAIN, 100)),
        ([earlier(1, failed=True)], earlier(1, failed=True), 50, (stagnation.FAILS, 100)),
        ([earlier(2, failed=True)], earlier(1, failed=True), 50, (stagnation.FAILS, 50)),
        ([earlier(2, failed=True)], earlier(1, failed=True), 0, (stagnation.EMPTY, 0)),
        # A check: a step with a new word came after the earlier failure.
        (
            [earlier(2, failed=True), earlier(3, is_new=True, lines=OTHER)],
            earlier(1, failed=True),
            0,
            (stagnation.FAILS, 100),
        ),
        (
            [earlier(3, is_new=True, lines=OTHER), earlier(2, failed=True)],
            earlier(1, failed=True),
            0,
            (stagnation.EMPTY, 0),
        ),
        ([earlier(2, is_new=True)], earlier(1, failed=True), 0, (stagnation.EMPTY, 0)),
        # A new word: no cost, and no kind of its own.
        ([earlier(2)], earlier(1, is_new=True), 100, (stagnation.EMPTY, 0)),
        # A faint resemblance, below one point, is no empty result.
        (
            [earlier(2, words=frozenset(range(50)), lines=frozenset(range(50)))],
            earlier(1, words=frozenset(range(49, 99)), lines=frozenset(range(49, 99))),
            100,
            (stagnation.AGAIN, 0),
        ),
    ],
    ids=[
        "success of another call",
        "failure of the same call",
        "failure of another call",
        "failure of another call with a new thought",
        "check after a new step",
        "check before a new step",
        "failure after a new step with its result",
        "new word",
        "faint resemblance",
    ],
)
def test_a_result_costs_what_its_strongest_sign_costs(
    before: list[Earlier], step: Earlier, attempt: int, expected: tuple[int, int]
) -> None:
    # With shapes of their own, no result counts as one that differs in its numbers only.
    steps = tuple(each._replace(shape=10 + at) for at, each in enumerate(before))
    found = stagnation._result_cost(steps, step, attempt, has_new_word=False)
    assert found == expected


@pytest.mark.parametrize(
    ("others", "step", "expected"),
    [
        (2, earlier(lines=frozenset({3})), False),
        (3, earlier(lines=frozenset({3})), True),
        (3, earlier(lines=frozenset()), False),
        (3, earlier(lines=frozenset({3, 4})), False),
        (3, earlier(lines=None), False),
        (3, earlier(lines=frozenset({3}), failed=True), False),
    ],
)
def test_a_line_that_four_different_actions_return_is_an_acknowledgement(
    others: int, step: Earlier, *, expected: bool
) -> None:
    line = frozenset({3})
    steps = tuple(earlier(2 + n, lines=line, bare=1 + n) for n in range(others))
    assert stagnation._is_acknowledgement(steps, step) is expected


@pytest.mark.parametrize(
    ("number", "expected"), [(2, True), (3, False), (4, False), (5, False), (6, True)]
)
def test_a_check_that_fails_leaves_the_range_of_its_numbers_at_both_ends(
    number: int, *, expected: bool
) -> None:
    steps = (earlier(1, 5, failed=True), earlier(1, 3, failed=True), earlier(2))
    assert stagnation._has_left_range(steps, earlier(1, number, failed=True)) is expected


@pytest.mark.parametrize(
    ("before", "number", "expected"),
    [
        ((4,), 4, False),
        ((4, 4), 4, True),
        ((5, 3), 4, True),
        ((3, 5), 4, True),
        ((3, 5), 6, False),
        ((5, 3), 2, False),
    ],
)
def test_a_number_is_within_the_range_of_at_least_two_earlier_ones(
    before: tuple[int, ...], number: int, *, expected: bool
) -> None:
    steps = tuple(earlier(1, each) for each in before)
    assert stagnation._is_within_range(steps, earlier(1, number)) is expected


def test_tests_that_ran_in_an_unknown_state_do_not_make_an_edit_useless() -> None:
    first, second = (Signal(ok=False, failing_tests="a", state=each) for each in ("1", "2"))
    memory = stagnation._note_state(StepTrail(), Signal(ok=False, failing_tests="a"))
    assert stagnation._files_and_tests(memory, first) == ({}, 0)
    memory = stagnation._note_state(memory, first)
    costs = {stagnation.UNDONE: stagnation.REPEATED}
    assert stagnation._files_and_tests(memory, second) == (costs, stagnation.NEW)


def test_a_call_of_a_long_cycle_is_named_as_the_same_again() -> None:
    detector = Stagnation()
    memory = detector.start()
    for _ in range(3):
        for name in [
            "alpha",
            "beta",
            "gamma",
            "delta",
            "epsilon",
            "zeta",
            "eta",
            "theta",
            "iota",
            "kappa",
        ]:
            read = AgentStep("read", name, f"the text of {name}\nand {name * 2}")
            memory = detector.fold(memory, Signal(ok=True, step=read), 0.0)
    assert "the same again" in detector.reason(memory, 0.0)
    assert "nothing comes back" not in detector.reason(memory, 0.0)
