"""The documented values of the deprecated progress detectors, recomputed from the full history.

Texts are compared as texts: no number stands for one, nothing is forgotten but what the agent
itself forgot, and a signal with count n is n steps, one after the other.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from switchgear import _detectors
from switchgear._core.types import AgentStep, Reading, Signal
from switchgear._text.fingerprint import fingerprint

History = Sequence[tuple[float, Signal]]
UUID = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE
)


class InspectedCall(NamedTuple):
    """One step, as the sentences speak of it."""

    thought: frozenset[str]
    words: frozenset[str]
    action: str
    lines: frozenset[str]
    paths: frozenset[str]


def without_variables(text: str) -> str:
    """With a mark for each clock, duration, UUID, and identifier.

    Those are words of six characters with digits in three places, or hexadecimal with digits in two.
    """

    def marked(word: re.Match[str]) -> str:
        places = re.findall(r"\d+", word[0])
        is_hex = not set(word[0].lower()) - set("0123456789abcdef")
        is_number = re.fullmatch(r"\d+e\d+", word[0].lower())
        fewest = 2 if is_hex and not is_number else 3
        return "#" if len(word[0]) >= 6 and len(places) >= fewest else word[0]

    text = re.sub(r"[A-Za-z0-9]+", marked, UUID.sub("#", text))
    return re.sub(r"\d\d:\d\d:\d\d|\d+(\.\d+)? ?s\b", "#", text)


@lru_cache(maxsize=256)
def looked(act: AgentStep) -> InspectedCall:
    action = f"{act.tool} {act.args}"
    lines = without_variables(act.result or "").split("\n")
    return InspectedCall(
        long_words(act.thought or ""),
        frozenset(re.findall(r"\w+", action.lower())),
        re.sub(r"\d+", "#", action),
        frozenset(line.strip() for line in lines if line.strip()),
        frozenset(re.findall(r"\S*/\S+|\b\w+\.[a-z]{1,5}\b", act.args)),
    )


def long_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]{3,}", text.lower()))


def resemblance(one: frozenset[str], others: list[frozenset[str]]) -> int:
    """How much it resembles the most similar of the others, in percent."""
    return max(100 * len(one & other) // len(one | other) if one | other else 0 for other in others)


class Story:
    """The full history so far, and the value that results from it."""

    def __init__(self) -> None:
        self.debt = 0
        self.evidence: list[tuple[int, str]] = []
        self.recent: list[frozenset[str]] = []
        self.words: set[str] = set()
        self.lines: set[str] = set()
        self.paths: set[str] = set()
        self.actions: set[str] = set()
        self.failed: set[str] = set()
        self.failures: list[tuple[str, str]] = []
        self.last: str | None = None
        self.states: list[str] = []
        self.tests: list[str] = []
        self.tested: str | None = None
        self.context = 0.0

    def copy(self) -> "Story":
        other = Story()
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if hasattr(value, "copy") else value)
        return other

    def hear(self, signal: Signal) -> tuple[bool, bool, bool, bool]:
        """Whether the state is new, or an earlier one; the tests are new, or no better for it."""
        state, tests = signal.state, signal.failing_tests
        if signal.context_used is not None:
            if round(100 * signal.context_used) * 2 <= self.context:
                for known in (self.words, self.lines, self.paths, self.actions, self.failed):
                    known.clear()
                self.recent = []
            self.context = round(100 * signal.context_used)
        is_new = bool(self.states) and state is not None and state not in self.states
        is_back = state in self.states and state != self.states[-1]
        self.states += [state] if state is not None and state not in self.states[-1:] else []
        new_tests = bool(self.tests) and tests is not None and tests not in self.tests
        same = tests is not None and [tests] == self.tests[-1:]
        here = self.states[-1] if self.states else None
        no_better = same and self.tested not in (None, here) and signal.ok is False
        if tests is not None:
            self.tests.append(tests)
            self.tested = here
        return is_new, is_back, new_tests, no_better

    def settle(self, points: int, text: str, limit: float) -> None:
        self.debt = max(0, min(self.debt + points, round(200 * limit)))
        if points > 0:
            self.evidence = [*self.evidence, (points, " ".join(text.split())[:60])][-3:]
        if not self.debt:
            self.evidence = []

    def learn(self, one: InspectedCall) -> None:
        self.words |= one.words
        self.lines |= one.lines
        self.paths |= one.paths


def words(detector: _detectors.RepeatedThoughts, story: Story, signal: Signal) -> None:
    is_new, _, new_tests, _ = story.hear(signal)
    points, text = -100 * (is_new + new_tests), ""
    if signal.step is not None and signal.step.tool:
        one = looked(signal.step)
        if len(one.thought) >= 3:
            text = signal.step.thought or ""
            points -= min(100, round(100 * detector.credit * len(one.words - story.words)))
            if story.recent:
                points += resemblance(one.thought, story.recent) - round(100 * detector.usual)
            story.recent = [*story.recent, one.thought][-detector.remember :]
        points -= 75 * (signal.ok is not False and bool(one.paths - story.paths))
        story.learn(one)
    story.settle(points, text, detector.limit)


def actions(detector: _detectors.RepeatedActions, story: Story, signal: Signal) -> None:
    is_new, is_back, new_tests, _ = story.hear(signal)
    points, text = (
        100 * (is_back - is_new - new_tests),
        "went back to an earlier state of the files",
    )
    if (act := signal.step) is not None and act.tool:
        one, text = looked(act), f"{act.tool} {act.args}"
        if one.action in story.actions:
            points += 100
        elif signal.ok is not False:
            points -= 100
        elif story.recent:
            points += round(0.5 * resemblance(one.words, story.recent))
        if act.result is not None and not act.result.strip():
            points += 50
        if one.lines:
            points -= 100 * len(one.lines - story.lines) // len(one.lines)
        points -= 100 * bool(one.paths - story.paths)
        points -= min(100, round(100 * detector.credit * len(one.words - story.words)))
        story.actions.add(one.action)
        story.recent = [*story.recent, one.words][-8:]
        story.learn(one)
    story.settle(points, text, detector.limit)


def errors(detector: _detectors.RepeatedErrors, story: Story, signal: Signal) -> None:
    _, _, new_tests, no_better = story.hear(signal)
    points, text = 100 * no_better - 200 * new_tests, "the files changed and the same tests fail"
    if (act := signal.step) is not None and act.tool and signal.ok is not None:
        one = looked(act)
        points -= 50 * bool(one.paths - story.paths)
        points -= min(50, round(100 * detector.credit * len(one.words - story.words)))
        if signal.ok:
            points -= 100 if one.action in story.failed else 20
            story.failed.discard(one.action)
            story.last = None
        else:
            text = signal.error or f"{act.tool} {act.args}"
            how = fingerprint(signal.error or act.result or "")
            cost = 100 + 50 * max(
                how == story.last, min(4, story.failures[-32:].count((one.action, how)))
            )
            if one.lines:
                cost -= 50 * len(one.lines - story.lines) // len(one.lines)
            if len(one.thought) >= 3 and story.recent:
                cost = cost * min(100, 40 + resemblance(one.thought, story.recent)) // 100
            points += cost
            story.failures.append((one.action, how))
            story.failed.add(one.action)
            story.last = how
        if len(one.thought) >= 3:
            story.recent = [*story.recent, one.thought][-8:]
        story.learn(one)
    story.settle(points, text, detector.limit)


def talk(detector: _detectors.IdleTalk, story: Story, signal: Signal) -> None:
    if (act := signal.step) is None:
        return
    if act.tool:
        story.settle(-100, "", detector.limit)
        return
    text = act.thought or act.args
    said, points = long_words(text), 0
    if story.recent:
        points = resemblance(said, story.recent) - round(100 * detector.usual)
    story.recent = [*story.recent, said][-detector.remember :]
    story.settle(points, text, detector.limit)


def hear(tell: Callable[..., None], detector: Any, story: Story, signal: Signal) -> None:
    """Add one signal, as often as its count."""
    if signal.step is None and signal.state is None and signal.failing_tests is None:
        return
    for _ in range(signal.count):
        tell(detector, story, signal)


@lru_cache(maxsize=64)
def told(tell: Callable[..., None], detector: Any, signals: tuple[Signal, ...]) -> Story:
    """The history of these signals, from that of all but the last."""
    if not signals:
        return Story()
    story = told(tell, detector, signals[:-1]).copy()
    hear(tell, detector, story, signals[-1])
    return story


def reading_of(detector: Any, story: Story) -> Reading:
    """The documented reading of a detector for a story."""
    debt = f"{story.debt / 100:.2f} steps (threshold {detector.limit:g})"
    steps = ", ".join(f'"{text}" (+{points / 100:.2f})' for points, text in story.evidence)
    why = f": {steps}; {detector.advice}" if steps else ""
    return Reading(story.debt / 100 / detector.limit, f"{detector.name}: {debt}{why}")


def reading_by(tell: Callable[..., None]) -> Callable[[Any, History, float], Reading]:
    """The documented reading of a detector for a history."""

    def reading(detector: Any, history: History, now_s: float) -> Reading:
        return reading_of(detector, told(tell, detector, tuple(signal for _, signal in history)))

    return reading
