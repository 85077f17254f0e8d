"""For each detector the history that it exists to see: what to tell a circuit so that it trips.

An attack holds no fact that its detector does not need, so that a path which lacks one of them is
found out. It ends: a threshold that a thousand signals do not reach is one that nobody reaches.
"""

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, NamedTuple

from switchgear import _detectors as kinds
from switchgear._core.detector import Detector
from switchgear._core.types import AgentStep, Signal

MOST = 1000
"""Signals in an attack, at most."""
PACE_S = 0.1
"""Between two calls: ten a second is what a hammering agent reaches."""
Timed = tuple[float, Signal]
"""Seconds to wait, then what happens."""


class Attack(NamedTuple):
    """A name for it, and a way to begin it anew."""

    name: str
    signals: Callable[[], Iterator[Timed]]

    def begin(self) -> Iterator[Timed]:
        """From the beginning, bounded."""
        return islice(self.signals(), MOST)


_THOUGHT = "I will try the same build once more and look at the same message again"
_LOOP = AgentStep("Bash", "make all", "make: nothing to be done")
_ERROR = "make: *** no rule to make target 'all'"


def attacks_on(detector: Detector) -> list[Attack]:
    """The attacks that a detector should see; one that trips it is enough.

    >>> [attack.name for attack in attacks_on(kinds.ConsecutiveFailures(3))]
    ['failures']
    >>> sum(1 for _ in attacks_on(kinds.Violation())[0].begin()) <= MOST
    True
    """
    make = _ATTACKS.get(detector.kind)
    return [] if make is None else make(detector)


def _again(name: str, signal: Signal, wait_s: float = PACE_S) -> list[Attack]:
    return [Attack(name, lambda: ((wait_s, signal) for _ in count()))]


def _dead(detector: Any) -> list[Attack]:
    del detector
    return _again("failures", Signal(ok=False))


def _limited(detector: Any) -> list[Attack]:
    del detector
    return _again("rate limit", Signal(ok=False, retry_after_s=30.0))


def _slow(detector: Any) -> list[Attack]:
    # Many callers at once wait for the same slow provider, so calls end close to each other.
    slow_s = getattr(detector, "slow_s", detector.slow_from_s)
    return _again("slow provider", Signal(ok=True, seconds=2.0 * slow_s + 1.0))


def _same_error(detector: Any) -> list[Attack]:
    del detector
    return _again("same error", Signal(ok=False, error=_ERROR))


def _standing_still(detector: Any) -> list[Attack]:
    del detector
    return _again("standing still", Signal(files_changed=0), 60.0)


def _decline(detector: Any) -> list[Attack]:
    def told() -> Iterator[Timed]:
        for _ in range(detector.min_iterations):
            yield 60.0, Signal(output_chars=4000)
        yield from ((60.0, Signal(output_chars=0)) for _ in count())

    return [Attack("output decline", told)]


def _loop(detector: Any) -> list[Attack]:
    del detector
    return _again("loop", Signal(ok=True, step=_LOOP), 1.0)


def _flood(detector: Any) -> list[Attack]:
    del detector
    return [
        Attack(
            "tool flood",
            lambda: (
                (1.0, Signal(step=AgentStep("Read", f"file {n}", f"text {n}"))) for n in count()
            ),
        )
    ]


def _growing(name: str, field: str) -> Callable[[Any], list[Attack]]:
    """Seconds that add up until the limit is passed."""

    def make(detector: Any) -> list[Attack]:
        step_s = detector.limit_s / 4

        def told() -> Iterator[Timed]:
            return ((step_s, Signal(**{field: n * step_s})) for n in count(1))

        return [Attack(name, told)]

    return make


def _burn(detector: Any) -> list[Attack]:
    # The fastest burn there is: the window is empty, and full as soon as it is judged.
    def told() -> Iterator[Timed]:
        yield 0.0, Signal(context_used=0.0)
        yield detector.window_s, Signal(context_used=1.0)

    return [Attack("context burn", told)]


def _overspend(detector: Any) -> list[Attack]:
    return _again("overspend", Signal(cost_micros=detector.limit_micros // 8 + 1), 0.0)


def _breach(detector: Any) -> list[Attack]:
    del detector
    return _again("rule breach", Signal(violation="rule force-push: git push --force"))


def _words(detector: Any) -> list[Attack]:
    del detector
    return _again("loop", Signal(step=_LOOP._replace(thought=_THOUGHT)), 1.0)


def _errors(detector: Any) -> list[Attack]:
    del detector
    return _again("same error", Signal(ok=False, error=_ERROR, step=_LOOP), 1.0)


def _talk(detector: Any) -> list[Attack]:
    del detector
    return _again("talk", Signal(step=AgentStep(thought=_THOUGHT)), 1.0)


def _stuck(detector: Any) -> list[Attack]:
    """What its model minds is the user's; so every way to be stuck is tried."""
    return [each for make in (_errors, _loop, _words, _talk) for each in make(detector)]


_ATTACKS: dict[str, Callable[[Any], list[Attack]]] = {
    kinds.RepeatedActions.kind: _loop,
    kinds.ConsecutiveFailures.kind: _dead,
    kinds.ContextBurn.kind: _burn,
    kinds.RepeatedErrors.kind: _errors,
    kinds.FailureRate.kind: _dead,
    kinds.FailureShare.kind: _dead,
    kinds.FailuresInWindow.kind: _dead,
    kinds.LatencyP95.kind: _slow,
    kinds.LockWait.kind: _growing("lock convoy", "waited_s"),
    kinds.NoProgress.kind: _standing_still,
    kinds.OutputDecline.kind: _decline,
    kinds.RetryAfter.kind: _limited,
    kinds.SameError.kind: _same_error,
    kinds.SameTool.kind: _loop,
    kinds.Silence.kind: _growing("hang", "idle_s"),
    kinds.SlowCallShare.kind: _slow,
    kinds.SlowCalls.kind: _slow,
    kinds.Spend.kind: _overspend,
    kinds.StuckProbability.kind: _stuck,
    kinds.IdleTalk.kind: _talk,
    kinds.ToolFlood.kind: _flood,
    kinds.TotalCost.kind: _overspend,
    kinds.Violation.kind: _breach,
    kinds.RepeatedThoughts.kind: _words,
}
"""A new detector needs a row; a test says so."""
