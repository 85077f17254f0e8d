"""Runs and batches of a project as rows, for `switchgear runs`, the API and the page."""

from collections.abc import Callable, Iterable
from typing import Any

from switchgear._run.record import ListedRun, is_alive
from switchgear._run.result import BROKEN_OFF


def run_status(run: dict[str, Any]) -> str:
    """How a run ended, or `running`, `waiting` (for a worker) or `BROKEN_OFF`."""
    end = run.get("end")
    if isinstance(end, dict):
        return str(end.get("exit_reason"))
    if not is_alive(run):
        return BROKEN_OFF
    return "waiting" if run.get("waiting") else "running"


def run_row(run: dict[str, Any]) -> dict[str, Any]:
    state = run.get("state") or {}
    micros, unknown = state.get("spent_micros"), state.get("unknown_prices") or 0
    status = run_status(run)
    if status == BROKEN_OFF:
        unknown += 1  # the unfinished iteration
    return {
        "id": run["id"],
        "status": status,
        "agent": run.get("agent"),
        "task": run.get("task"),
        "circuit": run.get("circuit"),
        "started_at": run.get("started_at"),
        "ended_at": run.get("ended_at"),
        "iterations": state.get("iterations"),
        "cost_micros": micros or None if unknown else micros,
        "unknown_prices": unknown,
        "seconds": state.get("seconds"),
    }


def listed_runs(
    found: Iterable[ListedRun], row: Callable[[dict[str, Any]], dict[str, Any]] = run_row
) -> list[dict[str, Any]]:
    """A row for each run; for an unreadable run, its id and the problem."""
    return [
        {"id": each.id, "problem": each.problem}
        if each.run is None
        else {**row(each.run), "problem": None}
        for each in found
    ]
