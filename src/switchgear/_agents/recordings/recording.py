"""Recorded runs: their steps, the builder that puts them together, and the values in recordings.

Recordings hold texts, calls, results and usage separately and in several orders; every reader passes
them to a `RunBuilder` in the order of the file. Whatever a file holds, each value has its type: what
is not as it should be is empty or `None`.
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

LONGEST_NAME = 200
FIRST_DATE_S = 1e9
"""Smaller times are seconds since the start of a run."""
_SHELLS = frozenset({
    *("bash", "shell", "exec_command", "run_shell_command", "execute_bash", "terminal", "run"),
    *("local_shell_call", "container.exec", "run_command", "execute_command", "cmdrunaction"),
    *("bash_execute", "run_terminal_cmd", "run_in_terminal", "execute_shell", "shell_command"),
})  # fmt: skip
_LOOKING = frozenset({
    *("read", "read_file", "read_many_files", "glob", "grep", "ls", "list_directory", "search"),
    *("search_file_content", "webfetch", "web_fetch", "websearch", "web_search", "view", "think"),
    *("grep_search", "list_files", "google_web_search", "todowrite", "update_plan", "finish"),
})  # fmt: skip
_LOOKING_COMMANDS = frozenset({
    *("ls", "cat", "head", "tail", "grep", "rg", "find", "pwd", "wc", "which", "echo", "stat"),
    *("file", "tree", "du", "df", "env", "ps", "sort", "uniq", "cut", "diff", "true", "cd"),
})  # fmt: skip
_LOOKING_GIT = frozenset({"log", "status", "diff", "show", "blame", "branch", "grep"})
_WRITING = re.compile(r"(?<![<>&\d])>{1,2}(?![&>])|\bsed -i|\btee\b|\bpatch\b|\bgit apply\b|<<")
_WRITING_SIGNS = (">", "<<", "sed -i", "tee", "patch", "git apply")
"""Searched before `_WRITING`, which is slow on texts that it does not match."""
_BETWEEN = re.compile(r"\|\||&&|[;|\n]")
_EXIT_CODE = re.compile(r"(?im)^(?:process )?exit(?:ed with)? code:? (-?\d{1,10})$")
_LATEST_S = 4e11
"""Larger numbers are milliseconds or nanoseconds."""


def name(value: object) -> str:
    """A text as one redacted line; empty for anything else."""
    if not isinstance(value, str):
        return ""
    return _safe_name(value) if len(value) <= LONGEST_NAME else redact(value, LONGEST_NAME)


@lru_cache(maxsize=1024)
def _safe_name(text: str) -> str:
    """The same, cached: sessions, tools and models are repeated in every line of a file."""
    return redact(text, LONGEST_NAME)


word = text
"""The text that names a kind; empty for anything else."""


def body(value: object) -> str | None:
    """A text for detectors: redacted, both ends of a long one; `None` for nothing."""
    if value is None:
        return None
    text = value if isinstance(value, str) else as_json(value)
    if len(text) <= LONGEST_TEXT:
        return redact_lines(text)
    half = LONGEST_TEXT // 2
    return f"{redact_lines(text, half)}\n{redact_end(text, half - 1)}"


def as_json(value: Any) -> str:
    """Arguments as one text; equal arguments give equal texts."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(type(value))


def error_line(output: str | None) -> str:
    return redact(gist(output or "")) or "failed without an error message"


def whole(value: object) -> int | None:
    found = number(value)
    return None if found is None or found > 1e20 else int(found)


def moment(value: object) -> float | None:
    """A time in seconds, from ISO text or a number of seconds, milliseconds or nanoseconds."""
    if isinstance(value, str):
        if value.isascii() and value.isdecimal():
            return moment(int(value[:25]))
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    found = number(value)
    while found is not None and found > _LATEST_S:
        found /= 1000
    return found


def exit_code(output: str) -> int | None:
    """The last exit code that an output reports on a separate line."""
    found = _EXIT_CODE.findall(output[-2000:])
    return int(found[-1]) if found else None


def succeeded(tool: str, output: str) -> bool:
    """Whether a step succeeded, judged by its output, if the recording does not report it."""
    code = exit_code(output) if exit_code(output) is not None else exit_code(output[:300])
    if code is not None:
        return code == 0
    return not (is_shell(tool) and looks_failed(output))


def is_shell(tool: str) -> bool:
    return bare(tool) in _SHELLS


def bare(tool: str) -> str:
    """A tool's name in lower case, without its server."""
    return tool.rsplit("__", 1)[-1].rsplit(".", 1)[-1].lower()


def changed(tool: str, arguments: object, *, ok: bool | None) -> bool | None:
    """Whether a step changed files; `None`: unknown.

    >>> changed("Edit", {"file_path": "a.py"}, ok=True), changed("Read", {}, ok=True)
    (True, False)
    >>> changed("bash", {"command": "ls | head"}, ok=True), changed("bash", "make", ok=True)
    (False, None)
    """
    if not tool or bare(tool) in _LOOKING:
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
    for part in _BETWEEN.split(command[:4000]):
        words = part.split()
        looking = not words or words[0] in _LOOKING_COMMANDS
        if not looking and not (words[0] == "git" and words[1:2] and words[1] in _LOOKING_GIT):
            return None
    return False


# Runs and their steps

MOST_STEPS = 20_000
"""Steps kept of one run; a run that has more is marked."""
MOST_KINDS = 50
"""Kinds of unknown lines that are named; more are counted together."""


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
    """When it ended: since the epoch, or since the start of the run."""
    seconds: float | None = None
    usages: tuple[Usage, ...] = ()
    """The usage of this step alone, not a running total."""
    changed: bool | None = None
    files_changed: int | None = None
    tests_passing: int | None = None
    output_chars: int | None = None
    is_act: bool = True
    """False: not a step of an agent, but facts about a whole iteration of a loop."""

    def signal(self) -> Signal:
        """The facts as a circuit records them."""
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
    """Whether it is the agent's note that the user interrupted it."""


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
    """Whether the task was solved in the end; `None`: unknown."""
    ended: str = ""
    """Why it ended, in the words of the recording."""
    steps: tuple[RecordedStep, ...] = ()
    cost_micros: int | None = None
    """The cost of the whole run, if its steps have none."""
    left_out: int = 0
    """Steps beyond `MOST_STEPS`."""
    messages: tuple[UserMessage, ...] = ()
    """The last messages of the user, where the recording is of a session with one."""
    folder: str = ""
    """Where the agent worked, if the recording contains it."""
    outcome_from: str = ""
    """Where `solved` comes from: `label`, `given`, `recording`, `inferred`; empty: not known."""
    confidence: float | None = None
    """How likely the outcome is right, 0.5 to 1; `None`: not inferred."""
    outcome_how: str = ""
    """What an inferred outcome follows from."""

    @property
    def group(self) -> str:
        """The unit that must not be split when runs are divided: the task, else the run itself."""
        return self.task or self.id


class RecordingTally:
    """What was read and what was not understood, summed over files. Used by one thread."""

    def __init__(self) -> None:
        self.files = 0
        self.runs = 0
        self.empty = 0
        """Sessions in which the agent did nothing."""
        self.formats: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        """Lines that were not understood, by what they are."""
        self.problems: list[tuple[str, str]] = []
        """Files that could not be read, and why: the first of them."""
        self.problem_count = 0

    def unknown_line(self, format_name: str, kind: object) -> None:
        text = kind if isinstance(kind, str) and kind else "a line without a kind"
        shown = "".join(sign if sign.isprintable() else "?" for sign in text[:60])
        name = f"{format_name}: {shown}"
        if name not in self.unknown and len(self.unknown) >= MOST_KINDS:
            name = f"{format_name}: other kinds"
        self.unknown[name] += 1

    def problem(self, path: str, why: str) -> None:
        self.problem_count += 1
        if len(self.problems) < MOST_KINDS:
            self.problems.append((path, why))

    def add(self, other: "RecordingTally") -> None:
        self.files += other.files
        self.runs += other.runs
        self.empty += other.empty
        self.formats.update(other.formats)
        for kind, count in other.unknown.items():
            known = kind in self.unknown or len(self.unknown) < MOST_KINDS
            self.unknown[kind if known else "other kinds"] += count
        self.problem_count += other.problem_count
        self.problems = (self.problems + other.problems)[:MOST_KINDS]


_MOST_WAITING = 256
_LONGEST_SAID = 8000
_LONGEST_MESSAGE = 300
_KEPT_MESSAGES = 8
_INTERRUPTED = "[Request interrupted by user"
"""How Claude Code records that the user pressed Escape."""


class _OpenCall(NamedTuple):
    place: int
    arguments: object
    began_s: float | None


class RunBuilder:
    """Builds one run from a recording. `run` has everything but the steps."""

    def __init__(self, run: RecordedRun, tally: RecordingTally | None = None) -> None:
        self.run = run
        self.at_s: float | None = None
        """The time of the line, message or part that is being read."""
        self._tally = tally or RecordingTally()
        self._steps: list[RecordedStep] = []
        self._left_out = 0
        self._said: list[str] = []
        self._said_chars = 0
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
        """Set facts that are not known yet; empty values are ignored."""
        new = {key: value for key, value in facts.items() if value and not getattr(self.run, key)}
        self.set(**new)

    def user(self, text: object) -> None:
        """A message of the user: the first one is the task."""
        words = text if isinstance(text, str) else ""
        self.fill(task=name(words))
        if words.strip():
            line = redact(words, _LONGEST_MESSAGE)
            interrupts = line.startswith(_INTERRUPTED)
            message = UserMessage(len(self._steps), line, interrupts)
            self._messages = (*self._messages, message)[-_KEPT_MESSAGES:]

    def text(self, text: object) -> None:
        """A text or thought of the agent; it belongs to its next call."""
        if isinstance(text, str) and text.strip() and self._said_chars < _LONGEST_SAID:
            self._said.append(text)
            self._said_chars += len(text)

    def add_usage(self, usage: Usage) -> None:
        """The usage of a reply; it belongs to the next step."""
        if usage.input_tokens or usage.output_tokens or usage.cost_micros:
            self._usages.append(usage)

    def add_usage_of_last(self, usage: Usage) -> None:
        """The usage of the previous reply, recorded after it: it belongs to the last step."""
        if self._said or not self._steps:
            self.add_usage(usage)
        elif usage.input_tokens or usage.output_tokens or usage.cost_micros:
            last = self._steps[-1]
            self._steps[-1] = last._replace(usages=(*last.usages, usage))

    def call(self, call_id: object, tool: object, arguments: object) -> None:
        if len(self._steps) >= MOST_STEPS:
            self._left_out += 1
            return
        if len(self._calls) >= _MOST_WAITING:
            del self._calls[next(iter(self._calls))]
        self._calls[str(call_id)] = _OpenCall(len(self._steps), arguments, self.at_s)
        shown = body(as_json(arguments)) or ""
        self.add(RecordedStep(name(tool) or "tool", shown, thought=self.said(), at_s=self.at_s))

    def result(
        self, call_id: object, output: str, *, ok: bool | None = None, seconds: float | None = None
    ) -> None:
        """The result of a call. `ok=None`: not recorded, so the output is judged."""
        call = self._calls.pop(str(call_id), None)
        if call is None:
            return
        step = self._steps[call.place]
        good = succeeded(step.tool, output) if ok is None else ok
        if seconds is None and self.at_s is not None and call.began_s is not None:
            seconds = max(self.at_s - call.began_s, 0.0)
        self._steps[call.place] = step._replace(
            result=body(output),
            ok=good,
            error=None if good else error_line(output),
            at_s=self._time(self.at_s) if self.at_s is not None else step.at_s,
            seconds=seconds,
            changed=changed(step.tool, call.arguments, ok=good),
        )

    def turn(self) -> None:
        """The reply is complete: text without a call becomes a step."""
        if self._said:
            self.add(RecordedStep(thought=self.said(), at_s=self.at_s, changed=False))

    def add(self, step: RecordedStep) -> None:
        if len(self._steps) >= MOST_STEPS:
            self._left_out += 1
            return
        if self._usages:
            step = step._replace(usages=(*step.usages, *self._usages))
            self._usages = []
        self._steps.append(step._replace(at_s=self._time(step.at_s)))

    def said(self) -> str | None:
        """Remove and return the text since the last step."""
        thought = body("\n".join(self._said).strip()) if self._said else None
        self._said, self._said_chars = [], 0
        return thought

    def finish(self) -> RecordedRun:
        """The run. Usage after the last step belongs to that step."""
        self.at_s = None
        self.turn()
        if self._usages and self._steps:
            last = self._steps[-1]
            self._steps[-1] = last._replace(usages=(*last.usages, *self._usages))
        return self.run._replace(
            steps=tuple(self._steps), left_out=self._left_out, messages=self._messages
        )

    def _time(self, at_s: float | None) -> float | None:
        """The time, which never goes backwards in a run, even if it does in the recording."""
        if at_s is None:
            return self._last_s
        self._last_s = at_s if self._last_s is None else max(at_s, self._last_s)
        return self._last_s


LONGEST_LINE = 32 * 1024 * 1024
LARGEST_DOCUMENT = 128 * 1024 * 1024
MOST_BYTES = 8 * 1024 * 1024 * 1024
"""Limit for one decompressed file; the rest is skipped and reported."""
_HEAD = 20
"""Number of objects read to recognise a format."""
_BROKEN = (OSError, EOFError, ValueError, zlib.error)
_GZIP, _SQLITE = b"\x1f\x8b", b"SQLite format 3\0"


class UnreadableRecording(Exception):
    """A file that cannot be read, with the reason."""


class RecordingFile:
    def __init__(
        self, path: str, lines: tuple[bytes, ...] | None = None, first_line: int = 1
    ) -> None:
        self.path = path
        self.first_line = first_line
        self.name = os.path.basename(path)
        self._lines = lines
        """Lines of the file that were read already, instead of the file."""
        self.is_part = lines is not None
        self._document: Any = None
        self._objects: list[dict[str, Any]] | None = None

    @property
    def is_database(self) -> bool:
        return self._begins_with(_SQLITE)

    def head(self) -> list[dict[str, Any]]:
        """The first objects: one per line, or the whole document. Raises `UnreadableRecording`."""
        if self._objects is None:
            self._objects = []
            for value in self.lines(RecordingTally(), ""):
                self._objects.append(value)
                if len(self._objects) >= _HEAD:
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
            if self._objects:  # lines of JSON behind a line that is none
                return []
            raise
        return [document] if isinstance(document, dict) else [{"[]": document}]

    def document(self) -> Any:
        """The file as one JSON value, parsed once. Raises `UnreadableRecording`."""
        if self._document is None:
            with self._opened() as file:
                data = _check_size(file.read, LARGEST_DOCUMENT + 1)
            if len(data) > LARGEST_DOCUMENT:
                raise UnreadableRecording(
                    f"is larger than {LARGEST_DOCUMENT // 1024**2} MiB as one JSON document"
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
        """The lines, without those that are too long. Raises `UnreadableRecording`."""
        if self._lines is not None:
            yield from self._lines
            return
        with self._opened() as file:
            left = MOST_BYTES
            while line := _check_size(file.readline, LONGEST_LINE + 1):
                left -= len(line)
                if left < 0:
                    tally.problem(self.path, f"has more than {MOST_BYTES // 1024**3} GiB: cut off")
                    return
                if len(line) > LONGEST_LINE:
                    tally.unknown_line(name, f"longer than {LONGEST_LINE // 1024**2} MiB")
                    while line and not line.endswith(b"\n"):
                        line = _check_size(file.readline, LONGEST_LINE + 1)
                        left -= len(line)
                elif line.strip():
                    yield line

    def lines(self, tally: RecordingTally, name: str) -> Iterator[dict[str, Any]]:
        """The lines that are JSON objects; others are counted. Raises `UnreadableRecording`."""
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
    """Whether a file has this format, by its first objects."""
    read: Callable[[RecordingFile, RecordingTally], Iterator[RecordedRun]]
    places: tuple[str, ...] = ()
    per_line: bool = False
    """Whether each line is a run by itself, so that lines may be read separately."""
    is_database: Callable[[RecordingFile], bool] | None = None
    """Whether a SQLite file has this format; `None`: the format has no databases."""


def open_regular(path: str) -> IO[bytes]:
    """Open a regular file. Its type is checked before: opening a pipe would block."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnreadableRecording("is not a regular file")
        return open(path, "rb")
    except (OSError, ValueError) as error:
        raise UnreadableRecording(f"cannot be read: {_describe_error(error)}") from error


def _check_size(read: Callable[[int], bytes], size: int) -> bytes:
    try:
        return read(size)
    except _BROKEN as error:
        raise UnreadableRecording(f"cannot be read: {_describe_error(error)}") from error


def _describe_error(error: BaseException) -> str:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(reason)[:200]
