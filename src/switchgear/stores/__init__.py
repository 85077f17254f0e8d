"""Where circuits are remembered. A store folds a message in one transaction; it never judges."""

from typing import Protocol

from switchgear.core.policy import Policy
from switchgear.core.types import Circuit, Message, Step


class Store(Protocol):
    """What a breaker needs of a store. Safe to call from any thread."""

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """Load the circuit (or start it), `step` it, save it with its events: all or nothing."""

    def restore(self, circuit: Circuit) -> None:
        """Take over a circuit that was remembered elsewhere."""
