"""Logs state changes to the logger `switchgear` without any configuration; the sinks `Jsonl` and `Log`.

A trip is a warning, which Python prints on standard error even if a program never set up `logging`;
recoveries and overrides have the level INFO. A breaker with the sink `Log` logs through that sink
instead. `logging` is imported with the first event, so that processes without events do not pay for
the import.
"""

import json
import math
import os
import stat
from collections.abc import Sequence
from typing import ClassVar

from switchgear._core import values
from switchgear._core.errors import is_interrupt
from switchgear._core.types import Event, EventKind, Phase
from switchgear._core.wire import dump_event
from switchgear._sinks.dispatch import Sink, log_warning
from switchgear._text.formats import duration


class Jsonl(values.Value):
    r"""Appends one JSON line per event to the file at `path`, created with mode 0600.

    The file is opened for each event, which is rare: so the file can be rotated, removed or moved, a
    fork shares nothing, and no thread waits for another. One `write` in append mode appends the whole
    line, also if several processes write. If an event cannot be written, a warning is logged and
    nothing is raised; the store still has the event.

    >>> Jsonl("events.jsonl").path
    'events.jsonl'
    """

    __slots__ = ("_torn", "path")
    path: str
    _torn: bool
    """The last line was truncated by a full disk; the next one must start on a new line."""

    def __init__(self, path: str) -> None:
        if "\0" in values.check_text("Jsonl.path", path):
            raise ValueError(f"Jsonl.path is {path!r}: it must be the path of a file")
        self._set(path=path, _torn=False)

    def fields(self) -> dict[str, str]:
        """The configuration: the path."""
        return {"path": self.path}

    def __call__(self, event: Event) -> None:
        line = (b"\n" if self._torn else b"") + _line(event)
        try:
            written = _append(self.path, line)
            if written:
                self._set(_torn=written != len(line))
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written")
        except OSError as error:
            log_warning(
                "event %s of circuit %r was not written to %r: %s",
                *(event.seq, event.circuit, self.path, error.strerror or error),
            )


def _line(event: Event) -> bytes:
    """The event as one line of JSON in ASCII, so that no text in it can break the line or the encoding."""
    fields = {
        # JSON has no infinity.
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in dump_event(event).items()
    }
    return json.dumps(fields, allow_nan=False).encode("ascii") + b"\n"


def _append(path: str, line: bytes) -> int:
    """Write the bytes in one call; return how many were written."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        file = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError("it is not a regular file")
        return os.write(file, line)
    finally:
        os.close(file)


LEVELS = ("debug", "info", "warning", "error", "critical")
EVENTS_LOGGER = "switchgear.events"


class Log(values.Value):
    """Logs one line per event to the logger `switchgear.events`, at `level` (default info).

    The program's `logging` configuration decides whether and where the line appears. A breaker with
    this sink logs its events here, and no longer on the logger `switchgear`. Thread-safe.

    >>> Log("warning").level
    'warning'
    """

    __slots__ = ("level",)
    level: str
    logs_events: ClassVar[bool] = True
    """Events are logged by this sink, and not to the logger `switchgear` as well."""

    def __init__(self, level: str = "info") -> None:
        if level not in LEVELS:
            raise ValueError(f"Log.level is {level!r}: it must be one of {', '.join(LEVELS)}")
        self._set(level=level)

    def __call__(self, event: Event) -> None:
        import logging  # noqa: PLC0415  only for programs with this sink

        numbers = logging.getLevelNamesMapping()
        logging.getLogger(EVENTS_LOGGER).log(numbers[self.level.upper()], "%s", one_line(event))


def one_line(event: Event) -> str:
    r"""An event as one line of printable characters, whatever its texts contain.

    >>> from switchgear._core.types import Mode, Phase
    >>> moved = Event("api", 3, 0.0, EventKind.MOVED, Phase.CLOSED, Phase.OPEN, Mode.AUTO, 2, "a\nb")
    >>> print(one_line(moved))
    api #3 closed → open: a\nb
    """
    is_override = event.kind is EventKind.ORDERED
    what = f"{event.before} → {event.after}" if event.kind is EventKind.MOVED else f"{event.kind}"
    parts = [
        f"{event.circuit} #{event.seq} {override_words(event.reason) if is_override else what}"
    ]
    if event.reason and not is_override:
        parts.append(f": {event.reason}")
    if event.by:
        parts.append(f", by {event.by}")
    if event.why:
        parts.append(f": {event.why}")
    if event.retry_after_s is not None:
        parts.append(f"; next try in {duration(event.retry_after_s)}")
    return printable("".join(parts))


LOGGER = "switchgear"
WARNINGS = frozenset(
    (
        *(EventKind.LOAD_CUT, EventKind.STORE_LOST, EventKind.STATE_UNREADABLE),
        *(EventKind.UNDECIDED, EventKind.RULE_BROKEN, EventKind.GUARD_CHANGED),
        EventKind.ISOLATED,
    )
)
"""The kinds of events that are logged as warnings, besides trips."""


class silenced:  # noqa: N801  used as a function: `with silenced():`
    """Log no state changes inside the block: for a command that shows them itself, and for simulations."""

    depth = 0
    """Number of blocks that this process has entered and not left."""

    def __enter__(self) -> None:
        silenced.depth += 1

    def __exit__(self, *_: object) -> None:
        silenced.depth -= 1


def log_events(events: Sequence[Event], sinks: tuple[Sink, ...]) -> None:
    """Log the events, unless one of the sinks does. Never raises."""
    if silenced.depth or any(getattr(type(sink), "logs_events", False) for sink in sinks):
        return
    import logging  # noqa: PLC0415

    logger = logging.getLogger(LOGGER)
    for event in events:
        level = logging.WARNING if is_warning(event) else logging.INFO
        try:
            if logger.isEnabledFor(level):
                logger.log(level, "%s", sentence(event))
        except BaseException as trouble:  # raised by a log handler
            if is_interrupt(trouble):
                raise


_REMARKS = frozenset({EventKind.STORE_LOST, EventKind.STORE_BACK})
"""Events whose author is the process that noticed them, not an operator: `sentence` leaves it out."""


def is_warning(event: Event) -> bool:
    """Whether an event is logged as a warning: the circuit opened, or a kind in `WARNINGS`."""
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
    if event.kind is EventKind.HOLD_ENDED:
        parts.append(f": the hold by {event.by} has ended")
    elif event.kind is EventKind.ORDERED:
        parts.append(f": {override_words(event.reason)} by {event.by}")
    else:
        parts.append("" if moved else f": {event.kind.replace('_', ' ')}")
        parts.append(f": {event.reason}" if event.reason else "")
        parts.append(f" by {event.by}" if event.by and event.kind not in _REMARKS else "")
    if event.why:
        parts.append(f": {event.why}")
    if event.retry_after_s is not None and moved:
        parts.append(f"; retries in {duration(event.retry_after_s)}")
    return printable("".join(parts))


def override_words(reason: str) -> str:
    """An override in words, from the reason of its event.

    >>> override_words("mode held_open for 5 min"), override_words("mode auto"), override_words("reset")
    ('held open for 5 min', 'released', 'reset')
    """
    mode, _, rest = reason.removeprefix("mode ").partition(" ")
    verb = {"auto": "released", "shadow": "put in shadow"}.get(mode, mode.replace("_", " "))
    return f"{verb} {rest}".rstrip()


def printable(text: str) -> str:
    r"""The text with all control characters escaped.

    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
