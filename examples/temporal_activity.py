"""A Temporal activity whose service is down: after five failures its next retry is delayed."""

import asyncio

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from switchgear import Panel
from switchgear.integrations.temporalio import guard


@activity.defn
async def fetch() -> str:
    raise ConnectionError("connection refused")


class Last(ActivityInboundInterceptor):  # a worker has its own: Worker(interceptors=[guard()])
    async def execute_activity(self, input: ExecuteActivityInput) -> str:
        return str(await input.fn())


chain = guard(panel=Panel("memory:")).intercept_activity(Last(None))  # type: ignore[arg-type]
for number in range(1, 8):
    call = ExecuteActivityInput(fetch, (), None, {})
    try:
        asyncio.run(ActivityEnvironment().run(chain.execute_activity, call))
    except (ConnectionError, ApplicationError) as error:
        print(number, error, "retry after", getattr(error, "next_retry_delay", None))
