"""The mechanism: one pure function folds a message into a circuit.

`step` first lets time pass up to `now_s`, then folds the message in, and returns the next circuit,
the verdict and what happened. It is the only place where phases change; `moves.py` lists every
change there is.
"""

import math

from switchgear._core.detector import plural, span
from switchgear._core.moves import Draft, standing
from switchgear._core.policy import Policy
from switchgear._core.types import (
    NO_OUTAGE,
    NO_PROBES,
    NO_TOTALS,
    Acquire,
    Circuit,
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
    Verdict,
)

RECENT_FAILURES = 5
EXPIRED_PROBES = 16
"""How many hung probes are remembered: the result of each still counts once."""
MOST_ISOLATED = 16
"""How many isolated processes a circuit lists."""
FORGET_ISOLATED_S = 600.0
"""How long after it may probe an isolated process is listed, if it reports nothing: it may be gone."""


def step(
    policy: Policy, circuit: Circuit, message: Message, now_s: float, *, hold: bool = False
) -> Step:
    """Fold one message into a circuit at a time. Pure.

    `hold`: the evidence may be incomplete, so it is counted and opens nothing; see `evidence.py`.
    Returns the same circuit object when nothing changed, so that a store need not write it.
    """
    draft = Draft(policy, circuit, now_s, hold=hold)
    _advance(draft)
    if isinstance(message, Acquire):
        verdict = _ask(draft)
    else:
        if isinstance(message, Record):
            _tell(draft, message.signal, message.permit)
        else:
            _obey(draft, message)
        verdict = standing(policy, draft, draft.now_s)
    return draft.finish(verdict)


# Time


def _advance(draft: Draft) -> None:
    _end_hold(draft)
    if draft.phase is Phase.OPEN:
        retry_at_s = draft.outage.retry_at_s
        if retry_at_s is not None and not draft.policy.recovery.ends:
            # It was opened under another policy than it is loaded by, and this one never retries.
            draft.outage = draft.outage._replace(retry_at_s=None)
        elif retry_at_s is not None and draft.now_s >= retry_at_s:
            _end_wait(draft)
    elif draft.phase is Phase.HALF_OPEN:
        if draft.policy.recovery.probes:
            _expire_leases(draft)
            _decide(draft, Signal(), "failed")  # it may have been stored under another policy
        else:  # the circuit was stored under another policy than it is loaded by
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


# Ask


def _ask(draft: Draft) -> Verdict:
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
    """Every so-many-th call, evenly: a pure function of how many have asked."""
    outage = draft.outage
    if not outage.admit:
        return None
    asked = outage.asked + 1
    draft.outage = outage._replace(asked=asked)
    if math.floor(asked * outage.admit) == math.floor((asked - 1) * outage.admit):
        return None
    return Permit(draft.generation)


# Tell


def _tell(draft: Draft, signal: Signal, permit: Permit | None) -> None:
    """Fold a signal as if each of its `count` equal results were recorded alone, one after the other.

    They are taken in parts in which nothing changes but counts, so a million costs little more
    than one. No time passes between them.
    """
    if signal.refused:
        draft.count(refused=signal.refused)
    if signal.cost_micros and signal.count:
        draft.count(cost_micros=signal.cost_micros * signal.count)
    left = signal.count
    first = True
    while left:
        if permit is not None and _is_late(draft, permit):
            draft.count(late=left)
            return
        part = 1 if first else _part(draft, signal, permit, left)
        _hear(draft, signal._replace(count=part) if part != signal.count else signal, permit)
        left -= part
        first = False


def _hear(draft: Draft, signal: Signal, permit: Permit | None) -> None:
    if signal.ok is None:
        draft.count(ignored=signal.count)
    elif signal.ok:
        draft.count(succeeded=signal.count)
    else:
        draft.count(failed=signal.count)
        again = (Failure(draft.now_s, signal.error),) * min(signal.count, RECENT_FAILURES)
        draft.failures = (*draft.failures, *again)[-RECENT_FAILURES:]
    if _is_probing(draft, permit):
        _judge_probe(draft, signal, permit)
    else:  # so does what an ordinary call tells that was admitted beside the probes
        draft.memories = draft.policy.fold(draft.memories, signal, draft.now_s)
        _judge(draft, signal)


def _is_probing(draft: Draft, permit: Permit | None) -> bool:
    """Whether a result under this permit is that of a probe."""
    return draft.phase is Phase.HALF_OPEN and (permit is None or permit.probe != 0)


def _part(draft: Draft, signal: Signal, permit: Permit | None, left: int) -> int:
    """How many of the `left` can be folded at once: up to, not including, one that may decide.

    One of them has just been folded. The detectors promise that their heat then goes one way until
    one of them begins to judge: so the first change is found by halving.
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


def _is_late(draft: Draft, permit: Permit) -> bool:
    if permit.generation != draft.generation or not permit.probe:
        return permit.generation != draft.generation
    probing = draft.probing
    return permit not in probing.permits and permit.probe not in probing.expired


def _judge(draft: Draft, signal: Signal) -> None:
    """Let the evidence move the circuit; while it probes, only cut the load."""
    policy, now_s = draft.policy, draft.now_s
    draft.heat = heat = policy.heat(draft.memories, now_s)
    if draft.hold and (draft.phase is Phase.CLOSED or draft.phase is Phase.TRIPPING):
        return
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
    """Close or open, as soon as the results that are missing can make no difference."""
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
    """Take the probe off the books: its place, or the memory that it lost it."""
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
    """A stricter detector trips while a share still flows: less flows.

    An open circuit's wait starts anew; of a half-open one the probes still decide.
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


# Order


def _obey(draft: Draft, order: Override) -> None:
    if order.mode is not None:
        # Whether an operator said it or we did is history; who holds and why is state.
        draft.mode = order.mode
        draft.order = order._replace(kind=EventKind.ORDERED, probe=False)
        if order.mode is Mode.AUTO:
            draft.order = draft.order._replace(until_s=None)  # nothing is held that could end
    if order.kind is not EventKind.ORDERED:
        draft.note(order.kind, draft.phase, order.why, by=order.by)
    else:
        draft.note(EventKind.ORDERED, draft.phase, _what(draft, order), by=order.by, why=order.why)
    if order.process:
        draft.isolated = _isolated(draft, order)
    _end_hold(draft)  # one that came too late holds nothing
    if order.probe and draft.phase is Phase.OPEN and draft.policy.recovery.probes:
        _half_open(draft, f"probe asked for by {order.by}")
    if order.reset:
        draft.totals = NO_TOTALS
        draft.failures = ()
        draft.memories = draft.policy.fresh_memories()
        _close(draft, f"reset by {order.by}")


def _isolated(draft: Draft, order: Override) -> tuple[Isolated, ...]:
    """The isolated processes after a remark about one of them; it is kept since when it is so."""
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
