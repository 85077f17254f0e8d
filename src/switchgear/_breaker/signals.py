"""Signals: created from exceptions, checked and redacted before a circuit records them.

Only text is kept: no exception, traceback or frame, so that a recorded call can be
garbage-collected.
"""

import math
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from switchgear._core.errors import (
    CAUSE,
    CONTEXT,
    MEMBERS,
    NAME,
    SUPPRESSES_CONTEXT,
    TRACEBACK,
    Rejected,
    is_interrupt,
)
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    AgentStep,
    Override,
    Permit,
    Record,
    Signal,
)
from switchgear._text.redact import redact, redact_lines

ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]
ExceptionTest = ExceptionTypes | Callable[[BaseException], bool]
"""Selects exceptions: a type, a tuple of types, or a predicate."""

NEVER_EVIDENCE = (StopIteration, StopAsyncIteration, Rejected)
"""The end of an iterator is a normal result; a refusal by another circuit means that nothing was called."""


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
    if isinstance(test, type | tuple):
        return issubclass(type(error), test)
    return bool(test(error))


def is_no_evidence(error: BaseException) -> bool:
    """Whether an exception is no evidence about what was called: cancelled, interrupted, closed."""
    kind = type(error)  # `isinstance` would call the exception's own code, which may raise
    if not issubclass(kind, Exception) or issubclass(kind, NEVER_EVIDENCE):
        return True
    # concurrent.futures.CancelledError is an Exception; naming it spares importing the module.
    return bool(NAME(kind) == "CancelledError")


def outcome_of(
    error: BaseException,
    failure_if: ExceptionTest,
    ignore: ExceptionTest,
    success_if: ExceptionTest = (),
) -> bool | None:
    """The evidence in an exception: `False`: the call failed, `True`: the service works, `None`: no evidence.

    `ignore` is checked first, then `success_if`, then `failure_if`. A group is a failure if one of its
    members is, else a success if one of its members is. Raises what a predicate raises.
    """
    if is_no_evidence(error):
        return None
    if not issubclass(type(error), ExceptionGroup):
        return _outcome(error, failure_if, ignore, success_if)
    if _matches_group(ignore, error):
        return None
    if _matches_group(success_if, error):
        return True
    if _matches_group(failure_if, error):
        failure_if = BaseException
    members = [one for one in _members(error) if not is_no_evidence(one)]
    outcomes = {_outcome(one, failure_if, ignore, success_if) for one in members}
    return False if False in outcomes else True if True in outcomes else None


def _outcome(
    error: BaseException,
    failure_if: ExceptionTest,
    ignore: ExceptionTest,
    success_if: ExceptionTest,
) -> bool | None:
    if matches(ignore, error):
        return None
    if matches(success_if, error):
        return True
    return False if matches(failure_if, error) else None


def _matches_group(test: ExceptionTest, group: BaseException) -> bool:
    """Whether the types of a test match the group itself; a predicate is applied to its members."""
    return isinstance(test, type | tuple) and issubclass(type(group), test)


def _members(group: Any) -> Iterator[BaseException]:
    groups = [group]
    while groups:
        for one in MEMBERS(groups.pop()):
            if issubclass(type(one), BaseExceptionGroup):
                groups.append(one)
            else:
                yield one


def failure(error: BaseException, seconds: float | None) -> Signal:
    return Signal(
        ok=False,
        seconds=seconds,
        error=describe(error),
        retry_after_s=retry_after_s(error),
    )


def describe(error: BaseException) -> str:
    """`TypeName: message`, one line, redacted, bounded; never raises."""
    name = NAME(type(error))
    try:
        # A subclass of `str` could run more code, so the plain string is taken.
        message = redact(str.__str__(str(error)))
    except BaseException as trouble:  # an error whose text cannot be read is still an error
        if is_interrupt(trouble):
            raise
        message = ""
    return f"{name}: {message}" if message else name


def retry_after_s(error: BaseException) -> float | None:
    """The wait that the service requested, in seconds; `None`: the exception contains none. Never raises.

    Reads `error.retry_after_s`, `error.retry_after`, and the `Retry-After` (seconds or HTTP date) or
    `Retry-After-Ms` header of `error.response`, as in the exceptions of httpx, requests, aiohttp and
    the SDKs of model providers. Without a wait there, continues with the cause, the context and the
    members of a group, level by level; the longest wait of a level counts. Values that are neither a
    number, a string nor a duration are ignored.
    """
    inspected: set[int] = set()
    level = [error]
    while level and len(inspected) < _MAX_INSPECTED:
        next_level: list[BaseException] = []
        waits_s: list[float] = []
        for one in level[:_MAX_INSPECTED]:
            if id(one) in inspected:
                continue
            inspected.add(id(one))
            wait_s = _requested_wait_s(one)
            if wait_s is not None:
                waits_s.append(wait_s)
            next_level += _related_errors(one)
        if waits_s:
            return max(waits_s)
        level = next_level
    return None


_MAX_INSPECTED = 50
"""Maximum number of causes, contexts and members to inspect."""


def _requested_wait_s(error: BaseException) -> float | None:
    for find in (_by_attribute, _by_header):
        try:
            wait_s = find(error)
        except BaseException as trouble:  # an attribute that raises is skipped
            if is_interrupt(trouble):
                raise
            continue
        if wait_s is not None:
            return wait_s
    return None


def _related_errors(error: BaseException) -> list[BaseException]:
    """The cause, the context and the members of an exception.

    A context counts only if it was caught inside the call: a fallback in the `except` block of
    another provider does not inherit the wait of that provider.
    """
    related: list[BaseException] = []
    if issubclass(type(error), BaseExceptionGroup):
        related += MEMBERS(error)[:_MAX_INSPECTED]
    cause, context = CAUSE(error), CONTEXT(error)
    if cause is not None:
        related.append(cause)
    elif context is not None and not SUPPRESSES_CONTEXT(error) and _is_inside(context, error):
        related.append(context)
    return related


def _is_inside(context: BaseException, error: BaseException) -> bool:
    """Whether the context was caught in a frame that the error passed, other than its last."""
    caught = TRACEBACK(context)
    entry = TRACEBACK(error)
    if caught is None or entry is None:
        return True  # an exception without a traceback was never raised
    for _ in range(_MAX_INSPECTED):
        entry = entry.tb_next
        if entry is None:
            return False
        if entry.tb_frame is caught.tb_frame:
            return True
    return False


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


_MOST_HEADERS = 1000


def _header(headers: Any, name: str) -> Any:
    """The value of a header, ignoring case even in a plain dictionary."""
    value = headers.get(name)
    if value is not None:
        return value
    for spelling in islice(headers, _MOST_HEADERS):
        if isinstance(spelling, str) and spelling.lower() == name:
            return headers[spelling]
    return None


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        if isinstance(value, str):
            number = _parse_retry_after(value.strip())
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
    """Whether the value is a number, and not just an object with `__float__`, such as a mock."""
    if isinstance(value, int | float):
        return not isinstance(value, bool)
    return _is_a("decimal", "Decimal", value)


def _is_a(module: str, kind: str, value: Any) -> bool:
    """Whether the value has this type; a type whose module is not imported has no values."""
    home = sys.modules.get(module)
    return home is not None and isinstance(value, getattr(home, kind))


def _parse_retry_after(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        # HTTP dates are rare and their parser is large, so it is imported on first use.
        import time  # noqa: PLC0415
        from email.utils import parsedate_to_datetime  # noqa: PLC0415

        return parsedate_to_datetime(value).timestamp() - time.time()


MOST = 10**12
"""The limit of counts and amounts; stores can hold a thousand times as much."""
_LARGEST = 1e300
_NUMBERS = (int, float)
_OTHER_MESSAGES = (Acquire, Override)


def check_probes(name: str, policy: Policy) -> None:
    """Raise ValueError unless the circuit recovers with probes."""
    if not policy.recovery.probes:
        kind = policy.recovery.kind.replace("_", " ")
        raise ValueError(f"circuit {name!r} recovers without probes ({kind}): reset it instead")


# Detectors and stores keep recorded values, so values that they cannot store are refused here.


def redacted(signal: Any) -> Signal:
    """The signal without secrets in its texts. Raises ValueError for anything that cannot be recorded."""
    checked = _checked_signal(signal)
    error = None if checked.error is None else redact(checked.error)
    if error == checked.error and checked.step is None and checked.violation is None:
        return checked
    return checked._replace(
        error=error,
        step=None if checked.step is None else _redacted_step(checked.step),
        violation=None if checked.violation is None else redact(checked.violation),
    )


def _redacted_step(step: AgentStep) -> AgentStep:
    return AgentStep(
        redact(step.tool),
        redact_lines(step.args),
        None if step.result is None else redact_lines(step.result),
        None if step.thought is None else redact_lines(step.thought),
        redact(step.call_key),
        redact(step.result_key),
    )


def check_message(message: Any) -> None:
    """Raise ValueError unless the message can be recorded by every store."""
    if isinstance(message, Record):
        _checked_signal(message.signal)
        checked_permit(message.permit)
    elif not isinstance(message, _OTHER_MESSAGES):
        raise ValueError(f"message is {message!r}: it must be an Acquire, a Record or an Override")
    elif isinstance(message, Override) and not _is_measure(message.until_s):
        raise ValueError(f"message is {message!r}: its until_s must be a finite number or None")


def checked_permit(permit: Any) -> Permit | None:
    if permit is not None and not isinstance(permit, Permit):
        raise ValueError(f"permit is {permit!r}: it must be a Permit that enter() returned")
    return permit


def _checked_signal(signal: Any) -> Signal:
    if not isinstance(signal, Signal):
        raise ValueError(f"signal is {signal!r}: it must be a Signal, as in Signal(ok=False)")
    ok, seconds, error, retry_after_s, count, refused, cost_micros, *others = signal
    *measured, at_s, step, state, failing_tests, context_used, idle_s, waited_s, violation = others
    if ok is not None and ok is not True and ok is not False:
        raise ValueError(f"signal is {signal!r}: its ok must be True, False or None")
    for text in (error, state, failing_tests, violation):
        if text is not None and not isinstance(text, str):
            rule = "its error, state, failing_tests and violation must be texts or None"
            raise ValueError(f"signal is {signal!r}: {rule}")
    if step is not None and not _is_step(step):
        raise ValueError(f"signal is {signal!r}: its step must be an AgentStep of texts, or None")
    for measure in (seconds, retry_after_s, at_s, context_used, idle_s, waited_s):
        if measure is not None and not _is_measure(measure):
            rule = "its times and its context_used must be finite numbers or None"
            raise ValueError(f"signal is {signal!r}: {rule}")
    counts: tuple[Any, ...] = (count, refused, cost_micros or 0)
    for number in counts:
        if not isinstance(number, int) or not 0 <= number < MOST:
            raise ValueError(_wrong_counts(signal))
    if count * (cost_micros or 0) >= MOST:
        raise ValueError(_wrong_counts(signal))
    sizes: list[Any] = measured
    for size in sizes:
        if size is not None and not (isinstance(size, int) and 0 <= size < MOST):
            rule = "its files_changed, tests_passing and output_chars must be whole numbers or None"
            raise ValueError(f"signal is {signal!r}: {rule}")
    return signal


def _wrong_counts(signal: Signal) -> str:
    rule = f"must be whole numbers, not below 0 and below {MOST:g}"
    return f"signal is {signal!r}: its count, refused and cost_micros {rule}"


def _is_step(value: Any) -> bool:
    if not isinstance(value, AgentStep):
        return False
    return None not in value[:2] and all(text is None or isinstance(text, str) for text in value)


def _is_measure(value: Any) -> bool:
    # Compared instead of `isfinite`, which raises for an integer beyond all floats.
    return value is None or (
        isinstance(value, _NUMBERS) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST
    )
