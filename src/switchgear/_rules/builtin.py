"""The built-in rules: few, and never broken by ordinary work.

Data only. Each group can be switched off, or exempted by an allow-list, in the configuration.
"""

from switchgear._rules.patterns import word_list
from switchgear._rules.programs import DECODED, OPERATED
from switchgear._rules.rules import GUARD, LOOPBACK, SECRET, Rule

TEMPORARY = (
    *("/tmp/**", "/var/tmp/**", "/dev/shm/**", "/dev/null"),  # noqa: S108  patterns, nothing is made
    *("/private/tmp/**", "/private/var/tmp/**", "/var/folders/**", "/private/var/folders/**"),
)
"""Folders in which every program may write and delete."""
SECRET_FILES = word_list("""
    **/.env **/.env.* **/.envrc **/.netrc **/_netrc **/.pgpass **/.my.cnf **/.ssh **/.ssh/**
    **/id_rsa **/id_ed25519 **/id_ecdsa **/id_dsa **/.aws **/.aws/credentials **/.git-credentials
    **/.config/git/credentials **/.kube **/.kube/config **/.gnupg **/.gnupg/** **/*.pem **/*.p12
    **/*.pfx **/.config/gcloud/** **/.config/gcloud **/.config/gh/hosts.yml **/.config/gh
    **/.azure/** **/.claude/.credentials.json **/.codex/auth.json **/.claude.json
    **/.gemini/oauth_creds.json **/.qwen/oauth_creds.json **/.config/op/**
    **/.local/share/opencode/auth.json **/.pi/agent/auth.json **/keyrings/** **/.password-store/**
    **/credentials.json **/service-account*.json **/.vault-token /etc/shadow /proc/*/environ
    **/.terraformrc **/.cargo/credentials*
""")
SECRET_SETTINGS = ("**/.npmrc", "**/.pypirc", "**/.docker/config.json", "**/.yarnrc.yml")
"""Settings that may contain a token and are also common in projects."""
NOT_SECRET = (
    *("**/.env.example", "**/.env.sample", "**/.env.template", "**/.env.dist", "**/.env.defaults"),
    *("**/*.pub", "**/.ssh/known_hosts*", "**/.ssh/config", "**/.ssh/authorized_keys"),
    *("**/.env.*.example", "**/.env.*.sample", "**/.env.*.template", "**/.env.test", "**/.env.ci"),
)
"""Files with similar names that contain no secrets."""
PROTECTED = word_list("""
    **/switchgear.yaml **/switchgear.yml **/switchgear.toml **/.switchgear/**
    ~/.config/switchgear/** ~/.local/state/switchgear/** **/.claude/settings.json
    **/.claude/settings.local.json ~/.claude/settings.json **/.claude/hooks/** **/.codex/config.toml
    **/.codex/hooks.json ~/.claude/hooks/** ~/.claude/settings.local.json ~/.codex/config.toml
    ~/.codex/hooks.json ~/.gemini/settings.json ~/.qwen/settings.json **/.gemini/settings.json
    **/.qwen/settings.json **/opencode.json **/.opencode/plugin/** **/.opencode/plugins/**
    ~/.config/opencode/** **/.pi/extensions/** **/.pi/settings.json ~/.pi/agent/**
    **/refs/switchgear/** **/bin/switchgear **/bin/switchgear-hook **/site-packages/switchgear/**
    **/site-packages/switchgear-*/**
""")
"""Files of the guard and its hooks; `Place.protected` adds the paths of this installation."""
_LOCAL = (LOOPBACK,)
_KEY_SENT = "a key must not leave this machine"
_UNGUARD = "a guarded agent must not switch its guard off"

_REMOVES = ("uninstall", "remove", "purge", "erase", "rm", "del", "autoremove", "unlink")
_UNINSTALLS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("pip*", "uv", "pipx", "poetry", "pdm", "rye", "pixi"), _REMOVES[:2]),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _REMOVES[:2]),
    **dict.fromkeys(("apt", "apt-get", "aptitude", "dnf", "yum", "zypper", "apk"), _REMOVES),
    **dict.fromkeys(("brew", "port", "snap", "npm", "pnpm", "yarn", "bun"), _REMOVES),
    "pacman": ("-R",),
    "dpkg": ("-r", "-P", "--remove", "--purge"),
    "rpm": ("-e", "--erase"),
}
"""The verbs with which package managers remove a package."""

BUILTIN: dict[str, tuple[Rule, ...]] = {
    "secrets": (
        Rule("secrets/sent", _KEY_SENT, hosts=("*",), contents=(SECRET,), allow_hosts=_LOCAL),
        Rule(
            "secrets/file-sent",
            "a file of secrets must not leave this machine",
            hosts=("*",),
            sends=(*SECRET_FILES, *SECRET_SETTINGS),
            allow_hosts=_LOCAL,
            allow_paths=NOT_SECRET,
        ),
        Rule(
            "secrets/variable-sent",
            "a key goes to its own provider only",
            variables=("*",),
            hosts=("*",),
            allow_hosts=_LOCAL,
        ),
        Rule(
            "secrets/written",
            "a key in a file of the workspace ends in a commit; keep it in the environment or .env",
            writes=("./**",),
            contents=(SECRET,),
            allow_paths=("**/.env", "**/.env.*"),
        ),
        Rule(
            "secrets/committed",
            "a file of secrets must not be committed",
            commands=("git add", "git stage", "git commit", "git update-index"),
            paths=SECRET_FILES,
            allow_paths=NOT_SECRET,
        ),
    ),
    "deletes": (
        Rule(
            "deletes/outside",
            "delete only in the workspace and in temporary folders",
            deletes=("/", "/**"),
            allow_paths=("./**", *TEMPORARY),
        ),
    ),
    "force-push": (
        Rule(
            "force-push",
            "it rewrites history that others use; --force-with-lease is allowed",
            commands=(
                *("git push -f", "git push --force", "git push +*", "git push --m*"),
                *("git send-pack --force", "git send-pack +*"),
            ),
        ),
        Rule(
            "force-push/tool",
            "it rewrites history that others use",
            tools=("*push*", "*update_ref*", "*update_branch*"),
            inputs=("force=true",),
        ),
    ),
    "guard": (
        Rule("guard/orders", _UNGUARD, commands=(OPERATED,)),
        Rule(
            "guard/uninstall",
            _UNGUARD,
            commands=(
                *(
                    f"{program} {verb} *switchgear*"
                    for program, verbs in _UNINSTALLS.items()
                    for verb in verbs
                ),
                *("pipx uninstall-all", "uv uninstall --all"),
                *(
                    f"{program} install {option}"
                    for program in ("pip*", "uv", "pipx")
                    for option in (
                        *("--force-reinstall *switchgear*", "--force *switchgear*"),
                        *("switchgear==*", "switchgear<*", "switchgear@*", "*+*switchgear*"),
                    )
                ),
                *("pkill *switchgear*", "killall *switchgear*"),
            ),
        ),
        Rule("guard/files", _UNGUARD, writes=(*PROTECTED, GUARD)),
        Rule("guard/given", _UNGUARD, given=(*PROTECTED, GUARD)),
    ),
}
"""The built-in rules by the name of their group."""


def builtin_rules(groups: tuple[str, ...] | None = None) -> tuple[Rule, ...]:
    """The rules of some groups; default: all. Raises KeyError for an unknown group.

    >>> [rule.name for rule in builtin_rules(("force-push",))]
    ['force-push', 'force-push/tool']
    """
    return tuple(
        rule for group in (BUILTIN if groups is None else groups) for rule in BUILTIN[group]
    )


_PROGRAMS = ("switchgear", "python* switchgear", "pypy* switchgear", "uvx switchgear")
_INTERPRETERS = ("python*", "pypy*", "node", "bun", "deno", "perl", "ruby", "php", "lua*", "*awk")
_AGENTS = ("claude", "codex", "gemini", "qwen", "opencode", "pi")
_FILES = ("switchgear.y*", ".switchgear*", "switchgear.toml*", "state.db*", "name*switchgear*")
_CHANGES = ("rm", "mv", "unlink", "shred", "truncate", "chmod", "tee", "dd", "sh", "bash", "sed -i")
_REDIS = ("redis-cli", "valkey-cli", "keydb-cli")
_WRITES_KEYS = ("del", "unlink", "set", "hset", "hdel", "rename", "expire", "eval", "restore")
_PORT = "4737"

IN_PROJECTS = tuple(path[3:] for path in PROTECTED if path.startswith("**/."))
"""The paths in a project that `PROTECTED` protects in every folder.

They are also protected by their whole path, because only a whole path can be compared with a glob that
a shell would expand: `rm .cl*/s*`.
"""

RUNTIME_FOLDER = "/run/user/*/switchgear/**"
"""The folder of the resident process's socket if the state folder is not writable."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""First letters of private packages; `switchgear.__version__` must stay readable."""

GUARD_RULES = (
    Rule(
        "guard/evidence",
        _UNGUARD,
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
        "text that is known only at run time cannot be checked",
        commands=(DECODED,),
    ),
    Rule(
        "guard/decoded-code",
        "text that is known only at run time cannot be checked",
        commands=_INTERPRETERS,
        contents=(
            *("exec*b64decode", "eval*b64decode", "system*b64decode", "exec*fromhex"),
            *("exec*decompress", "exec*rot13", "eval*atob(", "eval*'base64'", 'eval*"base64"'),
            *("eval*decode_base64", "eval*decode64", "exec*map(chr", "eval*map(chr"),
        ),
    ),
    Rule(
        "guard/library",
        _UNGUARD,
        commands=_INTERPRETERS,
        contents=(
            *("from switchgear import*panel", "from switchgear import _", "switchgear.panel"),
            *("switchgear.stores", *(f"switchgear._{letter}" for letter in _LETTERS)),
            *("switchgear*.reset(", "switchgear*.release(", "switchgear*.hold("),
            *("run_module*switchgear", "run_path*switchgear", "import_module*switchgear"),
            *("uninstall*switchgear", "kill*pgrep*switchgear"),
        ),
    ),
    Rule(
        "guard/saved",
        "saved work is the operator's to remove",
        commands=(
            *("git update-ref", "git push", "git replace", "git pack-refs", "git filter-branch"),
            *("git fetch", "git pull", "git reflog expire", "git reflog delete"),
            *("git symbolic-ref", "git send-pack", "git fast-import", "git filter-repo"),
            "git notes",
        ),
        contents=("refs/switchgear",),
    ),
    Rule(
        "guard/variables",
        _UNGUARD,
        commands=tuple(
            f"{verb} SWITCHGEAR_*" for verb in ("unset", "export", "declare", "typeset", "readonly")
        ),
    ),
    Rule(
        "guard/agents",
        "an agent that you start must be guarded as you are",
        commands=tuple(f"{agent} *" for agent in _AGENTS),
        contents=(
            *("SWITCHGEAR_CONFIG", "SWITCHGEAR_STORE", "env*-i *", "disableAllHooks"),
            *("--settings", "--setting-sources", "--disable*hooks", "-c*hooks", "--config*hooks"),
            *("config*set*hooks", "mcp*remove*switchgear"),
        ),
    ),
    Rule(
        "guard/killed",
        _UNGUARD,
        commands=(
            *("kill", "pkill", "killall", "killall5", "skill", "snice", "renice", "fuser -k"),
            *("xargs kill", "gdb", "lldb", "strace -p"),
        ),
        contents=("switchgear", f":{_PORT}", f"{_PORT}/tcp"),
    ),
    Rule(
        "guard/services",
        _UNGUARD,
        commands=tuple(
            f"{program} {verb} *switchgear*"
            for program in ("systemctl", "launchctl", "service", "supervisorctl")
            for verb in word_list("stop kill disable mask restart unload bootout remove")
        ),
    ),
    Rule(
        "guard/piped",
        _UNGUARD,
        commands=tuple(f"xargs {program}" for program in _CHANGES),
        contents=tuple(f"{name}xargs" for name in (*_FILES, "ls*switchgear*")),
    ),
    Rule(
        "guard/database",
        _UNGUARD,
        commands=("sqlite3", "duckdb"),
        contents=(".switchgear/", "state.db"),
        allow_commands=("sqlite3 -readonly", "sqlite3 --readonly"),
    ),
    Rule(
        "guard/redis",
        _UNGUARD,
        commands=tuple(f"{program} {verb}" for program in _REDIS for verb in _WRITES_KEYS),
        contents=("switchgear",),
    ),
    Rule(
        "guard/scheduled",
        _UNGUARD,
        commands=("crontab", "at", "make -f"),
        contents=("switchgear re*", "switchgear hold"),
    ),
    Rule(
        "guard/delegated",
        "what you must not do, another program must not do for you",
        tools=("task", "agent", "spawn_agent", "delegate_to_agent", "subagent", "send_input"),
        contents=tuple(
            f"{run}*switchgear {order}"
            for run in ("run", "execute", "call")
            for order in ("reset", "release", "hold", "hooks uninstall")
        ),
    ),
    Rule(
        "guard/killed-by-tool",
        _UNGUARD,
        tools=("*kill*", "*terminate*", "*stop_process*", "*uninstall*"),
        inputs=("*=*switchgear*",),
    ),
    Rule("guard/named", _UNGUARD, tools=("mcp__*",), inputs=("*=*state.db",)),
    Rule(
        "guard/keys",
        _UNGUARD,
        tools=("mcp__*redis*", "mcp__*valkey*"),
        inputs=("key*=switchgear*",),
    ),
)
"""Rules that are checked before every tool call, after the built-in rules."""

SHARED_STORE = Rule(
    "guard/server",
    "the circuits are stored on this server",
    commands=tuple(
        f"{program} {verb}"
        for program in _REDIS
        for verb in word_list("flushall flushdb shutdown swapdb config debug acl script")
    ),
)
"""The rule that is checked if the store is a Redis server."""
