"""`switchgear sessions`: every guarded agent conversation, and how it stands."""

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from switchgear._cli.options import json_option, store_options
from switchgear._cli.views.text import clean, clock_time, plural, say
from switchgear._text.money import dollars

if TYPE_CHECKING:
    from rich.text import Text

    from switchgear._cli.context import Session
    from switchgear._cli.views.text import Signs
    from switchgear._hooks.session import Notes
    from switchgear._stores.base import StoredCircuit

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


@click.command(short_help="List guarded agent sessions, stopped ones first.")
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
    from switchgear._cli.context import open_session

    with open_session(reading=True) as session:
        rows = session_rows(session, everything=everything or last is not None)
        if last is not None:
            rows = sorted(rows, key=lambda row: row.heard_s)[-last:]
        if as_json:
            from switchgear._cli.json_values import printed

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
    if count == len(ended) == 1:
        return ", which was stopped"
    return f", {count} of them stopped" if count else ""


def _notes(session: "Session", name: str) -> "Notes":
    from switchgear._hooks.session import Notes

    return session.panel.store.transact(name, lambda tx: Notes.load(tx.note))


def _row(found: "StoredCircuit", notes: "Notes", now_s: float) -> SessionRow:
    from switchgear._core.types import Mode
    from switchgear._hooks import session as guarded
    from switchgear._hooks.session_check import gone_after_s
    from switchgear._stuck.messages import HELD

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
        if circuit.mode is Mode.HELD_OPEN and circuit.order is not None:
            reason = f"{HELD} by {circuit.order.by}: {circuit.order.why}"
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


_HEAD = ("SESSION", "AGENT", "STATE", "PROJECT", "SPENT", "SEEN")
_STYLES = {"stopped": "bold red", "struggling": "yellow", "trying again": "yellow"}
_SHORTENED = {3: 8, 1: 6}
"""Columns that lose their middle on a narrow terminal, and how many characters stay."""


def _table(rows: list[SessionRow], now_s: float, width: int | None, signs: "Signs") -> "list[Text]":
    """The lines of the table: the task and the last step stand below, or behind if there is room."""
    from rich.cells import cell_len
    from rich.text import Text

    from switchgear._cli.views.terminal import WIDE, fitted, wrapped

    cells = [_cells(row, now_s) for row in rows]
    widths = [max(cell_len(row[at]) for row in (_HEAD, *cells)) for at in range(len(_HEAD))]
    for at, least in _SHORTENED.items():
        over = 0 if width is None else sum(widths) + 2 * (len(widths) - 1) - width
        widths[at] = max(min(widths[at], least), widths[at] - max(over, 0))
    one_line = width is None or width >= WIDE
    head = "  ".join(fitted(cell, size, signs) for cell, size in zip(_HEAD, widths, strict=True))
    head = head + "  TASK AND LAST STEP" if one_line else head.rstrip()
    lines = wrapped(Text(head, "dim"), width, 2)
    for row, line_cells in zip(rows, cells, strict=True):
        line = Text()
        for at, (cell, size) in enumerate(zip(line_cells, widths, strict=True)):
            style = _STYLES.get(row.state, "") if at == _HEAD.index("STATE") else ""
            line.append("  " if at else "").append(fitted(cell, size, signs), style)
        work = " > ".join(clean(text, 70) for text in (row.task, row.last_step) if text)
        if one_line:
            indent = cell_len(line.plain) + 2
            lines += wrapped(line.append(f"  {work}"), width, indent)
            continue
        lines += wrapped(line, width, 2)
        lines += wrapped(Text(f"  {signs.corner} {work}", "dim"), width, 4) if work else []
    return lines


def _cells(row: SessionRow, now_s: float) -> tuple[str, ...]:
    return (
        clean(row.id[:SHOWN_ID]),
        clean(row.agent, 20),
        row.state,
        clean(os.path.basename(row.project.rstrip("/")), 40),
        "unknown" if row.spent_micros is None else dollars(row.spent_micros),
        clock_time(row.heard_s, now_s),
    )


def _draw(session: "Session", rows: list[SessionRow]) -> None:
    from switchgear._cli.views.terminal import Screen
    from switchgear._stuck.messages import resume_command, what_next

    screen, now_s = Screen(), session.now_s()
    for drawn in _table(rows, now_s, screen.width, screen.signs):
        screen.console.print(drawn, soft_wrap=True)
    escalate = session.config.interventions.escalate is not None
    for row in rows:
        if not row.reason or row.state not in {"stopped", "ended"}:
            continue
        at = "" if row.since_s is None else clock_time(row.since_s, now_s)
        again = resume_command(row.agent, row.id)
        if row.state == "stopped":
            what = f"is stopped since {at}" if at else "is stopped"
            lines = what_next(row.id[:SHOWN_ID], escalate=escalate, again=again, reason=row.reason)
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
