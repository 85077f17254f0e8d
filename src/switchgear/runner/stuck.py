"""Whether the agent of an iteration is stuck, told while it works: stuck score and progress ledger.

Every step of the agent's stream is a message to the run's session circuit (seed 002) and to the
ledger beside it, and so is its silence: the process reader calls while nothing is printed. When
one of them opens, the agent is stopped; what the ledger warns of is kept for the next prompt.
"""

from collections.abc import Callable

from switchgear.agents.events import Result, StreamEvent, TextOutput, ToolStarted, ToolStep
from switchgear.breaker import Breaker
from switchgear.core.score import Score, grounds_of
from switchgear.core.types import Act, Mode, Phase, Signal
from switchgear.redact import redact

STUCK = "score"
"""Why the agent was stopped, in the record of an iteration."""
MEASURE_EVERY = 10
"""After so many steps that claim no change the folder is measured: a shell can change anything."""
_KEPT_THOUGHT = 2_000
_GOES_ON = frozenset({Mode.SHADOW, Mode.HELD_CLOSED})


class StuckWatch:
    """Feeds a session's circuits with the events of an iteration. Used by one thread.

    `changed` measures how many files differ since it was last called, `None`: not known; `state`
    is a key of what it found. `progress` is the circuit of the ledger; `None`: it is switched off.
    """

    def __init__(
        self,
        circuit: Breaker,
        changed: Callable[[], int | None],
        *,
        progress: Breaker | None = None,
        state: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._circuit = circuit
        self._changed = changed
        self._progress = progress
        self._state = state
        self._running = 0
        self._unmeasured = 0
        self._thought = ""
        self.score: Score | None = None
        """What opened a circuit; `None`: none has opened."""

    @property
    def warning(self) -> str | None:
        """What the ledger warns of now: the debt, and what to do differently."""
        circuit = None if self._progress is None else self._progress.snapshot()
        if circuit is None or self._progress is None or circuit.phase is not Phase.TRIPPING:
            return None
        readings = self._progress.readings().values()
        return max(readings, key=lambda reading: reading.heat).reason

    def see(self, event: StreamEvent) -> str | None:
        """Tell an event. Returns `STUCK` when the agent must be stopped now."""
        if isinstance(event, ToolStarted):
            self._running += 1
        elif isinstance(event, TextOutput):
            self._thought = f"{self._thought}\n{event.text}"[-_KEPT_THOUGHT:]
        elif isinstance(event, Result):
            return self._talked(event.text or self._thought)
        elif isinstance(event, ToolStep):
            return self._stepped(event)
        return None

    def silent(self, idle_s: float) -> str | None:
        """Tell a silence; a tool that is running is none."""
        return None if self._running else self._tell(self._circuit, Signal(idle_s=idle_s))

    def _stepped(self, event: ToolStep) -> str | None:
        self._running = max(0, self._running - 1)
        thought, self._thought = self._thought.strip(), ""
        error = None if event.error is None else redact(event.error)
        files = self._files(event)
        act = Act(event.tool, event.call_key or event.arguments, event.output_key)
        signal = Signal(event.ok, error=error, act=act, files_changed=files)
        stuck = self._tell(self._circuit, signal)
        if stuck or self._progress is None:
            return stuck
        act = Act(event.tool, event.arguments, event.output or event.error, thought or None)
        state = None if files is None else self._state()
        return self._tell(self._progress, signal._replace(act=act, state=state))

    def _talked(self, text: str) -> str | None:
        """The agent's last words: told as a reply without a tool."""
        self._thought = ""
        if self._progress is None or not text.strip():
            return None
        return self._tell(self._progress, Signal(act=Act(thought=text[-_KEPT_THOUGHT:])))

    def _files(self, step: ToolStep) -> int | None:
        self._unmeasured += 1
        if step.files_changed or self._unmeasured >= MEASURE_EVERY:
            self._unmeasured = 0
            return self._changed()
        return None

    def _tell(self, circuit: Breaker, signal: Signal) -> str | None:
        if self.score is not None:
            return None
        was_open = circuit.snapshot().phase is Phase.OPEN
        verdict = circuit.tell(signal)
        opened = circuit._circuit  # noqa: SLF001  a look would let time pass, and close it
        if was_open or verdict.phase is not Phase.OPEN or opened.mode in _GOES_ON:
            return None
        readings = circuit.policy.readings(opened.memories, opened.outage.opened_at_s)
        self.score = grounds_of(circuit.policy, readings)
        self._begin_anew(circuit)
        return STUCK

    def _begin_anew(self, opened: Breaker) -> None:
        """One incident, one rung: what the other circuit holds against the agent is answered."""
        for circuit in (self._circuit, self._progress):
            if circuit is not None and circuit is not opened:
                circuit.reset(by="switchgear", why=f"{opened.name} has opened")
