"""Inserts and removes the Switchgear entries in the text of settings; the rest of the text is unchanged.

The settings of every agent with hooks contain
`{"hooks": {EVENT: [{"matcher": …, "hooks": [{"type": "command", "command": …}]}]}}`. The inserted text begins
directly after text of the user and has nothing after its last character, so removing it restores the original.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

MAX_DEPTH = 100
"""Maximum levels of nesting; handwritten settings have far fewer."""
_SPACE = re.compile(r"[ \t\r\n]*")
_LINE_COMMENT = re.compile(r"//[^\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


class NotJson(ValueError):
    """A text that is not valid JSON: `why`, and where (`line` and `column` count from 1)."""

    def __init__(self, text: str, at: int, why: str) -> None:
        before = text[:at]
        self.why = why
        self.line = before.count("\n") + 1
        self.column = at - (before.rfind("\n") + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {why}")


class Item(NamedTuple):
    """A value in an array, or a key with its value in an object."""

    start: int
    """The position of its first character, which is that of the key if it has one."""
    node: "JsonNode"
    key: str = ""
    comma: int | None = None
    """The position of the comma before it; `None`: the first item."""


class JsonNode(NamedTuple):
    """A value and its position in the text."""

    start: int
    end: int
    kind: str
    """`object`, `array` or `scalar`."""
    scalar: Any = None
    items: tuple[Item, ...] = ()
    content_end: int = 0
    """In an object or array: the position after its last item or comment."""

    @property
    def value(self) -> Any:
        """The value in Python; of repeated keys the last one counts, as for all agents."""
        if self.kind == "object":
            return {item.key: item.node.value for item in self.items}
        if self.kind == "array":
            return [item.node.value for item in self.items]
        return self.scalar

    def get(self, key: str) -> "Item | None":
        """The member of an object with this key, the last one if it is repeated; else `None`."""
        found = [item for item in self.items if item.key == key and self.kind == "object"]
        return found[-1] if found else None


def parse(text: str, *, comments: bool = True) -> JsonNode:
    """The JSON value in a text. Raises `NotJson`.

    >>> parse('{"a": 1} // the first letter').get("a").node.value
    1
    """
    scanner = _Scanner(text, comments=comments)
    start, _ = scanner.skip(0)
    node = scanner.value(start, 0)
    rest, _ = scanner.skip(node.end)
    if rest != len(text):
        raise NotJson(text, rest, "there is text after the end of the value")
    return node


class _Scanner:
    """Reads one text. Used by one thread, once."""

    def __init__(self, text: str, *, comments: bool) -> None:
        self.text = text
        self.comments = comments

    def skip(self, at: int) -> tuple[int, int]:
        """The position after spaces and comments, and the end of the last comment."""
        content_end = at
        while True:
            match = _SPACE.match(self.text, at)
            at = at if match is None else match.end()
            if not self.text.startswith(("//", "/*"), at):
                return at, content_end
            at = content_end = self.comment(at)

    def comment(self, at: int) -> int:
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
        if depth > MAX_DEPTH:
            raise NotJson(self.text, at, f"values are nested more than {MAX_DEPTH} deep")
        first = self.text[at : at + 1]
        if first == "{":
            return self.container(at, "object", "}", depth)
        if first == "[":
            return self.container(at, "array", "]", depth)
        pattern = _STRING if first == '"' else _SCALAR
        match = pattern.match(self.text, at)
        if match is None:
            raise NotJson(self.text, at, self.unexpected(at, "a value"))
        try:
            scalar = json.loads(match[0])
        except ValueError as error:  # a number with more digits than Python accepts
            raise NotJson(self.text, at, str(error)) from None
        return JsonNode(at, match.end(), "scalar", scalar)

    def container(self, start: int, kind: str, closing: str, depth: int) -> JsonNode:
        items: list[Item] = []
        at, content_end = self.skip(start + 1)
        comma: int | None = None
        while not (self.text.startswith(closing, at) and comma is None):
            item = self.item(at, comma, kind, depth)
            items.append(item)
            at, content_end = self.skip(item.node.end)
            comma = at if self.text.startswith(",", at) else None
            if comma is not None:
                at, content_end = self.skip(at + 1)
            elif not self.text.startswith(closing, at):
                raise NotJson(self.text, at, self.unexpected(at, f"',' or '{closing}'"))
        return JsonNode(start, at + 1, kind, items=tuple(items), content_end=content_end)

    def item(self, at: int, comma: int | None, kind: str, depth: int) -> Item:
        if kind == "array":
            return Item(at, self.value(at, depth + 1), comma=comma)
        match = _STRING.match(self.text, at)
        if match is None:
            raise NotJson(self.text, at, self.unexpected(at, "a key in double quotes"))
        colon, _ = self.skip(match.end())
        if not self.text.startswith(":", colon):
            raise NotJson(self.text, colon, self.unexpected(colon, "':'"))
        value = self.value(self.skip(colon + 1)[0], depth + 1)
        return Item(at, value, json.loads(match[0]), comma)

    def unexpected(self, at: int, expected: str) -> str:
        sign = self.text[at : at + 1]
        return f"expected {expected}, found {repr(sign) if sign else 'the end'}"


def line_indent(text: str, at: int) -> str:
    r"""The indentation of the line that contains this position.

    >>> line_indent("{\n    x", 7)
    '    '
    """
    start = text.rfind("\n", 0, at) + 1
    match = re.compile(r"[ \t]*").match(text, start)
    return "" if match is None else match[0]


def ends_in_line_comment(gap: str) -> bool:
    """Whether the text between two values ends with a `//` comment.

    >>> ends_in_line_comment(" // so"), ends_in_line_comment(" /* // so */")
    (True, False)
    """
    found = [match for match in _COMMENT.finditer(gap) if match.end() == len(gap)]
    return bool(found) and found[-1][0].startswith("//")


HOOKS = "hooks"
Group = dict[str, Any]
IsOurs = Callable[[str], bool]
Containers = dict[str, str | None]
"""The containers that were empty before the insertion, by path: their text, or `None` if they were created."""


class WrongShape(ValueError):
    """Settings whose hooks have a form that no agent accepts."""


class FoundHook(NamedTuple):
    event: str
    command: str
    group: Mapping[str, Any]
    """The group that contains it: the matcher and all its commands."""


class _HookPosition(NamedTuple):
    """One hook in the settings, with everything that contains it."""

    root: JsonNode
    hooks: Item
    event: Item
    inner: JsonNode
    """The list of hooks in its group."""
    group: int
    hook: int
    command: str


def find(text: str, ours: IsOurs, *, comments: bool = True) -> list[FoundHook]:
    """The Switchgear commands, in the order of the text. Raises `NotJson`, `WrongShape`.

    `comments`: whether the agent accepts comments; if not, they are an error.
    """
    found = []
    for position in _hook_positions(parse(text, comments=comments)):
        if ours(position.command):
            group = position.event.node.items[position.group].node.value
            found.append(FoundHook(position.event.key, position.command, group))
    return found


def insert(text: str, groups: Mapping[str, Group]) -> tuple[str, Containers]:
    """The text with a group for each event, and the containers that were empty. Raises `NotJson`, `WrongShape`."""
    lists = {event: [group] for event, group in groups.items()}
    all_containers: Containers = {HOOKS: None, **{f"{HOOKS}.{event}": None for event in groups}}
    if not text.strip():
        return text + json.dumps(
            {HOOKS: lists}, indent=2, ensure_ascii=False
        ) + "\n", all_containers
    root = parse(text)
    if _hooks_item(root) is None:
        inside = {} if root.items else {"": text[root.start + 1 : root.end - 1]}
        return _append_item(text, root, root, lists, HOOKS), {**all_containers, **inside}
    containers: Containers = {}
    for event, group in groups.items():
        text = _insert_one(text, event, group, containers)
    return text, containers


def _insert_one(text: str, event: str, group: Group, containers: Containers) -> str:
    root = parse(text)
    hooks = cast("Item", _hooks_item(root))  # checked by `insert`
    event_item = _event_item(hooks.node, event)
    path = f"{HOOKS}.{event}"
    target = hooks.node if event_item is None else event_item.node
    if not target.items:
        containers[HOOKS if event_item is None else path] = text[target.start + 1 : target.end - 1]
    if event_item is not None:
        return _append_item(text, root, target, group)
    containers[path] = None
    return _append_item(text, root, target, [group], event)


def cut(text: str, ours: IsOurs, containers: Containers | None = None) -> str:
    """The text without the Switchgear commands, and without the containers that become empty.

    `containers` is what `insert` returned; without it, everything that becomes empty is removed.
    """
    while True:
        position = next((each for each in _hook_positions(parse(text)) if ours(each.command)), None)
        if position is None:
            return text
        text = _cut_one(text, position, containers)


def _hooks_item(root: JsonNode) -> Item | None:
    if root.kind != "object":
        raise WrongShape("the settings must be an object: { … }")
    found = root.get(HOOKS)
    if found is not None and found.node.kind != "object":
        raise WrongShape('"hooks" must be an object: { "EVENT": [ … ] }')
    return found


def _event_item(hooks: JsonNode, event: str) -> Item | None:
    found = hooks.get(event)
    if found is not None and found.node.kind != "array":
        raise WrongShape(f'"hooks" has {json.dumps(event)}, and it must be an array: [ … ]')
    return found


def _hook_positions(root: JsonNode) -> Iterator[_HookPosition]:
    """Every hook with a command. Values of another form belong to the user and are skipped."""
    hooks = _hooks_item(root)
    if hooks is None:
        return
    for event in hooks.node.items:
        if event is not hooks.node.get(event.key):
            continue  # a repeated key: agents use only the last one
        for number, group in enumerate(event.node.items):
            inner = group.node.get(HOOKS)
            if event.node.kind != "array" or inner is None or inner.node.kind != "array":
                continue
            for index, hook in enumerate(inner.node.items):
                command = hook.node.get("command")
                if command is not None and isinstance(command.node.scalar, str):
                    text = command.node.scalar
                    yield _HookPosition(root, hooks, event, inner.node, number, index, text)


def _append_item(
    text: str, root: JsonNode, target: JsonNode, value: Any, key: str | None = None
) -> str:
    """The text with one more item at the end of an object or array."""
    last = target.items[-1] if target.items else None
    if _is_flat(text, root, target):
        item = _in_line(text, root, value, key)
        item = item if last is None or ": " not in text[root.start : root.end] else f" {item}"
    else:
        item = _on_lines(text, root, target, value, key)
    if last is None:
        return text[: target.content_end] + item + text[target.content_end :]
    end = last.node.end
    return text[:end] + "," + text[end : target.content_end] + item + text[target.content_end :]


def _in_line(text: str, root: JsonNode, value: Any, key: str | None) -> str:
    colon, comma = (": ", ", ") if ": " in text[root.start : root.end] else (":", ",")
    label = "" if key is None else json.dumps(key) + colon
    return label + json.dumps(value, ensure_ascii=False, separators=(comma, colon))


def _on_lines(text: str, root: JsonNode, target: JsonNode, value: Any, key: str | None) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    unit, own = _item_indent(text, root) or "  ", _item_indent(text, target)
    indent = newline + (line_indent(text, target.start) + unit if own is None else own)
    label = "" if key is None else json.dumps(key) + ": "
    body = json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", indent)
    rest = text[target.content_end : target.end - 1]
    behind = "" if target.items or "\n" in rest else newline + line_indent(text, target.start)
    return f"{indent}{label}{body}{behind}"


def _is_flat(text: str, root: JsonNode, target: JsonNode) -> bool:
    """Whether the items are on one line; those of an empty container are if the whole text is."""
    if target.items:
        return "\n" not in text[target.start : target.end]
    return bool(root.items) and "\n" not in text[root.start : root.end]


def _item_indent(text: str, node: JsonNode) -> str | None:
    """The indentation of the first item that begins a line; `None`: no item does."""
    for item in node.items:
        before = text[: item.start].rpartition("\n")[2]
        if not before.strip(" \t"):
            return before
    return None


def _cut_one(text: str, position: _HookPosition, containers: Containers | None) -> str:
    """Remove one hook, or the largest container around it that contains nothing else."""
    filled = containers or {}
    path, event, hooks = f"{HOOKS}.{position.event.key}", position.event, position.hooks
    if not _has_one_item(text, position.inner):
        return _without_item(text, position.inner, position.hook)
    if not _has_one_item(text, event.node) or _was_there(containers, path):
        return _without_item(text, event.node, position.group, filled.get(path))
    if not _has_one_item(text, hooks.node) or _was_there(containers, HOOKS):
        return _without_item(text, hooks.node, hooks.node.items.index(event), filled.get(HOOKS))
    return _without_item(text, position.root, position.root.items.index(hooks), filled.get(""))


def _was_there(containers: Containers | None, path: str) -> bool:
    """Whether an empty container was there before the insertion, so that it stays."""
    return containers is not None and containers.get(path, "") is not None


def _has_one_item(text: str, node: JsonNode) -> bool:
    """Whether a container has exactly one item and no comment."""
    return len(node.items) == 1 and not _text_around(text, node).strip()


def _text_around(text: str, node: JsonNode) -> str:
    item = node.items[0]
    return text[node.start + 1 : item.start] + text[item.node.end : node.end - 1]


def _without_item(text: str, node: JsonNode, index: int, inside: str | None = None) -> str:
    """The text without an item, its comma and the space before it.

    `inside` is the original text between the brackets of the empty container.
    """
    if len(node.items) == 1 and _text_around(text, node).split() == (inside or "").split():
        return text[: node.start + 1] + (inside or "") + text[node.end - 1 :]
    item = node.items[index]
    follower = node.items[index + 1].comma if index + 1 < len(node.items) else None
    behind = item.node.end if follower is None else follower + 1
    rest = text[item.node.end : follower or behind] + text[behind:]
    begin = node.start + 1 if item.comma is None else item.comma + 1
    gap = text[begin : item.start]
    stripped = gap.rstrip(" \t\r\n")
    if ends_in_line_comment(stripped) and not rest.lstrip(" \t").startswith(("\r", "\n")):
        stripped = gap  # keeps the end of the line: the next item would become part of the comment
    if item.comma is not None and follower is None:
        return text[: item.comma] + stripped + rest
    return text[:begin] + stripped + rest
