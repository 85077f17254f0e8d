"""Measure 25: the cost of a batch task on workers, against the same batch on one host.

Short tasks in git worktrees: their agent is a shell that adds a line to a file. Local and remote batches
alternate; each remote one runs on four workers with their own folders and HOMEs, over one Redis that
keeps its data. `python -m bench.remote_batch 10000` measures how a large batch scales.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING

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
def workers(folder: Path, store: str, count: int) -> Iterator[None]:
    """Workers that are ready before the block begins."""
    started = []
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
        yield
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


if __name__ == "__main__":
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else TASKS
    one, other = measured(tasks, 1)
    print(
        f"{tasks} tasks: {one * 1e3:.0f} ms per task here, {other * 1e3:.0f} ms on workers, {other / one:.2f}"
    )
