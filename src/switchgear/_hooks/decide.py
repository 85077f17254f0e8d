"""From the event of a hook to its reply: messages to circuits, in one transaction.

Before a tool, a permit of each of its circuits is acquired; if one of them refuses, the permits
acquired before are returned. After the call, the result is recorded on each. Nothing else is decided
here: circuits decide, the escalation chooses what to do about a stuck agent, and the dialect of the agent
writes the ruling in its format.
"""

import os
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
    look_at,
    state_after,
)
from switchgear._hooks.open_calls import (
    MOST_CALLS,
    MOST_LANES,
    MOST_PARTS,
    Book,
    CallLane,
    CallsState,
    Granted,
    OpenCall,
    Permits,
)
from switchgear._hooks.session import folder_mark, here
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
from switchgear._stuck.score import Score, grounds_of, score_of
from switchgear._text.formats import duration
from switchgear._text.redact import redact

_GIVEN_BACK = Signal()


def refuses(verdict: Verdict) -> bool:
    """Whether a circuit blocks everything below it; a probe in progress belongs to the parent."""
    return not verdict.admitted and verdict.phase is not Phase.HALF_OPEN


def refusal(key: str, verdict: Verdict, advice: str = "") -> str:
    held = verdict.reason.startswith("held open")
    stands = verdict.reason if held else f"{verdict.phase.replace('_', '-')}: {verdict.reason}"
    wait = verdict.retry_after_s
    then = "an operator has to release it" if wait is None else f"it retries in {duration(wait)}"
    advice = advice or ("Do something else meanwhile." if key.startswith("op/") else "Stop here.")
    return f"Switchgear: circuit {key!r} is {stands}; {then}. {advice}"


RULES = "rules"
_LOOK = Record(Signal(count=0))
_ENDS = frozenset({Moment.PROMPT, Moment.STOP, Moment.AGENT_STOP, Moment.SESSION_END})
"""The turn is over: open calls will get no result."""
_ASKING = frozenset({Moment.BEFORE_TOOL, Moment.BEFORE_MODEL})
"""The agent requests permission: its usage is recorded when the call is done."""


def decide(
    facts: HookFacts,
    known: HookConfig,
    store: Store,
    warns: frozenset[str],
    errands: list[WorkAfterReply] | None = None,
    *,
    looked: CallInspection | None = None,
    event: str = "",
) -> Ruling:
    """The ruling on one hook call. Raises `StoreError` when the store cannot be asked.

    `looked` is what the rules said of the call, if they were judged already. `event` identifies the
    event: one that was decided before gets the same ruling, and nothing is recorded.

    `warns` are the events at which this agent passes a text on to the model. What is left to do
    afterwards is added to `errands`; without them no session gets a watcher.
    """
    if looked is None and facts.moment is Moment.BEFORE_TOOL:
        looked = look_at(facts, known)
    state = None
    if facts.moment is Moment.AFTER_TOOL and known.interventions.progress:
        state = state_after(facts, known)
    name = session.note_name(facts.session)
    if known.second_opinion is not None and facts.moment is Moment.BEFORE_TOOL:
        from switchgear._hooks.opinions import wait_for  # noqa: PLC0415  only where configured

        wait_for(store, name, known.root)

    def work(inside: Transaction) -> tuple[Ruling, WorkAfterReply | None]:
        decision = EventDecision(inside, facts, known, warns)
        again = decision.state.answer_to(event)
        if again is not None:
            return again
        decision.files = state
        ruling = decision.rule(looked, watched=errands is not None)
        decision.save_notes(event, ruling)
        return ruling, decision.errand

    ruling, errand = store.transact(name, work)
    if errands is not None and errand is not None:
        errands.append(errand)
    return ruling


def rule_refusal(broken: str) -> Ruling:
    return deny(f"Switchgear refused this call: {broken}. Do not try to get around it.")


class EventDecision:
    """Applies one event of an agent to its circuits, inside a transaction. Used by one thread, once."""

    def __init__(
        self, inside: Transaction, facts: HookFacts, known: HookConfig, warns: frozenset[str]
    ) -> None:
        self.tx = inside
        self.facts = facts
        self.known = known
        self.warns = facts.event in warns
        self.session = session.note_name(facts.session)
        self.lane_name = facts.subagent
        self.circuit = f"{self.session}/agent/{facts.subagent}" if facts.subagent else self.session
        self.notes = session.Notes.load(inside.note)
        self.state: CallsState = open_calls.load(self.notes.more)
        self.warnings: list[str] = []
        self._policies: dict[str, Policy] = {}
        self.evidence = ""
        """The evidence for the escalation agent, if it was called just now."""
        self.opinion_request = ""
        """The second opinion to request after the reply, as JSON."""
        self.errand: WorkAfterReply | None = None
        self.notice = ""
        """The notice about a stop, shown once."""
        self.files: str | None = None
        """A key of the files that the call has written, as they are now."""

    # Messages

    def apply(self, key: str, message: Acquire | Record | Override) -> Step:
        return self.tx.apply(key, self.policy(key), message)

    def policy(self, key: str) -> Policy:
        policy = self._policies.get(key)
        if policy is None:
            policy = self._policies[key] = self.known.policy_for(key)
        return policy

    def session_circuit(self) -> session.SessionCircuit:
        """The circuit of the whole session, whichever of its agents acts."""
        return session.SessionCircuit(self.tx.apply, self.session, self.policy(self.session))

    def remark(self, key: str, kind: EventKind, why: str) -> None:
        self.apply(key, Override("switchgear", why, kind=kind))

    def set_lane(self, lane: CallLane) -> None:
        self.state = self.state.with_lane(self.lane_name, lane)

    def story(self) -> str | None:
        """The circuit of the story that the work belongs to, if the user gave it a policy."""
        key = f"story/{self.known.story}" if self.known.story else None
        return key if key and self.known.is_configured(key) else None

    # What it has used

    def read_usage(self) -> None:
        """Add the context and cost that the transcript has gained since the last hook to the facts.

        A model whose usage cannot be charged to the story leaves an event, once.
        """
        facts, known = self.facts, self.known
        if not facts.transcript:
            return
        from switchgear._hooks.usage import Reader, charge  # noqa: PLC0415  not before a tool

        books = self.state.books
        model = facts.model or books.get("", Book()).model  # sub-agents may not name theirs
        reader = Reader(
            *(facts.agent, facts.transcript, bool(self.lane_name), model),
            self.notes.began_s or self.tx.now_s,
            os.path.dirname(default_file(known.root)),
            known.context_tokens,
        )
        book = books.get(self.lane_name, Book())
        read, bill = charge(book, reader, self.tx.now_s)
        if read != book:
            self.state = self.state.with_book(self.lane_name, read)
        story = self.story()
        for name, why in bill.unpriced.items():
            if story and name not in self.state.unpriced:
                unpriced = (*self.state.unpriced, name)[-MOST_LANES:]
                self.state = self.state._replace(unpriced=unpriced)
                self.remark(story, EventKind.UNDECIDED, f"not charged: {redact(why)}")
        used = bill.context_used if facts.context_used is None else facts.context_used
        cost = bill.cost_micros if facts.cost_micros is None else facts.cost_micros
        self.facts = facts._replace(context_used=used, cost_micros=cost)

    # The step of an agent

    def record_step(self) -> None:
        """Record the finished calls on the agent's circuit, as one step."""
        lane = self.state.lane(self.lane_name)
        if not lane.parts:
            return
        signal = open_calls.step_of(lane.parts)
        self.set_lane(lane._replace(parts=(), permits={}))
        self._record_signal(signal, lane.permits.get(self.circuit))

    def _record_signal(self, signal: Signal, permit: Permit | None) -> None:
        """Record a step of the agent on its circuit, and judge it."""
        opinions = self._opinions()
        if opinions is not None:
            opinions.remember(self, signal)
        step = self.apply(self.circuit, Record(signal, permit))
        if not self.lane_name:
            heat = step.verdict.heat
            self.notes = session.with_step(self.notes, signal, heat, self.tx.now_s)
        if signal.files_changed and not self.lane_name:
            self.notes = session.progressed(self.notes)
        self.judge(step)
        if opinions is not None and not session.has_opened(step) and opinions.ends_delay(self):
            self._step_in()

    def _opinions(self) -> Any:
        """The module `opinions`, if an opinion is requested before this agent is stopped; else `None`."""
        if self.known.second_opinion is None or self.lane_name or os.environ.get(session.WATCHED):
            return None
        from switchgear._hooks import opinions  # noqa: PLC0415  only where configured
        from switchgear._opinion.opinion import REVIEWS  # noqa: PLC0415

        return None if os.environ.get(REVIEWS) else opinions

    def return_step_permit(self) -> None:
        """Return the permit of a step that has no open call left."""
        lane = self.state.lane(self.lane_name)
        if not lane.parts and not self.state.in_lane(self.lane_name):
            self.give_back(lane.permits)
            self.set_lane(lane._replace(permits={}))

    def judge(self, step: Step) -> None:
        """Escalate if the circuit has just opened; warn if its heat has risen."""
        self.warn_if_warmer(step)
        opinions = self._opinions()
        if opinions is not None:
            opinions.request_opinion_if_hot(self, step)
        if not session.has_opened(step):
            return
        score = self._score(step)
        if self.lane_name:
            text = refusal(step.circuit.key, step.verdict)
            if score is not None:
                who = (self.facts.agent, f"sub-agent {self.lane_name}")
                text = sub_agent_stopped(Stuck(*who, score.points, score.evidence))
            lane = self.state.lane(self.lane_name)
            self.set_lane(lane._replace(stopped=text))
            return
        if score is None or os.environ.get(session.WATCHED):
            return
        self.notes = session.left_to_hooks(self.notes._replace(delay_left=0), score)
        if self.opinion_request:
            return  # requested just now: the next call takes the step, with or without the opinion
        self._step_in()

    def _score(self, step: Step) -> Score | None:
        """What an escalation step answers; `None`: the session's own policy decides alone.

        A policy of the user's that does not weigh its detectors has its own recovery; only what
        the progress detectors see is escalated then.
        """
        key, now_s = step.circuit.key, self.tx.now_s
        policy = self.policy(key)
        readings = policy.readings(step.circuit.memories, now_s)
        score = score_of(policy, readings)
        if score is not None:
            return score
        listed = {detector.kind for detector in self.known.listed_policy(key).detectors}
        pairs = zip(policy.detectors, readings, strict=True)
        if any(reading.heat >= 1 and detector.kind in listed for detector, reading in pairs):
            return None
        return grounds_of(policy, readings)

    def _step_in(self) -> None:
        plan: Interventions | None = self.known.interventions
        opinions = self._opinions()
        if opinions is not None:
            plan = opinions.plan_with_opinion(self, plan)
        if plan is None:
            return  # the stop is delayed
        self.notes, taken = session.take_escalation_step(self.session_circuit(), self.notes, plan)
        if taken.step_name == ESCALATE:
            self.evidence = self.notes.stop or ""

    def warn_if_warmer(self, step: Step) -> None:
        """Add a warning if the heat of the circuit is above that of the last warning."""
        key, verdict = step.circuit.key, step.verdict
        told = dict(self.state.told)
        last = told.pop(key, 0.0)
        if verdict.phase is Phase.TRIPPING:
            if not self.warns or verdict.heat <= last:
                return
            self.warnings.append(verdict.reason)
            told[key] = verdict.heat
        if told != self.state.told:
            self.state = self.state._replace(told=dict([*told.items()][-MOST_LANES:]))

    # Open calls

    def give_up(self, call: OpenCall, why: str) -> None:
        """Give up a call whose end will not be reported. It is counted, and an event is left."""
        key = f"{self.session}/agent/{call.lane}" if call.lane else self.session
        self.state = self.state.without(call)
        self.give_back(call.permits)
        self.apply(key, Record(_GIVEN_BACK))
        self.remark(key, EventKind.CALL_EXPIRED, f"{call.tool}: {why}")

    def give_back(self, permits: Granted) -> None:
        """Return the permits of probes; an ordinary permit holds nothing."""
        for key, permit in permits.items():
            if permit.probe:
                self.apply(key, Record(_GIVEN_BACK, permit))

    # The whole event

    def rule(self, looked: CallInspection | None, *, watched: bool) -> Ruling:
        """Record the facts and return the ruling. `watched`: the session gets a watcher."""
        facts, now_s, earlier = self.facts, self.tx.now_s, self.notes
        self.notes = session.attend(
            self.notes,
            facts.moment,
            now_s,
            agent=facts.agent,
            root=folder_mark(self.known.root),
            host=here(),
            limit_s=self.known.session_s,
            time=session.time_of_run(os.environ),
        )
        self._note_facts()
        session.save_circuit(self.session_circuit(), earlier, self.notes)
        if facts.moment is Moment.PROMPT:
            self.notes = session.user_message(self.session_circuit(), self.notes)
        elif self.known.tampered and facts.moment is not Moment.SESSION_START:
            self.notes = self.notes._replace(stop=tampering_text(self.known.tampered))
            session.open_if_stopped(self.session_circuit(), self.notes)
        for call in [call for call in self.state.calls if call.until_s <= now_s]:
            began = duration(now_s - call.began_s)
            self.give_up(call, f"it began {began} ago, and no result was reported")
        if facts.moment not in _ASKING:
            self.read_usage()
            facts = self.facts
            if facts.cost_micros is not None:
                spent = (self.notes.spent_micros or 0) + facts.cost_micros
                self.notes = self.notes._replace(spent_micros=spent)
        if facts.moment is not Moment.AFTER_TOOL:
            self._record_measurements()
        ruling = allow()
        if looked is not None:
            ruling = self._before(looked)
        elif facts.moment is Moment.AFTER_TOOL:
            self._after(facts)
        elif facts.moment is Moment.BATCH:
            self._batch()
        elif facts.moment in _ENDS:
            self._end_turn()
        ruling = self._answer(ruling)
        session.open_if_stopped(self.session_circuit(), self.notes)
        if ruling.action is Action.STOP and ruling.whole:
            reason = self.apply(self.session, _LOOK).verdict.reason or ruling.text
            escalate = self.known.interventions.escalate is not None
            about = stopped_for_people(facts.session, reason, escalate=escalate, agent=facts.agent)
            ruling = ruling._replace(for_user=about)
            if not self.notes.announced:
                self.notice = ruling.for_user
                self.notes = self.notes._replace(announced=True)
        self._set_errand(watched=watched)
        return ruling

    def save_notes(self, event: str, ruling: Ruling) -> None:
        self.state = self.state.with_answer(event, ruling, self.errand)
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
            project=self.known.root, task=self.known.story or task, last_step=last
        )

    def _set_errand(self, *, watched: bool) -> None:
        """Request a watcher, the escalation agent, a notice or a second opinion, where needed."""
        facts, known = self.facts, self.known
        watch = watched and session.needs_watcher(self.notes, facts.moment)
        if watch:
            self.notes = self.notes._replace(watcher=0)  # the next hook need not start it, too
        if watch or self.evidence or self.notice or self.opinion_request:
            escalate = known.interventions.escalate
            self.errand = WorkAfterReply(
                *(facts.agent, facts.session, known.root, facts.cwd, watch, escalate),
                *(self.evidence, self.notice, self.opinion_request),
            )

    # Before a tool

    def _before(self, looked: CallInspection) -> Ruling:
        self._release_or_end()
        if self.notes.untended and self.notes.stop is None and not os.environ.get(session.WATCHED):
            self._step_in()  # left to this call; a session that is stopped for good takes no step
        if looked.broken is not None:
            return self._refuse_violation(looked.broken)
        lane = self.state.lane(self.lane_name)
        if lane.parts and not lane.batches:
            self.record_step()  # one of several that overlapped never reported
        refused = self._ruling_if_stopped() or self._acquire_step()
        if refused is not None:
            return refused
        permits: Permits = {}
        for key in self._circuits_of_call(looked.kind, rules=True):
            step = self.apply(key, Acquire())
            permit = step.verdict.permit
            if not step.verdict.admitted or permit is None:
                self.give_back(permits)
                return self._refuse(key, step.verdict)
            permits[key] = permit
        self._open(looked, permits)
        return allow()

    def _refuse(self, key: str, verdict: Verdict) -> Ruling:
        """Refuse this call. It counts as a failed step: an agent that keeps trying is stuck."""
        text = refusal(key, verdict)
        if not key.startswith("op/"):
            self.return_step_permit()
            return stop(text)
        if any(permit.probe for permit in self.state.lane(self.lane_name).permits.values()):
            self.return_step_permit()  # a probe that was not made is no evidence
            return deny(text)
        tried = inspect_call.call_signal(self.facts, seconds=None, changed=None)
        tried = tried._replace(ok=False, error=f"refused: circuit {key!r} is {verdict.phase}")
        self._add_part(tried)
        return deny(text)

    def _release_or_end(self) -> None:
        """Note that the time of the session is over, or that an operator has released it."""
        self.notes = session.over(self.notes, self.tx.now_s)
        self.notes = session.released(self.session_circuit(), self.notes)

    def _ruling_if_stopped(self) -> Ruling | None:
        self._release_or_end()
        if self.notes.stop is not None:
            return stop(self.notes.stop)
        if not self.lane_name:
            return None
        parent = self.apply(self.session, _LOOK).verdict
        if refuses(parent):
            return stop(refusal(self.session, parent))
        stopped = self.state.lane(self.lane_name).stopped
        return stop(stopped, whole=False) if stopped else None

    def _acquire_step(self) -> Ruling | None:
        """Acquire a permit of the agent's circuit, once for calls that overlap; why not, if refused."""
        key, lane = self.circuit, self.state.lane(self.lane_name)
        step = self.apply(key, _LOOK if key in lane.permits else Acquire())
        verdict = step.verdict
        if key in lane.permits and verdict.phase is not Phase.OPEN:
            return None
        if verdict.admitted and verdict.permit is not None:
            self.set_lane(lane._replace(permits={**lane.permits, key: verdict.permit}))
            self.warn_if_warmer(step)
            return None
        self.return_step_permit()
        if self.notes.tried and verdict.retry_after_s is not None:
            # The agent was only nudged, and may continue soon.
            self.notes, words = session.deliver(self.notes, self.tx.now_s)
            text = refusal(key, verdict, "Pause, then try a different approach.")
            return deny("\n\n".join((*words.texts, text)))
        return stop(refusal(key, verdict), whole=not self.lane_name)

    def _circuits_of_call(self, kind: str, *, rules: bool) -> list[str]:
        """The circuits of a single call; `rules`: with that of the rules, if it has a policy."""
        names = (self.story(), RULES if rules and self.known.is_configured(RULES) else None)
        return [*filter(None, names), f"op/{kind}"]

    def _open(self, looked: CallInspection, permits: Permits) -> None:
        facts, now_s = self.facts, self.tx.now_s
        call = OpenCall(
            *(call_id(facts), self.lane_name, redact(facts.tool, 80), looked.kind, looked.changes),
            *(now_s, now_s + self.known.lease_s, permits, facts.context_used),
        )
        self.state = self.state.opened(call)
        for oldest in self.state.calls[:-MOST_CALLS]:
            self.give_up(oldest, f"more than {MOST_CALLS} calls are open")

    def _refuse_violation(self, broken: str) -> Ruling:
        """Refuse, and record it on the rules and the session: an agent that keeps trying is stuck."""
        signal = inspect_call.call_signal(self.facts, seconds=None, changed=None)
        tried = signal._replace(violation=broken)
        self.apply(RULES, Record(tried))
        self.remark(RULES, EventKind.RULE_BROKEN, f"{broken}; by {self.circuit}")
        self._record_signal(signal._replace(ok=False, error=broken), None)
        refused, stopped = rule_refusal(broken), self._ruling_if_stopped()
        if stopped is not None:
            return stop(f"{refused.text}\n\n{stopped.text}", whole=stopped.whole)
        self.notes, words = session.deliver(self.notes, self.tx.now_s)
        return deny("\n\n".join((refused.text, *words.texts)))

    # After a tool

    def _after(self, facts: HookFacts) -> None:
        """Record the result on the operation at once, and on the agent's circuit when the step is over."""
        call = self.state.found(call_id(facts), self.lane_name)
        if call is None:
            kind, changes, _ = look_at(facts, self.known)
            permits: dict[str, Permit | None] = dict.fromkeys(
                self._circuits_of_call(kind, rules=False)  # its start was not seen
            )
            seconds = facts.seconds
        else:
            kind, changes, permits = call.kind, call.changes, dict(call.permits)
            seconds = self.tx.now_s - call.began_s if facts.seconds is None else facts.seconds
            facts = facts._replace(context_used=facts.context_used or call.context_used)
            self.state = self.state.without(call)
        changed = changes if facts.ok is not False and changes else None
        signal = inspect_call.call_signal(facts, seconds=seconds, changed=changed)
        told = inspect_call.operation_signal(signal, kind, facts)
        for key, permit in permits.items():
            own = told if key.startswith("op/") else signal
            if key == RULES:  # the call was admitted: whatever came of it, it broke no rule
                own = Signal(ok=True)
            self.apply(key, Record(own, permit))
        judged = kind == inspect_call.SHELL and self.known.interventions.progress
        failing = failing_tests_of(facts) if judged else None
        self._add_part(signal._replace(state=self.files, failing_tests=failing))

    def _add_part(self, signal: Signal) -> None:
        """Add a finished or refused call to the step; record the step if it is complete."""
        lane = self.state.lane(self.lane_name)
        self.set_lane(lane._replace(parts=(*lane.parts, signal)))
        over = not lane.batches and not self.state.in_lane(self.lane_name)
        if over or len(lane.parts) + 1 >= MOST_PARTS:
            self.record_step()

    def _batch(self) -> None:
        """Record the calls of a batch: the end of a batch ends a step."""
        for item in self.facts.batch:
            if self.state.found(call_id(item), self.lane_name) is not None:
                self._after(item)
        self.record_step()
        self.set_lane(self.state.lane(self.lane_name)._replace(batches=True))

    def _end_turn(self) -> None:
        """Record the finished calls; open ones have no result."""
        everything = self.facts.moment is Moment.SESSION_END
        for call in self.state.calls:
            if everything or call.lane == self.lane_name:
                self.give_back(call.permits)
                self.state = self.state.without(call)
        self.record_step()
        self.return_step_permit()
        facts, spawn = self.facts, inspect_call.AGENT_SPAWN
        if facts.moment is Moment.AGENT_STOP:
            self.state = self.state.with_lane(self.lane_name, None)
            # Unless the call that started the sub-agent is open: that will report how it ended.
            if facts.ok is not None and all(call.kind != spawn for call in self.state.calls):
                signal = Signal(ok=facts.ok, error=None if facts.ok else facts.error)
                self.apply(f"op/{spawn}", Record(signal))

    def _record_measurements(self) -> None:
        """Record the cost and context of an event that is not a call."""
        facts = self.facts
        used = facts.context_used
        if used is None and facts.tokens is not None:
            used = min(1.0, facts.tokens / (self.known.context_tokens or DEFAULT_WINDOW))
        if facts.moment is Moment.BEFORE_TOOL:
            used = None  # recorded with the outcome of the call
        if used is None and not facts.cost_micros:
            return
        signal = Signal(context_used=used, cost_micros=facts.cost_micros)
        self.judge(self.apply(self.circuit, Record(signal)))
        story = self.story()
        if story and facts.cost_micros:
            self.apply(story, Record(Signal(cost_micros=facts.cost_micros)))

    # Words

    def _answer(self, ruling: Ruling) -> Ruling:
        if ruling.text:
            return ruling
        if not self.warns and self.facts.moment is not Moment.BEFORE_TOOL:
            return ruling
        words = session.Words(stop=self.notes.stop)
        if self.warns:
            self.notes, words = session.deliver(self.notes, self.tx.now_s)
        if words.stop is not None:
            return stop(words.stop, whole=not self.lane_name)
        said = [*words.texts, *map(progress_warning, self.warnings)]
        return warn("\n\n".join(said)) if said else ruling
