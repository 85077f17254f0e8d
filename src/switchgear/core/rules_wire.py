"""Rules as JSON values and back: a hook reads them from a compiled file, without any YAML."""

from typing import Any

from switchgear.core.rules import Rule


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
