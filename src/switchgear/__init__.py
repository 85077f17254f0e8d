"""Switchgear: circuit breakers for AI agents.

>>> from switchgear import CircuitBreaker, Rejected
>>> breaker = CircuitBreaker("anthropic", threshold=5, base_timeout=60.0, max_timeout=300.0)
>>> breaker.call(sum, [1, 2, 3])
6
"""

from typing import TYPE_CHECKING, Any

from switchgear import detectors
from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._breaker.loop_breaker import IterationMetrics, LoopBreaker, LoopDecision
from switchgear._core.errors import Rejected, StoreError, SwitchgearError
from switchgear._core.policy import AnyDetector, Policy, WeightedSum
from switchgear._core.recovery import Cooldown, Latched, WindowEnd
from switchgear._core.types import AgentStep, Event, EventKind, Mode, Permit, Phase, Reading, Signal
from switchgear._panel.panel import Panel
from switchgear._sinks.dispatch import Call

if TYPE_CHECKING:
    from switchgear._run.loop import run_loop
    from switchgear._run.options import RunOptions

__version__ = "0.1.0"

__all__ = [
    "AgentStep",
    "AnyDetector",
    "Call",
    "CircuitBreaker",
    "Cooldown",
    "Event",
    "EventKind",
    "IterationMetrics",
    "Latched",
    "LoopBreaker",
    "LoopDecision",
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
        from switchgear._run.loop import run_loop  # noqa: PLC0415

        return run_loop
    if name == "RunOptions":
        from switchgear._run.options import RunOptions  # noqa: PLC0415

        return RunOptions
    raise AttributeError(name)
