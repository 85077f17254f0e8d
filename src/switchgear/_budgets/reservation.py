"""An amount that is reserved for one invocation, as its caller holds it."""

from collections.abc import Callable
from typing import Self

from switchgear._budgets.tree import Asked, BudgetAnswer, Renew, Settle, checked_micros
from switchgear._core import values
from switchgear._core.errors import BudgetRefused, Rejected, StoreError
from switchgear._sinks.dispatch import log_warning
from switchgear._system.aio import beside

LEASE_S = 900.0
"""How long a reservation is kept without a renewal, by default."""


class Reservation:
    """An amount that is set aside for one invocation. Used by one thread or task at a time.

    As a context manager, also `async with`: what is not settled inside counts as spent in full,
    because nothing better is known; a call that a circuit rejected was never made, and is given back.
    """

    def __init__(self, ask: Callable[[Asked], BudgetAnswer], path: str, amount_micros: int) -> None:
        self.path = path
        self.amount_micros = amount_micros
        self._ask = ask
        self._is_open = True

    def settle(self, cost_micros: int | None) -> int:
        """It cost so much; the rest returns. `None`: unknown, so all of it. Returns the charge.

        What cost more than was reserved is charged in full: it is spent. Settling twice charges once.
        """
        if cost_micros is not None:
            checked_micros("cost_micros", cost_micros)
        charged = self._ask(Settle(self.path, cost_micros)).charged_micros
        self._is_open = False
        return charged

    def release(self) -> None:
        """It was not needed: all of it returns."""
        self.settle(0)

    def renew(self, lease_s: float = LEASE_S) -> None:
        """It takes longer. Raises `BudgetRefused` if the lease has run out already."""
        self._ask(Renew(self.path, values.seconds("lease_s", lease_s)))

    async def asettle(self, cost_micros: int | None) -> int:
        """What `settle` is, without blocking the event loop."""
        return await beside(lambda: self.settle(cost_micros))

    async def arenew(self, lease_s: float = LEASE_S) -> None:
        """What `renew` is, without blocking the event loop."""
        await beside(lambda: self.renew(lease_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._leave(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await beside(lambda: self._leave(error))

    def _leave(self, error: object) -> None:
        if not self._is_open:
            return
        try:
            self.settle(0 if isinstance(error, Rejected) else None)
        except (StoreError, BudgetRefused) as trouble:
            if error is None:
                raise
            # The caller's exception is never replaced; the end of the lease says what was spent.
            log_warning("reservation %r could not be settled: %s", self.path, trouble)

    def __repr__(self) -> str:
        return f"<Reservation {self.path} {self.amount_micros} micro-dollars>"
