"""`panel.lock`: holders, waiters, the signals of its circuit, and the errors."""

import asyncio
import pickle
from collections.abc import Callable

import pytest

from switchgear import Panel, Phase, Rejected
from switchgear._core.errors import LockLost, LockTimeout, StoreCorrupt, StoreUnavailable
from switchgear._locks.locks import ResourceLock, lock_policy
from switchgear._locks.state import load_tenure
from switchgear._stores.base import Amended, ledger_of
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def panel(clock: FakeClock) -> Panel:
    return Panel(MemoryStore(clock=clock), clock=clock)


def test_a_lock_has_one_holder_and_is_released(panel: Panel) -> None:
    with panel.lock("db", owner="ada") as lock:
        assert lock.token == 1
        [seen] = panel.locks.all()
        assert seen.resource == "db"
        assert seen.tenure.holder is not None
        assert seen.tenure.holder.owner == "ada"
    assert panel.locks.all()[0].tenure.holder is None
    with panel.lock("db") as lock:
        assert lock.token == 2


def test_waiters_are_visible_and_recorded_on_the_circuit(panel: Panel, clock: FakeClock) -> None:
    first = panel.lock("db", owner="ada")
    first.acquire()
    queues: list[list[str]] = []

    def sleep(seconds: float) -> None:
        queues.append([one.owner for one in panel.locks.all()[0].tenure.waiting])
        clock.advance(1.0)
        if len(queues) == 4:
            first.release()

    with panel.locks.lock("db", owner="bob", sleep=sleep):
        pass
    assert queues == [["bob"]] * 4
    detector = panel.breaker("lock/db").readings()["lock_wait"]
    assert detector.reason == "waited 4 s (threshold 60 s)"


def test_waiters_acquire_the_lock_in_order(panel: Panel, clock: FakeClock) -> None:
    had: list[str] = []
    first = panel.lock("db", owner="ada")
    first.acquire()

    def sleep_of_bob(_: float) -> None:
        # Somebody who comes later, while bob waits, comes after him.
        clock.advance(1.0)
        if first.token:
            first.release()
            with pytest.raises(LockTimeout), panel.lock("db", owner="eve", timeout_s=0.0):
                had.append("eve")

    with panel.locks.lock("db", owner="bob", sleep=sleep_of_bob):
        had.append("bob")
    assert had == ["bob"]


def test_a_wait_ends_at_its_timeout(panel: Panel, clock: FakeClock) -> None:
    panel.lock("db", owner="ada").acquire()
    with (
        pytest.raises(LockTimeout) as caught,
        panel.locks.lock("db", timeout_s=3.0, sleep=clock.advance),
    ):
        raise AssertionError
    assert str(caught.value) == "lock 'db' was not acquired within 3.1 s: ada holds it"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert panel.locks.all()[0].tenure.waiting == ()


def test_a_lease_that_ended_is_taken_over_with_a_higher_number(
    panel: Panel, clock: FakeClock
) -> None:
    hung = panel.lock("db", lease_s=30.0)
    hung.acquire()
    with panel.locks.lock("db", sleep=clock.advance) as lock:
        assert lock.token == 2
        with pytest.raises(LockLost, match="lock 'db' was lost: the lease of token 1 ran out"):
            hung.renew()
    assert hung.release() is False


def test_a_lease_ends_exactly_after_its_seconds(panel: Panel, clock: FakeClock) -> None:
    first = panel.lock("db", lease_s=30.0)
    first.acquire()
    clock.advance(29.5)
    with pytest.raises(LockTimeout):
        panel.lock("db", timeout_s=0.0).acquire()
    clock.advance(0.5)
    with pytest.raises(LockLost):
        first.renew()
    assert panel.lock("db", timeout_s=0.0).acquire() == 2


def test_a_lost_lock_raises_unless_another_error_is_raised(panel: Panel, clock: FakeClock) -> None:
    with pytest.raises(LockLost), panel.lock("db", lease_s=5.0):
        clock.advance(6.0)
    with pytest.raises(ZeroDivisionError), panel.lock("db", lease_s=5.0):
        clock.advance(6.0)
        raise ZeroDivisionError


def _cut_off(lock: ResourceLock, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise StoreUnavailable("flaky:", "it was cut off", "wait")

    monkeypatch.setattr(lock._ledger, "amend", fails)


def test_a_store_that_is_gone_at_the_release_does_not_replace_the_callers_exception(
    panel: Panel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError), panel.lock("db") as lock:
        _cut_off(lock, monkeypatch)
        raise ZeroDivisionError
    assert "lock 'db' could not be released" in caplog.text
    with pytest.raises(StoreUnavailable), panel.lock("other") as lock:
        _cut_off(lock, monkeypatch)


def test_a_store_that_is_gone_does_not_replace_the_cancellation_of_a_waiting_task(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait() -> None:
        lock = panel.lock("db")

        async def enter() -> None:
            async with lock:
                raise AssertionError("it is held")

        task = asyncio.create_task(enter())
        while not panel.locks.all()[0].tenure.waiting:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0)
        _cut_off(lock, monkeypatch)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with panel.lock("db"):
        asyncio.run(wait())
        monkeypatch.undo()


def test_a_renewed_lease_lasts(panel: Panel, clock: FakeClock) -> None:
    with panel.lock("db", lease_s=5.0) as lock:
        for _ in range(5):
            clock.advance(4.0)
            lock.renew()
        assert lock.token == 1
        lock.renew(100.0)
        clock.advance(90.0)


def test_a_wait_of_more_than_a_minute_opens_the_circuit_and_re_queues(
    panel: Panel, clock: FakeClock
) -> None:
    panel.lock("db", owner="ada", lease_s=10_000.0).acquire()
    with pytest.raises(Rejected) as caught, panel.locks.lock("db", sleep=clock.advance):
        raise AssertionError
    assert caught.value.circuit == "lock/db"
    assert caught.value.retry_after_s is not None
    assert panel.breaker("lock/db").state is Phase.OPEN
    assert panel.locks.all()[0].tenure.waiting == ()
    began_s = clock()
    with pytest.raises(Rejected):
        panel.locks.lock("db", sleep=clock.advance).acquire()
    assert clock() == began_s, "while it is open nobody stands in line"


def test_a_probe_that_waits_too_long_opens_it_again_and_one_that_does_not_closes_it(
    panel: Panel, clock: FakeClock
) -> None:
    ada = panel.lock("db", owner="ada", lease_s=10_000.0)
    ada.acquire()
    with pytest.raises(Rejected):
        panel.locks.lock("db", sleep=clock.advance).acquire()
    clock.advance(60.0)
    with pytest.raises(Rejected):
        panel.locks.lock("db", sleep=clock.advance).acquire()
    assert panel.breaker("lock/db").snapshot().outage.failed_probes == 1
    ada.release()
    clock.advance(120.0)
    with panel.lock("db"):
        assert panel.breaker("lock/db").state is Phase.CLOSED


def test_a_waiter_that_stopped_polling_blocks_no_others(panel: Panel, clock: FakeClock) -> None:
    first = panel.lock("db")
    first.acquire()
    waiting = panel.lock("db")._steps()
    next(waiting)  # and is never heard of again
    first.release()
    clock.advance(4.0)
    with pytest.raises(LockTimeout, match="other waiters were first in the queue"):
        panel.lock("db", timeout_s=0.0).acquire()
    clock.advance(2.0)
    with panel.lock("db", timeout_s=0.0):
        pass
    waiting.close()


def test_one_object_is_one_holder(panel: Panel) -> None:
    with panel.lock("db") as lock, pytest.raises(ValueError, match="already held by this object"):
        lock.acquire()


def test_a_configured_circuit_keeps_its_policy(clock: FakeClock) -> None:
    policies = {"lock/db": lock_policy(limit_s=10.0)}
    panel = Panel(MemoryStore(clock=clock), policies=policies, clock=clock)
    panel.lock("db", lease_s=1000.0).acquire()
    began_s = clock()
    with pytest.raises(Rejected):
        panel.locks.lock("db", sleep=clock.advance).acquire()
    assert 10.0 < clock() - began_s < 20.0


def test_a_lock_broken_by_an_operator_is_free(panel: Panel) -> None:
    lock = panel.lock("db")
    lock.acquire()
    assert panel.locks.break_lock("db") is True
    assert panel.locks.break_lock("db") is False
    assert lock.release() is False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda panel: panel.lock(""), "resource is ''"),
        (lambda panel: panel.lock("x" * 500), "it must have at most 500"),
        (lambda panel: panel.lock("x", lease_s=0), "lease_s is 0"),
        (
            lambda panel: panel.lock("x", owner=5),
            "owner is 5: it must be a text that identifies it",
        ),
        (lambda panel: panel.lock("x", timeout_s=-1), "timeout_s is -1"),
    ],
)
def test_bad_arguments_are_reported(
    panel: Panel, make: Callable[[Panel], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(panel)


def test_tasks_take_turns() -> None:
    async def main() -> list[int]:
        panel = Panel("memory:")
        tokens: list[int] = []
        inside = 0

        async def one() -> None:
            nonlocal inside
            async with panel.lock("db") as lock:
                inside += 1
                assert inside == 1
                tokens.append(lock.token)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(one() for _ in range(5)))
        panel.close()
        return tokens

    assert asyncio.run(main()) == [1, 2, 3, 4, 5]


def test_a_cancelled_task_leaves_the_queue() -> None:
    async def main() -> None:
        panel = Panel("memory:")
        panel.lock("db").acquire()
        task = asyncio.create_task(panel.lock("db").__aenter__())
        while not panel.locks.all()[0].tenure.waiting:  # noqa: ASYNC110  a queue in a store
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert panel.locks.all()[0].tenure.waiting == ()
        panel.close()

    asyncio.run(main())


@pytest.mark.parametrize("value", [7, {}, {"schema": 2}, {"schema": 1, "token": -1}])
def test_a_lock_that_cannot_be_read_is_an_error_and_never_free(panel: Panel, value: object) -> None:
    with pytest.raises(ValueError):
        load_tenure(value)
    ledger = ledger_of(panel.store.inner)
    ledger.amend("lock", "db", lambda _, __: Amended(None, value))
    with pytest.raises(StoreCorrupt, match="lock 'db'"):
        panel.lock("db").acquire()
