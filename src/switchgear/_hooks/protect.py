"""What a hook refuses beside the built-in rules, so that the guarded cannot unguard themselves.

Ways around that no list of paths sees: what is decoded and run, variables that point elsewhere,
agents started without their hooks, the end of what watches, orders that make up evidence. Data only.

What this cannot do is said in `docs/hooks.md`: an agent with a shell is this user, and a text that
is computed, fetched or run from a script is beyond any reader of commands. Against that help a
store that another user owns, and the operator token.
"""

from switchgear._rules.builtin import PROTECTED
from switchgear._rules.programs import DECODED
from switchgear._rules.rules import Rule

_WHY = "who is guarded must not switch the guard off"
_PROGRAMS = ("switchgear", "python* switchgear", "pypy* switchgear", "uvx switchgear")
_INTERPRETERS = ("python*", "pypy*", "node", "bun", "deno", "perl", "ruby", "php", "lua*", "*awk")
_AGENTS = ("claude", "codex", "gemini", "qwen", "opencode", "pi")
_FILES = ("switchgear.y*", ".switchgear*", "switchgear.toml*", "state.db*", "name*switchgear*")
_CHANGES = ("rm", "mv", "unlink", "shred", "truncate", "chmod", "tee", "dd", "sh", "bash", "sed -i")
_REDIS = ("redis-cli", "valkey-cli", "keydb-cli")
_WRITES_KEYS = ("del", "unlink", "set", "hset", "hdel", "rename", "expire", "eval", "restore")
_PORT = "4737"

IN_PROJECTS = tuple(path[3:] for path in PROTECTED if path.startswith("**/."))
"""What is protected anywhere, as it lies in a project.

By its whole path too, because only that can meet what a shell would complete: `rm .cl*/s*`.
"""

RUNTIME_FOLDER = "/run/user/*/switchgear/**"
"""Where the socket of the resident process is if the state folder cannot be written."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""Private packages begin with one of them, `switchgear.__version__` does not."""

GUARD_RULES = (
    Rule(
        "guard/evidence",
        _WHY,
        commands=(
            *(f"{each} record" for each in _PROGRAMS),
            *(
                "switchgear-hook",
                "python* *switchgear/hooks/*",
                "python* *switchgear/_hooks/*",
                f"curl *:{_PORT}/hooks/*",
                f"curl *:{_PORT}/v1/*",
                f"wget *:{_PORT}/v1/*",
            ),
        ),
    ),
    Rule(
        "guard/decoded",
        "text that only running it would show cannot be judged",
        commands=(DECODED,),
    ),
    Rule(
        "guard/decoded-code",
        "text that only running it would show cannot be judged",
        commands=_INTERPRETERS,
        contents=(
            *("exec*b64decode", "eval*b64decode", "system*b64decode", "exec*fromhex"),
            *("exec*decompress", "exec*rot13", "eval*atob(", "eval*'base64'", 'eval*"base64"'),
        ),
    ),
    Rule(
        "guard/library",
        _WHY,
        commands=_INTERPRETERS,
        contents=(
            *("from switchgear import*panel", "from switchgear import _", "switchgear.panel"),
            *("switchgear.stores", *(f"switchgear._{letter}" for letter in _LETTERS)),
            *("switchgear*.reset(", "switchgear*.release(", "switchgear*.hold("),
            *("run_module*switchgear", "run_path*switchgear", "import_module*switchgear"),
        ),
    ),
    Rule(
        "guard/saved",
        "saved work is the operator's to remove",
        commands=(
            "git update-ref",
            "git push",
            "git replace",
            "git pack-refs",
            "git filter-branch",
        ),
        contents=("refs/switchgear",),
    ),
    Rule(
        "guard/variables",
        _WHY,
        commands=tuple(
            f"{verb} SWITCHGEAR_*" for verb in ("unset", "export", "declare", "typeset", "readonly")
        ),
    ),
    Rule(
        "guard/agents",
        "an agent that is started here is guarded as you are",
        commands=tuple(f"{agent} *" for agent in _AGENTS),
        contents=(
            *("SWITCHGEAR_CONFIG", "SWITCHGEAR_STORE", "env*-i *", "disableAllHooks"),
            *("--settings", "--setting-sources", "--disable*hooks", "-c*hooks", "--config*hooks"),
        ),
    ),
    Rule(
        "guard/killed",
        _WHY,
        commands=("kill", "pkill", "killall", "fuser -k", "xargs kill"),
        contents=("switchgear", f":{_PORT}", f"{_PORT}/tcp"),
    ),
    Rule(
        "guard/services",
        _WHY,
        commands=tuple(
            f"{program} {verb} *switchgear*"
            for program in ("systemctl", "launchctl", "service", "supervisorctl")
            for verb in (
                "stop",
                "kill",
                "disable",
                "mask",
                "restart",
                "unload",
                "bootout",
                "remove",
            )
        ),
    ),
    Rule(
        "guard/piped",
        _WHY,
        commands=tuple(f"xargs {program}" for program in _CHANGES),
        contents=tuple(f"{name}xargs" for name in (*_FILES, "ls*switchgear*")),
    ),
    Rule(
        "guard/database",
        _WHY,
        commands=("sqlite3", "duckdb"),
        contents=(".switchgear/", "state.db"),
        allow_commands=("sqlite3 -readonly", "sqlite3 --readonly"),
    ),
    Rule(
        "guard/redis",
        _WHY,
        commands=tuple(f"{program} {verb}" for program in _REDIS for verb in _WRITES_KEYS),
        contents=("switchgear",),
    ),
    Rule(
        "guard/scheduled",
        _WHY,
        commands=("crontab", "at", "make -f"),
        contents=("switchgear re*", "switchgear hold"),
    ),
    Rule(
        "guard/delegated",
        "what you may not do, nobody may do for you",
        tools=("task", "agent", "spawn_agent", "delegate_to_agent", "subagent", "send_input"),
        contents=tuple(
            f"{run}*switchgear {order}"
            for run in ("run", "execute", "call")
            for order in ("reset", "release", "hold", "hooks uninstall")
        ),
    ),
    Rule("guard/named", _WHY, tools=("mcp__*",), inputs=("*=*state.db",)),
    Rule("guard/keys", _WHY, tools=("mcp__*redis*", "mcp__*valkey*"), inputs=("key*=switchgear*",)),
)
"""Judged after the built-in rules, before every tool call."""

SHARED_STORE = Rule(
    "guard/server",
    "the circuits live on this server",
    commands=tuple(
        f"{program} {verb}"
        for program in _REDIS
        for verb in (
            "flushall",
            "flushdb",
            "shutdown",
            "swapdb",
            "config",
            "debug",
            "acl",
            "script",
        )
    ),
)
"""Judged where the store is a Redis server."""
