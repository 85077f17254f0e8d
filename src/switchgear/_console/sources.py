"""What is known of one installation, as JSON values: circuits, sessions, runs, batches, money.

The API, the page and the commands that look at the installation as a whole take their facts here.
"""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from switchgear._breaker.views import View
from switchgear._config import Config
from switchgear._console.attention import (
    Attention,
    SpendRates,
    activity,
    attention,
    circuit_attention,
)
from switchgear._console.interventions import RUN_ACTIONS, options_of, run_objection
from switchgear._console.requests import all_requests
from switchgear._console.runs import listed_runs, run_row
from switchgear._console.sessions import (
    PREFIX,
    SessionRow,
    notes_of,
    ordered,
    session_row,
    session_rows,
)
from switchgear._console.values import heat_of, of_entry, of_page, of_view
from switchgear._core.errors import StoreError
from switchgear._core.policy import Policy, WeightedSum
from switchgear._core.types import Event, EventKind, Mode, Phase
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.incidents import Incidents
from switchgear._fleet.watcher import INCIDENTS, folder_of, world
from switchgear._hooks.session import Notes, State, is_stopped
from switchgear._hooks.session import state_of as state_of_session
from switchgear._measure.git_command import Deadline, GitError, run_git
from switchgear._panel.panel import Panel
from switchgear._run.batch.file import read_batch
from switchgear._run.batch.record import BatchFolder, BatchUnreadable, batches_root
from switchgear._run.inbox import has_messages, inbox_name
from switchgear._run.record import find_run, is_alive, list_runs, pruned_circuits, runs_root
from switchgear._stores.base import StoredCircuit
from switchgear._stuck.score import MAX_POINTS
from switchgear._system.files import read_regular
from switchgear._text.glob import literal

NEWEST_RUNS = 1_000
NOTES_S = 30.0
"""After how many seconds the note of a session is read again although its circuit is the same."""
LONGEST_DIFF = 200_000
"""Characters of a saved diff that are shown."""
DIFF_S = 10.0
_LIMITS = ("budget_micros", "max_iterations", "timeout_s")
_ID = re.compile(r"[\w.-]{1,100}", re.ASCII)
_REVISION = re.compile(r"[\w./~^:@-]{1,200}", re.ASCII)


class NotFound(LookupError):
    """The requested item does not exist; the text names it."""


class Hidden(NamedTuple):
    """Circuits that are no longer in use, and active runs."""

    loops: dict[str, int]
    """Circuits of runs of which none is running, with the number of these runs."""
    running: tuple[dict[str, Any], ...]
    sessions: dict[str, SessionRow]
    """The sessions that have ended."""

    def owner(self, circuit: str, mode: str) -> str | None:
        """The loop or session that a circuit belongs to, if it is over and no operator holds the circuit."""
        name = circuit.removeprefix("ladder/")
        family, _, rest = name.partition("/")
        session = rest.partition("/")[0]
        if mode != Mode.AUTO:
            return None
        if name in self.loops:
            return name
        return session if family in {"session", "progress"} and session in self.sessions else None


class Sources:
    """Reads one installation. Thread-safe; methods block, and raise `StoreError`."""

    def __init__(self, panel: Panel, config: Config, root: Path) -> None:
        self.panel = panel
        self.config = config
        self.root = root
        self._lock = Lock()
        self._notes: dict[str, tuple[int, float, Notes]] = {}
        self._rates = SpendRates()

    # Circuits

    def circuits(self, glob: str = "*") -> list[dict[str, Any]]:
        """The circuits whose names match; unreadable ones are left out."""
        rows = [self.circuit_row(view) for view in self._views(glob)]
        if glob == "*":
            with self._lock:
                self._rates.forget_all_but(
                    [f"circuit {row['name']}" for row in rows]
                    + [f"session {name.removeprefix(PREFIX)}" for name in self._notes]
                )
        return rows

    def _views(self, glob: str) -> Iterator[View]:
        try:
            yield from self.panel.circuits(glob)
        except StoreError:
            if self.panel.lost() is None:
                raise

    def circuit_row(self, view: View) -> dict[str, Any]:
        """A circuit as the API lists it: as `status --json`, with its spend per minute."""
        cost = view.circuit.totals.cost_micros
        with self._lock:
            rate = self._rates.rate(f"circuit {view.name}", cost or None, self.panel.store.now_s())
        opened_s = view.circuit.outage.opened_at_s or None
        row = {**of_view(view), "opened_at_s": opened_s, "spend_micros_per_min": rate}
        item = circuit_attention(row)
        return {**row, "attention": None if item is None else item._asdict()}

    def circuit(self, name: str, events: int = 50) -> dict[str, Any]:
        """Everything about one circuit, with its newest events. Raises `NotFound`."""
        view = self.panel.view(name)
        if view is None:
            raise NotFound(f"there is no circuit {name!r}")
        entries = self.panel.events(glob=literal(name), limit=events) if events else []
        page = {**of_page(view, entries), **self.circuit_row(view)}
        page["cooldown_s"] = view.circuit.outage.cooldown_s
        return {**page, "history": heat_history([each.event for each in entries], view)}

    def events(self, after: str | None, glob: str, limit: int) -> list[dict[str, Any]]:
        """Events behind a cursor, oldest first; without one, the newest."""
        return [of_entry(entry) for entry in self.panel.events(after=after, glob=glob, limit=limit)]

    def hidden(self) -> Hidden:
        """What `status` leaves out: circuits of finished runs and of ended sessions."""
        root = runs_root(self.root)
        running, loops = [], dict.fromkeys(pruned_circuits(root), 0)
        for run in (each.run for each in list_runs(root, NEWEST_RUNS) if each.run is not None):
            if is_alive(run):
                running.append(run)
            else:
                loops[str(run["circuit"])] = loops.get(str(run["circuit"]), 0) + 1
        for run in running:
            loops.pop(str(run["circuit"]), None)
        try:
            sessions = {row.id: row for row in self.session_rows() if row.state == "ended"}
        except StoreError:
            sessions = {}  # what cannot be read is shown rather than hidden
        return Hidden(loops, tuple(running), sessions)

    # Sessions

    def session_rows(self) -> list[SessionRow]:
        """All sessions, those of sub-agents left out."""
        rows = session_rows(self.panel, notes=self._notes_of)
        names = {f"{PREFIX}{row.id}" for row in rows}
        with self._lock:
            self._notes = {name: kept for name, kept in self._notes.items() if name in names}
        return rows

    def _notes_of(self, found: StoredCircuit) -> Notes:
        """The note of a session; read again only when its circuit has changed, or after a while."""
        name, version, now_s = found.circuit.key, found.circuit.version, self.panel.store.now_s()
        kept = self._notes.get(name)
        if kept is not None and kept[0] == version and now_s - kept[1] < NOTES_S:
            return kept[2]
        notes = notes_of(self.panel, name)
        with self._lock:
            self._notes[name] = (version, now_s, notes)
        return notes

    def sessions(self, *, everything: bool = True) -> list[dict[str, Any]]:
        """The sessions, stopped ones first, with activity and spend per minute."""
        now_s = self.panel.store.now_s()
        rows = [row for row in self.session_rows() if everything or row.state != "ended"]
        return [self._session_values(row, now_s) for row in ordered(rows)]

    def _session_values(self, row: SessionRow, now_s: float) -> dict[str, Any]:
        with self._lock:
            rate = self._rates.rate(f"session {row.id}", row.spent_micros, now_s)
        if rate is None and row.spent_micros and row.began_s is not None:
            rate = round(row.spent_micros * 60.0 / max(row.heard_s - row.began_s, 60.0))
        live = activity(row.state, row.heard_s, now_s)
        rate = rate if live == "live" else None
        return {**row._asdict(), "activity": live, "spend_micros_per_min": rate}

    def session(self, name: str) -> dict[str, Any]:
        """One session with the page of its circuit. Raises `NotFound`."""
        found = self.panel.store.get(f"{PREFIX}{name}") if "/" not in name else None
        if found is None:
            raise NotFound(f"there is no session {name!r}")
        now_s = self.panel.store.now_s()
        notes = notes_of(self.panel, found.circuit.key)
        possible: list[str] = []
        if state_of_session(notes, found.circuit) is not State.ENDED:
            stopped = is_stopped(found.circuit)
            options = options_of(self.config.interventions, notes, stopped=stopped)
            possible = [option.key for option in options]
        return {
            **self._session_values(session_row(found, notes, now_s), now_s),
            "tried": list(notes.tried),
            "indicators": list(notes.indicators),
            "points": notes.points,
            "limit_s": notes.limit_s,
            "pending": list(notes.pending),
            "steps": [_step_values(row, found.policy) for row in notes.steps if len(row) == 5],
            "possible": possible,
            "circuit": self.circuit(found.circuit.key),
        }

    # Runs and batches

    def runs(self, limit: int = 100) -> list[dict[str, Any]]:
        """The newest runs of the project, the newest last."""
        return listed_runs(list_runs(runs_root(self.root), limit), self._run_row)

    def run(self, name: str) -> dict[str, Any]:
        """A run with its iterations and its end. Raises `RunUnreadable`."""
        record = find_run(runs_root(self.root), name)
        run, plan = record.read(), self.config.interventions
        notes = self._inbox(run)
        possible = [
            action
            for action in RUN_ACTIONS
            if not run_objection(run, action, plan, is_paused=notes.paused)
        ]
        return {
            **self._run_row(run),
            "folder": run.get("folder"),
            "end": run.get("end"),
            **{limit: (run.get("options") or {}).get(limit) for limit in _LIMITS},
            "time_left_s": run.get("time_left_s"),
            "readings": run.get("readings"),
            "iterations": list(record.iterations()),
            "possible": possible,
            "may_extend": run.get("may_extend") or [],
            "pending": list(notes.pending),
            "events": self._events_of(str(run["circuit"])),
        }

    def _events_of(self, circuit: str) -> list[dict[str, Any]]:
        try:
            entries = self.panel.events(glob=literal(circuit), limit=50)
        except StoreError:
            return []
        return [of_entry(entry) for entry in entries]

    def _run_row(self, run: dict[str, Any]) -> dict[str, Any]:
        row = run_row(run)
        is_paused = row["status"] == "running" and self._inbox(run).paused
        return {**row, "status": "paused" if is_paused else row["status"]}

    def _inbox(self, run: dict[str, Any]) -> Notes:
        """The note of a run that operators have written to; else an empty one."""
        if not has_messages(runs_root(self.root) / str(run["id"])):
            return Notes()
        try:
            return notes_of(self.panel, inbox_name(str(run["id"])))
        except StoreError:
            return Notes()

    def run_log(self, name: str, number: int) -> str:
        """What the agent did in an iteration of a run, step by step. Raises `NotFound`."""
        record = find_run(runs_root(self.root), name)
        try:
            text = read_regular(record.log_file(number), LONGEST_DIFF)
        except (OSError, ValueError):
            raise NotFound(f"run {record.id!r} has no log of iteration {number}") from None
        return text.decode(errors="replace")

    def run_diff(self, name: str) -> str:
        """What a run has changed and kept, as a diff; empty: nothing. Raises `NotFound`."""
        run = find_run(runs_root(self.root), name).read()
        end = run.get("end")
        kept = end.get("checkpoint") if isinstance(end, dict) else None
        how = str(kept.get("how", "")) if isinstance(kept, dict) else ""
        revisions = _revisions(how)
        if not revisions:
            raise NotFound(f"run {run['id']!r} has no saved changes in git")
        options = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--end-of-options")
        try:
            found = run_git(
                Path(str(run["folder"])), [*options, *revisions], deadline=Deadline(DIFF_S)
            )
        except (GitError, OSError) as error:
            raise NotFound(f"the saved changes cannot be read: {error}") from None
        return found[:LONGEST_DIFF]

    def batches(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest batches of the project, the newest last, without their tasks."""
        rows: list[dict[str, Any]] = []
        for name in _folders(batches_root(self.root))[-limit:]:
            try:
                kept, alive = BatchFolder(batches_root(self.root) / name).read()
            except BatchUnreadable as problem:
                rows.append({"id": name, "problem": problem.args[1]})
                continue
            counts = Counter(str(each.status) for each in kept.progress.values())
            rows.append(
                {
                    "id": name,
                    "problem": None,
                    "file": kept.file,
                    "status": "running" if alive else kept.end or "broken off",
                    "tasks": counts.total(),
                    "counts": dict(sorted(counts.items())),
                    "spent_micros": sum(each.spent_micros for each in kept.progress.values()),
                }
            )
        return rows

    def batch(self, name: str) -> dict[str, Any]:
        """A batch with its tasks and what each needs. Raises `NotFound`, `BatchUnreadable`."""
        root = batches_root(self.root)
        if not _ID.fullmatch(name) or name not in _folders(root):
            raise NotFound(f"there is no batch {name!r}")
        kept, alive = BatchFolder(root / name).read()
        needs: dict[str, tuple[str, ...]] = {}
        words: dict[str, str] = {}
        problem = None
        try:
            for task in read_batch(kept.file, presets=self.config.loop_presets).tasks:
                needs[task.name], words[task.name] = task.needs, task.words
        except (ValueError, OSError) as error:
            problem = f"the file of tasks cannot be read, so the order is not known: {error}"
        tasks = [
            {
                "name": task,
                "task": words.get(task, ""),
                "needs": [each for each in needs.get(task, ()) if each in kept.progress],
                **each.dump(),
            }
            for task, each in kept.progress.items()
        ]
        status = "running" if alive else kept.end or "broken off"
        return {"id": name, "file": kept.file, "status": status, "tasks": tasks, "problem": problem}

    # Money, incidents, fleet

    def budgets(self) -> list[dict[str, Any]]:
        """All open nodes of all trees, each before those below it."""
        kept, now_s = self.panel.budgets, self.panel.store.now_s()
        rows = [budget_values(one) for root in kept.roots() for one in kept.tree(root)]
        with self._lock:
            for row in rows:
                key = f"budget {row['path']}"
                row["spend_micros_per_min"] = self._rates.rate(key, row["spent_micros"], now_s)
        return rows

    def incidents(self, *, everything: bool = True) -> list[dict[str, Any]]:
        """The incidents, oldest first."""
        found = self._incidents().all()
        return [one for one in found if everything or one.get("status") != "closed"]

    def incident(self, name: str) -> dict[str, Any]:
        """An incident with its report in Markdown. Raises `IncidentTrouble`."""
        kept = self._incidents()
        return {**kept.get(name), "report": kept.report_of(name)}

    def close_incident(self, name: str, *, by: str, why: str, verdict: str | None) -> str:
        """Close an incident; returns its circuit. Raises `IncidentTrouble`."""
        kept, now_s = self._incidents(), self.panel.store.now_s()
        if kept.get(name)["status"] == "closed":
            raise ValueError(f"incident {name!r} is closed already")
        kept.close(name, by=by, why=why, mark=verdict, now_s=now_s)
        return str(kept.get(name)["circuit"])

    def requests(self) -> list[dict[str, Any]]:
        """The requests of agents for more time or money, oldest first."""
        rows = all_requests(self.panel.store.transact)
        return [{**row._asdict(), "wish": row.wish} for row in rows]

    def _incidents(self) -> Incidents:
        folder = os.path.join(folder_of(self.panel.store.url), INCIDENTS)  # noqa: PTH118
        return Incidents(folder, Fleet(self.panel, self.config.crew, self.config.breakers))

    def fleet(self) -> dict[str, Any]:
        """Agents with their fallbacks, where their work goes, tasks, providers and locks."""
        crew = self.config.crew
        found = world(Fleet(self.panel, crew, self.config.breakers))
        for name, row in found["agents"].items():
            agent = crew.agents[name]
            row["fallback_models"] = [str(model) for model in agent.models[1:]]
            row["fallback_chain"] = list(agent.fallback_chain)
        return found

    # Now

    def now(self, circuits: Iterable[dict[str, Any]] | None = None) -> dict[str, Any]:
        """What needs attention, and the sessions that are not over. `circuits`: rows that are known."""
        rows = self.circuits() if circuits is None else list(circuits)
        hidden = self.hidden()
        rows = [row for row in rows if hidden.owner(row["name"], row["mode"]) is None]
        sessions = self.sessions(everything=False)
        try:
            budgets = self.budgets()
        except StoreError:
            budgets = []  # a store without a ledger
        incidents = self.incidents(everything=False)
        running = [self._run_row(run) for run in hidden.running]
        found: list[Attention] = attention(
            circuits=rows, sessions=sessions, runs=running, budgets=budgets, incidents=incidents
        )
        return {
            "at_s": self.panel.store.now_s(),
            "store": self.panel.store.label,
            "attention": [item._asdict() for item in found],
            "sessions": sessions,
            "running": running,
            "circuits": {"shown": len(rows), "states": dict(Counter(map(state_of, rows)))},
        }


def _step_values(row: Sequence[Any], policy: Policy) -> dict[str, Any]:
    """A step of a session, as the API lists it; its score is at most that at which the session is stopped."""
    at_s, heat, ok, call, error = row
    combine = policy.combine
    score = heat * (combine.threshold if isinstance(combine, WeightedSum) else MAX_POINTS)
    whole = {"at_s": at_s, "heat": heat, "score": round(score)}
    return {**whole, "ok": ok, "call": call, "error": error}


def heat_history(events: Sequence[Event], view: View) -> list[tuple[float, float]]:
    """Heat over time, as far as events show it: trips, warnings and recoveries, then the present heat."""
    warns_at = view.policy.tripping_at or 1.0
    heat_of_phase = {Phase.OPEN: 1.0, Phase.HALF_OPEN: 1.0, Phase.TRIPPING: warns_at}
    points = [
        (event.at_s, heat_of_phase.get(event.after, 0.0))
        for event in events
        if event.kind is EventKind.MOVED
    ]
    newest_s = max([view.circuit.seen_s, *(at_s for at_s, _ in points)])
    return [*points, (newest_s, heat_of(view))]


def budget_values(one: Any) -> dict[str, Any]:
    """A node of a budget, as `budgets list --json` shows it."""
    fields = one.node._asdict()
    fields["told"] = fields.pop("warning_level")  # the key of earlier versions stays
    return {"path": one.path, "level": one.level, **fields, "free_micros": one.node.free_micros}


def state_of(row: Mapping[str, Any]) -> str:
    """The state of a circuit in one word: what an operator forces, else the phase."""
    return str(row["phase"] if row["mode"] == "auto" else row["mode"])


def _folders(root: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError:
        return []


def _revisions(how: str) -> list[str]:
    """The revisions that a command such as `git diff A B` names; none: it is another command."""
    try:
        words = shlex.split(how)
    except ValueError:
        return []
    if words[:1] != ["git"] or "diff" not in words:
        return []
    found = [word for word in words[words.index("diff") + 1 :] if not word.startswith("-")]
    return found if all(map(_REVISION.fullmatch, found)) else []
