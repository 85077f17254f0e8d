"""`switchgear selftest`: the TEST button. Attacks on one's own guards, and whether each fires."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from switchgear._cli.options import fail, json_option, store_options, token_option
from switchgear._cli.views.text import say

if TYPE_CHECKING:
    from switchgear._analysis.selftest.sandbox import Bench, GuardRow

# ruff: noqa: PLC0415, PTH109  what a verb needs is imported when it is used

CANNOT_FIRE = 1


@click.command(short_help="Test whether every guard fires.")
@click.option(
    "--live", is_flag=True, help="Also test the real hook command, store and loop runner."
)
@click.option(
    "--only", "names", multiple=True, metavar="NAME", help="Run only this test. May be repeated."
)
@click.option("--list", "listing", is_flag=True, help="Show the names for --only.")
@json_option
@token_option
@store_options
def selftest(names: tuple[str, ...], *, live: bool, listing: bool, as_json: bool) -> None:
    """Attack your guards and report whether, when and by which detector each one trips.

    Simulates loops, errors, silence, overspending, dead and slow providers, policy violations,
    attempts at self-release and lock convoys with your configuration, in virtual time. A
    configured guard that cannot trip is a failure and comes with the reason. --live also tests
    the real hook command, store and loop runner, in temporary folders. Your files and stores
    are not changed. Exit code 0: every guard trips, 1: a guard cannot, 2: error.
    """
    from switchgear._analysis.selftest.live import LIVE
    from switchgear._analysis.selftest.plan import SCENARIOS

    known = {**SCENARIOS, **LIVE}
    if listing:
        for scenario in known.values():
            say(f"{scenario.name:16} {scenario.what}")
        return
    _check_names(names, list(known), live=live, only_live=set(LIVE))
    rows = list(_performed(names, live=live))
    bad = [row for row in rows if row.status == "failed"]
    if as_json:
        from switchgear._console.values import printed

        found = [{**row._asdict(), "after": row.after} for row in rows]
        say(printed({"exit_code": CANNOT_FIRE if bad else 0, "rows": found}))
    else:
        from switchgear._cli.views.analysis import show_selftest

        show_selftest(rows)
    if bad:
        raise SystemExit(CANNOT_FIRE)


def _check_names(
    names: tuple[str, ...], known: list[str], *, live: bool, only_live: set[str]
) -> None:
    import difflib

    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see --list"
            fail(f"--only is {name!r}: there is no such scenario; {hint}")
        if name in only_live and not live:
            fail(f"--only is {name!r}: it tests the real installation; add --live")


def _performed(names: tuple[str, ...], *, live: bool) -> Iterator["GuardRow"]:
    from switchgear._analysis.selftest.live import LIVE
    from switchgear._analysis.selftest.plan import SCENARIOS, perform, shielded
    from switchgear._hooks.session import TIME, WATCHED

    for name in (WATCHED, TIME):
        os.environ.pop(name, None)  # an enclosing run does not concern the attacked sessions
    bench = _bench()
    virtual = [name for name in SCENARIOS if not names or name in names]
    if virtual:
        yield from perform(bench, virtual)
    for name, scenario in LIVE.items():
        if live and (not names or name in names):
            for act in scenario.acts:
                yield from shielded(act, bench, name)


def _bench() -> "Bench":
    """The configuration, and the modes in the store; a missing store is not created."""
    from switchgear._analysis.selftest.sandbox import Bench
    from switchgear._cli.context import choose_store, load_chosen_config, read_token

    config = load_chosen_config()
    chosen = choose_store(config)
    return Bench(config, os.getcwd(), chosen.value, tuple(_held()), read_token())


def _held() -> Iterator[Any]:
    from switchgear._analysis.selftest.sandbox import StandingGuard
    from switchgear._cli.context import open_session
    from switchgear._core.types import Mode

    with open_session(reading=True) as session:
        for found in session.panel.store.find():
            circuit, order = found.circuit, found.circuit.order
            if circuit.mode is not Mode.AUTO:
                by, why = (order.by, order.why) if order else ("unknown", "")
                yield StandingGuard(circuit.key, circuit.mode, by, why)
