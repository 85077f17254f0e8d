"""The same error again and again: a loop that repeats the same fix."""

from typing import Any, ClassVar, NamedTuple, Self

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import Signal
from switchgear._text.fingerprint import FINGERPRINTS, digest
from switchgear._text.formats import plural

SAMPLE = 200
"""Characters kept of the first text of each error."""
MOST = 2000
"""Maximum number of errors counted without a text. Beyond it the rarest are removed, the oldest first."""
_LONGEST_KEY = 40


class CountedError(NamedTuple):
    """One error: its key, its count, and its first text."""

    key: str
    times: int
    text: str


class Errors(NamedTuple):
    """Counts by key, and the current row of equal errors."""

    seen: tuple[CountedError, ...] = ()
    """The most frequent errors, in order of first occurrence."""
    forgotten: int = 0
    """Number of removed errors; above 0, the number of different errors is a lower bound."""
    row_key: str = ""
    row: int = 0
    """Number of occurrences of the last error in a row."""
    row_text: str = ""
    """The text of the first error in the row, if it is not in `seen`."""
    others: tuple[tuple[str, int], ...] = ()
    """The other errors, as short keys and counts, in order of occurrence."""

    @property
    def different(self) -> int:
        """Number of different errors; exact unless some were forgotten."""
        return len(self.seen) + len(self.others)

    def plus(self, key: str, text: str, times: int, *, room: int) -> "Errors":
        """Count further occurrences of an error."""
        row = self.row + times if key == self.row_key else times
        for error in self.seen:
            if error.key == key:
                more = error._replace(times=error.times + times)
                seen = tuple(more if each is error else each for each in self.seen)
                return Errors(seen, self.forgotten, key, row, "", self.others)
        row_text = self.row_text if key == self.row_key and self.row_text else text[:SAMPLE]
        counts = dict(self.others)
        times += counts.pop(short := digest(key), 0)
        rarest = min(self.seen, key=lambda error: error.times, default=None)
        forgotten = self.forgotten
        if rarest is not None and len(self.seen) >= room:
            if times <= rarest.times:
                counts = {**dict(self.others), short: times}
                others, forgotten = _fit(counts, forgotten)
                return Errors(self.seen, forgotten, key, row, row_text, others)
            counts[digest(rarest.key)] = rarest.times
        kept = tuple(error for error in self.seen if len(self.seen) < room or error is not rarest)
        others, forgotten = _fit(counts, forgotten)
        return Errors(
            (*kept, CountedError(key, times, text[:SAMPLE])), forgotten, key, row, "", others
        )

    def end_row(self) -> "Errors":
        return self._replace(row_key="", row=0, row_text="")

    def last(self) -> CountedError | None:
        """The error of the current row, with its count in the row."""
        if not self.row_key:
            return None
        for error in self.seen:
            if error.key == self.row_key:
                return error._replace(times=self.row)
        return CountedError(self.row_key, self.row, self.row_text)

    def worst(self) -> CountedError | None:
        """The most frequent error; without a text if only errors without one are left."""
        worst = max(self.seen, key=lambda error: error.times, default=None)
        for key, times in self.others:
            if worst is None or times > worst.times:
                worst = CountedError(key, times, "")
        return worst

    def forgiven(self, threshold: int) -> "Errors":
        """Reset the counts of errors that reached the threshold, and end the row."""
        seen = [each._replace(times=0) if each.times >= threshold else each for each in self.seen]
        others = [(key, 0 if times >= threshold else times) for key, times in self.others]
        return Errors(tuple(seen), self.forgotten, others=tuple(others))

    def dump(self) -> list[Any]:
        """The fields; rarely used ones are left out if they are empty."""
        fields = [[list(error) for error in self.seen], self.forgotten, self.row_key, self.row]
        if not self.row_text and not self.others:
            return fields
        return [*fields, self.row_text, [list(other) for other in self.others]]

    @classmethod
    def load(cls, data: Any, *, room: int) -> Self:
        """The inverse of `dump`; errors beyond `room` lose their texts. Raises ValueError for other data."""
        rows, forgotten, row_key, row, *rest = values.check_list(
            "the errors", data, 6 if isinstance(data, list) and len(data) > 4 else 4
        )
        row_text, others = rest or ("", [])
        seen = []
        for error in values.check_list("the errors seen", rows):
            key, times, text = values.check_list("an error", error, 3)
            count = values.check_int("its count", times, least=0)
            seen.append(CountedError(values.check_text("its key", key), count, _sample(text)))
        if len({error.key for error in seen}) != len(seen):
            raise ValueError("an error is remembered twice")
        forgotten = values.check_int("errors forgotten", forgotten, least=0)
        row = values.check_int("errors in a row", row, least=0)
        if not isinstance(row_key, str) or bool(row_key) is not bool(row):
            raise ValueError(f"{row} errors in a row cannot be of the key {row_key!r}")
        counts = _counts(others)
        while len(seen) > room:
            rarest = min(seen, key=lambda error: error.times)
            seen.remove(rarest)
            counts[digest(rarest.key)] = rarest.times
        fitted, forgotten = _fit(counts, forgotten)
        return cls(tuple(seen), forgotten, row_key, row, _sample(row_text), fitted)


def _sample(text: Any) -> str:
    if not isinstance(text, str) or len(text) > SAMPLE:
        raise ValueError(f"{text!r} must be a text of at most {SAMPLE} characters")
    return text


def _counts(data: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for other in values.check_list("the other errors", data):
        key, times = values.check_list("another error", other, 2)
        if not isinstance(key, str) or len(key) > _LONGEST_KEY or key in counts:
            raise ValueError(f"{key!r} must be the key of one error")
        counts[key] = values.check_int("its count", times, least=0)
    return counts


def _fit(counts: dict[str, int], forgotten: int) -> tuple[tuple[tuple[str, int], ...], int]:
    """The errors without the least frequent ones (the oldest first), so that at most `MOST` are left."""
    while len(counts) > MOST:
        del counts[min(counts, key=counts.__getitem__)]
        forgotten += 1
    return tuple(counts.items()), forgotten


SCOPES = ("total", "consecutive")


class SameError(Detector):
    """Trips when one error has occurred `threshold` times (default 5), regardless of other results.

    Errors are distinguished by their `fingerprint`: `"default"` or `"documented"` (the fingerprint
    of the original shell scripts). With `scope="consecutive"` another error or a success ends the
    count. The `remember` most frequent errors (32) are kept with a sample of their text; some
    thousands more are counted without one. A recovery resets the counts of errors that reached the
    threshold, and no others.

    >>> SameError().reason(Errors((CountedError("a3f1", 2, "no such table"),)), now_s=0.0)
    'the same error 2 times (threshold 5): "no such table"'
    """

    __slots__ = ("threshold", "scope", "fingerprint", "remember")  # noqa: RUF023
    kind: ClassVar[str] = "same_error"
    threshold: int
    scope: str
    fingerprint: str
    remember: int

    def __init__(
        self,
        threshold: int = 5,
        scope: str = "total",
        fingerprint: str = "default",
        remember: int = 32,
    ) -> None:
        self._set(
            threshold=values.check_int("SameError.threshold", threshold),
            scope=values.check_one_of("SameError.scope", scope, SCOPES),
            fingerprint=values.check_one_of(
                "SameError.fingerprint", fingerprint, tuple(FINGERPRINTS)
            ),
            remember=values.check_int("SameError.remember", remember),
        )

    def start(self) -> Errors:
        return Errors()

    def fold(self, memory: Errors, signal: Signal, now_s: float) -> Errors:
        if signal.ok is None or not signal.count:
            return memory
        if signal.ok:
            return memory.end_row()
        if signal.error is None:
            return memory
        key = FINGERPRINTS[self.fingerprint](signal.error)
        return memory.plus(key, signal.error, signal.count, room=self.remember)

    def worst(self, memory: Errors) -> CountedError | None:
        """The most frequent error with its count; `None`: there was none."""
        if self.scope == "consecutive":
            return memory.last()
        return memory.worst()

    def heat(self, memory: Errors, now_s: float) -> float:
        worst = self.worst(memory)
        return 0.0 if worst is None else worst.times / self.threshold

    def reason(self, memory: Errors, now_s: float) -> str:
        worst = self.worst(memory)
        if worst is None or not worst.times:
            return f"no error is counted (threshold {self.threshold})"
        in_a_row = " in a row" if self.scope == "consecutive" else ""
        times = f"{plural(worst.times, 'time')}{in_a_row} (threshold {self.threshold})"
        return (
            f'the same error {times}: "{worst.text}"' if worst.text else f"the same error {times}"
        )

    def recovered(self, memory: Errors) -> Errors:
        """Keep all counts except those that reached the threshold."""
        return memory.forgiven(self.threshold)

    def probed(self, memory: Errors, signal: Signal, now_s: float) -> Errors:
        """The error of a failed probe counts like any other."""
        return self.fold(memory, signal, now_s)

    def measure(self, memory: Errors, now_s: float) -> Measure:
        worst = self.worst(memory)
        return Measure(0 if worst is None else worst.times, self.threshold, "times")

    def dump(self, memory: Errors) -> list[Any]:
        return memory.dump()

    def load(self, data: Any) -> Errors:
        """The inverse of `dump`; errors that do not fit into a smaller memory are dropped."""
        return Errors.load(data, room=self.remember)
