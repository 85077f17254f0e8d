"""The scenarios by name, and running them: one that breaks is a row, not the end of the others."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from switchgear._analysis.selftest import (
    configured_guards,
    disabled_guards,
    fleet_scenarios,
    hook_scenarios,
    library_scenarios,
    loop_scenarios,
    shared_store,
)
from switchgear._analysis.selftest.rows import GuardRow, failed
from switchgear._analysis.selftest.sandbox import Bench

Attack = Callable[[Bench], Iterator[GuardRow]]


class SelftestScenario(NamedTuple):
    """An attack with a name, down every path that should notice it."""

    name: str
    what: str
    acts: tuple[Attack, ...]


SCENARIOS: dict[str, SelftestScenario] = {
    scenario.name: scenario
    for scenario in (
        SelftestScenario(
            "guards",
            "Every row of `circuits`, every default and preset: each detector under its attack.",
            (configured_guards.guards,),
        ),
        SelftestScenario(
            "loop",
            "An agent makes the same call again and again.",
            (hook_scenarios.loop, loop_scenarios.loop),
        ),
        SelftestScenario(
            "same-error",
            "The same error again and again.",
            (hook_scenarios.same_error, loop_scenarios.same_error, fleet_scenarios.same_error),
        ),
        SelftestScenario(
            "standing-still", "Iterations that change nothing.", (loop_scenarios.standing_still,)
        ),
        SelftestScenario(
            "output-decline", "Outputs that dry up.", (loop_scenarios.output_decline,)
        ),
        SelftestScenario(
            "hang",
            "An agent that says nothing any more.",
            (hook_scenarios.hang, loop_scenarios.hang, fleet_scenarios.hang),
        ),
        SelftestScenario(
            "overspend",
            "More money than there is.",
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
                shared_store.trips,
            ),
        ),
        SelftestScenario(
            "slow-provider",
            "A provider that answers far too late.",
            (library_scenarios.slow_provider, fleet_scenarios.slow_provider),
        ),
        SelftestScenario(
            "rule-breach",
            "Calls that break an absolute rule, each rule by itself.",
            (
                hook_scenarios.rule_breach,
                library_scenarios.rule_breach,
                fleet_scenarios.rule_breach,
            ),
        ),
        SelftestScenario(
            "self-release",
            "An agent that would switch its guard off.",
            (
                hook_scenarios.self_release,
                library_scenarios.self_release,
                fleet_scenarios.self_release,
            ),
        ),
        SelftestScenario(
            "lock-convoy",
            "Waiting for a lock that stays.",
            (library_scenarios.lock_convoy, fleet_scenarios.lock_convoy),
        ),
        SelftestScenario(
            "standing",
            "What is off: circuits held closed or in shadow mode, no place to store, hooks missing.",
            (disabled_guards.held, disabled_guards.stored, disabled_guards.installed),
        ),
    )
}
"""All of them, in the order in which they are shown."""


def perform(bench: Bench, names: Sequence[str] = ()) -> Iterator[GuardRow]:
    """The rows of these scenarios; without names, of all.

    What a guard raises that it should not is a failure of that guard, told with its name.
    """
    for name in names or SCENARIOS:
        for act in SCENARIOS[name].acts:
            yield from shielded(act, bench, name)


def shielded(act: Attack, bench: Bench, name: str) -> Iterator[GuardRow]:
    """The rows of an act; a defect that it meets is one more, and says so."""
    try:
        yield from act(bench)
    except Exception as error:  # noqa: BLE001  a guard that breaks is what is looked for
        why = f"it broke: {type(error).__name__}: {error}"
        yield failed(name, name, act.__module__.rsplit(".", 1)[-1], why)
