"""One dialect per agent: the same JSON that stops one is a no-op on another.

A dialect is a module that knows nothing of circuits. It has

- `read(data) -> HookFacts`: what came in on standard input, already parsed. Raises `BadInput`.
- `write(ruling, facts) -> Reply`: the ruling in the words that this agent obeys at this event.
- `WARNS`: the agent's names of the events at which it passes a warning on to the model. A warning
  that falls due at another one waits.
- `MOMENTS`: what the agent's names of events mean, and `EVENT`, the field that holds the name.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from switchgear._agents.hook_call import HookFacts, Moment
from switchgear._agents.hook_ruling import Reply, Ruling

_MODULES = {
    "claude-code": "claude_code",
    "codex": "codex",
    "gemini": "gemini",
    "qwen": "qwen",
    "opencode": "opencode",
    "pi": "pi",
}


class Dialect(NamedTuple):
    """The parts of a dialect."""

    read: Callable[[Mapping[str, Any]], HookFacts]
    write: Callable[[Ruling, HookFacts], Reply]
    warns: frozenset[str]
    moments: Mapping[str, Moment]
    event_field: str

    def is_surely_not_before_a_tool(self, data: Any) -> bool:
        """Whether an event, whatever else is wrong with it, is a known one and not before a tool."""
        name = data.get(self.event_field) if isinstance(data, dict) else None
        moment = self.moments.get(name) if isinstance(name, str) else None
        return moment is not None and moment is not Moment.BEFORE_TOOL


def dialect_of(agent: str) -> Dialect:
    """The dialect of an agent; a hook imports only its own. Raises KeyError for another name."""
    module = __import__(f"switchgear._agents.{_MODULES[agent]}.hooks", fromlist=["read"])
    return Dialect(module.read, module.write, module.WARNS, module.MOMENTS, module.EVENT)
