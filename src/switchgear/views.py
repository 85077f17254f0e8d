"""A circuit of a store as it stands now, for all who only look."""

from typing import NamedTuple

from switchgear.core.machine import step
from switchgear.core.policy import Policy
from switchgear.core.standing import standing
from switchgear.core.types import Circuit, Reading, Verdict
from switchgear.live import TIME_PASSES
from switchgear.stores.base import Found


class View(NamedTuple):
    """A circuit as it stands now, read without changing it."""

    circuit: Circuit
    policy: Policy
    verdict: Verdict
    readings: tuple[Reading, ...]
    """What each detector of the policy sees, in the policy's order."""

    hold_left_s: float | None = None
    """For how many seconds an operator's hold still lasts; `None`: no hold, or one without an end."""

    @property
    def name(self) -> str:
        """The circuit's name."""
        return self.circuit.key


def view_of(found: Found, now_s: float) -> View:
    """The circuit of the store, at this time of its clock."""
    circuit = step(found.policy, found.circuit, TIME_PASSES, now_s).circuit
    at_s = max(now_s, circuit.seen_s)
    ends_s = None if circuit.order is None else circuit.order.until_s
    return View(
        circuit,
        found.policy,
        standing(found.policy, circuit, at_s),
        found.policy.readings(circuit.memories, at_s),
        None if ends_s is None else max(0.0, ends_s - at_s),
    )
