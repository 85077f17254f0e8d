"""What surrounds every verb: errors are one sentence and exit code 2, never a traceback.

A broken pipe is quiet, Ctrl-C is exit code 130, and no text can fail to be encoded.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import click

from switchgear._cli.views.text import clean, say, say_lines
from switchgear._core.errors import SwitchgearError
from switchgear._sinks.log import silenced

INTERRUPTED, BROKEN_PIPE, TROUBLE, DEFECT = 130, 141, 2, 1


class Fail(click.ClickException):
    """Ends the command with a sentence on standard error."""

    exit_code = TROUBLE

    def show(self, file: Any = None) -> None:
        """Print it; each of its lines by itself."""
        del file
        for line in self.message.splitlines():
            front = "" if line.startswith("- ") else "switchgear: "
            say_lines(f"{front}{clean(line, 2000)}")


def defect(error: Exception, goes_on: str) -> int:
    """Report what broke after work was done, with the command that goes on. Returns the exit code.

    Exit code 2 is for usage errors: then nothing was done.
    """
    if os.environ.get("SWITCHGEAR_DEBUG"):
        raise error
    Fail(_sentence(error)).show()
    say(f"What was done is kept. Go on: switchgear {goes_on}", err=True)
    return DEFECT


def fail(sentence: str) -> NoReturn:
    """End the command: what is wrong, and the way out."""
    raise Fail(sentence)


class Branch(click.Group):
    """A group whose name alone shows its help; nothing was done, so the exit code is not 0."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Click's versions disagree on where this help goes and what the exit code is."""
        if not args and not ctx.resilient_parsing:
            say(ctx.get_help())
            ctx.exit(TROUBLE)
        return super().parse_args(ctx, args)


class Verbs(Branch):
    """The group of all verbs, with the manners described above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are needed, not of the alphabet."""
        del ctx
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; click would make exit code 1, which has a meaning, of a broken pipe."""
        try:
            with silenced():  # a command shows itself what happens to circuits
                return super().invoke(ctx)
        except BrokenPipeError:
            raise SystemExit(BROKEN_PIPE) from None

    def main(  # type: ignore[override]  # click's overloads say what follows from the flag
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **options: Any
    ) -> Any:
        """Run a command line and exit."""
        run = partial(super().main, args, standalone_mode=False, **options)
        if not standalone_mode:
            return run()
        _never_fail_to_encode()
        sys.exit(_run(run))


def _run(command: Callable[[], Any]) -> int:
    try:
        code = command()
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  no user should have to read a traceback
        return _ended(error)
    return code if isinstance(code, int) and not isinstance(code, bool) else 0


def _ended(error: BaseException) -> int:
    """The exit code of a command that did not come to its end; why is on standard error."""
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        return _broken_pipe()
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else TROUBLE
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt):
        return INTERRUPTED  # click's Abort hides which key it was
    Fail(_sentence(error)).show()
    context = getattr(error, "ctx", None)
    if context is not None:
        say(f"Try '{context.command_path} --help'.", err=True)
    return TROUBLE


def _sentence(error: BaseException) -> str:
    if isinstance(error, click.Abort):
        return "nothing was done"
    if isinstance(error, Fail):
        return error.message
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split())  # click lists choices in lines
    if isinstance(error, SwitchgearError | ValueError):
        return str(error)
    if isinstance(error, OSError):
        what = error.strerror or str(error) or type(error).__name__
        return f"{error.filename}: {what}" if error.filename else what
    if os.environ.get("SWITCHGEAR_DEBUG"):
        raise error
    what = f"{type(error).__name__}: {error}"
    return f"this is a defect of Switchgear ({what}); SWITCHGEAR_DEBUG=1 shows where"


def _broken_pipe() -> int:
    """Whoever read our output has gone; the last flush of Python must not complain."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _never_fail_to_encode() -> None:
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
