"""Microsoft Agent Framework: middleware, as in `Agent(client, middleware=guard(panel=panel))`.

A run is one `agent.run(...)`; agents that its tools start are sub-agents of the run.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Unpack

from agent_framework import (
    AgentContext,
    AgentMiddleware,
    BaseChatClient,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    Message,
    MiddlewareTypes,
    ResponseStream,
)
from agent_framework.exceptions import (
    ChatClientContentFilterException,
    ChatClientInvalidAuthException,
    ChatClientInvalidRequestException,
    MiddlewareException,
    UserInputRequiredException,
)

from switchgear._core.errors import Rejected
from switchgear._providers.verdicts import TRUNCATED
from switchgear.integrations._agent_run import (
    AgentGuard,
    GuardOptions,
    ModelCall,
    ModelName,
    Refused,
    answer_text,
    as_text,
    tool_error,
    with_warning,
)

__all__ = ["guard"]

Next = Callable[[], Awaitable[None]]
Stream = ResponseStream[ChatResponseUpdate, ChatResponse]
_CONTROL_FLOW = (
    ChatClientContentFilterException,
    ChatClientInvalidAuthException,
    ChatClientInvalidRequestException,
    MiddlewareException,
    UserInputRequiredException,
)
_WITH_REASONS = frozenset(("anthropic", "azure.ai.openai", "openai"))
"""Providers whose streams end with a finish reason."""


def guard(
    *, fallback: BaseChatClient | None = None, **options: Unpack[GuardOptions]
) -> list[MiddlewareTypes]:
    """The middleware that guards the model calls, the tool calls and the progress of agents.

    Agents with the same list share circuits and budget. `fallback` is the client that is called while the
    circuit of an agent's own model refuses; it has a circuit of its own, and its middleware does not run.
    The other options are those of every agent framework: `GuardOptions`.
    """
    shared = AgentGuard("agent-framework", control_flow=_CONTROL_FLOW, **options)
    return [_RunMiddleware(shared), _ModelMiddleware(shared, fallback), _ToolMiddleware(shared)]


class _RunMiddleware(AgentMiddleware):
    """Makes everything inside of `agent.run(...)` one run."""

    def __init__(self, shared: AgentGuard) -> None:
        self._guard = shared

    async def process(self, context: AgentContext, call_next: Next) -> None:
        run = self._guard.run()
        with run.inside():
            await call_next()
        if isinstance(context.result, ResponseStream):
            context.result.with_pull_context_manager(run.inside)


class _ModelMiddleware(ChatMiddleware):
    """Calls the model, or the fallback, within circuit and budget."""

    def __init__(self, shared: AgentGuard, fallback: BaseChatClient | None) -> None:
        self._guard, self._fallback = shared, fallback

    async def process(self, context: ChatContext, call_next: Next) -> None:
        run = self._guard.current()
        name, fallback = _name(context.client, context.options), self._fallback
        try:
            async with AsyncExitStack() as stack:
                if fallback is not None and self._guard.refuses(name):
                    name = _name(fallback, {})
                    call = await stack.enter_async_context(run.model(name))
                    context.result = await _answered_by(fallback, context)
                else:
                    call = await stack.enter_async_context(run.model(name))
                    await call_next()
                if isinstance(context.result, ResponseStream):
                    # A response in the background may end its stream and be polled later.
                    in_background = bool((context.options or {}).get("background"))
                    has_end = name.provider in _WITH_REASONS and not in_background
                    context.result = _guarded(
                        context.result, call, stack.pop_all(), has_end=has_end
                    )
                elif context.result is not None:
                    _read(call, context.result)
        except Refused as error:
            if not self._guard.answers:
                raise
            message = Message("assistant", [answer_text(error)])
            context.result = (
                _streamed(message) if context.stream else ChatResponse(messages=message)
            )


class _ToolMiddleware(FunctionMiddleware):
    """Calls a tool within its circuit; the model gets a refusal as the result."""

    def __init__(self, shared: AgentGuard) -> None:
        self._guard = shared

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        name, arguments = context.function.name, context.arguments
        given = arguments if isinstance(arguments, dict) else dict(arguments)
        try:
            async with self._guard.current().tool(name, given) as call:
                await call_next()
                warning = await call.afinished(_text(context.result))
        except Rejected as error:
            context.result = tool_error(name, error)
            return
        if warning is not None and isinstance(context.result, list):
            context.result = [*context.result, Content.from_text(warning)]
        elif warning is not None:
            context.result = with_warning(as_text(context.result), warning)


async def _answered_by(client: BaseChatClient, context: ChatContext) -> Any:
    """The response of another client with its own model; the first client calls the tools."""
    options: Any = {key: value for key, value in (context.options or {}).items() if key != "model"}
    get_response: Any = BaseChatClient.get_response
    answer = get_response(client, context.messages, stream=context.stream, options=options)
    return answer if isinstance(answer, ResponseStream) else await answer


def _guarded(stream: Stream, call: ModelCall, held: AsyncExitStack, *, has_end: bool) -> Stream:
    """A stream that holds the permit of its call until its end.

    `has_end`: whether a complete stream ends with a finish reason.
    """

    async def updates() -> AsyncGenerator[ChatResponseUpdate, None]:
        async with held:
            async for update in stream:
                yield update
            response = await stream.get_final_response()
            if has_end and response.finish_reason is None:
                call.failed(TRUNCATED)
            _read(call, response)

    async def closed() -> None:
        await held.__aexit__(GeneratorExit, GeneratorExit(), None)

    guarded: Stream = ResponseStream(updates(), finalizer=lambda _: stream.get_final_response())
    return guarded.with_cleanup_hook(closed)


def _streamed(message: Message) -> Stream:
    async def updates() -> AsyncGenerator[ChatResponseUpdate, None]:
        yield ChatResponseUpdate(contents=message.contents, role="assistant")

    return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


def _name(client: Any, options: Any) -> ModelName:
    model = (options or {}).get("model") or getattr(client, "model", None) or ""
    provider = getattr(client, "OTEL_PROVIDER_NAME", "unknown")
    if provider == "unknown":
        provider = type(client).__name__.lower().removesuffix("client").removesuffix("chat")
    return ModelName(provider, str(model))


def _read(call: ModelCall, response: ChatResponse) -> None:
    calls = any(one.type == "function_call" for part in response.messages for one in part.contents)
    call.run.said(response.text, calls_tools=calls)
    if (usage := response.usage_details) is not None:
        call.used(
            usage.get("input_token_count"),
            usage.get("output_token_count"),
            cache_read=usage.get("cache_read_input_token_count"),
            cache_write=usage.get("cache_creation_input_token_count"),
        )


def _text(result: Any) -> Any:
    if not isinstance(result, list):
        return result
    return "\n".join(str(getattr(one, "text", None) or one) for one in result)
