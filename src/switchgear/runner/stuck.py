"""Whether the agent of an iteration is stuck, told while it works: the stuck score of seed 002.

Every step of the agent's stream is a message to the run's session circuit, and so is its silence:
the process reader calls while nothing is printed. When the circuit opens, the agent is stopped.
"""

from collections.abc import Callable

from switchgear.agents.events import StreamEvent, ToolStarted, ToolStep
from switchgear.breaker import Breaker
from switchgear.core.score import Score, score_of
from switchgear.core.types import Act, Phase, Signal
from switchgear.redact import redact

STUCK = "score"
"""Why the agent was stopped, in the record of an iteration."""
MEASURE_EVERY = 10
"""After so many steps that claim no change the folder is measured: a shell can change anything."""


class StuckWatch:
    """Feeds one session's circuit with the events of an iteration. Used by one thread.

    `changed` measures how many files differ since it was last called; `None`: not known.
    """

    def __init__(self, circuit: Breaker, changed: Callable[[], int | None]) -> None:
        self._circuit = circuit
        self._changed = changed
        self._running = 0
        self._unmeasured = 0
        self.score: Score | None = None
        """What opened the circuit; `None`: it did not open."""

    def see(self, event: StreamEvent) -> str | None:
        """Tell an event. Returns `STUCK` when the agent must be stopped now."""
        if isinstance(event, ToolStarted):
            self._running += 1
            return None
        if not isinstance(event, ToolStep):
            return None
        self._running = max(0, self._running - 1)
        error = None if event.error is None else redact(event.error)
        act = Act(event.tool, event.call_key or event.arguments, event.output_key)
        return self._tell(Signal(event.ok, error=error, act=act, files_changed=self._files(event)))

    def silent(self, idle_s: float) -> str | None:
        """Tell a silence; a tool that is running is none."""
        return None if self._running else self._tell(Signal(idle_s=idle_s))

    def _files(self, step: ToolStep) -> int | None:
        self._unmeasured += 1
        if step.files_changed or self._unmeasured >= MEASURE_EVERY:
            self._unmeasured = 0
            return self._changed()
        return None

    def _tell(self, signal: Signal) -> str | None:
        if self.score is not None:
            return None
        was_open = self._circuit.snapshot().phase is Phase.OPEN
        verdict = self._circuit.tell(signal)
        if was_open or verdict.phase is not Phase.OPEN:
            return None
        opened = self._circuit._circuit  # noqa: SLF001  a look would let time pass, and close it
        readings = self._circuit.policy.readings(opened.memories, opened.outage.opened_at_s)
        self.score = score_of(self._circuit.policy, readings)
        return STUCK
