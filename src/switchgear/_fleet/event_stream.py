"""Events of the store, each to whoever must act on it, at least once and in order.

An event is committed with the state that it describes, so the stream of a store is its own outbox:
nothing is enqueued while a circuit decides, and nothing is lost between the decision and the act.
Who acts keeps a place in the stream, in the same store, and moves it behind what is done.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from switchgear._panel.panel import Panel
from switchgear._stores.base import Entry
from switchgear._stores.ledger import Amended, ledger_of

SHELF = "place"
LEASE_S = 60.0
"""How long somebody who acts keeps others from acting on the same events, unless it is renewed."""
PAGE = 200


class Turn(NamedTuple):
    """Somebody's turn to act."""

    cursor: str | None
    """The last event that is done; `None`: none yet."""
    trouble: dict[str, Any]
    """What the one before left to remember, such as failed attempts."""


class Place:
    """A reader's place in the stream of events. Processes share it: one of them acts at a time."""

    def __init__(self, panel: Panel, name: str, me: str, lease_s: float = LEASE_S) -> None:
        self._panel = panel
        self._ledger = ledger_of(panel.store.inner)
        self._name = name
        self._me = me
        self._lease_s = lease_s

    def take(self) -> Turn | None:
        """Our turn, for a lease; `None`: it is somebody else's. Raises `StoreError`."""

        def work(value: Any, now_s: float) -> Amended:
            value = value or {"cursor": None, "owner": None, "until_s": 0.0, "trouble": {}}
            if value["owner"] not in {None, self._me} and now_s < value["until_s"]:
                return Amended(None)
            ours = {**value, "owner": self._me, "until_s": now_s + self._lease_s}
            return Amended(Turn(value["cursor"], value["trouble"]), ours)

        turn: Turn | None = self._ledger.amend(SHELF, self._name, work)
        return turn

    def move(self, cursor: str | None, trouble: dict[str, Any] | None = None) -> bool:
        """What is up to this event is done; our lease begins anew. False: it is no longer ours."""

        def work(value: Any, now_s: float) -> Amended:
            if value is None or value["owner"] != self._me:
                return Amended(False)
            place = {"cursor": cursor, "trouble": trouble or {}}
            return Amended(True, {**value, **place, "until_s": now_s + self._lease_s})

        return bool(self._ledger.amend(SHELF, self._name, work))

    def leave(self) -> None:
        """Let others have their turn."""

        def work(value: Any, now_s: float) -> Amended:
            del now_s
            if value is None or value["owner"] != self._me:
                return Amended(None)
            return Amended(None, {**value, "owner": None, "until_s": 0.0})

        self._ledger.amend(SHELF, self._name, work)

    def behind(self, cursor: str | None) -> list[Entry]:
        """The next events; from the oldest that is kept, for a reader who has no place yet."""
        if cursor is not None:
            return self._panel.events(after=cursor, limit=PAGE)
        try:
            return self._panel.events(after="0", limit=PAGE)
        except ValueError:  # a Redis stream counts otherwise
            return self._panel.events(after="0-0", limit=PAGE)

    def is_at_end(self) -> bool:
        """Whether there is nothing new; only looks, so that who waits writes nothing."""
        value = self._ledger.value(SHELF, self._name)
        return value is not None and not self.behind(value["cursor"])

    def each(self, act: Callable[[Entry], object]) -> int:
        """Act on every event behind our place, if it is our turn; how many. Raises what `act` does.

        The place moves behind each event that is done: one that is cut short is done again.
        """
        turn = None if self.is_at_end() else self.take()
        if turn is None:
            return 0
        cursor, done = turn.cursor, 0
        try:
            while entries := self.behind(cursor):
                for entry in entries:
                    act(entry)
                    done += 1
                    cursor = entry.cursor
                if not self.move(cursor):
                    return done
        finally:
            if done:
                self.move(cursor)
            self.leave()
        return done
