"""Observers cannot hurt the observed: what a sink raises is logged and dropped.

The logging module is imported when there is something to log: a hook process that never logs
must not pay for it.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from switchgear.core.interrupts import is_interrupt
from switchgear.core.types import Event

Sink = Callable[[Event], object]
"""Hears every event after it is committed. What it raises is logged and dropped."""


def checked_sinks(field: str, sinks: Any) -> tuple[Sink, ...]:
    """The sinks as a tuple. Raises ValueError unless each of them can be called."""
    if not isinstance(sinks, Iterable) or isinstance(sinks, str):
        raise ValueError(f"{field} is {sinks!r}: it must be a list of callables")
    checked = tuple(sinks)
    for sink in checked:
        if not callable(sink):
            raise ValueError(f"{field} holds {sink!r}: a sink must be callable")
    return checked


class _Heard(threading.local):
    """What the sinks of one thread have yet to hear, and whether they are being told."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Event, tuple[Sink, ...]]] = deque()
        self.telling = False


_heard = _Heard()


def emit(events: Sequence[Event], sinks: tuple[Sink, ...]) -> None:
    """Let every sink hear the events, in order within a thread.

    What a sink itself does to a breaker makes events too: they are heard after those that are
    being told, and not in the middle of them. A sink that answers every event by making another
    never comes to an end.
    """
    heard = _heard
    heard.waiting.extend([(event, sinks) for event in events])
    if heard.telling:
        return
    heard.telling = True
    try:
        while heard.waiting:
            _tell(*heard.waiting.popleft())
    finally:
        heard.telling = False


def _tell(event: Event, sinks: tuple[Sink, ...]) -> None:
    for sink in sinks:
        try:
            sink(event)
        except Exception:  # noqa: BLE001  whatever it is, it is the sink's own trouble
            log_exception("a sink of circuit %r failed on %r", event.circuit, event)


def log_exception(message: str, *args: object) -> None:
    """Log the exception being handled. What cannot be logged, because it raises, is dropped."""
    import logging  # noqa: PLC0415

    try:
        logging.getLogger("switchgear").exception(message, *args)  # noqa: LOG004  callers handle one
    except BaseException as trouble:
        if is_interrupt(trouble):
            raise


def log_warning(message: str, *args: object) -> None:
    """Log something that nobody is there to be raised at."""
    import logging  # noqa: PLC0415

    logging.getLogger("switchgear").warning(message, *args)
