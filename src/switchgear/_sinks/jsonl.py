"""Events as lines of a JSON Lines file, for other programs and for later."""

import json
import math
import os
import stat

from switchgear._core import values
from switchgear._core.types import Event
from switchgear._core.wire import dump_event


class Jsonl(values.Value):
    r"""Appends one JSON line per event to the file at `path`, created with mode 0600.

    The file is opened for each event: events are rare, and so a file that was rotated, removed or
    moved is simply the next one, a fork shares nothing, and no thread waits for another. One
    `write` in append mode puts the whole line at the end, also between processes. What cannot be
    written is logged, never raised; the store still has the event.

    >>> Jsonl("events.jsonl").path
    'events.jsonl'
    """

    __slots__ = ("_torn", "path")
    path: str
    _torn: bool
    """The last line was cut off by a full disk; the next one must not be glued to it."""

    def __init__(self, path: str) -> None:
        if "\0" in values.text("Jsonl.path", path):
            raise ValueError(f"Jsonl.path is {path!r}: it must be the path of a file")
        self._set(path=path, _torn=False)

    def fields(self) -> dict[str, str]:
        """The path alone: the rest is what happened, not what was asked for."""
        return {"path": self.path}

    def __call__(self, event: Event) -> None:
        """Append the event."""
        line = (b"\n" if self._torn else b"") + _line(event)
        try:
            written = _append(self.path, line)
            if written:
                self._set(_torn=written != len(line))
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written")
        except OSError as error:
            import logging  # noqa: PLC0415  only when something is wrong

            logging.getLogger("switchgear").warning(
                "event %s of circuit %r was not written to %r: %s",
                *(event.seq, event.circuit, self.path, error.strerror or error),
            )


def _line(event: Event) -> bytes:
    """ASCII, so that no text in it can break the line or the encoding."""
    fields = {
        # JSON has no infinity.
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in dump_event(event).items()
    }
    return json.dumps(fields, allow_nan=False).encode("ascii") + b"\n"


def _append(path: str, line: bytes) -> int:
    """How many bytes could be written, in one call."""
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
