"""A clean environment for each agent CLI: its own home, dummy keys, no telemetry, the scripted API as its provider.

All of it is environment and configuration files, no argument, so that the agent can also be started
by `switchgear run --agent NAME` in the same world.
"""

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from e2e.agents.installation import node_folder, program
from switchgear._agents.base import Agent
from switchgear._agents.registry import agent_named


class World(NamedTuple):
    """Everything that a run of one agent needs."""

    agent: Agent
    model: str
    env: dict[str, str]
    """The whole environment: nothing of the machine's is in it."""


def world_of(name: str, url: str, home: Path) -> World:
    home.mkdir(parents=True, exist_ok=True)
    node = node_folder()
    git = Path(shutil.which("git") or "/usr/bin/git").parent
    folders = [program(name).parent, *([node] if node else []), git, "/usr/bin", "/bin"]
    plain = {
        "HOME": str(home),
        "PATH": os.pathsep.join(map(str, folders)),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "XDG_CACHE_HOME": str(home / ".cache"),
        "NO_PROXY": "127.0.0.1",
        "SWITCHGEAR_TRUST": "1",  # for commands; hooks go by what `hooks install` trusted
    }
    model, special = WORLDS[name](url, home)
    return World(agent_named(name), model, {**plain, **special})


def claude(url: str, home: Path) -> tuple[str, dict[str, str]]:
    return "claude-sonnet-4-5", {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def codex(url: str, home: Path) -> tuple[str, dict[str, str]]:
    folder = home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        f"""
model_provider = "scripted"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 2
"""
    )
    # Below the folder for temporary files Codex installs no helper, and its sandbox needs one where bwrap is there.
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    special = {"CODEX_HOME": str(folder), "SCRIPTED_KEY": "dummy", "TMPDIR": str(temporary)}
    return "gpt-5", special


def gemini(url: str, home: Path) -> tuple[str, dict[str, str]]:
    folder = home / ".gemini"
    folder.mkdir(exist_ok=True)
    settings = {
        "general": {"disableAutoUpdate": True},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return "gemini-2.5-pro", {
        "GEMINI_API_KEY": "dummy",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_TELEMETRY_ENABLED": "false",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def opencode(url: str, home: Path) -> tuple[str, dict[str, str]]:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    model = {
        "name": "scripted",
        "tool_call": True,
        "cost": {"input": 3, "output": 15},
        "limit": {"context": 1_000_000, "output": 100_000},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": "dummy"},
        "models": {"scripted-model": model},
    }
    settings = {"autoupdate": False, "share": "disabled", "provider": {"scripted": provider}}
    (folder / "opencode.json").write_text(json.dumps(settings))
    return "scripted/scripted-model", {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_SHARE": "1",
    }


def qwen(url: str, home: Path) -> tuple[str, dict[str, str]]:
    folder = home / ".qwen"
    folder.mkdir(exist_ok=True)
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return "gpt-5", {
        "OPENAI_API_KEY": "dummy",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_MODEL": "gpt-5",
        "QWEN_TELEMETRY_ENABLED": "false",
    }


def pi(url: str, home: Path) -> tuple[str, dict[str, str]]:
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    model = {
        "id": "scripted-model",
        "name": "scripted",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 0},
        "contextWindow": 1_000_000,
        "maxTokens": 100_000,
    }
    provider = {
        "baseUrl": f"{url}/v1",
        "apiKey": "SCRIPTED_KEY",
        "api": "openai-completions",
        "models": [model],
    }
    (folder / "models.json").write_text(json.dumps({"providers": {"scripted": provider}}))
    return "scripted/scripted-model", {
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
        "PI_SKIP_VERSION_CHECK": "1",
        "SCRIPTED_KEY": "dummy",
    }


def goose(url: str, home: Path) -> tuple[str, dict[str, str]]:
    folder = home / ".config" / "goose"
    folder.mkdir(parents=True, exist_ok=True)
    developer = {"enabled": True, "type": "builtin", "name": "developer", "timeout": 60}
    settings = {"extensions": {"developer": developer}}  # JSON is YAML, too
    (folder / "config.yaml").write_text(json.dumps(settings))
    return "gpt-4o", {
        "GOOSE_PROVIDER": "openai",
        "OPENAI_API_KEY": "dummy",
        "OPENAI_HOST": url,
        "GOOSE_DISABLE_KEYRING": "1",
        "GOOSE_TELEMETRY_ENABLED": "false",
    }


WORLDS = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "goose": goose,
    "opencode": opencode,
    "pi": pi,
    "qwen": qwen,
}
