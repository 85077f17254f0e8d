"""What `status` leaves out: circuits of runs and sessions that have ended. `--all` shows them."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear._cli.views.text import clean, plural
from switchgear._core.types import Mode

if TYPE_CHECKING:
    from switchgear._breaker.views import View
    from switchgear._cli.context import Session
    from switchgear._cli.sessions import SessionRow

# ruff: noqa: PLC0415  what a verb needs is imported when it is used

NEWEST_RUNS = 1_000


class Current(NamedTuple):
    """The circuits that are in use, and how many runs and sessions were left out."""

    views: "list[View]"
    runs: int
    sessions: int
    stopped: str = ""
    """How many of those sessions were stopped, as the end of a phrase."""
    running: tuple[str, ...] = ()
    """The runs that are running, each as a line."""

    @property
    def words(self) -> str:
        """Where the others are, in a sentence; empty: there are none."""
        parts = []
        if self.runs:
            parts.append(f"{plural(self.runs, 'finished run')}: `switchgear runs`")
        if self.sessions:
            ended = f"{plural(self.sessions, 'ended session')}{self.stopped}"
            parts.append(f"{ended}: `switchgear sessions --all`")
        return "; ".join(parts)


def current(session: "Session", views: "Iterable[View]") -> Current:
    """The circuits without those of finished runs and ended sessions.

    One that an operator holds stays: whoever holds it has to release it.
    """
    from switchgear._cli.sessions import stopped_words

    (loops, running), ended = _runs(Path.cwd()), _ended_sessions(session)
    kept: list[View] = []
    runs: set[str] = set()
    sessions: set[str] = set()
    for view in views:
        name = view.name.removeprefix("ladder/")
        family, _, rest = name.partition("/")
        owner = rest.partition("/")[0]
        if view.circuit.mode is not Mode.AUTO:
            kept.append(view)
        elif name in loops:
            runs.add(name)
        elif family in {"session", "progress"} and owner in ended:
            sessions.add(owner)
        else:
            kept.append(view)
    stopped = stopped_words([ended[owner] for owner in sessions])
    return Current(kept, len(runs), len(sessions), stopped, running)


def _runs(folder: Path) -> tuple[set[str], tuple[str, ...]]:
    """The circuits of runs of this project of which none is running, and those that are."""
    from switchgear._run.record import is_alive, list_runs, pruned_circuits, runs_root

    root = runs_root(folder)
    ended, running, lines = pruned_circuits(root), set(), []
    for each in list_runs(root)[-NEWEST_RUNS:]:
        if each.run is None:
            continue
        circuit = str(each.run["circuit"])
        if is_alive(each.run):
            running.add(circuit)
            lines.append(_running(each.run))
        else:
            ended.add(circuit)
    return ended - running, tuple(lines)


def _running(run: dict[str, Any]) -> str:
    """A run that is running, in a line."""
    state = run.get("state")
    done = state.get("iterations") if isinstance(state, dict) else None
    number = f", iteration {done + 1}" if isinstance(done, int) else ""
    task = clean(" ".join(str(run.get("task")).split()), 60)
    return f"running: {run['id']}{number}, {clean(str(run.get('agent')), 20)}: {task}"


def _ended_sessions(session: "Session") -> "dict[str, SessionRow]":
    from switchgear._cli.sessions import session_rows
    from switchgear._core.errors import StoreError

    try:
        rows = session_rows(session, everything=True)
    except StoreError:
        return {}  # what cannot be read is shown rather than hidden
    return {row.id: row for row in rows if row.state == "ended"}
