"""The detectors. CONTRIBUTING describes how to add one."""

from switchgear._core.detector import Detector, Measure
from switchgear._detectors.failures import ConsecutiveFailures, FailuresInWindow, RetryAfter
from switchgear._detectors.loop_output import NoProgress, OutputDecline
from switchgear._detectors.progress import (
    IdleTalk,
    RepeatedActions,
    RepeatedErrors,
    RepeatedThoughts,
)
from switchgear._detectors.same_error import SameError
from switchgear._detectors.same_tool import SameTool, ToolFlood
from switchgear._detectors.shares import (
    FailureRate,
    FailureShare,
    LatencyP95,
    SlowCalls,
    SlowCallShare,
)
from switchgear._detectors.stagnation import Stagnation
from switchgear._detectors.usage import ContextBurn, Spend, SpendVelocity, TotalCost
from switchgear._detectors.violation import Violation
from switchgear._detectors.waits import LockWait, Silence

ALL: tuple[type[Detector], ...] = (
    RepeatedActions,
    ConsecutiveFailures,
    RepeatedErrors,
    ContextBurn,
    FailureRate,
    FailureShare,
    FailuresInWindow,
    LatencyP95,
    LockWait,
    NoProgress,
    OutputDecline,
    RetryAfter,
    SameError,
    SameTool,
    Silence,
    SlowCallShare,
    SlowCalls,
    Spend,
    SpendVelocity,
    Stagnation,
    TotalCost,
    Violation,
    IdleTalk,
    RepeatedThoughts,
    ToolFlood,
)
"""The registry: tests check the laws of detectors on it, and the configuration finds kinds in it."""

__all__ = [
    "ALL",
    "ConsecutiveFailures",
    "ContextBurn",
    "Detector",
    "FailureRate",
    "FailureShare",
    "FailuresInWindow",
    "IdleTalk",
    "LatencyP95",
    "LockWait",
    "Measure",
    "NoProgress",
    "OutputDecline",
    "RepeatedActions",
    "RepeatedErrors",
    "RepeatedThoughts",
    "RetryAfter",
    "SameError",
    "SameTool",
    "Silence",
    "SlowCallShare",
    "SlowCalls",
    "Spend",
    "SpendVelocity",
    "Stagnation",
    "ToolFlood",
    "TotalCost",
    "Violation",
]
