"""The findings of a backtest: counts of everything, and a row for each run.

Pictures and evidence are large, so they are kept for some runs only: for false stops first, then for stops
that save most. The other facts of a run take a few hundred bytes.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from switchgear._agents.recordings.recording import RecordingTally
from switchgear._analysis.backtest.opinions import OpinionAccuracy
from switchgear._analysis.backtest.replay import Judged, Named, RunFacts, RunRow, Shown
from switchgear._breaker.views import View
from switchgear._core.types import Circuit, Event, Mode, Phase
from switchgear._detectors.policy_wire import dump_policy
from switchgear._text.agent_text import one_line

NAME = "live"
Z95 = 1.959963984540054
"""Standard deviations around the mean that contain 95 % of a normal distribution."""


class Rate(NamedTuple):
    """`seen` of `total`, with the 95 % Wilson interval of the underlying rate.

    >>> rate(0, 100)
    Rate(seen=0, total=100, low=0.0, high=0.037)
    """

    seen: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """The share `seen / total`; `None`: the total is 0."""
        return self.seen / self.total if self.total else None


def rate(count: int, total: int) -> Rate:
    """A rate with its interval, which is 0 to 1 for a total of 0."""
    if not total:
        return Rate(0, 0, 0.0, 1.0)
    share, z2 = count / total, Z95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    low = 0.0 if count == 0 else max(middle - half, 0.0)
    high = 1.0 if count == total else min(middle + half, 1.0)
    return Rate(count, total, round(low, 4), round(high, 4))


def most_likely_below(count: int, total: int, confidence: float = 0.95) -> float:
    """The upper bound of the rate at that confidence (exact, one-sided).

    For 0 of n, the bound is about 3/n: the rule of three.

    >>> round(most_likely_below(0, 300), 4)
    0.0099
    """
    if not total or count >= total:
        return 1.0
    low, high = count / total, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(count, total, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(count: int, total: int, share: float) -> float:
    """The probability of at most `count`, by the binomial distribution."""
    if share <= 0.0:
        return 1.0
    if share >= 1.0:
        return 0.0
    return sum(
        math.exp(
            math.lgamma(total + 1)
            - math.lgamma(k + 1)
            - math.lgamma(total - k + 1)
            + k * math.log(share)
            + (total - k) * math.log1p(-share)
        )
        for k in range(count + 1)
    )


class Counts:
    """The totals of one policy over all runs. Used by one thread."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.runs = self.steps = self.tokens = 0
        self.warned = self.stopped = self.too_late = 0
        self.saved_steps = self.saved_tokens = self.saved_micros = 0
        self.unpriced = 0
        """Stopped runs whose savings have no known price."""
        self.solved = self.false_stops = self.harmful = self.maybe_harmful = 0
        self.unsolved = self.caught = self.unsolved_steps = self.unsolved_saved = 0
        self.by_detector: Counter[str] = Counter()

    def add(self, run: RunFacts, judged: Judged) -> None:
        self.runs += 1
        self.steps += run.steps
        self.tokens += run.tokens
        self.warned += judged.warned_at is not None
        self.solved += run.solved is True
        if run.solved is False:
            self.unsolved += 1
            self.unsolved_steps += run.steps
            self.unsolved_saved += judged.saved_steps
        self.too_late += judged.tripped_at is not None and not judged.stopped
        if judged.stopped:
            self._stop(run, judged)

    def _stop(self, run: RunFacts, judged: Judged) -> None:
        self.stopped += 1
        self.by_detector[judged.detector] += 1
        self.saved_steps += judged.saved_steps
        self.saved_tokens += judged.saved_tokens
        self.saved_micros += judged.saved_micros or 0
        self.unpriced += judged.saved_micros is None
        self.caught += run.solved is False
        if run.solved:
            self.false_stops += 1
            self.harmful += judged.harmful is True
            self.maybe_harmful += judged.harmful is None

    @property
    def false_stop_rate(self) -> Rate:
        """Solved runs that would have been stopped."""
        return rate(self.false_stops, self.solved)

    @property
    def catch_rate(self) -> Rate:
        """Unsolved runs that would have been stopped."""
        return rate(self.caught, self.unsolved)


def shadow_row(view: View, events: Iterable[Event], store: str) -> RunRow | None:
    """What a circuit in shadow mode would have done; `None`: it never was in shadow mode.

    `events` are the events of this circuit, oldest first.
    """
    shadowed = [event for event in events if event.mode is Mode.SHADOW]
    circuit = view.circuit
    if circuit.mode is not Mode.SHADOW and not shadowed:
        return None
    recorded = circuit.totals.succeeded + circuit.totals.failed + circuit.totals.ignored
    cost = circuit.totals.cost_micros
    facts = RunFacts(circuit.key, store, NAME, steps=recorded, cost_micros=cost, timed=True)
    return RunRow(facts, (_shadow_judged(circuit, shadowed, view, recorded),))


def _shadow_judged(circuit: Circuit, events: list[Event], view: View, recorded: int) -> Judged:
    opened = [event for event in events if event.after is Phase.OPEN and event.before != "open"]
    warned = [event for event in events if event.after is Phase.TRIPPING]
    saved = _recorded_after(circuit, opened[0].at_s) if opened else 0
    before = max(recorded - saved, 0)
    hottest = max((reading.heat for reading in view.readings), default=0.0)
    kinds = tuple(detector.kind for detector in view.policy.detectors)
    hot = [reading.heat for reading in view.readings]
    reasons = [event.reason for event in opened or warned]
    return Judged(
        policy="as configured",
        warned_at=before if warned else None,
        warnings=len(warned),
        tripped_at=before if opened else None,
        detector=kinds[hot.index(max(hot))] if opened and hot else "",
        reason=reasons[-1] if reasons else "",
        hottest=min(hottest, 9.99),
        saved_steps=saved,
        saved_micros=None if opened else 0,
        evidence=tuple(
            Shown(place, "", "", False, one_line(failure.error or "failed", 200), "")
            for place, failure in enumerate(circuit.failures, 1)
        ),
        kinds=kinds,
    )


def _recorded_after(circuit: Circuit, opened_at_s: float) -> int:
    """A lower bound of the calls after the trip: overruled refusals, failures, or any call at all."""
    failed = sum(failure.at_s > opened_at_s for failure in circuit.failures)
    return max(circuit.totals.overruled, failed, int(circuit.seen_s > opened_at_s))


SCHEMA = 1
_WITH_EVIDENCE = 1000
"""Number of runs whose evidence is kept if there are no pictures."""


class BacktestFindings:
    """Collects the rows of a backtest. Used by one thread."""

    def __init__(self, pictures: int = 0) -> None:
        self.tally = RecordingTally()
        self.policies: tuple[Named, ...] = ()
        self.counts: list[Counts] = []
        self.rows: list[RunRow] = []
        """All rows, without pictures and evidence."""
        self.runs = self.untimed = 0
        self.noun = "run"
        """The subject of a row: "run" or "circuit"."""
        self.outcomes: Counter[str] = Counter()
        """Number of runs by the source of their outcome; empty: unknown."""
        self.least_confidence: float | None = None
        self.unmatched: set[str] = set()
        """Ids in the file of outcomes that match no run or task so far."""
        self.opinions = OpinionAccuracy()
        self.pictures = pictures
        self._kept: list[tuple[tuple[int, int, int], int, RunRow]] = []

    def judged_by(self, policies: Sequence[Named]) -> None:
        """Set the policies, before the first row."""
        self.policies = tuple(policies)
        self.counts = [Counts(named.name) for named in policies]

    def add(self, row: RunRow) -> None:
        if not self.counts:
            self.counts = [Counts(judged.policy) for judged in row.judged]
        self.runs += 1
        self.untimed += not row.run.timed
        self.outcomes[row.run.outcome_from] += 1
        self.unmatched -= {row.run.id, row.run.task}
        for counts, judged in zip(self.counts, row.judged, strict=True):
            counts.add(row.run, judged)
        entry = _importance(row), -self.runs, row
        if len(self._kept) < (self.pictures or _WITH_EVIDENCE):
            heapq.heappush(self._kept, entry)
        else:
            heapq.heappushpop(self._kept, entry)
        bare = tuple(each._replace(evidence=(), heats=()) for each in row.judged)
        self.rows.append(row._replace(judged=bare))

    def most_important(self) -> list[RunRow]:
        """The rows with evidence, the most important first."""
        return [row for _, _, row in sorted(self._kept, reverse=True)]

    def rows_with_evidence(self) -> list[RunRow]:
        """All rows in order, with their evidence where it is kept."""
        whole = {-number: row for _, number, row in self._kept}
        return [whole.get(number, row) for number, row in enumerate(self.rows, 1)]


def _importance(row: RunRow) -> tuple[int, int, int]:
    """False stops, then stops that save most, then the hottest."""
    false_stop = row.run.solved is True and any(judged.stopped for judged in row.judged)
    saved = max(judged.saved_steps if judged.stopped else 0 for judged in row.judged)
    hottest = max(judged.hottest for judged in row.judged)
    return int(false_stop), saved, int(hottest * 1000)


def as_values(found: BacktestFindings) -> dict[str, Any]:
    """Everything as JSON values; `docs/backtest.md` describes them."""
    tally = found.tally
    policies = {named.name: dump_policy(named.policy) for named in found.policies}
    return {
        "schema": SCHEMA,
        "files": tally.files,
        "runs": found.runs,
        "empty_sessions": tally.empty,
        "formats": dict(tally.formats),
        "unknown_lines": dict(tally.unknown),
        "unreadable": [{"path": path, "why": why} for path, why in tally.problems],
        "unreadable_count": tally.problem_count,
        "runs_without_times": found.untimed,
        "outcomes": {name or "unknown": count for name, count in sorted(found.outcomes.items())},
        "second_opinions": found.opinions.as_values(),
        "policies": [
            {**counts_as_values(counts), "policy": policies.get(counts.policy)}
            for counts in found.counts
        ],
        "rows": [_row(row) for row in found.rows_with_evidence()],
    }


def counts_as_values(counts: Counts) -> dict[str, Any]:
    plain = {key: value for key, value in vars(counts).items() if key != "policy"}
    return {
        "name": counts.policy,
        **plain,
        "by_detector": dict(counts.by_detector),
        "false_stop_rate": rate_as_values(counts.false_stop_rate),
        "catch_rate": rate_as_values(counts.catch_rate),
    }


def rate_as_values(rate: Rate) -> dict[str, Any]:
    return {"count": rate.seen, "of": rate.total, "rate": rate.value,
            "low_95": rate.low, "high_95": rate.high}  # fmt: skip


def _row(row: RunRow) -> dict[str, Any]:
    return {**row.run._asdict(), "judged": [_judged_dict(judged) for judged in row.judged]}


def _judged_dict(judged: Judged) -> dict[str, Any]:
    plain = judged._asdict()
    for name in ("heats", "kinds"):
        del plain[name]
    return {
        **plain,
        "hottest": min(judged.hottest, 1.0),
        "stopped": judged.stopped,
        "evidence": [shown._asdict() for shown in judged.evidence],
    }
