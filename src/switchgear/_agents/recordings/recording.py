"""Recorded runs: their steps, the builder that assembles them, and the values in recordings.

Recordings contain texts, calls, results and usage separately and in different orders. Every reader passes them to
a `RunBuilder` in the order of the file. Values of an unexpected type become empty or `None`.
"""

import gzip
import json
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import IO, Any, NamedTuple

from switchgear._agents.events import Usage, looks_failed
from switchgear._agents.fields import number, parsed, text
from switchgear._core.types import AgentStep, Signal
from switchgear._text.agent_text import files_of
from switchgear._text.fingerprint import gist
from switchgear._text.redact import LONGEST_TEXT, redact, redact_end, redact_lines

MAX_NAME_CHARS = 200
MIN_EPOCH_S = 1e9
"""Times below this are seconds since the start of a run; others are seconds since the epoch."""
_SHELLS = frozenset({
    *("bash", "shell", "exec_command", "run_shell_command", "execute_bash", "terminal", "run"),
    *("local_shell_call", "container.exec", "run_command", "execute_command", "cmdrunaction"),
    *("bash_execute", "run_terminal_cmd", "run_in_terminal", "execute_shell", "shell_command"),
})  # fmt: skip
_READING_TOOLS = frozenset({
    *("read", "read_file", "read_many_files", "glob", "grep", "ls", "list_directory", "search"),
    *("search_file_content", "webfetch", "web_fetch", "websearch", "web_search", "view", "think"),
    *("grep_search", "list_files", "google_web_search", "todowrite", "update_plan", "finish"),
})  # fmt: skip
_READING_COMMANDS = frozenset({
    *("ls", "cat", "head", "tail", "grep", "rg", "find", "pwd", "wc", "which", "echo", "stat"),
    *("file", "tree", "du", "df", "env", "ps", "sort", "uniq", "cut", "diff", "true", "cd"),
})  # fmt: skip
_READING_GIT = frozenset({"log", "status", "diff", "show", "blame", "branch", "grep"})
_WRITING = re.compile(r"(?<![<>&\d])>{1,2}(?![&>])|\bsed -i|\btee\b|\bpatch\b|\bgit apply\b|<<")
_WRITING_SIGNS = (">", "<<", "sed -i", "tee", "patch", "git apply")
"""Searched before `_WRITING`, which is slow on texts without a match."""
_COMMAND_SEPARATOR = re.compile(r"\|\||&&|[;|\n]")
_EXIT_CODE = re.compile(r"(?im)^(?:process )?exit(?:ed with)? code:? (-?\d{1,10})$")
_MAX_EPOCH_S = 4e11
"""Times above this are milliseconds, microseconds or nanoseconds."""


def name(value: object) -> str:
    """A text as one redacted line; empty for anything else."""
    if not isinstance(value, str):
        return ""
    return _safe_name(value) if len(value) <= MAX_NAME_CHARS else redact(value, MAX_NAME_CHARS)


@lru_cache(maxsize=1024)
def _safe_name(text: str) -> str:
    """A name, redacted. Cached, because sessions, tools and models are repeated in every line of a file."""
    return redact(text, MAX_NAME_CHARS)


word = text
"""A string, such as the type of a line; empty for anything else."""


def body(value: object) -> str | None:
    """A text for detectors, redacted, and shortened in the middle if it is long; `None`: there is none."""
    if value is None:
        return None
    text = value if isinstance(value, str) else as_json(value)
    if len(text) <= LONGEST_TEXT:
        return redact_lines(text)
    half = LONGEST_TEXT // 2
    return f"{redact_lines(text, half)}\n{redact_end(text, half - 1)}"


def as_json(value: Any) -> str:
    """Arguments as one text, which is the same for equal arguments."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(type(value))


def error_line(output: str | None) -> str:
    return redact(gist(output or "")) or "failed without an error message"


def whole_number(value: object) -> int | None:
    found = number(value)
    return None if found is None or found > 1e20 else int(found)


def timestamp(value: object) -> float | None:
    """A time in seconds, from ISO text or a number of seconds, milliseconds or nanoseconds."""
    if isinstance(value, str):
        if value.isascii() and value.isdecimal():
            return timestamp(int(value[:25]))
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    found = number(value)
    while found is not None and found > _MAX_EPOCH_S:
        found /= 1000
    return found


def exit_code(output: str) -> int | None:
    """The last exit code that an output reports on a line of its own; `None`: none."""
    found = _EXIT_CODE.findall(output[-2000:])
    return int(found[-1]) if found else None


def succeeded(tool: str, output: str) -> bool:
    """Whether a step succeeded, according to its output, for recordings that do not report it."""
    code = exit_code(output)
    if code is None:
        code = exit_code(output[:300])
    if code is not None:
        return code == 0
    return not (is_shell(tool) and looks_failed(output))


def is_shell(tool: str) -> bool:
    return bare_tool(tool) in _SHELLS


def bare_tool(tool: str) -> str:
    """A tool's name in lower case, without its server."""
    return tool.rsplit("__", 1)[-1].rsplit(".", 1)[-1].lower()


def changed(tool: str, arguments: object, *, ok: bool | None) -> bool | None:
    """Whether a step changed files; `None`: unknown.

    >>> changed("Edit", {"file_path": "a.py"}, ok=True), changed("Read", {}, ok=True)
    (True, False)
    >>> changed("bash", {"command": "ls | head"}, ok=True), changed("bash", "make", ok=True)
    (False, None)
    """
    if not tool or bare_tool(tool) in _READING_TOOLS:
        return False
    if files_of(tool, arguments):
        return ok is not False
    if isinstance(arguments, dict) and word(arguments.get("command")) in {"view", "read"}:
        return False
    return _changed_by(command_of(arguments)) if is_shell(tool) else None


def command_of(arguments: object) -> str:
    if isinstance(arguments, dict):
        arguments = arguments.get("command", arguments.get("cmd"))
    if isinstance(arguments, list):
        return " ".join(str(part) for part in arguments[:50])
    return arguments if isinstance(arguments, str) else ""


def _changed_by(command: str) -> bool | None:
    if not command.strip():
        return None
    if any(sign in command for sign in _WRITING_SIGNS) and _WRITING.search(command):
        return True
    for part in _COMMAND_SEPARATOR.split(command[:4000]):
        words = part.split()
        looking = not words or words[0] in _READING_COMMANDS
        if not looking and not (words[0] == "git" and words[1:2] and words[1] in _READING_GIT):
            return None
    return False


# Runs and their steps

MAX_STEPS = 20_000
"""Maximum number of steps kept of one run; further steps are counted in `left_out`."""
MAX_KINDS = 50
"""Maximum number of kinds of unknown lines that are counted separately."""


class RecordedStep(NamedTuple):
    """One step of an agent, or one iteration of a loop."""

    tool: str = ""
    """The tool's own name; empty: the step is only text."""
    args: str = ""
    result: str | None = None
    thought: str | None = None
    ok: bool | None = None
    """`None`: unknown."""
    error: str | None = None
    at_s: float | None = None
    """When it ended, in seconds since the epoch or since the start of the run."""
    seconds: float | None = None
    usages: tuple[Usage, ...] = ()
    """The usage of this step, not a running total."""
    changed: bool | None = None
    files_changed: int | None = None
    tests_passing: int | None = None
    output_chars: int | None = None
    is_act: bool = True
    """Whether it is a step of an agent; false: it has the facts of a whole iteration of a loop."""

    def signal(self) -> Signal:
        """The signal that a circuit records for this step."""
        act = AgentStep(self.tool, self.args, self.result, self.thought) if self.is_act else None
        costs = [usage.cost_micros for usage in self.usages]
        claimed = 1 if self.is_act and self.changed else None  # as hooks count an edit
        return Signal(
            ok=self.ok,
            seconds=self.seconds,
            error=self.error,
            cost_micros=sum(cost for cost in costs if cost is not None) if any(costs) else None,
            files_changed=claimed if self.files_changed is None else self.files_changed,
            tests_passing=self.tests_passing,
            output_chars=self.output_chars,
            step=act,
        )


class UserMessage(NamedTuple):
    """A message of the user, as one redacted line."""

    after: int
    """The number of steps before it."""
    text: str
    interrupts: bool = False
    """Whether it records that the user interrupted the agent."""


class RecordedRun(NamedTuple):
    """One run of one agent; a sub-agent is a separate run.

    >>> RecordedRun("r1", "runs.jsonl", "plain", steps=(RecordedStep("bash", "make"),)).task
    ''
    """

    id: str
    source: str
    format: str
    agent: str = ""
    model: str | None = None
    task: str = ""
    solved: bool | None = None
    """Whether the task was solved; `None`: unknown."""
    ended: str = ""
    """Why it ended, as the recording reports it."""
    steps: tuple[RecordedStep, ...] = ()
    cost_micros: int | None = None
    """The cost of the whole run, if its steps have none."""
    left_out: int = 0
    """The number of steps beyond `MAX_STEPS`."""
    messages: tuple[UserMessage, ...] = ()
    """The last messages of the user, if the recording contains messages of a user."""
    folder: str = ""
    """The folder in which the agent worked; empty: unknown."""
    outcome_from: str = ""
    """The source of `solved`: `label`, `given`, `recording`, `inferred`; empty: unknown."""
    confidence: float | None = None
    """The probability that an inferred outcome is right, 0.5 to 1; `None`: not inferred."""
    outcome_how: str = ""
    """Why an inferred outcome was inferred."""

    @property
    def group(self) -> str:
        """The key of runs that must stay together when runs are divided: the task, else the run itself."""
        return self.task or self.id


class RecordingTally:
    """Counts what was read and what was not understood, over all files. Used by one thread."""

    def __init__(self) -> None:
        self.files = 0
        self.runs = 0
        self.empty = 0
        """Sessions in which the agent did nothing."""
        self.formats: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        """The number of lines that were not understood, by kind."""
        self.problems: list[tuple[str, str]] = []
        """The first files that could not be read, and why."""
        self.problem_count = 0

    def unknown_line(self, format_name: str, kind: object) -> None:
        text = kind if isinstance(kind, str) and kind else "a line without a kind"
        shown = "".join(sign if sign.isprintable() else "?" for sign in text[:60])
        name = f"{format_name}: {shown}"
        if name not in self.unknown and len(self.unknown) >= MAX_KINDS:
            name = f"{format_name}: other kinds"
        self.unknown[name] += 1

    def problem(self, path: str, why: str) -> None:
        self.problem_count += 1
        if len(self.problems) < MAX_KINDS:
            self.problems.append((path, why))

    def add(self, other: "RecordingTally") -> None:
        self.files += other.files
        self.runs += other.runs
        self.empty += other.empty
        self.formats.update(other.formats)
        for kind, count in other.unknown.items():
            known = kind in self.unknown or len(self.unknown) < MAX_KINDS
            self.unknown[kind if known else "other kinds"] += count
        self.problem_count += other.problem_count
        self.problems = (self.problems + other.problems)[:MAX_KINDS]


_MAX_OPEN_CALLS = 256
_MAX_TEXT_CHARS = 8000
_MAX_MESSAGE_CHARS = 300
_MAX_MESSAGES = 8
_INTERRUPTED = "[Request interrupted by user"
"""The text with which Claude Code records that the user pressed Escape."""


class _OpenCall(NamedTuple):
    position: int
    arguments: object
    began_s: float | None


class RunBuilder:
    """Builds one run from a recording. `run` contains everything but the steps."""

    def __init__(self, run: RecordedRun, tally: RecordingTally | None = None) -> None:
        self.run = run
        self.at_s: float | None = None
        """The time of the current line, message or part."""
        self._tally = tally or RecordingTally()
        self._steps: list[RecordedStep] = []
        self._left_out = 0
        self._text_parts: list[str] = []
        self._text_chars = 0
        self._usages: list[Usage] = []
        self._calls: dict[str, _OpenCall] = {}
        self._last_s: float | None = None
        self._messages: tuple[UserMessage, ...] = ()

    def set(self, **facts: object) -> None:
        self.run = self.run._replace(**facts)  # type: ignore[arg-type]

    def unknown(self, kind: object) -> None:
        """Count a line, message or part that was not understood."""
        self._tally.unknown_line(self.run.format, kind)

    def fill(self, **facts: object) -> None:
        """Set facts that are not set yet; empty values are ignored."""
        new = {key: value for key, value in facts.items() if value and not getattr(self.run, key)}
        self.set(**new)

    def user(self, text: object) -> None:
        """Add a message of the user. The first one is the task."""
        words = text if isinstance(text, str) else ""
        self.fill(task=name(words))
        if words.strip():
            line = redact(words, _MAX_MESSAGE_CHARS)
            interrupts = line.startswith(_INTERRUPTED)
            message = UserMessage(len(self._steps), line, interrupts)
            self._messages = (*self._messages, message)[-_MAX_MESSAGES:]

    def text(self, text: object) -> None:
        """Add a text or thought of the agent; it belongs to the agent's next call."""
        if isinstance(text, str) and text.strip() and self._text_chars < _MAX_TEXT_CHARS:
            self._text_parts.append(text)
            self._text_chars += len(text)

    def add_usage(self, usage: Usage) -> None:
        """Add the usage of a response; it belongs to the next step."""
        if usage.input_tokens or usage.output_tokens or usage.cost_micros:
            self._usages.append(usage)

    def add_usage_of_last(self, usage: Usage) -> None:
        """Add the usage of a response that was recorded before; it belongs to the last step."""
        if self._text_parts or not self._steps:
            self.add_usage(usage)
        elif usage.input_tokens or usage.output_tokens or usage.cost_micros:
            last = self._steps[-1]
            self._steps[-1] = last._replace(usages=(*last.usages, usage))

    def call(self, call_id: object, tool: object, arguments: object) -> None:
        if len(self._steps) >= MAX_STEPS:
            self._left_out += 1
            return
        if len(self._calls) >= _MAX_OPEN_CALLS:
            del self._calls[next(iter(self._calls))]
        self._calls[str(call_id)] = _OpenCall(len(self._steps), arguments, self.at_s)
        args, thought = body(as_json(arguments)) or "", self.take_text()
        self.add(RecordedStep(name(tool) or "tool", args, thought=thought, at_s=self.at_s))

    def result(
        self, call_id: object, output: str, *, ok: bool | None = None, seconds: float | None = None
    ) -> None:
        """Add the result of a call. `ok=None`: not recorded; it is determined from the output."""
        call = self._calls.pop(str(call_id), None)
        if call is None:
            return
        step = self._steps[call.position]
        good = succeeded(step.tool, output) if ok is None else ok
        if seconds is None and self.at_s is not None and call.began_s is not None:
            seconds = max(self.at_s - call.began_s, 0.0)
        self._steps[call.position] = step._replace(
            result=body(output),
            ok=good,
            error=None if good else error_line(output),
            at_s=self._time(self.at_s) if self.at_s is not None else step.at_s,
            seconds=seconds,
            changed=changed(step.tool, call.arguments, ok=good),
        )

    def turn(self) -> None:
        """End a response: text without a call becomes a step."""
        if self._text_parts:
            self.add(RecordedStep(thought=self.take_text(), at_s=self.at_s, changed=False))

    def add(self, step: RecordedStep) -> None:
        if len(self._steps) >= MAX_STEPS:
            self._left_out += 1
            return
        if self._usages:
            step = step._replace(usages=(*step.usages, *self._usages))
            self._usages = []
        self._steps.append(step._replace(at_s=self._time(step.at_s)))

    def take_text(self) -> str | None:
        """Remove and return the text since the last step."""
        thought = body("\n".join(self._text_parts).strip()) if self._text_parts else None
        self._text_parts, self._text_chars = [], 0
        return thought

    def finish(self) -> RecordedRun:
        """Return the run. Usage after the last step is added to that step."""
        self.at_s = None
        self.turn()
        if self._usages and self._steps:
            last = self._steps[-1]
            self._steps[-1] = last._replace(usages=(*last.usages, *self._usages))
        return self.run._replace(
            steps=tuple(self._steps), left_out=self._left_out, messages=self._messages
        )

    def _time(self, at_s: float | None) -> float | None:
        """The time of a step, at least that of the step before, even if the recording is out of order."""
        if at_s is None:
            return self._last_s
        self._last_s = at_s if self._last_s is None else max(at_s, self._last_s)
        return self._last_s


MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_DOCUMENT_BYTES = 128 * 1024 * 1024
MAX_FILE_BYTES = 8 * 1024 * 1024 * 1024
"""Maximum size of a decompressed file; the rest is skipped and reported."""
_HEAD_OBJECTS = 20
"""Number of objects read to recognise a format."""
_READ_ERRORS = (OSError, EOFError, ValueError, zlib.error)
_GZIP, _SQLITE = b"\x1f\x8b", b"SQLite format 3\0"


class UnreadableRecording(Exception):
    """A file cannot be read, with the reason."""


class RecordingFile:
    def __init__(
        self, path: str, lines: tuple[bytes, ...] | None = None, first_line: int = 1
    ) -> None:
        self.path = path
        self.first_line = first_line
        self.name = os.path.basename(path)
        self._lines = lines
        """Lines of the file that were read already, in place of the file."""
        self.is_part = lines is not None
        self._document: Any = None
        self._objects: list[dict[str, Any]] | None = None

    @property
    def is_database(self) -> bool:
        return self._begins_with(_SQLITE)

    def head(self) -> list[dict[str, Any]]:
        """The first objects: one per line, or the document as a whole. Raises `UnreadableRecording`."""
        if self._objects is None:
            self._objects = []
            for value in self.lines(RecordingTally(), ""):
                self._objects.append(value)
                if len(self._objects) >= _HEAD_OBJECTS:
                    break
            first = next(self.raw_lines(RecordingTally(), ""), b"")
            if not self._objects or not isinstance(parsed(first), dict):
                self._objects = self._as_document() or self._objects
        return self._objects

    @property
    def first(self) -> dict[str, Any]:
        return next(iter(self.head()), {})

    def _as_document(self) -> list[dict[str, Any]]:
        try:
            document = self.document()
        except UnreadableRecording:
            if self._objects:  # lines of JSON after a line that is not JSON
                return []
            raise
        return [document] if isinstance(document, dict) else [{"[]": document}]

    def document(self) -> Any:
        """The file as one JSON value, parsed once. Raises `UnreadableRecording`."""
        if self._document is None:
            with self._opened() as file:
                data = _read_limited(file.read, MAX_DOCUMENT_BYTES + 1)
            if len(data) > MAX_DOCUMENT_BYTES:
                raise UnreadableRecording(
                    f"is larger than {MAX_DOCUMENT_BYTES // 1024**2} MiB as one JSON document"
                )
            if not data.strip():
                raise UnreadableRecording("is empty")
            try:
                self._document = json.loads(data)
            except UnicodeDecodeError as error:
                raise UnreadableRecording("is not a text in UTF-8") from error
            except RecursionError as error:
                raise UnreadableRecording("is JSON that is nested too deeply") from error
            except ValueError as error:
                raise UnreadableRecording(f"is not valid JSON: {_describe_error(error)}") from error
        return self._document

    def raw_lines(self, tally: RecordingTally, name: str) -> Iterator[bytes]:
        """The lines, except those that are too long. Raises `UnreadableRecording`."""
        if self._lines is not None:
            yield from self._lines
            return
        with self._opened() as file:
            left = MAX_FILE_BYTES
            while line := _read_limited(file.readline, MAX_LINE_BYTES + 1):
                left -= len(line)
                if left < 0:
                    limit = MAX_FILE_BYTES // 1024**3
                    tally.problem(self.path, f"has more than {limit} GiB: cut off")
                    return
                if len(line) > MAX_LINE_BYTES:
                    tally.unknown_line(name, f"longer than {MAX_LINE_BYTES // 1024**2} MiB")
                    while line and not line.endswith(b"\n"):
                        line = _read_limited(file.readline, MAX_LINE_BYTES + 1)
                        left -= len(line)
                elif line.strip():
                    yield line

    def lines(self, tally: RecordingTally, name: str) -> Iterator[dict[str, Any]]:
        """The JSON objects, one per line; other lines are counted. Raises `UnreadableRecording`."""
        for line in self.raw_lines(tally, name):
            value = parsed(line)
            if isinstance(value, dict):
                yield value
            else:
                tally.unknown_line(name, "not a JSON object")

    def _begins_with(self, magic: bytes) -> bool:
        try:
            with open_regular(self.path) as file:
                return file.read(len(magic)) == magic
        except UnreadableRecording:
            return False

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with open_regular(self.path) as file:
            if self._begins_with(_GZIP):
                with gzip.GzipFile(fileobj=file) as inflated:
                    yield inflated  # type: ignore[misc]  # it reads as any file does
            else:
                yield file


class RecordingFormat(NamedTuple):
    name: str
    label: str
    recognises: Callable[[RecordingFile], bool]
    """Whether a file has this format, according to its first objects."""
    read: Callable[[RecordingFile, RecordingTally], Iterator[RecordedRun]]
    places: tuple[str, ...] = ()
    per_line: bool = False
    """Whether each line is a run, so that lines can be read separately."""
    is_database: Callable[[RecordingFile], bool] | None = None
    """Whether a SQLite file has this format; `None`: the format has no databases."""


def open_regular(path: str) -> IO[bytes]:
    """Open a regular file. The type is checked first, because opening a pipe would block."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnreadableRecording("is not a regular file")
        return open(path, "rb")
    except (OSError, ValueError) as error:
        raise UnreadableRecording(f"cannot be read: {_describe_error(error)}") from error


def _read_limited(read: Callable[[int], bytes], size: int) -> bytes:
    try:
        return read(size)
    except _READ_ERRORS as error:
        raise UnreadableRecording(f"cannot be read: {_describe_error(error)}") from error


def _describe_error(error: BaseException) -> str:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(reason)[:200]
