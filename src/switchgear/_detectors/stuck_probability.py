"""The probability that a run is stuck, by a small model that `switchgear tune` trains on one's runs.

The model is a logistic regression over moving averages of what each step shows. All averages forget
at the same pace, so under equal steps the probability goes one way. There is no count of steps in
it: a long run is not a stuck one.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import AgentStep, Signal
from switchgear._detectors.progress import RING, ProgressMemory, known, new_of
from switchgear._detectors.step_facts import alike, facts_of, failure_of, words_of

PACE = 0.1
"""The share of an average that a new step makes."""
REMEMBER = 8
"""Thoughts that a new one is compared with."""
FEATURES = ("errors", "same_errors", "repeats", "known_output", "silence", "talk", "echo", "habit")
"""What is averaged over the steps, each from 0 to 1; see `shows`."""
_CALM = (0.0,) * len(FEATURES)
_LOOPS = (
    *((1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0)),
    *((0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0)),
    *((1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0)),
    (0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0),
)
"""What the averages become of when one step is repeated for ever: failing or not, with output or
none, with a thought or none, or only talk."""


Averages = tuple[float, ...]


class Trail(NamedTuple):
    """What is remembered: the averages, and what was seen."""

    averages: Averages = _CALM
    book: ProgressMemory = ProgressMemory()


class StuckProbability(Detector):
    """Trips when the probability that the run is stuck reaches `threshold` (default 0.9).

    `bias` and the weights are what `switchgear tune --model` finds; a step that is repeated for
    ever must be able to trip it, and nothing at all must not. The defaults are a start, not advice.

    >>> StuckProbability().reason(Trail(), now_s=0.0)
    'stuck with a probability of 2 % (threshold 90 %)'
    """

    __slots__ = ("threshold", "bias", *FEATURES)
    kind: ClassVar[str] = "stuck_probability"
    threshold: float
    bias: float

    def __init__(
        self,
        threshold: float = 0.9,
        bias: float = -4.0,
        *,
        errors: float = 1.0,
        same_errors: float = 2.0,
        repeats: float = 3.0,
        known_output: float = 2.0,
        silence: float = 0.0,
        talk: float = 1.0,
        echo: float = 3.0,
        habit: float = 1.0,
    ) -> None:
        given = (errors, same_errors, repeats, known_output, silence, talk, echo, habit)
        weights = {
            name: values.number(f"StuckProbability.{name}", value)
            for name, value in zip(FEATURES, given, strict=True)
        }
        self._set(
            threshold=values.fraction("StuckProbability.threshold", threshold, low_open=True),
            bias=values.number("StuckProbability.bias", bias),
            **weights,
        )
        if self.probability(_CALM) >= self.threshold:
            rule = "it must be so low that nothing at all does not trip"
            raise ValueError(f"StuckProbability.bias is {bias!r}: {rule}")
        if max(map(self.probability, _LOOPS)) <= self.threshold:
            rule = "it must be so low that a step repeated for ever trips"
            raise ValueError(f"StuckProbability.threshold is {threshold!r}: {rule}")

    def start(self) -> Trail:
        """Nothing was seen."""
        return Trail()

    def fold(self, memory: Trail, signal: Signal, now_s: float) -> Trail:
        """Each step by itself, until one more of the same changes nothing."""
        del now_s
        if signal.step is None:
            return memory
        averages, book = memory
        for left in range(signal.count, 0, -1):
            shown, after = shows(book, signal)
            if after == book:  # then the next ones show the same
                return Trail(_averaged(averages, shown, left), book)
            averages, book = _averaged(averages, shown), after
        return Trail(averages, book)

    def heat(self, memory: Trail, now_s: float) -> float:
        """The probability against the threshold."""
        del now_s
        # Rounded, so that the last bits of a float do not go up and down.
        return round(self.probability(memory.averages) / self.threshold, 9)

    def probability(self, averages: Averages) -> float:
        """What the model says of the averages."""
        weights = [getattr(self, name) for name in FEATURES]
        return probability(self.bias, weights, averages)

    def reason(self, memory: Trail, now_s: float) -> str:
        """The probability, and what speaks most for it."""
        del now_s
        likely = self.probability(memory.averages)
        said = f"stuck with a probability of {likely:.0%} (threshold {self.threshold:.0%})"
        pairs = zip(FEATURES, memory.averages, strict=True)
        parts = [(getattr(self, name) * value, name, value) for name, value in pairs]
        most = sorted([part for part in parts if part[0] > 0.0], reverse=True)[:3]
        held = ", ".join(f"{name.replace('_', ' ')} {value:.0%}" for _, name, value in most)
        return f"{said.replace('%', ' %')}{': ' if held else ''}{held.replace('%', ' %')}"

    def measure(self, memory: Trail, now_s: float) -> Measure:
        """The probability."""
        del now_s
        return Measure(self.probability(memory.averages), self.threshold, "probability")

    def dump(self, memory: Trail) -> list[Any]:
        """The averages, and what was seen."""
        return [list(memory.averages), memory.book.dump()]

    def load(self, data: Any) -> Trail:
        """The inverse of `dump`."""
        averages, book = values.row("a trail", data, 2)
        found = values.row("the averages", averages, len(FEATURES))
        return Trail(
            tuple([values.fraction("an average", each, whole_too=True) for each in found]),
            ProgressMemory.load(book, most=0, remember=REMEMBER),
        )


def probability(bias: float, weights: Sequence[float], averages: Sequence[float]) -> float:
    """The logistic function of the bias and the weighted averages."""
    score = bias
    for weight, average in zip(weights, averages, strict=True):
        score += weight * average
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(score, 60.0))))


def moved_on(memory: Trail, signal: Signal) -> Trail:
    """The averages and what was seen after one step; the signal has an act."""
    shown, book = shows(memory.book, signal)
    return Trail(_averaged(memory.averages, shown), book)


def _averaged(averages: Averages, shown: Averages, times: int = 1) -> Averages:
    for _ in range(times):
        pairs = zip(averages, shown, strict=True)
        after = tuple([average + (value - average) * PACE for average, value in pairs])
        if after == averages:
            break
        averages = after
    return averages


def shows(book: ProgressMemory, signal: Signal) -> tuple[Averages, ProgressMemory]:
    """What one step shows, in the order of `FEATURES`, and what was seen after it.

    errors: it failed; same errors: as it failed before; repeats: the action was seen before; known
    output: the share of its lines that were; silence: nothing came back; talk: no tool was called;
    echo: how much its thought resembles the most similar of the last; habit: the share of the
    action's words that were seen before. Of talk only errors and echo are used.
    """
    act = signal.step or AgentStep()
    facts = facts_of(act)
    thought = facts.thought if act.tool else words_of(act.thought or act.args)
    echo = max([alike(thought, other) for other in book.recent], default=0) / 100
    if thought:
        book = book._replace(recent=(*book.recent, thought)[-REMEMBER:])
    failed = float(signal.ok is False)
    if not act.tool:
        return (failed, 0.0, 0.0, 0.0, 0.0, 1.0, echo, 0.0), book
    failure = (failure_of(signal),) if failed else ()
    again = float(facts.key in book.keys)
    shown = (
        failed,
        float(new_of(failure, book.failures) < len(failure)),
        again,
        _known_share(facts.lines, book.lines, again),
        float(facts.is_silent),
        0.0,
        echo,
        _known_share(facts.words, book.words, again),
    )
    after = book._replace(
        words=known(book.words, facts.words),
        lines=known(book.lines, facts.lines),
        keys=known(book.keys, (facts.key,)),
        failures=known(book.failures, failure, RING),
    )
    return shown, after


def _known_share(numbers: tuple[int, ...], before: tuple[int, ...], otherwise: float) -> float:
    """The share that was seen before; where there is nothing to share out, `otherwise`."""
    return 1.0 - new_of(numbers, before) / len(numbers) if numbers else otherwise
