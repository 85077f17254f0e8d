"""Compiles the configuration for the file that hooks read. Slow; it runs only after a change."""

import os
import shlex
from typing import Any

from switchgear._config import Config, preset_policy
from switchgear._config.trust import effective_config
from switchgear._detectors.policy_wire import dump_policy
from switchgear._hooks.drain import has_outbox
from switchgear._hooks.hook_config import FORMAT, SOURCES
from switchgear._rules.builtin import GUARD_RULES, IN_PROJECTS, RUNTIME_FOLDER, SHARED_STORE
from switchgear._rules.rules import dump_rules
from switchgear._stores.url import REDIS_URLS, default_file, sqlite_file
from switchgear._system.files import state_folder

DEFAULTS = (
    ("op/*", "operation"),
    ("session/*", "stuck"),
    ("progress/*", "progress"),
    ("*", "operation"),
)
"""The presets of circuits that the configuration does not name."""


def compile_for(root: str) -> dict[str, Any]:
    """The configuration for the hooks of the project at `root`, as JSON values. Raises `ConfigError`."""
    found = effective_config(root)
    made = compile_config(found.config, root)
    return {**made, "untrusted": list(found.notices), "source": found.path} | {
        "trusted": None if found.trusted is None else found.path
    }


def compile_config(config: Config, root: str) -> dict[str, Any]:
    """The same for a configuration that has been read already."""
    store = config.store or f"sqlite:///{default_file(root)}"
    is_redis = store.startswith(REDIS_URLS)
    # Variables are not expanded: their values are secret, and the result is written to a file.
    written = config.store_as_written or ""
    guard_rules = (*GUARD_RULES, SHARED_STORE) if is_redis else GUARD_RULES
    rules = [[rule.match, dump_policy(rule.policy)] for rule in config.circuits]
    defaults = [[glob, dump_policy(preset_policy(name))] for glob, name in DEFAULTS]
    return {
        "format": FORMAT,
        "store": written if "${" in written and is_redis else store,
        "circuits": rules + defaults,
        "own": len(rules),
        "on_trouble": config.hooks.on_trouble,
        "lease_s": config.hooks.lease_s,
        "story": config.hooks.story,
        "context_tokens": config.hooks.context_tokens,
        "session_s": config.timeouts.session_s,
        "interventions": config.interventions._asdict(),
        "second_opinion": None
        if config.second_opinion is None
        else config.second_opinion._asdict(),
        "rules": dump_rules((*config.rules.rules, *guard_rules)),
        "protected": _protected_paths(config, store, root),
        "listens": bool(config.sinks) or has_outbox(config),
    }


def _protected_paths(config: Config, store: str, root: str) -> list[str]:
    found = [os.path.join(os.path.dirname(default_file(root)), "**")]
    if config.source is not None:
        found.append(config.source)
    # Also by absolute path, trusted or not: only an absolute path matches the effects of `rm *.yaml`.
    own = [os.path.join(root, name) for name in SOURCES if name.startswith("switchgear")]
    found += [path for path in own if os.path.lexists(path)]
    found += [os.path.join(state_folder(), "**"), RUNTIME_FOLDER]
    file = sqlite_file(store)
    if file is not None:
        found += [file, f"{file}-*", f"{file}.*"]
    found += [os.path.join(root, path) for path in IN_PROJECTS]
    if config.second_opinion is not None:
        found += _files_named(config.second_opinion.command or "", root)
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    refs = [os.path.join(root, ".git", name) for name in ("packed-refs", "refs/switchgear/**")]
    return [*found, os.path.join(ours, "**"), *refs, *config.rules.protected]


def _files_named(command: str, root: str) -> list[str]:
    """The project's files that the command of the second opinion names; a judged agent must not change them."""
    try:
        paths = [os.path.normpath(os.path.join(root, word)) for word in shlex.split(command)]
    except ValueError:
        return []
    return [
        path for path in paths if path.startswith(os.path.join(root, "")) and os.path.isfile(path)
    ]
