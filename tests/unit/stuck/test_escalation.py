"""The escalation: each step once per incident, kept in the store, reset by progress."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from switchgear._core.policy import Policy
from switchgear._core.types import Message, Phase, Step
from switchgear._stores.base import Store
from switchgear._stores.memory import MemoryStore
from switchgear._stores.sqlite import SqliteStore
from switchgear._stuck import escalation
from switchgear._stuck.escalation import STEP_NAMES, Interventions

SUBJECT = "session/7f3a"


def applying(store: Store) -> escalation.Apply:
    def apply(key: str, policy: Policy, message: Message) -> Step:
        return store.apply(key, policy, message, store.now_s())

    return apply


def test_each_step_is_tried_once_per_incident() -> None:
    apply = applying(MemoryStore())
    taken = [escalation.take_step(apply, SUBJECT, STEP_NAMES, "flood").step_name for _ in range(6)]
    assert taken == ["nudge", "reset", "escalate", "skip", "skip", "skip"]


def test_earlier_steps_are_reported() -> None:
    apply = applying(MemoryStore())
    for _ in range(2):
        escalation.take_step(apply, SUBJECT, STEP_NAMES, "flood")
    assert escalation.take_step(apply, SUBJECT, STEP_NAMES, "flood").tried == (
        "nudge",
        "reset",
    )


def test_progress_restarts_the_escalation_at_the_first_step() -> None:
    apply = applying(MemoryStore())
    for _ in range(3):
        escalation.take_step(apply, SUBJECT, STEP_NAMES, "flood")
    assert escalation.progressed(apply, SUBJECT, STEP_NAMES)
    assert escalation.take_step(apply, SUBJECT, STEP_NAMES, "flood") == escalation.StepTaken(
        "nudge", ()
    )


def test_progress_without_an_incident_writes_nothing() -> None:
    store = MemoryStore()
    assert not escalation.progressed(applying(store), SUBJECT, STEP_NAMES)
    assert store.get(escalation.escalation_key(SUBJECT)) is None


def test_the_last_step_stays_until_an_operator_resets() -> None:
    store = MemoryStore()
    apply = applying(store)
    assert escalation.exhausted_steps(apply, SUBJECT, STEP_NAMES) is None
    for _ in STEP_NAMES:
        escalation.take_step(apply, SUBJECT, STEP_NAMES, "flood")
    found = store.get(escalation.escalation_key(SUBJECT))
    assert found is not None
    assert found.circuit.phase is Phase.OPEN
    assert not escalation.progressed(apply, SUBJECT, STEP_NAMES)
    assert (
        escalation.exhausted_steps(apply, SUBJECT, STEP_NAMES)
        == "tried nudge, reset, escalate, skip"
    )


def test_the_evidence_of_each_step_is_kept() -> None:
    store = MemoryStore()
    escalation.take_step(applying(store), SUBJECT, STEP_NAMES, "21 calls without a file change")
    found = store.get(escalation.escalation_key(SUBJECT))
    assert found is not None
    assert [each.error for each in found.circuit.failures] == [
        "nudge: 21 calls without a file change"
    ]


def test_the_steps_taken_outlast_the_process(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    first = SqliteStore(path)
    escalation.take_step(applying(first), SUBJECT, STEP_NAMES, "flood")
    first.close()
    second = SqliteStore(path)
    assert escalation.take_step(applying(second), SUBJECT, STEP_NAMES, "flood").step_name == "reset"
    second.close()


def test_a_step_that_was_taken_outlasts_kill_9(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    body = f"""
import os, signal
from switchgear._stuck import escalation
from switchgear._stores.sqlite import SqliteStore
store = SqliteStore({path!r})
store.transact("x", lambda tx: escalation.take_step(tx.apply, {SUBJECT!r}, escalation.STEP_NAMES, "flood"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", body], check=False)
    assert killed.returncode == -signal.SIGKILL
    store = SqliteStore(path)
    assert escalation.take_step(
        applying(store), SUBJECT, STEP_NAMES, "flood"
    ) == escalation.StepTaken("reset", ("nudge",))
    store.close()


def test_escalations_of_two_sessions_are_two() -> None:
    apply = applying(MemoryStore())
    escalation.take_step(apply, "session/a", STEP_NAMES, "flood")
    assert escalation.take_step(apply, "session/b", STEP_NAMES, "flood").step_name == "nudge"


def test_a_step_that_an_operator_chose_is_not_tried_again() -> None:
    apply = applying(MemoryStore())
    for _ in range(2):
        escalation.take_step(apply, SUBJECT, STEP_NAMES, "by hand", "nudge")
    assert escalation.take_step(apply, SUBJECT, STEP_NAMES, "flood") == escalation.StepTaken(
        "reset", ("nudge",)
    )


@pytest.mark.parametrize(
    ("plan", "step_names"),
    [
        (Interventions(escalate="codex"), ("nudge", "reset", "escalate", "skip")),
        (Interventions(), ("nudge", "reset", "skip")),
        (Interventions(("skip", "nudge", "nudge")), ("nudge", "skip")),
        (Interventions(()), ("skip",)),
    ],
)
def test_an_escalation_without_an_agent_is_left_out_and_skip_is_last(
    plan: Interventions, step_names: tuple[str, ...]
) -> None:
    assert plan.step_names == step_names
