"""Guards one HTTP call: circuit, budget, metering, refusals and fallbacks, for every client library.

The libraries only differ in how a request is sent and how a response is streamed; everything else is here.
`exchange` is written once for blocking and for async clients; see `_steps.py`.
"""

import json
import math
import re
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, TypedDict
from urllib.parse import quote, urlsplit

from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._breaker.signals import describe, is_no_evidence
from switchgear._budgets.budgets import Reservation, Tags, checked_tags
from switchgear._core.errors import NAME, BudgetRefused, Rejected, StoreError
from switchgear._core.types import Permit, Signal
from switchgear._panel.panel import Panel
from switchgear._providers.errors import ProviderError, classify
from switchgear._providers.prices import TokenCost, TokenUsage
from switchgear._providers.table import ProviderErrorKind
from switchgear._providers.traffic import ModelProtocol, ModelRequest, provider_of, read_request
from switchgear._providers.upstreams import KEY_HEADERS, error_body, key_header
from switchgear._providers.usage import Metered, ResponseMeter
from switchgear._providers.verdicts import ResponseVerdict, judge_response
from switchgear._sinks.dispatch import log_exception, log_warning
from switchgear.integrations._steps import Steps, adrive, drive, in_thread

OnRefusal = Literal["raise", "answer"]
KEYS = {
    "host": "host/{host}",
    "provider": "provider/{provider}",
    "model": "provider/{provider}/{model}",
}
"""The short names for the option `key`, and the templates of circuit names that they stand for."""
REFUSED_HEADER = "x-switchgear-refused"
"""Marks a response that did not come from a provider; its value is the circuit or budget that refused."""
_REFUSED_STATUSES = (200, 402, 503)
LONGEST_ERROR_BODY = 64 * 1024
"""Maximum bytes of an error response that are read to classify it."""
_LONGEST_PART = 120
_NOT_FORWARDED = frozenset(
    ("host", "content-length", "transfer-encoding", "content-encoding", "connection")
)
_REFUSAL_KINDS = {
    "anthropic": ("billing_error", "overloaded_error"),
    "google": ("RESOURCE_EXHAUSTED", "UNAVAILABLE"),
}
"""The error types of a family for a refusal by a budget and for a refusal by a circuit."""
_MISTAKES = (TypeError, ValueError, LookupError, AttributeError)
"""Exceptions for a request that could not be built and was not sent."""
_MISUSES = frozenset(
    ("UnsupportedProtocol", "LocalProtocolError", "InvalidURL", "AnthropicError", "OpenAIError")
)
_FIELD = re.compile(r"\{(host|provider|model)\}")


class Fallback(NamedTuple):
    """Another model, or another provider with the same protocol, for calls that cannot be served.

    - `model`: the model to name in the request. Default: the model that the caller named.
    - `base_url`: the base URL of the provider, as in its SDK. Default: that of the original request.
    - `api_key`: the key of the provider. Default: the caller's key, which is only sent to the original
      address.
    """

    model: str = ""
    base_url: str = ""
    api_key: str = ""

    def __repr__(self) -> str:
        return f"Fallback(model={self.model!r}, base_url={self.base_url!r})"


class ModelUsage(NamedTuple):
    """The usage of one model call: the argument of `on_usage`."""

    circuit: str
    provider: str
    model: str
    usage: TokenUsage | None
    """The tokens that the response reported; `None`: it reported none."""
    cost_micros: int | None
    """Millionths of a dollar; `None`: unknown."""
    outcome: Literal["success", "failure", "ignored"]
    """`ignored`: no evidence, such as a stream that the caller closed."""


class HttpGuardOptions(TypedDict, total=False):
    """The options that `guard` takes for HTTP clients and SDKs.

    - `panel`: the circuits and budgets. Default: a panel over the store of the project, one per process.
    - `key`: one circuit per `"host"`, `"provider"` or `"model"`, or a name with `{host}`, `{provider}` and
      `{model}` in it. Default: `"host"` for plain HTTP clients and `"provider"` for SDKs, or `"model"`
      where a fallback is another model of the same provider.
    - `budget`: the budget node that pays for model calls: the largest possible cost is reserved before a
      call and settled after it.
    - `tags`: labels for the spent money, such as `{"team": "search"}`; the provider and the model are
      added. See `Budgets.spent_by_tag`.
    - `allow_unknown`: whether a call with an unknown price may be made within a budget (default: no).
    - `on_refusal`: `"raise"` (default) raises `Rejected` or `BudgetRefused`; `"answer"` answers with status
      503 (circuit) or 402 (budget) in the provider's error format, which SDKs raise as their own error and
      do not retry.
    - `fallback`: models or `Fallback`s to try in this order when the circuit refuses or the provider fails.
    - `on_usage`: called with a `ModelUsage` after each call to a model.
    """

    panel: Panel | None
    key: str | None
    budget: str | None
    tags: Tags | None
    allow_unknown: bool
    on_refusal: OnRefusal
    fallback: Sequence[str | Fallback]
    on_usage: Callable[[ModelUsage], object] | None


class Outgoing(NamedTuple):
    """A request, independent of the client library."""

    method: str
    scheme: str
    host: str
    """The host, with its port unless it is the default of the scheme."""
    target: str
    """The path and the query."""
    headers: Mapping[str, str]
    body: bytes | None
    """`None`: the body is a stream that was not read."""


class HttpAttempt(NamedTuple):
    """One way to serve a call: the request of the caller, or that of a fallback."""

    outgoing: Outgoing
    request: ModelRequest | None
    circuit: str
    is_rewritten: bool = False


class HttpGuard:
    """The circuits, the budget and the fallbacks of one `guard(...)`. Thread-safe."""

    def __init__(
        self,
        *,
        panel: Panel | None = None,
        key: str | None = None,
        budget: str | None = None,
        tags: Tags | None = None,
        allow_unknown: bool = False,
        on_refusal: OnRefusal = "raise",
        fallback: Sequence[str | Fallback] = (),
        on_usage: Callable[[ModelUsage], object] | None = None,
        on_refused: Callable[[Exception], object] | None = None,
        models_only: bool = False,
        is_sealed: bool = False,
        sdk_retries_errors: bool = False,
        default_key: str = "host",
        owner: str = "httpx",
    ) -> None:
        if on_refusal not in {"raise", "answer"}:
            raise ValueError(f"on_refusal is {on_refusal!r}: it must be 'raise' or 'answer'")
        chain = [fallback] if isinstance(fallback, str | Fallback) else list(fallback)
        self.fallbacks = [_checked_fallback(one) for one in chain]
        if key is None:
            is_same_place = any(not one.base_url for one in self.fallbacks)
            key = "model" if is_same_place and default_key == "provider" else default_key
        self._template = _checked_key(key)
        self.answers = on_refusal == "answer"
        self.raises_by_status = sdk_retries_errors and not self.answers
        """Whether a refusal is a response that raises when the SDK checks its status. SDKs that retry
        exceptions of their HTTP client do not retry this one."""
        self.budget = budget
        checked_tags({"provider": "", "model": "", **(tags or {})})
        self.tags = tags or {}
        self._allow_unknown = allow_unknown
        self._panel = panel
        self._owner = owner
        self._on_usage = on_usage
        self.on_refused = on_refused
        """Called with the error of each call that was refused."""
        self._models_only = models_only
        """Whether requests other than model calls pass unguarded."""
        self.is_sealed = is_sealed
        """Whether a later guard of the same client is added to this guard instead of replacing it."""

    @property
    def panel(self) -> Panel:
        """The given panel, or the default panel of the process."""
        if self._panel is None:
            from switchgear.integrations._agent_run import default_panel  # noqa: PLC0415

            self._panel = default_panel()
        return self._panel

    def attempts(self, outgoing: Outgoing) -> list[HttpAttempt]:
        """The ways to serve a request, the caller's first; empty if it passes unguarded."""
        first = self._attempt(outgoing)
        request = first.request
        if request is None and self._models_only:
            return []
        if request is None or not request.payload or not self.fallbacks:
            return [first]
        others = (rewritten(outgoing, request, one) for one in self.fallbacks)
        return [first, *(self._attempt(one, is_rewritten=True) for one in others)]

    def _attempt(self, outgoing: Outgoing, *, is_rewritten: bool = False) -> HttpAttempt:
        _, _, host, target, headers, body = outgoing
        request = read_request(host, target, headers, body or b"", outgoing.method)
        provider = provider_of(host) if request is None else request.provider
        model = "" if request is None else request.model
        circuit = _circuit_name(self._template, host, provider, model)
        return HttpAttempt(outgoing, request, circuit, is_rewritten)

    def start(self, attempt: HttpAttempt) -> Steps["GuardedHttpCall"]:
        """Acquire a permit and reserve the cost. Raises `Rejected`, `BudgetRefused` or `StoreError`."""
        call = GuardedHttpCall(self, attempt)
        call.took((yield call.breaker.enter, call.breaker.aenter))
        if self.budget is not None and attempt.request is not None:
            reserve = partial(self._reserve, self.budget, attempt.request)
            try:
                call.reservation = yield in_thread(reserve, Reservation.release)
            except BaseException:
                call.give_back()
                raise
        return call

    def _reserve(self, node: str, request: ModelRequest) -> Reservation:
        cost = request.most_cost()
        if cost.micros is None and not self._allow_unknown:
            raise BudgetRefused(node, f"the price is unknown: {cost.unknown}", None)
        return self.panel.budgets.reserve(
            node, cost.micros, owner=self._owner, allow_unknown=self._allow_unknown
        )

    def used(self, usage: ModelUsage) -> None:
        """Call `on_usage`; an error of the callback is logged."""
        if self._on_usage is None:
            return
        try:
            self._on_usage(usage)
        except Exception:  # noqa: BLE001  the caller must still get the response
            log_exception("on_usage of circuit %r failed", usage.circuit)


class GuardedHttpCall:
    """The permit and, with a budget, the reservation of one call, from the request to the last byte.

    Call `respond`, `feed` for each chunk, then one of `ending`, `failing` and `close`; later calls are
    ignored.
    """

    def __init__(self, guard: HttpGuard, attempt: HttpAttempt) -> None:
        self.breaker: CircuitBreaker = guard.panel.breaker(attempt.circuit)
        self.reservation: Reservation | None = None
        self.is_over = False
        self._guard = guard
        self._attempt = attempt
        self._permit: Permit | None = None
        self._started_s = 0.0
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._meter: ResponseMeter | None = None
        self._error_body = bytearray()

    def took(self, permit: Permit) -> None:
        self._permit = permit
        self._started_s = self.breaker.stopwatch()

    def respond(self, status: int, headers: Mapping[str, str], *, is_decoded: bool = False) -> None:
        """Start the response. With `is_decoded`, the chunks are already decompressed."""
        self._status, self._headers = status, headers
        request = self._attempt.request
        if request is not None and status < 400:
            self._meter = ResponseMeter(
                request.protocol,
                stream=request.is_stream,
                content_type=headers.get("content-type", ""),
                content_encoding="" if is_decoded else headers.get("content-encoding", ""),
            )

    @property
    def is_error(self) -> bool:
        return self._status >= 400

    def feed(self, chunk: bytes) -> None:
        if self._meter is not None:
            self._meter.feed(chunk)
        elif self._status >= 400 and len(self._error_body) < LONGEST_ERROR_BODY:
            self._error_body += chunk[:LONGEST_ERROR_BODY]

    def ending(self) -> Steps[ResponseVerdict]:
        """End the call at the end of the response; returns the verdict."""
        verdict, signal, cost = self._judged(ended=True)
        yield from self._finish(signal, cost)
        return verdict

    def failing(self, error: BaseException) -> Steps[ProviderError | None]:
        """End the call after an exception; returns the provider error that it means, if any."""
        found, signal, cost = self._judged_error(error)
        if is_no_evidence(error):
            drive(self._finish(signal, cost))  # a cancelled task must not wait
        else:
            yield from self._finish(signal, cost)
        return found

    def close(self) -> None:
        """End the call because the caller closed the response, which is early before its last event."""
        if self.is_over:
            return
        meter = self._meter
        if self._status >= 400 or (meter is not None and meter.has_ended):
            drive(self.ending())
            return
        _, signal, cost = self._judged(ended=False)
        drive(self._finish(signal, cost))

    def give_back(self) -> None:
        """End the call before anything was sent."""
        drive(self._finish(Signal(), TokenCost(0)))

    def _judged(self, *, ended: bool) -> tuple[ResponseVerdict, Signal, TokenCost]:
        if self.is_over:
            return ResponseVerdict("ignored"), Signal(), TokenCost(None)
        self.is_over = True
        metered = None if self._meter is None else self._meter.finish(ended=ended)
        is_refusal = self._status in _REFUSED_STATUSES and REFUSED_HEADER in self._headers
        if is_refusal or not ended:
            verdict = ResponseVerdict("ignored")
        else:
            body = bytes(self._error_body) or None
            verdict = judge_response(self._status, self._headers, body, metered)
        cost = self._cost(metered)
        self._report(metered, cost, verdict)
        seconds = self.breaker.seconds_since(self._started_s)
        return verdict, verdict.signal(seconds, cost.micros or None), cost

    def _judged_error(self, error: BaseException) -> tuple[ProviderError | None, Signal, TokenCost]:
        if self.is_over:
            return None, Signal(), TokenCost(None)
        self.is_over = True
        metered = None if self._meter is None else self._meter.finish(ended=False)
        found = _meaning(error)
        verdict = ResponseVerdict("ignored") if found is None else ResponseVerdict("failure", found)
        cost = self._cost(metered) if metered is not None else self._cost_without_response(found)
        self._report(metered, cost, verdict)
        seconds = self.breaker.seconds_since(self._started_s)
        return found, verdict.signal(seconds, cost.micros or None), cost

    def _cost(self, metered: Metered | None) -> TokenCost:
        request = self._attempt.request
        if request is None or metered is None:
            return TokenCost(0)  # no model was called, or it returned an error, which is free
        return metered.cost(request)

    def _cost_without_response(self, error: ProviderError | None) -> TokenCost:
        """The cost of a call without a response: its input, if it may be billed after a timeout or a cancellation."""
        request = self._attempt.request
        if request is None or (error is not None and error.kind is not ProviderErrorKind.TIMEOUT):
            return TokenCost(0)
        return Metered(TokenUsage(request.input_tokens)).cost(request)

    def _report(self, metered: Metered | None, cost: TokenCost, verdict: ResponseVerdict) -> None:
        request = self._attempt.request
        if request is None:
            return
        usage = None if metered is None else metered.usage
        model = (metered.model if metered is not None else "") or request.model
        circuit = self._attempt.circuit
        self._guard.used(
            ModelUsage(circuit, request.provider, model, usage, cost.micros, verdict.outcome)
        )

    def _finish(self, signal: Signal, cost: TokenCost) -> Steps[None]:
        """Record the result in the circuit, and settle the cost. Idempotent."""
        breaker = self.breaker
        permit, self._permit, self.is_over = self._permit, None, True
        if permit is not None and signal.ok and signal.cost_micros is None:
            yield breaker.succeeded, breaker.asucceeded, permit, signal.seconds
        elif permit is not None:
            yield breaker.ended, breaker.aended, permit, signal
        if self.reservation is not None:
            yield in_thread(partial(self._settle, cost))

    def _settle(self, cost: TokenCost) -> None:
        reservation, self.reservation = self.reservation, None
        if reservation is None:
            return
        try:
            reservation.settle(cost.micros, tags=self._tags())
        except (BudgetRefused, StoreError) as trouble:
            # The caller still gets the response; the end of the lease charges the reservation.
            log_warning("reservation %r was not settled: %s", reservation.path, trouble)

    def _tags(self) -> Tags:
        request = self._attempt.request
        if request is None:
            return self._guard.tags
        known = {"provider": request.provider, "model": request.model, **self._guard.tags}
        return {tag: value for tag, value in known.items() if value}


def _meaning(error: BaseException) -> ProviderError | None:
    """The provider error that an exception means; `None`: it is no evidence about the provider."""
    kind = type(error)  # `isinstance` would call the exception's own code, which may raise
    if is_no_evidence(error) or issubclass(kind, _MISTAKES) or NAME(kind) in _MISUSES:
        return None
    found = classify(error)
    if found is None:
        found = ProviderError(ProviderErrorKind.OUTAGE, None, None, describe(error))
    return found if found.is_provider_failure else None


class Wire(Protocol):
    """Sends requests and returns responses in the way of a client library."""

    def send(self, attempt: HttpAttempt) -> Any:
        """Send a request and return the response, which has the attributes of an httpx response."""

    async def asend(self, attempt: HttpAttempt) -> Any:
        """`send` for an async client."""

    def hand_over(self, response: Any, call: GuardedHttpCall) -> Any:
        """The response for the caller, with its stream guarded by the call."""

    def refuse(self, error: Exception, request: ModelRequest | None) -> Any:
        """The response to a refused call; may raise instead, if the library does so."""


def exchange(guard: HttpGuard, attempts: list[HttpAttempt], wire: Wire) -> Steps[Any]:
    """Serve one call by the first attempt that succeeds: the caller's own, then the fallbacks."""
    refusal: Exception | None = None
    failed: Any = None
    for number, attempt in enumerate(attempts, 1):
        is_last = number == len(attempts)
        try:
            call = yield from guard.start(attempt)
        except (Rejected, BudgetRefused) as error:
            refusal = refusal or error
            continue
        try:
            response = yield wire.send, wire.asend, attempt
        except BaseException as error:
            found = yield from call.failing(error)
            if is_last or found is None or not found.may_fail_over:
                raise
            refusal = error if isinstance(error, Exception) else None
            continue
        is_read = response.is_closed
        call.respond(response.status_code, response.headers, is_decoded=is_read)
        if not is_read and (is_last or not call.is_error):
            return wire.hand_over(response, call)
        try:
            call.feed(response.content if is_read else (yield response.read, response.aread))
        except BaseException as error:
            yield from call.failing(error)
            raise
        verdict = yield from call.ending()
        if is_last or verdict.error is None or not verdict.error.may_fail_over:
            return response
        failed = response
    if failed is not None:
        return failed  # all fallbacks are refused, so the caller gets the error of the provider
    return _unserved(guard, attempts, wire, refusal)


def _unserved(guard: HttpGuard, attempts: list[HttpAttempt], wire: Wire, error: Any) -> Any:
    """End a call that no attempt has served: raise the error, or return the response of a refusal."""
    if not isinstance(error, Rejected | BudgetRefused):
        raise error from None
    if guard.on_refused is not None:
        guard.on_refused(error)
    if not guard.answers and not guard.raises_by_status:
        raise error from None
    answer = wire.refuse(error, attempts[0].request)
    if guard.raises_by_status:
        answer.raise_for_status = _Raiser(error)
    return answer


class _Raiser:
    """Raises a refusal when an SDK checks the status of a response."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self) -> NoReturn:
        raise self._error


class GuardedChunks:
    """The body of a response: each chunk is metered, and the end of the body ends the call."""

    def __init__(self, chunks: Iterable[bytes], call: GuardedHttpCall) -> None:
        self._chunks, self._call = chunks, call

    def __iter__(self) -> Generator[bytes]:
        call = self._call
        try:
            for chunk in self._chunks:
                call.feed(chunk)
                yield chunk
        except GeneratorExit:
            call.close()
            raise
        except BaseException as error:
            drive(call.failing(error))
            raise
        drive(call.ending())

    def close(self) -> None:
        """Close the response; closing it early is no failure."""
        try:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()
        finally:
            self._call.close()


class AsyncGuardedChunks:
    """`GuardedChunks` for async clients."""

    def __init__(self, chunks: AsyncIterable[bytes], call: GuardedHttpCall) -> None:
        self._chunks, self._call = chunks, call

    async def __aiter__(self) -> Any:
        call = self._call
        try:
            async for chunk in self._chunks:
                call.feed(chunk)
                yield chunk
        except GeneratorExit:
            call.close()
            raise
        except BaseException as error:
            await adrive(call.failing(error))
            raise
        await adrive(call.ending())

    async def aclose(self) -> None:
        try:
            close = getattr(self._chunks, "aclose", None)
            if close is not None:
                await close()
        finally:
            self._call.close()


class RefusalAnswer(NamedTuple):
    """A response that stands for a refusal, in the provider's own error format."""

    status: int
    headers: dict[str, str]
    body: bytes


def refusal_answer(error: Exception, request: ModelRequest | None) -> RefusalAnswer:
    """The response to a refused call; SDKs raise it as their typed error and do not retry it.

    >>> refusal_answer(BudgetRefused("team", "all of it is spent", 0), None).status
    402
    """
    is_budget = isinstance(error, BudgetRefused)
    status = 402 if is_budget else 503
    message = f"Switchgear refused this call: {error}"
    family = "openai" if request is None else request.protocol.family
    by_budget, by_circuit = _REFUSAL_KINDS.get(family, ("switchgear_refused", "switchgear_refused"))
    kind = by_budget if is_budget else by_circuit
    code = "budget_exhausted" if is_budget else "circuit_open"
    body = error_body(family, status, kind, message, code)
    node = error.args[0] if error.args else ""
    headers = {
        "content-type": "application/json",
        "x-should-retry": "false",
        REFUSED_HEADER: quote(str(node), safe="/:.-_"),
    }
    wait_s = getattr(error, "retry_after_s", None)
    if wait_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(wait_s)))
    return RefusalAnswer(status, headers, json.dumps(body).encode())


def rewritten(outgoing: Outgoing, request: ModelRequest, fallback: Fallback) -> Outgoing:
    """The same call for a fallback, with its model, base URL and key."""
    headers = {
        name: value
        for name, value in outgoing.headers.items()
        if name.lower() not in _NOT_FORWARDED
    }
    model = fallback.model or request.model
    payload = dict(request.payload)
    target = outgoing.target
    if request.protocol.family == "google":
        target = re.sub(r"/models/[^/:%]+(?=(:|%3A))", f"/models/{quote(model)}", target, count=1)
    else:
        payload["model"] = model
        # Azure gets the model from the path.
        deployment = f"/openai/deployments/{quote(model, safe='')}/"
        target = re.sub(r"/openai/deployments/[^/]+/", deployment, target, count=1)
    scheme, host = outgoing.scheme, outgoing.host
    if fallback.base_url:
        place = urlsplit(fallback.base_url)
        scheme, host = place.scheme, place.netloc.rpartition("@")[2]
        target = place.path.rstrip("/") + _suffix(request.protocol, target)
    if fallback.base_url or fallback.api_key:
        # A key is only sent to its own provider.
        headers = {
            name: value for name, value in headers.items() if name.lower() not in KEY_HEADERS
        }
        if fallback.api_key:
            headers.update([key_header(request.protocol.family, fallback.api_key)])
        target = re.sub(r"([?&])key=[^&]*&?", r"\1", target).rstrip("?&")
    return Outgoing(outgoing.method, scheme, host, target, headers, json.dumps(payload).encode())


def _suffix(protocol: ModelProtocol, target: str) -> str:
    """The part of a target after the `base_url` of the SDK."""
    start = {
        "openai": r"/(chat/completions|responses)(?=$|[?/])",
        "anthropic": r"/v1/messages(?=$|[?/])",
        "google": r"/(v\d\w*/)?(publishers/google/)?models/",
    }[protocol.family]
    found = re.search(start, target)
    return target if found is None else target[found.start() :]


def _checked_key(key: Any) -> str:
    template: Any = KEYS.get(key, key) if isinstance(key, str) else None
    if not isinstance(template, str) or not template or set("{}") & set(_FIELD.sub("", template)):
        raise ValueError(
            f"key is {key!r}: it must be 'host', 'provider', 'model', or the name of a circuit with "
            "{host}, {provider} or {model} in it"
        )
    return template


def _checked_fallback(fallback: Any) -> Fallback:
    if isinstance(fallback, str) and fallback:
        return Fallback(fallback)
    if not isinstance(fallback, Fallback) or not (fallback.model or fallback.base_url):
        raise ValueError(f"fallback is {fallback!r}: it must be the name of a model or a Fallback")
    if fallback.base_url and urlsplit(fallback.base_url).scheme not in {"http", "https"}:
        raise ValueError(
            f"fallback is {fallback!r}: its base_url must begin with https:// or http://"
        )
    return fallback


@lru_cache(256)
def _circuit_name(template: str, host: str, provider: str, model: str) -> str:
    parts = {"host": host, "provider": provider, "model": model or provider}
    return _FIELD.sub(lambda field: _part(parts[field[1]]), template)


def _part(text: str) -> str:
    """A text as part of a circuit's name: short, without spaces or slashes."""
    return "-".join(text.replace("/", "-").split())[:_LONGEST_PART]
