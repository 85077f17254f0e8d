"""What an exception says about the thing that was called: exceptions become signals here.

Only text leaves this room. No exception, traceback or frame is kept, so guarding a call never
keeps anything of it alive.
"""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

from switchgear.core.types import Signal
from switchgear.errors import Rejected
from switchgear.redact import redact

ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]
ExceptionTest = ExceptionTypes | Callable[[BaseException], bool]
"""Which exceptions: a type, a tuple of types, or a predicate."""

NEVER_EVIDENCE = (StopIteration, StopAsyncIteration, Rejected)
"""The end of an iterator is an answer; a refusal by another circuit says nothing was tried."""


def check_test(field: str, test: Any) -> None:
    """Raise ValueError unless `test` is an exception type, a tuple of them or a predicate."""
    kinds = test if isinstance(test, tuple) else (test,)
    if all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        return
    if isinstance(test, type) or not callable(test):
        raise ValueError(
            f"{field} is {test!r}: it must be an exception type, a tuple of exception types, "
            "or a predicate that takes the exception"
        )


def matches(test: ExceptionTest, error: BaseException) -> bool:
    """Whether the exception is one of those that `test` means."""
    if isinstance(test, type | tuple):
        return issubclass(type(error), test)
    return bool(test(error))


def is_no_evidence(error: BaseException) -> bool:
    """Whether an exception says nothing about what was called: cancelled, interrupted, closed."""
    kind = type(error)  # `isinstance` would ask the exception itself, which may raise
    if not issubclass(kind, Exception) or issubclass(kind, NEVER_EVIDENCE):
        return True
    # concurrent.futures.CancelledError is an Exception; naming it spares importing the module.
    return kind.__name__ == "CancelledError"


def is_failure(error: BaseException, failure_if: ExceptionTest, ignore: ExceptionTest) -> bool:
    """Whether an exception is evidence against what was called.

    A group is what its members are: several things were tried, and one of them failed at least.
    Raises what a predicate raises.
    """
    if is_no_evidence(error):
        return False
    if not issubclass(type(error), ExceptionGroup):
        return not matches(ignore, error) and matches(failure_if, error)
    if _names(ignore, error):
        return False
    named = _names(failure_if, error)
    return any(
        not is_no_evidence(one) and not matches(ignore, one) and (named or matches(failure_if, one))
        for one in _members(error)
    )


def _names(test: ExceptionTest, group: BaseException) -> bool:
    """Whether the types of a test mean the group itself; a predicate is asked of its members."""
    return isinstance(test, type | tuple) and issubclass(type(group), test)


def _members(group: Any) -> Iterator[BaseException]:
    """The exceptions in a group and in the groups in it."""
    groups = [group]
    while groups:
        for one in groups.pop().exceptions:
            if issubclass(type(one), BaseExceptionGroup):
                groups.append(one)
            else:
                yield one


def failure(error: BaseException, seconds: float | None) -> Signal:
    """The signal of a call that raised."""
    return Signal(
        ok=False,
        seconds=seconds,
        error=describe(error),
        retry_after_s=retry_after_s(error),
    )


def describe(error: BaseException) -> str:
    """`TypeName: message`, one line, redacted, bounded; never raises."""
    name = type(error).__name__
    try:
        message = redact(str(error))
    except Exception:  # noqa: BLE001  an error whose text cannot be read is still an error
        message = ""
    return f"{name}: {message}" if message else name


def retry_after_s(error: BaseException) -> float | None:
    """How long the other side asked us to stay away, if the exception knows.

    Looks for `error.retry_after_s`, `error.retry_after`, and the `Retry-After` (seconds or HTTP
    date) or `Retry-After-Ms` header of `error.response`, as the SDKs of model providers and
    httpx, requests and aiohttp have it. What is no number, text or duration asks for nothing,
    and hides nothing that does. Never raises.
    """
    for ask in (_by_attribute, _by_header):
        try:
            wait_s = ask(error)
        except Exception:  # noqa: BLE001, S112  a strange exception hides nothing
            continue
        if wait_s is not None:
            return wait_s
    return None


def _by_attribute(error: BaseException) -> float | None:
    for name in ("retry_after_s", "retry_after"):
        wait_s = _seconds(getattr(error, name, None))
        if wait_s is not None:
            return wait_s
    return None


def _by_header(error: BaseException) -> float | None:
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None) or getattr(error, "headers", None)
    if headers is None:
        return None
    if (milliseconds := _seconds(_header(headers, "retry-after-ms"))) is not None:
        return milliseconds / 1000.0
    return _seconds(_header(headers, "retry-after"))


def _header(headers: Any, name: str) -> Any:
    """A header whatever the case it is written in; plain dictionaries do not fold it for us."""
    value = headers.get(name)
    if value is not None:
        return value
    for spelling in headers:
        if isinstance(spelling, str) and spelling.lower() == name:
            return headers[spelling]
    return None


def _seconds(value: Any) -> float | None:
    try:
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        if isinstance(value, str):
            number = _parsed(value.strip())
        elif _is_a("datetime", "timedelta", value):
            number = value.total_seconds()
        elif _is_number(value):
            number = float(value)
        else:
            return None
    except (ArithmeticError, TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None


def _is_number(value: Any) -> bool:
    """Whether it is one, and not just something with a `__float__`, as every mock has it."""
    if isinstance(value, int | float):
        return not isinstance(value, bool)
    return _is_a("decimal", "Decimal", value)


def _is_a(module: str, kind: str, value: Any) -> bool:
    """Whether it is of that type, whose module must have been imported by whoever made it."""
    home = sys.modules.get(module)
    return home is not None and isinstance(value, getattr(home, kind))


def _parsed(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        # An HTTP date is rare and its parser is not small: imported when one comes.
        import time  # noqa: PLC0415
        from email.utils import parsedate_to_datetime  # noqa: PLC0415

        return parsedate_to_datetime(value).timestamp() - time.time()
