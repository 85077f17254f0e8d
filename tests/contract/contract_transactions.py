"""What every store promises about several messages and a note in one transaction. Part of the contract."""

import time
from collections.abc import Callable
from typing import ClassVar

import pytest

from contract.backends import Backend
from contract.words import FAILED, OK, POLICY, hold, numbers, tell, totals
from stress.crew import together
from switchgear._core.types import Acquire, Mode, Totals
from switchgear._stores.base import Store, Transaction
from timeouts import LIMIT_S


class TransactionContract:
    """Tests that each store must pass, about `transact`."""

    all_or_nothing: ClassVar[bool] = True
    """Whether a transaction over several circuits can be undone."""

    def test_a_transaction_sends_to_several_circuits_and_keeps_a_note(self, store: Store) -> None:
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

    def test_a_transaction_that_only_acquires_from_a_closed_circuit_writes_nothing(
        self, store: Store
    ) -> None:
        assert store.transact(
            "a", lambda inside: inside.apply("api", POLICY, Acquire())
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

    def test_a_transaction_and_later_records_add_up(self, store: Store) -> None:
        for _ in range(3):
            store.transact("a", lambda inside: inside.apply("api", POLICY, OK))
            store.apply("api", POLICY, OK, store.now_s())
        assert totals(store, "api").succeeded == 6

    def test_a_note_is_replaced_and_removed_and_expires(self, store: Store) -> None:
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
        deadline_s = time.monotonic() + LIMIT_S
        while read() is not None:
            assert time.monotonic() < deadline_s, "a note outlives its time"

    def test_a_vacuum_removes_notes_whose_time_is_over_and_no_others(self, store: Store) -> None:
        def work(inside: Transaction) -> None:
            inside.note, inside.keep_s = "kept", 3600.0

        store.transact("a", work)
        store.vacuum(keep_events=10, idle_s=1e6, now_s=store.now_s())
        assert store.transact("a", lambda inside: inside.note) == "kept"

    def test_one_caller_at_a_time_holds_a_note(self, backend: Backend) -> None:
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
