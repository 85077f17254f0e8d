"""How long a task may take, and when it is warned."""

import pytest

from switchgear._stuck.timeouts import (
    ChosenTimeout,
    Due,
    Estimate,
    Timeouts,
    due,
    learned,
    timeout,
    with_given,
)

RULES = Timeouts()
AUTH = Estimate(files=3, lines=150, dependencies=1)


def test_the_example_of_the_specification_gives_285_seconds() -> None:
    assert timeout(RULES, AUTH).seconds == 285.0


def test_a_complex_task_gets_twice_the_time() -> None:
    chosen = timeout(RULES, AUTH._replace(complex=True))
    assert chosen == ChosenTimeout(570.0, "(120 + 3 x 30 + 150 x 0.1 + 1 x 60 s) x 2")


def test_a_fixed_timeout_ignores_size_and_history() -> None:
    rules = RULES._replace(policy="fixed", fixed_s=42.0)
    assert timeout(rules, AUTH, [1.0] * 9) == ChosenTimeout(42.0, "fixed")


def test_a_learned_timeout_is_the_mean_and_four_deviations() -> None:
    rules = RULES._replace(policy="learned")
    chosen = timeout(rules, AUTH, [90.0, 110.0, 90.0, 110.0, 100.0, 100.0])
    assert chosen.seconds == pytest.approx(100 + 4 * (400 / 6) ** 0.5)
    assert chosen.why == "mean 100 s + 4 x 8.2 s of 6 similar tasks"


def test_with_too_few_similar_tasks_the_size_decides_and_the_reason_names_it() -> None:
    chosen = timeout(RULES._replace(policy="learned"), AUTH, [1.0] * 4)
    assert chosen.seconds == 285.0
    assert chosen.why.endswith("4 of the 5 similar tasks needed to learn")
    assert learned(RULES, [1.0] * 4) is None


@pytest.mark.parametrize(
    ("durations", "seconds"), [([], 300.0), ([100.0] * 5, 300.0), ([900.0] * 5, 900.0)]
)
def test_longest_is_the_longest_of_those_that_are_known(
    durations: list[float], seconds: float
) -> None:
    assert timeout(RULES._replace(policy="longest"), AUTH, durations).seconds == seconds


def test_marks_come_at_70_90_and_100_percent_once_each() -> None:
    given: tuple[int, ...] = ()
    seen = []
    for used_s in range(0, 620, 5):
        if (mark := due(float(used_s), 600.0, given)) is not None:
            seen.append((used_s, mark))
            given = with_given(given, mark.percent)
    assert seen == [(420, Due(70, 180.0)), (540, Due(90, 60.0)), (600, Due(100, 0.0))]


def test_a_skipped_warning_is_not_given_later() -> None:
    assert due(560.0, 600.0, ()) == Due(90, 40.0)
    assert due(560.0, 600.0, with_given((), 90)) is None
