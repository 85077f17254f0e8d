"""Views of a run: every method is optional, and none can change what the run does.

`LineView` prints one plain line for each thing that happened, for pipes and logs.
"""

import sys
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

from switchgear._agents.events import AgentError, StreamEvent, ToolStep
from switchgear._run import formats
from switchgear._text.formats import duration

if TYPE_CHECKING:
    from switchgear._run.result import RunResult

_COUNTDOWN_S = 30
"""Seconds between the plain lines of a countdown."""


class RunView:
    """Watches a run. Called in the run's thread; to be quick, and not to raise."""

    def started(self, run: dict[str, Any]) -> None:
        """The run begins or resumes; `run` is the content of run.json."""

    def waiting(self, why: str, left_s: float) -> None:
        """It waits; called about once a second."""

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        """An iteration begins; `run["options"]` and `run["state"]` have the limits and the use."""

    def event(self, event: StreamEvent) -> None:
        """The agent did something."""

    def validating(self, command: str) -> None:
        """The validation runs."""

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        """An iteration is over; `facts` is its line of iterations.jsonl."""

    def noted(self, text: str) -> None:
        """Something to know that is no failure."""

    def ended(self, result: "RunResult") -> None:
        """The run is over."""


class GuardedView(RunView):
    """Passes everything on to a view; one that raises is not called again."""

    def __init__(self, view: RunView) -> None:
        self._view: RunView | None = view

    def started(self, run: dict[str, Any]) -> None:
        self._show("started", run)

    def waiting(self, why: str, left_s: float) -> None:
        self._show("waiting", why, left_s)

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        self._show("iteration_started", number, run)

    def event(self, event: StreamEvent) -> None:
        self._show("event", event)

    def validating(self, command: str) -> None:
        self._show("validating", command)

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        self._show("iteration_ended", facts, run)

    def noted(self, text: str) -> None:
        self._show("noted", text)

    def ended(self, result: "RunResult") -> None:
        self._show("ended", result)

    def _show(self, what: str, *about: Any) -> None:
        if self._view is None:
            return
        try:
            getattr(self._view, what)(*about)
        except Exception as error:  # noqa: BLE001  a view must not end the run
            self._view = None
            self.problem = f"the view failed and was left out: {type(error).__name__}: {error}"

    problem: str | None = None
    """What went wrong with the view, if anything did."""


class LineView(RunView):
    """Plain lines, one for each thing that happened, each with the local time."""

    def __init__(
        self, stream: IO[str] | None = None, wall: Callable[[], float] | None = time.time
    ) -> None:
        """`wall` is the clock of the lines; `None`: the stream adds the time itself."""
        self._stream = stream or sys.stdout
        self._wall = wall
        self._waiting: str | None = None
        self._told_s = 0.0

    def started(self, run: dict[str, Any]) -> None:
        again = f", resumed after iteration {run['state']['iterations']}" if run["resumed"] else ""
        self._say(f"run {run['id']}: {run['agent']} on {run['circuit']}{again}")
        self._say(f"task: {_line(run['task'])}")

    def waiting(self, why: str, left_s: float) -> None:
        """At its start, and every half minute."""
        if why != self._waiting or self._told_s - left_s >= _COUNTDOWN_S or left_s > self._told_s:
            self._waiting, self._told_s = why, left_s
            self._say(f"waiting {duration(left_s)}: {why}")

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        self._waiting = None
        self._say(
            f"iteration {number} of {run['options']['max_iterations'] + run['state']['lost']}"
        )
        if run["state"]["nudge"]:
            self._say(f"  nudge: {_line(evidence_of(run['state']['nudge']))}")

    def event(self, event: StreamEvent) -> None:
        """Steps and complaints; words are in the log."""
        if isinstance(event, ToolStep):
            how = "?" if event.ok is None else "ok" if event.ok else "failed"
            self._say(f"  {event.tool} {_line(event.arguments, 100)}: {how}")
        elif isinstance(event, AgentError):
            self._say(f"  {event.kind}: {_line(event.text)}")

    def validating(self, command: str) -> None:
        self._say(f"  validation: {_line(command)}")

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        del run
        parts = formats.iteration(facts)
        parts.append(f"{facts['phase'].replace('_', '-')}, heat {formats.percent(facts['heat'])}")
        self._say("  " + "; ".join(parts))
        if facts["error"]:
            self._say(f"  error: {_line(facts['error'], 600)}")
        for note in facts["notes"]:
            self.noted(note)

    def noted(self, text: str) -> None:
        self._say(f"  note: {_line(text, 600)}")

    def ended(self, result: "RunResult") -> None:
        self._say(result.text())

    def _say(self, text: str) -> None:
        """Print lines, each with the local time, so that a log of the night can be read."""
        front = "" if self._wall is None else f"{formats.local_time(self._wall())}  "
        for line in text.split("\n"):
            print(f"{front}{line}", file=self._stream, flush=True)


def evidence_of(nudge: str) -> str:
    """The lines of a nudge as one line."""
    return "; ".join(line.removeprefix("- ") for line in nudge.splitlines())


def _line(text: str, longest: int = 300) -> str:
    text = " ".join(text.split())
    text = formats.shortened(text, longest)
    return "".join(sign if sign.isprintable() else "�" for sign in text)
