"""The budget of a run is reserved in the tree while it runs, and settled when it ends."""

import threading
from pathlib import Path
from typing import Any

import pytest

from switchgear._budgets import allowance
from switchgear._budgets.allowance import FreeBudget, RunReservation, free_budget
from switchgear._budgets.budgets import Budgets
from switchgear._budgets.tree import Line
from switchgear._core.errors import BudgetRefused, StoreCorrupt, StoreUnavailable
from switchgear._panel.panel import Panel
from switchgear._run.batch.attempt import Attempt, AttemptDependencies, AttemptOutcome, run_attempt
from switchgear._run.batch.model import Batch, Progress, Status, Task
from timeouts import LIMIT_S
from unit.run.test_batch_scheduler import Stage, outcome

NODE = "atlas/wave-1"


@pytest.fixture
def budgets() -> Budgets:
    kept = Panel("memory:").budgets
    kept.open("atlas", 100)
    kept.open(NODE, 60)
    return kept


def test_a_node_without_a_limit_has_the_free_money_of_its_parent(budgets: Budgets) -> None:
    budgets.open("atlas/wave-1/S-1", None)
    assert free_budget(budgets, "atlas/wave-1/S-1") == FreeBudget(60, payer=NODE)
    assert free_budget(budgets, "atlas") == FreeBudget(40, payer="atlas")
    budgets.charge("atlas/wave-1", 90)
    assert free_budget(budgets, "atlas/wave-1/S-1") == FreeBudget(0, payer=NODE)
    with pytest.raises(BudgetRefused, match="there is no such budget"):
        free_budget(budgets, "atlas/wave-2")


def test_only_reservations_of_the_same_money_may_come_back(budgets: Budgets) -> None:
    budgets.open("atlas/wave-1/S-1", 20)
    budgets.open("atlas/wave-1/S-2", None)
    budgets.reserve("atlas/wave-1/S-1", 15)
    held = budgets.reserve("atlas/wave-1/S-2", 30)
    assert free_budget(budgets, NODE) == FreeBudget(10, 30, NODE)
    held.settle(5)
    assert free_budget(budgets, NODE) == FreeBudget(35, 0, NODE)


def test_a_tree_without_limits_reserves_nothing_and_is_charged() -> None:
    budgets = Panel("memory:").budgets
    budgets.open("free", None)
    aside = RunReservation(budgets, "free", None, owner="run")
    assert aside.amount_micros is None
    assert aside.settle(7) is None
    assert budgets.book("free").charged_micros == 7


def test_unspent_money_returns_and_an_unknown_cost_counts_in_full(budgets: Budgets) -> None:
    everything = RunReservation(budgets, NODE, None, owner="run")
    assert everything.amount_micros == 60
    with pytest.raises(BudgetRefused, match="free"):
        RunReservation(budgets, NODE, 1, owner="another run")
    everything.settle(10)
    RunReservation(budgets, NODE, 20, owner="run").settle(5, unpriced=True)
    assert budgets.free_micros(NODE) == 30
    RunReservation(budgets, NODE, 20, owner="run").settle(25, unpriced=True)
    assert budgets.free_micros(NODE) == 5
    RunReservation(budgets, NODE, 5, owner="run").settle(None)
    assert budgets.audit("atlas").problems == ()
    assert budgets.free_micros(NODE) == 0


def test_an_empty_node_refuses_to_reserve_everything(budgets: Budgets) -> None:
    budgets.open("atlas/wave-1/S-1", None)
    held = budgets.reserve(NODE, 60)
    with pytest.raises(BudgetRefused) as refused:
        RunReservation(budgets, "atlas/wave-1/S-1", None, owner="run")
    assert refused.value.node == NODE
    assert refused.value.free_micros == 0
    assert refused.value.why == "nothing is free, $0.00006 is reserved by others"
    held.settle(60)
    with pytest.raises(BudgetRefused, match=r"refuses: nothing is free$"):
        RunReservation(budgets, NODE, None, owner="run")
    assert [one.path for one in budgets.tree("atlas") if "~" in one.path] == []


def test_the_lease_is_renewed_while_the_process_lives(
    budgets: Budgets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowance, "LEASE_S", 0.003)
    renewed: list[Line] = []
    aside = RunReservation(budgets, NODE, 5, owner="run")
    while not renewed:
        renewed = [line for line in budgets.lines("atlas") if line.kind == "renewed"]
    assert aside.settle(1) is None


def test_a_settlement_that_cannot_be_saved_is_reported(budgets: Budgets) -> None:
    aside = RunReservation(budgets, NODE, 5, owner="run")
    aside._held.path = "atlas/~restored-from-an-older-copy"
    said = aside.settle(1)
    assert said is not None
    assert "there is no such reservation; the reservation counts as spent" in said


# Batches


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.panel.budgets.open("atlas", 100)
    return made


def paid(*names: str, node: str = "atlas", **flags: int) -> Batch:
    told = {"agent": "codex", "budget_node": node, **flags}
    return Batch(tuple(Task(name, "do it", flags=told) for name in names))


def test_a_task_holds_its_money_at_the_node_while_it_runs(stage: Stage) -> None:
    seen = []

    def act(attempt: Attempt) -> AttemptOutcome:
        seen.append(stage.panel.budgets.free_micros("atlas"))
        return outcome("completed", cost=10)

    assert stage.run(paid("a", "b", budget_micros=30), act).code == 0
    assert stage.attempts == [("a", 30), ("b", 30)]
    assert seen == [70, 60]
    assert stage.panel.budgets.free_micros("atlas") == 80


def test_a_node_grants_its_rest_and_then_refuses(stage: Stage) -> None:
    batch = paid("a", "b", "c", budget_micros=60)
    stage.run(batch, lambda at: outcome("completed", cost=at.grant_micros or 0))
    assert stage.attempts == [("a", 60), ("b", 40)]
    assert stage.progress["c"].exit_reason == "budget"
    assert stage.progress["c"].reason.startswith("budget 'atlas' has nothing left")


def test_tasks_without_a_limit_share_what_the_node_has(stage: Stage) -> None:
    batch = paid("a", "b")._replace(parallel=2)
    stage.run(batch, lambda at: outcome("completed", cost=at.grant_micros or 0))
    assert sorted(stage.attempts) == [("a", 50), ("b", 50)]


def test_the_budget_of_the_batch_applies_together_with_that_of_the_node(stage: Stage) -> None:
    batch = paid("a", "b")._replace(budget_micros=40)
    stage.run(batch, lambda _: outcome("completed", cost=40))
    assert stage.attempts == [("a", 40)]
    assert stage.progress["b"].reason == "$0.00004 of the batch's $0.00004 are spent"
    assert stage.panel.budgets.free_micros("atlas") == 60


def test_a_task_waits_for_what_another_process_has_reserved(stage: Stage) -> None:
    held = stage.panel.budgets.reserve("atlas", 80, owner="another batch")
    changed = stage.view.changed

    def give_back(name: str, progress: object) -> None:
        changed(name, progress)  # type: ignore[arg-type]
        if getattr(progress, "reason", "").startswith("waits for budget 'atlas'"):
            held.settle(30)

    stage.view.changed = give_back  # type: ignore[method-assign]
    assert stage.run(paid("a", budget_micros=60), lambda _: outcome("completed", cost=60)).code == 0
    assert stage.view.changes[0] == ("a", "waiting")
    assert stage.panel.budgets.free_micros("atlas") == 10


def paid_from(node: str, name: str, **flags: int) -> Task:
    return Task(name, "do it", flags={"agent": "codex", "budget_node": node, **flags})


def test_a_task_that_waits_for_its_node_does_not_delay_tasks_of_other_nodes(stage: Stage) -> None:
    budgets = stage.panel.budgets
    budgets.open("other", 100)
    budgets.open("atlas/S-1", None)
    held = budgets.reserve("atlas", 60, owner="another batch")

    def act(attempt: Attempt) -> AttemptOutcome:
        if attempt.task.name == "third":
            held.settle(0)
        return outcome("completed", cost=10)

    first = paid_from("atlas", "first", budget_micros=60)
    second = paid_from("atlas/S-1", "second", budget_micros=10)
    third = paid_from("other", "third")
    assert stage.run(Batch((first, second, third)), act).code == 0
    assert stage.order == ["third", "first", "second"], "those of one node keep their order"
    assert budgets.free_micros("atlas") == 80


@pytest.mark.parametrize(
    "broke", [paid_from("empty", "b"), paid_from("atlas", "b", budget_micros=0)]
)
def test_a_task_that_can_never_get_its_budget_fails_while_others_run(
    stage: Stage, broke: Task
) -> None:
    stage.panel.budgets.open("empty", 0)
    batch = Batch((paid_from("atlas", "a"), broke), parallel=2, budget_micros=90)
    changed, has_failed = stage.view.changed, threading.Event()

    def hear(name: str, progress: Progress) -> None:
        changed(name, progress)
        if (name, progress.status) == ("b", Status.FAILED):
            has_failed.set()

    stage.view.changed = hear  # type: ignore[method-assign]
    stage.run(batch, lambda _: outcome("completed" if has_failed.wait(LIMIT_S) else "blocked"))
    assert stage.statuses == {"a": "done", "b": "failed"}


def test_a_node_is_shared_only_by_tasks_that_draw_on_it(stage: Stage) -> None:
    budgets = stage.panel.budgets
    budgets.open("other", 80)
    budgets.open("atlas/S-1", None)
    nodes = {"a": "atlas", "b": "other", "c": "atlas/S-1"}
    batch = Batch(tuple(paid_from(node, name) for name, node in nodes.items()), parallel=3)
    stage.run(batch, lambda at: outcome("completed", cost=at.grant_micros or 0))
    assert sorted(stage.attempts) == [("a", 50), ("b", 80), ("c", 50)]


@pytest.mark.parametrize("when", ["book", "reserve"])
def test_during_a_short_outage_of_the_store_tasks_wait_and_it_is_reported_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    works, losses = getattr(Budgets, when), [1, 2]

    def gone(*told: Any, **more: Any) -> Any:
        if losses:
            losses.pop()
            raise StoreUnavailable("redis://x", "nobody answers", "start it")
        return works(*told, **more)

    def act(attempt: Attempt) -> AttemptOutcome:
        if attempt.task.name == "a":
            losses.append(3)
        return outcome("completed", cost=1)

    monkeypatch.setattr(Budgets, when, gone)
    plain = Task("plain", "do it", flags={"agent": "codex"})
    batch = paid("a", "b", budget_micros=30)
    batch = batch._replace(tasks=(*batch.tasks, plain))
    assert stage.run(batch, act).code == 0
    assert stage.order == ["plain", "a", "b"]
    said = [text for text in stage.view.texts if "cannot be reached" in text]
    assert len(said) == 2, said
    assert said[0].endswith("nobody answers; start it; the tasks with a budget_node wait for it")
    assert stage.panel.budgets.free_micros("atlas") == 98


def test_a_store_that_does_not_recover_fails_the_task(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def corrupt(*_: object) -> None:
        raise StoreCorrupt("x", "budget 'atlas'", "restore it")

    monkeypatch.setattr(Budgets, "book", corrupt)
    stage.run(paid("a"), lambda _: outcome("completed"))
    assert stage.progress["a"].reason == "store x is corrupt: budget 'atlas'; restore it"


def test_an_attempt_that_never_started_costs_nothing(stage: Stage) -> None:
    def cannot(attempt: Attempt) -> AttemptOutcome:
        runs = stage.path / "a file"
        runs.touch()
        place = AttemptDependencies(stage.panel, runs)
        return run_attempt(
            place, attempt._replace(progress=attempt.progress._replace(folder=str(runs)))
        )

    stage.run(paid("a", budget_micros=30), cannot)
    assert stage.progress["a"].reason.startswith("it could not be run: ")
    assert stage.panel.budgets.free_micros("atlas") == 100


def test_an_attempt_of_unknown_price_counts_in_full(stage: Stage) -> None:
    def breaks(attempt: Attempt) -> AttemptOutcome:
        raise RuntimeError("a defect")

    stage.run(paid("a", budget_micros=30), breaks)
    assert stage.panel.budgets.free_micros("atlas") == 70
    stage.run(paid("a", budget_micros=30), lambda _: outcome("completed", cost=1, unpriced=True))
    assert stage.panel.budgets.free_micros("atlas") == 40


def test_a_folder_that_cannot_be_created_returns_the_money(stage: Stage) -> None:
    batch = paid("a", budget_micros=30)
    batch = batch._replace(tasks=tuple(task._replace(worktree=True) for task in batch.tasks))
    stage.run(batch, lambda _: outcome("completed"))
    assert "is not a git repository" in stage.progress["a"].reason
    assert stage.panel.budgets.free_micros("atlas") == 100


def test_a_node_that_is_closed_meanwhile_fails_the_task(stage: Stage) -> None:
    stage.run(paid("a", node="gone"), lambda _: outcome("completed"))
    assert stage.progress["a"].reason == "budget 'gone' refuses: there is no such budget"
