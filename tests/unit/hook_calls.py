"""Hook calls for tests: what agents send, in the shapes in which they send it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from switchgear._agents.hook_protocol import HookFacts, Ruling
from switchgear._agents.registry import dialect_of
from switchgear._config.trust import trust_file
from switchgear._hooks.decide import decide
from switchgear._hooks.hook_config import HookConfig, config_of
from switchgear._stores.base import Store
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock

Data = dict[str, Any]


def claude(event: str, session: str = "s1", **more: Any) -> Data:
    """An event of Claude Code, and of agents with the same format."""
    return {"session_id": session, "cwd": "/", "hook_event_name": event, **more}


def before(tool: str = "Bash", args: Any = None, call: str = "t1", **more: Any) -> Data:
    args = {"command": "make"} if args is None else args
    return claude("PreToolUse", tool_name=tool, tool_input=args, tool_use_id=call, **more)


def after(
    tool: str = "Bash", args: Any = None, call: str = "t1", result: Any = "fine", **more: Any
) -> Data:
    args = {"command": "make"} if args is None else args
    names = {"tool_name": tool, "tool_input": args, "tool_use_id": call}
    return claude("PostToolUse", **names, tool_response=result, duration_ms=20, **more)


def failed(
    tool: str = "Bash", args: Any = None, call: str = "t1", error: str = "Exit code 1", **more: Any
) -> Data:
    args = {"command": "make"} if args is None else args
    names = {"tool_name": tool, "tool_input": args, "tool_use_id": call}
    return claude("PostToolUseFailure", **names, error=error, duration_ms=20, **more)


def batch(*calls: tuple[str, Mapping[str, Any], str], response: str = "fine", **more: Any) -> Data:
    listed = [
        {"tool_name": tool, "tool_input": args, "tool_use_id": call, "tool_response": response}
        for tool, args, call in calls
    ]
    return claude("PostToolBatch", tool_calls=listed, **more)


class Guarded:
    """An agent under its hooks: events in, rulings out, over a store in memory."""

    def __init__(self, folder: Path, config: str = "", agent: str = "claude-code") -> None:
        (folder / ".git").mkdir(exist_ok=True)
        file = folder / "switchgear.yaml"
        if config and not (file.exists() and file.read_text() == config):
            file.write_text(config)
            trust_file(str(file))
        self.folder = folder
        self.clock = FakeClock(1_750_000_000.0)
        self.store: Store = MemoryStore(clock=self.clock)
        self.known: HookConfig = config_of(str(folder))
        self.agent = agent

    def facts(self, data: Data) -> HookFacts:
        return dialect_of(self.agent).read({**data, "cwd": str(self.folder)})

    def hear(self, data: Data) -> Ruling:
        """Send one event a second after the last; its ruling."""
        self.clock.advance(1.0)
        return decide(self.facts(data), self.known, self.store, dialect_of(self.agent).warns)

    def call(self, tool: str = "Bash", args: Any = None, call: str = "t", **told: Any) -> Ruling:
        """A call from its beginning to its end, unless it is refused: the last ruling."""
        ruling = self.hear(before(tool, args, call))
        if ruling.action in {"deny", "stop"}:
            return ruling
        done = failed if "error" in told else after
        return self.hear(done(tool, args, call, **told))

    def totals(self, key: str) -> Any:
        found = self.store.get(key)
        assert found is not None, f"there is no circuit {key!r}"
        return found.circuit.totals

    def phase(self, key: str) -> str:
        found = self.store.get(key)
        return "closed" if found is None else str(found.circuit.phase)

    def names(self) -> set[str]:
        """The names of all circuits."""
        return {found.circuit.key for found in self.store.find()}

    def events(self, kind: str) -> list[str]:
        entries = self.store.events()
        return [entry.event.reason for entry in entries if entry.event.kind == kind]


def written(agent: str, data: Data, ruling: Ruling) -> Any:
    """The reply to the agent as JSON values; no reply is an empty mapping."""
    dialect = dialect_of(agent)
    return json.loads(dialect.write(ruling, dialect.read(data)).stdout or "{}")
