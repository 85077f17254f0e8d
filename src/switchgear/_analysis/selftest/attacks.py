"""For each detector, the signals that it exists to detect: recorded on a circuit, they trip it.

An attack holds no fact that its detector does not need, so that a path which lacks one of them is
found out. It ends: a threshold that a thousand signals do not reach counts as unreachable.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, count, islice
from typing import Any, NamedTuple

from switchgear import _detectors as kinds
from switchgear._core.detector import Detector
from switchgear._core.machine import step
from switchgear._core.policy import Policy, WeightedSum
from switchgear._core.types import Acquire, AgentStep, Circuit, Phase, Record, Signal

MOST = 1000
"""Signals in an attack, at most."""
PACE_S = 0.1
"""Between two calls: ten a second is what a hammering agent reaches."""
Timed = tuple[float, Signal]
"""Seconds to wait, then what happens."""


class Attack(NamedTuple):
    """A name for it, and a function that starts it again."""

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


def _faster(detector: Any) -> list[Attack]:
    # A cheap beginning that is the baseline, then as much at once as is surely too much.
    def told() -> Iterator[Timed]:
        for _ in range(4):
            yield detector.window_s, Signal(cost_micros=1)
        much = Signal(cost_micros=detector.least_micros + 10 * math.ceil(detector.factor))
        yield from ((1.0, much) for _ in count())

    return [Attack("overspend", told)]


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
    """Every way to be stuck."""
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
    kinds.SpendVelocity.kind: _faster,
    kinds.Stagnation.kind: _stuck,
    kinds.IdleTalk.kind: _talk,
    kinds.ToolFlood.kind: _flood,
    kinds.TotalCost.kind: _overspend,
    kinds.Violation.kind: _breach,
    kinds.RepeatedThoughts.kind: _words,
}
"""A new detector needs a row; a test checks this."""


EVERYTHING = frozenset({*Signal._fields, "step.thought", "act without a tool"})
"""The facts that there are, as `masked` names them."""
_ASKS = 40
"""Number of calls to an open circuit: one that admits a share must refuse at least one."""
_MOST_TOGETHER = 3
"""How many weighed detectors are attacked one after the other, at most."""


class Trial(NamedTuple):
    """What came of an attack."""

    attack: str
    tripped: bool = False
    detectors: tuple[str, ...] = ()
    """Those that tripped."""
    signals: int = 0
    seconds: float = 0.0
    heat: float = 0.0
    """The most that the circuit, or the detector in question, came to."""
    reason: str = ""


Mask = Callable[[Signal], Signal]


def masked(sent: frozenset[str]) -> Mask:
    """What is left of a signal where only these facts are recorded.

    >>> masked(frozenset({"ok"}))(Signal(ok=False, seconds=3.0)).seconds is None
    True
    """
    dropped = {name: None for name in Signal._fields if name not in {*sent, "count", "refused"}}

    def mask(signal: Signal) -> Signal:
        left = signal._replace(**dropped)  # type: ignore[arg-type]  # None is "not measured"
        act = left.step
        if act is None:
            return left
        if not act.tool and "act without a tool" not in sent:
            return left._replace(step=None)
        return left if "step.thought" in sent else left._replace(step=act._replace(thought=None))

    return mask


def needed(attack: Attack) -> frozenset[str]:
    """The facts that an attack records."""
    found: set[str] = set()
    for _, signal in _some(attack.begin()):
        found |= facts_of(signal)
    return frozenset(found)


def facts_of(signal: Signal) -> set[str]:
    """The facts in a signal, as `masked` names them."""
    told = {name for name, value in signal._asdict().items() if value is not None}
    act: AgentStep | None = signal.step
    if act is not None and act.thought and act.tool:
        told.add("step.thought")
    if act is not None and not act.tool:
        told.add("act without a tool")
    return told - {"count", "refused"}


def against(policy: Policy, detector: Detector, mask: Mask | None = None) -> Trial:
    """The attack that makes this detector of the policy open the circuit, or the nearest miss.

    Where detectors are weighed, one alone may not be enough: then others are attacked with it.
    """
    best = Trial("")
    for attack in attacks_on(detector):
        alone = _sent(Policy([detector]), attack.name, attack.begin(), mask)
        if not alone.tripped:
            best = max(best, alone, key=lambda trial: trial.heat)
            continue
        for signals in _with_others(policy, detector, attack):
            found = _sent(policy, attack.name, signals, mask)
            if found.tripped and detector.kind in found.detectors:
                return found
            if found.tripped and not isinstance(policy.combine, WeightedSum):
                # Another one was quicker; that this one fires was seen alone.
                return alone
            best = max(best, found, key=lambda trial: trial.heat)
    return best


def _with_others(policy: Policy, detector: Detector, attack: Attack) -> Iterator[Iterator[Timed]]:
    """The attack alone, then behind those on other detectors, of which each was seen to trip."""
    yield attack.begin()
    if not isinstance(policy.combine, WeightedSum):
        return
    others = [each for each in policy.detectors if each is not detector]
    for size in range(1, _MOST_TOGETHER):
        for group in combinations(others, size):
            begun = [_until_hot(each) for each in group]
            yield _chained([*begun, _until_hot(detector)])
            yield _chained([_until_hot(detector), *begun])


def _until_hot(detector: Detector) -> list[Timed]:
    """The beginning of an attack, up to the signal at which the detector trips."""
    for attack in attacks_on(detector):
        sent: list[Timed] = []
        memory, now_s = detector.start(), 0.0
        for wait_s, signal in attack.begin():
            now_s += wait_s
            sent.append((wait_s, signal))
            memory = detector.fold(memory, signal, now_s)
            if detector.heat(memory, now_s) >= 1:
                return sent
    return []


def _chained(parts: Sequence[Iterable[Timed]]) -> Iterator[Timed]:
    for part in parts:
        yield from part


def _sent(policy: Policy, name: str, signals: Iterator[Timed], mask: Mask | None) -> Trial:
    circuit = policy.start("selftest", 0.0)
    now_s, sent, hottest = 0.0, 0, 0.0
    reason = ""
    for wait_s, signal in signals:
        now_s += wait_s
        sent += 1
        asked = step(policy, circuit, Acquire(), now_s)
        told = Record(signal if mask is None else mask(signal), asked.verdict.permit)
        circuit = step(policy, asked.circuit, told, now_s).circuit
        heat = policy.heat(circuit.memories, now_s)
        if heat >= hottest:
            hottest, reason = heat, policy.reason(circuit.memories, now_s)
        if circuit.phase is Phase.OPEN:
            return _opened(policy, circuit, Trial(name, True, (), sent, now_s, heat, reason))
    return Trial(name, False, (), sent, now_s, hottest, reason)


def _opened(policy: Policy, circuit: Circuit, trial: Trial) -> Trial:
    readings = policy.readings(circuit.memories, trial.seconds)
    pairs = zip(policy.detectors, readings, strict=True)
    hot = tuple(detector.kind for detector, reading in pairs if reading.heat >= 1)
    for _ in range(_ASKS):
        asked = step(policy, circuit, Acquire(), trial.seconds)
        circuit = asked.circuit
        if not asked.verdict.admitted:
            return trial._replace(detectors=hot)
    return trial._replace(tripped=False, reason=f"it opens and refuses nothing: {trial.reason}")


def _some(signals: Iterator[Timed], enough: int = 50) -> Iterator[Timed]:
    for _, timed in zip(range(enough), signals, strict=False):
        yield timed
