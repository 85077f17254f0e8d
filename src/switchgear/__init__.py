"""Switchgear: circuit breakers for AI agents.

>>> from switchgear import CircuitBreaker, Rejected
>>> breaker = CircuitBreaker("anthropic", threshold=5, base_timeout=60.0, max_timeout=300.0)
>>> breaker.call(sum, [1, 2, 3])
6
"""

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
    "Signal",
    "StoreError",
    "SwitchgearError",
    "WeightedSum",
    "WindowEnd",
    "detectors",
]
