"""One attack on one policy, through `step`: whether the circuit cuts, when, and by what."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from switchgear._analysis.selftest.attacks import Attack, Timed, attacks_on
from switchgear._core.detector import Detector
from switchgear._core.machine import step
from switchgear._core.policy import Policy, WeightedSum
from switchgear._core.types import Acquire, AgentStep, Circuit, Phase, Record, Signal

EVERYTHING = frozenset({*Signal._fields, "step.thought", "act without a tool"})
"""The facts that there are, as `masked` names them."""
_ASKS = 40
"""How often an open circuit is asked: one that admits a share must refuse at least one."""
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
    """What is left of a signal where only these facts are told.

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
    """The facts that an attack tells."""
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


def attacked(policy: Policy, attack: Attack, mask: Mask | None = None) -> Trial:
    """Send an attack to a new circuit until it opens; an open one must refuse."""
    return _sent(policy, attack.name, attack.begin(), mask)


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
