"""Parses TOML to nodes with lines. `tomllib` returns no lines, so each statement is parsed again alone."""

import contextlib
import datetime as dt
import re
import tomllib
from typing import Any

from switchgear._config.problems import ConfigNode, Report, join

Path = tuple[str | int, ...]

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
        # The report puts the line before the message.
        what = _AT_LINE.sub("", str(error)).encode("ascii", "backslashreplace").decode()
        report.fail(line, f"not valid TOML: {what}")
    except RecursionError:
        report.fail(None, "not valid TOML: nested too deep")
    if _is_deeper(data, _DEEPEST):
        report.fail(None, f"nested deeper than {_DEEPEST} levels")
    return _node(data, (), "", 1, _lines_of(text), report)


def _is_deeper(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in value)


def _node(  # noqa: PLR0917  a value and where it stands
    value: Any, path: Path, key: str, line: int, lines: dict[Path, int], report: Report
) -> ConfigNode:
    """The value and everything below it; a value without a line of its own has that of its table."""
    line = lines.get(path, line)
    if isinstance(value, dict | list):
        nodes = {
            name: _node(child, (*path, name), join(key, name), line, lines, report)
            for name, child in _children(value)
        }
        return ConfigNode(nodes if isinstance(value, dict) else [*nodes.values()], line, key)
    if isinstance(value, dt.date | dt.time):
        value = value.isoformat()
    elif isinstance(value, int) and abs(value) >= _LARGEST:
        value = None
        report.add_unreadable(ConfigNode(value, line, key), "is too large a number")
    return ConfigNode(value, line, key)


def _children(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _lines_of(text: str) -> dict[Path, int]:
    """The line on which each table, key and item of a valid document begins.

    Lines are added to a statement, or to an item of an array, until `tomllib` accepts them. For a very
    long text this would take too long, so the search ends early and later values have no lines.
    """
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    """The number of tables that each array of tables has so far."""
    table: Path = ()
    statement, first_line, effort = "", 1, 4 * len(text) + 1_000_000
    array, items, item, item_line = table, 0, "", 1
    for number, line in enumerate(text.split("\n"), 1):
        if not statement:
            first_line, array, items, item = number, (), 0, ""
        statement += f"{line}\n"
        if array:
            item += f"{line}\n"
            with contextlib.suppress(ValueError):
                more = len(tomllib.loads(f"x = [{item}]")["x"])
                lines.update({(*array, items + each): item_line for each in range(more)})
                items, item, item_line = items + more, "", number + 1
                continue
        effort -= len(statement)
        if effort < 0:
            break
        try:
            found = tomllib.loads(statement)
        except ValueError:
            if first_line == number:
                with contextlib.suppress(ValueError):  # the beginning of an array
                    array, first = _only_path(table, tomllib.loads(f"{statement}]"))
                    items, item_line = len(first), number + 1
            continue
        if statement.lstrip().startswith("["):
            names, last = _only_path((), found)
            table = ()
            for depth, name in enumerate(names, 1):
                table = (*table, name)
                lines.setdefault(table, first_line)
                if last and depth == len(names):  # [[name]]
                    counts[table] = counts.get(table, 0) + 1
                if table in counts:
                    table = (*table, counts[table] - 1)
                    lines.setdefault(table, first_line)
        else:
            _add_lines(found, table, first_line, lines)
        statement = ""
    return lines


def _only_path(path: Path, value: Any) -> tuple[Path, Any]:
    """The path and the value of a statement that has one value."""
    while isinstance(value, dict) and value:
        [(name, value)] = value.items()
        path = (*path, name)
    return path, value


def _add_lines(value: Any, path: Path, line: int, lines: dict[Path, int]) -> None:
    if isinstance(value, dict | list):
        for name, child in _children(value):
            below = (*path, name)
            _add_lines(child, below, lines.setdefault(below, line), lines)
