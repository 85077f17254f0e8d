"""The detectors, one class a file. Adding one: see CONTRIBUTING."""

from switchgear.core.detectors.actions_debt import ActionsDebt
from switchgear.core.detectors.base import Detector, Measure
from switchgear.core.detectors.consecutive_failures import ConsecutiveFailures
from switchgear.core.detectors.context_burn import ContextBurn
from switchgear.core.detectors.errors_debt import ErrorsDebt
from switchgear.core.detectors.failure_rate import FailureRate
from switchgear.core.detectors.failure_share import FailureShare
from switchgear.core.detectors.failures_in_window import FailuresInWindow
from switchgear.core.detectors.latency_p95 import LatencyP95
from switchgear.core.detectors.lock_wait import LockWait
from switchgear.core.detectors.no_progress import NoProgress
from switchgear.core.detectors.output_decline import OutputDecline
from switchgear.core.detectors.retry_after import RetryAfter
from switchgear.core.detectors.same_error import SameError
from switchgear.core.detectors.same_tool import SameTool
from switchgear.core.detectors.silence import Silence
from switchgear.core.detectors.slow_call_share import SlowCallShare
from switchgear.core.detectors.slow_calls import SlowCalls
from switchgear.core.detectors.spend import Spend
from switchgear.core.detectors.stuck_probability import StuckProbability
from switchgear.core.detectors.talk_debt import TalkDebt
from switchgear.core.detectors.tool_flood import ToolFlood
from switchgear.core.detectors.total_cost import TotalCost
from switchgear.core.detectors.violation import Violation
from switchgear.core.detectors.words_debt import WordsDebt

ALL: tuple[type[Detector], ...] = (
    ActionsDebt,
    ConsecutiveFailures,
    ErrorsDebt,
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
    TotalCost,
    Violation,
    StuckProbability,
    TalkDebt,
    WordsDebt,
    ToolFlood,
)
"""The registry: the laws of detectors are tested over it, configuration finds kinds in it."""

__all__ = [
    "ALL",
    "ActionsDebt",
    "ConsecutiveFailures",
    "ContextBurn",
    "Detector",
    "ErrorsDebt",
    "FailureRate",
    "FailureShare",
    "FailuresInWindow",
    "LatencyP95",
    "LockWait",
    "Measure",
    "NoProgress",
    "OutputDecline",
    "RetryAfter",
    "SameError",
    "SameTool",
    "Silence",
    "SlowCallShare",
    "SlowCalls",
    "Spend",
    "StuckProbability",
    "TalkDebt",
    "ToolFlood",
    "TotalCost",
    "Violation",
    "WordsDebt",
]
