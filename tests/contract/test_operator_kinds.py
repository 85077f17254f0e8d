"""Overrides need the operator token in every store, whatever the kind of the message."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract import backends
from switchgear import Policy, Signal
from switchgear._core.errors import OverrideRefused
from switchgear._core.policy import Latched
from switchgear._core.types import REMARKS, EventKind, Mode, Override, Record
from switchgear._detectors import ConsecutiveFailures
from switchgear._panel.panel import Panel
from switchgear._stores.base import Store, StoredCircuit, Transaction

TOKEN = "swg_secret"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
NAME = "rules/agent"
POLICY = Policy([ConsecutiveFailures(threshold=1)], recovery=Latched())

CHANGES: tuple[dict[str, Any], ...] = (
    {"reset": True},
    *({"mode": mode} for mode in Mode),
    *({"mode": mode, "reset": True} for mode in Mode),
)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A sealed store with one open circuit."""
    with backends.BACKENDS[request.param](tmp_path) as backend:
        store = backend.open()
        store.set_operator_digest(DIGEST, instead_of=None)
        store.apply(NAME, POLICY, Record(Signal(ok=False, error="down")), store.now_s())
        yield store


def by_send(panel: Panel, order: Override) -> object:
    return panel.send(NAME, order)


def by_breaker(panel: Panel, order: Override) -> object:
    return panel.breaker(NAME).send(order)


def by_store(panel: Panel, order: Override) -> object:
    return panel.store.apply(NAME, POLICY, order, panel.store.now_s())


def by_async_store(panel: Panel, order: Override) -> object:
    return asyncio.run(panel.store.aapply(NAME, POLICY, order, panel.store.now_s()))


def by_transaction(panel: Panel, order: Override) -> object:
    def work(inside: Transaction) -> object:
        return inside.apply(NAME, POLICY, order)

    return panel.store.transact(NAME, work)


WAYS = [by_send, by_breaker, by_store, by_async_store, by_transaction]


def standing(store: Store) -> tuple[str, str]:
    found = store.get(NAME)
    assert found is not None
    return str(found.circuit.phase), str(found.circuit.mode)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_kind_of_message_overrides_without_the_token(
    store: Store, way: Callable[[Panel, Override], object]
) -> None:
    panel = Panel(store)
    for kind in EventKind:
        for change in CHANGES:
            with pytest.raises(OverrideRefused):
                way(panel, Override("agent", "I want to go on", kind=kind, **change))
            assert standing(store) == ("open", "auto"), (kind, change)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_with_the_token_every_kind_of_message_resets(
    store: Store, way: Callable[[Panel, Override], object]
) -> None:
    panel = Panel(store, token=TOKEN)
    for kind in EventKind:
        way(panel, Override("ann", "fixed", kind=kind, reset=True))
        assert standing(store) == ("closed", "auto"), kind
        panel.store.apply(NAME, POLICY, Record(Signal(ok=False)), panel.store.now_s())


@pytest.mark.parametrize("kind", [kind for kind in EventKind if kind not in REMARKS])
def test_events_of_the_mechanism_cannot_be_forged_without_the_token(
    store: Store, kind: EventKind
) -> None:
    before = len(store.events())
    with pytest.raises(OverrideRefused):
        by_send(Panel(store), Override("agent", "closed", kind=kind))
    assert len(store.events()) == before


@pytest.mark.parametrize("kind", sorted(REMARKS))
def test_a_remark_that_changes_nothing_needs_no_token(store: Store, kind: EventKind) -> None:
    by_store(Panel(store), Override("switchgear", "seen", kind=kind))
    assert standing(store) == ("open", "auto")
    assert store.events()[-1].event.kind is kind


def test_the_seal_itself_needs_the_token(store: Store) -> None:
    panel = Panel(store)
    for digest in (None, "0" * 64):
        with pytest.raises(OverrideRefused):
            panel.store.set_operator_digest(digest, instead_of=DIGEST)
    assert store.operator_digest() == DIGEST
    assert Panel(store, token=TOKEN).store.set_operator_digest(None, instead_of=DIGEST)


def test_importing_a_closed_circuit_needs_the_token(store: Store) -> None:
    found = store.get(NAME)
    assert found is not None
    closed = POLICY.start(NAME, store.now_s())._replace(version=found.circuit.version + 100)
    with pytest.raises(OverrideRefused):
        Panel(store).store.put(StoredCircuit(closed, POLICY))
    assert standing(store) == ("open", "auto")


def test_limits_of_budgets_and_locks_of_others_need_the_token(store: Store) -> None:
    panel = Panel(store)
    panel.budgets.open("atlas", 5)
    panel.lock("staging-db", owner="ann").acquire()
    for attempt in (
        lambda: panel.budgets.limit("atlas", 5_000_000),
        lambda: panel.budgets.close("atlas"),
        lambda: panel.locks.break_lock("staging-db"),
    ):
        with pytest.raises(OverrideRefused):
            attempt()
    assert panel.budgets.free_micros("atlas") == 5
    operator = Panel(store, token=TOKEN)
    operator.budgets.limit("atlas", 9)
    assert operator.budgets.free_micros("atlas") == 9
    assert operator.locks.break_lock("staging-db")


def test_a_store_without_a_seal_accepts_overrides_without_a_token(tmp_path: Path) -> None:
    with backends.BACKENDS["sqlite"](tmp_path) as backend:
        store = backend.open()
        store.apply(NAME, POLICY, Record(Signal(ok=False)), store.now_s())
        by_transaction(Panel(store), Override("ann", "fixed", reset=True))
        assert standing(store) == ("closed", "auto")
