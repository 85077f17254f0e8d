"""A forked child can use the breakers it inherits, whatever the parent's threads were doing.

Every child is bounded: it must answer through a pipe in time, or it alone is killed.
"""

import contextlib
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable

import pytest

from stress.crew import PATIENCE_S, together
from switchgear import CircuitBreaker, Rejected, Signal
from switchgear.testing import FakeClock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    # Python 3.12 warns of exactly what is tested here.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


def in_a_child(job: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Run the job in a forked child; fails with its traceback, or when it does not answer."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:  # the child: no pytest, no cleanup, only the job
        answer = b"done"
        try:
            job()
        except BaseException:
            answer = traceback.format_exc().encode()
        os.write(theirs, answer)
        os._exit(0)
    os.close(theirs)
    try:
        ready, _, _ = select.select([ours], [], [], patience_s)
        answer = os.read(ours, 65536) if ready else b"the child is stuck: a deadlock"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ours)
    assert answer == b"done", answer.decode()


def fails() -> None:
    raise ConnectionError


def use_everything(breaker: CircuitBreaker, clock: FakeClock) -> None:
    """Every way of using a breaker, through all its states."""
    breaker.reset(by="child", why="fork")
    breaker.call(int)
    with pytest.raises(ConnectionError):
        breaker.call(fails)
    assert breaker.state == "open"
    with pytest.raises(Rejected):
        breaker.call(int)
    clock.advance(60.0)
    with breaker:
        pass
    assert breaker.state == "closed"
    assert breaker.totals.refused == 1
    assert breaker.totals.succeeded == 2
    CircuitBreaker("another", clock=clock).call(int)


def test_a_child_forked_while_another_thread_holds_the_lock_is_not_deadlocked() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    held, release = threading.Event(), threading.Event()

    def holder() -> None:
        with breaker._lock:
            held.set()
            assert release.wait(PATIENCE_S)

    def forker() -> None:
        assert held.wait(PATIENCE_S)
        try:
            in_a_child(lambda: use_everything(breaker, clock))
        finally:
            release.set()

    together(holder, forker)
    use_everything(breaker, clock)


def test_a_child_of_a_child_is_not_deadlocked_either() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    held, release = threading.Event(), threading.Event()

    def holder() -> None:
        with breaker._lock:
            held.set()
            assert release.wait(PATIENCE_S)

    def fork_twice() -> None:
        breaker.reset(by="child", why="fork")
        in_a_child(lambda: use_everything(breaker, clock))

    def forker() -> None:
        assert held.wait(PATIENCE_S)
        try:
            in_a_child(fork_twice)
        finally:
            release.set()

    together(holder, forker)


def test_a_child_forked_during_a_probe_of_another_thread_probes_when_the_lease_is_over() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    inside, release = threading.Event(), threading.Event()

    def probe() -> None:
        inside.set()
        assert release.wait(PATIENCE_S)

    def child() -> None:
        with pytest.raises(Rejected, match="a probe is under way"):
            breaker.call(int)
        clock.advance(60.0)
        assert breaker.call(int) == 0
        assert breaker.state == "closed"

    def forker() -> None:
        assert inside.wait(PATIENCE_S)
        try:
            in_a_child(child)
        finally:
            release.set()

    together(lambda: breaker.call(probe), forker)
    assert breaker.state == "closed"
    assert breaker.totals.late == 0


def test_a_fork_inside_a_guarded_call_finishes_it_in_both_processes() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())

    def child() -> None:
        assert breaker.totals.succeeded == 0

    def forks() -> None:
        with breaker:
            in_a_child(child)

    breaker.call(forks)
    assert breaker.totals.succeeded == 2


def test_the_first_threads_of_a_child_share_its_new_lock() -> None:
    breaker = CircuitBreaker("api", threshold=10**9, clock=FakeClock())

    def hammer() -> None:
        for _ in range(50):
            with pytest.raises(ConnectionError):
                breaker.call(fails)

    def child() -> None:
        together(*[hammer] * 8)
        assert breaker.totals.failed == 400

    for _ in range(5):
        in_a_child(child)


@pytest.mark.stress
def test_forking_while_sixteen_threads_run_never_deadlocks_the_child() -> None:
    breaker = CircuitBreaker("api", threshold=3, base_timeout=0.001, max_timeout=0.001)
    stop = threading.Event()

    def worker() -> None:
        while not stop.is_set():
            with contextlib.suppress(ConnectionError, Rejected):
                breaker.call(fails)

    def child() -> None:
        breaker.reset(by="child", why="fork")
        breaker.call(int)
        assert breaker.state in {"closed", "open", "half_open"}

    def forker() -> None:
        try:
            for _ in range(20):
                in_a_child(child)
        finally:
            stop.set()

    together(forker, *[worker] * 15)
