"""What a live view knows of a run: everything that it was told, ready to be drawn at any moment.

The run's thread tells, the drawing thread looks; a lock keeps the two apart, and neither waits
for a terminal while it holds it.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from switchgear._agents.events import (
    AgentError,
    Question,
    StreamEvent,
    TextOutput,
    ToolStarted,
    ToolStep,
    Usage,
)
from switchgear._cli.views.text import clean
from switchgear._run import formats
from switchgear._run.view import evidence_of
from switchgear._text.fingerprint import gist

RECENT = 40
HISTORY = 200
TREND = 60


class Ended(NamedTuple):
    """What is remembered of an iteration."""

    number: int
    outcome: str
    line: str
    heat: float
    tests: int | None
    tests_total: int | None
    output_chars: int | None


class Note(NamedTuple):
    """Something to know: of the run, or of iterations that follow each other."""

    text: str
    first: int | None = None
    last: int | None = None

    def __str__(self) -> str:
        if self.first is None:
            return self.text
        which = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        return f"iteration {which}: {self.text}"


class Board(NamedTuple):
    """A copy of all that is known, for one drawing."""

    run: dict[str, Any]
    number: int
    """Of the iteration that runs or ran last; 0: none yet."""
    busy: bool
    """Whether an iteration runs."""
    doing: str
    doing_s: float
    """How long it has been doing that."""
    used_s: float
    """The time used in all."""
    left_s: float | None
    """What is left of the time; `None`: no end."""
    waits_s: float | None
    """How long it still waits; `None`: it does not."""
    spent_micros: int
    unknown_prices: int
    ended: tuple[Ended, ...]
    notes: tuple[Note, ...]
    recent: tuple[str, ...]
    last_error: str
    nudge: str
    stopping: int
    """How often somebody asked to stop."""


class Notebook:
    """Takes down what the view is told. Told by one thread, looked at by another."""

    def __init__(self, clock: Callable[[], float], stopping: Callable[[], int]) -> None:
        self._clock = clock
        self._stopping = stopping
        self._lock = threading.Lock()
        self._run: dict[str, Any] = {"options": {}, "state": {}, "readings": []}
        self._told_s = self._began_s = clock()
        self._used_before_s = 0.0
        self._number = 0
        self._busy = False
        self._doing, self._since_s = "starting", clock()
        self._waits_until_s: float | None = None
        self._costs: dict[str | None, int | None] = {}
        self._ended: deque[Ended] = deque(maxlen=HISTORY)
        self._notes: deque[Note] = deque(maxlen=HISTORY)
        self._recent: deque[str] = deque(maxlen=RECENT)
        self._last_error = ""
        self._nudge = ""

    def started(self, run: dict[str, Any]) -> None:
        """The run begins."""
        with self._lock:
            self._take(run)
            self._began_s, self._used_before_s = self._told_s, run["state"]["seconds"]

    def waiting(self, why: str, left_s: float) -> None:
        """It waits."""
        with self._lock:
            self._waits_until_s = self._clock() + left_s
            self._do(f"waiting {one_line(why)}")

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        """An iteration begins."""
        with self._lock:
            self._take(run)
            self._number, self._busy = number, True
            self._costs.clear()
            self._nudge = one_line(evidence_of(run["state"].get("nudge") or ""), 1000)
            self._do("the agent starts")

    def validating(self, command: str) -> None:
        """The validation runs."""
        with self._lock:
            self._do(f"validation: {one_line(command)}")

    def event(self, event: StreamEvent) -> None:
        """The agent did something."""
        with self._lock:
            if isinstance(event, Usage):
                self._costs[event.model] = event.cost_micros
            elif isinstance(event, ToolStarted):
                self._do(f"{one_line(event.tool, 60)} {one_line(event.arguments)}")
            elif isinstance(event, ToolStep):
                self._step(event)
            elif isinstance(event, TextOutput | Question):
                self._do("the agent works")
                if said := one_line(event.text):
                    self._recent.append(said)
            elif isinstance(event, AgentError):
                self._recent.append(f"{event.kind}: {one_line(event.text)}")
                self._last_error = one_line(event.text)

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        """An iteration is over."""
        ended = _ended(facts)
        with self._lock:
            self._take(run)
            self._number, self._busy = ended.number, False
            self._costs.clear()
            self._ended.append(ended)
            self._recent.append(f"iteration {ended.number}: {ended.line}")
            self._nudge = one_line(evidence_of(run["state"].get("nudge") or ""), 1000)
            if facts["error"]:
                self._last_error = one_line(facts["error"])
            for note in facts["notes"]:
                self._note(note, ended.number)
            self._do("deciding how to go on")

    def noted(self, text: str) -> None:
        """Something to know."""
        with self._lock:
            self._note(text)

    def board(self) -> Board:
        """All of it, as it is now."""
        now_s = self._clock()
        with self._lock:
            state, left_s = self._run["state"], self._run.get("time_left_s")
            waits_s = None if self._waits_until_s is None else self._waits_until_s - now_s
            known = [cost for cost in self._costs.values() if cost is not None]
            return Board(
                run=self._run,
                number=self._number,
                busy=self._busy,
                doing=self._doing,
                doing_s=now_s - self._since_s,
                used_s=self._used_before_s + now_s - self._began_s,
                left_s=None if left_s is None else max(left_s - (now_s - self._told_s), 0.0),
                waits_s=None if waits_s is None else max(waits_s, 0.0),
                spent_micros=state.get("spent_micros", 0) + sum(known),
                unknown_prices=state.get("unknown_prices", 0),
                ended=tuple(self._ended),
                notes=tuple(self._notes),
                recent=tuple(self._recent),
                last_error=self._last_error,
                nudge=self._nudge,
                stopping=self._stopping(),
            )

    def _take(self, run: dict[str, Any]) -> None:
        self._run, self._told_s = run, self._clock()

    def _do(self, what: str) -> None:
        if not what.startswith("waiting"):
            self._waits_until_s = None
        if what != self._doing:
            self._doing, self._since_s = what, self._clock()

    def _note(self, text: str, number: int | None = None) -> None:
        note = Note(one_line(text, 600), number, number)
        self._recent.append(f"note: {note}")
        last = self._notes[-1] if self._notes else None
        if (
            last is not None
            and number is not None
            and (note.text, number - 1) == (last.text, last.last)
        ):
            note = self._notes.pop()._replace(last=number)
        self._notes.append(note)

    def _step(self, step: ToolStep) -> None:
        how = "?" if step.ok is None else "ok" if step.ok else "failed"
        self._recent.append(f"{one_line(step.tool, 60)} {one_line(step.arguments, 200)}: {how}")
        if step.error:
            self._last_error = one_line(gist(step.error))
        self._do("the agent works")


def one_line(text: str, longest: int = 300) -> str:
    """What an agent said, as one harmless line."""
    return clean(" ".join(text[: 4 * longest].split()), longest)


def _ended(facts: dict[str, Any]) -> Ended:
    parts = formats.iteration(facts)
    if facts["nudge"]:
        parts.append("nudged")
    return Ended(
        facts["number"],
        facts["outcome"],
        one_line(", ".join(parts)),
        facts["heat"],
        facts["tests_passing"],
        formats.tests_total(facts),
        facts["output_chars"],
    )
