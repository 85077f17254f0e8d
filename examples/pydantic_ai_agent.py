"""A Pydantic AI agent whose provider fails: five requests are made, then a fallback answers. Needs no key."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from switchgear import Panel
from switchgear.integrations.pydantic_ai import guard


def down(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise ConnectionError("connection refused")


spare = TestModel(custom_output_text="An answer of the fallback.")
agent = Agent(FunctionModel(down), capabilities=[guard(panel=Panel("memory:"), fallback=spare)])


async def main() -> None:
    for number in range(1, 8):
        try:
            print(number, (await agent.run("hello")).output)
        except ConnectionError as error:
            print(number, error)


asyncio.run(main())
