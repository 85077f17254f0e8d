"""What a batch says about a task whose time is over, and about money. Pure: facts in, text out."""

from collections.abc import Sequence

from switchgear._core.detector import plural
from switchgear._core.errors import duration, elapsed
from switchgear._run.budget import dollars
from switchgear._run.result import RunResult
from switchgear._run.words import spent
from switchgear._stuck.messages import Option, one_line, span


def timeout_options(more_s: float) -> tuple[Option, ...]:
    """What can be done about a task whose time is over."""
    return (
        Option("resume", "Resume", f"Resume with more time ({span(more_s)})"),
        Option("accept", "Accept partial", "Accept partial completion"),
        Option("retry", "Retry", "Retry from scratch"),
        Option("skip", "Skip task", "Mark skipped, continue batch"),
    )


def timed_out(name: str, result: RunResult, options: Sequence[Option]) -> str:
    """TASK TIMED OUT, with what was completed, where it is kept, and the options."""
    state, kept = result.state, result.checkpoint
    done = (
        f"{plural(state.iterations, 'iteration')} in {elapsed(state.seconds)}, "
        f"{plural(len(state.changed), 'file')} changed, {spent(state.spent_micros, state.unknown_prices)}"
    )
    return "\n".join(
        (
            "TASK TIMED OUT",
            "",
            f"Task: {one_line(name)} ({one_line(result.options.agent_label, 80)})",
            f"Time: {duration(result.options.timeout_s or 0.0)}",
            f"Done: {done}",
            f"Checkpoint: {'none' if kept is None else one_line(kept.text(), 400)}",
            "",
            "Options:",
            *(f"{f'[{each.label}]':20} - {each.does}" for each in options),
        )
    )


def out_of_money(whose: str, limit_micros: int, spent_micros: int) -> str:
    """Why a task does not begin, or not again."""
    return f"{dollars(spent_micros)} of {whose} {dollars(limit_micros)} are spent"
