"""A FastMCP server that stops a client that loops."""

import asyncio

from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError

from switchgear import Panel
from switchgear.integrations.fastmcp import guard

server = FastMCP("search", middleware=[guard(panel=Panel("memory:"))])


@server.tool
def search(query: str) -> str:
    """Search."""
    return f"No results for {query!r}."


async def main() -> None:
    async with Client(server) as client:
        try:
            while True:
                result = await client.call_tool("search", {"query": "colour"})
                print(*(part.text for part in result.content), sep="\n")
        except ToolError as error:
            print(error)


asyncio.run(main())
