"""The windows against plain lists, at every size and across the boundaries of their chunks."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchgear._core.types import Signal
from switchgear._core.window import BITS, SLICES, TIMES, CountWindow, TimeQueue, TimeWindow
from switchgear._detectors import FailuresInWindow

EDGES = (1, 2, 31, 32, 33, 255, 256, 257, 511, 512, 513, 768, 2000)
SIZES = st.sampled_from(EDGES) | st.integers(1, 2000)
COUNTS = st.sampled_from((0, 1, 1, 1, 2, 3, 255, 256, 257, 512, 2500)) | st.integers(0, 600)
RUNS = st.lists(st.tuples(st.booleans(), COUNTS), max_size=25)


def bits(window: CountWindow) -> list[bool]:
    """The signals in a window, oldest first, read from its dump."""
    length, digits = window.dump()
    return [digit == "1" for digit in f"{int(digits, 16):0{length}b}"] if length else []


# Counts


@given(SIZES, RUNS)
@example(256, [(True, 255), (False, 1), (True, 1)])
@example(257, [(True, 256), (False, 1), (True, 1)])
@example(512, [(True, 511), (False, 2), (True, 300)])
def test_a_count_window_holds_the_last_signals_exactly(
    size: int, runs: list[tuple[bool, int]]
) -> None:
    window, everything = CountWindow(), list[bool]()
    for hit, count in runs:
        window = window.push(hit=hit, count=count, size=size)
        everything += [hit] * count
        last = everything[-size:]
        assert (window.total, window.hits) == (len(last), sum(last))
        assert bits(window) == last
        assert window.newest_length < BITS >= window.oldest_length


@given(SIZES, RUNS)
def test_a_batch_in_a_count_window_equals_its_single_signals(
    size: int, runs: list[tuple[bool, int]]
) -> None:
    together = apart = CountWindow()
    for hit, count in runs[:4]:
        together = together.push(hit=hit, count=count, size=size)
        for _ in range(count):
            apart = apart.push(hit=hit, count=1, size=size)
        assert together.dump() == apart.dump()
        assert (together.total, together.hits) == (apart.total, apart.hits)


@given(SIZES, RUNS, SIZES)
def test_a_smaller_count_window_keeps_the_newest(
    size: int, runs: list[tuple[bool, int]], smaller: int
) -> None:
    window = CountWindow()
    for hit, count in runs:
        window = window.push(hit=hit, count=count, size=size)
    for fitted in (window.fit(smaller), CountWindow.load(window.dump(), smaller)):
        assert bits(fitted) == bits(window)[-smaller:]
        assert (fitted.total, fitted.hits) == (len(bits(fitted)), sum(bits(fitted)))
        assert max(fitted.oldest.bit_length(), fitted.oldest_length) <= BITS


@given(SIZES, RUNS, RUNS)
@example(768, [(True, 768)], [(False, 256), (False, 256)])
def test_a_loaded_count_window_continues_like_the_one_dumped(
    size: int, before: list[tuple[bool, int]], after: list[tuple[bool, int]]
) -> None:
    window = CountWindow()
    for hit, count in before:
        window = window.push(hit=hit, count=count, size=size)
    loaded = CountWindow.load(json.loads(json.dumps(window.dump())), size)
    assert loaded.dump() == window.dump()
    assert (loaded.total, loaded.hits) == (window.total, window.hits)
    for hit, count in after:
        window = window.push(hit=hit, count=count, size=size)
        loaded = loaded.push(hit=hit, count=count, size=size)
        assert loaded.dump() == window.dump()
        assert loaded.hits == window.hits


@given(st.integers(257, 2000))
def test_a_count_window_touches_its_long_middle_once_in_a_chunk(size: int) -> None:
    window, rebuilt = CountWindow(), 0
    for _ in range(3 * size):
        pushed = window.push(hit=True, count=1, size=size)
        rebuilt += pushed.middle is not window.middle
        window = pushed
    assert rebuilt <= 2 * (3 * size // BITS + 1)
    assert max(window.newest.bit_length(), window.oldest.bit_length()) <= BITS
    assert all(chunk.bit_length() <= BITS for chunk in window.middle)


def test_a_count_window_is_dumped_as_its_length_and_hexadecimal_digits() -> None:
    window = CountWindow().push(hit=False, count=1, size=9).push(hit=True, count=5, size=9)
    assert window.dump() == [6, "1f"]
    assert CountWindow().dump() == [0, "0"]


@pytest.mark.parametrize(
    "garbage",
    [
        [1, "2"],  # two bits in a window of one
        [0, "1"],
        [-1, "0"],
        [3, "-1"],
        [3, "xyz"],
        [3, ""],
        [3, 7],
        [1.0, "1"],
        ["1", "1"],
        [True, "1"],
        [None, "0"],
        [3],
        [3, "1", 2],
        [9, "0x1"],
        [9, "1_0"],
        [9, " 1"],
        [9, "+1"],
        [9, "0F"],
        [9, "01"],
        "ab",
        {},
        {1: 2, "1": 3},
        None,
        7,
    ],
    ids=repr,
)
def test_an_invalid_dump_of_a_count_window_is_refused(garbage: Any) -> None:
    with pytest.raises(ValueError):
        CountWindow.load(garbage, 9)


def test_an_invalid_or_too_long_list_is_named() -> None:
    with pytest.raises(ValueError, match=r"a window of signals is 7: it must be a list of 2$"):
        CountWindow.load(7, 9)
    with pytest.raises(ValueError, match=r"the times is 7: it must be a list$"):
        TimeQueue.load(7)


# Times

VERBS = (*["push"] * 4, "drop", "drop_until", "drop many", "burst", "flood", "reload")
QUEUE_STEPS = st.lists(
    st.tuples(
        st.sampled_from(VERBS),
        st.sampled_from((0.0, 0.0, 0.25, 1.0, 8.0)),
    ),
    max_size=120,
)


@given(QUEUE_STEPS)
@example([("burst", 0.25), ("drop", 0.0), ("burst", 0.0), *[("drop", 0.0)] * 64])
@example([("flood", 1.0), ("push", 1.0), ("drop_until", 7.75), ("flood", 0.0), ("drop many", 0.0)])
@example([*[("push", 1.0)] * TIMES, *[("drop", 0.0)] * TIMES, ("push", 0.0), ("drop", 0.0)])
def test_a_time_queue_is_a_list_of_times(steps: list[tuple[str, float]]) -> None:
    queue, times, now_s = TimeQueue(), list[float](), 10.0
    for verb, later_s in steps:
        now_s += later_s
        if verb == "drop_until":
            queue = queue.drop_until(now_s - 8.0)
            times = [at_s for at_s in times if at_s > now_s - 8.0]
        elif verb == "drop" and times:
            queue, times = queue.drop(1), times[1:]
        elif verb == "reload":
            queue = TimeQueue.load(json.loads(json.dumps(queue.dump())))
            assert len(queue.oldest) < TIMES
        elif verb == "drop many":
            count = len(times) * 2 // 3
            queue, times = queue.drop(count), times[count:]
        else:
            count = {"push": 1, "burst": TIMES, "flood": 3 * TIMES + 5}.get(verb, 0)
            queue, times = queue.push(now_s, count), times + [now_s] * count
        assert queue.later_than(now_s - 8.0) == len([t for t in times if t > now_s - 8.0])
        assert queue.length == len(times)
        assert queue.dump() == times
        assert [queue.nth(n) for n in range(queue.length)] == times


@pytest.mark.parametrize("size", [1, 31, 32, 33, 63, 64, 65, 500])
def test_a_time_queue_releases_what_it_drops(size: int) -> None:
    queue = TimeQueue()
    for second in range(5 * size):
        queue = queue.push(float(second))
        if queue.length > size:
            queue = queue.drop(1)
        held = len(queue.newest) + sum(map(len, queue.middle)) + len(queue.oldest)
        assert held <= size + TIMES
        assert queue.dump() == [float(at) for at in range(max(0, second + 1 - size), second + 1)]


def test_a_time_leaves_the_queue_exactly_at_its_end() -> None:
    queue = TimeQueue().push(1.0).push(2.0).push(3.0)
    assert queue.drop_until(1.0).dump() == [2.0, 3.0]
    assert queue.drop_until(1.999).dump() == [2.0, 3.0]
    assert queue.drop_until(2.0).dump() == [3.0]
    assert queue.drop_until(9.0) == TimeQueue()


class Compared(float):
    """A time that counts how often it is compared: cost without a clock."""

    times = 0

    def __le__(self, other: float) -> bool:
        Compared.times += 1
        return float(self) <= other

    def __gt__(self, other: float) -> bool:
        Compared.times += 1
        return float(self) > other


def test_failures_that_have_expired_cost_no_more_than_a_few_comparisons() -> None:
    failures = FailuresInWindow(100_000, 60.0)
    memory = TimeQueue()
    for second in range(100_000):
        memory = memory.push(Compared(second / 2000))
    Compared.times = 0
    assert failures.heat(memory, 50.0) == 1.0
    assert failures.heat(memory, 1e6) == 0.0
    assert failures.reason(memory, 85.0).startswith("49999 failures")
    assert Compared.times <= 3 * 18
    Compared.times = 0
    assert failures.fold(memory, Signal(ok=True), 1e6) == TimeQueue()
    assert failures.fold(memory, Signal(ok=False), 1e6) == TimeQueue(1, (1e6,))
    assert failures.fold(memory, Signal(ok=True), 50.0) is memory
    assert Compared.times <= 2 * 19 + 1


def test_many_equal_signals_are_pushed_by_whole_chunks() -> None:
    failures = FailuresInWindow(10**6)
    memory = failures.fold(TimeQueue(), Signal(ok=False, count=10**6), 1.0)
    assert memory.length == 10**6
    assert len({id(chunk) for chunk in memory.middle}) <= 2
    assert failures.heat(memory, 1.0) == 1.0
    window = CountWindow().push(hit=True, count=10**6, size=10**6)
    assert len({id(chunk) for chunk in window.middle}) <= 2
    assert (window.total, window.hits) == (10**6, 10**6)
    again = window.push(hit=False, count=10**6 - 1, size=10**6)
    assert (again.total, again.hits) == (10**6, 1)


@pytest.mark.parametrize(
    "garbage",
    [
        [2.0, 1.0],
        ["soon"],
        ["1.0"],
        [True],
        [None],
        [float("nan")],
        [float("inf")],
        [1.0, float("nan"), 2.0],
        [10**400],
        {"1": 2},
        "12",
        None,
        3,
    ],
    ids=lambda value: repr(value)[:20],
)
def test_an_invalid_dump_of_a_time_queue_is_refused(garbage: Any) -> None:
    with pytest.raises(ValueError):
        TimeQueue.load(garbage)


# Slices of time

TIMED = st.lists(
    st.tuples(
        st.sampled_from((0.0, 0.0, 0.25, 1.0, 7.0, 29.0, 30.0, 31.0, 400.0)),
        st.booleans(),
        st.sampled_from((1, 1, 2, 50)),
        st.booleans(),
    ),
    max_size=40,
)


@given(st.sampled_from((0.0, 5.5, 1.75e9)), st.sampled_from((0.5, 30.0, 60.0)), TIMED)
def test_a_time_window_holds_the_last_thirty_slices(
    start_s: float, window_s: float, steps: list[tuple[float, bool, int, bool]]
) -> None:
    window, everything, now_s = TimeWindow(), list[tuple[int, bool]](), start_s
    for later_s, hit, count, reload in steps:
        now_s += later_s
        now_slice = int(now_s // (window_s / SLICES))
        window = window.at(now_s, window_s).push(hit=hit, count=count)
        everything += [(now_slice, hit)] * count
        inside = [was_hit for at, was_hit in everything if at > now_slice - SLICES]
        assert (window.total, window.hits) == (len(inside), sum(inside))
        assert len(window.closed) < SLICES
        dumped = window.dump()
        assert sum(total for _, total, _ in dumped) == window.total
        assert sum(hits for _, _, hits in dumped) == window.hits
        assert all(one[0] < next_[0] for one, next_ in pairwise(dumped))
        if reload:
            assert TimeWindow.load(json.loads(json.dumps(dumped))) == window
    quiet = window.at(now_s + window_s, window_s)
    assert (quiet.total, quiet.hits, quiet.closed) == (0, 0, ())


def test_a_slice_expires_when_thirty_newer_ones_have_started() -> None:
    window = TimeWindow().at(0.0, 30.0).push(hit=True, count=2)
    window = window.at(1.0, 30.0).push(hit=False, count=3)
    assert window.dump() == [[0, 2, 2], [1, 3, 0]]
    assert window.at(29.999, 30.0)[:2] == (5, 2)
    assert window.at(30.0, 30.0)[:2] == (3, 0)
    assert window.at(31.0, 30.0) == TimeWindow(slice=31)


def test_a_slice_does_not_begin_a_moment_early() -> None:
    # 5 * 0.1 / 30 as a float is a little less than that; a rounded quotient would say slice 5.
    assert TimeWindow().at(0.016666666666666666, 0.1).slice == 4


def test_a_time_window_ignores_a_clock_that_runs_backwards() -> None:
    window = TimeWindow().at(50.0, 30.0).push(hit=True, count=1)
    assert window.at(20.0, 30.0) == window


def test_reading_an_empty_time_window_leaves_no_empty_slices_behind() -> None:
    window = TimeWindow().at(5.0, 30.0).at(9.0, 30.0)
    assert window == TimeWindow(slice=9)


@pytest.mark.parametrize(
    "garbage",
    [
        [],
        [[0, 1, 2]],
        [[0, 1, -1]],
        [[0, -1, 0]],
        [[1, 1, 0], [1, 1, 0]],
        [[2, 1, 0], [1, 1, 0]],
        [[5, 1, 0], [3, 1, 0]],
        [[0, 1]],
        [[0, "one", 0]],
        [["0", 1, 0]],
        [[0, 1.5, 0]],
        [[0, True, 0]],
        [[float("inf"), 1, 0]],
        [[float("nan"), 1, 0]],
        [[-1, 1, 0]],
        [[0, 1, 0], [30, 1, 0]],
        [7],
        ["abc"],
        {},
        None,
        3,
    ],
    ids=repr,
)
def test_an_invalid_dump_of_a_time_window_is_refused(garbage: Any) -> None:
    with pytest.raises(ValueError):
        TimeWindow.load(garbage)
