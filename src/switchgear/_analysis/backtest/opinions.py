"""How often second opinions were right: compares verdicts in the store with outcomes of runs."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from switchgear._analysis.backtest.replay import RunFacts
from switchgear._opinion.opinion import CONFIRM, DELAY, HINT, NONE, verdict_of

_SESSION = "session/"
_RIGHT = {CONFIRM: False, DELAY: True}
"""The outcome that each verdict predicts: whether the run succeeds."""


class OpinionAccuracy:
    """Counts verdicts, and those that the outcomes of runs confirm. Used by one thread."""

    def __init__(self) -> None:
        self._verdicts: dict[str, list[str]] = {}
        self.given: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        """Verdicts about runs with a known outcome."""
        self.right: Counter[str] = Counter()

    def add(self, circuit: str, sentence: str) -> None:
        verdict = verdict_of(sentence)
        if verdict:
            self.given[verdict] += 1
            name = circuit.removeprefix(_SESSION).removeprefix("run-")
            self._verdicts.setdefault(name, []).append(verdict)

    def compare(self, runs: Iterable[RunFacts]) -> None:
        """Compare with the outcomes of these runs; a run counts once for each of its verdicts."""
        for run in runs:
            if run.solved is None:
                continue
            for verdict in self._verdicts.get(run.id, ()):
                self.known[verdict] += 1
                self.right[verdict] += _RIGHT.get(verdict, True) is run.solved

    def as_values(self) -> dict[str, Any]:
        """As JSON values: for each verdict the number given, with a known outcome, and confirmed by it."""
        return {
            verdict: {
                "given": self.given[verdict],
                "known": self.known[verdict],
                "right": self.right[verdict],
            }
            for verdict in (CONFIRM, DELAY, HINT, NONE)
            if self.given[verdict]
        }
