"""Pydantic AI: a capability for `Agent(capabilities=[guard(...)])`.

Every attempt at a model request, streamed or not, is guarded by the circuit of its model. Agents that tools
run are sub-agents of the run.
"""

from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Unpack

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelRetry,
    RetryModelRequest,
    SkipModelRequest,
    SkipToolExecution,
    ToolFailed,
    ToolRetryError,
)
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturn
from pydantic_ai.models import (
    Model,
    ModelRequestContext,
    StreamedResponse,
    infer_model,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import ToolDefinition

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

__all__ = ["ModelRejected", "SwitchgearCapability", "guard"]

_RETRIES = (ModelRetry, ToolRetryError)
"""Exceptions that ask the model to correct its call: no evidence against the tool, but a failed step."""
_CONTROL_FLOW = (ApprovalRequired, CallDeferred, RetryModelRequest, SkipModelRequest)
_WITH_REASONS = frozenset(
    ("anthropic", "bedrock", "cohere", "google", "groq", "huggingface", "mistral", "openai")
)
"""Modules of Pydantic AI whose streams have a finish reason in `provider_details`."""


class SwitchgearCapability(AbstractCapability[Any]):
    """Guards the model calls, the tool calls and the progress of agents, which share circuits and budget.

    `fallback` is the model that is called while the circuit of the agent's own model refuses; it has a
    circuit of its own. The other options are those of every agent framework: `GuardOptions`.
    """

    _run: GuardedRun | None = None

    def __init__(
        self, *, fallback: Model | str | None = None, **options: Unpack[GuardOptions]
    ) -> None:
        super().__init__()
        flow = (*_CONTROL_FLOW, *_RETRIES, SkipToolExecution)
        self._guard = AgentGuard("pydantic-ai", control_flow=flow, **options)
        self._fallback = None if fallback is None else infer_model(fallback)

    def run_of(self, run_id: str | None) -> GuardedRun:
        """The run with an id: `guarded.run_of(result.run_id)`."""
        return self._guard.run(run_id or "")

    async def for_run(self, ctx: RunContext[Any]) -> "SwitchgearCapability":
        """A copy for one run."""
        own = copy(self)
        own._run = self.run_of(ctx.run_id)  # noqa: SLF001
        return own

    def get_wrapper_model(self, model: Model) -> Model | None:
        """The model, guarded by its circuit and the budget of the run."""
        return _guarded(model, self._run or self._guard.current())

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """Use the fallback while the model is refused; answer a refusal if so configured."""
        run = self._run or self.run_of(ctx.run_id)
        fallback = self._fallback
        if fallback is not None and self._refuses(request_context.model):
            request_context = replace(request_context, model=fallback, model_id=fallback.model_id)
        if self._guard.answers and request_context.streaming:
            refusal = await _refusal(run, request_context.model)
            if refusal is not None:  # a stream would raise it in its reader
                return _answer(refusal)
        try:
            with _first_refusal():
                response = await handler(request_context)
        except Refused as error:
            if not self._guard.answers:
                raise
            return _answer(error)
        run.said(response.text or "", calls_tools=bool(response.tool_calls))
        return response

    def _refuses(self, model: Model) -> bool:
        return all(self._guard.refuses(_name(one)) for one in _members(model))

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Any,
    ) -> Any:
        """Call the tool within its circuit; a refusal is a failed tool result."""
        run = self._run or self.run_of(ctx.run_id)
        try:
            async with run.tool(call.tool_name, args) as guarded:
                try:
                    result = await handler(args)
                except _RETRIES as error:
                    await guarded.afinished(str(error), failed=True)
                    raise
                shown = result.return_value if isinstance(result, ToolReturn) else result
                return _warned(result, await guarded.afinished(shown))
        except Rejected as error:
            raise ToolFailed(tool_error(call.tool_name, error)) from error


guard = SwitchgearCapability


class ModelRejected(Rejected, ModelAPIError):
    """The circuit of a model refuses. Pydantic AI treats this as an error of the model and uses its fallbacks."""

    def __init__(self, model_name: str, refusal: Rejected) -> None:
        ModelAPIError.__init__(self, model_name, str(refusal), retry_after=refusal.retry_after_s)
        self.args = refusal.args

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model_name, Rejected(*self.args))


def _guarded(model: Model, run: GuardedRun) -> Model:
    """The guarded model; if it has fallbacks, each of its models has its own circuit."""
    if not isinstance(model, FallbackModel):
        return _GuardedModel(model, run)
    guarded = copy(model)
    guarded.models = [_guarded(one, run) for one in model.models]
    return _GuardedFallbacks(guarded)


def _members(model: Model) -> Iterator[Model]:
    """The models with a circuit: the model itself, or the models of a `FallbackModel`."""
    if not isinstance(model, FallbackModel):
        yield model
        return
    for one in model.models:
        yield from _members(one)


async def _refusal(run: GuardedRun, model: Model) -> Rejected | None:
    """The refusal of a model and all its fallbacks now; `None` if one of them is admitted."""
    first = None
    for one in _members(model):
        refusal = await run.arefusal(_name(one))
        if refusal is None:
            return None
        first = first or refusal
    return first


@contextmanager
def _first_refusal() -> Generator[None]:
    """Raise the first refusal if all models of a chain of fallbacks are refused."""
    try:
        yield
    except FallbackExceptionGroup as group:
        if all(isinstance(error, Refused) for error in group.exceptions):
            raise group.exceptions[0] from None
        raise


class _GuardedFallbacks(WrapperModel):
    """A model with guarded fallbacks; it is refused if all of them are."""

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        with _first_refusal():
            return await super().request(*args, **kwargs)

    @asynccontextmanager
    async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[StreamedResponse]:
        with _first_refusal():
            async with self.wrapped.request_stream(*args, **kwargs) as stream:
                yield stream


class _GuardedModel(WrapperModel):
    """A model inside of a run: each request needs a permit of its circuit and, with a budget, a reservation."""

    def __init__(self, wrapped: Model, run: GuardedRun) -> None:
        super().__init__(wrapped)
        self._run = run

    @asynccontextmanager
    async def _call(self) -> AsyncGenerator[ModelCall]:
        call = self._run.model(_name(self.wrapped))
        try:
            async with call:
                yield call
        except Rejected as error:
            if error.circuit != call.breaker.name:
                raise  # the run is stopped, so another model would not help
            raise ModelRejected(self.model_name, error) from None

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        async with self._call() as call:
            response = await super().request(*args, **kwargs)
            _read(call, response)
        return response

    @asynccontextmanager
    async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[StreamedResponse]:
        async with (
            self._call() as call,
            self.wrapped.request_stream(*args, **kwargs) as stream,
        ):
            try:
                yield stream
            finally:
                response = stream.get()
                _read(call, response)
                # `_finished` shows whether the reader left; `state` does not distinguish that from a cut stream.
                if stream._finished and _is_truncated(stream, response):  # noqa: SLF001
                    call.failed(TRUNCATED)


def _name(model: Model) -> ModelName:
    return ModelName(model.system, model.model_name)


def _answer(error: BaseException) -> ModelResponse:
    return ModelResponse(parts=[TextPart(answer_text(error))])


def _read(call: ModelCall, response: ModelResponse) -> None:
    usage = response.usage
    call.used(
        usage.input_tokens,
        usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
    )
    if _reason(response) == "failed":
        call.failed("the provider reported that the response failed")


def _reason(response: ModelResponse) -> Any:
    """The finish reason of the provider; `finish_reason` may be a guess of Pydantic AI."""
    return (response.provider_details or {}).get("finish_reason")


def _is_truncated(stream: StreamedResponse, response: ModelResponse) -> bool:
    """Whether a stream that was read to its end had no finish reason, although its provider sends one."""
    modules = [kind.__module__.split(".") for kind in type(stream).__mro__]
    families = {name[2] for name in modules if name[:2] == ["pydantic_ai", "models"] and name[2:]}
    if families.isdisjoint(_WITH_REASONS) or response.state == "suspended":
        return False
    is_refusal = response.finish_reason == "content_filter"  # it has no other reason
    if _reason(response) is not None or is_refusal:
        return False
    if "groq" not in families:
        return True
    # Pydantic AI ends a stream without a reason if Groq reports that the model made an invalid tool call.
    return bool(getattr(getattr(stream, "_response", None), "_exhausted", False))


def _warned(result: Any, warning: str | None) -> Any:
    if warning is None:
        return result
    if isinstance(result, str):
        return with_warning(result, warning)
    if not isinstance(result, ToolReturn):
        return ToolReturn(result, content=warning)
    content: Sequence[Any] = result.content or ()
    before = [content] if isinstance(content, str) else list(content)
    return replace(result, content=[*before, warning])
