"""The base classes of agents: the command line to start, and the reader of the output stream.

An `Agent` is a value without state. Each run has its own `StreamReader`, which receives the lines and returns
`StreamEvent`s. A reader never raises for anything that an agent prints: a line that it does not understand is
counted, and its length is added to the output.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple

from switchgear._agents.events import (
    Question,
    StreamEvent,
    TextOutput,
    ToolStarted,
    ToolStep,
    Usage,
    recognised_error,
)
from switchgear._agents.fields import command_output, count
from switchgear._text.agent_text import (
    LONGEST_ERROR,
    LONGEST_OUTPUT,
    call_key,
    clean,
    files_of,
    final_question,
    is_only_frame,
    one_line,
    summarise,
)
from switchgear._text.fingerprint import digest

MAX_ARGUMENT_BYTES = 120_000
"""Maximum size of a prompt as an argument. Linux allows 128 KiB; the rest is reserved for the option."""
_MAX_OPEN_CALLS = 1_000


class NotUnderstood(Exception):
    """Raised by a reader for a line that it does not recognise; `feed` counts the line."""


PARSE_ERRORS = (
    *(NotUnderstood, ArithmeticError, AttributeError),
    *(LookupError, TypeError, ValueError, RecursionError),
)
"""The exceptions that data of an unexpected form can cause."""


class Invocation(NamedTuple):
    """One command line, its standard input and its additional environment variables."""

    argv: tuple[str, ...]
    stdin: str | None = None
    """`None`: an empty standard input."""
    env: Mapping[str, str] = {}


def as_argument(prompt: str) -> str:
    """The prompt as an argument that no program takes for an option or a file name.

    Raises ValueError for a prompt that is too long for an argument.
    """
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if size > MAX_ARGUMENT_BYTES:
        raise ValueError(
            f"the prompt has {size} bytes: as an argument of a command it may have at most"
            f" {MAX_ARGUMENT_BYTES}; put the details into a file and name it in the prompt"
        )
    prompt = prompt.replace("\0", " ")
    return f" {prompt}" if prompt.startswith(("-", "@")) else prompt


class StreamReader:
    """Reads plain text: every line is text of the agent. One per run; used by one thread."""

    def __init__(self, *, model: str | None = None) -> None:
        self.model = model
        self.lines = 0
        self.unknown_lines = 0
        """Lines that were not understood; their length is still counted in `output_chars`."""
        self.output_chars = 0
        """The length of the agent's text, without the syntax of its format."""
        self.meter = Meter()
        self.subagent = ""
        """The sub-agent that the current line is about; empty: the agent itself."""
        self._last_text = ""
        """The agent's last text, if the result depends on it."""
        self._calls: dict[str, ToolStarted] = {}
        self._arguments: dict[str, object] = {}

    def feed(self, line: bytes, *, stderr: bool = False) -> list[StreamEvent]:
        """The events of one line. Never raises."""
        self.lines += 1
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        try:
            return list(self.read_error_line(text) if stderr else self.read_line(text))
        except PARSE_ERRORS:
            self.unknown_lines += 1
            self.output_chars += len(text)
            return []

    def close(self, exit_code: int | None = None) -> list[StreamEvent]:
        """The events at the end of the stream: calls without a result, and what `read_end` returns."""
        unfinished = [
            ToolStep(call.tool, call.arguments, None, None, (), call.call_key, agent=call.agent)
            for call in self._calls.values()
        ]
        self._calls.clear()
        self._arguments.clear()
        return [*unfinished, *self.read_end(exit_code)]

    def read_line(self, text: str) -> Iterator[StreamEvent]:
        """The events of one line of standard output. To be overridden."""
        yield from self.message(text)

    def read_error_line(self, text: str) -> Iterator[StreamEvent]:
        """The events of one line of standard error. To be overridden."""
        found = recognised_error(text)
        yield from [found] if found else []

    def read_end(self, exit_code: int | None) -> Iterator[StreamEvent]:
        """The events that are certain only at the end of the stream. To be overridden."""
        del exit_code
        return iter(())

    def message(self, text: str) -> Iterator[StreamEvent]:
        self.output_chars += len(text)
        if shown := clean(text):
            yield TextOutput(shown, self.subagent)

    def started(self, call_id: object, tool: object, arguments: object) -> Iterator[StreamEvent]:
        """Keep a call that has started until its result arrives."""
        name = one_line(str(tool or "tool"), 80)
        call = ToolStarted(name, summarise(arguments), call_key(name, arguments), self.subagent)
        if len(self._calls) >= _MAX_OPEN_CALLS:
            oldest = next(iter(self._calls))
            del self._calls[oldest], self._arguments[oldest]
        self._calls[str(call_id)] = call
        self._arguments[str(call_id)] = arguments
        yield call

    def finished(
        self, call_id: object, *, ok: bool, output: str, files: tuple[str, ...] = ()
    ) -> Iterator[StreamEvent]:
        """The result of a call that was started; a call has one result."""
        call = self._calls.pop(str(call_id), None)
        if call is None:
            return
        arguments = self._arguments.pop(str(call_id), None)
        changed = (files or files_of(call.tool, arguments)) if ok else ()
        silent = not ok and is_only_frame(output)
        error = None if ok else clean(output, LONGEST_ERROR)
        if silent:  # otherwise all failures without a message would be the same error
            error = (
                f"{call.arguments or call.tool}: failed without an error message\n{error}".strip()
            )
        bare, _ = command_output(output)
        yield ToolStep(
            *(call.tool, call.arguments, ok, error, changed, call.call_key),
            *(len(output), silent, digest(bare), clean(bare, LONGEST_OUTPUT), call.agent),
        )

    def question_in(self, text: str) -> Iterator[StreamEvent]:
        if question := final_question(text):
            yield Question(question, by_tool=False)


class JsonReader(StreamReader):
    """Reads one JSON object per line; other lines count as not understood."""

    def read_line(self, text: str) -> Iterator[StreamEvent]:
        if not text.strip():
            return
        value = json.loads(text)
        if not isinstance(value, dict):
            raise NotUnderstood
        yield from self.read(value)

    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        """The events of one object. To be overridden."""
        raise NotImplementedError


class Agent(ABC):
    """An agent that works on a prompt in a directory without a user. Immutable, safe to share."""

    name: ClassVar[str]
    install: ClassVar[str]
    """The command that installs it; empty for a command that the user named."""
    model_option: ClassVar[str] = "--model"
    """The option that chooses the model; empty: there is none."""
    reader_class: ClassVar[type[StreamReader]] = StreamReader

    @abstractmethod
    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """The command line of one headless run; `options` go before the prompt."""

    def invocation(
        self, prompt: str, *, model: str | None = None, extra: tuple[str, ...] = ()
    ) -> Invocation:
        chosen = (self.model_option, model) if model and self.model_option else ()
        return self.command(prompt, (*chosen, *extra))

    def reader(self, *, model: str | None = None) -> StreamReader:
        """A reader for one run. `model` is used if the stream does not name the model."""
        return self.reader_class(model=model)


class FixedCommand(Agent):
    """A command without a prompt that is run and ended like an agent."""

    name = "command"
    install = ""

    def __init__(self, argv: tuple[str, ...], reader: StreamReader | None = None) -> None:
        self._argv = argv
        self._reader = reader or StreamReader()

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        del prompt, options
        return Invocation(self._argv)

    def reader(self, *, model: str | None = None) -> StreamReader:
        del model
        return self._reader


class Meter:
    """Running totals of tokens and cost for each model."""

    def __init__(self) -> None:
        self._tokens: dict[str | None, list[int]] = {}
        self._dollars: dict[str | None, Decimal] = {}

    def add(self, model: str | None, *tokens: object, dollars: object = None) -> Usage:
        """Add one response: tokens of input (cache included), output, cache read and cache write."""
        totals = self._tokens.setdefault(model, [0, 0, 0, 0])
        self._tokens[model] = [
            total + count(more) for total, more in zip(totals, (*tokens, 0, 0, 0, 0), strict=False)
        ]
        if (more_dollars := money(dollars)) is not None:
            self._dollars[model] = self._dollars.get(model, Decimal(0)) + more_dollars
        return self.usage(model)

    def set(self, model: str | None, *tokens: object, dollars: object = None) -> Usage:
        """Replace the totals so far."""
        self._tokens.pop(model, None)
        self._dollars.pop(model, None)
        return self.add(model, *tokens, dollars=dollars)

    def usage(self, model: str | None) -> Usage:
        dollars = self._dollars.get(model)
        sent, output, read, written = self._tokens.get(model, [0, 0, 0, 0])
        micros = None if dollars is None else int((dollars * 1_000_000).to_integral_value())
        return Usage(model, sent, output, read, written, micros)


def money(value: object) -> Decimal | None:
    """Dollars from a stream; `None` for anything that is not an amount."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9:
        return None
    return Decimal(str(value))
