"""Each operation of the store that keeps working during an outage."""

import asyncio
import math
import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from switchgear import Cooldown, Phase, Policy, Signal, detectors
from switchgear._core.errors import (
    OverrideRefused,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from switchgear._core.types import (
    Acquire,
    Circuit,
    EventKind,
    Mode,
    Override,
    Record,
    ReportSource,
    Step,
)
from switchgear._stores.backlog import LISTED
from switchgear._stores.base import StoredCircuit, was_committed
from switchgear._stores.fallback import CLOSE_S, RETRY_S, Resilient
from switchgear._stores.memory import MemoryStore
from switchgear._stores.operator import OperatorLock
from switchgear._stores.url import open_store
from switchgear.testing import FakeClock, FlakyStore

POLICY = Policy([detectors.ConsecutiveFailures(3)], Cooldown(10.0))
STRICT = POLICY.replace(strict=True)
BAD, OK = Record(Signal(ok=False)), Record(Signal(ok=True))
HOLD = Override("ada", "drill", Mode.HELD_OPEN)
DIGEST = sha256(b"secret").hexdigest()
TOO_LONG = "x" * 1000


class Pushing(FlakyStore):
    """A store that pushes changes."""

    pushes = True

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock, refresh_s=0.5)
        self.changed: Callable[[Circuit], object] = print
        self.warm: list[Any] = []
        self.retained: dict[str, float] = {}
        self.inside: Callable[[], object] = bool

    def on_change(self, listener: Callable[[Circuit], object]) -> None:
        self.changed = listener

    def on_warm(self, listener: Any) -> None:
        self.warm.append(listener)

    def failure_mark(self, key: str) -> Callable[[], float]:
        return lambda: float(len(key))

    def retain(self, **limits: float) -> None:
        self.retained = limits

    def process(self) -> str:
        return "p1"

    def apply(self, *args: Any, **more: Any) -> Step:
        self.inside()
        return super().apply(*args, **more)


class Owner:
    """A circuit whose successes are reported together."""

    def tick(self) -> float:
        return math.inf


class Site:
    def __init__(self, operator: OperatorLock | None = None) -> None:
        self.clock = FakeClock(1000.0)
        self.inner = Pushing(self.clock)
        self.store = Resilient(self.inner, clock=self.clock, operator=operator)

    def tell(self, message: Any = BAD, key: str = "api", policy: Policy = POLICY) -> Step:
        return self.store.apply(key, policy, message, self.clock())

    def stored(self, key: str = "api") -> Circuit:
        found = MemoryStore.get(self.inner, key)
        assert found is not None
        return found.circuit

    def come_back(self) -> None:
        self.inner.mend()
        self.clock.advance(RETRY_S)
        self.store.try_again()
        assert not self.store.is_lost


@pytest.fixture
def site() -> Site:
    return Site()


# What passes through


def test_the_resilient_store_returns_the_facts_of_the_inner_store(site: Site) -> None:
    store, inner = site.store, site.inner
    assert (store.label, store.pushes, store.inner) == ("flaky:", True, inner)
    assert store.now_s() == 1000.0
    assert store.process is not None
    assert store.process() == "p1"
    assert (store.url, store.is_kept) == (None, False)
    assert Resilient(inner, url="sqlite:///x").url == "sqlite:///x"
    assert Resilient(FlakyStore()).process is None


def test_operations_return_what_the_inner_store_returns(site: Site) -> None:
    store, inner = site.store, site.inner
    done = site.tell(BAD)
    assert done.circuit == site.stored()
    site.tell(HOLD)
    site.tell(OK, "other")
    assert store.get("api") == inner.get("api")
    assert store.get("none") is None
    assert [found.circuit.key for found in store.find("*")] == ["api", "other"]
    assert [found.circuit.key for found in store.find("o*")] == ["other"]
    (entry,) = store.events()
    assert entry.event.kind is EventKind.ORDERED
    assert store.events(after=entry.cursor) == []
    assert store.events(glob="o*") == []
    assert store.events(limit=0) == []
    assert store.facts() == {"circuits": "2", "events": "1"}
    store.retain(keep_events=7, idle_s=8.0)
    assert inner.retained == {"keep_events": 7, "idle_s": 8.0}
    found = StoredCircuit(POLICY.start("new", 1.0)._replace(version=3), POLICY)
    assert store.put(found, [entry.event])
    assert not store.put(found)
    assert len(store.events()) == 1, "the event is there already"
    removed = store.vacuum(keep_events=0, idle_s=0.0, now_s=5000.0)
    assert removed == (2, 1), "two circuits without an override, one event"


def test_a_thousand_events_are_read_unless_another_number_is_given(site: Site) -> None:
    limits = list[int]()

    def events(*, after: str | None, glob: str, limit: int) -> list[Any]:
        assert (after, glob) == (None, "*")
        limits.append(limit)
        return []

    site.inner.events = events  # type: ignore[assignment,method-assign]
    site.store.events()
    site.store.events(limit=3)
    assert limits == [1000, 3]


def test_the_operator_digest_is_read_and_replaced(site: Site) -> None:
    store = site.store
    assert store.operator_digest() is None
    assert store.set_operator_digest(DIGEST, instead_of=None)
    assert store.operator_digest() == DIGEST
    with pytest.raises(OverrideRefused, match="operator token"):
        store.set_operator_digest(None, instead_of=DIGEST)
    assert not store.set_operator_digest("another", instead_of=None)


def test_a_transaction_returns_its_result_and_keeps_its_note(site: Site) -> None:
    def work(inside: Any) -> str:
        assert inside.now_s == 1000.0
        inside.apply("api", POLICY, HOLD)
        inside.note, inside.keep_s = "a note", 5.0
        return f"{inside.note} for {inside.keep_s:g} s"

    assert site.store.transact("name", work) == "a note for 5 s"
    assert site.stored().mode is Mode.HELD_OPEN
    assert site.store.transact("name", lambda inside: inside.note) == "a note"
    site.clock.advance(5.0)
    assert site.store.transact("name", lambda inside: inside.note) is None


def test_a_store_in_memory_is_used_directly() -> None:
    inner = MemoryStore()
    store = Resilient(inner)
    assert store.apply("api", POLICY, BAD, 1.0).circuit.totals.failed == 1
    assert asyncio.run(store.aapply("api", POLICY, BAD, 1.0)).circuit.totals.failed == 2
    store.apply("idle", POLICY, OK, 1.0)
    store.release("idle")
    assert inner.get("idle") is None
    store.release("api")
    assert inner.get("api") is not None


def test_the_age_of_a_snapshot_is_that_of_the_store_or_the_time_to_the_next_try(site: Site) -> None:
    assert (site.store.refresh_s, site.store.is_lost) == (0.5, False)
    site.inner.cut()
    site.tell()
    assert (site.store.refresh_s, site.store.is_lost) == (RETRY_S, True)
    site.come_back()
    assert site.store.refresh_s == 0.5


def test_a_store_reports_that_a_thread_is_applying_a_message(site: Site) -> None:
    seen = list[bool]()
    site.inner.inside = lambda: seen.append(site.store.is_mine())
    site.tell()
    assert seen == [True]
    assert site.store.is_mine() is False
    site.inner.cut()
    site.tell()
    assert site.store.is_mine() is False


def test_a_store_without_pushed_failures_has_no_mark_and_no_listener(site: Site) -> None:
    plain = Resilient(FlakyStore())
    assert plain.failure_mark("api")() == 0.0
    plain.on_warm(print)
    assert site.store.failure_mark("api")() == 3.0
    site.store.on_warm(print)
    assert site.inner.warm == [print]


def test_after_a_fork_the_locks_and_the_thread_are_new(site: Site) -> None:
    store = site.store
    returning, lock = store._returning, store.submitter._lock
    seen = list[bool]()

    def fork() -> None:
        store.forget_fork()
        seen.append(store.is_mine())

    with returning:
        site.inner.inside = fork
        site.tell()
        assert seen == [False]
        assert store._returning is not returning
        assert store.submitter._lock is not lock
        site.inner.inside = bool
        site.inner.cut()
        site.tell()
        site.come_back()
        assert site.stored().totals.failed == 2


# Names


@pytest.mark.parametrize("lost", [False, True])
def test_an_invalid_name_is_refused_before_anything_is_saved(site: Site, lost: bool) -> None:
    if lost:
        site.inner.cut()
        site.tell()
    store = site.store
    calls: list[Callable[[], object]] = [
        lambda: site.tell(BAD, TOO_LONG),
        lambda: asyncio.run(store.aapply(TOO_LONG, POLICY, BAD, 1.0)),
        lambda: store.get(TOO_LONG),
        lambda: list(store.find(TOO_LONG)),
        lambda: store.events(glob=TOO_LONG),
        lambda: store.put(StoredCircuit(POLICY.start(TOO_LONG, 1.0), POLICY)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="1,000 characters"):
            call()
    if lost:
        site.come_back()
    assert MemoryStore.get(site.inner, TOO_LONG) is None


# The operator token


@pytest.mark.parametrize("token", [None, "wrong", "secret"])
def test_overrides_need_the_operator_token(token: str | None) -> None:
    site = Site(OperatorLock(DIGEST, token))
    store = site.store
    calls: list[Callable[[], object]] = [
        lambda: site.tell(HOLD),
        lambda: asyncio.run(store.aapply("api", POLICY, HOLD, 1.0)),
        lambda: store.transact("x", lambda inside: inside.apply("api", POLICY, HOLD)),
        lambda: store.put(StoredCircuit(POLICY.start("put", 1.0)._replace(version=9), POLICY)),
        lambda: store.vacuum(keep_events=0, idle_s=0.0, now_s=0.0),
        lambda: store.set_operator_digest(DIGEST.upper(), instead_of=DIGEST),
    ]
    for call in calls:
        if token == "secret":
            call()
        else:
            with pytest.raises(OverrideRefused):
                call()
    assert (MemoryStore.get(site.inner, "put") is not None) is (token == "secret")
    assert (MemoryStore.get(site.inner, "api") is not None) is (token == "secret")
    assert site.inner.operator_digest() == (DIGEST.upper() if token == "secret" else DIGEST)


def test_without_the_token_a_transaction_may_record_and_remark() -> None:
    site = Site(OperatorLock(DIGEST))
    remark = Override("switchgear", "x is isolated", kind=EventKind.ISOLATED, process="x")

    def work(inside: Any) -> tuple[Any, float, Step]:
        inside.apply("api", POLICY, BAD)
        done = inside.apply("api", POLICY, remark)
        before = inside.note
        inside.note, inside.keep_s = "a note", inside.keep_s + 1.0
        return before, inside.now_s, done

    before, now_s, done = site.store.transact("name", work)
    assert (before, now_s) == (None, 1000.0)
    assert [event.kind for event in done.events] == [EventKind.ISOLATED]
    assert site.stored().totals.failed == 1
    assert site.store.transact("name", lambda inside: inside.note) == "a note"
    kept_s = site.store.transact("new", lambda inside: inside.keep_s)
    site.clock.advance(kept_s + 0.5)
    assert site.store.transact("name", lambda inside: inside.note) == "a note"
    site.clock.advance(0.5)
    assert site.store.transact("name", lambda inside: inside.note) is None


def test_recording_needs_no_token() -> None:
    site = Site(OperatorLock(DIGEST))
    site.tell(BAD)
    asyncio.run(site.store.aapply("api", POLICY, BAD, 1.0))
    remark = Override("switchgear", "x is isolated", kind=EventKind.ISOLATED, process="x")
    site.tell(remark)
    asyncio.run(site.store.aapply("api", POLICY, remark, 1.0))
    site.store.vacuum(keep_events=10**6, idle_s=10.0**9, now_s=0.0)
    assert site.stored().totals.failed == 2


def test_a_store_that_restarts_empty_gets_the_operator_digest_again() -> None:
    site = Site(OperatorLock(DIGEST, "secret"))
    site.tell(HOLD)
    assert site.inner.operator_digest() == DIGEST
    site.inner.cut()
    site.tell(BAD)
    site.inner.mend(empty=True)
    site.clock.advance(RETRY_S)
    site.store.try_again()
    assert site.inner.operator_digest() == DIGEST


# While it is lost


def test_other_operations_raise_the_last_error_between_two_attempts(site: Site) -> None:
    site.inner.cut()
    with pytest.raises(StoreUnavailable) as first:
        site.store.get("api")
    assert (site.store.is_lost, site.inner.tries) == (True, 1)
    with pytest.raises(StoreUnavailable) as second:
        site.store.facts()
    assert site.inner.tries == 1
    assert second.value is not first.value
    site.inner.mend()
    with pytest.raises(StoreUnavailable):
        site.store.get("api")
    site.clock.advance(RETRY_S)
    assert site.store.get("api") is None
    assert not site.store.is_lost


def test_a_failed_attempt_sets_the_time_of_the_next(site: Site) -> None:
    site.inner.cut()
    site.tell()
    for tries in (2, 3):
        site.clock.advance(RETRY_S)
        with pytest.raises(StoreUnavailable):
            site.store.transact("x", lambda _: None)
        with pytest.raises(StoreUnavailable):
            site.store.transact("x", lambda _: None)
        assert site.inner.tries == tries


def test_an_override_in_an_outage_raises_and_is_not_queued(site: Site) -> None:
    site.tell(BAD)
    site.inner.cut()
    with pytest.raises(StoreUnavailable):
        site.tell(HOLD)
    with pytest.raises(StoreUnavailable):
        asyncio.run(site.store.aapply("api", POLICY, HOLD, 1.0))
    site.come_back()
    assert site.stored().mode is Mode.AUTO


def test_refused_calls_are_saved_and_admitted_ones_are_not(site: Site) -> None:
    site.inner.cut()
    assert site.tell(Acquire()).verdict.admitted
    site.tell(Record(Signal(ok=False, count=3)))
    for _ in range(2):
        assert not site.tell(Acquire()).verdict.admitted
    site.come_back()
    assert site.stored().totals[:5] == (0, 3, 0, 0, 2)


def test_a_record_counts_as_committed_once_it_is_queued(site: Site) -> None:
    site.inner.cut()
    message = Record(Signal(ok=False), None, ReportSource("p1", 1000.0))
    site.tell(message)
    assert was_committed(message)
    assert not was_committed(BAD)


class Taken:
    """A lock that another thread holds."""

    def acquire(self, blocking: bool = True) -> bool:
        assert not blocking
        return False


def test_a_store_that_another_thread_tries_is_not_tried(site: Site) -> None:
    site.inner.cut()
    site.tell(BAD)
    site.inner.mend()
    site.clock.advance(RETRY_S)
    site.store._returning = Taken()  # type: ignore[assignment]
    site.store.try_again()
    assert site.store.is_lost


def test_a_strict_circuit_refuses_with_the_time_to_the_next_try(site: Site) -> None:
    site.tell(policy=STRICT)
    site.inner.cut()
    lost = site.tell(Acquire(), policy=STRICT)
    assert [event.kind for event in lost.events] == [EventKind.STORE_LOST]
    verdict = site.tell(Acquire(), policy=STRICT).verdict
    assert (verdict.admitted, verdict.phase) == (False, Phase.CLOSED)
    assert verdict.retry_after_s == RETRY_S
    assert verdict.heat == pytest.approx(1 / 3)
    assert "its policy is strict and its state unknown: store flaky: cannot" in verdict.reason
    site.come_back()
    assert site.stored().totals[:5] == (0, 1, 0, 0, 2)


def test_the_remark_about_an_outage_has_its_length_and_the_number_of_updates(site: Site) -> None:
    site.inner.cut()
    site.tell(BAD)
    site.clock.advance(4.0)
    site.tell(Record(Signal(ok=True, count=2)))
    site.come_back()
    done = site.tell(OK)
    assert [event.kind for event in done.events] == [EventKind.STORE_BACK]
    assert done.events[0].reason == (
        "the store flaky: is back after 5 s; 3 missed updates were saved to it"
    )
    assert site.tell(OK).events == ()


def test_versions_rise_for_readers_after_an_outage_and_then_stay(site: Site) -> None:
    site.tell(BAD)
    site.inner.cut()
    versions = [
        site.tell(Record(Signal(ok=number % 2 == 0))).circuit.version for number in range(9)
    ]
    site.come_back()
    after = [site.tell(OK).circuit.version for _ in range(3)]
    assert versions == sorted({*versions})
    assert after == [after[0], after[0] + 1, after[0] + 2]
    assert after[0] == versions[-1] + 2, "the return of the store, and the update"
    seen = site.store.seen(site.stored())
    assert seen.version == after[-1]


def test_versions_are_those_of_the_store_if_other_processes_continued(site: Site) -> None:
    site.inner.cut()
    site.tell(OK)
    for _ in range(10):
        MemoryStore.apply(site.inner, "api", POLICY, OK, site.clock())
    site.come_back()
    assert site.tell(OK).circuit.version == site.stored().version


def test_a_second_outage_continues_the_versions_of_the_first(site: Site) -> None:
    last = 0
    for _ in range(3):
        site.inner.cut()
        for number in range(5):
            version = site.tell(Record(Signal(ok=number % 2 == 0))).circuit.version
            assert version > last
            last = version
        site.come_back()
        version = site.tell(OK).circuit.version
        assert version > last
        last = version


def test_a_circuit_that_restarts_at_a_lower_version_continues_for_readers(site: Site) -> None:
    versions = list[int]()
    for _ in range(3):
        versions += [site.tell(OK).circuit.version for _ in range(5)]
        site.inner.mend(empty=True)
        site.clock.advance(1.0)
    last = site.tell(BAD).circuit
    assert (last.totals.failed, last.totals.succeeded) == (1, 0)
    versions.append(last.version)
    assert versions == list(range(versions[0], versions[0] + 16))


def test_a_state_of_the_same_or_a_higher_version_keeps_its_version(site: Site) -> None:
    last = site.tell(BAD).circuit
    for more in (0, 3):
        later = last._replace(version=last.version + more, seen_s=last.seen_s + 1.0 + more)
        assert site.store.seen(later) == later


def test_an_older_state_is_not_a_change(site: Site) -> None:
    old = site.tell(BAD).circuit
    new = site.tell(BAD).circuit
    assert site.store.seen(old) == old
    site.inner.cut()
    assert site.tell(BAD).circuit.totals.failed == new.totals.failed + 1


def test_an_outage_continues_from_what_the_store_pushed_last(site: Site) -> None:
    last = site.tell(BAD).circuit
    totals = last.totals._replace(failed=7)
    site.store.seen(last._replace(version=last.version + 1, totals=totals))
    site.inner.cut()
    assert site.tell(BAD).circuit.totals.failed == 8


def test_a_released_circuit_is_forgotten_unless_it_has_unsaved_updates(site: Site) -> None:
    site.tell(BAD)
    site.tell(BAD, "other")
    site.store.release("other")
    site.inner.cut()
    assert site.tell(BAD, "other").circuit.totals.failed == 1, "it starts anew"
    assert site.tell(BAD).circuit.totals.failed == 2
    for _ in range(5):  # saved as one message
        away = site.tell(OK).circuit
    site.store.release("api")
    site.come_back()
    site.store.release("api")
    back = site.tell(OK)
    assert back.events[-1].kind is EventKind.STORE_BACK
    assert back.circuit.version > away.version
    site.store.release("api")
    assert site.store._known.keys() == {"other"}
    assert site.store._shift.keys() == {"other"}


def test_an_event_loop_behaves_the_same(site: Site) -> None:
    async def tell(message: Any = BAD) -> Step:
        return await site.store.aapply("api", POLICY, message, site.clock())

    assert asyncio.run(tell()).circuit == site.stored()
    site.inner.cut()
    assert asyncio.run(tell()).events[0].kind is EventKind.STORE_LOST
    assert asyncio.run(tell()).circuit.totals.failed == 3
    tries = site.inner.tries
    site.store.is_kept = True
    site.clock.advance(RETRY_S)
    asyncio.run(tell(OK))
    assert site.inner.tries == tries, "another thread tries it"
    site.store.is_kept = False
    site.inner.mend()
    done = asyncio.run(tell(OK))
    assert not site.store.is_lost
    assert done.events[-1].kind is EventKind.STORE_BACK
    assert site.stored().totals[:2] == (2, 3)


# One circuit's trouble


def test_a_circuit_that_cannot_be_read_is_tried_again_later(site: Site) -> None:
    tries = list[str]()

    def inside() -> None:
        tries.append("try")
        raise StoreCorrupt("flaky:", "circuit 'api' cannot be read", "remove it")

    site.inner.inside = inside
    site.tell(BAD)
    site.tell(BAD)
    assert (len(tries), site.store.is_lost) == (1, False)
    assert site.store.get("api") is None, "the store itself can be reached"
    site.clock.advance(RETRY_S)
    site.tell(BAD)
    assert len(tries) == 2
    site.tell(BAD)
    assert len(tries) == 2
    site.inner.inside = bool
    site.clock.advance(RETRY_S)
    assert [event.kind for event in site.tell(BAD).events] == [
        EventKind.MOVED,
        EventKind.STORE_BACK,
    ]
    assert site.stored().totals.failed == 5


def test_an_override_raises_the_latest_error_of_its_circuit(site: Site) -> None:
    whys = ["first", "second"]

    def inside() -> None:
        raise StoreCorrupt("flaky:", whys.pop(0), "remove it")

    site.inner.inside = inside
    site.tell(BAD)
    site.clock.advance(RETRY_S)
    site.tell(BAD)
    with pytest.raises(StoreCorrupt, match="second"):
        site.tell(HOLD)


def test_a_store_that_is_lost_is_queried_once_before_anything_is_saved(site: Site) -> None:
    site.inner.cut()
    for key in ("one", "two"):
        site.tell(BAD, key)
    site.inner.mend()
    queries, applied = list[bool](), list[bool]()

    def digest() -> None:
        queries.append(True)
        raise StoreUnavailable("flaky:", "still gone", "wait")

    site.inner.operator_digest = digest  # type: ignore[method-assign]
    site.inner.inside = lambda: applied.append(True)
    site.clock.advance(RETRY_S)
    site.store.try_again()
    assert (len(queries), applied, site.store.is_lost) == (1, [], True)


class Interrupted(Pushing):
    """A store whose calls are interrupted, or whose replies are lost, as configured."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.next: list[str] = []
        self.identities: list[str | None] = []

    def apply(self, *args: Any, identity: str | None = None, **more: Any) -> Step:
        what = self.next.pop(0) if self.next else ""
        if what.startswith("lost"):
            error = StoreUnavailable("flaky:", "the reply is lost", "wait")
            error.in_doubt = what
            raise error
        if what == "interrupted before":
            raise KeyboardInterrupt
        done = super().apply(*args, **more)
        self.identities.append(identity)
        if what == "interrupted after":
            raise KeyboardInterrupt
        return done


@pytest.fixture
def interrupted() -> Site:
    site = Site()
    site.inner = inner = Interrupted(site.clock)
    site.store = Resilient(inner, clock=site.clock)
    inner.cut()
    site.tell(BAD)
    inner.mend()
    return site


@pytest.mark.parametrize("when", ["interrupted before", "interrupted after"])
def test_an_update_is_saved_once_although_saving_it_was_interrupted(
    interrupted: Site, when: str
) -> None:
    site, inner = interrupted, interrupted.inner
    assert isinstance(inner, Interrupted)
    inner.next = [when]
    site.clock.advance(RETRY_S)
    with pytest.raises(KeyboardInterrupt):
        site.store.try_again()
    site.come_back()
    assert site.stored().totals.failed == 1


def test_a_message_in_doubt_is_sent_again_with_its_identity(interrupted: Site) -> None:
    site, inner = interrupted, interrupted.inner
    assert isinstance(inner, Interrupted)
    inner.next = ["lost 1", "", "lost 2", "lost 3"]
    for _ in range(3):
        site.clock.advance(RETRY_S)
        site.store.try_again()
        assert site.store.is_lost
    site.come_back()
    assert inner.identities == ["lost 1", "lost 2"]
    assert site.stored().totals.failed == 1


# What the store pushes


def test_changes_are_passed_on_and_a_lost_circuit_is_reported() -> None:
    site = Site(OperatorLock(DIGEST, "secret"))
    seen, missing = list[Circuit](), list[str]()
    site.store.on_change(seen.append, missing.append)
    first = POLICY.start("api", 1000.0)._replace(version=5)
    site.inner.changed(first)
    assert (seen, missing) == ([first], [])
    last = site.tell(BAD).circuit
    for circuit in (
        last._replace(version=last.version + 1),
        last._replace(version=0, seen_s=last.seen_s + 1.0),
    ):
        site.inner.changed(circuit)
        assert seen[-1].totals == circuit.totals
    assert len(seen) == 3
    assert missing == []
    site.inner.changed(last._replace(version=0))
    assert (len(seen), missing) == (3, ["api"])
    assert site.inner.operator_digest() == DIGEST


@pytest.mark.parametrize(
    ("versions", "seconds", "is_lost"),
    [(1, 0.0, False), (1, -1.0, False), (-1, 1.0, False), (-1, 0.0, True), (-1, -1.0, True)],
)
def test_a_circuit_of_a_lower_version_is_lost_unless_it_is_of_a_later_time(
    site: Site, versions: int, seconds: float, is_lost: bool
) -> None:
    seen, missing = list[Circuit](), list[str]()
    site.store.on_change(seen.append, missing.append)
    last = site.tell(BAD).circuit
    site.inner.changed(last._replace(version=last.version + versions, seen_s=last.seen_s + seconds))
    assert (len(seen), missing) == ((0, ["api"]) if is_lost else (1, []))


def test_without_a_listener_for_lost_circuits_all_changes_are_passed_on(site: Site) -> None:
    seen = list[Circuit]()
    site.store.on_change(seen.append)
    circuit = site.tell(BAD).circuit
    site.inner.changed(circuit)
    assert seen == [circuit]


# The end


@pytest.mark.parametrize(("number", "words"), [(1, "1 update could"), (2, "2 updates could")])
def test_unsaved_updates_are_logged(
    site: Site, number: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.inner.cut()
    site.tell(Record(Signal(ok=False, count=number)))
    site.store.close()
    assert f"{words} not be saved to flaky:: store flaky: cannot be reached" in caplog.text


def test_a_store_without_unsaved_updates_closes_silently(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    closed = list[bool]()
    site.inner.close = lambda: closed.append(True)  # type: ignore[method-assign]
    site.store.is_kept = True
    site.tell()
    site.store.close()
    assert closed == [True]
    assert not site.store.is_kept
    assert caplog.text == ""


def test_closing_ends_the_thread_and_may_be_repeated(site: Site) -> None:
    site.inner.cut()
    site.tell()
    site.store.close()
    owner = Owner()
    site.store.submitter.add(owner, owner.tick)
    assert site.store.submitter._ticks == {}
    assert not site.store._returning.locked()
    site.store.close()


@pytest.mark.parametrize(("more", "applied"), [(0, LISTED + 2), (1, 8)])
def test_closing_saves_a_queue_one_by_one_up_to_a_number(
    site: Site, more: int, applied: int
) -> None:
    never = Policy([detectors.ConsecutiveFailures(10**9)])
    site.inner.cut()
    for number in range(LISTED + more):
        message = Record(Signal(ok=number % 4 < 2, error=f"error {number}"))
        site.tell(message, f"api {number % 2}", never)
    site.inner.mend()
    calls = list[bool]()
    site.inner.inside = lambda: calls.append(True)
    site.store.close()
    saved = [site.stored(key).totals for key in ("api 0", "api 1")]
    assert sum(totals.succeeded + totals.failed for totals in saved) == LISTED + more
    assert len(calls) == applied


def test_closing_does_not_try_a_store_again_that_has_just_failed(site: Site) -> None:
    site.inner.cut()
    site.tell(BAD)

    def tell_once_more() -> None:
        site.clock.advance(RETRY_S)
        site.tell(BAD)

    site.store.submitter.stop = tell_once_more  # type: ignore[method-assign]
    before = site.inner.tries
    site.store.close()
    assert site.inner.tries == before + 1


def test_closing_saves_circuits_for_a_few_seconds(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.inner.cut()
    for key in ("one", "two"):
        site.tell(BAD, key)
    site.inner.mend()
    site.inner.inside = lambda: site.clock.advance(CLOSE_S / 2)  # an update and a remark each
    site.store.close()
    assert site.stored("one").totals.failed == 1
    assert MemoryStore.get(site.inner, "two") is None
    assert "1 update could not be saved" in caplog.text


def test_closing_saves_what_is_queued_although_it_is_not_yet_time_to_try(site: Site) -> None:
    site.inner.cut()
    site.tell(BAD)
    site.inner.mend()
    site.store.close()
    assert site.stored().totals.failed == 1


def test_a_store_over_a_file_pickles_by_its_url(tmp_path: Path, site: Site) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    store = Resilient(open_store(url), url=url, operator=OperatorLock(DIGEST, "secret"))
    again: Resilient = pickle.loads(pickle.dumps(store))
    assert (again.url, again.operator.digest) == (url, DIGEST)
    for lone in (site.store, Resilient(MemoryStore(), url="memory:")):
        with pytest.raises(TypeError, match="does not pickle"):
            pickle.dumps(lone)
    store.close()
    again.close()


def test_a_full_store_is_lost_for_messages_and_can_still_be_read(site: Site) -> None:
    def full() -> None:
        raise StoreFull("flaky:", "no space left", "make room")

    site.inner.inside = full
    site.tell(BAD)
    assert site.store.is_lost
    assert site.store.facts()["circuits"] == "0"
    assert isinstance(site.store._lost, StoreError)


def test_events_that_wait_are_returned_with_the_next_step_of_their_circuit() -> None:
    resilient = Resilient(FlakyStore(clock=FakeClock()))
    told = resilient.apply("k", POLICY, HOLD, 0.0).events
    assert told
    resilient._news["k"] = told
    assert resilient.apply("k", POLICY, OK, 1.0).events == told
    assert resilient.apply("k", POLICY, OK, 2.0).events == ()
