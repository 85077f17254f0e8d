"""A store that becomes unavailable and returns, and the events about it."""

from switchgear import Cooldown, Policy, Signal, detectors
from switchgear._core.types import Circuit, Event, EventKind
from switchgear._panel.panel import Panel
from switchgear.testing import FakeClock, FlakyStore

BAD = Signal(ok=False, error="529 overloaded")
POLICY = Policy([detectors.ConsecutiveFailures(3)], Cooldown(10.0))
STRICT = POLICY.replace(strict=True)


class Bench:
    """A clock, a store to cut off, a panel over it, and what its sinks heard."""

    def __init__(self, policy: Policy = POLICY, refresh_s: float | None = 0.1) -> None:
        self.clock = FakeClock(1000.0)
        self.store = FlakyStore(clock=self.clock, refresh_s=refresh_s)
        self.heard: list[Event] = []
        self.panel = Panel(self.store, clock=self.clock, sinks=[self.heard.append])
        self.breaker = self.panel.breaker("api", policy)

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.heard]

    def stored(self) -> Circuit:
        found = self.store.get("api")
        assert found is not None
        return found.circuit
