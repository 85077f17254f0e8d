"""The MCP server over stdio, with the real `mcp` package: `pip install 'switchgear[mcp]'`.

Every tool but one is marked read-only. `request_more` keeps a request; it is not destructive.
"""

from typing import Any

from mcp.types import ToolAnnotations

from switchgear._mcp.answers import GuardAnswers, answered_or_error

INSTRUCTIONS = (
    "Switchgear guards this project. Use these tools when a call was refused or you were stopped: they return "
    "the reason and what was tried. They cannot change anything. You can request more time or money with a reason; "
    "a person decides."
)


def made(answers: GuardAnswers) -> Any:
    """The server, ready to run."""
    server = _server_class()("switchgear", instructions=INSTRUCTIONS)
    reading = ToolAnnotations(**_read_only())

    @server.tool(annotations=reading)  # type: ignore[untyped-decorator, unused-ignore]
    def why_refused(session: str = "") -> str:
        """Return why tool calls are refused now: the session's state, open circuits, broken rules.

        session: the session id; empty: the session of this project that was active last.
        """
        return answered_or_error(answers, "why_refused", session=session)

    @server.tool(annotations=reading)  # type: ignore[untyped-decorator, unused-ignore]
    def what_was_tried(session: str = "") -> str:
        """Return what was tried in a session: evidence, escalation steps, last steps and failures.

        session: the session id; empty: the session of this project that was active last.
        """
        return answered_or_error(answers, "what_was_tried", session=session)

    @server.tool(annotations=ToolAnnotations(**_adding()))  # type: ignore[untyped-decorator, unused-ignore]
    def request_more(kind: str, amount: float, reason: str, session: str = "") -> str:
        """Request more time or money from a person, with a reason. Nothing is granted by itself.

        kind: "time" (amount in seconds) or "money" (amount in dollars).
        """
        return answered_or_error(
            answers, "request_more", kind=kind, amount=amount, reason=reason, session=session
        )

    @server.tool(annotations=reading)  # type: ignore[untyped-decorator, unused-ignore]
    def request_status(request_id: str = "") -> str:
        """Show requests and their answers. request_id: only this one."""
        return answered_or_error(answers, "request_status", request_id=request_id)

    return server


def _server_class() -> Any:
    """The server class of mcp 2, or of mcp 1."""
    try:
        from mcp.server import MCPServer  # noqa: PLC0415
    except ImportError:
        from mcp.server.fastmcp import (  # type: ignore[attr-defined, unused-ignore]  # noqa: PLC0415
            FastMCP,
        )

        return FastMCP
    return MCPServer


def _fields() -> frozenset[str]:
    return frozenset(ToolAnnotations.model_fields)


def _annotations(**values: bool) -> dict[str, Any]:
    """The annotations under the names of this version of the package."""
    camel = {
        "read_only": "readOnlyHint",
        "destructive": "destructiveHint",
        "idempotent": "idempotentHint",
        "open_world": "openWorldHint",
    }
    found: dict[str, Any] = {}
    for name, value in values.items():
        snake = f"{name}_hint"
        found[snake if snake in _fields() else camel[name]] = value
    return found


def _read_only() -> dict[str, Any]:
    return _annotations(read_only=True, destructive=False, idempotent=True, open_world=False)


def _adding() -> dict[str, Any]:
    return _annotations(read_only=False, destructive=False, idempotent=False, open_world=False)
