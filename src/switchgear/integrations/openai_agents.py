"""OpenAI Agents SDK: `Runner.run(guard(agent, panel=panel), "…")`.

`guard` returns a copy of an agent whose model, tools, MCP tools and handoffs are guarded, or a model or
model provider whose model calls are guarded. A run is one trace: one `Runner.run`, or everything inside of
one `with trace(...)`.
"""

from collections.abc import AsyncIterator
from copy import copy
from dataclasses import replace
from functools import partial
from time import time
from typing import Any, Self, TypeVar, Unpack, cast

from agents import (
    Agent,
    FunctionTool,
    Handoff,
    Model,
    ModelProvider,
    ModelResponse,
    OpenAIChatCompletionsModel,
    Tool,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    Usage,
    handoff,
)
from agents.models.multi_provider import MultiProvider
from agents.tool import (
    resolve_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext
from agents.tracing import get_current_trace
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputMessage,
    ResponseOutputText,
)

from switchgear._core.errors import Rejected
from switchgear._providers.verdicts import TRUNCATED
from switchgear._system.threads import run_in_thread
from switchgear.integrations._agent_run import (
    AgentGuard,
    GuardedRun,
    GuardOptions,
    ModelCall,
    ModelName,
    Refused,
    answer_text,
    tool_error,
    with_warning,
)

__all__ = ["guard"]

T = TypeVar("T", Agent[Any], Model, ModelProvider)
_DEFAULT_FAILURE = "_function_tool_default_failure_handled"
"""The attribute that marks a result that the default handler of the SDK made from an exception."""


def guard(
    target: T,
    *,
    fallback: Model | str | None = None,
    model_provider: ModelProvider | None = None,
    **options: Unpack[GuardOptions],
) -> T:
    """A guarded copy of an agent, with its tools and the agents that it hands over to.

    For a model or a model provider, returns one whose model calls are guarded, for example for
    `RunConfig(model_provider=guard(MultiProvider()))`.

    `fallback` is the model that is called while the circuit of the agent's own model refuses; it has a
    circuit of its own. `model_provider` looks up models by name (default: `MultiProvider()`). The other
    options are those of every agent framework: `GuardOptions`.
    """
    given: Any = target
    if model_provider is None:
        model_provider = given if isinstance(given, ModelProvider) else MultiProvider()
    guards = _Guards(AgentGuard("openai-agents", **options), model_provider, fallback)
    if isinstance(given, Agent):
        return guards.agent(given)  # type: ignore[return-value]
    guarded = guards.model(given) if isinstance(given, Model) else _GuardedProvider(guards)
    return cast("T", guarded)


class _Guards:
    """The state that the guarded parts of one `guard(...)` share."""

    def __init__(
        self, guard: AgentGuard, provider: ModelProvider, fallback: Model | str | None
    ) -> None:
        self.guard = guard
        self.provider = provider
        self._agents: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        self._fallback = fallback

    def __deepcopy__(self, memo: object) -> Self:
        """Return the same object, because copies of an agent share it."""
        return self

    def run(self) -> GuardedRun:
        """The run of the current trace."""
        trace = get_current_trace()
        if trace is None:
            return self.guard.current()
        run = self.guard.run(str(id(trace)))
        if run.anchor is not trace:
            if run.anchor is not None:  # the id of an earlier trace, which no longer exists
                self.guard.forget(str(id(trace)))
                run = self.guard.run(str(id(trace)))
            run.anchor = trace
        return run

    def fallback(self) -> Model | None:
        if isinstance(self._fallback, str):
            self._fallback = self.provider.get_model(self._fallback)
        return self._fallback

    def model(self, model: Model | str | None) -> "_GuardedAgentModel":
        if isinstance(model, _GuardedAgentModel):
            return model
        return _GuardedAgentModel(self, model)

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        if isinstance(agent, _McpToolsGuarded):
            return agent
        known = self._agents.get(id(agent))
        if known is not None:
            return known[1]
        # A separate class, so that copies that the SDK makes of the agent stay guarded.
        kind = type(type(agent).__name__, (_McpToolsGuarded, type(agent)), {"guards": self})
        guarded: Agent[Any] = object.__new__(kind)
        guarded.__dict__.update(agent.__dict__)
        guarded.model, guarded.tools, guarded.handoffs = self.model(agent.model), [], []
        self._agents[id(agent)] = agent, guarded
        guarded.tools.extend(map(self.tool, agent.tools))
        guarded.handoffs.extend(map(self.handoff, agent.handoffs))
        return guarded

    def handoff(self, target: Any) -> Handoff[Any, Any]:
        given: Handoff[Any, Any] = handoff(target) if isinstance(target, Agent) else target
        invoke = given.on_invoke_handoff

        async def hand_over(context: Any, arguments: str) -> Any:
            # A step of the run, because agents that hand over to each other make no progress.
            step = (given.tool_name, arguments or "", given.agent_name)
            await run_in_thread(partial(self.run().observe, *step))
            return self.agent(await invoke(context, arguments))

        guarded = replace(given, on_invoke_handoff=hand_over)
        known = given._agent_ref  # noqa: SLF001
        if known is not None:  # by this, the SDK finds the agents of a run that it continues

            def guarded_target() -> (
                Any
            ):  # guarded on demand, because its handoffs may be added later
                agent: Any = known()
                return None if agent is None else self.agent(agent)

            guarded._agent_ref = guarded_target  # type: ignore[assignment]  # noqa: SLF001
        return guarded

    def tool(self, tool: Tool) -> Tool:
        if not isinstance(tool, FunctionTool) or isinstance(tool.on_invoke_tool, _GuardedInvoker):
            return tool  # hosted tools run at the provider
        guarded = copy(tool)
        guarded.on_invoke_tool = _GuardedInvoker(self, tool)
        return guarded


class _McpToolsGuarded:
    """An agent whose MCP tools, which it lists in each turn, are guarded like its own."""

    guards: _Guards

    async def get_mcp_tools(self, run_context: Any) -> list[Tool]:
        tools: list[Tool] = await super().get_mcp_tools(run_context)  # type: ignore[misc]
        return [self.guards.tool(tool) for tool in tools]


class _GuardedInvoker:
    """Invokes a function tool within its circuit; the model gets a refusal as the result."""

    def __init__(self, guards: _Guards, tool: FunctionTool) -> None:
        self._guards = guards
        self._tool = copy(tool)
        explain = resolve_function_tool_failure_error_function(tool)
        if explain is not None and not tool._use_default_failure_error_function:  # noqa: SLF001
            # The tool turns its exceptions into text; the mark reports them to the circuit.
            def explained(context: Any, error: Exception) -> Any:
                setattr(context, _DEFAULT_FAILURE, True)
                return explain(context, error)

            set_function_tool_failure_error_function(self._tool, explained)

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        name = self._tool.name
        try:
            async with self._guards.run().tool(name, arguments) as call:
                result = await self._tool.on_invoke_tool(context, arguments)
                failed = bool(getattr(context, _DEFAULT_FAILURE, False))
                warning = await call.afinished(result, failed=failed)
        except Rejected as error:
            return tool_error(name, error)
        return _warned(result, warning)

    def __getattr__(self, name: str) -> Any:
        is_pythons = name.startswith("__") and not name.startswith("__agents_")
        if is_pythons or name.startswith("__agents_bind"):  # a copy of the tool keeps this invoker
            raise AttributeError(name)
        return getattr(self._tool.on_invoke_tool, name)


class _GuardedProvider(ModelProvider):
    """A provider whose models are guarded."""

    def __init__(self, guards: _Guards) -> None:
        self._guards = guards

    def get_model(self, model_name: str | None) -> Model:
        return self._guards.model(self._guards.provider.get_model(model_name))

    async def aclose(self) -> None:
        await self._guards.provider.aclose()


class _GuardedAgentModel(Model):
    """A model inside of a run: each call needs a permit of its circuit and, with a budget, a reservation."""

    def __init__(self, guards: _Guards, model: Model | str | None) -> None:
        self._guards = guards
        self._model = model

    @property
    def wrapped(self) -> Model:
        if not isinstance(self._model, Model):
            self._model = self._guards.provider.get_model(self._model)
        return self._model

    def _chosen(self) -> Model:
        fallback = self._guards.fallback()
        refused = fallback is not None and self._guards.guard.refuses(_name(self.wrapped))
        return fallback if refused and fallback is not None else self.wrapped

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        run = self._guards.run()
        try:
            model = self._chosen()
            async with run.model(_name(model)) as call:
                response = await model.get_response(*args, **kwargs)
                _read(call, response.usage)
        except Refused as error:
            if not self._guards.guard.answers:
                raise
            return ModelResponse(output=[_message(error)], usage=Usage(), response_id=None)
        _said(run, response.output)
        return response

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        run = self._guards.run()
        try:
            model = self._chosen()
            async with run.model(_name(model)) as call:
                call.failed(TRUNCATED)
                reasons = _FinishReasons()
                async for event in reasons.watched(model).stream_response(*args, **kwargs):
                    response = getattr(event, "response", None)
                    if response is not None and event.type in _LAST_EVENTS:
                        is_failed = event.type == "response.failed"
                        call.failed(event.type if is_failed else reasons.problem())
                        if response.usage is not None:
                            _read(call, response.usage)
                        _said(run, response.output)
                    yield event
        except Refused as error:
            if not self._guards.guard.answers:
                raise
            yield _completed(_message(error))

    async def close(self) -> None:
        await self.wrapped.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self.wrapped.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.wrapped._cleanup_on_run_end(owner)  # noqa: SLF001


class _FinishReasons:
    """Checks whether a stream of chat completions contained a finish reason.

    The SDK completes the response of a stream that was cut off, unless it came from OpenAI's own host.
    """

    def __init__(self) -> None:
        self._chunks: Any = None
        self._is_known = False

    def problem(self) -> str:
        """The problem of a response that the SDK completed; empty if there is none."""
        return "" if self._chunks is None or self._is_known else TRUNCATED

    def watched(self, model: Model) -> Model:
        """A copy of a model for chat completions whose chunks are checked; other models are returned unchanged."""
        if not isinstance(model, OpenAIChatCompletionsModel):
            return model
        fetch: Any = model._fetch_response  # noqa: SLF001  the SDK has no public access to the chunks

        async def fetch_watched(*args: Any, **kwargs: Any) -> Any:
            response, self._chunks = await fetch(*args, **kwargs)
            return response, self

        watched: Any = copy(model)
        watched._fetch_response = fetch_watched  # noqa: SLF001
        return cast("Model", watched)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        chunk = await anext(self._chunks)
        choices = getattr(chunk, "choices", None) or ()
        self._is_known = self._is_known or any(choice.finish_reason for choice in choices)
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chunks, name)


_STRUCTURED = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
_LAST_EVENTS = frozenset(("response.completed", "response.incomplete", "response.failed"))


def _name(model: Model) -> ModelName:
    name = str(getattr(model, "model", ""))
    provider, slash, rest = name.rpartition("/")
    if slash:
        return ModelName(provider.rpartition("/")[2], rest)
    kind = type(model).__name__.lower()
    return ModelName("openai" if kind.startswith("openai") else kind, name)


def _warned(result: Any, warning: str | None) -> Any:
    if warning is None:
        return result
    items = result if isinstance(result, list) else [result]
    if items and all(isinstance(item, _STRUCTURED) for item in items):
        return [*items, ToolOutputText(text=warning)]
    return with_warning(str(result), warning)


def _read(call: ModelCall, usage: Any) -> None:
    details = getattr(usage, "input_tokens_details", None)
    cached = getattr(details, "cached_tokens", 0)
    call.used(usage.input_tokens, usage.output_tokens, cache_read=cached)


def _said(run: GuardedRun, output: list[Any]) -> None:
    texts = [
        part.text
        for item in output
        if item.type == "message"
        for part in item.content
        if part.type == "output_text"
    ]
    calls = any(item.type.endswith("_call") for item in output)
    run.said("\n".join(texts), calls_tools=calls)


def _message(error: BaseException) -> ResponseOutputMessage:
    text = ResponseOutputText(text=answer_text(error), type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="switchgear", type="message", role="assistant", status="completed", content=[text]
    )


def _completed(message: ResponseOutputMessage) -> ResponseCompletedEvent:
    response = Response(
        id="switchgear",
        created_at=time(),
        model="switchgear",
        object="response",
        output=[message],
        parallel_tool_calls=False,
        tool_choice="auto",
        tools=[],
    )
    return ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")
