"""Guards one run of an agent: model calls, tool calls, progress and budget, for every framework.

An adapter translates the calls of its framework into three context managers: `run.model(...)` around a
model call and `run.tool(...)` around a tool call, both sync and async, and `run.inside()` around code that
may start sub-agents. Everything else is implemented here, once.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from os import urandom
from threading import Lock
from typing import Any, Literal, NamedTuple, Self, TypedDict

from switchgear._agents.events import Usage
from switchgear._agents.prices import cost_of
from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._breaker.nesting import enter_probe, leave_probe
from switchgear._breaker.signals import describe
from switchgear._budgets.budgets import Reservation, Tags, checked_tags
from switchgear._config.sections import preset_policy
from switchgear._core.errors import BudgetRefused, Rejected, StoreError, SwitchgearError
from switchgear._core.policy import Latched, Policy
from switchgear._core.types import AgentStep, Mode, Permit, Phase, Signal
from switchgear._detectors import Violation
from switchgear._panel.panel import Panel
from switchgear._providers.errors import classify, was_not_started
from switchgear._providers.prices import Rates, TokenUsage, token_cost
from switchgear._sinks.dispatch import log_warning
from switchgear._stuck.messages import progress_warning
from switchgear._system.threads import run_in_thread
from switchgear._text.redact import shortened
from switchgear.integrations._steps import Steps, adrive, drive, in_thread

OnRefusal = Literal["raise", "answer"]
Refused = (Rejected, BudgetRefused)
"""The exceptions of refused calls."""
WARN_AT = 0.5
"""The heat at which an agent is warned. At 70 %, as for hooks, repeated errors could stop a run without a warning."""
LONGEST_TEXT = 8_000
"""Maximum characters of the arguments, the result and the thought of a step."""
KEYS = {"provider": "provider/{provider}", "model": "provider/{provider}/{model}"}
"""The short names for the option `key`, and the templates of circuit names that they stand for."""
_LONGEST_NAME = 120
_LONGEST_ERROR = 500
_MOST_RUNS = 1_000
_current: ContextVar["GuardedRun | None"] = ContextVar("switchgear_agent_run", default=None)


class GuardOptions(TypedDict, total=False):
    """The options that every `guard` of an agent framework takes.

    - `panel`: the circuits and budgets. Default: a panel over the store of the project, one per process.
    - `key`: one circuit per `"provider"` (the default) or `"model"`, or a name with `{provider}` and
      `{model}` in it.
    - `tool_key`: the circuit of a tool call, with `{tool}`. Default: `tool/{tool}`.
    - `budget`: the budget node that pays for model calls; sub-agents without a budget use that of the
      run around them.
    - `tags`: labels for the spent money, such as `{"team": "search"}`; the framework, the provider and
      the model are added. See `Budgets.spent_by_tag`.
    - `reserve_micros`: the amount to reserve before each model call, in millionths of a dollar. Default:
      the cost of the most expensive call so far.
    - `rates`: your own token prices. Default: the price list.
    - `on_refusal`: `raise` (the default) raises `Rejected` or `BudgetRefused` for a refused model call;
      `answer` ends the run with the reason as the model's answer. A refused tool call always answers with
      the tool error of the framework.
    - `progress`: whether the run is stopped when it makes no progress (default: true), or a policy for
      that, which may also limit the cost of the run: `Spend`, `SpendVelocity`.
    """

    panel: Panel | None
    key: str
    tool_key: str
    budget: str | None
    tags: Tags | None
    reserve_micros: int | None
    rates: Rates | None
    on_refusal: OnRefusal
    progress: bool | Policy


class ModelName(NamedTuple):
    """A model and its provider."""

    provider: str
    model: str


def is_model_failure(error: BaseException) -> bool:
    """Whether an exception counts against the provider: not if it is an error of the request or the account."""
    # `isinstance` would call the exception's own code, which may raise
    if issubclass(type(error), SwitchgearError):
        return False
    found = classify(error)
    return found is None or found.is_provider_failure


def progress_policy() -> Policy:
    """The policy of one run: the progress detectors of hooks. A stopped run needs a reset or a new run."""
    preset = preset_policy("progress")
    return Policy((*preset.detectors, Violation()), Latched(), tripping_at=WARN_AT)


_default_panel: list[Panel] = []
_lock = Lock()


def default_panel() -> Panel:
    """The panel of guards without a panel: over the store of the project, one per process."""
    with _lock:
        if not _default_panel:
            _default_panel.append(Panel())
        return _default_panel[0]


class AgentGuard:
    """The circuits, the budget and the runs of one `guard(...)`. Thread-safe."""

    def __init__(
        self,
        framework: str,
        *,
        panel: Panel | None = None,
        key: str = "provider",
        tool_key: str = "tool/{tool}",
        budget: str | None = None,
        tags: Tags | None = None,
        reserve_micros: int | None = None,
        rates: Rates | None = None,
        on_refusal: OnRefusal = "raise",
        progress: bool | Policy = True,
        control_flow: tuple[type[BaseException], ...] = (),
    ) -> None:
        key = KEYS.get(key, key)
        for name, template, fields in (
            ("key", key, {"provider": "", "model": ""}),
            ("tool_key", tool_key, {"tool": ""}),
        ):
            try:
                template.format(**fields)
            except (AttributeError, IndexError, KeyError, ValueError) as error:
                allowed = " and ".join(f"{{{field}}}" for field in fields)
                raise ValueError(
                    f"{name} is {template!r}: it must be a text with {allowed}"
                ) from error
        if on_refusal not in {"raise", "answer"}:
            raise ValueError(f"on_refusal is {on_refusal!r}: it must be 'raise' or 'answer'")
        self.framework = framework
        self.budget = budget
        self._tags = tags or {}
        checked_tags(self.tags(ModelName("any", "any")))
        self.answers = on_refusal == "answer"
        self.control_flow = (*control_flow, SwitchgearError)
        """Exceptions for control flow or wrong requests in a framework, which are no evidence."""
        self._panel = panel
        self._key, self._tool_key = key, tool_key
        self._reserve_micros, self._rates = reserve_micros, rates
        self._progress = progress
        self.judges_cost: bool = isinstance(progress, Policy)
        """Whether the user has given a progress policy, which may limit the cost."""
        self._dearest_micros = 1
        self._runs: OrderedDict[str, GuardedRun] = OrderedDict()
        self._lock = Lock()

    def __deepcopy__(self, memo: object) -> Self:
        """Return the same guard, because copies of an agent share circuits and budget."""
        return self

    @property
    def panel(self) -> Panel:
        """The given panel, that of a run around this one, or the default."""
        if self._panel is not None:
            return self._panel
        around = _current.get()
        while around is not None:
            if (panel := around.guard._panel) is not None:  # noqa: SLF001
                return panel
            around = around.around
        return default_panel()

    def run(self, key: str = "") -> "GuardedRun":
        """The run of a key, from a bounded cache; without a key, a new run.

        A new run inside of a tool call of another run is a sub-agent of that run.
        """
        with self._lock:
            known = self._runs.get(key) if key else None
            if known is None:
                around = _current.get()
                known = GuardedRun(self, around)
                if key:
                    self._runs[key] = known
                    while len(self._runs) > _MOST_RUNS:
                        self._runs.popitem(last=False)
            elif key:
                self._runs.move_to_end(key)
        return known

    def forget(self, key: str) -> None:
        """Forget the run of a key, which may be reused for another run."""
        with self._lock:
            self._runs.pop(key, None)

    def current(self) -> "GuardedRun":
        """The run around the current context, if it belongs to this guard; else a new run."""
        around = _current.get()
        return around if around is not None and around.guard is self else self.run()

    def model_circuit(self, name: ModelName) -> str:
        return _model_circuit(self._key, name)

    def tool_circuit(self, tool: str) -> str:
        return self._tool_key.format(tool=_part(tool))

    def refuses(self, name: ModelName) -> bool:
        """Whether the circuit of a model refuses calls now. Acquires no permit."""
        breaker = self.panel.breaker(self.model_circuit(name))
        if breaker.mode is Mode.AUTO:
            return breaker.state is Phase.OPEN
        return breaker.mode is Mode.HELD_OPEN

    def session(self, run_id: str) -> CircuitBreaker | None:
        """The circuit for the progress of a run; `None`: progress is not checked."""
        if self._progress is False:
            return None
        policy = self._progress if isinstance(self._progress, Policy) else progress_policy()
        return self.panel._run_breaker(f"session/{run_id}", policy)  # noqa: SLF001

    def reserve(self, node: str) -> Reservation:
        """Reserve the possible cost of the next model call. Raises `BudgetRefused`, `StoreError`."""
        amount = self._dearest_micros if self._reserve_micros is None else self._reserve_micros
        return self.panel.budgets.reserve(node, amount, owner=self.framework)

    def tags(self, name: ModelName) -> Tags:
        """The tags for the cost of a model call."""
        known = {"framework": self.framework, **name._asdict(), **self._tags}
        return {tag: value for tag, value in known.items() if value}

    def price(self, usage: Usage | None) -> int | None:
        """The cost of a call in millionths of a dollar; `None`: unknown."""
        if usage is None:
            return None
        if usage.cost_micros is None and self._rates is None and usage.model is not None:
            # The usage of one call, whose prices are cached by model.
            cost = token_cost(usage.model, TokenUsage(*usage[1:5])).micros
        else:
            cost = cost_of([usage], self._rates).micros
        if cost is not None:
            self._dearest_micros = max(self._dearest_micros, cost)
        return cost


class GuardedRun:
    """One run of an agent. Thread-safe; its calls may overlap."""

    def __init__(self, guard: AgentGuard, around: "GuardedRun | None" = None) -> None:
        self.guard = guard
        self.around = around
        self.id = f"{guard.framework}-{urandom(6).hex()}"
        if around is not None:
            self.id = f"{around.id}/agent/{self.id}"
        self.spent_micros = 0
        """The known cost of the model calls of this run and its sub-agents."""
        self.unpriced = 0
        """The number of model calls with unknown cost."""
        self.judges_cost: bool = guard.judges_cost or (around is not None and around.judges_cost)
        """Whether the cost of a call may stop this run or one around it."""
        self.anchor: object = None
        """An object of the framework that identifies the run; kept as long as the run."""
        self._session: CircuitBreaker | None = None
        self._told_heat = 0.0
        self._thought: str | None = None
        self._lock = Lock()

    @property
    def budget(self) -> str | None:
        """The budget node: that of the guard, else that of the run around this one."""
        if self.guard.budget is not None or self.around is None:
            return self.guard.budget
        return self.around.budget

    @property
    def is_judged(self) -> bool:
        """Whether the run has taken a step, so that its progress is checked."""
        return self._session is not None

    def model(self, name: ModelName) -> "ModelCall":
        """A context manager around one model call. Entering raises `Rejected` or `BudgetRefused`."""
        return ModelCall(self, name)

    def tool(self, tool: str, arguments: Any = "") -> "ToolCall":
        """A context manager around one tool call. Entering raises `Rejected`."""
        return ToolCall(self, tool, as_text(arguments))

    @contextmanager
    def inside(self) -> Iterator["GuardedRun"]:
        """Guarded agents that start inside the block are sub-agents of this run."""
        token = _current.set(self)
        try:
            yield self
        finally:
            with suppress(ValueError):  # the block was left in another context
                _current.reset(token)

    def check(self) -> None:
        """Raise `Rejected` if this run, or one around it, is stopped."""
        drive(self.checking())

    async def acheck(self) -> None:
        await adrive(self.checking())

    def checking(self) -> Steps[None]:
        for session in self._sessions():
            permit: Permit = yield session.enter, session.aenter
            if permit.probe:
                yield session.give_back, session.agive_back, permit

    async def arefusal(self, name: ModelName) -> Rejected | None:
        """The refusal of a model call by the run or a circuit now; `None`: it would be admitted.

        For frameworks that must decide before they open a stream. Keeps no permit.
        """
        breaker = self.guard.panel.breaker(self.guard.model_circuit(name))
        try:
            await self.acheck()
            permit = await breaker.aenter()
        except Rejected as error:
            return error
        if permit.probe:
            await breaker.agive_back(permit)
        return None

    def _sessions(self) -> "Iterator[CircuitBreaker]":
        """The circuits of this run and of the runs around it that have taken steps."""
        run: GuardedRun | None = self
        while run is not None:
            if run._session is not None:  # noqa: SLF001
                yield run._session  # noqa: SLF001
            run = run.around

    def said(self, text: str, *, calls_tools: bool) -> None:
        """Record a text of the model; before tool calls, it is the thought of the next step."""
        text = text.strip()
        if calls_tools:
            self._thought = text[-LONGEST_TEXT:] or None
        elif text and (session := self._judged()) is not None:
            session.record(Signal(step=AgentStep(thought=text[-LONGEST_TEXT:])))

    def observe(
        self, tool: str, arguments: str, result: str | None, *, ok: bool = True, error: str = ""
    ) -> str | None:
        """Record a step of the run, and check its progress.

        Returns a warning to add to the result of the tool, if one is due. A run without progress is
        stopped: `check` and all later calls then raise `Rejected`.
        """
        session = self._judged(create=True)
        if session is None:
            return None
        with self._lock:
            thought, self._thought = self._thought, None
        step = AgentStep(tool, arguments, None if result is None else clipped(result), thought)
        text = error or clipped(result or "") if not ok else None
        verdict = session.record(Signal(ok=ok, error=text or None, step=step))
        return self._warning(verdict.phase, verdict.heat, verdict.reason)

    def _warning(self, phase: Phase, heat: float, reason: str) -> str | None:
        with self._lock:
            last, self._told_heat = self._told_heat, heat if phase is not Phase.CLOSED else 0.0
        if phase is Phase.OPEN:
            return f"Switchgear stopped this run: {reason}. Call no more tools; say what you tried."
        return progress_warning(reason) if phase is Phase.TRIPPING and heat > last else None

    def _judged(self, *, create: bool = False) -> CircuitBreaker | None:
        if self._session is None and create:
            self._session = self.guard.session(self.id)
        return self._session

    def spent(self, cost_micros: int | None) -> None:
        """Add the cost of a call to this run and the runs around it; `None`: unknown."""
        run: GuardedRun | None = self
        while run is not None:
            with run._lock:  # noqa: SLF001
                if cost_micros is None:
                    run.unpriced += 1
                else:
                    run.spent_micros += cost_micros
            if cost_micros and run.guard.judges_cost:
                session = run._judged(create=True)  # noqa: SLF001
                if session is not None:
                    session.record(Signal(cost_micros=cost_micros))
            run = run.around


class _GuardedCall:
    """Holds a permit of one circuit while a call runs."""

    def __init__(self, run: GuardedRun, circuit: str) -> None:
        self.run = run
        self.breaker = run.guard.panel.breaker(circuit)
        self._permit: Permit | None = None
        self._started_s = 0.0
        self._failure = ""
        """The failure of a call without an exception."""

    def _take(self, permit: Permit) -> None:
        self._permit = permit
        self._started_s = self.breaker.stopwatch()
        if permit.probe:
            enter_probe(self.breaker, permit)

    def _used(self) -> tuple[Permit, float | None] | None:
        """The permit and the seconds since it was acquired; `None` on further calls."""
        permit, self._permit = self._permit, None
        if permit is None:
            return None
        if permit.probe:
            leave_probe(self.breaker, permit)
        return permit, self.breaker.seconds_since(self._started_s)

    def _wait_s(self, error: BaseException) -> float | None:
        """The wait that an error requests other than by `Retry-After`; only providers do this."""
        return None

    def _record(self, error: BaseException | None, *, failed: bool) -> Steps[None]:
        if (used := self._used()) is None:
            return
        (permit, seconds), breaker = used, self.breaker
        if error is None and not failed:
            yield breaker.succeeded, breaker.asucceeded, permit, seconds
        elif error is None:
            signal = Signal(ok=False, seconds=seconds, error=self._failure)
            yield breaker.record, breaker.arecord, signal, permit
        elif failed:
            wait_s = self._wait_s(error)
            yield breaker._failed, breaker._afailed, permit, error, seconds, wait_s  # noqa: SLF001
        else:
            yield breaker.give_back, breaker.agive_back, permit

    def _enter(self) -> Steps[None]:
        """Acquire what the call needs. Raises `Rejected` or `BudgetRefused`, and then holds nothing."""
        raise NotImplementedError

    def _exit(self, error: BaseException | None) -> Steps[None]:
        """End the call. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        drive(self._enter())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        drive(self._exit(error))

    async def __aenter__(self) -> Self:
        await adrive(self._enter())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await adrive(self._exit(error))


class ModelCall(_GuardedCall):
    """One model call: a permit and, with a budget, a reservation. Used by one thread or task.

    Call `used` with the token counts before leaving; if the cost stays unknown, the whole reservation is
    charged.
    """

    def __init__(self, run: GuardedRun, name: ModelName) -> None:
        super().__init__(run, run.guard.model_circuit(name))
        self._name = name
        self._usage: Usage | None = None
        self._reservation: Reservation | None = None
        self._is_over = True

    def failed(self, why: str) -> None:
        """Mark the call as failed without an exception; an empty text removes the mark."""
        self._failure = why

    def used(
        self,
        input_tokens: int | None,
        output_tokens: int | None,
        *,
        cache_read: int | None = 0,
        cache_write: int | None = 0,
        cost_micros: int | None = None,
        model: str = "",
    ) -> None:
        """Set the token counts of the call; `input_tokens` includes cached tokens."""
        if not input_tokens and not output_tokens and cost_micros is None:
            return
        self._usage = Usage(
            model or self._name.model,
            input_tokens or 0,
            output_tokens or 0,
            cache_read or 0,
            cache_write or 0,
            cost_micros,
        )

    def _enter(self) -> Steps[None]:
        yield from self.run.checking()
        self._take((yield self.breaker.enter, self.breaker.aenter))
        if (node := self.run.budget) is not None:
            reserve = partial(self.run.guard.reserve, node)
            try:
                self._reservation = yield in_thread(reserve, Reservation.release)
            except BaseException as error:
                yield from self._record(error, failed=False)
                raise
        self._is_over = False

    def _exit(self, error: BaseException | None) -> Steps[None]:
        yield from self._record(error, failed=self._is_failure(error))
        if self._reservation is None and not self.run.judges_cost:
            self._settle(error)
        else:
            yield in_thread(partial(self._settle, error))

    def _is_failure(self, error: BaseException | None) -> bool:
        if error is None:
            return bool(self._failure)
        is_control = issubclass(type(error), self.run.guard.control_flow)
        return not is_control and is_model_failure(error)

    def _wait_s(self, error: BaseException) -> float | None:
        """The wait by used-up rate limits, or in the body of the error."""
        found = classify(error)
        return None if found is None else found.retry_after_s

    def _settle(self, error: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        cost = self.run.guard.price(self._usage)
        # `isinstance` would call the exception's own code, which may raise.
        is_refusal = error is not None and issubclass(type(error), Refused)
        if cost is None and error is not None and (is_refusal or was_not_started(error)):
            cost = 0
        self.run.spent(cost)
        if self._reservation is not None:
            try:
                self._reservation.settle(cost, tags=self.run.guard.tags(self._name))
            except (BudgetRefused, StoreError) as trouble:
                # The caller still gets the response; the end of the lease charges the reservation.
                log_warning("reservation %r was not settled: %s", self._reservation.path, trouble)


class ToolCall(_GuardedCall):
    """One tool call: a permit, and one step of the run. Used by one thread or task.

    Call `finished` with the result; an exception that leaves the block is a failed call.
    """

    def __init__(self, run: GuardedRun, tool: str, arguments: str) -> None:
        super().__init__(run, run.guard.tool_circuit(tool))
        self._tool, self._arguments = tool, arguments
        self._inside = run.inside()
        self._failed = False
        self._observed = False
        self._raised: BaseException | None = None

    def raised(self, error: BaseException | None) -> None:
        """Set the exception of a tool that the framework does not pass on; `None`: there is none."""
        self._raised = error

    def finished(self, result: Any, *, failed: bool = False) -> str | None:
        """Record the step. Returns a warning to add to the result, if one is due."""
        text = as_text(result)
        self._failed, self._observed = failed, True
        self._failure = text[:_LONGEST_ERROR] or "the tool failed"
        return self.run.observe(self._tool, self._arguments, text, ok=not failed)

    async def afinished(self, result: Any, *, failed: bool = False) -> str | None:
        return await run_in_thread(partial(self.finished, result, failed=failed))

    def _enter(self) -> Steps[None]:
        yield from self.run.checking()
        try:
            self._take((yield self.breaker.enter, self.breaker.aenter))
        except Rejected as refusal:
            yield in_thread(partial(self._observe_refusal, refusal))
            raise
        self._inside.__enter__()

    def _exit(self, error: BaseException | None) -> Steps[None]:
        self._inside.__exit__(None, None, None)
        error = error or self._raised
        yield from self._record(error, failed=self._is_failure(error))
        if error is not None and self._is_failure(error):
            yield in_thread(partial(self._observe_error, error))

    def _observe_refusal(self, refusal: Rejected) -> None:
        """Record a refused call as a step, because an agent that repeats it makes no progress."""
        self.run.observe(self._tool, self._arguments, f"refused: {refusal.reason}", ok=False)

    def _is_failure(self, error: BaseException | None) -> bool:
        if error is None:
            return self._failed
        kind = type(error)
        return issubclass(kind, Exception) and not issubclass(kind, self.run.guard.control_flow)

    def _observe_error(self, error: BaseException) -> None:
        if not self._observed:
            self.run.observe(self._tool, self._arguments, None, ok=False, error=describe(error))


def answer_text(error: BaseException) -> str:
    """The answer of the agent instead of a refused model call."""
    return f"Switchgear refused this model call: {error}."


def tool_error(tool: str, error: BaseException) -> str:
    """The text for the model in place of the result of a refused tool call."""
    advice = "Do not repeat it now: try another way, or say what is missing."
    return f"Switchgear refused tool {tool!r}: {error}. {advice}"


def with_warning(text: str, warning: str | None) -> str:
    return text if warning is None else f"{text}\n\n{warning}" if text else warning


def as_text(value: Any) -> str:
    """Arguments or a result as one text; equal values give equal texts."""
    if isinstance(value, str):
        return clipped(value)
    import json  # noqa: PLC0415  only for values other than texts

    try:
        return clipped(json.dumps(value, sort_keys=True, default=str, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return clipped(str(value))


def clipped(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[: LONGEST_TEXT // 2]}\n…\n{text[-LONGEST_TEXT // 2 :]}"


@lru_cache(256)
def _model_circuit(key: str, name: ModelName) -> str:
    provider, model = _part(name.provider), _part(name.model)
    return key.format(provider=provider or model, model=model or provider)


def _part(text: str) -> str:
    """A text as part of a circuit's name: short, without spaces or slashes."""
    return shortened("-".join(text.replace("/", "-").split()), _LONGEST_NAME, "…")
