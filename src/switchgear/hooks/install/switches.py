"""The settings by which an agent runs no hooks at all, in whichever of its files they stand."""

import os
import tomllib
from typing import Any

from switchgear.hooks.install import files
from switchgear.hooks.install.agents import HookedAgent
from switchgear.hooks.install.files import CannotChange
from switchgear.hooks.install.jsonc import NotJson, parse

_MARK = "\ufeff"
OTHER_FILES = {"claude-code": "settings.local.json", "codex": "config.toml"}
"""Beside the file that we change, also read by the agent."""


def switched_off(agent: HookedAgent, folder: str) -> str:
    """The setting and its file; empty: hooks are not switched off. What cannot be read says nothing."""
    for scope in agent.scopes:
        path = agent.file(scope, folder)
        other = OTHER_FILES.get(agent.name)
        beside = [] if other is None else [os.path.join(os.path.dirname(path), other)]
        for each in (path, *beside):
            found = _switch_in(agent, _read(each))
            if found:
                return f"{found} in {each}"
    return ""


def switch_in(agent: HookedAgent, path: str) -> str:
    """The setting in one file by which the agent runs no hooks; empty: there is none."""
    return _switch_in(agent, _read(path))


def _read(path: str) -> dict[str, Any]:
    try:
        text = (files.read(path) or b"").decode().removeprefix(_MARK)
        if path.endswith(".toml"):
            return tomllib.loads(text)
        told = parse(text).value
    except (CannotChange, UnicodeDecodeError, NotJson, tomllib.TOMLDecodeError):
        return {}
    return told if isinstance(told, dict) else {}


def _switch_in(agent: HookedAgent, settings: dict[str, Any]) -> str:
    if agent.name == "codex":
        features = settings.get("features")
        off = isinstance(features, dict) and features.get("hooks") is False
        return "features.hooks is false" if off else ""
    if agent.name != "gemini":
        return '"disableAllHooks" is true' if settings.get("disableAllHooks") is True else ""
    config = settings.get("hooksConfig")
    if not isinstance(config, dict):
        return ""
    if config.get("enabled") is False:
        return '"hooksConfig.enabled" is false'
    disabled = config.get("disabled")
    named = isinstance(disabled, list) and "switchgear" in disabled
    return '"hooksConfig.disabled" has "switchgear"' if named else ""
