"""Rules as JSON values and back: a hook reads them from a compiled file, without any YAML."""

from typing import Any

from switchgear.core.deeds import Deed
from switchgear.core.patterns import is_wild
from switchgear.core.rules import Rule

_NEEDS = {
    "paths": ("reads", "writes", "deletes", "alters"),
    "writes": ("writes", "deletes", "alters"),
    "contents": ("texts",),
    **{
        name: (name,)
        for name in ("commands", "deletes", "sends", "given", "hosts", "inputs", "variables")
    },
}
"""What a deed must have something of, to break this aspect of a rule."""


def dump_rules(rules: tuple[Rule, ...]) -> list[dict[str, Any]]:
    """The rules with the fields that say something.

    >>> dump_rules((Rule("no-curl", commands=("curl",)),))
    [{'name': 'no-curl', 'commands': ['curl']}]
    """
    return [
        {
            name: value if isinstance(value, str) else list(value)
            for name, value in rule.fields().items()
            if value
        }
        for rule in rules
    ]


def load_rules(data: Any) -> tuple[Rule, ...]:
    """The inverse of `dump_rules`; raises ValueError for what it never dumped."""
    if not isinstance(data, list) or not all(isinstance(each, dict) for each in data):
        raise ValueError(f"rules are {data!r}: they must be a list of mappings")
    try:
        return tuple(Rule(**each) for each in data)
    except TypeError as error:
        raise ValueError(f"a rule cannot be read: {error}") from None


def load_rules_about(data: Any, deed: Deed) -> tuple[Rule, ...]:
    """Those of the rules that a deed could break: of most it does nothing, and a hook is in haste."""
    if deed.unread or not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        return load_rules(data)
    programs = {words[0].lower() for words in deed.commands if words}
    return load_rules([each for each in data if _could_break(each, deed, programs)])


def _could_break(rule: dict[str, Any], deed: Deed, programs: set[str]) -> bool:
    for aspect, parts in _NEEDS.items():
        if aspect in rule and not any(getattr(deed, part) for part in parts):
            return False
    if "commands" not in rule:
        return True
    firsts = [str(pattern).partition(" ")[0].lower() for pattern in rule["commands"]]
    return any(first in programs or is_wild(first) for first in firsts)
