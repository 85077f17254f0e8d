"""A file of a recording, read in bounded pieces: lines of JSON, or one JSON document; its format.

Compressed by gzip or not. A line that is too long, no JSON, or nested too deeply is counted and
left out; a document that is too large is a problem of its file. Nothing here raises but
`UnreadableRecording`.
"""

import gzip
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from switchgear._agents.recordings.recording import RecordedRun, RecordingTally

LONGEST_LINE = 32 * 1024 * 1024
LARGEST_DOCUMENT = 128 * 1024 * 1024
MOST_BYTES = 8 * 1024 * 1024 * 1024
"""Of one file, after it is decompressed: then the rest is left out, and said."""
_HEAD = 20
"""Objects that are looked at to recognise a format."""
_BROKEN = (OSError, EOFError, ValueError, zlib.error)
_GZIP, _SQLITE = b"\x1f\x8b", b"SQLite format 3\0"


class UnreadableRecording(Exception):
    """A file that cannot be read. Its text says why."""


class RecordingFile:
    """One file, to be recognised and read by one thread."""

    def __init__(
        self, path: str, lines: tuple[bytes, ...] | None = None, first_line: int = 1
    ) -> None:
        self.path = path
        self.first_line = first_line
        self.name = os.path.basename(path)
        self._lines = lines
        """Some lines of the file in its place, already read by somebody else."""
        self._document: Any = None
        self._objects: list[dict[str, Any]] | None = None

    @property
    def is_part(self) -> bool:
        """Whether these are some lines of a file, not all of it."""
        return self._lines is not None

    @property
    def is_database(self) -> bool:
        """Whether it is a SQLite file."""
        return self._begins_with(_SQLITE)

    def head(self) -> list[dict[str, Any]]:
        """The first objects: of the lines, or the whole document as one. Raises `UnreadableRecording`."""
        if self._objects is None:
            self._objects = []
            for value in self.lines(RecordingTally(), ""):
                self._objects.append(value)
                if len(self._objects) >= _HEAD:
                    break
            if not self._objects or not self._first_line_is_whole():
                self._objects = self._as_document() or self._objects
        return self._objects

    def _as_document(self) -> list[dict[str, Any]]:
        try:
            document = self.document()
        except UnreadableRecording:
            if self._objects:  # lines of JSON behind a line that is none
                return []
            raise
        return [document] if isinstance(document, dict) else [{"[]": document}]

    def document(self) -> Any:
        """The file as one JSON value, parsed once. Raises `UnreadableRecording`."""
        if self._document is None:
            with self._opened() as file:
                data = _read(file, LARGEST_DOCUMENT + 1)
            if len(data) > LARGEST_DOCUMENT:
                raise UnreadableRecording(
                    f"is larger than {LARGEST_DOCUMENT // 1024**2} MiB as one JSON"
                )
            try:
                self._document = json.loads(data)
            except (ValueError, RecursionError) as error:
                raise UnreadableRecording(f"is no JSON: {_why(error)}") from error
        return self._document

    def raw_lines(self, tally: RecordingTally, name: str) -> Iterator[bytes]:
        """The lines that are not too long, one after the other. Raises `UnreadableRecording`."""
        if self._lines is not None:
            yield from self._lines
            return
        with self._opened() as file:
            left = MOST_BYTES
            while line := _line(file):
                left -= len(line)
                if left < 0:
                    tally.problem(self.path, f"has more than {MOST_BYTES // 1024**3} GiB: cut off")
                    return
                if len(line) > LONGEST_LINE:
                    tally.unknown_line(name, f"longer than {LONGEST_LINE // 1024**2} MiB")
                    while line and not line.endswith(b"\n"):
                        line = _line(file)
                        left -= len(line)
                elif line.strip():
                    yield line

    def lines(self, tally: RecordingTally, name: str) -> Iterator[dict[str, Any]]:
        """The lines that are JSON objects; others are counted. Raises `UnreadableRecording`."""
        for line in self.raw_lines(tally, name):
            value = parsed(line)
            if isinstance(value, dict):
                yield value
            else:
                tally.unknown_line(name, "not a JSON object")

    def _first_line_is_whole(self) -> bool:
        """Whether the file is lines of JSON: then its first line is one."""
        first = next(self.raw_lines(RecordingTally(), ""), b"")
        return isinstance(parsed(first), dict)

    def _begins_with(self, magic: bytes) -> bool:
        try:
            with open_regular(self.path) as file:
                return file.read(len(magic)) == magic
        except UnreadableRecording:
            return False

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with open_regular(self.path) as file:
            if self._begins_with(_GZIP):
                with gzip.GzipFile(fileobj=file) as inflated:
                    yield inflated  # type: ignore[misc]  # it reads as any file does
            else:
                yield file


class RecordingFormat(NamedTuple):
    """One format in which sessions are recorded."""

    name: str
    label: str
    recognises: Callable[[list[dict[str, Any]], RecordingFile], bool]
    """Whether a file has this format, by its first objects."""
    read: Callable[[RecordingFile, RecordingTally], Iterator[RecordedRun]]
    places: tuple[str, ...] = ()
    """Where the sessions usually are."""
    per_line: bool = False
    """Whether each line is a run by itself, so that lines may be read separately."""
    is_database: Callable[[RecordingFile], bool] | None = None
    """Whether a SQLite file has this format; `None`: the format has no databases."""


def parsed(line: bytes) -> Any:
    """A line as JSON; `None`: it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def open_regular(path: str) -> IO[bytes]:
    """Open a file, looked at first: opening a pipe would wait for its writer."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnreadableRecording("is not a regular file")
        return open(path, "rb")
    except (OSError, ValueError) as error:
        raise UnreadableRecording(f"cannot be read: {_why(error)}") from error


def _line(file: IO[bytes]) -> bytes:
    try:
        return file.readline(LONGEST_LINE + 1)
    except _BROKEN as error:
        raise UnreadableRecording(f"cannot be read: {_why(error)}") from error


def _read(file: IO[bytes], size: int) -> bytes:
    try:
        return file.read(size)
    except _BROKEN as error:
        raise UnreadableRecording(f"cannot be read: {_why(error)}") from error


def _why(error: BaseException) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(said)[:200]
