"""The detectors: each measures one kind of evidence and computes how close the circuit is to a trip.

>>> from switchgear import CircuitBreaker, Policy, detectors
>>> breaker = CircuitBreaker("api", policy=Policy([detectors.FailureRate(window=20, threshold=0.5)]))
>>> breaker.readings()["failure_rate"].reason
'0 of 0 calls failed (threshold 50%, from 20 calls on)'
"""

from switchgear._detectors import (
    ALL,
    ConsecutiveFailures,
    ContextBurn,
    Detector,
    FailureRate,
    FailureShare,
    FailuresInWindow,
    IdleTalk,
    LatencyP95,
    LockWait,
    Measure,
    NoProgress,
    OutputDecline,
    RepeatedActions,
    RepeatedErrors,
    RepeatedThoughts,
    RetryAfter,
    SameError,
    SameTool,
    Silence,
    SlowCalls,
    SlowCallShare,
    Spend,
    SpendVelocity,
    Stagnation,
    ToolFlood,
    TotalCost,
    Violation,
)
from switchgear._text.fingerprint import documented, fingerprint, template

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
    "documented",
    "fingerprint",
    "template",
]
