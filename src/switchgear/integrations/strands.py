"""Strands Agents: a plugin, as in `Agent(plugins=[guard(panel=panel)])`.

Middleware guards the model calls and the tool calls; the warning about missing progress is a `Guide`.
A run is one invocation of an agent; agents that its tools start are sub-agents of the run.
"""

from collections.abc import AsyncGenerator
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack
from weakref import WeakKeyDictionary

from strands.hooks import BeforeInvocationEvent, BeforeModelCallEvent
from strands.interrupt import InterruptException
from strands.interventions import Guide, InterventionHandler, Proceed
from strands.interventions.registry import InterventionRegistry
from strands.middleware import (
    ExecuteToolContext,
    ExecuteToolStage,
    InvokeModelContext,
    InvokeModelStage,
    MiddlewareNext,
    ModelStopReason,
    ToolResultEvent,
    TypedEvent,
)
from strands.models import Model
from strands.plugins import Plugin
from strands.types.exceptions import ContextWindowOverflowException, MaxTokensReachedException

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
)

if TYPE_CHECKING:
    from strands import Agent

__all__ = ["SwitchgearInterventions", "guard"]

_CONTROL_FLOW = (InterruptException, ContextWindowOverflowException, MaxTokensReachedException)


class _Invocation(NamedTuple):
    run: GuardedRun
    warnings: list[str]
    """Warnings for the next model call."""


class SwitchgearInterventions(Plugin, InterventionHandler):
    """Guards the model calls, the tool calls and the progress of agents, which share circuits and budget.

    `fallback` is the model that is called while the circuit of an agent's own model refuses; it has a
    circuit of its own. The other options are those of every agent framework: `GuardOptions`.
    """

    name = "switchgear"

    def __init__(self, *, fallback: Model | None = None, **options: Unpack[GuardOptions]) -> None:
        super().__init__()
        self._guard = AgentGuard("strands", control_flow=_CONTROL_FLOW, **options)
        self._fallback = fallback
        self._invocations: WeakKeyDictionary[object, _Invocation] = WeakKeyDictionary()

    def init_agent(self, agent: "Agent") -> None:
        """Guard an agent: Strands calls this for each agent that has the plugin."""
        InterventionRegistry([self], agent.hooks)
        agent.add_middleware(InvokeModelStage, self._model)
        agent.add_middleware(ExecuteToolStage, self._tool)

    def run_of(self, agent: object) -> GuardedRun:
        """The run of the last invocation of an agent."""
        return self._of(agent).run

    def _of(self, agent: object) -> _Invocation:
        known = self._invocations.get(agent)
        return self._started(agent) if known is None else known

    def _started(self, agent: object) -> _Invocation:
        self._invocations[agent] = started = _Invocation(self._guard.run(), [])
        return started

    def before_invocation(self, event: BeforeInvocationEvent, **kwargs: Any) -> Proceed:
        """Start a run."""
        self._started(event.agent)
        return Proceed()

    def before_model_call(self, event: BeforeModelCallEvent, **kwargs: Any) -> Proceed | Guide:
        """Guide an agent that makes no progress: the warning is a message of the user."""
        warnings = self._of(event.agent).warnings
        feedback = "\n".join(warnings)
        warnings.clear()
        return Guide(feedback=feedback) if feedback else Proceed()

    async def _model(
        self, context: InvokeModelContext, call_next: MiddlewareNext[InvokeModelContext, TypedEvent]
    ) -> AsyncGenerator[TypedEvent, None]:
        run = self.run_of(context.agent)
        try:
            if self._fallback is not None and self._guard.refuses(_name(context.model)):
                context = context.replace(model=self._fallback)
            ending = _MessageEnd(context.model)
            async with run.model(_name(context.model)) as call:
                async for event in call_next(context.replace(model=ending.model)):
                    if isinstance(chunk := event.get("event"), dict):
                        ending.read(chunk)
                    if isinstance(event, ModelStopReason):
                        if ending.is_missing and event["stop"][0] != "cancelled":
                            call.failed(TRUNCATED)  # Strands treats this as the end of the turn
                        _read(call, event)
                        content = event.message["content"]
                        calls = any("toolUse" in block for block in content)
                        run.said(_text(content), calls_tools=calls)
                    yield event
        except Refused as error:
            if not self._guard.answers:
                raise
            yield ModelStopReason(
                "end_turn",
                {"role": "assistant", "content": [{"text": answer_text(error)}]},
                {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0},
                {"latencyMs": 0},
            )

    async def _tool(
        self, context: ExecuteToolContext, call_next: MiddlewareNext[ExecuteToolContext, TypedEvent]
    ) -> AsyncGenerator[TypedEvent, None]:
        invocation, tool = self._of(context.agent), context.tool_use
        try:
            async with invocation.run.tool(tool["name"], tool["input"]) as call:
                async for event in call_next(context):
                    if isinstance(event, ToolResultEvent):
                        call.raised(event.exception)
                        result = event.tool_result
                        text, failed = _text(result["content"]), result["status"] == "error"
                        if warning := await call.afinished(text, failed=failed):
                            invocation.warnings.append(warning)
                    elif "tool_interrupt_event" in event:
                        call.raised(
                            InterruptException(event["tool_interrupt_event"]["interrupts"][0])
                        )
                    yield event
        except Rejected as error:
            yield ToolResultEvent(
                {
                    "toolUseId": tool["toolUseId"],
                    "status": "error",
                    "content": [{"text": tool_error(tool["name"], error)}],
                }
            )


guard = SwitchgearInterventions


class _MessageEnd:
    """Checks whether the stream of a model contained a stop reason.

    Some models of Strands write a message stop even if the stream was cut off; a copy of the model shows the
    reason in it. The Responses API reports usage with the end, and only then.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.is_missing = True
        self._is_empty = True
        self._reason: Any = "unknown"
        kinds = {kind.__name__ for kind in type(model).__mro__}
        self._is_gemini = "GeminiModel" in kinds
        self._last = "metadata" if "OpenAIResponsesModel" in kinds else "messageStop"
        for kind, name in _STOP_FORMATS.items():
            if kind in kinds and hasattr(model, name):
                self.model = self._watched(model, name)

    def _watched(self, model: Model, name: str) -> Model:
        format_chunk = getattr(model, name)

        def watched_format(event: dict[str, Any], **kwargs: Any) -> Any:
            if event.get("chunk_type") == "message_stop":
                self._reason = event.get("data")
            return format_chunk(event, **kwargs)

        watched = copy(model)
        setattr(watched, name, watched_format)
        return watched

    def read(self, chunk: dict[str, Any]) -> None:
        """Read the next chunk, in the format of Strands."""
        if "contentBlockStart" in chunk:
            self._is_empty = False
        if self._last in chunk:
            self.is_missing = self._reason in {None, "end_turn"} or (
                # Strands writes a plain text if the last event had no candidate; real reasons are enums.
                self._is_gemini and self._is_empty and type(self._reason) is str
            )


_STOP_FORMATS = {"OpenAIModel": "format_chunk", "GeminiModel": "_format_chunk"}
"""The methods of models that write a message stop; without a reason they write "end_turn" or `None`."""


def _name(model: Model) -> ModelName:
    config = model.get_config()
    named = config.get("model_id") if isinstance(config, dict) else None
    provider = type(model).__name__.lower().removesuffix("model").removesuffix("responses")
    return ModelName(provider, str(named or ""))


def _read(call: ModelCall, event: ModelStopReason) -> None:
    usage = event.usage
    read, write = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
    sent, answered = usage["inputTokens"], usage["outputTokens"]
    if sent + answered != usage["totalTokens"]:  # some providers count cached tokens separately
        sent += read + write
    call.used(sent, answered, cache_read=read, cache_write=write)


def _text(content: Any) -> str:
    return "\n".join(str(block.get("text") or block.get("json") or "") for block in content)
