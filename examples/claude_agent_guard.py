"""Claude with circuits, progress detection and a budget. Needs Claude Code's credentials."""

import asyncio

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage

from switchgear import Panel, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.claude_agent_sdk import query

panel = Panel("memory:")
panel.budgets.open("team", 2_000_000)  # two dollars
options = ClaudeAgentOptions(allowed_tools=["Bash", "Read"], max_turns=20)


async def main() -> None:
    answers = query(prompt="Count the files here.", options=options, panel=panel, budget="team")
    try:
        async for message in answers:
            if isinstance(message, ResultMessage):
                print(message.result, panel.budgets.free_micros("team"), "left")
    except (BudgetRefused, Rejected) as error:
        print(error)


asyncio.run(main())
