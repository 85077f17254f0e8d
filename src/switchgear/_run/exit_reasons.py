"""How a run can end: each reason with its exit code and meaning."""

from enum import StrEnum
from typing import NamedTuple


class ExitReason(StrEnum):
    """Why a run ended."""

    COMPLETED = "completed"
    CIRCUIT_BREAKER = "circuit_breaker"
    BUDGET = "budget"
    TIMEOUT = "timeout"
    MAX_ITERATIONS = "max_iterations"
    RATE_LIMIT = "rate_limit"
    BLOCKED = "blocked"
    AGENT_ERROR = "agent_error"
    DISK_FULL = "disk_full"
    UNMEASURABLE = "unmeasurable"
    CONFLICT = "conflict"
    INTERRUPTED = "interrupted"


class ExitCode(NamedTuple):
    code: int
    meaning: str


class Ending(NamedTuple):
    """Why a run stops: the reason, a sentence, and the evidence."""

    reason: ExitReason
    sentence: str
    evidence: tuple[str, ...] = ()


EXIT_CODES: dict[ExitReason, ExitCode] = {
    ExitReason.COMPLETED: ExitCode(0, "the task is done, as far as could be measured"),
    ExitReason.CIRCUIT_BREAKER: ExitCode(
        10, "the loop failed, repeated an error or made no progress"
    ),
    ExitReason.BUDGET: ExitCode(11, "the next iteration would cost more than is left"),
    ExitReason.TIMEOUT: ExitCode(12, "the time limit of the run was reached"),
    ExitReason.MAX_ITERATIONS: ExitCode(13, "all iterations were used and the task is not done"),
    ExitReason.RATE_LIMIT: ExitCode(
        14, "the wait for the provider or --rate-limit would be too long"
    ),
    ExitReason.BLOCKED: ExitCode(15, "the agent asks something that only you can answer"),
    ExitReason.AGENT_ERROR: ExitCode(
        16, "the agent, its provider or the validation could not be run"
    ),
    ExitReason.DISK_FULL: ExitCode(17, "the disk is full: what could be saved was saved"),
    ExitReason.UNMEASURABLE: ExitCode(18, "what the agent changes could not be measured"),
    ExitReason.CONFLICT: ExitCode(19, "another process is running this task; nothing was started"),
    ExitReason.INTERRUPTED: ExitCode(130, "you stopped it"),
}
"""Exit code 2 means a usage error, 1 a defect in Switchgear."""
