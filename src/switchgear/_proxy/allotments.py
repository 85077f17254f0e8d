"""Money for calls: reserved in the store for several calls at once, and divided among them in this process.

Reserving and settling each call in the store would cost more than forwarding it. An allotment is one
reservation (`_budgets`): each call takes a share before it is sent and records its cost afterwards; within
seconds the allotment is settled with the sum. Near the limit an allotment is for one call only, so the free
amount is exact. If a process dies, its allotments are charged in full when their leases end.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from switchgear._budgets.allowance import free_budget
from switchgear._budgets.budgets import Budgets, Reservation
from switchgear._budgets.tree import root_of
from switchgear._core.errors import BudgetRefused, StoreError

LEASE_S = 60.0
"""Seconds for which an allotment is kept after its process has died."""
RENEW_S = 20.0
SETTLE_S = 1.0
"""Seconds for which costs are collected before they are settled in the store."""
MOST_CALLS = 256
"""Maximum number of calls for which an allotment is reserved; usually the number in the last second."""
SHARE = 16
"""An allotment is at most 1/SHARE of the free amount, unless one call needs more."""
LEAST = 50
"""A call of unknown cost may have the whole free amount, unless that is less than 1/LEAST of its estimate."""


class BudgetShort(Exception):
    """A budget does not have enough left for a call."""

    def __init__(self, node: str, free_micros: int, held_micros: int, need_micros: int) -> None:
        super().__init__(node, free_micros, held_micros, need_micros)
        self.node = node
        self.free_micros = free_micros
        self.held_micros = held_micros
        """The amount that other calls have reserved and may return, so that waiting may help."""
        self.need_micros = need_micros


class CallEstimate(NamedTuple):
    """The maximum cost of a call."""

    micros: int
    is_learned: bool
    """Whether it is based on the costs of similar calls; if not, on the size of the request."""


@dataclass(slots=True)
class _Allotment:
    """One open reservation and the calls that share it."""

    reservation: Reservation
    micros: int
    made_s: float
    renewed_s: float
    calls: int = 0
    """Number of calls in progress."""
    total_calls: int = 0
    """Number of calls that have used it."""
    reserved: int = 0
    spent: int = 0

    @property
    def free_micros(self) -> int:
        return self.micros - self.reserved - self.spent


@dataclass(slots=True)
class BudgetShare:
    """The share of an allotment that one call holds. Settling it is idempotent."""

    _node: "NodeBudget"
    _allotment: _Allotment
    micros: int
    is_open: bool = True

    def settle(self, cost_micros: int | None) -> None:
        """Record the cost of the call; `None`: unknown, so the whole share is charged. No I/O."""
        self._node.settle_share(self, self._allotment, cost_micros)


class NodeBudget:
    """A node of the budgets for the calls of this process. Thread-safe."""

    def __init__(
        self,
        budgets: Callable[[], Budgets],
        node: str,
        *,
        limit_micros: int | None = None,
        owner: str = "",
        before_settling: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node = node
        self._budgets = budgets
        self._limit_micros = limit_micros
        """The limit with which the node is created if it does not exist."""
        self._is_opened = limit_micros is None
        self._owner = owner
        self._before_settling = before_settling
        self._calls = 1
        """Number of calls for which the next allotment is reserved."""
        self._clock = clock
        self._lock = threading.Lock()
        self._reserving = threading.Lock()
        """Held while an allotment is reserved, so that only one is reserved at a time."""
        self._current: _Allotment | None = None
        self._retired: list[_Allotment] = []
        self.used_s = clock()

    def acquire_local(self, estimate: CallEstimate) -> BudgetShare | None:
        """A share of the current allotment; `None` if it does not have enough left. No I/O."""
        with self._lock:
            current = self._current
            if current is None or current.free_micros < estimate.micros:
                return None
            if self._clock() - current.made_s > SETTLE_S:
                return None
            return self._new_share(current, estimate.micros)

    def acquire(self, estimate: CallEstimate) -> BudgetShare:
        """A share for one call. Raises `BudgetShort`, `BudgetRefused`, `StoreError`. Blocks on the store."""
        with self._reserving:
            share = self.acquire_local(estimate)
            if share is not None:
                return share
            self._retire()
            self._flush()
            budgets = self._budgets()
            self._open(budgets)
            found = free_budget(budgets, self.node)
            amount, share_micros = self._amount(estimate, found.free_micros, found.held_micros)
            reservation = budgets.reserve(
                self.node, amount, owner=self._owner, lease_s=LEASE_S, allow_unknown=True
            )
            now_s = self._clock()
            allotment = _Allotment(reservation, amount, now_s, now_s)
            with self._lock:
                self._current = allotment
                return self._new_share(allotment, share_micros)

    def _new_share(self, allotment: _Allotment, micros: int) -> BudgetShare:
        allotment.calls += 1
        allotment.total_calls += 1
        allotment.reserved += micros
        self.used_s = self._clock()
        return BudgetShare(self, allotment, micros)

    def _amount(self, estimate: CallEstimate, free: int | None, held: int) -> tuple[int, int]:
        """The amount to reserve, and the share of this call."""
        need = max(1, estimate.micros)
        if free is None:
            return need * self._calls, need
        if free >= need:
            return max(need, min(need * self._calls, free // SHARE)), need
        if free * LEAST > need and held <= 0 and not estimate.is_learned:
            # Estimates by size are too high. The first call gets the whole free amount and shows the real cost.
            return free, free
        raise BudgetShort(self.node, free, held, need)

    def _open(self, budgets: Budgets) -> None:
        if self._is_opened:
            return
        nodes = budgets.book(root_of(self.node)).nodes
        if self.node not in nodes:
            parts = self.node.split("/")
            for depth in range(1, len(parts)):
                above = "/".join(parts[:depth])
                if above not in nodes:
                    budgets.open(above, None, who="proxy")
            budgets.open(self.node, self._limit_micros, circuit=f"budget/{self.node}", who="proxy")
        self._is_opened = True

    def settle_share(
        self, share: BudgetShare, allotment: _Allotment, cost_micros: int | None
    ) -> None:
        """Record the cost of a call; see `BudgetShare.settle`."""
        with self._lock:
            if not share.is_open:
                return
            share.is_open = False
            allotment.calls -= 1
            allotment.reserved -= share.micros
            allotment.spent += share.micros if cost_micros is None else cost_micros

    # In the background

    @property
    def is_idle(self) -> bool:
        """Whether nothing is reserved or left to settle."""
        with self._lock:
            return self._current is None and not self._retired

    def tick(self) -> None:
        """Settle allotments that are due and renew those in use. Raises `StoreError`. Blocks on the store."""
        with self._lock:
            current = self._current
            due = current is not None and self._clock() - current.made_s > SETTLE_S
        if due:
            self._retire()
        with self._reserving:
            self._flush()
        now_s = self._clock()
        with self._lock:
            kept = [each for each in (self._current, *self._retired) if each is not None]
        for allotment in kept:
            if now_s - allotment.renewed_s > RENEW_S:
                with suppress(
                    BudgetRefused
                ):  # the lease has ended; settling charges the difference
                    allotment.reservation.renew(LEASE_S)
                allotment.renewed_s = now_s

    def _retire(self) -> None:
        with self._lock:
            retired, self._current = self._current, None
            if retired is not None:
                is_old = self._clock() - retired.made_s > SETTLE_S
                calls = retired.total_calls if is_old else 2 * self._calls
                self._calls = max(1, min(calls, MOST_CALLS))
                self._retired.append(retired)

    def _flush(self) -> None:
        """Settle the allotments without calls in progress. Raises `StoreError`, and then keeps them."""
        with self._lock:
            done = [each for each in self._retired if not each.calls]
            self._retired = [each for each in self._retired if each.calls]
        if done:
            self._before_settling()
        while done:
            try:
                with suppress(BudgetRefused):  # already settled or closed
                    done[-1].reservation.settle(done[-1].spent)
            except StoreError:
                with self._lock:
                    self._retired += done
                raise
            done.pop()

    def close(self) -> None:
        """Settle everything, including calls in progress, at the end of the process."""
        self._retire()
        with self._lock:
            rest, self._retired = self._retired, []
        for allotment in rest:
            with suppress(BudgetRefused, StoreError):  # the end of the lease settles it
                # Calls in progress are charged with their whole share.
                allotment.reservation.settle(allotment.spent + allotment.reserved)
