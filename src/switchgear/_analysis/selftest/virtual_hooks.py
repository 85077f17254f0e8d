"""An agent under its hooks, on virtual time: facts in, rulings out, and nothing outside is touched."""

from typing import Any

from switchgear._agents.hook_protocol import HookFacts, Moment, Ruling
from switchgear._agents.registry import dialect_of
from switchgear._config import Config
from switchgear._core.types import Phase
from switchgear._hooks.compiled import Compiled, loaded
from switchgear._hooks.compiler import compile_config
from switchgear._hooks.decide import decide
from switchgear._hooks.session_check import Look, look
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock

AGENT = "claude-code"
SESSION = "selftest"
CIRCUIT = f"session/{SESSION}"
EPOCH_S = 1_750_000_000.0
"""When virtual time begins: hooks live on wall time."""
_EVENTS = {
    Moment.PROMPT: "UserPromptSubmit",
    Moment.BEFORE_TOOL: "PreToolUse",
    Moment.AFTER_TOOL: "PostToolUse",
    Moment.STOP: "Stop",
}


class VirtualHooks:
    """One session of an agent under the hooks of a configuration. Used by one thread.

    `store` is one in memory; `root` is the project, of which only the path is looked at.
    """

    def __init__(self, config: Config, root: str, store: MemoryStore, clock: FakeClock) -> None:
        known: Compiled = loaded(compile_config(config, root), root)
        # No nudge before the stop: a nudge closes the circuit again, and what opened it is asked.
        plan = known.interventions._replace(when_alone=())
        self.known = known._replace(interventions=plan)
        self.clock = clock
        self.store = store
        self.root = root
        self.calls = 0
        """Tool calls that were begun."""

    def by_score_alone(self) -> None:
        """Switch the progress detectors off: they are faster, and would hide whether the score fires."""
        plan = self.known.interventions._replace(progress=False)
        self.known = self.known._replace(interventions=plan)

    def hear(self, moment: Moment, **facts: Any) -> Ruling:
        """One hook call, a tenth of a second after the last."""
        self.clock.advance(0.1)
        told = HookFacts(AGENT, _EVENTS[moment], moment, SESSION, cwd=self.root, **facts)
        return decide(told, self.known, self.store, dialect_of(AGENT).warns)

    def before(self, tool: str, args: Any) -> Ruling:
        """An agent is about to call a tool."""
        self.calls += 1
        return self.hear(Moment.BEFORE_TOOL, tool=tool, args=args, call_id=f"call-{self.calls}")

    def call(self, tool: str, args: Any, **outcome: Any) -> Ruling:
        """A call from beginning to end, unless it is refused: the last ruling."""
        ruling = self.before(tool, args)
        if ruling.action in {"deny", "stop"}:
            return ruling
        told = {"ok": True, "result": "fine", **outcome}
        call_id = f"call-{self.calls}"
        return self.hear(Moment.AFTER_TOOL, tool=tool, args=args, call_id=call_id, **told)

    def watch(self) -> Look:
        """What the watcher of the session does every few seconds."""
        policy = self.known.policy_for(CIRCUIT)
        return look(self.store, SESSION, policy, self.known.interventions)

    def opened(self, key: str = CIRCUIT) -> bool:
        """Whether a circuit has opened by now."""
        found = self.store.get(key)
        return found is not None and found.circuit.phase is Phase.OPEN

    def hot(self, key: str = CIRCUIT) -> tuple[tuple[str, ...], str]:
        """The detectors of a circuit that trip, and why it is as hot as it is."""
        found = self.store.get(key)
        if found is None:
            return (), "it was never told of"
        at_s = max(self.store.now_s(), found.circuit.seen_s)
        readings = found.policy.readings(found.circuit.memories, at_s)
        pairs = zip(found.policy.detectors, readings, strict=True)
        kinds = tuple(detector.kind for detector, reading in pairs if reading.heat >= 1)
        return kinds, found.policy.reason(found.circuit.memories, at_s)
