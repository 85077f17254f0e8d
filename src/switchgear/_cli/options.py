"""Options that several verbs share, and the group class that maps errors to exit codes.

`--store`, `--config` and `--no-color` may stand before or after the verb; the one after it wins.
A broken pipe prints nothing, Ctrl-C exits with code 130, and characters that a stream cannot encode are
printed as escapes.
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

EXIT_INTERRUPTED, EXIT_BROKEN_PIPE, EXIT_ERROR, EXIT_DEFECT = 130, 141, 2, 1


class Fail(click.ClickException):
    """Ends the command with a message on standard error."""

    exit_code = EXIT_ERROR

    def show(self, _file: Any = None) -> None:
        for line in self.message.splitlines():
            prefix = "" if line.startswith("- ") else "switchgear: "
            say_lines(f"{prefix}{clean(line, 2000)}")


def report_defect(error: Exception, continue_with: str) -> int:
    """Report an error after work was done, with the command that continues. Returns the exit code.

    The exit code is not 2, which means that nothing was done.
    """
    if os.environ.get("SWITCHGEAR_DEBUG"):
        raise error
    Fail(_message_of(error)).show()
    say(f"Continue: switchgear {continue_with}", err=True)
    return EXIT_DEFECT


def fail(message: str) -> NoReturn:
    """End the command. The message says what is wrong and what to do."""
    raise Fail(message)


class Branch(click.Group):
    """A group of verbs. Without a verb it prints its help and exits with code 2."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help here: versions of click disagree on the stream and the exit code."""
        if not args and not ctx.resilient_parsing:
            say(ctx.get_help())
            ctx.exit(EXIT_ERROR)
        return super().parse_args(ctx, args)


class Verbs(Mapping[str, click.Command]):
    """The verbs by name. A verb's module is imported when the verb is looked up."""

    def __init__(self, table: Mapping[str, tuple[str, str]]) -> None:
        self.table = table
        """By name: `module.function`, and what the verb does."""

    def __getitem__(self, name: str) -> click.Command:
        return _load_verb(self.table[name][0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


@cache
def _load_verb(path: str) -> click.Command:
    module, _, function = path.partition(".")
    verb: click.Command = getattr(import_module(f"switchgear._cli.{module}"), function)
    _add_color_option(verb)
    return verb


def _add_color_option(verb: click.Command) -> None:
    """Add `--no-color` to a verb and its sub-verbs."""
    color_option(verb)
    for sub_verb in verb.commands.values() if isinstance(verb, click.Group) else ():
        _add_color_option(sub_verb)


class VerbGroup(Branch):
    """The group of all verbs. Maps errors to exit codes."""

    commands: Verbs  # type: ignore[assignment]  # read-only: click adds no commands to it

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """In the order of the table, not the alphabet."""
        return list(self.commands)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in self.commands.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a verb without importing the modules of the verbs."""
        verbs = [
            CompletionItem(name, help=what)
            for name, (_, what) in self.commands.table.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. On a broken pipe click would exit with 1, which is the result of some verbs."""
        try:
            with silenced():  # the verbs print the events of circuits themselves
                return super().invoke(ctx)
        except BrokenPipeError:
            raise SystemExit(EXIT_BROKEN_PIPE) from None

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
    except BaseException as error:  # noqa: BLE001  users get a message, not a traceback
        return _report_error(error)
    return code if isinstance(code, int) and not isinstance(code, bool) else 0


def _report_error(error: BaseException) -> int:
    """Report an exception on standard error. Returns the exit code."""
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        return _broken_pipe()
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else EXIT_ERROR
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt):
        return EXIT_INTERRUPTED  # click raises Abort for Ctrl-C and for Ctrl-D
    Fail(_message_of(error)).show()
    context = getattr(error, "ctx", None)
    if context is not None:
        say(f"Try '{context.command_path} --help'.", err=True)
    return EXIT_ERROR


def _message_of(error: BaseException) -> str:
    if isinstance(error, click.Abort):
        return "nothing was done"
    if isinstance(error, Fail):
        return error.message
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split())  # click lists choices on separate lines
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
    """Redirect standard output to /dev/null, so that Python's last flush does not fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_BROKEN_PIPE


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
    """The value of a shared option such as `store`; `None`: not given."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(GIVEN, {}).get(name)


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name is not None:
        ctx.meta.setdefault(GIVEN, {})[parameter.name] = value


def _shared_option(*names: str, **attrs: Any) -> Callable[[F], F]:
    return click.option(*names, callback=_remember, expose_value=False, **attrs)


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
# The token itself is never an argument: every user of a machine can read the arguments of a process.
token_option = _shared_option(
    "--token-file",
    metavar="FILE",
    help="File with the operator token, where one is configured [env: SWITCHGEAR_TOKEN].",
)


def combined(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator for several options. The help shows them in this order."""

    def add(verb: F) -> F:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return add


store_options = combined(
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
    # For click, default=None is a default too: it would make the argument optional.
    attrs: dict[str, Any] = {} if default is None else {"default": default}
    return click.argument(name, callback=_checked_name, shell_complete=_complete_name, **attrs)


def _checked_name(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Refuse a name that no store can save."""
    try:
        value = typed(value)
        value.encode()
    except UnicodeError:
        raise click.BadParameter("a circuit's name must be UTF-8 text") from None
    if not value.strip():
        raise click.BadParameter("a circuit's name must not be empty")
    return value


def checked_text(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """The text of an argument, decoded as UTF-8 in every locale."""
    try:
        return None if value is None else typed(value)
    except UnicodeError:
        return value  # not UTF-8: the store replaces the invalid bytes


by_option = click.option(
    "--by",
    metavar="NAME",
    callback=checked_text,
    help="Name of the operator. [default: the login name]",
)


reader_options = combined(json_option, store_options)
"""Options of a verb that only reads the store."""
operator_options = combined(by_option, store_options, token_option)
"""Options of a verb that changes the store in an operator's name."""


def _complete_name(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The circuits whose names start with `incomplete`; none if the store cannot be read."""
    from switchgear._cli.context import names_starting_with  # noqa: PLC0415  it imports this module

    with ctx.scope(cleanup=False):
        return names_starting_with(incomplete)


def number(unit: str, *, above_zero: bool = False) -> Callable[[Any], float]:
    """The type of an option: a finite number of at least 0, in a unit that the help shows."""

    def convert(value: Any) -> float:
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not 0 <= found <= 1e12 or (above_zero and not found):
            rule = "above 0" if above_zero else "of at least 0"
            raise click.BadParameter(f"{value!r} must be a number {rule} ({unit})")
        return found

    convert.__name__ = unit
    return convert


def parsed_by(parse: Callable[[str, str], Any]) -> Callable[..., Any]:
    """The callback of an option whose value `parse` converts, given the option's name and the text."""

    def convert(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(parameter.opts[0], value)
        except ValueError as problem:
            raise click.UsageError(str(problem)) from None

    return convert


class Since(NamedTuple):
    """Where in the stream of events to start: after a cursor, or at a time."""

    cursor: str | None = None
    at_s: float | None = None


def parse_since(text: str | None, now_s: float, *, cursors: bool = True) -> Since:
    """Parse `1h`, `2026-11-15T10:00` (local time by default) or, with `cursors`, a cursor such as `1234`."""
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
        pass  # not a date
    kinds = "a time such as 2026-11-15T10:00" + (", or a cursor" if cursors else "")
    fail(f"--since is {text!r}: it must be a span such as 30m, 12h or 90d, or {kinds}")


def required_reason(why: str | None, what: str = "an override") -> str:
    """The reason, prompted for at a terminal if it is missing. Redacted, because it is stored."""
    if why is None and sys.stdin.isatty():
        why = click.prompt("Why", err=True)
    if why is None or not redact(why):
        fail(f"{what} needs a reason: add --why TEXT")
    return redact(why)


def operator_name(by: str | None) -> str:
    """The value of `--by`; default: the login name."""
    if by is not None:
        return redact(by) or fail("--by must not be empty")
    return redact(login_name()) or "unknown"


def refuse_ambiguous(name: str, matches: Sequence[str], what: str) -> None:
    """End the command if several names begin with `name`."""
    if len(matches) > 1:
        shown = ", ".join(clean(each, 80) for each in matches[:5]) + (", …" if matches[5:] else "")
        fail(f"{name!r} is ambiguous: {len(matches)} {what} begin with it ({shown})")
