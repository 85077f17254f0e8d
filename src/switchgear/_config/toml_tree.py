"""TOML to nodes with lines. `tomllib` gives values without places, so a scan finds the places.

The scan runs over text that `tomllib` has accepted and only has to find keys; should it ever lose
its way, the lines it has found so far are used and the others are those of their table.
"""

import contextlib
import datetime as dt
import re
import tomllib
from bisect import bisect_right
from typing import Any

from switchgear._config.problems import ConfigNode, Report, join

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[\w-]+", re.ASCII)
_BARE_VALUE = re.compile(r"[^,\]}#\r\n]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:\\.|[^"\\])*"|' r"'[^']*'", re.DOTALL
)
_AT_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_LARGEST = 2**63
_DEEPEST = 32
_TOO_DEEP = re.compile(
    r"""(?:^|[{,\[])[ \t]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){32}""", re.MULTILINE
)


def parse_toml(text: str, report: Report) -> ConfigNode:
    """The document as nodes. Syntax errors raise `ConfigError`."""
    if found := _TOO_DEEP.search(text):
        # Checked before parsing: such keys take tomllib hours.
        report.fail(text.count("\n", 0, found.end()) + 1, f"a key of more than {_DEEPEST} parts")
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # also numbers with too many digits
        found = _AT_LINE.search(str(error))
        line = None if found is None else int(found[1] or text.count("\n") + 1)
        report.fail(line, f"not valid TOML: {_without_place(str(error))}")
    except RecursionError:
        report.fail(None, "not valid TOML: nested too deep")
    if _is_deeper(data, _DEEPEST):
        report.fail(None, f"nested deeper than {_DEEPEST} levels")
    scan = _Scan(text)
    # Lines are a courtesy; what was found is used.
    with contextlib.suppress(LookupError, ValueError, RecursionError):
        scan.document()
    return _Tree(scan.lines, report).node(data, (), "", 1)


def _without_place(text: str) -> str:
    """The parser's message without the place, which stands in front."""
    return _AT_LINE.sub("", text).encode("ascii", "backslashreplace").decode()


def _is_deeper(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in value)


class _Tree:
    """Values and lines to nodes."""

    def __init__(self, lines: dict[Path, int], report: Report) -> None:
        self._lines = lines
        self._report = report

    def node(self, value: Any, path: Path, key: str, line: int) -> ConfigNode:
        """The value and all below it; what has no line of its own has that of its table."""
        line = self._lines.get(path, line)
        if isinstance(value, dict):
            value = {
                name: self.node(child, (*path, name), join(key, name), line)
                for name, child in value.items()
            }
        elif isinstance(value, list):
            value = [
                self.node(child, (*path, index), join(key, index), line)
                for index, child in enumerate(value)
            ]
        elif isinstance(value, dt.date | dt.time):
            value = value.isoformat()
        elif isinstance(value, int) and abs(value) >= _LARGEST:
            value = None
            self._report.add_unreadable(ConfigNode(value, line, key), "is too large a number")
        return ConfigNode(value, line, key)


class _Scan:
    """Finds the line of every key and item of a valid document."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._counts: dict[Path, int] = {}
        """How many tables each array of tables has so far."""

    def document(self) -> None:
        """Tables and entries, to the end."""
        table: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._entry(table)
            self._skip(_BLANK)

    def _header(self) -> Path:
        brackets = 2 if self._text.startswith("[[", self._at) else 1
        line = self._line()
        self._at += brackets
        *parents, last = self._keys()
        self._at += brackets
        path: Path = ()
        for name in parents:
            path = self._newest((*path, name), line)
        path = (*path, last)
        self.lines.setdefault(path, line)
        if brackets == 2:
            self._counts[path] = self._counts.get(path, 0) + 1
            path = self._newest(path, line)
        return path

    def _newest(self, path: Path, line: int) -> Path:
        """The table that a header means: of an array of tables, the last one."""
        self.lines.setdefault(path, line)
        count = self._counts.get(path)
        if count is None:
            return path
        path = (*path, count - 1)
        self.lines.setdefault(path, line)
        return path

    def _entry(self, table: Path) -> None:
        line = self._line()
        path = table
        for name in self._keys():
            path = (*path, name)
            self.lines.setdefault(path, line)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _keys(self) -> list[str]:
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            if self._text[self._at] in "\"'":
                quoted = self._take(_STRING)
                names.append(tomllib.loads(f"key = {quoted}")["key"])
            else:
                names.append(self._take(_BARE_KEY))
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _value(self, path: Path) -> None:
        first = self._text[self._at]
        if first == "[":
            self._many(path, "]")
        elif first == "{":
            self._many(path, "}")
        else:
            self._take(_STRING if first in "\"'" else _BARE_VALUE)

    def _many(self, path: Path, end: str) -> None:
        """The items of an array, or the entries of an inline table."""
        self._at += 1
        self._skip(_BLANK)
        index = 0
        while self._text[self._at] != end:
            if end == "]":
                self.lines[*path, index] = self._line()
                self._value((*path, index))
                index += 1
            else:
                self._entry(path)
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_BLANK)
        self._at += 1

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError
        self._at = found.end()
        return found[0]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        self._take(pattern)

    def _line(self) -> int:
        return bisect_right(self._ends, self._at - 1) + 1
