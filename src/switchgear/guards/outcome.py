"""What became of a call: the breaker that can tell a failure from the rest of what happens.

Below it, `Breaker` knows only signals; above it, the shapes in which a call comes (function,
coroutine, stream, block) all report here.
"""

from collections.abc import Callable
from typing import Any, cast

from switchgear.breaker import Breaker
from switchgear.clock import Clock
from switchgear.core.policy import Policy
from switchgear.core.types import Permit, Signal
from switchgear.errors import Rejected
from switchgear.guards.evidence import (
    ExceptionTest,
    check_test,
    failure,
    is_no_evidence,
    matches,
)
from switchgear.listeners import Sink, log_exception


class OutcomeBreaker(Breaker):
    """A breaker that judges exceptions and results. `CircuitBreaker` documents the arguments."""

    __slots__ = ("_failure_if", "_failure_if_result", "_fallback", "_ignore")

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        fallback: Callable[..., Any] | None,
        failure_if: ExceptionTest,
        failure_if_result: Callable[[Any], bool] | None,
        ignore: ExceptionTest,
        clock: Clock,
        sinks: tuple[Sink, ...] | list[Sink],
    ) -> None:
        owner = type(self).__name__
        for field, hook in (("fallback", fallback), ("failure_if_result", failure_if_result)):
            if hook is not None and not callable(hook):
                raise ValueError(f"{owner}.{field} is {hook!r}: it must be callable")
        check_test(f"{owner}.failure_if", failure_if)
        check_test(f"{owner}.ignore", ignore)
        self._fallback = fallback
        self._failure_if = failure_if
        self._failure_if_result = failure_if_result
        self._ignore = ignore
        super().__init__(name, policy, clock=clock, sinks=sinks)

    @property
    def takes_time(self) -> bool:
        """Whether any detector wants to know how long calls take."""
        return self._slow_from_s is not None

    def stopwatch(self) -> float:
        """Seconds for measuring durations; not read when nobody wants them."""
        return 0.0 if self._slow_from_s is None else self._clock()

    def enter_or_fall_back(self) -> Permit | None:
        """A permit; or `None` when refused and there is a fallback; or raises `Rejected`."""
        run = self._run
        if run is not None:
            return run.permit
        if self._fallback is None:
            return self._ask()
        try:
            return self._ask()
        except Rejected:
            return None

    def fall_back(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the fallback gives instead of the refused call."""
        if self._fallback is None:  # pragma: no cover  callers were told that there is one
            raise AssertionError("no fallback")
        return self._fallback(*args, **kwargs)

    def succeeded(self, permit: Permit, seconds: float | None) -> None:
        """Tell a success: by a ticket of the run, if it is as unremarkable as that."""
        run = self._run
        if run is None or run.permit is not permit or self._is_slow(seconds):
            self.tell(Signal(ok=True, seconds=seconds), permit)
            return
        if seconds is None or self._clock() < run.due_s:
            for _ in run.tickets:
                return
        self._fold_run(run, more=1)

    def failed(self, permit: Permit, error: BaseException, seconds: float | None) -> None:
        """Tell what an exception means; gives the permit back where it means nothing."""
        if self._is_failure(error):
            self.tell(failure(error, seconds), permit)
        else:
            self.tell(Signal(), permit)

    def returned(self, permit: Permit, result: Any, seconds: float | None) -> None:
        """Tell what a result means."""
        if self._is_bad(result):
            self.tell(Signal(ok=False, seconds=seconds, error="the result is a failure"), permit)
        else:
            self.succeeded(permit, seconds)

    def _is_slow(self, seconds: float | None) -> bool:
        return seconds is not None and seconds > cast("float", self._slow_from_s)

    def _is_failure(self, error: BaseException) -> bool:
        if is_no_evidence(error):
            return False
        try:
            return not matches(self._ignore, error) and matches(self._failure_if, error)
        except Exception:  # noqa: BLE001  the caller's exception is never replaced
            log_exception("failure_if or ignore of circuit %r failed", self.name)
            return True

    def _is_bad(self, result: Any) -> bool:
        if self._failure_if_result is None:
            return False
        try:
            return bool(self._failure_if_result(result))
        except Exception:  # noqa: BLE001  the caller gets the result that was made
            log_exception("failure_if_result of circuit %r failed", self.name)
            return False

    def seconds_since(self, started_s: float) -> float | None:
        """How long it took since the stopwatch showed `started_s`; `None`: nobody asks."""
        return None if self._slow_from_s is None else self._clock() - started_s

    def _config(self) -> dict[str, Any]:
        return {
            **super()._config(),
            "fallback": self._fallback,
            "failure_if": self._failure_if,
            "failure_if_result": self._failure_if_result,
            "ignore": self._ignore,
        }
