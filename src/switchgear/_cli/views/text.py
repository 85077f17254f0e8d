"""Text for the terminal: escaping, wrapping, times, and the symbols that the views draw.

Names, errors and reasons come from agents and providers. Characters that are not printable are shown
as escapes, so that a terminal does not interpret them.
"""

import math
import os
import sys
import textwrap
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import IO, NamedTuple

LONGEST = 400
"""How many characters of a string are shown by default."""


class Signs(NamedTuple):
    """The symbols that the views draw."""

    closed: str
    half_open: str
    open: str
    full: str
    empty: str
    arrow: str
    corner: str
    dots: str
    dot: str
    good: str
    bad: str


UNICODE = Signs("●", "◐", "○", "█", "░", "→", "└", "…", "·", "✓", "✗")
ASCII = Signs("*", "~", "o", "#", ".", "->", "-", "...", "-", "ok", "x")


def signs_for(stream: IO[str] | None = None) -> Signs:
    """The symbols that a stream can encode; default: standard output."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "ascii"
    try:
        "".join(UNICODE).encode(encoding)
    except (UnicodeError, LookupError):
        return ASCII
    return UNICODE


def clean(text: str, longest: int = LONGEST) -> str:
    r"""One line that a terminal only shows: control characters and the like as escapes.

    >>> clean("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    if len(text) > longest:  # cut after a word if possible
        space = text.rfind(" ", longest // 2, longest - 2)
        text = text[: space if space > 0 else longest - 3].rstrip(" ,;:") + "..."
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def say(text: str | None, *, err: bool = False) -> None:
    """Print a line and flush it, in the encoding of the stream: `click.echo` would send UTF-8 to ASCII terminals."""
    print(text, file=sys.stderr if err else sys.stdout, flush=True)


def warn(text: str) -> None:
    """Print a line about a problem on standard error; the command continues."""
    say(clean(f"switchgear: {text}", 2000), err=True)


def say_lines(text: str) -> None:
    """Print lines on standard error; at a terminal, long ones are wrapped between words."""
    width = get_terminal_size().columns if sys.stderr.isatty() else 0
    for line in text.splitlines():
        if not width or len(line) <= width:
            say(line, err=True)
            continue
        indent = "  " if line.startswith("- ") else ""
        for part in textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ):
            say(part, err=True)


def typed(text: str) -> str:
    """An argument decoded as UTF-8: in an ASCII locale, Python replaces its bytes by surrogates.

    Raises UnicodeError for bytes that are not UTF-8.
    """
    has_surrogates = any("\udc80" <= sign <= "\udcff" for sign in text)
    return os.fsencode(text).decode() if has_surrogates else text


def words(value: str) -> str:
    """`half_open` as a person writes it: `half-open`; `held_open`: `held open`."""
    return "half-open" if value == "half_open" else value.replace("_", " ")


def clock_time(at_s: float, now_s: float) -> str:
    """Local time: `10:02:30`; with the date if it is not today."""
    try:
        at, now = _local_time(at_s), _local_time(now_s)
    except (OverflowError, OSError, ValueError):
        return f"second {at_s:.0f}"
    form = "%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S"
    return at.strftime(form)


def _local_time(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC).astimezone()


def bar(heat: float, width: int, signs: Signs) -> str:
    """A heat as a bar: full only at a trip, and not empty above 0."""
    share = min(max(heat, 0.0), 1.0)
    filled = min(math.ceil(share * width), width if share >= 1.0 else width - 1)
    return signs.full * filled + signs.empty * (width - filled)


def plural(count: int, noun: str) -> str:
    """`1 circuit`, `1,200 circuits`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
