"""`switchgear simulate SCENARIO`: simulates what breakers save a fleet, in virtual time."""

import os
from typing import Any

import click

from switchgear._analysis.simulate.compare import as_json as result_as_json
from switchgear._analysis.simulate.compare import simulate as run_simulation
from switchgear._analysis.simulate.world import SCENARIOS
from switchgear._cli.context import load_chosen_config, say_json, say_result
from switchgear._cli.options import config_option, fail, json_option
from switchgear._cli.views.analysis import show_simulation
from switchgear._cli.views.terminal import progress
from switchgear._cli.views.text import clean, say
from switchgear._config import DEFAULT
from switchgear._report.analysis_pages import simulation_page

MISSED = 1


@click.command()
@click.argument("scenario", required=False)
@click.option("--agents", type=int, default=1000, help="Number of agents.")
@click.option("--hours", type=float, help="Simulated hours. [default: the scenario's own]")
@click.option(
    "--seed",
    type=int,
    default=1,
    help="Seed of the random numbers; the same seed gives the same result.",
)
@click.option(
    "--noise",
    type=float,
    default=0.0,
    help="Share of calls that fail although the provider is healthy.",
)
@click.option("--presets", is_flag=True, help="Use the presets instead of the configuration.")
@click.option("--html", metavar="FILE", help="Write an HTML report with charts.")
@json_option
@config_option
def simulate(
    scenario: str | None, *, html: str | None, presets: bool, as_json: bool, **size: Any
) -> int:
    """Simulate a fleet with and without breakers. Without SCENARIO, list the scenarios.

    Uses the real circuits and router with an in-memory store and a virtual clock, and the
    policies in 'breakers' and 'circuits' of the configuration, otherwise the presets. Nothing
    outside is called or changed. Exit code 0: all targets met, 1: one missed, 2: error.
    """
    if scenario is None:
        _list(as_json=as_json)
        return 0
    policies, source = _policies(presets=presets)
    folder = os.path.dirname(html) if html else ""  # noqa: PTH120  as the user wrote it
    if html is not None and (os.path.isdir(html) or (folder and not os.path.isdir(folder))):  # noqa: PTH112
        fail(f"--html {html}: name a file in an existing folder")
    with progress("simulating", hidden=False, passes=2) as report:
        result = run_simulation(scenario, **size, **policies, progress=report)
    if html is not None:
        try:
            with open(html, "w", encoding="utf-8") as file:  # noqa: PTH123  as the user wrote it
                file.write(simulation_page(result))
        except OSError as error:
            fail(f"--html {html}: {error.strerror}; name a file in a folder that you may write to")
    if as_json:
        say_json({**result_as_json(result), "judged_by": source})
    else:
        show_simulation(result, source)
    if html is not None:
        say(clean(f"report: {html}"), err=as_json)
    return 0 if result.kept else MISSED


def _list(*, as_json: bool) -> None:
    values = [{"name": each.name, "about": each.about} for each in SCENARIOS.values()]
    lines = [f"{each.name:<16}{each.about}" for each in SCENARIOS.values()]
    say_result(values, [*lines, "switchgear simulate outage --agents 100"], as_json=as_json)


def _policies(*, presets: bool) -> tuple[dict[str, Any], str]:
    """The policies of the simulation as arguments of `run_simulation`, and where they come from."""
    loaded = DEFAULT if presets else load_chosen_config()
    if loaded.breakers is None:
        return {}, "presets"
    return {"breakers": loaded.breakers, "policies": loaded.policy_for}, str(loaded.source)
