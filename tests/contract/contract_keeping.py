"""What every store promises about saved circuits and events: search, streams, import, removal. Part of the contract."""

from pathlib import Path
from typing import Any

import pytest

from contract.backends import Backend
from contract.words import FAILED, NOW_S, OK, POLICY, hold, numbers, same, tell
from switchgear._core.machine import step
from switchgear._core.types import Event, Mode
from switchgear._stores.base import Store, StoredCircuit


class KeepingContract:
    """Tests that each store must pass, about circuits and events that it has."""

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

    def test_events_come_in_order_and_continue_after_a_cursor(self, store: Store) -> None:
        for mode in (Mode.HELD_OPEN, Mode.SHADOW, Mode.AUTO):
            tell(store, "one", hold(mode))
            tell(store, "two", hold(mode))
        everything = store.events()
        assert [entry.event.circuit for entry in everything] == ["one", "two"] * 3
        assert numbers(everything) == [1, 1, 2, 2, 3, 3]
        assert store.events(after=everything[3].cursor) == everything[4:]
        assert store.events(after=everything[-1].cursor) == []

    def test_the_cursor_0_is_before_the_oldest_event(self, store: Store) -> None:
        assert store.events(after="0") == []
        for mode in (Mode.HELD_OPEN, Mode.SHADOW, Mode.AUTO):
            tell(store, "one", hold(mode))
        assert store.events(after="0") == store.events()
        assert numbers(store.events(after="0", limit=2)) == [1, 2]

    @pytest.mark.parametrize("after", ["xx", "", "1.5", "²", "9" * 5000, "1-2-3"])
    def test_an_invalid_cursor_is_reported(self, store: Store, after: str) -> None:
        with pytest.raises(ValueError, match=r"^after is .*: it must be a cursor of this stream$"):
            store.events(after=after)

    def test_a_limit_returns_the_newest_events_or_the_next_after_a_cursor(
        self, store: Store
    ) -> None:
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

    def test_every_field_of_an_event_is_restored(self, store: Store) -> None:
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

    def test_a_circuit_is_imported_unless_the_stored_one_is_as_new(self, backend: Backend) -> None:
        store = backend.open()
        tell(store, "api", FAILED)
        here = store.get("api")
        assert here is not None
        newer = here.circuit._replace(version=9, generation=4)
        assert not store.put(here), "the same version"
        assert not store.put(here._replace(circuit=here.circuit._replace(version=0)))
        assert store.put(StoredCircuit(newer, POLICY))
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
        assert store.put(StoredCircuit(circuit, POLICY), events)
        assert not store.put(StoredCircuit(circuit, POLICY), events)
        assert [entry.event for entry in store.events()] == events
        after = store.apply("api", POLICY, hold(Mode.AUTO), NOW_S)
        assert after.events[0].seq == len(events) + 1
        assert numbers(store.events()) == [1, 2, 3]

    # Forgetting

    def test_a_vacuum_removes_old_events_and_abandoned_circuits(self, store: Store) -> None:
        tell(store, "calm", OK)
        tell(store, "open", FAILED, FAILED, FAILED)
        tell(store, "held", hold(Mode.SHADOW), hold(Mode.HELD_OPEN))
        tell(store, "young", OK, at_s=NOW_S + 50.0)
        gone = store.vacuum(keep_events=2, idle_s=100.0, now_s=NOW_S + 100.0)
        assert gone == (1, 1)
        assert [found.circuit.key for found in store.find()] == ["held", "open", "young"]
        assert [entry.event.circuit for entry in store.events()] == ["held", "held"]
        assert store.vacuum(keep_events=2, idle_s=100.0, now_s=NOW_S + 100.0) == (0, 0)

    def test_a_removed_circuit_starts_again(self, store: Store) -> None:
        tell(store, "api", FAILED, FAILED)
        store.vacuum(keep_events=10, idle_s=1.0, now_s=NOW_S + 1.0)
        assert store.get("api") is None
        assert store.apply("api", POLICY, FAILED, NOW_S + 2.0).circuit.totals.failed == 1

    def test_one_circuit_can_be_removed_with_its_events_whatever_its_state(
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
