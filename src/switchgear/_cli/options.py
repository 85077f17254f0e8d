"""Options that several verbs share, and the group class that maps errors to exit codes.

`--store`, `--config` and `--no-color` may stand before or after the verb; the nearer one counts.
A broken pipe is quiet, Ctrl-C is exit code 130, and any text can be printed.
"""

import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from switchgear._cli.views.text import clean, say, say_lines, typed
from switchgear._core.errors import SwitchgearError
from switchgear._sinks.log import silenced
from switchgear._system.login import login_name
from switchgear._text.redact import redact

INTERRUPTED, BROKEN_PIPE, TROUBLE, DEFECT = 130, 141, 2, 1


class Fail(click.ClickException):
    """Ends the command with a sentence on standard error."""

    exit_code = TROUBLE

    def show(self, _file: Any = None) -> None:
        for line in self.message.splitlines():
            front = "" if line.startswith("- ") else "switchgear: "
            say_lines(f"{front}{clean(line, 2000)}")


def defect(error: Exception, goes_on: str) -> int:
    """Report an error after work was done, with the command that continues. Returns the exit code.

    Exit code 2 is for usage errors: then nothing was done.
    """
    if os.environ.get("SWITCHGEAR_DEBUG"):
        raise error
    Fail(_sentence(error)).show()
    say(f"Continue: switchgear {goes_on}", err=True)
    return DEFECT


def fail(sentence: str) -> NoReturn:
    """End the command: what is wrong, and the way out."""
    raise Fail(sentence)


class Branch(click.Group):
    """A group whose name alone shows its help; nothing was done, so the exit code is not 0."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help; versions of click disagree on the stream and the exit code."""
        if not args and not ctx.resilient_parsing:
            say(ctx.get_help())
            ctx.exit(TROUBLE)
        return super().parse_args(ctx, args)


class Verbs(Mapping[str, click.Command]):
    """The verbs by name. A verb's module is imported when the verb is looked up."""

    def __init__(self, places: Mapping[str, tuple[str, str]]) -> None:
        self.places = places
        """By name: `module.function`, and what the verb does."""

    def __getitem__(self, name: str) -> click.Command:
        return _load(self.places[name][0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


@cache
def _load(place: str) -> click.Command:
    module, _, function = place.partition(".")
    verb: click.Command = getattr(import_module(f"switchgear._cli.{module}"), function)
    _give_color_option(verb)
    return verb


def _give_color_option(verb: click.Command) -> None:
    """Add `--no-color` to a verb and all verbs below it."""
    color_option(verb)
    for below in verb.commands.values() if isinstance(verb, click.Group) else ():
        _give_color_option(below)


class VerbGroup(Branch):
    """The group of all verbs. It maps errors to exit codes, as described above."""

    commands: Verbs  # type: ignore[assignment]  # click does not change them

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """In the order of the table, not the alphabet."""
        return list(self.commands)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in self.commands.places.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a verb without importing the modules of all."""
        verbs = [
            CompletionItem(name, help=what)
            for name, (_, what) in self.commands.places.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. A broken pipe has its own exit code; click would use 1, which has a meaning."""
        try:
            with silenced():  # the command itself shows what happens to circuits
                return super().invoke(ctx)
        except BrokenPipeError:
            raise SystemExit(BROKEN_PIPE) from None

    def main(  # type: ignore[override]  # click's overloads depend on the flag
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **options: Any
    ) -> Any:
        run = partial(super().main, args, standalone_mode=False, **options)
        if not standalone_mode:
            return run()
        _never_fail_to_encode()
        sys.exit(_run_command(run))


def _run_command(command: Callable[[], Any]) -> int:
    try:
        code = command()
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  no user should have to read a traceback
        return _report_error(error)
    return code if isinstance(code, int) and not isinstance(code, bool) else 0


def _report_error(error: BaseException) -> int:
    """Report an exception on standard error. Returns the exit code."""
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
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(GIVEN, {}).get(name)


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name is not None:
        ctx.meta.setdefault(GIVEN, {})[parameter.name] = value


def _shared_option(*names: str, **how: Any) -> Callable[[F], F]:
    return click.option(*names, callback=_remember, expose_value=False, **how)


color_option = _shared_option(
    "--no-color",
    is_flag=True,
    default=None,
    help="Print without colour; the same as NO_COLOR=1.",
)


config_option = _shared_option(
    "--config",
    metavar="FILE",
    help="Configuration file [env: SWITCHGEAR_CONFIG; default: switchgear.yaml here or above].",
)
# Never as an argument: those can be read by every user of a machine.
token_option = _shared_option(
    "--token-file",
    metavar="FILE",
    help="File with the operator token, where one is configured [env: SWITCHGEAR_TOKEN].",
)


def several(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator for several options, which the help shows in this order."""

    def add(verb: F) -> F:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return add


store_options = several(
    _shared_option(
        "--store",
        metavar="URL",
        help="Store of the circuits: sqlite:///FILE or redis://HOST [env: SWITCHGEAR_STORE; "
        "default: the project's .switchgear/state.db].",
    ),
    config_option,
)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def circuit_argument(name: str = "circuit", *, default: str | None = None) -> Callable[[F], F]:
    """A circuit's name, or a glob over names; completed from the store."""
    # To click, None is a default too.
    how: dict[str, Any] = {} if default is None else {"default": default}
    return click.argument(name, callback=_checked_name, shell_complete=_complete_name, **how)


def _checked_name(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Refuse what no store can keep."""
    try:
        value = typed(value)
        value.encode()
    except UnicodeError:
        raise click.BadParameter("a circuit's name must be UTF-8 text") from None
    if not value.strip():
        raise click.BadParameter("a circuit's name must not be empty")
    return value


def checked_text(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A text as it was typed."""
    try:
        return None if value is None else typed(value)
    except UnicodeError:
        return value  # the store replaces what is not text


by_option = click.option(
    "--by",
    metavar="NAME",
    callback=checked_text,
    help="Name of the operator. [default: the login name]",
)


reader_options = several(json_option, store_options)
"""Of a verb that shows what is in the store."""
operator_options = several(by_option, store_options, token_option)
"""Of a verb that changes it, with an author."""


def _complete_name(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The circuits whose names begin like this; none if the store cannot be read."""
    from switchgear._cli.context import names_beginning  # noqa: PLC0415  it imports this module

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


def amount(parse: Callable[[str, str], Any]) -> Callable[..., Any]:
    """A callback that reads an amount and names the option when it cannot."""

    def convert(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(parameter.opts[0], value)
        except ValueError as problem:
            raise click.UsageError(str(problem)) from None

    return convert


class Since(NamedTuple):
    """Where in the stream of events to begin: behind a cursor, or at a time."""

    cursor: str | None = None
    at_s: float | None = None


def parse_since(text: str | None, now_s: float, *, cursors: bool = True) -> Since:
    """`1h`, `2026-11-15T10:00` (local time by default) or, with `cursors`, one of the stream."""
    if text is None:
        return Since()
    text = text.strip()
    span = _SPAN.fullmatch(text.lower())
    if span:
        return Since(at_s=now_s - float(span[1]) * _SPANS_S[span[2]])
    if cursors and _CURSOR.fullmatch(text):
        return Since(cursor=text)
    try:
        if _DATE.match(text):
            return Since(at_s=datetime.fromisoformat(text).astimezone().timestamp())
    except (ValueError, OverflowError):
        pass  # no such date
    kinds = "a time such as 2026-11-15T10:00" + (", or a cursor" if cursors else "")
    fail(f"--since is {text!r}: it must be a span such as 30m, 12h or 90d, or {kinds}")


def reason_given(why: str | None, what: str = "an override") -> str:
    """Why, prompted for at a terminal; through the same filter as errors, for it is stored and shown like them."""
    if why is None and sys.stdin.isatty():
        why = click.prompt("Why", err=True)
    if why is None or not redact(why):
        fail(f"{what} needs a reason: add --why TEXT")
    return redact(why)


def who_gives(by: str | None) -> str:
    """The author; default: the login name."""
    if by is not None:
        return redact(by) or fail("--by must not be empty")
    return redact(login_name()) or "unknown"


def demand_one(name: str, found: Sequence[str], what: str) -> None:
    """End the command if several names begin with what was typed."""
    if len(found) > 1:
        shown = ", ".join(clean(each, 80) for each in found[:5]) + (", …" if found[5:] else "")
        fail(f"{name!r} is ambiguous: {len(found)} {what} begin with it ({shown})")
