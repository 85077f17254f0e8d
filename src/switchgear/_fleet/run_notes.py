"""Notes about the runs of a loop in the store, for the notifications of its circuit.

A circuit contains neither the owner of the run that it stops nor the result. The run stores both, so
that the notification of a trip includes the owner and, if the run has ended, the receipt.
"""

import json
from typing import Any, NamedTuple

from switchgear._panel.panel import Panel
from switchgear._stores.base import IDLE_S, Transaction

_LADDER = "ladder/"


class RunNote(NamedTuple):
    owner: str = ""
    """The person to notify; empty: unknown."""
    event: str = ""
    """The id of the event that ended the latest run that was ended by a circuit."""
    ended: dict[str, Any] | None = None
    """The notification of that end."""


def is_loop(circuit: str) -> bool:
    """Whether a circuit belongs to a run or to its escalation."""
    return circuit.removeprefix(_LADDER).startswith("loop/")


def save_run_note(panel: Panel, circuit: str, note: RunNote) -> None:
    """Save the note of a loop. Raises `StoreError`."""

    def work(tx: Transaction) -> None:
        tx.note, tx.keep_s = json.dumps(note._asdict()), IDLE_S

    panel.store.transact(_name(circuit), work)


def run_note(panel: Panel, circuit: str) -> RunNote:
    """The note of a loop; empty if there is none or it is unreadable. Raises `StoreError`."""
    text = panel.store.transact(_name(circuit), lambda tx: tx.note)
    try:
        return RunNote(**json.loads(text or "{}"))
    except (ValueError, TypeError):
        return RunNote()


def _name(circuit: str) -> str:
    return f"run-note/{circuit.removeprefix(_LADDER)}"
