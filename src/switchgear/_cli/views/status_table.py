"""Circuits as a table a person likes to read: trouble first, and why, and until when.

A circuit is one line, with a second one below it for its trouble; on a very wide terminal or in a
pipe the trouble stands behind, so that a line is a circuit; on a narrow one the counts go below.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from switchgear._breaker.views import IsolatedView, View
from switchgear._cli.json_values import heat_of
from switchgear._cli.views.screen import NARROW, WIDE, fitted, wrapped
from switchgear._cli.views.text import Signs, bar, clean, percent, plural, words
from switchgear._core.errors import duration
from switchgear._core.types import Mode, Phase

STYLES = {
    Phase.CLOSED: "green",
    Phase.TRIPPING: "yellow",
    Phase.OPEN: "bold red",
    Phase.HALF_OPEN: "yellow",
}
_TROUBLE = {Phase.OPEN: 0, Phase.HALF_OPEN: 1, Phase.TRIPPING: 2, Phase.CLOSED: 3}
_COUNTS = ("OK", "FAILED", "REFUSED")
_BAR = 8
_PADDED = 120
_HEAT = _BAR + 5


class Row(NamedTuple):
    """A circuit, ready to be laid out."""

    lamp: Text
    name: str
    tag: str
    heat: float
    counts: tuple[str, ...]
    detail: str
    calm: bool


def by_trouble(views: Iterable[View]) -> list[View]:
    """Those that need somebody first: held open, open, probing, worried, held otherwise, with isolated processes, hot."""
    return sorted(
        views,
        key=lambda view: (
            view.circuit.mode is not Mode.HELD_OPEN,
            _TROUBLE[view.circuit.phase],
            view.circuit.mode is Mode.AUTO,
            not view.isolated,
            -heat_of(view),
            view.name,
        ),
    )


def table(views: Sequence[View], width: int | None, signs: Signs) -> list[Text]:
    """The lines of the table, its head first."""
    rows = [_row(view, signs) for view in views]
    if width is not None and width < NARROW:
        return [line for row in rows for line in _narrow(row, width, signs)]
    widths = [
        max(len(head), *(len(row.counts[column]) for row in rows))
        for column, head in enumerate(_COUNTS)
    ]
    longest = max(cell_len(_named(row)) for row in rows)
    # In a pipe no name is cut, and a very long one does not move the others' columns.
    name_width = max(longest if width is not None else min(longest, _PADDED), 7)
    one_line = width is None or width >= WIDE
    if width is not None:
        taken = 13 + 2 + _HEAT + sum(2 + count for count in widths)
        name_width = min(name_width, width // 3 if one_line else width - taken)
    lines = [_head(name_width, widths, one_line=one_line)]
    for row in rows:
        uncut = max(name_width, cell_len(_named(row))) if width is None else name_width
        line = _line(row, uncut, widths, signs)
        detail = [] if not row.detail else _detail(row, line, width, signs, one_line=one_line)
        lines += detail or [line]
    return lines


def summary(views: Sequence[View]) -> str:
    """`3 circuits: 1 open, 2 closed`."""
    phases = Counter(view.circuit.phase for view in views)
    parts = [f"{phases[phase]:,} {words(phase)}" for phase in _TROUBLE if phases[phase]]
    held = sum(view.circuit.mode is not Mode.AUTO for view in views)
    if held:
        parts.append(f"{held:,} held by an operator")
    isolated = sum(len(view.isolated) for view in views)
    if isolated:
        parts.append(f"{isolated:,} isolated process{'' if isolated == 1 else 'es'}")
    return f"{plural(len(views), 'circuit')}: {', '.join(parts)}"


def lamp(view: View, signs: Signs) -> Text:
    """The lamp and the phase; a circuit held open is dark whatever the evidence says."""
    phase = view.circuit.phase
    shown = {Phase.OPEN: signs.open, Phase.HALF_OPEN: signs.half_open}.get(phase, signs.closed)
    style = STYLES[phase]
    if view.circuit.mode is Mode.HELD_OPEN:
        return Text(f"{signs.open} held open", STYLES[Phase.OPEN])
    if view.circuit.mode is not Mode.AUTO and phase is Phase.OPEN:
        style = "yellow"  # it would refuse, and does not
    return Text(f"{shown} {words(phase)}", style)


def detail_of(view: View, longest_error: int = 100) -> str:
    """Why it is as it is, the last error, the next try: in one sentence."""
    circuit, verdict = view.circuit, view.verdict
    parts: list[str] = []
    if circuit.mode is not Mode.AUTO:
        parts.append(_holder(view))
    reason = verdict.reason
    if circuit.mode is Mode.HELD_OPEN:
        reason = circuit.outage.reason
        parts.append(f"the evidence says {words(circuit.phase)}")
    if not reason and heat_of(view) > 0:
        reason = max(view.readings, key=lambda reading: reading.heat).reason
    if reason:
        parts.append(clean(reason))
    if parts and circuit.failures and circuit.failures[-1].error and reason:
        parts.append(f'last "{clean(circuit.failures[-1].error, longest_error)}"')
    return "; ".join([*parts, *_next_try(view), *map(isolation, view.isolated)])


def isolation(one: IsolatedView) -> str:
    """Which process refuses its own calls, why, and when it probes."""
    wait_s = one.retry_after_s
    then = f"it probes in {duration(wait_s)}" if wait_s else "its next call is a probe"
    return f"{clean(one.reason)}; {then}"


def _next_try(view: View) -> list[str]:
    circuit = view.circuit
    if circuit.phase in {Phase.CLOSED, Phase.TRIPPING} or circuit.mode is Mode.HELD_OPEN:
        return []
    wait = view.verdict.retry_after_s
    if wait is None:
        return ["stays so until it is reset"]
    if circuit.phase is Phase.HALF_OPEN:
        return ["the next call is a probe"] if not wait else [f"probe ends in {duration(wait)}"]
    return [f"next try in {duration(wait)}"]


def _holder(view: View) -> str:
    order = view.circuit.order
    mode = words(view.circuit.mode)
    if view.circuit.mode is Mode.SHADOW:
        mode = "in shadow"
    if view.hold_left_s is not None:
        mode = f"{mode} for {duration(view.hold_left_s)} more"
    return f"{mode} by {clean(order.by, 60)}: {clean(order.why, 200)}" if order else mode


def _row(view: View, signs: Signs) -> Row:
    totals = view.circuit.totals
    return Row(
        lamp(view, signs),
        clean(view.name, 1000),
        tag_of(view),
        heat_of(view),
        tuple(f"{count:,}" for count in (totals.succeeded, totals.failed, totals.refused)),
        detail_of(view),
        calm=view.circuit.phase is Phase.CLOSED and not view.isolated,
    )


def tag_of(view: View) -> str:
    """What stands behind a name: an operator's override, or how many processes are isolated."""
    mode = view.circuit.mode
    if mode not in {Mode.AUTO, Mode.HELD_OPEN}:
        return f" [{words(mode)}]"
    return f" [{len(view.isolated)} isolated]" if view.isolated else ""


def _named(row: Row) -> str:
    return row.name + row.tag


def _head(name_width: int, widths: Sequence[int], *, one_line: bool) -> Text:
    head = f"{'STATE':13}{'CIRCUIT':{name_width}}  {'HEAT':{_HEAT}}"
    for label, width in zip(_COUNTS, widths, strict=True):
        head += f"  {label:>{width}}"
    return Text(head + ("  DETAIL" if one_line else ""), "dim")


def _line(row: Row, name_width: int, widths: Sequence[int], signs: Signs) -> Text:
    line = Text()
    line.append_text(row.lamp).append(" " * (13 - cell_len(row.lamp.plain)))
    line.append_text(_name(row, name_width, signs)).append("  ")
    line.append_text(_heat(row, signs))
    for count, width in zip(row.counts, widths, strict=True):
        line.append(f"  {count:>{width}}", "dim" if count == "0" else "")
    return line


def _name(row: Row, width: int, signs: Signs) -> Text:
    room = width - len(row.tag)
    name = fitted(row.name, max(room, 4), signs)
    if not row.tag:
        return Text(name, "bold")
    padding = len(name) - len(name.rstrip(" "))
    return Text.assemble((name.rstrip(" "), "bold"), (row.tag, "magenta"), " " * padding)


def _heat(row: Row, signs: Signs) -> Text:
    style = "red" if row.heat >= 1 else "yellow" if row.heat >= 0.5 else "green"
    drawn = bar(row.heat, _BAR, signs)
    return Text.assemble(
        (drawn, style if row.heat else "dim"),
        (f"{percent(row.heat):>5}", "" if row.heat else "dim"),
    )


def _detail(row: Row, line: Text, width: int | None, signs: Signs, *, one_line: bool) -> list[Text]:
    if one_line:
        line.append(f"  {row.detail}", "dim" if row.calm else "")
        return wrapped(line, width, cell_len(line.plain) - cell_len(row.detail))
    below = Text(f"{'':13}{signs.corner} {row.detail}", "dim" if row.calm else "")
    return [line, *wrapped(below, width, 15)]


def _narrow(row: Row, width: int, signs: Signs) -> list[Text]:
    first = Text.assemble(row.lamp, "  ", _heat(row, signs))
    counts = ", ".join(
        f"{count} {label.lower()}"
        for count, label in zip(row.counts, _COUNTS, strict=True)
        if count != "0"
    )
    two_lines = 2 * width - 4  # as much of a name as anybody wants to read
    lines = wrapped(_name(row, min(cell_len(_named(row)), two_lines), signs), width, 2)
    lines += wrapped(Text.assemble("  ", first), width, 2)
    lines += wrapped(Text(f"  {counts}", "dim"), width, 2) if counts else []
    lines += wrapped(Text(f"  {signs.corner} {row.detail}"), width, 4) if row.detail else []
    return lines
