"""Runs of tickets: nothing is counted twice and nothing is lost."""

import math
import os
import tracemalloc
from itertools import accumulate
from random import Random
from threading import Barrier, Thread
from typing import Any

import pytest

from switchgear import CircuitBreaker, Cooldown, Policy, Rejected, Signal, detectors
from switchgear._breaker import tickets as runs
from switchgear._breaker.tickets import (
    MOST_DATES,
    TICKETS,
    SharedEvidence,
    SuccessRun,
    dates,
    isolation_reason,
    this_process,
)
from switchgear._core.types import Mode, Permit, Phase
from switchgear.testing import FakeClock, FlakyStore


def new_run() -> SuccessRun:
    return SuccessRun(Permit(1), math.inf)


def take(run: SuccessRun, tickets: int) -> int:
    return sum(1 for _ in range(tickets) if next(run.tickets, None) is not None)


def test_a_run_counts_each_ticket_once() -> None:
    run = new_run()
    assert (run.count(), run.due_s, run.plain, run.permit) == (0, math.inf, None, Permit(1))
    assert take(run, 5) == 5
    assert run.count() == 5
    assert run.count() == 0
    assert take(run, 2) == 2
    assert run.count() == 2


def test_a_run_without_tickets_hands_out_new_ones_when_it_is_counted() -> None:
    run = new_run()
    assert take(run, 10) + run.count() == 20
    assert take(run, TICKETS) == TICKETS - 10
    assert run.count() == TICKETS - 10
    assert take(run, 3) == 3
    assert run.count() == 3


def test_an_ended_run_has_no_tickets() -> None:
    run = new_run()
    assert take(run, 7) + run.count() == 14
    assert take(run, 4) == 4
    assert run.end() == 4
    assert take(run, 1) == 0
    assert run.end() == 0


def test_ending_a_run_allocates_nothing_for_the_tickets_that_are_left() -> None:
    run = new_run()
    take(run, 7)
    tracemalloc.start()
    try:
        assert run.end() == 7
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def is_pending(run: SuccessRun) -> bool:
    """As a function, because mypy takes a property for a constant."""
    return run.is_pending


def test_deferred_results_are_in_the_next_count() -> None:
    run = new_run()
    assert not is_pending(run)
    assert take(run, TICKETS) == TICKETS
    run.put_off(more=1)
    assert is_pending(run)
    assert take(run, 5) == 5
    run.put_off(more=0)
    assert run.count() == TICKETS + 6
    assert not is_pending(run)
    assert run.count() == 0


def test_deferred_results_are_in_the_last_count() -> None:
    run = new_run()
    take(run, TICKETS)
    run.put_off(more=1)
    assert take(run, 2) == 2
    assert run.end() == TICKETS + 3
    assert run.end() == 0


def test_a_run_has_many_tickets_and_a_short_time() -> None:
    assert (runs.TICKETS, runs.FOLD_EVERY_S) == (65536, 1.0)


def test_a_run_hands_out_no_more_tickets_than_it_may() -> None:
    run = SuccessRun(Permit(1), math.inf, 3)
    assert take(run, 9) == 3
    assert run.count(most=5) == 3
    assert take(run, 9) == 2, "three of the five are told now"
    assert run.count(most=1) == 2
    assert take(run, 9) == 0
    assert not is_pending(run)
    assert run.count() == 0
    assert take(run, TICKETS + 1) == TICKETS


def test_a_run_fits_while_it_has_no_more_unreported_calls_than_allowed() -> None:
    run = SuccessRun(Permit(1), math.inf, 5)
    assert (run.fits(5), run.fits(4)) == (True, False)
    take(run, 2)
    assert run.fits(5)
    run.count()
    assert (run.fits(3), run.fits(2)) == (True, False)
    run.put_off(more=2)
    assert (run.fits(5), run.fits(4)) == (True, False)


@pytest.mark.parametrize(("taken", "left"), [(0, 6), (2, 4), (6, 0), (8, 0)])
def test_a_run_continues_one_that_had_too_many_tickets(taken: int, left: int) -> None:
    old, new = new_run(), SuccessRun(Permit(1), math.inf, 0)
    assert take(old, taken) == taken
    new.take_over(old, most=6)
    assert take(old, 1) == 0
    assert take(new, 9) == left
    assert new.count() == taken + left
    assert old.end() == 0


def fails() -> None:
    raise OSError


def test_the_success_that_fills_a_window_trips_even_without_a_reader() -> None:
    breaker = CircuitBreaker("api", policy=Policy([detectors.FailureRate(20, 0.5)]))
    for _ in range(11):
        with pytest.raises(OSError):
            breaker.call(fails)
    for _ in range(9):
        breaker.call(int)
    with pytest.raises(Rejected, match="11 of the last 20 calls failed"):
        breaker.call(int)


def test_a_call_under_way_when_a_failure_limits_the_run_is_counted_once() -> None:
    breaker = CircuitBreaker("api", policy=Policy([detectors.FailureRate(4, 0.5)]))

    def outlasts_a_failure() -> None:
        breaker.record(Signal(ok=False, count=2))

    breaker.call(int)
    breaker.call(outlasts_a_failure)
    assert breaker.totals[:2] == (2, 2)
    assert breaker.state == "closed"


KINDS = (
    lambda one: detectors.FailureRate(one((5, 9, 20)), one((0.0, 0.3, 0.5)), one((None, 3, 5))),
    lambda one: detectors.SlowCalls(
        one((0.25, 1.0)), one((5, 7)), one((0.2, 0.5)), one((None, 3)), one((0.0, 0.5))
    ),
    lambda one: detectors.ConsecutiveFailures(one((2, 4))),
    lambda one: detectors.FailuresInWindow(one((2, 3)), one((3.0, 30.0))),
)


@pytest.mark.parametrize("block", range(5))
def test_decorated_calls_and_direct_records_have_the_same_history(block: int) -> None:
    """Nothing is read in between: reading must not change the result."""
    for seed in range(block, 100, 5):
        random = Random(seed)
        among = [random.choice(KINDS)(random.choice) for _ in range(random.randint(1, 3))]
        warn_at = random.choice((None, None, 0.5))
        policy = Policy(among, Cooldown(5.0, lease_s=100.0), tripping_at=warn_at)
        clock, heard, told = FakeClock(100.0), list[object](), list[object]()
        calls = CircuitBreaker("k", policy=policy, clock=clock, sinks=[heard.append])
        tells = CircuitBreaker("k", policy=policy, clock=clock, sinks=[told.append])

        def work(
            seconds: float, *, bad: bool, clock: FakeClock = clock, tells: CircuitBreaker = tells
        ) -> None:
            permit = tells.enter()
            clock.advance(seconds)
            error = "OSError" if bad else None
            tells.record(Signal(ok=not bad, seconds=seconds, error=error), permit)
            if bad:
                raise OSError

        guarded = calls(work)
        for _ in range(150):
            seconds = random.choice((0.0, 0.0, 0.125, 0.25, 0.5, 2.0))
            try:
                guarded(seconds, bad=random.random() < 0.25)
            except Rejected:
                with pytest.raises(Rejected):
                    tells.enter()
            except OSError:
                pass
            clock.advance(random.choice((0.0, 0.0, 0.125, 1.0, 6.0)))
        assert calls.state == tells.state
        assert heard == told, f"seed {seed}"
        assert calls.totals == tells.totals


def test_threads_that_fill_a_window_trip_it_exactly_at_its_size() -> None:
    """Each thread succeeds once, and together they fill the window exactly."""
    crew, tripped = 8, Barrier(8)
    for _ in range(50):
        breaker = CircuitBreaker("api", policy=Policy([detectors.FailureRate(19, 0.5)]))
        breaker.record(Signal(ok=False, count=11))
        threads = [Thread(target=breaker.call, args=(tripped.wait,)) for _ in range(crew)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert breaker._circuit.phase == "open", "nobody has looked"
        assert breaker._circuit.totals[:2] == (8, 11)


def test_a_single_deferred_result_is_pending() -> None:
    run = new_run()
    run.put_off(more=1)
    assert is_pending(run)
    assert run.count() == 1


def test_deferred_results_reduce_the_new_tickets() -> None:
    run = new_run()
    run.put_off(more=3)
    assert take(run, TICKETS) == TICKETS
    assert run.count(most=TICKETS + 3 + 5) == TICKETS + 3
    assert take(run, TICKETS) == 5


# What one process knows of a shared circuit


class Shares(FlakyStore):
    """A store whose circuits are shared under the name of this process."""

    def process(self) -> str:
        return "p1"


def test_a_process_begins_without_evidence_of_its_own() -> None:
    shared = SharedEvidence(Shares())
    assert shared.process() == "p1"
    assert (shared.warm_until_s, shared.since_s, shared.submitted_s) == (-math.inf,) * 3
    assert shared.settle_at_s == shared.failure_mark() == math.inf
    assert (shared.failed_s, shared.generation) == (0.0, 0)
    assert (shared.isolated, shared.own, shared.remarked_s) == (False, None, None)


@pytest.mark.parametrize(
    ("changes", "isolated", "is_isolated"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"phase": Phase.TRIPPING}, True, True),
        ({"phase": Phase.OPEN}, True, False),
        ({"generation": 3}, True, False),
        ({"mode": Mode.SHADOW}, True, False),
    ],
)
def test_a_process_is_isolated_while_the_shared_circuit_admits_calls(
    changes: dict[str, Any], isolated: bool, is_isolated: bool
) -> None:
    shared = SharedEvidence(Shares())
    shared.isolated, shared.generation = isolated, 2
    circuit = Policy([detectors.ConsecutiveFailures(3)]).start("api", 0.0)
    circuit = circuit._replace(generation=2)._replace(**changes)
    assert shared.is_isolated(circuit) is is_isolated


def test_the_name_of_a_process_and_its_reason() -> None:
    assert this_process() == f"process {os.getpid()} on {os.uname().nodename}"
    assert isolation_reason("3 failures in a row") == (
        "this process: 3 failures in a row; the shared circuit is closed: other processes succeed"
    )


@pytest.mark.parametrize(
    ("number", "counts"),
    [
        (0, []),
        (1, [1]),
        (MOST_DATES, [1] * MOST_DATES),
        (MOST_DATES + 1, [2] * (MOST_DATES // 2) + [1]),
        (3 * MOST_DATES - 1, [3] * (MOST_DATES - 1) + [2]),
        (3 * MOST_DATES, [3] * MOST_DATES),
    ],
)
def test_many_times_are_merged_with_their_neighbours(number: int, counts: list[int]) -> None:
    found = dates(tuple(float(at_s) for at_s in range(number)))
    assert [count for _, count in found] == counts
    assert [at_s for at_s, _ in found] == [float(n) - 1 for n in accumulate(counts)]


def test_taken_tickets_owed_successes_and_times_are_pending() -> None:
    run = SuccessRun(Permit(1), due_s=0.0, most=10)
    assert (run.is_pending, run.pending) == (False, 0)
    next(run.tickets)
    assert (run.is_pending, run.pending) == (True, 1)
    assert run.count() == 1
    assert (run.is_pending, run.pending) == (False, 0)
    next(run.tickets)
    run.put_off(2)
    assert (run.is_pending, run.pending) == (True, 3)
    run.times = (1.0, 2.0)
    assert (run.is_pending, run.pending) == (True, 5)
    run.owed = 0
    assert (run.is_pending, run.pending) == (True, 2)


def test_times_count_as_successes_that_are_not_recorded() -> None:
    run = SuccessRun(Permit(1), due_s=0.0, most=10)
    run.times = (1.0, 2.0)
    assert run.fits(12)
    assert not run.fits(11)
    next(run.tickets)
    run.owed = 4
    assert run.end() == 7
    assert not run.is_pending


def test_a_run_takes_over_the_times_of_the_one_before() -> None:
    before, run = new_run(), new_run()
    before.times = (1.0, 2.0)
    next(before.tickets)
    run.take_over(before, 10)
    assert (run.times, run.owed, run.pending) == ((1.0, 2.0), 1, 3)
