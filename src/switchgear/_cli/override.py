"""The operator's verbs: `hold`, `release`, `reset`, `probe`. Each override is an event with an author and a reason.

They need the operator token where one is configured, so that a guarded agent cannot release itself.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from switchgear._breaker.signals import check_probes
from switchgear._cli.context import Session, full_name, open_session, unknown_circuit
from switchgear._cli.options import (
    by_option,
    checked_text,
    circuit_argument,
    combined,
    fail,
    operator_name,
    parsed_by,
    required_reason,
    store_options,
    token_option,
)
from switchgear._cli.views.text import clean, plural, say, words
from switchgear._core.errors import StoreCorrupt
from switchgear._core.types import Mode, Override
from switchgear._run.options import seconds
from switchgear._text.formats import duration
from switchgear._text.glob import is_plain

F = TypeVar("F", bound=Callable[..., Any])
_LISTED = 10


class OverrideArguments(NamedTuple):
    """The parsed arguments and options of an override."""

    circuit: str
    why: str | None
    by: str | None
    yes: bool
    create: bool
    for_s: float | None = None


order_options = combined(
    circuit_argument(),
    click.option(
        "--why", metavar="TEXT", callback=checked_text, help="Reason; prompted for at a terminal."
    ),
    by_option,
    click.option("--yes", "-y", is_flag=True, help="Do not prompt when several circuits match."),
    click.option("--create", is_flag=True, help="Create the circuit if it does not exist."),
    token_option,
    store_options,
)
"""The argument and the options of all overrides, in the order of `OverrideArguments`."""


def _positive_span(field: str, text: str) -> float:
    """A duration such as `30min` or `2h`, in seconds. Raises ValueError."""
    return seconds(field, text) or fail(f"{field} is {text!r}: it must be above 0")


@click.command()
@click.argument("mode", type=click.Choice(["open", "closed", "shadow"]))
@click.option(
    "--for",
    "for_s",
    metavar="TIME",
    callback=parsed_by(_positive_span),
    help="End the hold after TIME, such as 30min or 2h. [default: until it is released]",
)
@order_options
def hold(mode: str, **given: Any) -> None:
    """Hold CIRCUIT (or a glob) regardless of the evidence, until a release or the end of --for.

    open refuses every call; closed admits every call; shadow admits every call and counts what
    would have been refused.
    """
    modes = {"open": Mode.HELD_OPEN, "closed": Mode.HELD_CLOSED, "shadow": Mode.SHADOW}
    _send_override(OverrideArguments(**given), modes[mode])


@click.command()
@order_options
def release(**given: Any) -> None:
    """End the hold of CIRCUIT (or a glob): the evidence decides again."""
    _send_override(OverrideArguments(**given), Mode.AUTO)


@click.command()
@order_options
def reset(**given: Any) -> None:
    """Discard all evidence on CIRCUIT (or a glob) and close it. A hold stays in effect."""
    _send_override(OverrideArguments(**given), None, reset=True)


@click.command()
@order_options
def probe(**given: Any) -> None:
    """Admit a probe on CIRCUIT (or a glob) now, before its cooldown ends: the next call decides.

    Circuits that are not open stay unchanged. Refused for a circuit that recovers by manual reset or at the end
    of a time window: use `switchgear reset` instead.
    """
    _send_override(OverrideArguments(**given), None, probe=True)


def _send_override(
    given: OverrideArguments, mode: Mode | None, *, reset: bool = False, probe: bool = False
) -> None:
    # An override of existing circuits creates no store.
    with open_session(reading=not given.create) as session:
        session.demand_operator(given.circuit)
        names = _matching_circuits(session, given, only_held=mode == "auto")
        if not names:
            say(clean(f"{given.circuit}: not held; nothing to do"))
            return
        _confirm(names, yes=given.yes)
        until_s = None if given.for_s is None else session.panel.store.now_s() + given.for_s
        by, why = operator_name(given.by), required_reason(given.why)
        order = Override(by, why, mode, reset, until_s=until_s, probe=probe)
        for name in names if probe else ():
            check_probes(name, session.panel.policy_of(name))
        for index, name in enumerate(names):
            try:
                circuit = session.send(name, order).circuit
            except Exception:
                if index:
                    changed = f"{index} of {len(names)} circuits were changed before this error:"
                    say(changed, err=True)
                raise
            what = "reset" if reset else "released" if mode == "auto" else words(circuit.mode)
            if probe:
                what = "probe requested"
            elif given.for_s is not None:
                what = f"{what} for {duration(given.for_s)}"
            phase = words(circuit.phase)
            if reset and circuit.mode is not Mode.AUTO:
                phase += f", still {words(circuit.mode)}"
            say(clean(f"{name}: {what} by {order.by}: {order.why}; phase {phase}", 1000))


def _matching_circuits(session: Session, given: OverrideArguments, *, only_held: bool) -> list[str]:
    """The circuit of exactly this name, else those that match."""
    try:
        exact = session.panel.store.get(given.circuit)
    except StoreCorrupt:
        return [given.circuit]  # it exists, and an override repairs it
    found = [exact] if exact is not None else []
    if exact is None and not is_plain(given.circuit):
        found = list(session.panel.store.find(given.circuit))
        if not found:
            fail(f"no circuit in {session.label} matches {given.circuit!r}")
    elif exact is None and not given.create:
        name = full_name(session, given.circuit)
        only_match = None if name is None else session.panel.store.get(name)
        found = [only_match] if only_match is not None else []
    if not found:
        if not given.create:
            fail(f"{unknown_circuit(session, given.circuit)}; --create creates the circuit")
        return [given.circuit]
    return [each.circuit.key for each in found if not only_held or each.circuit.mode != "auto"]


def _confirm(names: Sequence[str], *, yes: bool) -> None:
    if yes or len(names) == 1:
        return
    count = plural(len(names), "circuit")
    if not sys.stdin.isatty():
        shown = ", ".join(clean(name, 60) for name in names[:3]) + (", ..." if names[3:] else "")
        fail(f"this would change {count} ({shown}); add --yes to confirm")
    for name in names[:_LISTED]:
        say(f"  {clean(name)}", err=True)
    if len(names) > _LISTED:
        say(f"  and {len(names) - _LISTED:,} more", err=True)
    if not click.confirm(f"Change {count}?", err=True):
        fail("nothing was changed")
