"""`switchgear sessions`: lists the guarded agent sessions and their states."""

import os

import click
from rich.cells import cell_len
from rich.text import Text

from switchgear._cli.context import Session, open_session, say_json
from switchgear._cli.options import reader_options
from switchgear._cli.views.terminal import WIDE, Screen, column_widths, fitted, wrapped
from switchgear._cli.views.text import Signs, clean, clock_time, plural, say
from switchgear._console.sessions import ORDER, SessionRow, ordered, session_rows, stopped_words
from switchgear._stuck.messages import resume_command, what_next
from switchgear._text.formats import dollars

# Paths are strings, as in the stores.
# ruff: noqa: PTH119

SHOWN_ID, SHOWN_ID_OF_RUN = 13, 19
"""Characters of an id in the table: enough to distinguish ids that begin with the time, such as `run-20261119-065638`."""


def shown_id(session: str) -> str:
    """The beginning of an id, which other verbs accept."""
    return clean(session[: SHOWN_ID_OF_RUN if session.startswith("run-") else SHOWN_ID])


@click.command()
@click.option("--all", "everything", is_flag=True, help="Include ended sessions.")
@click.option(
    "--last", type=click.IntRange(1), metavar="N", help="Show only the newest N sessions."
)
@reader_options
def sessions(*, everything: bool, last: int | None, as_json: bool) -> None:
    """List the guarded agent sessions: agent, project, task, state, score, spend and last step.

    The score rates how stuck the agent appears, from 0 to 100; `switchgear show session/ID`
    explains it.

    States: working, struggling (warned), trying again (after a nudge or a fresh start), stopped,
    paused, idle (waiting for its user), ended. Stopped sessions come first.
    """
    with open_session(reading=True) as session:
        rows = session_rows(session.panel, everything=everything or last is not None)
        if last is not None:
            rows = sorted(rows, key=lambda row: row.heard_s)[-last:]
        if as_json:
            say_json([row._asdict() for row in rows])
        elif rows:
            _draw(session, ordered(rows))
        else:
            say(_none_active(session))


def _none_active(session: Session) -> str:
    ended = [row for row in session_rows(session.panel, everything=True) if row.state == "ended"]
    if not ended:
        return "No guarded sessions yet. Guard a coding agent: switchgear hooks install AGENT"
    count = f"{plural(len(ended), 'ended session')}{stopped_words(ended)}"
    return f"No guarded session is active; {count}: `switchgear sessions --all`."


_HEAD = ("SESSION", "AGENT", "STATE", "SCORE", "PROJECT", "SPENT", "SEEN")
_STATE, _SCORE = _HEAD.index("STATE"), _HEAD.index("SCORE")
_STYLES = {"stopped": "bold red", "struggling": "yellow", "trying again": "yellow"}
_SHORTENED = {4: 8, 1: 6}
"""Columns that are shortened on a narrow terminal, and how many characters stay."""


def _table(rows: list[SessionRow], now_s: float, width: int | None, signs: Signs) -> list[Text]:
    """The lines of the table. On a narrow terminal, the task, the last step and the score are below."""
    cells = [_cells(row, now_s) for row in rows]
    widths = column_widths([_HEAD, *cells], width, _SHORTENED)
    one_line = width is None or width >= WIDE
    shown = [*range(len(_HEAD))]
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        shown.remove(_SCORE)
    head = "  ".join(fitted(_HEAD[at], widths[at], signs) for at in shown)
    head = head + "  TASK AND LAST STEP" if one_line else head.rstrip()
    lines = wrapped(Text(head, "dim"), width, 2)
    for row, line_cells in zip(rows, cells, strict=True):
        line = Text()
        for at in shown:
            style = _STYLES.get(row.state, "") if at == _STATE else ""
            line.append("  " if at else "").append(fitted(line_cells[at], widths[at], signs), style)
        work = " > ".join(clean(text, 70) for text in (row.task, row.last_step) if text)
        if _SCORE not in shown:
            work = f"score {line_cells[_SCORE]}" + (f"; {work}" if work else "")
        if one_line:
            indent = cell_len(line.plain) + 2
            lines += wrapped(line.append(f"  {work}"), width, indent)
            continue
        lines += wrapped(line, width, 2)
        lines += wrapped(Text(f"  {signs.corner} {work}", "dim"), width, 4) if work else []
    return lines


def _cells(row: SessionRow, now_s: float) -> tuple[str, ...]:
    return (
        shown_id(row.id),
        clean(row.agent, 20),
        row.state,
        f"{row.score['points']:.0f}",
        clean(os.path.basename(row.project.rstrip("/")), 40),
        "unknown" if row.spent_micros is None else dollars(row.spent_micros),
        clock_time(row.heard_s, now_s),
    )


def _draw(session: Session, rows: list[SessionRow]) -> None:
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
            what = f"was stopped at {at}" if at else "is stopped"
            lines = what_next(shown_id(row.id), escalate=escalate, again=again, reason=row.reason)
        else:
            what = f"was stopped at {at} and has ended" if at else "was stopped and has ended"
            lines = (f"continue it with a new message: {again}",) if again else ()
        screen.line()
        screen.line(f"{shown_id(row.id)} {what}: {clean(row.reason, 500)}", 2)
        for line in lines:
            screen.line(f"  - {line}", 4)
    screen.line()
    counts = ", ".join(
        f"{sum(row.state == state for row in rows)} {state}"
        for state in ORDER
        if any(row.state == state for row in rows)
    )
    screen.line(f"{plural(len(rows), 'session')}: {counts}", 2)
