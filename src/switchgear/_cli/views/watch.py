"""`switchgear watch`: the table of circuits, drawn again and again, or lines where things change.

A store that cannot be read is told on the screen, and watching goes on: whoever watches wants to
see it come back.
"""

import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.live import Live
from rich.text import Text

from switchgear._breaker.views import View
from switchgear._cli.context import Session
from switchgear._cli.views.circuits import by_trouble, detail_of, event_line, lamp, summary, table
from switchgear._cli.views.terminal import Screen, fitted, wrapped
from switchgear._cli.views.text import clean, clock_time, say
from switchgear._core.errors import StoreError
from switchgear._hooks.session import Notes, note_name
from switchgear._hooks.session_check import Look, Rounds, at_work, look_for_a_watcher


def rounds_of(session: Session) -> Callable[[], None]:
    """A function to be called now and then, which never waits."""

    def look(name: str) -> Look:
        store = session.panel.store
        found = store.get(note_name(name))
        if found is None:
            return Look(Notes(), known=False)
        return look_for_a_watcher(session, name, found.policy)

    rounds = Rounds(look, find=lambda: at_work(session.panel.store))
    return lambda: rounds.tick(time.monotonic())


EVENTS = 5
"""Newest events below the table."""
TERMINATED = 143


def watch_screen(
    session: Session, glob: str, screen: Screen, *, interval_s: float, times: int | None
) -> None:
    """Draw the table on the alternate screen until q, Ctrl-C or so many looks."""
    make_rounds = rounds_of(session)
    with (
        _keys() as pressed,
        Live(console=screen.console, screen=True, auto_refresh=False, transient=True) as live,
    ):
        while True:
            make_rounds()
            live.update(_picture(session, glob, screen), refresh=True)
            if times is not None:
                times -= 1
                if not times:
                    return
            if pressed(interval_s) in {"q", "Q", "\x1b", "\x04"}:
                return


def watch_lines(
    session: Session, glob: str, screen: Screen, *, interval_s: float, times: int | None
) -> None:
    """Print a line for each circuit whose standing changes, the first look included."""
    known: dict[str, tuple[Any, ...]] = {}
    trouble = ""
    make_rounds = rounds_of(session)
    while True:
        make_rounds()
        session.look_again()
        views, error = session.read(glob)
        before, trouble = trouble, "" if error is None else str(error)
        if trouble and trouble != before:
            say(f"switchgear: {clean(trouble, 1000)}", err=True)
        for view in by_trouble(views):
            standing = (view.circuit.phase, view.circuit.mode, view.circuit.outage.opened_at_s)
            if known.get(view.name) != standing:
                known[view.name] = standing
                screen.line(_changed(view, session.now_s(), screen))
        screen.console.file.flush()
        if times is not None:
            times -= 1
            if not times:
                return
        time.sleep(interval_s)


def _changed(view: View, now_s: float, screen: Screen) -> Text:
    line = Text.assemble(clock_time(now_s, now_s), "  ", lamp(view, screen.signs), "  ")
    line.append(clean(view.name, 1000))
    detail = detail_of(view)
    return line.append(f"  {detail}") if detail else line


def _picture(session: Session, glob: str, screen: Screen) -> Text:
    """The whole screen, as high and wide as the terminal is now."""
    width, height = screen.width or 80, max(screen.console.height, 5)
    session.look_again()
    views, error = session.read(glob)
    warning = [] if error is None else wrapped(Text(clean(str(error), 1000), "bold red"), width, 2)
    try:
        entries = session.panel.events(glob=glob, limit=EVENTS)
    except StoreError as gone:
        lines = warning or wrapped(Text(clean(str(gone), 1000), "bold red"), width, 2)
        lines.append(Text("trying again", "dim"))
        return Text("\n").join(lines[:height])
    now_s = session.now_s()
    views = by_trouble(views)
    head = wrapped(Text(summary(views) if views else "no circuits yet", "bold"), width, 2)
    head.extend(warning)
    where = f"{clock_time(now_s, now_s)} {screen.signs.dot} {clean(session.label)}"
    head.append(Text(fitted(where, width, screen.signs).rstrip(), "dim"))
    head.append(Text())
    recent = [
        _one_line(event_line(entry.event, now_s, screen.signs), width, screen)
        for entry in reversed(entries)
    ]
    recent = [Text(), Text("Newest events", "bold"), *recent] if recent and height > 15 else []
    foot = [Text(), Text("q ends", "dim")]
    room = max(height - len(head) - len(recent) - len(foot), 1)
    rows = table(views[:room], width, screen.signs) if views else []
    if len(rows) > room:
        rows = [*rows[: room - 1], Text(f"{screen.signs.dots} more below", "dim")]
    return Text("\n").join([*head, *rows, *recent, *foot][:height])


def _one_line(text: Text, width: int, screen: Screen) -> Text:
    lines = wrapped(text, width - len(screen.signs.dots), 0)
    return lines[0] if len(lines) == 1 else lines[0].append(screen.signs.dots)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key; the terminal is as it was afterwards, whatever happens."""

    def end(*_: object) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        if not sys.stdin.isatty():
            yield _sleep
            return
        import termios  # noqa: PLC0415  not on every system
        import tty  # noqa: PLC0415

        settings = termios.tcgetattr(sys.stdin)
        try:
            tty.setcbreak(sys.stdin)
            yield _key
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)
    finally:
        signal.signal(signal.SIGTERM, before)


def _key(wait_s: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return sys.stdin.read(1) if ready else ""


def _sleep(wait_s: float) -> str:
    time.sleep(wait_s)
    return ""
