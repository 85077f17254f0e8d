"""Messages of operators to a run: a note in the store, and a file in the run's folder that announces it.

The run looks at the file before each iteration and once a second while the agent works, and reads the note
only when the file has changed: a run without messages sends nothing to the store for them. The sender is
`switchgear._console.interventions`.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import add
from pathlib import Path
from typing import Any, NamedTuple, Self

from switchgear._core.errors import StoreError
from switchgear._hooks.session import Notes, note_name
from switchgear._run.record import RunFolder
from switchgear._stores.base import Store, Transaction
from switchgear._system.files import write_regular
from switchgear._text.redact import redact

FILE = "inbox"
"""The file that announces a message."""
_RUN_FIELDS = "run"
"""The key of the fields that only the note of a run has."""
_MAX_TASK_CHARS = 120


class Extension(NamedTuple):
    """What an operator grants a run beyond its limits."""

    seconds: float = 0.0
    iterations: int = 0
    micros: int = 0

    def plus(self, other: Self) -> Self:
        return type(self)(*map(add, self, other))

    @classmethod
    def of(cls, more: Mapping[str, Any]) -> Self:
        """The extension in a note; an unreadable one grants nothing."""
        fields = more.get(_RUN_FIELDS)
        try:
            seconds, iterations, micros = fields["extend"]  # type: ignore[index]  # caught below
            return cls(max(0.0, float(seconds)), max(0, int(iterations)), max(0, int(micros)))
        except (KeyError, TypeError, ValueError, OverflowError):
            return cls()


class OperatorMessages(NamedTuple):
    texts: tuple[str, ...] = ()
    """For the next prompt."""
    extension: Extension = Extension()
    hand_over: str = ""
    """Why the escalation agent is to take over; empty: it is not."""
    stop: str | None = None
    paused: bool = False

    @property
    def ends_iteration(self) -> bool:
        """Whether the running agent is to be stopped."""
        return self.stop is not None or bool(self.hand_over)


def with_extension(notes: Notes, more: Extension) -> Notes:
    return _with_fields(notes, extend=list(Extension.of(notes.more).plus(more)))


def with_hand_over(notes: Notes, why: str) -> Notes:
    return _with_fields(notes, hand_over=why or "an operator")


def _with_fields(notes: Notes, **fields: Any) -> Notes:
    old = notes.more.get(_RUN_FIELDS)
    new = {**old, **fields} if isinstance(old, dict) else fields
    return notes._replace(more={**notes.more, _RUN_FIELDS: new})


def inbox_name(run: str) -> str:
    """The name of a run's note, and of its session where its agent is watched."""
    return note_name(f"run-{run}")


def announce(folder: Path) -> None:
    """Signal a run that a message is pending. Raises OSError."""
    write_regular(folder / FILE, os.urandom(8).hex().encode())


def announcement(folder: Path) -> tuple[int, int] | None:
    """A key of the last announcement to a run; `None`: there is none."""
    try:
        found = (folder / FILE).lstat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def clear_announcement(folder: Path) -> None:
    """Remove the announcement of a run that has ended. Idempotent."""
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def has_messages(folder: Path) -> bool:
    return (folder / FILE).exists()


class OperatorInbox:
    """The messages to one run. Used by one thread.

    `is_watched`: the run detects stuck agents, which makes it a session that other hosts can reach: its note
    exists from the beginning, and is read before each iteration. `keeps_messages`: messages from before this
    process started are for this process; otherwise they were for an earlier one.
    """

    def __init__(
        self,
        store: Store,
        record: RunFolder,
        agent: str,
        limit_s: float | None,
        *,
        is_watched: bool,
        clock: Callable[[], float],
        keeps_messages: bool = False,
        task: str = "",
        project: str = "",
    ) -> None:
        self._store = store
        self._folder = record.path
        self._limit_s = limit_s
        self._is_watched = is_watched
        self._clock = clock
        self._seen = None if keeps_messages else announcement(self._folder)
        self._waiting = OperatorMessages()
        self._paused_since_s: float | None = None
        self._paused_s = 0.0
        self.circuit = inbox_name(record.id)
        """The name of the run's session."""

        def begin(tx: Transaction) -> None:
            now_s, notes = tx.now_s, Notes.load(tx.note)
            if notes.ended or not keeps_messages:
                notes = Notes()
            notes = notes._replace(agent=agent, began_s=now_s, heard_s=now_s, works=True)
            notes = notes._replace(task=redact(task, _MAX_TASK_CHARS), project=project)
            tx.note = notes._replace(limit_s=limit_s).dump()

        if is_watched or self._seen is not None:
            with suppress(StoreError):
                store.transact(self.circuit, begin)

    @property
    def paused_s(self) -> float:
        since_s = self._paused_since_s
        return self._paused_s + (0.0 if since_s is None else self._clock() - since_s)

    def peek(self) -> OperatorMessages:
        """The pending messages, which stay pending. The store is read only after an announcement."""
        mark = announcement(self._folder)
        if mark != self._seen:
            self._seen = mark
            self._read()
        return self._waiting

    def take(self) -> OperatorMessages:
        """Remove and return the pending messages."""
        if self._is_watched:
            self._seen = announcement(self._folder)
            self._read()
        found = self.peek()
        self._waiting = OperatorMessages(paused=found.paused)
        return found

    def close(self, spent_micros: int | None = None) -> None:
        """End the session of the run. `spent_micros` is the cost of the run; `None`: unknown."""

        def work(tx: Transaction) -> None:
            if tx.note is not None:
                notes = Notes.load(tx.note)._replace(ended=True, works=False, paused=False)
                tx.note = notes._replace(spent_micros=spent_micros).dump()

        if self._is_watched or announcement(self._folder) is not None:
            with suppress(StoreError):
                self._store.transact(self.circuit, work)
        clear_announcement(self._folder)

    def _read(self) -> None:
        def work(tx: Transaction) -> tuple[OperatorMessages, float]:
            notes = Notes.load(tx.note)
            if tx.note is None or notes.ended:
                return OperatorMessages(), 0.0
            others = {key: value for key, value in notes.more.items() if key != _RUN_FIELDS}
            fields = notes.more.get(_RUN_FIELDS)
            hand_over = str(fields.get("hand_over") or "") if isinstance(fields, dict) else ""
            tx.note = notes._replace(pending=(), heard_s=tx.now_s, more=others).dump()
            found = OperatorMessages(
                notes.pending, Extension.of(notes.more), hand_over, notes.stop, notes.paused
            )
            return found, (notes.limit_s or 0.0)

        try:
            new, limit_s = self._store.transact(self.circuit, work)
        except StoreError:
            return
        granted_s = 0.0
        if self._limit_s is not None and limit_s > self._limit_s:
            granted_s, self._limit_s = limit_s - self._limit_s, limit_s
        old = self._waiting
        self._waiting = OperatorMessages(
            (*old.texts, *new.texts),
            old.extension.plus(new.extension).plus(Extension(granted_s)),
            new.hand_over or old.hand_over,
            new.stop or old.stop,
            new.paused,
        )
        if new.paused and self._paused_since_s is None:
            self._paused_since_s = self._clock()
        elif not new.paused and self._paused_since_s is not None:
            self._paused_s += self._clock() - self._paused_since_s
            self._paused_since_s = None
