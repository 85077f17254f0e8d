"""LiteLLM, with the real package and its `mock_response`."""

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
litellm = pytest.importorskip("litellm")

from litellm.router import Router

from model_streams import CUT_STREAMS, EVENTS
from servers.model_api import ModelApi, Reply, model_api
from switchgear import Panel, Phase, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.litellm import guard
from switchgear.testing import FakeClock

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
GPT = "gpt-4o"
PROVIDER = "provider/openai"
DOWN = litellm.InternalServerError("no route", "openai", GPT)

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def no_callbacks() -> Iterator[None]:
    # LiteLLM copies callbacks into lists of its own, in which it keeps one object of each class.
    litellm.logging_callback_manager._reset_all_callbacks()
    yield
    litellm.logging_callback_manager._reset_all_callbacks()


def complete(way: str, guarded: Any, model: str = GPT, **more: Any) -> Any:
    if way == "sync":
        return guarded.completion(model=model, messages=HELLO, **more)
    if way == "async":
        return asyncio.run(guarded.acompletion(model=model, messages=HELLO, **more))
    litellm.callbacks[:] = [guarded]
    return asyncio.run(litellm.acompletion(model=model, messages=HELLO, **more))


ALL = pytest.mark.parametrize("way", ["sync", "async", "callback"])


@ALL
def test_five_failures_open_the_circuit_and_the_sixth_call_makes_no_request(way: Any) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    guarded = guard(panel=panel)
    for _ in range(5):
        with pytest.raises(litellm.InternalServerError):
            complete(way, guarded, mock_response=DOWN)
    with pytest.raises(Rejected, match="no route"):
        complete(way, guarded, mock_response="not requested")
    clock.advance(61)
    response = complete(way, guarded, mock_response="hi")
    assert response.choices[0].message.content == "hi"
    assert panel.breaker(PROVIDER).state is Phase.CLOSED
    assert panel.breaker(PROVIDER).totals.failed == 5


@ALL
def test_a_bad_request_is_not_evidence(way: Any) -> None:
    panel = Panel("memory:")
    error = litellm.BadRequestError("bad", GPT, "openai")
    for _ in range(6):
        with pytest.raises(litellm.BadRequestError):
            complete(way, guard(panel=panel), mock_response=error)
    assert panel.breaker(PROVIDER).totals.failed == 0


@pytest.mark.parametrize("way", ["sync", "async"])
def test_the_fallback_answers_while_the_model_is_refused(way: Any) -> None:
    panel = Panel("memory:")
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    guarded = guard(panel=panel, fallback="anthropic/claude-sonnet-4-5")
    response = complete(way, guarded, mock_response="hi")
    assert response.model == "claude-sonnet-4-5"
    assert panel.breaker("provider/anthropic").totals.succeeded == 1


@ALL
def test_costs_add_up_in_the_budget(way: Any) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    guarded = guard(panel=panel, budget="team")
    cost = 0.0
    for _ in range(3):
        cost += litellm.completion_cost(complete(way, guarded, mock_response="hi " * 50))
    assert 0 < cost < 1
    spent = 1_000_000 - (panel.budgets.free_micros("team") or 0)
    assert spent == pytest.approx(cost * 1e6, abs=3)
    panel.budgets.limit("team", spent)
    with pytest.raises(BudgetRefused):
        complete(way, guarded, mock_response="not requested")


def router(*deployments: dict[str, Any], **more: Any) -> Router:
    names = [{"model_name": one.pop("group", "chat"), "litellm_params": one} for one in deployments]
    return Router(model_list=names, **more)


def test_the_router_skips_deployments_whose_circuits_are_open() -> None:
    panel = Panel("memory:")
    litellm.callbacks[:] = [guard(panel=panel)]
    first = {"model": "openai/gpt-4o", "mock_response": "openai"}
    second = {"model": "anthropic/claude-sonnet-4-5", "mock_response": "anthropic"}
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")

    async def several() -> set[Any]:
        routes = router(first, second)
        answers = [await routes.acompletion("chat", messages=HELLO) for _ in range(8)]
        return {answer.choices[0].message.content for answer in answers}

    assert asyncio.run(several()) == {"anthropic"}


@pytest.mark.parametrize(("answers", "error"), [(False, Rejected), (True, Exception)])
def test_a_router_without_admitted_deployments_refuses_and_does_not_retry_it(
    answers: Any, error: Any
) -> None:
    panel = Panel("memory:")
    litellm.callbacks[:] = [guard(panel=panel, on_refusal="answer" if answers else "raise")]
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    routes = router(
        {"model": "openai/gpt-4o", "mock_response": "hi"}, num_retries=0 if answers else 3
    )
    started_s = time.monotonic()
    with pytest.raises(error, match="No deployments available" if answers else "maintenance"):
        asyncio.run(routes.acompletion("chat", messages=HELLO))
    if not answers:
        assert time.monotonic() - started_s < 1  # three retries take longer


def test_the_fallbacks_of_the_router_answer() -> None:
    panel = Panel("memory:")
    litellm.callbacks[:] = [guard(panel=panel)]
    panel.breaker(PROVIDER).hold_open(by="test", why="maintenance")
    routes = router(
        {"model": "openai/gpt-4o", "mock_response": "hi"},
        {"group": "spare", "model": "anthropic/claude-sonnet-4-5", "mock_response": "spare"},
        fallbacks=[{"chat": ["spare"]}],
    )
    response = asyncio.run(routes.acompletion("chat", messages=HELLO))
    assert response.choices[0].message.content == "spare"


def test_streams_belong_to_the_call_until_their_end() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    guarded = guard(panel=panel, budget="team")
    stream = guarded.completion(model=GPT, messages=HELLO, mock_response="one two", stream=True)
    assert panel.breaker(PROVIDER).totals.succeeded == 0
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "one two"
    assert panel.breaker(PROVIDER).totals.succeeded == 1

    async def read() -> str:
        found = await guarded.acompletion(
            model=GPT, messages=HELLO, mock_response="a b", stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in found])

    assert asyncio.run(read()) == "a b"
    assert panel.breaker(PROVIDER).totals.succeeded == 2

    # One that is dropped is no evidence, and holds nothing.
    stream = guarded.completion(model=GPT, messages=HELLO, mock_response="a b c", stream=True)
    next(stream)
    del stream
    [root] = panel.budgets.tree("team")
    assert root.node.held_micros == 0
    assert panel.breaker(PROVIDER).totals.succeeded == 2


@pytest.mark.parametrize("way", ["sync", "async", "callback", "router"])
@pytest.mark.parametrize("model", [GPT, "anthropic/claude-sonnet-4-6", "deepseek/deepseek-chat"])
def test_a_stream_that_ends_silently_is_a_failure(way: str, model: str) -> None:
    """Without its last events: LiteLLM writes them."""
    provider = litellm.get_llm_provider(model)[1]
    stream = CUT_STREAMS["anthropic" if provider == "anthropic" else "chat"]

    async def judged(body: bytes) -> tuple[int, int]:
        panel = Panel("memory:")
        guarded = guard(panel=panel)
        litellm.logging_callback_manager._reset_all_callbacks()
        litellm.callbacks[:] = [guarded] if way in {"callback", "router"} else []
        api.always = Reply(body=body, headers={"content-type": EVENTS, "connection": "close"})
        base = api.url if provider == "anthropic" else f"{api.url}/v1"
        place: dict[str, Any] = {"api_base": base, "api_key": "k", "max_retries": 0}
        call: Any = guarded.acompletion if way == "async" else litellm.acompletion
        if way == "router":
            params = {"model": model, **place}
            call = Router([{"model_name": model, "litellm_params": params}]).acompletion
            place = {}
        if way == "sync":
            list(guarded.completion(model=model, messages=HELLO, stream=True, **place))
        else:
            async for _ in await call(model=model, messages=HELLO, stream=True, **place):
                pass
        for _ in range(600):
            totals = panel.breaker(f"provider/{provider}").totals
            if totals.succeeded or totals.failed:
                break
            await asyncio.sleep(0.1)  # LiteLLM reports a success from a separate task
        return totals.succeeded, totals.failed

    cuts = stream.cuts()
    # The fourth event of a chat has "[DONE]" in its text, which LiteLLM takes for the end.
    cuts = [cuts[0], cuts[1], cuts[3], cuts[-1]]
    with model_api() as api:
        found = [asyncio.run(judged(body)) for body, _ in cuts]
    assert found == [(1, 0) if is_whole else (0, 1) for _, is_whole in cuts]


def test_a_stream_through_the_callback_that_is_dropped_leaves_nothing_behind() -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    litellm.callbacks[:] = [guard(panel=panel, budget="team")]

    async def leave(api: ModelApi) -> None:
        place: dict[str, Any] = {"api_base": f"{api.url}/v1", "api_key": "k"}
        stream = await litellm.acompletion(model=GPT, messages=HELLO, stream=True, **place)
        await anext(stream)
        assert panel.budgets.tree("team")[0].node.held_micros > 0
        del stream

    with model_api() as api:
        asyncio.run(leave(api))
    gc.collect()
    assert panel.budgets.tree("team")[0].node.held_micros == 0
    totals = panel.breaker(PROVIDER).totals
    assert (totals.succeeded, totals.failed) == (0, 0)


@pytest.mark.parametrize("reply", [Reply(cut_at=300), Reply(breaks=True)], ids=["ends", "breaks"])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_stream_that_breaks_off_is_a_failure(way: str, reply: Reply) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 1_000_000)
    guarded = guard(panel=panel, budget="team")

    async def read(options: dict[str, Any]) -> None:
        async for _ in await guarded.acompletion(**options):
            pass

    with model_api() as api:
        for always, outcome in ((reply, (0, 1)), (Reply(), (1, 1))):
            api.always = always
            options: dict[str, Any] = {"model": GPT, "messages": HELLO, "stream": True}
            options |= {"api_base": f"{api.url}/v1", "api_key": "k", "max_retries": 0}
            with contextlib.suppress(litellm.exceptions.ServiceUnavailableError, litellm.APIError):
                if way == "sync":
                    list(guarded.completion(**options))
                else:
                    asyncio.run(read(options))
            totals = panel.breaker(PROVIDER).totals
            assert (totals.succeeded, totals.failed) == outcome
            assert panel.budgets.tree("team")[0].node.held_micros == 0


def test_a_stream_through_the_callback_counts_at_its_end() -> None:
    panel = Panel("memory:")
    litellm.callbacks[:] = [guard(panel=panel)]

    async def read() -> None:
        stream = await litellm.acompletion(
            model=GPT, messages=HELLO, mock_response="a b", stream=True
        )
        async for _ in stream:
            pass
        for _ in range(300):  # LiteLLM reports it from a separate task
            if panel.breaker(PROVIDER).totals.succeeded:
                return
            await asyncio.sleep(0.1)

    asyncio.run(read())
    assert panel.breaker(PROVIDER).totals.succeeded == 1


@pytest.mark.parametrize("way", ["async", "callback"])
def test_cancellation_leaks_no_permit_and_no_reservation(way: Any) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    panel.budgets.open("team", 1_000_000)
    guarded = guard(panel=panel, budget="team")
    for _ in range(5):
        with pytest.raises(litellm.InternalServerError):
            complete(way, guarded, mock_response=DOWN)
    clock.advance(61)

    async def cancelled() -> None:
        if way == "callback":
            litellm.callbacks[:] = [guarded]
        call = guarded.acompletion if way == "async" else litellm.acompletion
        options: dict[str, Any] = {
            "model": GPT,
            "messages": HELLO,
            "mock_response": "late",
            "mock_delay": 600,
        }
        running = asyncio.create_task(call(**options))
        for _ in range(600):
            if panel.budgets.tree("team")[0].node.held_micros:
                break
            await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0)

    asyncio.run(cancelled())  # as the probe
    assert panel.budgets.tree("team")[0].node.held_micros == 0
    assert complete(way, guarded, mock_response="back").choices[0].message.content == "back"
