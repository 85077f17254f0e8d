"""Patterns that were translated once: the same code as `re` makes, whatever the file says."""

import json
import marshal
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents import fields
from switchgear._core.types import AgentStep, Signal
from switchgear._detectors import step_facts
from switchgear._detectors.step_facts import facts_of, failure_of
from switchgear._hooks import regexes
from switchgear._text import fingerprint, redact
from switchgear._text.redact import redact_lines

OURS = (
    *((each.pattern, int(each.flags) & ~re.UNICODE) for each in step_facts._made().values()
      if isinstance(each, re.Pattern)),
    *((each.pattern, int(each.flags) & ~re.UNICODE) for _, each in fingerprint._made()
      if isinstance(each, re.Pattern)),
    *((pattern, 0) for _, pattern in redact._SECRETS),
    (redact._CONTROL, 0),
    (fields._EXIT, 0),
)  # fmt: skip
TEXTS = (
    "Traceback (most recent call last):\n  File '/srv/app.py', line 42\nKeyError: 'x' 0x7f3a",
    "tests 12 passed in 3.2s at 12:30:01, 40 % of 2026-01-02 done; déjà_vu naïve ÀÉ",
    "GET https://me:pw@api.test:8443/v1/7 failed: HTTP 503 after 41 ms\x1b[31m",
    "Output: (empty)\nExit Code: 137\nkey=sk-proj-abcdefghijklmnop",
    "",
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and a process that has read none."""
    monkeypatch.setattr(regexes, "PLACE", str(tmp_path / "regexes.bin"))
    monkeypatch.setattr(regexes, "_kept", {})
    monkeypatch.setattr(regexes, "_made", {})
    return tmp_path / "regexes.bin"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the next process begins."""
    monkeypatch.setattr(regexes, "_kept", {})
    monkeypatch.setattr(regexes, "_made", {})


@pytest.mark.parametrize(("pattern", "flags"), OURS)
def test_what_was_kept_is_what_re_compiles(
    pattern: str, flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    regexes.compile_(pattern, flags)
    forget(monkeypatch)
    monkeypatch.setattr(regexes, "_translated", lambda key: pytest.fail(f"{key} was not kept"))
    kept = regexes.compile_(pattern, flags)
    original = re.compile(pattern, flags)
    assert kept == original, "equal patterns have equal code"
    assert (kept.groups, kept.groupindex) == (original.groups, original.groupindex)
    for text in TEXTS:
        assert kept.sub("#", text) == original.sub("#", text)
        assert [(m.span(), m.lastgroup) for m in kept.finditer(text)] == [
            (m.span(), m.lastgroup) for m in original.finditer(text)
        ]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"rubbish",
        marshal.dumps((("another", "Python"), {("a+", 0): (0, [1], 0, {}, (None,))})),
        marshal.dumps((regexes._MARK, {("a+", 0): (0, [99, 99, 99], 0, {}, (None,))})),
        marshal.dumps((regexes._MARK, {("a+", 0): "code"})),
        marshal.dumps((regexes._MARK, 7)),
    ],
)
def test_a_file_that_is_no_good_costs_only_time(place: Path, damage: bytes) -> None:
    place.write_bytes(damage)
    assert regexes.compile_("a+").findall("caab") == ["aa"]
    assert regexes.compile_("a+").sub("#", "caab") == "c#b"


def test_where_nothing_can_be_written_patterns_work_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regexes, "PLACE", "/nowhere/regexes.bin")
    assert regexes.compile_("(?i)A+").search("caab")[0] == "aa"


def test_only_so_many_are_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "MOST", 3)
    for number in range(9):
        regexes.compile_(f"a{number}")
    _, kept = marshal.loads(place.read_bytes())
    assert [pattern for pattern, _ in kept] == ["a6", "a7", "a8"]


def test_a_wrong_pattern_is_the_error_that_re_raises() -> None:
    with pytest.raises(re.error):
        regexes.compile_("(")


PROGRAM = """
import sys
package = type(sys)("switchgear")
package.__path__ = [sys.argv[1]]
sys.modules["switchgear"] = package
from _frozen_importlib_external import PathFinder
from switchgear._hooks import lean
class WithStandIns:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path) if name.startswith("switchgear.") else None
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module
            def with_stand_ins(module):
                module.__builtins__ = lean.builtins_of()
                run(module)
            spec.loader.exec_module = with_stand_ins
        return spec
sys.meta_path.insert(0, WithStandIns)
import json
from switchgear._detectors.step_facts import facts_of, failure_of
from switchgear._core.types import AgentStep, Signal
from switchgear._text.redact import redact_lines
told = []
for text in json.loads(sys.stdin.read()):
    facts = facts_of(AgentStep("bash", text, text, text))
    told.append([sorted(facts.thought), *facts[1:], failure_of(Signal(error=text)), redact_lines(text)])
print(json.dumps(told))
"""


def test_a_hook_process_sees_in_a_step_what_everybody_sees() -> None:
    line = [sys.executable, "-I", "-S", "-c", PROGRAM, str(Path(regexes.__file__).parents[1])]
    expected: list[Any] = []
    for text in TEXTS:
        facts = facts_of(AgentStep("bash", text, text, text))
        failure = failure_of(Signal(error=text))
        expected.append([sorted(facts.thought), *facts[1:], failure, redact_lines(text)])
    for _ in range(2):  # whoever translates, and whoever comes after
        done = subprocess.run(
            line, input=json.dumps(TEXTS), capture_output=True, check=True, text=True
        )
        assert json.loads(done.stdout) == json.loads(json.dumps(expected))
