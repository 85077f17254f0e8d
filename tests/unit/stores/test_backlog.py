"""Updates that are not saved yet: bounded, in order as far as possible, with exact sums."""

import pytest

from switchgear import Policy, Signal, detectors
from switchgear._core.types import Permit, Record
from switchgear._stores.backlog import HEAVIEST, LISTED, Backlog

POLICY = Policy([detectors.ConsecutiveFailures(3)])


def told(backlog: Backlog) -> list[Record]:
    """All messages that the store would receive, in order."""
    messages = []
    while (message := backlog.first()) is not None:
        messages.append(message)
        backlog.drop_first(message)
    return messages


def sums(messages: list[Record], ok: bool) -> tuple[int, int]:
    """The number of results with this outcome, and their cost."""
    signals = [message.signal for message in messages if message.signal.ok is ok]
    cost = sum(signal.count * (signal.cost_micros or 0) for signal in signals)
    return sum(signal.count for signal in signals), cost


@pytest.mark.parametrize("permits", [1, 7, 5 * LISTED], ids="{} permits".format)
def test_a_backlog_is_bounded_and_loses_no_count_and_no_cent(permits: int) -> None:
    backlog = Backlog(POLICY, POLICY.start("api", 0.0))
    things = 6 * LISTED
    for number in range(things):
        signal = Signal(ok=number % 2 == 0, error=f"error {number}", cost_micros=number)
        backlog.add(Record(signal, Permit(number % permits)))
        backlog.add(Record(Signal(count=0, refused=1)))
    assert len(backlog) <= 3 * LISTED + 10
    assert backlog.waiting == 2 * things
    messages = told(backlog)
    assert len(messages) <= 3 * LISTED + 10
    assert sums(messages, ok=True) == (things // 2, sum(range(0, things, 2)))
    assert sums(messages, ok=False) == (things // 2, sum(range(1, things, 2)))
    assert sum(message.signal.refused for message in messages) == things
    assert backlog.told == 2 * things
    assert backlog.waiting == 0


def test_a_backlog_keeps_the_order_of_the_first_messages_and_sums_up_the_rest() -> None:
    backlog = Backlog(POLICY, POLICY.start("api", 0.0))
    for number in range(3 * LISTED):
        backlog.add(Record(Signal(ok=False, error=f"error {number}")))
    errors = [message.signal.error for message in told(backlog)]
    assert errors == [*(f"error {number}" for number in range(LISTED)), f"error {3 * LISTED - 1}"]


def test_no_message_of_a_backlog_costs_more_than_a_store_can_add_up() -> None:
    backlog = Backlog(POLICY, POLICY.start("api", 0.0))
    for number in range(LISTED + 20):
        backlog.add(Record(Signal(ok=True, seconds=float(number), cost_micros=HEAVIEST // 2)))
    messages = told(backlog)
    assert sums(messages, ok=True) == (LISTED + 20, (LISTED + 20) * (HEAVIEST // 2))
    assert max(message.signal.cost_micros or 0 for message in messages) <= 2 * HEAVIEST


def test_entries_added_during_the_first_save_stay() -> None:
    backlog = Backlog(POLICY, POLICY.start("api", 0.0))
    backlog.add(Record(Signal(ok=True, cost_micros=5)))
    first = backlog.first()
    assert first is not None
    backlog.add(Record(Signal(ok=True, cost_micros=5)))
    backlog.add(Record(Signal(ok=True, cost_micros=7)))
    backlog.drop_first(first)
    assert sums(told(backlog), ok=True) == (2, 12)


def test_a_condensed_backlog_is_saved_by_a_few_messages_and_adds_up() -> None:
    backlog = Backlog(POLICY, POLICY.start("api", 0.0))
    for number in range(LISTED):
        backlog.add(Record(Signal(ok=number % 2 == 0, cost_micros=number)))
    backlog.condense()
    messages = told(backlog)
    assert len(messages) <= 5
    assert sums(messages, ok=True) == (LISTED // 2, sum(range(0, LISTED, 2)))
    assert sums(messages, ok=False) == (LISTED // 2, sum(range(1, LISTED, 2)))


def test_different_costs_are_never_counted_together() -> None:
    backlog = Backlog(POLICY, POLICY.start("api", 0.0))
    for cost in (5, 5, 7):
        backlog.add(Record(Signal(ok=True, cost_micros=cost)))
    listed = [(message.signal.cost_micros, message.signal.count) for message in told(backlog)]
    assert listed == [(5, 2), (7, 1)]
