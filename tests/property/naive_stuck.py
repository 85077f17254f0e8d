"""What the stuck probability is documented to do, recomputed from the full history, texts as texts."""

from collections.abc import Sequence
from functools import lru_cache
from math import exp
from typing import Any

from property.naive_debts import History, Looked, long_words, looked, resemblance
from switchgear._core.types import Reading, Signal
from switchgear._text.fingerprint import fingerprint

NAMES = ("errors", "same_errors", "repeats", "known_output", "silence", "talk", "echo", "habit")


class Story:
    """What was seen so far, in full."""

    def __init__(self) -> None:
        self.averages = [0.0] * len(NAMES)
        self.thoughts: list[frozenset[str]] = []
        self.actions: list[str] = []
        self.failures: list[str] = []
        self.words: set[str] = set()
        self.lines: set[str] = set()

    def copy(self) -> "Story":
        other = Story()
        for name, value in vars(self).items():
            setattr(other, name, value.copy())
        return other

    def hear(self, signal: Signal) -> None:
        act = signal.step
        assert act is not None
        one, failed = looked(act), signal.ok is False
        thought = one.thought if act.tool else long_words(act.thought or act.args)
        echo = resemblance(thought, self.thoughts[-8:]) / 100 if self.thoughts else 0.0
        shown = [float(failed), 0.0, 0.0, 0.0, 0.0, 1.0, echo, 0.0]
        if act.tool:
            shown = [float(failed), *self.tool(one, signal, failed=failed), 0.0, echo]
            again = float(one.action in self.actions)
            shown.append(self.share(one.words, self.words, again))
            self.actions.append(one.action)
            self.words |= one.words
            self.lines |= one.lines
        if thought:
            self.thoughts.append(thought)
        for place, value in enumerate(shown):
            average = self.averages[place]
            self.averages[place] = min(average + (value - average) * 0.1, 1.0)

    def tool(self, one: Looked, signal: Signal, *, failed: bool) -> list[float]:
        again = float(one.action in self.actions)
        same = 0.0
        if failed:
            how = fingerprint(signal.error or (signal.step and signal.step.result) or "")
            same = float(how in self.failures)
            self.failures.append(how)
        output = self.share(one.lines, self.lines, again)
        return [same, again, output, float(not one.lines)]

    @staticmethod
    def share(these: frozenset[str], known: set[str], otherwise: float) -> float:
        return 1.0 - len(these - known) / len(these) if these else otherwise


@lru_cache(maxsize=64)
def told(signals: tuple[Signal, ...]) -> Story:
    """The story of these signals, by that of all but the last."""
    if not signals:
        return Story()
    story, signal = told(signals[:-1]).copy(), signals[-1]
    for _ in range(signal.count if signal.step is not None else 0):
        story.hear(signal)
    return story


def stuck_probability(detector: Any, history: History, now_s: float) -> Reading:
    return said(detector, told(tuple(signal for _, signal in history)).averages)


def said(detector: Any, averages: Sequence[float]) -> Reading:
    score = detector.bias
    for name, value in zip(NAMES, averages, strict=True):
        score += getattr(detector, name) * value
    likely = 1 / (1 + exp(-score))
    parts = [
        (getattr(detector, name) * value, name, value)
        for name, value in zip(NAMES, averages, strict=True)
    ]
    most = sorted((part for part in parts if part[0] > 0), reverse=True)[:3]
    held = ", ".join(f"{name.replace('_', ' ')} {100 * value:.0f} %" for _, name, value in most)
    why = f": {held}" if held else ""
    reason = f"stuck with a probability of {100 * likely:.0f} %"
    held_against = f"(threshold {100 * detector.threshold:.0f} %)"
    return Reading(round(likely / detector.threshold, 9), f"{reason} {held_against}{why}")
