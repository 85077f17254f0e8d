"""The unsaved updates of one circuit: a queue of records, and beyond a limit only their sums."""

from collections import deque

from switchgear._core.errors import StoreError
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Permit, Record

LISTED = 1000
"""Maximum number of different records in the queue; beyond it, only sums are kept."""


HEAVIEST = 10**12
"""Maximum cost or count of one message."""


class RecordSum:
    """The sum of records with the same permit and outcome; its texts are those of the last record."""

    __slots__ = ("cost_micros", "count", "last", "refused")

    def __init__(self, last: Record) -> None:
        self.last = last
        self.count = self.refused = self.cost_micros = 0

    def add(self, message: Record) -> None:
        signal = message.signal
        self.count += signal.count
        self.refused += signal.refused
        self.cost_micros += signal.count * (signal.cost_micros or 0)
        self.last = self.last._replace(signal=signal)

    @property
    def is_full(self) -> bool:
        """Whether one more record could exceed the maximum of a record."""
        return max(self.count, self.refused, self.cost_micros) >= HEAVIEST

    def records(self) -> list[Record]:
        """One or two records with the same sum.

        The cost of a record applies to each of its results, so the total cost becomes the cost of one
        result, in a record of its own.
        """
        signal = self.last.signal
        costly = 1 if self.cost_micros else 0
        rest = signal._replace(count=self.count - costly, refused=self.refused, cost_micros=None)
        found = [rest] if rest.count or rest.refused else []
        if costly:
            found.append(signal._replace(count=1, refused=0, cost_micros=self.cost_micros))
        return [self.last._replace(signal=signal) for signal in found]


class Backlog:
    """The unsaved updates of a circuit. Not thread-safe: the owner's lock must be held."""

    __slots__ = (
        "_in_doubt",
        "_messages",
        "_sums",
        "circuit",
        "error",
        "policy",
        "process",
        "remark_in_doubt",
        "remarked",
        "since_s",
        "told",
    )

    def __init__(
        self,
        policy: Policy,
        circuit: Circuit,
        error: StoreError | None = None,
        since_s: float = 0.0,
    ) -> None:
        self.policy = policy
        self.circuit = circuit
        self.error = error
        """Why the updates cannot be saved."""
        self.since_s = since_s
        self.process: str | None = None
        """The name under which this process reports; `None`: its circuit needs no reports."""
        self.told = 0
        """Number of results and refusals that were saved since the store is back."""
        self.remarked = False
        """Whether the store has saved the event of the outage."""
        self._messages: deque[Record] = deque()
        self._in_doubt: dict[str, Record] = {}
        """Records that the store may have saved, by their identity: sent first, each by itself."""
        self.remark_in_doubt: str | None = None
        """The identity of the remark that the store is back, if its reply was lost."""
        self._sums: dict[tuple[Permit | None, bool | None], RecordSum] = {}

    def __len__(self) -> int:
        """Approximate number of records that are left to save."""
        return len(self._in_doubt) + len(self._messages) + 2 * len(self._sums)

    @property
    def waiting(self) -> int:
        messages = (*self._in_doubt.values(), *self._messages)
        listed = sum(message.signal.count + message.signal.refused for message in messages)
        return listed + sum(total.count + total.refused for total in self._sums.values())

    def add(self, message: Record, identity: str | None = None) -> None:
        """Queue an update. Counts are never lost; texts and times are lost if there are very many updates.

        With an `identity`, the store may have saved the update: it is sent unchanged, never as part of
        a sum.
        """
        if not message.signal.count and not message.signal.refused:
            return
        if identity is not None:
            self._in_doubt[identity] = message
            return
        if self._sums or len(self._messages) >= LISTED:
            self._add_to_sum(message)
        elif self._messages and (merged := _merge(self._messages[-1], message)) is not None:
            self._messages[-1] = merged
        else:
            self._messages.append(message)

    def first(self) -> Record | None:
        """The oldest record; `None`: there is none. See `identity_of`: the store may have saved it."""
        if self._in_doubt:
            return next(iter(self._in_doubt.values()))
        if not self._messages and self._sums:
            total = self._sums.pop(next(iter(self._sums)))
            self._messages.extend(total.records())
        return self._messages[0] if self._messages else None

    def identity_of(self, message: Record) -> str | None:
        """The identity of a record that may have been saved; `None`: it has not been saved."""
        for identity, one in self._in_doubt.items():
            if one is message:
                return identity
        return None

    def doubt(self, message: Record, identity: str) -> None:
        """Note that the oldest record was sent and its reply lost; later additions to it stay queued."""
        if self.identity_of(message) is None:
            self._take_off(message)
            self._in_doubt[identity] = message

    def drop_first(self, message: Record) -> None:
        """Remove the saved part of the oldest record; later additions to it stay queued."""
        self.told += message.signal.count + message.signal.refused
        identity = self.identity_of(message)
        if identity is None:
            self._take_off(message)
        else:
            del self._in_doubt[identity]

    def _take_off(self, message: Record) -> None:
        now = self._messages[0]
        if now is message:
            self._messages.popleft()
            return
        left = now.signal._replace(
            count=now.signal.count - message.signal.count,
            refused=now.signal.refused - message.signal.refused,
        )
        self._messages[0] = now._replace(signal=left)

    def condense(self) -> None:
        """Keep only sums from now on: there is no time left to save updates one by one."""
        first, *rest = self._messages or (None,)
        if first is None:
            return
        self._messages = deque([first])  # it may just be on its way to the store
        for message in rest:
            self._add_to_sum(message)

    def _add_to_sum(self, message: Record) -> None:
        key = message.permit, message.signal.ok
        total = self._sums.get(key)
        if total is not None and total.is_full:
            self._messages.extend(self._sums.pop(key).records())
            total = None
        if total is None and len(self._sums) >= LISTED:
            # Only this process knows these generations, so all of these permits are stale.
            alike = (known for known in reversed(self._sums) if known[1] == message.signal.ok)
            total = self._sums.get(next(alike, key))
        if total is None:
            total = self._sums[key] = RecordSum(message)
        total.add(message)


def _merge(last: Record, new: Record) -> Record | None:
    """Both as one record if they differ only in their counts, else `None`."""
    one, two = last.signal, new.signal
    count, refused = one.count + two.count, one.refused + two.refused
    same = one._replace(count=0, refused=0) == two._replace(count=0, refused=0)
    heaviest = max(count, refused, count * (one.cost_micros or 0))
    if last.permit != new.permit or not same or heaviest > HEAVIEST:
        return None
    return last._replace(signal=two._replace(count=count, refused=refused))
