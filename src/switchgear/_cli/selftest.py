"""`switchgear selftest`: tests whether every configured guard fires on simulated failures."""

import difflib
import os
from collections.abc import Iterator

import click

from switchgear._analysis.selftest.live import LIVE
from switchgear._analysis.selftest.plan import SCENARIOS, perform, shielded
from switchgear._analysis.selftest.sandbox import Bench, GuardRow, HeldCircuit
from switchgear._cli.context import (
    choose_store,
    load_chosen_config,
    open_session,
    read_token,
    say_json,
)
from switchgear._cli.options import fail, json_option, store_options, token_option
from switchgear._cli.views.analysis import show_selftest
from switchgear._cli.views.text import say
from switchgear._core.types import Mode
from switchgear._hooks.session import TIME_VARIABLE, WATCHED_VARIABLE

# ruff: noqa: PTH109

CANNOT_FIRE = 1


@click.command()
@click.option(
    "--live", is_flag=True, help="Also test the real hook command, store and loop runner."
)
@click.option(
    "--only", "names", multiple=True, metavar="NAME", help="Run only this test. May be repeated."
)
@click.option(
    "--without",
    multiple=True,
    metavar="NAME",
    help="Skip this test. May be repeated. In CI, use --without standing, which inspects this machine.",
)
@click.option("--list", "listing", is_flag=True, help="Show the names for --only and --without.")
@json_option
@token_option
@store_options
def selftest(
    names: tuple[str, ...],
    without: tuple[str, ...],
    *,
    live: bool,
    listing: bool,
    as_json: bool,
) -> int:
    """Test every guard with simulated failures: does it trip, when, and by which detector.

    Simulates loops, errors, silence, overspending, dead and slow providers, policy violations,
    attempts at self-release and lock convoys with your configuration, in virtual time. A
    configured guard that cannot trip is a failure and comes with the reason. --live also tests
    the real hook command, store and loop runner, in temporary folders. Your files and stores
    are not changed. Exit code 0: every guard trips, 1: a guard cannot, 2: error.
    """
    known = {**SCENARIOS, **LIVE}
    if listing:
        for scenario in known.values():
            say(f"{scenario.name:16} {scenario.what}")
        return 0
    _check_names("--only", names, list(known))
    _check_names("--without", without, list(known))
    for name in names:
        if name in LIVE and not live:
            fail(f"--only is {name!r}: it tests the real installation; add --live")
    chosen = {name for name in names or (known if live else SCENARIOS) if name not in without}
    if not chosen:
        fail("--only and --without leave no test to run")
    rows = list(_run_scenarios(chosen, live=live))
    code = CANNOT_FIRE if any(row.status == "failed" for row in rows) else 0
    if as_json:
        found = [{**row._asdict(), "after": row.after} for row in rows]
        say_json({"exit_code": code, "rows": found})
    else:
        show_selftest(rows)
    return code


def _check_names(option: str, names: tuple[str, ...], known: list[str]) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see --list"
            fail(f"{option} is {name!r}: there is no such scenario; {hint}")


def _run_scenarios(chosen: set[str], *, live: bool) -> Iterator[GuardRow]:
    for name in (WATCHED_VARIABLE, TIME_VARIABLE):
        os.environ.pop(name, None)  # the simulated sessions are not part of an enclosing run
    config = load_chosen_config()
    store = choose_store(config).value
    bench = Bench(config, os.getcwd(), store, tuple(_held_circuits()), read_token())
    virtual = [name for name in SCENARIOS if name in chosen]
    if virtual:
        yield from perform(bench, virtual)
    for name, scenario in LIVE.items():
        if live and name in chosen:
            for attack in scenario.attacks:
                yield from shielded(attack, bench, name)


def _held_circuits() -> Iterator[HeldCircuit]:
    with open_session(reading=True) as session:
        for found in session.panel.store.find():
            circuit, order = found.circuit, found.circuit.order
            if circuit.mode is not Mode.AUTO:
                by, why = (order.by, order.why) if order else ("unknown", "")
                yield HeldCircuit(circuit.key, circuit.mode, by, why)
