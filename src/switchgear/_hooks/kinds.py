"""Which operation a tool call is: the circuit `op/<kind>` that it answers to.

The names are those of the agents' own tools. What a shell runs is looked at, because agents do
git and downloads there; a tool that is not known is `other`.
"""

from collections.abc import Sequence

from switchgear._agents.hook_protocol import safe_id

AGENT_SPAWN = "agent_spawn"
GIT = "git_operations"
SHELL = "shell"
NETWORK = "network"
FILE_EDIT = "file_edit"
FILE_READ = "file_read"
OTHER = "other"

_TOOLS = {
    AGENT_SPAWN: ("task", "agent", "spawn_agent", "delegate_to_agent", "subagent", "call_agent"),
    SHELL: (
        *("bash", "shell", "run_shell_command", "exec_command", "local_shell", "execute_bash"),
        *("powershell", "terminal", "run_terminal_cmd", "unified_exec", "shell_command", "monitor"),
    ),
    NETWORK: (
        *("webfetch", "websearch", "web_fetch", "web_search", "google_web_search", "fetch"),
        *("codesearch", "browser"),
    ),
    FILE_EDIT: (
        *("edit", "multiedit", "write", "notebookedit", "notebook_edit", "apply_patch", "patch"),
        *("edit_file", "write_file", "replace", "create_file", "str_replace", "insert", "create"),
        *("str_replace_editor", "str_replace_based_edit_tool", "save_memory", "delete_file"),
    ),
    FILE_READ: (
        *("read", "glob", "grep", "ls", "list", "find", "notebookread", "read_file", "view"),
        *("read_many_files", "list_directory", "search_file_content", "grep_search", "view_image"),
        *("ripgrep", "lsp", "read_lines"),
    ),
}
_KINDS = {tool: kind for kind, tools in _TOOLS.items() for tool in tools}
_AGENTS = frozenset(
    {"claude", "codex", "gemini", "qwen", "opencode", "pi", "aider", "goose", "openhands"}
)
_NETWORK_PROGRAMS = frozenset(
    {
        *("curl", "wget", "ssh", "scp", "sftp", "rsync", "ftp", "nc", "ncat", "telnet", "http"),
        *("https", "xh", "aria2c", "ping", "dig", "nslookup", "gh", "glab", "lynx", "w3m"),
    }
)


def kind_of(tool: str, commands: Sequence[Sequence[str]] = ()) -> str:
    """The kind of a call: of a shell, by the commands that it runs, each as its words.

    >>> kind_of("Edit"), kind_of("mcp__github__create_issue"), kind_of("telepathy")
    ('file_edit', 'mcp/github', 'other')
    >>> kind_of("Bash", [("cd", "src"), ("git", "push")]), kind_of("Bash", [("make",)])
    ('git_operations', 'shell')
    """
    name = tool.lower()
    if name.startswith("mcp__"):
        return f"mcp/{safe_id(name.split('__')[1])[:60]}"
    kind = _KINDS.get(name.rsplit(".", 1)[-1], OTHER)
    return _of_shell(commands) if kind == SHELL else kind


def _of_shell(commands: Sequence[Sequence[str]]) -> str:
    """The most telling of the commands: starting an agent, git, the network; else the shell."""
    names = {words[0] for words in commands if words}
    if any(words[0] in _AGENTS and len(words) > 1 for words in commands if words):
        return AGENT_SPAWN
    if "git" in names:
        return GIT
    return SHELL if names.isdisjoint(_NETWORK_PROGRAMS) else NETWORK
