"""How an open circuit comes back: after a cooldown, at the end of a window, or not by itself."""

import math
from typing import ClassVar

from switchgear._core import values
from switchgear._core.types import Probing, Signal
from switchgear._core.values import Value


class Recovery(Value):
    """Base of the recovery rules."""

    __slots__ = ()

    kind: ClassVar[str]
    probes: int = 0
    """How many probes may be under way at once; 0: no probing, the circuit just closes."""
    successes: int = 1
    """How many successful probes close the circuit."""
    of: int | None = None
    """Of how many probes; `None`: of as many, so that one failure opens it again."""
    lease_s: float | None = None
    """How long a probe may take before its place is given to another; `None`: the cooldown."""

    ends: ClassVar[bool] = True
    """Whether an open circuit ever comes back by itself."""

    @property
    def results_needed(self) -> int:
        """How many results decide at the latest."""
        return self.successes if self.of is None else self.of

    def may_probe(self, probing: Probing) -> bool:
        """Whether one more probe may begin: a place is free, and its result can still matter."""
        under_way = len(probing.permits)
        if self.of is None:  # the first to report decides, so that one that hangs delays nothing
            return under_way < self.probes
        known = probing.successes + probing.failures
        return under_way < min(self.probes, self.of - known)

    def lease_after_s(self, cooldown_s: float) -> float:
        """How long a probe that follows this wait keeps its place; asked only where one probes."""
        raise NotImplementedError

    def wait_s(self, key: str, failed_probes: int, signal: Signal, now_s: float) -> float | None:
        """How long to stay open from `now_s` on; `None`: until an operator resets."""
        raise NotImplementedError


class Cooldown(Recovery):
    """Waits `base_s` seconds, then lets probes decide; each failed probe makes the wait longer.

    - The n-th wait is `base_s * factor ** (n - 1)`, at most `max_s` (default: five times the base).
    - `jitter` shortens each wait by up to that share, so that many breakers do not return as one.
      It is a pure function of the circuit's name and the time of the trip.
    - A failure that carried a Retry-After sets the wait itself, up to `retry_after_max_s` (1 h).
    - `probes` calls at a time may try; `successes` of them close the circuit, one failure re-opens.
    - With `of=k`, `successes` of `k` probes close the circuit, and it re-opens as soon as so many
      have failed that this can no longer be. For a dependency of which some calls always fail.
      No more probes are admitted than results can still matter.
    - A probe that has not reported after `lease_s` seconds (default: as long as the wait it
      ended, and not less than `base_s`) loses its place, so that a hung probe cannot wedge the
      circuit. Its result still counts, should it come before another decides.

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
        base_s = values.seconds("Cooldown.base_s", base_s)
        if max_s is None and math.isinf(5 * base_s):
            raise ValueError(
                f"Cooldown.base_s is {base_s:g}: five times as much, the default of max_s, must be "
                "a finite number of seconds"
            )
        max_s = 5 * base_s if max_s is None else values.seconds("Cooldown.max_s", max_s)
        if base_s > max_s:
            raise ValueError(
                f"Cooldown.base_s is {base_s:g}: it must not be above max_s, {max_s:g}"
            )
        successes = values.whole("Cooldown.successes", successes)
        if of is not None and values.whole("Cooldown.of", of) < successes:
            raise ValueError(
                f"Cooldown.of is {of}: it must not be below successes, which is {successes}"
            )
        self._set(
            base_s=base_s,
            max_s=max_s,
            factor=values.at_least("Cooldown.factor", factor, 1.0),
            jitter=values.fraction("Cooldown.jitter", jitter),
            probes=values.whole("Cooldown.probes", probes),
            successes=successes,
            of=of,
            lease_s=None if lease_s is None else values.seconds("Cooldown.lease_s", lease_s),
            retry_after_max_s=values.seconds("Cooldown.retry_after_max_s", retry_after_max_s),
        )

    def wait_s(self, key: str, failed_probes: int, signal: Signal, now_s: float) -> float:
        """What the other side asked for, else the backoff."""
        if signal.retry_after_s is not None and signal.retry_after_s > 0:
            return min(signal.retry_after_s, self.retry_after_max_s)
        wait = self._backoff_s(failed_probes)
        return wait * (1.0 - self.jitter * spread(key, now_s)) if self.jitter else wait

    def lease_after_s(self, cooldown_s: float) -> float:
        """A wait that a Retry-After cut short says nothing of how long an answer takes."""
        return max(cooldown_s, self.base_s) if self.lease_s is None else self.lease_s

    def _backoff_s(self, failed_probes: int) -> float:
        try:
            return min(self.max_s, self.base_s * self.factor**failed_probes)
        except OverflowError:  # the power is beyond all floats, so beyond the maximum
            return self.max_s


class WindowEnd(Recovery):
    """Stays open until the current window of `window_s` seconds ends, then closes without a probe.

    For what is counted by the hour or the day: windows begin at multiples of `window_s` on the
    circuit's clock, so that a day (86,400 s) on a wall clock ends at midnight UTC.

    >>> WindowEnd(3600.0).wait_s("k", 0, Signal(), now_s=3000.0)
    600.0
    """

    __slots__ = ("window_s",)
    kind: ClassVar[str] = "window_end"
    window_s: float

    def __init__(self, window_s: float) -> None:
        self._set(window_s=values.window("WindowEnd.window_s", window_s))

    def wait_s(self, key: str, failed_probes: int, signal: Signal, now_s: float) -> float:
        """The rest of the window."""
        del key, failed_probes, signal
        return (math.floor(now_s / self.window_s) + 1) * self.window_s - now_s


class Latched(Recovery):
    """Stays open until an operator resets it."""

    __slots__ = ()
    kind: ClassVar[str] = "latched"
    ends: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()

    def wait_s(self, key: str, failed_probes: int, signal: Signal, now_s: float) -> None:
        """For ever."""
        del key, failed_probes, signal, now_s


def spread(key: str, now_s: float) -> float:
    """A number in [0, 1) that looks random and is a pure function of its arguments (FNV-1a)."""
    digest = 0xCBF29CE484222325
    for byte in f"{key}\0{now_s!r}".encode(errors="surrogatepass"):
        digest = ((digest ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    # The low bits of FNV mix best after folding the high ones onto them.
    return ((digest ^ (digest >> 32)) & 0xFFFFFFFF) / 2**32
