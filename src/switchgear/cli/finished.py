"""What `status` leaves out: circuits of runs and sessions that have ended. `--all` shows them."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from switchgear.cli.text import plural
from switchgear.core.types import Mode

if TYPE_CHECKING:
    from switchgear.cli.opening import Session
    from switchgear.views import View

# ruff: noqa: PLC0415  what a verb needs is imported when it is used

NEWEST_RUNS = 1_000


class Current(NamedTuple):
    """The circuits that are in use, and how many runs and sessions were left out."""

    views: "list[View]"
    runs: int
    sessions: int

    @property
    def words(self) -> str:
        """Where the others are, in a sentence; empty: there are none."""
        parts = []
        if self.runs:
            parts.append(f"{plural(self.runs, 'finished run')}: `switchgear runs`")
        if self.sessions:
            parts.append(f"{plural(self.sessions, 'ended session')}: `switchgear sessions --all`")
        return "; ".join(parts)


def current(session: "Session", views: "Iterable[View]") -> Current:
    """The circuits without those of finished runs and ended sessions.

    One that an operator holds stays: whoever holds it has to release it.
    """
    loops, ended = _finished_loops(Path.cwd()), _ended_sessions(session)
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
    return Current(kept, len(runs), len(sessions))


def _finished_loops(folder: Path) -> set[str]:
    """The circuits of runs of this project of which none is running."""
    from switchgear.runner.record import is_alive, list_runs, runs_root

    ended: set[str] = set()
    running: set[str] = set()
    for each in list_runs(runs_root(folder))[-NEWEST_RUNS:]:
        if each.run is not None:
            (running if is_alive(each.run) else ended).add(str(each.run["circuit"]))
    return ended - running


def _ended_sessions(session: "Session") -> set[str]:
    from switchgear.cli.sessions import session_rows
    from switchgear.errors import StoreError

    try:
        rows = session_rows(session, everything=True)
    except StoreError:
        return set()  # what cannot be read is shown rather than hidden
    return {row.id for row in rows if row.state == "ended"}
