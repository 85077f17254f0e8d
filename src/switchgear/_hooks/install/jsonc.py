"""JSON with comments, read with the place of every value: so that settings are edited as text.

A parser that forgets comments, order and spacing cannot give a file back as its owner wrote it.
This one keeps nothing but positions; what is inserted or cut is decided in `edit.py`.
"""

import json
import re
from typing import Any, NamedTuple

DEEPEST = 100
"""Nested values beyond any settings by hand."""
_SPACE = re.compile(r"[ \t\r\n]*")
_LINE_COMMENT = re.compile(r"//[^\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


class NotJson(ValueError):
    """A text that cannot be read: `why`, and where (`line` and `column` count from 1)."""

    def __init__(self, text: str, at: int, why: str) -> None:
        before = text[:at]
        self.why = why
        self.line = before.count("\n") + 1
        self.column = at - (before.rfind("\n") + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {why}")


class Item(NamedTuple):
    """A value in an array, or a key with its value in an object."""

    start: int
    """Where it begins: at its key, if it has one."""
    node: "JsonNode"
    key: str = ""
    comma: int | None = None
    """Where the comma is that parts it from the one before; `None`: it is the first."""


class JsonNode(NamedTuple):
    """A value and its place in the text."""

    start: int
    end: int
    kind: str
    """`object`, `array` or `scalar`."""
    scalar: Any = None
    items: tuple[Item, ...] = ()
    settled: int = 0
    """Of an object or array: behind the last thing inside it that is more than space."""

    @property
    def value(self) -> Any:
        """As Python has it; of keys that come twice the last one counts, as for all agents."""
        if self.kind == "object":
            return {item.key: item.node.value for item in self.items}
        if self.kind == "array":
            return [item.node.value for item in self.items]
        return self.scalar

    def get(self, key: str) -> "Item | None":
        """The member of an object that counts, or `None`."""
        found = [item for item in self.items if item.key == key and self.kind == "object"]
        return found[-1] if found else None


def parse(text: str, *, comments: bool = True) -> JsonNode:
    """The one value that a text holds. Raises `NotJson`.

    >>> parse('{"a": 1} // as it should be').get("a").node.value
    1
    """
    scanner = _Scanner(text, comments=comments)
    start = scanner.skip(0).at
    node = scanner.value(start, 0)
    rest = scanner.skip(node.end).at
    if rest != len(text):
        raise NotJson(text, rest, "there is more behind the end of the value")
    return node


class _Skipped(NamedTuple):
    at: int
    """Where something begins that is neither space nor comment."""
    settled: int
    """Behind the last comment; where the skipping began, if there was none."""


class _Scanner:
    """Reads one text. Used by one thread, once."""

    def __init__(self, text: str, *, comments: bool) -> None:
        self.text = text
        self.comments = comments

    def skip(self, at: int) -> _Skipped:
        settled = at
        while True:
            match = _SPACE.match(self.text, at)
            at = at if match is None else match.end()
            if not self.text.startswith(("//", "/*"), at):
                return _Skipped(at, settled)
            at = settled = self.comment(at)

    def comment(self, at: int) -> int:
        """Where the comment ends that begins here."""
        if not self.comments:
            raise NotJson(self.text, at, "there is a comment")
        line = _LINE_COMMENT.match(self.text, at)
        if line is not None:
            return line.end()
        end = self.text.find("*/", at + 2)
        if end < 0:
            raise NotJson(self.text, at, "a comment does not end")
        return end + 2

    def value(self, at: int, depth: int) -> JsonNode:
        if depth > DEEPEST:
            raise NotJson(self.text, at, f"values are nested more than {DEEPEST} deep")
        first = self.text[at : at + 1]
        if first == "{":
            return self.container(at, "object", "}", depth)
        if first == "[":
            return self.container(at, "array", "]", depth)
        pattern = _STRING if first == '"' else _SCALAR
        match = pattern.match(self.text, at)
        if match is None:
            raise NotJson(self.text, at, self.surprise(at, "a value"))
        try:
            scalar = json.loads(match[0])
        except ValueError as error:  # a number with more digits than Python takes
            raise NotJson(self.text, at, str(error)) from None
        return JsonNode(at, match.end(), "scalar", scalar)

    def container(self, start: int, kind: str, closing: str, depth: int) -> JsonNode:
        items: list[Item] = []
        at, settled = self.skip(start + 1)
        comma: int | None = None
        while not (self.text.startswith(closing, at) and comma is None):
            item = self.item(at, comma, kind, depth)
            items.append(item)
            at, settled = self.skip(item.node.end)
            comma = at if self.text.startswith(",", at) else None
            if comma is not None:
                at, settled = self.skip(at + 1)
            elif not self.text.startswith(closing, at):
                raise NotJson(self.text, at, self.surprise(at, f"',' or '{closing}'"))
        return JsonNode(start, at + 1, kind, items=tuple(items), settled=settled)

    def item(self, at: int, comma: int | None, kind: str, depth: int) -> Item:
        if kind == "array":
            return Item(at, self.value(at, depth + 1), comma=comma)
        match = _STRING.match(self.text, at)
        if match is None:
            raise NotJson(self.text, at, self.surprise(at, "a key in double quotes"))
        colon = self.skip(match.end()).at
        if not self.text.startswith(":", colon):
            raise NotJson(self.text, colon, self.surprise(colon, "':'"))
        value = self.value(self.skip(colon + 1).at, depth + 1)
        return Item(at, value, json.loads(match[0]), comma)

    def surprise(self, at: int, wanted: str) -> str:
        sign = self.text[at : at + 1]
        return f"{sign!r} is there instead of {wanted}" if sign else f"it ends before {wanted}"


def line_indent(text: str, at: int) -> str:
    r"""The space at the beginning of the line that holds this place.

    >>> line_indent("{\n    x", 7)
    '    '
    """
    start = text.rfind("\n", 0, at) + 1
    match = re.compile(r"[ \t]*").match(text, start)
    return "" if match is None else match[0]


def ends_in_line_comment(gap: str) -> bool:
    """Whether the last thing between two values is a comment that the end of its line ends.

    >>> ends_in_line_comment(" // so"), ends_in_line_comment(" /* // so */")
    (True, False)
    """
    found = [match for match in _COMMENT.finditer(gap) if match.end() == len(gap)]
    return bool(found) and found[-1][0].startswith("//")
