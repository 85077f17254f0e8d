"""Evidence of several processes, folded in the order in which it happened.

Over a shared store a failure is sent at once and successes are sent later, together. Judged in the
order of arrival, the failures of one faulty process look like a row that nothing interrupts. So what
a process reports carries its times (`Source`), a circuit keeps what is recent beside the state before
it (`Recent`), and a late report is put in its place: the recent part is folded again.

What is recent may still change, so it moves no phase. It becomes final, and is judged like anything
else, as soon as every process that takes part has reported up to that time, at the latest after
`HOLD_S`: a process that hangs delays a trip by so much and no more. One that is alone has reported
everything, so nothing waits for it.
"""

from typing import NamedTuple

from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    Dated,
    Event,
    Message,
    Override,
    Phase,
    Recent,
    Record,
    Signal,
    Source,
    Step,
    Totals,
)
from switchgear._core.verdicts import standing

HOLD_S = 0.1
"""How long evidence waits for processes that have not reported."""
LIVE_S = 2.5
"""How long after its last report a process still takes part: all that make calls report each second."""
MOST = 64
"""How many recent signals a circuit keeps; the oldest become final first."""
KEEP_S = 1.5
"""How old evidence may be before which a late report is still put: a process reports each second."""
MOST_PROCESSES = 256

_TIME = Record(Signal(count=0))
_FLOWING = (Phase.CLOSED, Phase.TRIPPING)


class Judged(NamedTuple):
    """What is final, and what is not."""

    step: Step
    base: Circuit
    """The circuit before `kept`."""
    kept: tuple[Dated, ...]
    """What is final, and recent enough that a late report may belong before it."""
    left: tuple[Dated, ...]
    """What is not final."""


class Times(NamedTuple):
    """Who takes part, and up to when all of them have reported."""

    reports: tuple[tuple[str, float], ...]
    final_s: float


def fold(policy: Policy, circuit: Circuit, message: Message, now_s: float) -> Step:
    """Fold a message into a circuit that other processes share. Pure.

    The same as `step` for a message without a source, to a circuit with nothing recent.
    """
    recent = circuit.recent
    source = message.source if isinstance(message, Record) else None
    if recent is None and source is None:
        return step(policy, circuit, message, now_s)
    if recent is None or recent.version != circuit.version or recent.base is None:
        recent = Recent(circuit.version, circuit, (), 0, () if recent is None else recent.reports)
    before = (recent.base or circuit)._replace(recent=None, version=circuit.version)
    new: tuple[Dated, ...] = ()
    refused = 0
    if isinstance(message, Record):
        new, refused = _dated(message, source, now_s), message.signal.refused
        before = before._replace(totals=_refused(before.totals, refused)) if refused else before
    times = _times(recent, source, now_s)
    waits = _is_worth_waiting(policy) and not isinstance(message, Override)
    tells = tuple(sorted((*recent.tells, *new), key=_at_s))
    judged = _judged(policy, before, tells, times.final_s if waits else now_s, now_s)
    shown = _provisional(policy, judged.step.circuit, judged.left)
    if judged.left and _is_certain(policy, shown, now_s):
        judged = _judged(policy, before, tells, now_s, now_s)
        shown = judged.step.circuit
    if not isinstance(message, Record):
        judged = _answered(policy, judged, message, now_s)
        shown = _provisional(policy, judged.step.circuit, judged.left)
    done, left = judged.step, judged.left
    is_same = not new and not refused and source is None and not done.events
    if is_same and len(left) == len(recent.tells) - recent.final and isinstance(message, Record):
        return Step(circuit, standing(policy, circuit, max(now_s, circuit.seen_s)), ())
    if is_same and isinstance(message, Acquire) and not left and done.circuit == circuit:
        return Step(circuit, done.verdict, ())
    version = max(shown.version, circuit.version + 1)
    kept = _kept(judged, version, times)
    shown = shown._replace(version=version, recent=kept)
    verdict = done.verdict
    if left and isinstance(message, Record):
        verdict = standing(policy, shown, max(now_s, shown.seen_s))
    return Step(shown, verdict, done.events)


def is_pending(circuit: Circuit) -> bool:
    """Whether a part of the evidence waits for other processes and is not judged yet."""
    recent = circuit.recent
    return recent is not None and len(recent.tells) > recent.final


def is_final(circuit: Circuit, at_s: float) -> bool:
    """Whether all that happened up to a time is judged."""
    recent = circuit.recent
    if recent is None or len(recent.tells) <= recent.final:
        return True
    return recent.tells[recent.final].at_s > at_s


def others(circuit: Circuit, process: str, now_s: float) -> int:
    """How many other processes take part in a circuit now."""
    if circuit.recent is None:
        return 0
    return sum(
        1 for name, at_s in circuit.recent.reports if name != process and now_s - at_s < LIVE_S
    )


def _dated(message: Record, source: Source | None, now_s: float) -> tuple[Dated, ...]:
    """The signals of a message, each with its time."""
    signal = message.signal
    left = signal.count
    dated = []
    for at_s, count in () if source is None else source.times:
        part = min(count, left)
        if part > 0:  # a report of another version may say anything
            left -= part
            dated.append(Dated(min(at_s, now_s), _part(message, signal, part)))
    if left:
        dated.append(Dated(now_s, _part(message, signal, left)))
    return tuple(dated)


def _part(message: Record, signal: Signal, count: int) -> Record:
    # What was refused is no evidence: it is counted by itself, once.
    return Record(signal._replace(count=count, refused=0), message.permit)


def _refused(totals: Totals, refused: int) -> Totals:
    return totals._replace(refused=totals.refused + refused)


def _at_s(dated: Dated) -> float:
    return dated.at_s


def _times(recent: Recent, source: Source | None, now_s: float) -> Times:
    reports = {name: at_s for name, at_s in recent.reports if now_s - at_s < LIVE_S}
    if source is not None:
        reports[source.process] = max(source.upto_s, reports.get(source.process, source.upto_s))
    live = sorted(reports.items(), key=lambda report: report[1])[-MOST_PROCESSES:]
    waited = [at_s for name, at_s in live if source is None or name != source.process]
    final_s = min(waited, default=now_s)
    return Times(tuple(live), max(final_s, now_s - HOLD_S))


def _judged(
    policy: Policy, before: Circuit, tells: tuple[Dated, ...], final_s: float, now_s: float
) -> Judged:
    """Fold what is final, in its order, and let it move the circuit."""
    if len(tells) > MOST:
        final_s = max(final_s, tells[-MOST - 1].at_s)
    events: tuple[Event, ...] = ()
    base = circuit = before
    kept: list[Dated] = []
    left: tuple[Dated, ...] = ()
    for index, dated in enumerate(tells):
        if dated.at_s > final_s and circuit.phase in _FLOWING:
            left = tells[index:]
            break
        done = step(policy, circuit, dated.record, dated.at_s)
        circuit = done.circuit
        events += done.events
        kept = _with(kept, dated)
        if done.events or circuit.phase not in _FLOWING:
            base, kept = circuit, []
    last = step(policy, circuit, _TIME, min(final_s, now_s) if left else now_s)
    if last.events:
        base, kept = last.circuit, []
    while kept and (kept[0].at_s < now_s - KEEP_S or len(kept) + len(left) > MOST):
        old = kept.pop(0)
        base = step(policy, base, old.record, old.at_s).circuit
    return Judged(Step(last.circuit, last.verdict, events + last.events), base, tuple(kept), left)


def _with(kept: list[Dated], dated: Dated) -> list[Dated]:
    """One more; successes that follow each other are one entry, as their order does not matter."""
    if kept and kept[-1].record.signal.ok and dated.record.signal.ok:
        one, two = kept[-1].record, dated.record
        if one._replace(signal=one.signal._replace(count=two.signal.count)) == two:
            both = one.signal._replace(count=one.signal.count + two.signal.count)
            return [*kept[:-1], Dated(dated.at_s, one._replace(signal=both))]
    return [*kept, dated]


def _answered(policy: Policy, judged: Judged, message: Message, now_s: float) -> Judged:
    """An ask or an order on top of what is judged."""
    before = judged.step.circuit
    last = step(policy, before, message, now_s)
    done = Step(last.circuit, last.verdict, judged.step.events + last.events)
    if last.circuit is before:
        return judged._replace(step=done)
    return Judged(done, last.circuit, (), judged.left)


def _kept(judged: Judged, version: int, times: Times) -> Recent | None:
    """What is kept beside the circuit: nothing that later reports could not change."""
    tells = judged.kept + judged.left
    if any(dated.record.signal.ok is not True for dated in tells):
        base = judged.base._replace(recent=None, version=version)
        return Recent(version, base, tells, len(judged.kept), times.reports)
    return Recent(version, None, (), 0, times.reports) if times.reports else None


def _provisional(policy: Policy, circuit: Circuit, tells: tuple[Dated, ...]) -> Circuit:
    """The circuit with what is not final: counted, and nothing moved by it."""
    for at_s, tell in tells:
        circuit = step(policy, circuit, tell, at_s, hold=True).circuit
    return circuit


def _is_worth_waiting(policy: Policy) -> bool:
    return any(detector.needs_successes for detector in policy.detectors)


def _is_certain(policy: Policy, circuit: Circuit, now_s: float) -> bool:
    """Whether it trips whatever successes are yet to be reported."""
    pairs = zip(policy.detectors, circuit.memories, strict=True)
    heats = [0.0 if one.needs_successes else one.heat(memory, now_s) for one, memory in pairs]
    return policy.combine.heat(policy.detectors, heats) >= 1.0
