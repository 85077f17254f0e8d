"""Time in which the process was suspended counts neither as silence nor against a limit."""

from switchgear._run.interrupt import Interrupt, Time, wait
from switchgear._run.view import RunView
from switchgear._system.clock import SLACK_S, AwakeClock


class Raw:
    """A system clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_wait_that_took_far_too_long_counts_as_a_suspension() -> None:
    raw = Raw()
    clock = AwakeClock(raw)
    before_s = clock()
    raw.now_s += 3600.0
    assert clock.read_after(before_s, 1.0) - before_s == 1.0


def test_a_busy_machine_is_not_a_suspension() -> None:
    raw = Raw()
    clock = AwakeClock(raw)
    before_s = clock()
    raw.now_s += 1.0 + SLACK_S
    assert clock.read_after(before_s, 1.0) - before_s == 1.0 + SLACK_S


def test_threads_that_were_suspended_together_count_it_once() -> None:
    raw = Raw()
    clock = AwakeClock(raw)
    before_s = [clock() for _ in range(3)]
    raw.now_s += 3600.0
    for number in range(3):
        raw.now_s += 0.1
        clock.read_after(before_s[number], 1.0)
    assert 1.0 <= clock() - before_s[0] <= 1.5


def test_the_clock_never_runs_backwards_without_a_wait() -> None:
    raw = Raw()
    clock = AwakeClock(raw)
    seen = [clock()]
    for took_s in (0.5, 600.0, 0.1, 7.0):
        raw.now_s += took_s
        seen.append(clock.read_after(seen[-1], 1.0))
    assert seen == sorted(seen)


def test_the_awaited_work_continues_during_a_suspension() -> None:
    raw, sleeps = Raw(), [0.2, 3600.0, 0.2]
    clock = AwakeClock(raw)

    def sleep(_: float) -> None:
        raw.now_s += sleeps.pop(0)

    began_s = clock()
    on = Time(clock=clock, sleep=sleep, took=clock.record_wait)
    assert wait("for a rate limit", 60.0, on=on, view=RunView(), interrupt=Interrupt())
    assert sleeps == [0.2], "the minute is over"
    assert clock() - began_s < 1.0, "our own time stood still"
