"""What an agent learns from `switchgear mcp`: why it is refused, and how to request more time. Needs no key."""

import asyncio
import sys
from pathlib import Path

from mcp import ClientSession, StdioServerParameters, stdio_client

from switchgear import Panel

Path(".switchgear").mkdir(exist_ok=True)  # this folder is the project
with Panel("sqlite:///.switchgear/state.db") as panel:
    panel.breaker("provider/anthropic").hold_open(by="me", why="maintenance until noon")
command = ["-m", "switchgear", "--store", "sqlite:///.switchgear/state.db", "mcp"]
server = StdioServerParameters(command=sys.executable, args=command)


async def main() -> None:
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        print((await session.call_tool("why_refused", {})).content)
        wish = {"kind": "time", "amount": 600, "reason": "the build is slow"}
        print((await session.call_tool("request_more", wish)).content)


asyncio.run(main())
