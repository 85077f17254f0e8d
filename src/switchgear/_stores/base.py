"""The interfaces of stores, and what all stores share. A store applies a message in one transaction.

A breaker needs only `Remembers`. A panel needs a `Store`, which holds many circuits, their policies and
one ordered stream of events, and which processes or machines can share. A `Ledger` holds budgets and locks.
"""

from _thread import _local as local  # `threading.local`; hooks do not import `threading`
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from switchgear._core import values
from switchgear._core.errors import StoreCorrupt, StoreError
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Event, EventKind, Message, Mode, Override, Record, Step
from switchgear._system.clock import Clock
from switchgear._system.threads import ForkSafeLock


class Amended(NamedTuple):
    """The result of an amendment."""

    answer: Any
    """What `amend` returns."""
    value: Any = None
    """The new value; `None`: the value stays, and no line is written."""
    lines: tuple[Any, ...] = ()
    """The lines to append to the history of the value."""


Work = Callable[[Any, float], Amended]
"""Maps the current value (`None`: there is none) and the store's time to the amendment. Pure: it is
called again if another process committed first."""


class Ledger(Protocol):
    """Values with a history of lines, for budgets and locks. A shelf is a set of keys. Thread-safe.

    Every method raises `StoreError` if it fails.
    """

    label: str

    def amend(self, shelf: str, key: str, work: Work) -> Any:
        """Load the value, compute the new one with `work`, and save it with its lines: all or nothing."""

    def value(self, shelf: str, key: str) -> Any:
        """The current value; `None`: there is none."""

    def keys(self, shelf: str) -> list[str]:
        """The keys of a shelf that have values, sorted."""

    def lines(self, shelf: str, key: str) -> Iterable[Any]:
        """All lines of a value, oldest first."""

    def remove(self, shelf: str, key: str) -> None:
        """Remove a value with its lines. Idempotent. Never used for budgets: their lines are the account."""

    def now_s(self) -> float:
        """Seconds since the epoch on the store's clock."""


def ledger_of(store: Any) -> Ledger:
    """The ledger of a store. Raises `StoreError` if the store has none."""
    get_ledger = getattr(store, "ledger", None)
    if get_ledger is None:
        label = getattr(store, "label", type(store).__name__)
        raise StoreError(label, "it keeps no budgets and no locks", "use memory, SQLite or Redis")
    ledger: Ledger = get_ledger()
    return ledger


def as_text(value: Any) -> str:
    import json  # noqa: PLC0415  not needed in memory

    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def from_text(label: str, where: str, text: Any) -> Any:
    """The inverse of `as_text`. Raises `StoreCorrupt`: unreadable budgets and locks are never replaced."""
    import json  # noqa: PLC0415

    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        why = f"{where} cannot be read: {error}"
        raise StoreCorrupt(label, why, "restore it from a backup, or remove it") from None


class MemoryLedger:
    """A ledger in the memory of this process. Thread-safe and fork-safe."""

    def __init__(self, label: str, clock: Clock) -> None:
        self.label = label
        self.now_s = clock
        self._lock = ForkSafeLock()
        self._texts: dict[tuple[str, str], str] = {}
        self._lines: dict[tuple[str, str], list[str]] = {}

    def amend(self, shelf: str, key: str, work: Work) -> Any:
        """As in `Ledger`. Values are converted to JSON and back, so that they are the same as in a file."""
        with self._lock:
            text = self._texts.get((shelf, key))
            done = work(self._read(text), self.now_s())
            if done.value is not None:
                self._texts[shelf, key] = as_text(done.value)
                self._lines.setdefault((shelf, key), []).extend(map(as_text, done.lines))
        return done.answer

    def value(self, shelf: str, key: str) -> Any:
        return self._read(self._texts.get((shelf, key)))

    def keys(self, shelf: str) -> list[str]:
        with self._lock:
            return sorted(key for found, key in self._texts if found == shelf)

    def lines(self, shelf: str, key: str) -> list[Any]:
        with self._lock:
            return [self._read(line) for line in self._lines.get((shelf, key), ())]

    def remove(self, shelf: str, key: str) -> None:
        with self._lock:
            self._texts.pop((shelf, key), None)
            self._lines.pop((shelf, key), None)

    def _read(self, text: str | None) -> Any:
        return None if text is None else from_text(self.label, "a value", text)


KEEP_EVENTS = 10_000
"""Default number of events that a store keeps, over all circuits."""
NOTE_S = 86_400.0
"""Default time for which a note is kept, in seconds."""
IDLE_S = 30 * 86_400.0
"""Default time in seconds without a change after which a circuit counts as abandoned."""

T = TypeVar("T")

LONGEST_NAME = 500
"""Maximum number of characters of a circuit's name."""


class StoredCircuit(NamedTuple):
    """A stored circuit and the policy that last evaluated it."""

    circuit: Circuit
    policy: Policy


class Entry(NamedTuple):
    """An event in the stream of its store."""

    cursor: str
    """The position of the event in the stream: `events(after=cursor)` continues after it."""
    event: Event


class Vacuumed(NamedTuple):
    """The numbers of circuits and events that a vacuum removed."""

    circuits: int
    events: int


class Transaction(Protocol):
    """Messages to several circuits and one note, saved together. Used by one thread, inside `transact`."""

    now_s: float
    """Seconds since the epoch, when the transaction started."""
    note: str | None
    """The current note; assign another to save it. `None`: there is none."""
    keep_s: float
    """Seconds from now for which the note is kept."""

    def apply(self, key: str, policy: Policy, message: Message) -> Step:
        """Apply one message, as `Store.apply` does."""


class Remembers(Protocol):
    """The part of a store that a breaker needs. Thread-safe; no user code runs inside."""

    pushes: bool
    """Whether changes of other processes are pushed, and a background thread folds the counts."""

    @property
    def refresh_s(self) -> float | None:
        """Maximum age of a snapshot in seconds; `None`: changes are pushed."""

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """Load or start the circuit, apply the message, save the circuit and its events: all or nothing."""

    async def aapply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """`apply` without blocking the event loop."""

    def is_mine(self) -> bool:
        """Whether the calling thread is already inside `apply`, as in a finalizer that interrupted it."""


class Store(Protocol):
    """The interface of stores: circuits, one stream of events, one clock.

    Every method raises `StoreError` if it fails.
    """

    label: str
    """The URL of the store without a password, for messages."""
    pushes: bool
    """Whether `on_change` calls its listener: then snapshots need no polling."""

    @property
    def refresh_s(self) -> float | None:
        """Maximum age of a snapshot in seconds; `None`: changes are pushed."""

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """Load or start the circuit, apply the message, save the circuit and its events: all or nothing."""

    async def aapply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """`apply` without blocking the event loop."""

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Run `work` with messages to several circuits and the note called `name`, one caller at a time.

        In memory and in SQLite, everything is saved or nothing; on Redis, each message is saved by
        itself. `work` may run again, so it must have no effects besides its calls of the transaction; an
        exception undoes everything.
        """

    def now_s(self) -> float:
        """Seconds since the epoch on the store's clock, the same for all processes that share it."""

    def get(self, key: str) -> StoredCircuit | None:
        """One circuit as stored, not advanced to the current time; `None`: it does not exist."""

    def find(self, glob: str = "*") -> Iterable[StoredCircuit]:
        """The circuits whose names match a glob (`*`, `?`, `[ab]`), sorted by name."""

    def events(
        self, *, after: str | None = None, glob: str = "*", limit: int = 1000
    ) -> list[Entry]:
        """The events after a cursor, oldest first; without a cursor the newest events, oldest first.

        The cursor `0` is before the oldest event, in every store.
        """

    def put(self, found: StoredCircuit, events: Sequence[Event] = ()) -> bool:
        """Save a circuit of another store; false: this store has the same or a newer version."""

    def retain(self, *, keep_events: int, idle_s: float) -> None:
        """Set the retention; events and circuits beyond it are removed with later writes."""

    def vacuum(self, *, keep_events: int, idle_s: float, now_s: float) -> Vacuumed:
        """Remove the oldest events, and closed circuits without an override that were idle for long."""

    def operator_digest(self) -> str | None:
        """The SHA-256 of the token that overrides need; `None`: they need none."""

    def set_operator_digest(self, digest: str | None, *, instead_of: str | None) -> bool:
        """Replace the digest `instead_of`, or remove it; false: the stored digest is another one."""

    def on_change(self, listener: Callable[[Circuit], object]) -> None:
        """Call the listener with circuits that other processes changed, if the store can push.

        A circuit that the store has lost is passed too, with its last known state: a listener that
        needs it sends it a message, which restores it. The listener runs in a thread of the store.
        Its exceptions are logged and dropped.
        """

    def facts(self) -> dict[str, str]:
        """Versions, sizes and settings, for `switchgear doctor`. Raises `StoreError` on damage."""

    def close(self) -> None:
        """Close files and connections. Idempotent."""


class _LastCommit(local):
    """The last message of this thread that a store has committed; see `was_committed`."""

    message: object = None


last_commit = _LastCommit()


def was_committed(message: object) -> bool:
    """Whether a store has committed this message of this thread.

    An interrupt may arrive between a commit and the return to the caller. A message that is then
    sent again would be counted twice.
    """
    return last_commit.message is message


def checked_name(name: str) -> str:
    """The name of a circuit, unchanged. Raises ValueError if a store could not save it."""
    return checked_glob(values.check_text("name", name), "name")


def checked_glob(glob: str, what: str = "glob") -> str:
    """The glob, unchanged. Raises ValueError if it is too long or cannot be encoded."""
    if len(glob) > LONGEST_NAME:
        begins, rule = f"{glob[:40]!r}…", f"it must have at most {LONGEST_NAME}"
        raise ValueError(f"{what} is {begins}, of {len(glob):,} characters: {rule}")
    if not glob.isascii():
        try:
            glob.encode()
        except UnicodeEncodeError:
            rule = "it must be text that can be written as UTF-8"
            raise ValueError(f"{what} is {glob!r}: {rule}") from None
    return glob


def is_only_time(message: Message) -> bool:
    """Whether a message only advances the time, so that reading is usually enough."""
    return isinstance(message, Record) and not message.signal.count and not message.signal.refused


def is_abandoned(circuit: Circuit, idle_s: float, now_s: float) -> bool:
    """Whether a vacuum may remove a circuit: it is idle, closed and not held."""
    return (
        now_s - circuit.seen_s >= idle_s and circuit.mode is Mode.AUTO and circuit.phase == "closed"
    )


def start_from_scratch(
    policy: Policy, key: str, message: Message, now_s: float, *, why: str, event_seq: int
) -> Step:
    """Apply a message to a circuit whose stored state could not be read.

    The circuit never silently counts as closed: there is an event, and with a strict policy it is held
    open until an operator releases it. `event_seq` is the last known number of its events. The version
    continues from the time in milliseconds, which is above every version of the lost state, so that
    other processes accept the circuit as newer.
    """
    version = max(0, int(now_s * 1000))
    fresh = policy.start(key, now_s)._replace(event_seq=event_seq, version=version)
    remark = Override(
        "switchgear",
        f"{why}; its evidence is lost and it starts from scratch",
        mode=Mode.HELD_OPEN if policy.strict else None,
        kind=EventKind.STATE_UNREADABLE,
    )
    started = step(policy, fresh, remark, now_s)
    done = step(policy, started.circuit, message, now_s)
    return done._replace(events=started.events + done.events)
