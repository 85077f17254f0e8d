"""A store whose silence is waited for once: whoever comes next is told at once what is known.

A server that does not answer costs its timeout. Without this, each reader and each step of making
a breaker would wait for it again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from switchgear.clock import Clock
from switchgear.errors import StoreError, StoreUnavailable
from switchgear.locks import ForkSafeLock
from switchgear.stores.base import Entry, Found, Store, Transaction, checked_glob, checked_name

T = TypeVar("T")


class Guarded:
    """What can be asked of a store besides its messages. Thread-safe.

    While it is known to be unreachable it is tried again about once a second, and all who come in
    between get the last error. One that is full or read-only can still be asked.
    """

    def __init__(self, store: Store, clock: Clock, retry_s: float) -> None:
        self.inner = store
        self.label = store.label
        self.pushes = store.pushes
        self._clock = clock
        self._retry_s = retry_s
        self._lock = ForkSafeLock()
        self._lost: StoreError | None = None
        self._retry_at_s = 0.0
        self._failures = 0
        """How often the store was found gone."""

    @property
    def refresh_s(self) -> float | None:
        """That of the store; while it is gone, the time until the next try."""
        return self._retry_s if self._lost is not None else self.inner.refresh_s

    @property
    def is_lost(self) -> bool:
        """Whether the store is gone just now."""
        return self._lost is not None

    def now_s(self) -> float:
        """The store's clock, which goes on while the store is gone."""
        return self.inner.now_s()

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Messages of Switchgear's own to several circuits; an operator's orders go by `apply`."""
        with self._asking():
            return self.inner.transact(name, work)

    def get(self, key: str) -> Found | None:
        """One circuit as stored."""
        checked_name(key)
        with self._asking():
            return self.inner.get(key)

    def find(self, glob: str = "*") -> Iterator[Found]:
        """The circuits whose names match, sorted by name."""
        checked_glob(glob)
        with self._asking():
            yield from self.inner.find(glob)

    def events(
        self, *, after: str | None = None, glob: str = "*", limit: int = 1000
    ) -> list[Entry]:
        """The events behind a cursor, or the newest."""
        checked_glob(glob)
        with self._asking():
            return self.inner.events(after=after, glob=glob, limit=limit)

    def retain(self, *, keep_events: int, idle_s: float) -> None:
        """Keep so much from now on; asks nothing of a server."""
        self.inner.retain(keep_events=keep_events, idle_s=idle_s)

    def operator_digest(self) -> str | None:
        """The digest of the token that orders need."""
        with self._asking():
            return self.inner.operator_digest()

    def set_operator_digest(self, digest: str | None, *, instead_of: str | None) -> bool:
        """Remember another digest, unless it is no longer the one named."""
        with self._asking():
            return self.inner.set_operator_digest(digest, instead_of=instead_of)

    def facts(self) -> dict[str, str]:
        """What `switchgear doctor` shows."""
        with self._asking():
            return self.inner.facts()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        if isinstance(self._lost, StoreUnavailable):
            self._try_again()
            lost = self._lost
            if isinstance(lost, StoreUnavailable):
                raise lost.again()
        try:
            yield
        except StoreUnavailable as error:
            self._is_gone(error)
            raise

    def _is_gone(self, error: StoreError) -> None:
        """Note that the store could not be reached just now."""
        with self._lock.taken():
            self._lost = error
            self._failures += 1
            self._retry_at_s = self._clock() + self._retry_s

    def _try_again(self) -> None:
        """Try the store again, if it is time and nobody else does."""
