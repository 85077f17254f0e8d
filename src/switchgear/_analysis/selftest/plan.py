"""The scenarios of the self-test by name. A scenario that raises becomes a row, and the others still run."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from switchgear._analysis.selftest import (
    configured_guards,
    fleet_scenarios,
    hook_scenarios,
    library_scenarios,
    loop_scenarios,
)
from switchgear._analysis.selftest.sandbox import Bench, GuardCase, GuardRow
from switchgear._config import Config
from switchgear._config.sections import Hooks
from switchgear._core.types import Mode
from switchgear._hooks.install.settings import HOOKED, InstallState, hook_file, scopes_of
from switchgear._stores.url import default_file
from switchgear._stuck.escalation import Interventions
from switchgear._text.redact import redact

_WORDS = {Mode.HELD_CLOSED: "held closed", Mode.SHADOW: "in shadow mode"}


def held(bench: Bench) -> Iterator[GuardRow]:
    """Circuits of the store that admit everything because of an override."""
    found = [circuit for circuit in bench.held if circuit.mode in _WORDS]
    if not found:
        why = "no circuit is held closed or in shadow mode"
        yield GuardRow("modes", "any", "store", reason=why)
    for circuit in found:
        why = f"{_WORDS[circuit.mode]} by {circuit.by}: {circuit.why}; it admits everything"
        case = GuardCase(circuit.name, "any", "store")
        yield case.failed(f"{why}; end it with `switchgear release`")


def stored(bench: Bench) -> Iterator[GuardRow]:
    """A store whose file cannot be created, so that nothing can be saved."""
    url = bench.store_url or f"sqlite:///{default_file(bench.root)}"
    if not url.startswith("sqlite:///"):
        return
    file = Path(url.removeprefix("sqlite:///")).expanduser()
    nearest = next(each for each in (file, *file.parents) if each.exists() or each == each.parent)
    if nearest != file and not nearest.is_dir():
        why = f"{nearest} is not a folder"
    elif not os.access(nearest, os.W_OK):
        why = f"{nearest} cannot be written"
    else:
        return
    yield GuardCase(f"store {redact(url)}", "any", "store").failed(f"{why}: name another place")


def installed(bench: Bench) -> Iterator[GuardRow]:
    """Hooks that are configured and not installed, or installed and cannot run."""
    states = [
        (agent, hook_file(agent, scope, bench.root).state())
        for agent in HOOKED
        for scope in scopes_of(agent, bench.root)
    ]
    found = [(agent, state) for agent, state in states if state.installed]
    case = GuardCase("hooks", "any", "hooks")
    if not found and _wants_hooks(bench.config):
        why = "the configuration has rules for hooks, but no agent has them installed"
        yield case.failed(f"{why}: `switchgear hooks install AGENT`")
    elif not found:
        yield case.skipped("none are installed, and the configuration requires none")
    for agent, state in found:
        name = f"hooks of {agent}"
        if why := _objection(state):
            fix = f"`switchgear hooks install {agent}`"
            yield case._replace(guard=name).failed(f"{why}: {fix}")
        else:
            yield GuardRow(name, "installed", "hooks", reason=f"{len(state.events)} events")


def _wants_hooks(config: Config) -> bool:
    named = any(rule.match.startswith(("session/", "op/")) for rule in config.circuits)
    is_configured = config.hooks != Hooks() or config.interventions != Interventions()
    return named or is_configured or config.timeouts.session_s is not None


def _objection(state: InstallState) -> str:
    """Why installed hooks cannot run; empty: they can."""
    if state.missing_paths:
        return f"{state.path} needs {', '.join(state.missing_paths)}, which is missing"
    if state.switched_off:
        return f"the agent runs no hooks: {state.switched_off}"
    if state.missing:
        return f"{state.path} lacks {', '.join(state.missing)}"
    return state.trouble


Attack = Callable[[Bench], Iterator[GuardRow]]


class SelftestScenario(NamedTuple):
    """A named attack on every path that should detect it."""

    name: str
    what: str
    attacks: tuple[Attack, ...]


def by_name(*scenarios: SelftestScenario) -> dict[str, SelftestScenario]:
    return {scenario.name: scenario for scenario in scenarios}


SCENARIOS = by_name(
    SelftestScenario(
        "guards",
        "Every row of `circuits`, every default and preset: each detector under its attack.",
        (configured_guards.guards,),
    ),
    SelftestScenario(
        "loop",
        "An agent repeats the same call.",
        (hook_scenarios.loop, loop_scenarios.loop),
    ),
    SelftestScenario(
        "same-error",
        "The same error, repeated.",
        (hook_scenarios.same_error, loop_scenarios.same_error, fleet_scenarios.same_error),
    ),
    SelftestScenario(
        "standing-still", "Iterations that change nothing.", (loop_scenarios.standing_still,)
    ),
    SelftestScenario(
        "output-decline",
        "Output that becomes shorter and shorter.",
        (loop_scenarios.output_decline,),
    ),
    SelftestScenario(
        "hang",
        "An agent that makes no more tool calls.",
        (hook_scenarios.hang, loop_scenarios.hang, fleet_scenarios.hang),
    ),
    SelftestScenario(
        "overspend",
        "Spending beyond the budget.",
        (library_scenarios.overspend, loop_scenarios.overspend, fleet_scenarios.overspend),
    ),
    SelftestScenario(
        "dead-provider",
        "A provider, or an operation, that fails every call.",
        (
            library_scenarios.dead_provider,
            loop_scenarios.dead_provider,
            fleet_scenarios.dead_provider,
            hook_scenarios.dead_operation,
            library_scenarios.shared_trip,
        ),
    ),
    SelftestScenario(
        "slow-provider",
        "A provider that answers too slowly.",
        (library_scenarios.slow_provider, fleet_scenarios.slow_provider),
    ),
    SelftestScenario(
        "rule-breach",
        "Calls that break an absolute rule, each rule by itself.",
        (hook_scenarios.rule_breach, library_scenarios.rule_breach, fleet_scenarios.rule_breach),
    ),
    SelftestScenario(
        "self-release",
        "An agent that tries to switch off its guard.",
        (hook_scenarios.self_release, library_scenarios.self_release, fleet_scenarios.self_release),
    ),
    SelftestScenario(
        "lock-convoy",
        "Waiting for a lock that is never released.",
        (library_scenarios.lock_convoy, fleet_scenarios.lock_convoy),
    ),
    SelftestScenario(
        "standing",
        "Disabled guards: circuits held closed or in shadow mode, an unwritable store, missing hooks.",
        (held, stored, installed),
    ),
)
"""All scenarios, in the order in which they are shown."""


def perform(bench: Bench, names: Sequence[str] = ()) -> Iterator[GuardRow]:
    """The rows of these scenarios; without names, of all scenarios."""
    for name in names or SCENARIOS:
        for attack in SCENARIOS[name].attacks:
            yield from shielded(attack, bench, name)


def shielded(attack: Attack, bench: Bench, name: str) -> Iterator[GuardRow]:
    """The rows of an attack; an unexpected exception becomes another row."""
    try:
        yield from attack(bench)
    except Exception as error:  # noqa: BLE001  the test looks for guards that break
        why = f"the test failed: {type(error).__name__}: {error}"
        yield GuardCase(name, name, attack.__module__.rsplit(".", 1)[-1]).failed(why)
