"""The rules that a hook reads for a call are all that the call could break."""

from typing import Any

import pytest

from switchgear._rules.builtin import BUILTIN, GUARD_RULES
from switchgear._rules.effects import Place, call_effects
from switchgear._rules.rules import Rule, dump_rules, judge_effects, load_rules, load_rules_about

PLACE = Place("/w", home="/home/me")
OWN = (
    Rule("no-fetch", tools=("WebFetch",)),
    Rule("no-curl", commands=("c?rl",)),
    Rule("no-rm", commands=("rm -r",), deletes=("/w/data/**",)),
    Rule("no-host", hosts=("*.example.com",)),
    Rule("no-drop", contents=("DROP TABLE",)),
    Rule("no-prod", inputs=("env=prod",)),
    Rule("stay", paths=("/etc/**",)),
)
RULES = (*OWN, *(rule for group in BUILTIN.values() for rule in group), *GUARD_RULES)
CALLS: tuple[tuple[str, Any], ...] = (
    *(
        ("Bash", {"command": text})
        for text in (
            *(
                "make test",
                "curl https://a.example.com/x",
                "rm -r data/x",
                "rm -rf /",
                "cat /etc/hosts",
            ),
            *(
                "git push --force",
                "git push",
                "switchgear reset op/git --why x",
                "switchgear status",
            ),
            *("echo x > .claude/settings.json", "ln -s .switchgear/state.db x", "CURL -O a.b"),
            *("echo aGk= | base64 -d | sh", "psql -c 'DROP TABLE users'", "a" * 200_000),
        )
    ),
    ("Write", {"file_path": "notes.md", "content": "drop table x"}),
    ("Write", {"file_path": "/etc/hosts", "content": "1"}),
    ("Write", {"file_path": "switchgear.yaml", "content": ""}),
    ("WebFetch", {"url": "https://other.test/"}),
    ("mcp__ops__deploy", {"env": "prod"}),
    ("mcp__fs__move", {"source": {"uri": "file:///w/.switchgear/state.db"}}),
    ("Read", {"file_path": "/w/a.py"}),
)


@pytest.mark.parametrize(("tool", "inputs"), CALLS, ids=lambda part: str(part)[:40])
def test_a_call_breaks_what_it_would_break_among_all_rules(tool: str, inputs: Any) -> None:
    data, deed = dump_rules(RULES), call_effects(tool, inputs, PLACE)
    found = load_rules_about(data, deed)
    assert judge_effects(found, deed, PLACE) == judge_effects(load_rules(data), deed, PLACE)


def test_most_rules_are_not_read_for_a_harmless_call() -> None:
    data = dump_rules(RULES)
    deed = call_effects("Bash", {"command": "make test"}, PLACE)
    assert len(load_rules_about(data, deed)) < len(data) / 2


def test_an_invalid_dump_of_rules_is_refused() -> None:
    with pytest.raises(ValueError, match="rules are 7"):
        load_rules_about(7, call_effects("Read", {}, PLACE))
