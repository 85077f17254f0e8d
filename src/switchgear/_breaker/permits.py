"""Permits of several circuits for one call: each circuit records the result."""

from types import TracebackType
from typing import Self

from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._breaker.nesting import enter_probe, leave_probe
from switchgear._core.types import Permit, Signal


class Permits:
    """Permits of several circuits for one call. A context manager; not for two threads."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: list[tuple[CircuitBreaker, Permit, float]] = []

    @property
    def circuits(self) -> list[str]:
        """The names of the circuits that granted it."""
        return [breaker.name for breaker, _, _ in self._taken]

    def take(self, breaker: CircuitBreaker) -> None:
        """Acquire a permit of one more circuit. Raises `Rejected`."""
        self._taken.append((breaker, breaker.enter(), breaker.stopwatch()))

    def record(self, signal: Signal) -> None:
        """Record the result in all circuits; the permits are used up."""
        for breaker, permit, _ in self._used():
            breaker.record(signal, permit)

    def give_back(self) -> None:
        """Return the permits unused."""
        self.record(Signal())

    def __enter__(self) -> Self:
        for breaker, permit, _ in self._taken:
            if permit.probe:
                enter_probe(breaker, permit)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for breaker, permit, started_s in self._used():
            seconds = breaker.seconds_since(started_s)
            if error is None:
                breaker.succeeded(permit, seconds)
            else:
                breaker.failed(permit, error, seconds)

    def _used(self) -> list[tuple[CircuitBreaker, Permit, float]]:
        taken, self._taken = self._taken, []
        for breaker, permit, _ in taken:
            if permit.probe:
                leave_probe(breaker, permit)
        return taken
