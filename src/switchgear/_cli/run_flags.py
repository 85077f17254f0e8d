"""The options of `run` and `resume`: parsed into the fields of `RunOptions`, `None` = not given."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from switchgear._cli.run_timeout import time_of
from switchgear._run.options import AUTO, micros, per_hour, seconds

F = TypeVar("F", bound=Callable[..., Any])


def _amount(parse: Callable[[str, str], Any]) -> Callable[..., Any]:
    """A callback that reads an amount and names the option when it cannot."""

    def convert(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        del ctx
        try:
            return None if value is None else parse(parameter.opts[0], value)
        except ValueError as problem:
            raise click.UsageError(str(problem)) from None

    return convert


def _span(*names: str, **how: Any) -> Callable[[F], F]:
    return click.option(*names, metavar="D", callback=_amount(seconds), **how)


def _limit(*names: str, **how: Any) -> Callable[[F], F]:
    return click.option(*names, metavar="N", type=int, **how)


def _rate(field: str, text: str) -> int:
    """Iterations an hour; 0: as many as there are."""
    return 0 if text.strip() == "0" else per_hour(field, text)


LIMITS = (
    click.option(
        "--validate",
        metavar="[CMD]",
        is_flag=False,
        flag_value=AUTO,
        help="Run CMD after each iteration; it must succeed. Without CMD: the project's own tests.",
    ),
    click.option(
        "--no-validate", is_flag=True, help="Skip the validation, also where the preset has one."
    ),
    click.option(
        "--commit/--no-commit", default=None, help="Commit what a validated iteration changed."
    ),
    _limit(
        "--circuit-breaker-failures",
        "consecutive_failures",
        help="Stop after N failed iterations in a row; 0: never. [default: 3]",
    ),
    _limit(
        "--circuit-breaker-errors",
        "same_error",
        help="Stop when one error came N times; 0: never. [default: 5]",
    ),
    _limit(
        "--no-progress",
        "no_progress",
        help="Warn after N iterations without progress, stop after one more; 0: never. [default: 3]",
    ),
    click.option(
        "--output-decline",
        "output_decline_percent",
        metavar="PCT",
        type=float,
        help="Stop when output stays under PCT of its usual length; 0: never. [default: 70]",
    ),
    click.option(
        "--max-iterations",
        metavar="N",
        type=int,
        help="At most N iterations. [default: 30, or the preset's]",
    ),
    click.option(
        "--rate-limit",
        metavar="N/h",
        callback=_amount(_rate),
        help="Begin at most N iterations an hour; 0: no limit.",
    ),
    click.option(
        "--budget",
        "budget_micros",
        metavar="USD",
        callback=_amount(micros),
        help="Spend at most USD dollars.",
    ),
    click.option(
        "--budget-node",
        metavar="NODE",
        help="Reserve the budget from this node of the budgets first, such as atlas/wave-1.",
    ),
    click.option(
        "--allow-unknown-price",
        is_flag=True,
        default=None,
        help="Continue under a budget although a cost is unknown.",
    ),
    click.option(
        "--price-in",
        "price_in_micros",
        metavar="USD",
        callback=_amount(micros),
        help="Price of a million input tokens; with --price-out, instead of the price list.",
    ),
    click.option(
        "--price-out",
        "price_out_micros",
        metavar="USD",
        callback=_amount(micros),
        help="Price of a million output tokens.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        metavar="D|auto",
        callback=time_of,
        help="Time limit for the whole run, including waits (30m, 2h); auto: by the task's size.",
    ),
    click.option(
        "--files", type=click.IntRange(0), metavar="N", help="With --timeout auto: files to touch."
    ),
    click.option(
        "--loc",
        "lines",
        type=click.IntRange(0),
        metavar="N",
        help="With --timeout auto: lines to write.",
    ),
    click.option(
        "--deps",
        "dependencies",
        type=click.IntRange(0),
        metavar="N",
        help="With --timeout auto: dependencies.",
    ),
    click.option(
        "--complex", is_flag=True, default=None, help="With --timeout auto: double the time."
    ),
    _span(
        "--idle-timeout",
        "idle_timeout_s",
        help="Stop an agent that prints nothing for D; 0: never. [default: 30m]",
    ),
    click.option("--model", metavar="NAME", help="The model, where the agent lets you choose."),
    click.option(
        "--shadow/--no-shadow",
        default=None,
        help="Report what would have stopped the run, and continue.",
    ),
    click.option(
        "--stuck/--no-stuck",
        default=None,
        help="Watch each step; step in when the agent appears stuck.",
    ),
    click.option(
        "--notify",
        multiple=True,
        metavar="TARGET",
        help="Tell TARGET when the run ended: desktop, a URL, slack:VARIABLE, command:PROGRAM.",
    ),
    click.option(
        "--force-close", is_flag=True, help="Close an open circuit and start; needs --why."
    ),
    click.option("--why", metavar="TEXT", help="Reason for --force-close."),
)


def limit_flags(verb: F) -> F:
    """The options that `run` and `resume` share."""
    for option in reversed(LIMITS):
        verb = option(verb)
    return verb


def given_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """The fields of `RunOptions` among the parsed options, ready for `run_options`."""
    flags = dict(flags)
    if flags.pop("no_validate", False):
        flags["validate"] = ""
    return {key: value for key, value in flags.items() if value is not None}
