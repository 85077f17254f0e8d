"""All stores give the same answers to the same messages, whatever the policy."""

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.backends import BACKENDS
from property.strategies import SIGNALS, TICKS, policies
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import (
    Acquire,
    EventKind,
    Message,
    Mode,
    Override,
    Permit,
    Record,
    Signal,
)
from switchgear._core.wire import dump_circuit
from switchgear._detectors import ConsecutiveFailures, FailureRate
from switchgear._stores.base import Store

KEYS = ("provider/a", "op/b")
NOW_S = 1_750_000_000.0
POLICY = Policy(
    [ConsecutiveFailures(threshold=3), FailureRate(window=10, threshold=0.6)],
    Cooldown(base_s=2.0, max_s=8.0, lease_s=1.0),
    tripping_at=0.6,
)

# Each field is drawn by name: left out, hypothesis would make up values of its type.
ORDERS = st.builds(
    Override,
    by=st.just("ada"),
    why=st.just("a drill"),
    mode=st.none() | st.sampled_from(Mode),
    reset=st.booleans(),
    kind=st.just(EventKind.ORDERED),
    until_s=st.none(),
    probe=st.just(False),
    process=st.just(""),
)
TOLD = st.builds(
    lambda signal, cost: signal._replace(cost_micros=cost),
    SIGNALS,
    st.sampled_from((None, None, 0, 7, 2_500_000)),
)
MESSAGES = st.one_of(
    st.just(Acquire()),
    st.just(Acquire()),
    st.builds(Record, signal=TOLD, permit=st.none(), source=st.none()),
    st.builds(Record, signal=TOLD, permit=st.just(Permit(0)), source=st.none()),
    ORDERS,
)
SCRIPTS = st.lists(
    st.tuples(st.sampled_from(KEYS), TICKS, MESSAGES, st.integers(0, 1)), min_size=1, max_size=25
)


class Conversation:
    """The same messages to several stores; a record under `Permit(0)` uses the last permit issued."""

    def __init__(self, stores: list[Store]) -> None:
        self.stores = stores
        self.permits: dict[str, Permit] = {}

    def say(self, key: str, policy: Policy, message: Message, now_s: float) -> None:
        if isinstance(message, Record) and message.permit is not None:
            message = message._replace(permit=self.permits.get(key))
        first, *others = [self._answer(store, key, policy, message, now_s) for store in self.stores]
        for other in others:
            assert other == first
        permit = first[0].permit
        if permit is not None:
            self.permits[key] = permit

    @staticmethod
    def _answer(
        store: Store, key: str, policy: Policy, message: Message, now_s: float
    ) -> tuple[Any, Any, Any]:
        done = store.apply(key, policy, message, now_s)
        return done.verdict, dump_circuit(policy, done.circuit), done.events

    def remember_alike(self) -> None:
        """Check that all stores return the same content."""
        first, *others = [self._memory(store) for store in self.stores]
        for other in others:
            assert other == first

    @staticmethod
    def _memory(store: Store) -> tuple[Any, Any]:
        found = [
            (found.policy, dump_circuit(found.policy, found.circuit)) for found in store.find()
        ]
        return found, [entry.event for entry in store.events()]


@pytest.mark.parametrize("place", [place for place in BACKENDS if place != "memory"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=st.tuples(policies(), policies()), script=SCRIPTS)
def test_a_store_returns_the_same_results_as_memory(
    place: str, tmp_path: Path, drawn: tuple[Policy, Policy], script: list[Any]
) -> None:
    with ExitStack() as places:
        stores = [
            places.enter_context(BACKENDS[name](tmp_path)).open() for name in ("memory", place)
        ]
        conversation = Conversation(stores)
        now_s = NOW_S
        for key, tick, message, which in script:
            now_s += tick
            # Mostly the first policy; now and then somebody comes with another one.
            policy = drawn[which if isinstance(message, Override) else 0]
            conversation.say(key, policy, message, now_s)
        conversation.remember_alike()


@pytest.mark.parametrize("place", [place for place in BACKENDS if place != "memory"])
def test_two_handles_used_in_turn_behave_as_one_store(place: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    with ExitStack() as places:
        alone = places.enter_context(BACKENDS["memory"](tmp_path)).open()
        shared = places.enter_context(BACKENDS[place](tmp_path))
        turns = [Conversation([alone, shared.open()]), Conversation([alone, shared.open()])]
        turns[1].permits = turns[0].permits
        for number in range(400):
            signal = Signal(ok=chance.random() < 0.4, error="503", cost_micros=number)
            granted = chance.choice((None, Permit(0)))
            message = chance.choice((Acquire(), Record(signal), Record(signal, granted)))
            turns[chance.randrange(2)].say(
                chance.choice(KEYS), POLICY, message, NOW_S + number * 0.25
            )
        turns[0].remember_alike()
        turns[1].remember_alike()
