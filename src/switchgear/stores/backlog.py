"""What a store has yet to hear about one circuit. Bounded: equal news are counted, not listed."""

from collections import deque

from switchgear.core.policy import Policy
from switchgear.core.types import Circuit, Tell
from switchgear.errors import StoreError

LISTED = 1000
"""How many different messages are kept apart; beyond that, only their counts are."""


class Backlog:
    """A circuit away from its store. Not thread-safe: its owner's lock is held."""

    __slots__ = ("_messages", "circuit", "error", "policy", "remarked", "since_s", "told")

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
        """Why it is away."""
        self.since_s = since_s
        self.told = 0
        """How many things the store has heard since it is back."""
        self.remarked = False
        """Whether the store has written down that it was gone."""
        self._messages: deque[Tell] = deque()

    def add(self, message: Tell) -> None:
        """Queue what was told; no count is ever lost, only texts and times of very many."""
        if not message.signal.count and not message.signal.refused:
            return
        if self._messages and (merged := self._merged(self._messages[-1], message)) is not None:
            self._messages[-1] = merged
        else:
            self._messages.append(message)

    def first(self) -> Tell | None:
        """The oldest message."""
        return self._messages[0] if self._messages else None

    def drop_first(self, message: Tell) -> None:
        """Forget the oldest, of which this much was told; what was added to it meanwhile stays."""
        now = self._messages[0]
        self.told += message.signal.count + message.signal.refused
        if now is message:
            self._messages.popleft()
            return
        left = now.signal._replace(
            count=now.signal.count - message.signal.count,
            refused=now.signal.refused - message.signal.refused,
        )
        self._messages[0] = now._replace(signal=left)

    def _merged(self, last: Tell, new: Tell) -> Tell | None:
        if last.permit != new.permit:
            return None
        one, two = last.signal, new.signal
        count, refused = one.count + two.count, one.refused + two.refused
        same = one._replace(count=0, refused=0) == two._replace(count=0, refused=0)
        crowded = len(self._messages) >= LISTED and one.ok == two.ok
        # Costs add up by count, so only equal costs may be counted together.
        if not same and not (crowded and one.cost_micros == two.cost_micros):
            return None
        return new._replace(signal=two._replace(count=count, refused=refused))
