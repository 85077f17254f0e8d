"""The agent of a hook call inside its transaction: its circuit, its steps, its open calls.

Everything that a call, a batch and the end of a turn have in common. `decide` says which of it
happens when.
"""

import os
from collections.abc import Mapping

from switchgear._agents.hook_protocol import HookFacts
from switchgear._core.errors import duration
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    EventKind,
    Override,
    Phase,
    Record,
    Signal,
    Step,
    Verdict,
)
from switchgear._hooks import open_calls, session
from switchgear._hooks.compiled import Compiled
from switchgear._hooks.open_calls import MOST_LANES, Book, CallLane, CallsState, Granted, OpenCall
from switchgear._stores.base import Transaction
from switchgear._stores.url import default_file
from switchgear._stuck.escalation import ESCALATE, Interventions
from switchgear._stuck.score import Score, grounds_of, score_of
from switchgear._text.redact import redact

_GIVEN_BACK = Signal()


class GuardedAgent:
    """One hook call inside its transaction. Used by one thread, once."""

    def __init__(
        self, inside: Transaction, facts: HookFacts, known: Compiled, warns: frozenset[str]
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
        self.worries: list[str] = []
        self._policies: dict[str, Policy] = {}
        self.evidence = ""
        """What the help is to take over with, if it was called just now."""
        self.opinion_request = ""
        """The second opinion to ask after the reply, as JSON."""

    # Messages

    def apply(self, key: str, message: Acquire | Record | Override) -> Step:
        """Send a message to a circuit."""
        return self.tx.apply(key, self.policy(key), message)

    def policy(self, key: str) -> Policy:
        """The policy of a circuit."""
        policy = self._policies.get(key)
        if policy is None:
            policy = self._policies[key] = self.known.policy_for(key)
        return policy

    def session_circuit(self) -> session.SessionCircuit:
        """The circuit of the whole session, whichever of its agents acts."""
        return session.SessionCircuit(self.tx.apply, self.session, self.policy(self.session))

    def remark(self, key: str, kind: EventKind, why: str) -> None:
        """Leave an event of Switchgear's own."""
        self.apply(key, Override("switchgear", why, kind=kind))

    def set_lane(self, lane: CallLane) -> None:
        """Remember how the agent's lane stands."""
        self.state = self.state.with_lane(self.lane_name, lane)

    def story(self) -> str | None:
        """The circuit of what the work is for, if the user gave it a policy."""
        key = f"story/{self.known.story}" if self.known.story else None
        return key if key and self.known.is_configured(key) else None

    # What it has used

    def read_usage(self) -> None:
        """Add to the facts what the transcript tells of context and cost since the last time."""
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
        self._say_unpriced(bill.unpriced)
        used = bill.context_used if facts.context_used is None else facts.context_used
        cost = bill.cost_micros if facts.cost_micros is None else facts.cost_micros
        self.facts = facts._replace(context_used=used, cost_micros=cost)

    def _say_unpriced(self, models: Mapping[str, str]) -> None:
        """A budget that is not charged says so, once for a model."""
        story = self.story()
        for model, why in models.items():
            if story and model not in self.state.unpriced:
                self.state = self.state._replace(
                    unpriced=(*self.state.unpriced, model)[-MOST_LANES:]
                )
                self.remark(story, EventKind.UNDECIDED, f"not charged: {redact(why)}")

    # The step of an agent

    def tell_step(self) -> None:
        """Tell the agent's circuit of the calls that are done, as one."""
        lane = self.state.lane(self.lane_name)
        if not lane.parts:
            return
        signal = open_calls.step_of(lane.parts)
        self.set_lane(lane._replace(parts=(), permits={}))
        if self.has_second_opinion():
            from switchgear._hooks import opinions  # noqa: PLC0415  only where configured

            opinions.remember(self, signal)
        step = self.apply(self.circuit, Record(signal, lane.permits.get(self.circuit)))
        if signal.files_changed and not self.lane_name:
            self.notes = session.progressed(self.notes)
        self.judge(step)
        if self.has_second_opinion() and not session.has_opened(step):
            from switchgear._hooks import opinions  # noqa: PLC0415  only where configured

            if opinions.ends_delay(self):
                self._step_in()

    def has_second_opinion(self) -> bool:
        """Whether an opinion is asked before this agent is stopped."""
        watched = bool(os.environ.get(session.WATCHED))
        return self.known.second_opinion is not None and not self.lane_name and not watched

    def leave_step(self) -> None:
        """Give the leave for a step back that has no call left in it."""
        lane = self.state.lane(self.lane_name)
        if not lane.parts and not self.state.in_lane(self.lane_name):
            self.give_back(lane.permits)
            self.set_lane(lane._replace(permits={}))

    def judge(self, step: Step) -> None:
        """See to a circuit that has just opened, or grows warm."""
        self.worry(step)
        if self.has_second_opinion():
            from switchgear._hooks import opinions  # noqa: PLC0415  only where configured

            opinions.ask_when_hot(self, step)
        if not session.has_opened(step):
            return
        key = step.circuit.key
        if self.lane_name:
            lane = self.state.lane(self.lane_name)
            self.set_lane(lane._replace(stopped=refusal(key, step.verdict)))
            return
        score = self._score(step)
        if score is None or os.environ.get(session.WATCHED):
            return
        self.notes = session.left_to_hooks(self.notes._replace(delay_left=0), score)
        if self.opinion_request:
            return  # asked just now: the next call takes the step, with the opinion or without it
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

    def take_left_rung(self) -> None:
        """Take the step that was left to hooks by a process that only looked on."""
        if self.notes.untended and not os.environ.get(session.WATCHED):
            self._step_in()

    def _step_in(self) -> None:
        plan: Interventions | None = self.known.interventions
        if self.has_second_opinion():
            from switchgear._hooks import opinions  # noqa: PLC0415  only where configured

            plan = opinions.plan_with_opinion(self, self.known.interventions)
        if plan is None:
            return  # the stop is delayed
        self.notes, taken = session.take_escalation_step(self.session_circuit(), self.notes, plan)
        if taken.step_name == ESCALATE:
            self.evidence = self.notes.stop or ""

    def worry(self, step: Step) -> None:
        """A warning if the circuit is warmer than at the last one."""
        key, verdict = step.circuit.key, step.verdict
        told = dict(self.state.told)
        last = told.pop(key, 0.0)
        if verdict.phase is Phase.TRIPPING:
            if not self.warns or verdict.heat <= last:
                return
            self.worries.append(verdict.reason)
            told[key] = verdict.heat
        if told != self.state.told:
            self.state = self.state._replace(told=dict([*told.items()][-MOST_LANES:]))

    # Open calls

    def give_up_expired(self) -> None:
        """Give up the calls whose lease has run out."""
        for call in self.state.calls:
            if call.until_s <= self.tx.now_s:
                began = duration(self.tx.now_s - call.began_s)
                self.give_up(call, f"it began {began} ago and its end was never told")

    def give_up(self, call: OpenCall, why: str) -> None:
        """Give up a call whose end will not be told: counted, and an event says so."""
        key = f"{self.session}/agent/{call.lane}" if call.lane else self.session
        self.state = self.state.without(call)
        self.give_back(call.permits)
        self.apply(key, Record(_GIVEN_BACK))
        self.remark(key, EventKind.CALL_EXPIRED, f"{call.tool}: {why}")

    def give_back(self, permits: Granted) -> None:
        """Free the places of probes; an ordinary permit holds nothing."""
        for key, permit in permits.items():
            if permit.probe:
                self.apply(key, Record(_GIVEN_BACK, permit))


def refuses(verdict: Verdict) -> bool:
    """Whether nothing may go on under this circuit; a probe under way is the parent's business."""
    return not verdict.admitted and verdict.phase is not Phase.HALF_OPEN


def refusal(key: str, verdict: Verdict, advice: str = "") -> str:
    """Why not, until when, and what to do."""
    held = verdict.reason.startswith("held open")
    stands = verdict.reason if held else f"{verdict.phase.replace('_', '-')}: {verdict.reason}"
    wait = verdict.retry_after_s
    then = "an operator has to release it" if wait is None else f"it retries in {duration(wait)}"
    advice = advice or ("Do something else meanwhile." if key.startswith("op/") else "Stop here.")
    return f"Switchgear: circuit {key!r} is {stands}; {then}. {advice}"
