"""What an exception says about the thing that was called: exceptions become signals here.

Only text leaves this room. No exception, traceback or frame is kept, so guarding a call never
keeps anything of it alive.
"""

import math
from collections.abc import Callable
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
    httpx, requests and aiohttp have it. Never raises.
    """
    try:
        for name in ("retry_after_s", "retry_after"):
            value = getattr(error, name, None)
            if value is not None:
                return _seconds(value)
        response = getattr(error, "response", None)
        headers = getattr(response, "headers", None) or getattr(error, "headers", None)
        if headers is None:
            return None
        if (milliseconds := _seconds(_header(headers, "retry-after-ms"))) is not None:
            return milliseconds / 1000.0
        return _seconds(_header(headers, "retry-after"))
    except Exception:  # noqa: BLE001  a strange exception object must not hide the exception
        return None


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
    if value is None or isinstance(value, bool):
        return None
    try:
        if hasattr(value, "total_seconds"):
            value = value.total_seconds()
        number = _parsed(value.strip()) if isinstance(value, str) else float(value)
    except (ArithmeticError, TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None


def _parsed(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        # An HTTP date is rare and its parser is not small: imported when one comes.
        import time  # noqa: PLC0415
        from email.utils import parsedate_to_datetime  # noqa: PLC0415

        return parsedate_to_datetime(value).timestamp() - time.time()
