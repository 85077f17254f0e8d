"""Permits of several circuits for one piece of work: each circuit records the result."""

from typing import Generic, NamedTuple, Self, TypeVar

from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._breaker.handle import Breaker
from switchgear._breaker.nesting import enter_probe, leave_probe
from switchgear._core.types import Permit, Signal

B = TypeVar("B", bound=Breaker)


class Acquired(NamedTuple, Generic[B]):
    """The permit of one circuit."""

    breaker: B
    permit: Permit
    started_s: float = 0.0
    """When it was acquired, by `breaker.stopwatch()`; 0: not measured."""


class AcquiredPermits(list[Acquired[B]]):
    """Permits in the order in which they were acquired. Not thread-safe."""

    __slots__ = ()

    def of(self, breaker: B) -> Permit:
        return next(one.permit for one in self if one.breaker is breaker)

    def pop_all(self, keep: int = 0) -> list[Acquired[B]]:
        """Remove and return all permits except the first `keep`."""
        removed = self[keep:]
        del self[keep:]
        return removed


class Permits:
    """Permits of several circuits for one call, as `Panel.ask_all` returns them. Not thread-safe.

    A context manager: each circuit records the result of the block.
    """

    __slots__ = ("_acquired",)

    def __init__(self) -> None:
        self._acquired: AcquiredPermits[CircuitBreaker] = AcquiredPermits()

    @property
    def circuits(self) -> list[str]:
        """The names of the circuits that granted the permits."""
        return [one.breaker.name for one in self._acquired]

    def take(self, breaker: CircuitBreaker) -> None:
        """Acquire a permit of one more circuit. Raises `Rejected`."""
        self._acquired.append(Acquired(breaker, breaker.enter(), breaker.stopwatch()))

    def record(self, signal: Signal) -> None:
        """Record the result in all circuits; the permits cannot be used again."""
        for breaker, permit, _ in self._pop_permits():
            breaker.record(signal, permit)

    def give_back(self) -> None:
        """Return the permits unused."""
        self.record(Signal())

    def __enter__(self) -> Self:
        for breaker, permit, _ in self._acquired:
            if permit.probe:
                enter_probe(breaker, permit)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for breaker, permit, started_s in self._pop_permits():
            seconds = breaker.seconds_since(started_s)
            if error is None:
                breaker.succeeded(permit, seconds)
            else:
                breaker.failed(permit, error, seconds)

    def _pop_permits(self) -> list[Acquired[CircuitBreaker]]:
        permits = self._acquired.pop_all()
        for breaker, permit, _ in permits:
            if permit.probe:
                leave_probe(breaker, permit)
        return permits
