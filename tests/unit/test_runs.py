"""Runs of tickets: nothing is counted twice and nothing is lost."""

import math

from switchgear import runs
from switchgear.core.types import Permit
from switchgear.runs import TICKETS, Run


def new_run() -> Run:
    return Run(Permit(1), math.inf)


def take(run: Run, tickets: int) -> int:
    return sum(1 for _ in range(tickets) if next(run.tickets, 0) is None)


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


def test_a_run_that_has_ended_has_no_tickets() -> None:
    run = new_run()
    assert take(run, 7) + run.count() == 14
    assert take(run, 4) == 4
    assert run.end() == 4
    assert take(run, 1) == 0
    assert run.end() == 0


def is_pending(run: Run) -> bool:
    """As a function, because mypy takes a property for a constant."""
    return run.is_pending


def test_what_is_put_off_is_in_the_next_count() -> None:
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


def test_what_was_put_off_is_in_the_last_count() -> None:
    run = new_run()
    take(run, TICKETS)
    run.put_off(more=1)
    assert take(run, 2) == 2
    assert run.end() == TICKETS + 3
    assert run.end() == 0


def test_a_run_is_large_and_its_time_short() -> None:
    assert (runs.TICKETS, runs.FOLD_EVERY_S) == (4096, 1.0)
