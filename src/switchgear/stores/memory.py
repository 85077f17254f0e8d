"""A circuit in this process's memory: a lock, `step`, one assignment."""

from switchgear.core.machine import step
from switchgear.core.policy import Policy
from switchgear.core.types import Circuit, Message, Step
from switchgear.locks import ForkSafeLock


class MemoryCell:
    """Remembers one circuit. Thread-safe and fork-safe; user code never runs under its lock.

    The lock is the owner's, which takes it for its own short sections too: one lock is smaller
    than two, and never held by both at once.
    """

    __slots__ = ("_circuit", "_lock")

    def __init__(self, lock: ForkSafeLock | None = None) -> None:
        self._circuit: Circuit | None = None
        self._lock = lock or ForkSafeLock()

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """Fold one message into the circuit, which starts closed."""
        with self._lock.taken():
            circuit = self._circuit or policy.start(key, now_s)
            done = step(policy, circuit, message, now_s)
            self._circuit = done.circuit
        return done

    def restore(self, circuit: Circuit) -> None:
        """Take over a circuit that was remembered elsewhere."""
        self._circuit = circuit
