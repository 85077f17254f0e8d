"""Claude Agent SDK, with the real package and its bundled Claude Code against the scripted API."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

from e2e.agents.fake_llm import ScriptedApi
from e2e.agents.worlds import claude
from switchgear import Panel, Phase, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.claude_agent_sdk import guard, query
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
