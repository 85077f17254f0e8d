"""Finalizers, signals and interrupts come in the middle of anything, also of our bookkeeping.

They cannot be timed, so they are placed: `step` runs under the breaker's lock, and what is put in
front of it here runs there too.
"""

import gc
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import switchgear
from stress.crew import in_time
from switchgear import CircuitBreaker, Panel, Policy, Rejected, Signal, detectors
from switchgear._core.errors import StoreUnavailable
from switchgear._core.machine import step
from switchgear._core.types import Record
from switchgear._stores import memory
from switchgear._stores.fallback import Resilient
from switchgear._stores.sqlite import SqliteStore
from switchgear.testing import FakeClock
from timeouts import LIMIT_S

SOURCE = str(Path(switchgear.__file__).parent)
TIMED = Policy([detectors.ConsecutiveFailures(1), detectors.SlowCalls(slow_s=10.0)])


def fails() -> None:
    raise ConnectionError


def in_the_middle(monkeypatch: pytest.MonkeyPatch, happening: Callable[[], object]) -> list[str]:
    """Run a function once while the breaker's lock is held."""
    happened = list[str]()

    def interrupted(*args: Any) -> Any:
        if not happened:
            happened.append("happened")
            happening()
        return step(*args)

    monkeypatch.setattr(memory, "step", interrupted)
    return happened


def numbers() -> Iterator[int]:
    yield 1
    yield 2


def half_read_stream_in_a_cycle(breaker: CircuitBreaker) -> None:
    stream: Any = breaker(numbers)()
    next(stream)
    cycle = [stream]
    cycle.append(cycle)


@pytest.mark.stress
def test_a_stream_collected_in_the_middle_of_a_message_does_not_deadlock_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    gc.disable()
    try:
        half_read_stream_in_a_cycle(breaker)
        happened = in_the_middle(monkeypatch, gc.collect)
        in_time(lambda: breaker.record(Signal(ok=False)))
    finally:
        gc.enable()
    assert happened
    assert breaker.totals.failed == 1
    assert breaker.totals.ignored == 1


@pytest.mark.stress
def test_a_probe_stream_collected_in_the_middle_of_a_message_returns_its_permit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    gc.disable()
    try:
        half_read_stream_in_a_cycle(breaker)
        in_the_middle(monkeypatch, gc.collect)
        in_time(breaker.snapshot)
    finally:
        gc.enable()
    assert in_time(lambda: breaker.call(int)) == 0
    assert breaker.state == "closed"


@pytest.mark.parametrize("phase", ["closed", "open", "half_open"])
@pytest.mark.parametrize("policy", [Policy([detectors.ConsecutiveFailures(1)]), TIMED])
def test_a_signal_handler_may_use_the_breaker_it_interrupts(
    phase: str, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", policy=policy, clock=clock)
    if phase != "closed":
        breaker.record(Signal(ok=False))
    if phase == "half_open":
        clock.advance(60.0)
    assert breaker.state == phase
    ran, before = list[str](), breaker.totals

    def handler(*_: object) -> None:
        assert breaker.state == phase
        try:
            breaker.call(lambda: ran.append("ran"))
        except Rejected:
            ran.append("refused")
        breaker.hold_open(by="operator", why="SIGUSR1")

    usual = signal.signal(signal.SIGUSR1, handler)
    try:
        happened = in_the_middle(monkeypatch, lambda: signal.raise_signal(signal.SIGUSR1))
        breaker.record(Signal())
    finally:
        signal.signal(signal.SIGUSR1, usual)
    assert happened
    # A probe cannot be given away in the middle of a message; everything else is as ever.
    assert ran == ["ran" if phase == "closed" else "refused"]
    assert breaker.mode == "held_open"
    assert breaker.totals.ignored == before.ignored + 1
    assert sum(breaker.totals) == sum(before) + 2


class Overtaken(memory.MemoryCell):  # type: ignore[misc]  # final in the stubs, not in CPython
    """A store whose first answer arrives after another, later one has been acted on."""

    meanwhile: Callable[[], object] | None = None

    def apply(self, *message: Any) -> Any:
        done = super().apply(*message)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            in_time(lambda: [meanwhile()])
        return done


def test_an_overtaken_thread_does_not_restore_an_older_state() -> None:
    breaker = CircuitBreaker("api", threshold=2, clock=FakeClock())
    breaker._store = store = Overtaken()
    store.meanwhile = lambda: breaker.record(Signal(ok=False))
    breaker.record(Signal(ok=False))  # while this failure is on its way back, the second one trips
    ran = list[str]()
    with pytest.raises(Rejected):
        breaker.call(lambda: ran.append("ran"))
    assert ran == []
    assert breaker.totals.failed == 2


class Interrupt(BaseException):
    """What a signal handler raises: KeyboardInterrupt, or the timeout of a test runner."""


def interrupted_at(moment: int, job: Callable[[], object]) -> bool:
    """Run the job and interrupt it at the n-th moment in code of Switchgear; whether it had that many moments.

    The interpreter looks for signals when a function begins and when a C function has returned;
    a profiler is told of just these moments, and what it raises is raised there.
    """
    seen, interrupted = 0, False

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal seen, interrupted
        if event in {"call", "c_return"} and frame.f_code.co_filename.startswith(SOURCE):
            seen += 1
            if seen == moment:
                interrupted = True
                raise Interrupt

    usual = sys.getprofile()
    sys.setprofile(profile)
    try:
        job()
    except (Interrupt, ConnectionError, Rejected):
        pass
    finally:
        sys.setprofile(usual)
    return interrupted


SCENARIOS: dict[str, Callable[[CircuitBreaker], object]] = {
    "success": lambda breaker: breaker.call(int),
    "failure": lambda breaker: breaker.call(fails),
    "stream": lambda breaker: list(breaker(numbers)()),
    "order": lambda breaker: breaker.reset(by="ann", why="test"),
    "reading": lambda breaker: breaker.snapshot(),
}


@pytest.mark.stress
@pytest.mark.parametrize("phase", ["closed", "half_open"])
@pytest.mark.parametrize("policy", [Policy([detectors.ConsecutiveFailures(1)]), TIMED])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_interrupt_at_any_moment_leaves_a_breaker_that_works(
    phase: str, policy: Policy, scenario: str
) -> None:
    moment = 1
    while True:
        clock = FakeClock()
        breaker = CircuitBreaker("api", policy=policy, clock=clock)
        if phase == "half_open":
            breaker.record(Signal(ok=False))
            clock.advance(60.0)
            assert breaker.state == "half_open"
        if not interrupted_at(moment, partial(SCENARIOS[scenario], breaker)):
            break
        still_works(breaker, clock)
        moment += 1
    assert moment > 1, "hardly anything was interrupted: this test has tested nothing"


def still_works(breaker: CircuitBreaker, clock: FakeClock) -> None:
    """Check that the breaker can be read, recovers, and trips again."""
    lock_is_free = threading.Event()

    def read() -> None:
        breaker.snapshot()
        lock_is_free.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert lock_is_free.wait(LIMIT_S), "the lock was left behind"
    thread.join()
    clock.advance(300.0)
    assert breaker.call(int) == 0
    assert breaker.state == "closed"
    with pytest.raises(ConnectionError):
        breaker.call(fails)
    with pytest.raises(Rejected):
        breaker.call(int)
    assert breaker.state == "open"


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_while_successes_are_recorded_leaves_them_to_be_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaker = CircuitBreaker("api", threshold=2)
    with pytest.raises(ConnectionError):
        breaker.call(fails)
    for _ in range(1000):
        breaker.call(int)
    happened = in_the_middle(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        _ = breaker.state
    assert happened
    with pytest.raises(ConnectionError):
        breaker.call(fails)
    assert breaker.state == "closed", "a thousand successes lie between the two failures"
    assert breaker.totals[:2] == (1000, 2)


def test_an_interrupt_while_refusals_are_recorded_leaves_them_to_be_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaker = CircuitBreaker("api", threshold=1)
    breaker.record(Signal(ok=False))
    for _ in range(7):
        with pytest.raises(Rejected):
            breaker.call(int)
    in_the_middle(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        _ = breaker.state
    assert breaker.totals.refused == 7


def test_a_result_delayed_by_an_interrupt_is_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaker = CircuitBreaker("api", threshold=1)
    breaker.call(int)

    def reset_elsewhere_and_interrupt() -> None:
        # What another thread would do once the lock is free: the run ends.
        breaker._set_run(None)
        raise KeyboardInterrupt

    in_the_middle(monkeypatch, reset_elsewhere_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        breaker.flush()
    assert breaker.totals.succeeded + breaker.totals.late == 1


def test_an_interrupted_sink_does_not_make_successes_count_twice() -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    policy = Policy([detectors.FailureRate(3, 0.5)])
    breaker = CircuitBreaker("api", policy=policy, sinks=[interrupted])
    breaker.record(Signal(ok=False, count=2))
    with pytest.raises(KeyboardInterrupt):
        breaker.call(int)
    assert breaker.state == "open"
    assert breaker.totals[:2] == (1, 2)


# Never twice, wherever the interrupt comes


def interrupted_report(panel: Panel, moment: int) -> tuple[bool, int]:
    """Interrupt the report of 3 successes at the n-th moment; how many are counted in the end."""
    breaker = panel.breaker(f"api-{moment}")
    breaker.record(Signal(ok=None))  # the circuit is known before
    for _ in range(3):
        breaker.call(int)
    was = interrupted_at(moment, breaker._fold_pending)
    breaker.flush()
    totals = breaker.totals
    return was, totals.succeeded + totals.late


# An interrupt in a generator that is being closed cannot be raised on, and is printed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_an_interrupt_at_any_moment_of_a_report_never_counts_it_twice(
    store: str, tmp_path: Path
) -> None:
    url = store if store == "memory:" else f"sqlite:///{tmp_path}/state.db"
    counted = list[int]()
    gc.disable()  # so that no finalizer is what is interrupted
    try:
        with Panel(url) as panel:
            was = True
            while was:
                was, count = interrupted_report(panel, len(counted) + 1)
                counted.append(count)
            assert not panel.store.is_lost, "a transaction was left open"
    finally:
        gc.enable()
    assert len(counted) > 20, "hardly anything was interrupted"
    assert set(counted) <= {0, 3}
    assert counted[-1] == 3


def test_an_interrupt_right_after_a_commit_of_the_backlog_saves_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "state.db")
    resilient = Resilient(store, retry_s=0.0)
    policy = Policy([detectors.ConsecutiveFailures(5)])
    usual, happened = store.apply, list[str]()

    def lost(*_: Any) -> Any:
        raise StoreUnavailable("sqlite:", "locked", "wait")

    def interrupted(*args: Any) -> Any:
        done = usual(*args)
        if not happened:
            happened.append("happened")
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(store, "apply", lost)
    resilient.apply("api", policy, Record(Signal(ok=False)), resilient.now_s())
    monkeypatch.setattr(store, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resilient.try_again()
    resilient.try_again()
    found = store.get("api")
    assert happened
    assert found is not None
    assert found.circuit.totals.failed == 1
    resilient.close()


def test_an_interrupt_right_after_a_begin_leaves_no_transaction_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state.db", busy_timeout_s=0.2)
    policy = Policy([detectors.ConsecutiveFailures(5)])
    for moment in range(1, 400):
        tell = partial(store.apply, "api", policy, Record(Signal(ok=False)), store.now_s())
        was = interrupted_at(moment, tell)
        with closing(sqlite3.connect(tmp_path / "state.db", timeout=0.2)) as other:
            other.execute("BEGIN IMMEDIATE")  # fails with "database is locked" if one is open
            other.execute("ROLLBACK")
        if not was:
            break
    assert moment > 20
    store.close()
