"""The rules that hold unless they are switched off: few, and such that honest work never meets them.

Data only. Each group can be switched off, or excused by an allow-list, in the configuration.
"""

from switchgear._rules.programs import OPERATED
from switchgear._rules.rules import GUARD, LOOPBACK, SECRET, Rule

TEMPORARY = (
    *("/tmp/**", "/var/tmp/**", "/dev/shm/**", "/dev/null"),  # noqa: S108  patterns, nothing is made
    *("/private/tmp/**", "/private/var/tmp/**", "/var/folders/**", "/private/var/folders/**"),
)
"""Where anybody may write and delete."""
SECRET_FILES = (
    *("**/.env", "**/.env.*", "**/.envrc", "**/.netrc", "**/_netrc", "**/.pgpass", "**/.my.cnf"),
    *("**/.ssh", "**/.ssh/**", "**/id_rsa", "**/id_ed25519", "**/id_ecdsa", "**/id_dsa"),
    *("**/.aws", "**/.aws/credentials", "**/.git-credentials", "**/.config/git/credentials"),
    *(
        "**/.kube",
        "**/.kube/config",
        "**/.gnupg",
        "**/.gnupg/**",
        "**/*.pem",
        "**/*.p12",
        "**/*.pfx",
    ),
    *("**/.config/gcloud/**", "**/.config/gcloud", "**/.config/gh/hosts.yml", "**/.config/gh"),
    *("**/.azure/**", "**/.claude/.credentials.json", "**/.codex/auth.json", "**/.claude.json"),
    *("**/.gemini/oauth_creds.json", "**/.qwen/oauth_creds.json", "**/.config/op/**"),
    *("**/.local/share/opencode/auth.json", "**/.pi/agent/auth.json", "**/keyrings/**"),
    *(
        "**/.password-store/**",
        "**/credentials.json",
        "**/service-account*.json",
        "**/.vault-token",
    ),
    *("/etc/shadow", "/proc/*/environ", "**/.terraformrc", "**/.cargo/credentials*"),
)
"""Files that hold secrets by custom."""
SECRET_SETTINGS = ("**/.npmrc", "**/.pypirc", "**/.docker/config.json", "**/.yarnrc.yml")
"""Settings that may hold a token, and which projects keep as well."""
NOT_SECRET = (
    *("**/.env.example", "**/.env.sample", "**/.env.template", "**/.env.dist", "**/.env.defaults"),
    *("**/*.pub", "**/.ssh/known_hosts*", "**/.ssh/config", "**/.ssh/authorized_keys"),
    *("**/.env.*.example", "**/.env.*.sample", "**/.env.*.template", "**/.env.test", "**/.env.ci"),
)
"""Files beside them that hold none."""
PROTECTED = (
    *("**/switchgear.yaml", "**/switchgear.yml", "**/switchgear.toml"),
    *("**/.switchgear/**", "~/.config/switchgear/**", "~/.local/state/switchgear/**"),
    *("**/.claude/settings.json", "**/.claude/settings.local.json", "~/.claude/settings.json"),
    *("**/.claude/hooks/**", "**/.codex/config.toml", "**/.codex/hooks.json"),
    *("~/.claude/hooks/**", "~/.claude/settings.local.json", "~/.codex/config.toml"),
    *("~/.codex/hooks.json", "~/.gemini/settings.json", "~/.qwen/settings.json"),
    *("**/.gemini/settings.json", "**/.qwen/settings.json", "**/opencode.json"),
    *("**/.opencode/plugin/**", "**/.opencode/plugins/**", "~/.config/opencode/**"),
    *("**/.pi/extensions/**", "**/.pi/settings.json", "~/.pi/agent/**"),
    *("**/refs/switchgear/**", "**/bin/switchgear", "**/bin/switchgear-hook"),
    *("**/site-packages/switchgear/**", "**/site-packages/switchgear-*/**"),
)
"""What the guard and its hooks live in; `Place.protected` adds the paths of this installation."""
_LOCAL = (LOOPBACK,)
_KEY_IN_SIGHT = "a key must not leave this machine"
_UNGUARD = "who is guarded must not switch the guard off"

BUILTIN: dict[str, tuple[Rule, ...]] = {
    "secrets": (
        Rule(
            "secrets/sent",
            _KEY_IN_SIGHT,
            hosts=("*",),
            contents=(SECRET,),
            allow_hosts=_LOCAL,
        ),
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
            commands=("git add", "git stage"),
            paths=SECRET_FILES,
            allow_paths=NOT_SECRET,
        ),
    ),
    "deletes": (
        Rule(
            "deletes/outside",
            "only the workspace and temporary folders are yours to delete in",
            deletes=("/", "/**"),
            allow_paths=("./**", *TEMPORARY),
        ),
    ),
    "force-push": (
        Rule(
            "force-push",
            "it rewrites what others have; --force-with-lease is allowed",
            commands=(
                *("git push -f", "git push --force", "git push +*", "git push --mirror"),
                *("git send-pack --force", "git send-pack +*"),
            ),
        ),
        Rule(
            "force-push/tool",
            "it rewrites what others have",
            tools=("*push*", "*update_ref*", "*update_branch*"),
            inputs=("force=true",),
        ),
    ),
    "guard": (
        Rule(
            "guard/orders",
            _UNGUARD,
            commands=(OPERATED,),
        ),
        Rule(
            "guard/uninstall",
            _UNGUARD,
            commands=(
                *("pip* uninstall switchgear*", "uv uninstall switchgear*"),
                *("uv remove switchgear*", "poetry remove switchgear*", "pdm remove switchgear*"),
                *("conda remove switchgear*", "conda uninstall switchgear*"),
                *("mamba remove switchgear*", "pip* install --force-reinstall *switchgear*"),
                *("pkill *switchgear*", "killall *switchgear*"),
            ),
        ),
        Rule("guard/files", _UNGUARD, writes=(*PROTECTED, GUARD)),
        Rule("guard/given", _UNGUARD, given=(*PROTECTED, GUARD)),
    ),
}
"""The built-in rules by the name of their group."""


def builtin_rules(groups: tuple[str, ...] | None = None) -> tuple[Rule, ...]:
    """The rules of some groups; of all, unless told. Raises KeyError for a group that is none.

    >>> [rule.name for rule in builtin_rules(("force-push",))]
    ['force-push', 'force-push/tool']
    """
    return tuple(
        rule for group in (BUILTIN if groups is None else groups) for rule in BUILTIN[group]
    )
