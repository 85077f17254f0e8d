"""`switchgear mcp` with the real package: its own client talks to the command over stdio."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters, stdio_client

from switchgear import Panel
from switchgear._config import preset_policy
from switchgear._console.requests import all_requests
from switchgear._core.types import Record, Signal
from switchgear._hooks.session import Notes, note_name


def texts(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


async def talk(folder: Path, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "switchgear", "--store", f"sqlite:///{folder}/state.db", "mcp"],
        cwd=str(folder),
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        return tools, [await session.call_tool(name, arguments) for name, arguments in calls]


def test_the_real_client_asks_why_and_leaves_a_request(tmp_path: Path) -> None:
    (tmp_path / ".switchgear").mkdir()  # its own project, whatever lies in the folders above
    url = f"sqlite:///{tmp_path}/state.db"
    with Panel(url) as panel:
        name = note_name("s1")

        def begin(tx: Any) -> None:
            tx.note = Notes("claude-code", began_s=tx.now_s, heard_s=tx.now_s, works=True,
                            project=str(tmp_path), tried=("nudge",)).dump()  # fmt: skip

        panel.store.transact(name, begin)
        breaker = panel.breaker(name, preset_policy("stuck"))
        breaker.send(Record(Signal(violation="the same error 12 times")))
    tools, answers = asyncio.run(
        talk(
            tmp_path,
            ("why_refused", {}),
            ("what_was_tried", {"session": "s1"}),
            ("request_more", {"kind": "time", "amount": 600, "reason": "the build is slow"}),
            ("request_more", {"kind": "power", "amount": 1, "reason": "x"}),
            ("request_status", {}),
        )
    )
    assert {tool.name for tool in tools} == {
        "why_refused",
        "what_was_tried",
        "request_more",
        "request_status",
    }
    reading = {tool.name for tool in tools if _read_only(tool)}
    assert reading == {"why_refused", "what_was_tried", "request_status"}
    why, tried, made, refused, status = map(texts, answers)
    assert "session s1 is" in why
    assert "escalation steps so far: nudge" in tried
    assert "waits for a person" in made
    assert refused.startswith("not recorded: kind is 'power'")
    assert "waits for an answer" in status
    with Panel(url) as panel:
        [kept] = all_requests(panel.store.transact)
        assert (kept.session, kept.kind, kept.amount) == ("s1", "time", 600.0)


def _read_only(tool: Any) -> bool:
    hints = tool.annotations
    name = "read_only_hint" if hasattr(hints, "read_only_hint") else "readOnlyHint"  # mcp 2, mcp 1
    return bool(getattr(hints, name))
