"""OpenAI Agents SDK, with the real package and its ScriptedModel."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    ModelBehaviorError,
    ModelResponse,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunState,
    Usage,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    trace,
)
from agents.models.interface import Model, ModelProvider
from agents.testing import ScriptedModel, assistant_message, function_call
from openai import AsyncOpenAI

from model_streams import CUT_STREAMS, EVENTS
from servers.model_api import Reply, model_api
from switchgear import Panel, Phase, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.openai_agents import guard
from switchgear.testing import FakeClock

PROVIDER = "provider/scriptedmodel"
LAST = {"content-type": EVENTS, "connection": "close"}
QUIET = RunConfig(tracing_disabled=True)


class Named(ScriptedModel):
    """A scripted model with a name, as those of the SDK have."""

    def __init__(self, model: str, *steps: Any) -> None:
        super().__init__(steps)
        self.model = model


def calls(tool: str, number: int, **arguments: Any) -> list[Any]:
    return [function_call(tool, arguments, call_id=f"call-{number}")]


def says(text: str) -> list[Any]:
    return [assistant_message(text)]


def priced(output: list[Any], tokens_in: int, tokens_out: int) -> ModelResponse:
    usage = Usage(1, tokens_in, output_tokens=tokens_out, total_tokens=tokens_in + tokens_out)
    return ModelResponse(output=output, usage=usage, response_id=None)


def run(agent: Any, **more: Any) -> Any:
    return asyncio.run(Runner.run(agent, "hello", run_config=QUIET, **more))


def streamed(agent: Any) -> Any:
    async def consume() -> Any:
        result = Runner.run_streamed(agent, "hello", run_config=QUIET)
        async for _ in result.stream_events():
            pass
        return result

    return asyncio.run(consume())


@pytest.mark.parametrize("way", [run, streamed])
def test_five_failures_open_the_circuit_and_the_sixth_call_makes_no_request(way: Any) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    model = ScriptedModel([*[ConnectionError("no route")] * 5, says("hi")])
    agent = guard(Agent("helper", model=model), panel=panel)
    for _ in range(5):
        with pytest.raises(ConnectionError):
            way(agent)
    with pytest.raises(Rejected, match="no route"):
        way(agent)
    assert len(model.calls) == 5
    clock.advance(61)
    assert way(agent).final_output == "hi"
    assert panel.breaker(PROVIDER).state is Phase.CLOSED


@pytest.mark.parametrize("way", [run, streamed])
def test_the_fallback_answers_while_the_model_is_refused(way: Any) -> None:
    panel = Panel("memory:")
    own, other = ScriptedModel([says("own")]), Named("spare/small", says("other"))
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    agent = guard(Agent("helper", model=own), panel=panel, fallback=other)
    assert way(agent).final_output == "other"
    assert not own.calls
    assert panel.view("provider/spare") is not None


@pytest.mark.parametrize("way", [run, streamed])
def test_a_refusal_can_be_the_answer_of_the_agent(way: Any) -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    model = ScriptedModel([says("own")])
    agent = guard(Agent("helper", model=model), panel=panel, on_refusal="answer")
    assert "maintenance" in way(agent).final_output


@pytest.mark.parametrize("custom", [False, True])
def test_a_broken_tool_is_refused_with_a_result_for_the_model_and_no_call(custom: Any) -> None:
    searched = []

    def search(query: str) -> str:
        """Search."""
        searched.append(query)
        raise OSError(f"index {query} is gone")

    tool = function_tool(search)
    if custom:
        tool = function_tool(search, failure_error_function=lambda context, error: f"oh: {error}")
    panel = Panel("memory:")
    steps = [calls("search", number, query=f"q{number}") for number in range(6)]
    agent = Agent("helper", model=ScriptedModel([*steps, says("done")]), tools=[tool])
    result = run(guard(agent, panel=panel, progress=False))
    assert result.final_output == "done"
    assert len(searched) == 5
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert "tool/search" in outputs[-1]
    assert ("oh:" in outputs[0]) is custom
    assert panel.breaker("tool/search").state is Phase.OPEN


def test_a_tool_that_raises_counts_and_raises() -> None:
    @function_tool(failure_error_function=None)
    def search(query: str) -> str:
        """Search."""
        raise OSError("gone")

    panel = Panel("memory:")
    model = ScriptedModel([calls("search", 1, query="a")])
    with pytest.raises(Exception, match="gone"):
        run(guard(Agent("helper", model=model, tools=[search]), panel=panel))
    assert panel.breaker("tool/search").totals.failed == 1


@pytest.mark.parametrize("answers", [False, True])
def test_a_tool_loop_is_warned_and_stopped(answers: Any) -> None:
    @function_tool
    def search(query: str) -> str:
        """Search."""
        return "no results"

    model = ScriptedModel([calls("search", number, query="the same") for number in range(40)])
    agent = Agent("helper", model=model, tools=[search])
    guarded = guard(agent, panel=Panel("memory:"), on_refusal="answer" if answers else "raise")
    if answers:
        result = run(guarded, max_turns=60)
        assert result.final_output.startswith("Switchgear refused this model call")
        outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
        assert any("Switchgear warns" in output for output in outputs)
    else:
        with pytest.raises(Rejected, match="session/openai-agents-"):
            run(guarded, max_turns=60)
    assert len(model.calls) < 20


def test_costs_add_up_and_sub_agents_and_handoffs_share_the_budget() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    inner = Agent("researcher", model=Named("gpt-4o", priced(says("found"), 1_000, 100)))
    last = Agent("writer", model=Named("gpt-4o", priced(says("done"), 3_000, 300)))
    model = Named(
        "gpt-4o",
        priced(calls("ask", 1, input="what?"), 1_000, 100),
        priced(calls("transfer_to_writer", 2), 1_000, 100),
    )
    tool = guard(inner, panel=panel).as_tool("ask", "Ask.", run_config=QUIET)
    outer = guard(
        Agent("lead", model=model, tools=[tool], handoffs=[last]), panel=panel, budget="team"
    )
    result = run(outer)
    assert result.final_output == "done"
    assert result.last_agent.name == "writer"
    expected = (6_000 * 25 + 600 * 100) // 10  # gpt-4o: $2.50 and $10 for a million tokens
    assert panel.budgets.free_micros("team") == 1_000_000 - expected
    assert not panel.budgets.audit("team").problems


def test_an_exhausted_budget_refuses_before_the_request() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 3_000)
    model = Named("gpt-4o", priced(says("hi"), 1_000, 100), says("more"))
    agent = guard(Agent("helper", model=model), panel=panel, budget="team")
    run(agent)
    with pytest.raises(BudgetRefused):
        run(agent)
    assert len(model.calls) == 1


def test_a_stream_that_ends_too_early_is_a_failure() -> None:
    class Truncated(ScriptedModel):
        async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async for event in super().stream_response(*args, **kwargs):
                if event.type != "response.completed":
                    yield event

    panel = Panel("memory:")
    model = Truncated([says("one two")])
    with pytest.raises(Exception, match="final response"):
        streamed(guard(Agent("helper", model=model), panel=panel))
    assert panel.breaker("provider/truncated").totals.failed == 1


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_a_stream_that_ends_silently_is_a_failure(name: str) -> None:
    """Without its last events: the SDK completes the response of a chat that was cut off."""
    kind = OpenAIChatCompletionsModel if name == "chat" else OpenAIResponsesModel

    async def judged(body: bytes) -> tuple[int, int]:
        panel = Panel("memory:")
        api.always = Reply(body=body, headers=LAST)
        async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as client:
            agent = guard(Agent("helper", model=kind("gpt-4.1", client)), panel=panel)
            with suppress(ModelBehaviorError, RuntimeError):  # of the SDK, if there was no text
                async for _ in Runner.run_streamed(
                    agent, "hello", run_config=QUIET
                ).stream_events():
                    pass
        totals = panel.breaker("provider/openai").totals
        return totals.succeeded, totals.failed

    cuts = CUT_STREAMS[name].cuts()
    with model_api() as api:
        found = [asyncio.run(judged(body)) for body, _ in cuts]
    assert found == [(1, 0) if is_whole else (0, 1) for _, is_whole in cuts]


def test_models_by_name_come_from_a_provider_and_providers_can_be_guarded() -> None:
    model = ScriptedModel([says("one"), says("two")])

    class Provider(ModelProvider):
        def get_model(self, model_name: str | None) -> Model:
            assert model_name == "some-model"
            return model

    panel = Panel("memory:")
    agent = Agent("helper", model="some-model")
    assert run(guard(agent, panel=panel, model_provider=Provider())).final_output == "one"
    config = RunConfig(model_provider=guard(Provider(), panel=panel), tracing_disabled=True)
    result = asyncio.run(Runner.run(agent, "hello", run_config=config))
    assert result.final_output == "two"
    assert panel.breaker(PROVIDER).totals.succeeded == 2


def test_every_run_is_evaluated_separately_unless_one_trace_contains_them() -> None:
    @function_tool
    def search(query: str) -> str:
        """Search."""
        return "no results"

    steps = [
        step for number in range(40) for step in (calls("search", number, query="x"), says("-"))
    ]
    panel = Panel("memory:")
    agent = guard(Agent("helper", model=ScriptedModel(steps), tools=[search]), panel=panel)
    for _ in range(10):
        run(agent)  # one search each
    assert len(list(panel.circuits("session/*"))) == 10

    async def all_in_one() -> None:
        with trace("a workflow", disabled=True):
            for _ in range(25):  # a reply between two equal calls: they are not in a row
                await Runner.run(agent, "hello")

    with pytest.raises(Rejected):
        asyncio.run(all_in_one())


def test_cancellation_leaks_no_permit_and_no_reservation() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    panel.budgets.open("team", 1_000_000)
    model = ScriptedModel([*[ConnectionError("down")] * 5, says("back")])
    agent = guard(Agent("helper", model=model), panel=panel)
    for _ in range(5):
        with pytest.raises(ConnectionError):
            run(agent)
    clock.advance(61)

    class ScriptedSlow(ScriptedModel):
        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            started.set()
            await asyncio.sleep(600)
            raise AssertionError

    async def cancelled() -> None:
        slow = guard(Agent("slow", model=ScriptedSlow()), panel=panel, budget="team", key=PROVIDER)
        running = asyncio.create_task(Runner.run(slow, "hello", run_config=QUIET))
        await asyncio.wait_for(started.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    started = asyncio.Event()
    asyncio.run(cancelled())  # as the probe
    assert run(agent).final_output == "back"
    [root] = panel.budgets.tree("team")
    assert root.node.held_micros == 0


def spent(panel: Panel) -> tuple[int, int]:
    """The reserved and the spent amount of the budget "team"."""
    [root] = panel.budgets.tree("team")
    return root.node.held_micros, root.node.spent_micros


@pytest.mark.parametrize("wrapped", [False, True])
def test_agents_that_hand_over_to_each_other_are_stopped(wrapped: bool) -> None:
    def passes_on(name: str) -> Named:
        steps = [
            [function_call(f"transfer_to_{name}", {}, call_id=f"{name}-{n}")] for n in range(40)
        ]
        return Named("gpt-4o", *steps)

    first, second = Agent("one", model=passes_on("two")), Agent("two", model=passes_on("one"))
    first.handoffs = [handoff(second)] if wrapped else [second]
    second.handoffs = [first]
    with pytest.raises(Rejected, match="no progress"):
        run(guard(first, panel=Panel("memory:")), max_turns=60)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_run_is_continued_from_its_saved_state_after_a_handoff(wrapped: bool) -> None:
    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    panel = Panel("memory:")
    clerk_model = Named("gpt-4o", calls("pay", 2, amount=7), says("done"))
    clerk = Agent("clerk", model=clerk_model, tools=[pay])
    desk = Agent("desk", model=Named("gpt-4o", calls("transfer_to_clerk", 1)))
    desk.handoffs = [handoff(clerk)] if wrapped else [clerk]
    guarded = guard(desk, panel=panel)
    clerk.handoffs = [desk]  # a ring

    async def approved() -> Any:
        saved = (await Runner.run(guarded, "hello", run_config=QUIET)).to_state().to_string()
        state: Any = await RunState.from_string(guarded, saved)
        [asked] = state.get_interruptions()
        state.approve(asked)
        return await Runner.run(guarded, state, run_config=QUIET)

    assert asyncio.run(approved()).final_output == "done"
    assert panel.breaker("provider/named").totals.succeeded == 3
    assert panel.breaker("tool/pay").totals.succeeded == 1


def test_a_guardrail_that_stops_the_run_leaves_nothing_behind() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    started = asyncio.Event()

    class Slow(Named):
        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            started.set()
            await asyncio.sleep(600)
            raise AssertionError

    @input_guardrail(run_in_parallel=True)
    async def stops_input(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asyncio.wait_for(started.wait(), 60)  # the model call is running
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    @output_guardrail
    async def stops_output(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    slow = Agent("slow", model=Slow("gpt-4o"), input_guardrails=[stops_input])
    with pytest.raises(InputGuardrailTripwireTriggered):
        run(guard(slow, panel=panel, budget="team"))
    assert spent(panel)[0] == 0
    model = Named("gpt-4o", priced(says("hi"), 1_000, 100))
    quick = Agent("quick", model=model, output_guardrails=[stops_output])
    before = spent(panel)[1]
    with pytest.raises(OutputGuardrailTripwireTriggered):
        run(guard(quick, panel=panel, budget="team"))
    assert spent(panel) == (0, before + 3_500)
    assert panel.breaker("provider/named").totals.failed == 0


def test_parallel_tool_calls_are_steps_and_parallel_sub_agents_share_the_budget() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    inner_model = Named("gpt-4o", *[priced(says("found"), 1_000, 100)] * 5)
    inner = guard(Agent("researcher", model=inner_model), panel=panel)
    asks = [function_call("ask", {"input": str(n)}, call_id=f"call-{n}") for n in range(5)]
    model = Named("gpt-4o", priced(asks, 1_000, 100), priced(says("done"), 1_000, 100))
    tool = inner.as_tool("ask", "Ask.", run_config=QUIET)
    outer = guard(Agent("lead", model=model, tools=[tool]), panel=panel, budget="team")
    assert run(outer).final_output == "done"
    assert panel.breaker("tool/ask").totals.succeeded == 5
    assert spent(panel) == (0, 7 * 3_500)


def test_copies_of_a_guarded_agent_are_guarded() -> None:
    @function_tool
    def search(query: str) -> str:
        """Search."""
        return "found"

    panel = Panel("memory:")
    model = Named("gpt-4o", calls("search", 1, query="x"), says("one"))
    agent = guard(Agent("helper", model=model, tools=[search]), panel=panel)
    for copied in (deepcopy(agent), agent.clone(name="other")):
        assert run(copied).final_output == "one"
    assert panel.breaker("provider/named").totals.succeeded == 4
    assert panel.breaker("tool/search").totals.succeeded == 2


def test_an_abandoned_stream_is_not_a_failure_and_leaves_nothing_behind() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    model = Named("gpt-4o", priced(says("one two three"), 1_000, 100))
    agent = guard(Agent("helper", model=model), panel=panel, budget="team")

    async def leave() -> None:
        result = Runner.run_streamed(agent, "hello", run_config=QUIET)
        async for _ in result.stream_events():
            break
        result.cancel()

    asyncio.run(leave())
    assert panel.breaker("provider/named").totals.failed == 0
    assert spent(panel)[0] == 0
