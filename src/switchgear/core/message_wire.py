"""Messages as JSON values, for stores that hand them from one process to another.

Unlike circuits and events they are not kept: one version of Switchgear reads what it wrote itself,
and what it cannot read it refuses with `WireError`.
"""

from typing import Any

from switchgear.core.types import (
    Act,
    Ask,
    EventKind,
    Message,
    Mode,
    Order,
    Permit,
    Signal,
    Source,
    Tell,
)
from switchgear.core.wire import WireError


def dump_message(message: Message) -> list[Any]:
    """A message as JSON values."""
    if isinstance(message, Tell):
        permit = None if message.permit is None else [*message.permit]
        told = ["tell", list(message.signal), permit]
        return told if message.source is None else [*told, list(message.source)]
    return [type(message).__name__.lower(), list(message)]


def load_message(data: Any) -> Message:
    """The inverse of `dump_message`. Raises `WireError`."""
    try:
        kind, fields, *rest = data
        if kind == "ask":
            return Ask(*fields)
        if kind == "order":
            by, why, mode, reset, event, *rest = fields
            mode = None if mode is None else Mode(mode)
            return Order(by, why, mode, reset, EventKind(event), *rest)
        if kind == "tell":
            permit, *source = rest
            tell = Tell(_signal(fields), None if permit is None else Permit(*permit))
            return tell._replace(source=_source(*source)) if source else tell
    except (TypeError, ValueError) as error:
        raise WireError(f"not a message: {error!r}") from error
    raise WireError(f"not a message: it begins with {kind!r}")


def _signal(fields: list[Any]) -> Signal:
    signal = Signal(*fields)
    return signal if signal.act is None else signal._replace(act=Act(*signal.act))


def _source(fields: list[Any]) -> Source:
    process, upto_s, times = fields
    return Source(process, upto_s, tuple((at_s, count) for at_s, count in times))
