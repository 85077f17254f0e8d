"""Partial work is never thrown away: at every end the state of the folder is kept and summed up."""

import shlex
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._core.detector import plural
from switchgear._measure.deadline import Deadline
from switchgear._measure.git_command import GitError
from switchgear._measure.saving import SAVE_S, NotSaved
from switchgear._measure.tree import Tree
from switchgear._run.exit_reasons import Ending
from switchgear._run.iteration import Workshop, mark
from switchgear._run.state import RunState

LISTED = 200
NOTHING = "no file differs from the start"


class Checkpoint(NamedTuple):
    """What was kept, and how to get at it."""

    how: str
    """The command that shows or unpacks it."""
    files: tuple[str, ...]
    """The paths that differ from the start of the run, the first 200."""
    changed: int
    """How many there are."""
    added_lines: int | None = None
    removed_lines: int | None = None
    """`None`: not counted, outside git."""

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        return {**self._asdict(), "files": list(self.files)}

    def text(self) -> str:
        """In a line."""
        if not self.changed:
            return NOTHING
        lines = ""
        if self.added_lines is not None:
            lines = f" (+{self.added_lines} -{self.removed_lines} lines)"
        return f"{plural(self.changed, 'file')}{lines}; {self.how}"


def keep(shop: Workshop, state: RunState, ending: Ending, notes: list[str]) -> Checkpoint | None:
    """Keep the state of the folder as it is now. What goes wrong becomes a note."""
    deadline = Deadline(SAVE_S)
    with shop.interrupt.watching(deadline):
        return _keep(shop, state, ending, notes, deadline)


def _keep(
    shop: Workshop, state: RunState, ending: Ending, notes: list[str], deadline: Deadline
) -> Checkpoint | None:
    first = " ".join(shop.options.task.split())[:60]
    message = f"switchgear run {shop.record.id}: {ending.reason}\n\n{first}"
    try:
        # An archive holds what changed since its process began: the next one is beside it.
        again = f"-{state.resumptions + 1}" if state.resumptions else ""
        saved = shop.tree.keep(f"runs/{shop.record.id}{again}", message, deadline)
    except (GitError, NotSaved, OSError) as error:
        notes.append(
            f"the work was not saved: {error}; it is in {shop.folder} as the agent left it"
        )
        return None
    notes += saved.notes
    how = saved.how
    if how.startswith("git ") and shop.folder != Path.cwd():
        how = f"git -C {shlex.quote(str(shop.folder))} {how.removeprefix('git ')}"
    if getattr(shop.tree, "too_slow", None) is not None or deadline.is_over:
        return Checkpoint(how, state.changed[:LISTED], max(1, len(state.changed)))
    now = mark(shop.tree)
    paths = state.changed if now is None else _paths(shop.tree, state, now)
    added, removed = shop.tree.lines_since_start(deadline) or (None, None)
    return Checkpoint(how, paths[:LISTED], len(paths), added, removed)


def _paths(tree: Tree, state: RunState, now: str) -> tuple[str, ...]:
    try:
        if state.start_mark is not None:
            return tree.change(state.start_mark, now).paths
    except (KeyError, GitError):
        pass  # the start was another process's: what the iterations changed must do
    return state.changed
