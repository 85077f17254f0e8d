"""The MCP SDK and FastMCP, with the real packages, client and server in memory."""

import asyncio
import contextlib
from typing import Any

import pytest

pytest.importorskip("fastmcp")

from fastmcp import Client as FastClient
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult
from mcp.client.client import Client
from mcp.server.mcpserver import MCPServer

from switchgear import Panel, Phase, Rejected
from switchgear.integrations import fastmcp as server_side
from switchgear.integrations.mcp import guard
from switchgear.testing import FakeClock


class Tools:
    """The tools of a server; `broken` ones raise."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken = True

    def search(self, query: str) -> str:
        """Search."""
        self.calls.append(query)
        if self.broken:
            raise OSError(f"index {query} is gone")
        return "no results"

    async def wait(self) -> str:
        """Wait."""
        await asyncio.sleep(600)
        return "late"


def connected(kind: str, tools: Tools, **options: Any) -> Any:
    if kind == "mcp":
        server = MCPServer("tools")
        server.add_tool(tools.search)
        server.add_tool(tools.wait)
        return guard(Client(server), **options)
    fast = FastMCP("tools")
    fast.add_tool(tools.search)
    fast.add_tool(tools.wait)
    return guard(FastClient(fast), **options)


BOTH = pytest.mark.parametrize("kind", ["mcp", "fastmcp"])


async def fail(client: Any, query: str) -> None:
    """A call that fails: the SDK reports it in the result, FastMCP raises."""
    with contextlib.suppress(ToolError):
        assert (await client.call_tool("search", {"query": query})).is_error


@BOTH
def test_five_failures_open_the_circuit_and_the_sixth_call_is_not_sent(kind: Any) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    tools = Tools()

    async def main() -> None:
        async with connected(kind, tools, panel=panel, server="web", progress=False) as client:
            for number in range(5):
                await fail(client, f"q{number}")
            with pytest.raises(Rejected, match="mcp/web/search"):
                await client.call_tool("search", {"query": "again"})
            assert len(tools.calls) == 5
            clock.advance(61)
            tools.broken = False
            result = await client.call_tool("search", {"query": "back"})
            assert result.content[0].text == "no results"

    asyncio.run(main())
    assert panel.breaker("mcp/web/search").state is Phase.CLOSED


@BOTH
def test_a_refusal_can_be_a_tool_error(kind: Any) -> None:
    panel = Panel("memory:")
    panel.breaker("tool/search").hold_open(by="test", why="maintenance")

    async def main() -> None:
        async with connected(kind, Tools(), panel=panel, on_refusal="answer") as client:
            if kind == "mcp":
                result = await client.call_tool("search", {"query": "a"})
                assert result.is_error
                assert "maintenance" in result.content[0].text
            else:
                with pytest.raises(ToolError, match="maintenance"):
                    await client.call_tool("search", {"query": "a"})

    asyncio.run(main())


@BOTH
def test_a_tool_loop_is_warned_and_stopped(kind: Any) -> None:
    tools = Tools()
    tools.broken = False

    async def main() -> list[str]:
        texts = []
        async with connected(kind, tools, panel=Panel("memory:")) as client:
            with pytest.raises(Rejected, match="session/mcp-"):
                for _ in range(30):
                    result = await client.call_tool("search", {"query": "the same"})
                    texts.append(" ".join(part.text for part in result.content))
        return texts

    assert any("Switchgear warns" in text for text in asyncio.run(main()))
    assert len(tools.calls) < 20


@BOTH
def test_cancellation_is_not_evidence_and_leaks_no_permit(kind: Any) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    breaker = panel.breaker("tool/wait")

    async def main() -> None:
        async with connected(kind, Tools(), panel=panel) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.call_tool("wait", {}), 0.5)

    asyncio.run(main())
    assert breaker.totals.failed == 0
    assert breaker.totals.ignored == 1


def serving(tools: Tools, **options: Any) -> FastClient[Any]:
    server = FastMCP("tools", middleware=[server_side.guard(**options)])
    server.add_tool(tools.search)
    server.tool(lambda: ToolResult("bad", is_error=True), name="returns_error")
    return FastClient(server)


def test_a_server_refuses_a_broken_tool_without_calling_it() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    tools = Tools()

    async def main() -> None:
        async with serving(tools, panel=panel, progress=False) as client:
            for number in range(5):
                with pytest.raises(ToolError, match="is gone"):
                    await client.call_tool("search", {"query": f"q{number}"})
            with pytest.raises(ToolError, match="tool/search"):
                await client.call_tool("search", {"query": "again"})
            assert len(tools.calls) == 5
            clock.advance(61)
            tools.broken = False
            assert (await client.call_tool("search", {"query": "back"})).data == "no results"

    asyncio.run(main())
    assert panel.breaker("tool/search").state is Phase.CLOSED


def test_a_server_counts_returned_errors_and_ignores_bad_arguments() -> None:
    panel = Panel("memory:")

    async def main() -> None:
        async with serving(Tools(), panel=panel) as client:
            with pytest.raises(ToolError):
                await client.call_tool("search", {"wrong": 1})
            with pytest.raises(ToolError):
                await client.call_tool("returns_error", {})

    asyncio.run(main())
    assert panel.breaker("tool/search").totals.failed == 0
    assert panel.breaker("tool/returns_error").totals.failed == 1


def test_a_server_evaluates_each_session_by_itself() -> None:
    tools = Tools()
    tools.broken = False
    user = "ann"
    middleware = server_side.guard(panel=Panel("memory:"), session=lambda context: user)
    server = FastMCP("tools", middleware=[middleware])
    server.add_tool(tools.search)

    async def loops() -> list[str]:
        texts = []
        async with FastClient(server) as client:
            with pytest.raises(ToolError, match="session/fastmcp-"):
                for _ in range(30):
                    result = await client.call_tool("search", {"query": "the same"})
                    texts.append(" ".join(part.text for part in result.content))
            return texts

    async def once() -> str:
        async with FastClient(server) as client:
            return str((await client.call_tool("search", {"query": "the same"})).data)

    assert any("Switchgear warns" in text for text in asyncio.run(loops()))
    user = "bob"
    assert asyncio.run(once()) == "no results"


def test_a_server_with_one_client_needs_no_session() -> None:
    tools = Tools()
    tools.broken = False

    async def loops() -> None:
        async with serving(tools, panel=Panel("memory:")) as client:
            for _ in range(30):
                await client.call_tool("search", {"query": "the same"})

    with pytest.raises(ToolError, match="session/fastmcp-"):
        asyncio.run(loops())


@BOTH
def test_the_last_guard_of_a_client_counts(kind: Any) -> None:
    panel, tools = Panel("memory:"), Tools()
    tools.broken = False

    async def main() -> None:
        client = connected(kind, tools, panel=panel, server="first")
        async with guard(client, panel=panel, server="second"):
            await client.call_tool("search", {"query": "a"})

    asyncio.run(main())
    assert {view.name for view in panel.circuits("mcp/*")} == {"mcp/second/search"}


def test_a_call_that_the_client_of_a_server_cancels_is_not_evidence() -> None:
    panel, started = Panel("memory:"), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.sleep(600)
        return "late"

    async def main() -> None:
        server = FastMCP("tools", middleware=[server_side.guard(panel=panel)])
        server.add_tool(wait)
        async with FastClient(server) as client:
            call = asyncio.create_task(client.call_tool("wait", {}))
            await asyncio.wait_for(started.wait(), 60)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call

    asyncio.run(main())
    assert panel.breaker("tool/wait").totals[:3] == (0, 0, 1)
