"""LiteLLM: a callback for its router and its proxy, and guarded `completion` functions.

`litellm.callbacks.append(guard(panel=panel))` guards every async call, and the router skips deployments
whose circuits are open. LiteLLM has no callback that can refuse a blocking call; use
`guarded.completion(...)` for these.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Unpack
from weakref import finalize

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper

from switchgear._core.errors import BudgetRefused, Rejected
from switchgear._providers.verdicts import TRUNCATED
from switchgear.integrations._agent_run import AgentGuard, GuardOptions, ModelCall, ModelName
from switchgear.integrations._steps import Steps, adrive, drive

__all__ = ["SwitchgearLogger", "guard"]

_is_guarded: ContextVar[bool] = ContextVar("switchgear_litellm", default=False)
"""Whether the call in this context is already guarded."""
_WITH_REASONS = frozenset(
    (
        *("anthropic", "azure", "azure_ai", "bedrock", "cerebras", "custom_openai", "deepseek"),
        *("fireworks_ai", "gemini", "groq", "hosted_vllm", "litellm_proxy", "mistral", "openai"),
        *("openai_like", "openrouter", "together_ai", "vertex_ai", "xai"),
    )
)
"""Providers whose streams end with a finish reason."""
_COMPLETIONS = frozenset(
    ("acompletion", "atext_completion", "aembedding", "aresponses", "anthropic_messages")
)


class SwitchgearLogger(CustomLogger):
    """A callback for `litellm.callbacks` that guards model calls by circuit and budget.

    `fallback` is the model that `completion` and `acompletion` call while a circuit refuses; the router has
    fallbacks of its own. The other options are those of every agent framework: `panel`, `key`, `budget`,
    `reserve_micros`, `rates` and `on_refusal`. Without an admitted deployment, a router raises `Rejected`, or
    with `on_refusal="answer"` LiteLLM's own 429.
    """

    def __init__(self, *, fallback: str | None = None, **options: Unpack[GuardOptions]) -> None:
        super().__init__()
        self._guard = AgentGuard("litellm", **options)
        self._fallback = fallback
        self._calls: dict[str, ModelCall] = {}
        """The calls in progress, by LiteLLM's id."""
        self._with_end: set[str] = set()
        """The ids of those calls whose stream must end with a finish reason."""
        _watch_streams()

    # Direct calls

    def completion(self, *, model: str, **kwargs: Any) -> Any:
        """`litellm.completion`, guarded; a stream belongs to the call until its end."""
        return drive(self._completing(model, kwargs))

    async def acompletion(self, *, model: str, **kwargs: Any) -> Any:
        """`litellm.acompletion`, guarded; a stream belongs to the call until its end."""
        return await adrive(self._completing(model, kwargs))

    def _completing(self, model: str, kwargs: dict[str, Any]) -> Steps[Any]:
        model = self._chosen(model)
        call = self._guard.current().model(_name(model))
        yield call.__enter__, call.__aenter__
        try:
            token = _is_guarded.set(True)
            try:
                functions = litellm.completion, litellm.acompletion
                response = yield tuple(partial(each, model=model, **kwargs) for each in functions)
            finally:
                _is_guarded.reset(token)
        except BaseException as error:
            yield call.__exit__, call.__aexit__, type(error), error, None
            raise
        if kwargs.get("stream"):
            return _GuardedStream(call, response, has_end=_has_end(model, kwargs))
        _read(call, response)
        yield call.__exit__, call.__aexit__, None, None, None
        return response

    def _chosen(self, model: str) -> str:
        refused = self._fallback is not None and self._guard.refuses(_name(model))
        return self._fallback if refused and self._fallback is not None else model

    # Callbacks of the router, the proxy and `litellm.acompletion`

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Any],
        messages: Any,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[dict[str, Any]]:
        """The deployments whose circuits admit calls."""
        names = [_deployment_name(one) for one in healthy_deployments]
        admitted = [
            one
            for one, name in zip(healthy_deployments, names, strict=True)
            if not self._guard.refuses(name)
        ]
        if names and not admitted and not self._guard.answers:
            refusal = await self._guard.current().arefusal(names[0])
            if refusal is not None:
                raise DeploymentRejected(*refusal.args)
        return admitted

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Acquire a permit and reserve the cost. Raises `Rejected` or `BudgetRefused`."""
        kind = getattr(call_type, "value", call_type)
        key = kwargs.get("litellm_call_id")
        if _is_guarded.get() or kind not in _COMPLETIONS or not isinstance(key, str):
            return None
        call = self._guard.current().model(_name(str(kwargs.get("model") or ""), kwargs))
        if (earlier := self._taken(key)) is not None:
            await self._end(earlier, None)  # a retry with the same id
        try:
            await call.__aenter__()
        except Rejected as error:
            raise DeploymentRejected(*error.args) from error
        except BudgetRefused as error:
            raise DeploymentBudgetRefused(*error.args) from error
        self._calls[key] = call
        streams = bool(kwargs.get("stream"))
        if streams and _has_end(str(kwargs.get("model") or ""), kwargs):
            self._with_end.add(key)
        if streams and (logging := kwargs.get("litellm_logging_obj")) is not None:
            # The logging object lives as long as the stream.
            finalize(logging, self._dropped, key, call).atexit = False
        if (task := asyncio.current_task()) is not None:
            task.add_done_callback(lambda task: self._over(key, call, task, streams=streams))
        return None

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> Any:
        """Record the success of a call without a stream."""
        if (call := self._taken(request_data.get("litellm_call_id"))) is not None:
            _read(call, response)
            await self._end(call, None)

    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Mapping[str, Any],
        exception: Exception,
        call_type: Any,
        fallback_depth: int | None = None,
    ) -> None:
        """Record the failure of one attempt."""
        if (call := self._taken(request_data.get("litellm_call_id"))) is not None:
            await self._end(call, exception)

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Record the success of a stream that has ended."""
        await self.async_post_call_success_deployment_hook(kwargs, response_obj, None)

    async def async_log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Record the failure of a stream."""
        error = kwargs.get("exception")
        if (call := self._taken(kwargs.get("litellm_call_id"))) is not None:
            await self._end(call, error if isinstance(error, Exception) else None)

    def stream_was_cut(self, key: object, chunks: list[Any]) -> None:
        """Record the failure of a stream whose missing last chunk LiteLLM makes up."""
        if key in self._with_end and (call := self._taken(key)) is not None:
            call.failed(TRUNCATED)
            _read_chunks(call, chunks)
            call.__exit__(None, None, None)

    def _taken(self, key: object) -> ModelCall | None:
        """Remove and return the call with this id."""
        self._with_end.discard(str(key))
        return self._calls.pop(str(key), None)

    def _dropped(self, key: str, call: ModelCall) -> None:
        """End a call whose stream was dropped by its reader, because LiteLLM has not reported its end."""
        if self._calls.get(key) is call:
            self._taken(key)
            call.__exit__(GeneratorExit, GeneratorExit(), None)

    @staticmethod
    async def _end(call: ModelCall, error: Exception | None) -> None:
        await call.__aexit__(None if error is None else type(error), error, None)

    def _over(self, key: str, call: ModelCall, task: "asyncio.Task[Any]", *, streams: bool) -> None:
        """End a call at the end of its task: if LiteLLM has not reported its end, it was cancelled."""
        if self._calls.get(key) is call and (task.cancelled() or not streams):
            self._taken(key)
            call.__exit__(asyncio.CancelledError, asyncio.CancelledError(), None)


guard = SwitchgearLogger


class DeploymentRejected(Rejected):
    """A `Rejected` with a status that the router does not retry."""

    status_code = 424


class DeploymentBudgetRefused(BudgetRefused):
    """A `BudgetRefused` with a status that the router does not retry."""

    status_code = 402


class _GuardedStream:
    """The chunks of a response; the call ends after the last chunk, or when the stream is dropped."""

    def __init__(self, call: ModelCall, stream: Any, *, has_end: bool) -> None:
        self._call, self._stream, self._has_end = call, stream, has_end
        self._chunks: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            chunk = next(self._stream)
        except StopIteration:
            self._read_all()
            self._call.__exit__(None, None, None)
            raise
        except BaseException as error:
            self._call.__exit__(type(error), error, None)
            raise
        self._chunks.append(chunk)
        return chunk

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self._stream)
        except StopAsyncIteration:
            self._read_all()
            await self._call.__aexit__(None, None, None)
            raise
        except BaseException as error:
            await self._call.__aexit__(type(error), error, None)
            raise
        self._chunks.append(chunk)
        return chunk

    def _read_all(self) -> None:
        if self._has_end and _has_no_reason(self._stream):
            self._call.failed(TRUNCATED)  # LiteLLM has made up the missing last chunk
        _read_chunks(self._call, self._chunks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __del__(self) -> None:
        self._call.__exit__(GeneratorExit, GeneratorExit(), None)  # no effect if it has ended


def _has_no_reason(stream: Any) -> bool:
    reasons = ("received_finish_reason", "intermittent_finish_reason")
    return all(getattr(stream, each, "") is None for each in reasons)


def _watch_streams() -> None:
    """Make LiteLLM report streams without a last chunk; callbacks only see the chunk that it makes up."""
    streams: Any = CustomStreamWrapper
    write_last = streams.finish_reason_handler
    if hasattr(write_last, "__wrapped__"):
        return

    @wraps(write_last)
    def noted(self: Any) -> Any:
        if _has_no_reason(self):
            for callback in litellm.callbacks:
                if isinstance(callback, SwitchgearLogger):
                    callback.stream_was_cut(self.logging_obj.litellm_call_id, self.chunks)
        return write_last(self)

    streams.finish_reason_handler = noted


def _read_chunks(call: ModelCall, chunks: list[Any]) -> None:
    with suppress(Exception):  # LiteLLM cannot combine the chunks: unknown usage
        _read(call, litellm.stream_chunk_builder(chunks))


def _name(model: str, kwargs: Mapping[str, Any] | None = None) -> ModelName:
    try:
        base = None if kwargs is None else kwargs.get("api_base")
        provider = None if kwargs is None else kwargs.get("custom_llm_provider")
        name, provider, _, _ = litellm.get_llm_provider(model, provider, base)
    except Exception:  # noqa: BLE001  LiteLLM does not know the model; the call will report that
        return ModelName(model.partition("/")[0], model)
    return ModelName(provider, name)


def _has_end(model: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether a complete stream ends with a finish reason; streams of mocks have none."""
    return "mock_response" not in kwargs and _name(model, kwargs).provider in _WITH_REASONS


def _deployment_name(deployment: Any) -> ModelName:
    params = deployment.get("litellm_params", {})
    return _name(str(params.get("model", "")), params)


def _read(call: ModelCall, response: Any) -> None:
    usage = getattr(response, "usage", None)
    hidden = getattr(response, "_hidden_params", None) or {}
    cost = hidden.get("response_cost") if isinstance(hidden, dict) else None
    if cost is None:
        with suppress(Exception):  # an unknown model: the price list decides
            cost = litellm.completion_cost(response)
    call.used(
        getattr(usage, "prompt_tokens", None),
        getattr(usage, "completion_tokens", None),
        cost_micros=math.ceil(cost * 1e6 - 1e-6) if cost else None,
    )
