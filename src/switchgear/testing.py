"""Tools for your tests: a fake clock, forced states, a store to disconnect, the machine as a function."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

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
from switchgear._stores.base import Entry, MemoryLedger, StoredCircuit, Transaction, Vacuumed
from switchgear._stores.memory import MemoryCell, MemoryStore
from switchgear._system.clock import Clock

T = TypeVar("T")

__all__ = ["FakeClock", "FlakyStore", "assert_tripped", "force_state", "step"]


class FakeClock:
    """A clock for tests: `clock()` returns seconds, `clock.advance(60)` advances the time.

    >>> clock = FakeClock()
    >>> clock.advance(60.0)
    >>> clock()
    60.0
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self.now_s: float = start_s

    def __call__(self) -> float:
        """The current time in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Advance the time. Raises ValueError for a negative number: clocks of breakers never run backwards."""
        if not seconds >= 0:
            raise ValueError(f"seconds is {seconds!r}: it must be a number of at least 0")
        self.now_s += seconds


class FlakyStore(MemoryStore):
    """A store in memory that a test can make unreachable with `cut()` and reachable with `mend()`.

    - `clock`: returns seconds since the epoch.
    - `refresh_s`: maximum age of a breaker's snapshot in seconds, as for a shared store; default: no limit.

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
        """Number of calls that failed because the store was cut off."""
        self._error: StoreError | None = None

    def cut(self, error: StoreError | None = None) -> None:
        """Make the store unreachable: every call raises `error` (default: `StoreUnavailable`)."""
        self._error = error or StoreUnavailable(self.label, "it was cut off", "call mend()")

    def mend(self, *, empty: bool = False) -> None:
        """Make the store reachable again; with `empty`, it has lost its circuits, events, budgets and locks."""
        self._error = None
        if empty:
            super().__init__(clock=self._clock)

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().apply(key, policy, message, now_s)

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().transact(name, work)

    def get(self, key: str) -> StoredCircuit | None:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().get(key)

    def put(self, found: StoredCircuit, events: Sequence[Event] = ()) -> bool:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().put(found, events)

    def find(self, glob: str = "*") -> list[StoredCircuit]:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().find(glob)

    def events(
        self, *, after: str | None = None, glob: str = "*", limit: int = 1000
    ) -> list[Entry]:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().events(after=after, glob=glob, limit=limit)

    def facts(self) -> dict[str, str]:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().facts()

    def forget(self, key: str) -> bool:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().forget(key)

    def vacuum(self, *, keep_events: int, idle_s: float, now_s: float) -> Vacuumed:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().vacuum(keep_events=keep_events, idle_s=idle_s, now_s=now_s)

    def operator_digest(self) -> str | None:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().operator_digest()

    def set_operator_digest(self, digest: str | None, *, instead_of: str | None) -> bool:
        """As in `MemoryStore`, unless the store is cut off."""
        self._check()
        return super().set_operator_digest(digest, instead_of=instead_of)

    def ledger(self) -> Any:
        """The ledger for budgets and locks, which fails while the store is cut off."""
        return _FlakyLedger(self, super().ledger)

    def _check(self) -> None:
        if self._error is not None:
            self.tries += 1
            raise self._error


class _FlakyLedger:
    """The ledger of a store; every operation fails while the store is cut off."""

    def __init__(self, store: FlakyStore, ledger: Callable[[], MemoryLedger]) -> None:
        self.label = store.label
        self.now_s = store.now_s
        self._store = store
        self._ledger = ledger  # called for each operation: `mend(empty=True)` replaces the ledger

    def __getattr__(self, name: str) -> Any:
        self._store._check()  # noqa: SLF001
        return getattr(self._ledger(), name)


def force_state(
    breaker: Breaker,
    state: Phase | str,
    *,
    reason: str = "forced by a test",
    retry_after_s: float | None = 60.0,
) -> None:
    """Put a circuit into the state `closed`, `open` or `half_open` without the evidence for it.

    From then on it behaves as usual: an open circuit probes after `retry_after_s` seconds (`None`: it stays
    open until a manual reset), and a half-open circuit admits probes. Raises ValueError for another
    state, and for `half_open` if the policy has no probes.

    >>> from switchgear import CircuitBreaker
    >>> breaker = CircuitBreaker("api")
    >>> force_state(breaker, "open")
    >>> breaker.state
    <Phase.OPEN: 'open'>
    """
    phase = Phase(state)
    if phase is Phase.TRIPPING:
        raise ValueError("state is 'tripping': it follows from evidence; record failures instead")
    if phase is Phase.CLOSED:
        breaker.reset(by="test", why=reason)
        return
    circuit = breaker.snapshot()
    if phase is Phase.HALF_OPEN and not breaker.policy.recovery.probes:
        raise ValueError("state is 'half_open': the policy of this circuit recovers without probes")
    now_s = circuit.seen_s
    retry_at_s = None if retry_after_s is None else now_s + retry_after_s
    is_open = phase is Phase.OPEN
    outage = OpenState(
        opened_at_s=now_s,
        retry_at_s=retry_at_s if is_open else None,
        cooldown_s=retry_after_s or 0.0,
        reason=reason,
    )
    forced = circuit._replace(
        phase=phase,
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
    """Assert that the circuit is open and, with `because`, that its reason contains this text.

    The AssertionError contains the state and the evidence of the detectors.

    >>> from switchgear import CircuitBreaker
    >>> breaker = CircuitBreaker("api")
    >>> force_state(breaker, "open", reason="5 failures in a row")
    >>> assert_tripped(breaker, because="failures")
    """
    circuit = breaker.snapshot()
    if circuit.phase is not Phase.OPEN:
        evidence = "; ".join(reading.reason for reading in breaker.readings().values())
        state = circuit.phase.replace("_", "-")
        raise AssertionError(f"circuit {breaker.name!r} is {state}, not open: {evidence}")
    if because not in circuit.outage.reason:
        raise AssertionError(
            f"circuit {breaker.name!r} is open because of {circuit.outage.reason!r}, "
            f"not because of {because!r}"
        )
