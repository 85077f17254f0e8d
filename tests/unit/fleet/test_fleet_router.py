"""The router chooses the first candidate that all its circuits admit, with the reasons for the others."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from switchgear import Panel, Phase, Rejected, Signal
from switchgear import fleet as fleet_package
from switchgear._breaker.rules import place_at
from switchgear._config import load_config
from switchgear._core.errors import NoRoute
from switchgear._fleet.categories import default_breakers, failure_rate, latency
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import Crew, Model, agent, crew, story
from switchgear._fleet.router import Route, RouteDecision
from switchgear._rules.builtin import builtin_rules
from switchgear.testing import FakeClock

OPUS, LARGE, FLASH = Model("anthropic", "opus"), Model("openai", "large"), Model("google", "flash")


def people() -> Crew:
    return crew(
        [
            agent(
                name="coder",
                owner="ana",
                provider="anthropic",
                model="opus",
                fallback_models=["openai/large"],
                fallback_chain=["junior"],
                stories=["S-1"],
            ),
            agent(name="junior", owner="ben", provider="google", model="flash"),
        ],
        [story(name="S-1", owner="cy", budget_dollars=1)],
    )


class Stage:
    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock(1_000_000.0)
        self.fleet = Fleet.open("memory:", people(), clock=self.clock, **options)

    def record(self, circuit: str, **facts: Any) -> None:
        self.fleet.panel.breaker(circuit).record(Signal(**facts))

    def where(self, **options: Any) -> tuple[str | None, Model | None, RouteDecision]:
        route = self.fleet.route("coder", **options)
        route.give_back()
        return route.worker, route.model, route.decision


class RateLimited(Exception):
    status_code = 429
    retry_after = 30


class BadKey(Exception):
    status_code = 401


class Refusal(Exception):
    status_code = 400
    body: ClassVar[Any] = {"error": {"code": "content_filter"}}


def test_the_agent_itself_works_on_its_own_model_while_all_circuits_are_closed() -> None:
    assert Stage().where(story="S-1") == ("coder", OPUS, RouteDecision.GO)


def test_an_unknown_name_is_reported_with_the_existing_names() -> None:
    fleet = Stage().fleet
    with pytest.raises(ValueError, match="there is no agent 'x'; choose one of coder, junior"):
        fleet.route("x")
    with pytest.raises(ValueError, match="a task 'S-9'; no task has cost anything yet"):
        fleet.resume("S-9", by="ana", why="more budget")


def test_a_misspelt_option_is_an_error_and_not_a_call_without_a_budget() -> None:
    fleet, called = Stage().fleet, list[Route]()

    async def work(route: Route) -> None:
        called.append(route)

    misspelt: Any = {"budgets": "atlas"}
    with pytest.raises(TypeError, match="'budgets'"):
        fleet.call("coder", called.append, **misspelt)
    with pytest.raises(TypeError, match="'budgets'"):
        asyncio.run(fleet.acall("coder", work, **misspelt))
    assert called == []


def test_a_provider_with_an_open_circuit_is_replaced_by_the_next_model_of_the_same_agent() -> None:
    stage = Stage()
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    route = stage.fleet.route("coder")
    assert (route.worker, route.model, route.decision) == ("coder", LARGE, RouteDecision.REROUTED)
    [refused] = route.refused
    assert str(refused) == (
        "coder on anthropic/opus: provider/anthropic: "
        "1 response with Retry-After in a row (threshold 1), for 30 s"
    )
    stage.clock.advance(30.0)
    back = stage.fleet.route("coder")
    assert (back.model, back.decision) == (OPUS, RouteDecision.GO)
    back.record(ok=True, seconds=1.0)
    assert stage.fleet.panel.breaker("provider/anthropic").state is Phase.CLOSED


def test_one_probe_goes_to_a_provider_that_may_have_recovered_and_the_rest_elsewhere() -> None:
    stage = Stage()
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    stage.clock.advance(31.0)
    probe, other = stage.fleet.route("coder"), stage.fleet.route("coder")
    assert (probe.model, other.model) == (OPUS, LARGE)
    probe.record(error=RateLimited())
    assert stage.fleet.panel.breaker("provider/anthropic").state is Phase.OPEN


@pytest.mark.parametrize(
    ("circuit", "facts"),
    [
        ("agent/coder/budget", {"cost_micros": 5_000_000}),
        ("agent/coder/failure_rate", {"ok": False, "count": 20}),
        ("rules/coder", {"violation": "rule force-push"}),
    ],
)
def test_an_agent_with_an_open_circuit_is_replaced_by_the_next_of_its_chain(
    circuit: str, facts: dict[str, Any]
) -> None:
    stage = Stage()
    stage.record(circuit, **facts)
    assert stage.where() == ("junior", FLASH, RouteDecision.REROUTED)
    stage.record("provider/google", ok=False, retry_after_s=9.0)
    worker, _, decision = stage.where()
    latched = circuit.startswith("rules")
    assert (worker, decision) == (None, RouteDecision.REQUEUE)
    route = stage.fleet.route("coder")
    assert route.retry_after_s == pytest.approx(9.0)
    assert [one.circuit for one in route.refused] == [circuit, "provider/google"]
    assert (route.refused[0].retry_after_s is None) is latched


def test_work_of_a_fallback_agent_is_not_recorded_on_the_circuits_of_the_refused_agent() -> None:
    stage = Stage()
    stage.record("agent/coder/failure_rate", ok=False, count=20)
    stage.clock.advance(300.0)
    for provider in ("anthropic", "openai"):
        stage.record(f"provider/{provider}", ok=False, retry_after_s=30.0)
    route = stage.fleet.route("coder")
    assert route.worker == "junior"
    route.record(ok=True)
    halted = stage.fleet.panel.breaker("agent/coder/failure_rate")
    assert halted.state is Phase.HALF_OPEN, "nobody has tried it"
    stage.clock.advance(30.0)
    assert stage.where()[0] == "coder", "and its test call is still to be had"


def test_a_task_that_costs_too_much_is_paused_and_can_be_resumed() -> None:
    stage = Stage()
    stage.record("story/S-1", cost_micros=1_500_001)
    assert stage.where(story="S-1") == (None, None, RouteDecision.PAUSE)
    assert stage.where(story="S-2")[2] is RouteDecision.GO
    stage.fleet.resume("S-1", by="ana", why="worth it")
    assert stage.where(story="S-1")[2] is RouteDecision.GO
    with pytest.raises(ValueError, match=r"task 'S-1' is not paused"):
        stage.fleet.resume("S-1", by="ana", why="once more by mistake: forgives nothing")
    with pytest.raises(ValueError, match=r"task 'S-9'.*did you mean 'S-1'"):
        stage.fleet.resume("S-9", by="ana", why="x")


def test_a_contended_lock_requeues_the_work_and_takes_no_probe() -> None:
    stage = Stage()
    stage.record("lock/db", waited_s=61.0)
    route = stage.fleet.route("coder", locks=["db"])
    assert route.decision is RouteDecision.REQUEUE
    assert route.retry_after_s == pytest.approx(60.0)
    stage.clock.advance(60.0)
    assert stage.where(locks=["db"])[2] is RouteDecision.GO
    with stage.fleet.panel.lock("db"):
        pass
    assert stage.fleet.panel.breaker("lock/db").state is Phase.CLOSED


def test_a_rule_for_all_halts_every_agent() -> None:
    stage = Stage()
    stage.record("rules", violation="rule secrets")
    route = stage.fleet.route("coder")
    assert (route.decision, route.retry_after_s) == (RouteDecision.HALT, None)
    with pytest.raises(NoRoute, match=r"no agent available for 'coder' \(halt\): rules"), route:
        raise AssertionError("not reached")


def slowed(stage: Stage) -> None:
    for _ in range(20):
        stage.record("provider/anthropic/latency", ok=True, seconds=400.0)


def test_half_of_the_load_of_a_slow_provider_goes_to_the_next_model() -> None:
    stage = Stage()
    slowed(stage)
    models = [stage.where()[1] for _ in range(10)]
    assert models == [LARGE, OPUS] * 5


def test_an_error_given_as_text_counts_against_the_agent() -> None:
    stage = Stage()
    for _ in range(20):
        stage.fleet.route("coder").record(
            ok=False, error="the tests fail, key sk-proj-abcdefghijklmnop"
        )
    assert stage.where()[0] == "junior"
    held = stage.fleet.panel.breaker("agent/coder/failure_rate").snapshot().failures[-1].error
    assert held is not None
    assert held.startswith("the tests fail")
    assert "abcdefghijklmnop" not in held
    assert stage.fleet.panel.view("provider/anthropic") is None


def test_without_the_latency_breaker_durations_are_not_recorded() -> None:
    stage = Stage(breakers=default_breakers()._replace(latency=latency(enabled=False)))
    stage.fleet.panel.breaker("provider/anthropic/latency").hold_open(by="ana", why="a test")
    assert stage.where() == ("coder", OPUS, RouteDecision.GO)


def test_a_probe_permit_is_returned_if_another_circuit_of_the_provider_refuses() -> None:
    stage = Stage()
    slowed(stage)
    stage.clock.advance(180.0)
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    away = stage.fleet.route("coder")
    assert away.model == LARGE
    away.record(ok=True, seconds=1.0)
    assert stage.fleet.panel.breaker("provider/anthropic/latency").state is Phase.HALF_OPEN
    stage.clock.advance(30.0)
    back = stage.fleet.route("coder")
    assert back.model == OPUS
    back.record(ok=True, seconds=1.0)
    assert stage.fleet.panel.breaker("provider/anthropic/latency").state is Phase.CLOSED


def test_a_slow_agent_gets_half_of_the_load_and_that_is_not_a_switch() -> None:
    stage = Stage(breakers=default_breakers()._replace(latency=latency(baseline_p95_ms=1000)))
    for _ in range(20):
        stage.fleet.route("coder").record(ok=True, seconds=9.0)
    workers = [stage.where()[0] for _ in range(10)]
    assert workers.count("coder") == workers.count("junior") == 5
    assert stage.fleet.switches("coder") == []


def test_a_breaker_that_is_switched_off_is_not_checked() -> None:
    stage = Stage(breakers=default_breakers()._replace(failure_rate=failure_rate(enabled=False)))
    for _ in range(50):
        stage.fleet.route("coder").record(ok=False)
    assert stage.where()[0] == "coder"


def test_a_budget_is_reserved_and_settled_and_one_that_refuses_pauses() -> None:
    stage = Stage()
    budgets = stage.fleet.panel.budgets
    budgets.open("atlas", 1_000_000)
    route = stage.fleet.route("coder", budget="atlas", estimate_micros=700_000)
    assert budgets.free_micros("atlas") == 300_000
    refused = stage.fleet.route("coder", budget="atlas", estimate_micros=700_000)
    assert refused.decision is RouteDecision.PAUSE
    assert "budget atlas" in refused.why
    route.spent(200_000)
    route.record(ok=True)
    assert budgets.free_micros("atlas") == 800_000
    stage.fleet.route("coder", budget="atlas", estimate_micros=700_000).give_back()
    assert budgets.free_micros("atlas") == 800_000


def test_a_call_moves_to_the_next_provider_when_the_first_fails_and_every_process_sees_it() -> None:
    stage = Stage()

    def work(route: Route) -> str:
        if route.chosen == OPUS:
            raise RateLimited("slow down")
        route.spent(10)
        return str(route.model)

    assert stage.fleet.call("coder", work, story="S-1") == "openai/large"
    assert stage.fleet.panel.breaker("agent/coder/failure_rate").totals.failed == 0
    assert stage.fleet.panel.breaker("story/S-1").totals.cost_micros == 10
    standing = stage.fleet.standings()["coder"]
    assert (standing.agent, standing.model) == ("coder", "openai/large")
    assert "rate_limit" in standing.why
    stage.clock.advance(30.0)
    assert stage.fleet.call("coder", lambda route: str(route.model)) == "anthropic/opus"
    away, back = stage.fleet.switches("coder")
    assert (away["model"], back["model"], back["why"]) == ("openai/large", "anthropic/opus", "")


@pytest.mark.parametrize("error", [BadKey("bad key"), Refusal("no"), ValueError("mine")])
def test_an_error_that_a_person_must_fix_has_no_fallback(error: Exception) -> None:
    stage = Stage()
    asked: list[Model] = []

    def work(route: Route) -> None:
        asked.append(route.chosen)
        raise error

    with pytest.raises(type(error)) as raised:
        stage.fleet.call("coder", work)
    assert raised.value is error
    assert asked == [OPUS]
    assert stage.fleet.panel.breaker("provider/anthropic").totals.failed == 0


def test_when_all_fail_the_last_error_is_raised_and_then_no_call_is_made() -> None:
    stage = Stage()
    asked: list[Model] = []

    def work(route: Route) -> None:
        asked.append(route.chosen)
        raise RateLimited(str(route.model))

    with pytest.raises(RateLimited, match="google/flash"):
        stage.fleet.call("coder", work)
    assert asked == [OPUS, LARGE, FLASH]
    with pytest.raises(NoRoute) as refused:
        stage.fleet.call("coder", work)
    assert len(asked) == 3
    assert refused.value.decision == "requeue"
    assert refused.value.retry_after_s == pytest.approx(30.0)


def test_an_interrupt_gives_every_permit_back() -> None:
    stage = Stage()
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    stage.clock.advance(30.0)

    def work(route: Route) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage.fleet.call("coder", work)
    assert stage.where()[1] == OPUS, "the probe is free again"


def test_a_broken_rule_that_is_reported_halts_the_agent() -> None:
    stage = Stage()
    stage.fleet.route("coder").record(violation="rule secrets: key=sk-abcdefghijklmnopqrst")
    route = stage.fleet.route("coder")
    assert route.worker == "junior"
    assert "sk-abc" not in route.why


def test_unknown_agents_and_negative_amounts_are_errors_and_change_nothing() -> None:
    stage = Stage()
    with pytest.raises(ValueError, match="no agent 'codr'; did you mean 'coder'"):
        stage.fleet.route("codr")
    with stage.fleet.route("coder") as route:
        for bad in (-1, 1.5, True):
            with pytest.raises(ValueError, match="not below 0"):
                route.spent(bad)
    with pytest.raises(ValueError, match="it must be a list of resources"):
        Stage().fleet.route("coder", locks="db")
    with pytest.raises(ValueError, match="fallback_chain is a cycle: a → a"):
        crew([agent(name="a", owner="x", provider="p", model="m", fallback_chain=["a"])])
    with pytest.raises(ValueError, match="is defined twice"):
        crew([agent(name="a", owner="x", provider="p", model="m")] * 2)


def test_a_new_configuration_takes_effect_at_once_and_an_invalid_one_changes_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "switchgear.yaml"
    base = (
        f"store: sqlite:///{tmp_path}/state.db\n"
        "agents:\n  a: {owner: x, provider: p, model: m, fallback_chain: [b]}\n"
        "  b: {owner: x, provider: q, model: n}\n"
    )
    path.write_text(base)
    with Fleet.from_config(load_config(path)) as fleet:
        for ok in (True, False):
            fleet.route("a").record(ok=ok)
        path.write_text(base + "breakers: {failure_rate: {window_calls: 3, threshold: 0.5}}\n")
        assert fleet.reload(load_config(path)) == ["agent/a/failure_rate"]
        fleet.route("a").record(ok=False)
        assert fleet.route("a").worker == "b", "what was told before the change still counts"
        path.write_text(base.replace("state.db", "other.db"))
        with pytest.raises(ValueError, match="another store"):
            fleet.reload(load_config(path))
        assert fleet.route("a").worker == "b"


def test_a_coroutine_is_routed_in_the_same_way() -> None:
    stage = Stage()

    async def work(route: Route) -> str:
        await asyncio.sleep(0)
        if route.chosen == OPUS:
            raise RateLimited
        return str(route.model)

    async def bad(route: Route) -> None:
        raise BadKey

    assert asyncio.run(stage.fleet.acall("coder", work)) == "openai/large"
    with pytest.raises(BadKey):
        asyncio.run(stage.fleet.acall("coder", bad))
    stage.record("rules", violation="rule x")
    with pytest.raises(NoRoute):
        asyncio.run(stage.fleet.acall("coder", work))


def test_a_rule_is_checked_before_the_call_and_halts_the_agent() -> None:
    stage = Stage()
    guard = stage.fleet.rule_guard("coder", builtin_rules(), place_at("/w"))
    assert guard.ask("Bash", {"command": "ls"}) is None
    with pytest.raises(Rejected):
        guard.ask("Bash", {"command": "git push --force"})
    assert stage.fleet.route("coder").worker == "junior"


def test_the_end_of_a_wait_is_an_event_even_without_a_call() -> None:
    stage = Stage()
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    stage.clock.advance(30.0)
    stage.fleet.pass_time()
    assert [entry.event.after for entry in stage.fleet.panel.events()] == ["open", "half_open"]


def test_watching_changes_no_policy() -> None:
    stage = Stage()
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    store = stage.fleet.panel.store.inner
    judged = store.get("provider/anthropic")
    other = {"provider/anthropic": default_breakers().budget.policy}
    watching = Fleet(Panel(store, policies=other, clock=stage.clock), people())
    stage.clock.advance(30.0)
    watching.pass_time()
    after = store.get("provider/anthropic")
    assert judged is not None
    assert after is not None
    assert (after.policy, after.circuit.phase) == (judged.policy, Phase.HALF_OPEN)


def test_the_module_exports_exactly_its_all() -> None:
    assert fleet_package.Fleet is Fleet
    for name in fleet_package.__all__:
        assert getattr(fleet_package, name).__doc__
