"""The `rules` section: rules in effect, exemptions, and errors."""

from pathlib import Path

import pytest

from switchgear._config import DEFAULT, ConfigError, RuleBook, config_schema, load_config
from switchgear._config.sections import RULE_KEYS, SECTION_KEYS
from switchgear._rules.builtin import builtin_rules
from switchgear._rules.effects import Place
from switchgear._rules.rules import Rule, judge


def load(tmp_path: Path, text: str) -> RuleBook:
    path = tmp_path / "switchgear.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path).rules


def test_without_the_section_all_built_in_rules_apply(tmp_path: Path) -> None:
    assert load(tmp_path, "") == DEFAULT.rules == RuleBook(builtin_rules(), ())
    assert load(tmp_path, "rules:") == DEFAULT.rules


def test_groups_can_be_chosen_or_switched_off(tmp_path: Path) -> None:
    book = load(tmp_path, "rules: {builtin: [force-push, force-push]}")
    assert book.rules == builtin_rules(("force-push",))
    assert load(tmp_path, "rules: {builtin: []}").rules == ()


def test_an_exemption_is_added_to_every_rule_of_its_group(tmp_path: Path) -> None:
    book = load(tmp_path, "rules: {allow: {deletes: {paths: ['~/.cache/**']}}}")
    place = Place("/w", home="/home/me")
    assert judge(book.rules, "Bash", {"command": "rm -rf ~/.cache/pip"}, place) is None
    assert judge(book.rules, "Bash", {"command": "rm -rf ~/other"}, place) is not None
    assert judge(book.rules, "Bash", {"command": "rm -rf build"}, place) is None


def test_own_rules_come_after_the_built_in_ones(tmp_path: Path) -> None:
    book = load(
        tmp_path,
        """
rules:
  builtin: [force-push]
  protected: ["deploy/**"]
  own:
    - name: hosts
      why: only these
      hosts: ["*"]
      allow: {hosts: [localhost], commands: [], tools: [Trusted]}
""",
    )
    mine = Rule(
        "hosts", "only these", hosts=("*",), allow_hosts=("localhost",), allow_tools=("Trusted",)
    )
    assert book == RuleBook((*builtin_rules(("force-push",)), mine), ("deploy/**",))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rules: 7", "rules: is 7: it must be a mapping"),
        ("rules: {builtins: []}", "rules.builtins: unknown key; did you mean 'builtin'?"),
        ("rules: {builtin: [secret]}", "no such built-in rules; did you mean 'secrets'?"),
        ("rules: {builtin: [[]]}", "rules.builtin[0]: is a list: there are no such built-in rules"),
        ("rules: {allow: {delete: {}}}", "unknown key; did you mean 'deletes'?"),
        ("rules: {allow: {deletes: {path: []}}}", "unknown key; did you mean 'paths'?"),
        (
            "rules: {builtin: [], allow: {deletes: {}}}",
            "exempts calls from the built-in rules 'deletes'",
        ),
        ("rules: {own: [{tools: [x]}]}", "rules.own[0]: needs the key 'name'"),
        ("rules: {own: [null]}", "rules.own[0]: is empty: it must be a rule with a name"),
        ("rules: {own: [x]}", "rules.own[0]: is 'x': it must be a mapping"),
        ("rules: {own: [{name: x}]}", "rules.own[0].name: is 'x': a rule needs one of tools"),
        ("rules: {own: [{name: 7, tools: [x]}]}", "rules.own[0].name: is 7: it must be a text"),
        ("rules: {own: [{name: x, tools: x}]}", "rules.own[0].tools: is 'x': it must be a list"),
        ("rules: {own: [{name: x, tools: [7]}]}", "rules.own[0].tools[0]: is 7: a pattern must be"),
        ("rules: {own: [{name: x, why: 7, tools: [x]}]}", "rules.own[0].why: is 7"),
        (f"rules: {{protected: [{'x' * 501}]}}", "has 501 characters: a pattern has 500 at most"),
        ("rules: {own: [{name: force-push, tools: [x]}]}", "another rule has that name"),
        ("rules: {own: [{name: x, tools: [x]}, {name: x, tools: [y]}]}", "another rule has that"),
    ],
)
def test_an_invalid_value_is_reported_with_its_line(
    tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"# a comment\n{line}")
    assert "switchgear.yaml:2: " in str(caught.value)
    assert message in str(caught.value)


def test_every_key_is_in_the_schema() -> None:
    section = config_schema()["properties"]["rules"]["properties"]
    assert set(section) == set(SECTION_KEYS)
    assert set(section["own"]["items"]["properties"]) == set(RULE_KEYS)
