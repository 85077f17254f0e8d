"""Google ADK: a plugin for `Runner(..., plugins=[guard(panel=panel)])`.

A run is one invocation. Agents that tools start, such as those of `AgentTool`, are sub-agents of the run.
"""

import asyncio
from typing import Any, Unpack

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models import BaseLlm, LLMRegistry
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from switchgear._core.errors import Rejected
from switchgear._providers.verdicts import TRUNCATED
from switchgear.integrations._agent_run import (
    AgentGuard,
    GuardedRun,
    GuardOptions,
    ModelCall,
    ModelName,
    Refused,
    ToolCall,
    answer_text,
    tool_error,
)

__all__ = ["SwitchgearPlugin", "guard"]

_FAMILIES = {"gemini": "google", "gemma": "google", "claude": "anthropic", "gpt": "openai"}


class SwitchgearPlugin(BasePlugin):
    """Guards all agents of a runner: model calls, tool calls and progress. Runners may share it.

    `fallback` is the model that is called while the circuit of an agent's own model refuses; it has a circuit
    of its own. A refused model call gives an `LlmResponse` with the error code `SWITCHGEAR_REFUSED` and the
    reason. With `on_refusal="raise"` the run raises a `RuntimeError`, as ADK does for all exceptions of
    plugins, with the `Rejected` or `BudgetRefused` as its cause. The other options are those of every agent
    framework: `GuardOptions`.
    """

    def __init__(
        self, *, fallback: BaseLlm | str | None = None, **options: Unpack[GuardOptions]
    ) -> None:
        super().__init__(name="switchgear")
        options.setdefault("on_refusal", "answer")
        self._guard = AgentGuard("google-adk", **options)
        self._fallback = LLMRegistry.new_llm(fallback) if isinstance(fallback, str) else fallback
        self._models: dict[tuple[str, str, int], ModelCall] = {}
        """The model calls in progress, by invocation, agent and task."""
        self._tools: dict[str, ToolCall] = {}

    def run_of(self, invocation_id: str) -> GuardedRun:
        """The run of an invocation."""
        return self._guard.run(invocation_id)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Acquire a permit and reserve the cost, or call the fallback while the model is refused."""
        run = self.run_of(callback_context.invocation_id)
        name = _name(llm_request.model or "")
        try:
            if self._fallback is not None and self._guard.refuses(name):
                return await self._fall_back(run, self._fallback, llm_request)
            call = run.model(name)
            await call.__aenter__()
        except Refused as error:
            if not self._guard.answers:
                raise
            text = answer_text(error)
            content = types.Content(role="model", parts=[types.Part(text=text)])
            return LlmResponse(content=content, error_code="SWITCHGEAR_REFUSED", error_message=text)
        key = _key(callback_context)
        self._models[key] = call
        if (task := asyncio.current_task()) is not None:
            is_own = run.anchor not in {None, id(task)}
            task.add_done_callback(lambda task: self._over(key, call, task, is_own=is_own))
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Record the last response of a call; earlier ones are parts of a stream."""
        if llm_response.partial:
            return None
        call = self._models.pop(_key(callback_context), None)
        if call is not None:
            _read(call, llm_response)
            if _is_truncated(callback_context, llm_response):
                call.failed(TRUNCATED)  # ADK returns the part of the stream that arrived
            await call.__aexit__(None, None, None)
        parts = (llm_response.content and llm_response.content.parts) or []
        text = "".join(part.text or "" for part in parts)
        calls = any(part.function_call for part in parts)
        self.run_of(callback_context.invocation_id).said(text, calls_tools=calls)
        return None

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Record the failure of a call."""
        if (call := self._models.pop(_key(callback_context), None)) is not None:
            await call.__aexit__(type(error), error, None)
        return None

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Record the calls of an invocation whose streams ended without a last response."""
        for key in [key for key in self._models if key[0] == invocation_context.invocation_id]:
            call = self._models.pop(key)
            call.failed(TRUNCATED)
            await call.__aexit__(None, None, None)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Store the task of the caller, because model calls may run in tasks of their own."""
        self.run_of(invocation_context.invocation_id).anchor = id(asyncio.current_task())

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Acquire the permit of a tool; a refused call answers with an error."""
        call = self.run_of(tool_context.invocation_id).tool(tool.name, tool_args)
        try:
            await call.__aenter__()
        except Rejected as error:
            return {"error": tool_error(tool.name, error)}
        self._tools[tool_context.function_call_id or ""] = call
        return None

    async def after_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        result: Any,
    ) -> dict[str, Any] | None:
        """Record the result of a tool; warn an agent that makes no progress."""
        call = self._tools.pop(tool_context.function_call_id or "", None)
        if call is None:
            return None
        failed = isinstance(result, dict) and bool(result.get("error"))
        warning = await call.afinished(result, failed=failed)
        await call.__aexit__(None, None, None)
        if warning is None:
            return None
        return {**(result if isinstance(result, dict) else {"result": result}), "warning": warning}

    async def on_tool_error_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        error: Exception,
    ) -> dict[str, Any] | None:
        """Record the failure, or the cancellation, of a tool."""
        if (call := self._tools.pop(tool_context.function_call_id or "", None)) is not None:
            await call.__aexit__(type(error), error, None)
        return None

    async def _fall_back(
        self, run: GuardedRun, model: BaseLlm, request: LlmRequest
    ) -> LlmResponse | None:
        last = None
        fallback_request = request.model_copy(update={"model": model.model})
        async with run.model(_name(model.model)) as call:
            async for response in model.generate_content_async(fallback_request, stream=False):
                last = response
                _read(call, response)
        return last

    def _over(
        self,
        key: tuple[str, str, int],
        call: ModelCall,
        task: "asyncio.Task[Any]",
        *,
        is_own: bool,
    ) -> None:
        """End a call at the end of its task: if ADK has not reported its end, it broke off or was cancelled."""
        if self._models.get(key) is not call:
            return
        del self._models[key]
        if is_own and not task.cancelled() and task.exception() is None:
            call.failed(TRUNCATED)
            call.__exit__(None, None, None)
        else:  # the caller has left the call
            call.__exit__(asyncio.CancelledError, asyncio.CancelledError(), None)


guard = SwitchgearPlugin


def _key(context: CallbackContext) -> tuple[str, str, int]:
    return context.invocation_id, context.agent_name, id(asyncio.current_task())


def _is_truncated(context: CallbackContext, response: LlmResponse) -> bool:
    """Whether a stream of one of ADK's own models ended without a finish reason; other models may give none."""
    if response.partial is not False or response.finish_reason or response.error_code:
        return False
    agent = getattr(getattr(context, "_invocation_context", None), "agent", None)
    kinds = type(getattr(agent, "canonical_model", None)).__mro__
    return any(
        one.__module__.startswith("google.adk.models.") and one is not BaseLlm for one in kinds
    )


def _name(model: str) -> ModelName:
    provider, slash, rest = model.partition("/")
    if slash:
        return ModelName(provider, rest)
    family = next((name for start, name in _FAMILIES.items() if model.startswith(start)), model)
    return ModelName(family, model)


def _read(call: ModelCall, response: LlmResponse) -> None:
    if (usage := response.usage_metadata) is not None:
        call.used(
            usage.prompt_token_count,
            (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
            cache_read=usage.cached_content_token_count,
        )
