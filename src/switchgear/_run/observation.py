"""What is noted while an agent works: its steps, errors, words and costs, and when to stop it.

One `Watch` per iteration, fed with the events of the stream as they come. It answers with a reason
to stop the agent now: it repeats one failing step, it has spent what was left, or it goes on trying
a provider that is down. Agents do the last for minutes. One that has done nothing yet has nothing
to lose by it, for the run tries again after a pause; one in the middle of its work keeps it longer.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from switchgear._agents.events import (
    LIMITED,
    OUTAGE,
    AgentError,
    AgentResult,
    Question,
    StreamEvent,
    TextOutput,
    ToolStep,
    Usage,
)
from switchgear._agents.prices import Rates, cost_of
from switchgear._text.fingerprint import fingerprint, gist
from switchgear._text.redact import redact

KEPT_ERRORS = 20
KEPT_TOOLS = 20
COMPLAINTS = 3
"""So many in a row, at least, before a provider counts as down."""
PATIENCE_S = 30.0
"""How long an agent that has done nothing yet may go on trying."""
PATIENCE_AT_WORK_S = 300.0
_KEPT_TEXT = 4_000


class SeenError(NamedTuple):
    """An error of the stream, as it is kept of an iteration."""

    source: str
    """`tool` or `agent`."""
    kind: str
    """The tool's name, or the kind of the agent's complaint."""
    text: str
    key: str
    """Its fingerprint."""
    times: int = 1


class Repeated(NamedTuple):
    """A step that failed in the same way again and again, without one that succeeded between."""

    tool: str
    arguments: str
    error: str
    times: int


class Watch:
    """Folds the events of one iteration. Used by one thread.

    - `promise`: the text that says "done"; it may be spread over several pieces of output.
    - `same_error`: after so many equal failures of steps in a row the agent is stopped.
    - `left_micros`: what may still be spent. `rates`: the user's own prices of tokens.
    - `clock`: seconds that only ever grow.
    """

    def __init__(
        self,
        *,
        promise: str | None = None,
        same_error: int | None = None,
        left_micros: int | None = None,
        rates: Rates | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._at_work = False
        self._waits_since_s = 0.0
        self._complaints = 0
        self._promise = promise
        self._same_error = same_error
        self._left_micros = left_micros
        self._rates = rates
        self._row_key: str | None = None
        self._row_step: ToolStep | None = None
        self._row: Repeated | None = None
        self._said = ""
        self._usages: dict[str | None, Usage] = {}
        self.promised = False
        self.steps = 0
        self.tools: Counter[str] = Counter()
        self.errors: dict[str, SeenError] = {}
        self.complaint: AgentError | None = None
        """The last complaint of agent or provider that nothing has got over since."""
        self.down: AgentError | None = None
        """The complaint about the provider for which the agent was to be stopped."""
        self.question: Question | None = None
        self.result: AgentResult | None = None
        self.repeated: Repeated | None = None
        self.last_tool_error: str | None = None

    def see(self, event: StreamEvent) -> str | None:
        """Note an event. Returns why the agent must be stopped now, if it must.

        That is `stuck`, `budget` or `provider`.
        """
        if isinstance(event, ToolStep | TextOutput):
            self._at_work, self._complaints = True, 0
        if isinstance(event, ToolStep):
            return self._step(event)
        if isinstance(event, TextOutput):
            self._say(event.text)
        elif isinstance(event, Usage):
            return self._spend(event)
        elif isinstance(event, AgentError):
            return self._complain(event)
        elif isinstance(event, Question):
            self.question = event
        elif isinstance(event, AgentResult):
            self.result = event
            self._say(event.text)
        return None

    @property
    def usages(self) -> tuple[Usage, ...]:
        """The latest usage of each model."""
        return tuple(self._usages.values())

    @property
    def waits_for_provider(self) -> bool:
        """Whether the provider is all that the agent deals with, and not only for a moment."""
        if not self._complaints:
            return False
        return not self._at_work or self._clock() - self._waits_since_s >= PATIENCE_S

    @property
    def ended_on(self) -> str | None:
        """The error of the agent's last step, if that one failed."""
        return None if self._row is None else self._row.error

    @property
    def last_words(self) -> str:
        """The end of what the agent said."""
        return self._said[-_KEPT_TEXT:]

    def _step(self, step: ToolStep) -> str | None:
        self.steps += 1
        self.tools[step.tool] += 1
        if step.ok:
            self._row_key = self._row_step = self._row = None
            if self.complaint is not None and not self.complaint.final:
                self.complaint = None  # it tried again and got on
            return None
        if step.ok is None or step.error is None:
            return None
        self.last_tool_error = step.error
        key = self._error("tool", step.tool, step.error)
        row = self._row if self._is_again(step, key) else None
        # Some agents lose the output of a command now and then: what it said before stands.
        error = row.error if row is not None and step.silent else redact(gist(step.error))
        self._row_key, self._row_step = key, step
        self._row = Repeated(step.tool, step.arguments, error, 1 if row is None else row.times + 1)
        times = self._row.times
        if self._same_error is not None and times >= self._same_error:
            self.repeated = self._row
            return "stuck"
        return None

    def _complain(self, error: AgentError) -> str | None:
        self.complaint = error
        self._error("agent", error.kind, error.text)
        if error.kind not in OUTAGE | LIMITED:
            self._complaints = 0
            return None
        if not self._complaints:
            self._waits_since_s = self._clock()
        self._complaints += 1
        if error.final or error.kind in LIMITED or self._complaints < COMPLAINTS:
            return None
        patience_s = PATIENCE_AT_WORK_S if self._at_work else PATIENCE_S
        if self._clock() - self._waits_since_s < patience_s:
            return None
        self.down = self.down or error
        return "provider"

    def _is_again(self, step: ToolStep, key: str) -> bool:
        """Whether a failure is the last one again: by its words, else by the call itself."""
        last = self._row_step
        if last is None:
            return False
        if step.silent or last.silent:
            return step.call_key == last.call_key
        return key == self._row_key

    def _spend(self, usage: Usage) -> str | None:
        self._usages[usage.model] = usage
        if self._left_micros is None:
            return None
        known = sum(cost_of([each], self._rates).micros or 0 for each in self._usages.values())
        return "budget" if known > self._left_micros else None

    def _say(self, text: str) -> None:
        self._said = f"{self._said}\n{text}"[-2 * _KEPT_TEXT :]
        if self._promise is not None and self._promise in self._said:
            self.promised = True

    def _error(self, source: str, kind: str, text: str) -> str:
        key = fingerprint(text)
        seen = self.errors.get(f"{source} {key}")
        if seen is not None:
            self.errors[f"{source} {key}"] = seen._replace(times=seen.times + 1)
        elif len(self.errors) < KEPT_ERRORS:
            self.errors[f"{source} {key}"] = SeenError(source, kind, redact(gist(text)), key)
        return key
