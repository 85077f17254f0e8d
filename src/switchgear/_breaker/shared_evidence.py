"""What one process has yet to report to a circuit that several processes share, and its own view of it."""

import math
import os
from typing import Any

from switchgear._core.types import Circuit, Mode, Phase

WARM_S = 1.0
"""How long a circuit stays warm after a failure: so long each success has its own time."""
MOST_TIMES = 512
"""How many successes of a warm circuit wait at most before they are submitted."""
MOST_DATES = 32
"""How many different times one report has at most."""
FLOWING = (Phase.CLOSED, Phase.TRIPPING)


class SharedEvidence:
    """The part of one breaker. Changed under the breaker's lock or by one assignment."""

    __slots__ = (
        "failed_s",
        "generation",
        "isolated",
        "own",
        "process",
        "remarked_s",
        "settle_at_s",
        "since_s",
        "submitted_s",
        "warm_until_s",
    )

    def __init__(self, store: Any) -> None:
        self.process = store.process
        self.warm_until_s = -math.inf
        """Until when, on our own clock, the circuit is warm."""
        self.since_s = -math.inf
        """Up to when, on the circuit's clock, this process has reported everything."""
        self.submitted_s = -math.inf
        """When, on our own clock, it last reported."""
        self.settle_at_s = math.inf
        """When, on our own clock, evidence that waits for others is final at the latest."""
        self.failed_s = 0.0
        """The last failure elsewhere that was noticed."""
        self.own: Circuit | None = None
        """The circuit as the calls of this process alone make it."""
        self.isolated = False
        """Whether this process stays away although the shared circuit is closed."""
        self.remarked_s: float | None = None
        """The next probe, on the circuit's clock, that was last recorded in the shared circuit."""
        self.generation = 0
        """The generation of the shared circuit in which it isolated itself: a reset begins another."""

    def is_isolated(self, circuit: Circuit) -> bool:
        """Whether this process stays away although that circuit is closed."""
        return (
            self.isolated
            and circuit.generation == self.generation
            and circuit.phase in FLOWING
            and circuit.mode is Mode.AUTO
        )


def shared_evidence(store: Any) -> SharedEvidence | None:
    """The part of a breaker over this store; `None` where no other process can take part."""
    return SharedEvidence(store) if getattr(store, "process", None) is not None else None


def this_process() -> str:
    """The name of this process in remarks, such as `process 17 on web-3`."""
    return f"process {os.getpid()} on {os.uname().nodename}"


def isolation_reason(reason: str) -> str:
    """Why a process refuses on a circuit that is closed for all others."""
    return f"this process: {reason}; the shared circuit is closed: other processes succeed"


def dates(times: tuple[float, ...]) -> tuple[tuple[float, int], ...]:
    """When how many happened; neighbours together where there are too many to list."""
    if len(times) <= MOST_DATES:
        return tuple((at_s, 1) for at_s in times)
    size = -(-len(times) // MOST_DATES)
    parts = [times[start : start + size] for start in range(0, len(times), size)]
    return tuple((part[-1], len(part)) for part in parts)
