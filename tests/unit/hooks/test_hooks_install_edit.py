"""Settings are edited as text: existing content stays byte for byte, and removal is the inverse of insertion."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear._hooks.install import edit
from switchgear._hooks.install.edit import NotJson, parse

OURS = "python3 -I -S /opt/switchgear/hooks/entry.py codex"
GROUPS = {
    event: {"matcher": "*", "hooks": [{"type": "command", "command": OURS, "timeout": 15}]}
    for event in ("PreToolUse", "PostToolUse", "Stop")
}


def is_ours(command: str) -> bool:
    return command == OURS


gaps = st.sampled_from(
    ["", " ", "\n", "\r\n", "\n  ", "\t", "\n\t\t", " // a note\n", "/* so */", "\n  // it's\n  "]
)
names = st.sampled_from(["hooks", "model", "PreToolUse", "Stop", "é", 'a "b"', "x//y", "/*z*/"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-99, 99), st.floats(-9, 9), st.text(max_size=6)
)


@st.composite
def texts(draw: st.DrawFn, value: object) -> str:
    """A value as a user might have written it: with any spacing, and with comments."""
    gap = draw(gaps)
    if isinstance(value, dict):
        items = [
            f"{draw(gaps)}{json.dumps(key)}{draw(gaps)}:{draw(texts(each))}{draw(gaps)}"
            for key, each in value.items()
        ]
        return f"{gap}{{{','.join(items) or draw(gaps)}}}"
    if isinstance(value, list):
        items = [f"{draw(texts(each))}{draw(gaps)}" for each in value]
        return f"{gap}[{','.join(items) or draw(gaps)}]"
    return gap + json.dumps(value)


hook = st.fixed_dictionaries({"type": st.just("command"), "command": st.sampled_from(["ls", "x"])})
group = st.fixed_dictionaries({"hooks": st.lists(hook, max_size=2)})
hooks = st.dictionaries(
    st.sampled_from(["PreToolUse", "Stop", "Other"]), st.lists(group, max_size=2), max_size=3
)
members: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    names.filter(lambda name: name != "hooks"), scalars, max_size=3
)
documents = st.one_of(
    members, st.builds(lambda own, hooked: {**own, "hooks": hooked}, members, hooks)
)


@st.composite
def written(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    document = draw(documents)
    return document, draw(texts(document)) + draw(gaps)


@given(written())
def test_reading_returns_what_was_written(made: tuple[dict[str, Any], str]) -> None:
    document, text = made
    assert parse(text).value == document


@given(written())
def test_cutting_out_is_the_exact_inverse_of_inserting(
    made: tuple[dict[str, Any], str],
) -> None:
    _, text = made
    inserted, containers = edit.insert(text, GROUPS)
    assert len(edit.find(inserted, is_ours)) == len(GROUPS)
    assert edit.cut(inserted, is_ours, containers) == text


@given(written())
def test_without_a_journal_only_empty_containers_are_lost(made: tuple[dict[str, Any], str]) -> None:
    document, text = made
    inserted, _ = edit.insert(text, GROUPS)
    left = parse(edit.cut(inserted, is_ours)).value
    theirs = document.get("hooks")
    assert {**left, "hooks": None} == {**document, "hooks": None}
    if isinstance(theirs, dict):
        kept = {event: groups for event, groups in theirs.items() if groups}
        assert {event: groups for event, groups in left.get("hooks", {}).items() if groups} == kept


@given(written())
def test_inserting_adds_our_groups_after_existing_ones_and_changes_nothing_else(
    made: tuple[dict[str, Any], str],
) -> None:
    document, text = made
    after = parse(edit.insert(text, GROUPS)[0]).value
    theirs = document.get("hooks") or {}
    for event in {*theirs, *GROUPS}:
        added = [GROUPS[event]] if event in GROUPS else []
        assert after["hooks"][event] == [*theirs.get(event, []), *added]
    assert {**after, "hooks": None} == {**document, "hooks": None}
    assert list(after)[: len(document)] == list(document)


def test_inserted_text_follows_the_style_of_the_file() -> None:
    text = '{\n\t"model": "opus", // the big one\n\t"hooks": {\n\t\t"Stop": []\n\t}\n}\n'
    only = {"Stop": {"hooks": [{"type": "command", "command": OURS}]}}
    inserted, _ = edit.insert(text, only)
    assert inserted == (
        '{\n\t"model": "opus", // the big one\n\t"hooks": {\n\t\t"Stop": [\n'
        '\t\t\t{\n\t\t\t\t"hooks": [\n\t\t\t\t\t{\n\t\t\t\t\t\t"type": "command",\n'
        f'\t\t\t\t\t\t"command": "{OURS}"\n\t\t\t\t\t}}\n\t\t\t\t]\n\t\t\t}}\n\t\t]\n\t}}\n}}\n'
    )


def test_inserted_text_is_aligned_with_its_neighbours() -> None:
    text = '{\n  "hooks": {\n      "Stop": [\n     {"hooks": []}\n  ]\n  }\n}\n'
    inserted, _ = edit.insert(text, {"Stop": {"hooks": []}, "Other": {"hooks": []}})
    assert inserted == (
        '{\n  "hooks": {\n      "Stop": [\n     {"hooks": []},\n     {\n       "hooks": []\n     }\n'
        '  ],\n      "Other": [\n        {\n          "hooks": []\n        }\n      ]\n  }\n}\n'
    )


def test_an_empty_file_gets_a_complete_document() -> None:
    inserted, containers = edit.insert("\n", GROUPS)
    assert json.loads(inserted) == {"hooks": {event: [group] for event, group in GROUPS.items()}}
    assert inserted.startswith('\n{\n  "hooks": {\n    "PreToolUse": [\n')
    assert edit.cut(inserted, is_ours, containers) == "\n{}\n"


def test_a_comment_after_the_last_value_stays_with_it() -> None:
    text = '{\n  "model": "opus" // the big one\n}\n'
    inserted, _ = edit.insert(text, GROUPS)
    assert inserted.startswith('{\n  "model": "opus", // the big one\n  "hooks": {\n')


def test_minified_settings_stay_in_one_line() -> None:
    inserted, _ = edit.insert('{"model":"opus"}', GROUPS)
    assert inserted.startswith('{"model":"opus","hooks":{"PreToolUse":[{"matcher":"*",')
    assert "\n" not in inserted


@pytest.mark.parametrize("text", ["", "{}", '{"a":1}', '{\n  "a": 1\n}'])
def test_paths_are_written_as_people_write_them(text: str) -> None:
    inserted, _ = edit.insert(text, {"Stop": {"hooks": [{"command": "/home/zoë/hook"}]}})
    assert "/home/zoë/hook" in inserted


def test_inserted_lines_use_the_line_ends_of_the_file() -> None:
    inserted, _ = edit.insert('{\r\n  "model": "opus"\r\n}\r\n', GROUPS)
    assert inserted.count("\n") == inserted.count("\r\n") > 20


def test_a_hook_of_the_user_in_our_group_stays() -> None:
    inserted, containers = edit.insert("{}", GROUPS)
    theirs = {"type": "command", "command": "ls"}
    document = json.loads(inserted)
    document["hooks"]["Stop"][0]["hooks"].append(theirs)
    left = json.loads(edit.cut(json.dumps(document), is_ours, containers))
    assert left == {"hooks": {"Stop": [{"matcher": "*", "hooks": [theirs]}]}}


def test_the_duplicate_key_that_agents_read_is_used() -> None:
    text = '{"hooks": {"Stop": []}, "hooks": {"Other": []}}'
    inserted, containers = edit.insert(text, GROUPS)
    assert inserted.startswith('{"hooks": {"Stop": []}, "hooks": {"Other": [], "PreToolUse": [')
    assert edit.cut(inserted, is_ours, containers) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1, column 1: expected a value, found the end"),
        ('{"a": 1', "line 1, column 8: expected ',' or '}', found the end"),
        ('{\n  "a": 1,\n}', "line 3, column 1: expected a key in double quotes, found '}'"),
        ("[1,]", "line 1, column 4: expected a value, found ']'"),
        ("{'a': 1}", 'line 1, column 2: expected a key in double quotes, found "\'"'),
        ('{"a" 1}', "line 1, column 6: expected ':', found '1'"),
        ('{"a": 01}', "line 1, column 8: expected ',' or '}', found '1'"),
        ("{} {}", "line 1, column 4: there is text after the end of the value"),
        ("{ /* a", "line 1, column 3: a comment does not end"),
        ('{"a": "b\n"}', "line 1, column 7: expected a value, found '\"'"),
        ("[" * 200, "line 1, column 102: values are nested more than 100 deep"),
    ],
)
def test_invalid_json_is_reported_with_its_position(text: str, why: str) -> None:
    with pytest.raises(NotJson) as raised:
        parse(text)
    assert str(raised.value) == why


def test_a_comment_is_an_error_if_the_agent_accepts_none() -> None:
    with pytest.raises(NotJson, match="line 2, column 3: there is a comment"):
        edit.find('{\n  // mine\n  "hooks": {}}', is_ours, comments=False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "the settings must be an object"),
        ('{"hooks": []}', '"hooks" must be an object'),
        ('{"hooks": {"Stop": {}}}', '"hooks" has "Stop", and it must be an array'),
    ],
)
def test_hooks_of_another_shape_are_left_alone(text: str, why: str) -> None:
    with pytest.raises(edit.WrongShape, match=why):
        edit.insert(text, GROUPS)
