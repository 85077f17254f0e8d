"""FastMCP servers: `FastMCP("server", middleware=[guard(panel=panel)])`.

A circuit per tool protects the services that the tools call. The progress of each session is checked, so that
a client in a loop is warned and then stopped.
"""

from collections.abc import Callable
from typing import Any, Unpack

from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from mcp.types import CallToolRequestParams, TextContent
from pydantic import ValidationError as BadArguments

from switchgear._core.errors import Rejected
from switchgear.integrations._agent_run import AgentGuard, GuardOptions, tool_error

SessionOf = Callable[[MiddlewareContext[Any]], str]

__all__ = ["SwitchgearServerMiddleware", "guard"]


class SwitchgearServerMiddleware(Middleware):
    """A middleware that guards the tools of a server.

    `session` returns the id of the session of a call (default: the id that the client sends, else the
    connection). A refused call is a `ToolError` with the reason, which clients treat as a failed tool. The
    other options are those of every agent framework: `panel`, `tool_key` and `progress`.
    """

    def __init__(
        self, *, session: SessionOf | None = None, **options: Unpack[GuardOptions]
    ) -> None:
        self._session_of = session or _session_id
        flow = (NotFoundError, ValidationError, BadArguments)
        self._guard = AgentGuard("fastmcp", control_flow=flow, **options)

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """Call the tool within its circuit and its session."""
        name, arguments = context.message.name, context.message.arguments or {}
        try:
            async with self._guard.run(self._session_of(context)).tool(name, arguments) as call:
                result = await call_next(context)
                text = "\n".join(str(getattr(part, "text", part)) for part in result.content)
                warning = await call.afinished(text, failed=result.is_error)
        except Rejected as error:
            raise ToolError(tool_error(name, error)) from error
        if warning is not None:
            result.content.append(TextContent(type="text", text=warning))
        return result


guard = SwitchgearServerMiddleware


def _session_id(context: MiddlewareContext[Any]) -> str:
    """The id of the client, as far as the protocol identifies it.

    Over standard input there is only one client. Over HTTP it is the id that the client sends, else the
    connection, which is new for every request since protocol version 2026-07-28.
    """
    server_context = context.fastmcp_context
    if server_context is None or server_context.transport in {None, "stdio"}:
        return "stdio"
    return str(server_context.client_id or server_context.session_id)
