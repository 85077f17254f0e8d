"""The access log: one JSON object per line and request, without keys, queries and contents."""

import json
import os
import time
from dataclasses import dataclass
from typing import TextIO

from switchgear._text.redact import redact


@dataclass(slots=True)
class LogEntry:
    """The log entry of one request, filled in as the facts become known."""

    method: str
    path: str
    upstream: str
    status: int = 0
    model: str = ""
    session: str = ""
    key: str = ""
    refused: str = ""
    note: str = ""
    tokens: tuple[int, int] | None = None
    cost_micros: int | None = None


class AccessLog:
    """Writes entries to a file or stream. Errors of the log do not stop requests."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    @classmethod
    def to_file(cls, path: str) -> "AccessLog":
        """A log that appends to a file that only its owner can read. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return cls(os.fdopen(os.open(path, flags, 0o600), "a", encoding="utf-8", buffering=1))

    def write(self, entry: LogEntry, seconds: float) -> None:
        facts = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": entry.method,
            "path": redact(entry.path.partition("?")[0]),
            "status": entry.status,
            "seconds": round(seconds, 4),
            "upstream": entry.upstream,
        }
        for name in ("model", "session", "key", "refused", "note"):
            if value := getattr(entry, name):
                facts[name] = redact(value)
        if entry.tokens is not None:
            facts["input_tokens"], facts["output_tokens"] = entry.tokens
        if entry.cost_micros is not None:
            facts["cost_micros"] = entry.cost_micros
        try:
            self._to.write(json.dumps(facts) + "\n")
            self._to.flush()
        except (OSError, ValueError):
            return
