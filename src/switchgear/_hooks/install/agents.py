"""Which file of which agent holds hooks, which events it has, and what it can read.

What agents accept was tried with the real programs: Claude Code and Qwen Code ignore a file without
a word if it is not to their liking, Gemini CLI does not start, Codex says so in the middle of a run.
"""

import os
import shlex
import stat
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from switchgear._hooks.command import AGENTS as NAMES
from switchgear._hooks.command import OR_REFUSE, hook_command
from switchgear._hooks.install.edit import Group

PROJECT, LOCAL, USER = "project", "local", "user"
SCOPES = (PROJECT, LOCAL, USER)
"""Shared with everyone who works on the project, this checkout only, every project of the user."""
ALIASES = {
    "claude": "claude-code",
    "claudecode": "claude-code",
    "claude_code": "claude-code",
    "cc": "claude-code",
    "codex-cli": "codex",
    "openai-codex": "codex",
    "gemini-cli": "gemini",
    "qwen-code": "qwen",
    "open-code": "opencode",
    "pi-coding-agent": "pi",
}
"""Other names by which people call the agents."""
TIMEOUT_S = 15
"""How long an agent waits for a hook; it takes some 30 milliseconds, and longer on a busy machine."""
LARGEST_SETTINGS = 4_000_000
"""Characters of settings that are looked through for a hook."""
_ENTRY = "switchgear/hooks/entry.py"
_SCRIPT = "switchgear-hook"
_BEFORE_TOOL = ("PreToolUse", "BeforeTool")


class HookedAgent(NamedTuple):
    """An agent and where its hooks are configured."""

    name: str
    """One of `command.AGENTS`."""
    title: str
    program: str
    project_file: str
    """From the project's folder."""
    user_file: str
    """From the folder of `home_variable`, else from `user_folder`."""
    user_folder: str
    home_variable: str
    """The environment variable by which the agent is told another folder than `user_folder`."""
    local_file: str = ""
    """From the project's folder: the settings of this checkout only; empty: the agent has none."""
    tool_events: tuple[str, ...] = ()
    """Those that have a matcher, for all tools."""
    other_events: tuple[str, ...] = ()
    timeout: int = TIMEOUT_S
    """In the agent's own unit."""
    named: bool = False
    """Whether the agent shows its hooks by names."""
    comments: bool = False
    """Whether its settings may have comments."""
    byte_order_mark: bool = False
    """Whether its settings may begin with a byte order mark."""
    trust: str = ""
    """What else the agent wants before it runs a hook of the project."""
    is_plugin: bool = False
    """Whether the file is a plugin and ours alone, not settings that we share."""

    @property
    def before_tool(self) -> tuple[str, ...]:
        """The events at which a hook that fails must refuse."""
        return tuple(event for event in self.tool_events if event in _BEFORE_TOOL)

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that the agent has."""
        return SCOPES if self.local_file else (PROJECT, USER)

    @property
    def events(self) -> tuple[str, ...]:
        """All events that are hooked."""
        return (*self.tool_events, *self.other_events)

    def file(self, scope: str, folder: str, environment: Mapping[str, str] | None = None) -> str:
        """The file of a scope, for the project in `folder`."""
        if scope in {PROJECT, LOCAL}:
            name = self.local_file if scope == LOCAL else self.project_file
            return os.path.join(os.path.abspath(folder), name)
        known = os.environ if environment is None else environment
        told = known.get(self.home_variable)
        home = os.path.expanduser(told or self.user_folder)
        return os.path.join(os.path.abspath(home), self.user_file)

    def command(self, scope: str, folder: str) -> str:
        """The command line that belongs into the settings."""
        root = None if scope == USER else os.path.abspath(folder)
        return shlex.join(hook_command(self.name, root=root))

    def groups(self, command: str) -> dict[str, Group]:
        """What belongs into the settings, for each event."""
        hook: dict[str, object] = {"type": "command", "command": command, "timeout": self.timeout}
        if self.named:
            hook = {"name": "switchgear", **hook}
        matched = {event: {"matcher": "*", "hooks": [hook]} for event in self.tool_events}
        for event in self.before_tool:
            matched[event] = {"matcher": "*", "hooks": [{**hook, "command": command + OR_REFUSE}]}
        return {**matched, **{event: {"hooks": [hook]} for event in self.other_events}}


def wired(folder: str) -> list[str]:
    """The settings and plugins of all agents in which there is a hook of ours."""
    files = {agent.file(scope, folder) for agent in HOOKED.values() for scope in agent.scopes}
    return sorted(path for path in files if _mentions_us(path))


def _mentions_us(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, encoding="utf-8", errors="replace") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return False
            text = file.read(LARGEST_SETTINGS)
    except OSError:
        return False
    return any(sign in text for sign in (_ENTRY, _SCRIPT, "/hooks/claude-code"))


_CLAUDE_TOOLS = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
_CLAUDE_OTHERS = (
    *("PostToolBatch", "UserPromptSubmit", "SubagentStart", "SubagentStop"),
    *("Stop", "SessionStart", "SessionEnd"),
)

HOOKED = {
    agent.name: agent
    for agent in (
        HookedAgent(
            "claude-code",
            "Claude Code",
            "claude",
            project_file=".claude/settings.json",
            local_file=".claude/settings.local.json",
            user_file="settings.json",
            user_folder="~/.claude",
            home_variable="CLAUDE_CONFIG_DIR",
            tool_events=_CLAUDE_TOOLS,
            other_events=_CLAUDE_OTHERS,
            byte_order_mark=True,
            trust="Claude Code runs a project's hooks once you trust the folder: it asks at its start",
        ),
        HookedAgent(
            "codex",
            "Codex",
            "codex",
            project_file=".codex/hooks.json",
            user_file="hooks.json",
            user_folder="~/.codex",
            home_variable="CODEX_HOME",
            tool_events=("PreToolUse", "PostToolUse"),
            other_events=(
                *("UserPromptSubmit", "SubagentStart", "SubagentStop"),
                *("Stop", "SessionStart", "SessionEnd"),
            ),
            trust="Codex skips hooks without a word until you have reviewed them: type /hooks in codex",
        ),
        HookedAgent(
            "gemini",
            "Gemini CLI",
            "gemini",
            project_file=".gemini/settings.json",
            user_file=".gemini/settings.json",
            user_folder="~",
            home_variable="GEMINI_CLI_HOME",
            tool_events=("BeforeTool", "AfterTool"),
            # Not AfterModel: it is called for each piece of a streamed answer.
            other_events=("BeforeAgent", "AfterAgent", "SessionStart", "SessionEnd"),
            timeout=TIMEOUT_S * 1000,
            named=True,
            comments=True,
            trust="Gemini CLI runs a project's hooks in trusted folders, and warns of new ones",
        ),
        HookedAgent(
            "qwen",
            "Qwen Code",
            "qwen",
            project_file=".qwen/settings.json",
            user_file="settings.json",
            user_folder="~/.qwen",
            home_variable="QWEN_HOME",
            tool_events=_CLAUDE_TOOLS,
            other_events=_CLAUDE_OTHERS,
            named=True,
            comments=True,
            byte_order_mark=True,
            trust="Qwen Code runs a project's hooks in trusted folders",
        ),
        HookedAgent(
            "opencode",
            "OpenCode",
            "opencode",
            project_file=".opencode/plugin/switchgear.js",
            user_file="opencode/plugin/switchgear.js",
            user_folder="~/.config",
            home_variable="XDG_CONFIG_HOME",
            tool_events=("tool.execute.before", "tool.execute.after"),
            other_events=("chat.message", "event"),
            is_plugin=True,
        ),
        HookedAgent(
            "pi",
            "pi",
            "pi",
            project_file=".pi/extensions/switchgear.js",
            user_file="extensions/switchgear.js",
            user_folder="~/.pi/agent",
            home_variable="PI_CODING_AGENT_DIR",
            tool_events=("tool_call", "tool_result"),
            other_events=("session_start", "input", "turn_end", "agent_end", "session_shutdown"),
            is_plugin=True,
        ),
    )
}


def is_ours(command: str) -> bool:
    """Whether a command line of some settings runs our hook, of this installation or another.

    >>> is_ours("python3 -I -S /opt/switchgear/hooks/entry.py codex"), is_ours("ls")
    (True, False)
    """
    try:
        words = [word.replace("\\", "/") for word in shlex.split(command)]
    except ValueError:
        return False
    for word, behind in pairwise(words):
        ours = word.endswith(f"/{_ENTRY}") or word == _ENTRY
        if (ours or os.path.basename(word) == _SCRIPT) and behind in NAMES:
            return True
    return False
