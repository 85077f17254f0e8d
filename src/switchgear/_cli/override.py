"""The operator's verbs: `hold`, `release`, `reset`, `probe`. Each override has an author and a reason, and is an event.

Where an operator token is configured they need it, so that a guarded agent cannot release itself.
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


class Word(NamedTuple):
    """An override as it was typed."""

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
    click.option("--yes", "-y", is_flag=True, help="Do not ask when several circuits match."),
    click.option("--create", is_flag=True, help="Create the circuit if it does not exist."),
    token_option,
    store_options,
)
"""The circuit and the options of every override: author, reason and others."""


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
def hold(mode: str, **typed: Any) -> None:
    """Hold CIRCUIT (or a glob) regardless of the evidence, until a release or the end of --for.

    open refuses every call; closed admits every call; shadow admits every call and counts what
    would have been refused.
    """
    modes = {"open": Mode.HELD_OPEN, "closed": Mode.HELD_CLOSED, "shadow": Mode.SHADOW}
    _send_override(Word(**typed), modes[mode])


@click.command()
@order_options
def release(**typed: Any) -> None:
    """Let the evidence decide again on CIRCUIT (or a glob)."""
    _send_override(Word(**typed), Mode.AUTO)


@click.command()
@order_options
def reset(**typed: Any) -> None:
    """Discard all evidence on CIRCUIT (or a glob) and close it. A hold stays in effect."""
    _send_override(Word(**typed), None, reset=True)


@click.command()
@order_options
def probe(**typed: Any) -> None:
    """Admit a probe on CIRCUIT (or a glob) now, before its cooldown ends: the next call decides.

    Circuits that are not open stay unchanged. Refused for a circuit that recovers by manual reset or at the end
    of a time window: use `switchgear reset` instead.
    """
    _send_override(Word(**typed), None, probe=True)


def _send_override(
    word: Word, mode: Mode | None, *, reset: bool = False, probe: bool = False
) -> None:
    # An override of existing circuits creates no store.
    with open_session(reading=not word.create) as session:
        session.demand_operator(word.circuit)
        names = _targets(session, word, only_held=mode == "auto")
        if not names:
            say(clean(f"{word.circuit}: not held; nothing to do"))
            return
        _confirm(names, yes=word.yes)
        until_s = None if word.for_s is None else session.panel.store.now_s() + word.for_s
        order = Override(
            operator_name(word.by),
            required_reason(word.why),
            mode,
            reset,
            until_s=until_s,
            probe=probe,
        )
        for name in names if probe else ():
            check_probes(name, session.panel.policy_of(name))
        for index, name in enumerate(names):
            try:
                done = session.send(name, order)
            except Exception:
                if index:
                    say(
                        f"{index} of {len(names)} circuits were changed before this error:",
                        err=True,
                    )
                raise
            what = "reset" if reset else "released" if mode == "auto" else words(done.circuit.mode)
            if probe:
                what = "probe requested"
            elif word.for_s is not None:
                what = f"{what} for {duration(word.for_s)}"
            stands = words(done.circuit.phase)
            if reset and done.circuit.mode is not Mode.AUTO:
                stands += f", still {words(done.circuit.mode)}"
            say(clean(f"{name}: {what} by {order.by}: {order.why}; phase {stands}", 1000))


def _targets(session: Session, word: Word, *, only_held: bool) -> list[str]:
    """The circuits that are meant: one of that very name, else those that match."""
    try:
        exact = session.panel.store.get(word.circuit)
    except StoreCorrupt:
        return [word.circuit]  # it exists, and an override repairs it
    found = [exact] if exact is not None else []
    if exact is None and not is_plain(word.circuit):
        found = list(session.panel.store.find(word.circuit))
        if not found:
            fail(f"no circuit in {session.label} matches {word.circuit!r}")
    elif exact is None and not word.create:
        name = full_name(session, word.circuit)
        meant = None if name is None else session.panel.store.get(name)
        found = [meant] if meant is not None else []
    if not found:
        if not word.create:
            fail(f"{unknown_circuit(session, word.circuit)}; --create creates the circuit")
        return [word.circuit]
    return [each.circuit.key for each in found if not only_held or each.circuit.mode != "auto"]


def _confirm(names: Sequence[str], *, yes: bool) -> None:
    if yes or len(names) == 1:
        return
    count = plural(len(names), "circuit")
    if not sys.stdin.isatty():
        some = ", ".join(
            [*(clean(name, 60) for name in names[:3]), *(["..."] if names[3:] else [])]
        )
        fail(f"this would change {count} ({some}); add --yes to confirm")
    for name in names[:_LISTED]:
        say(f"  {clean(name)}", err=True)
    if len(names) > _LISTED:
        say(f"  and {len(names) - _LISTED:,} more", err=True)
    if not click.confirm(f"Change {count}?", err=True):
        fail("nothing was changed")
