"""The detectors, one class a file. Adding one: see CONTRIBUTING."""

from switchgear.core.detectors.base import Detector
from switchgear.core.detectors.consecutive_failures import ConsecutiveFailures
from switchgear.core.detectors.context_burn import ContextBurn
from switchgear.core.detectors.failure_rate import FailureRate
from switchgear.core.detectors.failures_in_window import FailuresInWindow
from switchgear.core.detectors.latency_p95 import LatencyP95
from switchgear.core.detectors.no_progress import NoProgress
from switchgear.core.detectors.output_decline import OutputDecline
from switchgear.core.detectors.same_error import SameError
from switchgear.core.detectors.same_tool import SameTool
from switchgear.core.detectors.silence import Silence
from switchgear.core.detectors.slow_calls import SlowCalls
from switchgear.core.detectors.tool_flood import ToolFlood

ALL: tuple[type[Detector], ...] = (
    ConsecutiveFailures,
    ContextBurn,
    FailureRate,
    FailuresInWindow,
    LatencyP95,
    NoProgress,
    OutputDecline,
    SameError,
    SameTool,
    Silence,
    SlowCalls,
    ToolFlood,
)
"""The registry: the laws of detectors are tested over it, configuration finds kinds in it."""

__all__ = [
    "ALL",
    "ConsecutiveFailures",
    "ContextBurn",
    "Detector",
    "FailureRate",
    "FailuresInWindow",
    "LatencyP95",
    "NoProgress",
    "OutputDecline",
    "SameError",
    "SameTool",
    "Silence",
    "SlowCalls",
    "ToolFlood",
]
