"""Facts about a tool call: its kind of operation, the rule that it would break, what it changed."""

import os
import stat
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear._agents import fields
from switchgear._agents.hook_protocol import HookFacts, Moment, safe_id
from switchgear._core.types import AgentStep, Signal
from switchgear._hooks.hook_config import HookConfig
from switchgear._system.files import read_regular
from switchgear._text.fingerprint import digest
from switchgear._text.redact import LONGEST, redact, redact_end, redact_lines

if TYPE_CHECKING:
    from switchgear._rules.effects import Place
    from switchgear._rules.program_effects import Effects

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
_AGENTS = {"claude", "codex", "gemini", "qwen", "opencode", "pi", "aider", "goose", "openhands"}
_NETWORK_PROGRAMS = {
    *("curl", "wget", "ssh", "scp", "sftp", "rsync", "ftp", "nc", "ncat", "telnet", "http"),
    *("https", "xh", "aria2c", "ping", "dig", "nslookup", "gh", "glab", "lynx", "w3m"),
}


def kind_of(tool: str, commands: Sequence[Sequence[str]] = ()) -> str:
    """The kind of operation of a tool call. A shell call is classified by its commands, each a list of words.

    >>> kind_of("Edit"), kind_of("mcp__github__create_issue"), kind_of("telepathy")
    ('file_edit', 'mcp/github', 'other')
    >>> kind_of("Bash", [("cd", "src"), ("git", "push")]), kind_of("Bash", [("make",)])
    ('git_operations', 'shell')
    """
    name = tool.lower()
    if name.startswith("mcp__"):
        return f"mcp/{safe_id(name.split('__')[1])[:60]}"
    kind = _KINDS.get(name.rsplit(".", 1)[-1], OTHER)
    return _shell_kind(commands) if kind == SHELL else kind


def _shell_kind(commands: Sequence[Sequence[str]]) -> str:
    """The most specific kind of the commands: starting an agent, git, network, else shell."""
    names = {words[0] for words in commands if words}
    if any(words[0] in _AGENTS for words in commands if len(words) > 1):
        return AGENT_SPAWN
    if "git" in names:
        return GIT
    return SHELL if names.isdisjoint(_NETWORK_PROGRAMS) else NETWORK


_AGENT_PREFIXES = (
    *("Command:", "Directory:", "Signal:", "Process Group", "Background PIDs", "<"),
    "Exit Code:",
)
"""Prefixes of lines that agents add to the output of a command."""
_EMPTY_OUTPUT = ("", "(empty)", "(none)", "(no output)")


def call_signal(facts: HookFacts, *, seconds: float | None, changed: int | None) -> Signal:
    return Signal(
        ok=facts.ok,
        seconds=seconds,
        error=error_line(facts) if facts.ok is False else None,
        files_changed=changed,
        context_used=facts.context_used,
        cost_micros=facts.cost_micros,
        step=AgentStep(
            redact(facts.tool, 100),
            redact_lines(args_text(facts.args)),
            None if facts.result is None else redact_lines(fields.command_output(facts.result)[0]),
            None if facts.thought is None else redact_lines(facts.thought),
        ),
    )


def operation_signal(signal: Signal, kind: str, facts: HookFacts) -> Signal:
    """The signal of a call for its operation.

    A non-zero exit code (failing tests, a search without matches) is not a failure of the shell. It is a
    failure of git, the network and agents.
    """
    ok = signal.ok
    if ok is False and kind == SHELL and fields.exit_code(facts.error or "") is not None:
        ok = True
    return Signal(ok=ok, seconds=signal.seconds, error=signal.error if ok is False else None)


def args_text(args: Any) -> str:
    return fields.whole_text(args) or ""


_INFORMATIVE = ("command", "cmd", "file_path", "path", "url", "pattern", "query", "description")


def last_step(facts: HookFacts) -> str:
    """A call in one short line for display: the tool and its most informative argument.

    >>> from switchgear._agents.hook_protocol import HookFacts, Moment
    >>> last_step(HookFacts("codex", "x", Moment.BEFORE_TOOL, "s", tool="Bash", args={"command": "make"}))
    'Bash make'
    """
    args: Any = facts.args
    if isinstance(args, dict):
        args = next((args[key] for key in _INFORMATIVE if isinstance(args.get(key), str)), args)
    return redact(" ".join(f"{facts.tool} {args_text(args)}".split()), 120)


def error_line(facts: HookFacts) -> str:
    r"""One line that identifies a failure: its exit code and the end of its output.

    >>> from switchgear._agents.hook_protocol import HookFacts, Moment
    >>> facts = HookFacts("codex", "x", Moment.AFTER_TOOL, "s", tool="Bash", args={"command": "make"})
    >>> error_line(facts._replace(error="Exit code 2\ngcc: no such file"))
    'exit code 2: gcc: no such file'
    >>> error_line(facts._replace(error="Exit code 1"))
    'exit code 1 of make'
    """
    error = facts.error or ""
    code = fields.exit_code(error)
    if code is None:
        return redact(error or "failed")
    lines = [
        line.strip().removeprefix("Output:").removeprefix("Error:").strip()
        for line in error.splitlines()
    ]
    significant = [
        line
        for line in lines
        if line not in _EMPTY_OUTPUT
        and not line.startswith(_AGENT_PREFIXES)
        and fields.exit_code(line) is None
    ]
    if not significant:
        command = facts.args.get("command", "") if isinstance(facts.args, dict) else ""
        of = f" of {command}" if isinstance(command, str) and command else ""
        return redact(f"exit code {code}{of}")
    # The end shows the cause; the beginning is often the same for every failure.
    tail = redact_end(" ".join(significant), LONGEST - 20)
    return redact(f"exit code {code}: {tail}")


MAX_DIGESTED_BYTES = 1_000_000
"""Larger files are compared by size and modification time instead of content."""
MAX_SCRIPT_BYTES = 16_384
MAX_PATCH_BYTES = 262_144
MAX_SCRIPTS = 4
TEST_HINTS = (" passed", " failed", "FAIL", "Ran ", " error in ", "ok ", "ok\t", "ok\\t")
"""Every test summary contains one of these; other outputs are not parsed."""
_ENCODED = ("arguments", "input", "args", "parameters", "params", "tool_input")
"""Arguments that may contain a JSON object as a string."""
_PATH_ARGUMENTS = frozenset({"file_path", "filePath", "notebook_path", "absolute_path", "path"})
"""Arguments with the path of a written file. Files that a shell command writes are not determined."""


class CallInspection(NamedTuple):
    """Facts about a call before it runs."""

    kind: str
    changes: int = 0
    """The number of files that it would change."""
    broken: str | None = None
    """The rule that it would break; `None`: none."""


def inspect_tool_call(facts: HookFacts, config: HookConfig) -> CallInspection:
    """The kind of a call, the number of files that it would change, and the rule that it would break."""
    from switchgear._breaker.rules import place_at  # noqa: PLC0415
    from switchgear._rules.effects import call_effects, types_into_shell  # noqa: PLC0415  only before a tool

    is_before = facts.moment is Moment.BEFORE_TOOL
    typed = is_before and types_into_shell(facts.tool, facts.args) is not None
    place = place_at(config.root, cwd=facts.cwd, protected=config.protected)
    effects = call_effects(facts.tool, facts.args, place)
    broken: object = (
        config.broken_rule(effects, place)
        or (typed and _rule_broken_by_input(facts, config, place))
        or _rule_broken_by_json(facts, config, place)
        or _rule_broken_by_kill(effects.commands)
        or _rule_broken_by_git_clean(effects, config, place)
        or _rule_broken_by_patch(effects.patches, config, place)
    )
    for script in effects.runs[:MAX_SCRIPTS] if not broken else ():
        text = _script_about_switchgear(script)
        if text and not broken:
            inner = call_effects(facts.tool, {"command": text}, place)
            broken = None if inner.unread else config.broken_rule(inner, place, "guard/")
    if is_before and not broken and facts.agent == "codex":  # the only one that writes to shells
        from switchgear._hooks.shell_input import keep_start  # noqa: PLC0415

        keep_start(facts, config.root)
    touched = {path for path in (*effects.writes, *effects.deletes) if not path.startswith("/dev/")}
    kind = kind_of(facts.tool, effects.commands)
    return CallInspection(kind, len(touched), redact(str(broken)) if broken else None)


def _broken_rule(
    tool: str, inputs: Any, config: HookConfig, place: "Place", only: str = ""
) -> str | None:
    """The rule that a call breaks, among those whose names begin with `only`."""
    from switchgear._rules.effects import call_effects  # noqa: PLC0415  only before a tool

    return config.broken_rule(call_effects(tool, inputs, place), place, only)


def _rule_broken_by_json(facts: HookFacts, config: HookConfig, place: "Place") -> str | None:
    """The rule that is broken by JSON objects in string arguments; some agents send arguments that way."""
    args = facts.args
    for given in [args, *(fields.at(args, key) for key in _ENCODED)]:
        text = fields.text(given)
        inputs = fields.parsed(text) if text.lstrip().startswith("{") else None
        broken = None if inputs is None else _broken_rule(facts.tool, inputs, config, place)
        if broken is not None:
            return broken
    return None


def _rule_broken_by_input(facts: HookFacts, config: HookConfig, place: "Place") -> str | None:
    """The rule that the whole input of a running shell breaks, including this call's."""
    from switchgear._hooks.shell_input import keep_piece, piece  # noqa: PLC0415
    from switchgear._rules.rules import Broken  # noqa: PLC0415

    found = piece(facts, config.root)
    if found is None:
        return None
    if found.unread:
        return str(Broken("readable", found.unread, "what cannot be parsed cannot be checked"))
    for inputs in found.calls:
        broken = _broken_rule(facts.tool, inputs, config, place)
        if broken is not None:
            return broken
    keep_piece(facts, config.root)
    return None


def _script_about_switchgear(script: str) -> str:
    """The content of a shell script that mentions Switchgear; empty for other files."""
    text = _read_text(script, MAX_SCRIPT_BYTES)
    is_shell = not text.startswith("#!") or "sh" in text.partition("\n")[0]
    return text if is_shell and "switchgear" in text.lower() else ""


def _read_text(path: str, max_bytes: int) -> str:
    """The content of a text file; empty if it is larger than `max_bytes` or binary."""
    try:
        data = read_regular(path, max_bytes + 1)
    except (OSError, ValueError):
        return ""
    is_usable = len(data) <= max_bytes and b"\0" not in data
    return data.decode(errors="replace") if is_usable else ""


def _rule_broken_by_git_clean(effects: "Effects", config: HookConfig, place: "Place") -> str | None:
    """The rule that `git clean` and similar commands break, according to what git tracks.

    In another project, `git clean` deletes files outside the workspace.
    """
    if not effects.sweeps:
        return None
    from switchgear._hooks.git_state import discarded_file  # noqa: PLC0415  rarely needed

    name = discarded_file(effects.sweeps, config.root)
    if name:
        return f"rule guard/git: it would discard {name} (commit it first)"
    kinds = (sweep.partition(":") for sweep in effects.sweeps)
    cleaned = [where for kind, _, where in kinds if kind in {"untracked", "ignored"}]
    inside = (config.root.rstrip("/") + "/", "//", "/**/")
    outside = tuple(where for where in cleaned if not f"{where}/".startswith(inside))
    inner = effects._replace(deletes=outside)
    return config.broken_rule(inner, place, "deletes/outside") if outside else None


def _rule_broken_by_patch(patches: Sequence[str], config: HookConfig, place: "Place") -> str | None:
    for path in patches[:MAX_SCRIPTS]:
        text = _read_text(path, MAX_PATCH_BYTES)
        if text and ("+++ " in text or "--- " in text or "rename " in text):
            broken = _broken_rule("apply_patch", {"patch": text}, config, place, "guard/")
            if broken is not None:
                return broken
    return None


def _rule_broken_by_kill(commands: Iterable[Sequence[str]]) -> str | None:
    commands = list(commands)
    kills = [words for words in commands if words and words[0] in {"kill", "pkill", "killall"}]
    if not kills:
        return None
    from switchgear._hooks.interrupt import searches_for_switchgear, would_kill_switchgear  # noqa: PLC0415  rarely needed
    from switchgear._rules.rules import one_line  # noqa: PLC0415

    # `kill $(pgrep …)`: the process ids are not known yet, but the search shows what they are.
    searches = [words for words in commands if searches_for_switchgear(words)]
    for words in (*kills, *searches):
        if would_kill_switchgear(words) or words in searches:
            return f"rule guard/killed: {one_line(' '.join(words))} (it is the guard)"
    return None


def state_after(facts: HookFacts, config: HookConfig) -> str | None:
    """A digest of the contents of the files that a call has written; `None`: it has written none.

    If a change is undone, the digest is the earlier one again.
    """
    args = facts.args
    if facts.ok is False or not isinstance(args, dict) or not _PATH_ARGUMENTS & args.keys():
        return None
    from switchgear._breaker.rules import place_at  # noqa: PLC0415
    from switchgear._rules.effects import call_effects  # noqa: PLC0415  only after an edit

    place = place_at(config.root, cwd=facts.cwd, protected=config.protected)
    written = call_effects(facts.tool, args, place).writes
    return digest("\0".join(map(_content_key, written))) if written else None


def _content_key(path: str) -> str:
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_DIGESTED_BYTES:
            return f"{path}: {found.st_size} {found.st_mtime_ns}"
        return f"{path}: {digest(read_regular(path, MAX_DIGESTED_BYTES).decode('latin-1'))}"
    except (OSError, ValueError) as error:
        return f"{path}: {type(error).__name__}"


def failing_tests_of(facts: HookFacts) -> str | None:
    """A key of the failing tests in the output of a call; `None`: the call was not a test run."""
    output = facts.result or facts.error or ""
    if not any(hint in output for hint in TEST_HINTS):
        return None
    from switchgear._measure.test_counts import failing_tests  # noqa: PLC0415  few calls run tests

    if output.startswith("{"):
        output = _texts_in(output)
    return failing_tests(output)


def _texts_in(result: str) -> str:
    """The string values of a result that is a JSON object; a truncated object is returned with its line breaks."""
    found = fields.parsed(result)
    if found is None:
        return result.replace("\\n", "\n")
    return "\n".join(text for text in found.values() if isinstance(text, str))


def call_id(facts: HookFacts) -> str:
    """The agent's id of the call; without one, a digest of the call: equal calls are matched in order."""
    if facts.call_id:
        return redact(facts.call_id, 120)
    return "#" + digest(f"{facts.tool}\0{args_text(facts.args)}")
