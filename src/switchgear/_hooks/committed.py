"""The events that a hook commits: sinks and notification targets receive them after the answer.

An agent waits for the hook, so a process of its own calls the sinks, writes incidents and sends
notifications (`drain.py`). It is started only where the configuration names any of these.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from switchgear._core.types import Event

T = TypeVar("T")
MOST_EVENTS = 50
"""Events handed over after one hook call; the store has all of them."""


class Recorder:
    """A store that also remembers the events of its transactions. Used by one thread."""

    def __init__(self, store: Any, committed: list[Event]) -> None:
        self._store = store
        self._committed = committed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply(self, *given: Any) -> Any:
        """As the store does."""
        done = self._store.apply(*given)
        self._committed.extend(done.events)
        return done

    def transact(self, name: str, work: Callable[[Any], T]) -> T:
        """As the store does; what is run again is remembered once."""
        found: list[Event] = []

        def inside(transaction: Any) -> T:
            found.clear()
            return work(_Noting(transaction, found))

        answer: T = self._store.transact(name, inside)
        self._committed.extend(found)
        return answer


class _Noting:
    """A transaction whose events are noted."""

    __slots__ = ("_found", "_transaction")

    def __init__(self, transaction: Any, found: list[Event]) -> None:
        object.__setattr__(self, "_transaction", transaction)
        object.__setattr__(self, "_found", found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._transaction, name, value)

    def apply(self, *given: Any) -> Any:
        """As the transaction does."""
        done = self._transaction.apply(*given)
        self._found.extend(done.events)
        return done


def hand_over(root: str, committed: list[Event]) -> None:
    """Let a process of its own deal with the events; the caller does not wait for it."""
    if not committed:
        return
    import json  # noqa: PLC0415  seldom

    from switchgear._core.wire import dump_event  # noqa: PLC0415  seldom
    from switchgear._hooks.after_reply import spawn  # noqa: PLC0415

    events = [dump_event(event) for event in committed[-MOST_EVENTS:]]
    committed.clear()
    try:
        spawn("drain.py", root, given=json.dumps({"events": events}).encode())
    except (OSError, ValueError):
        return  # the events are in the store: the next command or hook sends them
