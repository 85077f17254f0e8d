"""Options that `run`, `resume` and `batch` share: limits, timeout, budget node, open circuit.

`None` means that an option was not given.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from switchgear._breaker.handle import TIME_PASSES
from switchgear._breaker.loop_breaker import LoopBreaker
from switchgear._budgets.allowance import RunReservation, free_budget
from switchgear._budgets.budgets import Budgets
from switchgear._budgets.tree import checked_path
from switchgear._cli.options import F, combined, fail, parsed_by, required_reason
from switchgear._cli.views.terminal import is_attended
from switchgear._cli.views.text import clean, say_lines, warn
from switchgear._core.errors import BudgetRefused
from switchgear._core.types import Mode
from switchgear._run.circuits import SHARED
from switchgear._run.interrupt import Interrupt, Time, wait
from switchgear._run.loop import Runner
from switchgear._run.options import AUTO, RunOptions, micros, per_hour, seconds
from switchgear._run.record import runs_root, timeout_by_policy
from switchgear._run.result import RunResult, release_command
from switchgear._run.state import RunState
from switchgear._run.view import LineView
from switchgear._stuck.timeouts import POLICIES, Estimate, Timeouts
from switchgear._system.login import login_name
from switchgear._text.formats import duration

SIZES = ("files", "lines", "dependencies", "complex")


def _parse_timeout(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """Seconds, or the name of a timeout policy."""
    if value is None or value in (AUTO, *POLICIES):
        return value
    try:
        return seconds(parameter.opts[0], value)
    except ValueError as problem:
        ways = ", ".join((AUTO, *POLICIES))
        more = "" if "needs a unit" in str(problem) else f", or one of {ways}"
        raise click.UsageError(f"{problem}{more}") from None


def split_timeout(flags: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the flags of a timeout policy from the others. Returns the others, then those."""
    size = {key: flags[key] for key in SIZES if flags.get(key)}
    rest = {key: value for key, value in flags.items() if key not in SIZES}
    policy = rest.get("timeout_s")
    if isinstance(policy, str):
        del rest["timeout_s"]
        return rest, {**size, "policy": policy}
    if size:
        named = ", ".join(f"--{key}" for key in size)
        fail(f"{named}: the size of a task matters only with --timeout auto")
    return rest, {}


def with_timeout(
    options: RunOptions, timeout: dict[str, Any], rules: Timeouts
) -> tuple[RunOptions, str | None]:
    """The options with the time limit of a timeout policy, and a sentence about it."""
    if "policy" not in timeout:
        return options, None
    size = Estimate(**{key: value for key, value in timeout.items() if key != "policy"})
    runs = runs_root(Path.cwd())
    limit_s, why = timeout_by_policy(options, timeout["policy"], size, rules, runs)
    return options._replace(timeout_s=limit_s), f"the timeout is {limit_s:.0f} s ({why})"


def check_node(budgets: Budgets, node: str | None) -> None:
    """End the command if the budget node is not open."""
    if node is None:
        return
    try:
        free_budget(budgets, checked_path(node))
    except ValueError as problem:
        fail(f"--budget-node: {problem}")
    except BudgetRefused:
        fail(
            f"budget {node!r} is not open; 'switchgear budgets list' shows the trees, and "
            "'switchgear budgets set' opens one"
        )


def run_with_reservation(
    budgets: Budgets,
    options: RunOptions,
    state: RunState | None,
    make_runner: Callable[[int | None], Runner],
) -> RunResult:
    """Reserve the budget of the run if its options name a node, run it, and settle the cost.

    `make_runner` gets the reserved micro-dollars; `None`: nothing is reserved. Raises
    `BudgetRefused` before it is called.
    """
    if options.budget_node is None:
        return make_runner(None).run()
    before, runner = state or RunState(), None
    left = before.budget(options.budget_micros).left_micros
    amount = None if left is None else max(0, left)
    owner = f"run: {options.task[:60]}"
    reservation = RunReservation(budgets, options.budget_node, amount, owner=owner)
    try:
        runner = make_runner(reservation.amount_micros)
        after = runner.run()
    except BaseException:
        # After a defect of Switchgear the cost is unknown; before an agent was started, it is zero.
        reservation.settle(None if runner is not None and runner.has_worked else 0)
        raise
    problem = reservation.settle(
        after.state.spent_micros - before.spent_micros,
        unpriced=after.state.unknown_prices > before.unknown_prices,
    )
    if problem is not None:
        warn(str(problem))
    return after


CHOICES = ("wait", "force", "abort")
FORCED = "closing a circuit by force"


class StillOpen(Exception):
    """The circuit stays open; the text lists what can be done."""


def admit(loop: LoopBreaker, *, force: bool, why: str | None, command: str) -> str | None:
    """Check that the circuit admits the run, and prompt if it does not. Returns a remark, if any.

    `command` is what the user types to try again, up to its options. Raises `StillOpen` if the user
    aborts, or without a terminal.
    """
    loop.refresh()
    if force and loop.mode != "held_open":  # force clears evidence, not an override
        loop.reset(by=login_name(), why=required_reason(why, FORCED))
        return f"{loop.name} was closed by force"
    decision = loop.check()
    if decision.allow_continue:
        return None if decision.reason is None else f"{loop.name} may trip soon: {decision.reason}"
    if loop.mode == "held_open" or not is_attended():
        raise StillOpen(_choices_text(loop, command))
    return _prompt(loop, command)


def _choices_text(loop: LoopBreaker, command: str) -> str:
    reason = clean(loop.trip_reason() or "")
    if loop.mode is Mode.HELD_OPEN:
        return f"{loop.name}: {reason}\n- release it: {release_command(loop.name)}"
    wait_s = _wait_s(loop)
    waiting = "it stays open until it is closed"
    if wait_s is not None:
        waiting = f"one iteration is admitted as a probe in {duration(wait_s)}"
    return (
        f"{loop.name} is open: {reason}; it is shared by runs with {SHARED}\n"
        f"- wait: {waiting}\n"
        f"- force: {command} --force-close --why 'what is different now'\n"
        "- abort: leave it as it is"
    )


def _wait_s(loop: LoopBreaker) -> float | None:
    """Seconds until a probe is admitted; `None`: not before a manual reset."""
    return loop.send(TIME_PASSES).retry_after_s


def _prompt(loop: LoopBreaker, command: str) -> str | None:
    say_lines(_choices_text(loop, command))
    wait_s = _wait_s(loop)
    choices = CHOICES if wait_s is not None else CHOICES[1:]
    chosen = click.prompt("What now", type=click.Choice(choices), default="abort", err=True)
    if chosen == "abort":
        raise StillOpen(f"{loop.name} is left open")
    if chosen == "force":
        loop.reset(by=login_name(), why=required_reason(None, FORCED))
        return f"{loop.name} was closed by force"
    wait_visibly(wait_s or 0.0)
    return admit(loop, force=False, why=None, command=command)


def wait_visibly(wait_s: float) -> None:
    """Wait for the cooldown and show a countdown. Raises KeyboardInterrupt on Ctrl-C."""
    interrupt = Interrupt()
    with interrupt.installed():
        wait("for the cooldown", wait_s, on=Time(), view=LineView(sys.stderr), interrupt=interrupt)
    if interrupt.asked:
        raise KeyboardInterrupt


def usd_option(*names: str, **attrs: Any) -> Callable[[F], F]:
    return click.option(*names, metavar="USD", callback=parsed_by(micros), **attrs)


def notify_option(what: str) -> Callable[[F], F]:
    """`--notify` of additional targets, for the end of `what`, such as a run."""
    return click.option(
        "--notify",
        multiple=True,
        metavar="TARGET",
        help=f"Notify TARGET when the {what} ends: desktop, a URL, slack:VARIABLE, command:PROGRAM.",
    )


def call_budget_options(limit: str, node: str) -> Callable[[F], F]:
    """The options of verbs that guard model calls of other programs; `limit` and `node` are help texts."""
    return combined(
        usd_option("--budget", "budget_micros", help=limit),
        click.option("--budget-node", metavar="NODE", help=node),
        click.option(
            "--allow-unknown-price",
            is_flag=True,
            help="Admit calls to models without a known price, although there is a budget.",
        ),
    )


def _count_option(*names: str, **attrs: Any) -> Callable[[F], F]:
    return click.option(*names, metavar="N", type=int, **attrs)


def _rate(field: str, text: str) -> int:
    """Iterations per hour; 0: no limit."""
    return 0 if text.strip() == "0" else per_hour(field, text)


limit_flags = combined(
    click.option(
        "--validate",
        metavar="[CMD]",
        is_flag=False,
        flag_value=AUTO,
        help="Run CMD after each iteration; it must succeed. Without CMD: the project's own tests.",
    ),
    click.option(
        "--no-validate", is_flag=True, help="Skip the validation, even if the preset has one."
    ),
    click.option(
        "--commit/--no-commit",
        default=None,
        help="Commit the changes of each iteration that passes the validation.",
    ),
    _count_option(
        "--circuit-breaker-failures",
        "consecutive_failures",
        help="Stop after N failed iterations in a row; 0: never. [default: 3]",
    ),
    _count_option(
        "--circuit-breaker-errors",
        "same_error",
        help="Stop when the same error occurs N times; 0: never. [default: 5]",
    ),
    _count_option(
        "--no-progress",
        "no_progress",
        help="Warn after N iterations without progress, stop after one more; 0: never. [default: 3]",
    ),
    click.option(
        "--output-decline",
        "output_decline_percent",
        metavar="PCT",
        type=float,
        help="Stop when the output is shorter than PCT percent of its usual length twice in a row; "
        "0: never. [default: 70]",
    ),
    _count_option(
        "--max-iterations", help="Stop after N iterations. [default: 30, or the preset's]"
    ),
    click.option(
        "--rate-limit",
        metavar="N/h",
        callback=parsed_by(_rate),
        help="Start at most N iterations per hour; 0: no limit. [default: no limit]",
    ),
    usd_option("--budget", "budget_micros", help="Spend at most USD dollars. [default: no limit]"),
    click.option(
        "--budget-node",
        metavar="NODE",
        help="Reserve the money from this shared budget first, such as atlas/release-1 (see `switchgear budgets`).",
    ),
    click.option(
        "--allow-unknown-price",
        is_flag=True,
        default=None,
        help="With --budget: continue even if a cost is unknown.",
    ),
    usd_option(
        "--price-in",
        "price_in_micros",
        help="Price of a million input tokens in dollars, instead of the price list; needs --price-out.",
    ),
    usd_option(
        "--price-out",
        "price_out_micros",
        help="Price of a million output tokens in dollars; needs --price-in.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        metavar="D|auto",
        callback=_parse_timeout,
        help="Time limit for the whole run, including waits (30m, 2h); auto: estimated from the task's "
        "size. [default: no limit]",
    ),
    click.option(
        "--files",
        type=click.IntRange(0),
        metavar="N",
        help="With --timeout auto: number of files to change.",
    ),
    click.option(
        "--loc",
        "lines",
        type=click.IntRange(0),
        metavar="N",
        help="With --timeout auto: number of lines to write.",
    ),
    click.option(
        "--deps",
        "dependencies",
        type=click.IntRange(0),
        metavar="N",
        help="With --timeout auto: number of dependencies.",
    ),
    click.option(
        "--complex", is_flag=True, default=None, help="With --timeout auto: double the time."
    ),
    click.option(
        "--idle-timeout",
        "idle_timeout_s",
        metavar="D",
        callback=parsed_by(seconds),
        help="Stop an agent that prints nothing for D; 0: never. [default: 30m]",
    ),
    click.option(
        "--model",
        metavar="NAME",
        help="Model to use, if the agent supports it. [default: the agent's]",
    ),
    click.option(
        "--shadow/--no-shadow",
        default=None,
        help="Do not stop the run; report what would have stopped it.",
    ),
    click.option(
        "--stuck/--no-stuck",
        default=None,
        help="Check each step, and intervene when the agent appears stuck. [default: `in_runs` of the "
        "configuration, else off]",
    ),
    notify_option("run"),
    click.option(
        "--force-close", is_flag=True, help="Close an open circuit and start; needs --why."
    ),
    click.option("--why", metavar="TEXT", help="Reason for --force-close."),
)
"""The options that `run` and `resume` share."""


def given_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """The fields of `RunOptions` among the parsed options, ready for `run_options`."""
    flags = dict(flags)
    if flags.pop("no_validate", False):
        flags["validate"] = ""
    return {key: value for key, value in flags.items() if value is not None}
