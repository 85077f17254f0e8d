"""Views of a run: every method is optional, and none can change what the run does.

`LineView` prints one plain line for each thing that happened, for pipes and logs.
"""

import sys
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from switchgear._agents.events import AgentError, StreamEvent, ToolStep
from switchgear._run import formats
from switchgear._stuck.messages import one_line
from switchgear._text.formats import duration, percent

if TYPE_CHECKING:
    from switchgear._run.result import RunResult

V = TypeVar("V")
_COUNTDOWN_S = 30
"""Seconds between the plain lines of a countdown."""


class RunView:
    """Watches a run. Called in the run's thread; must return quickly, and must not raise."""

    def started(self, run: dict[str, Any]) -> None:
        """The run begins or resumes; `run` is the content of run.json."""

    def waiting(self, why: str, left_s: float) -> None:
        """The run waits; called about once a second."""

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        """An iteration begins; `run["options"]` has the limits, and `run["state"]` the usage."""

    def event(self, event: StreamEvent) -> None:
        """The agent did something."""

    def validating(self, command: str) -> None:
        """The validation runs."""

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        """An iteration is over; `facts` is its line of iterations.jsonl."""

    def noted(self, text: str) -> None:
        """A remark that is not a failure."""

    def ended(self, result: "RunResult") -> None:
        """The run is over."""


class _Guarded:
    """Passes every call on to a view; after an exception, to the silent view instead."""

    def __init__(self, view: Any, silent: Any) -> None:
        self._view, self._silent = view, silent

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def show(*arguments: Any) -> Any:
            try:
                return getattr(self._view, name)(*arguments)
            except Exception:  # noqa: BLE001  a view must not end the run
                self._view = self._silent
                return getattr(self._silent, name)(*arguments)

        return show


def guarded(view: V, silent: V) -> V:
    """A view that never raises: after the first error, `silent` is called instead."""
    return cast("V", _Guarded(view, silent))


class Countdown:
    """Decides when a wait is printed as a plain line: at its start, and every 30 seconds."""

    def __init__(self) -> None:
        self._why: str | None = None
        self._shown_s = 0.0

    def is_due(self, why: str, left_s: float) -> bool:
        due = why != self._why or not 0 <= self._shown_s - left_s < _COUNTDOWN_S
        if due:
            self._why, self._shown_s = why, left_s
        return due


class LineView(RunView):
    """Plain lines, one for each thing that happened, each with the local time."""

    def __init__(
        self, stream: IO[str] | None = None, wall: Callable[[], float] | None = time.time
    ) -> None:
        """`wall` is the clock of the lines; `None`: the stream adds the time itself."""
        self._stream = stream or sys.stdout
        self._wall = wall
        self._countdown = Countdown()

    def started(self, run: dict[str, Any]) -> None:
        again = f", resumed after iteration {run['state']['iterations']}" if run["resumed"] else ""
        self._print(f"run {run['id']}: {run['agent']} on {run['circuit']}{again}")
        self._print(f"task: {one_line(run['task'], 300)}")

    def waiting(self, why: str, left_s: float) -> None:
        if self._countdown.is_due(why, left_s):
            self._print(f"waiting {duration(left_s)}: {why}")

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        self._countdown = Countdown()
        self._print(
            f"iteration {number} of {run['options']['max_iterations'] + run['state']['lost']}"
        )
        if run["state"]["nudge"]:
            self._print(f"  nudge: {one_line(evidence_of(run['state']['nudge']), 300)}")

    def event(self, event: StreamEvent) -> None:
        """Print steps and complaints; the agent's text is in the log."""
        if isinstance(event, ToolStep):
            how = "?" if event.ok is None else "ok" if event.ok else "failed"
            self._print(f"  {event.tool} {one_line(event.arguments, 100)}: {how}")
        elif isinstance(event, AgentError):
            self._print(f"  {event.kind}: {one_line(event.text, 300)}")

    def validating(self, command: str) -> None:
        self._print(f"  validation: {one_line(command, 300)}")

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        del run
        parts = formats.iteration(facts)
        parts.append(f"{facts['phase'].replace('_', '-')}, heat {percent(facts['heat'])}")
        self._print("  " + "; ".join(parts))
        if facts["error"]:
            self._print(f"  error: {one_line(facts['error'], 600)}")
        for note in facts["notes"]:
            self.noted(note)

    def noted(self, text: str) -> None:
        self._print(f"  note: {one_line(text, 600)}")

    def ended(self, result: "RunResult") -> None:
        self._print(result.text())

    def _print(self, text: str) -> None:
        """Print lines, each with the local time, so that a log can be read later."""
        front = "" if self._wall is None else f"{formats.local_time(self._wall())}  "
        for line in text.split("\n"):
            print(f"{front}{line}", file=self._stream, flush=True)


def evidence_of(nudge: str) -> str:
    """The lines of a nudge as one line."""
    return "; ".join(line.removeprefix("- ") for line in nudge.splitlines())
