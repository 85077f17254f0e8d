"""Guarded agent sessions as rows, for `switchgear sessions`, the API and the page."""

from collections.abc import Callable
from typing import Any, NamedTuple

from switchgear._core.types import Mode
from switchgear._hooks import session as guarded
from switchgear._hooks.session import Notes
from switchgear._hooks.session_check import ended_after_s
from switchgear._panel.panel import Panel
from switchgear._stores.base import StoredCircuit
from switchgear._stuck.messages import HELD_PREFIX
from switchgear._stuck.score import evidence_score

PREFIX = "session/"


class SessionRow(NamedTuple):
    id: str
    agent: str
    project: str
    task: str
    state: str
    reason: str
    """Why it is stopped, struggling or trying again, or was stopped at its end; otherwise empty."""
    since_s: float | None
    """When it was stopped, in seconds since the epoch."""
    heat: float
    score: dict[str, Any]
    """The stuck score: its `points` of 100, and the `threshold` at which the session is stopped."""
    spent_micros: int | None
    last_step: str
    heard_s: float
    """When its last event arrived."""
    began_s: float | None = None


def session_rows(
    panel: Panel,
    *,
    everything: bool = True,
    notes: Callable[[StoredCircuit], Notes] | None = None,
) -> list[SessionRow]:
    """The sessions in the store, without sub-agents; ended sessions only with `everything`.

    `notes` returns the note of a session; by default, it is read from the store.
    """
    now_s = panel.store.now_s()
    rows = [
        session_row(found, notes(found) if notes else notes_of(panel, found.circuit.key), now_s)
        for found in panel.store.find(f"{PREFIX}*")
        if "/" not in found.circuit.key.removeprefix(PREFIX)
    ]
    return [row for row in rows if everything or row.state != "ended"]


def stopped_words(ended: list[SessionRow]) -> str:
    """The number of ended sessions that were stopped, as the end of a phrase; empty for none."""
    count = sum(bool(row.reason) for row in ended)
    if count == len(ended) == 1:
        return ", which was stopped"
    return f", {count} of them stopped" if count else ""


def notes_of(panel: Panel, name: str) -> Notes:
    return panel.store.transact(name, lambda tx: Notes.load(tx.note))


def session_row(found: StoredCircuit, notes: Notes, now_s: float) -> SessionRow:
    circuit, policy = found.circuit, found.policy
    state = guarded.state_of(notes, circuit)
    heard_s = notes.heard_s or circuit.seen_s
    if now_s - heard_s >= ended_after_s(policy) and not guarded.is_watched(notes):
        state = guarded.State.ENDED  # its end was never reported
    stopped = state in {guarded.State.STOPPED, guarded.State.ENDED} and guarded.is_stopped(circuit)
    at_s = max(now_s, circuit.seen_s)
    heat = min(1.0, policy.heat(circuit.memories, at_s))
    score = evidence_score(policy, policy.readings(circuit.memories, at_s))
    reason = ""
    if stopped:
        reason = circuit.outage.reason or (circuit.order.why if circuit.order else "")
        if circuit.mode is Mode.HELD_OPEN and circuit.order is not None:
            reason = f"{HELD_PREFIX} by {circuit.order.by}: {circuit.order.why}"
    elif state in {guarded.State.STRUGGLING, guarded.State.TRYING_AGAIN}:
        reason = policy.reason(circuit.memories, at_s)
        if notes.tried and not score.evidence:
            why = "; ".join(notes.indicators)
            reason = f"no evidence since the {notes.tried[-1]}" + (f" ({why})" if why else "")
    return SessionRow(
        circuit.key.removeprefix(PREFIX),
        notes.agent or "agent",
        notes.project,
        notes.task,
        str(state),
        reason,
        circuit.outage.opened_at_s if stopped and circuit.outage.opened_at_s else None,
        heat,
        {"points": score.points, "threshold": score.threshold},
        notes.spent_micros,
        notes.last_step,
        heard_s,
        notes.began_s,
    )


ORDER = ("stopped", "trying again", "struggling", "paused", "working", "idle", "ended")


def ordered(rows: list[SessionRow]) -> list[SessionRow]:
    """Stopped sessions first, then the most recent."""
    return sorted(rows, key=lambda row: (ORDER.index(row.state), -row.heard_s))
