"""`switchgear backtest`: what a policy would have done with sessions that are recorded already."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from switchgear._cli.entry import fail
from switchgear._cli.options import json_option, store_options
from switchgear._cli.views.progress import progress
from switchgear._cli.views.text import clean, plural, say

if TYPE_CHECKING:
    from switchgear._analysis.backtest.findings import Found
    from switchgear._analysis.backtest.replay import Row
    from switchgear._cli.views.progress import Report

# ruff: noqa: PLC0415  what a verb needs is imported when it is used

DEFAULT = "ledger"
NOTHING_READ = 3
"""The exit code when no run was found in what was given."""
FORMATS = (
    *("claude", "codex", "gemini", "qwen", "opencode", "pi", "openhands", "swe-agent"),
    *("mini-swe-agent", "otel", "switchgear", "plain"),
)


@click.command(short_help="What a policy would have done with recorded sessions.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--policy", metavar="NAME|FILE", help="What judges [default: the preset ledger].")
@click.option(
    "--compare",
    metavar="NAME|FILE",
    multiple=True,
    help="Another policy, side by side. Repeatable.",
)
@click.option(
    "--format",
    "force",
    metavar="NAME",
    type=click.Choice(FORMATS),
    help=f"Force this input format: {', '.join(FORMATS)}.",
)
@click.option(
    "--outcomes", metavar="FILE", help="Which runs were solved: JSON of ids and true/false."
)
@click.option("--html", metavar="FILE", help="Write a report with a picture for each run.")
@click.option(
    "--pictures",
    type=click.IntRange(0, 2000),
    default=100,
    show_default=True,
    help="Runs drawn in the report: false stops first, then what saves most.",
)
@click.option(
    "--limit",
    type=click.IntRange(0, 100_000),
    default=10,
    show_default=True,
    help="Stopped runs shown in the terminal.",
)
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes [default: one for each core].")
@click.option("--live", is_flag=True, help="Instead of files: the circuits in shadow mode.")
@json_option
@store_options
def backtest(  # noqa: PLR0917  click passes them by name
    paths: tuple[str, ...],
    policy: str | None,
    compare: tuple[str, ...],
    force: str | None,
    outcomes: str | None,
    html: str | None,
    pictures: int,
    limit: int,
    jobs: int | None,
    *,
    live: bool,
    as_json: bool,
) -> int:
    """Replay recorded sessions: where a policy would have warned and tripped, and what it saves.

    PATH is a file or a folder: transcripts of Claude Code, rollouts of Codex, chats of Gemini CLI
    and Qwen Code, sessions of OpenCode and pi, trajectories of OpenHands, SWE-agent and
    mini-swe-agent, OpenTelemetry GenAI spans, runs of `switchgear run`, and a plain JSONL
    (docs/backtest.md). The format is told by the content; what is not understood is counted.

    A policy is a preset, a policy of the configuration, or a file: FILE or FILE#NAME. A file
    that ends in .py is a Python module with a `Policy`; it is run.

    Exit code 0: done; 2: bad input; 3: no run was found.
    """
    from switchgear._analysis.backtest.findings import Found

    if live and paths:
        fail("--live looks at circuits and takes no PATH")
    if not live and not paths:
        return _say_where()
    names = [policy or DEFAULT, *compare]
    if len(set(names)) < len(names):
        fail("--policy and --compare name the same policy twice")
    check_paths(paths)
    check_folder("--html", html)
    found = Found(pictures if html else 0)
    found.noun = "circuit" if live else "run"
    with progress("replaying recordings", hidden=as_json or live) as tell:
        reading = Reading(force, outcomes, jobs, tell)
        for row in _live() if live else _recorded(found, paths, names, reading):
            found.add(row)
    if html is not None:
        _write(html, found)
    _show(found, limit, html, as_json=as_json)
    return 0 if found.runs else NOTHING_READ


def check_paths(paths: tuple[str, ...]) -> None:
    """Refuse a path that is not there: it is a typing error."""
    for path in paths:
        if not Path(path).exists():
            fail(f"{path!r}: there is no such file or folder")


def check_folder(option: str, path: str | None) -> None:
    """Refuse a file whose folder is not there, before any work is done for it."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        fail(f"{option} {path!r}: the folder that it is to be in is not there")


class Reading(NamedTuple):
    """How the recordings are read."""

    force: str | None
    outcomes: str | None
    jobs: int | None
    progress: "Report | None" = None


def _recorded(
    found: "Found", paths: tuple[str, ...], names: list[str], reading: Reading
) -> "Iterator[Row]":
    from switchgear._analysis.backtest.engine import Judging, Recordings, each_run, read_outcomes
    from switchgear._cli.policy_choice import chosen

    policies = tuple(chosen(text, code=True) for text in names)
    read = Recordings(
        paths,
        {} if reading.outcomes is None else read_outcomes(reading.outcomes),
        reading.force,
        reading.jobs,
        reading.progress,
    )
    found.judged_by(policies)
    return each_run(read, Judging(policies, pictures=found.pictures > 0).row, found.tally)


def _live() -> "Iterator[Row]":
    from switchgear._analysis.backtest.findings import shadow_row
    from switchgear._cli.context import literal, open_session
    from switchgear._cli.status import EVERYTHING

    with open_session(reading=True) as session:
        views, trouble = session.read("*")
        for view in views:
            entries = session.panel.events(glob=literal(view.name), limit=EVERYTHING)
            row = shadow_row(view, (entry.event for entry in entries), session.label)
            if row is not None:
                yield row
        if trouble is not None:
            raise trouble


def _show(found: "Found", limit: int, html: str | None, *, as_json: bool) -> None:
    if as_json:
        from switchgear._analysis.backtest.findings import as_values
        from switchgear._cli.json_values import printed

        say(printed(as_values(found)))
        return
    from switchgear._cli.views.backtest_table import show_backtest
    from switchgear._cli.views.screen import Screen

    screen = Screen()
    show_backtest(screen, found, limit)
    if html is not None:
        screen.line(f"report: {clean(html, 1000)}")


def _write(path: str, found: "Found") -> None:
    from switchgear._report.backtest_page import page
    from switchgear._report.run_page import put_in_place

    put_in_place(path, page(found))


def _say_where() -> int:
    """Nothing was given: what could be, and where the agents of this machine keep theirs."""
    from switchgear._agents.recordings.discovery import usual_places

    say("switchgear: give a file or folder with recorded sessions, for example:", err=True)
    places = usual_places()
    for line in _places(places):
        say(f"  {line}", err=True)
    if not places:
        say("  (no agent's sessions were found in the usual places)", err=True)
    say("Try 'switchgear backtest --help'.", err=True)
    return 2


def _places(places: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    found = list(places)
    width = max((len(place) for _, place, _ in found), default=0)
    for name, place, files in found:
        yield f"switchgear backtest {place:{width}}  # {name}, {plural(files, 'file')}"
    if not found:
        yield "switchgear backtest ~/.claude/projects"
        yield "switchgear backtest runs.jsonl"
