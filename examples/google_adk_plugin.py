"""A Google ADK agent whose model fails: after five requests it answers with the reason. Needs no key."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.runners import InMemoryRunner

from switchgear import Panel
from switchgear.integrations.google_adk import guard


class Down(BaseLlm):
    """Stands in for a model whose provider is down."""

    async def generate_content_async(self, *request: Any, **options: Any) -> AsyncGenerator[Any]:
        if self.model:
            raise ConnectionError("connection refused")
        yield


agent = LlmAgent(name="helper", model=Down(model="gemini-down"))
runner = InMemoryRunner(agent, app_name="demo", plugins=[guard(panel=Panel("memory:"))])
for number in range(1, 8):
    try:
        asyncio.run(runner.run_debug("Hello?"))
    except ConnectionError as error:
        print(number, error)
