"""For your tests: a clock to advance, states to force, a store to disconnect, the machine as a function."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from switchgear._breaker.handle import Breaker
from switchgear._core.errors import StoreError, StoreUnavailable
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import (
    NO_OUTAGE,
    NO_PROBES,
    Event,
    Message,
    OpenState,
    Phase,
    Step,
)
from switchgear._stores.base import StoredCircuit, Transaction
from switchgear._stores.memory import MemoryCell, MemoryStore
from switchgear._system.clock import Clock

T = TypeVar("T")

__all__ = ["FakeClock", "FlakyStore", "assert_tripped", "force_state", "step"]


class FakeClock:
    """A clock for tests: `clock()` returns seconds, `clock.advance(60)` advances it.

    >>> clock = FakeClock()
    >>> clock.advance(60.0)
    >>> clock()
    60.0
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self.now_s: float = start_s

    def __call__(self) -> float:
        """The time now, in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Advance the time. Raises ValueError for a negative amount: no breaker's clock runs backwards."""
        if not seconds >= 0:
            raise ValueError(f"seconds is {seconds!r}: it must be a number of at least 0")
        self.now_s += seconds


class FlakyStore(MemoryStore):
    """A store in memory that can be made unreachable, for tests of that case.

    >>> store = FlakyStore()
    >>> store.cut()
    >>> store.get("api")
    Traceback (most recent call last):
    switchgear.errors.StoreUnavailable: store flaky: cannot be reached: it was cut off; call mend()
    """

    label = "flaky:"

    def __init__(self, *, clock: Clock | None = None, refresh_s: float | None = None) -> None:
        super().__init__(clock=clock)
        self.refresh_s = refresh_s
        self.tries: int = 0
        """Number of calls while it was cut off."""
        self._error: StoreError | None = None

    def cut(self, error: StoreError | None = None) -> None:
        """Make it unreachable: from now on every call fails."""
        self._error = error or StoreUnavailable(self.label, "it was cut off", "call mend()")

    def mend(self, *, empty: bool = False) -> None:
        """Make it reachable again; `empty`: without its data."""
        self._error = None
        if empty:
            super().__init__(clock=self._clock)

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """As in `MemoryStore`, unless it is cut off."""
        self._check()
        return super().apply(key, policy, message, now_s)

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """As in `MemoryStore`, unless it is cut off."""
        self._check()
        return super().transact(name, work)

    def get(self, key: str) -> StoredCircuit | None:
        """As in `MemoryStore`, unless it is cut off."""
        self._check()
        return super().get(key)

    def put(self, found: StoredCircuit, events: Sequence[Event] = ()) -> bool:
        """As in `MemoryStore`, unless it is cut off."""
        self._check()
        return super().put(found, events)

    def _check(self) -> None:
        if self._error is not None:
            self.tries += 1
            raise self._error


def force_state(
    breaker: Breaker,
    state: Phase | str,
    *,
    reason: str = "forced by a test",
    retry_after_s: float | None = 60.0,
) -> None:
    """Put a circuit in a state without the evidence for it: `closed`, `open` or `half_open`.

    From there on it behaves as usual: an open circuit waits `retry_after_s` seconds (`None`: until a
    manual reset) and probes, a half-open one admits probes. Raises ValueError for another state, and
    where the policy has no probes.

    >>> from switchgear import CircuitBreaker
    >>> breaker = CircuitBreaker("api")
    >>> force_state(breaker, "open")
    >>> breaker.state
    <Phase.OPEN: 'open'>
    """
    wanted = Phase(state)
    if wanted is Phase.TRIPPING:
        raise ValueError("state is 'tripping': it follows from evidence; record failures instead")
    if wanted is Phase.CLOSED:
        breaker.reset(by="test", why=reason)
        return
    circuit = breaker.snapshot()
    if wanted is Phase.HALF_OPEN and not breaker.policy.recovery.probes:
        raise ValueError("state is 'half_open': the policy of this circuit recovers without probes")
    now_s = circuit.seen_s
    retry_at_s = None if retry_after_s is None else now_s + retry_after_s
    is_open = wanted is Phase.OPEN
    outage = OpenState(
        opened_at_s=now_s,
        retry_at_s=retry_at_s if is_open else None,
        cooldown_s=retry_after_s or 0.0,
        reason=reason,
    )
    forced = circuit._replace(
        phase=wanted,
        generation=circuit.generation + 1,
        version=circuit.version + 1,
        heat=max(circuit.heat, 1.0) if is_open else circuit.heat,
        outage=outage if is_open else NO_OUTAGE._replace(cooldown_s=60.0, reason=reason),
        probing=NO_PROBES,
    )
    store = breaker._store  # noqa: SLF001  tests may look inside
    if isinstance(store, MemoryCell):
        store.restore(forced)
    else:
        store.put(StoredCircuit(forced, breaker.policy))  # type: ignore[attr-defined]
    breaker.refresh()


def assert_tripped(breaker: Breaker, *, because: str = "") -> None:
    """Fail unless the circuit is open and, with `because`, unless its reason contains this text.

    Raises AssertionError with the state, the heat and the readings of the detectors.

    >>> from switchgear import CircuitBreaker
    >>> breaker = CircuitBreaker("api")
    >>> force_state(breaker, "open", reason="5 failures in a row")
    >>> assert_tripped(breaker, because="failures")
    """
    circuit = breaker.snapshot()
    if circuit.phase is not Phase.OPEN:
        seen = "; ".join(reading.reason for reading in breaker.readings().values())
        state = circuit.phase.replace("_", "-")
        raise AssertionError(f"circuit {breaker.name!r} is {state}, not open: {seen}")
    if because not in circuit.outage.reason:
        raise AssertionError(
            f"circuit {breaker.name!r} is open because of {circuit.outage.reason!r}, "
            f"not because of {because!r}"
        )
