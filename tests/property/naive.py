"""What detectors and recovery rules are documented to do, recomputed from the full history.

No window, ring, queue or running sum: a list of `(time, signal)` and the sentence it is held
against. One row of `KINDS` for each detector of the registry; a new detector needs a row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import islice, takewhile
from math import ceil, floor, isclose
from statistics import median
from typing import Any, NamedTuple

from property import naive_debts, naive_stagnation
from switchgear import _detectors
from switchgear._core.detector import Detector
from switchgear._core.policy import AnyDetector, Cooldown, Policy, WeightedSum, WindowEnd
from switchgear._core.types import Reading, Signal
from switchgear._text.fingerprint import FINGERPRINTS

History = Sequence[tuple[float, Signal]]
Eras = Sequence[History]
"""What happened from one recovery to the next, failed probes and all; the last one continues."""


def newest_first(history: History) -> Iterator[tuple[float, Signal]]:
    """One entry for each result: a signal with count n is n results."""
    for at_s, signal in reversed(history):
        for _ in range(signal.count):
            yield at_s, signal


def exact(number: float) -> Fraction:
    """The number that a person wrote, not the nearest binary one."""
    return Fraction(repr(number))


def some(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def said(seconds: float) -> str:
    """Seconds as they are; from ten minutes on in hours, minutes and seconds."""
    if not 600 <= seconds <= 3_155_760_000:
        return f"{seconds:.4g} s"
    whole = round(seconds)
    parts = (f"{whole // 3600:,} h", f"{whole % 3600 // 60} min", f"{whole % 60} s")
    return " ".join(part for part in parts if not part.startswith("0 "))


def consecutive_failures(
    detector: _detectors.ConsecutiveFailures, history: History, now_s: float
) -> Reading:
    row = 0
    for _, signal in newest_first(history):
        if signal.ok:
            break
        row += signal.ok is False
    reason = f"{some(row, 'failure')} in a row (threshold {detector.threshold})"
    return Reading(row / detector.threshold, reason)


def those_apart(failed: list[tuple[float, Signal]], apart_s: float) -> list[float]:
    """The times of the first failure, and of each that took `apart_s` or is that much later than the last of these."""
    kept: list[float] = []
    for at_s, signal in failed:
        if not kept or (signal.seconds or 0) >= apart_s or at_s - kept[-1] >= apart_s:
            kept.append(at_s)
    return kept


def failures_in_window(
    detector: _detectors.FailuresInWindow, history: History, now_s: float
) -> Reading:
    failed = [one for one in newest_first(history) if one[1].ok is False]
    counted = reversed(those_apart(failed[::-1], detector.apart_s))
    inside = takewhile(lambda at_s: now_s - at_s < detector.window_s, counted)
    known = len([*islice(inside, detector.threshold)])
    apart = f", {said(detector.apart_s)} apart" if detector.apart_s else ""
    held_against = f"in {said(detector.window_s)}{apart} (threshold {detector.threshold})"
    return Reading(known / detector.threshold, f"{some(known, 'failure')} {held_against}")


@cache
def fewest_above(threshold: float, total: int) -> int:
    """The smallest number that is more than that share of the total."""
    return next(n for n in range(total + 2) if n > exact(threshold) * total)


def share(
    detector: _detectors.FailureRate | _detectors.SlowCalls, hits: Iterable[bool], verb: str
) -> Reading:
    last = [*islice(hits, detector.window)]
    limit = f"threshold {detector.threshold:.0%}"
    if len(last) < detector.min_calls:
        return early(detector, len(last), sum(last), verb, fewest_above, limit)
    return Reading(
        sum(last) / fewest_above(detector.threshold, len(last)),
        f"{sum(last)} of the last {len(last)} calls {verb} ({sum(last) / len(last):.0%}, {limit})",
    )


def early(  # noqa: PLR0917
    detector: Any,
    total: int,
    hits: int,
    verb: str,
    fewest: Callable[[float, int], int],
    limit: str,
) -> Reading:
    """The reading with too few calls: it warns by the number that would trip with enough calls, and cannot trip."""
    heat = min(0.999, hits / fewest(detector.threshold, detector.min_calls))
    judges = f"({limit}, from {some(detector.min_calls, 'call')} on)"
    return Reading(heat, f"{hits} of {some(total, 'call')} {verb} {judges}")


def failure_rate(detector: _detectors.FailureRate, history: History, now_s: float) -> Reading:
    outcomes = (s.ok is False for _, s in newest_first(history) if s.ok is not None)
    return share(detector, outcomes, "failed")


def slow_calls(detector: _detectors.SlowCalls, history: History, now_s: float) -> Reading:
    times = (s.seconds for _, s in newest_first(history) if s.seconds is not None)
    verb = f"took longer than {said(detector.slow_s)}"
    return share(detector, (seconds > detector.slow_s for seconds in times), verb)


def share_in_time(
    detector: _detectors.FailureShare | _detectors.SlowCallShare,
    history: History,
    now_s: float,
    hit: Callable[[Signal], bool | None],
    verb: str,
) -> Reading:
    first = thirtieth(now_s, detector.window_s) - 29
    inside = [s for at_s, s in history if thirtieth(at_s, detector.window_s) >= first]
    total = sum(s.count for s in inside if hit(s) is not None)
    hits = sum(s.count for s in inside if hit(s))
    limit = f"threshold {detector.threshold:.0%}"
    verb = f"in {said(detector.window_s)} {verb}"
    if total < detector.min_calls:
        return early(detector, total, hits, verb, fewest_reaching, limit)
    needed = fewest_reaching(detector.threshold, total)
    share = f"({hits / total:.0%}, {limit})"
    return Reading(hits / needed, f"{hits} of {some(total, 'call')} {verb} {share}")


def failure_share(detector: _detectors.FailureShare, history: History, now_s: float) -> Reading:
    def failed(signal: Signal) -> bool | None:
        return None if signal.ok is None else not signal.ok

    return share_in_time(detector, history, now_s, failed, "failed")


def slow_call_share(detector: _detectors.SlowCallShare, history: History, now_s: float) -> Reading:
    def slow(signal: Signal) -> bool | None:
        return None if signal.seconds is None else signal.seconds > detector.slow_s

    verb = f"took longer than {said(detector.slow_s)}"
    return share_in_time(detector, history, now_s, slow, verb)


def p95_sample(
    detector: _detectors.LatencyP95, history: History, now_s: float
) -> list[tuple[float, int]]:
    """The durations in the window and how often each; time is resolved to a thirtieth of it."""
    first = thirtieth(now_s, detector.window_s) - 29
    timed = [(at_s, s.seconds, s.count) for at_s, s in history if s.seconds is not None]
    return [(took, n) for at_s, took, n in timed if thirtieth(at_s, detector.window_s) >= first]


@cache
def thirtieth(at_s: float, window_s: float) -> int:
    return floor(Fraction(at_s) * 30 / Fraction(window_s))


def p95(sample: Sequence[float]) -> float:
    """Nearest rank: the smallest value that 95 % of the sample do not exceed."""
    return sorted(sample)[ceil(Fraction(95, 100) * len(sample)) - 1]


def fewest_over_p95(size: int) -> int:
    """The number of calls over a limit from which the p95 is over it."""
    return size - ceil(Fraction(95, 100) * size) + 1


def latency_p95(detector: _detectors.LatencyP95, history: History, now_s: float) -> Reading:
    sample = p95_sample(detector, history, now_s)
    limit_s = detector.baseline_s * detector.multiplier
    size = sum(count for _, count in sample)
    if size < detector.min_calls:
        return Reading(0.0, f"{size} of the {detector.min_calls} calls needed to judge")
    over = sum(count for seconds, count in sample if seconds > limit_s)
    fewest = fewest_over_p95(size)
    took = f"{over} of {size} calls in {said(detector.window_s)} took longer than {said(limit_s)}"
    reason = f"{took} ({detector.multiplier:g} x baseline), {fewest - 1} may"
    return Reading(over / fewest, reason)


def one_by_one(history: History) -> Iterator[tuple[float, Signal]]:
    """Each result on its own: a signal with count n is n results."""
    return ((at_s, signal) for at_s, signal in history for _ in range(signal.count))


def no_progress(detector: _detectors.NoProgress, history: History, now_s: float) -> Reading:
    row, best = 0, None
    lows, baseline = [False], list[int]()
    for _, signal in one_by_one(history):
        files, tests, chars = signal.files_changed, signal.tests_passing, signal.output_chars
        if files is tests is chars is None:
            continue
        if chars is not None:
            lows.append(judged(baseline, chars, detector.recovers_at, 3))
        recovered = chars is not None and lows[-2] and not lows[-1]
        if files or (tests is not None and best is not None and tests > best) or recovered:
            row = 0
        elif files is not None or tests is not None:
            row += 1
        best = max((count for count in (best, tests) if count is not None), default=None)
    stood = f"{some(row, 'iteration')} without progress"
    reason = f"{stood} (threshold {detector.threshold}, then one more)"
    if row <= detector.threshold:
        return Reading(0.999 * row / detector.threshold, reason)
    return Reading(row / (detector.threshold + 1), reason)


def judged(baseline: list[int], chars: int, share: float, needed: int) -> bool:
    """Whether an output is low; if it is not, it joins the baseline."""
    usual = Fraction(median(baseline[-20:])) if len(baseline) >= needed else Fraction(0)
    if chars < exact(share) * usual:
        return True
    baseline.append(chars)
    return False


def output_decline(detector: _detectors.OutputDecline, history: History, now_s: float) -> Reading:
    outputs = [s.output_chars for _, s in one_by_one(history) if s.output_chars is not None]
    needed, baseline = detector.min_iterations, list[int]()
    lows = [judged(baseline, chars, detector.threshold, needed) for chars in outputs]
    row = next((n for n, low in enumerate(reversed(lows)) if not low), len(lows))
    heat = {0: 0.0, 1: 0.999}.get(row, row / 2)
    if len(baseline) < needed:
        return Reading(heat, f"{len(baseline)} of the {needed} outputs needed to judge")
    middle = median(baseline[-20:])
    share = f"{outputs[-1] / middle:.0%}" if middle else "all"
    said = f"output of {some(outputs[-1], 'character')}, {share} of the usual {middle:g}"
    return Reading(heat, f"{said} (threshold {detector.threshold:.0%})")


@cache
def key_of(way: str, text: str) -> str:
    return FINGERPRINTS[way](text)


def same_error(detector: _detectors.SameError, history: History, now_s: float) -> Reading:
    return same_error_in_eras(detector, [history])


def same_error_in_eras(detector: _detectors.SameError, eras: Eras) -> Reading:
    """Counts outlast a recovery, which resets the error that tripped and ends the count in a row."""
    counts, texts = dict[str, int](), dict[str, str]()
    for era in eras:
        counts = {key: times if times < detector.threshold else 0 for key, times in counts.items()}
        row: list[tuple[str, str]] = []
        for _, signal in one_by_one(era):
            if signal.ok:
                row.clear()
            if signal.ok is not False or signal.error is None:
                continue
            key = key_of(detector.fingerprint, signal.error)
            if row and row[0][0] != key:
                row.clear()
            row.append((key, signal.error))
            counts[key] = counts.get(key, 0) + 1
            show_most_frequent(detector, counts, texts, key, signal.error)
    worst = max([*texts, *counts], key=lambda key: counts[key], default="")
    times, text = counts.get(worst, 0), texts.get(worst, "")
    if detector.scope == "consecutive":
        times = len(row)
        text = texts.get(row[0][0], row[0][1]) if row else ""
    if not times:
        return Reading(0.0, f"no error is counted (threshold {detector.threshold})")
    in_a_row = " in a row" if detector.scope == "consecutive" else ""
    said = f"{some(times, 'time')}{in_a_row} (threshold {detector.threshold})"
    quoted = f': "{text}"' if text else ""
    return Reading(times / detector.threshold, f"the same error {said}{quoted}")


def show_most_frequent(
    detector: _detectors.SameError,
    counts: dict[str, int],
    texts: dict[str, str],
    key: str,
    text: str,
) -> None:
    """An error has a text if there is room, or if it came more often than one that has."""
    if key in texts:
        return
    if len(texts) == detector.remember:
        rarest = min(texts, key=lambda other: counts[other])
        if counts[key] <= counts[rarest]:
            return
        del texts[rarest]
    texts[key] = text


def fewest_reaching(threshold: float, whole: int) -> int:
    """The smallest number that is at least that share of a whole, and not nothing."""
    return max(1, ceil(exact(threshold) * whole))


def in_dollars(micros: int) -> str:
    text = f"{Decimal(micros) / 1_000_000:,.6f}"
    return f"${text[:-4]}{text[-4:].rstrip('0')}"


def spend(detector: _detectors.Spend, history: History, now_s: float) -> Reading:
    first = thirtieth(now_s, detector.window_s) - 29
    told = [(at_s, (s.cost_micros or 0) * s.count) for at_s, s in history]
    spent = sum(cost for at_s, cost in told if thirtieth(at_s, detector.window_s) >= first)
    held = f"(threshold {detector.threshold:g} of {in_dollars(detector.hard_cap_micros)})"
    reason = f"{in_dollars(spent)} spent in {said(detector.window_s)} {held}"
    return Reading(spent / fewest_reaching(detector.threshold, detector.hard_cap_micros), reason)


def spend_velocity(detector: _detectors.SpendVelocity, history: History, now_s: float) -> Reading:
    window_s = detector.window_s
    first = thirtieth(now_s, window_s) - 29
    told = [(at_s, (s.cost_micros or 0) * s.count) for at_s, s in history]
    told = [(at_s, cost) for at_s, cost in told if cost > 0]
    recent = sum(cost for at_s, cost in told if thirtieth(at_s, window_s) >= first)
    before = sum(cost for _, cost in told) - recent
    known_s = now_s - window_s - told[0][0] if told else 0.0
    now = f"{in_dollars(round(recent / window_s * 60))}/min in the last {said(window_s)}"
    held = f"(threshold {detector.factor:g} times the usual"
    if known_s < window_s or not before:
        return Reading(0.0, f"{now} {held}: not known yet)")
    usual = before / known_s
    ratio = recent / window_s / (detector.factor * usual)
    enough = recent / window_s * window_s / detector.least_micros
    reason = f"{now} {held} {in_dollars(round(usual * 60))}/min)"
    return Reading(min(enough, ratio), reason)


def total_cost(detector: _detectors.TotalCost, history: History, now_s: float) -> Reading:
    spent = sum((s.cost_micros or 0) * s.count for _, s in history)
    held = f"of {in_dollars(detector.budget_micros)} (threshold {detector.threshold:g} of it, and more)"
    allowed = floor(exact(detector.threshold) * detector.budget_micros)
    return Reading(spent / (allowed + 1), f"{in_dollars(spent)} spent {held}")


def lock_wait(detector: _detectors.LockWait, history: History, now_s: float) -> Reading:
    waits = [s.waited_s for _, s in newest_first(history) if s.waited_s is not None]
    last_s = waits[0] if waits else 0.0
    reason = f"waited {said(last_s)} (threshold {said(detector.limit_s)})"
    if last_s < detector.limit_s:
        return Reading(0.999 * last_s / detector.limit_s, reason)
    return Reading(max(1.0, last_s / detector.limit_s), reason)


def violation(detector: _detectors.Violation, history: History, now_s: float) -> Reading:
    broken = [s.violation for _, s in newest_first(history) if s.violation]
    return Reading(1.0, broken[0]) if broken else Reading(0.0, "no rule is broken")


def retry_after(detector: _detectors.RetryAfter, history: History, now_s: float) -> Reading:
    row = 0
    for _, signal in newest_first(history):
        if signal.ok:
            break
        row += signal.ok is False and (signal.retry_after_s or 0) > 0
    reason = f"{some(row, 'response')} with Retry-After in a row (threshold {detector.threshold})"
    return Reading(row / detector.threshold, reason)


def silence(detector: _detectors.Silence, history: History, now_s: float) -> Reading:
    idle_s = 0.0
    for _, signal in newest_first(history):
        if signal.idle_s is not None or (signal.step is not None and signal.step.tool):
            idle_s = signal.idle_s or 0.0
            break
    heat = idle_s / detector.limit_s
    reason = f"no tool call for {said(round(idle_s))} (more than {said(detector.limit_s)} trips)"
    return Reading(heat if idle_s > detector.limit_s else 0.999 * heat, reason)


def what_was_called(detector: _detectors.SameTool, signal: Signal) -> tuple[Any, ...]:
    act = signal.step
    assert act is not None
    failed = signal.ok is False and signal.error is not None
    came_back = (
        (FINGERPRINTS["default"](signal.error or ""),)
        if failed
        else act.result_key or act.result or ""
    )
    return (act.tool, act.call_key or act.args, came_back)[
        : {"tool": 1, "call": 2}.get(detector.match, 3)
    ]


def same_tool(detector: _detectors.SameTool, history: History, now_s: float) -> Reading:
    calls = [s for _, s in newest_first(history) if s.step is not None and s.step.tool]
    keys = [what_was_called(detector, signal) for signal in calls]
    row = len([*takewhile(lambda key: key == keys[0], keys)])
    if not calls or calls[0].step is None:
        return Reading(0.0, f"no call is repeated (more than {detector.threshold} in a row trips)")
    tool = calls[0].step.tool
    same = {"outcome": " with the same outcome", "call": " with the same arguments", "tool": ""}
    times = f"{tool} called {some(row, 'time')} in a row{same[detector.match]}"
    reason = f"{times} (more than {detector.threshold} trips)"
    return Reading(row / (detector.threshold + 1), reason)


def tool_flood(detector: _detectors.ToolFlood, history: History, now_s: float) -> Reading:
    since = takewhile(lambda entry: not entry[1].files_changed, newest_first(history))
    calls = sum(1 for _, signal in since if signal.step is not None and signal.step.tool)
    reason = f"{some(calls, 'call')} without a file change (more than {detector.threshold} trips)"
    return Reading(calls / (detector.threshold + 1), reason)


def context_burn(detector: _detectors.ContextBurn, history: History, now_s: float) -> Reading:
    rate, since = 0.0, None
    for at_s, signal in one_by_one(history):
        used = signal.context_used
        if used is None:
            continue
        if since is None or used < since[1]:
            rate, since = 0.0, (at_s, used)
        elif at_s - since[0] >= detector.window_s:
            rate = round((used - since[1]) * 60.0 / (at_s - since[0]), 9)
            since = (at_s, used)
    heat = rate / detector.per_minute
    limit = f"(more than {detector.per_minute * 100:g}% trips)"
    reason = f"{rate:.1%} of the context window a minute {limit}"
    return Reading(heat if rate > detector.per_minute else 0.999 * heat, reason)


def never_objects(detector: Any, signal: Signal) -> str | None:
    return None


def too_long(signal: Signal, limit_s: float) -> str | None:
    if signal.seconds is None or signal.seconds <= limit_s:
        return None
    return f"took {said(signal.seconds)}, longer than {said(limit_s)}"


def waited_too_long(signal: Signal, limit_s: float) -> str | None:
    if signal.waited_s is None or signal.waited_s < limit_s:
        return None
    return f"waited {said(signal.waited_s)} (threshold {said(limit_s)})"


class Kind(NamedTuple):
    reading: Callable[[Any, History, float], Reading]
    memory_bound: Callable[[Any], int]
    """How many bytes the pickled memory may have, whatever happened."""
    held_against: Callable[[Any], str]
    """What its reason must name, so that a reader knows how far away the trip is."""
    objection: Callable[[Any, Signal], str | None] = never_objects
    in_eras: Callable[[Any, Eras], Reading] | None = None
    """How it reads its whole life, if a recovery does not end its memory."""


KINDS: dict[type[Detector], Kind] = {
    _detectors.RepeatedActions: Kind(
        naive_debts.reading_by(naive_debts.actions),
        lambda _: 16_000,
        lambda d: f"(threshold {d.limit:g})",
    ),
    _detectors.ConsecutiveFailures: Kind(
        consecutive_failures,
        lambda _: 100,
        lambda d: f"(threshold {d.threshold})",
    ),
    _detectors.RepeatedErrors: Kind(
        naive_debts.reading_by(naive_debts.errors),
        lambda _: 12_000,
        lambda d: f"(threshold {d.limit:g})",
    ),
    _detectors.FailureRate: Kind(
        failure_rate,
        lambda d: 400 + d.window // 4,
        lambda d: f"threshold {d.threshold:.0%}",
    ),
    _detectors.FailureShare: Kind(
        failure_share,
        lambda _: 1200,
        lambda d: f"threshold {d.threshold:.0%}",
    ),
    _detectors.SlowCallShare: Kind(
        slow_call_share,
        lambda _: 1200,
        lambda d: f"threshold {d.threshold:.0%}",
        lambda d, s: too_long(s, d.slow_s),
    ),
    _detectors.FailuresInWindow: Kind(
        failures_in_window,
        lambda d: 800 + 12 * d.threshold,
        lambda d: f"(threshold {d.threshold})",
    ),
    _detectors.LatencyP95: Kind(
        latency_p95,
        lambda _: 1200,
        lambda d: said(d.baseline_s * d.multiplier),
        lambda d, s: too_long(s, d.baseline_s * d.multiplier),
    ),
    _detectors.NoProgress: Kind(
        no_progress,
        lambda _: 500,
        lambda d: f"(threshold {d.threshold}, then one more)",
        lambda _, s: "made no progress" if s.files_changed == 0 else None,
    ),
    _detectors.OutputDecline: Kind(
        output_decline,
        lambda _: 400,
        lambda d: f"(threshold {d.threshold:.0%})",
    ),
    _detectors.SameError: Kind(
        same_error,
        lambda d: 700 + 330 * d.remember + 40 * 2000,
        lambda d: f"(threshold {d.threshold})",
        in_eras=same_error_in_eras,
    ),
    _detectors.ContextBurn: Kind(
        context_burn,
        lambda _: 200,
        lambda d: f"(more than {d.per_minute * 100:g}% trips)",
    ),
    _detectors.SameTool: Kind(
        same_tool,
        lambda _: 300,
        lambda d: f"(more than {d.threshold} trips)",
    ),
    _detectors.Silence: Kind(
        silence,
        lambda _: 100,
        lambda d: f"(more than {said(d.limit_s)} trips)",
    ),
    _detectors.ToolFlood: Kind(
        tool_flood,
        lambda _: 100,
        lambda d: f"(more than {d.threshold} trips)",
    ),
    _detectors.SlowCalls: Kind(
        slow_calls,
        lambda d: 400 + d.window // 4,
        lambda d: f"threshold {d.threshold:.0%}",
        lambda d, s: too_long(s, d.slow_s),
    ),
    _detectors.Spend: Kind(
        spend,
        lambda _: 1200,
        lambda d: f"(threshold {d.threshold:g} of {in_dollars(d.hard_cap_micros)})",
    ),
    _detectors.SpendVelocity: Kind(
        spend_velocity,
        lambda _: 1300,
        lambda d: f"(threshold {d.factor:g} times the usual",
    ),
    _detectors.TotalCost: Kind(
        total_cost,
        lambda _: 100,
        lambda d: f"(threshold {d.threshold:g} of it, and more)",
    ),
    _detectors.LockWait: Kind(
        lock_wait,
        lambda _: 100,
        lambda d: f"(threshold {said(d.limit_s)})",
        lambda d, s: waited_too_long(s, d.limit_s),
    ),
    _detectors.Violation: Kind(
        violation,
        lambda _: 1300,
        lambda _: "rule storm",
        lambda _, s: f"broke a rule: {s.violation}" if s.violation else None,
    ),
    _detectors.RetryAfter: Kind(
        retry_after,
        lambda _: 100,
        lambda d: f"(threshold {d.threshold})",
    ),
    _detectors.Stagnation: Kind(
        naive_stagnation.reading,
        lambda _: 16_000,
        lambda d: f"(threshold {d.limit:g})",
    ),
    _detectors.IdleTalk: Kind(
        naive_debts.reading_by(naive_debts.talk),
        lambda d: 1000 + 800 * d.remember,
        lambda d: f"(threshold {d.limit:g})",
    ),
    _detectors.RepeatedThoughts: Kind(
        naive_debts.reading_by(naive_debts.words),
        lambda d: 4000 + 800 * d.remember,
        lambda d: f"(threshold {d.limit:g})",
    ),
}


class Judgement(NamedTuple):
    """The combined judgement of the detectors of a policy."""

    heat: float
    reason: str
    admit: float
    """The share that the strictest of those that trip still admits."""
    strictest: str
    """What that one says: the hottest, if several are as strict."""


def reading(detector: Detector, history: History, eras: Eras, now_s: float) -> Reading:
    kind = KINDS[type(detector)]
    if kind.in_eras is not None:
        return kind.in_eras(detector, eras)
    return kind.reading(detector, history, now_s)


def judgement(policy: Policy, history: History, eras: Eras, now_s: float) -> Judgement:
    pairs = [(d, reading(d, history, eras, now_s)) for d in policy.detectors]
    tripped = [(d, reading) for d, reading in pairs if reading.heat >= 1]
    admit = min([d.admit for d, _ in tripped], default=0.0)
    if not isinstance(policy.combine, WeightedSum):
        assert isinstance(policy.combine, AnyDetector)
        hottest = next(r for _, r in pairs if r.heat == max(other.heat for _, other in pairs))
        strict = [reading for d, reading in tripped if d.admit == admit]
        cutting = next((r for r in strict if r.heat == max(o.heat for o in strict)), hottest)
        return Judgement(hottest.heat, hottest.reason, admit, cutting.reason)
    weights, needed = dict(policy.combine.weights), policy.combine.threshold
    weighed = [(d, reading) for d, reading in tripped if d.kind in weights]
    score = sum(weights[d.kind] for d, _ in weighed)
    alone_from = policy.combine.alone_from
    alone = [
        reading
        for d, reading in pairs
        if d.kind not in weights and alone_from is not None and reading.heat >= alone_from
    ]
    hottest_alone = max([reading.heat for reading in alone], default=0.0)
    if hottest_alone > score / needed:
        reason = next(reading.reason for reading in alone if reading.heat == hottest_alone)
        if hottest_alone < 1:
            points = hottest_alone * needed
            shown = f"{points:.0f}" if needed >= 10 else f"{points:g}"
            reason = f"score {shown} (trips at {needed:g}): {reason}"
        return Judgement(hottest_alone, reason, admit, reason)
    parts = [f"{reading.reason} (+{weights[d.kind]:g})" for d, reading in weighed]
    trips = score > needed or isclose(score, needed)
    whole = f"score {score:g} (trips at {needed:g})"
    reason = ": ".join(filter(None, [whole, "; ".join(parts)]))
    if trips and len(weighed) == 1:
        reason = weighed[0][1].reason
    return Judgement(score / needed, reason, admit, reason)


def objection(policy: Policy, signal: Signal) -> str | None:
    """The objection of the first detector to a successful probe, if any."""
    said = [KINDS[type(d)].objection(d, signal) for d in policy.detectors]
    return next((words for words in said if words is not None), None)


def fnv(key: str, now_s: float) -> float:
    """The jitter's number, from the published definition of 64-bit FNV-1a, folded to 32 bits."""
    value = 14695981039346656037
    for byte in key.encode("utf-8", "surrogatepass") + b"\0" + repr(now_s).encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return ((value // 2**32) ^ (value % 2**32)) / 2**32


def lease_s(policy: Policy, cooldown_s: float) -> float:
    """The lease of a probe: as configured, otherwise as long as the wait, at least the base of waits."""
    rule = policy.recovery
    assert isinstance(rule, Cooldown)
    if rule.lease_s is not None:
        return rule.lease_s
    return max(rule.base_s, cooldown_s)


def wait_s(
    policy: Policy, key: str, failed_probes: int, asked: float | None, now_s: float
) -> float | None:
    """How long the recovery keeps an open circuit open; `None` forever."""
    rule = policy.recovery
    if isinstance(rule, WindowEnd):
        return (floor(now_s / rule.window_s) + 1) * rule.window_s - now_s
    if not isinstance(rule, Cooldown):
        return None
    if asked is not None and asked > 0:
        return min(asked, rule.retry_after_max_s)
    wait = rule.base_s
    for _ in range(failed_probes):
        wait *= rule.factor
    wait = min(wait, rule.max_s)
    return wait * (1.0 - rule.jitter * fnv(key, now_s)) if rule.jitter else wait
