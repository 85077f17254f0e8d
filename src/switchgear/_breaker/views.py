"""The current state of a stored circuit, for readers."""

from typing import Any, NamedTuple

from switchgear._breaker.handle import TIME_PASSES
from switchgear._core.evidence import FLOWING
from switchgear._core.machine import FORGET_ISOLATED_S, standing, step
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Mode, Reading, Verdict, to_dict
from switchgear._stores.base import StoredCircuit


class IsolatedView(NamedTuple):
    """A process that refuses its own calls although the shared circuit is closed."""

    process: str
    """The name of the process, such as `process 17 on web-3`."""
    reason: str
    since_s: float
    retry_after_s: float
    """Seconds until it probes; 0: its next call is the probe."""


class View(NamedTuple):
    """The current state of a circuit, read without changing it."""

    circuit: Circuit
    policy: Policy
    verdict: Verdict
    readings: tuple[Reading, ...]
    """The reading of each detector, in the order of the policy."""

    hold_left_s: float | None = None
    """Remaining seconds of an operator's hold; `None`: no hold, or a hold without an end."""
    isolated: tuple[IsolatedView, ...] = ()
    """The processes that refuse their own calls although the circuit is closed."""

    @property
    def name(self) -> str:
        """The circuit's name."""
        return self.circuit.key

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values; the readings by the names of their detectors."""
        from switchgear._core.wire import detector_names  # noqa: PLC0415  rarely needed
        from switchgear._detectors.policy_wire import dump_policy  # noqa: PLC0415

        names = detector_names(self.policy)
        readings = dict(zip(names, map(to_dict, self.readings), strict=True))
        return {
            "circuit": self.circuit.to_dict(),
            "policy": dump_policy(self.policy),
            "verdict": self.verdict.to_dict(),
            "readings": readings,
            "hold_left_s": self.hold_left_s,
            "isolated": [to_dict(one) for one in self.isolated],
        }


def view_of(found: StoredCircuit, now_s: float) -> View:
    """The state of a stored circuit at `now_s` on the store's clock."""
    circuit = step(found.policy, found.circuit, TIME_PASSES, now_s).circuit
    at_s = max(now_s, circuit.seen_s)
    ends_s = None if circuit.order is None else circuit.order.until_s
    return View(
        circuit,
        found.policy,
        standing(found.policy, circuit, at_s),
        found.policy.readings(circuit.memories, at_s),
        None if ends_s is None else max(0.0, ends_s - at_s),
        _isolated_views(circuit, at_s),
    )


def _isolated_views(circuit: Circuit, at_s: float) -> tuple[IsolatedView, ...]:
    if circuit.mode is not Mode.AUTO or circuit.phase not in FLOWING:
        return ()
    return tuple(
        IsolatedView(one.process, one.reason, one.since_s, max(0.0, one.retry_at_s - at_s))
        for one in circuit.isolated
        if at_s < one.retry_at_s + FORGET_ISOLATED_S
    )
