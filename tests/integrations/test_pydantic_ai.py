"""Pydantic AI, with the real package and its FunctionModel."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from switchgear import Panel, Phase, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.pydantic_ai import guard
from switchgear.testing import FakeClock

PROVIDER = "provider/function"


class Script:
    """Replies in order, the last one for ever; counts the requests."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.requests = 0

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests += 1
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, BaseException):
            raise reply
        return reply if isinstance(reply, ModelResponse) else ModelResponse(parts=[TextPart(reply)])

    def model(self, name: str = "fake") -> FunctionModel:
        return FunctionModel(self, model_name=name)


def calling(
    tool: str, text: str = "", usage: RequestUsage | None = None, **args: Any
) -> ModelResponse:
    parts: list[Any] = [*([TextPart(text)] if text else []), ToolCallPart(tool, args)]
    return ModelResponse(parts=parts, usage=usage or RequestUsage())


def priced(text: str, tokens_in: int, tokens_out: int) -> ModelResponse:
    usage = RequestUsage(input_tokens=tokens_in, output_tokens=tokens_out)
    return ModelResponse(parts=[TextPart(text)], usage=usage)


def run(agent: Any) -> Any:
    return asyncio.run(agent.run("hello"))


def failing(agent: Any, error: type[BaseException], times: int = 5) -> None:
    for _ in range(times):
        with pytest.raises(error):
            run(agent)


def test_five_failures_open_the_circuit_and_the_sixth_call_makes_no_request() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    script = Script(*[ConnectionError("no route")] * 5, "hi")
    agent = Agent(script.model(), capabilities=[guard(panel=panel)])
    failing(agent, ConnectionError)
    with pytest.raises(Rejected, match="no route"):
        run(agent)
    assert script.requests == 5
    clock.advance(61)
    assert run(agent).output == "hi"
    assert panel.breaker(PROVIDER).state is Phase.CLOSED


def test_errors_of_the_request_are_no_evidence_and_those_of_the_provider_are() -> None:
    panel = Panel("memory:")
    bad = Agent(
        Script(ModelHTTPError(400, "fake", None)).model(), capabilities=[guard(panel=panel)]
    )
    failing(bad, ModelHTTPError, 9)
    assert panel.breaker(PROVIDER).state is Phase.CLOSED
    down = Agent(
        Script(ModelHTTPError(503, "fake", None)).model(), capabilities=[guard(panel=panel)]
    )
    failing(down, ModelHTTPError)
    assert panel.breaker(PROVIDER).state is Phase.OPEN


def test_one_circuit_per_model_if_so_configured() -> None:
    panel = Panel("memory:")
    agent = Agent(Script("hi").model("small"), capabilities=[guard(panel=panel, key="model")])
    run(agent)
    assert panel.view("provider/function/small") is not None


def test_the_fallback_answers_while_the_model_is_refused() -> None:
    panel = Panel("memory:")
    own, other = Script("own"), Script("other")
    capability = guard(panel=panel, key="model", fallback=other.model("second"))
    panel.breaker("provider/function/fake").hold_open(by="test", why="maintenance")
    agent = Agent(own.model(), capabilities=[capability])
    assert run(agent).output == "other"
    assert own.requests == 0
    assert panel.view("provider/function/second") is not None


def test_a_refusal_can_be_the_answer_of_the_agent() -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    agent = Agent(Script("own").model(), capabilities=[guard(panel=panel, on_refusal="answer")])
    assert "maintenance" in run(agent).output


def broken_tool_agent(panel: Panel, script: Script, tool: Callable[..., Any]) -> Any:
    agent = Agent(script.model(), capabilities=[guard(panel=panel, progress=False)])
    agent.tool_plain(tool)
    return agent


def test_a_broken_tool_is_refused_with_a_failed_tool_result_and_no_call() -> None:
    calls = []

    def search(query: str) -> str:
        calls.append(query)
        raise OSError(f"index {query} is gone")

    panel = Panel("memory:")
    for number in range(5):
        with pytest.raises(OSError):
            run(broken_tool_agent(panel, Script(calling("search", query=f"q{number}")), search))
    script = Script(calling("search", query="again"), "done")
    result = run(broken_tool_agent(panel, script, search))
    assert len(calls) == 5
    assert result.output == "done"
    parts = [part for message in result.all_messages() for part in message.parts]
    [refused] = [part for part in parts if isinstance(part, ToolReturnPart)]
    assert "tool/search" in str(refused.content)
    assert refused.outcome == "failed"


def test_a_call_that_the_model_must_correct_is_no_evidence_against_the_tool() -> None:
    def search(query: str) -> str:
        raise ModelRetry("give a longer query")

    panel = Panel("memory:")
    script = Script(calling("search", query="a"), "done")
    assert run(broken_tool_agent(panel, script, search)).output == "done"
    assert panel.breaker("tool/search").totals.failed == 0


def test_a_tool_loop_is_warned_and_stopped() -> None:
    panel = Panel("memory:")
    script = Script(calling("search", "I will search again.", query="the same"))
    agent = Agent(script.model(), capabilities=[guard(panel=panel)])
    seen: list[str] = []

    @agent.tool
    def search(ctx: RunContext[None], query: str) -> str:
        """Search."""
        seen[:] = [str(part) for message in ctx.messages for part in message.parts]
        return "no results"

    with pytest.raises(Rejected, match="session/pydantic-ai-"):
        run(agent)
    assert script.requests < 20
    assert any("Switchgear warns" in text for text in seen)

    answering: Any = Agent(script.model(), capabilities=[guard(panel=panel, on_refusal="answer")])
    answering.tool_plain(lambda query: {"results": []}, name="search")
    result = run(answering)
    assert result.output.startswith("Switchgear refused this model call")
    assert "Switchgear warns" in str(result.all_messages())  # beside a result that is no text


def test_costs_add_up_and_sub_agents_share_the_budget() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    inner = Agent(
        Script(priced("found", 1_000, 100)).model("gpt-4o"), capabilities=[guard(panel=panel)]
    )
    usage = RequestUsage(input_tokens=2_000, output_tokens=200)
    script = Script(calling("research", usage=usage, question="?"), priced("done", 3_000, 300))
    capability = guard(panel=panel, budget="team")
    outer = Agent(script.model("gpt-4o"), capabilities=[capability])

    @outer.tool_plain
    async def research(question: str) -> str:
        """Ask a sub-agent."""
        return (await inner.run(question)).output

    result = run(outer)
    expected = (6_000 * 25 + 600 * 100) // 10  # gpt-4o: $2.50 and $10 for a million tokens
    assert capability.run_of(result.run_id).spent_micros == expected
    assert panel.budgets.free_micros("team") == 1_000_000 - expected
    assert not panel.budgets.audit("team").problems


def test_an_exhausted_budget_refuses_before_the_request() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 3_000)
    script = Script(priced("hi", 1_000, 100))
    agent = Agent(script.model("gpt-4o"), capabilities=[guard(panel=panel, budget="team")])
    run(agent)
    with pytest.raises(BudgetRefused):
        run(agent)
    assert script.requests == 1


def test_streaming_works_and_a_stream_that_breaks_is_a_failure() -> None:
    fails = False

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        yield "one "
        if fails:
            raise ConnectionError("cut off")
        yield "two"

    panel = Panel("memory:")
    agent = Agent(FunctionModel(stream_function=stream), capabilities=[guard(panel=panel)])

    async def text() -> str:
        async with agent.run_stream("hello") as result:
            return [piece async for piece in result.stream_text(debounce_by=None)][-1]

    assert asyncio.run(text()) == "one two"
    assert panel.breaker(PROVIDER).totals.succeeded == 1
    fails = True
    for _ in range(5):
        with pytest.raises(ConnectionError):
            asyncio.run(text())
    with pytest.raises(Rejected):
        asyncio.run(text())


def test_a_refused_stream_can_be_answered() -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "own"

    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    capability = guard(panel=panel, on_refusal="answer")
    agent = Agent(FunctionModel(stream_function=stream), capabilities=[capability])

    async def text() -> str:
        async with agent.run_stream("hello") as result:
            return await result.get_output()

    assert "maintenance" in asyncio.run(text())


def test_cancellation_leaks_no_permit_and_no_reservation() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    panel.budgets.open("team", 1_000_000)
    failing(
        Agent(Script(ConnectionError("down")).model(), capabilities=[guard(panel=panel)]),
        ConnectionError,
    )
    clock.advance(61)

    async def cancelled() -> None:
        started = asyncio.Event()

        async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            started.set()
            await asyncio.sleep(600)
            raise AssertionError

        agent = Agent(FunctionModel(slow), capabilities=[guard(panel=panel, budget="team")])
        running = asyncio.create_task(agent.run("hello"))
        await asyncio.wait_for(started.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())  # as the probe
    assert run(Agent(Script("back").model(), capabilities=[guard(panel=panel)])).output == "back"
    [root] = panel.budgets.tree("team")
    assert root.node.held_micros == 0
