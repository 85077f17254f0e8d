"""Which tasks may start, which are blocked and why, cycles, and shares of the budget."""

from collections.abc import Iterable

import pytest

from switchgear._budgets.allowance import SharedBudget
from switchgear._fleet.manifest import cycle
from switchgear._run.batch.model import Status, Task, blocked, clash, ready


def tasks(**needs: str) -> list[Task]:
    return [Task(name, "do it", tuple(each.split())) for name, each in needs.items()]


def names(found: Iterable[Task]) -> list[str]:
    return [task.name for task in found]


DIAMOND = tasks(a="", b="a", c="a", d="b c")


def test_tasks_without_needs_are_ready_first() -> None:
    assert names(ready(DIAMOND, {})) == ["a"]


def test_done_and_accepted_tasks_release_dependents_in_the_order_of_the_file() -> None:
    assert names(ready(DIAMOND, {"a": Status.DONE})) == ["b", "c"]
    assert names(ready(DIAMOND, {"a": Status.PARTIAL})) == ["b", "c"]


@pytest.mark.parametrize("status", [each for each in Status if each not in {"done", "partial"}])
def test_no_other_end_of_a_task_releases_its_dependents(status: Status) -> None:
    found = ready(DIAMOND, {"a": status})
    assert names(found) == (["a"] if status is Status.WAITING else [])


def test_all_needs_must_be_done() -> None:
    done = {"a": Status.DONE, "b": Status.DONE}
    assert names(ready(DIAMOND, {**done, "c": Status.RUNNING})) == []
    assert names(ready(DIAMOND, {**done, "c": Status.DONE})) == ["d"]


@pytest.mark.parametrize("status", [Status.FAILED, Status.SKIPPED])
def test_a_failure_blocks_all_that_need_it_and_is_named(status: Status) -> None:
    assert blocked(DIAMOND, {"a": status}) == {"b": "a", "c": "a", "d": "a"}


def test_the_cause_is_named_through_what_is_blocked_already() -> None:
    statuses = {"a": Status.FAILED, "b": Status.BLOCKED, "c": Status.BLOCKED}
    assert blocked(DIAMOND, statuses) == {"d": "a"}


def test_unrelated_failures_do_not_block_a_task() -> None:
    both = tasks(a="", b="", c="b")
    assert blocked(both, {"a": Status.FAILED}) == {}


def test_an_interrupted_task_blocks_nothing() -> None:
    assert blocked(DIAMOND, {"a": Status.INTERRUPTED}) == {}


def test_a_long_chain_is_blocked_to_its_end_whatever_its_order() -> None:
    chain = [Task(str(n), "", (str(n + 1),)) for n in range(900)] + [Task("900", "")]
    found = blocked(chain, {"900": Status.FAILED})
    assert len(found) == 900
    assert set(found.values()) == {"900"}


@pytest.mark.parametrize(
    ("needs", "ring"),
    [
        ({"a": ["a"]}, ["a", "a"]),
        ({"a": ["b"], "b": ["a"]}, ["a", "b", "a"]),
        ({"x": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]}, ["a", "b", "c", "a"]),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, None),
        ({"a": ["nobody"]}, None),
    ],
)
def test_tasks_that_need_each_other_are_found(
    needs: dict[str, list[str]], ring: list[str] | None
) -> None:
    assert cycle(needs) == ring


def test_two_tasks_that_could_run_at_once_in_one_tree_clash() -> None:
    assert clash(DIAMOND, dict.fromkeys("abcd", "/project")) == ("b", "c")
    assert clash([*reversed(DIAMOND)], dict.fromkeys("abcd", "/project")) == ("c", "b")


def test_a_tree_inside_another_is_the_same() -> None:
    assert clash(tasks(a="", b=""), {"a": "/project", "b": "/project/part"}) == ("a", "b")
    assert clash(tasks(a="", b=""), {"a": "/project/part", "b": "/project"}) == ("a", "b")
    assert clash(tasks(a="", b=""), {"a": "/project", "b": "/project-2"}) is None
    parts = {"a": "/project/one", "b": "/project/two", "c": "/project"}
    assert clash(tasks(a="", b="", c="a"), parts) == ("b", "c")


def test_dependent_tasks_and_tasks_with_their_own_trees_do_not_clash() -> None:
    assert clash(tasks(a="", b="a", c="b"), dict.fromkeys("abc", "/project")) is None
    assert clash(DIAMOND, {"a": "/project", "b": "/project", "d": "/project"}) is None


def test_without_a_limit_a_task_gets_what_it_requests() -> None:
    assert SharedBudget().grant(None, 2) is None
    assert SharedBudget().grant(7, 2) == 7


def test_tasks_without_their_own_limit_share_the_rest() -> None:
    assert SharedBudget(100).grant(None, 4) == 25
    assert SharedBudget(100, 10, 60).grant(None, 1) == 30
    assert SharedBudget(100, 40, 60).grant(None, 1) == 0


def test_a_task_that_needs_more_than_is_left_waits_for_returned_reservations() -> None:
    assert SharedBudget(100, 50, 30).grant(40, 1) == 0
    assert SharedBudget(100, 50, 0).grant(60, 1) == 50


@pytest.mark.parametrize("wanted", [None, 0, 1, 10, 10**9])
@pytest.mark.parametrize(
    "shared",
    [SharedBudget(100), SharedBudget(100, 99, 1), SharedBudget(100, 120, 5), SharedBudget(0)],
)
def test_grants_never_exceed_the_remaining_budget(shared: SharedBudget, wanted: int | None) -> None:
    granted = shared.grant(wanted, 3)
    assert granted is not None
    assert 0 <= granted <= (shared.left_micros or 0)
