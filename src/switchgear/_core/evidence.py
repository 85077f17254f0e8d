"""Evidence of several processes, folded in the order in which it happened.

Over a shared store a failure is sent at once and successes are sent later, together. In the order
of arrival, the failures of one faulty process would look like an uninterrupted row. Therefore each
report carries its times (`ReportSource`), a circuit keeps the recent signals and the state before
them (`Recent`), and a late report is inserted at its time: the recent part is folded again.

Recent evidence may still change, so it does not change the phase. It becomes final, and is
evaluated, as soon as every participating process has reported up to that time, at the latest after
`HOLD_S`: a hanging process delays a trip by at most this time. A process that is alone never waits.
"""

from collections.abc import Sequence
from typing import NamedTuple

from switchgear._core.machine import count_only, standing, step
from switchgear._core.policy import Policy, needs_successes
from switchgear._core.types import (
    Circuit,
    DatedRecord,
    Event,
    Message,
    Override,
    Phase,
    Recent,
    Record,
    ReportSource,
    Signal,
    Step,
)

HOLD_S = 0.1
"""Seconds that evidence waits for processes that have not reported."""
LIVE_S = 2.5
"""Seconds after its last report that a process still participates; processes that make calls report each second."""
MOST = 64
"""Maximum number of recent signals of a circuit; the oldest become final first."""
KEPT = 32
"""Maximum number of final signals that are kept."""
TRIM = 8
"""Number of final signals that are removed at a time."""
KEEP_S = 1.5
"""Maximum age, in seconds, of evidence before which a late report is still inserted."""
MOST_PROCESSES = 256
"""Maximum number of processes whose reports a circuit keeps; those that reported last stay."""
CROWD = 8
"""From this number of participating processes on, messages are queued at once and replies contain a summary."""

_TIME = Record(Signal(count=0))
FLOWING = (Phase.CLOSED, Phase.TRIPPING)
"""The phases that admit every call."""


class ReplayStart(NamedTuple):
    """Where folding starts: a circuit, the latest signals it contains, and the circuit before them."""

    circuit: Circuit
    base: Circuit
    kept: tuple[DatedRecord, ...]
    tells: tuple[DatedRecord, ...]
    """The signals to fold into it."""
    shown: Circuit | None = None
    """The circuit with all of `tells` counted except the new ones; `None`: unknown."""


class Evidence(NamedTuple):
    """Final and pending evidence."""

    step: Step
    base: Circuit
    """The circuit before `kept`."""
    kept: tuple[DatedRecord, ...]
    """Final signals that are recent enough that a late report may belong before them."""
    left: tuple[DatedRecord, ...]
    """Signals that are not final."""


class ReportTimes(NamedTuple):
    """The participating processes, and up to when all of them have reported."""

    reports: tuple[tuple[str, float], ...]
    final_s: float


def fold(policy: Policy, circuit: Circuit, message: Message, now_s: float) -> Step:
    """Fold a message into a circuit that other processes share. Pure.

    Same as `step` if the message has no source and the circuit has no recent evidence.
    """
    source = message.source if isinstance(message, Record) else None
    if circuit.recent is None and source is None:
        return step(policy, circuit, message, now_s)
    records = (DatedRecord(now_s, message),) if isinstance(message, Record) else ()
    return _fold(policy, circuit, message, records, now_s)


def fold_records(policy: Policy, circuit: Circuit, records: Sequence[DatedRecord]) -> Step:
    """Fold records of several processes together, each at the time of its message. Pure.

    The counts equal those of folding the records one after the other. The evidence is final up to a
    later time, because all of these processes have reported, and it is evaluated once instead of with
    each record.
    """
    records = sorted(records, key=_at_s)
    if circuit.recent is None and all(each.record.source is None for each in records):
        events: tuple[Event, ...] = ()
        for now_s, record in records:
            done = fold(policy, circuit, record, now_s)
            circuit, events = done.circuit, events + done.events
        return done._replace(events=events)
    now_s, last = records[-1]
    return _fold(policy, circuit, last, records, now_s)


def _fold(
    policy: Policy,
    circuit: Circuit,
    message: Message,
    records: Sequence[DatedRecord],
    now_s: float,
) -> Step:
    recent = circuit.recent
    if recent is None or recent.version != circuit.version or recent.base is None:
        recent = Recent(circuit.version, circuit, (), 0, () if recent is None else recent.reports)
    new: tuple[DatedRecord, ...] = ()
    last = recent.tells[-1].record if recent.tells else None
    for at_s, record in records:
        new += _date_records(record, at_s, last)
        last = new[-1].record if new else last
    refused = sum(record.signal.refused for _, record in records)
    sources = [record.source for _, record in records if record.source is not None]
    start = _start(circuit, recent, new, refused)
    source = message.source if isinstance(message, Record) else None
    times = _times(recent, sources, source, now_s)
    overrides = isinstance(message, Override) and message.is_override  # a remark decides nothing
    waits = needs_successes(policy) and not overrides
    judged = _fold_final(policy, start, times.final_s if waits else now_s, now_s)
    if judged.left and start.shown is not None and not judged.step.events:
        shown = count_only(policy, start.shown, new)
    else:
        shown = judged.step.circuit
        if judged.left:
            shown = count_only(policy, shown, judged.left)
    if judged.left and _is_certain(policy, shown, now_s):
        judged = _fold_final(policy, start, now_s, now_s)
        shown = judged.step.circuit
    if not isinstance(message, Record):
        judged = _apply_message(policy, judged, message, now_s)
        shown = count_only(policy, judged.step.circuit, judged.left)
    done, left = judged.step, judged.left
    is_same = not new and not refused and not sources and not done.events
    if is_same and len(left) == len(recent.tells) - recent.final and isinstance(message, Record):
        return Step(circuit, standing(policy, circuit, max(now_s, circuit.seen_s)), ())
    version = max(shown.version, circuit.version + 1)
    kept = _recent_to_store(judged, version, times)
    shown = shown._replace(version=version, recent=kept)
    verdict = done.verdict
    if left and isinstance(message, Record):
        verdict = standing(policy, shown, max(now_s, shown.seen_s))
    return Step(shown, verdict, done.events)


def summary(circuit: Circuit) -> Circuit:
    """The circuit for a process that only reads it: with a few of many reports, and one pending signal.

    Nothing is folded into it: its recent part is of another version, which `fold` ignores.
    """
    recent = circuit.recent
    if recent is None or len(recent.reports) <= CROWD:
        return circuit
    if circuit.phase not in FLOWING:
        return circuit._replace(recent=None)  # no evidence is pending, and reports change nothing
    pending = recent.tells[recent.final : recent.final + 1]
    base = circuit._replace(recent=None)
    short = Recent(circuit.version - 1, base, pending, 0, recent.reports[-CROWD:])
    return circuit._replace(recent=short)


def is_summary(circuit: Circuit) -> bool:
    """Whether this is a `summary` of a circuit whose evidence another process has folded."""
    return circuit.recent is not None and circuit.recent.version != circuit.version


def is_crowded(circuit: Circuit) -> bool:
    """Whether a copy is most likely outdated, because many processes report."""
    return circuit.recent is not None and len(circuit.recent.reports) >= CROWD


def is_pending(circuit: Circuit) -> bool:
    """Whether a part of the evidence waits for other processes and is not evaluated yet."""
    recent = circuit.recent
    return recent is not None and len(recent.tells) > recent.final


def is_final(circuit: Circuit, at_s: float) -> bool:
    """Whether all evidence up to a time is evaluated."""
    recent = circuit.recent
    if recent is None or len(recent.tells) <= recent.final:
        return True
    return recent.tells[recent.final].at_s > at_s


def others(circuit: Circuit, process: str, now_s: float) -> int:
    """The number of other processes that participate in a circuit now."""
    if circuit.recent is None:
        return 0
    return sum(
        1 for name, at_s in circuit.recent.reports if name != process and now_s - at_s < LIVE_S
    )


def _date_records(message: Record, now_s: float, last: Record | None) -> tuple[DatedRecord, ...]:
    """The signals of a message, each with its time; a record that equals `last` becomes the same object."""
    signal, source = message.signal, message.source
    left = signal.count
    dated = []
    for at_s, count in () if source is None else source.times:
        part = min(count, left)
        if part > 0:  # a report of another version may have any content
            left -= part
            dated.append(DatedRecord(min(at_s, now_s), _part(message, part, last)))
    if left:
        dated.append(DatedRecord(now_s, _part(message, left, last)))
    return tuple(dated)


def _part(message: Record, count: int, last: Record | None) -> Record:
    # Refusals are not evidence: they are counted separately, once.
    signal, permit = message.signal, message.permit
    if signal.count != count or signal.refused:
        signal = signal._replace(count=count, refused=0)
    # Most differ in their texts or times: plain tuples are compared without a call.
    if last is not None and tuple(last.signal) == tuple(signal) and last.permit == permit:
        return last
    return Record(signal, permit)


def _start(
    circuit: Circuit, recent: Recent, new: tuple[DatedRecord, ...], refused: int
) -> ReplayStart:
    """Where folding starts: at the final state, if the new signals happened after it.

    Otherwise everything recent is folded again, in order.
    """
    waiting = recent.tells[recent.final :]
    settled = (recent.settled if recent.final else recent.base) if waiting else circuit
    base = recent.base or circuit
    if base.recent is not None:
        base = base._replace(recent=None)
    if refused:
        base = _with_refused(base, refused)
    if settled is None or any(dated.at_s < settled.seen_s for dated in new):
        start = base._replace(version=circuit.version)
        return ReplayStart(start, start, (), _merge(recent.tells, new))
    settled = settled._replace(recent=None, version=circuit.version)
    shown = None
    # Under a hold that may end, and while tripping, time changes more than the counts.
    if circuit.phase is settled.phase is Phase.CLOSED and circuit.order is None:
        shown = circuit if all(dated.at_s >= circuit.seen_s for dated in new) else None
    if refused:
        settled = _with_refused(settled, refused)
        shown = None if shown is None else _with_refused(shown, refused)
    return ReplayStart(
        settled,
        base,
        recent.tells[: recent.final],
        _merge(waiting, new),
        shown,
    )


def _merge(old: tuple[DatedRecord, ...], new: tuple[DatedRecord, ...]) -> tuple[DatedRecord, ...]:
    """Both lists, sorted by time; `old` is already sorted."""
    if len(new) == 1 and (not old or old[-1].at_s <= new[0].at_s):
        return (*old, *new)
    return tuple(sorted((*old, *new), key=_at_s))


def _with_refused(circuit: Circuit, refused: int) -> Circuit:
    totals = circuit.totals
    return circuit._replace(totals=totals._replace(refused=totals.refused + refused))


def _at_s(dated: DatedRecord) -> float:
    return dated.at_s


def _times(
    recent: Recent, sources: Sequence[ReportSource], last: ReportSource | None, now_s: float
) -> ReportTimes:
    """The report times after these sources have reported; `last` is the source of the last message."""
    since_s = now_s - LIVE_S
    reports = {name: at_s for name, at_s in recent.reports if at_s > since_s}
    for process, upto_s, _ in sources:
        reports[process] = max(upto_s, reports.get(process, upto_s))
    live = tuple(reports.items())
    if len(live) > MOST_PROCESSES:
        live = tuple(sorted(live, key=lambda report: report[1])[-MOST_PROCESSES:])
    if last is not None:
        reports.pop(last.process, None)  # it reports everything up to now
    final_s = min(reports.values(), default=now_s)
    return ReportTimes(live, max(final_s, now_s - HOLD_S))


def _fold_final(policy: Policy, start: ReplayStart, final_s: float, now_s: float) -> Evidence:
    """Fold the final signals in order, and let them change the phase."""
    tells = start.tells
    if len(tells) > MOST:
        final_s = max(final_s, tells[-MOST - 1].at_s)
    events: tuple[Event, ...] = ()
    circuit, base = start.circuit, start.base
    kept = list(start.kept)
    left: tuple[DatedRecord, ...] = ()
    last: Step | None = None
    for index, dated in enumerate(tells):
        if dated.at_s > final_s and circuit.phase in FLOWING:
            left = tells[index:]
            break
        last = step(policy, circuit, dated.record, dated.at_s)
        circuit = last.circuit
        events += last.events
        if last.events or circuit.phase not in FLOWING:
            base, kept = circuit, []
        else:
            _append(kept, dated)
    if last is None or left or circuit.seen_s < now_s:
        last = _pass_time(policy, circuit, min(final_s, now_s) if left else now_s)
        events += last.events
        if last.events:
            base, kept = last.circuit, []
    if kept:
        base = _trim(policy, base, kept, min(KEPT, MOST - len(left)), now_s)
    return Evidence(Step(last.circuit, last.verdict, events), base, tuple(kept), left)


def _pass_time(policy: Policy, circuit: Circuit, now_s: float) -> Step:
    """Advance the time; a closed circuit without an override does not change."""
    if circuit.phase is Phase.CLOSED and circuit.order is None:
        return Step(circuit, standing(policy, circuit, max(now_s, circuit.seen_s)), ())
    return step(policy, circuit, _TIME, now_s)


def _trim(
    policy: Policy, base: Circuit, kept: list[DatedRecord], most: int, now_s: float
) -> Circuit:
    """Remove the oldest signals from `kept`; return the circuit before the rest.

    Several at a time, so that most messages leave the circuit before them as it is.
    """
    if len(kept) <= most and kept[0].at_s >= now_s - 2 * KEEP_S:
        return base
    number = max(0, len(kept) - most + TRIM)
    while number < len(kept) and kept[number].at_s < now_s - KEEP_S:
        number += 1
    old = kept[:number]
    del kept[:number]
    return count_only(policy, base, old)


def _append(kept: list[DatedRecord], dated: DatedRecord) -> None:
    """Append a signal; successive successes share one entry, because their order does not matter."""
    if kept and kept[-1].record.signal.ok and dated.record.signal.ok:
        one, two = kept[-1].record, dated.record
        if one._replace(signal=one.signal._replace(count=two.signal.count)) == two:
            both = one.signal._replace(count=one.signal.count + two.signal.count)
            kept[-1] = DatedRecord(dated.at_s, one._replace(signal=both))
            return
    kept.append(dated)


def _apply_message(policy: Policy, judged: Evidence, message: Message, now_s: float) -> Evidence:
    """Apply an acquisition or an override to the evaluated state."""
    before = judged.step.circuit
    last = step(policy, before, message, now_s)
    done = Step(last.circuit, last.verdict, judged.step.events + last.events)
    if last.circuit is before:
        return judged._replace(step=done)
    return Evidence(done, last.circuit, (), judged.left)


def _recent_to_store(judged: Evidence, version: int, times: ReportTimes) -> Recent | None:
    """The recent part to store with the circuit: only signals that later reports could precede."""
    tells = judged.kept + judged.left
    if any(dated.record.signal.ok is not True for dated in tells):
        settled = judged.step.circuit if judged.kept and judged.left else None
        return Recent(version, judged.base, tells, len(judged.kept), times.reports, settled)
    return Recent(version, None, (), 0, times.reports) if times.reports else None


def _is_certain(policy: Policy, circuit: Circuit, now_s: float) -> bool:
    """Whether it trips regardless of successes that are not reported yet."""
    pairs = zip(policy.detectors, circuit.memories, strict=True)
    heats = [0.0 if one.needs_successes else one.heat(memory, now_s) for one, memory in pairs]
    return policy.combine.heat(policy.detectors, heats) >= 1.0
