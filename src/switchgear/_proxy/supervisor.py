"""The parent of the workers: holds the socket, replaces workers that die, restarts them without a gap.

SIGHUP starts new workers, with new code and configuration, and drains the old workers when the new ones
are ready; the socket stays open. SIGTERM drains all workers. Workers that lose their parent also drain.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

WORKER_VARIABLE = "SWITCHGEAR_PROXY_WORKER"
"""The descriptors that a worker inherits: the socket, the pipe of its parent, the pipe for its report."""
READY_S = 60.0
_MOST_FAILURES = 5
"""Number of workers in a row that end before they are ready, after which the supervisor gives up."""


class Inherited(NamedTuple):
    """The descriptors that a worker inherits from its supervisor."""

    listening: socket.socket
    parent: int
    report: int

    def ready(self) -> None:
        """Report that connections are accepted."""
        os.write(self.report, b"R")
        os.close(self.report)


def inherited(environ: dict[str, str] | os._Environ[str] = os.environ) -> Inherited | None:
    """The descriptors that this worker inherits; `None`: this process is no worker."""
    value = environ.get(WORKER_VARIABLE)
    if not value:
        return None
    sock, parent, report = map(int, value.split(","))
    return Inherited(socket.socket(fileno=sock), parent, report)


class WorkerSupervisor:
    """Runs `count` workers of a command until a signal ends it. Used in the main thread."""

    def __init__(
        self,
        command: Sequence[str],
        listening: socket.socket,
        count: int,
        say: Callable[[str], object],
    ) -> None:
        self._command = list(command)
        self._listening = listening
        self._count = count
        self._print = say
        self._workers: list[subprocess.Popen[bytes]] = []
        self._draining: list[subprocess.Popen[bytes]] = []
        self._is_stopping = False
        self._is_restarting = False
        self._failures = 0

    def run(self, ready: Callable[[], object]) -> int:
        """Returns the exit code: 0 after a signal, 1 if workers cannot be started."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_restart)
        alive, kept_open = os.pipe()  # closed when this process ends, even by SIGKILL
        try:
            self._workers = self._start_workers(alive, self._count)
            if len(self._workers) < self._count:
                return 1
            ready()
            while not self._is_stopping:
                self._watch(alive)
                if self._failures >= _MOST_FAILURES:
                    self._print("workers end as soon as they start")
                    return 1
            return 0
        finally:
            self._listening.close()  # otherwise connections would wait for workers that drain
            for worker in (*self._workers, *self._draining):
                _terminate(worker)
            os.close(kept_open)
            for worker in (*self._workers, *self._draining):
                worker.wait()
            os.close(alive)

    def _watch(self, alive: int) -> None:
        time.sleep(0.2)  # a signal interrupts the sleep
        self._draining = [worker for worker in self._draining if worker.poll() is None]
        if self._is_restarting and not self._is_stopping:
            self._is_restarting = False
            fresh = self._start_workers(alive, self._count)
            if len(fresh) < self._count:
                self._print("the new workers did not start; the old ones continue")
                for worker in fresh:
                    _terminate(worker)
                self._draining += fresh
                return
            for worker in self._workers:
                _terminate(worker)
            self._draining += self._workers
            self._workers = fresh
            self._print("restarted: new workers accept connections")
        dead = [worker for worker in self._workers if worker.poll() is not None]
        for worker in dead:
            self._workers.remove(worker)
            if not self._is_stopping:
                code = worker.returncode
                self._print(f"worker {worker.pid} ended with code {code}; it is replaced")
        while len(self._workers) < self._count and not self._is_stopping:
            fresh = self._start_workers(alive, 1)
            self._workers += fresh
            self._failures = 0 if fresh else self._failures + 1
            if not fresh:
                break

    def _start_workers(self, alive: int, count: int) -> list[subprocess.Popen[bytes]]:
        """New workers that are ready; fewer than `count` if some did not start."""
        made = [self._start(alive) for _ in range(count)]
        ready = []
        for worker, report in made:
            if _is_ready(worker, report, lambda: self._is_stopping):
                ready.append(worker)
            else:
                _terminate(worker)
                self._draining.append(worker)
            os.close(report)
        return ready

    def _start(self, alive: int) -> tuple[subprocess.Popen[bytes], int]:
        report, written = os.pipe()
        descriptors = (self._listening.fileno(), alive, written)
        env = {**os.environ, WORKER_VARIABLE: ",".join(map(str, descriptors))}
        try:
            worker = subprocess.Popen(  # noqa: S603  our own command
                self._command, env=env, pass_fds=descriptors, stdin=subprocess.DEVNULL
            )
        finally:
            os.close(written)
        return worker, report

    def _on_stop(self, *_: object) -> None:
        self._is_stopping = True

    def _on_restart(self, *_: object) -> None:
        self._is_restarting = True


def _is_ready(worker: subprocess.Popen[bytes], report: int, stops: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s and not stops():
        readable, _, _ = select.select([report], [], [], 0.2)
        if readable:
            return os.read(report, 1) == b"R"
        if worker.poll() is not None:
            return False
    return False


def _terminate(worker: subprocess.Popen[bytes]) -> None:
    if worker.poll() is None:
        worker.send_signal(signal.SIGTERM)


def worker_command() -> list[str]:
    """The command line that starts this command again."""
    return [sys.executable, "-m", "switchgear", *sys.argv[1:]]
