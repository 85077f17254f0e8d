"""Which runs can be removed, and their removal. A run that is running is never touched."""

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from switchgear.runner.record import is_alive, list_runs
from switchgear.runner.run_lock import is_held


class Prunable(NamedTuple):
    """A run that has ended and is old enough."""

    id: str
    path: Path


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
        found.append(Prunable(each.id, path))
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
    return removed, left


def _last_s(run: dict[str, Any], path: Path) -> float:
    """When the run ended, in seconds since the epoch; of one that was broken off, its last write."""
    try:
        return datetime.fromisoformat(str(run.get("ended_at"))).timestamp()
    except ValueError:
        return (path / "run.json").stat().st_mtime
