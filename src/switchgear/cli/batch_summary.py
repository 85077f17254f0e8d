"""How a batch ended: a table of its tasks, and the same as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from switchgear.batch.model import SATISFIED, End, Progress, Status
from switchgear.cli.text import clean, plural
from switchgear.errors import elapsed
from switchgear.runner.words import UNKNOWN, spend

HEAD = ("TASK", "END", "ITERATIONS", "TIME", "SPEND", "CHECKPOINT")
_NUMBERS = (2, 3, 4)
"""Columns that are read from the right."""


def table(progress: Mapping[str, Progress]) -> list[str]:
    """The summary: a line for each task, and below it why it is not done."""
    rows = [_row(name, each) for name, each in progress.items()]
    widths = [max(cell_len(row[at]) for row in (HEAD, *rows)) for at in range(len(HEAD))]
    lines = [_line(HEAD, widths)]
    for row, (_, each) in zip(rows, progress.items(), strict=True):
        lines.append(_line(row, widths))
        if each.status not in SATISFIED and each.reason:
            lines.append(f"  {clean(each.reason, 600)}")
        if each.branch is not None and each.status in SATISFIED:
            lines.append(f"  git merge {clean(each.branch)}")
    return lines


def _row(name: str, progress: Progress) -> tuple[str, ...]:
    end = str(progress.status)
    if progress.status is Status.BLOCKED:
        end = f"blocked by {progress.blocked_by}"
    elif progress.status is Status.FAILED and progress.exit_reason is not None:
        end = f"failed ({progress.exit_reason})"
    begun = progress.attempts > 0
    return (
        clean(name),
        clean(end),
        str(progress.iterations) if begun else "-",
        elapsed(progress.seconds) if begun else "-",
        spend(progress.spent_micros, progress.unknown_prices) if begun else "-",
        clean(progress.checkpoint or "-"),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        " " * (width - cell_len(cell)) + cell if at in _NUMBERS else set_cell_size(cell, width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def in_words(batch: str, end: End, progress: Mapping[str, Progress], resume: str) -> list[str]:
    """The last lines: how it ended, and how to go on."""
    done = sum(each.status in SATISFIED for each in progress.values())
    spent = spend(
        sum(each.spent_micros for each in progress.values()),
        sum(each.unknown_prices for each in progress.values()),
    )
    spent = f"{spent} cost" if spent == UNKNOWN else spent
    lines = [f"batch {batch}: {end.name}: {done} of {plural(len(progress), 'task')} done, {spent}"]
    if end.code:
        failed = any(each.status in {Status.FAILED, Status.SKIPPED} for each in progress.values())
        lines.append(f"  go on: {resume}{' --retry-failed' if failed else ''}")
    return lines


def as_values(
    batch: str, end: End, progress: Mapping[str, Progress], notes: Sequence[str], resume: str
) -> dict[str, Any]:
    """The documented result: what `--json` prints."""
    return {
        "batch": batch,
        "success": end.code == 0,
        "end": end.name,
        "exit_code": end.code,
        "reason": end.meaning,
        "cost_micros": sum(each.spent_micros for each in progress.values()),
        "unknown_prices": sum(each.unknown_prices for each in progress.values()),
        "tasks": [
            {
                "name": name,
                **{key: value for key, value in each.dump().items() if key not in _INSIDE},
            }
            for name, each in progress.items()
        ],
        "resume": None if end.code == 0 else resume,
        "notes": list(notes),
    }


_INSIDE = ("digest", "earlier_micros")
