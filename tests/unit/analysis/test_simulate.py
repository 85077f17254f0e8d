"""The simulation: the same for the same seed, correct with and without breakers, and within its targets."""

import gc
from functools import cache

import pytest

from switchgear._analysis.simulate.compare import Result, as_json, blocks, simulate
from switchgear._analysis.simulate.engine import Harm
from switchgear._analysis.simulate.world import SCENARIOS
from switchgear._core.types import Event, EventKind, Mode, Phase
from switchgear._fleet.categories import Breakers, Category, default_breakers, external_dep, latency
from switchgear._report.analysis_pages import simulation_page

SINGLE = ("outage", "slow-down", "poisoned-agent", "budget-burn", "lock-convoy")


@cache
def result_of(name: str, agents: int = 50, seed: int = 1) -> Result:
    return simulate(name, agents=agents, seed=seed)


def sides(name: str, agents: int = 50) -> tuple[Harm, Harm]:
    [pair] = result_of(name, agents).pairs
    return pair


def with_category(**changed: Category) -> Breakers:
    return default_breakers()._replace(**changed)


def detect_s(harm: Harm) -> float:
    assert harm.detected_s is not None
    return harm.detected_s - harm.span.begins_s


@pytest.mark.parametrize("name", SINGLE)
def test_the_same_seed_gives_the_same_numbers(name: str) -> None:
    once, again = (simulate(name, agents=10, hours=0.3) for _ in range(2))
    assert as_json(once) == as_json(again)


def test_another_seed_gives_other_numbers() -> None:
    other = as_json(simulate("outage", agents=10, hours=0.2, seed=2))
    assert other != as_json(simulate("outage", agents=10, hours=0.2, seed=1))


@pytest.mark.parametrize("name", SINGLE)
def test_both_simulations_are_identical_until_the_fault_begins(name: str) -> None:
    result = result_of(name)
    before = len(result.plain.made) // 4
    assert result.plain.made[:before] == result.guarded.made[:before]
    assert sum(result.guarded.refused[:before]) == 0


@pytest.mark.parametrize("name", SINGLE)
def test_without_breakers_the_fault_is_not_detected(name: str) -> None:
    plain, _ = sides(name)
    assert plain.wasted > 10
    assert plain.detected_s is None
    assert result_of(name).plain.trips == 0
    assert sum(result_of(name).plain.refused) == 0


@pytest.mark.parametrize("name", SINGLE)
def test_with_breakers_the_fault_is_detected_and_no_healthy_agent_is_halted(name: str) -> None:
    _, guarded = sides(name)
    result = result_of(name)
    assert guarded.detected_s is not None
    assert result.guarded.wrong_trips == 0
    assert not result.guarded.halted_well
    assert result.kept, result.bars


def test_in_an_outage_at_least_95_percent_of_the_doomed_calls_are_not_made() -> None:
    plain, guarded = sides("outage")
    assert plain.wasted > 1000
    assert 0 < guarded.wasted <= 0.05 * plain.wasted
    assert guarded.micros < 0.05 * plain.micros


def test_after_an_outage_all_calls_are_admitted_again_within_two_probe_intervals() -> None:
    _, guarded = sides("outage")
    assert not guarded.still_open
    assert guarded.interval_s > 0
    assert guarded.last_s - guarded.span.ends_s <= 2 * guarded.interval_s


def test_an_outage_is_detected_within_seconds_and_the_work_continues() -> None:
    result = result_of("outage")
    assert detect_s(result.guarded.harms[0]) < 30
    assert result.guarded.done > result.plain.done


@pytest.mark.stress
def test_a_poisoned_agent_is_halted_and_others_do_its_work() -> None:
    plain, guarded = sides("poisoned-agent", 200)
    result = result_of("poisoned-agent", 200)
    assert result.guarded.halted == plain.span.about
    assert guarded.wasted < plain.wasted / 2
    assert result.guarded.rerouted > 0


def test_an_agent_that_breaks_a_rule_works_again_when_an_operator_has_reset_it() -> None:
    _, guarded = sides("poisoned-agent")
    assert guarded.last_s >= guarded.span.ends_s + 300.0
    assert not guarded.still_open


def test_nine_tenths_of_an_overspent_budget_are_saved() -> None:
    plain, guarded = sides("budget-burn")
    assert plain.micros > 50_000_000
    assert guarded.micros < plain.micros / 10
    assert detect_s(guarded) < 180


def test_a_lock_convoy_does_not_keep_the_agents_waiting() -> None:
    plain, guarded = sides("lock-convoy")
    assert guarded.seconds < plain.seconds / 10
    assert result_of("lock-convoy").guarded.done > result_of("lock-convoy").plain.done
    assert 60 < detect_s(guarded) < 300


def test_a_slow_down_sends_work_of_busy_agents_elsewhere() -> None:
    result = result_of("slow-down")
    assert detect_s(result.guarded.harms[0]) < 900
    assert result.guarded.rerouted > 0
    assert not result.guarded.halted


def test_agents_with_reduced_load_finish_more_work_through_other_agents() -> None:
    cut = simulate("slow-down", agents=50, breakers=with_category(latency=latency(admit=0.0)))
    assert cut.guarded.done > cut.plain.done
    assert cut.guarded.rerouted > result_of("slow-down").guarded.rerouted


def test_without_the_provider_breaker_the_targets_of_an_outage_are_missed() -> None:
    off = with_category(external_dep=external_dep(enabled=False))
    result = simulate("outage", agents=10, hours=0.5, breakers=off)
    assert not result.kept
    assert [bar.kept for bar in result.bars] == [False, False, True]


def test_a_circuit_that_is_still_open_at_the_end_has_not_recovered() -> None:
    slow = with_category(external_dep=external_dep(cooldown_seconds=3600))
    result = simulate("outage", agents=10, breakers=slow)
    assert result.guarded.harms[0].still_open
    assert not result.bars[1].kept
    assert "not before the end" in str(blocks(result)[0])


def test_a_provider_that_is_only_noisy_trips_a_circuit_wrongly_and_that_is_reported() -> None:
    touchy = with_category(external_dep=external_dep(threshold=1, failing_share=0))
    result = simulate("budget-burn", agents=20, hours=0.2, noise=0.05, breakers=touchy)
    assert result.guarded.wrong_trips > 0
    patient = with_category(external_dep=external_dep(threshold=1000))
    result = simulate("budget-burn", agents=20, hours=0.2, noise=0.05, breakers=patient)
    assert result.guarded.wrong_trips == 0


def test_one_failure_in_a_hundred_is_not_an_outage_and_a_real_outage_is_detected() -> None:
    result = simulate("outage", agents=60, hours=0.5, noise=0.01)
    assert result.guarded.wrong_trips == 0
    assert result.kept, result.bars


def test_a_healthy_agent_that_an_oversensitive_policy_halts_misses_the_target() -> None:
    from switchgear._fleet.categories import budget  # noqa: PLC0415

    mean = with_category(budget=budget(hard_cap_dollars=0.01))
    result = simulate("outage", agents=10, hours=0.2, breakers=mean)
    assert result.guarded.halted_well
    assert not result.kept


def test_a_day_has_all_faults_and_each_is_detected() -> None:
    result = simulate("day", agents=10, hours=6.0)
    assert {harm.span.kind for harm in result.plain.harms} == set(SINGLE)
    assert all(harm.wasted for harm in result.plain.harms)
    assert result.kept


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"agents": 9}, "agents is 9"),
        ({"agents": 1_000_000}, "at most 100,000"),
        ({"hours": 0.0}, "hours is 0.0"),
        ({"hours": float("nan")}, "hours is nan"),
        ({"hours": 1000.0}, "a week"),
        ({"seed": -1}, "seed is -1"),
        ({"noise": 1.0}, "noise is 1.0"),
    ],
)
def test_an_impossible_size_is_refused_with_the_rule(given: dict[str, float], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        simulate("outage", **given)  # type: ignore[arg-type]


def test_an_unknown_scenario_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'outage'"):
        simulate("outrage")


def test_the_report_has_both_simulations_and_loads_nothing() -> None:
    html = simulation_page(result_of("outage"))
    assert html.count("<svg") >= 2
    assert "without" in html
    assert "with breakers" in html
    assert "http" not in html.replace("http-equiv", "")
    assert "<script" not in html


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_within_its_time(name: str) -> None:
    for trouble in SCENARIOS[name].troubles:
        assert 0 < trouble.begins < trouble.ends < 1


def test_the_garbage_collector_is_left_as_it_was() -> None:
    before = gc.get_threshold()
    simulate("outage", agents=10, hours=0.05)
    assert gc.get_threshold() == before


def test_a_task_paused_by_overspending_continues_when_the_agent_is_fixed() -> None:
    result = simulate("budget-burn", agents=10, hours=3.0)
    [harm] = result.guarded.harms
    assert not harm.still_open
    assert harm.last_s >= harm.span.ends_s + 300.0


def test_a_trip_of_an_overspent_task_hours_later_is_not_a_wrong_trip() -> None:
    tally = simulate("budget-burn", agents=10, hours=0.1).guarded
    [span] = [harm.span for harm in tally.harms]
    before = tally.wrong_trips
    late = Event(
        f"story/{min(span.about)}-0-1", 1, span.ends_s + 20_000.0, EventKind.MOVED,
        Phase.CLOSED, Phase.OPEN, Mode.AUTO, 2,
    )  # fmt: skip
    tally.on_event(late)
    assert tally.wrong_trips == before
    tally.on_event(late._replace(circuit="provider/south"))
    assert tally.wrong_trips == before + 1
