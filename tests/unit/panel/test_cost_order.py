"""Costs of several processes: their order does not matter, so nothing waits for other reports."""

from pathlib import Path

from switchgear import Panel, Policy, Signal, detectors


def test_costs_of_two_processes_add_up_without_times_and_trip_at_once(tmp_path: Path) -> None:
    policy = Policy([detectors.TotalCost(budget_micros=10, threshold=1.0)])
    url = f"sqlite:///{tmp_path / 'state.db'}"
    with Panel(url) as one, Panel(url) as two:
        mine, theirs = (panel.breaker("story/S-1", policy) for panel in (one, two))
        for _ in range(5):
            mine.record(Signal(cost_micros=1))
            theirs.record(Signal(cost_micros=1))
        assert mine.snapshot().recent is None
        assert mine.state == "closed"
        theirs.record(Signal(ok=True, cost_micros=1))
        assert theirs.state == "open"
        assert mine.snapshot().totals.cost_micros == 11


def test_a_policy_that_begins_to_need_successes_dates_its_reports(tmp_path: Path) -> None:
    costs = Policy([detectors.TotalCost(budget_micros=10)])
    with Panel(f"sqlite:///{tmp_path / 'state.db'}") as panel:
        breaker = panel.breaker("story/S-1", costs)
        breaker.record(Signal(ok=False))
        assert breaker.snapshot().recent is None
        breaker.set_policy(Policy([detectors.ConsecutiveFailures(5)]))
        breaker.record(Signal(ok=False))
        recent = breaker.snapshot().recent
        assert recent is not None
        assert recent.reports
