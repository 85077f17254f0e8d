"""The lock: one at a time, known to its holder, and new after a fork."""

import threading

import pytest

from stress.crew import in_time
from switchgear._system import threads
from switchgear._system.threads import ForkSafeLock
from timeouts import LIMIT_S


def test_a_taken_lock_keeps_other_threads_out() -> None:
    lock, entered = ForkSafeLock(), list[str]()

    def enter() -> None:
        with lock.taken():
            entered.append("in")

    with lock.taken():
        thread = threading.Thread(target=enter, daemon=True)
        thread.start()
        thread.join(0.05)
        assert entered == []
    thread.join(LIMIT_S)
    assert entered == ["in"]


def test_the_holder_knows_that_it_holds_it_and_nobody_else_thinks_so() -> None:
    lock = ForkSafeLock()
    assert not lock.is_mine()
    with lock.taken():
        assert lock.is_mine()
        assert in_time(lambda: [lock.is_mine()]) == [False]
    assert not lock.is_mine()


def test_it_is_released_when_the_section_raises() -> None:
    lock = ForkSafeLock()
    with pytest.raises(ValueError, match="inside"), lock.taken():
        raise ValueError("inside")
    assert not lock.is_mine()
    in_time(lambda: [lock.taken().__enter__(), lock.taken().__exit__(None, None, None)])


def test_after_a_fork_a_lock_that_was_held_is_free_and_is_still_one_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = ForkSafeLock()
    held = lock.taken()
    held.acquire()
    monkeypatch.setattr(threads, "_forks", threads._forks + 1)  # what the child sees
    assert not lock.is_mine()
    fresh = lock.taken()
    assert fresh is not held
    assert lock.taken() is fresh
    with fresh:
        assert lock.is_mine()


def test_threads_that_meet_at_an_old_lock_of_the_parent_make_one_new_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, got = ForkSafeLock(), list[object]()
    other = threading.Thread(target=lambda: got.append(lock.taken()), daemon=True)
    make = threading.RLock

    def make_while_the_other_asks() -> object:
        if not other.ident:
            other.start()
            other.join(0.05)  # it must wait for us; if it does not, it has made a second lock
        return make()

    monkeypatch.setattr(threads, "_forks", threads._forks + 1)
    monkeypatch.setattr(threads, "RLock", make_while_the_other_asks)
    got.append(lock.taken())
    other.join(LIMIT_S)
    assert len(got) == 2
    assert got[0] is got[1] is lock.taken()
