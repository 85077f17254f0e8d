"""The model of a batch: its tasks as written, the progress of each, and which may begin."""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from graphlib import TopologicalSorter
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, NamedTuple, Self

from switchgear._core import values
from switchgear._run.state import RunState
from switchgear._stuck.timeouts import Estimate

AUTO = "auto"
"""The value of `timeout` that selects the configured policy."""
TIMEOUT_CHOICES = ("resume", "accept", "retry", "skip")
"""The choices for a task that timed out."""
OPEN_CHOICES = ("wait", "force", "skip", "abort")
"""The choices while the circuit of spawning agents is open."""
ATTEMPTS = 3

_RUN_ID = re.compile(r"[0-9A-Za-z][\w-]*", re.ASCII)


class Status(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    PARTIAL = "partial"
    """It timed out, and its partial work was accepted."""
    FAILED = "failed"
    BLOCKED = "blocked"
    """A task that it needs failed."""
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


SATISFIED = frozenset({Status.DONE, Status.PARTIAL})
"""Statuses that dependent tasks need."""
BROKEN = frozenset({Status.FAILED, Status.SKIPPED, Status.BLOCKED})
"""Statuses that block dependent tasks."""


class Task(NamedTuple):
    """One task as it was written. Immutable."""

    name: str
    words: str
    """The text of the task, for the agent."""
    needs: tuple[str, ...] = ()
    estimate: Estimate = Estimate()
    timeout: float | str | None = AUTO
    """Seconds, the name of a policy, or `auto`; `None`: no limit."""
    flags: Mapping[str, Any] = {}
    """The options of its run, by the fields of `RunOptions`."""
    cwd: str | None = None
    worktree: bool = False
    """Whether it works in a separate git worktree."""
    on_timeout: str = TIMEOUT_CHOICES[0]
    attempts: int = ATTEMPTS
    """Maximum number of starts, if a policy decides."""
    more_time_s: float | None = None
    """Seconds that "resume with more time" grants; `None`: as configured."""
    labels: tuple[str, ...] = ()
    """Labels that a host must have to work on it, where the batch runs on several hosts."""

    @property
    def digest(self) -> str:
        """A hash of the task as written, without the options for a timeout."""
        whole = repr((*self[:5], sorted(self.flags.items()), self.cwd, self.worktree))
        return blake2b(whole.encode(errors="surrogateescape"), digest_size=8).hexdigest()

    @property
    def is_demo(self) -> bool:
        """Whether the demo agent works on it, in a temporary repository."""
        return str(self.flags.get("agent")).partition(":")[0] == "demo" and self.cwd is None


class Batch(NamedTuple):
    tasks: tuple[Task, ...]
    parallel: int = 1
    budget_micros: int | None = None
    """For all tasks together."""
    on_open: str = OPEN_CHOICES[0]


class Progress(NamedTuple):
    """The progress of one task: everything that must outlast the process."""

    status: Status = Status.WAITING
    reason: str = ""
    """The reason of the status, a sentence."""
    blocked_by: str | None = None
    """The failed task that blocks this one."""
    run: str | None = None
    """The id of its run; an earlier one is among `runs`."""
    runs: tuple[str, ...] = ()
    attempts: int = 0
    exit_reason: str | None = None
    """How its run ended."""
    timeout_s: float | None = None
    """Time limit of its run, with all extensions; `None`: not known yet, or no limit."""
    folder: str | None = None
    branch: str | None = None
    """The branch of its worktree."""
    iterations: int = 0
    seconds: float = 0.0
    earlier_micros: int = 0
    """The cost of all runs before the last one."""
    spent_micros: int = 0
    """The cost of all runs."""
    unknown_prices: int = 0
    """Iterations of its last run whose cost is unknown."""
    checkpoint: str | None = None
    """The command that shows or unpacks the saved work; `None`: no file differs."""
    digest: str = ""
    """The digest of the task when it was last started."""

    def dump(self) -> dict[str, Any]:
        return {**self._asdict(), "runs": list(self.runs)}

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `dump`. Raises ValueError for invalid values."""
        known = {key: data[key] for key in cls._fields if key in data}
        values.check_one_of("status", known.get("status"), tuple(Status))
        for key in ("attempts", "iterations", "earlier_micros", "spent_micros", "unknown_prices"):
            values.check_int(key, known.get(key, 0), least=0)
        known["status"] = Status(known["status"])
        known["runs"] = tuple(known.get("runs", ()))
        run = known.get("run")
        if run is not None and not (isinstance(run, str) and _RUN_ID.fullmatch(run)):
            raise ValueError(f"run is {run!r}: it must be the id of a run")
        return cls(**known)

    def with_state(self, state: RunState) -> Self:
        """The progress with the iterations, time and cost of the run."""
        return self._replace(
            iterations=state.iterations,
            seconds=round(state.seconds, 3),
            spent_micros=self.earlier_micros + state.spent_micros,
            unknown_prices=state.unknown_prices,
        )

    def from_scratch(self) -> Self:
        """The progress before a new run: without the state of the last run, but with its cost."""
        return self._replace(
            run=None,
            runs=self.runs if self.run is None else (*self.runs, self.run),
            timeout_s=None,
            iterations=0,
            seconds=0.0,
            earlier_micros=self.spent_micros,
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will be done about it."""
        return self.status in SATISFIED | BROKEN


class BatchEnd(NamedTuple):
    name: str
    code: int
    meaning: str


BATCH_ENDS = {
    end.name: end
    for end in (
        BatchEnd("done", 0, "every task is done"),
        BatchEnd("partial", 20, "every task is done or accepted as it was at its time limit"),
        BatchEnd("incomplete", 21, "a task failed, was skipped or is blocked"),
        BatchEnd("aborted", 22, "the batch was aborted, because no agent may be started"),
        BatchEnd("disk_full", 17, "the disk is full; what could be saved was saved"),
        BatchEnd("interrupted", 130, "you stopped it"),
    )
}
"""How a batch can end. Exit code 2 means a usage error."""


Statuses = Mapping[str, Status]


def ready(tasks: Sequence[Task], statuses: Statuses) -> Iterator[Task]:
    """The tasks that may begin now, in the order of the file, as `statuses` is when each is reached.

    >>> [task.name for task in ready([Task("a", ""), Task("b", "", ("a",))], {})]
    ['a']
    """
    for task in tasks:
        waits = statuses.get(task.name, Status.WAITING) is Status.WAITING
        if waits and all(statuses.get(need) in SATISFIED for need in task.needs):
            yield task


def blocked(tasks: Sequence[Task], statuses: Statuses) -> dict[str, str]:
    """The waiting tasks that can never begin, each with the task whose failure is the cause.

    >>> chain = [Task("a", ""), Task("b", "", ("a",)), Task("c", "", ("b",))]
    >>> blocked(chain, {"a": Status.FAILED})
    {'b': 'a', 'c': 'a'}
    """
    causes: dict[str, str] = {}
    found = True
    while found:
        found = False
        for task in tasks:
            status = statuses.get(task.name, Status.WAITING)
            if task.name in causes or status not in {Status.WAITING, Status.BLOCKED}:
                continue
            for need in task.needs:
                failed = statuses.get(need) in BROKEN - {Status.BLOCKED}
                if failed or need in causes:
                    causes[task.name] = need if failed else causes[need]
                    found = True
                    break
    return {
        name: cause
        for name, cause in causes.items()
        if statuses.get(name, Status.WAITING) is Status.WAITING
    }


def clash(tasks: Sequence[Task], places: Mapping[str, str]) -> tuple[str, str] | None:
    """Two tasks that could run at the same time in the same place; `None`: there are none.

    A place is the working tree that a task changes. A place inside another one counts as the same.
    """
    users = _users(tasks, places)
    if not users:
        return None
    ordered = _ordered_with(tasks)
    for index, task in enumerate(tasks):
        place = places.get(task.name)
        others = 0 if place is None else users[PurePath(place)] & ~ordered[task.name]
        later = others >> (index + 1)
        if later:
            return task.name, tasks[index + (later & -later).bit_length()].name
    return None


def _users(tasks: Sequence[Task], places: Mapping[str, str]) -> dict[PurePath, int]:
    """For each place, the tasks that change it, a folder inside it, or a folder around it.

    A set of tasks is an integer whose bit N stands for task N: a batch may have 10,000 tasks.
    """
    own: dict[PurePath, int] = {}
    for index, task in enumerate(tasks):
        if task.name in places:
            place = PurePath(places[task.name])
            own[place] = own.get(place, 0) | 1 << index
    users = dict(own)
    for place, inner_users in own.items():
        for outer in own.keys() & {*place.parents}:
            users[place] |= own[outer]
            users[outer] |= inner_users
    return users


def _ordered_with(tasks: Sequence[Task]) -> dict[str, int]:
    """For each task, the set of tasks that it needs or that need it, directly or indirectly."""
    needs = {task.name: task.needs for task in tasks}
    bits = {task.name: 1 << index for index, task in enumerate(tasks)}
    order = [*TopologicalSorter(needs).static_order()]
    above, below = dict.fromkeys(bits, 0), dict.fromkeys(bits, 0)
    for name in order:
        for need in needs[name]:
            above[name] |= above[need] | bits[need]
    for name in reversed(order):
        for need in needs[name]:
            below[need] |= below[name] | bits[name]
    return {name: above[name] | below[name] for name in bits}
