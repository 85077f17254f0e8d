"""Switchgear: circuit breakers for AI agents.

>>> from switchgear import CircuitBreaker, Rejected
>>> breaker = CircuitBreaker("anthropic", threshold=5, base_timeout=60.0, max_timeout=300.0)
>>> breaker.call(sum, [1, 2, 3])
6
"""

from typing import TYPE_CHECKING, Any

from switchgear.core import detectors
from switchgear.core.policy import AnyDetector, Policy, WeightedSum
from switchgear.core.recovery import Cooldown, Latched, WindowEnd
from switchgear.core.types import Act, Event, EventKind, Mode, Permit, Phase, Reading, Signal
from switchgear.errors import Rejected, StoreError, SwitchgearError
from switchgear.guards.call import CircuitBreaker
from switchgear.guards.loop import LoopBreaker
from switchgear.guards.loop_facts import Decision, IterationMetrics
from switchgear.listeners import Call
from switchgear.panel import Panel

if TYPE_CHECKING:
    from switchgear.runner.options import RunOptions
    from switchgear.runner.run_loop import run_loop

__version__ = "0.1.0"

__all__ = [
    "Act",
    "AnyDetector",
    "Call",
    "CircuitBreaker",
    "Cooldown",
    "Decision",
    "Event",
    "EventKind",
    "IterationMetrics",
    "Latched",
    "LoopBreaker",
    "Mode",
    "Panel",
    "Permit",
    "Phase",
    "Policy",
    "Reading",
    "Rejected",
    "RunOptions",
    "Signal",
    "StoreError",
    "SwitchgearError",
    "WeightedSum",
    "WindowEnd",
    "detectors",
    "run_loop",
]


def __getattr__(name: str) -> Any:
    """The runner is imported when it is used: most programs only guard their calls."""
    if name == "run_loop":
        from switchgear.runner.run_loop import run_loop  # noqa: PLC0415

        return run_loop
    if name == "RunOptions":
        from switchgear.runner.options import RunOptions  # noqa: PLC0415

        return RunOptions
    raise AttributeError(name)
