"""What all framework guards share, without any framework."""

import asyncio
from types import SimpleNamespace

import pytest

from switchgear import Latched, Panel, Policy, Rejected
from switchgear.detectors import SpendVelocity
from switchgear.integrations import _agent_run
from switchgear.integrations._agent_run import AgentGuard, GuardedRun, ModelName
from switchgear.testing import FakeClock


def test_a_guard_without_a_panel_evaluates_its_own_tool_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panel = Panel("memory:")
    monkeypatch.setattr(_agent_run, "_default_panel", [panel])
    run = AgentGuard("test").run()
    with run.inside(), run.tool("search", "x") as call:
        call.finished("found")
    assert run.is_judged
    assert panel.breaker("tool/search").totals.succeeded == 1


def test_a_guard_without_a_panel_uses_the_panel_of_the_surrounding_run() -> None:
    panel = Panel("memory:")
    outer = AgentGuard("test", panel=panel, budget="team").run()
    with outer.inside():
        inner = AgentGuard("test").run()
        with inner.inside():
            assert inner.guard.panel is panel
            assert AgentGuard("test").run().budget == "team"


def test_an_exception_that_the_framework_swallows_counts_against_the_tool() -> None:
    panel = Panel("memory:")
    run = AgentGuard("test", panel=panel, control_flow=(LookupError,), progress=False).run()
    for error in (OSError("gone"), LookupError("wait for a person"), None):
        with run.tool("search") as call:
            call.raised(error)
    totals = panel.breaker("tool/search").totals
    assert (totals.failed, totals.succeeded) == (1, 1)


def test_a_bad_request_is_not_evidence_against_the_model() -> None:
    panel = Panel("memory:")
    run = AgentGuard("test", panel=panel, control_flow=(LookupError,)).run()
    for error in (LookupError("wrong"), OSError("down")):
        with pytest.raises(type(error)), run.model(ModelName("openai", "gpt")):
            raise error
    assert panel.breaker("provider/openai").totals.failed == 1


def test_the_cost_of_a_model_call_is_counted_by_tag() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    run = AgentGuard("test", panel=panel, budget="team", tags={"task": "S-1"}).run()
    for model, tokens in (("gpt-4o", 1_000), ("gpt-4o", 1_000), ("gpt-4o-mini", 1_000_000)):
        with run.model(ModelName("openai", model)) as call:
            call.used(tokens, 0)
    assert panel.budgets.spent_by_tag("team") == {
        "framework": {"test": 155_000},
        "provider": {"openai": 155_000},
        "model": {"gpt-4o": 5_000, "gpt-4o-mini": 150_000},
        "task": {"S-1": 155_000},
    }


def test_too_many_tags_are_refused_before_any_call() -> None:
    with pytest.raises(ValueError, match="it must have at most 8"):
        AgentGuard("test", tags={f"t{number}": "x" for number in range(6)})


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_that_suddenly_spends_much_faster_is_stopped(is_async: bool) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    policy = Policy([SpendVelocity(window_s=60)], Latched())
    run = AgentGuard("test", panel=panel, progress=policy).run()

    def spend(by: GuardedRun, cost_micros: int) -> None:
        with by.model(ModelName("openai", "gpt")) as call:
            call.used(1, 1, cost_micros=cost_micros)

    async def aspend(by: GuardedRun, cost_micros: int) -> None:
        async with by.model(ModelName("openai", "gpt")) as call:
            call.used(1, 1, cost_micros=cost_micros)

    for _ in range(4):
        spend(run, 100_000)
        clock.advance(60)
    with run.inside():
        inner = AgentGuard("test", panel=panel).run()  # a sub-agent
        asyncio.run(aspend(inner, 2_000_000)) if is_async else spend(inner, 2_000_000)
    with pytest.raises(Rejected, match="in the last 60 s"):
        spend(run, 1)
    with pytest.raises(Rejected, match="in the last 60 s"):
        spend(inner, 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_the_wait_of_a_rate_limit_is_honoured(is_async: bool) -> None:
    class RateLimited(Exception):
        status_code = 429
        response = SimpleNamespace(
            status_code=429,
            headers={"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "5m0s"},
        )

    panel = Panel("memory:", clock=FakeClock())
    run = AgentGuard("test", panel=panel).run()

    def fail() -> None:
        with run.model(ModelName("openai", "gpt")):
            raise RateLimited

    async def afail() -> None:
        async with run.model(ModelName("openai", "gpt")):
            raise RateLimited

    for _ in range(5):
        with pytest.raises(RateLimited):
            asyncio.run(afail()) if is_async else fail()
    with pytest.raises(Rejected) as refused:
        asyncio.run(afail()) if is_async else fail()
    assert refused.value.retry_after_s == pytest.approx(300)
