"""Options that verbs share, and the kinds of values that they take.

`--store`, `--config` and `--no-color` may stand before or behind the verb; the nearer one counts.
"""

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import click

from switchgear._cli.entry import fail
from switchgear._cli.views.text import typed

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
    """Where the configuration is."""
    text = "Configuration file [env: SWITCHGEAR_CONFIG]."
    return _shared("--config", metavar="FILE", help=text)(verb)


def store_options(verb: F) -> F:
    """Where the circuits are."""
    verb = config_option(verb)
    return _shared("--store", metavar="URL", help="Where circuits are [env: SWITCHGEAR_STORE].")(
        verb
    )


def give_color_option(verb: click.Command) -> None:
    """Whether there is colour: for a verb and all verbs below it."""
    text = "No colour (bold stays); the same as NO_COLOR=1."
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
        return value  # whoever keeps it replaces what is no text


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
    """`1h`, `2026-11-15T10:00` (local time unless it says) or a cursor of the stream."""
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
