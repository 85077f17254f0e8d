"""Text that is designed to be slow to analyse is analysed quickly, or refused as too long."""

import time

import pytest

from switchgear._breaker.rules import place_at
from switchgear._rules.builtin import GUARD_RULES, builtin_rules
from switchgear._rules.rules import Broken, judge

RULES = (*builtin_rules(), *GUARD_RULES)
MOST_S = 1.5
"""Seconds of processor time; `python -m rules.measure` prints what it is really."""
PADDINGS = {
    "cd in cd": "cd a/b/c/d/e/f/g/h;" * 4900,
    "cd there and back": "cd a;cd ..;" * 9000,
    "documents of one line": "cat " + "<<a " * 5000 + "\nx\n",
    "documents of many lines": "cat <<a\nx\na\n" * 20000,
    "nested substitutions": "echo " + "$( " * 5000,
    "braces": "echo " + "{a,b}" * 50,
    "many braces": "echo " + "{a,b} " * 20000,
    "quotes": "echo " + "'a'\"b\"" * 50000,
    "backslashes": "echo " + "\\a" * 200000,
    "assignments": "".join(f"v{number}=x;" for number in range(40000)),
    "variables": "x=abc; echo " + "$x " * 100000,
    "functions that call functions": "".join(
        f"f{number}() {{ f{number - 1}; f{number - 1}; }};" for number in range(1, 40)
    )
    + "f39",
    "aliases": "".join(f"alias a{number}=b;" for number in range(20000)),
    "open brackets": "rm " + "[" * 200000,
    "stars": "rm " + "*a" * 100000,
    "stars in folders": "ls " + "/*/*/*/*/* " * 4000,
    "words": "a " * 500000,
    "lines": "\n" * 1000000,
    "commands": "a;" * 500000,
    "parameters": "echo " + "${x}" * 200000,
    "substitutions": "echo " + "$(a) " * 20000,
    "code": "python3 - <<'EOF'\n" + "open('x','w').write('a')\n" * 15000 + "EOF\n",
    "code that starts commands": 'python3 -c "' + "os.system('a b');" * 20000 + '"',
    "wrappers": "sudo " * 30000,
    "inner shells": "bash -c 'echo a b c';" * 15000,
    "backquotes": "`" * 500000,
    "parentheses": "(" * 500000,
    "open defaults": "echo ${x:-" * 20000,
    "comments": "# a\n" * 200000,
    "pipes": "a|" * 300000,
    "redirections": "> a " * 100000,
    "escapes": "echo $'" + "\\x41" * 100000 + "'",
    "colons": "foo " + "a:" * 190000,
    "slashes": "ls " + "/a" * 190000,
    "long paths": "ls " + ("/a" * 1000 + " ") * 190,
    "letters of another script": "é" * 390000,
    "one long word": "a" * 390000,
    "a megabyte": "a b c d " * 125000,
}


def judged(text: str) -> Broken | None:
    return judge(RULES, "Bash", {"command": text}, place_at("/nowhere/project"))


@pytest.mark.parametrize("padding", PADDINGS.values(), ids=PADDINGS)
@pytest.mark.parametrize("text", ["rm -rf /srv/x; {}", "{}\nrm -rf /srv/x"], ids=["front", "end"])
def test_a_forbidden_command_is_refused_before_and_after_any_padding(
    text: str, padding: str
) -> None:
    begun = time.process_time()
    is_refused = judged(text.format(padding)) is not None
    assert is_refused
    assert time.process_time() - begun < MOST_S


@pytest.mark.parametrize(
    "text", ["rm -rf /srv/x \0", "rm -rf /srv/x /proc/1/root/x", "rm -rf $'/srv/x\\0'", "\0"]
)
def test_an_unreadable_or_unresolvable_call_is_refused(text: str) -> None:
    assert judged(text) is not None


def test_a_long_document_is_not_a_long_command() -> None:
    lines = "line 'of' $text (with) \"signs\" and it's fine\n" * 5_000
    assert judged(f"cat > notes.md <<'EOF'\n{lines}EOF\nls") is None


def test_a_call_that_names_too_many_paths_is_refused() -> None:
    words = " ".join(f"/a{number}/f" for number in range(3_000))
    broken = judged(f"touch {words}")
    assert broken is not None
    assert broken.rule == "readable"
