"""What budgets and locks need of a store: values that are amended one after the other, and lines.

A value is a JSON value on a shelf, under a key. Whoever amends it is given what is there and says
what shall be there, in one transaction: nobody else comes in between. Lines are written together
with it, in order, and never changed or removed: they are the account of how it came to be so.
A ledger knows neither money nor locks.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from switchgear._core.errors import StoreCorrupt, StoreError
from switchgear._system.clock import Clock
from switchgear._system.fork_lock import ForkSafeLock


class Amended(NamedTuple):
    """What somebody made of a value."""

    answer: Any
    """What `amend` returns."""
    value: Any = None
    """What shall be there from now on; `None`: what is there stays, and no line is written."""
    lines: tuple[Any, ...] = ()


Work = Callable[[Any, float], Amended]
"""The value that is there (`None`: none) and the store's time to what is made of it. Pure: it may
be called again when somebody else was quicker."""


class Ledger(Protocol):
    """Safe to use from any thread. Every method raises `StoreError` when it cannot be done."""

    label: str

    def amend(self, shelf: str, key: str, work: Work) -> Any:
        """Load the value, let `work` make another of it, save that with its lines: all or nothing."""

    def value(self, shelf: str, key: str) -> Any:
        """The value that is there; `None`: none."""

    def keys(self, shelf: str) -> list[str]:
        """The keys of a shelf that have values, sorted."""

    def lines(self, shelf: str, key: str) -> Iterable[Any]:
        """All lines of a value, oldest first."""

    def now_s(self) -> float:
        """Seconds since the epoch on the store's clock."""


def ledger_of(store: Any) -> Ledger:
    """The ledger of a store. Raises `StoreError` for one that keeps none."""
    keep = getattr(store, "ledger", None)
    if keep is None:
        label = getattr(store, "label", type(store).__name__)
        raise StoreError(label, "it keeps no budgets and no locks", "use memory, SQLite or Redis")
    found: Ledger = keep()
    return found


def as_text(value: Any) -> str:
    """A value as it is stored."""
    import json  # noqa: PLC0415  who guards calls in memory needs none of this

    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def from_text(label: str, where: str, text: Any) -> Any:
    """The inverse. Raises `StoreCorrupt`: money and locks never start anew by themselves."""
    import json  # noqa: PLC0415

    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        why = f"{where} cannot be read: {error}"
        raise StoreCorrupt(label, why, "restore it from a backup, or remove it") from None


class MemoryLedger:
    """In this process's memory. Thread-safe and fork-safe."""

    def __init__(self, label: str, clock: Clock) -> None:
        self.label = label
        self.now_s = clock
        self._lock = ForkSafeLock()
        self._texts: dict[tuple[str, str], str] = {}
        self._lines: dict[tuple[str, str], list[str]] = {}

    def amend(self, shelf: str, key: str, work: Work) -> Any:
        """The same as in a file, so that a value is always what JSON makes of it."""
        with self._lock.taken():
            text = self._texts.get((shelf, key))
            done = work(self._read(text), self.now_s())
            if done.value is not None:
                self._texts[shelf, key] = as_text(done.value)
                self._lines.setdefault((shelf, key), []).extend(map(as_text, done.lines))
        return done.answer

    def value(self, shelf: str, key: str) -> Any:
        """The value that is there; `None`: none."""
        return self._read(self._texts.get((shelf, key)))

    def keys(self, shelf: str) -> list[str]:
        """The keys of a shelf that have values, sorted."""
        with self._lock.taken():
            return sorted(key for found, key in self._texts if found == shelf)

    def lines(self, shelf: str, key: str) -> list[Any]:
        """All lines of a value, oldest first."""
        with self._lock.taken():
            return [self._read(line) for line in self._lines.get((shelf, key), ())]

    def _read(self, text: str | None) -> Any:
        return None if text is None else from_text(self.label, "a value", text)
