"""What becomes of a task after an attempt: its new progress, and what is done when its time is over.

Pure: the attempt and the choice go in, the progress comes out.
"""

from switchgear._core.detector import plural
from switchgear._run.batch.attempt import Outcome
from switchgear._run.batch.model import Progress, Status, Task
from switchgear._run.exit_reasons import ExitReason
from switchgear._text.redact import redact


def counted(progress: Progress, outcome: Outcome) -> Progress:
    """With what the attempt used, spent and kept."""
    result = outcome.result
    if result is None:
        return progress._replace(reason=redact(outcome.reason), exit_reason=None)
    state, kept = result.state, result.checkpoint
    return progress._replace(
        reason=redact(outcome.reason),
        exit_reason=str(result.exit_reason),
        iterations=state.iterations,
        seconds=round(state.seconds, 3),
        spent_micros=progress.earlier_micros + state.spent_micros,
        unknown_prices=state.unknown_prices,
        checkpoint=kept.how if kept is not None and kept.changed else progress.checkpoint,
    )


def settled(progress: Progress, outcome: Outcome) -> Progress:
    """How the task stands; `running` still: its time is over, and somebody must decide."""
    progress = counted(progress, outcome)
    reason = None if outcome.result is None else outcome.result.exit_reason
    if reason is ExitReason.TIMEOUT:
        return progress
    if reason is ExitReason.COMPLETED:
        return progress._replace(status=Status.DONE)
    if reason in {ExitReason.INTERRUPTED, ExitReason.DISK_FULL}:
        return progress._replace(status=Status.INTERRUPTED)
    if outcome.gave_up is not None:
        why = f"the agent was stuck and the task is given up: {outcome.gave_up}"
        return progress._replace(status=Status.SKIPPED, reason=why)
    return progress._replace(status=Status.FAILED)


def by_policy(task: Task, progress: Progress) -> str | None:
    """What the policy does about a task whose time is over; `None`: it was tried often enough."""
    again = task.on_timeout in {"resume", "retry"}
    return None if again and progress.attempts >= task.attempts else task.on_timeout


def after_timeout(progress: Progress, choice: str | None, more_s: float, by: str) -> Progress:
    """What becomes of a task whose time is over."""
    what = f"its time was over; {by} chose to {choice}"
    if choice == "resume":
        limit_s = max(progress.timeout_s or 0.0, progress.seconds) + more_s
        return progress._replace(status=Status.WAITING, reason=what, timeout_s=limit_s)
    if choice == "accept":
        return progress._replace(status=Status.PARTIAL, reason=what)
    if choice == "retry":
        return afresh(progress)._replace(reason=what)
    if choice == "skip":
        return progress._replace(status=Status.SKIPPED, reason=what)
    tried = plural(progress.attempts, "attempt")
    return progress._replace(status=Status.FAILED, reason=f"its time was over after {tried}")


def afresh(progress: Progress) -> Progress:
    """For a start from scratch: a new run that knows nothing of the last one; what it cost stays."""
    runs = progress.runs if progress.run is None else (*progress.runs, progress.run)
    return progress._replace(
        status=Status.WAITING,
        run=None,
        runs=runs,
        timeout_s=None,
        iterations=0,
        seconds=0.0,
        earlier_micros=progress.spent_micros,
    )
