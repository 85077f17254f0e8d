"""Every call is counted exactly once, with threads and tasks.

Every caller keeps its own book. At the end the books of all must agree with the breaker's totals
to the last call, and its events must be numbered without gaps and tell one story.
"""

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from stress.crew import PATIENCE_S, together
from switchgear import (
    CircuitBreaker,
    Cooldown,
    Event,
    EventKind,
    Policy,
    Rejected,
    Signal,
    detectors,
)
from switchgear._core.machine import LEGAL_MOVES
from unit.shapes import ALL, Shape

CROWD = 8
CALLS = 600
POLICIES = {
    "classic": Policy([detectors.ConsecutiveFailures(2)], Cooldown(0.05, 0.1)),
    "three probes": Policy(
        [detectors.ConsecutiveFailures(2)], Cooldown(0.05, 0.1, probes=3, successes=2)
    ),
    "short leases": Policy([detectors.ConsecutiveFailures(2)], Cooldown(0.05, 0.1, lease_s=0.01)),
    "timed and worried": Policy(
        [
            detectors.FailureRate(window=10, threshold=0.3),
            detectors.SlowCalls(slow_s=0.3, window=10),
        ],
        Cooldown(0.05, 0.1),
        tripping_at=0.5,
    ),
    "reduced load": Policy(
        [detectors.SlowCalls(slow_s=0.01, window=5, admit=0.5), detectors.ConsecutiveFailures(3)],
        Cooldown(0.05, 0.1),
    ),
}


class Ticking:
    """A clock that moves a little whenever it is read; reading it is atomic."""

    def __init__(self) -> None:
        self._ticks = itertools.count()

    def __call__(self) -> float:
        return next(self._ticks) * 0.002


def works() -> None:
    pass


class Ignored(Exception):
    pass


def left_early(breaker: CircuitBreaker, function: Callable[[], Any]) -> None:
    """A stream of which only the first item is read."""

    @breaker
    def stream() -> Any:
        yield function()
        pytest.fail("nobody asked for a second item")

    items = stream()
    next(items)
    items.close()


def by_hand(breaker: CircuitBreaker, function: Callable[[], Any]) -> None:
    permit = breaker.enter()
    try:
        function()
    except ConnectionError:
        breaker.record(Signal(ok=False), permit)
        raise
    except BaseException:
        breaker.record(Signal(), permit)
        raise
    breaker.record(Signal(ok=True), permit)


SHAPES: list[Shape] = [*ALL, left_early, by_hand]
OUTCOMES: list[BaseException | None] = [
    *[None] * 6,
    *[ConnectionError()] * 4,
    KeyboardInterrupt(),
    Ignored(),
    asyncio.CancelledError(),
]


class Book:
    """The observations of all callers. Appending is atomic; they are counted afterwards."""

    def __init__(self) -> None:
        self.lines = list[str]()
        self.events = list[tuple[int, Event]]()

    def heard(self, event: Event) -> None:
        self.events.append((threading.get_ident(), event))

    def call(self, breaker: CircuitBreaker, shape: Shape, outcome: BaseException | None) -> None:
        def function() -> None:
            self.lines.append("ran")
            if outcome is not None:
                raise type(outcome)

        self.lines.append("called")
        try:
            shape(breaker, function)
        except Rejected:
            self.lines.append("refused")
        except ConnectionError:
            self.lines.append("failed")
        except (KeyboardInterrupt, Ignored, asyncio.CancelledError):
            self.lines.append("no evidence")
        else:
            self.lines.append("no evidence" if shape is left_early else "succeeded")

    def balance(self, breaker: CircuitBreaker) -> None:
        book, totals = Counter(self.lines), breaker.totals
        told = totals.succeeded + totals.failed + totals.ignored + totals.late
        assert book["called"] == told + totals.refused
        assert book["ran"] == told
        assert book["refused"] == totals.refused
        late = [
            book["succeeded"] - totals.succeeded,
            book["failed"] - totals.failed,
            book["no evidence"] - totals.ignored,
        ]
        assert all(count >= 0 for count in late), "something was counted twice"
        assert sum(late) == totals.late

    def tells_one_story(self) -> None:
        events = sorted((event for _, event in self.events), key=lambda event: event.seq)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        for before, after in zip(events[:-1], events[1:], strict=True):
            assert after.before is before.after
            assert after.at_s >= before.at_s
            assert after.generation >= before.generation
        moves = [(e.before, e.after) for e in events if e.kind is EventKind.MOVED]
        assert set(moves) <= set(LEGAL_MOVES)
        for thread in {ident for ident, _ in self.events}:
            mine = [event.seq for ident, event in self.events if ident == thread]
            assert mine == sorted(mine), "a thread heard its own events out of order"


def operator(breaker: CircuitBreaker, dice: random.Random) -> None:
    """An operator who sends overrides continuously; never a reset, which would clear the totals."""
    for _ in range(40):
        order = dice.choice(["hold_open", "hold_closed", "shadow", "release", "release"])
        getattr(breaker, order)(by="ann", why="stress")
        assert breaker.readings()
    breaker.release(by="ann", why="done")


@pytest.mark.stress
@pytest.mark.parametrize("with_orders", [False, True], ids=["left alone", "with an operator"])
@pytest.mark.parametrize("policy", POLICIES)
def test_no_call_of_threads_is_lost_in_any_shape_with_any_outcome(
    policy: str, with_orders: bool
) -> None:
    book = Book()
    breaker = CircuitBreaker(
        "api", policy=POLICIES[policy], ignore=Ignored, clock=Ticking(), sinks=[book.heard]
    )

    def caller(number: int) -> None:
        dice = random.Random(number)
        for _ in range(CALLS):
            book.call(breaker, dice.choice(SHAPES), dice.choice(OUTCOMES))

    jobs: list[Callable[[], object]] = [lambda n=n: caller(n) for n in range(CROWD)]  # type: ignore[misc]
    if with_orders:
        jobs.append(lambda: operator(breaker, random.Random(99)))
    together(*jobs)
    book.balance(breaker)
    book.tells_one_story()
    assert len(book.events) > 20, "the circuit hardly moved: this test has tested nothing"


def test_threads_on_the_fast_paths_while_others_trip_and_read() -> None:
    """Successes by ticket and refusals without a lock race with everything that ends a run."""
    book = Book()
    policy = POLICIES["classic"]
    breaker = CircuitBreaker("api", policy=policy, clock=Ticking(), sinks=[book.heard])
    guarded = breaker(works)
    books: list[Counter[str]] = [Counter() for _ in range(CROWD)]

    def caller(mine: Counter[str]) -> None:
        for _ in range(6000):
            try:
                guarded()
            except Rejected:
                mine["refused"] += 1
            else:
                mine["ran"] += 1

    def breaks_it() -> None:
        for _ in range(300):
            book.call(breaker, ALL[0], ConnectionError())

    def reads() -> None:
        for _ in range(300):
            assert sum(breaker.totals) >= 0

    together(breaks_it, breaks_it, reads, *(lambda m=m: caller(m) for m in books))
    both, totals, others = sum(books, Counter[str]()), breaker.totals, Counter(book.lines)
    assert both["refused"] + others["refused"] == totals.refused
    told = totals.succeeded + totals.failed + totals.ignored + totals.late
    assert both["ran"] + others["ran"] == told
    book.tells_one_story()


def test_a_run_longer_than_its_tickets_loses_none_at_the_change() -> None:
    breaker = CircuitBreaker("api", clock=Ticking())
    guarded = breaker(works)

    def caller() -> None:
        for _ in range(10_000):
            guarded()

    together(*[caller] * 4)
    assert breaker.totals.succeeded == 40_000


@pytest.mark.stress
@pytest.mark.parametrize("policy", POLICIES)
def test_no_call_of_tasks_is_lost_with_cancellations_and_abandoned_streams(policy: str) -> None:
    book = Book()
    breaker = CircuitBreaker(
        "api", policy=POLICIES[policy], ignore=Ignored, clock=Ticking(), sinks=[book.heard]
    )

    @breaker
    async def ask(outcome: BaseException | None) -> None:
        book.lines.append("ran")
        await asyncio.sleep(0)
        if outcome is not None:
            raise type(outcome)

    @breaker
    async def stream(outcome: BaseException | None) -> Any:
        book.lines.append("ran")
        yield 1
        await asyncio.sleep(0)
        if outcome is not None:
            raise type(outcome)
        yield 2

    async def read(dice: random.Random, outcome: BaseException | None) -> bool:
        items = stream(outcome)
        async for _ in items:
            if dice.random() < 0.3:
                await items.aclose()
                return False
        return True

    async def one(dice: random.Random) -> None:
        outcome = dice.choice(OUTCOMES)
        outcome = ConnectionError() if isinstance(outcome, KeyboardInterrupt) else outcome
        book.lines.append("called")
        try:
            to_the_end = await (ask(outcome) if dice.random() < 0.5 else read(dice, outcome))
        except Rejected:
            book.lines.append("refused")
        except ConnectionError:
            book.lines.append("failed")
        except (Ignored, asyncio.CancelledError):
            book.lines.append("no evidence")
        else:
            book.lines.append("no evidence" if to_the_end is False else "succeeded")

    async def caller(number: int) -> None:
        dice = random.Random(number)
        for _ in range(CALLS):
            task = asyncio.create_task(one(dice))
            if dice.random() < 0.1:
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(caller(n) for n in range(16)))

    asyncio.run(main())
    book.balance(breaker)
    book.tells_one_story()
    assert len(book.events) > 20, "the circuit hardly moved: this test has tested nothing"
