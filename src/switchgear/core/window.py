"""Windows over what happened: the last N calls, the last failures, the last so many seconds.

All are immutable, so that `step` stays pure, and all cost the same per signal whatever their
size: bits and times are kept in short chunks, of which only the youngest and the oldest are
touched; the long tuple of full chunks in between is copied once in `CHUNK` signals.
"""

from typing import Any, NamedTuple, Self

from switchgear.core import record

BITS = 256
TIMES = 32
SLICES = 30


class CountWindow(NamedTuple):
    """Hits among the last `size` signals, exactly; a push costs one shift of a 256-bit number.

    Memory: one bit a signal. The youngest bit of a chunk is its lowest.
    """

    total: int = 0
    hits: int = 0
    newest: int = 0
    newest_length: int = 0
    middle: tuple[int, ...] = ()
    oldest: int = 0
    oldest_length: int = 0

    def push(self, *, hit: bool, count: int, size: int) -> "CountWindow":
        """Add `count` equal signals and let go of what no longer fits into `size`."""
        total, hits, newest, newest_length, middle, oldest, oldest_length = self
        left = min(count, size)
        total += left
        if hit:
            hits += left
        while left:
            taken = min(BITS - newest_length, left)
            newest = (newest << taken) | ((1 << taken) - 1 if hit else 0)
            newest_length += taken
            left -= taken
            if newest_length == BITS:
                middle, newest, newest_length = (*middle, newest), 0, 0
        grown = CountWindow(total, hits, newest, newest_length, middle, oldest, oldest_length)
        return grown if total <= size else grown.fit(size)

    def fit(self, size: int) -> "CountWindow":
        """Without the oldest signals that do not fit into `size`."""
        total, hits, newest, newest_length, middle, oldest, oldest_length = self
        while total > size:
            if not oldest_length:
                if middle:
                    oldest, oldest_length, middle = middle[0], BITS, middle[1:]
                else:
                    oldest, oldest_length, newest, newest_length = newest, newest_length, 0, 0
            dropped = min(total - size, oldest_length)
            oldest_length -= dropped
            hits -= (oldest >> oldest_length).bit_count()
            oldest &= (1 << oldest_length) - 1
            total -= dropped
        return CountWindow(total, hits, newest, newest_length, middle, oldest, oldest_length)

    def dump(self) -> list[Any]:
        """The bits as `[length, hexadecimal digits]`, oldest first, however they are chunked."""
        bits = self.oldest
        for chunk in self.middle:
            bits = (bits << BITS) | chunk
        bits = (bits << self.newest_length) | self.newest
        return [self.total, f"{bits:x}"]

    @classmethod
    def load(cls, data: Any, size: int) -> Self:
        """The youngest `size` signals of a dump; raises ValueError on anything else."""
        length, digits = record.row("a window of signals", data, 2)
        length = record.whole("the length of a window", length, least=0)
        bits = int(record.text("the bits of a window", digits), 16)
        if f"{bits:x}" != digits or bits < 0 or bits.bit_length() > length:
            raise ValueError(f"a window of {length} signals cannot hold the bits {digits!r}")
        # Cut before it is chunked: a length that is a mistake must not cost its size in memory.
        total = min(length, size)
        bits &= (1 << total) - 1
        oldest_length = total % BITS
        middle = tuple(
            (bits >> shift) & ((1 << BITS) - 1)
            for shift in range(total - oldest_length - BITS, -1, -BITS)
        )
        oldest = bits >> (total - oldest_length)
        return cls(total, bits.bit_count(), 0, 0, middle, oldest, oldest_length)


class TimeQueue(NamedTuple):
    """Times in the order they came, oldest first out: push and drop are O(1) amortised."""

    length: int = 0
    newest: tuple[float, ...] = ()
    middle: tuple[tuple[float, ...], ...] = ()
    oldest: tuple[float, ...] = ()
    start: int = 0
    """How many of `oldest` are already dropped."""

    def push(self, at_s: float) -> "TimeQueue":
        """Add a time at the young end."""
        length, newest, middle, oldest, start = self
        newest = (*newest, at_s)
        if len(newest) == TIMES:
            middle, newest = (*middle, newest), ()
        return TimeQueue(length + 1, newest, middle, oldest, start)

    def drop_until(self, at_s: float) -> "TimeQueue":
        """Without the times up to and including `at_s`."""
        queue = self
        while queue.length and queue.first() <= at_s:
            queue = queue.drop_first()
        return queue

    def first(self) -> float:
        """The oldest time; the queue must not be empty."""
        if self.start < len(self.oldest):
            return self.oldest[self.start]
        return self.middle[0][0] if self.middle else self.newest[0]

    def drop_first(self) -> "TimeQueue":
        """Without the oldest time; the queue must not be empty."""
        length, newest, middle, oldest, start = self
        if start == len(oldest):
            if middle:
                oldest, middle, start = middle[0], middle[1:], 0
            else:
                oldest, newest, start = newest, (), 0
        return TimeQueue(length - 1, newest, middle, oldest, start + 1)

    def dump(self) -> list[float]:
        """The times, oldest first."""
        times = list(self.oldest[self.start :])
        for chunk in self.middle:
            times.extend(chunk)
        return [*times, *self.newest]

    @classmethod
    def load(cls, data: Any) -> Self:
        """The inverse of `dump`; raises ValueError on anything else."""
        times = tuple(record.number("a time", at_s) for at_s in record.row("the times", data))
        if list(times) != sorted(times):
            raise ValueError("the times must not run backwards")
        return cls(len(times), (), (), times, 0)


class TimeWindow(NamedTuple):
    """Hits among the signals of the last `window_s` seconds, to a thirtieth of the window.

    A ring of partial sums: time is cut into slices of `window_s / 30`, whole slices are
    subtracted when they leave. Reading and pushing cost the same at any rate of signals.
    """

    total: int = 0
    hits: int = 0
    slice: int = 0
    """The youngest slice: its number, counted from time zero, and what it holds."""
    slice_total: int = 0
    slice_hits: int = 0
    closed: tuple[tuple[int, int, int], ...] = ()
    """Earlier slices that hold anything, as (index, total, hits), oldest first."""

    def at(self, now_s: float, window_s: float) -> "TimeWindow":
        """The window as it stands at `now_s`."""
        total, hits, index, slice_total, slice_hits, closed = self
        now_index = int(now_s * SLICES // window_s)
        if now_index > index:
            if slice_total:
                closed = (*closed, (index, slice_total, slice_hits))
            index, slice_total, slice_hits = now_index, 0, 0
            while closed and closed[0][0] <= index - SLICES:
                total -= closed[0][1]
                hits -= closed[0][2]
                closed = closed[1:]
        return TimeWindow(total, hits, index, slice_total, slice_hits, closed)

    def push(self, *, hit: bool, count: int) -> "TimeWindow":
        """Add `count` equal signals to the youngest slice; call `at` first."""
        more = count if hit else 0
        return TimeWindow(
            self.total + count,
            self.hits + more,
            self.slice,
            self.slice_total + count,
            self.slice_hits + more,
            self.closed,
        )

    def dump(self) -> list[list[int]]:
        """The slices that hold anything, oldest first, the youngest always."""
        return [[*past] for past in self.closed] + [[self.slice, self.slice_total, self.slice_hits]]

    @classmethod
    def load(cls, data: Any) -> Self:
        """The inverse of `dump`; raises ValueError on anything else."""
        slices = [_slice(past) for past in record.row("the slices", data)]
        if not slices:
            raise ValueError("a window has one slice at least")
        if any(now[0] <= before[0] for before, now in zip(slices[:-1], slices[1:], strict=True)):
            raise ValueError("the slices must be in the order of time")
        index, slice_total, slice_hits = slices[-1]
        if slices[0][0] <= index - SLICES:
            raise ValueError(f"a window has {SLICES} slices at most, from the first to the last")
        total = sum(past[1] for past in slices)
        hits = sum(past[2] for past in slices)
        return cls(total, hits, index, slice_total, slice_hits, tuple(slices[:-1]))


def _slice(data: Any) -> tuple[int, int, int]:
    index, total, hits = record.row("a slice", data, 3)
    record.whole("the number of a slice", index, least=0)
    record.whole("the signals of a slice", total, least=0)
    if record.whole("the hits of a slice", hits, least=0) > total:
        raise ValueError(f"a slice of {total} signals cannot hold {hits} hits")
    return index, total, hits
