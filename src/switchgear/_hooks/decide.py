"""Decides an event of a hook: sends messages to circuits in one transaction, and returns a ruling.

Before a tool call, a permit is acquired from each of its circuits; if one refuses, the permits acquired so far
are returned. After the call, each circuit records the result. The circuits make the decisions, the escalation
chooses what to do about a stuck agent, and the agent's dialect writes the ruling in its format.
"""

import os
from collections.abc import Mapping
from typing import Any

from switchgear._agents.hook_protocol import (
    DEFAULT_WINDOW,
    Action,
    HookFacts,
    Moment,
    Ruling,
    WorkAfterReply,
    allow,
    deny,
    stop,
    warn,
)
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    EventKind,
    Override,
    Permit,
    Phase,
    Record,
    Signal,
    Step,
    Verdict,
)
from switchgear._hooks import inspect_call, open_calls, session
from switchgear._hooks.hook_config import HookConfig
from switchgear._hooks.inspect_call import (
    CallInspection,
    call_id,
    failing_tests_of,
    inspect_tool_call,
    state_after,
)
from switchgear._hooks.open_calls import (
    MAX_CALLS,
    MAX_LANES,
    MAX_PARTS,
    CallLane,
    CallsState,
    OpenCall,
    Permits,
    ReadPosition,
)
from switchgear._hooks.session import folder_id, host_id
from switchgear._stores.base import Store, Transaction
from switchgear._stores.url import default_file
from switchgear._stuck.escalation import ESCALATE, Interventions
from switchgear._stuck.messages import (
    Stuck,
    one_line,
    progress_warning,
    stopped_for_people,
    sub_agent_stopped,
    tampering_text,
)
from switchgear._stuck.score import Score, evidence_score, score_of
from switchgear._text.formats import duration
from switchgear._text.redact import redact

_RETURNED = Signal()


def blocks_sub_agents(verdict: Verdict) -> bool:
    """Whether the session's circuit blocks its sub-agents. While half-open it does not: the session has the probe."""
    return not verdict.admitted and verdict.phase is not Phase.HALF_OPEN


def refusal_text(key: str, verdict: Verdict, advice: str = "") -> str:
    held = verdict.reason.startswith("held open")
    state = verdict.reason if held else f"{verdict.phase.replace('_', '-')}: {verdict.reason}"
    wait_s = verdict.retry_after_s
    end = "an operator has to release it" if wait_s is None else f"it retries in {duration(wait_s)}"
    advice = advice or ("Do something else meanwhile." if key.startswith("op/") else "Stop here.")
    return f"Switchgear: circuit {key!r} is {state}; {end}. {advice}"


RULES = "rules"
_NO_CHANGE = Record(Signal(count=0))
"""A message that only reads the state of a circuit."""
_TURN_ENDS = frozenset({Moment.PROMPT, Moment.STOP, Moment.AGENT_STOP, Moment.SESSION_END})
"""Events that end a turn: no results of open calls will be reported."""
_BEFORE_ACTION = frozenset({Moment.BEFORE_TOOL, Moment.BEFORE_MODEL})
"""Events before an action: usage is recorded after it."""


def decide(
    facts: HookFacts,
    config: HookConfig,
    store: Store,
    warns: frozenset[str],
    work_after: list[WorkAfterReply] | None = None,
    *,
    inspection: CallInspection | None = None,
    event: str = "",
) -> Ruling:
    """The ruling on an event. Raises `StoreError`.

    - `warns`: the events at which this agent passes a text on to the model.
    - `work_after`: receives the tasks to do after the reply; default: none, and no session gets a watcher.
    - `inspection`: the result of the rules, if they were evaluated already.
    - `event`: identifies the event. If it was decided before, the ruling is the same and nothing is recorded.
    """
    if inspection is None and facts.moment is Moment.BEFORE_TOOL:
        inspection = inspect_tool_call(facts, config)
    state = None
    if facts.moment is Moment.AFTER_TOOL and config.interventions.progress:
        state = state_after(facts, config)
    name = session.note_name(facts.session)
    if config.second_opinion is not None and facts.moment is Moment.BEFORE_TOOL:
        from switchgear._hooks.opinions import wait_for  # noqa: PLC0415  only where configured

        wait_for(store, name, config.root)

    def decide_once(tx: Transaction) -> tuple[Ruling, WorkAfterReply | None]:
        decision = EventDecision(tx, facts, config, warns)
        earlier = decision.state.earlier_ruling(event)
        if earlier is not None:
            return earlier
        decision.files = state
        ruling = decision.rule_on(inspection, gets_watcher=work_after is not None)
        decision.save_notes(event, ruling)
        return ruling, decision.work_after

    ruling, work = store.transact(name, decide_once)
    if work_after is not None and work is not None:
        work_after.append(work)
    return ruling


def rule_refusal(broken: str) -> Ruling:
    return deny(f"Switchgear refused this call: {broken}. Do not try to get around it.")


class EventDecision:
    """Applies one event of an agent to its circuits, inside a transaction. Used by one thread, once."""

    def __init__(
        self, tx: Transaction, facts: HookFacts, config: HookConfig, warns: frozenset[str]
    ) -> None:
        self.tx = tx
        self.facts = facts
        self.config = config
        self.warns = facts.event in warns
        self.session = session.note_name(facts.session)
        self.lane_name = facts.subagent
        self.circuit = f"{self.session}/agent/{facts.subagent}" if facts.subagent else self.session
        self.notes = session.Notes.load(tx.note)
        self.state: CallsState = open_calls.load(self.notes.more)
        self.warnings: list[str] = []
        self._policies: dict[str, Policy] = {}
        self.evidence = ""
        """The evidence for the escalation agent, if this event escalated to it."""
        self.opinion_request = ""
        """The request for a second opinion to send after the reply, as JSON."""
        self.work_after: WorkAfterReply | None = None
        self.notice = ""
        """The notice for the user about a stop, shown once."""
        self.files: str | None = None
        """A digest of the files that the call has written, see `state_after`."""

    # Messages

    def apply(self, key: str, message: Acquire | Record | Override) -> Step:
        return self.tx.apply(key, self.policy(key), message)

    def policy(self, key: str) -> Policy:
        policy = self._policies.get(key)
        if policy is None:
            policy = self._policies[key] = self.config.policy_for(key)
        return policy

    def session_circuit(self) -> session.SessionCircuit:
        """The circuit of the session, also if a sub-agent acts."""
        return session.SessionCircuit(self.tx.apply, self.session, self.policy(self.session))

    def remark(self, key: str, kind: EventKind, why: str) -> None:
        self.apply(key, Override("switchgear", why, kind=kind))

    def set_lane(self, lane: CallLane) -> None:
        self.state = self.state.with_lane(self.lane_name, lane)

    def story(self) -> str | None:
        """The circuit of the configured story, if the configuration has a policy for it."""
        key = f"story/{self.config.story}" if self.config.story else None
        return key if key and self.config.is_configured(key) else None

    # Usage

    def read_usage(self) -> None:
        """Add the context and cost since the last event, from the transcript, to the facts.

        If the price of a model is unknown, an event is recorded once: its usage is not charged to the story.
        """
        facts, config = self.facts, self.config
        if not facts.transcript:
            return
        from switchgear._hooks.usage import TranscriptReader, charge  # noqa: PLC0415  not before a tool

        positions = self.state.positions
        # Sub-agents may not name their model: it is that of the session then.
        model = facts.model or positions.get("", ReadPosition()).model
        reader = TranscriptReader(
            *(facts.agent, facts.transcript, bool(self.lane_name), model),
            self.notes.began_s or self.tx.now_s,
            os.path.dirname(default_file(config.root)),
            config.context_tokens,
        )
        position = positions.get(self.lane_name, ReadPosition())
        read, usage = charge(position, reader, self.tx.now_s)
        if read != position:
            self.state = self.state.with_position(self.lane_name, read)
        story = self.story()
        for name, why in usage.unpriced.items():
            if story and name not in self.state.unpriced:
                unpriced = (*self.state.unpriced, name)[-MAX_LANES:]
                self.state = self.state._replace(unpriced=unpriced)
                self.remark(story, EventKind.UNDECIDED, f"not charged: {redact(why)}")
        used = usage.context_used if facts.context_used is None else facts.context_used
        cost = usage.cost_micros if facts.cost_micros is None else facts.cost_micros
        self.facts = facts._replace(context_used=used, cost_micros=cost)

    # The step of an agent

    def record_step(self) -> None:
        """Record the finished calls on the agent's circuit, as one step."""
        lane = self.state.lane(self.lane_name)
        if not lane.parts:
            return
        signal = open_calls.merged_step(lane.parts)
        self.set_lane(lane._replace(parts=(), permits={}))
        self._record_signal(signal, lane.permits.get(self.circuit))

    def _record_signal(self, signal: Signal, permit: Permit | None) -> None:
        opinions = self._opinions()
        if opinions is not None:
            opinions.remember(self, signal)
        step = self.apply(self.circuit, Record(signal, permit))
        if not self.lane_name:
            heat = step.verdict.heat
            self.notes = session.with_step(self.notes, signal, heat, self.tx.now_s)
        if signal.files_changed and not self.lane_name:
            self.notes = session.after_progress(self.notes)
        self.escalate_or_warn(step)
        if opinions is not None and not session.has_opened(step) and opinions.ends_delay(self):
            self._escalate()

    def _opinions(self) -> Any:
        """The module `opinions`, if an opinion is requested before this agent is stopped; else `None`."""
        if self.config.second_opinion is None or self.lane_name or _is_watched_by_run():
            return None
        from switchgear._hooks import opinions  # noqa: PLC0415  only where configured
        from switchgear._opinion.opinion import REVIEW_VARIABLE  # noqa: PLC0415

        return None if os.environ.get(REVIEW_VARIABLE) else opinions

    def return_step_permit(self) -> None:
        """Return the permit of the current step, unless a call of it is open or finished."""
        lane = self.state.lane(self.lane_name)
        if not lane.parts and not self.state.calls_in(self.lane_name):
            self.return_permits(lane.permits)
            self.set_lane(lane._replace(permits={}))

    def escalate_or_warn(self, step: Step) -> None:
        """Escalate if this message opened the circuit; warn if its heat has risen."""
        self.warn_if_hotter(step)
        opinions = self._opinions()
        if opinions is not None:
            opinions.request_opinion_if_hot(self, step)
        if not session.has_opened(step):
            return
        score = self._score(step)
        if self.lane_name:
            text = refusal_text(step.circuit.key, step.verdict)
            if score is not None:
                name = f"sub-agent {self.lane_name}"
                stuck = Stuck(self.facts.agent, name, score.points, score.evidence)
                text = sub_agent_stopped(stuck)
            lane = self.state.lane(self.lane_name)
            self.set_lane(lane._replace(stopped=text))
            return
        if score is None or _is_watched_by_run():
            return
        self.notes = session.after_trip(self.notes._replace(delay_left=0), score)
        if self.opinion_request:
            return  # requested just now: the next call escalates, with or without the opinion
        self._escalate()

    def _score(self, step: Step) -> Score | None:
        """The score that justifies an escalation; `None`: the circuit opened without one.

        A policy of the user that does not weigh its detectors has its own recovery: then only trips of
        the progress detectors are escalated.
        """
        key, now_s = step.circuit.key, self.tx.now_s
        policy = self.policy(key)
        readings = policy.readings(step.circuit.memories, now_s)
        score = score_of(policy, readings)
        if score is not None:
            return score
        listed = {detector.kind for detector in self.config.listed_policy(key).detectors}
        pairs = zip(policy.detectors, readings, strict=True)
        if any(reading.heat >= 1 and detector.kind in listed for detector, reading in pairs):
            return None
        return evidence_score(policy, readings)

    def _escalate(self) -> None:
        plan: Interventions | None = self.config.interventions
        opinions = self._opinions()
        if opinions is not None:
            plan = opinions.plan_with_opinion(self, plan)
        if plan is None:
            return  # the stop is delayed
        self.notes, taken = session.take_escalation_step(self.session_circuit(), self.notes, plan)
        if taken.step_name == ESCALATE:
            self.evidence = self.notes.stop or ""

    def warn_if_hotter(self, step: Step) -> None:
        """Add a warning if the heat of the circuit is above that of the last warning."""
        key, verdict = step.circuit.key, step.verdict
        warned_heat = dict(self.state.warned_heat)
        last = warned_heat.pop(key, 0.0)
        if verdict.phase is Phase.TRIPPING:
            if not self.warns or verdict.heat <= last:
                return
            self.warnings.append(verdict.reason)
            warned_heat[key] = verdict.heat
        if warned_heat != self.state.warned_heat:
            self.state = self.state._replace(warned_heat=dict([*warned_heat.items()][-MAX_LANES:]))

    # Open calls

    def give_up(self, call: OpenCall, why: str) -> None:
        """Give up a call whose end will not be reported, and record an event."""
        key = f"{self.session}/agent/{call.lane}" if call.lane else self.session
        self.state = self.state.without(call)
        self.return_permits(call.permits)
        self.apply(key, Record(_RETURNED))
        self.remark(key, EventKind.CALL_EXPIRED, f"{call.tool}: {why}")

    def return_permits(self, permits: Mapping[str, Permit]) -> None:
        """Return the permits of probes; other permits need not be returned."""
        for key, permit in permits.items():
            if permit.probe:
                self.apply(key, Record(_RETURNED, permit))

    # The whole event

    def rule_on(self, inspection: CallInspection | None, *, gets_watcher: bool) -> Ruling:
        """Record the facts and return the ruling. `gets_watcher`: whether a watcher can be started."""
        facts, now_s, earlier = self.facts, self.tx.now_s, self.notes
        self.notes = session.after_event(
            self.notes,
            facts.moment,
            now_s,
            agent=facts.agent,
            root=folder_id(self.config.root),
            host=host_id(),
            limit_s=self.config.session_s,
            time=session.time_of_run(os.environ),
        )
        self._note_facts()
        session.save_circuit(self.session_circuit(), earlier, self.notes)
        if facts.moment is Moment.PROMPT:
            self.notes = session.after_user_message(self.session_circuit(), self.notes)
        elif self.config.tampered and facts.moment is not Moment.SESSION_START:
            self.notes = self.notes._replace(stop=tampering_text(self.config.tampered))
            session.open_if_stopped(self.session_circuit(), self.notes)
        for call in [call for call in self.state.calls if call.until_s <= now_s]:
            began = duration(now_s - call.began_s)
            self.give_up(call, f"it began {began} ago, and no result was reported")
        if facts.moment not in _BEFORE_ACTION:
            self.read_usage()
            facts = self.facts
            if facts.cost_micros is not None:
                spent = (self.notes.spent_micros or 0) + facts.cost_micros
                self.notes = self.notes._replace(spent_micros=spent)
        if facts.moment is not Moment.AFTER_TOOL:
            self._record_measurements()
        ruling = allow()
        if inspection is not None:
            ruling = self._before_tool(inspection)
        elif facts.moment is Moment.AFTER_TOOL:
            self._after_tool(facts)
        elif facts.moment is Moment.BATCH:
            self._batch()
        elif facts.moment in _TURN_ENDS:
            self._end_turn()
        ruling = self._with_messages(ruling)
        session.open_if_stopped(self.session_circuit(), self.notes)
        if ruling.action is Action.STOP and ruling.whole:
            reason = self.apply(self.session, _NO_CHANGE).verdict.reason or ruling.text
            escalate = self.config.interventions.escalate is not None
            about = stopped_for_people(facts.session, reason, escalate=escalate, agent=facts.agent)
            ruling = ruling._replace(for_user=about)
            if not self.notes.announced:
                self.notice = ruling.for_user
                self.notes = self.notes._replace(announced=True)
        self._set_work_after(gets_watcher=gets_watcher)
        return ruling

    def save_notes(self, event: str, ruling: Ruling) -> None:
        self.state = self.state.with_ruling(event, ruling, self.work_after)
        self.notes = self.notes._replace(more=open_calls.dump(self.state))
        self.tx.note = self.notes.dump()

    def _note_facts(self) -> None:
        """Save what `switchgear sessions` shows: project, task and the last step."""
        facts, notes = self.facts, self.notes
        task, last = notes.task, notes.last_step
        if facts.moment is Moment.PROMPT and facts.prompt.strip() and not facts.subagent:
            task = redact(one_line(facts.prompt, 120))
        if facts.moment is Moment.BEFORE_TOOL:
            last = inspect_call.last_step(facts)
        self.notes = notes._replace(
            project=self.config.root, task=self.config.story or task, last_step=last
        )

    def _set_work_after(self, *, gets_watcher: bool) -> None:
        """Set the tasks after the reply: a watcher, the escalation agent, a notice or a second opinion."""
        facts, config = self.facts, self.config
        watch = gets_watcher and session.needs_watcher(self.notes, facts.moment)
        if watch:
            self.notes = self.notes._replace(watcher=0)  # the next hook must not start another
        if watch or self.evidence or self.notice or self.opinion_request:
            escalate = config.interventions.escalate
            self.work_after = WorkAfterReply(
                *(facts.agent, facts.session, config.root, facts.cwd, watch, escalate),
                *(self.evidence, self.notice, self.opinion_request),
            )

    # Before a tool

    def _before_tool(self, inspection: CallInspection) -> Ruling:
        self._release_or_end()
        if self.notes.untended and self.notes.stop is None and not _is_watched_by_run():
            self._escalate()
        if inspection.broken is not None:
            return self._refuse_violation(inspection.broken)
        lane = self.state.lane(self.lane_name)
        if lane.parts and not lane.batches:
            self.record_step()  # the result of an overlapping call was never reported
        refused = self._ruling_if_stopped() or self._acquire_step()
        if refused is not None:
            return refused
        permits: Permits = {}
        for key in self._circuits_of_call(inspection.kind, rules=True):
            step = self.apply(key, Acquire())
            permit = step.verdict.permit
            if not step.verdict.admitted or permit is None:
                self.return_permits(permits)
                return self._refuse(key, step.verdict)
            permits[key] = permit
        self._open(inspection, permits)
        return allow()

    def _refuse(self, key: str, verdict: Verdict) -> Ruling:
        """Refuse the call. It counts as a failed step: an agent that keeps trying is stuck."""
        text = refusal_text(key, verdict)
        if not key.startswith("op/"):
            self.return_step_permit()
            return stop(text)
        if any(permit.probe for permit in self.state.lane(self.lane_name).permits.values()):
            self.return_step_permit()  # the probe was not made: nothing to record
            return deny(text)
        attempt = inspect_call.call_signal(self.facts, seconds=None, changed=None)
        attempt = attempt._replace(ok=False, error=f"refused: circuit {key!r} is {verdict.phase}")
        self._add_part(attempt)
        return deny(text)

    def _release_or_end(self) -> None:
        """Stop the session if its time is over; end its stop if an operator has released it."""
        self.notes = session.stopped_if_over(self.notes, self.tx.now_s)
        self.notes = session.after_release(self.session_circuit(), self.notes)

    def _ruling_if_stopped(self) -> Ruling | None:
        self._release_or_end()
        if self.notes.stop is not None:
            return stop(self.notes.stop)
        if not self.lane_name:
            return None
        parent = self.apply(self.session, _NO_CHANGE).verdict
        if blocks_sub_agents(parent):
            return stop(refusal_text(self.session, parent))
        stopped = self.state.lane(self.lane_name).stopped
        return stop(stopped, whole=False) if stopped else None

    def _acquire_step(self) -> Ruling | None:
        """Acquire a permit of the agent's circuit, once for overlapping calls. Returns the ruling if refused."""
        key, lane = self.circuit, self.state.lane(self.lane_name)
        step = self.apply(key, _NO_CHANGE if key in lane.permits else Acquire())
        verdict = step.verdict
        if key in lane.permits and verdict.phase is not Phase.OPEN:
            return None
        if verdict.admitted and verdict.permit is not None:
            self.set_lane(lane._replace(permits={**lane.permits, key: verdict.permit}))
            self.warn_if_hotter(step)
            return None
        self.return_step_permit()
        if self.notes.tried and verdict.retry_after_s is not None:
            # The agent was only nudged, and may continue soon.
            self.notes, messages = session.take_messages(self.notes, self.tx.now_s)
            text = refusal_text(key, verdict, "Pause, then try a different approach.")
            return deny("\n\n".join((*messages.texts, text)))
        return stop(refusal_text(key, verdict), whole=not self.lane_name)

    def _circuits_of_call(self, kind: str, *, rules: bool) -> list[str]:
        """The circuits of a single call; `rules`: include the circuit of the rules, if it has a policy."""
        names = (self.story(), RULES if rules and self.config.is_configured(RULES) else None)
        return [*filter(None, names), f"op/{kind}"]

    def _open(self, inspection: CallInspection, permits: Permits) -> None:
        facts, now_s = self.facts, self.tx.now_s
        call = OpenCall(
            id=call_id(facts),
            lane=self.lane_name,
            tool=redact(facts.tool, 80),
            kind=inspection.kind,
            changes=inspection.changes,
            began_s=now_s,
            until_s=now_s + self.config.lease_s,
            permits=permits,
            context_used=facts.context_used,
        )
        self.state = self.state.with_call(call)
        for oldest in self.state.calls[:-MAX_CALLS]:
            self.give_up(oldest, f"more than {MAX_CALLS} calls are open")

    def _refuse_violation(self, broken: str) -> Ruling:
        """Refuse, and record it on the rules and the session: an agent that keeps trying is stuck."""
        signal = inspect_call.call_signal(self.facts, seconds=None, changed=None)
        self.apply(RULES, Record(signal._replace(violation=broken)))
        self.remark(RULES, EventKind.RULE_BROKEN, f"{broken}; by {self.circuit}")
        self._record_signal(signal._replace(ok=False, error=broken), None)
        refused, stopped = rule_refusal(broken), self._ruling_if_stopped()
        if stopped is not None:
            return stop(f"{refused.text}\n\n{stopped.text}", whole=stopped.whole)
        self.notes, messages = session.take_messages(self.notes, self.tx.now_s)
        return deny("\n\n".join((refused.text, *messages.texts)))

    # After a tool

    def _after_tool(self, facts: HookFacts) -> None:
        """Record the result on the operation's circuit now, and on the agent's circuit when the step ends."""
        call = self.state.find(call_id(facts), self.lane_name)
        if call is None:
            kind, changes, _ = inspect_tool_call(facts, self.config)
            permits: dict[str, Permit | None] = dict.fromkeys(
                self._circuits_of_call(kind, rules=False)  # its start was not reported
            )
            seconds = facts.seconds
        else:
            kind, changes, permits = call.kind, call.changes, dict(call.permits)
            seconds = self.tx.now_s - call.began_s if facts.seconds is None else facts.seconds
            facts = facts._replace(context_used=facts.context_used or call.context_used)
            self.state = self.state.without(call)
        changed = changes if facts.ok is not False and changes else None
        signal = inspect_call.call_signal(facts, seconds=seconds, changed=changed)
        for_operation = inspect_call.operation_signal(signal, kind, facts)
        for key, permit in permits.items():
            recorded = for_operation if key.startswith("op/") else signal
            if key == RULES:  # the call was admitted, so it broke no rule, whatever its result
                recorded = Signal(ok=True)
            self.apply(key, Record(recorded, permit))
        judged = kind == inspect_call.SHELL and self.config.interventions.progress
        failing = failing_tests_of(facts) if judged else None
        self._add_part(signal._replace(state=self.files, failing_tests=failing))

    def _add_part(self, signal: Signal) -> None:
        """Add a finished or refused call to the step; record the step if it is complete."""
        lane = self.state.lane(self.lane_name)
        self.set_lane(lane._replace(parts=(*lane.parts, signal)))
        is_complete = not lane.batches and not self.state.calls_in(self.lane_name)
        if is_complete or len(lane.parts) + 1 >= MAX_PARTS:
            self.record_step()

    def _batch(self) -> None:
        """Record the calls of a batch; its end is the end of a step."""
        for item in self.facts.batch:
            if self.state.find(call_id(item), self.lane_name) is not None:
                self._after_tool(item)
        self.record_step()
        self.set_lane(self.state.lane(self.lane_name)._replace(batches=True))

    def _end_turn(self) -> None:
        """Record the finished calls as a step, and drop the open ones."""
        whole_session = self.facts.moment is Moment.SESSION_END
        for call in self.state.calls:
            if whole_session or call.lane == self.lane_name:
                self.return_permits(call.permits)
                self.state = self.state.without(call)
        self.record_step()
        self.return_step_permit()
        facts, spawn = self.facts, inspect_call.AGENT_SPAWN
        if facts.moment is Moment.AGENT_STOP:
            self.state = self.state.with_lane(self.lane_name, None)
            # If the call that started the sub-agent is open, its result will report how the sub-agent ended.
            if facts.ok is not None and all(call.kind != spawn for call in self.state.calls):
                signal = Signal(ok=facts.ok, error=None if facts.ok else facts.error)
                self.apply(f"op/{spawn}", Record(signal))

    def _record_measurements(self) -> None:
        """Record the cost and context that an event reports."""
        facts = self.facts
        used = facts.context_used
        if used is None and facts.tokens is not None:
            used = min(1.0, facts.tokens / (self.config.context_tokens or DEFAULT_WINDOW))
        if facts.moment is Moment.BEFORE_TOOL:
            used = None  # recorded with the result of the call
        if used is None and not facts.cost_micros:
            return
        signal = Signal(context_used=used, cost_micros=facts.cost_micros)
        self.escalate_or_warn(self.apply(self.circuit, Record(signal)))
        story = self.story()
        if story and facts.cost_micros:
            self.apply(story, Record(Signal(cost_micros=facts.cost_micros)))

    # Messages

    def _with_messages(self, ruling: Ruling) -> Ruling:
        if ruling.text:
            return ruling
        if not self.warns and self.facts.moment is not Moment.BEFORE_TOOL:
            return ruling
        messages = session.AgentMessages(stop=self.notes.stop)
        if self.warns:
            self.notes, messages = session.take_messages(self.notes, self.tx.now_s)
        if messages.stop is not None:
            return stop(messages.stop, whole=not self.lane_name)
        texts = [*messages.texts, *map(progress_warning, self.warnings)]
        return warn("\n\n".join(texts)) if texts else ruling


def _is_watched_by_run() -> bool:
    """Whether the hook belongs to a run that handles stuck agents itself."""
    return bool(os.environ.get(session.WATCHED_VARIABLE))
