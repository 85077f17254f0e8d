"""Holder and waiters of a resource, with times: a lock as a value, and a pure fold over it.

A holder has the lock for a lease, with a fencing token that is higher than any before: a request
to the resource with a lower token comes from a former holder. Waiters are served in order of
arrival; a waiter that no longer polls loses its place.
"""

from typing import Any, NamedTuple

from switchgear._core import values

PLACE_S = 5.0
"""Seconds that a place in the queue is kept without a new request."""
MOST_WAITING = 1_000
SCHEMA = 1


class LockHolder(NamedTuple):
    id: str
    owner: str
    since_s: float
    until_s: float
    """When the lease ends, and others may acquire it."""


class Waiter(NamedTuple):
    id: str
    owner: str
    since_s: float
    seen_s: float
    """When the waiter last polled."""


class Tenure(NamedTuple):
    """A resource: its holder, its waiters, and the last fencing token."""

    token: int = 0
    holder: LockHolder | None = None
    waiting: tuple[Waiter, ...] = ()
    seen_s: float = 0.0
    """The latest time seen: the time of a lock never runs backwards."""


class Take(NamedTuple):
    """Request the lock, now or when it is this caller's turn."""

    id: str
    owner: str
    lease_s: float


class Extend(NamedTuple):
    """Extend the lease."""

    id: str
    lease_s: float


class Release(NamedTuple):
    """Release the lock, or leave the queue."""

    id: str


class Break(NamedTuple):
    """Take the lock from its holder."""


LockRequest = Take | Extend | Release | Break


class Granted(NamedTuple):
    has: bool
    """Whether the caller holds the lock; after a release: whether it held it until then."""
    token: int = 0
    until_s: float = 0.0
    holder: str = ""
    """The current holder instead."""
    ahead: int = 0
    """Number of callers ahead in the queue."""


class Moved(NamedTuple):
    tenure: Tenure
    granted: Granted


def move(tenure: Tenure, request: LockRequest, now_s: float) -> Moved:
    """Apply a request, if it is allowed. Pure.

    >>> one = move(Tenure(), Take("a", "ada", 10.0), 0.0)
    >>> one.granted.token, move(one.tenure, Take("b", "bob", 10.0), 1.0).granted.holder
    (1, 'ada')
    >>> move(one.tenure, Take("b", "bob", 10.0), 10.0).granted.token
    2
    """
    now_s = max(now_s, tenure.seen_s)
    tenure = _at(tenure, now_s)
    if isinstance(request, Take):
        return _take(tenure, request, now_s)
    if isinstance(request, Extend):
        return _extend(tenure, request, now_s)
    if isinstance(request, Release):
        return _release(tenure, request)
    return Moved(tenure._replace(holder=None), Granted(tenure.holder is not None))


def _at(tenure: Tenure, now_s: float) -> Tenure:
    """The lock without expired leases and without waiters that no longer poll."""
    holder = tenure.holder
    if holder is not None and holder.until_s <= now_s:
        holder = None
    waiting = tuple(one for one in tenure.waiting if now_s - one.seen_s < PLACE_S)
    return Tenure(tenure.token, holder, waiting, now_s)


def _take(tenure: Tenure, request: Take, now_s: float) -> Moved:
    holder, waiting = tenure.holder, tenure.waiting
    if holder is not None and holder.id == request.id:
        return Moved(tenure, Granted(True, tenure.token, holder.until_s))
    place = next((at for at, one in enumerate(waiting) if one.id == request.id), len(waiting))
    if holder is None and place == 0:
        mine = LockHolder(request.id, request.owner, now_s, now_s + request.lease_s)
        rest = tuple(one for one in waiting if one.id != request.id)
        granted = Granted(True, tenure.token + 1, mine.until_s)
        return Moved(Tenure(tenure.token + 1, mine, rest, now_s), granted)
    known = (
        waiting[place] if place < len(waiting) else Waiter(request.id, request.owner, now_s, now_s)
    )
    # Updated only now and then, so that waiting is mostly reading.
    is_fresh = now_s - known.seen_s < PLACE_S / 4
    me = known if is_fresh else known._replace(seen_s=now_s)
    queue = (*waiting[:place], me, *waiting[place + 1 :])[:MOST_WAITING]
    ahead = place + (holder is not None)
    granted = Granted(False, holder="" if holder is None else holder.owner, ahead=ahead)
    return Moved(tenure._replace(waiting=queue), granted)


def _extend(tenure: Tenure, request: Extend, now_s: float) -> Moved:
    holder = tenure.holder
    if holder is None or holder.id != request.id:
        return Moved(tenure, Granted(False))
    longer = holder._replace(until_s=now_s + request.lease_s)
    return Moved(tenure._replace(holder=longer), Granted(True, tenure.token, longer.until_s))


def _release(tenure: Tenure, request: Release) -> Moved:
    holder = tenure.holder
    rest = tenure._replace(waiting=tuple(one for one in tenure.waiting if one.id != request.id))
    if holder is None or holder.id != request.id:
        return Moved(rest, Granted(False))
    return Moved(rest._replace(holder=None), Granted(True, tenure.token))


def state_at(tenure: Tenure, now_s: float) -> Tenure:
    """The state of the lock at a time; nothing is changed."""
    return _at(tenure, max(now_s, tenure.seen_s))


def dump_tenure(tenure: Tenure) -> dict[str, Any]:
    holder = tenure.holder
    return {
        "schema": SCHEMA,
        "token": tenure.token,
        "holder": None if holder is None else list(holder),
        "waiting": [list(one) for one in tenure.waiting],
        "seen_s": tenure.seen_s,
    }


def load_tenure(data: Any) -> Tenure:
    """The inverse of `dump_tenure`; `None` is a free lock. Raises ValueError for anything else."""
    if data is None:
        return Tenure()
    try:
        if data["schema"] != SCHEMA:
            raise ValueError(
                f"its schema is {data['schema']!r}, and this Switchgear reads up to {SCHEMA}"
            )
        holder = data["holder"]
        return Tenure(
            values.check_int("token", data["token"], least=0),
            None if holder is None else LockHolder(*holder),
            tuple(Waiter(*one) for one in data["waiting"]),
            values.check_number("seen_s", data["seen_s"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the lock cannot be read: {error!r}") from None
