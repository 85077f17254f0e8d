"""From what a hook says to what it is answered: messages to circuits, in one transaction.

Before a tool, every circuit that it answers to is asked, and admitted means by all of them; what
was granted is given back if one refuses. After it, each is told how it went. There is no second
judge here: circuits decide, the ladder says what to do about a stuck agent, and the dialect of the
agent puts the ruling into its words.
"""

from typing import NamedTuple

from switchgear.core.digest import digest
from switchgear.core.score import score_of
from switchgear.core.types import (
    Ask,
    EventKind,
    Order,
    Phase,
    Signal,
    Step,
    Tell,
    Verdict,
)
from switchgear.errors import duration
from switchgear.hooks import kinds, open_calls, sessions, signals
from switchgear.hooks.compiled import Compiled
from switchgear.hooks.facts import HookFacts, Moment
from switchgear.hooks.open_calls import MOST_CALLS, MOST_PARTS, Call, Lane, State
from switchgear.hooks.ruling import Ruling, allow, deny, stop, warn
from switchgear.redact import redact
from switchgear.stores.base import Store, Transaction

RULES = "rules"
_LOOK = Tell(Signal(count=0))
_GIVEN_BACK = Signal()
_ENDS = frozenset({Moment.PROMPT, Moment.STOP, Moment.AGENT_STOP, Moment.SESSION_END})
"""Where a turn is over: what is still open will not be told any more."""


class Looked(NamedTuple):
    """What can be told of a call before it is made."""

    kind: str
    changes: int = 0
    broken: str | None = None
    """The rule that it would break."""


def decide(facts: HookFacts, known: Compiled, store: Store, warns: frozenset[str]) -> Ruling:
    """The ruling on one hook call. Raises `StoreError` when the store cannot be asked.

    `warns` are the events at which this agent passes a text on to the model.
    """
    looked = look_at(facts, known) if facts.moment is Moment.BEFORE_TOOL else None
    name = sessions.note_name(facts.session)
    return store.transact(name, lambda inside: _Hearing(inside, facts, known, warns).rule(looked))


def look_at(facts: HookFacts, known: Compiled) -> Looked:
    """What a call would do, and the rule that it would break, if any."""
    from switchgear.core.deeds import deed_of  # noqa: PLC0415  only before a tool
    from switchgear.core.rules import judge_deed  # noqa: PLC0415
    from switchgear.guards.rules import place_at  # noqa: PLC0415

    place = place_at(known.root, cwd=facts.cwd, protected=known.protected)
    deed = deed_of(facts.tool, facts.args, place)
    broken = judge_deed(known.loaded_rules(), deed, place)
    touched = {path for path in (*deed.writes, *deed.deletes) if not path.startswith("/dev/")}
    kind = kinds.kind_of(facts.tool, deed.commands)
    return Looked(kind, len(touched), None if broken is None else redact(str(broken)))


class _Hearing:
    """One hook call inside its transaction. Used by one thread, once."""

    def __init__(
        self, inside: Transaction, facts: HookFacts, known: Compiled, warns: frozenset[str]
    ) -> None:
        self._tx = inside
        self._facts = facts
        self._known = known
        self._warns = facts.event in warns
        self._session = sessions.note_name(facts.session)
        self._lane_name = facts.subagent
        self._circuit = (
            f"{self._session}/agent/{facts.subagent}" if facts.subagent else self._session
        )
        self._notes = sessions.Notes.load(inside.note)
        self._state: State = open_calls.load(self._notes.more)
        self._worries: list[str] = []

    def rule(self, looked: Looked | None) -> Ruling:
        """Hear the facts, and answer."""
        facts, now_s = self._facts, self._tx.now_s
        self._notes = sessions.attend(
            self._notes,
            facts.moment,
            _call_id(facts) if facts.tool else "",
            now_s,
            agent=facts.agent,
            limit_s=self._known.session_s,
        )
        self._give_up_expired()
        ruling = allow()
        if looked is not None:
            ruling = self._before(looked)
        elif facts.moment is Moment.AFTER_TOOL:
            self._after(facts)
        elif facts.moment is Moment.BATCH:
            self._batch()
        elif facts.moment in _ENDS:
            self._end_turn()
        if facts.moment is not Moment.AFTER_TOOL:
            self._measured()
        ruling = self._answer(ruling)
        self._notes = self._notes._replace(more=open_calls.dump(self._state))
        self._tx.note = self._notes.dump()
        return ruling

    # Before a tool

    def _before(self, looked: Looked) -> Ruling:
        if looked.broken is not None:
            return self._violated(looked.broken)
        self._notes = sessions.over(self._notes, self._tx.now_s)
        if self._notes.stop is not None:
            return stop(self._notes.stop)
        if self._lane_name:
            parent = self._apply(self._session, _LOOK)
            if _refuses(parent.verdict):
                return stop(_refusal(self._session, parent.verdict))
        lane = self._state.lane(self._lane_name)
        if lane.stopped:
            return stop(lane.stopped, whole=False)
        if lane.parts and not lane.batches:
            self._tell_step()  # one of several that overlapped never reported
        refused = self._ask_for_step()
        if refused is not None:
            return refused
        permits: open_calls.Permits = {}
        for key in self._asked(looked.kind):
            step = self._apply(key, Ask())
            permit = step.verdict.permit
            if not step.verdict.admitted or permit is None:
                self._give_back(permits)
                self._leave_step()
                text = _refusal(key, step.verdict)
                return deny(text) if key.startswith("op/") else stop(text)
            permits[key] = permit
        self._open(looked, permits)
        return allow()

    def _ask_for_step(self) -> Ruling | None:
        """Ask the agent's own circuit, once for calls that overlap; the ruling if it refuses."""
        lane = self._state.lane(self._lane_name)
        key = self._circuit
        step = self._apply(key, _LOOK if key in lane.permits else Ask())
        verdict = step.verdict
        if key in lane.permits and verdict.phase is not Phase.OPEN:
            return None
        if verdict.admitted and verdict.permit is not None:
            self._set_lane(lane._replace(permits={key: verdict.permit}))
            self._worry(step)
            return None
        if self._notes.incident and verdict.retry_after_s is not None:
            # The ladder has the word: the agent was only nudged, and may go on soon.
            return deny(_refusal(key, verdict, "Pause, then try a different approach."))
        return stop(_refusal(key, verdict), whole=not self._lane_name)

    def _asked(self, kind: str) -> list[str]:
        """The circuits that are asked for each call alone."""
        story = self._story()
        rules = [RULES] if self._known.is_configured(RULES) else []
        return [*([story] if story else []), *rules, f"op/{kind}"]

    def _story(self) -> str | None:
        key = f"story/{self._known.story}" if self._known.story else None
        return key if key and self._known.is_configured(key) else None

    def _open(self, looked: Looked, permits: open_calls.Permits) -> None:
        facts, now_s = self._facts, self._tx.now_s
        call = Call(
            _call_id(facts),
            self._lane_name,
            redact(facts.tool, 80),
            looked.kind,
            looked.changes,
            now_s,
            now_s + self._known.lease_s,
            permits,
            facts.context_used,
        )
        self._state = self._state.opened(call)
        for oldest in self._state.calls[:-MOST_CALLS]:
            self._give_up(oldest, f"more than {MOST_CALLS} calls are open")

    def _violated(self, broken: str) -> Ruling:
        """Refused, told to the rules and to the session: who tries again and again is stuck."""
        signal = signals.call_signal(self._facts, seconds=None, changed=None)
        tried = signal._replace(violation=broken)
        self._apply(RULES, Tell(tried))
        self._remark(RULES, EventKind.RULE_BROKEN, f"{broken}; by {self._circuit}")
        self._judge(self._apply(self._circuit, Tell(tried._replace(ok=False, error=broken))))
        return deny(f"Switchgear refused this call: {broken}. Do not try to get around it.")

    # After a tool

    def _after(self, facts: HookFacts) -> None:
        """Tell the operation at once, and the agent's circuit when the step is over."""
        call = self._state.found(_call_id(facts), self._lane_name)
        if call is None:
            looked = look_at(facts, self._known)
            kind, changes, permits = (
                looked.kind,
                looked.changes,
                dict.fromkeys(self._told(looked.kind)),
            )
            seconds = facts.seconds
        else:
            kind, changes, permits = call.kind, call.changes, dict(call.permits)
            seconds = self._tx.now_s - call.began_s if facts.seconds is None else facts.seconds
            facts = facts._replace(context_used=facts.context_used or call.context_used)
            self._state = self._state.without(call)
        changed = changes if facts.ok is not False and changes else None
        signal = signals.call_signal(facts, seconds=seconds, changed=changed)
        told = signals.operation_signal(signal, kind, facts)
        for key, permit in permits.items():
            own = told if key.startswith("op/") else signal
            self._apply(key, Tell(own, permit))
        lane = self._state.lane(self._lane_name)
        self._set_lane(lane._replace(parts=(*lane.parts, signal)))
        over = not lane.batches and not self._state.in_lane(self._lane_name)
        if over or len(lane.parts) + 1 >= MOST_PARTS:
            self._tell_step()

    def _told(self, kind: str) -> list[str]:
        """The circuits that hear of a call whose beginning was not seen."""
        story = self._story()
        return [*([story] if story else []), f"op/{kind}"]

    def _batch(self) -> None:
        """All tools of an answer are done: one step is over."""
        for item in self._facts.batch:
            if self._state.found(_call_id(item), self._lane_name) is not None:
                self._after(item)
        self._tell_step()
        self._set_lane(self._state.lane(self._lane_name)._replace(batches=True))

    def _end_turn(self) -> None:
        """The turn is over: what is open stays unknown, what is done is told."""
        everything = self._facts.moment is Moment.SESSION_END
        for call in self._state.calls:
            if everything or call.lane == self._lane_name:
                self._give_back(call.permits)
                self._state = self._state.without(call)
        self._tell_step()
        self._leave_step()
        if self._facts.moment is Moment.AGENT_STOP:
            self._state = self._state.with_lane(self._lane_name, None)

    def _measured(self) -> None:
        """What an event besides a call tells of cost and context."""
        facts = self._facts
        used = facts.context_used
        if used is None and facts.tokens is not None:
            used = min(1.0, facts.tokens / self._known.context_tokens)
        if facts.moment is Moment.BEFORE_TOOL or (used is None and not facts.cost_micros):
            return
        signal = Signal(context_used=used, cost_micros=facts.cost_micros)
        self._judge(self._apply(self._circuit, Tell(signal)))
        story = self._story()
        if story and facts.cost_micros:
            self._apply(story, Tell(Signal(cost_micros=facts.cost_micros)))

    # The step of an agent

    def _tell_step(self) -> None:
        """Tell the agent's circuit of the calls that are done, as one."""
        lane = self._state.lane(self._lane_name)
        if not lane.parts:
            return
        permit = lane.permits.get(self._circuit)
        signal = open_calls.step_of(lane.parts)
        self._set_lane(lane._replace(parts=(), permits={}))
        step = self._apply(self._circuit, Tell(signal, permit))
        if signal.files_changed and not self._lane_name:
            plan = self._known.interventions
            self._notes = sessions.progressed(self._tx.apply, self._notes, self._session, plan)
        self._judge(step)

    def _leave_step(self) -> None:
        """Give the leave for a step back that has no call left in it."""
        lane = self._state.lane(self._lane_name)
        if not lane.parts and not self._state.in_lane(self._lane_name):
            self._give_back(lane.permits)
            self._set_lane(lane._replace(permits={}))

    def _judge(self, step: Step) -> None:
        """See to it that a circuit that has just opened, or grows warm, is answered."""
        self._worry(step)
        if not sessions.has_opened(step):
            return
        policy = self._known.policy_for(self._circuit)
        score = score_of(policy, policy.readings(step.circuit.memories, self._tx.now_s))
        if self._lane_name:
            lane = self._state.lane(self._lane_name)
            self._set_lane(lane._replace(stopped=_refusal(self._circuit, step.verdict)))
        elif score is not None:
            plan = self._known.interventions
            self._notes, _ = sessions.stuck(self._tx.apply, self._notes, self._session, score, plan)

    def _worry(self, step: Step) -> None:
        """A warning if the circuit is warmer than at the last one."""
        key, verdict = step.circuit.key, step.verdict
        last = self._state.told.get(key, 0.0)
        if verdict.phase is not Phase.TRIPPING:
            if last:
                self._state = self._state._replace(told={})
        elif self._warns and verdict.heat > last:
            self._worries.append(verdict.reason)
            self._state = self._state._replace(told={key: verdict.heat})

    # Open calls

    def _give_up_expired(self) -> None:
        for call in self._state.calls:
            if call.until_s <= self._tx.now_s:
                began = duration(self._tx.now_s - call.began_s)
                self._give_up(call, f"it began {began} ago and its end was never told")

    def _give_up(self, call: Call, why: str) -> None:
        key = f"{self._session}/agent/{call.lane}" if call.lane else self._session
        self._state = self._state.without(call)
        self._give_back(call.permits)
        self._apply(key, Tell(_GIVEN_BACK))
        self._remark(key, EventKind.CALL_EXPIRED, f"{call.tool}: {why}")

    def _give_back(self, permits: open_calls.Leave) -> None:
        """Free the places of probes; an ordinary permit holds nothing."""
        for key, permit in permits.items():
            if permit.probe:
                self._apply(key, Tell(_GIVEN_BACK, permit))

    # Words

    def _answer(self, ruling: Ruling) -> Ruling:
        """The ruling with what else has to be said now."""
        if ruling.text:
            return ruling
        if not self._warns and self._facts.moment is not Moment.BEFORE_TOOL:
            return ruling
        words = sessions.Words(stop=self._notes.stop)
        if self._warns:
            self._notes, words = sessions.deliver(self._notes, self._tx.now_s)
        if words.stop is not None:
            return stop(words.stop, whole=not self._lane_name)
        worries = [f"Switchgear warns: {reason}. {_GO_ON}" for reason in self._worries]
        said = [*words.texts, *worries]
        return warn("\n\n".join(said)) if said else ruling

    # Messages

    def _apply(self, key: str, message: Ask | Tell | Order) -> Step:
        return self._tx.apply(key, self._known.policy_for(key), message)

    def _remark(self, key: str, kind: EventKind, why: str) -> None:
        self._apply(key, Order("switchgear", why, kind=kind))

    def _set_lane(self, lane: Lane) -> None:
        self._state = self._state.with_lane(self._lane_name, lane)


_GO_ON = "Try a different approach; if this goes on, you will be stopped."


def _refuses(verdict: Verdict) -> bool:
    """Whether nothing may go on under this circuit; a probe under way is the parent's business."""
    return not verdict.admitted and verdict.phase is not Phase.HALF_OPEN


def _refusal(key: str, verdict: Verdict, advice: str = "") -> str:
    """Why not, until when, and what to do."""
    phase = verdict.phase.replace("_", "-")
    wait = verdict.retry_after_s
    then = "an operator has to release it" if wait is None else f"it retries in {duration(wait)}"
    advice = advice or ("Do something else meanwhile." if key.startswith("op/") else "Stop here.")
    return f"Switchgear: circuit {key!r} is {phase}: {verdict.reason}; {then}. {advice}"


def _call_id(facts: HookFacts) -> str:
    """The agent's name for the call; without one, equal calls are told apart by their order."""
    if facts.call_id:
        return redact(facts.call_id, 120)
    return "#" + digest(f"{facts.tool}\0{signals.args_text(facts.args)}")
