"""Options that several verbs share, and the group class that maps errors to exit codes.

`--store`, `--config` and `--no-color` may stand before or after the verb; the nearer one counts.
A broken pipe is quiet, Ctrl-C is exit code 130, and any text can be printed.
"""

import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

import click

from switchgear._cli.views.text import clean, say, say_lines, typed
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
    say(f"The work is kept. Continue: switchgear {goes_on}", err=True)
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

    def main(  # type: ignore[override]  # click's overloads depend on the flag
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
    """The reader of the output is gone; the last flush of Python must not fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _never_fail_to_encode() -> None:
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


F = TypeVar("F", bound=Callable[..., Any])
GIVEN = "switchgear.given"
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|sec|m|min|h|d|w)", re.ASCII)
_SPANS_S = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CURSOR = re.compile(r"\d+(-\d+)?", re.ASCII)


def given(name: str) -> Any:
    """The value of a shared option, or `None`."""
    return click.get_current_context().meta.get(GIVEN, {}).get(name)


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name is not None:
        ctx.meta.setdefault(GIVEN, {})[parameter.name] = value


def _shared(*names: str, **how: Any) -> Callable[[F], F]:
    return click.option(*names, callback=_remember, expose_value=False, **how)


def config_option(verb: F) -> F:
    text = "Configuration file [env: SWITCHGEAR_CONFIG]."
    return _shared("--config", metavar="FILE", help=text)(verb)


def store_options(verb: F) -> F:
    verb = config_option(verb)
    return _shared(
        "--store",
        metavar="URL",
        help="Store with the circuits: file or URL [env: SWITCHGEAR_STORE].",
    )(verb)


def give_color_option(verb: click.Command) -> None:
    """Whether there is colour: for a verb and all verbs below it."""
    text = "Print without colour, like NO_COLOR=1; bold text stays."
    _shared("--no-color", is_flag=True, default=None, help=text)(verb)
    for below in verb.commands.values() if isinstance(verb, click.Group) else ():
        give_color_option(below)


def token_option(verb: F) -> F:
    """The operator's token. Never as an argument: those can be read by every user of a machine."""
    text = "File with the operator token, where one is configured [env: SWITCHGEAR_TOKEN]."
    return _shared("--token-file", metavar="FILE", help=text)(verb)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def circuit_argument(name: str = "circuit", *, default: str | None = None) -> Callable[[F], F]:
    """A circuit's name, or a glob over names; completed from the store."""
    # To click, None is a default too.
    how: dict[str, Any] = {} if default is None else {"default": default}
    return click.argument(name, callback=_checked_name, shell_complete=_complete_name, **how)


def _checked_name(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse what no store can keep."""
    del ctx, parameter
    try:
        value = typed(value)
        value.encode()
    except UnicodeError:
        raise click.BadParameter("a circuit's name must be UTF-8 text") from None
    if not value.strip():
        raise click.BadParameter("a circuit's name must not be empty")
    return value


def checked_text(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A text as it was typed."""
    del ctx, parameter
    try:
        return None if value is None else typed(value)
    except UnicodeError:
        return value  # the store replaces what is not text


def _complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The circuits that begin so; nothing, if the store cannot be read."""
    from switchgear._cli.context import names_beginning  # noqa: PLC0415

    del parameter
    with ctx.scope(cleanup=False):
        return names_beginning(incomplete)


def number(unit: str, *, above_zero: bool = False) -> Callable[[Any], float]:
    """A kind of value: a finite number from 0, in a unit."""

    def convert(value: Any) -> float:
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not 0 <= found <= 1e12 or (above_zero and not found):
            rule = "above 0" if above_zero else "of at least 0"
            raise click.BadParameter(f"{value!r} must be a number {rule} ({unit})")
        return found

    convert.__name__ = unit  # what the help shows
    return convert


class Since(NamedTuple):
    """Where in the stream of events to begin: behind a cursor, or at a time."""

    cursor: str | None = None
    at_s: float | None = None


def parse_since(text: str | None, now_s: float) -> Since:
    """`1h`, `2026-11-15T10:00` (local time by default) or a cursor of the stream."""
    if text is None:
        return Since()
    span = _SPAN.fullmatch(text)
    if span:
        return Since(at_s=now_s - float(span[1]) * _SPANS_S[span[2]])
    if _DATE.match(text):
        try:
            return Since(at_s=datetime.fromisoformat(text).astimezone().timestamp())
        except (ValueError, OverflowError):
            fail(f"--since is {text!r}: no such date; write it as 2026-11-15T10:00")
    if not _CURSOR.fullmatch(text):
        fail(f"--since is {text!r}: it must be a span such as 30m, 1h or 2d, a time, or a cursor")
    return Since(cursor=text)
