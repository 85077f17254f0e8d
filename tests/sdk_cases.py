"""The installed SDKs, each with the same few calls, so that one test covers all."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

from switchgear import Panel


class Case(NamedTuple):
    """One client of an SDK: how to make it, guard it and call it."""

    name: str
    model: str
    make: Callable[[str, float], Any]
    """The client for a URL with so many seconds of patience, without retries of its own."""
    guard: Callable[..., Any]
    ask: Callable[[Any], Any]
    """One call, without a stream."""
    stream: Callable[[Any], Any]
    """The chunks of one streamed call: an iterator, or an async one."""
    close: Callable[[Any], Any]
    is_async: bool = False

    def __repr__(self) -> str:
        return self.name

    def client(self, url: str, panel: Panel, timeout_s: float = 30.0, **options: Any) -> Any:
        return self.guard(self.make(url, timeout_s), panel=panel, **options)

    def run(self, client: Any, *calls: Callable[[Any], Any]) -> list[Any]:
        """The results or exceptions of calls after each other; then the client is closed."""
        if not self.is_async:
            try:
                return [_result(call, client) for call in calls]
            finally:
                self.close(client)

        async def run_all() -> list[Any]:
            try:
                return [await _aresult(call, client) for call in calls]
            finally:
                await self.close(client)

        return asyncio.run(run_all())


def _result(call: Callable[[Any], Any], client: Any) -> Any:
    try:
        return call(client)
    except Exception as error:
        return error


async def _aresult(call: Callable[[Any], Any], client: Any) -> Any:
    try:
        result = call(client)
        return await result if hasattr(result, "__await__") else result
    except Exception as error:
        return error


MESSAGES: Any = [{"role": "user", "content": "Hello"}]


def read_all(case: Case) -> Callable[[Any], Any]:
    """A streamed call, read to its end; its value is the number of chunks."""
    if not case.is_async:
        return lambda client: sum(1 for _ in case.stream(client))

    async def count(client: Any) -> int:
        return sum([1 async for _ in case.stream(client)])

    return count


def read_one(case: Case) -> Callable[[Any], Any]:
    """A streamed call that is closed after its first chunk."""
    if not case.is_async:

        def first(client: Any) -> Any:
            chunks = case.stream(client)
            found = next(chunks)
            chunks.close()
            return found

        return first

    async def afirst(client: Any) -> Any:
        chunks = case.stream(client)
        found = await anext(chunks)
        await chunks.aclose()
        return found

    return afirst


def _httpx_cases(name: str) -> list[Case]:
    library = __import__(name)
    from switchgear.integrations.httpx import guard  # noqa: PLC0415

    payload = {"model": "gpt-4.1", "messages": MESSAGES}

    def stream(client: Any) -> Iterator[Any]:
        with client.stream("POST", "/v1/chat/completions", json={**payload, "stream": True}) as r:
            r.raise_for_status()
            yield from r.iter_bytes()

    async def astream(client: Any) -> AsyncIterator[Any]:
        body = {**payload, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                yield chunk

    async def aask(client: Any) -> Any:
        return (await client.post("/v1/chat/completions", json=payload)).raise_for_status()

    return [
        Case(
            name,
            "gpt-4.1",
            lambda url, s: library.Client(base_url=url, timeout=s, trust_env=False),
            guard,
            lambda client: client.post("/v1/chat/completions", json=payload).raise_for_status(),
            stream,
            lambda client: client.close(),
        ),
        Case(
            f"{name} async",
            "gpt-4.1",
            lambda url, s: library.AsyncClient(base_url=url, timeout=s, trust_env=False),
            guard,
            aask,
            astream,
            lambda client: client.aclose(),
            is_async=True,
        ),
    ]


def _openai_cases() -> list[Case]:
    from openai import AsyncOpenAI, OpenAI  # noqa: PLC0415

    from switchgear.integrations.openai import guard  # noqa: PLC0415

    def chat(client: Any, **more: Any) -> Any:
        return client.chat.completions.create(model="gpt-4.1", messages=MESSAGES, **more)

    def respond(client: Any, **more: Any) -> Any:
        return client.responses.create(model="gpt-4.1", input="Hello", **more)

    async def achunks(opened: Any) -> AsyncIterator[Any]:
        async with await opened as stream:
            async for event in stream:
                yield event

    def chunks(stream: Any) -> Iterator[Any]:
        with stream:
            yield from stream

    def case(name: str, kind: Any, ask: Callable[..., Any], *, is_async: bool) -> Case:
        def make(url: str, timeout_s: float) -> Any:
            url = f"{url}/v1"
            return kind(base_url=url, api_key="sk-test", max_retries=0, timeout=timeout_s)

        def stream(client: Any) -> Any:
            opened = ask(client, stream=True)
            return achunks(opened) if is_async else chunks(opened)

        full = f"openai {name}{' async' if is_async else ''}"
        return Case(
            full, "gpt-4.1", make, guard, ask, stream, lambda client: client.close(), is_async
        )

    return [
        case(name, kind, ask, is_async=is_async)
        for kind, is_async in ((OpenAI, False), (AsyncOpenAI, True))
        for name, ask in (("chat", chat), ("responses", respond))
    ]


def _anthropic_cases() -> list[Case]:
    from anthropic import Anthropic, AsyncAnthropic  # noqa: PLC0415

    from switchgear.integrations.anthropic import guard  # noqa: PLC0415

    def ask(client: Any, **more: Any) -> Any:
        return client.messages.create(
            model="claude-sonnet-4-6", max_tokens=64, messages=MESSAGES, **more
        )

    def chunks(client: Any) -> Iterator[Any]:
        with ask(client, stream=True) as stream:
            yield from stream

    async def achunks(client: Any) -> AsyncIterator[Any]:
        async with await ask(client, stream=True) as stream:
            async for event in stream:
                yield event

    def case(name: str, kind: Any, stream: Callable[[Any], Any]) -> Case:
        def make(url: str, timeout_s: float) -> Any:
            return kind(base_url=url, api_key="sk-test", max_retries=0, timeout=timeout_s)

        model, is_async = "claude-sonnet-4-6", "async" in name
        return Case(name, model, make, guard, ask, stream, lambda client: client.close(), is_async)

    return [
        case("anthropic", Anthropic, chunks),
        case("anthropic async", AsyncAnthropic, achunks),
    ]


def _google_cases() -> list[Case]:
    from google import genai  # noqa: PLC0415
    from google.genai import types  # noqa: PLC0415

    from switchgear.integrations.google_genai import guard  # noqa: PLC0415

    def make(url: str, timeout_s: float) -> Any:
        options = types.HttpOptions(base_url=url, timeout=int(timeout_s * 1000))
        return genai.Client(api_key="key", http_options=options)

    def ask(client: Any) -> Any:
        return client.models.generate_content(model="gemini-2.5-flash", contents="Hello")

    def stream(client: Any) -> Iterator[Any]:
        yield from client.models.generate_content_stream(model="gemini-2.5-flash", contents="Hello")

    async def aask(client: Any) -> Any:
        return await client.aio.models.generate_content(model="gemini-2.5-flash", contents="Hello")

    async def astream(client: Any) -> AsyncIterator[Any]:
        found = await client.aio.models.generate_content_stream(
            model="gemini-2.5-flash", contents="Hello"
        )
        async for chunk in found:
            yield chunk

    def close(client: Any) -> None:
        client.close()
        asyncio.run(client.aio.aclose())

    async def aclose(client: Any) -> None:
        client.close()
        await client.aio.aclose()

    return [
        Case("google", "gemini-2.5-flash", make, guard, ask, stream, close),
        Case(
            "google async",
            "gemini-2.5-flash",
            make,
            guard,
            aask,
            astream,
            aclose,
            is_async=True,
        ),
    ]


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


CASES: list[Case] = [
    *(_httpx_cases("httpx") if _installed("httpx") else ()),
    *(_httpx_cases("httpx2") if _installed("httpx2") else ()),
    *(_openai_cases() if _installed("openai") else ()),
    *(_anthropic_cases() if _installed("anthropic") else ()),
    *(_google_cases() if _installed("google.genai") else ()),
]
SDKS = [case for case in CASES if not case.name.startswith("httpx")]
