"""A run's way with stuck agents: watches each iteration, steps in, and knows when to give up."""

from typing import NamedTuple

from switchgear._agents.hook_protocol import safe_id
from switchgear._agents.registry import agent_or_command
from switchgear._breaker.breaker import Breaker
from switchgear._config.policies import preset_policy
from switchgear._measure.git_command import GitError
from switchgear._panel.panel import Panel
from switchgear._run.dependencies import Setting
from switchgear._run.exit_reasons import Ending, ExitReason
from switchgear._run.iteration import Iteration, Workshop, mark
from switchgear._run.operator_inbox import Desk
from switchgear._run.state import RunState
from switchgear._run.stuck import StuckWatch
from switchgear._run.stuck_help import EXTEND, Help, Helper, write_evidence
from switchgear._stuck.escalation import ESCALATE, RESET, SKIP, ladder_key
from switchgear._stuck.messages import progress_warning
from switchgear._stuck.score import session_policy

_LONGEST_TASK = 60


class Rescued(NamedTuple):
    """How the run goes on after somebody stepped in."""

    state: RunState
    shop: Workshop
    ending: Ending | None = None


class Rescue:
    """Watches and helps the agents of one run. Used by one thread.

    Raises ValueError when the help that is configured is no agent that there is.
    """

    def __init__(self, shop: Workshop, panel: Panel, loop: str, setting: Setting) -> None:
        plan = setting.interventions
        label = shop.options.agent_label
        self._loop = loop
        self._panel = panel
        self._helper = Helper(
            panel.store, loop, plan, agent=label, choose=setting.choose, in_batch=setting.in_batch
        )
        self._help = None if plan.escalate is None else agent_or_command(plan.escalate)
        self._desk = Desk(panel.store, shop.record.id, label, shop.options.timeout_s)
        progress = setting.progress_policy or preset_policy("progress")
        policy = session_policy(
            setting.stuck_policy or preset_policy("stuck"), progress if plan.progress else None
        )
        self._circuit = panel.breaker(self._desk.circuit, policy)

    def watch(self, shop: Workshop, before: str | None) -> StuckWatch:
        """The watch of one iteration; `before` is the state of the folder now."""
        last = before

        def changed() -> int | None:
            nonlocal last
            now, then = mark(shop.tree), last
            last = now
            try:
                return None if then is None or now is None else len(shop.tree.change(then, now))
            except (GitError, KeyError):
                return None

        return StuckWatch(
            self._circuit,
            changed,
            state=lambda: last,
            sub_agent=self._sub_agent,
        )

    def _sub_agent(self, name: str) -> Breaker:
        """The circuit of a sub-agent, under that of the run."""
        key = f"{self._desk.circuit}/agent/{safe_id(name)}"
        return self._panel.breaker(key, self._circuit.policy)

    def objection(self) -> Ending | None:
        """Why the run must not begin: an earlier one came to the end of the ladder."""
        why = self._helper.given_up()
        if why is None:
            return None
        key = ladder_key(self._loop)
        sentence = f"{key} is open: an earlier run was given up as stuck"
        return Ending(ExitReason.CIRCUIT_BREAKER, sentence, (why,))

    def told(self, state: RunState) -> tuple[RunState, Ending | None]:
        """The state with what operators have told the run, and the end if they want that."""
        word = self._desk.look()
        if word.stop is not None:
            return state, Ending(ExitReason.INTERRUPTED, word.stop.rpartition("\n")[2])
        advice = "\n\n".join(filter(None, (state.advice, *word.texts))) or None
        return state._replace(advice=advice, extra_s=state.extra_s + word.more_s), None

    def leave(self) -> None:
        """The run is over."""
        self._desk.leave()

    def step_in(self, shop: Workshop, state: RunState, stuck: StuckWatch) -> Rescued:
        """Help the agent that was just stopped, or its successor, or give up."""
        if stuck.score is None:
            warned = None if stuck.warning is None else progress_warning(stuck.warning)
            advice = "\n\n".join(filter(None, (state.advice, warned))) or None
            return Rescued(state._replace(advice=advice), shop)
        task = " ".join(shop.options.task.split())[:_LONGEST_TASK]
        limited = shop.options.timeout_s is not None
        given = self._helper.intervene(stuck.score, task, limited=limited)
        shop.view.noted(f"stuck, score {stuck.score.points:g}: {given.what}, by {given.by}")
        shop = shop._replace(evidence=write_evidence(shop.record.path, given))
        return self._done(shop, state._replace(advice=given.advice), given)

    def _done(self, shop: Workshop, state: RunState, given: Help) -> Rescued:
        if given.what == SKIP:
            sentence = f"the agent was stuck, and {given.by} gave the task up"
            return Rescued(
                state, shop, Ending(ExitReason.CIRCUIT_BREAKER, sentence, given.evidence)
            )
        if given.what == EXTEND:
            state = state._replace(extra_s=state.extra_s + self._helper.plan.extend_s)
        elif given.what in {RESET, ESCALATE}:
            state = state._replace(notes=(), nudge=None, failed_output=None)
        if given.what == ESCALATE:
            state = state._replace(helped=True)
            shop = self.taken_over(shop)
        return Rescued(state, shop)

    def taken_over(self, shop: Workshop) -> Workshop:
        """The workshop with the stronger help at work, where there is some."""
        if self._help is None:
            return shop
        evidence = shop.record.path / "evidence.txt"
        return shop._replace(agent=self._help, evidence=evidence, helps=True)

    def heard(self, done: Iteration, state: RunState) -> None:
        """Progress that was measured ends an incident; what was stopped as stuck made none."""
        better = (
            state.best_tests is not None
            and done.validated is not None
            and done.validated.tests is not None
            and done.validated.tests.passed > state.best_tests
        )
        if done.judged.outcome != "stuck" and (done.change or better):
            self._helper.progressed()
