"""What every store promises. Subclassed once per kind of store."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from contract.backends import BACKENDS, Backend
from contract.contract_keeping import KeepingContract
from contract.contract_transactions import TransactionContract
from contract.words import (
    FAILED,
    NOW_S,
    OK,
    POLICY,
    STRANGE_NAMES,
    Broken,
    hold,
    numbers,
    same,
    tell,
)
from stress.crew import together
from switchgear._core.machine import step
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import (
    Acquire,
    Event,
    EventKind,
    Message,
    Mode,
    Override,
    Phase,
    Record,
    Signal,
)
from switchgear._detectors import ConsecutiveFailures, FailureRate
from switchgear._stores.base import Store


class StoreContract(KeepingContract, TransactionContract):
    """Tests that each store must pass."""

    place: ClassVar[str]
    """Which of the backends."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        with BACKENDS[self.place](tmp_path) as backend:
            yield backend

    @pytest.fixture
    def store(self, backend: Backend) -> Store:
        return backend.open()

    # Messages

    def test_an_empty_store_has_no_circuits(self, store: Store) -> None:
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
            (3.0, Acquire()),
            (12.0, Acquire()),
            (12.5, Acquire()),
            (22.5, Acquire()),
            (22.5, hold(Mode.SHADOW)),
            (23.0, Acquire()),
            (24.0, Override("ada", "afresh", reset=True)),
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

    def test_holds_with_an_end_shares_of_probes_and_probe_now_are_kept(self, store: Store) -> None:
        policy = POLICY.replace(recovery=Cooldown(10.0, successes=2, of=4))
        circuit = policy.start("api", NOW_S)
        held = Override("ada", "deploy", Mode.HELD_OPEN, until_s=NOW_S + 30.0)
        messages: list[tuple[float, Message]] = [
            (0.0, Record(Signal(ok=False, count=20))),
            (1.0, Override("ada", "it is back", probe=True)),
            (2.0, Record(Signal(ok=False))),
            (3.0, Record(Signal(ok=True))),
            (4.0, held),
            (5.0, Acquire()),
            (29.9, Acquire()),
            (30.0, Record(Signal(count=0))),
            (31.0, Record(Signal(ok=True))),
        ]
        events: list[Event] = []
        for after_s, message in messages:
            wanted = step(policy, circuit, message, NOW_S + after_s)
            done = store.apply("api", policy, message, NOW_S + after_s)
            circuit = wanted.circuit
            events.extend(wanted.events)
            assert (done.verdict, done.events) == (wanted.verdict, wanted.events)
            assert same(policy, done.circuit, circuit)
        assert [entry.event for entry in store.events()] == events
        assert circuit.phase is Phase.CLOSED
        assert EventKind.HOLD_ENDED in {event.kind for event in events}

    def test_acquiring_from_a_calm_circuit_writes_nothing(self, store: Store) -> None:
        assert store.apply("api", POLICY, Acquire(), NOW_S).verdict.admitted
        assert store.get("api") is None, "asking must not make a circuit exist"
        tell(store, "api", OK)
        assert store.apply("api", POLICY, Acquire(), NOW_S + 1.0).verdict.admitted
        found = store.get("api")
        assert found is not None
        assert (found.circuit.version, found.circuit.seen_s) == (1, NOW_S)

    def test_advancing_the_time_ends_a_wait(self, store: Store) -> None:
        tell(store, "api", FAILED, FAILED, FAILED)
        time = Record(Signal(count=0))
        assert store.apply("api", POLICY, time, NOW_S + 9.0).events == ()
        assert store.apply("api", POLICY, time, NOW_S + 10.0).circuit.phase is Phase.HALF_OPEN
        found = store.get("api")
        assert found is not None
        assert found.circuit.phase is Phase.HALF_OPEN

    def test_a_clock_that_runs_backwards_does_not_move_a_circuit_back(self, store: Store) -> None:
        tell(store, "api", FAILED, FAILED, FAILED)
        done = store.apply("api", POLICY, FAILED, NOW_S - 3600.0)
        assert done.circuit.seen_s == NOW_S
        assert not store.apply("api", POLICY, Acquire(), NOW_S - 3600.0).verdict.admitted

    def test_circuits_do_not_affect_each_other(self, store: Store) -> None:
        tell(store, "one", FAILED, FAILED, FAILED)
        assert not store.apply("one", POLICY, Acquire(), NOW_S).verdict.admitted
        assert store.apply("two", POLICY, Acquire(), NOW_S).verdict.admitted

    @pytest.mark.parametrize("name", STRANGE_NAMES)
    def test_any_text_is_a_valid_circuit_name(self, store: Store, name: str) -> None:
        tell(store, name, FAILED, FAILED, FAILED)
        found = store.get(name)
        assert found is not None
        assert found.circuit.key == name
        assert [found.circuit.key for found in store.find("*")] == [name]
        assert [entry.event.circuit for entry in store.events()] == [name]

    @pytest.mark.parametrize("error", ["half a \ud83d", "nul \x00", "line\nline", 'a "quote" \\'])
    def test_any_error_text_is_restored(self, store: Store, error: str) -> None:
        tell(store, "api", Record(Signal(ok=False, error=error)))
        found = store.get("api")
        assert found is not None
        assert found.circuit.failures[0].error == error

    def test_a_detector_that_raises_changes_nothing(self, store: Store) -> None:
        policy = Policy([Broken(threshold=3)])
        store.apply("api", policy, FAILED, NOW_S)
        with pytest.raises(ZeroDivisionError):
            store.apply("api", policy, Record(Signal(ok=False, error="boom")), NOW_S)
        assert store.apply("api", policy, FAILED, NOW_S).circuit.totals.failed == 2

    def test_a_changed_policy_keeps_the_evidence_that_it_can_read(self, store: Store) -> None:
        tell(store, "api", FAILED, FAILED)
        wider = Policy([FailureRate(window=4), ConsecutiveFailures(threshold=4)])
        assert store.apply("api", wider, FAILED, NOW_S).circuit.phase is Phase.CLOSED
        assert store.apply("api", wider, FAILED, NOW_S).circuit.phase is Phase.OPEN
        found = store.get("api")
        assert found is not None
        assert found.policy == wider

    def test_the_last_policy_is_stored_even_if_nothing_else_changed(self, store: Store) -> None:
        tell(store, "api", OK)
        stricter = POLICY.replace(strict=True)
        store.apply("api", stricter, Acquire(), NOW_S)
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

    def test_the_result_of_a_cancelled_task_is_counted_once(self, backend: Backend) -> None:
        store, calm = backend.open(), Policy([ConsecutiveFailures(threshold=1000)])

        async def report(steps: int) -> None:
            task = asyncio.create_task(store.aapply("api", calm, FAILED, NOW_S))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        async def reports() -> None:
            for steps in range(1, 31):
                await report(steps)

        asyncio.run(reports())
        found = backend.open().get("api")
        assert found is not None
        assert found.circuit.totals.failed == 30

    # Sharing

    def test_another_handle_sees_the_same(self, backend: Backend) -> None:
        one, other = backend.open(), backend.open()
        tell(one, "api", FAILED, FAILED)
        tell(other, "api", FAILED)
        for store in (one, other):
            assert not store.apply("api", POLICY, Acquire(), NOW_S).verdict.admitted
        assert numbers(one.events()) == numbers(other.events()) == [1]

    def test_concurrent_callers_get_one_probe(self, backend: Backend) -> None:
        handles = [backend.open() for _ in range(4)]
        tell(handles[0], "api", FAILED, FAILED, FAILED)
        admitted: list[bool] = []

        def ask(store: Store) -> Callable[[], None]:
            return lambda: admitted.append(
                store.apply("api", POLICY, Acquire(), NOW_S + 10.0).verdict.admitted
            )

        together(*[ask(store) for store in handles * 4])
        assert (len(admitted), sum(admitted)) == (16, 1)

    def test_concurrent_records_are_all_counted(self, backend: Backend) -> None:
        handles = [backend.open() for _ in range(2)]
        policy = Policy([ConsecutiveFailures(threshold=2)], Cooldown(base_s=1e-3, max_s=1e-3))

        def talk(store: Store, who: int) -> Callable[[], None]:
            def run() -> None:
                for number in range(25):
                    signal = Signal(ok=(number + who) % 3 == 0, cost_micros=7)
                    store.apply("api", policy, Record(signal), NOW_S + number)

            return run

        together(*[talk(handles[who % 2], who) for who in range(8)])
        found = handles[0].get("api")
        assert found is not None
        totals = found.circuit.totals
        assert totals.succeeded + totals.failed == 200
        assert totals.cost_micros == 1400
        assert numbers(handles[1].events()) == list(range(1, found.circuit.event_seq + 1))

    def test_a_store_uses_the_clock_that_was_passed_to_it(self, backend: Backend) -> None:
        assert backend.open(clock=lambda: 12.5).now_s() == 12.5

    # The rest

    def test_a_lost_state_of_a_circuit_is_reported(self, store: Store) -> None:
        remark = Override("switchgear", "gone", kind=EventKind.STORE_LOST)
        assert store.apply("api", POLICY, remark, NOW_S).events[0].kind is EventKind.STORE_LOST
        assert store.events()[0].event.kind is EventKind.STORE_LOST

    def test_a_store_returns_facts_about_itself(self, store: Store) -> None:
        tell(store, "api", OK)
        facts: dict[str, Any] = dict(store.facts())
        assert facts
        assert all(isinstance(text, str) for pair in facts.items() for text in pair)
        assert store.label

    def test_closing_twice_is_allowed(self, backend: Backend) -> None:
        store = backend.open()
        tell(store, "api", OK)
        store.close()
        store.close()
