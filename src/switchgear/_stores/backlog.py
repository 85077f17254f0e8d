"""Updates of one circuit that are not saved yet: a queue of messages, beyond a limit only their sums."""

from collections import deque

from switchgear._core.errors import StoreError
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Permit, Record

LISTED = 1000
"""Maximum number of different messages in the queue; beyond it, only sums are kept."""


HEAVIEST = 10**12
"""Maximum cost or count of one message."""


class Pile:
    """The sum of messages with the same permit and outcome; the texts are those of the last."""

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
    def is_heavy(self) -> bool:
        """Whether one more message could exceed the maximum."""
        return max(self.count, self.refused, self.cost_micros) >= HEAVIEST

    def tells(self) -> list[Record]:
        """The fewest messages with the same sum.

        A cost is that of each thing, so costs that differ become the cost of one of the things.
        """
        signal = self.last.signal
        dear = 1 if self.cost_micros else 0
        rest = signal._replace(count=self.count - dear, refused=self.refused, cost_micros=None)
        found = [rest] if rest.count or rest.refused else []
        if dear:
            found.append(signal._replace(count=1, refused=0, cost_micros=self.cost_micros))
        return [self.last._replace(signal=signal) for signal in found]


class Backlog:
    """The unsaved updates of a circuit. Not thread-safe: the owner's lock must be held."""

    __slots__ = (
        "_in_doubt",
        "_messages",
        "_piles",
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
        """Why updates cannot be saved."""
        self.since_s = since_s
        self.process: str | None = None
        """The name with which this process reports; `None`: its circuit needs no reports."""
        self.told = 0
        """Number of updates saved since the store is back."""
        self.remarked = False
        """Whether the store has saved the event of the outage."""
        self._messages: deque[Record] = deque()
        self._in_doubt: dict[str, Record] = {}
        """Messages by their identity that the store may have saved: sent first, each by itself."""
        self.remark_in_doubt: str | None = None
        """The identity of the remark that the store is back, if its reply was lost."""
        self._piles: dict[tuple[Permit | None, bool | None], Pile] = {}

    def __len__(self) -> int:
        """Approximate number of messages that are left to save."""
        return len(self._in_doubt) + len(self._messages) + 2 * len(self._piles)

    @property
    def waiting(self) -> int:
        messages = (*self._in_doubt.values(), *self._messages)
        listed = sum(message.signal.count + message.signal.refused for message in messages)
        return listed + sum(pile.count + pile.refused for pile in self._piles.values())

    def add(self, message: Record, identity: str | None = None) -> None:
        """Queue an update. Counts are never lost; with very many updates, texts and times are.

        `identity`: the store may have saved it. It is sent as it is, and never added to another.
        """
        if not message.signal.count and not message.signal.refused:
            return
        if identity is not None:
            self._in_doubt[identity] = message
            return
        if self._piles or len(self._messages) >= LISTED:
            self._pile(message)
        elif self._messages and (merged := _merge(self._messages[-1], message)) is not None:
            self._messages[-1] = merged
        else:
            self._messages.append(message)

    def first(self) -> Record | None:
        """The oldest message; `identity_of` has its identity, if it may have been saved."""
        if self._in_doubt:
            return next(iter(self._in_doubt.values()))
        if not self._messages and self._piles:
            pile = self._piles.pop(next(iter(self._piles)))
            self._messages.extend(pile.tells())
        return self._messages[0] if self._messages else None

    def identity_of(self, message: Record) -> str | None:
        """The identity of a message that may have been saved."""
        for identity, one in self._in_doubt.items():
            if one is message:
                return identity
        return None

    def doubt(self, message: Record, identity: str) -> None:
        """Note that the oldest was sent and its reply lost; later additions to it stay queued."""
        if self.identity_of(message) is None:
            self._take_off(message)
            self._in_doubt[identity] = message

    def drop_first(self, message: Record) -> None:
        """Remove the saved part of the oldest; later additions to it stay queued."""
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
        self._messages = deque([first])  # it may be on its way
        for message in rest:
            self._pile(message)

    def _pile(self, message: Record) -> None:
        key = message.permit, message.signal.ok
        pile = self._piles.get(key)
        if pile is not None and pile.is_heavy:
            self._messages.extend(self._piles.pop(key).tells())
            pile = None
        if pile is None and len(self._piles) >= LISTED:
            # Only this process has these generations, so all of these permits are stale.
            alike = (known for known in reversed(self._piles) if known[1] == message.signal.ok)
            pile = self._piles.get(next(alike, key))
        if pile is None:
            pile = self._piles[key] = Pile(message)
        pile.add(message)


def _merge(last: Record, new: Record) -> Record | None:
    """Both as one message, if they differ only in their counts."""
    one, two = last.signal, new.signal
    count, refused = one.count + two.count, one.refused + two.refused
    same = one._replace(count=0, refused=0) == two._replace(count=0, refused=0)
    heaviest = max(count, refused, count * (one.cost_micros or 0))
    if last.permit != new.permit or not same or heaviest > HEAVIEST:
        return None
    return last._replace(signal=two._replace(count=count, refused=refused))
