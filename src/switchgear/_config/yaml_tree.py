"""Parses YAML to nodes with lines. Import it only for a YAML file, because importing PyYAML is slow.

The safe loader's graph of nodes is walked here, because it has lines and duplicate keys, and because
aliases can be counted before they multiply.
"""

from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from switchgear._config.problems import ConfigNode, Report, join, shown

DEEPEST = 32
LARGEST = 2**63
_TAG = "tag:yaml.org,2002:"
_TEXTS = {_TAG + "str", _TAG + "timestamp", _TAG + "value"}
_SCALARS = {_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"}


class _Loader(yaml.SafeLoader):
    """Stops at a depth that no configuration needs, before Python's stack overflows."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {DEEPEST} levels",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def parse_yaml(text: str, report: Report, most_values: int) -> ConfigNode:
    """The document as nodes. Syntax errors raise `ConfigError`; duplicate keys are reported."""
    try:
        root = yaml.compose(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        if what == "mapping values are not allowed here":
            what += "; a text that has ': ' in it or ends in a colon needs quotes"
        report.fail(None if mark is None else mark.line + 1, f"not valid YAML: {what}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        report.fail(line, f"not valid YAML: the character {text[error.position]!a}")
    except Exception as error:  # noqa: BLE001  the parser has defects on hostile text
        report.fail(None, f"not valid YAML: {shown(str(error))}")
    return (
        ConfigNode(None)
        if root is None
        else _Walk(report, most_values).walk(root, root.start_mark.line + 1, "", 0)
    )


class _Walk:
    """Turns the graph into a tree, and limits the number of values."""

    def __init__(self, report: Report, most_values: int) -> None:
        self._report = report
        self._most_values = self._left = most_values
        self._constructor = SafeConstructor()

    def walk(self, node: yaml.Node, line: int, key: str, depth: int) -> ConfigNode:
        self._left -= 1
        if self._left < 0:
            self._report.fail(line, f"more than {self._most_values} values, with aliases expanded")
        if depth > DEEPEST:
            self._report.fail(line, f"nested deeper than {DEEPEST} levels, with aliases expanded")
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return ConfigNode(self._entries(node, key, depth), line, key)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            items = [
                self.walk(item, item.start_mark.line + 1, join(key, index), depth + 1)
                for index, item in enumerate(node.value)
            ]
            return ConfigNode(items, line, key)
        return ConfigNode(self._scalar(node, line, key), line, key)

    def _entries(self, node: MappingNode, key: str, depth: int) -> dict[str, ConfigNode]:
        own: dict[str, ConfigNode] = {}
        merged: dict[str, ConfigNode] = {}
        for name_node, value in node.value:
            line = name_node.start_mark.line + 1
            if name_node.tag == _TAG + "merge":
                merged = {**self._merge_anchors(value, line, key, depth + 1), **merged}
                continue
            name = self._name(name_node, line, key)
            if name is None:
                continue
            child = self.walk(value, line, join(key, name), depth + 1)
            if name in own:
                self._report.add(child, f"duplicate key; it is already in line {own[name].line}")
            own.setdefault(name, child)
        return {**merged, **own}

    def _merge_anchors(
        self, node: yaml.Node, line: int, key: str, depth: int
    ) -> dict[str, ConfigNode]:
        """The entries that `<<: *anchor` or `<<: [*one, *other]` merges; the first mapping wins."""
        sources = node.value if isinstance(node, SequenceNode) else [node]
        found: dict[str, ConfigNode] = {}
        for source in sources:
            tree = self.walk(source, line, key, depth)
            for name, child in self._report.mapping(tree).items():
                found.setdefault(name, child)
        return found

    def _name(self, node: yaml.Node, line: int, key: str) -> str | None:
        if isinstance(node, ScalarNode) and node.tag in _TEXTS:
            return str(node.value)
        text = shown(node.value) if isinstance(node, ScalarNode) else "a list or mapping"
        place = ConfigNode(None, line, key)
        self._report.add(place, f"the key {text} is not a text; put it in quotes")
        return None

    def _scalar(self, node: yaml.Node, line: int, key: str) -> Any:
        place = ConfigNode(None, line, key)
        if not isinstance(node, ScalarNode) or node.tag not in _TEXTS | _SCALARS:
            self._report.fail(line, f"the tag {shown(node.tag)} is not allowed")
        if node.tag in _TEXTS:
            if any("\ud800" <= char <= "\udfff" for char in node.value):
                self._report.add_unreadable(place, f"{node.value!a} has half of a surrogate pair")
                return None
            return node.value
        try:
            value = self._constructor.construct_object(node)
        except (ValueError, KeyError, IndexError, yaml.YAMLError):
            self._report.add_unreadable(
                place, f"{shown(node.value)} is not a value that can be read"
            )
            return None
        if isinstance(value, int) and abs(value) >= LARGEST:
            self._report.add_unreadable(place, "is too large a number")
            return None
        return value
