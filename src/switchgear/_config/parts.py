"""Builds detectors, recovery rules, combine rules and sinks from nodes, by the registries alone.

No detector is named here: its keys are the arguments of its constructor, which also checks the values.
A new detector is configurable as soon as it is registered.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from switchgear._config.problems import ConfigNode, Report, key_of, shown, suggestion

T = TypeVar("T")

_BLAMED = re.compile(
    r"(?P<owner>\w+)\.(?P<field>\w+)(?:\['(?P<item>[^']*)'\])? (?P<rest>.*)", re.DOTALL
)
REMOVED = {
    "stuck_probability": "the trained model was removed: on sources that it was not trained on, it "
    "did not beat the preset 'default'; use 'stagnation' instead"
}
"""Kinds that older configuration files may still name, and what to use instead."""
REQUIRED: Any = object()
"""Marks a field without a default."""


class Field(NamedTuple):
    default: Any
    annotation: Any

    @property
    def is_mapping(self) -> bool:
        """Whether its value is a mapping; else it is a single value."""
        return "Mapping" in str(self.annotation)


@lru_cache
def fields_of(kind: Callable[..., Any]) -> dict[str, Field]:
    """The fields of a part: the arguments of its constructor, in order."""
    import inspect  # noqa: PLC0415  slow to import, and not needed without a configuration

    arguments = inspect.signature(kind).parameters.values()
    # In Python money may be given as a text instead; in a file its unit is in the key.
    texts = {argument.name for argument in arguments if "Money" in str(argument.annotation)}
    required = {f"{name}_micros" for name in texts}
    return {
        argument.name: Field(REQUIRED, int)
        if argument.name in required and argument.default is None
        else Field(
            REQUIRED if argument.default is argument.empty else argument.default,
            argument.annotation,
        )
        for argument in arguments
        if argument.kind not in {argument.VAR_POSITIONAL, argument.VAR_KEYWORD}
        and argument.name not in texts
    }


def kind_and_fields(
    node: ConfigNode, kinds: Mapping[str, Any], report: Report
) -> tuple[str, ConfigNode] | None:
    """The kind of a part and its value: `latched` or `cooldown: {base_s: 60}`."""
    allowed = ", ".join(sorted(kinds))
    if isinstance(node.value, str):
        name, inner = node.value, ConfigNode({}, node.line, node.key)
    elif isinstance(node.value, dict) and len(node.value) == 1:
        [(name, inner)] = node.value.items()
    elif isinstance(node.value, dict) and node.value:
        names = ", ".join(map(shown, node.value))
        report.add(node, f"has {len(node.value)} keys, {names}: it must have one of {allowed}")
        return None
    else:
        report.add(node, f"is {shown(node.value)}: it must be one of {allowed}")
        return None
    if name not in kinds:
        why = REMOVED.get(name) or f"unknown kind {shown(name)}; {suggestion(name, kinds)}"
        report.add(inner, why)
        return None
    return name, inner


def build_part(
    node: ConfigNode,
    kinds: Mapping[str, Callable[..., T]],
    report: Report,
    prepare: Callable[[str, ConfigNode], Any] | None = None,
) -> T | None:
    """The part that a node describes; `None` if it has problems, which are reported.

    `prepare` turns the text of a field into the constructor's argument, such as a path.
    """
    found = kind_and_fields(node, kinds, report)
    if found is None:
        return None
    name, inner = found
    before = report.added
    fields = fields_of(kinds[name])
    nodes = report.mapping(inner, fields)
    given: dict[str, Any] = {}
    for field, child in nodes.items():
        if fields[field].is_mapping != isinstance(child.value, dict) or child.value == []:
            must = "a mapping" if fields[field].is_mapping else "a single value"
            report.add(child, f"is {shown(child.value)}: it must be {must}")
        elif isinstance(child.value, list):
            report.add(child, "is a list: it must be a single value")
        elif prepare is not None and isinstance(child.value, str):
            prepared = prepare(field, child)
            if prepared is not None:  # otherwise the problem has been reported
                given[field] = prepared
        else:
            given[field] = child.plain()
    needed = [field for field, (default, _) in fields.items() if default is REQUIRED]
    for field in needed:
        if field not in nodes:
            report.add(inner, f"{name} needs the key {key_of(field)!r}")
    if not given.keys() >= set(needed):  # the missing keys have been reported
        return None
    part = construct(kinds[name], given, nodes, inner, report)
    return part if report.added == before else None


def construct(
    make: Callable[..., T],
    given: dict[str, Any],
    nodes: Mapping[str, ConfigNode],
    place: ConfigNode,
    report: Report,
    *,
    instead: Mapping[str, Any] | None = None,
) -> T | None:
    """Call a constructor and report its errors at the keys that they name; returns `None` then.

    A constructor raises for one field at a time. The field is then left out, or replaced by its value
    in `instead`, and the constructor is called again, so that all problems are reported together.
    """
    arguments = dict(given)
    left_out: list[str] = []
    failed = False
    while True:
        try:
            made = make(**arguments)
        except (ValueError, TypeError, OverflowError) as error:
            if failed and isinstance(error, TypeError):
                return None  # a required field was left out
            failed = True
            blamed = _BLAMED.fullmatch(str(error))
            if any(re.search(rf"\b{field}\b", str(error)) for field in left_out):
                return None  # the error is about a default of a field that was left out
            _report_objection(str(error), blamed, nodes, place, report)
            if blamed is None or blamed["field"] not in arguments:
                return None
            left_out.append(blamed["field"])
            del arguments[blamed["field"]]
            if instead is not None and blamed["field"] in instead:
                arguments[blamed["field"]] = instead[blamed["field"]]
        else:
            return None if failed else made


def _report_objection(
    message: str,
    blamed: re.Match[str] | None,
    nodes: Mapping[str, ConfigNode],
    place: ConfigNode,
    report: Report,
) -> None:
    """Report an error at the key of the field that it names, or else at the part."""
    if blamed is None or blamed["field"] not in nodes:
        report.add(place, message)
        return
    node, name = nodes[blamed["field"]], blamed["field"]
    if blamed["item"] is not None and isinstance(node.value, dict) and blamed["item"] in node.value:
        node, name = node.value[blamed["item"]], blamed["item"]
    # A key before the message already names the field, unless the message is about the whole part.
    if node.key.endswith((name, key_of(name))):
        message = blamed["rest"]
        for field in nodes:  # the names of other fields are those of the file
            if key_of(field) != field:
                key = nodes[field].key.rpartition(".")[2]
                message = re.sub(rf"\b{field}\b", key or field, message)
    report.add(node, message)
