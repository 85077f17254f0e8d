"""Strands Agents, with the real package and a scripted `Model`."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

pytest.importorskip("strands")

from google import genai
from strands import Agent, tool
from strands.models import Model
from strands.models.gemini import GeminiModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel
from strands.multiagent import GraphBuilder
from strands.multiagent.base import Status
from strands.types.exceptions import ContextWindowOverflowException

from model_streams import CUT_STREAMS, EVENTS
from servers.model_api import ModelApi, model_api
from servers.model_api import Reply as ApiReply
from switchgear import Panel, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.strands import guard
from switchgear.testing import FakeClock

pytestmark = pytest.mark.filterwarnings("default")
PROVIDER = "provider/scripted"
LAST = {"content-type": EVENTS, "connection": "close"}
Reply = tuple[list[dict[str, Any]], dict[str, int]]


class ScriptedModel(Model):
    """Replies in order, the last one forever; counts the requests."""

    def __init__(self, *replies: Any, name: str = "fake", delay_s: float = 0.0) -> None:
        self.replies, self.name, self.delay_s = list(replies), name, delay_s
        self.requests = 0
        self.messages: list[Any] = []

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {"model_id": self.name}

    def structured_output(self, *args: Any, **kwargs: Any) -> AsyncGenerator[dict[str, Any], None]:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.requests += 1
        self.messages = messages
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        await asyncio.sleep(self.delay_s)
        if isinstance(reply, BaseException):
            raise reply
        blocks, usage = reply
        yield {"messageStart": {"role": "assistant"}}
        reason = "end_turn"
        for block in blocks:
            if "text" in block:
                yield {"contentBlockStart": {"start": {}}}
                for word in block["text"].split():
                    yield {"contentBlockDelta": {"delta": {"text": f"{word} "}}}
            else:
                reason, use = "tool_use", block["toolUse"]
                yield {"contentBlockStart": {"start": {"toolUse": use}}}
                delta = {"toolUse": {"input": json.dumps(use["input"])}}
                yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}
        if usage:
            yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


class SpareModel(ScriptedModel):
    """A model of another provider."""


def usage(tokens_in: int, tokens_out: int) -> dict[str, int]:
    if not tokens_in:
        return {}
    counts = {"inputTokens": tokens_in, "outputTokens": tokens_out}
    return {**counts, "totalTokens": tokens_in + tokens_out}


def says(text: str, tokens_in: int = 0, tokens_out: int = 0) -> Reply:
    return [{"text": text}], usage(tokens_in, tokens_out)


def calls(name: str, tokens_in: int = 0, tokens_out: int = 0, **args: Any) -> Reply:
    use = {"name": name, "toolUseId": f"{name}-{id(args)}", "input": args}
    return [{"toolUse": use}], usage(tokens_in, tokens_out)


def agent(model: Model, plugin: Any, *tools: Any) -> Agent:
    return Agent(model=model, tools=list(tools), plugins=[plugin], callback_handler=None)


def ask(model: Model, plugin: Any, *tools: Any) -> str:
    return str(agent(model, plugin, *tools)("hello")).strip()


def tool_texts(asked: Agent) -> list[str]:
    return [
        block["toolResult"]["content"][0]["text"]
        for message in asked.messages
        for block in message["content"]
        if "toolResult" in block
    ]


@tool
def search(query: str) -> str:
    """Search."""
    return "no results"


@tool
def broken(query: str) -> str:
    """Fail to search."""
    raise OSError(f"index {query} is gone")


def test_five_failures_open_the_circuit_and_the_sixth_call_makes_no_request() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    model = ScriptedModel(*[ConnectionError("no route")] * 5, says("hi"))
    plugin = guard(panel=panel)
    for _ in range(5):
        with pytest.raises(ConnectionError):
            ask(model, plugin)
    with pytest.raises(Rejected, match="no route"):
        ask(model, plugin)
    assert model.requests == 5
    clock.advance(61)
    assert ask(model, plugin) == "hi"
    assert panel.breaker(PROVIDER).state == "closed"


def test_a_prompt_that_is_too_long_is_not_evidence() -> None:
    panel = Panel("memory:")
    model = ScriptedModel(ContextWindowOverflowException("too long"))
    for _ in range(6):
        with pytest.raises(ContextWindowOverflowException):
            ask(model, guard(panel=panel))
    assert panel.breaker(PROVIDER).totals.failed == 0


def test_the_fallback_answers_while_the_model_is_refused() -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    own = ScriptedModel(says("own"))
    assert ask(own, guard(panel=panel, fallback=SpareModel(says("other")))) == "other"
    assert own.requests == 0
    assert panel.breaker("provider/spare").totals.succeeded == 1


def test_a_refusal_can_be_the_answer_of_the_agent() -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    own = ScriptedModel(says("own"))
    assert "maintenance" in ask(own, guard(panel=panel, on_refusal="answer"))
    assert own.requests == 0


def test_a_broken_tool_is_refused_with_an_error_and_no_call() -> None:
    panel = Panel("memory:")
    plugin = guard(panel=panel, progress=False)
    for number in range(5):
        ask(ScriptedModel(calls("broken", query=f"q{number}"), says("done")), plugin, broken)
    assert panel.breaker("tool/broken").state == "open"
    asked = agent(ScriptedModel(calls("broken", query="again"), says("done")), plugin, broken)
    assert str(asked("hello")).strip() == "done"
    [text] = tool_texts(asked)
    assert "Switchgear refused tool 'broken'" in text
    assert panel.breaker("tool/broken").totals.failed == 5


def test_a_tool_loop_is_guided_and_stopped() -> None:
    model = ScriptedModel(calls("search", query="the same"))
    asked = agent(model, guard(panel=Panel("memory:"), on_refusal="answer"), search)
    answer = str(asked("hello"))
    assert model.requests < 20
    guided = [
        block["text"]
        for message in asked.messages
        if message["role"] == "user"
        for block in message["content"]
        if "text" in block
    ]
    assert any(text.startswith("[switchgear]") and "warns" in text for text in guided)
    assert answer.startswith("Switchgear refused this model call")
    assert "session/strands-" in answer


def test_a_stopped_run_does_not_stop_the_next_invocation() -> None:
    model = ScriptedModel(*[calls("search", query="the same")] * 20, says("new"))
    asked = agent(model, guard(panel=Panel("memory:"), on_refusal="answer"), search)
    assert "Switchgear refused" in str(asked("hello"))
    model.replies = [says("fine")]
    assert str(asked("again")).strip() == "fine"


def test_costs_add_up_and_sub_agents_share_the_budget() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    plugin = guard(panel=panel, budget="team")
    inner_plugin = guard()
    inner = agent(ScriptedModel(says("found", 1_000, 100), name="gpt-4o"), inner_plugin)

    @tool
    def research(question: str) -> str:
        """Ask another agent."""
        return str(inner(question))

    outer = ScriptedModel(
        calls("research", 2_000, 200, question="?"), says("done", 3_000, 300), name="gpt-4o"
    )
    asked = agent(outer, plugin, research)
    assert str(asked("hello")).strip() == "done"
    expected = (6_000 * 25 + 600 * 100) // 10  # gpt-4o: $2.50 and $10 for a million tokens
    assert panel.budgets.free_micros("team") == 1_000_000 - expected
    assert not panel.budgets.audit("team").problems
    assert plugin.run_of(asked).spent_micros == expected
    assert inner_plugin.run_of(inner).around is plugin.run_of(asked)


def test_an_agent_as_a_tool_is_a_sub_agent() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    plugin = guard(panel=panel, budget="team")
    inner = Agent(
        name="research",
        model=ScriptedModel(says("found", 1_000, 100), name="gpt-4o"),
        plugins=[plugin],
        callback_handler=None,
    )
    outer = ScriptedModel(calls("research", input="?"), says("done"), name="gpt-4o")
    asked = agent(outer, plugin, inner.as_tool())
    asked("hello")
    assert plugin.run_of(inner).around is plugin.run_of(asked)
    assert plugin.run_of(asked).spent_micros == 3_500


def test_tokens_of_the_cache_are_counted_once() -> None:
    panel = Panel("memory:")
    apart = {"inputTokens": 1_000, "outputTokens": 100, "totalTokens": 5_100}
    apart["cacheReadInputTokens"] = 4_000
    inside = {**apart, "inputTokens": 5_000}
    plugin = guard(panel=panel)
    costs = []
    for counts in (apart, inside):
        asked = agent(ScriptedModel(([{"text": "hi"}], counts), name="gpt-4o"), plugin)
        asked("hello")
        costs.append(plugin.run_of(asked).spent_micros)
    assert costs == [8_500, 8_500]  # 1,000 at $2.50, 4,000 at $1.25, 100 at $10 for a million


def test_an_exhausted_budget_refuses_before_the_request() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 3_000)
    model = ScriptedModel(says("hi", 1_000, 100), name="gpt-4o")
    plugin = guard(panel=panel, budget="team")
    ask(model, plugin)
    with pytest.raises(BudgetRefused, match="budget 'team' refuses"):
        ask(model, plugin)
    assert model.requests == 1


def test_a_stream_is_one_call() -> None:
    panel = Panel("memory:")

    async def words() -> list[str]:
        asked = agent(ScriptedModel(says("one two")), guard(panel=panel))
        return [event["data"] async for event in asked.stream_async("hello") if "data" in event]

    assert asyncio.run(words()) == ["one ", "two "]
    assert panel.breaker(PROVIDER).totals.succeeded == 1


class CutModel(ScriptedModel):
    """Its stream ends in the middle of the message: with an exception, or without one."""

    async def stream(self, *args: Any, **kwargs: Any) -> Any:
        self.requests += 1
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": "one "}}}
        if isinstance(reply := self.replies[0], BaseException):
            raise reply


@pytest.mark.parametrize("reply", [ConnectionError("cut"), says("one two")], ids=["raises", "ends"])
def test_a_stream_that_breaks_off_is_a_failure(reply: Any) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    with contextlib.suppress(ConnectionError):
        ask(CutModel(reply), guard(panel=panel, budget="team"))
    totals = panel.breaker("provider/cut").totals
    assert (totals.failed, totals.succeeded) == (1, 0)
    assert panel.budgets.tree("team")[0].node.held_micros == 0


def real_models(api: ModelApi) -> dict[str, Model]:
    """The real models, against the scripted API."""
    openai = {"base_url": f"{api.url}/v1", "api_key": "none", "max_retries": 0}
    client = genai.Client(api_key="none", http_options={"base_url": api.url})
    return {
        "chat": OpenAIModel(client_args=openai, model_id="gpt-4.1"),
        "responses": OpenAIResponsesModel(client_args=openai, model_id="gpt-4.1"),
        "gemini": GeminiModel(client=client, model_id="gemini-2.5-flash"),
    }


@pytest.mark.parametrize("name", ["chat", "responses", "gemini"])
def test_a_stream_that_ends_silently_is_a_failure(name: str) -> None:
    """Without its last events: Strands completes the message."""

    def judged(body: bytes) -> tuple[int, int]:
        panel = Panel("memory:")
        api.always = ApiReply(body=body, headers=LAST)
        ask(real_models(api)[name], guard(panel=panel))
        [view] = panel.circuits()
        totals = panel.breaker(view.name).totals
        return totals.succeeded, totals.failed

    cuts = CUT_STREAMS[name].cuts()
    with model_api() as api:
        found = [judged(body) for body, _ in cuts]
    assert found == [(1, 0) if is_whole else (0, 1) for _, is_whole in cuts]


@pytest.mark.parametrize("ended_by", ["cancel", "close"])
def test_cancellation_leaks_no_permit_and_no_reservation(ended_by: str) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    panel.budgets.open("team", 1_000_000)
    plugin = guard(panel=panel, budget="team")
    for _ in range(5):
        with pytest.raises(ConnectionError):
            ask(ScriptedModel(ConnectionError("down")), plugin)
    clock.advance(61)

    async def cancelled() -> None:
        slow = agent(ScriptedModel(says("late"), delay_s=600), plugin)
        running = asyncio.create_task(slow.invoke_async("hello"))
        for _ in range(600):
            if panel.budgets.tree("team")[0].node.held_micros:
                break
            await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def closed() -> None:
        stream = agent(ScriptedModel(says("one two")), plugin).stream_async("hello")
        async for event in stream:
            if "data" in event:
                break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(cancelled() if ended_by == "cancel" else closed())  # as the probe
    assert panel.budgets.tree("team")[0].node.held_micros == 0
    assert ask(ScriptedModel(says("back")), plugin) == "back"


def test_parallel_tool_calls_are_steps_and_agents_of_a_graph_share_the_budget() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    uses = [
        {"toolUse": {"name": "search", "toolUseId": f"call-{n}", "input": {"query": str(n)}}}
        for n in range(5)
    ]
    shared, builder = guard(panel=panel, budget="team"), GraphBuilder()
    for name, replies in (
        ("first", [(uses, usage(1_000, 100)), says("found", 1_000, 100)]),
        ("second", [says("done", 1_000, 100)]),
    ):
        model = ScriptedModel(*replies, name="gpt-4o")
        builder.add_node(
            Agent(model=model, tools=[search], plugins=[shared], callback_handler=None), name
        )
    builder.add_edge("first", "second")
    builder.set_entry_point("first")
    assert builder.build()("hello").status is Status.COMPLETED
    assert panel.breaker("tool/search").totals.succeeded == 5
    [root] = panel.budgets.tree("team")
    assert (root.node.held_micros, root.node.spent_micros) == (0, 3 * 3_500)
