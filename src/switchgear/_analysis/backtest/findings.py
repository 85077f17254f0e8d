"""All that a backtest found, as far as it is kept: counts of everything, a line for each run.

Pictures and evidence are large, so they are kept for some runs only: false stops first, then those
that save most. The rest of a run is a few hundred bytes.
"""

import heapq
from collections.abc import Sequence
from typing import Any

from switchgear._agents.recordings.recording import RecordingTally
from switchgear._analysis.backtest.replay import Named
from switchgear._analysis.backtest.rows import Judged, Row
from switchgear._analysis.backtest.statistics import Counts, Rate
from switchgear._detectors.policy_wire import dump_policy

SCHEMA = 1
_WITH_EVIDENCE = 1000
"""Runs whose evidence is kept when there are no pictures."""


class Found:
    """What is known after all rows were added. Used by one thread."""

    def __init__(self, pictures: int = 0) -> None:
        self.tally = RecordingTally()
        self.policies: tuple[Named, ...] = ()
        self.counts: list[Counts] = []
        self.rows: list[Row] = []
        """Without pictures and evidence."""
        self.runs = self.untimed = 0
        self.noun = "run"
        """What a row is about: "run", or "circuit"."""
        self.pictures = pictures
        self._kept: list[tuple[tuple[int, int, int], int, Row]] = []

    def judged_by(self, policies: Sequence[Named]) -> None:
        """Say which policies judge, before the first row."""
        self.policies = tuple(policies)
        self.counts = [Counts(named.name) for named in policies]

    def add(self, row: Row) -> None:
        """Add one run."""
        if not self.counts:
            self.counts = [Counts(judged.policy) for judged in row.judged]
        self.runs += 1
        self.untimed += not row.run.timed
        for counts, judged in zip(self.counts, row.judged, strict=True):
            counts.add(row.run, judged)
        entry = _importance(row), -self.runs, row
        if len(self._kept) < (self.pictures or _WITH_EVIDENCE):
            heapq.heappush(self._kept, entry)
        else:
            heapq.heappushpop(self._kept, entry)
        bare = tuple(each._replace(evidence=(), heats=()) for each in row.judged)
        self.rows.append(row._replace(judged=bare))

    def most_important(self) -> list[Row]:
        """The rows that are kept whole, the most important first."""
        return [row for _, _, row in sorted(self._kept, reverse=True)]

    def as_whole_as_kept(self) -> list[Row]:
        """All rows in their order, those that are kept whole with their evidence."""
        whole = {-number: row for _, number, row in self._kept}
        return [whole.get(number, row) for number, row in enumerate(self.rows, 1)]


def _importance(row: Row) -> tuple[int, int, int]:
    """False stops, then stops that save most, then the hottest."""
    false_stop = row.run.solved is True and any(judged.stopped for judged in row.judged)
    saved = max(judged.saved_steps if judged.stopped else 0 for judged in row.judged)
    hottest = max(judged.hottest for judged in row.judged)
    return int(false_stop), saved, int(hottest * 1000)


def as_values(found: Found) -> dict[str, Any]:
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
        "policies": [
            {**counts_as_values(counts), "policy": policies.get(counts.policy)}
            for counts in found.counts
        ],
        "rows": [_row(row) for row in found.as_whole_as_kept()],
    }


def counts_as_values(counts: Counts) -> dict[str, Any]:
    """What one policy would have done, as JSON values."""
    plain = {key: value for key, value in vars(counts).items() if key != "policy"}
    return {
        "name": counts.policy,
        **plain,
        "by_detector": dict(counts.by_detector),
        "false_stop_rate": rate_as_values(counts.false_stop_rate),
        "catch_rate": rate_as_values(counts.catch_rate),
    }


def rate_as_values(rate: Rate) -> dict[str, Any]:
    """A rate with its interval, as JSON values."""
    return {"count": rate.seen, "of": rate.total, "rate": rate.value,
            "low_95": rate.low, "high_95": rate.high}  # fmt: skip


def _row(row: Row) -> dict[str, Any]:
    return {**row.run._asdict(), "judged": [_judged(judged) for judged in row.judged]}


def _judged(judged: Judged) -> dict[str, Any]:
    plain = judged._asdict()
    for name in ("heats", "kinds"):
        del plain[name]
    return {
        **plain,
        "stopped": judged.stopped,
        "evidence": [shown._asdict() for shown in judged.evidence],
    }
