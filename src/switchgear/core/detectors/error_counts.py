"""How often each error came: the memory of `SameError`, bounded however many errors there are."""

from typing import Any, NamedTuple, Self

from switchgear.core import record

SAMPLE = 200
"""Characters kept of the first text of each error."""


class Seen(NamedTuple):
    """One error: its key, how often it came, how it read the first time."""

    key: str
    times: int
    text: str


class Errors(NamedTuple):
    """Counts by key, and the row of equal errors that is still going on."""

    seen: tuple[Seen, ...] = ()
    """In the order they first came."""
    forgotten: int = 0
    """How many others came that are no longer remembered."""
    row_key: str = ""
    row: int = 0
    """How often the last error came in a row."""

    def plus(self, key: str, text: str, times: int, *, room: int) -> "Errors":
        """The error came so many times more; the rarest of the others makes room for it."""
        others = tuple(error for error in self.seen if error.key != key)
        forgotten = self.forgotten
        if len(others) == len(self.seen):
            others, forgotten = _fitted(others, forgotten, room - 1)
            seen = (*others, Seen(key, times, text[:SAMPLE]))
        else:
            seen = tuple(
                error._replace(times=error.times + times) if error.key == key else error
                for error in self.seen
            )
        return Errors(seen, forgotten, key, self.row + times if key == self.row_key else times)

    def end_row(self) -> "Errors":
        """Something else happened than the last error."""
        return self._replace(row_key="", row=0)

    def last(self) -> Seen | None:
        """The error of the row, counted in the row."""
        for error in self.seen:
            if error.key == self.row_key:
                return error._replace(times=self.row)
        return None

    def dump(self) -> list[Any]:
        """The fields."""
        return [[list(error) for error in self.seen], self.forgotten, self.row_key, self.row]

    @classmethod
    def load(cls, data: Any, *, room: int) -> Self:
        """The inverse of `dump`, as far as there is room; raises ValueError on anything else."""
        rows, forgotten, row_key, row = record.row("the errors", data, 4)
        seen = []
        for error in record.row("the errors seen", rows):
            key, times, text = record.row("an error", error, 3)
            if not isinstance(text, str) or len(text) > SAMPLE:
                raise ValueError(f"{text!r} must be a text of at most {SAMPLE} characters")
            count = record.whole("its count", times, least=0)
            seen.append(Seen(record.text("its key", key), count, text))
        if len({error.key for error in seen}) != len(seen):
            raise ValueError("an error is remembered twice")
        forgotten = record.whole("errors forgotten", forgotten, least=0)
        row = record.whole("errors in a row", row, least=0)
        if not isinstance(row_key, str) or bool(row_key) is not bool(row):
            raise ValueError(f"{row} errors in a row cannot be of the key {row_key!r}")
        return cls(*_fitted(tuple(seen), forgotten, room), row_key, row)


def _fitted(seen: tuple[Seen, ...], forgotten: int, room: int) -> tuple[tuple[Seen, ...], int]:
    """Without those that came least often, the oldest of such first, until the others fit."""
    while len(seen) > room:
        rarest = min(seen, key=lambda error: error.times)
        seen, forgotten = tuple(error for error in seen if error is not rarest), forgotten + 1
    return seen, forgotten
