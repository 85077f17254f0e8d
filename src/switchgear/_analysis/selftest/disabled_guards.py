"""What switches guards off without a word in the configuration: modes, and hooks that nobody runs."""

import os
from collections.abc import Iterator
from pathlib import Path

from switchgear._analysis.selftest.rows import GuardRow, failed, skipped
from switchgear._analysis.selftest.sandbox import Bench
from switchgear._config import Config
from switchgear._config.model import Hooks
from switchgear._core.types import Mode
from switchgear._hooks.install.settings import HOOKED, InstallState, place, scopes_of
from switchgear._stores.url import default_file
from switchgear._stuck.escalation import Interventions
from switchgear._text.redact import redact

_WORDS = {
    Mode.HELD_CLOSED: "held closed",
    Mode.SHADOW: "in shadow mode",
}


def held(bench: Bench) -> Iterator[GuardRow]:
    """Circuits of the store that admit everything because somebody said so."""
    open_doors = [circuit for circuit in bench.held if circuit.mode in _WORDS]
    if not open_doors:
        why = "no circuit is held closed or in shadow mode"
        yield GuardRow("modes", "any", "store", reason=why)
    for circuit in open_doors:
        why = f"{_WORDS[circuit.mode]} by {circuit.by}: {circuit.why}; it admits everything"
        yield failed(circuit.name, "any", "store", f"{why}. `switchgear release` gives it back")


def stored(bench: Bench) -> Iterator[GuardRow]:
    """A file for the store that nobody could make: then nothing is remembered."""
    url = bench.store_url or f"sqlite:///{default_file(bench.root)}"
    if not url.startswith("sqlite:///"):
        return
    file = Path(url.removeprefix("sqlite:///")).expanduser()
    there = next(each for each in (file, *file.parents) if each.exists() or each == each.parent)
    if there != file and not there.is_dir():
        why = f"{there} is no folder"
    elif not os.access(there, os.W_OK):
        why = f"{there} cannot be written"
    else:
        return
    yield failed(f"store {redact(url)}", "any", "store", f"{why}: name another place")


def installed(bench: Bench) -> Iterator[GuardRow]:
    """Hooks that are configured and not installed, or installed and cannot run."""
    found = list(standings(bench.root))
    if not found and wants_hooks(bench.config):
        why = "the configuration has rules for hooks, and no agent has them installed"
        yield failed("hooks", "any", "hooks", f"{why}: `switchgear hooks install AGENT`")
    elif not found:
        yield skipped(
            "hooks", "any", "hooks", "none are installed, and the configuration asks for none"
        )
    for agent, standing in found:
        why = _objection(standing)
        if why:
            to_do = f"`switchgear hooks install {agent}`"
            yield failed(f"hooks of {agent}", "any", "hooks", f"{why}: {to_do}")
        else:
            events = len(standing.events)
            yield GuardRow(f"hooks of {agent}", "installed", "hooks", reason=f"{events} events")


def standings(root: str) -> Iterator[tuple[str, InstallState]]:
    """The agents whose hooks are installed, for the project or for the user."""
    for agent in HOOKED:
        for scope in scopes_of(agent, root):
            standing = place(agent, scope, root).look()
            if standing.installed:
                yield agent, standing


def wants_hooks(config: Config) -> bool:
    """Whether the configuration says something that only hooks do."""
    named = any(rule.match.startswith(("session/", "op/")) for rule in config.circuits)
    told = config.hooks != Hooks() or config.interventions != Interventions()
    return named or told or config.timeouts.session_s is not None


def _objection(standing: InstallState) -> str:
    if standing.gone:
        return f"{standing.path} needs {', '.join(standing.gone)}, which is gone"
    if standing.switched_off:
        return f"the agent runs no hooks: {standing.switched_off}"
    if standing.missing:
        return f"{standing.path} lacks {', '.join(standing.missing)}"
    return standing.trouble
