"""Starting on an open circuit: it is said, with the choices. Nobody is overruled by accident."""

import sys
from typing import TYPE_CHECKING

import click

from switchgear._cli.entry import fail
from switchgear._cli.views.text import clean, say_lines

if TYPE_CHECKING:
    from switchgear._breaker.loop_breaker import LoopBreaker

# ruff: noqa: PLC0415  what a verb needs is imported when it is used

CHOICES = ("wait", "force", "abort")


class StillOpen(Exception):
    """The circuit is open and stays so; the text says what can be done."""


def admit(loop: "LoopBreaker", *, force: bool, why: str | None, how: str) -> str | None:
    """See that the circuit lets the run begin. Returns what is to be said of it, if anything.

    `how` is the command to type, up to its options. Raises `StillOpen` where nobody can be asked.
    """
    loop.refresh()
    if force and loop.mode != "held_open":  # evidence is forgotten by force, an order is not
        loop.reset(by=who(), why=reason(why))
        return f"{loop.name} was closed by force"
    decision = loop.check()
    if decision.allow_continue:
        return None if decision.reason is None else f"{loop.name} is watchful: {decision.reason}"
    if loop.mode == "held_open" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise StillOpen(_text(loop, how))
    return _ask(loop, how)


def _text(loop: "LoopBreaker", how: str) -> str:
    from switchgear._core.errors import duration
    from switchgear._core.types import Mode
    from switchgear._run.circuits import SHARED
    from switchgear._run.result import release_command

    if loop.mode is Mode.HELD_OPEN:
        said = clean(loop.trip_reason() or "")
        return f"{loop.name}: {said}\n- release it: {release_command(loop.name)}"
    wait_s = _wait_s(loop)
    waiting = "it stays open until it is closed"
    if wait_s is not None:
        waiting = f"wait {duration(wait_s)}, then one retry is let through"
    shared = f"it is shared by runs with {SHARED}"
    return "\n".join(
        (
            f"{loop.name} is open: {clean(loop.trip_reason() or '')}; {shared}",
            f"- wait: {waiting}",
            f"- force: {how} --force-close --why 'what is different now'",
            "- abort: leave it as it is",
        )
    )


def _wait_s(loop: "LoopBreaker") -> float | None:
    """How long until one retry is let through; `None`: it is not by itself."""
    from switchgear._breaker.handle import TIME_PASSES

    return loop.send(TIME_PASSES).retry_after_s


def _ask(loop: "LoopBreaker", how: str) -> str | None:
    say_lines(_text(loop, how))
    wait_s = _wait_s(loop)
    choices = CHOICES if wait_s is not None else CHOICES[1:]
    chosen = click.prompt("What now", type=click.Choice(choices), default="abort", err=True)
    if chosen == "abort":
        raise StillOpen(f"{loop.name} is left open")
    if chosen == "force":
        loop.reset(by=who(), why=reason(None))
        return f"{loop.name} was closed by force"
    wait_visibly(wait_s or 0.0)
    return admit(loop, force=False, why=None, how=how)


def wait_visibly(seconds: float) -> None:
    """Let the cooldown pass, with a countdown. Raises KeyboardInterrupt when somebody ends it."""
    from switchgear._run.interrupt import Interrupt, Time, wait
    from switchgear._run.view import LineView

    interrupt = Interrupt()
    with interrupt.installed():
        wait("for the cooldown", seconds, on=Time(), view=LineView(sys.stderr), interrupt=interrupt)
    if interrupt.asked:
        raise KeyboardInterrupt


def reason(why: str | None) -> str:
    """Why; asked for at a terminal."""
    from switchgear._text.redact import redact

    if why is None and sys.stdin.isatty():
        why = click.prompt("Why", err=True)
    if why is None or not redact(why):
        fail("closing a circuit by force needs a reason: add --why TEXT")
    return redact(why)


def who() -> str:
    """The login name."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"
