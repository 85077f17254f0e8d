"""The circuits whose stored form is kept forever: one for each phase and interesting policy."""

from collections.abc import Callable
from typing import NamedTuple

from switchgear._core.machine import step
from switchgear._core.policy import Cooldown, Latched, Policy, WeightedSum, WindowEnd
from switchgear._core.types import (
    Acquire,
    Circuit,
    Event,
    Message,
    Mode,
    Override,
    Permit,
    Record,
    Signal,
)
from switchgear._detectors import (
    ConsecutiveFailures,
    FailureRate,
    FailuresInWindow,
    LatencyP95,
    SlowCalls,
)

BAD = Signal(ok=False, seconds=0.5, error="529 overloaded")
GOOD = Signal(ok=True, seconds=0.25)
SLOW = Signal(ok=True, seconds=30.0)
ALL_DETECTORS = (
    ConsecutiveFailures(5),
    FailureRate(window=300, threshold=0.6, min_calls=10),
    FailuresInWindow(threshold=40, window_s=60.0),
    LatencyP95(baseline_s=2.0, window_s=300.0, admit=0.5),
    SlowCalls(slow_s=10.0, window=20, admit=0.25),
)
TWO_PROBES = Cooldown(30.0, 120.0, probes=2, successes=2, lease_s=5.0, jitter=0.5)


class Scenario(NamedTuple):
    policy: Policy
    said: tuple[tuple[float, Message], ...]
    """What is said to a new circuit, and when."""


def tells(
    *signals: Signal, at_s: float = 1000.0, every_s: float = 1.0
) -> list[tuple[float, Record]]:
    return [(at_s + number * every_s, Record(signal)) for number, signal in enumerate(signals)]


def scenario(policy: Policy, *said: tuple[float, Message]) -> Scenario:
    return Scenario(policy, said)


MIXED = tells(*[GOOD, GOOD, BAD, GOOD, SLOW] * 9, GOOD._replace(count=400), BAD, BAD, BAD)
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "closed-new": lambda: scenario(Policy(ALL_DETECTORS)),
    "closed-all-detectors": lambda: scenario(Policy(ALL_DETECTORS), *MIXED[:18]),
    "open-all-detectors": lambda: scenario(Policy(ALL_DETECTORS), *MIXED),
    "closed-two-of-a-kind": lambda: scenario(
        Policy([FailuresInWindow(3, 60.0), FailuresInWindow(9, 600.0)]), *tells(BAD, BAD)
    ),
    "tripping-weights": lambda: scenario(
        Policy(
            [ConsecutiveFailures(2), FailureRate(4), SlowCalls(1.0, 2)],
            combine=WeightedSum({"consecutive_failures": 40, "failure_rate": 15, "slow_calls": 20}),
            tripping_at=0.5,
        ),
        *tells(GOOD, BAD, BAD),
    ),
    "open-cooldown": lambda: scenario(
        Policy([ConsecutiveFailures(3)], Cooldown(60.0)), *tells(BAD, BAD, BAD), (1010.0, Acquire())
    ),
    "open-retry-after": lambda: scenario(
        Policy([ConsecutiveFailures(1)]), *tells(BAD._replace(retry_after_s=42.5, error=None))
    ),
    "open-reduced-load": lambda: scenario(
        Policy([LatencyP95(baseline_s=2.0, min_calls=3, admit=0.5), ConsecutiveFailures(3)]),
        *tells(SLOW, SLOW, SLOW),
        *((1005.0, Acquire()),) * 3,
    ),
    "open-window-end": lambda: scenario(
        Policy([ConsecutiveFailures(1)], WindowEnd(3600.0)), *tells(BAD)
    ),
    "open-latched-shadow": lambda: scenario(
        Policy([ConsecutiveFailures(1)], Latched()),
        *tells(BAD),
        (1001.0, Override("ada", "trying it", Mode.SHADOW)),
        (1002.0, Acquire()),
    ),
    "half-open-probing": lambda: scenario(
        Policy([ConsecutiveFailures(1)], TWO_PROBES),
        *tells(BAD),
        *((1030.0, Acquire()), (1031.0, Acquire()), (1032.0, Acquire())),
    ),
    "open-after-failed-probe": lambda: scenario(
        Policy([ConsecutiveFailures(1)], Cooldown(30.0, lease_s=5.0)),
        *tells(BAD),
        (1030.0, Acquire()),
        (1036.0, Acquire()),
        (1037.0, Record(GOOD, Permit(1))),
        (1038.0, Record(BAD, Permit(3, 2, 1041.0))),
    ),
    "half-open-one-hung": lambda: scenario(
        Policy([ConsecutiveFailures(1)], Cooldown(30.0, lease_s=5.0)),
        *tells(BAD),
        *((1030.0, Acquire()), (1036.0, Acquire())),
    ),
    "half-open-one-of-two": lambda: scenario(
        Policy([ConsecutiveFailures(1), SlowCalls(10.0, admit=0.25)], TWO_PROBES),
        *tells(BAD),
        (1031.0, Record(GOOD)),
    ),
    "closed-held-open-and-reset": lambda: scenario(
        Policy([ConsecutiveFailures(2)]),
        *tells(BAD, BAD),
        (1002.0, Override("ada", "maintenance", Mode.HELD_OPEN)),
        (1003.0, Override("bob", "old evidence", reset=True)),
        (1004.0, Record(Signal(count=2, refused=7))),
    ),
}


def lived(name: str) -> tuple[Policy, Circuit, list[Event]]:
    """The circuit at the end of a scenario, and all that happened to it."""
    policy, said = SCENARIOS[name]()
    circuit, events = policy.start(f"golden/{name}", 1000.0), list[Event]()
    for at_s, message in said:
        done = step(policy, circuit, message, at_s)
        circuit = done.circuit
        events += done.events
    return policy, circuit, events
