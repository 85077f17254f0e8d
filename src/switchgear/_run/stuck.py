"""Whether the agent of an iteration is stuck, judged while it works, by the circuit of its session.

Every step of the agent's stream is a message to the run's session circuit, which has the stuck score
and the progress detectors in one; so is its silence: the process reader calls while nothing is
printed. When the circuit opens, the agent is stopped; a warning is kept for the next prompt.
Sub-agents that the stream tells apart have circuits of their own, so that what one of them does is
not held against another; a stream has no way to stop one alone, so it ends with the agent.
"""

from collections.abc import Callable

from switchgear._agents.events import AgentResult, StreamEvent, TextOutput, ToolStarted, ToolStep
from switchgear._breaker.breaker import Breaker
from switchgear._core.types import AgentStep, Mode, Phase, Signal
from switchgear._measure.test_counts import Tally, failing_tests, key_of
from switchgear._stuck.score import Score, grounds_of
from switchgear._text.redact import redact

STUCK = "score"
"""Why the agent was stopped, in the record of an iteration."""
MEASURE_EVERY = 10
"""After so many steps that claim no change the folder is measured: a shell can change anything."""
MOST_SUB_AGENTS = 32
"""Sub-agents of an iteration that are told apart; of more, the oldest begin anew."""
_KEPT_THOUGHT = 2_000
_GOES_ON = frozenset({Mode.SHADOW, Mode.HELD_CLOSED})


class Lane:
    """One agent of the stream: its circuit, and what it was seen to do since its last step."""

    def __init__(self, circuit: Breaker) -> None:
        self.circuit = circuit
        self.unmeasured = 0
        self.thought = ""

    def thought_so_far(self) -> str:
        """What was said before this step, once."""
        thought, self.thought = self.thought.strip(), ""
        return thought


class StuckWatch:
    """Feeds a session's circuit with the events of an iteration. Used by one thread.

    `changed` measures how many files differ since it was last called, `None`: not known; `state`
    is a key of what it found. `sub_agent` makes the circuit of a sub-agent; `None`: what they do
    counts as the agent's own.
    """

    def __init__(
        self,
        circuit: Breaker,
        changed: Callable[[], int | None],
        *,
        state: Callable[[], str | None] = lambda: None,
        sub_agent: Callable[[str], Breaker] | None = None,
    ) -> None:
        self._own = Lane(circuit)
        self._lanes: dict[str, Lane] = {}
        self._changed = changed
        self._state = state
        self._sub_agent = sub_agent
        self._running = 0
        self.score: Score | None = None
        """What opened a circuit; `None`: none has opened."""

    @property
    def warning(self) -> str | None:
        """What the circuit warns of now: the evidence, and what to do differently."""
        circuit = self._own.circuit
        found = circuit.snapshot()
        if found.phase is not Phase.TRIPPING:
            return None
        return circuit.policy.reason(found.memories, found.seen_s)

    def see(self, event: StreamEvent) -> str | None:
        """Tell an event. Returns `STUCK` when the agent must be stopped now."""
        if isinstance(event, ToolStarted):
            self._running += 1
        elif isinstance(event, TextOutput):
            lane = self._lane(event.agent)
            lane.thought = f"{lane.thought}\n{event.text}"[-_KEPT_THOUGHT:]
        elif isinstance(event, AgentResult):
            return self._talked(event.text)
        elif isinstance(event, ToolStep):
            return self._stepped(event, self._lane(event.agent))
        return None

    def silent(self, idle_s: float) -> str | None:
        """Tell a silence; a tool that is running is none."""
        return None if self._running else self._tell(self._own.circuit, Signal(idle_s=idle_s))

    def validated(self, tests: Tally | None, *, ok: bool | None) -> None:
        """Record which tests fail when the agent is done."""
        if tests is not None:
            self._tell(self._own.circuit, Signal(ok, failing_tests=key_of(tests)))

    def _lane(self, agent: str) -> Lane:
        if not agent or self._sub_agent is None:
            return self._own
        if agent not in self._lanes:
            while len(self._lanes) >= MOST_SUB_AGENTS:
                del self._lanes[next(iter(self._lanes))]
            self._lanes[agent] = Lane(self._sub_agent(agent))
        return self._lanes[agent]

    def _stepped(self, event: ToolStep, lane: Lane) -> str | None:
        self._running = max(0, self._running - 1)
        error = None if event.error is None else redact(event.error)
        files = self._files(event, lane)
        result = event.output or event.error
        act = AgentStep(
            *(event.tool, event.arguments, result, lane.thought_so_far() or None),
            *(event.call_key, event.output_key),
        )
        return self._tell(
            lane.circuit,
            Signal(
                event.ok,
                error=error,
                step=act,
                files_changed=files,
                state=None if files is None else self._state(),
                failing_tests=failing_tests(result or ""),
            ),
        )

    def _talked(self, text: str) -> str | None:
        """The agent's last words: told as a reply without a tool."""
        thought = self._own.thought_so_far()
        text = text or thought
        if not text.strip():
            return None
        return self._tell(self._own.circuit, Signal(step=AgentStep(thought=text[-_KEPT_THOUGHT:])))

    def _files(self, step: ToolStep, lane: Lane) -> int | None:
        lane.unmeasured += 1
        if step.files_changed or lane.unmeasured >= MEASURE_EVERY:
            lane.unmeasured = 0
            return self._changed()
        return None

    def _tell(self, circuit: Breaker, signal: Signal) -> str | None:
        if self.score is not None:
            return None
        was_open = circuit.snapshot().phase is Phase.OPEN
        verdict = circuit.record(signal)
        opened = circuit._circuit  # noqa: SLF001  a look would let time pass, and close it
        if was_open or verdict.phase is not Phase.OPEN or opened.mode in _GOES_ON:
            return None
        readings = circuit.policy.readings(opened.memories, opened.outage.opened_at_s)
        self.score = grounds_of(circuit.policy, readings)
        self._begin_anew(circuit)
        return STUCK

    def _begin_anew(self, opened: Breaker) -> None:
        """One incident, one escalation step: the evidence against all agents is answered."""
        for lane in (self._own, *self._lanes.values()):
            lane.circuit.reset(by="switchgear", why=f"{opened.name} has opened: a step is taken")
