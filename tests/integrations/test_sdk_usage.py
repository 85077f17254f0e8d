"""Ways to use the clients of the SDKs beyond one plain call: each is guarded, and leaves nothing behind."""

import asyncio
import gc
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("anthropic")

import anthropic
import openai
from google import genai
from google.genai import types
from pydantic import BaseModel

from model_streams import CHAT_COMPLETION, chat_events, response_body, responses_events, sse
from sdk_cases import MESSAGES, SDKS, Case
from servers.model_api import ModelApi, Reply, model_api
from switchgear import Panel, Rejected
from switchgear._core.types import Totals
from switchgear.integrations import anthropic as guarded_anthropic
from switchgear.integrations import google_genai as guarded_google
from switchgear.integrations import openai as guarded_openai

CHAT: dict[str, Any] = {"model": "gpt-4.1", "messages": MESSAGES}
MESSAGE: dict[str, Any] = {"model": "claude-sonnet-4-6", "max_tokens": 64, "messages": MESSAGES}
GEMINI: dict[str, Any] = {"model": "gemini-2.5-flash", "contents": "Hello"}


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client loads all certificates when it is made, which takes longer than these tests."""
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)


@pytest.fixture
def api() -> Iterator[ModelApi]:
    with model_api() as running:
        yield running


@pytest.fixture
def panel() -> Iterator[Panel]:
    with Panel("memory:") as opened:
        opened.budgets.open("team", 50_000_000)
        yield opened


_GUARD: dict[str, Any] = {"key": "it", "budget": "team"}
Make = Callable[..., Any]


@pytest.fixture
def make(api: ModelApi, panel: Panel) -> Iterator[Make]:
    """Guarded clients: `make("openai")`. Those that block are closed when the test ends."""
    opened = []

    def made(sdk: str, *, is_async: bool = False, **options: Any) -> Any:
        client, guard = _client(sdk, api.url, is_async=is_async)
        if not is_async:
            opened.append(client)
        return guard(client, **{**_GUARD, **options}, panel=panel)

    yield made
    for client in opened:
        client.close()


def _client(sdk: str, url: str, *, is_async: bool) -> tuple[Any, Callable[..., Any]]:
    settings: Any = {"api_key": "sk-test", "max_retries": 0}
    if sdk == "openai":
        openai_kind: Any = openai.AsyncOpenAI if is_async else openai.OpenAI
        return openai_kind(base_url=f"{url}/v1", **settings), guarded_openai.guard
    if sdk == "azure":
        settings |= {"azure_endpoint": url, "api_version": "2024-10-21"}
        return openai.AzureOpenAI(**settings), guarded_openai.guard
    if sdk == "anthropic":
        kind: Any = anthropic.AsyncAnthropic if is_async else anthropic.Anthropic
        return kind(base_url=url, **settings), guarded_anthropic.guard
    options = types.HttpOptions(base_url=url)
    return genai.Client(api_key="key", http_options=options), guarded_google.guard


ENDPOINTS: dict[str, Callable[[Any], Any]] = {
    "openai": lambda client: client.chat.completions,
    "anthropic": lambda client: client.messages,
}
ARGUMENTS = {"openai": CHAT, "anthropic": MESSAGE}
stainless = pytest.mark.parametrize("sdk", ENDPOINTS)


def totals(panel: Panel, circuit: str = "it") -> Totals:
    return panel.breaker(circuit).totals


def counted(panel: Panel) -> tuple[int, int, int]:
    """The successes, failures and ignored calls."""
    return totals(panel)[:3]


def ended(panel: Panel) -> int:
    """The calls without a failure: a short stream may be read to its end before it is left."""
    found = totals(panel)
    assert found.failed == 0
    return found.succeeded + found.ignored


def money(panel: Panel) -> tuple[int, int]:
    """The reserved and the spent amount."""
    [root] = [status.node for status in panel.budgets.tree("team") if status.path == "team"]
    return root.held_micros, root.spent_micros


def hold_open(panel: Panel) -> None:
    panel.breaker("it").hold_open(by="test", why="maintenance")


@stainless
def test_raw_responses_are_metered_and_refused(
    sdk: str, make: Make, api: ModelApi, panel: Panel
) -> None:
    client = make(sdk)
    raw = ENDPOINTS[sdk](client).with_raw_response
    answer = raw.create(**ARGUMENTS[sdk])
    assert answer.headers["content-type"] == "application/json"
    assert answer.parse().model
    assert counted(panel) == (1, 0, 0)
    assert money(panel) == (0, totals(panel).cost_micros)
    hold_open(panel)
    with pytest.raises(Rejected):
        raw.create(**ARGUMENTS[sdk])
    assert len(api.received) == 1


@stainless
def test_a_streaming_response_is_metered_when_it_is_read(
    sdk: str, make: Make, panel: Panel
) -> None:
    client = make(sdk)
    streaming = ENDPOINTS[sdk](client).with_streaming_response
    with streaming.create(**ARGUMENTS[sdk]) as response:
        assert counted(panel) == (0, 0, 0)
        assert response.parse().model
    with streaming.create(**ARGUMENTS[sdk], stream=True) as response:
        lines = list(response.iter_lines())
        assert any(line.startswith("data:") for line in lines)
    assert counted(panel) == (2, 0, 0)
    with streaming.create(**ARGUMENTS[sdk]) as response:
        assert response.status_code == 200  # and the body is not read
    assert counted(panel) == (2, 0, 1)
    assert money(panel)[0] == 0
    hold_open(panel)
    with pytest.raises(Rejected), streaming.create(**ARGUMENTS[sdk]):
        pass


@stainless
@pytest.mark.parametrize("made", ["with_options", "copy"])
def test_clients_derived_from_a_guarded_client_share_its_guard(
    sdk: str, made: str, make: Make, api: ModelApi, panel: Panel
) -> None:
    client = getattr(make(sdk), made)(max_retries=3, timeout=30.0)
    ENDPOINTS[sdk](client).create(**ARGUMENTS[sdk])
    assert counted(panel) == (1, 0, 0)
    hold_open(panel)
    with pytest.raises(Rejected, match="maintenance"):
        ENDPOINTS[sdk](client).create(**ARGUMENTS[sdk])
    assert totals(panel).refused == 1
    assert len(api.received) == 1


@pytest.mark.parametrize("case", SDKS, ids=repr)
@pytest.mark.parametrize("answers", [False, True])
def test_the_last_guard_of_a_client_decides(
    case: Case, answers: bool, api: ModelApi, panel: Panel
) -> None:
    first, last = ("raise", "answer") if answers else ("answer", "raise")
    client = case.client(api.url, panel, key="first", on_refusal=first)
    client = case.guard(client, panel=panel, key="it", on_refusal=last)
    hold_open(panel)
    (error,) = case.run(client, case.ask)
    assert isinstance(error, Rejected) is not answers
    assert "maintenance" in str(error)
    assert [view.name for view in panel.circuits()] == ["it"]


@pytest.mark.parametrize("case", [case for case in SDKS if not case.is_async], ids=repr)
def test_threads_share_one_client(case: Case, api: ModelApi, panel: Panel) -> None:
    client = case.client(api.url, panel, **_GUARD)
    errors = []

    def work() -> None:
        try:
            for _ in range(3):
                case.ask(client)
                list(case.stream(client))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    case.close(client)
    assert errors == []
    assert counted(panel) == (24, 0, 0)
    assert money(panel) == (0, totals(panel).cost_micros)


OTHER_CALLS: dict[str, Callable[[Any], Any]] = {
    "openai embeddings": lambda client: client.embeddings.create(
        model="text-embedding-3-small", input="x", encoding_format="float"
    ),
    "openai images": lambda client: client.images.generate(model="gpt-image-1", prompt="x"),
    "openai files": lambda client: client.files.create(file=("a.jsonl", b"{}"), purpose="batch"),
    "openai file content": lambda client: client.files.content("f").read(),
    "openai batches": lambda client: client.batches.create(
        input_file_id="f", endpoint="/v1/chat/completions", completion_window="24h"
    ),
    "openai speech": lambda client: client.audio.speech.create(
        model="tts-1", voice="alloy", input="x"
    ).read(),
    "openai models": lambda client: list(client.models.list()),
    "anthropic count_tokens": lambda client: client.messages.count_tokens(
        model="claude-sonnet-4-6", messages=MESSAGES
    ),
    "anthropic batches": lambda client: client.messages.batches.create(
        requests=[{"custom_id": "a", "params": MESSAGE}]
    ),
    "anthropic list": lambda client: list(client.messages.batches.list()),
    "anthropic files": lambda client: client.beta.files.upload(file=("a.txt", b"x", "text/plain")),
    "google count_tokens": lambda client: client.models.count_tokens(**GEMINI),
    "google embeddings": lambda client: client.models.embed_content(
        model="gemini-embedding-001", contents="x"
    ),
    "google models": lambda client: list(client.models.list()),
}


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_calls_to_other_endpoints_are_guarded_but_not_priced(
    name: str, make: Make, api: ModelApi, panel: Panel
) -> None:
    client = make(name.partition(" ")[0])
    call = OTHER_CALLS[name]
    call(client)
    assert counted(panel) == (1, 0, 0)
    api.fail(1)
    with pytest.raises(Exception, match="503"):
        call(client)
    assert counted(panel) == (1, 1, 0)
    hold_open(panel)
    with pytest.raises(Rejected):
        call(client)
    assert len(api.received) == 2
    assert money(panel) == (0, 0)


def test_structured_outputs_are_parsed_and_metered(make: Make, api: ModelApi, panel: Panel) -> None:
    class Answer(BaseModel):
        number: int

    client = make("openai")
    text = '{"number": 7}'
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    api.script = [Reply(body=json.dumps({**CHAT_COMPLETION, "choices": [choice]}).encode())]
    parsed = client.chat.completions.parse(**CHAT, response_format=Answer)
    assert parsed.choices[0].message.parsed == Answer(number=7)
    body = response_body()
    body["output"][0]["content"][0]["text"] = text
    api.script = [Reply(body=json.dumps(body).encode())]
    answer = client.responses.parse(model="gpt-5", input="Hello", text_format=Answer)
    assert answer.output_parsed == Answer(number=7)
    assert counted(panel) == (2, 0, 0)
    assert money(panel) == (0, totals(panel).cost_micros)


def test_an_answer_that_cannot_be_parsed_is_not_a_failure_of_the_provider(
    make: Make, panel: Panel
) -> None:
    class Answer(BaseModel):
        number: int

    client = make("openai")
    with pytest.raises(ValueError, match="validation error"):
        client.responses.parse(model="gpt-5", input="Hello", text_format=Answer)
    assert counted(panel) == (1, 0, 0)


def _responses_with_items() -> bytes:
    """The events that the stream helper of the SDK needs, which the short sample leaves out."""
    created, started, *deltas, last = responses_events()
    item = {**response_body("in_progress")["output"][0], "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    at = {"output_index": 0, "sequence_number": 1}
    added = {"type": "response.output_item.added", "item": item, **at}
    opened = {"type": "response.content_part.added", "part": part, "item_id": "m-1"}
    return sse(
        created, started, added, {**opened, "content_index": 0, **at}, *deltas, last, named=True
    )


def test_the_stream_helpers_of_openai_are_metered(make: Make, api: ModelApi, panel: Panel) -> None:
    client = make("openai")
    with client.chat.completions.stream(**CHAT) as stream:
        assert {event.type for event in stream} >= {"chunk", "content.delta"}
    api.script = [Reply(body=_responses_with_items())]
    with client.responses.stream(model="gpt-5", input="Hello") as stream:
        assert stream.get_final_response().id == "resp_1"
    assert counted(panel) == (2, 0, 0)
    with client.chat.completions.stream(**CHAT) as stream:
        next(iter(stream))
    assert ended(panel) == 3
    assert money(panel)[0] == 0


def test_the_async_stream_helper_of_openai_is_metered(make: Make, panel: Panel) -> None:
    async def read() -> None:
        async with make("openai", is_async=True) as client:
            async with client.chat.completions.stream(**CHAT) as stream:
                assert [event.type async for event in stream]
            async with client.chat.completions.stream(**CHAT) as stream:
                async for _ in stream:
                    break
            assert ended(panel) == 2

    asyncio.run(read())
    assert money(panel)[0] == 0


def test_the_stream_helpers_of_anthropic_are_metered(make: Make, panel: Panel) -> None:
    client = make("anthropic")
    for messages in (client.messages, client.beta.messages):
        with messages.stream(**MESSAGE) as stream:
            assert "".join(stream.text_stream).startswith("Hello")
            assert stream.get_final_message().usage.output_tokens == 42
    assert counted(panel) == (2, 0, 0)
    with client.messages.stream(**MESSAGE) as stream:
        next(stream.text_stream)
    assert ended(panel) == 3
    assert money(panel)[0] == 0
    hold_open(panel)
    with pytest.raises(Rejected), client.messages.stream(**MESSAGE):
        pass


def test_the_async_stream_helper_of_anthropic_is_metered(make: Make, panel: Panel) -> None:
    async def read() -> None:
        async with make("anthropic", is_async=True) as client:
            async with client.messages.stream(**MESSAGE) as stream:
                assert (await stream.get_final_message()).usage.output_tokens == 42
            async with client.messages.stream(**MESSAGE) as stream:
                async for _ in stream.text_stream:
                    break
            assert ended(panel) == 2

    asyncio.run(read())
    assert money(panel)[0] == 0


def test_results_of_a_batch_are_read_line_by_line(make: Make, api: ModelApi, panel: Panel) -> None:
    about = {"id": "b", "results_url": f"{api.url}/v1/messages/batches/b/results"}
    lines = b"".join(
        b'{"custom_id": "%s", "result": {"type": "expired"}}\n' % name for name in (b"a", b"b")
    )
    api.script = [
        Reply(body=json.dumps(about).encode()),
        Reply(body=lines, headers={"content-type": "application/x-jsonl"}),
    ]
    results = make("anthropic").messages.batches.results("b")
    assert [one.custom_id for one in results] == ["a", "b"]
    assert counted(panel) == (2, 0, 0)


@stainless
def test_a_stream_that_is_dropped_leaves_nothing_behind(sdk: str, make: Make, panel: Panel) -> None:
    client = make(sdk)
    for _ in ENDPOINTS[sdk](client).create(**ARGUMENTS[sdk], stream=True):
        break
    gc.collect()  # the streams of the SDKs are cycles
    assert ended(panel) == 1
    assert money(panel)[0] == 0


@stainless
def test_an_async_stream_that_is_dropped_leaves_nothing_behind(
    sdk: str, make: Make, panel: Panel
) -> None:
    async def drop() -> None:
        async with make(sdk, is_async=True) as client:
            async for _ in await ENDPOINTS[sdk](client).create(**ARGUMENTS[sdk], stream=True):
                break

    asyncio.run(drop())  # the event loop ends the generators that are left
    assert ended(panel) == 1
    assert money(panel)[0] == 0


def test_a_stream_without_usage_is_priced_by_its_size(
    make: Make, api: ModelApi, panel: Panel
) -> None:
    client = make("openai")
    api.script = [Reply(body=sse(*chat_events(usage=False)))]
    assert list(client.chat.completions.create(**CHAT, stream=True))
    estimated = totals(panel).cost_micros
    assert 0 < estimated == money(panel)[1]
    options = {"include_usage": True}
    assert list(client.chat.completions.create(**CHAT, stream=True, stream_options=options))
    assert api.received[-1].payload["stream_options"] == options
    assert totals(panel).cost_micros == estimated + 1248  # by the usage that it reports


def test_a_background_response_uses_up_its_reservation(
    make: Make, api: ModelApi, panel: Panel
) -> None:
    client = make("openai")
    queued = {**response_body("queued"), "output": [], "usage": None, "background": True}
    api.script = [Reply(body=json.dumps(queued).encode())]
    limit = {"max_output_tokens": 1_000_000}
    client.responses.create(model="gpt-5", input="Hello", background=True, **limit)
    held, spent = money(panel)
    assert held == 0
    assert spent >= 10_000_000  # gpt-5: $10 for a million tokens, which it may have
    assert counted(panel) == (1, 0, 0)


def test_an_azure_client_falls_back_to_another_deployment(
    make: Make, api: ModelApi, panel: Panel
) -> None:
    client = make("azure", fallback=["gpt-4.1-mini"], key="{model}")
    api.models_down = {"gpt-4.1"}
    for _ in range(6):
        client.chat.completions.create(**CHAT)
    paths = [received.path.split("/")[3] for received in api.received]
    assert paths == ["gpt-4.1", "gpt-4.1-mini"] * 5 + ["gpt-4.1-mini"]
    assert totals(panel, "gpt-4.1-mini").succeeded == 6


def test_the_chats_of_google_are_metered_and_refused(
    make: Make, api: ModelApi, panel: Panel
) -> None:
    client = make("google")
    chat = client.chats.create(model="gemini-2.5-flash")
    assert chat.send_message("Hello").text == "lo"
    assert [chunk.text for chunk in chat.send_message_stream("Hello")] == ["Hel", "lo"]
    assert counted(panel) == (2, 0, 0)
    assert money(panel) == (0, totals(panel).cost_micros)
    for _ in client.models.generate_content_stream(**GEMINI):
        break
    gc.collect()
    assert ended(panel) == 3
    hold_open(panel)
    with pytest.raises(Rejected):
        list(chat.send_message_stream("Hello"))
    assert len(api.received) == 3


def test_the_async_chats_of_google_are_metered(make: Make, panel: Panel) -> None:
    async def talk() -> None:
        client = make("google")
        chat = client.aio.chats.create(model="gemini-2.5-flash")
        assert (await chat.send_message("Hello")).text == "lo"
        chunks = await chat.send_message_stream("Hello")
        assert [chunk.text async for chunk in chunks] == ["Hel", "lo"]
        await client.aio.aclose()

    asyncio.run(talk())
    assert counted(panel) == (2, 0, 0)
    assert money(panel) == (0, totals(panel).cost_micros)


def test_parallel_function_calls_of_google_are_one_call_to_the_model(
    make: Make, api: ModelApi, panel: Panel
) -> None:
    called = []

    def weather(city: str) -> str:
        """The weather of a city."""
        called.append(city)
        return "sunny"

    parts = [{"functionCall": {"name": "weather", "args": {"city": one}}} for one in ("a", "b")]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5}
    body = {"candidates": [candidate], "usageMetadata": usage}
    api.script = [Reply(body=json.dumps(body).encode())]
    client = make("google")
    config = types.GenerateContentConfig(tools=[weather])
    assert client.models.generate_content(**GEMINI, config=config).text == "lo"
    assert called == ["a", "b"]
    assert counted(panel) == (2, 0, 0)


def test_a_file_is_uploaded_through_the_guard(
    make: Make, api: ModelApi, panel: Panel, tmp_path: Any
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Hello")
    api.script = [
        Reply(body=b"{}", headers={"x-goog-upload-url": f"{api.url}/upload/1"}),
        Reply(body=b'{"file": {"name": "files/a"}}', headers={"x-goog-upload-status": "final"}),
    ]
    assert make("google").files.upload(file=path).name == "files/a"
    assert counted(panel) == (2, 0, 0)
