"""For your tests: a clock to advance, a store to disconnect, and the state machine as a pure function."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from switchgear._core.errors import StoreError, StoreUnavailable
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import Event, Message, Step
from switchgear._stores.base import StoredCircuit, Transaction
from switchgear._stores.memory import MemoryStore
from switchgear._system.clock import Clock

T = TypeVar("T")

__all__ = ["FakeClock", "FlakyStore", "step"]


class FakeClock:
    """A clock for tests: `clock()` gives seconds, `clock.advance(60)` lets time pass.

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
        """Let time pass. Raises ValueError when told to run backwards: no breaker's clock does."""
        if not seconds >= 0:
            raise ValueError(f"seconds is {seconds!r}: it must be a number of at least 0")
        self.now_s += seconds


class FlakyStore(MemoryStore):
    """A store in memory that can be cut off, for tests of what happens then.

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
        """How often it was called while it was cut off."""
        self._error: StoreError | None = None

    def cut(self, error: StoreError | None = None) -> None:
        """From now on every call fails."""
        self._error = error or StoreUnavailable(self.label, "it was cut off", "call mend()")

    def mend(self, *, empty: bool = False) -> None:
        """It works again; `empty`: and has forgotten everything."""
        self._error = None
        if empty:
            super().__init__(clock=self._clock)

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """As in memory, unless it is cut off."""
        self._check()
        return super().apply(key, policy, message, now_s)

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """As in memory, unless it is cut off."""
        self._check()
        return super().transact(name, work)

    def get(self, key: str) -> StoredCircuit | None:
        """As in memory, unless it is cut off."""
        self._check()
        return super().get(key)

    def put(self, found: StoredCircuit, events: Sequence[Event] = ()) -> bool:
        """As in memory, unless it is cut off."""
        self._check()
        return super().put(found, events)

    def _check(self) -> None:
        if self._error is not None:
            self.tries += 1
            raise self._error
