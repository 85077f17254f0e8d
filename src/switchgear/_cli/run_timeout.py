"""`--timeout auto` and what belongs to it: a timeout that is worked out, not typed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchgear._cli.entry import fail
from switchgear._run.options import AUTO, seconds
from switchgear._stuck.timeouts import POLICIES

if TYPE_CHECKING:
    from switchgear._run.options import RunOptions
    from switchgear._stuck.timeouts import Timeouts

# ruff: noqa: PLC0415  what a verb needs is imported when it is used

SIZES = ("files", "lines", "dependencies", "complex")


def time_of(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """A span in seconds, or the name of a policy."""
    del ctx
    if value is None or value in (AUTO, *POLICIES):
        return value
    try:
        return seconds(parameter.opts[0], value)
    except ValueError as problem:
        ways = ", ".join((AUTO, *POLICIES))
        more = "" if "needs a unit" in str(problem) else f", or one of {ways}"
        raise click.UsageError(f"{problem}{more}") from None


def taken_out(flags: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The flags without those of the timeout, and those."""
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


def settled(
    options: "RunOptions", wanted: dict[str, Any], rules: "Timeouts"
) -> "tuple[RunOptions, str | None]":
    """The options with the timeout that is wanted, and a sentence about it."""
    from switchgear._run.record import runs_root, similar_durations_s
    from switchgear._stuck.timeouts import Estimate, timeout

    wanted = dict(wanted)
    policy = wanted.pop("policy", None)
    if policy is None:
        return options, None
    if policy != AUTO:
        rules = rules._replace(policy=policy)
    durations_s = similar_durations_s(
        runs_root(Path.cwd()),
        task=options.task,
        agent=options.agent_label,
        preset=options.preset,
        enough=rules.min_runs,
    )
    chosen = timeout(rules, Estimate(**wanted), durations_s)
    note = f"the timeout is {chosen.seconds:.0f} s ({rules.policy}: {chosen.why})"
    return options._replace(timeout_s=chosen.seconds), note
