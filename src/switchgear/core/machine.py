"""The mechanism: one pure function folds a message into a circuit.

`step` first lets time pass up to `now_s`, then hears the message, and returns the next circuit,
the verdict and what happened. It is the only place where phases change; `moves.py` lists every
change there is.
"""

import math

from switchgear.core.moves import Draft
from switchgear.core.policy import Policy
from switchgear.core.standing import standing
from switchgear.core.types import (
    NO_OUTAGE,
    NO_PROBES,
    NO_TOTALS,
    Ask,
    Circuit,
    EventKind,
    Failure,
    Message,
    Mode,
    Order,
    Outage,
    Permit,
    Phase,
    Probing,
    Signal,
    Step,
    Tell,
    Verdict,
)

RECENT_FAILURES = 5


def step(policy: Policy, circuit: Circuit, message: Message, now_s: float) -> Step:
    """Fold one message into a circuit at a time. Pure.

    Returns the same circuit object when nothing changed, so that a store need not write it.
    """
    draft = Draft(policy, circuit, now_s)
    _advance(draft)
    match message:
        case Ask():
            verdict = _ask(draft)
        case Tell(signal, permit):
            _tell(draft, signal, permit)
            verdict = standing(policy, draft.circuit, draft.now_s)
        case Order():
            _obey(draft, message)
            verdict = standing(policy, draft.circuit, draft.now_s)
    return draft.finish(verdict)


# Time


def _advance(draft: Draft) -> None:
    circuit, now_s = draft.circuit, draft.now_s
    if circuit.phase is Phase.OPEN:
        retry_at_s = circuit.outage.retry_at_s
        if retry_at_s is not None and now_s >= retry_at_s:
            _end_wait(draft)
    elif circuit.phase is Phase.HALF_OPEN:
        _expire_leases(draft)
    elif circuit.phase is Phase.TRIPPING:
        _judge(draft, Signal())


def _end_wait(draft: Draft) -> None:
    outage = draft.circuit.outage
    if not draft.policy.recovery.probes:
        _close(draft, "the window ended")
        return
    draft.circuit = draft.circuit._replace(
        generation=draft.circuit.generation + 1, outage=outage._replace(retry_at_s=None)
    )
    draft.move(Phase.HALF_OPEN, f"waited {outage.cooldown_s:g} s")


def _expire_leases(draft: Draft) -> None:
    probing = draft.circuit.probing
    for permit in probing.permits:
        if permit.lease_until_s is not None and permit.lease_until_s <= draft.now_s:
            _free(draft, permit)
            draft.note(
                EventKind.PROBE_EXPIRED,
                Phase.HALF_OPEN,
                f"probe {permit.probe} did not report in time",
            )


# Ask


def _ask(draft: Draft) -> Verdict:
    circuit = draft.circuit
    permit = None if circuit.mode is Mode.HELD_OPEN else _grant(draft)
    overruled = permit is None and circuit.mode in {Mode.HELD_CLOSED, Mode.SHADOW}
    now = standing(draft.policy, draft.circuit, draft.now_s)
    if overruled:
        permit = Permit(circuit.generation)
        draft.count(overruled=1)
    elif permit is None:
        draft.count(refused=1)
        return now._replace(admitted=False)
    return now._replace(admitted=True, permit=permit, overruled=overruled)


def _grant(draft: Draft) -> Permit | None:
    """The permit that the evidence allows, if any."""
    circuit = draft.circuit
    if circuit.phase in {Phase.CLOSED, Phase.TRIPPING}:
        return Permit(circuit.generation)
    probing, recovery = circuit.probing, draft.policy.recovery
    if circuit.phase is Phase.HALF_OPEN and len(probing.permits) < recovery.probes:
        lease_s = circuit.outage.cooldown_s if recovery.lease_s is None else recovery.lease_s
        probe = Permit(circuit.generation, probing.issued + 1, draft.now_s + lease_s)
        issued = Probing((*probing.permits, probe), probe.probe, probing.successes)
        draft.circuit = circuit._replace(probing=issued)
        return probe
    return _reduced_load(draft)


def _reduced_load(draft: Draft) -> Permit | None:
    """Every so-many-th call, evenly: a pure function of how many have asked."""
    outage = draft.circuit.outage
    if not outage.admit:
        return None
    asked = outage.asked + 1
    draft.circuit = draft.circuit._replace(outage=outage._replace(asked=asked))
    if math.floor(asked * outage.admit) == math.floor((asked - 1) * outage.admit):
        return None
    return Permit(draft.circuit.generation)


# Tell


def _tell(draft: Draft, signal: Signal, permit: Permit | None) -> None:
    if signal.refused:
        draft.count(refused=signal.refused)
    if not signal.count:
        return
    circuit = draft.circuit
    if permit is not None and _is_late(circuit, permit):
        draft.count(late=signal.count)
        return
    if signal.ok is None:
        draft.count(ignored=signal.count)
    elif signal.ok:
        draft.count(succeeded=signal.count)
    else:
        draft.count(failed=signal.count)
        recent = (*circuit.failures, Failure(draft.now_s, signal.error))[-RECENT_FAILURES:]
        draft.circuit = draft.circuit._replace(failures=recent)
    if circuit.phase is not Phase.HALF_OPEN:
        memories = draft.policy.fold(circuit.memories, signal, draft.now_s)
        draft.circuit = draft.circuit._replace(memories=memories)
        _judge(draft, signal)
    elif permit is None or permit.probe:
        _judge_probe(draft, signal, permit)
    # An ordinary call admitted beside the probes (by reduced load or by the mode) decides nothing.


def _is_late(circuit: Circuit, permit: Permit) -> bool:
    if permit.generation != circuit.generation:
        return True
    return permit.probe != 0 and permit not in circuit.probing.permits


def _judge(draft: Draft, signal: Signal) -> None:
    """Let the evidence move a circuit that is not probing."""
    circuit = draft.circuit
    heat, reason, admit = draft.policy.assess(circuit.memories, draft.now_s)
    if heat != circuit.heat:
        draft.circuit = circuit = circuit._replace(heat=heat)
    if circuit.phase is Phase.OPEN:
        if heat >= 1.0 and admit < circuit.outage.admit:
            _cut_load(draft, reason, signal, admit)
        return
    warn_at = draft.policy.tripping_at
    if heat >= 1.0:
        _open(draft, reason, signal, admit=admit, failed_probes=0)
    elif warn_at is not None and heat >= warn_at:
        if reason != circuit.outage.reason:
            draft.circuit = circuit._replace(outage=NO_OUTAGE._replace(reason=reason))
        if circuit.phase is Phase.CLOSED:
            draft.move(Phase.TRIPPING, reason)
    elif circuit.phase is Phase.TRIPPING:
        draft.circuit = circuit._replace(outage=NO_OUTAGE)
        draft.move(Phase.CLOSED, f"calmed down: {reason}")


def _judge_probe(draft: Draft, signal: Signal, permit: Permit | None) -> None:
    if permit is not None:
        _free(draft, permit)
    if signal.ok is None:
        return
    circuit = draft.circuit
    objection = "failed" if not signal.ok else draft.policy.objection(signal)
    if objection is not None:
        failed = circuit.outage.failed_probes + 1
        reason = f"probe {objection}" + (f" ({failed} in a row)" if failed > 1 else "")
        _open(draft, reason, signal, admit=circuit.outage.admit, failed_probes=failed)
        return
    successes = circuit.probing.successes + signal.count
    draft.circuit = circuit._replace(probing=circuit.probing._replace(successes=successes))
    needed = draft.policy.recovery.successes
    if successes >= needed:
        _close(draft, "probe succeeded" if needed == 1 else f"{needed} probes succeeded")


def _free(draft: Draft, permit: Permit) -> None:
    probing = draft.circuit.probing
    left = tuple(other for other in probing.permits if other != permit)
    draft.circuit = draft.circuit._replace(probing=probing._replace(permits=left))


def _open(draft: Draft, reason: str, signal: Signal, *, admit: float, failed_probes: int) -> None:
    draft.circuit = draft.circuit._replace(
        generation=draft.circuit.generation + 1,
        probing=NO_PROBES,
        outage=_outage(draft, reason, signal, admit=admit, failed_probes=failed_probes),
    )
    draft.move(Phase.OPEN, reason)


def _outage(
    draft: Draft, reason: str, signal: Signal, *, admit: float, failed_probes: int
) -> Outage:
    now_s = draft.now_s
    wait = draft.policy.recovery.wait_s(draft.circuit.key, failed_probes, signal, now_s)
    return Outage(
        opened_at_s=now_s,
        retry_at_s=None if wait is None else now_s + wait,
        cooldown_s=0.0 if wait is None else wait,
        failed_probes=failed_probes,
        admit=admit,
        reason=reason,
    )


def _cut_load(draft: Draft, reason: str, signal: Signal, admit: float) -> None:
    """A stricter detector trips while a share still flows: less flows, and the wait starts anew."""
    outage = _outage(draft, reason, signal, admit=admit, failed_probes=0)
    draft.circuit = draft.circuit._replace(outage=outage)
    draft.note(EventKind.LOAD_CUT, Phase.OPEN, reason)


def _close(draft: Draft, reason: str) -> None:
    draft.circuit = draft.circuit._replace(
        generation=draft.circuit.generation + 1,
        memories=draft.policy.fresh_memories(),
        heat=0.0,
        outage=NO_OUTAGE,
        probing=NO_PROBES,
    )
    draft.move(Phase.CLOSED, reason)


# Order


def _obey(draft: Draft, order: Order) -> None:
    before = draft.circuit
    mode = before.mode if order.mode is None else order.mode
    draft.circuit = before._replace(mode=mode, order=order)
    what = "reset" if order.reset else f"mode {mode}"
    draft.note(EventKind.ORDERED, before.phase, what, order.by, order.why)
    if not order.reset:
        return
    draft.circuit = draft.circuit._replace(totals=NO_TOTALS, failures=())
    if before.phase is Phase.CLOSED:
        fresh = draft.policy.fresh_memories()
        draft.circuit = draft.circuit._replace(
            generation=before.generation + 1, memories=fresh, heat=0.0
        )
    else:
        _close(draft, f"reset by {order.by}")
