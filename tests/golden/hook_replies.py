"""The replies to every agent with hooks: scenarios in each agent's own events.

Driven in-process through the one function that hook processes and the hook server call.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from golden.place import project, without_place
from switchgear import Panel
from switchgear._hooks.handler import answer
from switchgear.testing import FakeClock, FlakyStore

Data = dict[str, Any]
Row = dict[str, Any]
SESSION = "s1"
MOST_CALLS = 60
"""Failing calls after which an agent must have been stopped."""


class Events(NamedTuple):
    """The events of an agent. A call is a tool's command and its number."""

    start: Callable[[], Data]
    prompt: Callable[[], Data]
    before: Callable[[str, int], Data]
    succeeded: Callable[[str, int], Data]
    failed: Callable[[str, int], Data]
    stop: Callable[[], Data]
    end: Callable[[], Data]
    more: tuple[Data, ...] = ()
    """Events that only this agent has."""


def _named(event: str, **more: Any) -> Data:
    return {"session_id": SESSION, "hook_event_name": event, **more}


def _tool(event: str, command: str, number: int, **more: Any) -> Data:
    call = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": f"t{number}"}
    return _named(event, **call, **more)


def _claude(*more: Data, failed: Callable[[str, int], Data] | None = None) -> Events:
    return Events(
        start=lambda: _named("SessionStart", source="startup"),
        prompt=lambda: _named("UserPromptSubmit", prompt="fix the parser"),
        before=lambda command, number: _tool("PreToolUse", command, number),
        succeeded=lambda command, number: _tool(
            "PostToolUse", command, number, tool_response={"stdout": "fine"}, duration_ms=20
        ),
        failed=failed
        or (
            lambda command, number: _tool(
                "PostToolUseFailure", command, number, error="Exit code 2\nno rule", duration_ms=20
            )
        ),
        stop=lambda: _named("Stop"),
        end=lambda: _named("SessionEnd", reason="exit"),
        more=more,
    )


def _gemini_tool(event: str, command: str, **more: Any) -> Data:
    return _named(event, tool_name="run_shell_command", tool_input={"command": command}, **more)


def _gemini_after(command: str, text: str) -> Data:
    return _gemini_tool("AfterTool", command, tool_response={"llmContent": text})


def _opencode(kind: str, command: str = "", number: int = 0, **output: Any) -> Data:
    given = {"tool": "bash", "sessionID": SESSION, "callID": f"t{number}"}
    made = {"args": {"command": command}, **output}
    return {"k": kind, "input": given, "output": made, "duration_ms": 20}


def _opencode_event(kind: str) -> Data:
    return {"k": "event", "type": kind, "properties": {"sessionID": SESSION}}


def _pi(kind: str, **event: Any) -> Data:
    return {"k": kind, "event": {"type": kind, **event}, "session": SESSION, "duration_ms": 20}


def _pi_call(kind: str, command: str, number: int, **more: Any) -> Data:
    call = {"toolName": "bash", "toolCallId": f"t{number}", "input": {"command": command}}
    return _pi(kind, **call, **more)


_BATCH = _named(
    "PostToolBatch",
    tool_calls=[
        {
            "tool_name": "Bash",
            "tool_input": {"command": "true"},
            "tool_use_id": "t90",
            "tool_response": "fine",
        }
    ],
)
_HELPER = {"agent_id": "h1", "agent_type": "explore"}
_SUB_AGENT = (_named("SubagentStart", **_HELPER), _named("SubagentStop", **_HELPER))

EVENTS = {
    "claude-code": _claude(_BATCH, *_SUB_AGENT, _named("Notification", message="look")),
    "codex": _claude(
        *_SUB_AGENT,
        _named("PreModelRequest"),
        failed=lambda command, number: _tool(
            "PostToolUse", command, number, tool_response="no rule\nProcess exited with code 2"
        ),
    ),
    "qwen": _claude(_BATCH, *_SUB_AGENT),
    "gemini": Events(
        start=lambda: _named("SessionStart", source="startup"),
        prompt=lambda: _named("BeforeAgent", prompt="fix the parser"),
        before=lambda command, _: _gemini_tool("BeforeTool", command),
        succeeded=lambda command, _: _gemini_after(command, "Output: fine"),
        failed=lambda command, _: _gemini_after(command, "Output: no rule\nExit Code: 2\n"),
        stop=lambda: _named("AfterAgent"),
        end=lambda: _named("SessionEnd", reason="exit"),
        more=(_named("BeforeModel"), _named("AfterModel"), _named("PreCompress")),
    ),
    "opencode": Events(
        start=lambda: _opencode_event("session.created"),
        prompt=lambda: {"k": "chat.message", "input": {"sessionID": SESSION}, "output": {}},
        before=lambda command, number: _opencode("tool.execute.before", command, number),
        succeeded=lambda command, number: _opencode(
            "tool.execute.after", command, number, output="fine", metadata={"exit": 0}
        ),
        failed=lambda command, number: _opencode(
            "tool.execute.after", command, number, output="no rule", metadata={"exit": 2}
        ),
        stop=lambda: _opencode_event("session.idle"),
        end=lambda: _opencode_event("session.deleted"),
        more=({"k": "init"}, {"k": "chat.params", "input": {"sessionID": SESSION}}),
    ),
    "pi": Events(
        start=lambda: _pi("session_start"),
        prompt=lambda: _pi("input", text="fix the parser"),
        before=lambda command, number: _pi_call("tool_call", command, number),
        succeeded=lambda command, number: _pi_call(
            "tool_result", command, number, content=[{"type": "text", "text": "fine"}]
        ),
        failed=lambda command, number: _pi_call(
            "tool_result",
            command,
            number,
            content=[{"type": "text", "text": "no rule\n\nCommand exited with code 2"}],
            isError=True,
        ),
        stop=lambda: _pi("agent_end"),
        end=lambda: _pi("session_shutdown"),
        more=(_pi("turn_end"),),
    ),
}


class Session:
    """One agent under its hooks in a new project, over a store that can be cut off."""

    def __init__(self, agent: str, folder: Path) -> None:
        self.agent, self.events, self.folder = agent, EVENTS[agent], folder
        self.clock = FakeClock(1_750_000_000.0)
        self.store = FlakyStore(clock=self.clock)

    def send(self, what: str, data: Data | bytes) -> Row:
        """One event, a second after the last: its name here and the reply."""
        self.clock.advance(1.0)
        raw = data if isinstance(data, bytes) else json.dumps({**data, "cwd": str(self.folder)})
        raw = raw if isinstance(raw, bytes) else raw.encode()
        reply = answer(self.agent, raw, str(self.folder), lambda _: self.store)
        row: Row = {"sent": what, "exit_code": reply.code}
        for name, text in (("stdout", reply.stdout), ("stderr", reply.stderr)):
            row[name] = without_place(text, self.folder)
        return {**row, "interrupt": True} if reply.interrupt else row


def _work(session: Session) -> Iterator[Row]:
    to = session.events
    yield session.send("session start", to.start())
    yield session.send("prompt", to.prompt())
    yield session.send("before `ls`", to.before("ls", 1))
    yield session.send("`ls` succeeded", to.succeeded("ls", 1))
    yield session.send("before `make`", to.before("make", 2))
    yield session.send("`make` failed", to.failed("make", 2))
    for data in to.more:
        yield session.send(str(data.get("hook_event_name") or data.get("k")), data)
    yield session.send("stop", to.stop())
    yield session.send("session end", to.end())


def _forbidden(session: Session) -> Iterator[Row]:
    for number, command in enumerate(("rm -rf /etc", "switchgear release '*' --why x", "ls")):
        yield session.send(f"before `{command}`", session.events.before(command, number))
    yield session.send("stop", session.events.stop())


def _unreadable(session: Session) -> Iterator[Row]:
    call = json.dumps(session.events.before("ls", 1))
    for raw in ("", "{", "[]", "{}", '{"hook_event_name": "PreToolUse"}', '{"k": "tool_call"}'):
        yield session.send(f"input {raw!r}", raw.encode())
    yield session.send("a repeated key", f'{{"cwd": "/", {call[1:-1]}, "cwd": "/x"}}'.encode())
    yield session.send("input of 4 MiB + 1", b" " * (4 * 1024 * 1024 + 1))


def _stuck(session: Session) -> Iterator[Row]:
    """The same failure again and again: every reply with a text, up to the first call that is refused."""
    to = session.events
    yield session.send("prompt", to.prompt())
    for number in range(MOST_CALLS):
        before = session.send(f"before `make`, call {number}", to.before("make", number))
        if before["stdout"]:
            yield before
        if any(word in before["stdout"] for word in ('"deny"', '"block"', '"stop"')):
            break
        after = session.send(f"`make` failed, call {number}", to.failed("make", number))
        if after["stdout"]:
            yield after
    yield session.send("before `ls`", to.before("ls", MOST_CALLS))
    yield session.send("stop", to.stop())
    yield session.send("prompt", to.prompt())
    yield session.send("before `ls`", to.before("ls", MOST_CALLS + 1))


def _held(session: Session) -> Iterator[Row]:
    """An operator holds the session's circuit open."""
    to = session.events
    yield session.send("prompt", to.prompt())
    panel = Panel(session.store, clock=session.clock)
    panel.breaker(f"session/{SESSION}").hold_open(by="ada", why="wait for the review")
    yield session.send("before `ls`", to.before("ls", 1))
    yield session.send("`ls` succeeded", to.succeeded("ls", 1))


def _undecided(session: Session) -> Iterator[Row]:
    """The store cannot be reached."""
    to = session.events
    session.store.cut()
    yield session.send("session start", to.start())
    yield session.send("prompt", to.prompt())
    yield session.send("before `ls`", to.before("ls", 1))
    yield session.send("`ls` succeeded", to.succeeded("ls", 1))
    yield session.send("before `rm -rf /etc`", to.before("rm -rf /etc", 2))
    yield session.send("stop", to.stop())


SCENARIOS = {
    "work": _work,
    "forbidden calls": _forbidden,
    "unreadable input": _unreadable,
    "stuck": _stuck,
    "held open by an operator": _held,
    "store cannot be reached": _undecided,
}


def replies(agent: str) -> dict[str, list[Row]]:
    """Every scenario with the replies of one agent's hooks."""
    found = {}
    for name, scenario in SCENARIOS.items():
        with project() as folder:
            found[name] = list(scenario(Session(agent, folder)))
    return found
