"""The read-only verbs `status`, `show`, `watch` and `events`."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from switchgear._breaker.views import View
from switchgear._cli.context import (
    ALL_EVENTS,
    Session,
    open_session,
    say_json,
    view_named,
    with_prefixes,
)
from switchgear._cli.options import (
    Since,
    circuit_argument,
    json_option,
    number,
    parse_since,
    reader_options,
    store_options,
)
from switchgear._cli.views.circuits import (
    Page,
    by_attention,
    event_line,
    summary,
    table,
    watch_lines,
    watch_screen,
)
from switchgear._cli.views.terminal import Screen
from switchgear._cli.views.text import clean, plural, say, warn
from switchgear._console.runs import run_status
from switchgear._console.sessions import stopped_words
from switchgear._console.sources import Sources
from switchgear._console.values import of_entry, of_page, of_view
from switchgear._core.errors import StoreError
from switchgear._stores.base import Entry
from switchgear._text.glob import literal


def _in_use(session: Session, views: list[View]) -> tuple[list[View], str, list[str]]:
    """Leave out the circuits of finished runs and ended sessions, unless an operator holds them.

    Returns the other circuits, a sentence about those left out, and a line for each active run.
    """
    hidden = Sources(session.panel, session.config, Path.cwd()).hidden()
    owners = {view.name: hidden.owner(view.name, view.circuit.mode) for view in views}
    left_out = {owner for owner in owners.values() if owner is not None}
    runs = sum(hidden.loops.get(owner, 0) for owner in left_out)
    ended = [hidden.sessions[owner] for owner in left_out if owner in hidden.sessions]
    parts = [f"{plural(runs, 'finished run')}: `switchgear runs`"] if runs else []
    if ended:
        count = f"{plural(len(ended), 'ended session')}{stopped_words(ended)}"
        parts.append(f"{count}: `switchgear sessions --all`")
    kept = [view for view in views if owners[view.name] is None]
    return kept, "; ".join(parts), [_run_line(run) for run in hidden.running]


def _run_line(run: dict[str, Any]) -> str:
    status, state = run_status(run), run.get("state")
    done = state.get("iterations") if isinstance(state, dict) else None
    number = f", iteration {done + 1}" if isinstance(done, int) and status == "running" else ""
    task = clean(" ".join(str(run.get("task")).split()), 60)
    return f"{status}: {run['id']}{number}, {clean(str(run.get('agent')), 20)}: {task}"


SHOWN = 50
"""Circuits in a table, unless more than that need attention; also events without --limit."""
FOLLOW_S = 0.5

glob_argument = circuit_argument("glob", default="*")


@click.command()
@glob_argument
@json_option
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"Also show finished runs, ended sessions, and more than {SHOWN} circuits without problems.",
)
@store_options
def status(glob: str, *, as_json: bool, everything: bool) -> None:
    """Show the circuits whose names match GLOB, open ones first.

    The symbol is ● closed or tripping, ◐ half-open, ○ open. HEAT is how close the evidence is to a
    trip, at most 100%. Without GLOB and --all, circuits of finished runs (`switchgear runs`) and of
    ended sessions (`switchgear sessions`) are not shown, unless an operator holds them.
    """
    with open_session(reading=True) as session:
        whole = everything or glob != "*"
        glob = with_prefixes(session, glob)
        views, error = session.read(glob)
        views, left_out, running = (views, "", []) if whole else _in_use(session, views)
        if as_json:
            say_json([of_view(view) for view in views])
        elif views:
            _draw(session, views, everything=everything)
            if left_out:
                say(left_out)
        elif error is None:
            say(f"No circuit is in use; {left_out}" if left_out else _none_found(session, glob))
        for line in running if not as_json else ():
            say(line)
    if error is not None:
        raise error


def _draw(session: Session, views: list[View], *, everything: bool) -> None:
    screen = Screen()
    ordered = by_attention(views)
    need_attention = sum(
        view.circuit.phase != "closed" or view.circuit.mode != "auto" or bool(view.isolated)
        for view in ordered
    )
    shown = ordered if everything else ordered[: max(SHOWN, need_attention)]
    for line in table(shown, screen.width, screen.signs):
        screen.console.print(line, soft_wrap=True)
    screen.line()
    rest = len(ordered) - len(shown)
    more = f"; {rest:,} more without problems (--all shows them)" if rest else ""
    screen.line(f"{summary(views)}{more} {screen.signs.dot} {clean(session.label)}", 2)


def _none_found(session: Session, glob: str) -> str:
    if glob != "*" and next(iter(session.panel.store.find()), None) is not None:
        return f"No circuit matches {clean(glob)!r}; 'switchgear status' shows all."
    return (
        f"No circuits yet in {clean(session.label)}.\n"
        "A circuit appears when a program guards its first call with a panel, or after\n"
        "  switchgear record provider/anthropic success"
    )


@click.command()
@circuit_argument()
@json_option
@click.option(
    "--events", "count", type=click.IntRange(0, 10_000), default=10, help="Show the last N events."
)
@store_options
def show(circuit: str, *, as_json: bool, count: int) -> None:
    """Show everything about one CIRCUIT: state, heat, evidence, policy, history.

    The start of the name, or of a session id, is enough if only one circuit matches.
    """
    with open_session(reading=True) as session:
        view = view_named(session, circuit)
        entries = session.panel.events(glob=literal(view.name), limit=count) if count else []
        if as_json:
            say_json(of_page(view, entries))
            return
        Page(Screen(), view, entries, session.now_s()).draw()


@click.command()
@glob_argument
@click.option(
    "--interval",
    type=number("seconds", above_zero=True),
    default=1.0,
    help="Update after this many seconds.",
)
@click.option("--times", type=click.IntRange(1), help="Exit after this many updates.")
@store_options
def watch(glob: str, *, interval: float, times: int | None) -> None:
    """Watch the circuits whose names match GLOB, live. q or Ctrl-C exits, with exit code 0.

    Without GLOB, what needs attention comes first, as on the page of `switchgear serve`: stopped
    sessions, open circuits, budgets that are nearly spent; each with its reason and what to do.

    If the output is not a terminal, a line is printed for each circuit that changes.

    While it runs, it also measures the silence of guarded sessions that no other process watches. It
    never stops an agent: if a circuit opens, the next hook of the session does.
    """
    screen = Screen()
    with open_session(reading=True) as session:
        drawn = screen.console.is_terminal and not screen.console.is_dumb_terminal
        show_updates = watch_screen if drawn else watch_lines
        try:
            show_updates(session, glob, screen, interval_s=interval, times=times)
        except KeyboardInterrupt:
            return


@click.command()
@glob_argument
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option(
    "--since",
    metavar="SPAN|TIME|CURSOR",
    help="Show events since then: 1h, 2026-11-15T10:00, or a cursor such as 1234.",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(0),
    help="Show at most this many events. [default: the newest 50]",
)
@reader_options
def events(glob: str, *, follow: bool, since: str | None, limit: int | None, as_json: bool) -> None:
    """Show what happened to the circuits whose names match GLOB, oldest first.

    With --json, prints one JSON object per line; --since accepts its "cursor".
    """
    with open_session(reading=True) as session:
        glob = with_prefixes(session, glob)
        begin = parse_since(since, session.now_s())
        print_entries = partial(_print, session, None if as_json else Screen())
        past = partial(_past_events, session, glob, begin, limit)
        if follow:
            _follow(session, glob, print_entries, past, begin)
        entries = past()
        print_entries(entries)
        session.raise_if_lost()
        if not entries and not as_json:
            say("No events.", err=True)


def _follow(
    session: Session,
    glob: str,
    print_entries: Callable[[list[Entry]], None],
    past: Callable[[], list[Entry]],
    begin: Since,
) -> NoReturn:
    """Print past events, then new ones. An unavailable store is reported once, then retried."""
    cursor, problem, has_begun = begin.cursor, "", False
    while True:
        session.reopen_if_created()
        try:
            # Read first: if no event matches yet, continue after the newest of all circuits.
            newest = session.panel.events(limit=1) if cursor is None else []
            entries = session.panel.events(after=cursor, glob=glob) if has_begun else past()
        except StoreError as error:
            if str(error) != problem:
                problem = str(error)
                warn(problem)
        else:
            problem = ""
            print_entries(entries)
            seen = entries or newest
            cursor = seen[-1].cursor if seen else cursor
            has_begun = True
        time.sleep(FOLLOW_S)


def _past_events(session: Session, glob: str, begin: Since, limit: int | None) -> list[Entry]:
    if begin.cursor is not None:
        most = ALL_EVENTS if limit is None else limit
        return session.panel.events(after=begin.cursor, glob=glob, limit=most) if most else []
    if begin.at_s is None:
        most = SHOWN if limit is None else limit
        return session.panel.events(glob=glob, limit=most) if most else []
    entries = session.panel.events(glob=glob, limit=ALL_EVENTS)
    found = [entry for entry in entries if entry.event.at_s >= begin.at_s]
    return found if limit is None else found[max(len(found) - limit, 0) :]


def _print(session: Session, screen: Screen | None, entries: list[Entry]) -> None:
    """Print events as lines of JSON, or on a screen."""
    for entry in entries:
        if screen is None:
            say_json(of_entry(entry), indent=None)
        else:
            screen.line(event_line(entry.event, session.now_s(), screen.signs), 10)
