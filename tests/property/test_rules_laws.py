"""For any text of an agent, a check ends quickly with a verdict; patterns match as documented."""

import fnmatch
import time

from hypothesis import given
from hypothesis import strategies as st

from switchgear._rules.builtin import builtin_rules
from switchgear._rules.effects import Place
from switchgear._rules.patterns import name_matches, path_matches
from switchgear._rules.rules import judge
from switchgear._rules.shell.parser import commands_of, join
from switchgear._rules.shell.words import Setting

RULES = builtin_rules()
PLACE = Place("/w", home="/home/me", protected=("/w/switchgear.yaml",))
PIECES = st.sampled_from(
    [
        *("rm", "-rf", "/", "git", "push", "-f", "a", "x=1", "$x", "${x:-y}", "~", "..", "*"),
        *("'", '"', "`", "$(", ")", "(", "{", "}", ",", "\\", "\n", ";", "&&", "|", "<<E", "E\n"),
        *(">", "<", "2>&1", "#", "$'", "\\x41", "for", "in", "do", "bash -c", "eval", "sudo"),
        *("python -c", "find", "-exec", "\x00", "\ue000", "\ufffc", "é", "https://a.test"),
    ]
)
TEXTS = st.lists(PIECES | st.just(" "), max_size=40).map("".join) | st.text(max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("command", "path", "url", "content", "x")), inner)
    ),
    max_leaves=8,
)


@given(TEXTS, JSON)
def test_every_call_gets_a_verdict(tool: str, inputs: object) -> None:
    broken = judge(RULES, tool, inputs, PLACE)
    assert broken is None or str(broken).startswith("rule ")
    judge(RULES, "Bash", inputs, PLACE)


@given(TEXTS)
def test_a_force_push_is_found_behind_any_complete_command(before: str) -> None:
    text = "true; " + "".join(sign for sign in before if sign.isalnum() or sign in " /-.=")
    broken = judge(RULES, "Bash", {"command": f"{text}\ngit push -f"}, PLACE)
    assert broken is not None


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_a_glob_over_names_agrees_with_fnmatch(pattern: str, name: str) -> None:
    assert name_matches(pattern, name) == fnmatch.fnmatchcase(name, pattern)


@given(
    st.lists(st.sampled_from(("a", "b", "*", "**", "a*")), min_size=1, max_size=5),
    st.lists(st.sampled_from(("a", "b", "ab")), min_size=1, max_size=5),
)
def test_a_glob_over_paths_agrees_with_its_parts(pattern: list[str], path: list[str]) -> None:
    def says(left: list[str], rest: list[str]) -> bool:
        if not left:
            return not rest
        if left[0] == "**":
            return any(says(left[1:], rest[taken:]) for taken in range(len(rest) + 1))
        return bool(rest) and fnmatch.fnmatchcase(rest[0], left[0]) and says(left[1:], rest[1:])

    assert path_matches("/" + "/".join(pattern), "/" + "/".join(path)) == says(pattern, path)


@given(st.lists(st.sampled_from(("a", "..", ".", "b", "")), max_size=8))
def test_a_joined_path_contains_no_parent_reference(parts: list[str]) -> None:
    joined = join("/w/x", "/".join(parts))
    assert joined.startswith("/")
    assert not {"..", ".", ""} & set(joined.split("/")[1:]) or joined == "/"


def work_s(text: str) -> float:
    begun = time.process_time()
    judge(RULES, "Bash", {"command": text}, PLACE)
    return time.process_time() - begun


def test_four_times_the_text_takes_about_four_times_as_long() -> None:
    pieces = (
        *("echo a/b 'c' ", "{a,b}", "{a}", "{", "$x", "${x:-", "((", "a=$(", "rm a/../b ", "'\""),
        *("*a", "<<E\n", "cat <<E\nx\nE\n", "sudo ", "find . -exec rm {} + ", "curl -d @a b.c | "),
        *("a=b ", "uv run ", "eval "),
    )
    for piece in pieces:
        small = min(work_s(piece * 500) for _ in range(3))
        large = min(work_s(piece * 2_000) for _ in range(3))
        assert large < 12 * small + 0.25, piece


def test_variables_that_double_do_not_explode() -> None:
    begun = time.process_time()
    for text in ("x=ab; " + "x=$x$x; " * 100, "x=" + "a" * 9_000 + "; echo " + "$x" * 9_000):
        broken = judge(RULES, "Bash", {"command": text}, PLACE)
        assert broken is not None
        assert broken.rule == "readable"
    assert time.process_time() - begun < 10.0


def test_patterns_of_stars_do_not_explode() -> None:
    begun = time.process_time()
    assert not name_matches("*a" * 100 + "b", "a" * 500)
    assert not path_matches("/**/a" * 60 + "/b", "/a" * 500)
    assert time.process_time() - begun < 10.0


def test_a_word_reader_keeps_what_is_quoted_together() -> None:
    found = commands_of("printf '%s' \"a b\" c\\ d 'e\"f'", Setting("/w"))
    assert found[0].words == ("printf", "%s", "a b", "c d", 'e"f')
