"""What a batch says about a task whose time is over, and about money. Pure: facts in, text out."""

from collections.abc import Sequence

from switchgear.core.detectors.base import plural
from switchgear.errors import duration, elapsed
from switchgear.hooks.texts import Option, one_line, span
from switchgear.runner.budget import dollars
from switchgear.runner.result import RunResult
from switchgear.runner.words import spent


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
