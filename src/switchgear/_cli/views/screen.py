"""The terminal: colour or none, wide or narrow, a person or a pipe behind it.

Everything is printed as `Text`, never as markup: a name such as `[red]` is only a name.
"""

import os
import re
from shutil import get_terminal_size

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

from switchgear._cli.options import given
from switchgear._cli.views.text import Signs, signs_for

NARROW = 64
"""Columns below which a line holds only the most important things."""
WIDE = 150
"""Columns from which the details stand in the same line."""


_UNIT = re.compile(r" (?:s|ms|min|h)\b")


class Screen:
    """Where lines are printed. Used by one thread."""

    def __init__(self) -> None:
        no_color = True if given("no_color") else None
        self.console = Console(
            highlight=False, markup=False, emoji=False, no_color=no_color, legacy_windows=False
        )
        self.signs: Signs = signs_for(self.console.file)

    @property
    def width(self) -> int | None:
        """Columns of the terminal; `None`: as many as it takes."""
        if self.console.is_terminal:
            # To rich a dumb terminal has 80 columns, whatever it has.
            dumb = self.console.is_dumb_terminal
            return max(get_terminal_size().columns if dumb else self.console.width, 20)
        told = os.environ.get("COLUMNS", "")
        return max(int(told), 20) if told.isdecimal() and int(told) else None

    def line(self, text: Text | str = "", indent: int = 0) -> None:
        """One line; what does not fit goes on below, indented."""
        for part in wrapped(text if isinstance(text, Text) else Text(text), self.width, indent):
            self.console.print(part, soft_wrap=True)


def wrapped(text: Text, width: int | None, indent: int) -> list[Text]:
    """A text in lines of that width; all but the first are indented."""
    if width is None or cell_len(text.plain) <= width:
        return [text]
    indent = min(indent, width * 2 // 3)
    lines: list[Text] = []
    left, room = text, width
    while cell_len(left.plain) > room:
        cut = _cut(left.plain, room)
        lines.append(_indented(left[:cut], indent if lines else 0))
        left = left[cut:]
        left = left[len(left.plain) - len(left.plain.lstrip(" ")) :]
        room = width - indent
    if left.plain or not lines:
        lines.append(_indented(left, indent if lines else 0))
    return lines


def fitted(text: str, width: int, signs: Signs) -> str:
    """A text in exactly so many columns; too long a one loses its middle, where names agree."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    dots = signs.dots if width > cell_len(signs.dots) + 1 else ""
    room = width - cell_len(dots)
    tail = _last_cells(text, room // 2)
    head = set_cell_size(text, room - cell_len(tail))
    return head + dots + tail


def _last_cells(text: str, width: int) -> str:
    start = len(text)
    while start and cell_len(text[start - 1 :]) <= width:
        start -= 1
    return text[start:]


def _cut(text: str, room: int) -> int:
    """Where to break: behind the last word that fits, or inside one that would leave a gap."""
    fits = len(chop_cells(text, room)[0])
    space = fits if text[fits : fits + 1] == " " else text.rfind(" ", 1, fits)
    while space > 0 and _UNIT.match(text, space) and text[space - 1].isdigit():
        space = text.rfind(" ", 1, space)  # "60" and "s" are one word to a reader
    return space if space > room // 3 and text[:space].strip() else max(fits, 1)


def _indented(text: Text, indent: int) -> Text:
    text = Text.assemble(" " * indent, text)
    text.rstrip()
    return text
