"""Events as lines of Python's `logging`."""

from typing import ClassVar

from switchgear._core import values
from switchgear._core.errors import duration
from switchgear._core.types import Event, EventKind
from switchgear._sinks.log import printable

LEVELS = ("debug", "info", "warning", "error", "critical")
LOGGER = "switchgear.events"


class Log(values.Value):
    """Logs one line per event to the logger `switchgear.events`, at `level` (default info).

    Whether and where the line appears is up to the program's set-up of `logging`. A breaker with
    this sink logs its events here, and no longer on the logger `switchgear`. Thread-safe.

    >>> Log("warning").level
    'warning'
    """

    __slots__ = ("level",)
    level: str
    logs_events: ClassVar[bool] = True
    """Events are logged by this sink, and not by default as well."""

    def __init__(self, level: str = "info") -> None:
        if level not in LEVELS:
            raise ValueError(f"Log.level is {level!r}: it must be one of {', '.join(LEVELS)}")
        self._set(level=level)

    def __call__(self, event: Event) -> None:
        """Log the event."""
        import logging  # noqa: PLC0415  a program without this sink does not pay for it

        numbers = logging.getLevelNamesMapping()
        logging.getLogger(LOGGER).log(numbers[self.level.upper()], "%s", one_line(event))


def one_line(event: Event) -> str:
    r"""An event in one line of printable characters, whatever its texts hold.

    >>> from switchgear._core.types import Mode, Phase
    >>> moved = Event("api", 3, 0.0, EventKind.MOVED, Phase.CLOSED, Phase.OPEN, Mode.AUTO, 2, "a\nb")
    >>> print(one_line(moved))
    api #3 closed → open: a\nb
    """
    what = f"{event.before} → {event.after}" if event.kind is EventKind.MOVED else f"{event.kind}"
    parts = [f"{event.circuit} #{event.seq} {what}"]
    if event.reason:
        parts.append(f": {event.reason}")
    if event.by:
        parts.append(f", by {event.by}")
    if event.why:
        parts.append(f": {event.why}")
    if event.retry_after_s is not None:
        parts.append(f"; next try in {duration(event.retry_after_s)}")
    return printable("".join(parts))
