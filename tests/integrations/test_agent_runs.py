"""What all framework guards share, without any framework."""

import pytest

from switchgear import Panel
from switchgear.integrations import _agent_run
from switchgear.integrations._agent_run import AgentGuard, ModelName


def test_a_guard_without_a_panel_judges_its_own_tool_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = Panel("memory:")
    monkeypatch.setattr(_agent_run, "_default_panel", [panel])
    run = AgentGuard("test").run()
    with run.inside(), run.tool("search", "x") as call:
        call.finished("found")
    assert run.is_judged
    assert panel.breaker("tool/search").totals.succeeded == 1


def test_a_guard_without_a_panel_uses_that_of_the_run_around_it() -> None:
    panel = Panel("memory:")
    outer = AgentGuard("test", panel=panel, budget="team").run()
    with outer.inside():
        inner = AgentGuard("test").run()
        with inner.inside():
            assert inner.guard.panel is panel
            assert AgentGuard("test").run().budget == "team"


def test_an_exception_that_the_framework_keeps_is_that_of_the_tool() -> None:
    panel = Panel("memory:")
    run = AgentGuard("test", panel=panel, control_flow=(LookupError,), progress=False).run()
    for error in (OSError("gone"), LookupError("wait for a person"), None):
        with run.tool("search") as call:
            call.raised(error)
    totals = panel.breaker("tool/search").totals
    assert (totals.failed, totals.succeeded) == (1, 1)


def test_an_error_of_the_request_is_no_evidence_against_the_model() -> None:
    panel = Panel("memory:")
    run = AgentGuard("test", panel=panel, control_flow=(LookupError,)).run()
    for error in (LookupError("wrong"), OSError("down")):
        with pytest.raises(type(error)), run.model(ModelName("openai", "gpt")):
            raise error
    assert panel.breaker("provider/openai").totals.failed == 1


def test_what_a_model_call_spends_is_counted_by_tag() -> None:
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
