"""Budgets, locks and routes move with `export` and `import`: whole, once, and only if they add up."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from switchgear._cli import main
from switchgear._cli.export import export_lines
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import agent, crew
from switchgear._panel.panel import Panel
from switchgear.testing import FakeClock

NOW_S = 1_000_000.0


def run(panel: Panel, *args: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, args, obj=panel, input=given)


def filled(clock: FakeClock) -> Panel:
    panel = Panel("memory:", clock=clock)
    panel.budgets.open("atlas", 1000)
    panel.budgets.open("atlas/w", 400)
    panel.budgets.reserve("atlas/w", 100).settle(30)
    panel.lock("press", owner="ada").acquire()
    return panel


def lines_of(panel: Panel, glob: str = "*") -> str:
    return "\n".join(export_lines(panel, glob))


def empty(clock: FakeClock, tmp_path: Path) -> Panel:
    return Panel(f"sqlite:///{tmp_path}/state.db", clock=clock)


def test_an_imported_reservation_is_settled_and_its_account_continues(tmp_path: Path) -> None:
    clock = FakeClock(NOW_S)
    there = filled(clock)
    taken = there.budgets.reserve("atlas/w", 200, owner="coder")
    with empty(clock, tmp_path) as here:
        done = run(here, "import", "-", given=lines_of(there))
        assert done.output.splitlines()[1] == (
            "2 accounts imported, 0 kept unchanged (those in the store are as new or newer, or are others)"
        )
        assert lines_of(here) == lines_of(there)
        assert here.budgets.settle(taken.path, 150) == 150
        assert here.budgets.audit("atlas") == ("atlas", here.budgets.book("atlas").lines, 180, ())


def test_a_lock_has_a_higher_token_after_it_moved_and_its_holder_still_has_it(
    tmp_path: Path,
) -> None:
    clock = FakeClock(NOW_S)
    there = filled(clock)
    with empty(clock, tmp_path) as here:
        here.lock("press").acquire()  # a first token of its own
        clock.advance(61.0)
        there.lock("press", owner="bob").acquire()
        assert run(here, "import", "-", given=lines_of(there)).exit_code == 0
        [seen] = here.locks.all()
        assert (seen.tenure.token, seen.tenure.holder and seen.tenure.holder.owner) == (2, "bob")
        clock.advance(61.0)
        assert here.lock("press").acquire() == 3


def test_routes_of_agents_are_exported_and_imported() -> None:
    clock = FakeClock(NOW_S)
    people = crew(
        [
            agent(name="coder", owner="ana", provider="p", model="m", fallback_models=["q/n"]),
        ]
    )
    there, here = (Fleet.open("memory:", people, clock=clock) for _ in range(2))
    there.panel.breaker("provider/p").hold_open(by="ana", why="down")
    there.call("coder", str)
    assert run(here.panel, "import", "-", given=lines_of(there.panel)).exit_code == 0
    assert here.standings() == there.standings() != {}
    assert here.switches("coder") == there.switches("coder")


def test_newer_exported_accounts_are_imported_and_newer_stored_ones_are_kept(
    tmp_path: Path,
) -> None:
    clock = FakeClock(NOW_S)
    there = filled(clock)
    before = lines_of(there, "budget/*")
    with empty(clock, tmp_path) as here:
        run(here, "import", "-", given=before)
        there.budgets.charge("atlas", 70)
        assert "1 account imported" in run(here, "import", "-", given=lines_of(there, "b*")).output
        assert here.budgets.audit("atlas").charged_micros == 100
        assert here.budgets.audit("atlas").problems == ()
        assert "0 accounts imported, 1 kept" in run(here, "import", "-", given=before).output
        here.budgets.charge("atlas", 1)
        there.budgets.charge("atlas", 2)
        there.budgets.charge("atlas", 2)
        assert (
            "0 accounts imported, 1 kept"
            in run(here, "import", "-", given=lines_of(there, "b*")).output
        )
        assert here.budgets.audit("atlas").charged_micros == 101, "another account is not mixed in"


@pytest.mark.parametrize(
    ("glob", "shelves"),
    [
        ("budget/atlas", ["budget"]),
        ("lock/*", ["lock"]),
        ("*", ["budget", "lock"]),
        ("provider/*", []),
    ],
)
def test_a_glob_chooses_accounts_by_their_names(glob: str, shelves: list[str]) -> None:
    lines = map(json.loads, lines_of(filled(FakeClock(NOW_S)), glob).splitlines())
    assert [line["shelf"] for line in lines if line.get("type") == "account"] == shelves


def changed(at: int, **fields: Any) -> str:
    """An export of a budget and a lock in which line number `at` (from 0) is changed."""
    lines = lines_of(filled(FakeClock(NOW_S)), "[bl]*").splitlines()
    found = [line for line in lines if '"circuit"' not in line]
    found[at] = json.dumps({**json.loads(found[at]), **fields})
    return "\n".join(found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (changed(2, line=[1, NOW_S, "opened", "atlas", 999]), "does not add up: 'atlas' has limit"),
        (changed(2, line=[1, NOW_S, "opened", "atlas", -1]), "amount_micros is -1"),
        (changed(2, line=[1, NOW_S, "opened", "atlas", 1000.0]), "amount_micros is 1000.0"),
        (changed(2, line="x"), "line is 'x': it must be a list"),
        (changed(1, key="atlas/w"), "it must be a root"),
        (changed(1, key="other"), "the node 'atlas' is of another tree"),
        (changed(1, shelf="purse"), "its shelf is 'purse': it must be one of budget, lock, fleet"),
        (changed(1, value=None), "it has no value"),
        (changed(1, type="line", line=[]), "a line that comes before its account"),
        (changed(-1, shelf="budget"), "line 8: the budgets cannot be read"),
        (changed(0) + "\n" + changed(0).splitlines()[-1], "the lock 'press' occurs twice"),
        (changed(0) + '\n{"type":"line","line":[]}', "locks have none"),
    ],
)
def test_incomplete_accounts_are_reported_and_nothing_is_written(given: str, message: str) -> None:
    here = Panel("memory:", clock=FakeClock(NOW_S))
    done = run(here, "import", "-", given=given)
    assert done.exit_code == 2
    assert "nothing was imported from -" in done.stderr
    assert message in done.stderr
    assert here.budgets.roots() == []
    assert here.locks.all() == []
