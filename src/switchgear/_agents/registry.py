"""The registry of agents: one row each, whose modules are imported when they are used.

A hook process imports only this module and the `hooks` module of its own agent.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear._agents.fields import TokenCounts
from switchgear._agents.hook_protocol import AnswerUsage, Dialect, HookSettings, parsed

if TYPE_CHECKING:
    from types import ModuleType

    from switchgear._agents.base import Agent
    from switchgear._agents.recordings.recording import RecordingFormat


class AgentRow(NamedTuple):
    """One agent: its names, and the location of its parts, as `module:name` below `switchgear._agents`."""

    name: str
    """The name for `--agent`."""
    agent: str
    """The class with the command line and the reader of its stream."""
    transcripts: str = ""
    """The `RecordingFormat` of its transcripts; empty: they cannot be read."""
    hook_name: str = ""
    """The name for `switchgear hooks install`; empty: it has no hooks."""
    aliases: tuple[str, ...] = ()
    """Other names that `switchgear hooks` accepts."""
    programs: tuple[str, ...] = ()
    headless: tuple[str, ...] = ()
    """The arguments with which it runs without a full-screen interface."""
    reports_cost: bool = False
    """Whether its stream reports the cost in dollars; otherwise it reports tokens."""

    @property
    def hooks(self) -> str:
        """The module of its hooks, in the same package."""
        return f"{self.agent.partition('.')[0]}.hooks"


ROWS = (
    AgentRow("aider", "aider:Aider", reports_cost=True),
    AgentRow(
        *("claude", "claude_code.agent:Claude", "claude_code.agent:TRANSCRIPTS", "claude-code"),
        aliases=("claude", "claudecode", "claude_code", "cc"),
        programs=("claude",),
        headless=("-p", "--print"),
        reports_cost=True,
    ),
    AgentRow(
        *("codex", "codex.agent:Codex", "codex.agent:TRANSCRIPTS", "codex"),
        aliases=("codex-cli", "openai-codex"),
        programs=("codex",),
        headless=("exec", "e"),
    ),
    AgentRow("demo", "demo:Demo", reports_cost=True),
    AgentRow(
        *("gemini", "gemini.agent:Gemini", "gemini.agent:TRANSCRIPTS", "gemini"),
        aliases=("gemini-cli",),
        programs=("gemini",),
        headless=("-p", "--prompt"),
    ),
    AgentRow("goose", "goose:Goose"),
    AgentRow("mini", "mini_swe_agent:Mini", "mini_swe_agent:TRAJECTORIES", reports_cost=True),
    AgentRow(
        *("opencode", "opencode.agent:OpenCode", "opencode.agent:TRANSCRIPTS", "opencode"),
        aliases=("open-code",),
        programs=("opencode",),
        headless=("run",),
        reports_cost=True,
    ),
    AgentRow(
        *("pi", "pi.agent:Pi", "pi.agent:TRANSCRIPTS", "pi"),
        aliases=("pi-coding-agent",),
        programs=("pi", "pi-coding-agent"),
        headless=("-p", "--print", "--mode"),
        reports_cost=True,
    ),
    AgentRow(
        *("qwen", "qwen.agent:Qwen", "qwen.agent:TRANSCRIPTS", "qwen"),
        aliases=("qwen-code",),
        programs=("qwen", "qwen-code"),
        headless=("-p", "--prompt"),
    ),
)
_MAX_TOKENS = 100_000_000
"""More tokens than any response has; a larger number is an error or hostile."""


def _load(part: str) -> Any:
    module, _, name = part.partition(":")
    found = __import__(f"switchgear._agents.{module}", fromlist=["*"])
    return getattr(found, name) if name else found


AGENTS = {row.name: row for row in ROWS}
_HOOKED = {row.hook_name: row for row in ROWS if row.hook_name}


def agent_named(name: str) -> "Agent":
    """The agent with this name; `demo:hangs` is the demo agent in one of its scenarios.

    Raises ValueError, which suggests the closest name or lists all.

    >>> agent_named("codex").name
    'codex'
    """
    base, _, scenario = name.partition(":")
    if name in AGENTS or (base == "demo" and scenario):
        agent: Agent = _load(AGENTS[base].agent)(*filter(None, [scenario]))
        return agent
    import difflib  # noqa: PLC0415  only for a wrong name

    near = difflib.get_close_matches(name, AGENTS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(AGENTS)}."
    raise ValueError(
        f"there is no agent {name!r}; {hint}"
        " For any other agent, give its command, with {prompt} in place of the prompt"
    )


def agent_of_command(command: str) -> "Agent":
    """An agent for any command. If the command runs a known agent with JSON output, that agent's reader is used.

    >>> agent_of_command("my-agent --task {prompt}").name
    'command'
    """
    from switchgear._agents.command import CommandAgent  # noqa: PLC0415  as the other agents

    plain = CommandAgent(command)
    if plain.program in AGENTS and any("json" in part for part in plain.argv):
        return CommandAgent(command, agent_named(plain.program).reader)
    return plain


def agent_or_command(text: str) -> "Agent":
    """The escalation agent: an agent by its name, or for any command.

    Raises ValueError for a single word that is not an agent's name.

    >>> agent_or_command("codex").name, agent_or_command("./debug.sh {prompt}").name
    ('codex', 'command')
    """
    known = text.partition(":")[0] in AGENTS
    return agent_named(text) if known or not text.split()[1:] else agent_of_command(text)


def transcript_formats() -> "Iterator[RecordingFormat]":
    return (_load(row.transcripts) for row in ROWS if row.transcripts)


def hook_names() -> tuple[str, ...]:
    """The names in the hook command of all agents that have hooks, a plugin or an extension."""
    return tuple(_HOOKED)


def hook_row(agent: str) -> AgentRow:
    """The row of an agent by its name in the hook command. Raises KeyError for another name."""
    return _HOOKED[agent]


def hooks_of(agent: str) -> "ModuleType":
    """The module of an agent's hooks. Raises KeyError for an agent without hooks."""
    module: ModuleType = _load(hook_row(agent).hooks)
    return module


def dialect_of(agent: str) -> Dialect:
    """How an agent's hooks read and write. Raises KeyError for an agent without hooks."""
    hooks = hooks_of(agent)
    return Dialect(hooks.read, hooks.write, hooks.WARNS, hooks.MOMENTS, hooks.EVENT)


def hook_settings(agent: str) -> HookSettings:
    """Where an agent's hooks are configured. Raises KeyError for an agent without hooks."""
    settings: HookSettings = hooks_of(agent).SETTINGS
    return settings


def usages_in(agent: str, lines: list[bytes]) -> Iterator[AnswerUsage]:
    """The usage of the responses that the lines of a transcript report, in order. Never raises."""
    hooks = hooks_of(agent)
    mark: bytes | None = getattr(hooks, "USAGE_MARK", None)
    if mark is None:
        return
    for line in lines:
        found = parsed(line) if mark in line else {}
        if not found:
            continue
        used: AnswerUsage = hooks.usage_in(found)
        tokens = TokenCounts(*(count if count <= _MAX_TOKENS else 0 for count in used.tokens))
        if used.id and (tokens.input or tokens.output):
            yield used._replace(id=used.id[:200], model=used.model[:200], tokens=tokens)
