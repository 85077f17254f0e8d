"""What a hook refuses beside the built-in rules, so that the guarded cannot unguard themselves.

Ways around that no list of paths sees: programs in the command that open our files, copies from
git, tools that name a database, orders that make up evidence. Data only.

What this cannot do is said in `docs/hooks.md`: an agent with a shell is this user, and a text that
is computed, fetched or run from a script is beyond any reader of commands. Against that help a
store that another user owns, and the operator token.
"""

from switchgear.core.rules import Rule
from switchgear.core.rules_builtin import PROTECTED

_WHY = "who is guarded must not switch the guard off"
_PROGRAMS = ("switchgear", "python* switchgear", "pypy* switchgear", "uvx switchgear")
_OURS = ("*switchgear.yaml", "*switchgear.yml", "*switchgear.toml", "*.switchgear*")
_EDITORS = ("vi", "vim", "nvim", "nano", "pico", "ed", "ex", "emacs", "code", "micro", "hx")
_INTERPRETERS = ("python*", "pypy*", "node", "bun", "deno", "perl", "ruby", "php", "lua*", "*awk")
_NAMED = (".switchgear/", "switchgear.yaml", "switchgear.yml", "switchgear.toml", "state.db")

IN_PROJECTS = tuple(path[3:] for path in PROTECTED if path.startswith("**/."))
"""What is protected anywhere, as it lies in a project.

By its whole path too, because only that can meet what a shell would complete: `rm .cl*/s*`.
"""

GUARD_RULES = (
    Rule("guard/evidence", _WHY, commands=tuple(f"{each} record" for each in _PROGRAMS)),
    Rule("guard/code", _WHY, commands=_INTERPRETERS, contents=_NAMED),
    Rule(
        "guard/library",
        _WHY,
        commands=_INTERPRETERS,
        contents=(
            *("from switchgear import*panel", "switchgear.panel", "switchgear.stores"),
            "switchgear.cli",
            *("switchgear*.reset(", "switchgear*.release(", "switchgear*.hold("),
        ),
    ),
    Rule("guard/killed", _WHY, commands=("kill", "pkill", "killall"), contents=("switchgear",)),
    Rule("guard/found", _WHY, commands=("find -delete",), contents=_NAMED),
    Rule(
        "guard/git",
        _WHY,
        commands=(
            *("git clean -x", "git clean -X"),
            *(f"git {verb} {name}" for verb in ("checkout", "restore", "reset") for name in _OURS),
        ),
    ),
    Rule(
        "guard/edited",
        _WHY,
        commands=tuple(f"{editor} {name}" for editor in _EDITORS for name in _OURS),
    ),
    Rule(
        "guard/named",
        _WHY,
        tools=("mcp__*",),
        inputs=tuple(f"*={name}" for name in (*_OURS, "*state.db")),
    ),
)
"""Judged after the built-in rules, before every tool call."""
