"""The operator's verbs: `hold`, `release`, `reset`, `probe`. Each override has an author and a reason, and is an event.

Where an operator token is configured they need it, so that a guarded agent cannot release itself.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from switchgear._cli.options import (
    checked_text,
    circuit_argument,
    fail,
    store_options,
    token_option,
)
from switchgear._cli.views.text import clean, plural, say, words
from switchgear._text.formats import duration

if TYPE_CHECKING:
    from switchgear._cli.context import Session
    from switchgear._core.types import Mode

# ruff: noqa: PLC0415  what a verb needs is imported when it is used

F = TypeVar("F", bound=Callable[..., Any])
_LISTED = 10


class Word(NamedTuple):
    """An order as it was typed."""

    target: str
    by: str | None
    why: str | None
    yes: bool
    create: bool
    for_s: float | None = None


def order_options(verb: F) -> F:
    """The options of every override: author, reason and others."""
    options = (
        click.option(
            "--why",
            metavar="TEXT",
            callback=checked_text,
            help="Reason; prompted for at a terminal.",
        ),
        click.option(
            "--by",
            metavar="NAME",
            callback=checked_text,
            help="Name of the operator. [default: the login name]",
        ),
        click.option("--yes", "-y", is_flag=True, help="Do not ask when several circuits match."),
        click.option("--create", is_flag=True, help="Create the circuit if it does not exist."),
        token_option,
        store_options,
    )
    for option in reversed(options):
        verb = option(verb)
    return circuit_argument()(verb)


def checked_duration(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """A duration such as `30min` or `2h`, in seconds."""
    del context, parameter
    if value is None:
        return None
    from switchgear._run.options import seconds

    try:
        for_s = seconds("--for", value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not for_s:
        raise click.BadParameter(f"--for is {value!r}: it must be above 0")
    return for_s


@click.command(short_help="Hold a circuit open, closed or in shadow.")
@click.argument("mode", type=click.Choice(["open", "closed", "shadow"]))
@click.option(
    "--for",
    "for_s",
    metavar="TIME",
    callback=checked_duration,
    help="End the hold after TIME, such as 30min or 2h. [default: when it is released]",
)
@order_options
def hold(
    mode: str,
    circuit: str,
    *,
    for_s: float | None,
    why: str | None,
    by: str | None,
    yes: bool,
    create: bool,
) -> None:
    """Hold CIRCUIT (or a glob) regardless of the evidence, until a release or the end of --for.

    open refuses every call; closed admits every call; shadow admits every call and counts what
    would have been refused.
    """
    from switchgear._core.types import Mode

    modes = {"open": Mode.HELD_OPEN, "closed": Mode.HELD_CLOSED, "shadow": Mode.SHADOW}
    _give(Word(circuit, by, why, yes, create, for_s), modes[mode], reset=False)


@click.command(short_help="End a hold: the evidence decides again.")
@order_options
def release(circuit: str, *, why: str | None, by: str | None, yes: bool, create: bool) -> None:
    """Let the evidence decide again on CIRCUIT (or a glob)."""
    from switchgear._core.types import Mode

    _give(Word(circuit, by, why, yes, create), Mode.AUTO, reset=False)


@click.command(short_help="Discard the evidence and close a circuit.")
@order_options
def reset(circuit: str, *, why: str | None, by: str | None, yes: bool, create: bool) -> None:
    """Forget all evidence on CIRCUIT (or a glob) and close it. A hold stays."""
    _give(Word(circuit, by, why, yes, create), None, reset=True)


@click.command(short_help="Let an open circuit probe now.")
@order_options
def probe(circuit: str, *, why: str | None, by: str | None, yes: bool, create: bool) -> None:
    """Let CIRCUIT (or a glob) probe now, before its wait is over: the next call decides.

    Circuits that are not open stay unchanged. Refused for a circuit that recovers without
    probes (latched, window_end): reset it instead.
    """
    _give(Word(circuit, by, why, yes, create), None, reset=False, probe=True)


def _give(word: Word, mode: "Mode | None", *, reset: bool, probe: bool = False) -> None:
    from switchgear._cli.context import open_session
    from switchgear._core.types import Override

    # An override of existing circuits creates no store.
    with open_session(reading=not word.create) as session:
        session.demand_operator(word.target)
        names = _targets(session, word, only_held=mode == "auto")
        if not names:
            say(clean(f"{word.target}: not held; nothing to do"))
            return
        _confirm(names, yes=word.yes)
        until_s = None if word.for_s is None else session.panel.store.now_s() + word.for_s
        order = Override(
            who_gives(word.by), reason_given(word.why), mode, reset, until_s=until_s, probe=probe
        )
        if probe:
            _refuse_without_probes(session, names)
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
            stands = f"{words(done.circuit.phase)}" + _still(done.circuit.mode, reset=reset)
            say(clean(f"{name}: {what} by {order.by}: {order.why}; it is {stands}", 1000))


def _refuse_without_probes(session: "Session", names: Sequence[str]) -> None:
    from switchgear._breaker.signals import check_probes

    for name in names:
        try:
            check_probes(name, session.panel.policy_of(name))
        except ValueError as error:
            fail(str(error))


def _still(mode: "Mode", *, reset: bool) -> str:
    return f", and still {words(mode)}" if reset and mode != "auto" else ""


def _targets(session: "Session", word: Word, *, only_held: bool) -> list[str]:
    """The circuits that are meant: one of that very name, else those that match."""
    from switchgear._cli.context import full_name, unknown_circuit
    from switchgear._core.errors import StoreCorrupt
    from switchgear._text.glob import is_plain

    try:
        exact = session.panel.store.get(word.target)
    except StoreCorrupt:
        return [word.target]  # it exists, and an override repairs it
    found = [exact] if exact is not None else []
    if exact is None and not is_plain(word.target):
        found = list(session.panel.store.find(word.target))
        if not found:
            fail(f"no circuit in {session.label} matches {word.target!r}")
    elif exact is None and not word.create:
        name = full_name(session, word.target)
        meant = None if name is None else session.panel.store.get(name)
        found = [meant] if meant is not None else []
    if not found:
        if not word.create:
            hint = "--create creates it"
            fail(f"{unknown_circuit(session, word.target)} ({hint})")
        return [word.target]
    return [each.circuit.key for each in found if not only_held or each.circuit.mode != "auto"]


def _confirm(names: Sequence[str], *, yes: bool) -> None:
    if yes or len(names) == 1:
        return
    count = plural(len(names), "circuit")
    if not sys.stdin.isatty():
        some = ", ".join(clean(name, 60) for name in names[:3]) + (
            ", ..." if len(names) > 3 else ""
        )
        fail(f"this would change {count} ({some}); add --yes to confirm")
    for name in names[:_LISTED]:
        say(f"  {clean(name)}", err=True)
    if len(names) > _LISTED:
        say(f"  and {len(names) - _LISTED:,} more", err=True)
    if not click.confirm(f"Change {count}?", err=True):
        fail("nothing was changed")


def reason_given(why: str | None) -> str:
    """Why; through the same filter as errors, for it is stored and shown like them."""
    from switchgear._text.redact import redact

    if why is None and sys.stdin.isatty():
        why = click.prompt("Why", err=True)
    if why is None or not redact(why):
        fail("an override needs a reason: add --why TEXT")
    return redact(why)


def who_gives(by: str | None) -> str:
    """The author; default: the login name."""
    from switchgear._text.redact import redact

    if by is not None:
        return redact(by) or fail("--by must not be empty")
    import getpass

    try:
        return redact(getpass.getuser()) or "somebody"
    except (KeyError, OSError, ImportError):  # no login name, no entry for this user number
        import os

        return f"uid {os.getuid()}"
