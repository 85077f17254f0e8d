"""The `rules` section: which built-in rules hold, what excuses from them, and the user's own."""

from typing import Any

from switchgear._config.model import RuleBook
from switchgear._config.parts import construct
from switchgear._config.problems import Node, Report, shown, suggestion
from switchgear._rules.builtin import BUILTIN
from switchgear._rules.patterns import LONGEST_PATTERN
from switchgear._rules.rules import ALLOWED, ASPECTS, Rule

SECTION_KEYS = ("builtin", "allow", "protected", "own")
RULE_KEYS = ("name", "why", *ASPECTS, "allow")


def build_rules(node: Node, report: Report) -> RuleBook:
    """The rules that hold, the built-in ones first; nothing at all leaves the built-in ones."""
    keys = report.mapping(node, SECTION_KEYS)
    groups = _groups(keys.get("builtin"), report)
    excuses = {
        name: _allow(child, report)
        for name, child in report.mapping(keys.get("allow", Node(None)), BUILTIN).items()
    }
    for name in excuses:
        if name not in groups:
            place = keys["allow"].value[name]
            report.add(place, f"excuses from the built-in rules {shown(name)}, which are off")
    rules = [
        rule.replace(**_joined(rule, excuses.get(group, {})))
        for group in groups
        for rule in BUILTIN[group]
    ]
    rules += _own(keys.get("own", Node(None)), {rule.name for rule in rules}, report)
    return RuleBook(tuple(rules), _patterns(keys.get("protected"), report))


def _groups(node: Node | None, report: Report) -> tuple[str, ...]:
    if node is None or node.value is None:
        return tuple(BUILTIN)
    names: list[str] = []
    for item in report.items(node):
        if not isinstance(item.value, str) or item.value not in BUILTIN:
            near = suggestion(str(item.value), BUILTIN)
            report.add(item, f"is {shown(item.value)}: there are no such built-in rules; {near}")
        elif item.value not in names:
            names.append(item.value)
    return tuple(names)


def _own(node: Node, taken: set[str], report: Report) -> list[Rule]:
    rules: list[Rule] = []
    for item in report.items(node):
        keys = report.mapping(item, RULE_KEYS)
        if not isinstance(item.value, dict):
            if item.value is None:
                report.add(item, "is empty: it must be a rule with a name")
            continue
        before = report.added
        given: dict[str, Any] = {key: keys[key].plain() for key in ("name", "why") if key in keys}
        given |= {aspect: _patterns(keys.get(aspect), report) for aspect in ASPECTS}
        given |= _allow(keys.get("allow", Node(None)), report)
        if "name" not in keys:
            report.add(item, "needs the key 'name'")
        elif keys["name"].value in taken:
            report.add(keys["name"], f"is {shown(keys['name'].value)}: another rule has that name")
        if report.added > before:
            continue
        rule = construct(Rule, given, keys, item, report)
        if rule is not None:
            taken.add(rule.name)
            rules.append(rule)
    return rules


def _allow(node: Node, report: Report) -> dict[str, tuple[str, ...]]:
    keys = report.mapping(node, ALLOWED)
    return {f"allow_{name}": _patterns(child, report) for name, child in keys.items()}


def _joined(rule: Rule, excuses: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: (*getattr(rule, name), *patterns) for name, patterns in excuses.items()}


def _patterns(node: Node | None, report: Report) -> tuple[str, ...]:
    """A list of patterns; those that are none are told, each at its line."""
    if node is None:
        return ()
    found: list[str] = []
    for item in report.items(node):
        text = item.value
        if not isinstance(text, str) or not text.strip():
            report.add(item, f"is {shown(text)}: a pattern must be a text that is not empty")
        elif len(text) > LONGEST_PATTERN:
            report.add(item, f"has {len(text)} characters: a pattern has {LONGEST_PATTERN} at most")
        else:
            found.append(text)
    return tuple(found)
