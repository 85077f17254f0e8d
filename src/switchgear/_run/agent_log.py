"""The log of an iteration: what the agent did, in lines, redacted and of bounded length."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from switchgear._agents.events import (
    AgentError,
    AgentResult,
    Question,
    StreamEvent,
    TextOutput,
    ToolStep,
)
from switchgear._system.files import append_descriptor

LONGEST = 1_000_000
"""Characters of one log; then it says that it is full."""


class AgentLog:
    """Writes the events of a stream to a file. Their texts are already redacted."""

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(append_descriptor(path), "a", encoding="utf-8", errors="replace")
        self._left = LONGEST
        self.problem: OSError | None = None
        """Why nothing more can be written, if so; the agent's work goes on without its log."""

    def event(self, event: StreamEvent) -> None:
        """Write what an event tells, if it tells anything."""
        if isinstance(event, TextOutput):
            self.write(event.text)
        elif isinstance(event, ToolStep):
            how = "?" if event.ok is None else "ok" if event.ok else "failed"
            error = f"\n    {event.error}" if event.error else ""
            self.write(f"[{event.tool}] {event.arguments}: {how}{error}")
        elif isinstance(event, AgentError):
            self.write(f"[{event.kind}] {event.text}")
        elif isinstance(event, Question):
            self.write(f"[question] {event.text}")
        elif isinstance(event, AgentResult):
            self.write(f"[result] {event.text}")

    def write(self, text: str) -> None:
        """Write a text, if there is room for it."""
        if self._left <= 0 or self.problem is not None:
            return
        self._left -= len(text) + 1
        try:
            self._file.write(f"{text}\n" if self._left > 0 else "[the rest is left out]\n")
        except OSError as error:
            self.problem = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._file.close()
        except OSError as problem:  # what was buffered did not fit; the file is closed all the same
            self.problem = problem
