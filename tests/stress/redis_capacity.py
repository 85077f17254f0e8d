"""What an operation costs a Redis server, in CPU time and commands. No test: it prints a table.

    PYTHONPATH=tests python -m stress.redis_capacity [OPERATIONS]

The CPU time is the server's own account (`INFO cpu`), so a loaded machine changes it little. One second of CPU
time divided by it is what one server executes at most. Contention: so many processes reserve from one tree.
"""

import multiprocessing
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import redis

from servers.server import running
from switchgear import Panel, Policy, Signal, detectors
from switchgear._remote.job import JobSpec, Parcel
from switchgear._remote.jobs import Jobs
from switchgear._stores.base import ledger_of

POLICY = Policy([detectors.ConsecutiveFailures(10**9)])
FAILED = Signal(ok=False, error="529 overloaded")
TASK = {"name": "t", "task": "write the tests", "agent": "claude"}
RUN = {"id": "r", "state": {"iterations": 3, "spent_micros": 120_000, "changed": ["a.py"] * 20}}


class Account:
    """The CPU time and the commands of a server."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    def read(self) -> tuple[float, int]:
        cpu, stats = self._client.info("cpu"), self._client.info("stats")
        used = cpu["used_cpu_user"] + cpu["used_cpu_sys"]
        return used, stats["total_commands_processed"]

    def cost(self, operations: int, work: Callable[[], object]) -> str:
        before = self.read()
        work()
        after = self.read()
        us = (after[0] - before[0]) / operations * 1e6
        commands = (after[1] - before[1]) / operations
        return f"{us:8.0f} us  {commands:6.1f} commands  {1e6 / us:9,.0f} a second"


def _reserving(url: str, paths: list[str], operations: int) -> None:
    budgets = Panel(url).budgets
    for number in range(operations):
        budgets.reserve(paths[number % len(paths)], 10).settle(7)


def _crowd(url: str, processes: int, operations: int, path: Callable[[int], str]) -> None:
    fork = multiprocessing.get_context("fork")
    crew = [
        fork.Process(target=_reserving, args=(url, [path(each)], operations // processes))
        for each in range(processes)
    ]
    for process in crew:
        process.start()
    for process in crew:
        process.join()


def _jobs(url: str) -> Jobs:
    return Jobs(ledger_of(Panel(url).store.inner))


def _ordered(jobs: Jobs, count: int) -> None:
    start = Parcel("p:1", "c" * 40, "c" * 40, "HEAD")
    for number in range(count):
        jobs.order(JobSpec(f"r{number}", "b", TASK, "loop/t", start, start))


def main(operations: int) -> None:
    with running() as server:
        url = server.url + "/0"
        account = Account(url)

        def row(name: str, work: Callable[[], Any], count: int = operations) -> None:
            sys.stdout.write(f"{name:52} {account.cost(count, work)}\n")
            sys.stdout.flush()

        panel = Panel(url)
        one = panel.breaker("api", POLICY)
        many = [panel.breaker(f"api-{number}", POLICY) for number in range(100)]
        row("a failure, one circuit", lambda: [one.record(FAILED) for _ in range(operations)])
        row(
            "a failure, 100 circuits",
            lambda: [many[n % 100].record(FAILED) for n in range(operations)],
        )
        row("a view of a circuit", lambda: [panel.view("api") for _ in range(operations)])
        panel.budgets.open("one", limit="$1000000")
        for each in range(16):
            panel.budgets.open(f"host-{each}", limit="$1000000")
        for each in range(16):
            panel.budgets.open(f"one/host-{each}", limit="$10000")
        row("reserve and settle, at the root", lambda: _reserving(url, ["one"], operations))
        row("reserve and settle, a child", lambda: _reserving(url, ["one/host-1"], operations))
        for processes in (4, 16):
            row(
                f"the same, {processes} processes, one tree",
                partial(_crowd, url, processes, operations, "one/host-{}".format),
            )
        row(
            "the same, 16 processes, a tree each",
            partial(_crowd, url, 16, operations, "host-{}".format),
        )
        jobs = _jobs(url)
        iterations = [{"number": 1, "log": "x" * 2000}]

        def save() -> None:
            for n in range(operations):
                jobs.save(f"r{n}", 1, record=RUN, iterations=iterations)

        row("order a job", lambda: _ordered(jobs, operations))
        row("claim it", lambda: [jobs.claim(f"r{n}", "h", 60.0) for n in range(operations)])
        row("renew the claim", lambda: [jobs.renew(f"r{n}", 1, 60.0) for n in range(operations)])
        row("save an iteration", save)
        row("look at it", lambda: [jobs.get(f"r{n}") for n in range(operations)])
        row("send 20 KB", lambda: [jobs.send(f"p{n}", b"x" * 20_000) for n in range(operations)])
        panel.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
