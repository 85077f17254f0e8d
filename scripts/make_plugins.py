"""Writes the shareable hooks: a Claude Code plugin, a Codex plugin and a Gemini CLI extension.

    python scripts/make_plugins.py [--check]

They are made from the same registry as `switchgear hooks install`, so that no event is missing. A plugin
names no path: it runs `switchgear-hook` from PATH. Where that is missing, a tool call is refused with the
command that installs it, because a guard that is switched on and absent must not pass for one.
"""

import json
import sys
from pathlib import Path
from typing import Any

from switchgear import __version__
from switchgear._agents.hook_protocol import HookSettings
from switchgear._agents.registry import hook_settings
from switchgear._hooks.install.settings import groups

ROOT = Path(__file__).resolve().parent.parent
ABOUT = "Circuit breakers for AI agents: absolute rules, stuck detection, budgets."
MISSING = (
    "Switchgear is not installed: run 'pipx install switchgear', or turn its plugin off. "
    "Until then no tool call is admitted."
)


def command(agent: str, *, before_tool: bool) -> str:
    """The command of an event: one before a tool refuses where Switchgear is missing."""
    found = "command -v switchgear-hook >/dev/null 2>&1"
    if not before_tool:
        return f"{found} || exit 0; exec switchgear-hook {agent}"
    return f'{found} || {{ echo "{MISSING}" >&2; exit 2; }}; switchgear-hook {agent} || exit 2'


def hooks_of(settings: HookSettings) -> dict[str, Any]:
    """The hooks as the agent's settings have them."""
    made: dict[str, Any] = json.loads(json.dumps(groups(settings, "COMMAND")))
    for event, group in made.items():
        for hook in group["hooks"]:
            hook["command"] = command(settings.name, before_tool=event in settings.before_tool)
    return {"hooks": {event: [group] for event, group in made.items()}}


def files() -> dict[str, Any]:
    """Every file and what it holds."""
    author = {"name": "Switchgear"}
    facts = {"name": "switchgear", "version": __version__, "description": ABOUT}
    claude, codex, gemini = (hooks_of(hook_settings(n)) for n in ("claude-code", "codex", "gemini"))
    listed = {"name": "switchgear", "description": ABOUT}
    return {
        ".claude-plugin/marketplace.json": {
            "name": "switchgear",
            "owner": author,
            "metadata": {"description": ABOUT},
            "plugins": [{**listed, "source": "./plugins/claude-code"}],
        },
        "plugins/claude-code/.claude-plugin/plugin.json": {**facts, "author": author},
        "plugins/claude-code/hooks/hooks.json": {"description": ABOUT, **claude},
        ".agents/plugins/marketplace.json": {
            "name": "switchgear",
            "interface": {"displayName": "Switchgear"},
            "plugins": [
                {
                    "name": "switchgear",
                    "source": {"source": "local", "path": "./plugins/codex"},
                    "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
                    "category": "Coding",
                }
            ],
        },
        "plugins/codex/.codex-plugin/plugin.json": {
            **facts,
            "author": author,
            "hooks": "./hooks/hooks.json",
            "interface": {
                "displayName": "Switchgear",
                "shortDescription": ABOUT,
                "longDescription": ABOUT,
                "developerName": "Switchgear",
                "category": "Coding",
                "capabilities": ["Hooks"],
            },
        },
        "plugins/codex/hooks/hooks.json": codex,
        "plugins/gemini/gemini-extension.json": facts,
        "plugins/gemini/hooks/hooks.json": gemini,
    }


def text_of(value: Any) -> str:
    """A file as it is written."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def main(words: list[str]) -> int:
    """Write the files; with `--check` name those that differ, and exit with 1."""
    stale = []
    for name, value in files().items():
        path, text = ROOT / name, text_of(value)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in words:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{'differs' if '--check' in words else 'written'}: {name}")
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
