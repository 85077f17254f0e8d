"""For each detector, signals that must trip it.

An attack contains only the facts that its detector needs, so a path that does not record one of them fails
the test. A threshold that a thousand signals do not reach counts as unreachable.
"""

import math
from collections.abc import Callable, Iterator
from itertools import chain, combinations, count, islice
from typing import Any, NamedTuple

from switchgear import _detectors as kinds
from switchgear._core.detector import Detector
from switchgear._core.machine import step
from switchgear._core.policy import Policy, WeightedSum
from switchgear._core.types import Acquire, AgentStep, Circuit, Phase, Record, Signal

MAX_SIGNALS = 1000
"""Maximum number of signals in an attack."""
PACE_S = 0.1
"""Seconds between two calls: a fast agent makes ten calls a second."""
Timed = tuple[float, Signal]
"""Seconds to wait, then the signal."""


class Attack(NamedTuple):
    """A name, and a function that starts the attack from the beginning."""

    name: str
    signals: Callable[[], Iterator[Timed]]

    def begin(self) -> Iterator[Timed]:
        """The first `MAX_SIGNALS` signals of the attack."""
        return islice(self.signals(), MAX_SIGNALS)


_THOUGHT = "I will try the same build once more and look at the same message again"
_LOOP = AgentStep("Bash", "make all", "make: nothing to be done")
_ERROR = "make: *** no rule to make target 'all'"


def attacks_on(detector: Detector) -> list[Attack]:
    """The attacks on a detector, of which one must trip it.

    >>> [attack.name for attack in attacks_on(kinds.ConsecutiveFailures(3))]
    ['failures']
    >>> sum(1 for _ in attacks_on(kinds.Violation())[0].begin()) <= MAX_SIGNALS
    True
    """
    make = _ATTACKS.get(detector.kind)
    return [] if make is None else make(detector)


Make = Callable[[Any], list[Attack]]


def _repeat(name: str, signal: Signal, wait_s: float = PACE_S) -> list[Attack]:
    return [Attack(name, lambda: ((wait_s, signal) for _ in count()))]


def _always(name: str, signal: Signal, wait_s: float = PACE_S) -> Make:
    """Repeats one signal, for any settings of the detector."""
    return lambda _: _repeat(name, signal, wait_s)


def _slow(detector: Any) -> list[Attack]:
    # Many callers wait for the same slow provider at the same time, so their calls end together.
    slow_s = getattr(detector, "slow_s", detector.slow_from_s)
    return _repeat("slow provider", Signal(ok=True, seconds=2.0 * slow_s + 1.0))


def _decline(detector: Any) -> list[Attack]:
    def timed_signals() -> Iterator[Timed]:
        for _ in range(detector.min_iterations):
            yield 60.0, Signal(output_chars=4000)
        yield from ((60.0, Signal(output_chars=0)) for _ in count())

    return [Attack("output decline", timed_signals)]


def _flood(_: Any) -> list[Attack]:
    def timed_signals() -> Iterator[Timed]:
        return ((1.0, Signal(step=AgentStep("Read", f"file {n}", f"text {n}"))) for n in count())

    return [Attack("tool flood", timed_signals)]


def _growing(name: str, field: str) -> Make:
    """Repeats a duration that grows until it exceeds the limit."""

    def make(detector: Any) -> list[Attack]:
        step_s = detector.limit_s / 4
        signals = lambda: ((step_s, Signal(**{field: n * step_s})) for n in count(1))  # noqa: E731
        return [Attack(name, signals)]

    return make


def _burn(detector: Any) -> list[Attack]:
    # The fastest possible burn: an empty context is full at the end of the window.
    full = ((0.0, Signal(context_used=0.0)), (detector.window_s, Signal(context_used=1.0)))
    return [Attack("context burn", lambda: iter(full))]


def _overspend(detector: Any) -> list[Attack]:
    return _repeat("overspend", Signal(cost_micros=detector.limit_micros // 8 + 1), 0.0)


def _faster(detector: Any) -> list[Attack]:
    # Low costs as the baseline, then costs that certainly exceed the limit.
    def timed_signals() -> Iterator[Timed]:
        for _ in range(4):
            yield detector.window_s, Signal(cost_micros=1)
        much = Signal(cost_micros=detector.least_micros + 10 * math.ceil(detector.factor))
        yield from ((1.0, much) for _ in count())

    return [Attack("overspend", timed_signals)]


_failing = _always("failures", Signal(ok=False))
_loop = _always("loop", Signal(ok=True, step=_LOOP), 1.0)
_repeated_words = _always("loop", Signal(step=_LOOP._replace(thought=_THOUGHT)), 1.0)
_errors = _always("same error", Signal(ok=False, error=_ERROR, step=_LOOP), 1.0)
_talk = _always("talk", Signal(step=AgentStep(thought=_THOUGHT)), 1.0)


def _stuck(detector: Any) -> list[Attack]:
    return [each for make in (_errors, _loop, _repeated_words, _talk) for each in make(detector)]


_ATTACKS: dict[str, Make] = {
    kinds.RepeatedActions.kind: _loop,
    kinds.ConsecutiveFailures.kind: _failing,
    kinds.ContextBurn.kind: _burn,
    kinds.RepeatedErrors.kind: _errors,
    kinds.FailureRate.kind: _failing,
    kinds.FailureShare.kind: _failing,
    kinds.FailuresInWindow.kind: _failing,
    kinds.LatencyP95.kind: _slow,
    kinds.LockWait.kind: _growing("lock convoy", "waited_s"),
    kinds.NoProgress.kind: _always("standing still", Signal(files_changed=0), 60.0),
    kinds.OutputDecline.kind: _decline,
    kinds.RetryAfter.kind: _always("rate limit", Signal(ok=False, retry_after_s=30.0)),
    kinds.SameError.kind: _always("same error", Signal(ok=False, error=_ERROR)),
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
    kinds.Violation.kind: _always(
        "rule breach", Signal(violation="rule force-push: git push --force")
    ),
    kinds.RepeatedThoughts.kind: _repeated_words,
}
"""A new detector needs a row; a test checks this."""


EVERYTHING = frozenset({*Signal._fields, "step.thought", "step without a tool"})
"""The names of all facts, as for `masked`."""
_CALLS_WHEN_OPEN = 40
"""Number of calls to an open circuit: one that admits a share must refuse at least one."""
_MAX_TOGETHER = 3
"""Maximum number of detectors of a weighted score that are attacked together."""


class Trial(NamedTuple):
    """The result of an attack."""

    attack: str
    tripped: bool = False
    detectors: tuple[str, ...] = ()
    """The detectors that tripped."""
    signals: int = 0
    seconds: float = 0.0
    heat: float = 0.0
    """The highest heat of the circuit, or of the attacked detector."""
    reason: str = ""


Mask = Callable[[Signal], Signal]


def masked(sent: frozenset[str]) -> Mask:
    """Returns a function that removes all facts from a signal except those in `sent`.

    >>> masked(frozenset({"ok"}))(Signal(ok=False, seconds=3.0)).seconds is None
    True
    """
    dropped = {name: None for name in Signal._fields if name not in {*sent, "count", "refused"}}

    def mask(signal: Signal) -> Signal:
        reduced = signal._replace(**dropped)  # type: ignore[arg-type]  # None is "not measured"
        taken = reduced.step
        if taken is None:
            return reduced
        if not taken.tool and "step without a tool" not in sent:
            return reduced._replace(step=None)
        if "step.thought" in sent:
            return reduced
        return reduced._replace(step=taken._replace(thought=None))

    return mask


def needed(attack: Attack) -> frozenset[str]:
    """The facts that an attack records."""
    return frozenset().union(*(facts_of(signal) for _, signal in islice(attack.begin(), 50)))


def facts_of(signal: Signal) -> set[str]:
    """The facts in a signal, as `masked` names them."""
    facts = {name for name, value in signal._asdict().items() if value is not None}
    taken: AgentStep | None = signal.step
    if taken is not None and taken.thought and taken.tool:
        facts.add("step.thought")
    if taken is not None and not taken.tool:
        facts.add("step without a tool")
    return facts - {"count", "refused"}


def against(policy: Policy, detector: Detector, mask: Mask | None = None) -> Trial:
    """The attack by which this detector opens the circuit, or the attack that came closest.

    In a weighted score one detector may not be enough: then others are attacked together with it.
    """
    best = Trial("")
    for attack in attacks_on(detector):
        alone = _attempt(Policy([detector]), attack.name, attack.begin(), mask)
        if not alone.tripped:
            best = max(best, alone, key=lambda trial: trial.heat)
            continue
        for signals in _with_others(policy, detector, attack):
            found = _attempt(policy, attack.name, signals, mask)
            if found.tripped and detector.kind in found.detectors:
                return found
            if found.tripped and not isinstance(policy.combine, WeightedSum):
                # Another detector tripped first; this one trips on its own.
                return alone
            best = max(best, found, key=lambda trial: trial.heat)
    return best


def _with_others(policy: Policy, detector: Detector, attack: Attack) -> Iterator[Iterator[Timed]]:
    """The attack alone, then combined with attacks on other detectors, in both orders."""
    yield attack.begin()
    if not isinstance(policy.combine, WeightedSum):
        return
    others = [each for each in policy.detectors if each is not detector]
    for size in range(1, _MAX_TOGETHER):
        for group in combinations(others, size):
            begun = [_until_trip(each) for each in group]
            yield chain(*begun, _until_trip(detector))
            yield chain(_until_trip(detector), *begun)


def _until_trip(detector: Detector) -> list[Timed]:
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


def _attempt(policy: Policy, name: str, signals: Iterator[Timed], mask: Mask | None) -> Trial:
    circuit = policy.start("selftest", 0.0)
    now_s, sent, hottest = 0.0, 0, 0.0
    reason = ""
    for wait_s, signal in signals:
        now_s += wait_s
        sent += 1
        acquired = step(policy, circuit, Acquire(), now_s)
        message = Record(signal if mask is None else mask(signal), acquired.verdict.permit)
        circuit = step(policy, acquired.circuit, message, now_s).circuit
        heat = policy.heat(circuit.memories, now_s)
        if heat >= hottest:
            hottest, reason = heat, policy.reason(circuit.memories, now_s)
        if circuit.phase is Phase.OPEN:
            return _note_opening(policy, circuit, Trial(name, True, (), sent, now_s, heat, reason))
    return Trial(name, False, (), sent, now_s, hottest, reason)


def _note_opening(policy: Policy, circuit: Circuit, trial: Trial) -> Trial:
    readings = policy.readings(circuit.memories, trial.seconds)
    pairs = zip(policy.detectors, readings, strict=True)
    hot = tuple(detector.kind for detector, reading in pairs if reading.heat >= 1)
    for _ in range(_CALLS_WHEN_OPEN):
        acquired = step(policy, circuit, Acquire(), trial.seconds)
        circuit = acquired.circuit
        if not acquired.verdict.admitted:
            return trial._replace(detectors=hot)
    return trial._replace(tripped=False, reason=f"it opens and refuses nothing: {trial.reason}")
