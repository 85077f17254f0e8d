"""The self-test of the router: fallbacks, no candidate left, budgets, rules, locks, and guards that cannot trip."""

from pathlib import Path
from typing import Any

import pytest

from switchgear._analysis.selftest.plan import perform
from switchgear._analysis.selftest.sandbox import Bench, GuardRow, GuardStatus
from switchgear._config import load_config
from switchgear._core.types import Signal
from switchgear._fleet import router as routing
from switchgear._fleet.router import Route, Router, Settings

FLEET = """
agents:
  coder:
    {owner: ana, provider: anthropic, model: opus, fallback_models: [openai/large], fallback_chain: [junior]}
  twin:
    {owner: ana, provider: anthropic, model: opus, fallback_models: [openai/large], fallback_chain: [junior]}
  junior: {owner: ben, provider: google, model: flash}
stories: {S-1: {owner: cy, budget_dollars: 3}}
"""


def rows_of(tmp_path: Path, config: str, *names: str) -> list[GuardRow]:
    file = tmp_path / "switchgear.yaml"
    file.write_text(config)
    bench = Bench(load_config(file), str(tmp_path))
    return [row for row in perform(bench, names) if row.path == "router"]


def by_guard(rows: list[GuardRow]) -> dict[str, GuardRow]:
    return {row.guard: row for row in rows}


# What fires


def test_a_failing_provider_is_left_for_the_fallback_and_with_all_dead_no_call_is_made(
    tmp_path: Path,
) -> None:
    rows = by_guard(rows_of(tmp_path, FLEET, "dead-provider"))
    switched = rows["provider/anthropic"]
    assert (switched.detector, switched.signals) == ("failures_in_window + failure_rate", 15)
    assert switched.reason.startswith("rerouted to coder on openai/large: coder on anthropic/opus")
    nobody = rows["fallbacks of coder"]
    assert nobody.status is GuardStatus.OK
    assert nobody.reason.startswith("no agent available for 'coder' (requeue)")
    for provider in ("anthropic", "openai", "google"):
        assert f"provider/{provider}: score 2 (trips at 2): 3 failures" in nobody.reason
    assert "fallbacks of twin" not in rows, "its work goes the same way"
    assert rows["provider/google"].reason.endswith("junior has no other provider")


def test_without_agents_a_sample_fleet_is_attacked_under_the_configured_breakers(
    tmp_path: Path,
) -> None:
    [row, _] = rows_of(tmp_path, "breakers: {external_dep: {threshold: 7}}", "dead-provider")
    assert (row.guard, row.signals, row.status) == ("provider/*", 19, GuardStatus.OK)


def test_spending_trips_the_agent_its_task_and_its_budget(tmp_path: Path) -> None:
    rows = by_guard(rows_of(tmp_path, FLEET, "overspend"))
    assert list(rows) == ["agent/coder/budget", "story/S-1", "budgets"]
    assert rows["agent/coder/budget"].reason.startswith("rerouted to junior on google/flash")
    assert rows["story/S-1"].reason.startswith("pause: story/S-1: $4.5")
    assert "(pause): budget selftest" in rows["budgets"].reason
    assert [row.detector for row in rows.values()] == ["spend", "total_cost", "budget"]


@pytest.mark.parametrize(
    ("name", "guard", "detector", "says"),
    [
        ("same-error", "agent/coder/failure_rate", "failure_rate", "rerouted to junior"),
        ("slow-provider", "agent/coder/latency", "latency_p95", "load reduced to 50%"),
        (
            "hang",
            "provider/anthropic",
            "failures_in_window + failure_rate",
            "rerouted to coder on openai/large",
        ),
        ("rule-breach", "rules/coder", "violation", "rerouted to junior"),
        ("lock-convoy", "lock/*", "lock_wait", "requeue: lock/selftest"),
    ],
)
def test_each_attack_is_detected_by_its_circuit(
    tmp_path: Path, name: str, guard: str, detector: str, says: str
) -> None:
    [row] = rows_of(tmp_path, FLEET, name)
    assert (row.guard, row.detector, row.status) == (guard, detector, GuardStatus.OK)
    assert says in row.reason


def test_a_halted_agent_cannot_resume_itself_where_a_token_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = f"{FLEET}\noperator_token_sha256: '{'a' * 64}'"
    [row] = rows_of(tmp_path, config, "self-release")
    assert (row.detector, row.status) == ("operator token", GuardStatus.OK)
    monkeypatch.setattr("switchgear._panel.panel.Panel.order", lambda *_, **__: None)
    [row] = rows_of(tmp_path, config, "self-release")
    assert row.reason == "a reset of rules/coder was accepted without a token"


# What is configured and cannot fire


@pytest.mark.parametrize(
    ("name", "breaker", "guard", "says"),
    [
        (
            "dead-provider",
            "external_dep: {threshold: 5000}",
            "provider/anthropic",
            "such calls are admitted",
        ),
        (
            "same-error",
            "failure_rate: {window_calls: 5000}",
            "agent/coder/failure_rate",
            "are admitted",
        ),
        (
            "lock-convoy",
            "resource_lock: {threshold_seconds: 90000}",
            "lock/*",
            "a day does not open it",
        ),
    ],
)
def test_a_breaker_out_of_reach_is_a_failure_with_what_it_reads(
    tmp_path: Path, name: str, breaker: str, guard: str, says: str
) -> None:
    row = by_guard(rows_of(tmp_path, f"{FLEET}\nbreakers: {{{breaker}}}", name))[guard]
    assert row.status is GuardStatus.FAILED
    assert says in row.reason


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("dead-provider", "external_dep"),
        ("same-error", "failure_rate"),
        ("slow-provider", "latency"),
        ("rule-breach", "constitutional"),
        ("lock-convoy", "resource_lock"),
    ],
)
def test_a_category_that_is_switched_off_is_reported(
    tmp_path: Path, name: str, category: str
) -> None:
    rows = rows_of(tmp_path, f"{FLEET}\nbreakers: {{{category}: {{enabled: false}}}}", name)
    assert {row.status for row in rows} == {GuardStatus.SKIPPED}
    assert all("switched off in `breakers`" in row.reason for row in rows)


def test_a_row_of_circuits_that_watches_for_something_else_is_reported(tmp_path: Path) -> None:
    policy = "{detectors: [{context_burn: {per_minute: 0.5}}]}"
    config = f"{FLEET}\ncircuits: [{{match: 'provider/*', policy: {policy}}}]"
    rows = rows_of(tmp_path, config, "dead-provider")
    assert {row.status for row in rows} == {GuardStatus.SKIPPED}
    assert "only context_burn" in rows[0].reason


def test_a_detector_whose_facts_the_router_does_not_record_is_a_failure(
    tmp_path: Path,
) -> None:
    policy = "{detectors: [{same_tool: {}}, {spend: {hard_cap_micros: 1000000}}]}"
    config = f"{FLEET}\ncircuits: [{{match: 'agent/*/budget', policy: {policy}}}]"
    rows = [row for row in rows_of(tmp_path, config, "guards") if row.guard == "agent/*/budget"]
    bad = [row.reason for row in rows if row.status is GuardStatus.FAILED]
    assert "same_tool: the facts it needs are not recorded on this path (router): step" in bad
    assert [row.detector for row in rows if row.status is GuardStatus.OK] == ["spend"]


# A router that is broken on purpose


@pytest.mark.parametrize(
    ("name", "target", "attribute", "instead", "guard", "says"),
    [
        (
            "dead-provider",
            Route,
            "record",
            lambda *_, **__: None,
            "provider/anthropic",
            "are admitted",
        ),
        (
            "dead-provider",
            Settings,
            "circuits",
            lambda *_: [],
            "provider/anthropic",
            "are admitted",
        ),
        (
            "same-error",
            Settings,
            "circuits",
            lambda *_: [],
            "agent/coder/failure_rate",
            "are admitted",
        ),
        ("rule-breach", Settings, "circuits", lambda *_: [], "rules/coder", "continues as before"),
        ("overspend", Route, "spent", lambda *_: None, "agent/coder/budget", "are admitted"),
        ("overspend", Router, "_reserve", lambda *_: True, "budgets", "does not limit spending"),
        ("lock-convoy", Router, "_locks_admit", lambda *_: True, "lock/*", "continues as before"),
    ],
)
def test_a_router_that_is_broken_on_purpose_is_detected(  # noqa: PLR0917
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    target: Any,
    attribute: str,
    instead: Any,
    guard: str,
    says: str,
) -> None:
    monkeypatch.setattr(target, attribute, instead)
    row = by_guard(rows_of(tmp_path, FLEET, name))[guard]
    assert row.status is GuardStatus.FAILED
    assert says in row.reason


def test_a_fallback_that_does_not_take_over_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Router, "_first_admitted", _only_the_first(Router._first_admitted))
    row = by_guard(rows_of(tmp_path, FLEET, "dead-provider"))["provider/anthropic"]
    assert row.status is GuardStatus.FAILED
    assert "provider/anthropic is open, and no fallback is available" in row.reason


def test_costs_that_the_router_stops_recording_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals = routing._signals

    def without_costs(**facts: Any) -> dict[str, Signal]:
        told = signals(**facts)
        return {**told, "budget": told["failure_rate"]}

    monkeypatch.setattr(routing, "_signals", without_costs)
    rows = [row for row in rows_of(tmp_path, FLEET, "guards") if row.guard == "agent/*/budget"]
    assert [row.reason for row in rows] == [
        "spend: the facts it needs are not recorded on this path (router): cost_micros"
    ]


def _only_the_first(first: Any) -> Any:
    def asked(router: Router, route: Route, by: Any, wanted: Any, tried: Any) -> Any:
        found = first(router, route, by, wanted, tried)
        return found if found is not None and found.model == wanted.model else None

    return asked
