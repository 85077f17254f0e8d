"""An MCP client of a broken tool: after five failures the call is refused without a request."""

import asyncio

from mcp.client.client import Client
from mcp.server.mcpserver import MCPServer

from switchgear import Panel, Rejected
from switchgear.integrations.mcp import guard

server = MCPServer("search")


@server.tool()
def search(query: str) -> str:
    """Search."""
    raise OSError("the index is gone")


async def main() -> None:
    async with guard(Client(server), panel=Panel("memory:"), progress=False) as client:
        for number in range(1, 8):
            try:
                result = await client.call_tool("search", {"query": f"page {number}"})
                print(number, result.content)
            except Rejected as error:
                print(number, error)


asyncio.run(main())
