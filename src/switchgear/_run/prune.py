"""Which runs can be removed, and their removal. A run that is running is never touched."""

import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._run.record import is_alive, list_runs
from switchgear._run.run_lock import is_held

PRUNED = "pruned-circuits.txt"
KEPT_NAMES = 10_000


class Prunable(NamedTuple):
    """A run that has ended and is old enough."""

    id: str
    path: Path
    circuit: str = ""
    """The circuit of its loop."""


def prunable(
    root: Path, *, now_s: float, older_than_s: float | None = None, keep: int | None = None
) -> list[Prunable]:
    """The runs that ended more than so many seconds ago and are not among the newest `keep`."""
    listed = list_runs(root)
    spared = {each.id for each in listed[-keep:]} if keep else set()
    found = []
    for each in listed:
        path = root / each.id
        if each.run is None or each.id in spared or path.is_symlink():
            continue
        if is_alive(each.run) or is_held(path / "lock"):
            continue
        if older_than_s is not None and now_s - _last_s(each.run, path) < older_than_s:
            continue
        found.append(Prunable(each.id, path, str(each.run["circuit"])))
    return found


def prune(found: list[Prunable]) -> tuple[list[Prunable], list[tuple[str, str]]]:
    """Remove them. Returns those that were removed, and those that were not, with the reason."""
    removed, left = [], []
    for each in found:
        try:
            shutil.rmtree(each.path)
        except OSError as error:
            left.append((each.id, error.strerror or str(error)))
        else:
            removed.append(each)
    if removed:
        _remember(removed)
    return removed, left


def pruned_circuits(root: Path) -> set[str]:
    """The circuits of runs that were removed: the store may still know them, `status` need not."""
    try:
        text = (root.parent / PRUNED).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    return set(text.splitlines()[-KEPT_NAMES:])


def _remember(removed: list[Prunable]) -> None:
    file = removed[0].path.parent.parent / PRUNED
    names = [*pruned_circuits(file.parent / "runs"), *(each.circuit for each in removed)]
    lines = "".join(f"{name}\n" for name in dict.fromkeys(names) if name.isprintable())
    beside = file.with_name(f".{PRUNED}")
    with suppress(OSError):
        beside.unlink(missing_ok=True)
        with beside.open("x", encoding="utf-8") as new:  # never through a link of an agent's
            new.write(lines)
        beside.replace(file)


def _last_s(run: dict[str, Any], path: Path) -> float:
    """When the run ended, in seconds since the epoch; of one that was broken off, its last write."""
    try:
        return datetime.fromisoformat(str(run.get("ended_at"))).timestamp()
    except ValueError:
        return (path / "run.json").stat().st_mtime
