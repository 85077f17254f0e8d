"""Circuits in the terminal: the tables of `status` and `watch`, the page of `show`, lines of events."""

import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

from rich.cells import cell_len
from rich.live import Live
from rich.text import Text

from switchgear._breaker.views import IsolatedView, View
from switchgear._cli.context import Session
from switchgear._cli.views.terminal import NARROW, WIDE, Screen, fitted, wrapped
from switchgear._cli.views.text import Signs, bar, clean, clock_time, plural, warn, words
from switchgear._console.values import heat_of
from switchgear._core.errors import StoreError
from switchgear._core.types import Event, EventKind, Mode, Phase
from switchgear._core.wire import detector_names
from switchgear._detectors.policy_wire import dump_policy
from switchgear._hooks.session import Notes, note_name
from switchgear._hooks.session_check import (
    CheckResult,
    SessionChecks,
    active_sessions,
    check_unwatched_session,
)
from switchgear._sinks.log import override_words
from switchgear._stores.base import Entry
from switchgear._stuck.score import evidence_score, score_of
from switchgear._text.formats import dollars, duration, percent

if TYPE_CHECKING:
    from switchgear._console.sources import Sources

STYLES = {
    Phase.CLOSED: "green",
    Phase.TRIPPING: "yellow",
    Phase.OPEN: "bold red",
    Phase.HALF_OPEN: "yellow",
}
_PHASE_ORDER = {Phase.OPEN: 0, Phase.HALF_OPEN: 1, Phase.TRIPPING: 2, Phase.CLOSED: 3}
_COUNTS = ("OK", "FAILED", "REFUSED")
_ROW_BAR = 8
_LONGEST_PADDED = 120
_HEAT_WIDTH = _ROW_BAR + 5


class TableRow(NamedTuple):
    lamp: Text
    name: str
    tag: str
    heat: float
    score: str
    """The score of a session, shown instead of the heat; empty: not a session."""
    counts: tuple[str, ...]
    detail: str
    calm: bool


def by_attention(views: Iterable[View]) -> list[View]:
    """The circuits in the order of attention: held open, open, half-open, tripping, held otherwise, isolated processes, heat."""
    return sorted(
        views,
        key=lambda view: (
            view.circuit.mode is not Mode.HELD_OPEN,
            _PHASE_ORDER[view.circuit.phase],
            view.circuit.mode is Mode.AUTO,
            not view.isolated,
            -heat_of(view),
            view.name,
        ),
    )


def table(views: Sequence[View], width: int | None, signs: Signs) -> list[Text]:
    rows = [_row(view, signs) for view in views]
    if width is not None and width < NARROW:
        return [line for row in rows for line in _narrow(row, width, signs)]
    widths = [
        max(len(head), *(len(row.counts[column]) for row in rows))
        for column, head in enumerate(_COUNTS)
    ]
    longest = max(cell_len(row.name + row.tag) for row in rows)
    # In a pipe no name is cut, and a very long name does not widen the columns of the others.
    name_width = max(longest if width is not None else min(longest, _LONGEST_PADDED), 7)
    one_line = width is None or width >= WIDE
    if width is not None:
        taken = 13 + 2 + _HEAT_WIDTH + sum(2 + count for count in widths)
        name_width = min(name_width, width // 3 if one_line else width - taken)
    heads = "".join(f"  {label:>{width}}" for label, width in zip(_COUNTS, widths, strict=True))
    head = f"{'STATE':13}{'CIRCUIT':{name_width}}  {'HEAT':{_HEAT_WIDTH}}{heads}"
    lines = [Text(head + ("  DETAIL" if one_line else ""), "dim")]
    for row in rows:
        uncut = max(name_width, cell_len(row.name + row.tag)) if width is None else name_width
        line = _line(row, uncut, widths, signs)
        detail = [] if not row.detail else _detail(row, line, width, signs, one_line=one_line)
        lines += detail or [line]
    return lines


def summary(views: Sequence[View]) -> str:
    """`3 circuits: 1 open, 2 closed`."""
    phases = Counter(view.circuit.phase for view in views)
    parts = [f"{phases[phase]:,} {words(phase)}" for phase in _PHASE_ORDER if phases[phase]]
    held = sum(view.circuit.mode is not Mode.AUTO for view in views)
    if held:
        parts.append(f"{held:,} held by an operator")
    isolated = sum(len(view.isolated) for view in views)
    if isolated:
        parts.append(f"{isolated:,} isolated process{'' if isolated == 1 else 'es'}")
    return f"{plural(len(views), 'circuit')}: {', '.join(parts)}"


def lamp(view: View, signs: Signs) -> Text:
    """The symbol and the phase; for a circuit that is held open, that hold instead of the phase."""
    phase = view.circuit.phase
    shown = {Phase.OPEN: signs.open, Phase.HALF_OPEN: signs.half_open}.get(phase, signs.closed)
    style = STYLES[phase]
    if view.circuit.mode is Mode.HELD_OPEN:
        return Text(f"{signs.open} held open", STYLES[Phase.OPEN])
    if view.circuit.mode is not Mode.AUTO and phase is Phase.OPEN:
        style = "yellow"  # the hold admits what the phase would refuse
    return Text(f"{shown} {words(phase)}", style)


def detail_of(view: View) -> str:
    """The hold, the reason of the state, the last error and the next try, in one sentence."""
    circuit, verdict = view.circuit, view.verdict
    parts: list[str] = []
    if circuit.mode is not Mode.AUTO:
        parts.append(_hold_text(view))
    reason = verdict.reason
    if circuit.mode is Mode.HELD_OPEN:
        reason = circuit.outage.reason
        parts.append(f"without the hold: {words(circuit.phase)}")
    if not reason and heat_of(view) > 0:
        reason = max(view.readings, key=lambda reading: reading.heat).reason
    if reason:
        parts.append(clean(reason))
    if parts and circuit.failures and circuit.failures[-1].error and reason:
        parts.append(f'last "{clean(circuit.failures[-1].error, 100)}"')
    return "; ".join([*parts, *_next_try(view), *map(_isolation_text, view.isolated)])


def _isolation_text(process: IsolatedView) -> str:
    """Why a process refuses its own calls, and when it probes."""
    wait_s = process.retry_after_s
    then = f"it probes in {duration(wait_s)}" if wait_s else "its next call is a probe"
    return f"{clean(process.reason)}; {then}"


def _next_try(view: View) -> list[str]:
    circuit = view.circuit
    if circuit.phase in {Phase.CLOSED, Phase.TRIPPING} or circuit.mode is Mode.HELD_OPEN:
        return []
    wait = view.verdict.retry_after_s
    if wait is None:
        return ["it stays open until it is reset"]
    if circuit.phase is Phase.HALF_OPEN:
        return ["the next call is a probe"] if not wait else [f"probe ends in {duration(wait)}"]
    return [f"next try in {duration(wait)}"]


def _hold_text(view: View) -> str:
    order = view.circuit.order
    mode = words(view.circuit.mode)
    if view.circuit.mode is Mode.SHADOW:
        mode = "in shadow"
    if view.hold_left_s is not None:
        mode = f"{mode} for {duration(view.hold_left_s)} more"
    return f"{mode} by {clean(order.by, 60)}: {clean(order.why, 200)}" if order else mode


def _row(view: View, signs: Signs) -> TableRow:
    totals = view.circuit.totals
    return TableRow(
        lamp(view, signs),
        clean(view.name, 1000),
        tag_of(view),
        heat_of(view),
        _score(view),
        tuple(f"{count:,}" for count in (totals.succeeded, totals.failed, totals.refused)),
        detail_of(view),
        calm=view.circuit.phase is Phase.CLOSED and not view.isolated,
    )


def _score(view: View) -> str:
    if not view.name.startswith("session/"):
        return ""
    return f"score {evidence_score(view.policy, view.readings).text}"


def tag_of(view: View) -> str:
    """What follows a name: an operator's override, or the number of isolated processes."""
    mode = view.circuit.mode
    if mode not in {Mode.AUTO, Mode.HELD_OPEN}:
        return f" [{words(mode)}]"
    return f" [{len(view.isolated)} isolated]" if view.isolated else ""


def _line(row: TableRow, name_width: int, widths: Sequence[int], signs: Signs) -> Text:
    line = Text()
    line.append_text(row.lamp).append(" " * (13 - cell_len(row.lamp.plain)))
    line.append_text(_name(row, name_width, signs)).append("  ")
    line.append_text(_heat(row, signs))
    for count, width in zip(row.counts, widths, strict=True):
        line.append(f"  {count:>{width}}", "dim" if count == "0" else "")
    return line


def _name(row: TableRow, width: int, signs: Signs) -> Text:
    room = width - len(row.tag)
    name = fitted(row.name, max(room, 4), signs)
    if not row.tag:
        return Text(name, "bold")
    padding = len(name) - len(name.rstrip(" "))
    return Text.assemble((name.rstrip(" "), "bold"), (row.tag, "magenta"), " " * padding)


def heat_style(heat: float) -> str:
    return "red" if heat >= 1 else "yellow" if heat >= 0.5 else "green"


def _heat(row: TableRow, signs: Signs) -> Text:
    style = heat_style(row.heat) if row.heat else "dim"
    if row.score:
        return Text(fitted(row.score, _HEAT_WIDTH, signs), style)
    number = (f"{percent(row.heat):>5}", "" if row.heat else "dim")
    return Text.assemble((bar(row.heat, _ROW_BAR, signs), style), number)


def _detail(
    row: TableRow, line: Text, width: int | None, signs: Signs, *, one_line: bool
) -> list[Text]:
    if one_line:
        line.append(f"  {row.detail}", "dim" if row.calm else "")
        return wrapped(line, width, cell_len(line.plain) - cell_len(row.detail))
    below = Text(f"{'':13}{signs.corner} {row.detail}", "dim" if row.calm else "")
    return [line, *wrapped(below, width, 15)]


def _narrow(row: TableRow, width: int, signs: Signs) -> list[Text]:
    first = Text.assemble(row.lamp, "  ", _heat(row, signs))
    counts = ", ".join(
        f"{count} {label.lower()}"
        for count, label in zip(row.counts, _COUNTS, strict=True)
        if count != "0"
    )
    two_lines = 2 * width - 4  # the longest readable name
    lines = wrapped(_name(row, min(cell_len(row.name + row.tag), two_lines), signs), width, 2)
    lines += wrapped(Text.assemble("  ", first), width, 2)
    lines += wrapped(Text(f"  {counts}", "dim"), width, 2) if counts else []
    lines += wrapped(Text(f"  {signs.corner} {row.detail}"), width, 4) if row.detail else []
    return lines


def event_line(event: Event, now_s: float, signs: Signs, *, name: bool = True) -> Text:
    sign = {Phase.OPEN: signs.open, Phase.HALF_OPEN: signs.half_open}.get(event.after, signs.closed)
    line = Text.assemble(
        (clock_time(event.at_s, now_s), "dim"), "  ", (sign, STYLES[event.after]), " "
    )
    if name:
        line.append(clean(event.circuit), "bold").append("  ")
    return line.append(what_happened(event, signs))


def what_happened(event: Event, signs: Signs) -> str:
    reason = clean(event.reason)
    by = f" by {clean(event.by, 60)}" if event.by else ""
    if event.kind is EventKind.ORDERED:
        return f"{override_words(reason)}{by}: {clean(event.why)}"
    if event.kind is EventKind.HOLD_ENDED:
        return f"{words(reason)}, held{by}: {clean(event.why)}"
    if event.kind is not EventKind.MOVED:
        return f"{words(event.kind)}: {reason}"
    wait = event.retry_after_s
    then = (
        "" if wait is None or event.after is not Phase.OPEN else f"; next try in {duration(wait)}"
    )
    return f"{words(event.before)} {signs.arrow} {words(event.after)}: {reason}{then}"


_BAR = 10


class Page:
    """Prints a circuit, section by section. Used by one thread."""

    def __init__(self, screen: Screen, view: View, entries: list[Entry], now_s: float) -> None:
        self._screen = screen
        self._view = view
        self._entries = entries
        self._now_s = now_s

    def draw(self) -> None:
        view, signs = self._view, self._screen.signs
        head = Text.assemble(lamp(view, signs), "  ", (clean(view.name, 1000), "bold"))
        if tag := tag_of(view):
            head.append(f" {tag}", "magenta")
        self._screen.line(head, 2)
        if detail := detail_of(view):
            self._screen.line(f"  {signs.corner} {detail}", 4)
        self._draw_state()
        self._draw_heat()
        self._draw_failures()
        self._draw_policy()
        self._draw_history()

    def _section(self, title: str) -> None:
        self._screen.line()
        self._screen.line(Text(title, "bold"))

    def _field(self, label: str, value: str) -> None:
        self._screen.line(Text.assemble((f"  {label:11}", "dim"), value), 13)

    def _draw_state(self) -> None:
        circuit, verdict = self._view.circuit, self._view.verdict
        self._section("State")
        admits = "yes" if verdict.admitted else "no"
        if verdict.overruled:
            admits = "yes, against the evidence"
        elif circuit.outage.admit:
            admits = f"{circuit.outage.admit:.0%} of the calls"
        self._field("admits", admits)
        self._field("phase", words(circuit.phase))
        if circuit.phase is Phase.OPEN:
            self._field("open since", clock_time(circuit.outage.opened_at_s, self._now_s))
        self._field("next probe", self._next_probe())
        order, held = circuit.order, "no, the evidence decides"
        if circuit.mode is not Mode.AUTO and order is not None:
            left_s = self._view.hold_left_s
            ends = "" if left_s is None else f"; ends in {duration(left_s)}"
            held = f"{words(circuit.mode)} by {clean(order.by)}: {clean(order.why)}{ends}"
        self._field("held", held)
        for process in self._view.isolated:
            since = clock_time(process.since_s, self._now_s)
            self._field("isolated", f"{_isolation_text(process)}; isolated since {since}")
        totals = circuit.totals
        counts = {name: count for name, count in totals._asdict().items() if name != "cost_micros"}
        shown = ", ".join(
            f"{count:,} {'stale' if name == 'late' else name}"
            for name, count in counts.items()
            if count
        )
        self._field("totals", shown or "nothing yet")
        if totals.cost_micros:
            reset = any(entry.event.reason.startswith("reset") for entry in self._entries)
            since = " since the last reset" if reset else ""  # a reset clears the totals
            self._field("cost", f"{dollars(totals.cost_micros)}{since}")
        self._field("last seen", clock_time(circuit.seen_s, self._now_s))

    def _next_probe(self) -> str:
        circuit, wait = self._view.circuit, self._view.verdict.retry_after_s
        if circuit.phase in {Phase.CLOSED, Phase.TRIPPING}:
            return "none needed"
        if circuit.mode is Mode.HELD_OPEN:
            return "not while it is held open"
        if circuit.phase is Phase.HALF_OPEN:
            under_way = len(circuit.probing.permits)
            if under_way:
                return f"{plural(under_way, 'probe')} in progress, for at most {duration(wait or 0)} more"
            return "now: the next call is the probe"
        if wait is None:
            return "not by itself; switchgear reset closes it"
        at = clock_time(self._now_s + wait, self._now_s)
        return f"in {duration(wait)}, at {at} (after {duration(circuit.outage.cooldown_s)})"

    def _draw_heat(self) -> None:
        view, signs = self._view, self._screen.signs
        score = score_of(view.policy, view.readings)
        title = f"Heat {percent(heat_of(view))}"
        if score is not None:
            own = f"Score {score.text}, trips at {score.threshold:g}"
            title = own if _score(view) else f"{title}, score {score.text}"
        self._section(title)
        names = detector_names(view.policy)
        width = max(map(len, names))
        for index, (name, reading) in enumerate(zip(names, view.readings, strict=True)):
            drawn = (bar(reading.heat, _BAR, signs), heat_style(reading.heat))
            line = Text.assemble(f"  {clean(name):{width}}  ", drawn)
            line.append(f"{percent(reading.heat):>5}  {clean(reading.reason)}")
            if score is not None and (effect := score.shares[index].effect):
                line.append(f" ({effect})", "bold")
            self._screen.line(line, 4)

    def _draw_failures(self) -> None:
        failures = self._view.circuit.failures
        self._section("Evidence")
        if not failures:
            self._screen.line("  no failures recorded")
        for failure in reversed(failures):
            at = clock_time(failure.at_s, self._now_s)
            what = clean(failure.error) if failure.error else "failed without an error message"
            self._screen.line(Text.assemble("  ", (at, "dim"), f"  {what}"), 12)

    def _draw_policy(self) -> None:
        self._section("Policy")
        policy: dict[str, Any] = dump_policy(self._view.policy)
        for detector in policy["detectors"]:
            self._field("detector", _settings(detector))
        recovery = policy["recovery"]
        is_manual = recovery["kind"] == "latched"
        self._field("recovery", "manual reset" if is_manual else _settings(recovery))
        if policy["combine"]["kind"] != "any":
            self._field("combine", _settings(policy["combine"]))
        if policy["tripping_at"] is not None:
            self._field("tripping", f"from {percent(policy['tripping_at'])}")
        if policy["strict"]:
            self._field("strict", "refuses while its state is unknown")

    def _draw_history(self) -> None:
        self._section("History")
        if not self._entries:
            self._screen.line("  no events yet")
        for entry in reversed(self._entries):
            line = event_line(entry.event, self._now_s, self._screen.signs, name=False)
            self._screen.line(Text.assemble("  ", line), 14)


def _settings(fields: dict[str, Any]) -> str:
    """`cooldown: base_s 60, max_s 300`."""
    settings = ", ".join(
        f"{clean(str(key))} {_value(value)}"
        for key, value in fields.items()
        if key != "kind" and value is not None
    )
    kind = clean(str(fields["kind"]))
    return f"{kind}: {settings}" if settings else kind


def _value(value: Any) -> str:
    """A setting as a person writes it: `0.7`, `a 30; b 10`, `yes`.

    >>> _value([["same_error", 30.0], ["silence", 10]]), _value({"a": 1}), _value((1, 2)), _value(True)
    ('same_error 30; silence 10', 'a 1', '1; 2', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return "; ".join(f"{clean(str(key))} {_value(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(
            " ".join(map(_value, each))
            if isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[0], str)
            else _value(each)  # not a pair of a name and its value, as weights are
            for each in value
        )
    return clean(str(value))


def session_checker(session: Session) -> Callable[[], None]:
    """A function to call at each update: it checks the sessions that no process watches. Never waits."""

    def check(name: str) -> CheckResult:
        store = session.panel.store
        found = store.get(note_name(name))
        if found is None:
            return CheckResult(Notes(), is_responsible=False)
        return check_unwatched_session(session, name, found.policy)

    checks = SessionChecks(check, find=lambda: active_sessions(session.panel.store))
    return lambda: checks.start_due(time.monotonic())


EVENTS = 5
"""Newest events below the table."""
EXIT_TERMINATED = 143
END_OF_INPUT = "\x04"


def watch_screen(
    session: Session, glob: str, screen: Screen, *, interval_s: float, times: int | None
) -> None:
    """Draw what needs attention and the table on the alternate screen, until q, Ctrl-C or the last of `times` updates."""
    check_sessions = session_checker(session)
    now_view = NowView(session) if glob == "*" else None
    with (
        _keys() as pressed,
        Live(console=screen.console, screen=True, auto_refresh=False, transient=True) as live,
    ):
        while True:
            check_sessions()
            live.update(_frame(session, glob, screen, now_view), refresh=True)
            if times is not None:
                times -= 1
                if not times:
                    return
            if pressed(interval_s) in {"q", "Q", "\x1b", END_OF_INPUT}:
                return


def watch_lines(
    session: Session, glob: str, screen: Screen, *, interval_s: float, times: int | None
) -> None:
    """Print a line for each circuit at first, then for each circuit whose state changes."""
    known: dict[str, tuple[Any, ...]] = {}
    problem = ""
    check_sessions = session_checker(session)
    while True:
        check_sessions()
        session.reopen_if_created()
        views, error = session.read(glob)
        previous, problem = problem, "" if error is None else str(error)
        if problem and problem != previous:
            warn(problem)
        for view in by_attention(views):
            state = (view.circuit.phase, view.circuit.mode, view.circuit.outage.opened_at_s)
            if known.get(view.name) != state:
                known[view.name] = state
                now, shown = clock_time(session.now_s(), session.now_s()), lamp(view, screen.signs)
                line = Text.assemble(now, "  ", shown, f"  {clean(view.name, 1000)}")
                detail = detail_of(view)
                screen.line(line.append(f"  {detail}") if detail else line)
        screen.console.file.flush()
        if times is not None:
            times -= 1
            if not times:
                return
        time.sleep(interval_s)


class NowView:
    """What needs attention, as the page of the console shows it under *Now*."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sources: Sources | None = None

    def lines(self, width: int, most: int, screen: Screen) -> list[Text]:
        """The items, runs and sessions of *Now*, in order, in at most `most` lines; the rest is counted."""
        from switchgear._console.sources import Sources  # noqa: PLC0415  only for the screen

        if self._sources is None or self._sources.panel is not self._session.panel:
            self._sources = Sources(self._session.panel, self._session.config, Path.cwd())
        try:
            found = self._sources.now()
        except (StoreError, OSError):
            return []  # the head of the table shows the error
        items = [_attention(item, width, screen) for item in found["attention"]]
        rows = [_run_row(row) for row in found["running"]]
        rows += [_session_row(row, found["at_s"]) for row in found["sessions"]]
        room = max(most - min(len(rows), most // 3) - 2, 3)
        if sum(map(len, items)) > room:  # show what to do for the first item only
            items = [*items[:1], *(item[:1] for item in items[1:])]
        lines = [line for item in items for line in item]
        if len(lines) > room:
            more = Text(f"{len(lines) - room + 1} more: switchgear status", "dim")
            lines = [*lines[: room - 1], more]
        if items:
            lines.insert(0, Text(f"Needs attention ({len(items)})", "bold"))
        if rows:
            fits = max(most - len(lines) - 1, 0)
            lines.append(Text(_sessions_line(found["sessions"], found["running"]), "bold"))
            lines += [_one_line(row, width, screen) for row in rows[:fits]]
        return [*lines, Text()] if lines else []


_RANK_STYLES = ("bold red", "bold red", "cyan", "yellow", "yellow", "cyan")


def _attention(item: dict[str, Any], width: int, screen: Screen) -> list[Text]:
    """One item of *Now*: the name and the reason; then what to do, and the command for it."""
    line = Text.assemble((item["state"], _RANK_STYLES[item["rank"]]), f"  {clean(item['name'])}")
    line.append(f" ({', '.join(filter(None, (item['kind'], item['activity'])))})")
    facts = [clean(item["reason"], 300)]
    if item["retry_after_s"] is not None:
        facts.append(f"probe in {duration(item['retry_after_s'])}")
    if item["spend_micros_per_min"] and item["kind"] != "circuit":
        facts.append(_per_minute(item["spend_micros_per_min"]))
    line.append(f": {', '.join(facts)}")
    command, action = clean(item["command"], 300), clean(item["action"], 300)
    both = f"  {command}   {action}"
    steps = [both] if len(both) < width else [f"  {action}", f"  {command}"]
    return [
        _one_line(each, width, screen) for each in (line, *(Text(step, "dim") for step in steps))
    ]


def _per_minute(micros: int) -> str:
    return f"${micros / 1e6:,.2f}/min"


def _run_row(row: dict[str, Any]) -> Text:
    line = Text.assemble(
        (f"{row['status']:<14} ", "blue"), clean(f"run {row['id']} ({row['agent']})")
    )
    return line.append(f": {clean(str(row['task']), 300)}")


def _session_row(row: dict[str, Any], now_s: float) -> Text:
    state = row["state"] if row["activity"] == "live" else f"{row['state']}, {row['activity']}"
    style = {"stopped": "bold red", "working": "green", "paused": "cyan"}.get(row["state"], "dim")
    line = Text.assemble((f"{state:<14} ", style if row["activity"] == "live" else "dim"))
    line.append(f"{clean(row['id'], 40)} ({clean(row['agent'], 40)})")
    if row["spend_micros_per_min"]:
        line.append(f", {_per_minute(row['spend_micros_per_min'])}")
    if row["activity"] != "live":
        line.append(f", {duration(max(0.0, now_s - row['heard_s']))} silent")
    return line.append(f": {clean(row['task'] or row['last_step'], 300)}")


def _sessions_line(sessions: list[dict[str, Any]], running: list[dict[str, Any]]) -> str:
    rates = [row["spend_micros_per_min"] for row in sessions if row["activity"] == "live"]
    live, known = len(rates), [rate for rate in rates if rate is not None]
    spend = [_per_minute(sum(known))] if known else []
    if known and len(known) < live:
        spend = [f"at least {spend[0]}"]
    runs = [plural(len(running), "run")] if running else []
    dormant = [f"{len(sessions) - live} dormant"] if len(sessions) > live else []
    return ", ".join([*runs, plural(live, "live session"), *dormant, *spend])


def _frame(session: Session, glob: str, screen: Screen, now_view: NowView | None) -> Text:
    width, height = screen.width or 80, max(screen.console.height, 5)
    session.reopen_if_created()
    views, error = session.read(glob)
    warning = [] if error is None else wrapped(Text(clean(str(error), 1000), "bold red"), width, 2)
    try:
        entries = session.panel.events(glob=glob, limit=EVENTS)
    except StoreError as unavailable:
        lines = warning or wrapped(Text(clean(str(unavailable), 1000), "bold red"), width, 2)
        lines.append(Text("trying again", "dim"))
        return Text("\n").join(lines[:height])
    now_s = session.now_s()
    views = by_attention(views)
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
    foot = [Text(), Text("q: quit", "dim")]
    if now_view is not None and height > 15:
        head.extend(now_view.lines(width, (height - len(head) - len(recent)) * 3 // 5, screen))
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
    """A function that waits for a key. The settings of the terminal are restored at the end."""

    def end(*_: object) -> NoReturn:
        raise SystemExit(EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        if not sys.stdin.isatty():
            yield partial(_key, [])
            return
        import termios  # noqa: PLC0415  not on every system
        import tty  # noqa: PLC0415

        settings = termios.tcgetattr(sys.stdin)
        try:
            tty.setcbreak(sys.stdin)
            yield partial(_key, [sys.stdin])
        finally:
            with suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)
    finally:
        signal.signal(signal.SIGTERM, before)


def _key(sources: Sequence[IO[str]], wait_s: float) -> str:
    """The key that was pressed, empty after `wait_s`; `END_OF_INPUT` if the terminal was closed."""
    if not select.select(sources, [], [], wait_s)[0]:
        return ""
    try:
        return sys.stdin.read(1) or END_OF_INPUT
    except OSError:
        return END_OF_INPUT
