"""Messages for the contract tests of stores, and helpers that read the stored state."""

from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Circuit, Message, Mode, Override, Record, Signal, Totals
from switchgear._core.wire import dump_circuit
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.base import Entry, Store

POLICY = Policy([ConsecutiveFailures(threshold=3)], Cooldown(base_s=10.0, max_s=40.0))
NOW_S = 1_750_000_000.0
OK = Record(Signal(ok=True))
FAILED = Record(Signal(ok=False, error="529 overloaded"))
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
    """A user-defined detector with a defect."""

    __slots__ = ()

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        if signal.error == "boom":
            raise ZeroDivisionError
        return super().fold(memory, signal, now_s)


def same(policy: Policy, one: Circuit, other: Circuit) -> bool:
    """Whether two states are equal; the chunks of their windows may differ."""
    return dump_circuit(policy, one) == dump_circuit(policy, other)


def tell(store: Store, key: str, *messages: Message, at_s: float = NOW_S) -> None:
    for message in messages:
        store.apply(key, POLICY, message, at_s)


def hold(mode: Mode) -> Override:
    return Override("ada", "maintenance", mode=mode)


def totals(store: Store, key: str) -> Totals:
    found = store.get(key)
    assert found is not None
    return found.circuit.totals


def numbers(entries: list[Entry]) -> list[int]:
    return [entry.event.seq for entry in entries]
