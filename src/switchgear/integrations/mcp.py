"""MCP clients: `async with guard(Client(server), panel=panel) as client:`.

For the `Client`, `ClientSession` and `ClientSessionGroup` of the MCP SDK and the `Client` of FastMCP: a
circuit per tool, and the progress of the session. For servers see `switchgear.integrations.fastmcp`.
"""

from typing import Any, Protocol, TypeVar, Unpack

from mcp.types import CallToolResult, TextContent

from switchgear._core.errors import Rejected
from switchgear.integrations._agent_run import AgentGuard, GuardOptions, tool_error

__all__ = ["guard"]


class ToolClient(Protocol):
    """A client that calls tools."""

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None, /) -> Any:
        """Call a tool."""


C = TypeVar("C", bound=ToolClient)


def guard(client: C, *, server: str = "", **options: Unpack[GuardOptions]) -> C:
    """The client, with its `call_tool` guarded: a circuit per tool, and the progress of the session.

    `server` is a name for the server: with it, circuits are named `mcp/<server>/<tool>`, without it
    `tool/<tool>`. A result with `is_error` is a failure. A refused call raises `Rejected`; with
    `on_refusal="answer"` it returns a tool error with the reason. The other options are those of every
    agent framework: `panel`, `tool_key` and `progress`.
    """
    if server:
        options.setdefault("tool_key", f"mcp/{server.replace('{', '').replace('}', '')}/{{tool}}")
    guarded = AgentGuard("mcp", **options)
    inner: Any = getattr(client.call_tool, "unguarded", client.call_tool)
    of_fastmcp = type(client).__module__.partition(".")[0] == "fastmcp"

    async def call_tool(
        name: str, arguments: dict[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            async with guarded.run("session").tool(name, arguments or {}) as call:
                result = await inner(name, arguments, *args, **kwargs)
                warning = await call.afinished(_text(result), failed=_is_error(result))
        except Rejected as error:
            if not guarded.answers:
                raise
            return _refused(tool_error(name, error), of_fastmcp=of_fastmcp)
        if warning is not None and isinstance(getattr(result, "content", None), list):
            result.content.append(TextContent(type="text", text=warning))
        return result

    setattr(call_tool, "unguarded", inner)  # noqa: B010  a new guard replaces this one
    setattr(client, "call_tool", call_tool)  # noqa: B010  a protocol's method is read-only to mypy
    return client


def _text(result: Any) -> str:
    parts = getattr(result, "content", None) or ()
    return "\n".join(str(getattr(part, "text", part)) for part in parts)


def _is_error(result: Any) -> bool:
    name = "is_error" if hasattr(result, "is_error") else "isError"  # the name in version 1
    return bool(getattr(result, name, False))


def _refused(text: str, *, of_fastmcp: bool) -> CallToolResult:
    if of_fastmcp:
        from fastmcp.exceptions import ToolError  # noqa: PLC0415  the client is one of FastMCP, so it is installed

        raise ToolError(text)
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
