"""Finds the refusal in an exception: for retries and web frameworks, which must not repeat refused calls at once."""

from switchgear._core.errors import BudgetRefused, NoRoute, Rejected

RefusalError = Rejected | BudgetRefused | NoRoute
_MOST_CAUSES = 16


def refusal_in(error: BaseException | None) -> RefusalError | None:
    """The refusal that an exception is, or was raised from (`raise … from`); `None`: it is none.

    A group of exceptions is a refusal if all of them are, as those of `asyncio.TaskGroup`.
    """
    for _ in range(_MOST_CAUSES):
        if error is None or isinstance(error, Rejected | BudgetRefused | NoRoute):
            return error
        if isinstance(error, BaseExceptionGroup) and error.__cause__ is None:
            found = [refusal_in(one) for one in error.exceptions]
            return None if None in found else found[0]
        error = error.__cause__
    return None


def retry_after_s(refused: RefusalError) -> float | None:
    """Seconds until the same call may be admitted; `None`: not by itself."""
    return None if isinstance(refused, BudgetRefused) else refused.retry_after_s
