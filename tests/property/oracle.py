"""The whole state machine in the simplest form: every answer is computed from the full history.

No window, running sum, draft or memory. Evidence is the list of what was told since the circuit
last closed, eras are such lists back to the last reset, with the probes that failed; totals are
counted from a ledger, and each judgement reads the lists from their start.
Nothing here comes from `machine.py`, `policy.py` or the detectors.
"""

from math import floor
from typing import NamedTuple

from property import naive
from switchgear._core.policy import Cooldown, Latched, Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    Event,
    EventKind,
    Failure,
    Message,
    Mode,
    OpenState,
    Override,
    Permit,
    Phase,
    Probing,
    Record,
    Signal,
    Step,
    Totals,
    Verdict,
)


class Told(NamedTuple):
    """One line of the ledger."""

    column: str
    times: int
    failure: Failure | None = None


class Oracle:
    """One circuit with its full history. `hear` returns the expected step, without memories."""

    def __init__(self, policy: Policy, key: str, now_s: float) -> None:
        self.policy, self.key, self.seen_s, self.now_s = policy, key, now_s, now_s
        self.phase, self.mode, self.heat = Phase.CLOSED, Mode.AUTO, 0.0
        self.order: Override | None = None
        self.generation, self.version = 1, 0
        self.evidence: list[tuple[float, Signal]] = []
        self.eras: list[list[tuple[float, Signal]]] = [[]]
        self.ledger: list[Told] = []
        self.events: list[Event] = []
        self.forget_outage()

    def forget_outage(self) -> None:
        self.opened_at_s, self.cooldown_s = 0.0, 0.0
        self.retry_at_s: float | None = None
        self.failed_probes, self.admit, self.reason = 0, 0.0, ""
        self.met_reduced_load: list[bool] = []
        self.forget_probes()

    def forget_probes(self) -> None:
        self.under_way: list[Permit] = []
        self.hung: list[int] = []
        self.issued = 0
        self.results: list[bool] = []

    # What is said

    def hear(self, message: Message, now_s: float) -> Step:
        before, known = self.circuit(), len(self.events)
        self.now_s = max(now_s, self.seen_s)
        self.let_time_pass()
        if isinstance(message, Acquire):
            verdict = self.answer()
        else:
            if isinstance(message, Record):
                self.listen(message.signal, message.permit)
            else:
                self.obey(message)
            verdict = self.stand()
        if self.circuit() != before:
            self.version, self.seen_s = self.version + 1, self.now_s
        return Step(self.circuit(), verdict, tuple(self.events[known:]))

    def circuit(self) -> Circuit:
        columns = dict.fromkeys(Totals._fields, 0)
        for told in self.ledger:
            columns[told.column] += told.times
        failures = tuple(told.failure for told in self.ledger if told.failure is not None)
        return Circuit(
            key=self.key,
            memories=(),
            phase=self.phase,
            mode=self.mode,
            order=self.order,
            generation=self.generation,
            version=self.version,
            event_seq=len(self.events),
            seen_s=self.seen_s,
            heat=self.heat,
            outage=OpenState(
                self.opened_at_s,
                self.retry_at_s,
                self.cooldown_s,
                self.failed_probes,
                self.admit,
                len(self.met_reduced_load),
                self.reason,
            ),
            probing=Probing(
                tuple(self.under_way),
                self.issued,
                self.results.count(True),
                tuple(self.hung[-16:]),
                self.results.count(False),
            ),
            failures=failures[-5:],
            totals=Totals(**columns),
        )

    # Time

    def let_time_pass(self) -> None:
        self.let_holds_end()
        if self.phase is Phase.TRIPPING:
            self.weigh(None)
        elif self.phase is Phase.OPEN and isinstance(self.policy.recovery, Latched):
            self.retry_at_s = None
        elif self.phase is Phase.OPEN and self.wait_is_over():
            if isinstance(self.policy.recovery, Cooldown):
                self.begin_to_probe(f"waited {naive.said(self.cooldown_s)}")
            else:
                self.close("the window ended")
        elif self.phase is Phase.HALF_OPEN and isinstance(self.policy.recovery, Cooldown):
            for permit in [p for p in self.under_way if self.has_expired(p)]:
                self.under_way.remove(permit)
                self.hung.append(permit.probe)
                words = f"probe {permit.probe} did not report in time"
                self.event(EventKind.PROBE_EXPIRED, self.phase, words)
            self.decide("failed", None)
        elif self.phase is Phase.HALF_OPEN:
            self.open(self.reason, None, self.admit, 0)

    def let_holds_end(self) -> None:
        ends_s = None if self.order is None else self.order.until_s
        if self.order is None or ends_s is None or self.now_s < ends_s:
            return
        held, by, why = self.mode, self.order.by, self.order.why
        self.mode, self.order = Mode.AUTO, None
        self.event(EventKind.HOLD_ENDED, self.phase, f"mode {held} ended", by, why)

    def begin_to_probe(self, reason: str) -> None:
        self.generation, self.retry_at_s = self.generation + 1, None
        self.move(Phase.HALF_OPEN, reason)

    def wait_is_over(self) -> bool:
        return self.retry_at_s is not None and not self.now_s < self.retry_at_s

    def has_expired(self, permit: Permit) -> bool:
        return permit.lease_until_s is not None and not self.now_s < permit.lease_until_s

    # Ask

    def answer(self) -> Verdict:
        permit = None if self.mode is Mode.HELD_OPEN else self.leave()
        verdict = self.stand()
        if permit is not None:
            return verdict._replace(admitted=True, permit=permit, overruled=False)
        if self.mode in {Mode.HELD_CLOSED, Mode.SHADOW}:
            self.ledger.append(Told("overruled", 1))
            ordinary = Permit(self.generation)
            return verdict._replace(admitted=True, permit=ordinary, overruled=True)
        self.ledger.append(Told("refused", 1))
        return verdict._replace(admitted=False)

    def leave(self) -> Permit | None:
        if self.phase in {Phase.CLOSED, Phase.TRIPPING}:
            return Permit(self.generation)
        if self.has_free_probe():
            until_s = self.now_s + naive.lease_s(self.policy, self.cooldown_s)
            self.issued += 1
            self.under_way.append(Permit(self.generation, self.issued, until_s))
            return self.under_way[-1]
        if self.admit == 0:
            return None
        due = floor((len(self.met_reduced_load) + 1) * self.admit)
        self.met_reduced_load.append(sum(self.met_reduced_load) < due)
        return Permit(self.generation) if self.met_reduced_load[-1] else None

    def has_free_probe(self) -> bool:
        """Whether another probe is admitted: fewer than `probes` run, and the results so far and in progress cannot decide."""
        rule = self.policy.recovery
        if self.phase is not Phase.HALF_OPEN or not isinstance(rule, Cooldown):
            return False
        expected = len(self.results) + len(self.under_way)
        can_matter = rule.of is None or expected < rule.of
        return len(self.under_way) < rule.probes and can_matter

    def stand(self) -> Verdict:
        if self.mode is Mode.HELD_OPEN:
            assert self.order is not None
            held = f"held open by {self.order.by}: {self.order.why}"
            ends_s = self.order.until_s
            left_s = None if ends_s is None else ends_s - self.now_s
            return Verdict(False, self.phase, held, left_s, self.heat)
        if self.phase in {Phase.CLOSED, Phase.TRIPPING}:
            return Verdict(True, self.phase, self.reason, None, self.heat)
        flows = self.has_free_probe() or self.admit > 0
        overruled = not flows and self.mode in {Mode.HELD_CLOSED, Mode.SHADOW}
        return Verdict(
            admitted=flows or overruled,
            phase=self.phase,
            reason=self.words(),
            retry_after_s=self.time_to_next_try(),
            heat=self.heat,
            overruled=overruled,
        )

    def words(self) -> str:
        if self.admit:
            return f"{self.reason}; load reduced to {self.admit:.0%}"
        return f"a probe is under way, after {self.reason}" if self.under_way else self.reason

    def time_to_next_try(self) -> float | None:
        if self.phase is Phase.OPEN:
            return None if self.retry_at_s is None else self.retry_at_s - self.now_s
        if self.has_free_probe():
            return 0.0
        leases = [p.lease_until_s for p in self.under_way if p.lease_until_s is not None]
        return min(leases) - self.now_s

    # Tell

    def listen(self, signal: Signal, permit: Permit | None) -> None:
        """A signal with count n is n signals, one after the other, at the same moment."""
        self.ledger += [Told("refused", signal.refused)] if signal.refused else []
        for _ in range(signal.count):
            self.listen_to_one(signal._replace(count=1), permit)

    def listen_to_one(self, signal: Signal, permit: Permit | None) -> None:
        self.ledger.append(Told("cost_micros", signal.cost_micros or 0))
        if permit is not None and self.comes_late(permit):
            self.ledger.append(Told("late", 1))
            return
        column = {None: "ignored", True: "succeeded", False: "failed"}[signal.ok]
        failure = Failure(self.now_s, signal.error) if signal.ok is False else None
        self.ledger.append(Told(column, 1, failure))
        if self.phase is Phase.HALF_OPEN and (permit is None or permit.probe > 0):
            self.hear_probe(signal, permit)
        else:
            self.evidence.append((self.now_s, signal))
            self.eras[-1].append((self.now_s, signal))
            self.weigh(signal.retry_after_s)

    def comes_late(self, permit: Permit) -> bool:
        current = permit.generation == self.generation
        awaited = permit in self.under_way or permit.probe in self.hung[-16:]
        return not current or (permit.probe > 0 and not awaited)

    def hear_probe(self, signal: Signal, permit: Permit | None) -> None:
        if permit is not None:
            if permit in self.under_way:
                self.under_way.remove(permit)
            else:
                self.hung = [number for number in self.hung[-16:] if number != permit.probe]
        if signal.ok is None:
            return
        objection = naive.objection(self.policy, signal) if signal.ok else "failed"
        if objection is not None:
            self.eras[-1].append((self.now_s, signal))
        self.results.append(objection is None)
        self.decide(objection, signal.retry_after_s)

    def decide(self, objection: str | None, retry_after_s: float | None) -> None:
        """Close or open, once the results that are still to come can make no difference."""
        rule = self.policy.recovery
        assert isinstance(rule, Cooldown)
        needed, of = rule.successes, rule.of or rule.successes
        good, bad = self.results.count(True), self.results.count(False)
        known = f"{good + bad} probe{'s' if good + bad > 1 else ''}"
        if good >= needed:
            words = "probe succeeded" if needed == 1 else f"{needed} probes succeeded"
            if of > needed:
                words = f"{good} of {known} succeeded ({needed} of {of} needed)"
            self.close(words)
        elif good + (of - good - bad) < needed:
            failed = self.failed_probes + 1
            row = f" ({failed} in a row)" if failed >= 2 else ""
            words = f"probe {objection}"
            if of > needed:
                words = f"{bad} of {known} failed ({needed} of {of} must succeed)"
            self.open(f"{words}{row}", retry_after_s, self.admit, failed)

    def weigh(self, retry_after_s: float | None) -> None:
        """Compare the evidence with the policy."""
        heat, reason, admit, strictest = self.judgement()
        self.heat = heat
        warn_at = self.policy.tripping_at
        if warn_at is not None and self.phase is Phase.TRIPPING:
            warn_at = round(warn_at * 0.8, 9)
        if self.phase is Phase.OPEN:
            if heat >= 1 and admit < self.admit:
                self.start_outage(strictest, retry_after_s, admit, 0)
                self.event(EventKind.LOAD_CUT, Phase.OPEN, strictest)
        elif self.phase is Phase.HALF_OPEN:
            if heat >= 1 and admit < self.admit:
                self.admit, self.reason, self.met_reduced_load = admit, strictest, []
                self.event(EventKind.LOAD_CUT, Phase.HALF_OPEN, strictest)
        elif heat >= 1:
            self.open(reason, retry_after_s, admit, 0)
        elif warn_at is not None and heat >= warn_at:
            self.reason = reason
            if self.phase is Phase.CLOSED:
                self.move(Phase.TRIPPING, reason)
        elif self.phase is Phase.TRIPPING:
            self.reason = ""
            self.move(Phase.CLOSED, f"calmed down: {reason}")

    def judgement(self) -> naive.Judgement:
        return naive.judgement(self.policy, self.evidence, self.eras, self.now_s)

    # What happens

    def open(self, reason: str, asked: float | None, admit: float, failed_probes: int) -> None:
        self.generation += 1
        self.start_outage(reason, asked, admit, failed_probes)
        self.move(Phase.OPEN, reason)

    def start_outage(
        self, reason: str, asked: float | None, admit: float, failed_probes: int
    ) -> None:
        self.forget_outage()
        wait = naive.wait_s(self.policy, self.key, failed_probes, asked, self.now_s)
        self.opened_at_s, self.reason = self.now_s, reason
        self.failed_probes, self.admit = failed_probes, admit
        if wait is not None:
            self.cooldown_s, self.retry_at_s = wait, self.now_s + wait

    def close(self, reason: str) -> None:
        self.generation += 1
        self.evidence = []
        self.eras.append([])
        self.heat = self.judgement().heat
        self.forget_outage()
        if self.phase is not Phase.CLOSED:
            self.move(Phase.CLOSED, reason)

    def obey(self, order: Override) -> None:
        if order.mode is not None:
            self.mode = order.mode
            ends_s = None if order.mode is Mode.AUTO else order.until_s
            self.order = Override(order.by, order.why, order.mode, order.reset, until_s=ends_s)
        if order.kind is EventKind.ORDERED:
            words = f"mode {self.mode}"
            if order.mode is not None and order.until_s is not None:
                words += f" for {naive.said(max(0.0, order.until_s - self.now_s))}"
            words = "reset" if order.reset else "probe" if order.probe else words
            self.event(EventKind.ORDERED, self.phase, words, order.by, order.why)
        else:
            self.event(order.kind, self.phase, order.why, order.by)
        self.let_holds_end()
        if order.probe and self.phase is Phase.OPEN and isinstance(self.policy.recovery, Cooldown):
            self.begin_to_probe(f"probe requested by {order.by}")
        if order.reset:
            self.ledger, self.eras = [], [[]]
            self.close(f"reset by {order.by}")

    def move(self, to: Phase, reason: str) -> None:
        before, self.phase = self.phase, to
        self.event(EventKind.MOVED, before, reason)

    def event(
        self, kind: EventKind, before: Phase, reason: str, by: str = "", why: str = ""
    ) -> None:
        wait = None if self.retry_at_s is None else self.retry_at_s - self.now_s
        self.events.append(
            Event(
                circuit=self.key,
                seq=len(self.events) + 1,
                at_s=self.now_s,
                kind=kind,
                before=before,
                after=self.phase,
                mode=self.mode,
                generation=self.generation,
                reason=reason,
                by=by,
                why=why,
                retry_after_s=wait,
            )
        )
