"""The MCP server, with the package `mcp`: `pip install 'switchgear[mcp]'`.

All tools except `request_more`, which saves a request, are marked read-only. None is destructive.
"""

from typing import Any

from mcp.types import ToolAnnotations
from pydantic.alias_generators import to_camel

from switchgear._mcp.answers import GuardAnswers

INSTRUCTIONS = (
    "Switchgear guards this project. Use these tools when a call was refused or you were stopped: they return "
    "the reason and what was tried. They cannot change anything. You can request more time or money with a reason; "
    "a person decides."
)


def create_server(answers: GuardAnswers) -> Any:
    """The server, ready to run. The tools are methods, whose docstrings the agent reads."""
    server = _server_class()("switchgear", instructions=INSTRUCTIONS)
    for tool in (answers.why_refused, answers.what_was_tried, answers.request_status):
        server.add_tool(tool, annotations=_annotations(read_only=True))
    server.add_tool(answers.request_more, annotations=_annotations(read_only=False))
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


def _annotations(*, read_only: bool) -> ToolAnnotations:
    """The hints for clients. Their names are in snake case in mcp 2, in camel case in mcp 1."""
    hints = {
        "read_only_hint": read_only,
        "destructive_hint": False,
        "idempotent_hint": read_only,
        "open_world_hint": False,
    }
    if "read_only_hint" not in ToolAnnotations.model_fields:
        hints = {to_camel(name): value for name, value in hints.items()}
    return ToolAnnotations(**hints)
