"""How many tests passed, read from what pytest, unittest, jest, vitest, go and cargo print.

Only summary lines count: a program under test may print "3 passed" itself. Several summaries of one run
(workspaces, packages) are added up. Without a summary, the counts are unknown.
"""

import re
from functools import partial
from typing import NamedTuple

from switchgear._text.fingerprint import digest

MAX_LINE = 2000
"""Characters: longer lines cannot be summaries."""


class SuiteCounts(NamedTuple):
    passed: int
    failed: int
    failing: tuple[str, ...] = ()
    """Names of failing tests, as far as they were printed, sorted."""


_ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_PYTEST = re.compile(r"^=* ?(?P<counts>\d+ [a-z]+(?:, \d+ [a-z]+){0,8}) in [\d.]+ ?s")
_PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)")
_JEST = re.compile(r"^Tests:\s+(?P<counts>\d.*)$")
_VITEST = re.compile(r"^\s*Tests\s+(?P<counts>\d[^()]*)\(\d+\)\s*$")
_JEST_FAILED = re.compile(r"^\s+● (.+)$")
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;")
_CARGO_FAILED = re.compile(r"^test (\S+) \.\.\. FAILED$")
_GO_TEST = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)")
_GO_PACKAGE = re.compile(r"^(ok|FAIL)\s+(\S+)\s+(?:\d|\(cached\)|\[)")
_UNITTEST_RAN = re.compile(r"^Ran (\d{1,9}) tests? in \d[\d.]*s$")
_UNITTEST_END = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((?P<counts>[^()]*)\))?$")
_UNITTEST_COUNT = re.compile(
    r"(?<!expected )\b(failures|errors|skipped|unexpected successes)=(\d{1,9})"
)
_UNITTEST_FAILED = re.compile(r"^(?:FAIL|ERROR): \w+ \((\S+)\)")
_NUMBER = re.compile(r"(\d+) (\w+)")


def suite_counts(output: str) -> SuiteCounts | None:
    """The test counts in an output; `None`: it has no known summary."""
    lines = [_ANSI.sub("", line) for line in output.splitlines() if len(line) <= MAX_LINE]
    readers = (_pytest, _cargo, partial(_javascript, _VITEST), partial(_javascript, _JEST), _go)
    return next((counts for read in (*readers, _unittest) if (counts := read(lines))), None)


def failing_tests(output: str) -> str | None:
    r"""A key of the set of failing tests in the output of a command; `None`: it is not a test run.

    >>> failing_tests("FAILED a.py::test_b\n1 failed in 0.1s") == failing_tests("1 passed in 0.1s")
    False
    """
    counts = suite_counts(output)
    return None if counts is None else key_of(counts)


def key_of(counts: SuiteCounts) -> str:
    """A key of the failing tests: of their names if known, else of their number."""
    return digest("\0".join(counts.failing) if counts.failing else f"{counts.failed} failing")


def _pytest(lines: list[str]) -> SuiteCounts | None:
    # The last summary is that of the run; a test that runs pytest prints one, too.
    for line in reversed(lines):
        if found := _PYTEST.match(line):
            counts = _by_word(found["counts"])
            if counts.keys() & {"passed", "failed", "error", "errors", "skipped", "deselected"}:
                failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
                return SuiteCounts(counts.get("passed", 0), failed, _all(_PYTEST_FAILED, lines))
    return None


def _cargo(lines: list[str]) -> SuiteCounts | None:
    found = [match for line in lines if (match := _CARGO.match(line))]
    passed, failed = (sum(int(match[group]) for match in found) for group in (1, 2))
    return SuiteCounts(passed, failed, _all(_CARGO_FAILED, lines)) if found else None


def _javascript(summary: "re.Pattern[str]", lines: list[str]) -> SuiteCounts | None:
    found = [_by_word(match["counts"]) for line in lines if (match := summary.match(line))]
    passed, failed = (sum(counts.get(word, 0) for counts in found) for word in ("passed", "failed"))
    return SuiteCounts(passed, failed, _all(_JEST_FAILED, lines)) if found else None


def _go(lines: list[str]) -> SuiteCounts | None:
    """Count tests if they are listed (`-v`), else packages."""
    tests = [(match[1], match[2]) for line in lines if (match := _GO_TEST.match(line))]
    packages = [(match[1], match[2]) for line in lines if (match := _GO_PACKAGE.match(line))]
    if not packages:
        return None
    failing = tuple(sorted({name for kind, name in tests if kind == "FAIL"}))
    if any(kind == "PASS" for kind, _ in tests):
        return SuiteCounts(sum(kind == "PASS" for kind, _ in tests), len(failing), failing)
    broken = tuple(sorted(name for kind, name in packages if kind == "FAIL"))
    return SuiteCounts(sum(kind == "ok" for kind, _ in packages), len(broken), failing or broken)


def _unittest(lines: list[str]) -> SuiteCounts | None:
    # As with pytest, the last summary counts. An empty line separates its two lines.
    printed = [line for line in lines if line]
    for index in range(len(printed) - 2, -1, -1):
        ran, end = _UNITTEST_RAN.match(printed[index]), _UNITTEST_END.match(printed[index + 1])
        if ran and end:
            counts = {word: int(n) for word, n in _UNITTEST_COUNT.findall(end["counts"] or "")}
            skipped = counts.pop("skipped", 0)
            failed = sum(counts.values())
            passed = max(0, int(ran[1]) - failed - skipped)
            return SuiteCounts(passed, failed, _all(_UNITTEST_FAILED, lines))
    return None


def _by_word(text: str) -> dict[str, int]:
    return {word: int(number) for number, word in _NUMBER.findall(text)}


def _all(pattern: "re.Pattern[str]", lines: list[str]) -> tuple[str, ...]:
    return tuple(sorted({match[1] for line in lines if (match := pattern.match(line))}))
