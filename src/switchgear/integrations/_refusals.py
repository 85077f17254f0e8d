"""Finds the refusal in an exception: for retries and web frameworks, which must not repeat refused calls at once."""

from typing import Any

from switchgear._core.errors import CAUSE, MEMBERS, BudgetRefused, NoRoute, Rejected

RefusalError = Rejected | BudgetRefused | NoRoute
_MOST_CAUSES = 16


def refusal_in(error: BaseException | None) -> RefusalError | None:
    """The refusal that an exception is, or was raised from (`raise … from`); `None`: it is none.

    A group of exceptions is a refusal if all of them are, as those of `asyncio.TaskGroup`.
    """
    one: Any = error
    for _ in range(_MOST_CAUSES):
        if one is None or issubclass(type(one), (Rejected, BudgetRefused, NoRoute)):
            found: RefusalError | None = one
            return found
        cause = CAUSE(one)
        if cause is None and issubclass(type(one), BaseExceptionGroup):
            members = [refusal_in(each) for each in MEMBERS(one)]
            return None if None in members else members[0]
        one = cause
    return None


def retry_after_s(refused: RefusalError) -> float | None:
    """Seconds until the same call may be admitted; `None`: not by itself."""
    return None if isinstance(refused, BudgetRefused) else refused.retry_after_s
