"""Finds the refusal in an exception, for retry libraries and web frameworks."""

from typing import Any

from switchgear._core.errors import CAUSE, MEMBERS, BudgetRefused, NoRoute, Rejected

RefusalError = Rejected | BudgetRefused | NoRoute
_MOST_CAUSES = 16


def refusal_in(error: BaseException | None) -> RefusalError | None:
    """The refusal that an exception is or was raised from (`raise … from`); `None`: there is none.

    An exception group, such as that of `asyncio.TaskGroup`, is a refusal if all its members are.
    """
    current: Any = error
    for _ in range(_MOST_CAUSES):
        if current is None or issubclass(type(current), (Rejected, BudgetRefused, NoRoute)):
            found: RefusalError | None = current
            return found
        cause = CAUSE(current)
        if cause is None and issubclass(type(current), BaseExceptionGroup):
            members = [refusal_in(each) for each in MEMBERS(current)]
            return None if None in members else members[0]
        current = cause
    return None


def retry_after_s(refused: RefusalError) -> float | None:
    """Seconds until the same call may be admitted; `None`: it needs an operator or more money."""
    return None if isinstance(refused, BudgetRefused) else refused.retry_after_s
