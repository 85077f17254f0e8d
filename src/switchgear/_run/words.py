"""How the facts of a run read: tests, cost, times, and the line of an output that matters. Pure."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from switchgear._core.detector import plural
from switchgear._core.errors import elapsed
from switchgear._text.money import dollars

UNKNOWN = "unknown"
LONGEST_LINE = 500
"""Characters of an error line that are shown."""
_LOOKED_AT = 400
"""Lines of an output that are looked at, from its end."""

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,30}[ -/]{0,5}[@-~]?")
_WARNING = re.compile(r"warning|deprecat|^\s*-- docs:", re.IGNORECASE)
_STRONG = re.compile(
    r"""^\s*(?:
        ERROR\b(?!S\b) | FATAL\b | FAILED\b | E\s{2,}\S | panic: | error(?:\[\w+\])?: | fatal:
      | (?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Failure|Interrupt|Exit)\b:
      | [\w./-]+:\d+(?::\d+)?:\ (?:fatal\ )?error
      | npm\ (?:ERR!|error) | make(?:\[\d+\])?:\ \*\*\*
      | \S+:\ (?:command\ not\ found|not\ found|No\ such\ file|Permission\ denied)
    )""",
    re.VERBOSE,
)
_WEAK = re.compile(
    r"error|exception|fail|fatal|panic|denied|refused|not found|no such|cannot|can't|unable"
    r"|invalid|killed|timed out|timeout|abort|undefined|unexpected",
    re.IGNORECASE,
)
_GENERIC = re.compile(
    r"^\s*(?:make(?:\[\d+\])?: \*\*\*|npm (?:ERR!|error) (?:code|errno|A complete log|Lifecycle)"
    r"|=+ |FAILED\s*$|error: (?:could not compile|test failed)|\d+ (?:failed|error))",
    re.IGNORECASE,
)


def shortened(text: str, longest: int) -> str:
    """A text of at most so many characters, cut behind a word, with an ellipsis.

    >>> shortened("one two three", 9), shortened("one two", 9)
    ('one two…', 'one two')
    """
    if len(text) <= longest:
        return text
    room = max(longest - 1, 0)
    space = text.rfind(" ", 0, room + 1)
    return (text[:space] if space > room // 2 else text[:room]).rstrip(" ,;:") + "…"


def last_lines(text: str, longest: int) -> str:
    r"""The last whole lines of a text, of at most so many characters; a single long line is cut.

    >>> last_lines("first line\nsecond\nthird", 14)
    'second\nthird'
    """
    text = text.strip()
    if len(text) <= longest:
        return text
    tail, before = text[-longest:], text[-longest - 1]
    if before == "\n":
        return tail.strip()
    _, newline, lines = tail.partition("\n")
    if newline and len(lines) > longest // 3:
        return lines.strip()
    if before != " ":  # it begins inside a word
        rest = re.search(r"\s", tail)
        tail = tail[rest.end() :] if rest else tail
    return f"…{tail}".strip()


def error_line(output: str) -> str:
    r"""The line of an output that says what went wrong; empty: none does.

    Lines that are written as errors come before lines that only mention one, and both before
    warnings, which mention errors too. Of several, the last specific one counts.

    >>> error_line("PytestWarning: cannot collect\nERROR: file or directory not found: t\n")
    'ERROR: file or directory not found: t'
    """
    lines = [_ANSI.sub("", line).strip() for line in output.splitlines()[-_LOOKED_AT:]]
    lines = [line for line in lines if line and line.isprintable() | any(map(str.isalnum, line))]
    sound = [line for line in lines if not _WARNING.search(line)]
    for pattern, among in ((_STRONG, sound), (_WEAK, sound), (_WEAK, lines)):
        found = [line for line in among if pattern.search(line)]
        if found:
            specific = [line for line in found if not _GENERIC.search(line)]
            return shortened(" ".join((specific or found)[-1].split()), LONGEST_LINE)
    return ""


def error_of(output: str, longest: int) -> str:
    """The end of an output with the line first that says what went wrong."""
    end, line = last_lines(output, longest), error_line(output)
    if not line or end == line:
        return end or line
    return f"{line}\n{end}"


def passing(passed: int, total: int | None = None) -> str:
    """How many tests pass.

    >>> passing(2, 3), passing(1), passing(0), passing(1, 1)
    ('2 of 3 tests pass', '1 test passes', '0 tests pass', '1 of 1 test passes')
    """
    verb = "passes" if passed == 1 else "pass"
    if total is None or total < passed:
        return f"{plural(passed, 'test')} {verb}"
    return f"{passed:,} of {plural(total, 'test')} {verb}"


def spent(micros: int, unknown: int = 0) -> str:
    """What was spent, when the cost of so many iterations is unknown.

    >>> spent(1_200_000), spent(0, 2), spent(50_000, 1)
    ('$1.20', 'unknown cost', 'at least $0.05 (cost of 1 iteration unknown)')
    """
    if not unknown:
        return dollars(micros)
    if not micros:
        return f"{UNKNOWN} cost"
    return f"at least {dollars(micros)} (cost of {plural(unknown, 'iteration')} {UNKNOWN})"


def spend(micros: int, unknown: int = 0) -> str:
    """The same for a column.

    >>> spend(1_200_000), spend(0, 2), spend(50_000, 1)
    ('$1.20', 'unknown', 'over $0.05')
    """
    if not unknown:
        return dollars(micros)
    return f"over {dollars(micros)}" if micros else UNKNOWN


def iteration(facts: Mapping[str, Any]) -> list[str]:
    """What was measured of an iteration, by its line of iterations.jsonl.

    >>> iteration({"outcome": "worked", "seconds": 4.2, "files_changed": 1, "cost_micros": None})
    ['worked in 4.2 s', '1 file changed', 'unknown cost']
    """
    seconds, files, passed = (
        facts.get(key) for key in ("seconds", "files_changed", "tests_passing")
    )
    took = f" in {elapsed(seconds)}" if isinstance(seconds, int | float) else ""
    parts = [f"{facts.get('outcome')}{took}"]
    if isinstance(files, int):
        parts.append(f"{plural(files, 'file')} changed")
    if isinstance(passed, int):
        parts.append(passing(passed, tests_total(facts)))
    cost = facts.get("cost_micros")
    tokens = facts.get("tokens")
    used = any(tokens.values()) if isinstance(tokens, dict) else True
    if facts.get("outcome") == "provider" and not used:
        cost = cost or 0  # a call that never reached its provider cost nothing
    if cost != 0:
        parts.append(price(cost))
    return parts


def tests_total(facts: Mapping[str, Any]) -> int | None:
    """How many tests an iteration's validation ran; `None`: it did not say."""
    validation = facts.get("validation")
    if not isinstance(validation, Mapping):
        return None
    passed, failed = validation.get("passed"), validation.get("failed")
    return passed + failed if isinstance(passed, int) and isinstance(failed, int) else None


def price(micros: int | None) -> str:
    """What an iteration cost.

    >>> price(None), price(4_000)
    ('unknown cost', '$0.004')
    """
    return f"{UNKNOWN} cost" if micros is None else dollars(micros)


def percent(heat: float) -> str:
    """A heat of at most 100%; what is just below a trip does not read as 100.

    >>> percent(0.999), percent(1.0), percent(1.66)
    ('99%', '100%', '100%')
    """
    return f"{int(min(max(heat, 0.0), 1.0) * 100 + 1e-9)}%"


def local_time(at_s: float) -> str:
    """`2026-11-16 03:12:44`, in the time zone of the machine."""
    try:
        at = datetime.fromtimestamp(at_s, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return f"second {at_s:.0f}"
    return at.strftime("%Y-%m-%d %H:%M:%S")
