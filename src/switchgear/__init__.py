"""Switchgear: circuit breakers for AI agents.

A `CircuitBreaker` guards calls, a `LoopBreaker` the iterations of an agent, and a `Panel` holds many circuits
over one store. A `Policy` of `detectors` defines when a circuit trips. The other public modules are `budgets`,
`config`, `errors`, `fleet`, `presets`, `sinks`, `stores`, `testing` and `integrations`.

>>> from switchgear import CircuitBreaker, Rejected
>>> breaker = CircuitBreaker("anthropic", threshold=5, base_timeout=60.0, max_timeout=300.0)
>>> breaker.call(sum, [1, 2, 3])
6
"""

from typing import TYPE_CHECKING, Any

from switchgear import detectors
from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._breaker.loop_breaker import (
    IterationMetrics,
    LoopBreaker,
    LoopDecision,
    LoopStats,
    LoopStatus,
    loop_policy,
)
from switchgear._breaker.permits import Permits
from switchgear._breaker.views import View
from switchgear._core.errors import Rejected, StoreError, SwitchgearError
from switchgear._core.policy import AnyDetector, Cooldown, Latched, Policy, WeightedSum, WindowEnd
from switchgear._core.types import (
    Acquire,
    AgentStep,
    Circuit,
    Event,
    EventKind,
    Mode,
    Override,
    Permit,
    Phase,
    Reading,
    Record,
    Signal,
    Totals,
    Verdict,
)
from switchgear._panel.panel import Panel
from switchgear._sinks.dispatch import Call

if TYPE_CHECKING:
    from switchgear._run.loop import LoopRefused, run_loop
    from switchgear._run.options import RunOptions
    from switchgear._run.result import RunResult

__version__ = "0.1.0"

__all__ = [
    "Acquire",
    "AgentStep",
    "AnyDetector",
    "Call",
    "Circuit",
    "CircuitBreaker",
    "Cooldown",
    "Event",
    "EventKind",
    "IterationMetrics",
    "Latched",
    "LoopBreaker",
    "LoopDecision",
    "LoopRefused",
    "LoopStats",
    "LoopStatus",
    "Mode",
    "Override",
    "Panel",
    "Permit",
    "Permits",
    "Phase",
    "Policy",
    "Reading",
    "Record",
    "Rejected",
    "RunOptions",
    "RunResult",
    "Signal",
    "StoreError",
    "SwitchgearError",
    "Totals",
    "Verdict",
    "View",
    "WeightedSum",
    "WindowEnd",
    "detectors",
    "loop_policy",
    "run_loop",
]


# The modules of the names that are imported on first use.
_LAZY = {
    "LoopRefused": "switchgear._run.loop",
    "RunOptions": "switchgear._run.options",
    "RunResult": "switchgear._run.result",
    "run_loop": "switchgear._run.loop",
}


def __getattr__(name: str) -> Any:
    """Import the names for running agents on first use, because most programs only guard calls."""
    if name not in _LAZY:
        raise AttributeError(name)
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_LAZY[name]), name)
