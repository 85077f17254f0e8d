"""Claude Agent SDK, with the real package and its bundled Claude Code against the scripted API."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

from e2e.agents.fake_llm import ScriptedApi
from e2e.agents.worlds import claude
from switchgear import Panel, Phase, Rejected
from switchgear._core.types import Signal
from switchgear.errors import BudgetRefused
from switchgear.integrations.claude_agent_sdk import _guard, _SessionHooks, guard, query
from switchgear.testing import FakeClock


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi() as scripted:
        yield scripted


def options(api: ScriptedApi, folder: Path) -> ClaudeAgentOptions:
    model, environment = claude(api.url, folder)
    return ClaudeAgentOptions(
        model=model,
        env={**environment, "HOME": str(folder), "CLAUDE_CODE_MAX_RETRIES": "0"},
        cwd=folder,
        allowed_tools=["Bash"],
        setting_sources=[],
        max_turns=40,
    )


def asked(api: ScriptedApi, folder: Path, **more: Any) -> list[Any]:
    async def ask() -> list[Any]:
        stream = query(prompt="Work.", options=options(api, folder), **more)
        return [message async for message in stream]

    return asyncio.run(asyncio.wait_for(ask(), 240))


def result_of(messages: list[Any]) -> ResultMessage:
    found = messages[-1]
    assert isinstance(found, ResultMessage)
    return found


def test_a_query_works_and_its_cost_is_settled(api: ScriptedApi, tmp_path: Path) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 5_000_000)
    found = result_of(asked(api, tmp_path, panel=panel, budget="team", reserve_micros=1_000_000))
    assert found.result == "Done."
    assert found.total_cost_usd
    spent = 5_000_000 - (panel.budgets.free_micros("team") or 0)
    assert spent == round(found.total_cost_usd * 1e6)
    assert panel.breaker("provider/anthropic").totals.succeeded == 1
    assert panel.breaker("tool/Bash").totals.succeeded == 1
    panel.budgets.limit("team", spent)
    with pytest.raises(BudgetRefused):
        asked(api, tmp_path, panel=panel, budget="team", reserve_micros=1_000_000)


def test_failed_queries_open_the_circuit_and_the_next_one_starts_nothing(
    api: ScriptedApi, tmp_path: Path
) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    breaker = panel.breaker("provider/anthropic")
    api.play("server-errors")
    for _ in range(5):
        try:
            asked(api, tmp_path, panel=panel)
        except Rejected:
            raise
        except Exception:
            pass  # the SDK raises for a result with an error, after it has yielded it
    assert breaker.state == "open"
    api.play("short")
    requests = len(api.bodies)
    with pytest.raises(Rejected):
        asked(api, tmp_path, panel=panel)
    assert len(api.bodies) == requests
    clock.advance(61)
    assert result_of(asked(api, tmp_path, panel=panel)).result == "Done."
    assert breaker.state == "closed"


def test_a_refused_tool_is_denied_with_the_reason(api: ScriptedApi, tmp_path: Path) -> None:
    panel = Panel("memory:")
    panel.breaker("tool/Bash").hold_open(by="test", why="maintenance")
    assert result_of(asked(api, tmp_path, panel=panel)).result == "Done."
    assert "maintenance" in api.bodies[-1]


def test_a_tool_loop_is_warned_and_stopped(api: ScriptedApi, tmp_path: Path) -> None:
    api.play("same-error-for-ever")
    panel = Panel("memory:")
    asked(api, tmp_path, panel=panel, tool_key="tool/any")
    assert api.requests < 20
    assert any("Switchgear warns" in body for body in api.bodies)
    [view] = panel.circuits("session/*")
    assert view.circuit.phase is Phase.OPEN


def test_the_client_of_the_sdk_takes_guarded_options(api: ScriptedApi, tmp_path: Path) -> None:
    panel = Panel("memory:")

    async def ask() -> list[Any]:
        messages = []
        async with ClaudeSDKClient(guard(options(api, tmp_path), panel=panel)) as client:
            await client.query("Work.")
            messages += [message async for message in client.receive_response()]
        return messages

    assert result_of(asyncio.run(asyncio.wait_for(ask(), 240))).result == "Done."
    assert panel.breaker("tool/Bash").totals.succeeded == 1


@pytest.mark.filterwarnings(
    "ignore:Unclosed <MemoryObject:ResourceWarning"
)  # the SDK leaves it open
def test_an_abandoned_query_returns_its_permit_and_reservation(
    api: ScriptedApi, tmp_path: Path
) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    panel.budgets.open("team", 5_000_000)
    tool, provider = panel.breaker("tool/Bash"), panel.breaker("provider/anthropic")
    for breaker in (tool, provider):
        for _ in range(5):
            breaker.record(Signal(ok=False))
    clock.advance(61)

    async def leave() -> None:
        given = options(api, tmp_path)
        stream = query(
            prompt="Work.", options=given, panel=panel, budget="team", reserve_micros=1_000_000
        )
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]
        gc.collect()  # the SDK leaves its inner generator to the collector, which ends Claude in a task
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=5)

    asyncio.run(asyncio.wait_for(leave(), 240))
    assert [status.node.held_micros for status in panel.budgets.tree("team")] == [0]
    assert result_of(asked(api, tmp_path, panel=panel)).result == "Done."  # both are admitted again
    assert (tool.state, provider.state) == ("closed", "closed")


def test_an_unfinished_tool_call_returns_its_permit() -> None:
    panel = Panel("memory:", clock=(clock := FakeClock()))
    breaker = panel.breaker("tool/Bash")
    for _ in range(5):
        breaker.record(Signal(ok=False))
    clock.advance(61)
    event = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "1"}
    hooks = _SessionHooks(_guard(panel=panel))
    assert asyncio.run(hooks.before(event, "1", None)) == {}  # the probe
    assert "deny" in str(asyncio.run(hooks.before({**event, "tool_use_id": "2"}, "2", None)))
    hooks.give_back()
    assert asyncio.run(hooks.before(event, "1", None)) == {}
    assert breaker.totals.failed == 5
