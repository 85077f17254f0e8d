"""Two OpenAI agents share a budget of one cent; the call for which nothing is left is refused. Needs no key."""

import asyncio

from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.testing import ScriptedModel, assistant_message

from switchgear import Panel
from switchgear.errors import BudgetRefused
from switchgear.integrations.openai_agents import guard

usage = Usage(requests=1, input_tokens=1_000, output_tokens=100, total_tokens=1_100)
answer = ModelResponse(output=[assistant_message("Done.")], usage=usage, response_id=None)
Gpt = type("Gpt", (ScriptedModel,), {"model": "gpt-4o"})  # stands in for a model of OpenAI
panel = Panel("memory:")
panel.budgets.open("team", 10_000)
agents = [Agent(name, model=Gpt([answer] * 10)) for name in ("researcher", "writer")]
guarded = [guard(agent, panel=panel, budget="team") for agent in agents]


async def main() -> None:
    try:
        for agent in guarded * 3:
            result = await Runner.run(agent, "Work.", run_config=RunConfig(tracing_disabled=True))
            print(agent.name, result.final_output, panel.budgets.free_micros("team"), "left")
    except BudgetRefused as error:
        print(agent.name, error)


asyncio.run(main())
