"""One attack on one circuit of a fleet, through the router: it must open, and the router must hear."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from switchgear.fleet.route import Route
from switchgear.selftest.bench import PATIENCE, blind, hot, watchers
from switchgear.selftest.rows import Row, failed, skipped
from switchgear.selftest.virtual_fleet import FIRST, NAME, VirtualFleet

PATH = "router"


class FleetTrial(NamedTuple):
    """Who is attacked, and which circuit should notice. Its fleet is used by one thread."""

    stage: VirtualFleet
    agent: str
    circuit: str
    attack: str
    where: dict[str, Any] = {}  # noqa: RUF012  nobody changes it
    """What the router is told of the work: its story, its locks."""

    @property
    def guard(self) -> str:
        """The circuit; that of the stand-in stands for all of its family."""
        return self.circuit.replace(NAME, "*").replace(f"provider/{FIRST}", "provider/*")

    def unwatched(self, sees: Iterable[str]) -> Row | None:
        """Why it is not tried: the category is off, or the policy looks for something else."""
        if not self.stage.category(self.circuit).enabled:
            why = f"switched off in `breakers`: the router does not ask {self.guard}"
            return skipped(self.guard, self.attack, PATH, why)
        policy = self.stage.panel.breaker(self.circuit).policy
        if watchers(policy, sees):
            return None
        return skipped(self.guard, self.attack, PATH, blind(self.guard, policy))

    def calls(self, work: Callable[[Route], object]) -> Row:
        """Calls through the router until the circuit opens."""
        began_s = self.stage.clock()
        for number in range(1, PATIENCE + 1):
            self.stage.call(self.agent, work, **self.where)
            if self.stage.opened(self.circuit):
                return self.cut(number, began_s)
        return self.failed(f"{PATIENCE:,} such calls go on")

    def cut(self, number: int, began_s: float) -> Row:
        """What the router says after so many calls: it must refuse because of the circuit."""
        breaker = self.stage.panel.breaker(self.circuit)
        by, seconds = hot(breaker.readings()), self.stage.clock() - began_s
        found = self.stage.refusal(self.agent, self.circuit, **self.where)
        if found is None and self.stage.opened(self.circuit):
            return self.failed("it opens, and the router goes on as before")
        if found is None:
            return self.failed(f"it stays closed after {number:,} of them")
        route, refused = found
        went = f" to {route.worker} on {route.model}" if route.admitted else ""
        reason = f"{route.decision}{went}: {refused}"
        return Row(self.guard, self.attack, PATH, by, number, seconds, reason=reason)

    def failed(self, why: str) -> Row:
        """It cannot fire: why, and what its detectors say."""
        readings = self.stage.panel.breaker(self.circuit).readings().values()
        said = "; ".join([why, *(reading.reason for reading in readings)])
        return failed(self.guard, self.attack, PATH, said)
