"""LangChain and LangGraph: a middleware for `create_agent`.

`create_agent(model, tools, middleware=[guard(panel=panel, budget="team")])`. A run starts with a message of
the user; agents that tools start are sub-agents of the run.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Unpack

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.structured_output import StructuredOutputError
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from switchgear._core.errors import Rejected
from switchgear._providers.verdicts import TRUNCATED
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

__all__ = ["SwitchgearMiddleware", "guard"]

ToolResult = ToolMessage | Command[Any]
_WITH_REASONS = frozenset(
    ("anthropic", "deepseek", "google_genai", "groq", "mistralai", "openai", "xai")
)
"""Providers whose complete messages have a finish reason."""
_REASONS = frozenset(("finish_reason", "status", "stop_reason"))
"""The metadata keys of the finish reason."""


class SwitchgearMiddleware(AgentMiddleware[Any, Any, Any]):
    """Guards the model calls, the tool calls and the progress of agents, which share circuits and budget.

    `fallback` is the model that is called while the circuit of the agent's own model refuses; it has a
    circuit of its own. The other options are those of every agent framework: `GuardOptions`.
    """

    def __init__(
        self, *, fallback: BaseChatModel | str | None = None, **options: Unpack[GuardOptions]
    ) -> None:
        super().__init__()
        flow = (GraphBubbleUp, StructuredOutputError)
        self._guard = AgentGuard("langchain", control_flow=flow, **options)
        self._fallback = init_chat_model(fallback) if isinstance(fallback, str) else fallback

    def run_of(self, state: Any) -> GuardedRun:
        """The run of a state of the agent: that of the last message of the user."""
        messages = state.get("messages", ()) if isinstance(state, dict) else ()
        for message in reversed(messages):
            if isinstance(message, HumanMessage):
                return self._guard.run(message.id or "")
        return self._guard.run()

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Call the model, or the fallback, within circuit and budget."""
        run = self.run_of(request.state)
        try:
            request = self._chosen(request)
            with run.model(_name(request.model)) as call:
                try:
                    response = handler(request)
                except StructuredOutputError as error:
                    _read(call, [error.ai_message])  # the message is invalid, but is billed
                    raise
                _read(call, response.result)
        except Refused as error:
            return self._answer(error)
        _said(run, response)
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """`wrap_model_call` without blocking the event loop."""
        run = self.run_of(request.state)
        try:
            request = self._chosen(request)
            async with run.model(_name(request.model)) as call:
                try:
                    response = await handler(request)
                except StructuredOutputError as error:
                    _read(call, [error.ai_message])
                    raise
                _read(call, response.result)
        except Refused as error:
            return self._answer(error)
        _said(run, response)
        return response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> ToolResult:
        """Call the tool within its circuit; a refusal is the tool's error message."""
        called = request.tool_call
        try:
            with self.run_of(request.state).tool(called["name"], called["args"]) as call:
                result = handler(request)
                return _warned(result, call.finished(_text(result), failed=_is_error(result)))
        except Rejected as error:
            return _refused(called, error)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        """`wrap_tool_call` without blocking the event loop."""
        called = request.tool_call
        try:
            async with self.run_of(request.state).tool(called["name"], called["args"]) as call:
                result = await handler(request)
                warning = await call.afinished(_text(result), failed=_is_error(result))
                return _warned(result, warning)
        except Rejected as error:
            return _refused(called, error)

    def _chosen(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request, with the fallback model while its own model is refused."""
        if self._fallback is None or not self._guard.refuses(_name(request.model)):
            return request
        return request.override(model=self._fallback)

    def _answer(self, error: BaseException) -> ModelResponse[Any]:
        if not self._guard.answers:
            raise error
        return ModelResponse(result=[AIMessage(answer_text(error))])


guard = SwitchgearMiddleware


_names: dict[int, tuple[BaseChatModel, ModelName]] = {}
"""A cache of model names, because LangChain recomputes them each time."""
_MOST_NAMES = 100


def _name(model: BaseChatModel) -> ModelName:
    known = _names.get(id(model))
    if known is not None and known[0] is model:
        return known[1]
    if len(_names) >= _MOST_NAMES:
        _names.clear()
    name = _name_of(model)
    _names[id(model)] = model, name
    return name


def _name_of(model: BaseChatModel) -> ModelName:
    params = model._get_ls_params()  # noqa: SLF001  the only source of names for all chat models
    return ModelName(params.get("ls_provider", ""), params.get("ls_model_name", ""))


def _read(call: ModelCall, messages: Iterable[BaseMessage]) -> None:
    for message in messages:
        if not isinstance(message, AIMessage):
            continue
        about = message.response_metadata
        if about.get("model_provider") in _WITH_REASONS and about.keys().isdisjoint(_REASONS):
            call.failed(TRUNCATED)  # LangChain returns the part of the stream that arrived
        if (usage := message.usage_metadata) is not None:
            details = usage.get("input_token_details", {})
            call.used(
                usage["input_tokens"],
                usage["output_tokens"],
                cache_read=details.get("cache_read"),
                cache_write=details.get("cache_creation"),
            )


def _said(run: GuardedRun, response: ModelResponse[Any]) -> None:
    for message in response.result:
        if isinstance(message, AIMessage) and (message.tool_calls or run.is_judged):
            run.said(message.text, calls_tools=bool(message.tool_calls))


def _text(result: ToolResult) -> str:
    return result.text if isinstance(result, BaseMessage) else str(result.update)


def _is_error(result: ToolResult) -> bool:
    return isinstance(result, ToolMessage) and result.status == "error"


def _warned(result: ToolResult, warning: str | None) -> ToolResult:
    if warning is None or not isinstance(result, ToolMessage):
        return result
    content = result.content
    if isinstance(content, str):
        return result.model_copy(update={"content": with_warning(content, warning)})
    return result.model_copy(update={"content": [*content, {"type": "text", "text": warning}]})


def _refused(called: Any, error: Rejected) -> ToolMessage:
    text = tool_error(called["name"], error)
    return ToolMessage(text, tool_call_id=called["id"], name=called["name"], status="error")
