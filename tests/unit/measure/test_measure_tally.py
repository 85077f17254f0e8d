"""Summaries of test runners become numbers; other text does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear._measure.test_counts import SuiteCounts, suite_counts

PYTEST = """\
FAILED tests/test_a.py::test_one - AssertionError: assert 1 == 2
ERROR tests/test_b.py::test_two
=================== 1 failed, 12 passed, 2 skipped, 1 error in 0.35s ===================
"""
PYTEST_QUIET = "..F\nFAILED a.py::t - x\n1 failed, 2 passed in 0.01s\n"
JEST = """\
FAIL src/sum.test.js
  ● adds numbers of two

Test Suites: 1 failed, 3 passed, 4 total
Tests:       1 failed, 2 skipped, 17 passed, 20 total
Time:        1.2 s
"""
VITEST = "\x1b[2m      Tests \x1b[22m \x1b[1m\x1b[31m2 failed\x1b[39m\x1b[22m | \x1b[32m10 passed\x1b[39m (12)\n"
GO = """\
--- FAIL: TestDivide (0.00s)
FAIL
FAIL	example.com/calc	0.002s
ok  	example.com/text	0.003s
ok  	example.com/more	(cached)
?   	example.com/none	[no test files]
"""
GO_VERBOSE = """\
=== RUN   TestAdd
--- PASS: TestAdd (0.00s)
=== RUN   TestSub
    --- PASS: TestSub/small (0.00s)
--- FAIL: TestDivide (0.00s)
FAIL	example.com/calc	0.002s
"""
CARGO = """\
test tests::adds ... ok
test tests::divides ... FAILED
test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""
UNITTEST = """\
..FEs
======================================================================
ERROR: test_d (test_x.X.test_d)
----------------------------------------------------------------------
OSError
======================================================================
FAIL: test_b (test_x.X.test_b) (i=1)
----------------------------------------------------------------------
AssertionError: no

----------------------------------------------------------------------
Ran 9 tests in 0.001s

FAILED (failures=1, errors=1, skipped=2, expected failures=3, unexpected successes=1)
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (UNITTEST, (4, 3, ("test_x.X.test_b", "test_x.X.test_d"))),
        ("Ran 12 tests in 0.4s\n\nOK", (12, 0, ())),
        ("Ran 1 test in 12.034s\n\nOK (skipped=1)", (0, 0, ())),
        ("Ran 0 tests in 0.000s\n\nNO TESTS RAN", (0, 0, ())),
        (PYTEST, (12, 2, ("tests/test_a.py::test_one", "tests/test_b.py::test_two"))),
        (PYTEST_QUIET, (2, 1, ("a.py::t",))),
        ("== 7 passed, 1 warning in 61.20s (0:01:01) ==", (7, 0, ())),
        ("no tests ran in 0.01s", None),
        ("3 deselected in 0.01s", (0, 0, ())),
        (JEST, (17, 1, ("adds numbers of two",))),
        ("Tests:       5 passed, 5 total", (5, 0, ())),
        (VITEST, (10, 2, ())),
        ("      Tests  4 passed (4)", (4, 0, ())),
        (GO, (2, 1, ("TestDivide",))),
        (GO_VERBOSE, (2, 1, ("TestDivide",))),
        ("ok  \texample.com/text\t0.003s", (1, 0, ())),
        (CARGO, (8, 1, ("tests::divides",))),
    ],
)
def test_a_summary_is_read(output: str, expected: tuple[int, int, tuple[str, ...]] | None) -> None:
    assert suite_counts(output) == (None if expected is None else SuiteCounts(*expected))


@pytest.mark.parametrize(
    "output",
    [
        "",
        "all 3 passed, hooray",
        "I ran the tests: 12 passed in total",
        "3 passed in a row",
        "Tests: none yet",
        "ok then",
        "FAIL: could not compile",
        "test result: unclear",
        "Ran 3 tests in 0.1s",
        "Ran 3 tests in 0.1s\nOK then",
    ],
)
def test_output_of_a_program_under_test_is_not_a_summary(output: str) -> None:
    assert suite_counts(output) is None


def test_the_last_summary_of_pytest_counts_because_tests_may_run_pytest_themselves() -> None:
    assert suite_counts("9 passed in 1.0s\n" + PYTEST_QUIET) == SuiteCounts(2, 1, ("a.py::t",))


def test_the_last_summary_of_unittest_counts_too() -> None:
    assert suite_counts(f"Ran 2 tests in 0.1s\n\nOK\n{UNITTEST}") == suite_counts(UNITTEST)


@given(st.text(max_size=300))
def test_any_text_is_read_without_trouble(text: str) -> None:
    counts = suite_counts(text)
    assert counts is None or min(counts.passed, counts.failed) >= 0
