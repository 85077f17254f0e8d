"""What every store promises, whatever it is made of. Subclassed once per kind of store."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from contract.backends import BACKENDS, Backend
from stress.crew import together
from switchgear.core.detectors import ConsecutiveFailures, FailureRate
from switchgear.core.machine import step
from switchgear.core.policy import Policy
from switchgear.core.recovery import Cooldown
from switchgear.core.types import (
    Ask,
    Circuit,
    Event,
    EventKind,
    Message,
    Mode,
    Order,
    Phase,
    Signal,
    Tell,
    Totals,
)
from switchgear.core.wire import dump_circuit
from switchgear.stores.base import Entry, Found, Store, Transaction

POLICY = Policy([ConsecutiveFailures(threshold=3)], Cooldown(base_s=10.0, max_s=40.0))
NOW_S = 1_750_000_000.0
OK = Tell(Signal(ok=True))
FAILED = Tell(Signal(ok=False, error="529 overloaded"))
STRANGE_NAMES = (
    "provider/anthropic",
    "with space",
    "quotes \" and ' and \\",
    "percent % and ? and # and [x] and *",
    "ünï/çødé/日本/🙂",
    "{braces}",
    "x" * 500,
    "a\nb\tc",
)


class Broken(ConsecutiveFailures):
    """A detector of somebody whose code has a defect."""

    __slots__ = ()

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        if signal.error == "boom":
            raise ZeroDivisionError
        return super().fold(memory, signal, now_s)


def same(policy: Policy, one: Circuit, other: Circuit) -> bool:
    """Equal in everything that is remembered; windows may be cut into chunks differently."""
    return dump_circuit(policy, one) == dump_circuit(policy, other)


def tell(store: Store, key: str, *messages: Message, at_s: float = NOW_S) -> None:
    for message in messages:
        store.apply(key, POLICY, message, at_s)


def hold(mode: Mode) -> Order:
    return Order("ada", "maintenance", mode=mode)


def totals(store: Store, key: str) -> Totals:
    found = store.get(key)
    assert found is not None
    return found.circuit.totals


def numbers(entries: list[Entry]) -> list[int]:
    return [entry.event.seq for entry in entries]


class StoreContract:
    """Tests that each store must pass."""

    place: ClassVar[str]
    """Which of the backends."""
    all_or_nothing: ClassVar[bool] = True
    """Whether a transaction over several circuits can be undone."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        with BACKENDS[self.place](tmp_path) as backend:
            yield backend

    @pytest.fixture
    def store(self, backend: Backend) -> Store:
        return backend.open()

    # Messages

    def test_an_empty_store_knows_nothing(self, store: Store) -> None:
        assert store.get("api") is None
        assert list(store.find()) == []
        assert store.events() == []

    def test_a_message_starts_a_circuit_and_keeps_it_with_its_policy(self, store: Store) -> None:
        done = store.apply("api", POLICY, FAILED, NOW_S)
        found = store.get("api")
        assert found is not None
        assert found.policy == POLICY
        assert same(POLICY, found.circuit, done.circuit)
        assert found.circuit.totals.failed == 1
        assert found.circuit.version == 1

    def test_messages_fold_exactly_as_step_does(self, store: Store) -> None:
        messages: list[tuple[float, Message]] = [
            (0.0, OK),
            (1.0, FAILED),
            (2.0, FAILED),
            (2.0, FAILED),
            (3.0, Ask()),
            (12.0, Ask()),
            (12.5, Ask()),
            (22.5, Ask()),
            (22.5, hold(Mode.SHADOW)),
            (23.0, Ask()),
            (24.0, Order("ada", "afresh", reset=True)),
            (25.0, OK),
        ]
        circuit = POLICY.start("api", NOW_S)
        events: list[Event] = []
        for after_s, message in messages:
            wanted = step(POLICY, circuit, message, NOW_S + after_s)
            done = store.apply("api", POLICY, message, NOW_S + after_s)
            circuit = wanted.circuit
            events.extend(wanted.events)
            assert (done.verdict, done.events) == (wanted.verdict, wanted.events)
            assert same(POLICY, done.circuit, circuit)
        assert [entry.event for entry in store.events()] == events

    def test_asking_a_calm_circuit_writes_nothing(self, store: Store) -> None:
        assert store.apply("api", POLICY, Ask(), NOW_S).verdict.admitted
        assert store.get("api") is None, "asking must not make a circuit exist"
        tell(store, "api", OK)
        assert store.apply("api", POLICY, Ask(), NOW_S + 1.0).verdict.admitted
        found = store.get("api")
        assert found is not None
        assert (found.circuit.version, found.circuit.seen_s) == (1, NOW_S)

    def test_hearing_only_what_time_it_is_lets_a_wait_end(self, store: Store) -> None:
        tell(store, "api", FAILED, FAILED, FAILED)
        time = Tell(Signal(count=0))
        assert store.apply("api", POLICY, time, NOW_S + 9.0).events == ()
        assert store.apply("api", POLICY, time, NOW_S + 10.0).circuit.phase is Phase.HALF_OPEN
        found = store.get("api")
        assert found is not None
        assert found.circuit.phase is Phase.HALF_OPEN

    def test_a_clock_that_runs_backwards_does_not_move_a_circuit_back(self, store: Store) -> None:
        tell(store, "api", FAILED, FAILED, FAILED)
        done = store.apply("api", POLICY, FAILED, NOW_S - 3600.0)
        assert done.circuit.seen_s == NOW_S
        assert not store.apply("api", POLICY, Ask(), NOW_S - 3600.0).verdict.admitted

    def test_circuits_do_not_meet(self, store: Store) -> None:
        tell(store, "one", FAILED, FAILED, FAILED)
        assert not store.apply("one", POLICY, Ask(), NOW_S).verdict.admitted
        assert store.apply("two", POLICY, Ask(), NOW_S).verdict.admitted

    @pytest.mark.parametrize("name", STRANGE_NAMES)
    def test_any_name_is_a_name(self, store: Store, name: str) -> None:
        tell(store, name, FAILED, FAILED, FAILED)
        found = store.get(name)
        assert found is not None
        assert found.circuit.key == name
        assert [found.circuit.key for found in store.find("*")] == [name]
        assert [entry.event.circuit for entry in store.events()] == [name]

    @pytest.mark.parametrize("error", ["half a \ud83d", "nul \x00", "line\nline", 'a "quote" \\'])
    def test_any_text_of_an_error_comes_back(self, store: Store, error: str) -> None:
        tell(store, "api", Tell(Signal(ok=False, error=error)))
        found = store.get("api")
        assert found is not None
        assert found.circuit.failures[0].error == error

    def test_a_detector_that_raises_changes_nothing(self, store: Store) -> None:
        policy = Policy([Broken(threshold=3)])
        store.apply("api", policy, FAILED, NOW_S)
        with pytest.raises(ZeroDivisionError):
            store.apply("api", policy, Tell(Signal(ok=False, error="boom")), NOW_S)
        assert store.apply("api", policy, FAILED, NOW_S).circuit.totals.failed == 2

    def test_a_changed_policy_takes_over_what_it_understands(self, store: Store) -> None:
        tell(store, "api", FAILED, FAILED)
        wider = Policy([FailureRate(window=4), ConsecutiveFailures(threshold=4)])
        assert store.apply("api", wider, FAILED, NOW_S).circuit.phase is Phase.CLOSED
        assert store.apply("api", wider, FAILED, NOW_S).circuit.phase is Phase.OPEN
        found = store.get("api")
        assert found is not None
        assert found.policy == wider

    def test_the_policy_that_judged_last_is_kept_even_if_nothing_else_changed(
        self, store: Store
    ) -> None:
        tell(store, "api", OK)
        stricter = POLICY.replace(strict=True)
        store.apply("api", stricter, Ask(), NOW_S)
        found = store.get("api")
        assert found is not None
        assert found.policy == stricter

    def test_the_same_without_blocking_the_event_loop(self, backend: Backend) -> None:
        store = backend.open()

        async def three_failures() -> Phase:
            for _ in range(3):
                done = await store.aapply("api", POLICY, FAILED, NOW_S)
            return done.circuit.phase

        assert asyncio.run(three_failures()) is Phase.OPEN

    # Sharing

    def test_another_handle_sees_the_same(self, backend: Backend) -> None:
        one, other = backend.open(), backend.open()
        tell(one, "api", FAILED, FAILED)
        tell(other, "api", FAILED)
        for store in (one, other):
            assert not store.apply("api", POLICY, Ask(), NOW_S).verdict.admitted
        assert numbers(one.events()) == numbers(other.events()) == [1]

    def test_one_probe_for_all_who_ask_at_once(self, backend: Backend) -> None:
        handles = [backend.open() for _ in range(4)]
        tell(handles[0], "api", FAILED, FAILED, FAILED)
        admitted: list[bool] = []

        def ask(store: Store) -> Callable[[], None]:
            return lambda: admitted.append(
                store.apply("api", POLICY, Ask(), NOW_S + 10.0).verdict.admitted
            )

        together(*[ask(store) for store in handles * 4])
        assert (len(admitted), sum(admitted)) == (16, 1)

    def test_what_many_tell_at_once_is_all_counted(self, backend: Backend) -> None:
        handles = [backend.open() for _ in range(2)]
        policy = Policy([ConsecutiveFailures(threshold=2)], Cooldown(base_s=1e-3, max_s=1e-3))

        def talk(store: Store, who: int) -> Callable[[], None]:
            def run() -> None:
                for number in range(25):
                    signal = Signal(ok=(number + who) % 3 == 0, cost_micros=7)
                    store.apply("api", policy, Tell(signal), NOW_S + number)

            return run

        together(*[talk(handles[who % 2], who) for who in range(8)])
        found = handles[0].get("api")
        assert found is not None
        totals = found.circuit.totals
        assert totals.succeeded + totals.failed == 200
        assert totals.cost_micros == 1400
        assert numbers(handles[1].events()) == list(range(1, found.circuit.event_seq + 1))

    def test_the_clock_of_a_store_is_the_one_it_was_given(self, backend: Backend) -> None:
        assert backend.open(clock=lambda: 12.5).now_s() == 12.5

    # Finding

    def test_circuits_are_found_by_glob_in_the_order_of_their_names(self, store: Store) -> None:
        for name in ("op/git", "agent/coder", "op/npm", "op", "provider/a", "opera", "Op/x"):
            tell(store, name, OK)

        def names(glob: str) -> list[str]:
            return [found.circuit.key for found in store.find(glob)]

        assert names("*") == sorted(names("*"))
        assert len(names("*")) == 7
        assert names("op/*") == ["op/git", "op/npm"]
        assert names("op*") == ["op", "op/git", "op/npm", "opera"]
        assert names("*/[cg]*") == ["agent/coder", "op/git"]
        assert names("op/g?t") == ["op/git"]
        assert names("op") == ["op"]
        assert names("*a") == ["opera", "provider/a"]
        assert names("nothing*") == names("nothing") == []

    def test_many_circuits_are_all_found_once(self, store: Store) -> None:
        wanted = [f"loop/{number:04}" for number in range(1203)]
        for name in wanted:
            tell(store, name, OK)
        assert [found.circuit.key for found in store.find("loop/*")] == wanted
        assert [found.circuit.key for found in store.find()] == wanted

    # Events

    def test_events_come_in_order_and_go_on_behind_a_cursor(self, store: Store) -> None:
        for mode in (Mode.HELD_OPEN, Mode.SHADOW, Mode.AUTO):
            tell(store, "one", hold(mode))
            tell(store, "two", hold(mode))
        everything = store.events()
        assert [entry.event.circuit for entry in everything] == ["one", "two"] * 3
        assert numbers(everything) == [1, 1, 2, 2, 3, 3]
        assert store.events(after=everything[3].cursor) == everything[4:]
        assert store.events(after=everything[-1].cursor) == []

    @pytest.mark.parametrize("after", ["xx", "", "1.5", "²", "9" * 5000, "1-2-3"])
    def test_what_is_no_cursor_is_said_to_be_none(self, store: Store, after: str) -> None:
        with pytest.raises(ValueError, match=r"^after is .*: it must be a cursor of this stream$"):
            store.events(after=after)

    def test_events_are_limited_from_the_right_end(self, store: Store) -> None:
        for mode in (Mode.HELD_OPEN, Mode.SHADOW, Mode.HELD_CLOSED, Mode.AUTO):
            tell(store, "api", hold(mode))
        first = store.events(limit=4)[0]
        assert numbers(store.events(limit=2)) == [3, 4], "without a cursor the newest"
        assert numbers(store.events(after=first.cursor, limit=2)) == [2, 3], "else the next"

    def test_events_are_found_by_glob(self, store: Store) -> None:
        for name in ("op/git", "agent/coder", "op/npm"):
            tell(store, name, hold(Mode.SHADOW))

        def names(glob: str) -> list[str]:
            return [entry.event.circuit for entry in store.events(glob=glob)]

        assert names("op/*") == ["op/git", "op/npm"]
        assert names("agent/coder") == ["agent/coder"]
        assert names("nobody") == []
        newest = store.events(glob="op/*", limit=1)
        assert [entry.event.circuit for entry in newest] == ["op/npm"]

    def test_every_field_of_an_event_comes_back(self, store: Store) -> None:
        tell(store, "api", FAILED, FAILED)
        done = store.apply("api", POLICY, FAILED, NOW_S)
        assert done.events[0].retry_after_s == 10.0
        assert [entry.event for entry in store.events()] == list(done.events)

    @pytest.mark.parametrize("later", [False, True])
    def test_the_stream_does_not_grow_for_ever(self, backend: Backend, *, later: bool) -> None:
        store = backend.open(keep_events=5000 if later else 50)
        if later:
            store.retain(keep_events=50, idle_s=3600.0)
        for number in range(700):
            tell(store, "api", hold(Mode.SHADOW if number % 2 else Mode.AUTO))
        kept = store.events(limit=10_000)
        assert 50 <= len(kept) <= 50 + 256
        assert numbers(kept) == list(range(701 - len(kept), 701))

    # Moving in and out

    def test_a_circuit_is_taken_over_unless_as_new_a_one_is_here(self, backend: Backend) -> None:
        store = backend.open()
        tell(store, "api", FAILED)
        here = store.get("api")
        assert here is not None
        newer = here.circuit._replace(version=9, generation=4)
        assert not store.put(here), "the same version"
        assert not store.put(here._replace(circuit=here.circuit._replace(version=0)))
        assert store.put(Found(newer, POLICY))
        found = store.get("api")
        assert found is not None
        assert same(POLICY, found.circuit, newer)
        assert store.apply("api", POLICY, FAILED, NOW_S).circuit.version == 10

    def test_a_circuit_moves_to_another_store_with_its_events(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        store = backend.open()
        circuit = POLICY.start("api", NOW_S)
        events: list[Event] = []
        for message in (FAILED, FAILED, FAILED, hold(Mode.SHADOW)):
            done = step(POLICY, circuit, message, NOW_S)
            circuit = done.circuit
            events.extend(done.events)
        assert store.put(Found(circuit, POLICY), events)
        assert not store.put(Found(circuit, POLICY), events)
        assert [entry.event for entry in store.events()] == events
        after = store.apply("api", POLICY, hold(Mode.AUTO), NOW_S)
        assert after.events[0].seq == len(events) + 1
        assert numbers(store.events()) == [1, 2, 3]

    # Forgetting

    def test_a_vacuum_forgets_old_events_and_abandoned_circuits(self, store: Store) -> None:
        tell(store, "calm", OK)
        tell(store, "open", FAILED, FAILED, FAILED)
        tell(store, "held", hold(Mode.SHADOW), hold(Mode.HELD_OPEN))
        tell(store, "young", OK, at_s=NOW_S + 50.0)
        gone = store.vacuum(keep_events=2, idle_s=100.0, now_s=NOW_S + 100.0)
        assert gone == (1, 1)
        assert [found.circuit.key for found in store.find()] == ["held", "open", "young"]
        assert [entry.event.circuit for entry in store.events()] == ["held", "held"]
        assert store.vacuum(keep_events=2, idle_s=100.0, now_s=NOW_S + 100.0) == (0, 0)

    def test_a_forgotten_circuit_starts_again(self, store: Store) -> None:
        tell(store, "api", FAILED, FAILED)
        store.vacuum(keep_events=10, idle_s=1.0, now_s=NOW_S + 1.0)
        assert store.get("api") is None
        assert store.apply("api", POLICY, FAILED, NOW_S + 2.0).circuit.totals.failed == 1

    def test_one_circuit_can_be_forgotten_with_its_events_whatever_its_state(
        self, store: Store
    ) -> None:
        forgets: Any = store  # what a self-test leaves behind; nobody else needs it
        tell(store, "selftest/1", FAILED, FAILED, FAILED)
        tell(store, "open", FAILED, FAILED, FAILED)
        before = [entry for entry in store.events() if entry.event.circuit == "open"]
        assert forgets.forget("selftest/1")
        assert not forgets.forget("selftest/1")
        assert store.get("selftest/1") is None
        assert [found.circuit.key for found in store.find()] == ["open"]
        assert store.events() == before

    # Several messages and a note

    def test_a_transaction_tells_several_circuits_and_keeps_a_note(self, store: Store) -> None:
        def work(inside: Transaction) -> int:
            assert inside.note is None
            inside.apply("one", POLICY, FAILED)
            inside.apply("two", POLICY, OK)
            inside.note = "seen {}"
            return inside.apply("one", POLICY, FAILED).circuit.totals.failed

        assert store.transact("session/a", work) == 2
        assert totals(store, "one").failed == 2
        assert totals(store, "two").succeeded == 1
        assert store.transact("session/a", lambda inside: inside.note) == "seen {}"
        assert store.transact("session/b", lambda inside: inside.note) is None

    def test_a_transaction_that_only_asks_a_calm_circuit_writes_nothing(self, store: Store) -> None:
        assert store.transact(
            "a", lambda inside: inside.apply("api", POLICY, Ask())
        ).verdict.admitted
        assert store.get("api") is None

    def test_a_transaction_commits_its_events_with_the_circuits(self, store: Store) -> None:
        def work(inside: Transaction) -> None:
            for _ in range(3):
                inside.apply("api", POLICY, FAILED)
            inside.apply("api", POLICY, hold(Mode.SHADOW))

        store.transact("a", work)
        assert numbers(store.events()) == [1, 2]
        assert store.apply("api", POLICY, hold(Mode.AUTO), store.now_s()).events[0].seq == 3

    def test_what_a_transaction_saw_and_what_is_told_later_add_up(self, store: Store) -> None:
        for _ in range(3):
            store.transact("a", lambda inside: inside.apply("api", POLICY, OK))
            store.apply("api", POLICY, OK, store.now_s())
        assert totals(store, "api").succeeded == 6

    def test_a_note_is_replaced_removed_and_forgotten_in_time(self, store: Store) -> None:
        def write(text: str | None, keep_s: float = 60.0) -> None:
            def work(inside: Transaction) -> None:
                inside.note, inside.keep_s = text, keep_s

            store.transact("a", work)

        def read() -> str | None:
            return store.transact("a", lambda inside: inside.note)

        write("one ünï\n日本")
        assert read() == "one ünï\n日本"
        write("two")
        assert read() == "two"
        write(None)
        assert read() is None
        write("soon gone", keep_s=0.001)
        deadline_s = time.monotonic() + 5.0
        while read() is not None:
            assert time.monotonic() < deadline_s, "a note outlives its time"

    def test_a_vacuum_removes_notes_whose_time_is_over_and_no_others(self, store: Store) -> None:
        def work(inside: Transaction) -> None:
            inside.note, inside.keep_s = "kept", 3600.0

        store.transact("a", work)
        store.vacuum(keep_events=10, idle_s=1e6, now_s=store.now_s())
        assert store.transact("a", lambda inside: inside.note) == "kept"

    def test_one_caller_at_a_time_has_a_note(self, backend: Backend) -> None:
        stores = [backend.open() for _ in range(4)]

        def count(store: Store) -> Callable[[], None]:
            def work(inside: Transaction) -> None:
                inside.apply("api", POLICY, OK)
                inside.note = str(int(inside.note or "0") + 1)

            def run() -> None:
                for _ in range(25):
                    store.transact("a", work)

            return run

        together(*map(count, stores))
        assert stores[0].transact("a", lambda inside: inside.note) == "100"
        assert totals(stores[0], "api").succeeded == 100

    def test_a_transaction_that_fails_keeps_no_note(self, store: Store) -> None:
        def work(inside: Transaction) -> None:
            inside.note = "half"
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.transact("a", work)
        assert store.transact("a", lambda inside: inside.note) is None

    def test_a_transaction_that_fails_leaves_circuits_as_they_were(self, store: Store) -> None:
        if not self.all_or_nothing:
            pytest.skip("each message by itself")
        tell(store, "known", OK)

        def work(inside: Transaction) -> None:
            inside.apply("new", POLICY, FAILED)
            inside.apply("known", POLICY, hold(Mode.SHADOW))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.transact("a", work)
        assert store.get("new") is None
        assert totals(store, "known") == Totals(succeeded=1)
        assert store.events() == []
        store.apply("known", POLICY, OK, store.now_s())
        assert totals(store, "known").succeeded == 2

    # The rest

    def test_a_circuit_whose_state_is_lost_can_say_so(self, store: Store) -> None:
        remark = Order("switchgear", "gone", kind=EventKind.STORE_LOST)
        assert store.apply("api", POLICY, remark, NOW_S).events[0].kind is EventKind.STORE_LOST
        assert store.events()[0].event.kind is EventKind.STORE_LOST

    def test_a_store_tells_facts_about_itself(self, store: Store) -> None:
        tell(store, "api", OK)
        facts: dict[str, Any] = dict(store.facts())
        assert facts
        assert all(isinstance(text, str) for pair in facts.items() for text in pair)
        assert store.label

    def test_closing_twice_is_closing_once(self, backend: Backend) -> None:
        store = backend.open()
        tell(store, "api", OK)
        store.close()
        store.close()
