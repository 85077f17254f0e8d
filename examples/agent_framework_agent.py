"""An agent of Microsoft's framework whose model fails: the sixth call makes no request. Needs no key."""

import asyncio
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatMiddlewareLayer, FunctionInvocationLayer

from switchgear import Panel, Rejected
from switchgear.integrations.agent_framework import guard


class Down(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Stands in for a client whose provider is down."""

    async def _inner_get_response(self, **request: Any) -> Any:
        raise ConnectionError("connection refused")


async def main() -> None:
    agent = Agent(Down(), middleware=guard(panel=Panel("memory:")))
    for number in range(1, 8):
        try:
            print(await agent.run("Hello?"))
        except (ConnectionError, Rejected) as error:
            print(number, error)


asyncio.run(main())
