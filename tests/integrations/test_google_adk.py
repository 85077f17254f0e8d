"""Google ADK, with the real package and a scripted `BaseLlm`."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google import genai
from google.adk.agents import LlmAgent
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.run_config import RunConfig
from google.adk.models import BaseLlm, Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from model_streams import CUT_STREAMS, EVENTS
from servers.model_api import Reply, model_api
from switchgear import Panel, Rejected
from switchgear.integrations.google_adk import guard
from switchgear.testing import FakeClock

pytestmark = pytest.mark.filterwarnings("default")
PROVIDER = "provider/fake"


class ScriptedLlm(BaseLlm):
    """Replies in order, the last one forever; counts the requests."""

    replies: list[Any]
    requests: int = 0
    delay_s: float = 0.0

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests += 1
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        await asyncio.sleep(self.delay_s)
        if isinstance(reply, BaseException):
            raise reply
        if stream and reply.content.parts[0].text:
            for word in reply.content.parts[0].text.split():
                yield says(word).model_copy(update={"partial": True})
        yield reply


def says(text: str, tokens_in: int = 0, tokens_out: int = 0) -> LlmResponse:
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=tokens_in, candidates_token_count=tokens_out
    )
    content = types.Content(role="model", parts=[types.Part(text=text)])
    return LlmResponse(content=content, usage_metadata=usage if tokens_in else None)


def calls(tool: str, tokens_in: int = 0, tokens_out: int = 0, **args: Any) -> LlmResponse:
    part = types.Part(function_call=types.FunctionCall(name=tool, args=args))
    content = types.Content(role="model", parts=[part])
    return says("", tokens_in, tokens_out).model_copy(update={"content": content})


def model(*replies: Any, name: str = "fake", delay_s: float = 0.0) -> ScriptedLlm:
    return ScriptedLlm(model=name, replies=list(replies), delay_s=delay_s)


async def events(
    agent: LlmAgent, plugin: Any, mode: StreamingMode = StreamingMode.NONE
) -> list[Any]:
    runner = InMemoryRunner(agent=agent, app_name="test", plugins=[plugin])
    session = await runner.session_service.create_session(app_name="test", user_id="me")
    found = runner.run_async(
        user_id="me",
        session_id=session.id,
        new_message=types.Content(role="user", parts=[types.Part(text="hello")]),
        run_config=RunConfig(streaming_mode=mode),
    )
    return [event async for event in found]


def run(scripted: BaseLlm, plugin: Any, *tools: Any, **more: Any) -> list[str]:
    agent = LlmAgent(name="helper", model=scripted, tools=list(tools))
    found = asyncio.run(events(agent, plugin, **more))
    parts = [part for event in found if event.content for part in event.content.parts or ()]
    return [part.text or str(part.function_response or "") for part in parts]


def test_five_failures_open_the_circuit_and_the_sixth_call_makes_no_request() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    scripted = model(*[ConnectionError("no route")] * 5, says("hi"))
    plugin = guard(panel=panel)
    for _ in range(5):
        with pytest.raises(ConnectionError):
            run(scripted, plugin)
    assert "no route" in run(scripted, plugin)[-1]
    with pytest.raises(RuntimeError, match="no route") as refused:
        run(scripted, guard(panel=panel, on_refusal="raise"))
    assert isinstance(refused.value.__cause__, Rejected)
    assert scripted.requests == 5
    clock.advance(61)
    assert run(scripted, plugin) == ["hi"]
    assert panel.breaker(PROVIDER).state == "closed"


def test_the_fallback_answers_while_the_model_is_refused() -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    own = model(says("own"))
    assert run(own, guard(panel=panel, fallback=model(says("other"), name="spare"))) == ["other"]
    assert own.requests == 0
    assert panel.breaker("provider/spare").totals.succeeded == 1


def test_a_refusal_can_be_the_answer_of_the_agent() -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    [text] = run(model(says("own")), guard(panel=panel))
    assert "maintenance" in text


def test_a_broken_tool_is_refused_with_an_error_and_no_call() -> None:
    searched = []

    def search(query: str) -> str:
        """Search."""
        searched.append(query)
        raise OSError(f"index {query} is gone")

    plugin = guard(panel=Panel("memory:"), progress=False)
    for number in range(5):
        with pytest.raises(OSError):
            run(model(calls("search", query=f"q{number}")), plugin, search)
    texts = run(model(calls("search", query="again"), says("done")), plugin, search)
    assert len(searched) == 5
    assert "tool/search" in texts[1]
    assert texts[-1] == "done"


def test_a_tool_loop_is_warned_and_stopped() -> None:
    def search(query: str) -> str:
        """Search."""
        return "no results"

    scripted = model(calls("search", query="the same"))
    texts = run(scripted, guard(panel=Panel("memory:")), search)
    assert scripted.requests < 20
    assert any("Switchgear warns" in text for text in texts)
    assert texts[-1].startswith("Switchgear refused this model call")
    assert "session/google-adk-" in texts[-1]


def test_costs_add_up_and_sub_agents_share_the_budget() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    inner = LlmAgent(name="research", model=model(says("found", 1_000, 100), name="gpt-4o"))
    outer = model(
        calls("research", 2_000, 200, request="?"), says("done", 3_000, 300), name="gpt-4o"
    )
    texts = run(outer, guard(panel=panel, budget="team"), AgentTool(inner))
    assert texts[-1] == "done"
    expected = (6_000 * 25 + 600 * 100) // 10  # gpt-4o: $2.50 and $10 for a million tokens
    assert panel.budgets.free_micros("team") == 1_000_000 - expected
    assert not panel.budgets.audit("team").problems


def test_an_exhausted_budget_refuses_before_the_request() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 3_000)
    scripted = model(says("hi", 1_000, 100), name="gpt-4o")
    plugin = guard(panel=panel, budget="team")
    run(scripted, plugin)
    assert "budget 'team' refuses" in run(scripted, plugin)[-1]
    assert scripted.requests == 1


def test_a_stream_is_one_call() -> None:
    panel = Panel("memory:")
    texts = run(model(says("one two")), guard(panel=panel), mode=StreamingMode.SSE)
    assert texts == ["one", "two", "one two"]
    assert panel.breaker(PROVIDER).totals.succeeded == 1


class CutLlm(ScriptedLlm):
    """Its stream ends in the middle: with an exception, or without one."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests += 1
        yield says("one").model_copy(update={"partial": True})
        if isinstance(self.replies[0], BaseException):
            raise self.replies[0]


@pytest.mark.parametrize("reply", [ConnectionError("cut"), says("one two")], ids=["raises", "ends"])
def test_a_stream_that_breaks_off_is_a_failure(reply: Any) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    scripted = CutLlm(model="fake", replies=[reply])
    with contextlib.suppress(ConnectionError):
        run(scripted, guard(panel=panel, budget="team"), mode=StreamingMode.SSE)
    totals = panel.breaker(PROVIDER).totals
    assert (totals.failed, totals.succeeded) == (1, 0)
    assert panel.budgets.tree("team")[0].node.held_micros == 0


def test_a_stream_of_gemini_that_ends_silently_is_a_failure() -> None:
    """Without the reason of its end: ADK completes the response."""

    def judged(body: bytes) -> tuple[int, int]:
        panel = Panel("memory:")
        api.always = Reply(body=body, headers={"content-type": EVENTS, "connection": "close"})
        run(gemini, guard(panel=panel), mode=StreamingMode.SSE)
        totals = panel.breaker("provider/google").totals
        return totals.succeeded, totals.failed

    cuts = CUT_STREAMS["gemini"].cuts()
    with model_api() as api:
        client = genai.Client(api_key="none", http_options={"base_url": api.url})
        gemini = Gemini(model="gemini-2.5-flash", client=client)
        found = [judged(body) for body, _ in cuts]
    assert found == [(1, 0) if is_whole else (0, 1) for _, is_whole in cuts]


def test_cancellation_leaks_no_permit_and_no_reservation() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    panel.budgets.open("team", 1_000_000)
    plugin = guard(panel=panel, budget="team")
    for _ in range(5):
        with pytest.raises(ConnectionError):
            run(model(ConnectionError("down")), plugin)
    clock.advance(61)

    async def cancelled() -> None:
        slow = LlmAgent(name="helper", model=model(says("late"), delay_s=600))
        running = asyncio.create_task(events(slow, plugin))
        for _ in range(600):
            if panel.budgets.tree("team")[0].node.held_micros:
                break
            await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0.1)

    asyncio.run(cancelled())  # as the probe
    assert panel.budgets.tree("team")[0].node.held_micros == 0
    assert run(model(says("back")), plugin) == ["back"]


def test_parallel_tool_calls_are_steps_and_transferred_agents_share_the_budget() -> None:
    def search(query: str) -> str:
        """Search."""
        return f"found {query}"

    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    parts = [
        types.Part(function_call=types.FunctionCall(name="search", args={"query": str(n)}))
        for n in range(5)
    ]
    together = says("", 1_000, 100).model_copy(
        update={"content": types.Content(role="model", parts=parts)}
    )
    transfer = calls("transfer_to_agent", 1_000, 100, agent_name="writer")
    writer = LlmAgent(name="writer", model=model(says("done", 1_000, 100), name="gpt-4o"))
    lead = model(together, transfer, name="gpt-4o")
    agent = LlmAgent(name="lead", model=lead, tools=[search], sub_agents=[writer])
    asyncio.run(events(agent, guard(panel=panel, budget="team")))
    assert panel.breaker("tool/search").totals.succeeded == 5
    [root] = panel.budgets.tree("team")
    assert (root.node.held_micros, root.node.spent_micros) == (0, 3 * 3_500)
