"""Microsoft Agent Framework, with the real package and a scripted `BaseChatClient`."""

import asyncio
from collections.abc import AsyncGenerator
from copy import deepcopy
from typing import Any

import pytest

pytest.importorskip("agent_framework")

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)
from agent_framework.exceptions import ChatClientInvalidRequestException
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from openai import AsyncOpenAI

from model_streams import CUT_STREAMS, EVENTS
from servers.model_api import ModelApi, Reply, model_api
from switchgear import Panel, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.agent_framework import guard
from switchgear.testing import FakeClock

pytestmark = pytest.mark.filterwarnings("default")
PROVIDER = "provider/scripted"
LAST = {"content-type": EVENTS, "connection": "close"}
"""Of a stream on a connection that no client keeps."""


class ScriptedClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Replies in order, the last one forever; counts the requests."""

    def __init__(self, *replies: Any, name: str = "fake", delay_s: float = 0.0) -> None:
        super().__init__()
        self.replies, self.model, self.delay_s = list(replies), name, delay_s
        self.requests = 0
        self.seen: list[Message] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        if not stream:
            return self._reply(messages)

        async def updates() -> AsyncGenerator[ChatResponseUpdate, None]:
            response = await self._reply(messages)
            contents = [
                Content.from_text(f"{word} ") if one.type == "text" else one
                for one in response.messages[0].contents
                for word in (one.text.split() if one.type == "text" and one.text else [""])
            ]
            if response.usage_details:
                contents.append(Content.from_usage(response.usage_details))
            for content in contents:
                yield ChatResponseUpdate(contents=[content], role="assistant")

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

    async def _reply(self, messages: Any) -> ChatResponse:
        self.requests += 1
        self.seen = list(messages)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        await asyncio.sleep(self.delay_s)
        if isinstance(reply, BaseException):
            raise reply
        assert isinstance(reply, ChatResponse)
        return deepcopy(reply)  # the framework adds its own messages to it


class SpareClient(ScriptedClient):
    """A client of another provider."""


def says(text: str, tokens_in: int = 0, tokens_out: int = 0) -> ChatResponse:
    return _response(Content.from_text(text), tokens_in, tokens_out)


def calls(name: str, tokens_in: int = 0, tokens_out: int = 0, **args: Any) -> ChatResponse:
    call = Content.from_function_call(call_id=f"{name}-{id(args)}", name=name, arguments=args)
    return _response(call, tokens_in, tokens_out)


def _response(content: Content, tokens_in: int, tokens_out: int) -> ChatResponse:
    usage: Any = {"input_token_count": tokens_in, "output_token_count": tokens_out}
    return ChatResponse(
        messages=[Message("assistant", [content])], usage_details=usage if tokens_in else None
    )


def ask(client: ScriptedClient, middleware: Any, *tools: Any) -> str:
    agent = Agent(client, tools=list(tools), middleware=middleware)
    return asyncio.run(_text(agent))


async def _text(agent: Any) -> str:
    return str((await agent.run("hello")).text)


def tool_texts(client: ScriptedClient) -> list[str]:
    return [
        str(one.result)
        for message in client.seen
        for one in message.contents
        if one.type == "function_result"
    ]


@tool(approval_mode="never_require")
def search(query: str) -> str:
    """Search."""
    return "no results"


@tool(approval_mode="never_require")
def broken(query: str) -> str:
    """Fail to search."""
    raise OSError(f"index {query} is gone")


def test_five_failures_open_the_circuit_and_the_sixth_call_makes_no_request() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    client = ScriptedClient(*[ConnectionError("no route")] * 5, says("hi"))
    middleware = guard(panel=panel)
    for _ in range(5):
        with pytest.raises(ConnectionError):
            ask(client, middleware)
    with pytest.raises(Rejected, match="no route"):
        ask(client, middleware)
    assert client.requests == 5
    clock.advance(61)
    assert ask(client, middleware) == "hi"
    assert panel.breaker(PROVIDER).state == "closed"


def test_a_bad_request_is_not_evidence() -> None:
    panel = Panel("memory:")
    client = ScriptedClient(ChatClientInvalidRequestException("too long"))
    for _ in range(6):
        with pytest.raises(ChatClientInvalidRequestException):
            ask(client, guard(panel=panel))
    assert panel.breaker(PROVIDER).totals.failed == 0


def test_the_fallback_answers_while_the_model_is_refused() -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    own = ScriptedClient(says("own"))
    spare = SpareClient(calls("search", query="x"), says("other"))
    assert ask(own, guard(panel=panel, fallback=spare), search) == "other"
    assert (own.requests, spare.requests) == (0, 2)
    assert "no results" in tool_texts(spare)[0]
    assert panel.breaker("provider/spare").totals.succeeded == 2
    assert panel.breaker("tool/search").totals.succeeded == 1


def test_a_refusal_can_be_the_answer_of_the_agent() -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    own = ScriptedClient(says("own"))
    middleware = guard(panel=panel, on_refusal="answer")
    assert "maintenance" in ask(own, middleware)
    assert "maintenance" in "".join(asyncio.run(streamed(Agent(own, middleware=middleware))))
    assert own.requests == 0


def test_a_broken_tool_is_refused_with_an_error_and_no_call() -> None:
    panel = Panel("memory:")
    middleware = guard(panel=panel, progress=False)
    for number in range(5):
        client = ScriptedClient(calls("broken", query=f"q{number}"), says("done"))
        assert ask(client, middleware, broken) == "done"
    assert panel.breaker("tool/broken").state == "open"
    client = ScriptedClient(calls("broken", query="again"), says("done"))
    assert ask(client, middleware, broken) == "done"
    [text] = tool_texts(client)
    assert "Switchgear refused tool 'broken'" in text
    assert panel.breaker("tool/broken").totals.failed == 5


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_loop_is_warned_and_stopped(stream: bool) -> None:
    client = ScriptedClient(calls("search", query="the same"))
    middleware = guard(panel=Panel("memory:"), on_refusal="answer")
    agent = Agent(client, tools=[search], middleware=middleware)
    client.function_invocation_configuration["max_iterations"] = 100
    answer = "".join(asyncio.run(streamed(agent))) if stream else asyncio.run(_text(agent))
    assert client.requests < 20
    assert any("Switchgear warns" in text for text in tool_texts(client))
    assert "Switchgear refused this model call" in answer
    assert "session/agent-framework-" in answer


def test_costs_add_up_and_sub_agents_share_the_budget() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    inner = Agent(
        ScriptedClient(says("found", 1_000, 100), name="gpt-4o"),
        name="research",
        middleware=guard(),  # the panel and the budget of the run around it
    )
    outer = ScriptedClient(
        calls("research", 2_000, 200, task="?"), says("done", 3_000, 300), name="gpt-4o"
    )
    assert ask(outer, guard(panel=panel, budget="team"), inner.as_tool()) == "done"
    expected = (6_000 * 25 + 600 * 100) // 10  # gpt-4o: $2.50 and $10 for a million tokens
    assert panel.budgets.free_micros("team") == 1_000_000 - expected
    assert not panel.budgets.audit("team").problems


def test_an_exhausted_budget_refuses_before_the_request() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 3_000)
    client = ScriptedClient(says("hi", 1_000, 100), name="gpt-4o")
    middleware = guard(panel=panel, budget="team")
    ask(client, middleware)
    with pytest.raises(BudgetRefused, match="budget 'team' refuses"):
        ask(client, middleware)
    assert client.requests == 1


async def streamed(agent: Any) -> list[str]:
    return [update.text async for update in agent.run("hello", stream=True) if update.text]


def test_a_stream_is_one_call_and_is_paid_for() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    client = ScriptedClient(says("one two", 1_000, 100), name="gpt-4o")
    agent = Agent(client, middleware=guard(panel=panel, budget="team"))
    assert asyncio.run(streamed(agent)) == ["one ", "two "]
    assert panel.breaker(PROVIDER).totals.succeeded == 1
    assert panel.budgets.free_micros("team") == 1_000_000 - 3_500


def test_a_stream_that_fails_is_a_failure() -> None:
    panel = Panel("memory:")
    agent = Agent(ScriptedClient(ConnectionError("cut")), middleware=guard(panel=panel))
    with pytest.raises(ConnectionError):
        asyncio.run(streamed(agent))
    assert panel.breaker(PROVIDER).totals.failed == 1


def real_clients(api: ModelApi) -> dict[str, Any]:
    """The real clients, against the scripted API."""
    openai = AsyncOpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0)
    return {
        "chat": OpenAIChatCompletionClient(model="gpt-4.1", async_client=openai),
        "responses": OpenAIChatClient(model="gpt-4.1", async_client=openai),
    }


@pytest.mark.parametrize("name", ["chat", "responses"])
@pytest.mark.parametrize("as_fallback", [False, True])
def test_a_stream_that_ends_silently_is_a_failure(name: str, as_fallback: bool) -> None:
    """Without its last events, and without an exception of the SDK."""

    async def judged(body: bytes) -> tuple[int, int]:
        panel = Panel("memory:")
        client, fallback = real_clients(api)[name], None
        if as_fallback:
            panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
            client, fallback = ScriptedClient(says("own")), client
        api.always = Reply(body=body, headers=LAST)
        await streamed(Agent(client, middleware=guard(panel=panel, fallback=fallback)))
        totals = panel.breaker("provider/openai").totals
        return totals.succeeded, totals.failed

    async def judge_all() -> list[tuple[int, int]]:
        return [await judged(body) for body, _ in cuts]

    cuts = CUT_STREAMS[name].cuts()
    with model_api() as api:
        found = asyncio.run(judge_all())
    assert found == [(1, 0) if is_whole else (0, 1) for _, is_whole in cuts]


def test_a_background_response_may_end_its_stream_early() -> None:
    panel = Panel("memory:")
    with model_api() as api:
        body = CUT_STREAMS["responses"].body(2)
        api.always = Reply(body=body, headers=LAST)
        client = real_clients(api)["responses"]
        agent = Agent(client, middleware=guard(panel=panel), default_options={"background": True})
        asyncio.run(streamed(agent))
    assert panel.breaker("provider/openai").totals.failed == 0


@pytest.mark.parametrize("ended_by", ["cancel", "close", "cancelled stream"])
def test_cancellation_leaks_no_permit_and_no_reservation(ended_by: str) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    panel.budgets.open("team", 1_000_000)
    middleware = guard(panel=panel, budget="team")
    for _ in range(5):
        with pytest.raises(ConnectionError):
            ask(ScriptedClient(ConnectionError("down")), middleware)
    clock.advance(61)

    async def cancelled() -> None:
        slow = Agent(ScriptedClient(says("late"), delay_s=600), middleware=middleware)
        work = streamed(slow) if ended_by == "cancelled stream" else _text(slow)
        running = asyncio.ensure_future(work)
        for _ in range(600):
            if panel.budgets.tree("team")[0].node.held_micros:
                break
            await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def closed() -> None:
        agent = Agent(ScriptedClient(says("one two")), middleware=middleware)
        stream: Any = agent.run("hello", stream=True)
        async for _ in stream:
            break
        await stream.close()

    asyncio.run(closed() if ended_by == "close" else cancelled())  # as the probe
    assert panel.budgets.tree("team")[0].node.held_micros == 0
    assert panel.breaker(PROVIDER).totals.succeeded == 0
    assert ask(ScriptedClient(says("back")), middleware) == "back"


def test_parallel_tool_calls_are_steps_and_a_copied_agent_is_guarded() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    calls_together = [
        Content.from_function_call(call_id=f"call-{n}", name="search", arguments={"query": str(n)})
        for n in range(5)
    ]
    usage: Any = {"input_token_count": 1_000, "output_token_count": 100}
    first = ChatResponse(messages=[Message("assistant", calls_together)], usage_details=usage)
    client = ScriptedClient(first, says("done", 1_000, 100), name="gpt-4o")
    agent = Agent(client, tools=[search], middleware=guard(panel=panel, budget="team"))
    assert asyncio.run(_text(deepcopy(agent))) == "done"
    assert panel.breaker("tool/search").totals.succeeded == 5
    [root] = panel.budgets.tree("team")
    assert (root.node.held_micros, root.node.spent_micros) == (0, 7_000)
