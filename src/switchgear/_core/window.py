"""Windows over signals: the last N calls, the last failures, the last seconds.

All are immutable, so that `step` stays pure, and the cost per signal does not depend on their size:
bits and times are kept in short chunks, and only the youngest and the oldest chunk change; the long
tuple of full chunks in between is copied once in `CHUNK` signals.
"""

from typing import Any, NamedTuple, Self

from switchgear._core import values

BITS = 256
"""Number of bits in a chunk of a `CountWindow`."""
TIMES = 32
"""Number of times in a chunk of a `TimeQueue`."""
SLICES = 30
"""Number of slices of a `TimeWindow`."""


class CountWindow(NamedTuple):
    """Hits among the last `size` signals, exactly; a push costs one shift of a 256-bit number.

    Memory: one bit per signal. The youngest bit of a chunk is its lowest.
    """

    total: int = 0
    hits: int = 0
    newest: int = 0
    newest_length: int = 0
    middle: tuple[int, ...] = ()
    oldest: int = 0
    oldest_length: int = 0

    def push(self, *, hit: bool, count: int, size: int) -> "CountWindow":
        """Add `count` equal signals and drop the oldest beyond `size`."""
        total, hits, newest, newest_length, middle, oldest, oldest_length = self
        added = min(count, size)
        total += added
        if hit:
            hits += added
        room = BITS - newest_length
        if added < room:
            newest, newest_length = (newest << added) | _bits(hit, added), newest_length + added
        else:
            full, rest = divmod(added - room, BITS)
            filled = (newest << room) | _bits(hit, room)
            middle = (*middle, filled, *((_bits(hit, BITS),) * full))
            newest, newest_length = _bits(hit, rest), rest
        grown = CountWindow(total, hits, newest, newest_length, middle, oldest, oldest_length)
        return grown if total <= size else grown.fit(size)

    def fit(self, size: int) -> "CountWindow":
        """The window without the oldest signals beyond `size`."""
        total, hits, newest, newest_length, middle, oldest, oldest_length = self
        over = total - size
        if over <= 0:
            return self
        if over > oldest_length:  # whole chunks at once: the middle is copied once
            over -= oldest_length
            hits -= oldest.bit_count()
            chunks = min(over // BITS, len(middle))
            over -= chunks * BITS
            hits -= sum([chunk.bit_count() for chunk in middle[:chunks]])
            if chunks < len(middle):
                oldest, oldest_length, middle = middle[chunks], BITS, middle[chunks + 1 :]
            else:
                oldest, oldest_length, middle = newest, newest_length, ()
                newest, newest_length = 0, 0
        oldest_length -= over
        hits -= (oldest >> oldest_length).bit_count()
        oldest &= (1 << oldest_length) - 1
        return CountWindow(size, hits, newest, newest_length, middle, oldest, oldest_length)

    def dump(self) -> list[Any]:
        """The bits as `[length, hexadecimal digits]`, oldest first, independent of the chunks."""
        bits = self.oldest
        for chunk in self.middle:
            bits = (bits << BITS) | chunk
        bits = (bits << self.newest_length) | self.newest
        return [self.total, f"{bits:x}"]

    @classmethod
    def load(cls, data: Any, size: int) -> Self:
        """The youngest `size` signals of a dump; raises ValueError on anything else."""
        length, digits = values.check_list("a window of signals", data, 2)
        length = values.check_int("the length of a window", length, least=0)
        bits = int(values.check_text("the bits of a window", digits), 16)
        if f"{bits:x}" != digits or bits < 0 or bits.bit_length() > length:
            raise ValueError(f"a window of {length} signals cannot hold the bits {digits!r}")
        # Truncated before it is split into chunks, so that a wrong length cannot exhaust the memory.
        total = min(length, size)
        bits &= (1 << total) - 1
        oldest_length = total % BITS
        middle = tuple(
            (bits >> shift) & ((1 << BITS) - 1)
            for shift in range(total - oldest_length - BITS, -1, -BITS)
        )
        oldest = bits >> (total - oldest_length)
        return cls(total, bits.bit_count(), 0, 0, middle, oldest, oldest_length)


def _bits(hit: bool, count: int) -> int:  # noqa: FBT001  a private shorthand
    return (1 << count) - 1 if hit else 0


class TimeQueue(NamedTuple):
    """A first-in, first-out queue of times: push and drop are O(1) amortised.

    Bisection counts the times after a given one, and expired times are dropped by whole chunks.
    """

    length: int = 0
    newest: tuple[float, ...] = ()
    middle: tuple[tuple[float, ...], ...] = ()
    """Full chunks, `TIMES` each."""
    oldest: tuple[float, ...] = ()
    start: int = 0
    """Number of entries of `oldest` that are already dropped."""

    def push(self, at_s: float, count: int = 1) -> "TimeQueue":
        """Add a time at the young end, `count` times."""
        length, newest, middle, oldest, start = self
        room = TIMES - len(newest)
        if count < room:
            newest += (at_s,) * count
        else:
            full, rest = divmod(count - room, TIMES)
            middle = (*middle, newest + (at_s,) * room, *(((at_s,) * TIMES,) * full))
            newest = (at_s,) * rest
        return TimeQueue(length + count, newest, middle, oldest, start)

    def drop(self, count: int) -> "TimeQueue":
        """The queue without the oldest `count` times; it must hold at least `count`."""
        length, newest, middle, oldest, start = self
        if count == length:
            return TimeQueue()
        start += count
        if start > len(oldest):
            chunks, start = divmod(start - len(oldest), TIMES)
            if chunks < len(middle):
                oldest, middle = middle[chunks], middle[chunks + 1 :]
            else:
                oldest, middle, newest = newest, (), ()
        return TimeQueue(length - count, newest, middle, oldest, start)

    def drop_until(self, at_s: float) -> "TimeQueue":
        """The queue without the times up to and including `at_s`."""
        if not self.length or self.nth(0) > at_s:
            return self
        return self.drop(self.length - self.later_than(at_s))

    def later_than(self, at_s: float) -> int:
        """The number of times later than `at_s`."""
        low, high = 0, self.length
        while low < high:
            half = (low + high) // 2
            if self.nth(half) <= at_s:
                low = half + 1
            else:
                high = half
        return self.length - low

    def nth(self, index: int) -> float:
        """The time with this index; 0 is the oldest."""
        index += self.start
        if index < len(self.oldest):
            return self.oldest[index]
        chunk, index = divmod(index - len(self.oldest), TIMES)
        return self.middle[chunk][index] if chunk < len(self.middle) else self.newest[index]

    def dump(self) -> list[float]:
        times = list(self.oldest[self.start :])
        for chunk in self.middle:
            times.extend(chunk)
        return [*times, *self.newest]

    @classmethod
    def load(cls, data: Any) -> Self:
        """The inverse of `dump`; raises ValueError for other data."""
        times = tuple(
            values.check_number("a time", at_s) for at_s in values.check_list("the times", data)
        )
        if list(times) != sorted(times):
            raise ValueError("the times must not run backwards")
        first = len(times) % TIMES
        chunks = [times[start : start + TIMES] for start in range(first, len(times), TIMES)]
        return cls(len(times), (), tuple(chunks), times[:first], 0)


class TimeWindow(NamedTuple):
    """Hits among the signals of the last `window_s` seconds, to a thirtieth of the window.

    A ring of partial sums: time is cut into slices of `window_s / 30`, whole slices are subtracted
    when they expire. The cost of reading and pushing does not depend on the rate of signals.
    """

    total: int = 0
    hits: int = 0
    slice: int = 0
    """The index of the youngest slice, counted from time zero."""
    slice_total: int = 0
    slice_hits: int = 0
    closed: tuple[tuple[int, int, int], ...] = ()
    """Earlier slices that are not empty, as (index, total, hits), oldest first."""

    def at(self, now_s: float, window_s: float) -> "TimeWindow":
        total, hits, index, slice_total, slice_hits, closed = self
        now_index = int(now_s * SLICES // window_s)
        if now_index <= index:
            return self
        if slice_total:
            closed = (*closed, (index, slice_total, slice_hits))
        while closed and closed[0][0] <= now_index - SLICES:
            total -= closed[0][1]
            hits -= closed[0][2]
            closed = closed[1:]
        return TimeWindow(total, hits, now_index, 0, 0, closed)

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
        """The slices that are not empty, oldest first; the youngest is always included."""
        return [[*past] for past in self.closed] + [[self.slice, self.slice_total, self.slice_hits]]

    def dump_with(self, window_s: float) -> dict[str, Any]:
        """The slices, and the window that defines their length."""
        return {"window_s": window_s, "slices": self.dump()}

    @classmethod
    def load_with(cls, what: str, data: Any, window_s: float) -> Self:
        """The inverse of `dump_with`; the slices of another window are dropped."""
        if not isinstance(data, dict) or data.keys() != {"window_s", "slices"}:
            raise ValueError(f"{what} is {data!r}: it must have window_s and slices")
        stored_s = values.check_seconds("window_s", data["window_s"])
        loaded = cls.load(data["slices"])
        return loaded if stored_s == window_s else cls()

    @classmethod
    def load(cls, data: Any) -> Self:
        """The inverse of `dump`; raises ValueError for other data."""
        slices = [_slice(past) for past in values.check_list("the slices", data)]
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
    index, total, hits = values.check_list("a slice", data, 3)
    values.check_int("the number of a slice", index, least=0)
    values.check_int("the signals of a slice", total, least=0)
    if values.check_int("the hits of a slice", hits, least=0) > total:
        raise ValueError(f"a slice of {total} signals cannot hold {hits} hits")
    return index, total, hits
