"""State changes in the log without any configuration: the logger is `switchgear`.

A trip is a warning, which Python prints on standard error even if a program never set up `logging`;
recoveries and orders are information. A breaker that has the sink `Log` logs by that one instead. `logging` is
imported with the first event, so that a process in which nothing happens does not pay for it.
"""

from collections.abc import Sequence

from switchgear._core.errors import duration
from switchgear._core.interrupts import is_interrupt
from switchgear._core.types import Event, EventKind, Phase
from switchgear._sinks.dispatch import Sink

LOGGER = "switchgear"
WARNINGS = frozenset(
    (
        *(EventKind.LOAD_CUT, EventKind.STORE_LOST, EventKind.STATE_UNREADABLE),
        *(EventKind.UNDECIDED, EventKind.RULE_BROKEN, EventKind.GUARD_CHANGED),
        EventKind.ISOLATED,
    )
)


class silenced:  # noqa: N801  used as a function: `with silenced():`
    """Log no state changes inside: for a command that shows them itself, and for simulations."""

    inside = 0
    """How many such blocks the process is in."""

    def __enter__(self) -> None:
        silenced.inside += 1

    def __exit__(self, *_: object) -> None:
        silenced.inside -= 1


def log_events(events: Sequence[Event], sinks: tuple[Sink, ...]) -> None:
    """Log the events, unless one of the sinks does. Never raises."""
    if silenced.inside or any(getattr(type(sink), "logs_events", False) for sink in sinks):
        return
    import logging  # noqa: PLC0415

    logger = logging.getLogger(LOGGER)
    for event in events:
        level = logging.WARNING if is_warning(event) else logging.INFO
        try:
            if logger.isEnabledFor(level):
                logger.log(level, "%s", sentence(event))
        except BaseException as trouble:  # a handler's own
            if is_interrupt(trouble):
                raise


_REMARKS = frozenset({EventKind.STORE_LOST, EventKind.STORE_BACK})
"""What Switchgear itself remarks: a sentence, and no order of anybody's."""


def is_warning(event: Event) -> bool:
    """Whether somebody should look: the circuit opened, admits less, or lost its state."""
    moved = event.kind is EventKind.MOVED
    return event.kind in WARNINGS or (moved and event.after is Phase.OPEN)


def sentence(event: Event) -> str:
    r"""An event as a sentence of printable characters.

    >>> from switchgear._core.types import Mode
    >>> why = "5 failures in a row (threshold 5)"
    >>> moved = Event("api", 3, 0.0, EventKind.MOVED, Phase.CLOSED, Phase.OPEN, Mode.AUTO, 2, why)
    >>> print(sentence(moved._replace(retry_after_s=60.0)))
    circuit 'api' is open: 5 failures in a row (threshold 5); retries in 60 s
    """
    moved = event.kind is EventKind.MOVED
    state = event.after.replace("_", "-")
    parts = [f"circuit {event.circuit!r} is {state}" if moved else f"circuit {event.circuit!r}"]
    if not moved:
        parts.append(f": {event.kind.replace('_', ' ')}")
    is_order = bool(event.by) and event.kind not in _REMARKS
    if event.reason:
        parts.append(f": {event.reason.replace('_', '-') if is_order else event.reason}")
    if is_order:
        parts.append(f" by {event.by}")
    if event.why:
        parts.append(f": {event.why}")
    if event.retry_after_s is not None and moved:
        parts.append(f"; retries in {duration(event.retry_after_s)}")
    return printable("".join(parts))


def printable(text: str) -> str:
    r"""The text with everything escaped that a terminal or a log reader might obey.

    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
