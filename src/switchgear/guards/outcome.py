"""What became of a call: the breaker that can tell a failure from the rest of what happens.

Below it, `Breaker` knows only signals; above it, the shapes in which a call comes (function,
coroutine, stream, block) all report here.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from switchgear.breaker import Breaker
from switchgear.clock import Clock
from switchgear.core.interrupts import is_interrupt
from switchgear.core.policy import Policy
from switchgear.core.types import Mode, Permit, Phase, Signal, Tell
from switchgear.errors import Refusal, Rejected
from switchgear.guards.evidence import ExceptionTest, check_test, failure, outcome_of
from switchgear.guards.nesting import probe_around
from switchgear.guards.same_exception import passed_before
from switchgear.listeners import (
    Call,
    CallHook,
    Outcome,
    Sink,
    checked_hooks,
    log_exception,
    report,
)
from switchgear.runs import Run
from switchgear.stores.base import Remembers

BAD_RESULT = "the result is a failure"


class OutcomeBreaker(Breaker):
    """A breaker that judges exceptions and results. `CircuitBreaker` documents the arguments."""

    __slots__ = ("_failure_if", "_failure_if_result", "_fallback", "_ignore", "_success_if")

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        fallback: Callable[..., Any] | None,
        failure_if: ExceptionTest,
        failure_if_result: Callable[[Any], bool] | None,
        ignore: ExceptionTest,
        success_if: ExceptionTest,
        on_call: CallHook | Sequence[CallHook],
        clock: Clock,
        sinks: tuple[Sink, ...] | list[Sink],
        store: Remembers | None,
        wall: Clock | None,
    ) -> None:
        owner = type(self).__name__
        hooks = checked_hooks(f"{owner}.on_call", on_call)
        for field, hook in (("fallback", fallback), ("failure_if_result", failure_if_result)):
            if hook is not None and not callable(hook):
                raise ValueError(f"{owner}.{field} is {hook!r}: it must be callable")
        check_test(f"{owner}.failure_if", failure_if)
        check_test(f"{owner}.ignore", ignore)
        check_test(f"{owner}.success_if", success_if)
        self._fallback = fallback
        self._failure_if = failure_if
        self._failure_if_result = failure_if_result
        self._ignore = ignore
        self._success_if = success_if
        super().__init__(name, policy, clock=clock, sinks=sinks, store=store, wall=wall)
        if hooks:
            self._set_hooks(hooks)

    def add_on_call(self, hook: CallHook) -> None:
        """Let one more hook see every call and refusal from now on."""
        self._set_hooks((*self._on_call, *checked_hooks("hook", hook)))

    def _set_hooks(self, hooks: tuple[CallHook, ...]) -> None:
        self._on_call = hooks
        self._set_run(self._run)  # with hooks no call takes the fast path

    @property
    def takes_time(self) -> bool:
        """Whether any detector or hook wants to know how long calls take."""
        return self._slow_from_s is not None or bool(self._on_call)

    def stopwatch(self) -> float:
        """Seconds for measuring durations; not read when nobody wants them. Never raises."""
        if self._slow_from_s is None and not self._on_call:
            return 0.0
        try:
            return self._clock()
        except Exception:  # noqa: BLE001  leave was granted, and what is guarded can still run
            self.log_trouble()
            return math.nan

    def _nested_permit(self) -> Permit | None:
        circuit = self._circuit
        if circuit.phase is not Phase.HALF_OPEN or circuit.mode is not Mode.AUTO:
            return None
        probe = probe_around(self)
        if probe is None or (probe.lease_until_s or 0.0) <= self._now_s():
            return None
        return Permit(circuit.generation)

    def enter_or_fall_back(self) -> Permit | None:
        """A permit; or `None` when refused and there is a fallback; or raises `Rejected`."""
        if self._fallback is None:
            return self.enter()
        try:
            return self.enter()
        except Rejected:
            return None

    async def aenter_or_fall_back(self) -> Permit | None:
        """The same without blocking the event loop."""
        if self._fallback is None:
            return await self.aenter()
        try:
            return await self.aenter()
        except Rejected:
            return None

    def fall_back(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the fallback gives instead of the refused call."""
        if self._fallback is None:  # pragma: no cover  callers were told that there is one
            raise AssertionError("no fallback")
        return self._fallback(*args, **kwargs)

    # What is told after the fact must not replace what the call gave or raised: when a clock, a
    # detector of somebody else's or a store fails here, that is logged. Each of these sends what is
    # redacted already; its twin with an `a` does not block the event loop.

    def succeeded(self, permit: Permit, seconds: float | None) -> None:
        """Tell a success: by a ticket of the run, if it is as unremarkable as that."""
        try:
            run = self._run_of(permit, seconds)
            if run is None:
                self.send(Tell(Signal(ok=True, seconds=seconds), permit))
            elif not self._takes_ticket(run):
                self._fold_run(run, more=1)
        except Exception:  # noqa: BLE001
            self.log_trouble()
        if self._on_call:
            report(Call(self.name, Outcome.SUCCESS, seconds), self._on_call)

    async def asucceeded(self, permit: Permit, seconds: float | None) -> None:
        """Tell a success."""
        try:
            run = self._run_of(permit, seconds)
            if run is None:
                await self.asend(Tell(Signal(ok=True, seconds=seconds), permit))
            elif not self._takes_ticket(run):
                await self._afold_run(run, more=1)
        except Exception:  # noqa: BLE001
            self.log_trouble()
        if self._on_call:
            report(Call(self.name, Outcome.SUCCESS, seconds), self._on_call)

    def failed(self, permit: Permit, error: BaseException, seconds: float | None) -> None:
        """Tell what an exception means; gives the permit back where it means nothing."""
        signal = self._meaning(error, seconds, permit)
        self._told(signal, permit)
        if self._on_call:
            self._report(signal, seconds, error)

    async def afailed(self, permit: Permit, error: BaseException, seconds: float | None) -> None:
        """Tell what an exception means."""
        signal = self._meaning(error, seconds, permit)
        await self._atold(signal, permit)
        if self._on_call:
            self._report(signal, seconds, error)

    def returned(self, permit: Permit, result: Any, seconds: float | None) -> None:
        """Tell what a result means."""
        if self._is_bad(result):
            bad = Signal(ok=False, seconds=seconds, error=BAD_RESULT)
            self._told(bad, permit)
            self._report(bad, seconds, None)
        else:
            self.succeeded(permit, seconds)

    async def areturned(self, permit: Permit, result: Any, seconds: float | None) -> None:
        """Tell what a result means."""
        if self._is_bad(result):
            bad = Signal(ok=False, seconds=seconds, error=BAD_RESULT)
            await self._atold(bad, permit)
            self._report(bad, seconds, None)
        else:
            await self.asucceeded(permit, seconds)

    def give_back(self, permit: Permit) -> None:
        """Tell that nothing came of it that says anything."""
        self._told(Signal(), permit)
        self._report(Signal(), None, None)

    async def agive_back(self, permit: Permit) -> None:
        """Tell that nothing came of it."""
        await self._atold(Signal(), permit)
        self._report(Signal(), None, None)

    def seconds_since(self, started_s: float) -> float | None:
        """How long it took since the stopwatch showed `started_s`; `None`: nobody asks or knows."""
        if self._slow_from_s is None and not self._on_call:
            return None
        seconds = self.stopwatch() - started_s
        return None if math.isnan(seconds) else seconds

    def log_trouble(self) -> None:
        """Log what went wrong with the bookkeeping of a call; it is being handled."""
        log_exception("circuit %r could not take note of a call", self.name)

    def _report(self, signal: Signal, seconds: float | None, error: BaseException | None) -> None:
        """Let the hooks see a call that ended in what the signal says."""
        if self._on_call:
            outcome = Outcome.SUCCESS if signal.ok else Outcome.FAILURE
            outcome = Outcome.IGNORED if signal.ok is None else outcome
            report(Call(self.name, outcome, seconds, error), self._on_call)

    def _report_refusal(self, refused: tuple[str, Refusal, float]) -> None:
        rejected = Rejected(*refused)
        report(Call(self.name, Outcome.REJECTED, None, rejected), self._on_call)

    def _told(self, signal: Signal, permit: Permit) -> None:
        try:
            self.send(Tell(signal, permit))
        except Exception:  # noqa: BLE001
            self.log_trouble()

    async def _atold(self, signal: Signal, permit: Permit) -> None:
        try:
            await self.asend(Tell(signal, permit))
        except Exception:  # noqa: BLE001
            self.log_trouble()

    def _fold_run(self, run: Run, *, more: int) -> None:
        try:
            super()._fold_run(run, more=more)
        except Exception:  # noqa: BLE001
            self.log_trouble()

    async def _afold_run(self, run: Run, *, more: int) -> None:
        try:
            await super()._afold_run(run, more=more)
        except Exception:  # noqa: BLE001
            self.log_trouble()

    def _run_of(self, permit: Permit, seconds: float | None) -> Run | None:
        """The run that counts such a success; `None` where it must be told by itself."""
        run = self._run
        return None if run is None or run.permit is not permit or self._is_slow(seconds) else run

    def _takes_ticket(self, run: Run) -> bool:
        if self._clock() < run.due_s:
            for _ in run.tickets:
                return True
        return False

    def _meaning(self, error: BaseException, seconds: float | None, permit: Permit) -> Signal:
        """What an exception says; nothing, where an inner guard of this breaker has said it."""
        try:
            ok = self._outcome(error)
            if ok is None or self._is_part_of_a_probe(permit):
                return Signal()
            if not permit.probe and passed_before(self, error):
                return Signal()
            return Signal(ok=True, seconds=seconds) if ok else failure(error, seconds)
        except BaseException as trouble:
            if is_interrupt(trouble):
                raise
            self.log_trouble()
            return Signal(ok=False, seconds=seconds)

    def _is_part_of_a_probe(self, permit: Permit) -> bool:
        """Whether this call ran inside a probe of its own circuit, which reports for both."""
        probing = self._circuit.phase is Phase.HALF_OPEN and not permit.probe
        return probing and probe_around(self) is not None

    def _is_slow(self, seconds: float | None) -> bool:
        limit_s = self._slow_from_s
        return seconds is not None and limit_s is not None and seconds > limit_s

    def _outcome(self, error: BaseException) -> bool | None:
        try:
            return outcome_of(error, self._failure_if, self._ignore, self._success_if)
        except BaseException as trouble:  # the caller's exception is never replaced
            if is_interrupt(trouble):
                raise
            log_exception("failure_if, success_if or ignore of circuit %r failed", self.name)
            return False

    def _is_bad(self, result: Any) -> bool:
        if self._failure_if_result is None:
            return False
        try:
            return bool(self._failure_if_result(result))
        except Exception:  # noqa: BLE001  the caller gets the result that was made
            log_exception("failure_if_result of circuit %r failed", self.name)
            return False

    def _config(self) -> dict[str, Any]:
        return {
            **super()._config(),
            "fallback": self._fallback,
            "failure_if": self._failure_if,
            "failure_if_result": self._failure_if_result,
            "ignore": self._ignore,
            "success_if": self._success_if,
            "on_call": self._on_call,
        }
