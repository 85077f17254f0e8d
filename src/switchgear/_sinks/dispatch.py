"""Calls sinks and hooks safely: their exceptions are logged and dropped.

The logging module is imported only when there is something to log, because the import is slow for
hook processes.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from types import CoroutineType, FunctionType, MethodType
from typing import Any, NamedTuple

from switchgear._core.errors import is_interrupt
from switchgear._core.types import Event
from switchgear._text.redact import redact

Sink = Callable[[Event], object]
"""Receives every event after it is committed. Its exceptions are logged and dropped."""


class CallOutcome(StrEnum):
    """The outcome of a call."""

    SUCCESS = "success"
    FAILURE = "failure"
    IGNORED = "ignored"
    """No evidence: cancelled, ignored, or counted by an inner guard of the same breaker."""
    REJECTED = "rejected"
    """The circuit refused it; nothing was run."""


class Call(NamedTuple):
    """One guarded call that has ended, or was refused."""

    circuit: str
    outcome: CallOutcome
    seconds: float | None = None
    """Duration in seconds; `None`: it did not run, or the permit was returned."""
    exception: BaseException | None = None
    """The exception that it raised; for a refusal the `Rejected`."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values; the exception as one redacted line."""
        data = {**self._asdict(), "outcome": self.outcome.value}
        if self.exception is not None:
            data["exception"] = name = type(self.exception).__name__
            with suppress(Exception):  # an error whose text cannot be read is still an error
                data["exception"] = redact(f"{name}: {self.exception}")
        return data


CallHook = Callable[[Call], object]
"""Receives every guarded call and every refusal. Its exceptions are logged and dropped."""


def checked_sinks(field: str, sinks: Any) -> tuple[Any, ...]:
    """The sinks as a tuple. Raises ValueError unless each is callable and no coroutine function."""
    if not isinstance(sinks, Iterable) or isinstance(sinks, str):
        raise ValueError(f"{field} is {sinks!r}: it must be a list of callables")
    checked = tuple(sinks)
    for sink in checked:
        if not callable(sink):
            raise ValueError(f"{field} holds {sink!r}: a sink must be callable")
        if _is_async(sink):
            raise ValueError(
                f"{field} holds {sink!r}: a sink must not be a coroutine function, which would never "
                "be awaited; put the event into a queue, or start a task in a plain function"
            )
    return checked


def checked_hooks(field: str, hooks: Any) -> tuple[CallHook, ...]:
    """One hook or several as a tuple. Raises ValueError like `checked_sinks`."""
    return checked_sinks(field, (hooks,) if callable(hooks) else hooks)


def _is_async(function: Any) -> bool:
    """Whether calling the function only creates a coroutine, also for partials and methods."""
    for _ in range(20):
        if isinstance(function, partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            break
    if not isinstance(function, FunctionType):
        function = getattr(type(function), "__call__", None)  # noqa: B004  an object may have an async one
    code = getattr(function, "__code__", None)
    return bool(getattr(code, "co_flags", 0) & _COROUTINES)


_COROUTINES = 0x80 | 0x200  # the code flags of coroutine functions and async generators


class _EventQueue(threading.local):
    """The events that the sinks of one thread have yet to receive, and whether they are being sent."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Event, tuple[Sink, ...]]] = deque()
        self.sending = False


_queue = _EventQueue()


def emit(events: Sequence[Event], sinks: tuple[Sink, ...]) -> None:
    """Pass the events to every sink, in order within a thread.

    If a sink itself uses a breaker, the events that it causes are sent after the current ones. A sink
    that causes another event for every event never returns.
    """
    queue = _queue
    queue.waiting.extend([(event, sinks) for event in events])
    if queue.sending:
        return
    queue.sending = True
    try:
        while queue.waiting:
            _send(*queue.waiting.popleft())
    finally:
        queue.sending = False


def _send(event: Event, sinks: tuple[Sink, ...]) -> None:
    for sink in sinks:
        try:
            _drop_coroutine(sink, sink(event))
        except Exception:  # noqa: BLE001  a failing sink must not affect the call
            log_exception("a sink of circuit %r failed on %r", event.circuit, event)


def report(call: Call, hooks: tuple[CallHook, ...]) -> None:
    """Pass the call to every hook. Their exceptions are logged and dropped."""
    for hook in hooks:
        try:
            _drop_coroutine(hook, hook(call))
        except Exception:  # noqa: BLE001  a failing hook must not affect the call
            log_exception("a hook of the calls of circuit %r failed", call.circuit)


def _drop_coroutine(sink: Any, result: object) -> None:
    """Log a warning if a plain function returned a coroutine, because it is never awaited."""
    if isinstance(result, CoroutineType):
        result.close()
        log_warning("sink %r returned a coroutine, which is never awaited", sink)


def log_exception(message: str, *args: object) -> None:
    """Log the exception being handled. What `logging` itself raises is dropped."""
    import logging  # noqa: PLC0415

    try:
        logging.getLogger("switchgear").exception(message, *args)  # noqa: LOG004  callers handle one
    except BaseException as trouble:
        if is_interrupt(trouble):
            raise


def log_warning(message: str, *args: object) -> None:
    """Log a problem that no caller can receive as an exception."""
    import logging  # noqa: PLC0415

    logging.getLogger("switchgear").warning(message, *args)
