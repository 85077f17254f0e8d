"""Measure 25: the cost of a batch task on workers, against the same batch on one host.

Short tasks in git worktrees: their agent is a shell that adds a line to a file. Local and remote batches
alternate; each remote one runs on four workers with their own folders and HOMEs, over one Redis that
keeps its data.

Measure 27, `remote-scale`, runs one batch of 10,000 tasks on the same workers and compares its first
thousand tasks with its last. It takes about half an hour, so it runs only when it is named:
`python -m bench --only remote-scale`.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.library import Role
from bench.result import TIMES, Bar, Row, Section
from bench.server import binary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Effort

TASKS = 200
WORKERS = 4
PARALLEL = 4
AT_MOST_TIMES = 1.5
MANY_TASKS = 10_000
LAST_AT_MOST_TIMES_FIRST = 1.2
DONE = b"] done: "
"""What the batch prints for each task that is done."""
AGENT = "sh -c 'echo line >> work.txt; echo done'"


def tasks_file(folder: Path, count: int, *, parallel: int) -> None:
    """Tasks that need nothing of each other."""
    tasks = [{"name": f"t{n}", "task": f"add a line, {n}"} for n in range(count)]
    defaults = {"agent_cmd": AGENT, "worktree": True, "stuck": False, "timeout": "1h"}
    whole = {"tasks": tasks, "defaults": defaults, "parallel": parallel}
    (folder / "tasks.yaml").write_text(json.dumps(whole))


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A server that keeps its data, on a private port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [binary(), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    command += ["--dir", str(folder), "--appendonly", "yes"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while True:
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def workers(folder: Path, store: str, count: int) -> Iterator[list[int]]:
    """The process ids of workers that are ready before the block begins."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            where = folder / f"worker-{number}"
            where.mkdir()
            with (where / "log").open("wb") as log:
                words = ["worker", "--name", f"w{number}", "--dir", str(where / "work")]
                command = [sys.executable, "-m", "switchgear", *words]
                started.append(
                    subprocess.Popen(
                        command, cwd=where, env=environment(where, store), stdout=log, stderr=log
                    )
                )
        for number in range(count):
            while b".> switchgear" not in (folder / f"worker-{number}" / "log").read_bytes():
                time.sleep(0.1)
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.wait()


def environment(home: Path, store: str) -> dict[str, str]:
    """Of one host."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "SWITCHGEAR_STORE": store}


def seconds_of(folder: Path, store: str, *words: str) -> float:
    """How long a batch takes, from its first task to its last."""
    command = [sys.executable, "-m", "switchgear", "batch", "tasks.yaml", "--json", *words]
    begun_s = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment(folder, store), capture_output=True, check=False
    )
    taken_s = time.perf_counter() - begun_s
    if json.loads(done.stdout)["end"] != "done":
        sys.exit(f"the batch failed: {done.stderr.decode()[-2000:]}")
    return taken_s


@contextmanager
def project(parent: Path) -> Iterator[Path]:
    """A repository with one commit."""
    with tempfile.TemporaryDirectory(dir=parent) as place:
        folder = Path(place) / "project"
        folder.mkdir()
        who = ["-c", "user.name=b", "-c", "user.email=b@localhost"]
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        commit = ["git", *who, "commit", "-q", "--allow-empty", "-m", "start"]
        subprocess.run(commit, cwd=folder, check=True)
        yield folder


def measured(count: int, rounds: int) -> tuple[float, float]:
    """Seconds per task, local and remote, medians of alternating rounds."""
    local, remote = [], []
    with tempfile.TemporaryDirectory() as place:
        parent = Path(place)
        with redis_server(parent) as store, workers(parent, store, WORKERS):
            for _ in range(rounds):
                with project(parent) as folder:
                    tasks_file(folder, count, parallel=PARALLEL)
                    local.append(seconds_of(folder, store) / count)
                with project(parent) as folder:
                    tasks_file(folder, count, parallel=PARALLEL)
                    remote.append(seconds_of(folder, store, "--on", "celery") / count)
    return statistics.median(local), statistics.median(remote)


def section(effort: Effort) -> Section:
    """The cost of a task on workers, against the cost of the same task here."""
    count = TASKS if effort.rounds > 1 else TASKS // 10
    local, remote = measured(count, 1 if effort.rounds == 1 else 3)
    rows = [
        Row("batch on one host", Role.FLOOR, (f"{local * 1e3:.0f} ms", "1.00"), local),
        Row(
            "batch on four workers",
            Role.OURS,
            (f"{remote * 1e3:.0f} ms", f"{remote / local:.2f}"),
            remote,
        ),
    ]
    return Section(
        "remote",
        "A task of a batch on workers",
        f"{count} short tasks, {PARALLEL} at a time; medians of alternating batches",
        ("per task", TIMES),
        rows,
        [Bar("times a local batch per task", remote / local, AT_MOST_TIMES)],
        {"local_s": local, "remote_s": remote},
    )


class Moment(NamedTuple):
    """What a batch has done and used so far."""

    done: int
    time_s: float
    batch_s: float
    """CPU time of the batch and of the processes that it has waited for."""
    workers_s: float
    """CPU time of the workers and of their agents."""


class Share(NamedTuple):
    """What a task of a part of a batch took, in milliseconds."""

    time_ms: float
    batch_ms: float
    workers_ms: float

    @property
    def cpu_ms(self) -> float:
        return self.batch_ms + self.workers_ms


def section_of_many(effort: Effort) -> Section:
    """Whether the last tasks of a large batch cost more than the first."""
    count = MANY_TASKS if effort.rounds > 100 else MANY_TASKS // 20
    part = count // 10
    moments = moments_of(count, part)
    shares = [_share(one, other) for one, other in itertools.pairwise(moments)]
    first, last, whole = shares[0], shares[-1], _share(moments[0], moments[-1])
    rows = [
        _row_of_part(f"the first {part:,}", Role.FLOOR, first, first),
        _row_of_part(f"the last {part:,}", Role.OURS, last, first),
        _row_of_part(f"all {count:,}", Role.OURS, whole, first),
    ]
    return Section(
        "remote-scale",
        "A large batch on workers",
        f"{count:,} short tasks through {WORKERS} workers, {PARALLEL} at a time; per task",
        ("time", f"{TIMES} first", "CPU of the batch", "CPU of the workers", f"{TIMES} first"),
        rows,
        [
            Bar(
                "times the CPU time of the first tasks",
                last.cpu_ms / first.cpu_ms,
                LAST_AT_MOST_TIMES_FIRST,
            ),
            Bar(
                "times the time of the first tasks",
                last.time_ms / first.time_ms,
                LAST_AT_MOST_TIMES_FIRST,
            ),
        ],
        {"parts": [share._asdict() for share in shares]},
    )


def _row_of_part(name: str, role: Role, share: Share, first: Share) -> Row:
    cells = (
        f"{share.time_ms:.0f} ms",
        f"{share.time_ms / first.time_ms:.2f}",
        f"{share.batch_ms:.0f} ms",
        f"{share.workers_ms:.0f} ms",
        f"{share.cpu_ms / first.cpu_ms:.2f}",
    )
    return Row(name, role, cells, share.cpu_ms)


def _share(one: Moment, other: Moment) -> Share:
    tasks = other.done - one.done
    return Share(
        *((after - before) * 1e3 / tasks for before, after in zip(one[1:], other[1:], strict=True))
    )


def moments_of(count: int, part: int) -> list[Moment]:
    """The moments at which another part of a batch was done, and its start; one line each on standard error."""
    with tempfile.TemporaryDirectory() as place:
        parent = Path(place)
        with (
            redis_server(parent) as store,
            workers(parent, store, WORKERS) as pids,
            project(parent) as folder,
        ):
            tasks_file(folder, count, parallel=PARALLEL)
            words = ("batch", "tasks.yaml", "--json", "--on", "celery")
            with (parent / "out").open("wb") as out, (parent / "log").open("wb") as log:
                batch = subprocess.Popen(
                    [sys.executable, "-m", "switchgear", *words],
                    cwd=folder,
                    env=environment(folder, store),
                    stdout=out,
                    stderr=log,
                )
            try:
                moments = _watched(batch, parent / "log", pids, part)
            finally:
                batch.kill()
                batch.wait()
            if moments[-1].done != count:
                sys.exit(f"the batch failed: {(parent / 'log').read_bytes()[-2000:].decode()}")
            return moments


def _watched(
    batch: subprocess.Popen[bytes], log: Path, workers: list[int], part: int
) -> list[Moment]:
    begun_s, done, rest = time.perf_counter(), 0, b""
    moments = [Moment(0, 0.0, 0.0, sum(map(_cpu_s, workers)))]
    with log.open("rb") as lines:
        while True:
            is_over = batch.poll() is not None
            read = rest + lines.read()
            whole, _, rest = read.rpartition(b"\n")
            done += whole.count(DONE)
            if done >= part * len(moments):
                now_s = time.perf_counter() - begun_s
                moments.append(Moment(done, now_s, _cpu_s(batch.pid), sum(map(_cpu_s, workers))))
                share = _share(*moments[-2:])
                print(f"{done} done, {share}, load {os.getloadavg()[0]:.0f}", file=sys.stderr)
            if is_over:
                return moments
            time.sleep(0.1)


def _cpu_s(process: int) -> float:
    """The CPU time of a process and of the children that it has waited for (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
