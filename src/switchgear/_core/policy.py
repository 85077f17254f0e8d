"""The policy of a circuit: detectors, how they combine, and how an open circuit recovers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import Detector
from switchgear._core.types import Circuit, Probing, Reading, Signal
from switchgear._core.values import Value


class Recovery(Value):
    """Base of the recovery rules."""

    __slots__ = ()

    kind: ClassVar[str]
    probes: int = 0
    """Maximum number of concurrent probes; 0: the circuit closes without a probe."""
    successes: int = 1
    """Number of successful probes that close the circuit."""
    of: int | None = None
    """Number of probes of which `successes` must succeed; `None`: all, so one failure re-opens the circuit."""
    lease_s: float | None = None
    """Seconds after which another probe replaces a probe without a result; `None`: the cooldown."""

    ends: ClassVar[bool] = True
    """Whether an open circuit recovers without an operator."""

    @property
    def results_needed(self) -> int:
        """Number of results after which the outcome is certain."""
        return self.successes if self.of is None else self.of

    def may_probe(self, probing: Probing) -> bool:
        """Whether one more probe may begin: fewer than `probes` are running, and its result can still matter."""
        under_way = len(probing.permits)
        if self.of is None:  # the first result decides, so that a hanging probe delays nothing
            return under_way < self.probes
        known = probing.successes + probing.failures
        return under_way < min(self.probes, self.of - known)

    def lease_after_s(self, cooldown_s: float) -> float:
        """The lease of a probe after this wait, in seconds; used only if the recovery has probes."""
        raise NotImplementedError

    def wait_s(self, key: str, failed_probes: int, signal: Signal, now_s: float) -> float | None:
        """Seconds to stay open from `now_s` on; `None`: until an operator resets it."""
        raise NotImplementedError


class Cooldown(Recovery):
    """Waits `base_s` seconds, then lets probes decide; each failed probe makes the wait longer.

    - The n-th wait is `base_s * factor ** (n - 1)`, at most `max_s` (default: five times the base).
    - `jitter` shortens each wait by up to that share, so that many breakers do not retry at the same time.
      It is a pure function of the circuit's name and the time of the trip.
    - A failure that carried a Retry-After sets the wait itself, up to `retry_after_max_s` (1 h).
    - Up to `probes` calls may probe at a time; `successes` of them close the circuit, one failure
      re-opens it.
    - With `of=k`, `successes` of `k` probes close the circuit, and it re-opens as soon as too many
      have failed for that to be possible. Use it for a dependency that always fails some calls. At
      most `k` probes are admitted.
    - A probe without a result after `lease_s` seconds (default: as long as the wait before it, and
      not less than `base_s`) is replaced by another probe, so that a hung probe cannot block the
      circuit. Its result still counts if it arrives before another probe decides.

    >>> [Cooldown(60, max_s=300).wait_s("k", n, Signal(), 0.0) for n in range(5)]
    [60.0, 120.0, 240.0, 300.0, 300.0]
    """

    __slots__ = (  # noqa: RUF023  the constructor's order
        "base_s",
        "max_s",
        "factor",
        "jitter",
        "probes",
        "successes",
        "lease_s",
        "retry_after_max_s",
        "of",
    )
    kind: ClassVar[str] = "cooldown"
    base_s: float
    max_s: float
    factor: float
    jitter: float
    retry_after_max_s: float

    def __init__(
        self,
        base_s: float = 60.0,
        max_s: float | None = None,
        *,
        factor: float = 2.0,
        jitter: float = 0.0,
        probes: int = 1,
        successes: int = 1,
        lease_s: float | None = None,
        retry_after_max_s: float = 3600.0,
        of: int | None = None,
    ) -> None:
        base_s = values.check_seconds("Cooldown.base_s", base_s)
        if max_s is None and math.isinf(5 * base_s):
            raise ValueError(
                f"Cooldown.base_s is {base_s:g}: five times as much, the default of max_s, must be "
                "a finite number of seconds"
            )
        max_s = 5 * base_s if max_s is None else values.check_seconds("Cooldown.max_s", max_s)
        if base_s > max_s:
            raise ValueError(
                f"Cooldown.base_s is {base_s:g}: it must not be above max_s, {max_s:g}"
            )
        successes = values.check_int("Cooldown.successes", successes)
        if of is not None and values.check_int("Cooldown.of", of) < successes:
            raise ValueError(
                f"Cooldown.of is {of}: it must not be below successes, which is {successes}"
            )
        self._set(
            base_s=base_s,
            max_s=max_s,
            factor=values.check_at_least("Cooldown.factor", factor, 1.0),
            jitter=values.check_fraction("Cooldown.jitter", jitter),
            probes=values.check_int("Cooldown.probes", probes),
            successes=successes,
            of=of,
            lease_s=None if lease_s is None else values.check_seconds("Cooldown.lease_s", lease_s),
            retry_after_max_s=values.check_seconds("Cooldown.retry_after_max_s", retry_after_max_s),
        )

    def wait_s(self, key: str, failed_probes: int, signal: Signal, now_s: float) -> float:
        """The requested wait (Retry-After), else the backoff."""
        if signal.retry_after_s is not None and signal.retry_after_s > 0:
            return min(signal.retry_after_s, self.retry_after_max_s)
        wait = self._backoff_s(failed_probes)
        return wait * (1.0 - self.jitter * spread(key, now_s)) if self.jitter else wait

    def lease_after_s(self, cooldown_s: float) -> float:
        """The lease of a probe: a short Retry-After does not shorten it."""
        return max(cooldown_s, self.base_s) if self.lease_s is None else self.lease_s

    def _backoff_s(self, failed_probes: int) -> float:
        try:
            return min(self.max_s, self.base_s * self.factor**failed_probes)
        except OverflowError:  # the power exceeds every float, and so the maximum
            return self.max_s


class WindowEnd(Recovery):
    """Stays open until the current window of `window_s` seconds ends, then closes without a probe.

    For limits per hour or per day: windows begin at multiples of `window_s` on the
    circuit's clock, so that a day (86,400 s) on a wall clock ends at midnight UTC.

    >>> WindowEnd(3600.0).wait_s("k", 0, Signal(), now_s=3000.0)
    600.0
    """

    __slots__ = ("window_s",)
    kind: ClassVar[str] = "window_end"
    window_s: float

    def __init__(self, window_s: float) -> None:
        self._set(window_s=values.check_window_s("WindowEnd.window_s", window_s))

    def wait_s(self, key: str, failed_probes: int, signal: Signal, now_s: float) -> float:
        """The rest of the window."""
        return (math.floor(now_s / self.window_s) + 1) * self.window_s - now_s


class Latched(Recovery):
    """Stays open until an operator resets the circuit (manual reset)."""

    __slots__ = ()
    kind: ClassVar[str] = "latched"
    ends: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()

    def wait_s(self, key: str, failed_probes: int, signal: Signal, now_s: float) -> None:
        """Return `None`: there is no end."""


def spread(key: str, now_s: float) -> float:
    """A pseudo-random number in [0, 1), a pure function of its arguments (FNV-1a)."""
    digest = 0xCBF29CE484222325
    for byte in f"{key}\0{now_s!r}".encode(errors="surrogatepass"):
        digest = ((digest ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    # The low bits of FNV mix best after folding the high ones onto them.
    return ((digest ^ (digest >> 32)) & 0xFFFFFFFF) / 2**32


CALM_SHARE = 0.8
"""A TRIPPING circuit closes when its heat falls below this share of `tripping_at`."""


class Combine(Value):
    """Base of the rules that combine the detectors of a policy."""

    __slots__ = ()

    kind: ClassVar[str]
    """The name in configuration and wire form."""

    @property
    def edges(self) -> tuple[float, ...]:
        """Heats of a single detector, besides 1, at which it begins to count."""
        return ()

    def check(self, detectors: Sequence[Detector]) -> None:
        """Raise ValueError unless these detectors can be combined in this way."""

    def heat(self, detectors: Sequence[Detector], heats: Sequence[float]) -> float:
        """The heat of the circuit."""
        raise NotImplementedError

    def reason(self, detectors: Sequence[Detector], readings: Sequence[Reading]) -> str:
        """The evidence for that heat, in words."""
        raise NotImplementedError

    def strictest(self, detectors: Sequence[Detector], readings: Sequence[Reading]) -> str:
        """The evidence for the share that is still admitted, in words; call it only if a detector trips."""
        return self.reason(detectors, readings)


class AnyDetector(Combine):
    """The heat of the circuit is that of its hottest detector: one detector is enough to trip it."""

    __slots__ = ()
    kind: ClassVar[str] = "any"

    def __init__(self) -> None:
        super().__init__()

    def heat(self, detectors: Sequence[Detector], heats: Sequence[float]) -> float:
        """The heat of the hottest detector."""
        return max(heats)

    def reason(self, detectors: Sequence[Detector], readings: Sequence[Reading]) -> str:
        """The reason of the hottest detector."""
        hottest = readings[0]
        for reading in readings[1:]:
            if reading.heat > hottest.heat:
                hottest = reading
        return hottest.reason

    def strictest(self, detectors: Sequence[Detector], readings: Sequence[Reading]) -> str:
        """The reason of the tripping detector that admits least; of several, the hottest."""
        pairs = zip(detectors, readings, strict=True)
        tripped = [
            (-one.admit, reading.heat, reading) for one, reading in pairs if reading.heat >= 1
        ]
        return max(tripped, key=lambda found: found[:2])[2].reason


class WeightedSum(Combine):
    """Each detector that trips adds its weight; the circuit trips when the sum reaches `threshold`.

    Weights are given by kind: `WeightedSum({"failure_rate": 40, "slow_calls": 20}, threshold=60)`.

    - `alone_from`: `None` (the default): every detector needs a weight. A heat, above 0 and at most 1:
      detectors without a weight are allowed, and each can trip the circuit alone. Below this heat
      such a detector has no effect; from it on, the circuit is at least as hot as the detector.
    """

    __slots__ = ("weights", "threshold", "alone_from")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "weighted_sum"
    weights: tuple[tuple[str, float], ...]
    threshold: float
    alone_from: float | None

    def __init__(
        self,
        weights: Mapping[str, float] | Sequence[tuple[str, float]],
        threshold: float = 60.0,
        alone_from: float | None = None,
    ) -> None:
        try:
            pairs = dict(weights)
        except (TypeError, ValueError):
            pairs = {}
        if not pairs or not all(isinstance(kind, str) for kind in pairs):
            raise ValueError(
                f"WeightedSum.weights is {weights!r}: it must map kinds of detectors to weights, "
                "and hold at least one"
            )
        self._set(
            weights=tuple(
                (kind, values.check_positive(f"WeightedSum.weights[{kind!r}]", weight))
                for kind, weight in sorted(pairs.items())
            ),
            threshold=values.check_positive("WeightedSum.threshold", threshold),
            alone_from=None
            if alone_from is None
            else values.check_fraction(
                "WeightedSum.alone_from", alone_from, low_open=True, whole_too=True
            ),
        )

    @property
    def edges(self) -> tuple[float, ...]:
        """The heat from which a detector without a weight counts."""
        return () if self.alone_from is None else (self.alone_from,)

    def check(self, detectors: Sequence[Detector]) -> None:
        """Raise ValueError unless weights and detectors match, and the sum of the weights can trip."""
        weights = dict(self.weights)
        kinds = [detector.kind for detector in detectors]
        for kind in kinds:
            if kind not in weights and self.alone_from is None:
                raise ValueError(f"WeightedSum.weights has no weight for the detector {kind!r}")
        for kind in weights:
            if kind not in kinds:
                raise ValueError(
                    f"WeightedSum.weights names {kind!r}, and the policy has no such detector"
                )
        reachable = sum(weights.get(kind, 0.0) for kind in kinds)
        if self._share_of_threshold(reachable) < 1.0:
            raise ValueError(
                f"WeightedSum.threshold is {self.threshold:g}: it must not be above the sum of "
                f"the weights, {reachable:g}, or the circuit can never trip"
            )

    def heat(self, detectors: Sequence[Detector], heats: Sequence[float]) -> float:
        """The sum of the weights of tripping detectors divided by the threshold.

        If the hottest detector without a weight is hotter, its heat.
        """
        share = self._share_of_threshold(self.score(detectors, heats))
        return max(share, self._hottest_alone(detectors, heats)[0])

    def _hottest_alone(
        self, detectors: Sequence[Detector], heats: Sequence[float]
    ) -> tuple[float, int]:
        """The heat and the index of the hottest detector that counts alone; (0, -1): there is none."""
        if self.alone_from is None:
            return 0.0, -1
        weights = dict(self.weights)
        hottest, place = 0.0, -1
        for index, (detector, heat) in enumerate(zip(detectors, heats, strict=True)):
            if detector.kind not in weights and heat >= self.alone_from and heat > hottest:
                hottest, place = heat, index
        return hottest, place

    def _share_of_threshold(self, score: float) -> float:
        share = score / self.threshold
        # 0.7 + 0.1 is 0.7999999999999999, and 0.8 in a configuration means their sum.
        return 1.0 if math.isclose(share, 1.0) else share

    def reason(self, detectors: Sequence[Detector], readings: Sequence[Reading]) -> str:
        """Why the circuit trips or warns: the score and what each detector adds to it.

        If one detector is enough, the reason is that of the detector.
        """
        weights = dict(self.weights)
        heats = [reading.heat for reading in readings]
        score = self.score(detectors, heats)
        alone, place = self._hottest_alone(detectors, heats)
        if alone > self._share_of_threshold(score):
            reason = readings[place].reason
            points = alone * self.threshold
            shown = f"{points:.0f}" if self.threshold >= 10 else f"{points:g}"
            return (
                reason if alone >= 1.0 else f"score {shown} (trips at {self.threshold:g}): {reason}"
            )
        evidence = [
            (reading.reason, weights[detector.kind])
            for detector, reading in zip(detectors, readings, strict=True)
            if reading.heat >= 1.0 and detector.kind in weights
        ]
        trips = self._share_of_threshold(score) >= 1.0
        if trips and len(evidence) == 1:
            return evidence[0][0]
        parts = "; ".join(f"{reason} (+{points:g})" for reason, points in evidence)
        return f"score {score:g} (trips at {self.threshold:g})" + (f": {parts}" if parts else "")

    def score(self, detectors: Sequence[Detector], heats: Sequence[float]) -> float:
        """The sum of the weights of tripping detectors; detectors that count alone add nothing."""
        weights = dict(self.weights)
        pairs = zip(detectors, heats, strict=True)
        return sum(weights.get(detector.kind, 0.0) for detector, heat in pairs if heat >= 1.0)


class Policy(Value):
    """Defines when a circuit trips and how it recovers. Immutable, hashable, can be shared.

    - `detectors`: at least one, from `switchgear.detectors`.
    - `recovery`: `Cooldown(…)` (the default), `WindowEnd(…)` or `Latched()`.
    - `combine`: `AnyDetector()` (the default) or `WeightedSum(…)`.
    - `tripping_at`: the heat, between 0 and 1, from which the circuit is TRIPPING: it still admits
      calls but evaluates every result, until the heat is a fifth below. `None` (the default):
      CLOSED until it opens.
    - `strict`: refuse while the state is unknown, that is while a shared store cannot be reached,
      and read the store before every call. Default: continue from the last known state, with an event.

    >>> from switchgear.detectors import FailureRate
    >>> Policy([FailureRate(window=20, threshold=0.5)], tripping_at=0.8).tripping_at
    0.8
    """

    __slots__ = ("detectors", "recovery", "combine", "tripping_at", "strict")  # noqa: RUF023
    detectors: tuple[Detector, ...]
    recovery: Recovery
    combine: Combine
    tripping_at: float | None
    strict: bool

    def __init__(
        self,
        detectors: Sequence[Detector],
        recovery: Recovery | None = None,
        combine: Combine | None = None,
        tripping_at: float | None = None,
        *,
        strict: bool = False,
    ) -> None:
        combine = AnyDetector() if combine is None else combine
        recovery = Cooldown() if recovery is None else recovery
        if not isinstance(recovery, Recovery):
            raise ValueError(
                f"Policy.recovery is {recovery!r}: it must be a Cooldown, WindowEnd or Latched"
            )
        if not isinstance(combine, Combine):
            raise ValueError(
                f"Policy.combine is {combine!r}: it must be an AnyDetector or a WeightedSum"
            )
        combine.check(checked := _checked_detectors(detectors))
        if tripping_at is not None:
            tripping_at = values.check_fraction("Policy.tripping_at", tripping_at, low_open=True)
        self._set(
            detectors=checked,
            recovery=recovery,
            combine=combine,
            tripping_at=tripping_at,
            strict=values.check_bool("Policy.strict", strict),
        )

    @property
    def slow_from_s(self) -> float | None:
        """The shortest duration that any detector distinguishes from 0; `None`: no detector uses durations."""
        limits = [d.slow_from_s for d in self.detectors if d.slow_from_s is not None]
        return min(limits, default=None)

    def start(self, key: str, now_s: float) -> Circuit:
        """A new circuit."""
        return Circuit(key, self.fresh_memories(), seen_s=now_s)

    def fresh_memories(self) -> tuple[Any, ...]:
        """The memories of the detectors at the start."""
        return tuple(detector.start() for detector in self.detectors)

    def recovered_memories(self, memories: tuple[Any, ...]) -> tuple[Any, ...]:
        """The memories of the detectors after the circuit has recovered."""
        pairs = zip(self.detectors, memories, strict=True)
        return tuple(detector.recovered(memory) for detector, memory in pairs)

    def probed_memories(
        self, memories: tuple[Any, ...], signal: Signal, now_s: float
    ) -> tuple[Any, ...]:
        """The memories of the detectors after a failed probe."""
        pairs = zip(self.detectors, memories, strict=True)
        return tuple(detector.probed(memory, signal, now_s) for detector, memory in pairs)

    def fold(self, memories: tuple[Any, ...], signal: Signal, now_s: float) -> tuple[Any, ...]:
        """The memories of the detectors after this signal."""
        pairs = zip(self.detectors, memories, strict=True)
        return tuple([detector.fold(memory, signal, now_s) for detector, memory in pairs])

    def judges_after(self, memories: tuple[Any, ...], signal: Signal, now_s: float) -> int:
        """How many more such signals the next detector needs before it begins to evaluate; 0: none does."""
        pairs = zip(self.detectors, memories, strict=True)
        waits = [detector.judges_after(memory, signal, now_s) for detector, memory in pairs]
        return min(filter(None, waits), default=0)

    def bands(self, memories: tuple[Any, ...], now_s: float) -> list[int]:
        """The band of each detector: the number of edges that its heat has passed; 0 is calm.

        While no band changes, the texts of the policy change only in their numbers.
        """
        edges = (self.calm_below or 1.0, self.tripping_at or 1.0, 1.0, *self.combine.edges)
        pairs = zip(self.detectors, memories, strict=True)
        heats = [detector.heat(memory, now_s) for detector, memory in pairs]
        return [sum(heat >= edge for edge in edges) for heat in heats]

    def heat(self, memories: tuple[Any, ...], now_s: float) -> float:
        """The heat of the circuit: 0 is calm, 1 trips."""
        pairs = zip(self.detectors, memories, strict=True)
        heats = [detector.heat(memory, now_s) for detector, memory in pairs]
        return self.combine.heat(self.detectors, heats)

    @property
    def calm_below(self) -> float | None:
        """The heat below which a TRIPPING circuit closes; the margin avoids flapping at the threshold.

        >>> from switchgear.detectors import FailureRate
        >>> Policy([FailureRate()], tripping_at=0.75).calm_below
        0.6
        """
        return None if self.tripping_at is None else round(self.tripping_at * CALM_SHARE, 9)

    def readings(self, memories: tuple[Any, ...], now_s: float) -> tuple[Reading, ...]:
        """The reading of each detector, in the policy's order."""
        pairs = zip(self.detectors, memories, strict=True)
        return tuple(
            Reading(
                detector.heat(memory, now_s),
                detector.reason(memory, now_s),
                *(detector.measure(memory, now_s) or ()),
            )
            for detector, memory in pairs
        )

    def reason(self, memories: tuple[Any, ...], now_s: float) -> str:
        """The evidence for the heat, in words."""
        return self.combine.reason(self.detectors, self.readings(memories, now_s))

    def strictest_reason(self, memories: tuple[Any, ...], now_s: float) -> str:
        """The evidence for `admit`, in words; call it only if the policy trips."""
        return self.combine.strictest(self.detectors, self.readings(memories, now_s))

    def admit(self, memories: tuple[Any, ...], now_s: float) -> float:
        """The share of calls that is still admitted if the circuit opens: that of the strictest detector."""
        pairs = zip(self.detectors, memories, strict=True)
        shares = [detector.admit for detector, memory in pairs if detector.heat(memory, now_s) >= 1]
        return min(shares, default=0.0)

    def objection(self, signal: Signal) -> str | None:
        """Why a successful probe counts as failed, according to a detector; `None`: it does not."""
        for detector in self.detectors:
            if (objection := detector.objection(signal)) is not None:
                return objection
        return None


def _checked_detectors(detectors: Any) -> tuple[Detector, ...]:
    if isinstance(detectors, str | Detector) or not isinstance(detectors, Sequence):
        raise ValueError(f"Policy.detectors is {detectors!r}: it must be a list of detectors")
    if not detectors:
        raise ValueError(
            f"Policy.detectors is empty: it must hold at least one of {_known_detectors()}"
        )
    for index, detector in enumerate(detectors):
        if not isinstance(detector, Detector):
            raise ValueError(
                f"Policy.detectors[{index}] is {detector!r}: it must be a detector such as {_known_detectors()}"
            )
    return tuple(detectors)


def _known_detectors() -> str:
    return ", ".join(sorted(kind.__name__ for kind in Detector.kinds()))


def needs_successes(policy: Policy) -> bool:
    """Whether a success that is recorded late can change the reading of a detector."""
    # A loop is faster than a generator, and every message to a store calls this function.
    for detector in policy.detectors:  # noqa: SIM110
        if detector.needs_successes:
            return True
    return False


def counts_calls(policy: Policy) -> bool:
    """Whether a detector begins to evaluate at a certain number of calls."""
    base = Detector.judges_after
    return any(type(detector).judges_after is not base for detector in policy.detectors)
