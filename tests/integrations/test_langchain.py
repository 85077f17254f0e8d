"""LangChain and LangGraph, with the real packages and their fake chat model."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

pytest.importorskip("langchain")

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
)
from langchain.agents.structured_output import StructuredOutputError, ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from model_streams import CHAT_COMPLETION, CUT_STREAMS, EVENTS
from servers.model_api import ModelApi, Reply, model_api
from switchgear import Panel, Phase, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.langchain import SwitchgearMiddleware, guard
from switchgear.testing import FakeClock

PROVIDER = "provider/fakemodel"
LAST = {"content-type": EVENTS, "connection": "close"}
"""Of a stream on a connection that no client keeps."""


class FakeModel(GenericFakeChatModel):
    """LangChain's fake; it accepts tools, and raises the exceptions among its messages."""

    messages: Iterator[Any]
    name_: str = "fake-model"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {"ls_provider": "fakemodel", "ls_model_name": self.name_, "ls_model_type": "chat"}


class Script:
    """Replies in order, the last one forever; counts the requests."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.requests = 0

    def __iter__(self) -> "Script":
        return self

    def __next__(self) -> Any:
        self.requests += 1
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, BaseException):
            raise reply
        return reply.model_copy() if isinstance(reply, AIMessage) else reply


def calling(name: str, text: str = "", **args: Any) -> AIMessage:
    return AIMessage(text, tool_calls=[{"name": name, "args": args, "id": "call-1"}])


def priced(text: str, tokens_in: int, tokens_out: int) -> AIMessage:
    return AIMessage(
        text,
        usage_metadata={
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    )


def agent_of(
    script: Script, middleware: Any, tools: Any = (), name: str = "fake-model", **more: Any
) -> Any:
    model = FakeModel(messages=iter(script), name_=name)
    return create_agent(model, list(tools), middleware=[middleware], **more)


def invoke(agent: Any, way: str, text: str = "hello", **more: Any) -> Any:
    question = {"messages": [HumanMessage(text)]}
    if way == "sync":
        return agent.invoke(question, **more)
    return asyncio.run(agent.ainvoke(question, **more))


BOTH = pytest.mark.parametrize("way", ["sync", "async"])


@BOTH
def test_five_failures_open_the_circuit_and_the_sixth_call_makes_no_request(way: Any) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    script = Script(*[ConnectionError("no route")] * 5, AIMessage("hi"))
    agent = agent_of(script, guard(panel=panel))
    for _ in range(5):
        with pytest.raises(ConnectionError):
            invoke(agent, way)
    with pytest.raises(Rejected, match="no route"):
        invoke(agent, way)
    assert script.requests == 5
    assert panel.breaker(PROVIDER).state is Phase.OPEN

    clock.advance(61)
    assert invoke(agent, way)["messages"][-1].text == "hi"
    assert panel.breaker(PROVIDER).state is Phase.CLOSED


@BOTH
def test_a_bad_request_is_not_evidence_and_retry_after_is_honoured(way: Any) -> None:
    class BadRequestError(Exception):
        status_code = 400

    class RateLimited(Exception):
        status_code = 429
        retry_after = 900

    panel = Panel("memory:", clock=FakeClock())
    agent = agent_of(Script(BadRequestError("bad")), guard(panel=panel))
    for _ in range(9):
        with pytest.raises(BadRequestError):
            invoke(agent, way)
    assert panel.breaker(PROVIDER).state is Phase.CLOSED
    agent = agent_of(Script(RateLimited("slow down")), guard(panel=panel))
    for _ in range(5):
        with pytest.raises(RateLimited):
            invoke(agent, way)
    with pytest.raises(Rejected) as refused:
        invoke(agent, way)
    assert refused.value.retry_after_s == pytest.approx(900)


@BOTH
def test_the_fallback_answers_while_the_model_is_refused(way: Any) -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    own, other = Script(AIMessage("own")), Script(AIMessage("other"))

    class Other(FakeModel):
        def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
            return {"ls_provider": "second", "ls_model_name": "b"}

    agent = agent_of(own, guard(panel=panel, fallback=Other(messages=iter(other))))
    assert invoke(agent, way)["messages"][-1].text == "other"
    assert own.requests == 0
    assert panel.view("provider/second") is not None
    panel.breaker("provider/second").hold_open(by="test", why="maintenance")
    with pytest.raises(Rejected, match="second"):
        invoke(agent, way)


@BOTH
def test_a_refusal_can_be_the_answer_of_the_agent(way: Any) -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    agent = agent_of(Script(AIMessage("own")), guard(panel=panel, on_refusal="answer"))
    answer = invoke(agent, way)["messages"][-1]
    assert isinstance(answer, AIMessage)
    assert "maintenance" in answer.text


@BOTH
def test_a_broken_tool_is_refused_with_a_tool_error_and_no_call(way: Any) -> None:
    calls = []

    @tool
    def search(query: str) -> str:
        """Search."""
        calls.append(query)
        raise OSError(f"index {query} is gone")

    panel = Panel("memory:")
    shapes = guard(panel=panel, progress=False)
    for number in range(5):
        with pytest.raises(OSError):
            invoke(agent_of(Script(calling("search", query=f"q{number}")), shapes, [search]), way)
    assert panel.breaker("tool/search").state is Phase.OPEN
    agent = agent_of(Script(calling("search", query="again"), AIMessage("done")), shapes, [search])
    messages = invoke(agent, way)["messages"]
    refused = next(one for one in messages if isinstance(one, ToolMessage))
    assert len(calls) == 5
    assert refused.status == "error"
    assert "tool/search" in refused.text
    assert messages[-1].text == "done"


@BOTH
def test_a_tool_loop_is_warned_and_stopped(way: Any) -> None:
    @tool
    def search(query: str) -> str:
        """Search."""
        return "no results"

    script = Script(calling("search", "I will search again.", query="the same"))
    panel = Panel("memory:")
    agent = agent_of(script, guard(panel=panel), [search], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": 200}
    with pytest.raises(Rejected, match="session/langchain-"):
        invoke(agent, way, config=config)
    assert script.requests < 20
    seen = [one.text for one in agent.get_state(config).values["messages"] if one.type == "tool"]
    assert any("Switchgear warns" in text for text in seen)
    [view] = panel.circuits("session/*")
    assert view.circuit.phase is Phase.OPEN

    # A new message of the user starts afresh.
    script.replies = [AIMessage("done")]
    assert invoke(agent, way, "another question", config=config)["messages"][-1].text == "done"


@BOTH
def test_a_tool_loop_can_end_with_an_answer(way: Any) -> None:
    @tool
    def search(query: str) -> str:
        """Search."""
        return "no results"

    shapes = guard(panel=Panel("memory:"), on_refusal="answer")
    agent = agent_of(Script(calling("search", query="the same")), shapes, [search])
    messages = invoke(agent, way, config={"recursion_limit": 200})["messages"]
    assert messages[-1].text.startswith("Switchgear refused this model call")


def test_an_agent_that_makes_progress_is_not_warned() -> None:
    topics = [
        *("apples", "bridges", "candles", "deserts", "engines", "forests", "glaciers", "harbours"),
        *("islands", "jungles", "kettles", "lanterns", "meadows", "novels", "oceans", "pyramids"),
    ]

    @tool
    def search(query: str) -> str:
        """Search."""
        return f"A page about {query}: {hash(query)} facts, none of them about anything else."

    replies = [calling("search", query=one) for one in topics]
    agent = agent_of(Script(*replies, AIMessage("done")), guard(panel=Panel("memory:")), [search])
    messages = invoke(agent, "sync", config={"recursion_limit": 200})["messages"]
    assert messages[-1].text == "done"
    assert not any("Switchgear" in one.text for one in messages)


@BOTH
def test_costs_add_up_and_sub_agents_share_the_budget(way: Any) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    inner = agent_of(Script(priced("found", 1_000, 100)), guard(panel=panel), name="gpt-4o")

    @tool
    def research(question: str) -> str:
        """Ask a sub-agent."""
        return str(inner.invoke({"messages": [HumanMessage(question)]})["messages"][-1].text)

    @tool
    async def aresearch(question: str) -> str:
        """Ask a sub-agent."""
        found = await inner.ainvoke({"messages": [HumanMessage(question)]})
        return str(found["messages"][-1].text)

    called = research if way == "sync" else aresearch
    asks = calling(called.name, question="what?").model_copy(
        update={"usage_metadata": priced("", 2_000, 200).usage_metadata}
    )
    outer_guard = guard(panel=panel, budget="team")
    outer = agent_of(Script(asks, priced("done", 3_000, 300)), outer_guard, [called], "gpt-4o")
    result = invoke(outer, way)
    # gpt-4o: $2.50 and $10 for a million tokens
    expected = (6_000 * 25 + 600 * 100) // 10
    run = outer_guard.run_of(result)
    assert run.spent_micros == expected
    assert panel.budgets.free_micros("team") == 1_000_000 - expected
    assert not panel.budgets.audit("team").problems


@BOTH
def test_an_exhausted_budget_refuses_before_the_request(way: Any) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 3_000)
    script = Script(priced("hi", 1_000, 100))
    agent = agent_of(script, guard(panel=panel, budget="team"), name="gpt-4o")
    invoke(agent, way)
    with pytest.raises(BudgetRefused):  # $0.0035 is gone, more than there was
        invoke(agent, way)
    assert script.requests == 1
    assert panel.breaker(PROVIDER).state is Phase.CLOSED


@BOTH
def test_streaming_works_and_a_stream_that_breaks_is_a_failure(way: Any) -> None:
    class Broken(FakeModel):
        def _stream(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            yield from list(super()._stream(*args, **kwargs))[:1]
            raise ConnectionError("cut off")

    async def tokens(agent: Any) -> list[str]:
        return [
            chunk.text
            async for chunk, _ in agent.astream({"messages": "hello"}, stream_mode="messages")
            if isinstance(chunk, AIMessageChunk)
        ]

    def stream(agent: Any) -> list[str]:
        if way == "async":
            return asyncio.run(tokens(agent))
        found = agent.stream({"messages": "hello"}, stream_mode="messages")
        return [chunk.text for chunk, _ in found if isinstance(chunk, AIMessageChunk)]

    panel = Panel("memory:")
    agent = agent_of(Script(AIMessage("one two three")), guard(panel=panel))
    chunks = stream(agent)
    assert len(chunks) > 1
    assert "".join(chunks) == "one two three"

    broken = Broken(messages=iter(Script(AIMessage("one two"))))
    agent = create_agent(broken, middleware=[guard(panel=panel)])
    for _ in range(5):
        with pytest.raises(ConnectionError):
            stream(agent)
    with pytest.raises(Rejected):
        stream(agent)


def real_models(api: ModelApi) -> dict[str, Any]:
    """The real chat models, against the scripted API."""
    settings: dict[str, Any] = {"api_key": "none", "max_retries": 0}
    openai: Any = partial(ChatOpenAI, model="gpt-4.1", base_url=f"{api.url}/v1", **settings)
    settings["model"] = "claude-sonnet-4-6"
    anthropic: Any = partial(ChatAnthropic, base_url=api.url, **settings)
    return {
        "chat": openai,
        "responses": partial(openai, use_responses_api=True),
        "anthropic": anthropic,
    }


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("way", ["stream", "astream", "invoke", "ainvoke"])
def test_a_stream_that_ends_silently_is_a_failure(name: str, way: str) -> None:
    """Without its last events, and without an exception of the SDK."""

    async def judged(body: bytes) -> tuple[int, int]:
        panel = Panel("memory:")
        model = real_models(api)[name](**({"streaming": True} if "invoke" in way else {}))
        agent: Any = create_agent(model, middleware=[guard(panel=panel)])
        api.always = Reply(body=body, headers=LAST)
        question = {"messages": [HumanMessage("hello")]}
        with suppress(ValueError):  # of LangChain, if there was no event at all
            if way == "stream":
                list(agent.stream(question, stream_mode="messages"))
            elif way == "astream":
                [_ async for _ in agent.astream(question, stream_mode="messages")]
            elif way == "invoke":
                agent.invoke(question)
            else:
                await agent.ainvoke(question)
        [view] = panel.circuits()
        totals = panel.breaker(view.name).totals
        return totals.succeeded, totals.failed

    async def judge_all() -> list[tuple[int, int]]:
        return [await judged(body) for body, _ in cuts]

    cuts = CUT_STREAMS[name].cuts()
    with model_api() as api:
        found = asyncio.run(judge_all())
    assert found == [(1, 0) if is_whole else (0, 1) for _, is_whole in cuts]


@BOTH
@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_a_whole_response_is_a_success_and_is_paid_for(name: str, way: str) -> None:
    with model_api() as api:
        api.always = Reply(headers={"connection": "close"})
        shared = guard(panel=Panel("memory:"))
        agent = create_agent(real_models(api)[name](), middleware=[shared])
        run = shared.run_of(invoke(agent, way))
    [view] = shared._guard.panel.circuits()
    assert shared._guard.panel.breaker(view.name).totals.succeeded == 1
    assert run.spent_micros > 0


def test_cancellation_leaks_no_permit_and_no_reservation() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    panel.budgets.open("team", 1_000_000)

    class Slow(FakeModel):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            started.set()
            await asyncio.sleep(600)

    async def cancelled() -> None:
        running = asyncio.create_task(slow.ainvoke({"messages": "hello"}))
        await asyncio.wait_for(started.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    fails = agent_of(Script(*[ConnectionError("down")] * 5), guard(panel=panel))
    for _ in range(5):
        with pytest.raises(ConnectionError):
            invoke(fails, "sync")
    clock.advance(61)
    started = asyncio.Event()
    model = Slow(messages=iter(Script(AIMessage("never"))))
    slow: Any = create_agent(model, middleware=[guard(panel=panel, budget="team")])
    asyncio.run(cancelled())  # as the probe
    answer = invoke(agent_of(Script(AIMessage("back")), guard(panel=panel)), "sync")
    assert answer["messages"][-1].text == "back"
    assert spent(panel)[0] == 0


def test_an_interrupt_of_langgraph_is_not_a_failure_of_the_tool() -> None:
    @tool
    def approve(what: str) -> str:
        """Ask a person."""
        return f"approved: {interrupt(what)}"

    panel = Panel("memory:")
    script = Script(calling("approve", what="deploy"), AIMessage("done"))
    agent = agent_of(script, guard(panel=panel), [approve], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    assert "__interrupt__" in invoke(agent, "sync", config=config)
    assert panel.breaker("tool/approve").totals.failed == 0
    assert agent.invoke(Command(resume="yes"), config)["messages"][-1].text == "done"


def test_a_retry_inside_the_guard_makes_no_requests_of_an_open_circuit() -> None:
    panel = Panel("memory:")
    script = Script(ConnectionError("down"))
    retries = ModelRetryMiddleware(
        max_retries=2, initial_delay=0.0, jitter=False, on_failure="error"
    )
    model = FakeModel(messages=iter(script))
    agent = create_agent(model, middleware=[guard(panel=panel), retries])
    for _ in range(5):
        with pytest.raises(ConnectionError):
            invoke(agent, "sync")
    with pytest.raises(Rejected):
        invoke(agent, "sync")
    assert script.requests == 15  # the guard counts a call with its retries once


def test_several_agents_share_one_guard_and_unknown_costs_are_counted() -> None:
    shared = guard(panel=Panel("memory:"))
    assert isinstance(shared, SwitchgearMiddleware)
    assert isinstance(shared, AgentMiddleware)
    for _ in range(2):
        state = invoke(agent_of(Script(AIMessage("hi")), shared), "sync")
        run = shared.run_of(state)
        assert (run.spent_micros, run.unpriced) == (0, 1)


def test_invalid_options_are_named() -> None:
    with pytest.raises(ValueError, match="on_refusal is 'ignore'"):
        guard(panel=Panel("memory:"), on_refusal="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"key is .\{modle\}."):
        guard(panel=Panel("memory:"), key="{modle}")


def spent(panel: Panel) -> tuple[int, int]:
    """The reserved and the spent amount of the budget "team"."""
    [root] = panel.budgets.tree("team")
    return root.node.held_micros, root.node.spent_micros


@BOTH
def test_the_agents_of_a_batch_share_circuit_and_budget(way: Any) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    agent = agent_of(
        Script(priced("hi", 1_000, 100)), guard(panel=panel, budget="team"), name="gpt-4o"
    )
    questions = [{"messages": [HumanMessage(str(number))]} for number in range(6)]
    answers = agent.batch(questions) if way == "sync" else asyncio.run(agent.abatch(questions))
    assert [answer["messages"][-1].text for answer in answers] == ["hi"] * 6
    assert spent(panel) == (0, 6 * 3_500)

    script = Script(ConnectionError("down"))
    agent = agent_of(script, guard(panel=panel, key="second"))
    more: dict[str, Any] = {"config": {"max_concurrency": 1}, "return_exceptions": True}
    one_by_one = (
        agent.batch if way == "sync" else lambda *a, **k: asyncio.run(agent.abatch(*a, **k))
    )
    errors = one_by_one(questions, **more)
    assert [type(error) for error in errors] == [ConnectionError] * 5 + [Rejected]
    assert script.requests == 5


@pytest.mark.parametrize("leaves", [False, True])
def test_the_event_stream_of_an_agent_is_one_paid_call(leaves: bool) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)

    async def read() -> list[str]:
        model = real_models(api)["chat"](stream_usage=True)
        agent: Any = create_agent(model, middleware=[guard(panel=panel, budget="team")])
        kinds = []
        stream = agent.astream_events({"messages": "hello"}, version="v2")
        async for event in stream:
            kinds.append(event["event"])
            if leaves and event["event"] == "on_chat_model_stream":
                await stream.aclose()
                break
        return kinds

    with model_api() as api:
        api.always = Reply(headers=LAST)
        kinds = asyncio.run(read())
    assert "on_chat_model_stream" in kinds
    totals = panel.breaker("provider/openai").totals
    held, paid = spent(panel)
    assert held == 0
    assert totals.failed == 0
    if not leaves:
        assert (totals.succeeded, paid) == (1, 1248)


class Answer(BaseModel):
    """A structured answer."""

    number: int


@BOTH
def test_an_answer_that_does_not_fit_the_schema_is_paid_for_and_is_not_a_failure(way: Any) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    middleware = guard(panel=panel, budget="team")
    with model_api() as api:
        api.always = Reply(headers={"connection": "close"})
        agent: Any = create_agent(
            real_models(api)["chat"](), middleware=[middleware], response_format=Answer
        )
        with pytest.raises(StructuredOutputError):
            invoke(agent, way)
        totals = panel.breaker("provider/openai").totals
        assert (totals.succeeded, totals.failed) == (0, 0)
        assert spent(panel) == (0, 1248)
        message = {"role": "assistant", "content": '{"number": 7}'}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = json.dumps({**CHAT_COMPLETION, "choices": [choice]}).encode()
        api.always = Reply(body=body, headers={"connection": "close"})
        assert invoke(agent, way)["structured_response"] == Answer(number=7)
    assert spent(panel) == (0, 2 * 1248)


def test_a_structured_answer_by_a_tool_is_paid_for() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    usage = priced("", 1_000, 100).usage_metadata
    answers = calling("Answer", number=7).model_copy(update={"usage_metadata": usage})
    middleware = guard(panel=panel, budget="team")
    agent = agent_of(
        Script(answers), middleware, name="gpt-4o", response_format=ToolStrategy(Answer)
    )
    assert invoke(agent, "sync")["structured_response"] == Answer(number=7)
    assert spent(panel) == (0, 3_500)


@BOTH
def test_parallel_tool_calls_are_steps_and_parallel_sub_agents_share_the_budget(way: Any) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    inner = agent_of(Script(priced("found", 1_000, 100)), guard(panel=panel), name="gpt-4o")

    @tool
    def research(question: str) -> str:
        """Ask a sub-agent."""
        return str(inner.invoke({"messages": [HumanMessage(question)]})["messages"][-1].text)

    asks = [
        {"name": "research", "args": {"question": str(number)}, "id": f"call-{number}"}
        for number in range(5)
    ]
    together = AIMessage("", tool_calls=asks, usage_metadata=priced("", 1_000, 100).usage_metadata)
    outer_guard = guard(panel=panel, budget="team")
    outer = agent_of(
        Script(together, priced("done", 1_000, 100)), outer_guard, [research], "gpt-4o"
    )
    result = invoke(outer, way)
    assert [one.text for one in result["messages"]][2:] == ["found"] * 5 + ["done"]
    assert panel.breaker("tool/research").totals.succeeded == 5
    assert outer_guard.run_of(result).spent_micros == 7 * 3_500
    assert spent(panel) == (0, 7 * 3_500)


def test_agents_in_a_custom_graph_share_guard_and_run() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    shared = guard(panel=panel, budget="team")
    graph: Any = StateGraph(MessagesState)
    for name in ("first", "second"):
        graph.add_node(name, agent_of(Script(priced(name, 1_000, 100)), shared, name="gpt-4o"))
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    result = graph.compile().invoke({"messages": [HumanMessage("hello")]})
    assert [one.text for one in result["messages"]] == ["hello", "first", "second"]
    assert shared.run_of(result).spent_micros == 2 * 3_500
    assert spent(panel) == (0, 2 * 3_500)


@BOTH
def test_the_fallbacks_of_langchain_answer_while_the_circuit_refuses(way: Any) -> None:
    panel = Panel("memory:")
    own, other = Script(ConnectionError("down")), Script(AIMessage("other"))
    fallbacks: Any = ModelFallbackMiddleware(FakeModel(messages=iter(other), name_="second"))
    agent = create_agent(
        FakeModel(messages=iter(own), name_="first"),
        middleware=[fallbacks, guard(panel=panel, key="model")],
    )
    for _ in range(8):
        assert invoke(agent, way)["messages"][-1].text == "other"
    assert own.requests == 5
    assert panel.breaker(f"{PROVIDER}/first").state is Phase.OPEN
    assert panel.breaker(f"{PROVIDER}/second").totals.succeeded == 8


def test_a_deep_copy_of_a_guard_shares_its_circuits() -> None:
    panel = Panel("memory:")
    copied = deepcopy(guard(panel=panel))
    invoke(agent_of(Script(AIMessage("hi")), copied), "sync")
    assert panel.breaker(PROVIDER).totals.succeeded == 1
