"""Celery: `@app.task(base=guard(panel=panel))`. A refused task is retried when its circuit may admit it.

A task is refused by its own circuit, or by any guard inside it, such as that of an SDK.
"""

import random
from typing import Any

from celery import Task
from celery.exceptions import Ignore, Reject, Retry

from switchgear._core.errors import BudgetRefused, Rejected, SwitchgearError
from switchgear._panel.panel import Panel
from switchgear.integrations._agent_run import default_panel
from switchgear.integrations._refusals import retry_after_s

__all__ = ["guard"]

_CONTROL_FLOW = (Ignore, Reject, Retry, SwitchgearError)
"""Exceptions that are no evidence about the services that a task calls."""


def guard(
    *,
    panel: Panel | None = None,
    key: str = "task/{task}",
    max_refusals: int = 100,
    hold_s: float = 300.0,
    spread_s: float = 10.0,
) -> type[Task]:
    """A base class for tasks, for `@app.task(base=…)` or `Celery(task_cls=…)`.

    - `panel`: the circuits. Default: a panel over the store of the project, one per process.
    - `key`: the name of the circuit, with `{task}`; the same name for several tasks makes them share one.
    - `max_refusals`: retries after which a refused task fails with its `Rejected` or `BudgetRefused`.
    - `hold_s`: seconds to wait for a budget, and for a circuit that does not recover by itself (an operator
      holds it).
    - `spread_s`: adds up to this many seconds to each wait, so that tasks do not return all at once.
    """

    class GuardedTask(Task):  # type: ignore[misc]  # Celery has no types
        """A task within a circuit."""

        abstract = True

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Run the task, or retry it later."""
            breaker = (panel or default_panel()).breaker(key.format(task=self.name))
            try:
                permit = breaker.enter()
                started_s = breaker.stopwatch()
                try:
                    result = super().__call__(*args, **kwargs)
                except _CONTROL_FLOW:
                    breaker.give_back(permit)
                    raise
                except BaseException as error:
                    breaker.failed(permit, error, breaker.seconds_since(started_s))
                    raise
                breaker.succeeded(permit, breaker.seconds_since(started_s))
            except (Rejected, BudgetRefused) as refusal:
                if self.request.called_directly:
                    raise
                known_s = retry_after_s(refusal)
                wait_s = hold_s if known_s is None else known_s
                wait_s += random.uniform(0.0, spread_s)  # noqa: S311  no secret
                raise self.retry(
                    exc=refusal, countdown=wait_s, max_retries=max_refusals
                ) from refusal
            return result

    return GuardedTask
