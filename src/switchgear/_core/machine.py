"""The mechanism: one pure function folds a message into a circuit.

`step` first advances the time to `now_s`, then folds the message, and returns the next circuit, the
verdict and the events. Phases change only here, through the methods of `Draft`.
"""

import math
from collections.abc import Sequence

from switchgear._core.policy import Policy
from switchgear._core.types import (
    NO_OUTAGE,
    NO_PROBES,
    NO_TOTALS,
    Acquire,
    Circuit,
    DatedRecord,
    Event,
    EventKind,
    Failure,
    Isolated,
    Message,
    Mode,
    OpenState,
    Override,
    Permit,
    Phase,
    Record,
    Signal,
    Step,
    Totals,
    Verdict,
)
from switchgear._text.formats import plural, span

LEGAL_MOVES: dict[tuple[Phase, Phase], str] = {
    (Phase.CLOSED, Phase.TRIPPING): "heat reaches tripping_at",
    (Phase.CLOSED, Phase.OPEN): "heat reaches 1",
    (Phase.TRIPPING, Phase.CLOSED): "heat falls a fifth below tripping_at, or reset",
    (Phase.TRIPPING, Phase.OPEN): "heat reaches 1",
    (Phase.OPEN, Phase.HALF_OPEN): "the cooldown is over, or probe now",
    (Phase.OPEN, Phase.CLOSED): "the window ends, or reset",
    (Phase.HALF_OPEN, Phase.CLOSED): "enough probes succeed, or reset",
    (
        Phase.HALF_OPEN,
        Phase.OPEN,
    ): "probes fail, or the policy no longer probes",
}


class Draft:
    """The mutable copy of a circuit during one `step`."""

    __slots__ = (*Circuit._fields, "before", "events", "now_s", "policy")

    def __init__(self, policy: Policy, circuit: Circuit, now_s: float) -> None:
        self.policy = policy
        self.before = circuit
        self.now_s = max(now_s, circuit.seen_s)
        self.events: list[Event] = []
        (
            self.key,
            self.memories,
            self.phase,
            self.mode,
            self.order,
            self.generation,
            self.version,
            self.event_seq,
            self.seen_s,
            self.heat,
            self.outage,
            self.probing,
            self.failures,
            self.totals,
            self.recent,
            self.isolated,
        ) = circuit

    def circuit(self) -> Circuit:
        return Circuit(
            self.key,
            self.memories,
            self.phase,
            self.mode,
            self.order,
            self.generation,
            self.version,
            self.event_seq,
            self.seen_s,
            self.heat,
            self.outage,
            self.probing,
            self.failures,
            self.totals,
            self.recent,
            self.isolated,
        )

    def note(
        self, kind: EventKind, before: Phase, reason: str, *, by: str = "", why: str = ""
    ) -> None:
        self.event_seq += 1
        retry_at_s = self.outage.retry_at_s
        self.events.append(
            Event(
                circuit=self.key,
                seq=self.event_seq,
                at_s=self.now_s,
                kind=kind,
                before=before,
                after=self.phase,
                mode=self.mode,
                generation=self.generation,
                reason=reason,
                by=by,
                why=why,
                retry_after_s=None if retry_at_s is None else retry_at_s - self.now_s,
            )
        )

    def move(self, to: Phase, reason: str) -> None:
        """Change the phase by a legal transition, and add the event."""
        before = self.phase
        if (before, to) not in LEGAL_MOVES:
            raise AssertionError(f"a circuit cannot move from {before} to {to}")
        self.phase = to
        if to is Phase.OPEN:
            self.isolated = ()  # it refuses the calls of all processes
        self.note(EventKind.MOVED, before, reason)

    def count(
        self,
        *,
        succeeded: int = 0,
        failed: int = 0,
        ignored: int = 0,
        late: int = 0,
        refused: int = 0,
        overruled: int = 0,
    ) -> None:
        old = self.totals
        self.totals = Totals(
            old.succeeded + succeeded,
            old.failed + failed,
            old.ignored + ignored,
            old.late + late,
            old.refused + refused,
            old.overruled + overruled,
            old.cost_micros,
        )

    def finish(self, verdict: Verdict) -> Step:
        """Return the same circuit if nothing changed, otherwise a new version."""
        # Most messages change a count, so no comparison is needed.
        if self.totals is self.before.totals and self.circuit() == self.before:
            return Step(self.before, verdict, ())
        self.version += 1
        self.seen_s = self.now_s
        return Step(self.circuit(), verdict, tuple(self.events))


def standing(policy: Policy, circuit: Circuit | Draft, now_s: float) -> Verdict:
    """Whether calls are admitted, and if not, why and for how long. `circuit` must be advanced to `now_s`."""
    phase, heat = circuit.phase, circuit.heat
    if circuit.mode is Mode.HELD_OPEN:
        return Verdict(False, phase, _order(circuit), _hold_left_s(circuit, now_s), heat)
    if phase is Phase.CLOSED or phase is Phase.TRIPPING:
        return Verdict(True, phase, circuit.outage.reason, None, heat)
    flows = circuit.outage.admit > 0.0
    if phase is Phase.HALF_OPEN and not flows:
        flows = _free_probe(policy, circuit)
    overruled = not flows and circuit.mode is not Mode.AUTO
    return Verdict(
        flows or overruled,
        phase,
        _outage_reason(circuit),
        _wait_s(policy, circuit, now_s),
        heat,
        overruled=overruled,
    )


def refuses_until_s(policy: Policy, circuit: Circuit | Draft) -> float:
    """The time until which this state refuses every call, so that a caller can refuse without a message.

    Minus infinity: a call may be admitted now. Infinity: only another message can change that.
    """
    if circuit.mode is Mode.HELD_OPEN:
        until_s = None if circuit.order is None else circuit.order.until_s
        return math.inf if until_s is None else until_s
    if circuit.mode is not Mode.AUTO or circuit.outage.admit > 0.0:
        return -math.inf
    if circuit.phase is Phase.OPEN:
        return math.inf if circuit.outage.retry_at_s is None else circuit.outage.retry_at_s
    if circuit.phase is Phase.HALF_OPEN and not _free_probe(policy, circuit):
        return _first_lease_s(circuit)
    return -math.inf


def _free_probe(policy: Policy, circuit: Circuit | Draft) -> bool:
    return circuit.phase is Phase.HALF_OPEN and policy.recovery.may_probe(circuit.probing)


def _first_lease_s(circuit: Circuit | Draft) -> float:
    leases = [permit.lease_until_s for permit in circuit.probing.permits]
    return min([lease for lease in leases if lease is not None], default=-math.inf)


def _wait_s(policy: Policy, circuit: Circuit | Draft, now_s: float) -> float | None:
    if circuit.phase is Phase.OPEN:
        retry_at_s = circuit.outage.retry_at_s
        return None if retry_at_s is None else max(0.0, retry_at_s - now_s)
    if _free_probe(policy, circuit):
        return 0.0
    return max(0.0, _first_lease_s(circuit) - now_s)


def _outage_reason(circuit: Circuit | Draft) -> str:
    outage = circuit.outage
    if outage.admit:
        return f"{outage.reason}; load reduced to {outage.admit:.0%}"
    if circuit.phase is Phase.HALF_OPEN and circuit.probing.permits:
        return f"a probe is under way, after {outage.reason}"
    return outage.reason


def _hold_left_s(circuit: Circuit | Draft, now_s: float) -> float | None:
    until_s = None if circuit.order is None else circuit.order.until_s
    return None if until_s is None else max(0.0, until_s - now_s)


def _order(circuit: Circuit | Draft) -> str:
    order = circuit.order
    return f"held open by {order.by}: {order.why}" if order else "held open"


RECENT_FAILURES = 5
"""Maximum number of recent failures that a circuit keeps."""
EXPIRED_PROBES = 16
"""Maximum number of remembered hung probes: the result of each still counts once."""
MOST_ISOLATED = 16
"""Maximum number of isolated processes that a circuit lists."""
FORGET_ISOLATED_S = 600.0
"""Seconds after its next probe is due until a silent isolated process is removed from the list."""


def step(policy: Policy, circuit: Circuit, message: Message, now_s: float) -> Step:
    """Fold one message into a circuit at the time `now_s`. Pure.

    Returns the same circuit object if nothing changed, so that a store need not write it.
    """
    draft = Draft(policy, circuit, now_s)
    _advance(draft)
    if isinstance(message, Acquire):
        verdict = _acquire(draft)
    else:
        if isinstance(message, Record):
            _record(draft, message.signal, message.permit)
        else:
            _obey(draft, message)
        verdict = standing(policy, draft, draft.now_s)
    return draft.finish(verdict)


def count_only(policy: Policy, circuit: Circuit, tells: Sequence[DatedRecord]) -> Circuit:
    """Count these signals without changing the phase. Pure.

    For evidence that may be incomplete or was evaluated before: see `evidence.py`. The circuit must be
    closed or tripping.
    """
    if not tells:
        return circuit
    memories, failures = circuit.memories, circuit.failures
    succeeded, failed, ignored, late, refused, overruled, cost_micros = circuit.totals
    now_s, judged_s = circuit.seen_s, None
    for at_s, (signal, permit, _) in tells:
        now_s, number = max(now_s, at_s), signal.count
        cost_micros += (signal.cost_micros or 0) * number
        if permit is not None and _is_late(circuit, permit):
            late += number
            continue
        if signal.ok is None:
            ignored += number
        elif signal.ok:
            succeeded += number
        else:
            failed += number
            failures = _with_failure(failures, now_s, signal)
        memories, judged_s = policy.fold(memories, signal, now_s), now_s
    return circuit._replace(
        memories=memories,
        version=circuit.version + len(tells),
        seen_s=now_s,
        heat=circuit.heat if judged_s is None else policy.heat(memories, judged_s),
        failures=failures,
        totals=Totals(succeeded, failed, ignored, late, refused, overruled, cost_micros),
    )


# Time


def _advance(draft: Draft) -> None:
    if draft.order is not None:
        _end_hold(draft)
    if draft.phase is Phase.OPEN:
        retry_at_s = draft.outage.retry_at_s
        if retry_at_s is not None and not draft.policy.recovery.ends:
            # The circuit was opened under another policy, and the present one never retries.
            draft.outage = draft.outage._replace(retry_at_s=None)
        elif retry_at_s is not None and draft.now_s >= retry_at_s:
            _end_wait(draft)
    elif draft.phase is Phase.HALF_OPEN:
        if draft.policy.recovery.probes:
            _expire_leases(draft)
            _decide(draft, Signal(), "failed")  # the stored policy may have needed other results
        else:  # the stored policy had probes, and the present one has none
            _open(draft, draft.outage.reason, Signal(), admit=draft.outage.admit, failed_probes=0)
    elif draft.phase is Phase.TRIPPING:
        _judge(draft, Signal())


def _end_hold(draft: Draft) -> None:
    order = draft.order
    if order is None or order.until_s is None or draft.now_s < order.until_s:
        return
    ended, draft.mode, draft.order = draft.mode, Mode.AUTO, None
    draft.note(EventKind.HOLD_ENDED, draft.phase, f"mode {ended} ended", by=order.by, why=order.why)


def _end_wait(draft: Draft) -> None:
    if not draft.policy.recovery.probes:
        _close(draft, "the window ended")
        return
    _half_open(draft, f"waited {span(draft.outage.cooldown_s)}")


def _half_open(draft: Draft, reason: str) -> None:
    draft.generation += 1
    draft.outage = draft.outage._replace(retry_at_s=None)
    draft.move(Phase.HALF_OPEN, reason)


def _expire_leases(draft: Draft) -> None:
    for permit in draft.probing.permits:
        if permit.lease_until_s is not None and permit.lease_until_s <= draft.now_s:
            _free(draft, permit)
            expired = (*draft.probing.expired, permit.probe)[-EXPIRED_PROBES:]
            draft.probing = draft.probing._replace(expired=expired)
            reason = f"probe {permit.probe} did not report in time"
            draft.note(EventKind.PROBE_EXPIRED, Phase.HALF_OPEN, reason)


# Acquire


def _acquire(draft: Draft) -> Verdict:
    permit = None if draft.mode is Mode.HELD_OPEN else _grant(draft)
    now = standing(draft.policy, draft, draft.now_s)
    if permit is not None:
        return now._replace(admitted=True, permit=permit, overruled=False)
    if draft.mode is Mode.HELD_CLOSED or draft.mode is Mode.SHADOW:
        draft.count(overruled=1)
        return now._replace(admitted=True, permit=Permit(draft.generation), overruled=True)
    draft.count(refused=1)
    return now._replace(admitted=False)


def _grant(draft: Draft) -> Permit | None:
    """The permit that the evidence allows, if any."""
    if draft.phase is Phase.CLOSED or draft.phase is Phase.TRIPPING:
        return Permit(draft.generation)
    probing, recovery = draft.probing, draft.policy.recovery
    if draft.phase is Phase.HALF_OPEN and recovery.may_probe(probing):
        lease_s = recovery.lease_after_s(draft.outage.cooldown_s)
        probe = Permit(draft.generation, probing.issued + 1, draft.now_s + lease_s)
        draft.probing = probing._replace(permits=(*probing.permits, probe), issued=probe.probe)
        return probe
    return _reduced_load(draft)


def _reduced_load(draft: Draft) -> Permit | None:
    """A permit if this call is in the admitted share, which is spread evenly over the calls."""
    outage = draft.outage
    if not outage.admit:
        return None
    count = outage.asked + 1
    draft.outage = outage._replace(asked=count)
    if math.floor(count * outage.admit) == math.floor((count - 1) * outage.admit):
        return None
    return Permit(draft.generation)


# Record


def _record(draft: Draft, signal: Signal, permit: Permit | None) -> None:
    """Fold a signal as if each of its `count` equal results were recorded alone, one after the other.

    The results are folded in parts within which only counts change, so that a million cost little more
    than one. No time passes between them.
    """
    if signal.refused:
        draft.count(refused=signal.refused)
    if signal.cost_micros and signal.count:
        cost_micros = draft.totals.cost_micros + signal.cost_micros * signal.count
        draft.totals = draft.totals._replace(cost_micros=cost_micros)
    left = signal.count
    first = True
    while left:
        if permit is not None and _is_late(draft, permit):
            draft.count(late=left)
            return
        part = 1 if first else _part(draft, signal, permit, left)
        _record_one(draft, signal._replace(count=part) if part != signal.count else signal, permit)
        left -= part
        first = False


def _record_one(draft: Draft, signal: Signal, permit: Permit | None) -> None:
    if signal.ok is None:
        draft.count(ignored=signal.count)
    elif signal.ok:
        draft.count(succeeded=signal.count)
    else:
        draft.count(failed=signal.count)
        draft.failures = _with_failure(draft.failures, draft.now_s, signal)
    if draft.phase is Phase.HALF_OPEN and _is_probing(draft, permit):
        _judge_probe(draft, signal, permit)
    else:  # also for an ordinary call that a half-open circuit admitted under reduced load
        draft.memories = draft.policy.fold(draft.memories, signal, draft.now_s)
        _judge(draft, signal)


def _with_failure(
    failures: tuple[Failure, ...], at_s: float, signal: Signal
) -> tuple[Failure, ...]:
    again = (Failure(at_s, signal.error),) * min(signal.count, RECENT_FAILURES)
    return (*failures, *again)[-RECENT_FAILURES:]


def _is_probing(draft: Draft, permit: Permit | None) -> bool:
    return draft.phase is Phase.HALF_OPEN and (permit is None or permit.probe != 0)


def _part(draft: Draft, signal: Signal, permit: Permit | None, left: int) -> int:
    """How many of the `left` remaining results can be folded at once: those before the first that may decide.

    One result has just been folded. From then on, the heat of every detector moves in one direction
    until a detector begins to evaluate, so bisection finds the first change.
    """
    if _is_probing(draft, permit):
        if signal.ok is None:
            return left
        recovery, probing = draft.policy.recovery, draft.probing
        missing = recovery.successes - probing.successes
        if _objection(draft, signal) is not None:
            missing = recovery.results_needed - recovery.successes + 1 - probing.failures
        return max(1, min(left, missing))
    policy, memories, now_s = draft.policy, draft.memories, draft.now_s
    begins = policy.judges_after(memories, signal, now_s)
    most = min(left, begins - 1) if begins else left
    before = policy.bands(memories, now_s)

    def is_quiet(count: int) -> bool:
        after = policy.fold(memories, signal._replace(count=count), now_s)
        return policy.bands(after, now_s) == before

    if most and is_quiet(most):
        return most
    quiet = 0
    while most - quiet > 1:
        half = (quiet + most) // 2
        quiet, most = (half, most) if is_quiet(half) else (quiet, half)
    return max(quiet, 1)


def _is_late(circuit: Circuit | Draft, permit: Permit) -> bool:
    if permit.generation != circuit.generation or not permit.probe:
        return permit.generation != circuit.generation
    probing = circuit.probing
    return permit not in probing.permits and permit.probe not in probing.expired


def _judge(draft: Draft, signal: Signal) -> None:
    """Change the phase according to the evidence; of an open or half-open circuit, only reduce the load."""
    policy, now_s = draft.policy, draft.now_s
    draft.heat = heat = policy.heat(draft.memories, now_s)
    warn_at = policy.calm_below if draft.phase is Phase.TRIPPING else policy.tripping_at
    if draft.phase is Phase.OPEN or draft.phase is Phase.HALF_OPEN:
        if heat >= 1.0 and policy.admit(draft.memories, now_s) < draft.outage.admit:
            _cut_load(draft, signal)
    elif heat >= 1.0:
        admit = policy.admit(draft.memories, now_s)
        reason = policy.reason(draft.memories, now_s)
        _open(draft, reason, signal, admit=admit, failed_probes=0)
    elif warn_at is not None and heat >= warn_at:
        reason = policy.reason(draft.memories, now_s)
        draft.outage = NO_OUTAGE._replace(reason=reason)
        if draft.phase is Phase.CLOSED:
            draft.move(Phase.TRIPPING, reason)
    elif draft.phase is Phase.TRIPPING:
        draft.outage = NO_OUTAGE
        draft.move(Phase.CLOSED, f"calmed down: {policy.reason(draft.memories, now_s)}")


def _judge_probe(draft: Draft, signal: Signal, permit: Permit | None) -> None:
    if permit is not None:
        _free(draft, permit)
    if signal.ok is None:
        return
    objection = _objection(draft, signal)
    probing = draft.probing
    if objection is None:
        draft.probing = probing._replace(successes=probing.successes + signal.count)
    else:
        draft.memories = draft.policy.probed_memories(draft.memories, signal, draft.now_s)
        draft.probing = probing._replace(failures=probing.failures + signal.count)
    _decide(draft, signal, objection or "failed")


def _objection(draft: Draft, signal: Signal) -> str | None:
    return draft.policy.objection(signal) if signal.ok else "failed"


def _decide(draft: Draft, signal: Signal, objection: str) -> None:
    """Close or open as soon as the missing results cannot change the outcome."""
    needed, of = draft.policy.recovery.successes, draft.policy.recovery.results_needed
    successes, failures = draft.probing.successes, draft.probing.failures
    known = plural(successes + failures, "probe")
    if successes >= needed:
        reason = "probe succeeded" if needed == 1 else f"{needed} probes succeeded"
        if of > needed:
            reason = f"{successes} of {known} succeeded ({needed} of {of} needed)"
        _close(draft, reason)
    elif failures > of - needed:
        failed = draft.outage.failed_probes + 1
        reason = f"probe {objection}"
        if of > needed:
            reason = f"{failures} of {known} failed ({needed} of {of} must succeed)"
        reason += f" ({failed} in a row)" if failed > 1 else ""
        _open(draft, reason, signal, admit=draft.outage.admit, failed_probes=failed)


def _free(draft: Draft, permit: Permit) -> None:
    """Remove the probe from the running and the expired probes."""
    probing = draft.probing
    draft.probing = probing._replace(
        permits=tuple(other for other in probing.permits if other != permit),
        expired=tuple(number for number in probing.expired if number != permit.probe),
    )


def _open(draft: Draft, reason: str, signal: Signal, *, admit: float, failed_probes: int) -> None:
    draft.generation += 1
    draft.probing = NO_PROBES
    draft.outage = _outage(draft, reason, signal, admit=admit, failed_probes=failed_probes)
    draft.move(Phase.OPEN, reason)


def _cut_load(draft: Draft, signal: Signal) -> None:
    """Admit a smaller share because a stricter detector trips.

    The cooldown of an open circuit restarts; in a half-open circuit the probes still decide.
    """
    reason = draft.policy.strictest_reason(draft.memories, draft.now_s)
    admit = draft.policy.admit(draft.memories, draft.now_s)
    if draft.phase is Phase.OPEN:
        draft.outage = _outage(draft, reason, signal, admit=admit, failed_probes=0)
    else:
        draft.outage = draft.outage._replace(admit=admit, asked=0, reason=reason)
    draft.note(EventKind.LOAD_CUT, draft.phase, reason)


def _outage(
    draft: Draft, reason: str, signal: Signal, *, admit: float, failed_probes: int
) -> OpenState:
    now_s = draft.now_s
    wait = draft.policy.recovery.wait_s(draft.key, failed_probes, signal, now_s)
    return OpenState(
        opened_at_s=now_s,
        retry_at_s=None if wait is None else now_s + wait,
        cooldown_s=0.0 if wait is None else wait,
        failed_probes=failed_probes,
        admit=admit,
        reason=reason,
    )


def _close(draft: Draft, reason: str) -> None:
    draft.generation += 1
    draft.memories = draft.policy.recovered_memories(draft.memories)
    draft.heat = draft.policy.heat(draft.memories, draft.now_s)
    draft.outage = NO_OUTAGE
    draft.probing = NO_PROBES
    draft.isolated = ()
    if draft.phase is not Phase.CLOSED:
        draft.move(Phase.CLOSED, reason)


# Override


def _obey(draft: Draft, order: Override) -> None:
    if order.mode is not None:
        # Only what holds from now on is stored; the kind of the event and the probe are not.
        draft.mode = order.mode
        draft.order = order._replace(kind=EventKind.ORDERED, probe=False)
        if order.mode is Mode.AUTO:
            draft.order = draft.order._replace(until_s=None)  # there is no hold that could end
    if order.kind is not EventKind.ORDERED:
        draft.note(order.kind, draft.phase, order.why, by=order.by)
    else:
        draft.note(EventKind.ORDERED, draft.phase, _what(draft, order), by=order.by, why=order.why)
    if order.process:
        draft.isolated = _update_isolated(draft, order)
    _end_hold(draft)  # a hold whose end has passed has no effect
    if order.probe and draft.phase is Phase.OPEN and draft.policy.recovery.probes:
        _half_open(draft, f"probe requested by {order.by}")
    if order.reset:
        draft.totals = NO_TOTALS
        draft.failures = ()
        draft.memories = draft.policy.fresh_memories()
        _close(draft, f"reset by {order.by}")


def _update_isolated(draft: Draft, order: Override) -> tuple[Isolated, ...]:
    """The isolated processes after a remark about one of them; its start time is kept."""
    since_s = draft.now_s
    left = []
    for one in draft.isolated:
        if one.process == order.process:
            since_s = one.since_s
        elif draft.now_s < one.retry_at_s + FORGET_ISOLATED_S:
            left.append(one)
    if order.kind is not EventKind.ISOLATED or order.until_s is None:
        return tuple(left)
    new = Isolated(order.process, order.why, since_s, order.until_s)
    return (*left[1 - MOST_ISOLATED :], new)


def _what(draft: Draft, order: Override) -> str:
    if order.reset:
        return "reset"
    if order.probe:
        return "probe"
    if order.mode is None or order.until_s is None:
        return f"mode {draft.mode}"
    return f"mode {draft.mode} for {span(max(0.0, order.until_s - draft.now_s))}"
