"""Stuck agents in a run: detection while the agent works, messages from operators, and escalation.

Every step of the agent's stream is recorded in the run's session circuit, which holds the stuck score and
the progress detectors; so is silence. When the circuit opens, the agent is stopped; a warning goes into
the next prompt. Sub-agents that the stream identifies have separate circuits; a stream cannot stop one
alone, so the agent ends with it.

An operator chooses the next step, or the escalation does without an answer. The escalation belongs to the
loop's circuit, so the steps taken outlast the run.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from switchgear._agents.base import Agent
from switchgear._agents.events import AgentResult, StreamEvent, TextOutput, ToolStarted, ToolStep
from switchgear._agents.hook_protocol import safe_id
from switchgear._agents.registry import agent_or_command
from switchgear._breaker.handle import Breaker
from switchgear._config.sections import preset_policy
from switchgear._core.errors import StoreError
from switchgear._core.types import AgentStep, Mode, Phase, Signal
from switchgear._measure.git_command import GitError
from switchgear._measure.test_counts import SuiteCounts, failing_tests, key_of
from switchgear._measure.tree import mark
from switchgear._panel.panel import Panel
from switchgear._run.exit_reasons import Ending, ExitReason
from switchgear._run.state import IterationContext, RunDependencies, RunState, short_task
from switchgear._stores.base import Store, Transaction
from switchgear._stuck import escalation, messages
from switchgear._stuck.escalation import (
    ESCALATE,
    NUDGE,
    RESET,
    SKIP,
    Interventions,
    StepTaken,
    escalation_key,
)
from switchgear._stuck.messages import Stuck, progress_warning
from switchgear._stuck.score import Score, evidence_score, session_policy
from switchgear._text.redact import redact

if TYPE_CHECKING:
    from switchgear._run.second_opinion import Reviewer

STUCK, OPERATOR = "score", "operator"
"""Why the agent was stopped, in the record of an iteration."""
MEASURE_EVERY = 10
"""Steps without a claimed change after which the folder is measured: a shell can change anything."""
MAX_SUB_AGENTS = 32
"""Maximum number of sub-agents with their own circuit in an iteration; after that the oldest is dropped."""
_KEPT_THOUGHT = 2_000
_ADMITTING = frozenset({Mode.SHADOW, Mode.HELD_CLOSED})


class WatchedAgent:
    """An agent or sub-agent of the stream: its circuit, and its text since the last step."""

    def __init__(self, circuit: Breaker) -> None:
        self.circuit = circuit
        self.unmeasured = 0
        self.thought = ""

    def take_thought(self) -> str:
        """Remove and return the text since the last step."""
        thought, self.thought = self.thought.strip(), ""
        return thought


class StuckWatch:
    """Feeds a session's circuit with the events of an iteration. Used by one thread.

    `changed` returns how many files differ since its last call, `None`: unknown; `state` returns a key of the
    state that it measured. `sub_agent` returns the circuit of a sub-agent; `None`: steps of sub-agents count as
    the agent's own. `reviewer` gives an opinion before the agent is stopped.
    """

    def __init__(
        self,
        circuit: Breaker,
        changed: Callable[[], int | None],
        *,
        state: Callable[[], str | None] = lambda: None,
        sub_agent: Callable[[str], Breaker] | None = None,
        reviewer: "Reviewer | None" = None,
    ) -> None:
        self.reviewer = reviewer
        self._own = WatchedAgent(circuit)
        self._sub_agents: dict[str, WatchedAgent] = {}
        self._changed = changed
        self._state = state
        self._sub_agent_circuit = sub_agent
        self._running = 0
        self.score: Score | None = None
        """The score that opened a circuit; `None`: none is open."""

    @property
    def warning(self) -> str | None:
        """The reason why the agent's circuit is tripping; `None`: it is not."""
        breaker = self._own.circuit
        circuit = breaker.snapshot()
        if circuit.phase is not Phase.TRIPPING:
            return None
        return breaker.policy.reason(circuit.memories, circuit.seen_s)

    def see(self, event: StreamEvent) -> str | None:
        """Record an event. Returns `STUCK` when the agent must be stopped now."""
        if isinstance(event, ToolStarted):
            self._running += 1
        elif isinstance(event, TextOutput):
            watched = self._agent(event.agent)
            watched.thought = f"{watched.thought}\n{event.text}"[-_KEPT_THOUGHT:]
        elif isinstance(event, AgentResult):
            return self._record_reply(event.text)
        elif isinstance(event, ToolStep):
            return self._record_step(event, self._agent(event.agent))
        return None

    def silent(self, idle_s: float) -> str | None:
        """Record silence, unless a tool is running. Returns `STUCK` when the agent must be stopped now."""
        return None if self._running else self._record(self._own.circuit, Signal(idle_s=idle_s))

    def validated(self, tests: SuiteCounts | None, *, ok: bool | None) -> None:
        if tests is not None:
            self._record(self._own.circuit, Signal(ok=ok, failing_tests=key_of(tests)))

    def _agent(self, agent: str) -> WatchedAgent:
        if not agent or self._sub_agent_circuit is None:
            return self._own
        if agent not in self._sub_agents:
            while len(self._sub_agents) >= MAX_SUB_AGENTS:
                del self._sub_agents[next(iter(self._sub_agents))]
            self._sub_agents[agent] = WatchedAgent(self._sub_agent_circuit(agent))
        return self._sub_agents[agent]

    def _record_step(self, event: ToolStep, watched: WatchedAgent) -> str | None:
        self._running = max(0, self._running - 1)
        error = None if event.error is None else redact(event.error)
        files = None
        watched.unmeasured += 1
        if event.files_changed or watched.unmeasured >= MEASURE_EVERY:
            watched.unmeasured = 0
            files = self._changed()
        result = event.output or event.error
        agent_step = AgentStep(
            *(event.tool, event.arguments, result, watched.take_thought() or None),
            *(event.call_key, event.output_key),
        )
        return self._record(
            watched.circuit,
            Signal(
                ok=event.ok,
                error=error,
                step=agent_step,
                files_changed=files,
                state=None if files is None else self._state(),
                failing_tests=failing_tests(result or ""),
            ),
        )

    def _record_reply(self, text: str) -> str | None:
        """Record the agent's final text as a step without a tool."""
        thought = self._own.take_thought()
        text = text or thought
        if not text.strip():
            return None
        return self._record(
            self._own.circuit, Signal(step=AgentStep(thought=text[-_KEPT_THOUGHT:]))
        )

    def _record(self, circuit: Breaker, signal: Signal) -> str | None:
        if self.score is not None:
            return None
        reviewer = self.reviewer if circuit is self._own.circuit else None
        if reviewer is not None:
            reviewer.see(signal)
        circuit.advance()
        was_open = circuit.last_known.phase is Phase.OPEN
        verdict = circuit.record(signal)
        opened = circuit.last_known
        if was_open or verdict.phase is not Phase.OPEN or opened.mode in _ADMITTING:
            delayed = None if reviewer is None else reviewer.due(signal)
            if delayed is None:
                return None
            score = delayed
        else:
            readings = circuit.policy.readings(opened.memories, opened.outage.opened_at_s)
            score = evidence_score(circuit.policy, readings)
            if reviewer is not None and reviewer.grants_delay(circuit, score):
                return None
        self.score = score
        for watched in (self._own, *self._sub_agents.values()):  # one incident leads to one step
            watched.circuit.reset(
                by="switchgear", why=f"{circuit.name} opened: the next escalation step follows"
            )
        return STUCK


EXTEND = "extend"
_STEP_OF = {"nudge": NUDGE, "escalate": ESCALATE, "abort": SKIP}


class Intervention(NamedTuple):
    what: str
    """An escalation step, or `extend`."""
    by: str
    """`you` or `the escalation`."""
    advice: str | None
    """For the next prompt."""
    block: str
    """The evidence, for people."""


def given_up(store: Store, loop: str, plan: Interventions) -> str | None:
    """The escalation steps tried for a loop, if none is left; `None`: some are left, or the store is lost."""
    with suppress(StoreError):
        return store.transact(
            escalation_key(loop),
            lambda tx: escalation.exhausted_steps(tx.apply, loop, plan.step_names),
        )
    return None


EVIDENCE = "evidence.txt"


def write_evidence(folder: Path, text: str) -> Path:
    """Write the evidence against a stopped agent to a file for its successor."""
    path = folder / EVIDENCE
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


def handed_over(context: IterationContext, agent: Agent) -> IterationContext:
    """The context with the escalation agent, which finds the evidence in a file."""
    return context._replace(agent=agent, evidence=context.record.path / EVIDENCE, helps=True)


class StuckResponse:
    """Detects and handles stuck agents of one run, whose loop has the circuit `loop`. Used by one thread.

    Raises ValueError if the configured escalation agent does not exist.
    """

    def __init__(
        self, context: IterationContext, panel: Panel, loop: str, dependencies: RunDependencies
    ) -> None:
        self._panel = panel
        self._loop = loop
        self._plan = plan = dependencies.interventions
        self._choose = dependencies.choose
        self._in_batch = dependencies.in_batch
        self._escalation_agent = None if plan.escalate is None else agent_or_command(plan.escalate)
        self._session = context.inbox.circuit
        progress = dependencies.progress_policy or preset_policy("progress")
        policy = session_policy(
            dependencies.stuck_policy or preset_policy("stuck"), progress if plan.progress else None
        )
        self._circuit = panel.breaker(self._session, policy)
        self._reviewer: Reviewer | None = None
        if dependencies.second_opinion is not None:
            from switchgear._opinion.opinion import REVIEW_VARIABLE  # noqa: PLC0415  only where configured
            from switchgear._run import second_opinion  # noqa: PLC0415

            if not os.environ.get(REVIEW_VARIABLE):
                self._reviewer = second_opinion.Reviewer(dependencies.second_opinion, context)

    def watch(self, context: IterationContext, before: str | None) -> StuckWatch:
        """The stuck detection of one iteration; `before` is the state of the folder now."""
        last = before

        def changed() -> int | None:
            nonlocal last
            now, then = mark(context.tree), last
            last = now
            try:
                return None if then is None or now is None else len(context.tree.change(then, now))
            except (GitError, KeyError):
                return None

        return StuckWatch(
            self._circuit,
            changed,
            state=lambda: last,
            sub_agent=self._sub_agent_circuit,
            reviewer=self._reviewer,
        )

    def _sub_agent_circuit(self, name: str) -> Breaker:
        key = f"{self._session}/agent/{safe_id(name)}"
        return self._panel.breaker(key, self._circuit.policy)

    def objection(self) -> Ending | None:
        """Why the run must not begin: an earlier run used all escalation steps."""
        why = given_up(self._panel.store, self._loop, self._plan)
        if why is None:
            return None
        key = escalation_key(self._loop)
        sentence = f"{key} is open: an earlier run was given up as stuck"
        return Ending(ExitReason.CIRCUIT_BREAKER, sentence, (why,))

    def progressed(self) -> None:
        """Record measured progress: the next incident begins with the first step."""
        with suppress(StoreError):
            self._panel.store.transact(
                escalation_key(self._loop),
                lambda tx: escalation.progressed(tx.apply, self._loop, self._plan.step_names),
            )

    def respond(
        self, context: IterationContext, state: RunState, stuck: StuckWatch
    ) -> tuple[RunState, IterationContext, Ending | None]:
        """Apply an escalation step to the agent that was just stopped, or give up."""
        score = stuck.score
        if score is None:
            warned = None if stuck.warning is None else progress_warning(stuck.warning)
            advice = "\n\n".join(filter(None, (state.advice, warned))) or None
            return state._replace(advice=advice), context, None
        intervention = self._intervene(context, score)
        context.view.noted(f"stuck, score {score.text}: {intervention.what}, by {intervention.by}")
        text = f"{intervention.block}\n\n{intervention.advice or ''}"
        context = context._replace(evidence=write_evidence(context.record.path, text))
        state = state._replace(advice=intervention.advice)
        if intervention.what == SKIP:
            sentence = f"the agent was stuck, and {intervention.by} gave up the task"
            return state, context, Ending(ExitReason.CIRCUIT_BREAKER, sentence, score.evidence)
        if intervention.what == EXTEND:
            state = state._replace(extra_s=state.extra_s + self._plan.extend_s)
        elif intervention.what in {RESET, ESCALATE}:
            state = state._replace(notes=(), nudge=None, failed_output=None)
        if intervention.what == ESCALATE:
            state = state._replace(helped=True)
            if self._escalation_agent is not None:
                context = handed_over(context, self._escalation_agent)
        return state, context, None

    def _intervene(self, context: IterationContext, score: Score) -> Intervention:
        """Choose the next step for a stuck agent, and record it."""
        options, plan = context.options, self._plan
        seen = Stuck(*(options.agent_label, short_task(options.task), score.points, score.evidence))
        unavailable = {ESCALATE} if plan.escalate is None else set[str]()
        unavailable |= {EXTEND} if options.timeout_s is None else set()
        known = messages.stuck_options(plan, in_batch=self._in_batch)
        offered = tuple(option for option in known if option.key not in unavailable)
        block = messages.agent_stuck(seen, offered)
        hint = None if self._reviewer is None else self._reviewer.take_hint()
        chosen = None if self._choose is None else self._choose(block, offered)
        if chosen == EXTEND:
            return Intervention(
                EXTEND, "you", messages.nudge(seen, "You have more time now"), block
            )
        taken = self._take_step(chosen, "; ".join(score.evidence))
        advice = messages.nudge(seen, hint or plan.hint)
        if taken.step_name in {RESET, ESCALATE}:
            advice = messages.fresh_start(seen, (*taken.tried, taken.step_name))
        by = "the escalation" if chosen is None else "you"
        return Intervention(taken.step_name, by, advice, block)

    def _take_step(self, chosen: str | None, why: str) -> StepTaken:
        step_names = self._plan.step_names

        def work(tx: Transaction) -> StepTaken:
            step_name = None if chosen is None else _STEP_OF[chosen]
            return escalation.take_step(tx.apply, self._loop, step_names, why, step_name)

        try:
            return self._panel.store.transact(escalation_key(self._loop), work)
        except StoreError:  # the step is taken, but not recorded
            return StepTaken(_STEP_OF[chosen] if chosen else step_names[0], ())
