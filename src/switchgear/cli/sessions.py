"""`switchgear sessions`: every guarded agent conversation, and how it stands."""

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from switchgear.cli.options import json_option, store_options
from switchgear.cli.text import clean, clock_time, plural, say
from switchgear.core.money import dollars

if TYPE_CHECKING:
    from switchgear.cli.opening import Session
    from switchgear.hooks.sessions import Notes
    from switchgear.stores.base import Found

# What a verb needs is imported when it is used; paths are texts, as in the stores.
# ruff: noqa: PLC0415, PTH119

PREFIX = "session/"
SHOWN_ID = 13
"""Characters of an id in the table: enough to tell ids apart that begin with the time."""


class SessionRow(NamedTuple):
    """One session, ready to be shown."""

    id: str
    agent: str
    project: str
    task: str
    state: str
    reason: str
    """Why it is stopped or struggling, or was stopped when it ended; empty: it is neither."""
    since_s: float | None
    """When it was stopped, in seconds since the epoch."""
    heat: float
    spent_micros: int | None
    last_step: str
    heard_s: float
    """When its last event arrived."""


@click.command(short_help="Guarded agent sessions: who works, who is stopped, and why.")
@click.option("--all", "everything", is_flag=True, help="Include ended sessions.")
@click.option(
    "--last", type=click.IntRange(1), metavar="N", help="Show only the newest N sessions."
)
@json_option
@store_options
def sessions(*, everything: bool, last: int | None, as_json: bool) -> None:
    """List the guarded agent sessions: agent, project, task, state, spend and last step.

    States: working, struggling (warned), trying again (after a nudge or a fresh start), stopped,
    paused, idle (waiting for its user), ended. Stopped sessions come first.
    """
    from switchgear.cli.opening import open_session

    with open_session(reading=True) as session:
        rows = session_rows(session, everything=everything or last is not None)
        if last is not None:
            rows = sorted(rows, key=lambda row: row.heard_s)[-last:]
        if as_json:
            from switchgear.cli.values import printed

            say(printed([row._asdict() for row in rows]))
            return
        if not rows:
            ended = [row for row in session_rows(session, everything=True) if row.state == "ended"]
            count = f"{plural(len(ended), 'ended session')}{stopped_words(ended)}"
            more = f"; {count}: `switchgear sessions --all`" if ended else ", and none has ended"
            say(f"No guarded session is active{more}.")
            return
        _draw(session, _ordered(rows))


def session_rows(session: "Session", *, everything: bool) -> list[SessionRow]:
    """The sessions of the store, sub-agents left out; ended ones only with `everything`."""
    now_s = session.now_s()
    rows = [
        _row(found, _notes(session, found.circuit.key), now_s)
        for found in session.panel.store.find(f"{PREFIX}*")
        if "/" not in found.circuit.key.removeprefix(PREFIX)
    ]
    return [row for row in rows if everything or row.state != "ended"]


def stopped_words(ended: "list[SessionRow]") -> str:
    """How many of the ended sessions were stopped, as the end of a phrase; empty: none."""
    count = sum(bool(row.reason) for row in ended)
    return f", {count} of them stopped" if count else ""


def _notes(session: "Session", name: str) -> "Notes":
    from switchgear.hooks.sessions import Notes

    return session.panel.store.transact(name, lambda tx: Notes.load(tx.note))


def _row(found: "Found", notes: "Notes", now_s: float) -> SessionRow:
    from switchgear.hooks import sessions as guarded
    from switchgear.hooks.watching import gone_after_s

    circuit, policy = found.circuit, found.policy
    state = guarded.state_of(notes, circuit)
    heard_s = notes.heard_s or circuit.seen_s
    if now_s - heard_s >= gone_after_s(policy) and not guarded.is_watched(notes):
        state = guarded.State.ENDED  # its end was never reported
    stopped = state in {guarded.State.STOPPED, guarded.State.ENDED} and guarded.is_stopped(circuit)
    heat = min(1.0, policy.heat(circuit.memories, max(now_s, circuit.seen_s)))
    reason = ""
    if stopped:
        reason = circuit.outage.reason or (circuit.order.why if circuit.order else "")
    elif state in {guarded.State.STRUGGLING, guarded.State.TRYING_AGAIN}:
        reason = policy.reason(circuit.memories, max(now_s, circuit.seen_s))
    return SessionRow(
        circuit.key.removeprefix(PREFIX),
        notes.agent or "agent",
        notes.project,
        notes.task,
        str(state),
        reason,
        circuit.outage.opened_at_s if stopped and circuit.outage.opened_at_s else None,
        heat,
        notes.spent_micros,
        notes.last_step,
        heard_s,
    )


_ORDER = ("stopped", "trying again", "struggling", "paused", "working", "idle", "ended")


def _ordered(rows: list[SessionRow]) -> list[SessionRow]:
    return sorted(rows, key=lambda row: (_ORDER.index(row.state), -row.heard_s))


def _draw(session: "Session", rows: list[SessionRow]) -> None:
    from rich.table import Table
    from rich.text import Text

    from switchgear.cli.screen import Screen
    from switchgear.hooks.texts import resume_command, what_next

    screen, now_s = Screen(), session.now_s()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("SESSION", "AGENT", "STATE"):
        table.add_column(head, no_wrap=True)
    table.add_column("PROJECT", no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column("SPENT", justify="right", no_wrap=True)
    table.add_column("SEEN", no_wrap=True)
    table.add_column("TASK AND LAST STEP", overflow="fold", ratio=1)
    styles = {"stopped": "bold red", "struggling": "yellow", "trying again": "yellow"}
    for row in rows:
        work = " > ".join(clean(text, 70) for text in (row.task, row.last_step) if text)
        table.add_row(
            *(Text(clean(row.id[:SHOWN_ID])), Text(clean(row.agent, 20))),
            Text(row.state, styles.get(row.state, "")),
            Text(clean(os.path.basename(row.project.rstrip("/")), 24)),
            Text("unknown" if row.spent_micros is None else dollars(row.spent_micros)),
            *(Text(clock_time(row.heard_s, now_s)), Text(work)),
        )
    screen.console.print(table)
    escalate = session.config.interventions.escalate is not None
    for row in rows:
        if not row.reason or row.state not in {"stopped", "ended"}:
            continue
        at = "" if row.since_s is None else clock_time(row.since_s, now_s)
        again = resume_command(row.agent, row.id)
        if row.state == "stopped":
            what = f"is stopped since {at}" if at else "is stopped"
            lines = what_next(row.id[:SHOWN_ID], escalate=escalate, again=again)
        else:
            what = f"was stopped at {at} and has ended" if at else "was stopped and has ended"
            lines = (f"continue it with a new message: {again}",) if again else ()
        screen.line()
        screen.line(f"{clean(row.id[:SHOWN_ID])} {what}: {clean(row.reason, 500)}", 2)
        for line in lines:
            screen.line(f"  - {line}", 4)
    screen.line()
    counts = ", ".join(
        f"{sum(row.state == state for row in rows)} {state}"
        for state in _ORDER
        if any(row.state == state for row in rows)
    )
    screen.line(f"{plural(len(rows), 'session')}: {counts}", 2)
