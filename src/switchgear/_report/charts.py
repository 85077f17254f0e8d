"""The charts of the reports: inline SVG without scripts.

A chart shows the same data as the table below it; colours are never the only difference. Coordinates
are in a view box of fixed width, which the page scales.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from switchgear._report.facts import (
    PHASES,
    Done,
    kind_name,
    money,
    phase_name,
    short_money,
    span,
    tone,
)
from switchgear._text.formats import percent

VOID = frozenset({"br", "meta", "col"})


def printable(text: str) -> str:
    r"""The text with control characters as escapes.

    >>> printable("a\x1b[31m")
    'a\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(
        sign
        if sign.isprintable() or sign == "\n"
        else sign.encode("unicode_escape").decode("ascii")
        for sign in text
    )


def element(tag: str, *inside: str, **attributes: str | float | None) -> Markup:
    """An HTML or SVG element. Omits attributes that are `None`; `class_` becomes `class`, `_` becomes `-`.

    >>> element("p", "a < b", class_="note")
    Markup('<p class="note">a &lt; b</p>')
    """
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(printable(_shown(value)))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in VOID:
        return Markup(f"<{tag}{named}>")
    return Markup(f"<{tag}{named}>{joined(*inside)}</{tag}>")


def joined(*parts: str) -> Markup:
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(printable(part)) for part in parts)
    )


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


WIDE = 960.0
HALF = 330.0
LEFT, RIGHT = 58.0, 14.0
DASHES = (None, "7 4", "2 3", "10 3 2 3", "1 5", "12 6")
WIDTHS = (4.6, 3.6, 2.6, 1.8, 1.8, 1.8)
"""The dash pattern and the width of the line of each detector, besides its colour."""
_LONGEST_GAP, _BREAK = 0.12, 0.05
"""A pause longer than the first share of the working time is drawn as a break, as long as the second."""


class Plot(NamedTuple):
    """The coordinates of a chart with one value per iteration."""

    width: float
    height: float
    places: int
    """The number of iterations."""
    top: float
    """The value at the upper edge."""

    def x(self, place: int) -> float:
        room = self.width - LEFT - RIGHT
        return LEFT + room * (place + 0.5) / max(self.places, 1)

    def y(self, value: float) -> float:
        return 12.0 + (self.height - 40.0) * (1.0 - min(max(value / self.top, 0.0), 1.0))

    @property
    def step(self) -> float:
        return (self.width - LEFT - RIGHT) / max(self.places, 1)


def timeline(iterations: Sequence[Done]) -> Markup:
    """The iterations in sequence, as wide as they took long, each with a symbol of the state below."""
    all_spans = spans(iterations)
    whole = sum(gap + length for gap, length, _ in all_spans) or 1.0
    scale = (WIDE - 2 * RIGHT) / whole
    parts, at = [], RIGHT
    for done, (gap, length, is_break) in zip(iterations, all_spans, strict=True):
        if is_break:
            middle = at + gap * scale / 2
            parts.append(_text(middle, 40, "⋯", class_="axis", text_anchor="middle"))
        at += gap * scale
        parts.append(_block(done, at, max(length * scale, 1.5)))
        at += length * scale
    return drawing(WIDE, 92, "Timeline of the iterations", *parts)


def spans(iterations: Sequence[Done]) -> list[tuple[float, float, bool]]:
    """For each iteration: the pause before it and its length in seconds, and whether the pause is shortened."""
    work_s = max(sum(done.seconds for done in iterations), 1e-3)
    found: list[tuple[float, float, bool]] = []
    ended_s: float | None = None
    for done in iterations:
        gap = 0.0
        if ended_s is not None and done.began_s is not None:
            gap = max(done.began_s - ended_s, 0.0)
        is_break = gap > _LONGEST_GAP * work_s
        drawn_s = _BREAK * work_s if is_break else gap
        found.append((drawn_s, max(done.seconds, work_s / 500), is_break))
        ended_s = None if done.began_s is None else done.began_s + done.seconds
    return found


def _block(done: Done, x: float, width: float) -> Markup:
    middle = x + width / 2
    wide = width - (2 if width > 8 else 0.3)
    parts = [
        element("title", _done_label(done)),
        element(
            "rect", x=x, y=14.0, width=wide, height=40.0, rx=3.0, class_=f"t-{tone(done.outcome)}"
        ),
    ]
    label = str(done.number)
    if width > 10.0 * len(label):
        parts.append(_text(middle - 1, 39, label, class_="on", text_anchor="middle"))
    if done.nudge and width > 8:
        parts.append(_text(middle - 1, 10, "▼", class_="nudge", text_anchor="middle"))
    if width > 13:
        parts.append(_lamp(middle - 1, 72.0, done.phase))
    return element("g", *parts)


def _lamp(x: float, y: float, phase: str) -> Markup:
    """A circle: full if closed, half full if tripping or half-open, empty if open."""
    colour = PHASES.get(phase, "idle")
    ring = element("circle", cx=x, cy=y, r=5.5, class_=f"ring s-{colour}")
    if phase == "open":
        return ring
    if phase == "closed":
        return joined(ring, element("circle", cx=x, cy=y, r=5.5, class_=f"t-{colour}"))
    half = f"M {x:.1f} {y - 5.5:.1f} a 5.5 5.5 0 0 0 0 11 z"
    return joined(ring, element("path", d=half, class_=f"t-{colour}"))


def _done_label(done: Done) -> str:
    parts = [
        f"iteration {done.number}: {done.outcome} in {span(done.seconds)}",
        f"{phase_name(done.phase)}, heat {percent(done.heat)}",
        money(done.cost_micros),
    ]
    if done.error:
        parts.append(done.error[:200])
    return "; ".join(parts)


class Mark(NamedTuple):
    """A vertical line at an iteration, with a label."""

    place: int
    """The index of the iteration."""
    words: str
    colour: str
    """`warn` or `bad`."""


def heat(
    iterations: Sequence[Done], marks: Sequence[Mark] = (), *, noun: str = "iterations"
) -> Markup:
    """The heat of each detector, with a line at the heat that trips. `noun`: what is on the x axis."""
    kinds = list(dict.fromkeys(reading.kind for done in iterations for reading in done.readings))
    kinds = kinds[: len(DASHES)]
    hottest = max((r.heat for done in iterations for r in done.readings), default=0.0)
    plot = Plot(WIDE, 210, len(iterations), max(1.08, min(hottest, 3.0) * 1.08))
    parts = [grid(plot, [(0.0, "0%"), (0.5, "50%")]), _limit(plot, 1.0, "trips")]
    for place, kind in enumerate(kinds):
        points = [
            (plot.x(at), plot.y(reading.heat))
            for at, done in enumerate(iterations)
            for reading in done.readings
            if reading.kind == kind
        ]
        # The first line is the widest, so that overlapping lines are all visible.
        parts.append(line(points, f"k-{place}", DASHES[place], width=WIDTHS[place]))
    parts += [_mark(plot, mark) for mark in marks]
    parts.append(_ticks(plot, iterations))
    legend = [
        element("span", key(f"k-{place}", DASHES[place]), kind_name(kind), class_="key")
        for place, kind in enumerate(kinds)
    ]
    picture = drawing(WIDE, 210, f"Heat of each detector over the {noun}", *parts)
    return joined(picture, element("p", *legend, class_="legend"))


def cost(iterations: Sequence[Done], budget_micros: int | None) -> Markup:
    sums, total = [], 0
    for done in iterations:
        total += done.cost_micros or 0
        sums.append(total)
    top = max(total, budget_micros or 0, 1)
    plot = Plot(HALF, 170, len(iterations), top * 1.12)
    points = [(plot.x(at), plot.y(value)) for at, value in enumerate(sums)]
    parts = [grid(plot, [(0.0, "$0"), (total, short_money(total))]), area(plot, points, "k-0")]
    parts += [
        element(
            "g",
            element("title", f"iteration {done.number}: unknown cost"),
            _text(plot.x(at), plot.y(sums[at]) - 7, "?", class_="nudge", text_anchor="middle"),
        )
        for at, done in enumerate(iterations)
        if done.cost_micros is None
    ]
    if budget_micros is not None:
        parts.append(_limit(plot, budget_micros, f"budget {money(budget_micros)}"))
    parts.append(_ticks(plot, iterations))
    return drawing(HALF, 170, "Total cost over the iterations", *parts)


def tests(iterations: Sequence[Done], before: int | None) -> Markup:
    """The number of passing tests, with a line at the number before the first iteration."""
    counts = [done.tests_passing for done in iterations]
    most = max((*(each for each in counts if each is not None), before or 0, 1))
    plot = Plot(HALF, 170, len(iterations), most * 1.12)
    points = [(plot.x(at), plot.y(value)) for at, value in enumerate(counts) if value is not None]
    parts = [grid(plot, [(0.0, "0"), (most, f"{most:,}")]), area(plot, points, "k-2")]
    if before:
        parts.append(_limit(plot, before, "at the start", calm=True))
    return drawing(HALF, 170, "Tests passing over the iterations", *parts, _ticks(plot, iterations))


def output(iterations: Sequence[Done]) -> Markup:
    most = max((max(done.output_chars or 0, 0) for done in iterations), default=0) or 1
    plot = Plot(HALF, 170, len(iterations), most * 1.12)
    width = max(plot.step * 0.7, 0.6)
    bars = [
        element(
            "g",
            element("title", f"iteration {done.number}: {done.output_chars:,} characters"),
            element(
                "rect",
                x=plot.x(at) - width / 2,
                y=plot.y(done.output_chars),
                width=width,
                height=max(plot.y(0) - plot.y(done.output_chars), 1.0),
                class_=f"t-{tone(done.outcome)}",
            ),
        )
        for at, done in enumerate(iterations)
        if done.output_chars is not None
    ]
    parts = [grid(plot, [(0.0, "0"), (most, f"{most:,}")]), *bars, _ticks(plot, iterations)]
    return drawing(HALF, 170, "Characters of output of each iteration", *parts)


def bar(heat_: float, colour: str) -> Markup:
    full = min(heat_, 1.0) * 100
    return element(
        "svg",
        element("rect", x=0.0, y=0.0, width=100.0, height=8.0, rx=4.0, class_="empty"),
        element("rect", x=0.0, y=0.0, width=full, height=8.0, rx=4.0, class_=f"t-{colour}"),
        width=100.0,
        height=8.0,
        viewBox="0 0 100 8",
        aria_hidden="true",
    )


def key(name: str, dash: str | None) -> Markup:
    sample = line([(0, 6), (30, 6)], name, dash, dots=False)
    return element("svg", sample, width=30.0, height=12.0, viewBox="0 0 30 12", aria_hidden="true")


def lamp(phase: str) -> Markup:
    inside = _lamp(7.0, 7.0, phase)
    return element("svg", inside, width=14.0, height=14.0, viewBox="0 0 14 14", aria_hidden="true")


# The parts of a chart


def drawing(width: float, height: float, label: str, *inside: Markup) -> Markup:
    return element(
        "svg", *inside, viewBox=f"0 0 {width:.0f} {height:.0f}", role="img", aria_label=label
    )


def _text(x: float, y: float, words: str, **attributes: str) -> Markup:
    return element("text", words, x=x, y=y, **attributes)


def grid(plot: Plot, marks: list[tuple[float, str]]) -> Markup:
    parts = []
    taken: list[float] = []
    for value, words in marks:
        y = plot.y(value)
        parts.append(_rule(plot, y, "grid"))
        if all(abs(y - other) > 11 for other in taken):
            parts.append(_text(LEFT - 8, y + 4, words, class_="axis", text_anchor="end"))
        taken.append(y)
    return joined(*parts)


def _limit(plot: Plot, value: float, words: str, *, calm: bool = False) -> Markup:
    y = plot.y(value)
    name = "start" if calm else "limit"
    return joined(
        _rule(plot, y, name),
        _text(plot.width - RIGHT, y - 4, words, class_=f"axis {name}-word", text_anchor="end"),
    )


def _mark(plot: Plot, mark: Mark) -> Markup:
    x = plot.x(mark.place)
    end = "end" if x > plot.width / 2 else "start"
    beside = x - 5 if end == "end" else x + 5
    # The two kinds have different heights, so that labels close together can be read.
    y = plot.height - (62 if mark.colour == "warn" else 40)
    line = element("line", x1=x, x2=x, y1=12.0, y2=plot.height - 28, class_=f"mark-{mark.colour}")
    words = _text(beside, y, mark.words, class_=f"axis word-{mark.colour}", text_anchor=end)
    return joined(line, words)


def _rule(plot: Plot, y: float, name: str) -> Markup:
    return element("line", x1=LEFT, x2=plot.width - RIGHT, y1=y, y2=y, class_=name)


def _ticks(plot: Plot, iterations: Sequence[Done]) -> Markup:
    """The numbers of the iterations, without those that would overlap."""
    longest = max((len(str(done.number)) for done in iterations), default=1)
    every = max(math.ceil((10.0 * longest + 8.0) / plot.step), 1)
    return joined(
        *(
            _text(
                plot.x(at), plot.height - 10, str(done.number), class_="axis", text_anchor="middle"
            )
            for at, done in enumerate(iterations)
            if at % every == 0
        )
    )


def line(
    points: Sequence[tuple[float, float]],
    name: str,
    dash: str | None = None,
    *,
    width: float = 2.0,
    dots: bool = True,
) -> Markup:
    """Points joined by a line; with dots, unless there are more than 60."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    drawn = element(
        "polyline", points=path, class_=f"line {name}", stroke_width=width, stroke_dasharray=dash
    )
    if not dots or len(points) > 60:
        return drawn
    return joined(
        drawn, *(element("circle", cx=x, cy=y, r=2.8, class_=f"dot {name}") for x, y in points)
    )


def area(plot: Plot, points: Sequence[tuple[float, float]], name: str) -> Markup:
    if not points:
        return Markup("")
    floor = plot.y(0)
    corners = [(points[0][0], floor), *points, (points[-1][0], floor)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return joined(element("polygon", points=path, class_=f"area {name}"), line(points, name))
