"""The formats of a run's facts: the relevant error line, times, tests, cost."""

from pathlib import Path

import pytest

from switchgear._run.formats import spent
from switchgear._run.validation import ValidationResult, error_line, error_of, last_lines
from switchgear._text.formats import duration, elapsed, percent
from switchgear._text.redact import shortened
from unit.runner_stage import Stage, checker

PYTEST = """\
{padding}
=============================== warnings summary ===============================
conf/test_x.py:3
  conf/test_x.py:3: PytestUnknownMarkWarning: Unknown pytest.mark.slow - is this a typo? error
-- Docs: https://docs.pytest.org/en/stable/how-to/capture-warnings.html
no tests ran in 0.01s
ERROR: file or directory not found: tests/unit/test_parser_of_comments_and_strings.py
{after}
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            PYTEST.format(padding="x" * 1600, after=""),
            "ERROR: file or directory not found: tests/unit/test_parser_of_comments_and_strings.py",
        ),
        ("gcc -c a.c\na.c:3:5: error: no 'x'\nmake: *** [a.o] Error 1", "a.c:3:5: error: no 'x'"),
        (
            'Traceback (most recent call last):\n  File "a.py"\nModuleNotFoundError: No module x',
            "ModuleNotFoundError: No module x",
        ),
        ("DeprecationWarning: fails in 4.0\nsh: 1: pytset: not found", "sh: 1: pytset: not found"),
        ("E   assert 1 == 2\nFAILED t.py::test_a - assert 1 == 2", "FAILED t.py::test_a - assert 1 == 2"),
        ("\x1b[31mERROR: no such table\x1b[0m", "ERROR: no such table"),
        ("DeprecationWarning: this will be an error", "DeprecationWarning: this will be an error"),
        ("all is quiet", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_line_with_the_error_is_found(output: str, line: str) -> None:
    assert error_line(output) == line


def test_a_failed_validation_begins_with_its_error_line_in_full(stage: Stage) -> None:
    text = PYTEST.format(padding="Warning: an error may follow " * 60, after="hint: look again")
    check = checker(stage, f"print({text!r}); sys.exit(4)")
    stage.run("write('n', str(n)); fail('no')", validate=check, max_iterations=1)
    error = stage.iterations()[0]["error"]
    first = "ERROR: file or directory not found: tests/unit/test_parser_of_comments_and_strings.py"
    assert first in error or "no" in error
    failed = ValidationResult(check, ok=False, exit_code=4, seconds=1.0, tests=None, tail=text)
    assert failed.error.startswith(f"validation failed with exit code 4: {first}")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_an_agent_that_fails_shows_its_error_line_first(stage: Stage) -> None:
    body = "print('w' * 3000); print('Warning: cannot cache'); print('fatal: bad config line 3'); sys.exit(1)"
    stage.run(body, max_iterations=1)
    assert stage.iterations()[0]["error"].startswith("fatal: bad config line 3")


def test_the_end_of_an_output_never_begins_inside_a_word() -> None:
    text = " ".join(f"word{number}" for number in range(400))
    for longest in range(20, 120):
        assert last_lines(text, longest).lstrip("…").split()[0] in text.split()
    assert error_of("a\nb", 100) == "a\nb"


def test_texts_are_cut_after_a_word_with_an_ellipsis() -> None:
    assert shortened("alpha beta gamma", 12, "…") == "alpha beta…"
    assert shortened("x" * 40, 10, "…") == "x" * 9 + "…"
    assert shortened("short", 5, "…") == "short"


@pytest.mark.parametrize(
    ("seconds", "past", "ahead"),
    [
        (0.0, "0 s", "0 s"),
        (0.04, "under 0.1 s", "0.1 s"),
        (9.96, "10 s", "10 s"),
        (59.4, "59 s", "60 s"),
        (119.6, "2 min", "120 s"),
        (121.0, "2 min", "3 min"),
        (151.0, "3 min", "3 min"),
        (7_260.0, "2 h 1 min", "3 h"),
        (28_800.0, "8 h", "8 h"),
    ],
)
def test_elapsed_time_is_rounded_to_nearest_and_waits_up(
    seconds: float, past: str, ahead: str
) -> None:
    assert (elapsed(seconds), duration(seconds)) == (past, ahead)


def test_heat_is_at_most_100_percent_and_unknown_cost_is_never_zero() -> None:
    assert [percent(heat) for heat in (-1.0, 0.994, 1.0, 4.2)] == ["0%", "99%", "100%", "100%"]
    assert spent(0, 3) == "unknown cost"
    assert "$0.00" not in spent(0, 1)


def test_tests_are_shown_as_n_of_all_and_one_is_singular(stage: Stage) -> None:
    check = checker(stage, "print('1 passed, 2 failed in 0.1s'); sys.exit(1)")
    result = stage.run("write('n', str(n)); fail('no')", validate=check, max_iterations=1)
    assert "1 of 3 tests passes" in result.text()
    check = checker(stage, "n = int(pathlib.Path('k').read_text() or 0) if pathlib.Path('k').exists() else 0\nprint(f'{n} passed, 2 failed in 0.1s'); sys.exit(1)")  # fmt: skip
    stage.record = None
    stage.run("write('k', str(n))", validate=check, max_iterations=1, task="other")
    assert "1 of 3 tests passes, 1 more than before, but not all" in stage.iterations()[0]["remark"]
