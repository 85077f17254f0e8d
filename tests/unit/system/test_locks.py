"""The lock: one holder at a time, which recognises it as its own; free in a forked child."""

import gc
import os
import threading
from collections.abc import Callable

import pytest

from stress.crew import in_time
from switchgear._system import threads
from switchgear._system.threads import ForkSafeLock
from timeouts import LIMIT_S


def test_a_taken_lock_keeps_other_threads_out() -> None:
    lock, entered = ForkSafeLock(), list[str]()

    def enter() -> None:
        with lock:
            entered.append("in")

    with lock:
        thread = threading.Thread(target=enter, daemon=True)
        thread.start()
        thread.join(0.05)
        assert entered == []
    thread.join(LIMIT_S)
    assert entered == ["in"]


def test_only_the_holder_sees_the_lock_as_its_own() -> None:
    lock = ForkSafeLock()
    assert not lock.is_mine()
    with lock:
        assert lock.is_mine()
        assert in_time(lambda: [lock.is_mine()]) == [False]
    assert not lock.is_mine()


def test_a_lock_is_released_when_the_section_raises() -> None:
    lock = ForkSafeLock()
    with pytest.raises(ValueError, match="inside"), lock:
        raise ValueError("inside")
    assert not lock.is_mine()
    assert in_time(lock.acquire), "another thread can take it"


def held_by_a_thread(lock: ForkSafeLock) -> threading.Event:
    """Let another thread hold the lock until the event that is returned is set."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait(LIMIT_S)

    threading.Thread(target=hold, daemon=True).start()
    assert held.wait(LIMIT_S)
    return release


def in_a_child(work: Callable[[], bool]) -> bool:
    """What `work` returns in a forked child."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def test_a_child_is_not_locked_out_by_a_thread_of_its_parent() -> None:
    lock = ForkSafeLock()
    release = held_by_a_thread(lock)
    try:
        assert in_a_child(lambda: lock.acquire(timeout=LIMIT_S) and lock.is_mine())
        assert not lock.acquire(blocking=False), "the parent's thread has it still"
    finally:
        release.set()


def test_a_child_of_a_child_is_not_locked_out_either() -> None:
    lock = ForkSafeLock()
    release = held_by_a_thread(lock)
    try:
        assert in_a_child(lambda: in_a_child(lambda: lock.acquire(timeout=LIMIT_S)))
    finally:
        release.set()


def test_a_fork_inside_of_a_section_leaves_both_processes_inside() -> None:
    lock = ForkSafeLock()

    def goes_on() -> bool:
        was = lock.is_mine()
        lock.release()
        return was and not lock.is_mine()

    with lock:
        assert in_a_child(goes_on)
        assert lock.is_mine()
    assert not lock.is_mine()


def test_released_locks_are_garbage_collected() -> None:
    before = len(threads._locks)
    lock = ForkSafeLock()
    assert len(threads._locks) == before + 1
    del lock
    gc.collect()
    assert len(threads._locks) <= before
