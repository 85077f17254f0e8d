"""Pydantic AI, with the real package and its FunctionModel."""

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from anthropic import AsyncAnthropic
from groq import AsyncGroq
from openai import AsyncOpenAI
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.capabilities import ModelFallback
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.groq import GroqModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.groq import GroqProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from model_streams import CUT_STREAMS, EVENTS, chat_events, responses_events, sse
from servers.model_api import ModelApi, Reply, model_api
from switchgear import Panel, Phase, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.pydantic_ai import ModelRejected, guard
from switchgear.testing import FakeClock

PROVIDER = "provider/function"
LAST = {"content-type": EVENTS, "connection": "close"}
"""Of a stream on a connection that no client keeps."""


class Script:
    """Replies in order, the last one forever; counts the requests."""

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


def test_errors_of_the_provider_are_evidence_and_those_of_the_request_are_not() -> None:
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


def test_a_call_that_the_model_must_correct_is_not_evidence_against_the_tool() -> None:
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


def real_models(api: ModelApi) -> dict[str, Model]:
    """The real models, against the scripted API."""
    openai = OpenAIProvider(
        openai_client=AsyncOpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0)
    )
    claude = AsyncAnthropic(base_url=api.url, api_key="none", max_retries=0)
    google = GoogleProvider(api_key="none", base_url=api.url)
    groq = GroqProvider(groq_client=AsyncGroq(base_url=api.url, api_key="none", max_retries=0))
    compatible = OllamaProvider(base_url=f"{api.url}/v1", api_key="none")
    return {
        "chat": OpenAIChatModel("gpt-4.1", provider=openai),
        "responses": OpenAIResponsesModel("gpt-4.1", provider=openai),
        "anthropic": AnthropicModel(
            "claude-sonnet-4-6", provider=AnthropicProvider(anthropic_client=claude)
        ),
        "compatible": OpenAIChatModel("gpt-4.1", provider=compatible),
        "groq": GroqModel("llama-3.3-70b-versatile", provider=groq),
        "gemini": GoogleModel("gemini-2.5-flash", provider=google),
    }


async def read_to_the_end(agent: Any) -> None:
    async with agent.run_stream("hello") as result:
        async for _ in result.stream_text(debounce_by=None):
            pass


async def read_events(agent: Any) -> None:
    async def handler(ctx: Any, events: Any) -> None:
        async for _ in events:
            pass

    await agent.run("hello", event_stream_handler=handler)


def judged(panel: Panel) -> tuple[int, int]:
    """The successes and failures of the only circuit."""
    [view] = panel.circuits()
    totals = panel.breaker(view.name).totals
    return totals.succeeded, totals.failed


MODELS = ["anthropic", "chat", "compatible", "gemini", "groq", "responses"]
"""The real models; those that are no key of CUT_STREAMS have streams of chat completions."""


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("read", [read_to_the_end, read_events])
def test_a_stream_that_ends_silently_is_a_failure(name: str, read: Any) -> None:
    """Without its last events, and without an exception of the SDK."""

    async def judged_all() -> list[tuple[int, int]]:
        found = []
        for body, _ in cuts:
            panel = Panel("memory:")
            agent = Agent(real_models(api)[name], capabilities=[guard(panel=panel)], retries=0)
            api.always = Reply(body=body, headers=LAST)
            with suppress(UnexpectedModelBehavior):  # of Pydantic AI, if there was no text
                await read(agent)
            found.append(judged(panel))
        return found

    cuts = CUT_STREAMS.get(name, CUT_STREAMS["chat"]).cuts()
    with model_api() as api:
        found = asyncio.run(judged_all())
    assert found == [(1, 0) if is_whole else (0, 1) for _, is_whole in cuts]


@pytest.fixture
def own_loop() -> Iterator[None]:
    """The loop that blocking calls of Pydantic AI run in; it does not close one of its own."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def test_an_invalid_tool_call_that_groq_reports_is_not_a_failure() -> None:
    """Pydantic AI ends such a stream without a reason, and lets the model correct the call."""
    generated = json.dumps({"name": "search", "arguments": {"query": 1}})
    error = {
        "message": "Failed to call a function.",
        "code": "tool_use_failed",
        "type": "invalid_request_error",
        "failed_generation": generated,
    }
    start = {
        **chat_events()[0],
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "I search."}}],
    }

    async def read(api: ModelApi) -> None:
        agent = Agent(real_models(api)["groq"], capabilities=[guard(panel=panel)], retries=0)
        api.always = Reply(body=body, headers=LAST)
        with suppress(UnexpectedModelBehavior):
            await read_events(agent)

    body = sse(start) + b"event: error\n" + sse({"error": error})
    panel = Panel("memory:")
    with model_api() as api:
        asyncio.run(read(api))
    assert judged(panel) == (1, 0)


@pytest.mark.usefixtures("own_loop")
def test_a_blocking_stream_that_ends_silently_is_a_failure() -> None:
    panel = Panel("memory:")
    with model_api() as api:
        api.always = Reply(body=CUT_STREAMS["responses"].body(4), headers=LAST)
        agent = Agent(real_models(api)["responses"], capabilities=[guard(panel=panel)])
        assert list(agent.run_stream_sync("hello").stream_text(debounce_by=None))
    assert judged(panel) == (0, 1)


def test_a_stream_whose_reader_stops_is_not_a_failure() -> None:
    async def leave(api: ModelApi, name: str) -> None:
        agent = Agent(real_models(api)[name], capabilities=[guard(panel=panel)])
        async with agent.run_stream("hello") as result:
            async for _ in result.stream_text(debounce_by=None):
                break

    for name in CUT_STREAMS:
        panel = Panel("memory:")
        with model_api() as api:
            api.always = Reply(body=CUT_STREAMS[name].body(99), headers=LAST)
            asyncio.run(leave(api, name))
        assert judged(panel)[1] == 0, name


def test_a_response_that_failed_is_a_failure() -> None:
    panel = Panel("memory:")
    with model_api() as api:
        body = sse(*responses_events("failed"), named=True)
        api.always = Reply(body=body, headers=LAST)
        agent = Agent(real_models(api)["responses"], capabilities=[guard(panel=panel)])
        asyncio.run(read_to_the_end(agent))
    assert judged(panel) == (0, 1)


@pytest.mark.parametrize("name", list(CUT_STREAMS))
def test_a_whole_response_is_a_success_and_is_paid_for(name: str) -> None:
    panel = Panel("memory:")
    with model_api() as api:
        api.always = Reply(headers={"connection": "close"})
        capability = guard(panel=panel)
        result = run(Agent(real_models(api)[name], capabilities=[capability]))
    assert judged(panel) == (1, 0)
    assert capability.run_of(result.run_id).spent_micros > 0


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


@pytest.mark.parametrize("kind", ["FallbackModel", "ModelFallback"])
@pytest.mark.parametrize("streams", [False, True])
def test_the_fallbacks_of_pydantic_ai_answer_while_the_circuit_refuses(
    kind: str, streams: bool
) -> None:
    requests = []

    def model(name: str, *, is_down: bool) -> FunctionModel:
        def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            requests.append(name)
            if is_down:
                raise ModelHTTPError(503, name)
            return ModelResponse(parts=[TextPart(name)])

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
            yield reply(messages, info).text or ""

        return FunctionModel(reply, stream_function=stream, model_name=name)

    panel = Panel("memory:")
    capabilities: list[Any] = [guard(panel=panel, key="model")]
    first, second = model("first", is_down=True), model("second", is_down=False)
    if kind == "FallbackModel":
        agent = Agent(FallbackModel(first, second), capabilities=capabilities)
    else:
        agent = Agent(first, capabilities=[*capabilities, ModelFallback(second)])

    async def streamed() -> str:
        async with agent.run_stream("hello") as result:
            return await result.get_output()

    for _ in range(8):
        assert (asyncio.run(streamed()) if streams else run(agent).output) == "second"
    assert requests.count("first") == 5
    assert panel.breaker(f"{PROVIDER}/first").state is Phase.OPEN
    assert panel.breaker(f"{PROVIDER}/second").totals.succeeded == 8


def read(agent: Any, *, streams: bool) -> str:
    async def streamed() -> str:
        async with agent.run_stream("hello") as result:
            return str(await result.get_output())

    return asyncio.run(streamed()) if streams else str(run(agent).output)


def streaming(script: Script, name: str) -> FunctionModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield script(messages, info).text or ""

    return FunctionModel(script, stream_function=stream, model_name=name)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_a_fallback_model_is_refused_if_all_its_models_are(streams: bool, nested: bool) -> None:
    panel = Panel("memory:")
    script, spare = Script("own"), Script("spare")
    a, b, c = (streaming(script, name) for name in "abc")
    model = FallbackModel(a, FallbackModel(b, c) if nested else b, c)

    def agent(**options: Any) -> Any:
        return Agent(model, capabilities=[guard(panel=panel, key="model", **options)])

    fallback = streaming(spare, "spare")
    for name in "ab":
        panel.breaker(f"{PROVIDER}/{name}").hold_open(by="test", why=f"maintenance of {name}")
    for options in ({}, {"fallback": fallback}, {"on_refusal": "answer"}):
        assert read(agent(**options), streams=streams) == "own"
    assert spare.requests == 0
    panel.breaker(f"{PROVIDER}/c").hold_open(by="test", why="maintenance of c")
    with pytest.raises(ModelRejected, match="maintenance of a"):
        read(agent(), streams=streams)
    assert "maintenance of a" in read(agent(on_refusal="answer"), streams=streams)
    assert read(agent(fallback=fallback), streams=streams) == "spare"
    assert (script.requests, spare.requests) == (3, 1)


def test_a_chain_of_fallbacks_that_all_refuse_is_a_refusal() -> None:
    panel = Panel("memory:")
    for name in "ab":
        panel.breaker(f"{PROVIDER}/{name}").hold_open(by="test", why=f"maintenance of {name}")
    a, b = (Script("own").model(name) for name in "ab")
    guarded = guard(panel=panel, key="model")
    with pytest.raises(ModelRejected, match="maintenance of a"):
        run(Agent(a, capabilities=[guarded, ModelFallback(b)]))


def test_a_fallback_model_with_another_error_raises_all_errors() -> None:
    panel = Panel("memory:")
    panel.breaker(f"{PROVIDER}/a").hold_open(by="test", why="maintenance")
    down = Script(ModelHTTPError(503, "b"))
    model = FallbackModel(Script("own").model("a"), down.model("b"))
    with pytest.raises(FallbackExceptionGroup) as raised:
        run(Agent(model, capabilities=[guard(panel=panel, key="model")]))
    assert [type(error) for error in raised.value.exceptions] == [ModelRejected, ModelHTTPError]


def test_a_refused_model_is_both_a_refusal_and_an_error_of_the_model() -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    agent = Agent(Script("own").model("fake"), capabilities=[guard(panel=panel)])
    with pytest.raises(ModelRejected, match="maintenance") as refused:
        run(agent)
    assert isinstance(refused.value, Rejected)
    copied = pickle.loads(pickle.dumps(refused.value))
    assert (copied.model_name, copied.circuit) == ("fake", PROVIDER)
    assert str(copied) == str(refused.value)


def test_a_run_that_is_stopped_is_not_continued_by_a_fallback() -> None:
    spare = Script("spare")
    looping = FallbackModel(Script(calling("search", query="x")).model(), spare.model("spare"))
    agent = Agent(looping, capabilities=[guard(panel=Panel("memory:"))])

    @agent.tool_plain
    def search(query: str) -> str:
        return "no results"

    with pytest.raises(Rejected, match="no progress"):
        run(agent)
    assert spare.requests == 0


@pytest.mark.parametrize("leaves", [False, True])
def test_a_run_can_be_iterated_and_abandoned(leaves: bool) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    usage = RequestUsage(input_tokens=1_000, output_tokens=100)
    script = Script(calling("search", usage=usage, query="x"), priced("done", 1_000, 100))
    agent = Agent(script.model("gpt-4o"), capabilities=[guard(panel=panel, budget="team")])

    @agent.tool_plain
    def search(query: str) -> str:
        return "found"

    async def iterate() -> None:
        async with agent.iter("hello") as nodes:
            async for node in nodes:
                if leaves and Agent.is_call_tools_node(node):
                    break
        assert leaves or (nodes.result is not None and nodes.result.output == "done")

    asyncio.run(iterate())
    [root] = panel.budgets.tree("team")
    assert (root.node.held_micros, root.node.spent_micros) == (0, 3_500 if leaves else 7_000)


def test_parallel_tool_calls_are_steps_and_parallel_sub_agents_share_the_budget() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    inner = Agent(
        Script(priced("in", 1_000, 100)).model("gpt-4o"), capabilities=[guard(panel=panel)]
    )
    asks = ModelResponse(
        parts=[ToolCallPart("ask", {"question": str(number)}) for number in range(5)],
        usage=RequestUsage(input_tokens=1_000, output_tokens=100),
    )
    script = Script(asks, priced("done", 1_000, 100))
    agent = Agent(script.model("gpt-4o"), capabilities=[guard(panel=panel, budget="team")])

    @agent.tool_plain
    async def ask(question: str) -> str:
        return str((await inner.run(question)).output)

    assert run(agent).output == "done"
    assert panel.breaker("tool/ask").totals.succeeded == 5
    [root] = panel.budgets.tree("team")
    assert (root.node.held_micros, root.node.spent_micros) == (0, 7 * 3_500)


def test_the_wait_of_a_provider_is_honoured() -> None:
    panel = Panel("memory:", clock=FakeClock())
    with model_api() as api:
        api.always = Reply(429, {"retry-after": "240", "connection": "close"})
        agent = Agent(real_models(api)["chat"], capabilities=[guard(panel=panel)])
        failing(agent, ModelHTTPError)
        with pytest.raises(Rejected) as refused:
            run(agent)
        assert len(api.received) == 5
    assert refused.value.retry_after_s == pytest.approx(240, abs=5)
