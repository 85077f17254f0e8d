"""The thread that submits successes of warm circuits: one, started on demand, ended afterwards."""

import math
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

import pytest

from switchgear._stores import fallback as module
from switchgear._stores.fallback import Submitter
from timeouts import LIMIT_S


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.005)


class Owner:
    """A circuit that needs a number of ticks."""

    def __init__(self, ticks: float, *, fails: bool = False) -> None:
        self.ticks = 0
        self._most = ticks
        self._fails = fails

    def tick(self) -> float:
        self.ticks += 1
        if self._fails:
            raise RuntimeError("a defect")
        return 0.001 if self.ticks < self._most else math.inf


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "switchgear-submitter"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.05)


def test_a_circuit_is_ticked_until_it_is_done_and_the_thread_ends() -> None:
    submitter, owner = Submitter(), Owner(5)
    before = len(threads())
    assert submitter._thread is None
    submitter.add(owner, owner.tick)
    until(lambda: owner.ticks == 5)
    until(lambda: submitter._thread is None)
    until(lambda: len(threads()) <= before)
    assert owner.ticks == 5
    assert submitter._ticks == {}


def test_there_is_one_daemon_thread_for_all() -> None:
    submitter, owners = Submitter(), [Owner(float("inf")) for _ in range(5)]
    for owner in owners:
        submitter.add(owner, owner.tick)
        submitter.add(owner, owner.tick)
    thread = submitter._thread
    assert thread is not None
    assert thread.daemon
    until(lambda: all(owner.ticks > 3 for owner in owners))
    assert submitter._thread is thread
    submitter.stop()
    assert not thread.is_alive()


def test_a_circuit_is_called_when_it_is_due_and_no_earlier() -> None:
    submitter, later, now = Submitter(), Owner(1), Owner(1)
    submitter.add(later, later.tick, 3600.0)
    submitter.add(now, now.tick)
    until(lambda: now.ticks == 1)
    assert later.ticks == 0
    submitter.add(later, later.tick)  # it is due earlier than it was
    until(lambda: later.ticks == 1)
    until(lambda: submitter._ticks == {})


def test_the_submitter_waits_for_the_call_that_is_due_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LINGER_S", 2 * LIMIT_S)
    submitter, later, soon = Submitter(), Owner(1), Owner(1)
    submitter.add(later, later.tick, 3 * LIMIT_S)
    submitter.add(soon, soon.tick, 0.05)
    until(lambda: soon.ticks == 1)
    submitter.stop()


def test_a_circuit_added_during_its_own_call_is_called_again() -> None:
    submitter = Submitter()

    class AddsItself:
        ticks = 0

        def tick(self) -> float:
            self.ticks += 1
            if self.ticks == 1:
                submitter.add(self, self.tick)
            return math.inf

    owner = AddsItself()
    submitter.add(owner, owner.tick)
    until(lambda: owner.ticks == 2)


def test_a_circuit_that_raises_does_not_stop_the_others() -> None:
    submitter, bad, good = Submitter(), Owner(9, fails=True), Owner(9)
    submitter.add(bad, bad.tick)
    submitter.add(good, good.tick)
    until(lambda: good.ticks == 9)
    until(lambda: submitter._thread is None)
    assert bad.ticks == 1


def test_a_circuit_without_references_is_released() -> None:
    submitter, kept = Submitter(), Owner(float("inf"))
    gone: Any = Owner(float("inf"))
    submitter.add(kept, kept.tick)
    submitter.add(gone, gone.tick)
    key = id(gone)
    del gone
    until(lambda: key not in submitter._ticks)
    before = kept.ticks
    until(lambda: kept.ticks > before)
    submitter.stop()


def test_the_submitter_starts_again_after_it_ended_and_after_a_fork() -> None:
    submitter, first, second = Submitter(), Owner(1), Owner(2)
    submitter.add(first, first.tick)
    until(lambda: submitter._thread is None)
    submitter.add(second, second.tick)
    until(lambda: second.ticks == 2)
    held = submitter._lock
    submitter.forget_fork()
    assert submitter._lock is not held
    assert (submitter._ticks, submitter._thread) == ({}, None)
    third = Owner(1)
    submitter.add(third, third.tick)
    until(lambda: third.ticks == 1)


def test_after_stop_nothing_is_accepted() -> None:
    submitter, owner = Submitter(), Owner(1)
    submitter.stop()
    submitter.add(owner, owner.tick)
    assert submitter._thread is None
    assert owner.ticks == 0


def test_the_submitter_may_be_stopped_by_its_own_thread() -> None:
    submitter = Submitter()
    stopped = threading.Event()

    class Stops:
        def tick(self) -> float:
            submitter.stop()
            stopped.set()
            return 0.001

    owner = Stops()
    submitter.add(owner, owner.tick)
    assert stopped.wait(LIMIT_S)


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> Submitter:
    """A submitter at 100 s whose thread does nothing."""
    monkeypatch.setattr(module, "monotonic", lambda: 100.0)
    monkeypatch.setattr(module, "SOON_S", 0.25)
    monkeypatch.setattr(Submitter, "_run", lambda _: None)
    return Submitter()


def due_s(submitter: Submitter) -> list[float]:
    return [due_s for _, due_s in submitter._ticks.values()]


def test_a_call_is_due_at_once_unless_a_wait_is_given(stopped_clock: Submitter) -> None:
    now, later = Owner(1), Owner(1)
    stopped_clock.add(now, now.tick)
    stopped_clock.add(later, later.tick, 2.0)
    assert due_s(stopped_clock) == [100.0, 102.0]


@pytest.mark.parametrize(("wait_s", "due"), [(0.75, 101.0), (0.5, 100.5), (9.0, 101.0)])
def test_a_call_is_moved_to_an_earlier_time_unless_it_is_due_about_then(
    stopped_clock: Submitter, wait_s: float, due: float
) -> None:
    owner = Owner(1)
    stopped_clock.add(owner, owner.tick, 1.0)
    stopped_clock.add(owner, owner.tick, wait_s)
    assert due_s(stopped_clock) == [due]


class Woken:
    """Stands in for the event that the thread waits for: time passes only while it waits."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        assert len(self.waits) < 20, "it does not end"
        self.waits.append(seconds)
        self.now_s += seconds

    def clear(self) -> None:
        pass


@pytest.mark.parametrize(
    ("due_s", "ticks", "waits"),
    [
        (100.5, [0.25, math.inf], [0.5, 0.25, 2.0]),
        (99.0, [math.inf], [0.0, 2.0]),
        (103.0, [math.inf], [2.0, 1.0, 2.0]),
        (None, [], [2.0]),
    ],
)
def test_the_thread_waits_until_a_call_is_due_and_ends_when_none_is(
    monkeypatch: pytest.MonkeyPatch, due_s: float | None, ticks: list[float], waits: list[float]
) -> None:
    submitter, woken = Submitter(), Woken()

    class Circuit:
        def tick(self) -> float:
            return ticks.pop(0)

    monkeypatch.setattr(module, "monotonic", lambda: woken.now_s)
    monkeypatch.setattr(module, "LINGER_S", 2.0)
    monkeypatch.setattr(submitter, "_woken", woken)
    circuit = Circuit()
    if due_s is not None:
        submitter._ticks[id(circuit)] = WeakMethod(circuit.tick), due_s
    submitter._run()
    assert woken.waits == waits
    assert ticks == []
    assert submitter._ticks == {}


def test_an_owner_is_due_at_the_earliest_time_that_was_wanted() -> None:
    submitter, owner, other = Submitter(), Owner(1), Owner(1)
    tick = WeakMethod(owner.tick)
    for due_s, expected_s in ((5.0, 5.0), (9.0, 5.0), (3.0, 3.0)):
        submitter._schedule(1, tick, due_s)
        assert submitter._ticks[1] == (tick, expected_s)
    del owner
    again = WeakMethod(other.tick)
    submitter._schedule(1, again, 9.0)
    assert submitter._ticks[1] == (again, 9.0), "the other one no longer exists"


def test_stopping_wakes_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_S", 10 * LIMIT_S)
    submitter, owner = Submitter(), Owner(1)
    submitter.add(owner, owner.tick, wait_s=10 * LIMIT_S)
    thread = submitter._thread
    assert thread is not None
    assert (thread.name, thread.daemon) == ("switchgear-submitter", True)
    until(lambda: not submitter._woken.is_set())
    submitter.stop()
    until(lambda: not thread.is_alive())


def test_a_forked_child_uses_nothing_of_the_parents_thread() -> None:
    submitter, owner = Submitter(), Owner(1)
    lock, woken = submitter._lock, submitter._woken
    submitter._schedule(1, WeakMethod(owner.tick), 5.0)
    submitter.forget_fork()
    assert submitter._lock is not lock
    assert submitter._woken is not woken
    assert (submitter._ticks, submitter._thread) == ({}, None)


def test_the_thread_sleeps_until_something_is_due() -> None:
    submitter, owner = Submitter(), Owner(1)
    submitter.add(owner, owner.tick, wait_s=10 * LIMIT_S)
    until(lambda: not submitter._woken.is_set())
    submitter.stop()


def test_a_defect_of_a_circuit_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(module, "log_exception", logged.append)
    submitter, owner = Submitter(), Owner(1, fails=True)
    submitter.add(owner, owner.tick)
    until(lambda: logged)
    assert logged == ["successes of a warm circuit could not be submitted"]
