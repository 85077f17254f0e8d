"""Measure 26: an outage that all processes see at once, and how long until all of them refuse.

All share one circuit, each with its own panel, and from one moment on every call of every process
fails. Counted from the failure that makes the threshold true until the last process refuses a call,
by the clock that the processes of one machine share.

All of them run on this machine, whose cores they share. So the least that could do the same is
measured in turn: a counter in the same store that refuses from the threshold on, and is published
once. `python -m bench.outage cluster 200` measures one row.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bench.library import Role
from bench.result import TIMES, Bar, Row, Section
from bench.server import running, running_cluster
from switchgear import Panel, Policy, Rejected, detectors

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from bench.measure import Effort

ALL_REFUSE_WITHIN_MS = 250.0
FLEETS = (
    ("sqlite", 4),
    ("redis", 4),
    ("cluster", 4),
    ("redis", 50),
    ("cluster", 50),
    ("cluster", 200),
)
TITLES = {"sqlite": "SQLite", "redis": "Redis", "cluster": "a Redis cluster of three nodes"}
THRESHOLD = 5
EVERY_S = 0.05
"""How often a process calls that is not refused."""
CALM_S = 2.0
"""How long all calls succeed before the outage: then the processes know of each other."""
HEAD_START_S = 0.5
STARTED_TOGETHER = 10
GIVE_UP_S = 30.0


class Guard(Protocol):
    """What a process asks before each call."""

    def succeed(self) -> None:
        """Make a call that succeeds."""

    def refuses(self) -> bool:
        """Whether a call is refused; if not, it is made and fails."""


class CircuitGuard:
    """A circuit of a panel."""

    def __init__(self, url: str) -> None:
        policy = Policy([detectors.ConsecutiveFailures(THRESHOLD)])
        self._breaker = Panel(url).breaker("bench/outage", policy)

    def succeed(self) -> None:
        self._breaker.call(int)

    def refuses(self) -> bool:
        try:
            self._breaker.call(_fail)
        except Rejected:
            return True
        except ConnectionError:
            return False
        raise AssertionError("a call that fails has succeeded")


COUNT = """
local count = redis.call('INCR', KEYS[1])
if count == tonumber(ARGV[1]) then redis.call('PUBLISH', KEYS[2], 'open') end
return count
"""


class RedisCounter:
    """The least that could do it: one script per failure, one message when it is enough."""

    def __init__(self, url: str) -> None:
        self._client = _redis_client(url)
        self._count = self._client.register_script(COUNT)
        self._channel = _redis_client(url).pubsub()
        self._channel.subscribe("{bare}:moves")
        self._is_open = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while not self._is_open:
            message = self._channel.get_message(timeout=1.0)
            self._is_open = message is not None and message["type"] == "message"

    def succeed(self) -> None:
        self._client.get("{bare}:count")

    def refuses(self) -> bool:
        if self._is_open:
            return True
        if int(self._count(["{bare}:count", "{bare}:moves"], [THRESHOLD])) >= THRESHOLD:
            self._is_open = True
        return False


def _redis_client(url: str) -> Any:
    redis: Any = import_module("redis")
    if "+cluster" not in url:
        return redis.Redis.from_url(url)
    host, port = url.partition("://")[2].partition(",")[0].split(":")
    return redis.RedisCluster(host=host, port=int(port), socket_timeout=GIVE_UP_S)


class SqliteCounter:
    """The same in a file: one transaction per failure, one query per call."""

    def __init__(self, url: str) -> None:
        path = url.removeprefix("sqlite:///")
        self._db = sqlite3.connect(path, isolation_level=None, timeout=GIVE_UP_S)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS bare (failure INTEGER)")

    def succeed(self) -> None:
        self._failures()

    def refuses(self) -> bool:
        if self._failures() >= THRESHOLD:
            return True
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO bare VALUES (1)")
        self._db.execute("COMMIT")
        return False

    def _failures(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM bare").fetchone()[0])


def _fail() -> None:
    raise ConnectionError("connection refused")


class Seen(NamedTuple):
    """What one process saw, on the clock that all share."""

    failed_s: list[float]
    """When each of its calls that failed began."""
    refused_s: float
    cpu_s: float


class Outage(NamedTuple):
    """One outage of all processes."""

    last_ms: float
    median_ms: float
    cpu_ms: float
    """The CPU time of a process until it refused."""


def section(effort: Effort) -> Section:
    """How long an outage of all processes takes until all of them refuse."""
    runs = 5 if effort.rounds > 100 else 1
    rows, bars, numbers = [], [], {}
    for store, processes in FLEETS:
        bare, ours = [], []
        for _ in range(runs):
            bare.append(one_outage(store, processes, bare=True))
            ours.append(one_outage(store, processes, bare=False))
        title = f"{processes} processes, {TITLES[store]}"
        floor_ms = statistics.median(one.last_ms for one in bare)
        rows += [
            _row(f"{title}: bare counter", bare, floor_ms, Role.FLOOR),
            _row(title, ours, floor_ms, Role.OURS),
        ]
        last_ms = statistics.median(one.last_ms for one in ours)
        bars.append(Bar(f"ms until all refuse, {title}", last_ms, ALL_REFUSE_WITHIN_MS))
        numbers[title] = [one._asdict() for one in ours]
    return Section(
        key="outage",
        title="An outage of all processes",
        method=(
            f"All calls of all processes fail from one moment on, {1 / EVERY_S:g} times a second each, at a "
            f"threshold of {THRESHOLD} failures in a row; from the failure that reaches it until a process "
            f"refuses. Medians of {runs} outages, on {os.cpu_count()} cores."
        ),
        columns=("last, ms", "median, ms", f"{TIMES} bare", "CPU ms per process"),
        rows=rows,
        bars=bars,
        numbers=numbers,
    )


def _row(name: str, outages: list[Outage], floor_ms: float, role: Role) -> Row:
    last_ms, median_ms, cpu_ms = map(statistics.median, zip(*outages, strict=True))
    cells = (
        f"{last_ms:,.0f}",
        f"{median_ms:,.0f}",
        f"{last_ms / floor_ms:.2f}",
        f"{cpu_ms:.1f}",
    )
    return Row(name, role, cells, last_ms)


def one_outage(store: str, processes: int, *, bare: bool) -> Outage:
    """One outage in a store of its own."""
    with ExitStack() as stack:
        counter: Callable[[str], Guard] = RedisCounter
        if store == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            url, counter = f"sqlite:///{folder}/state.db", SqliteCounter
        elif store == "redis":
            url = stack.enter_context(running()).url
        else:
            url = stack.enter_context(running_cluster())
        seen = _seen_by_all(counter if bare else CircuitGuard, url, processes)
    failed_s = sorted(at_s for each in seen for at_s in each.failed_s)
    taken_ms = [(each.refused_s - failed_s[THRESHOLD - 1]) * 1e3 for each in seen]
    cpu_ms = statistics.mean(each.cpu_s for each in seen) * 1e3
    return Outage(max(taken_ms), statistics.median(taken_ms), cpu_ms)


def _seen_by_all(make: Callable[[str], Guard], url: str, processes: int) -> list[Seen]:
    for module in ("redis.cluster", "switchgear._stores.redis"):
        import_module(module)  # once, before the processes are forked
    fork = multiprocessing.get_context("fork")
    crew: list[tuple[Any, Connection]] = []
    try:
        while len(crew) < processes:
            ours, theirs = fork.Pipe()
            process = fork.Process(target=_member, args=(make, url, theirs), daemon=True)
            process.start()
            theirs.close()
            crew.append((process, ours))
            if len(crew) >= STARTED_TOGETHER:
                crew[-STARTED_TOGETHER][1].recv()
        for _, link in crew[1 - STARTED_TOGETHER :]:
            link.recv()
        time.sleep(CALM_S)
        start_s = time.monotonic() + HEAD_START_S
        for _, link in crew:
            link.send(start_s)
        return [link.recv() for _, link in crew]
    finally:
        for process, _ in crew:
            process.kill()  # without the reports that a panel still has to send
            process.join()


def _member(make: Callable[[str], Guard], url: str, link: Connection) -> None:
    """Succeed until the outage, then fail until a call is refused."""
    guard = make(url)
    guard.succeed()
    link.send("ready")
    while not link.poll(1.0):
        guard.succeed()
    start_s = link.recv()
    time.sleep(max(0.0, start_s - time.monotonic()))
    cpu_s = _cpu_s()
    failed_s: list[float] = []
    while (now_s := time.monotonic()) < start_s + GIVE_UP_S:
        if guard.refuses():
            break
        failed_s.append(now_s)
        time.sleep(EVERY_S)
    link.send(Seen(failed_s, time.monotonic(), _cpu_s() - cpu_s))
    link.recv()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(store: str, processes: int, runs: int = 1) -> None:
    for _ in range(runs):
        for bare in (True, False):
            one = one_outage(store, processes, bare=bare)
            texts = [f"{name} {value:.1f}" for name, value in one._asdict().items()]
            what = "bare counter" if bare else "switchgear"
            load = os.getloadavg()[0]
            print(
                f"{processes} on {store}, {what}: {', '.join(texts)} (load {load:.0f})", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
