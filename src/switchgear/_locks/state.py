"""A lock as a value: its holder and waiters with their times, and a pure function that applies requests.

A holder has the lock for a lease, with a fencing token that is higher than all before: a request
to the resource with a lower token comes from a former holder. Waiters are served in order of
arrival; a waiter that no longer polls loses its place.
"""

from typing import Any, NamedTuple

from switchgear._core import values

PLACE_S = 5.0
"""Seconds that a waiter keeps its place in the queue without a new request."""
MOST_WAITING = 1_000
SCHEMA = 1


class LockHolder(NamedTuple):
    id: str
    owner: str
    since_s: float
    until_s: float
    """When the lease ends, and others may acquire the lock."""


class Waiter(NamedTuple):
    id: str
    owner: str
    since_s: float
    seen_s: float
    """When the waiter last polled."""


class Tenure(NamedTuple):
    """The lock of one resource: its holder, its waiters, and the last fencing token."""

    token: int = 0
    holder: LockHolder | None = None
    waiting: tuple[Waiter, ...] = ()
    seen_s: float = 0.0
    """The latest time seen: the time of a lock never runs backwards."""


class AcquireLock(NamedTuple):
    """Acquire the lock, or keep a place in its queue."""

    id: str
    owner: str
    lease_s: float


class RenewLease(NamedTuple):
    """Extend the lease from now on."""

    id: str
    lease_s: float


class ReleaseLock(NamedTuple):
    """Release the lock, or leave the queue."""

    id: str


class BreakLock(NamedTuple):
    """Release the lock of another holder, as an operator."""


LockRequest = AcquireLock | RenewLease | ReleaseLock | BreakLock


class LockAnswer(NamedTuple):
    held: bool
    """Whether the caller holds the lock; after a release: whether it held it until then."""
    token: int = 0
    until_s: float = 0.0
    holder: str = ""
    """The current holder, if that is another caller."""
    ahead: int = 0
    """Number of callers before this one: the holder and earlier waiters."""


class LockStep(NamedTuple):
    tenure: Tenure
    answer: LockAnswer


def apply(tenure: Tenure, request: LockRequest, now_s: float) -> LockStep:
    """Apply a request, if it is allowed. Pure.

    >>> one = apply(Tenure(), AcquireLock("a", "ada", 10.0), 0.0)
    >>> one.answer.token, apply(one.tenure, AcquireLock("b", "bob", 10.0), 1.0).answer.holder
    (1, 'ada')
    >>> apply(one.tenure, AcquireLock("b", "bob", 10.0), 10.0).answer.token
    2
    """
    now_s = max(now_s, tenure.seen_s)
    tenure = _at(tenure, now_s)
    if isinstance(request, AcquireLock):
        return _acquire(tenure, request, now_s)
    if isinstance(request, RenewLease):
        return _extend(tenure, request, now_s)
    if isinstance(request, ReleaseLock):
        return _release(tenure, request)
    return LockStep(tenure._replace(holder=None), LockAnswer(tenure.holder is not None))


def _at(tenure: Tenure, now_s: float) -> Tenure:
    """The lock without an expired lease and without waiters that no longer poll."""
    holder = tenure.holder
    if holder is not None and holder.until_s <= now_s:
        holder = None
    waiting = tuple(one for one in tenure.waiting if now_s - one.seen_s < PLACE_S)
    return Tenure(tenure.token, holder, waiting, now_s)


def _acquire(tenure: Tenure, request: AcquireLock, now_s: float) -> LockStep:
    holder, waiting = tenure.holder, tenure.waiting
    if holder is not None and holder.id == request.id:
        return LockStep(tenure, LockAnswer(True, tenure.token, holder.until_s))
    place = next((at for at, one in enumerate(waiting) if one.id == request.id), len(waiting))
    if holder is None and place == 0:
        mine = LockHolder(request.id, request.owner, now_s, now_s + request.lease_s)
        rest = tuple(one for one in waiting if one.id != request.id)
        answer = LockAnswer(True, tenure.token + 1, mine.until_s)
        return LockStep(Tenure(tenure.token + 1, mine, rest, now_s), answer)
    waiter = (
        waiting[place] if place < len(waiting) else Waiter(request.id, request.owner, now_s, now_s)
    )
    # Updated only now and then, so that most polls write nothing.
    is_fresh = now_s - waiter.seen_s < PLACE_S / 4
    waiter = waiter if is_fresh else waiter._replace(seen_s=now_s)
    queue = (*waiting[:place], waiter, *waiting[place + 1 :])[:MOST_WAITING]
    ahead = place + (holder is not None)
    answer = LockAnswer(False, holder="" if holder is None else holder.owner, ahead=ahead)
    return LockStep(tenure._replace(waiting=queue), answer)


def _extend(tenure: Tenure, request: RenewLease, now_s: float) -> LockStep:
    holder = tenure.holder
    if holder is None or holder.id != request.id:
        return LockStep(tenure, LockAnswer(False))
    longer = holder._replace(until_s=now_s + request.lease_s)
    return LockStep(tenure._replace(holder=longer), LockAnswer(True, tenure.token, longer.until_s))


def _release(tenure: Tenure, request: ReleaseLock) -> LockStep:
    holder = tenure.holder
    rest = tenure._replace(waiting=tuple(one for one in tenure.waiting if one.id != request.id))
    if holder is None or holder.id != request.id:
        return LockStep(rest, LockAnswer(False))
    return LockStep(rest._replace(holder=None), LockAnswer(True, tenure.token))


def state_at(tenure: Tenure, now_s: float) -> Tenure:
    """The state of the lock at the time `now_s`."""
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
