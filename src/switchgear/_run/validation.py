"""The validation: a command that must succeed, in its own processes, with a time limit.

Where none is named, the project's own test command is detected. `error_line` finds the line of an
output that shows what went wrong.
"""

import json
import re
from collections import deque
from pathlib import Path
from typing import NamedTuple

from switchgear._agents.base import FixedCommand, StreamReader
from switchgear._agents.events import StreamEvent
from switchgear._agents.process import AgentProcess, ProcessEnd, SupervisorPool
from switchgear._measure.test_counts import SuiteCounts, suite_counts
from switchgear._run.interrupt import Interrupt
from switchgear._system.files import read_regular
from switchgear._text.redact import redact, shortened

TIMEOUT_S = 3600.0
"""Time limit in seconds: a validation that takes longer has failed."""
KEPT_BYTES = 2_000_000
"""Bytes of its output that are kept, from the end."""
CANNOT_RUN = (126, 127)
"""Exit codes of a shell that cannot run a command."""
MAX_SETTINGS_BYTES = 4_000_000
"""Maximum bytes read of a settings file of the project, to find its test command."""
_MAX_NAMES = 10
_NO_PYTEST = "No module named pytest"


class ValidationResult(NamedTuple):
    command: str
    ok: bool | None
    """`None`: the command was stopped before its end."""
    exit_code: int | None
    seconds: float
    tests: SuiteCounts | None
    tail: str
    """The last lines it printed, redacted."""
    late: bool = False
    """Whether the command was stopped at its time limit."""

    @property
    def error(self) -> str:
        """The failure as text: the failing tests, else the end of the output."""
        if self.late:
            return f"validation failed: {redact(self.command)} did not end in time"
        if self.tests is not None and self.tests.failed:
            names = ", ".join(self.tests.failing[:_MAX_NAMES])
            more = len(self.tests.failing) - _MAX_NAMES
            named = f": {names}" + (f" and {more} more" if more > 0 else "") if names else ""
            return f"validation failed: failing tests{named}"
        detail = f": {error_of(self.tail, 1500)}" if self.tail.strip() else " and printed nothing"
        return f"validation failed with exit code {self.exit_code}{detail}".strip()

    @property
    def tests_total(self) -> int | None:
        """How many tests there are, as far as the output shows."""
        return None if self.tests is None else self.tests.passed + self.tests.failed

    @property
    def cannot_run(self) -> bool:
        """Whether nothing was validated: there is no such command, or no test runner."""
        return self.exit_code in CANNOT_RUN or (self.exit_code == 1 and _NO_PYTEST in self.tail)


def validate(
    command: str,
    folder: Path,
    *,
    deadline_s: float | None,
    interrupt: Interrupt,
    supervisors: SupervisorPool | None = None,
) -> ValidationResult:
    """Run the command with the shell in the folder. Never raises for a command that fails."""
    reader = _OutputTail()
    process = AgentProcess(
        FixedCommand(("/bin/sh", "-c", command), reader),
        "",
        folder,
        deadline_s=TIMEOUT_S if deadline_s is None else min(deadline_s, TIMEOUT_S),
        supervisors=supervisors,
    )
    with interrupt.watching(process):
        done = process.run()
    late = done.end is ProcessEnd.DEADLINE
    exited = done.end is ProcessEnd.EXITED
    stopped = done.end in {ProcessEnd.STOPPED, ProcessEnd.KILLED}
    return ValidationResult(
        command=command,
        ok=None if stopped else exited and done.exit_code == 0,
        exit_code=done.exit_code,
        seconds=done.duration_s,
        tests=None if stopped or late else suite_counts(reader.text()),
        tail=done.tail or done.problem,
        late=late,
    )


def detect(folder: Path) -> str | None:
    """The test command of a project: pytest, npm, go or cargo; `None`: none was found."""
    if _has_pytest(folder):
        own = next((p for p in (".venv", "venv") if (folder / p / "bin" / "python").exists()), None)
        return f"{own}/bin/python -m pytest -q" if own else "python3 -m pytest -q"
    if _has_npm_test(folder):
        return "npm test --silent"
    if (folder / "go.mod").is_file():
        return "go test ./..."
    if (folder / "Cargo.toml").is_file():
        return "cargo test"
    return None


def _has_pytest(folder: Path) -> bool:
    if any((folder / name).is_file() for name in ("pytest.ini", ".pytest.ini", "conftest.py")):
        return True
    for name, mark in (
        ("pyproject.toml", "[tool.pytest"),
        ("setup.cfg", "[tool:pytest]"),
        ("tox.ini", "[pytest]"),
    ):
        if mark in _text(folder / name):
            return True
    places = (folder, folder / "tests", folder / "test")
    return any(place.is_dir() and any(place.glob("test_*.py")) for place in places)


def _has_npm_test(folder: Path) -> bool:
    try:
        command = json.loads(_text(folder / "package.json") or "{}")["scripts"]["test"]
    except (ValueError, LookupError, TypeError):
        return False
    return isinstance(command, str) and bool(command) and "no test specified" not in command


def _text(path: Path) -> str:
    try:
        return read_regular(path, MAX_SETTINGS_BYTES).decode(errors="replace")
    except OSError:
        return ""


class _OutputTail(StreamReader):
    """Keeps the last lines of standard output and error: they contain the test counts."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: deque[bytes] = deque()
        self._size = 0

    def feed(self, line: bytes, *, stderr: bool = False) -> list[StreamEvent]:
        """Keep a line; some runners print their counts as errors."""
        del stderr
        self.lines += 1
        self._kept.append(line)
        self._size += len(line)
        while self._size > KEPT_BYTES:
            self._size -= len(self._kept.popleft())
        return []

    def text(self) -> str:
        return b"\n".join(self._kept).decode("utf-8", "replace")


MAX_LINE_CHARS = 500
"""Maximum characters shown of an error line."""
_MAX_LINES = 400
"""Maximum number of lines searched, from the end of an output."""

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


def last_lines(text: str, longest: int) -> str:
    r"""The last whole lines of a text, of at most `longest` characters; a single long line is cut.

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
    if before != " ":  # the tail begins inside a word
        rest = re.search(r"\s", tail)
        tail = tail[rest.end() :] if rest else tail
    return f"…{tail}".strip()


def error_line(output: str) -> str:
    r"""The line of an output that describes the error; empty: none does.

    Lines that are written as errors come before lines that only mention one, and both before
    warnings, which mention errors too. Of several, the last specific one counts.

    >>> error_line("PytestWarning: cannot collect\nERROR: file or directory not found: t\n")
    'ERROR: file or directory not found: t'
    """
    lines = [_ANSI.sub("", line).strip() for line in output.splitlines()[-_MAX_LINES:]]
    lines = [line for line in lines if line and line.isprintable() | any(map(str.isalnum, line))]
    errors = [line for line in lines if not _WARNING.search(line)]
    for pattern, candidates in ((_STRONG, errors), (_WEAK, errors), (_WEAK, lines)):
        found = [line for line in candidates if pattern.search(line)]
        if found:
            specific = [line for line in found if not _GENERIC.search(line)]
            return shortened(" ".join((specific or found)[-1].split()), MAX_LINE_CHARS, "…")
    return ""


def error_of(output: str, longest: int) -> str:
    """The end of an output, preceded by the line that describes the error."""
    end, line = last_lines(output, longest), error_line(output)
    if not line or end == line:
        return end or line
    return f"{line}\n{end}"
