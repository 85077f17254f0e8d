"""What operators tell a run while it goes on: a hint, more time, the end. A note in the store.

The same note as that of a guarded session, so `switchgear intervene` works on both. It is read
before each iteration; a store that is gone tells nothing.
"""

from contextlib import suppress
from typing import NamedTuple

from switchgear._core.errors import StoreError
from switchgear._hooks.session import Notes, note_name
from switchgear._stores.base import Store, Transaction


class Word(NamedTuple):
    """What was told since the run last looked."""

    texts: tuple[str, ...] = ()
    """For the next prompt."""
    more_s: float = 0.0
    """How much time was granted."""
    stop: str | None = None


class Desk:
    """The note of one run. Used by one thread."""

    def __init__(self, store: Store, run: str, agent: str, limit_s: float | None) -> None:
        self._store = store
        self._limit_s = limit_s
        self.circuit = note_name(f"run-{run}")
        """The name of the run's session."""

        def begin(tx: Transaction) -> None:
            now_s = tx.now_s
            notes = Notes(agent, began_s=now_s, heard_s=now_s, works=True, limit_s=limit_s)
            tx.note = notes.dump()

        with suppress(StoreError):
            store.transact(self.circuit, begin)

    def look(self) -> Word:
        """What was told since the last look, once."""

        def work(tx: Transaction) -> Word:
            notes = Notes.load(tx.note)
            if tx.note is None:
                return Word()
            tx.note = notes._replace(pending=(), heard_s=tx.now_s).dump()
            more_s = (notes.limit_s or 0.0) - (self._limit_s or 0.0)
            return Word(notes.pending, more_s, notes.stop)

        word = Word()
        with suppress(StoreError):
            word = self._store.transact(self.circuit, work)
        if self._limit_s is not None:
            self._limit_s += word.more_s
        return word

    def leave(self) -> None:
        """The run is over."""

        def work(tx: Transaction) -> None:
            if tx.note is not None:
                tx.note = Notes.load(tx.note)._replace(ended=True, works=False).dump()

        with suppress(StoreError):
            self._store.transact(self.circuit, work)
