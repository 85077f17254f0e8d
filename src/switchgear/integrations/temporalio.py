"""Temporal: `Worker(..., interceptors=[guard(panel=panel)])`. A refused activity is retried later.

An activity is refused by its own circuit, or by any guard inside it, such as that of an SDK: it ends with an
`ApplicationError` whose `next_retry_delay` is the time until the circuit may admit it.
"""

from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from switchgear._core.errors import BudgetRefused, Rejected, SwitchgearError
from switchgear._panel.panel import Panel
from switchgear.integrations._agent_run import default_panel

__all__ = ["SwitchgearInterceptor", "guard"]


class SwitchgearInterceptor(Interceptor):
    """An interceptor that guards the activities of a worker.

    - `panel`: the circuits. Default: a panel over the store of the project, one per process.
    - `key`: the name of the circuit, with `{activity}`.
    - `hold_s`: seconds to wait for a circuit that does not recover by itself (an operator holds it).
    """

    def __init__(
        self,
        panel: Panel | None = None,
        key: str = "activity/{activity}",
        hold_s: float = 300.0,
    ) -> None:
        self._panel, self._key, self._hold_s = panel, key, hold_s

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """The activity within its circuit."""
        return _GuardedActivity(next, self)

    async def execute(self, inner: ActivityInboundInterceptor, call: ExecuteActivityInput) -> Any:
        """Run the activity, or end it with a delayed retry."""
        name = self._key.format(activity=activity.info().activity_type)
        breaker = (self._panel or default_panel()).breaker(name)
        try:
            permit = await breaker.aenter()
            started_s = breaker.stopwatch()
            try:
                result = await inner.execute_activity(call)
            except (SwitchgearError, CancelledError):
                await breaker.agive_back(permit)
                raise
            except BaseException as error:
                await breaker.afailed(permit, error, breaker.seconds_since(started_s))
                raise
            await breaker.asucceeded(permit, breaker.seconds_since(started_s))
        except Rejected as refusal:
            wait_s = self._hold_s if refusal.retry_after_s is None else refusal.retry_after_s
            raise _later(refusal, wait_s) from refusal
        except BudgetRefused as refusal:
            raise _later(refusal, self._hold_s) from refusal
        return result


guard = SwitchgearInterceptor


class _GuardedActivity(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, guard: SwitchgearInterceptor) -> None:
        super().__init__(inner)
        self._guard = guard

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        return await self._guard.execute(self.next, input)


def _later(refusal: SwitchgearError, wait_s: float) -> ApplicationError:
    return ApplicationError(
        str(refusal),
        type=type(refusal).__name__,
        next_retry_delay=timedelta(seconds=wait_s),
        category=ApplicationErrorCategory.BENIGN,
    )
