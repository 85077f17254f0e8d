"""How long similar runs took: what a learned timeout is learned from.

Similar is, first, the same task with the same agent; where there are too few of those, the same
preset with the same agent. Only runs that were completed tell how long the work takes.
"""

from pathlib import Path

from switchgear._run.record import list_runs

NEWEST = 50
"""Older runs were another project."""


def similar_s(root: Path, *, task: str, agent: str, preset: str | None, enough: int) -> list[float]:
    """The durations of similar runs in seconds, oldest first; `root` is where runs are kept."""
    done = [
        each.run
        for each in list_runs(root)[-20 * NEWEST :]
        if each.run is not None
        and (each.run.get("end") or {}).get("exit_reason") == "completed"
        and each.run.get("agent") == agent
    ]
    alike = [run for run in done if run["task"].split() == task.split()]
    if len(alike) < enough and preset is not None:
        alike = [run for run in done if (run["options"] or {}).get("preset") == preset]
    spans = [(run["state"] or {}).get("seconds") for run in alike]
    return [float(span) for span in spans if isinstance(span, int | float)][-NEWEST:]
