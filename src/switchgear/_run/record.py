"""A run is a folder: run.json, iterations.jsonl, and the prompts and logs of its iterations.

run.json is replaced atomically, so readers never see a partial file. Unreadable runs are reported and
skipped. A run that is running is never pruned.
"""

import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from switchgear._agents.events import (
    AgentError,
    AgentResult,
    Question,
    StreamEvent,
    TextOutput,
    ToolStep,
)
from switchgear._core.errors import SwitchgearError
from switchgear._measure.git_base import STATE_FOLDER
from switchgear._measure.saved_refs import free_bytes, is_full, means_disk_full
from switchgear._run.options import AUTO, RunOptions
from switchgear._run.run_lock import is_held
from switchgear._stores.url import default_file
from switchgear._stuck.timeouts import LEARNING, Estimate, Timeouts, timeout
from switchgear._system.files import append_descriptor, open_regular, write_whole

SCHEMA = 1
RUNS = "runs"
LONGEST_FILE = 50_000_000


class RunUnreadable(SwitchgearError):
    """A run that does not exist or cannot be read. `args` are its id, and the reason."""

    args: tuple[str, str]

    def __str__(self) -> str:
        return f"run {self.args[0]!r} {self.args[1]}"


class RunFolder:
    """The files of one run. Written by the process that runs it, read by any."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def notes(self) -> Path:
        """Where the measuring of the working folder keeps its own files."""
        return self.path / "notes"

    def prompt_file(self, number: int) -> Path:
        return self.path / "prompts" / f"{number:04}.txt"

    def log_file(self, number: int) -> Path:
        return self.path / "logs" / f"{number:04}.log"

    def make(self) -> None:
        """Create the folder, with access for the user only: its content may be private."""
        keep_out_of_git(self.path.parents[1])
        for folder in (self.path, self.path / "prompts", self.path / "logs"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def discard(self) -> None:
        """Remove the folder, unless a run was saved in it."""
        if not (self.path / "run.json").exists():
            shutil.rmtree(self.path, ignore_errors=True)

    def write(self, run: dict[str, Any]) -> None:
        write_json(self.path / "run.json", {"schema": SCHEMA, **run})

    def add(self, facts: dict[str, Any]) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        append_json(self.path / "iterations.jsonl", facts)

    def read(self) -> dict[str, Any]:
        """What run.json holds. Raises `RunUnreadable`."""
        try:
            with os.fdopen(open_regular(self.path / "run.json"), encoding="utf-8") as file:
                run = json.loads(file.read(LONGEST_FILE))
        except FileNotFoundError:
            why = "has no run.json" if self.path.is_dir() else "does not exist"
            raise RunUnreadable(self.id, why) from None
        except (OSError, ValueError, RecursionError) as error:
            raise RunUnreadable(self.id, f"cannot be read: {error}") from error
        if not isinstance(run, dict) or not run.keys() >= _REQUIRED:
            why = "cannot be read: its run.json was not written by Switchgear"
            raise RunUnreadable(self.id, why)
        if not isinstance(run["schema"], int) or run["schema"] > SCHEMA:
            raise RunUnreadable(self.id, "was written by a newer Switchgear")
        return run

    def iterations(self) -> Iterator[dict[str, Any]]:
        """The iterations that can be read; a truncated line is skipped."""
        found = self.path / "iterations.jsonl"
        with suppress(OSError), os.fdopen(open_regular(found), "rb") as file:
            for line in file:
                with suppress(ValueError, RecursionError):
                    facts = json.loads(line)
                    if isinstance(facts, dict):
                        yield facts


_REQUIRED = {"schema", "id", "task", "options", "state", "folder", "circuit"}


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace a file atomically by a value as JSON."""
    write_whole(str(path), json.dumps(value, indent=1, ensure_ascii=True) + "\n")


def append_json(path: Path, value: Any, *, sync: bool = False) -> None:
    """Append a value as a line of JSON; `sync`: wait until it is on the disk."""
    line = json.dumps(value, ensure_ascii=True).encode("ascii") + b"\n"
    descriptor = append_descriptor(path)
    with os.fdopen(descriptor, "ab", buffering=0) as file:
        end = os.fstat(descriptor).st_size
        try:
            while line:
                line = line[file.write(line) :]
        except OSError:
            with suppress(OSError):
                file.truncate(end)  # a partial line would also corrupt the next one
            raise
        if sync:
            os.fsync(descriptor)


def write_elsewhere(run: str, value: dict[str, Any]) -> Path | None:
    """Write the content of run.json to another file system that may have space. Returns the path, if any has."""
    for root in (tempfile.gettempdir(), "/var/tmp", "/dev/shm"):  # noqa: S108  a folder of our own
        place = Path(root) / f"switchgear-{os.getuid()}" / f"{run}-run.json"
        with suppress(OSError):
            if not place.parent.is_symlink():
                write_json(place, value)
                return place
    return None


def has_started(run: dict[str, Any]) -> bool:
    """Whether an agent may have worked: a run that waits for a worker has a record, too."""
    return (run.get("state") or {}).get("started_s") is not None


def last_claim(record: RunFolder) -> int:
    """The number of the newest claim of a run that was given to other hosts; 0: none is known."""
    try:
        return int(record.read().get("claim", 0))
    except (RunUnreadable, TypeError, ValueError):
        return 0


def circuit_of(record: RunFolder) -> str | None:
    """The circuit that a run was started with; `None`: it has not started, or cannot be read."""
    try:
        return str(record.read()["circuit"])
    except RunUnreadable:
        return None


class ListedRun(NamedTuple):
    id: str
    run: dict[str, Any] | None
    """What run.json holds; `None`: it cannot be read."""
    problem: str = ""


def runs_root(start: Path) -> Path:
    """The folder with the runs of a project: in its `.switchgear`, else in that of `start`."""
    found = Path(default_file(str(start))).parent
    return (found if found.name == STATE_FOLDER else start / STATE_FOLDER) / RUNS


def new_run(root: Path, now_s: float | None = None) -> RunFolder:
    """Create the folder of a new run. Ids sort by time, to the millisecond."""
    while (path := root / new_id(now_s)).exists():
        pass  # two runs never share a folder
    folder = RunFolder(path)
    folder.make()
    return folder


def new_id(now_s: float | None = None) -> str:
    """An id of a run or a batch: UTC to the millisecond, and four random digits."""
    at = datetime.fromtimestamp(time.time() if now_s is None else now_s, UTC)
    return f"{at:%Y%m%d-%H%M%S}-{at.microsecond // 1000:03}{secrets.token_hex(2)}"


def find_run(root: Path, name: str) -> RunFolder:
    """A run by its id, by the beginning or the end of its id, or `last`. Raises `RunUnreadable`."""
    ids = ids_in(root)
    found = ids[-1:] if name == "last" else [name] if name in ids else matching(ids, name)
    if len(found) == 1:
        return RunFolder(root / found[0])
    if found:
        raise RunUnreadable(name, f"matches {len(found)} runs: {', '.join(found[:5])}")
    hint = f"`switchgear runs` lists {len(ids)}" if ids else "there are no runs yet"
    raise RunUnreadable(name, f"is not in {root}; {hint}")


def matching(ids: list[str], part: str) -> list[str]:
    """The ids that begin or end with a part."""
    return [each for each in ids if part and (each.startswith(part) or each.endswith(part))]


def list_runs(root: Path, newest: int | None = None) -> list[ListedRun]:
    """The runs, newest last; an unreadable one is listed with the reason.

    `newest` is how many are read; `None`: all.
    """
    found = []
    for name in ids_in(root)[0 if newest is None else -newest :]:
        try:
            found.append(ListedRun(name, RunFolder(root / name).read()))
        except RunUnreadable as problem:
            found.append(ListedRun(name, None, problem.args[1]))
    return found


def is_alive(run: dict[str, Any]) -> bool:
    """Whether the process that runs it is alive, and not another process with the same pid."""
    pid = run.get("pid")
    if run.get("end") is not None or not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    if "".join(_stat(pid)[:1]) in {"Z", "X", "x"}:
        return False  # a zombie: it has ended
    began, now = run.get("pid_began"), process_began(pid)
    return began is None or now is None or began == now


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name may contain any character


def process_began(pid: int) -> str | None:
    """An identifier of a process's start; `None`: unknown on this system."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    fields = _stat(pid)
    return f"{boot} {fields[19]}" if len(fields) > 19 else None


def ids_in(root: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError:
        return []


def keep_out_of_git(ours: Path) -> None:
    """Add a .gitignore to the state folder, as caches do."""
    ours.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignore = ours / ".gitignore"
    if ours.name == STATE_FOLDER and not ignore.exists():
        with suppress(OSError):
            ignore.write_text("*\n", encoding="ascii")


MAX_LOG_CHARS = 1_000_000
"""Maximum characters of one log."""


class AgentLog:
    """Writes the events of a stream to a file. Their texts are already redacted."""

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(append_descriptor(path), "a", encoding="utf-8", errors="replace")
        self._left = MAX_LOG_CHARS
        self.problem: OSError | None = None
        """Why writing failed, if it did; the agent continues without a log."""

    def event(self, event: StreamEvent) -> None:
        if isinstance(event, TextOutput):
            self.write(event.text)
        elif isinstance(event, ToolStep):
            how = "?" if event.ok is None else "ok" if event.ok else "failed"
            error = f"\n    {event.error}" if event.error else ""
            self.write(f"[{event.tool}] {event.arguments}: {how}{error}")
        elif isinstance(event, AgentError):
            self.write(f"[{event.kind}] {event.text}")
        elif isinstance(event, Question):
            self.write(f"[question] {event.text}")
        elif isinstance(event, AgentResult):
            self.write(f"[result] {event.text}")

    def write(self, text: str) -> None:
        if self._left <= 0 or self.problem is not None:
            return
        self._left -= len(text) + 1
        try:
            self._file.write(f"{text}\n" if self._left > 0 else "[the rest is left out]\n")
        except OSError as error:
            self.problem = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        except OSError as problem:  # the buffered text did not fit; the file is closed anyway
            self.problem = problem


MIN_FREE_BYTES = 1_000_000
"""Bytes that must be free for an iteration to begin."""
RESERVE = 262_144
"""Bytes reserved during the run, so that its end can be written."""


class Disk:
    """The file systems that a run writes to. Used by one thread."""

    def __init__(self, record: Path, folder: Path) -> None:
        self._places = (record, folder)
        self._reserve = record / "notes" / "reserve"

    def reserve(self) -> None:
        """Reserve space. The next check reports a disk without that much space."""
        with suppress(OSError):
            self._reserve.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Random bytes, which file systems cannot compress.
            self._reserve.write_bytes(os.urandom(RESERVE))

    def release(self) -> None:
        with suppress(OSError):
            self._reserve.unlink(missing_ok=True)

    def objection(self) -> str | None:
        """Why there is too little space for an iteration; `None`: there is enough."""
        for place in self._places:
            free = free_bytes(place)
            if free is not None and free < MIN_FREE_BYTES:
                needed = f"a run needs {MIN_FREE_BYTES // 1000} kB"
                return f"{free // 1000} kB are free at {place}, and {needed}"
        return None


def full_sentence(why: object) -> str:
    """The reason of a run that ends because the disk is full."""
    return f"the disk is full ({why}); free some space, then continue"


def is_disk_full(error: BaseException | None) -> bool:
    return error is not None and (is_full(error) or means_disk_full(str(error)))


PRUNED = "pruned-circuits.txt"
MAX_PRUNED_NAMES = 10_000


def prunable(
    root: Path, *, now_s: float, older_than_s: float | None = None, keep: int | None = None
) -> list[ListedRun]:
    """The runs that ended more than `older_than_s` seconds ago and are not among the newest `keep`."""

    def ended(each: ListedRun) -> bool:
        path = root / each.id
        if each.run is None or path.is_symlink() or is_alive(each.run) or is_held(path / "lock"):
            return False
        return older_than_s is None or now_s - _last_s(each.run, path) >= older_than_s

    return [*filter(ended, list_runs(root)[: -keep if keep else None])]


def prune(root: Path, found: list[ListedRun]) -> tuple[list[ListedRun], list[tuple[str, str]]]:
    """Remove these runs. Returns the removed ones, and the ids of the others with the reason."""
    removed, left = [], []
    for each in found:
        try:
            shutil.rmtree(root / each.id)
        except OSError as error:
            left.append((each.id, error.strerror or str(error)))
        else:
            removed.append(each)
    if removed:
        circuits = (str(each.run["circuit"]) for each in removed if each.run is not None)
        names = dict.fromkeys((*pruned_circuits(root), *circuits))
        lines = "".join(f"{name}\n" for name in names if name.isprintable())
        with suppress(OSError):
            write_whole(str(root.parent / PRUNED), lines)
    return removed, left


def pruned_circuits(root: Path) -> set[str]:
    """The circuits of removed runs: `status` hides them, although the store may still have them."""
    try:
        text = (root.parent / PRUNED).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    return set(text.splitlines()[-MAX_PRUNED_NAMES:])


def _last_s(run: dict[str, Any], path: Path) -> float:
    """When the run ended, in seconds since the epoch; for a run without an end, when it was last saved."""
    try:
        return datetime.fromisoformat(str(run.get("ended_at"))).timestamp()
    except ValueError:
        return (path / "run.json").stat().st_mtime


MAX_SIMILAR_RUNS = 50
"""Maximum number of similar runs; the durations of older ones are out of date."""


def similar_durations_s(
    root: Path, rules: Timeouts, *, task: str, agent: str, preset: str | None
) -> list[float]:
    """The durations of similar runs in seconds, oldest first; `root` is where runs are kept.

    Empty if the policy does not learn from past runs, because reading them is slow.
    """
    if rules.policy not in LEARNING:
        return []
    done = [
        each.run
        for each in list_runs(root, 20 * MAX_SIMILAR_RUNS)
        if each.run is not None
        and (each.run.get("end") or {}).get("exit_reason") == "completed"
        and each.run.get("agent") == agent
    ]
    alike = [run for run in done if run["task"].split() == task.split()]
    if len(alike) < rules.min_runs and preset is not None:
        alike = [run for run in done if (run["options"] or {}).get("preset") == preset]
    spans = [(run["state"] or {}).get("seconds") for run in alike]
    return [float(span) for span in spans if isinstance(span, int | float)][-MAX_SIMILAR_RUNS:]


def timeout_by_policy(
    options: RunOptions, policy: str, size: Estimate, rules: Timeouts, runs: Path
) -> tuple[float, str]:
    """The time limit of a run in seconds, and why; `policy` is `auto` for the configured one."""
    if policy != AUTO:
        rules = rules._replace(policy=policy)
    durations_s = similar_durations_s(
        runs, rules, task=options.task, agent=options.agent_label, preset=options.preset
    )
    chosen = timeout(rules, size, durations_s)
    return chosen.seconds, f"{rules.policy}: {chosen.why}"
