"""Locks that agents on many machines share, with leases, fencing tokens and a visible queue.

`panel.lock("resource")` creates one. Waits are recorded in the circuit `lock/<resource>`: while it is
open, callers are refused at once and should do their work later.
"""

import math
import os
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple, Self

from switchgear._breaker.handle import Breaker
from switchgear._core import values
from switchgear._core.errors import LockLost, LockTimeout, StoreCorrupt, StoreError
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Permit, Phase, Signal, Verdict
from switchgear._detectors import LockWait
from switchgear._locks.state import (
    AcquireLock,
    BreakLock,
    LockAnswer,
    LockRequest,
    ReleaseLock,
    RenewLease,
    Tenure,
    apply,
    dump_tenure,
    load_tenure,
    state_at,
)
from switchgear._sinks.dispatch import log_warning
from switchgear._stores.base import Amended, Ledger, checked_name
from switchgear._system.threads import run_in_thread
from switchgear._text.redact import redacted_name

SHELF, ALERTS = "lock", "lock-alert"
LEASE_S = 60.0
"""Default lease in seconds."""
SHORTEST_S, LONGEST_S = 0.005, 0.25
"""Shortest and longest pause in seconds between two polls of a waiting process."""
RECORD_EVERY_S = 5.0
"""Seconds between two records of a wait in the circuit."""

BreakerOf = Callable[[str, Policy], Breaker]
"""The breaker of a circuit; the policy applies unless another one is configured or stored."""


class ResourceStatus(NamedTuple):
    resource: str
    tenure: Tenure


def lock_policy(limit_s: float = 60.0) -> Policy:
    """The default policy of the circuit of a lock: the preset `resource_lock`."""
    return Policy([LockWait(limit_s)], Cooldown(60.0, 3600.0))


class ResourceLock:
    """An exclusive lock on a resource, held for a lease. Not thread-safe: one thread or task at a time.

    A context manager, also with `async with`. Entering waits in a queue, at most `timeout_s` seconds
    (`None`: as long as the circuit allows); leaving releases the lock. `token` increases with every
    holder: pass it to the resource, which must refuse lower tokens.

    Entering raises `Rejected` while the circuit of the lock is open or when it opens during the wait,
    and `LockTimeout`. Leaving raises `LockLost` if the lease has expired.
    """

    def __init__(
        self,
        ledger: Ledger,
        resource: str,
        breaker: Breaker,
        *,
        owner: str,
        lease_s: float,
        timeout_s: float | None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.resource = resource
        self.owner: str = redacted_name("owner", owner) or f"{os.uname().nodename}:{os.getpid()}"
        self.token: int = 0
        """The fencing token; 0: the lock is not held."""
        self._ledger = ledger
        self._breaker = breaker
        self._lease_s = values.check_seconds("lease_s", lease_s)
        if timeout_s is not None:
            timeout_s = values.check_at_least("timeout_s", timeout_s, 0)
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._id = os.urandom(8).hex()

    def acquire(self) -> int:
        """Wait until the lock is acquired. Returns the fencing token."""
        for wait_s in self._steps():
            self._sleep(wait_s)
        return self.token

    def renew(self, lease_s: float | None = None) -> None:
        """Extend the lease to `lease_s` seconds from now (default: as given). Raises `LockLost` if it expired."""
        lease_s = self._lease_s if lease_s is None else values.check_seconds("lease_s", lease_s)
        if not self._apply(RenewLease(self._id, lease_s)).held:
            raise LockLost(self.resource, self.token)

    def release(self) -> bool:
        """Release the lock. Returns false if the lease had expired, so that the lock was no longer held."""
        was_held = self._apply(ReleaseLock(self._id)).held
        self.token = 0
        return was_held

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._release_token(self.token, error)

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415  only for programs with an event loop

        steps = self._steps()
        try:
            while True:
                wait_s = await run_in_thread(lambda: next(steps, None))
                if wait_s is None:
                    return self
                await asyncio.sleep(wait_s)
        except BaseException:
            with suppress(StoreError):  # then the end of the lease releases the lock
                steps.close()
                if self.token:
                    self.release()
            raise

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await run_in_thread(lambda: self._release_token(self.token, error))

    def __repr__(self) -> str:
        return f"<ResourceLock {self.resource!r} token={self.token}>"

    def _release_token(self, token: int, error: object) -> None:
        # The caller's exception is never replaced; the end of the lease releases the lock.
        try:
            was_held = self.release()
        except StoreError as trouble:
            if error is None:
                raise
            log_warning("lock %r could not be released: %s", self.resource, trouble)
            return
        if not was_held and error is None:
            raise LockLost(self.resource, token)

    def _steps(self) -> Generator[float, None, None]:
        """Yield the seconds to sleep before the next attempt, until the lock is acquired."""
        if self.token:
            raise ValueError(
                f"lock {self.resource!r} is already held by this object; create another"
            )
        permit: Permit | None = self._breaker.enter()
        began_s = recorded_s = self._ledger.now_s()
        pause_s = SHORTEST_S
        # A waiter records its wait when it is long enough to open the circuit.
        detectors = self._breaker.policy.detectors
        limits_s = [each.limit_s for each in detectors if isinstance(each, LockWait)]
        limit_s, holder = min(limits_s, default=math.inf), ""
        try:
            while True:
                answer = self._apply(AcquireLock(self._id, self.owner, self._lease_s))
                now_s = self._ledger.now_s()
                waited_s = max(0.0, now_s - began_s)
                holder = answer.holder or holder
                if answer.held:
                    self.token = answer.token
                    verdict = self._breaker.record(Signal(ok=True, waited_s=waited_s), permit)
                    self._note_alert(verdict, holder)
                    return
                if self._timeout_s is not None and waited_s >= self._timeout_s:
                    raise LockTimeout(self.resource, answer.holder, waited_s)
                passed_limit = recorded_s - began_s <= limit_s < waited_s
                if passed_limit or now_s - recorded_s >= RECORD_EVERY_S:
                    recorded_s = now_s
                    self._record_wait(waited_s, permit, holder)
                until_limit_s = limit_s - waited_s + SHORTEST_S
                yield min(pause_s, until_limit_s) if until_limit_s > 0 else pause_s
                pause_s = min(LONGEST_S, pause_s * 1.5)
        finally:
            if not self.token:
                self._give_up(permit, self._ledger.now_s() - began_s)

    def _record_wait(self, waited_s: float, permit: Permit | None, holder: str) -> None:
        """Record a wait that continues. Raises `Rejected` if the circuit is open after that."""
        signal = Signal(ok=True, waited_s=waited_s)
        if permit is not None and permit.probe and self._breaker.policy.objection(signal):
            verdict = self._breaker.record(signal, permit)  # a failed probe
        else:
            verdict = self._breaker.record(Signal(waited_s=waited_s))
        self._note_alert(verdict, holder)
        if verdict.phase is Phase.OPEN and not verdict.admitted:
            self._breaker.enter()

    def _note_alert(self, verdict: Verdict, holder: str) -> None:
        """Save the holder and this waiter for alerts if the circuit is open."""
        if verdict.phase is not Phase.OPEN:
            return
        facts = {"holder": holder, "waiter": self.owner}
        with suppress(StoreError):
            self._ledger.amend(
                ALERTS, self.resource, lambda _, now_s: Amended(None, {**facts, "at_s": now_s})
            )

    def _give_up(self, permit: Permit | None, waited_s: float) -> None:
        """Leave the queue, and record the wait."""
        try:
            self._apply(ReleaseLock(self._id))
        finally:
            self._breaker.record(Signal(waited_s=max(0.0, waited_s)), permit)

    def _apply(self, request: LockRequest) -> LockAnswer:
        return amend(self._ledger, self.resource, request)


class Locks:
    """The locks of an installation. Thread-safe; processes share them through the store."""

    def __init__(
        self,
        ledger: Ledger,
        breaker_of: BreakerOf,
        demand: Callable[[str, str], object] | None = None,
    ) -> None:
        self._ledger = ledger
        self._breaker_of = breaker_of
        self._demand = demand
        """Raises `OverrideRefused` unless overrides are allowed; called with the lock and the operation."""

    def lock(
        self,
        resource: str,
        *,
        owner: str = "",
        lease_s: float = LEASE_S,
        timeout_s: float | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> ResourceLock:
        """A lock on a resource, not yet acquired: `with panel.lock("staging-db") as lock:`."""
        name = checked_name(f"lock/{values.check_text('resource', resource)}")
        breaker = self._breaker_of(name, lock_policy())
        return ResourceLock(
            self._ledger,
            resource,
            breaker,
            owner=owner,
            lease_s=lease_s,
            timeout_s=timeout_s,
            sleep=sleep,
        )

    def all(self) -> list[ResourceStatus]:
        """The state of every resource that was ever locked, sorted by name."""
        ledger, now_s = self._ledger, self._ledger.now_s()
        names = ledger.keys(SHELF)
        found = [(name, _load_tenure(ledger, name, ledger.value(SHELF, name))) for name in names]
        return [ResourceStatus(name, state_at(tenure, now_s)) for name, tenure in found]

    def alert(self, resource: str) -> dict[str, Any]:
        """The holder and a waiter of a resource when its circuit last opened; may be empty."""
        return dict(self._ledger.value(ALERTS, resource) or {})

    def break_lock(self, resource: str) -> bool:
        """Release a lock regardless of its holder. Returns false if it was not held.

        Raises `OverrideRefused` if the operator token is required and missing.
        """
        if self._demand is not None:
            self._demand(resource, f"breaking lock {resource!r}")
        return amend(self._ledger, resource, BreakLock()).held


def amend(ledger: Ledger, resource: str, request: LockRequest) -> LockAnswer:
    def work(value: Any, now_s: float) -> Amended:
        before = _load_tenure(ledger, resource, value)
        step = apply(before, request, now_s)
        if step.tenure._replace(seen_s=0.0) == before._replace(seen_s=0.0):
            return Amended(step.answer)
        return Amended(step.answer, dump_tenure(step.tenure))

    answer: LockAnswer = ledger.amend(SHELF, resource, work)
    return answer


def _load_tenure(ledger: Ledger, resource: str, value: Any) -> Tenure:
    try:
        return load_tenure(value)
    except ValueError as error:
        why = f"lock {resource!r}: {error}"
        what = "restore it from a backup, or use the newer Switchgear that wrote it"
        raise StoreCorrupt(ledger.label, why, what) from None
