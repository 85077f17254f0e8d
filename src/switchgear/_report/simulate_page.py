"""The report of a simulation as one HTML document: bars, tables, drawings; no script, no network."""

from collections.abc import Sequence

from switchgear._analysis.simulate.compare import Result, TableBlock, blocks
from switchgear._analysis.simulate.engine import SLOTS, Tally
from switchgear._report.charts import (
    STYLE,
    WIDE,
    Markup,
    Plot,
    area,
    drawing,
    element,
    grid,
    joined,
    line,
)
from switchgear._text.formats import duration

_HEIGHT = 190.0
_SERIES = (("made", "calls made", "k-0"), ("doomed", "of them wasted", "k-1"), ("refused", "refused or sent elsewhere", "k-3"))  # fmt: skip
_DASHES = {"k-0": None, "k-1": "7 4", "k-3": "2 3"}


def page(result: Result) -> str:
    """The report."""
    world = result.world
    title = f"Simulation: {world.scenario.name}"
    most = max(max(tally.made + tally.refused) for tally in (result.plain, result.guarded))
    body = element(
        "main",
        _head(result),
        _section("Without breakers", _chart(result.plain, most, world.length_s)),
        _section("With breakers", _chart(result.guarded, most, world.length_s)),
        *(_section(block.title, _table(block)) for block in blocks(result)),
        element("footer", "Made by switchgear simulate. The same options give the same numbers."),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n"


def _section(title: str, *inside: Markup) -> Markup:
    return element("section", element("h2", title), *inside)


def _head(result: Result) -> Markup:
    world = result.world
    colour, word = ("best", "bars kept") if result.kept else ("bad", "bar missed")
    facts = [
        ("agents", f"{world.agents:,}"),
        ("time", duration(world.length_s)),
        ("seed", f"{world.seed}"),
        ("noise", f"{world.noise:g}"),
    ]
    listed = (element("div", element("dt", name), element("dd", said)) for name, said in facts)
    bars = (element("li", f"{'✓' if bar.kept else '✗'} {bar.words}") for bar in result.bars)
    return element(
        "header",
        element("span", word, class_=f"badge t-{colour}"),
        element("h1", f"{world.scenario.name}: {world.scenario.about}"),
        element("ul", *bars),
        element("dl", *listed, class_="facts"),
        class_=f"e-{colour}",
    )


def _chart(tally: Tally, most: int, length_s: float) -> Markup:
    plot = Plot(WIDE, _HEIGHT, SLOTS, max(most, 1) * 1.08)
    parts = [grid(plot, [(0.0, "0"), (float(most), f"{most:,}")])]
    keys = []
    for field, words, colour in _SERIES:
        counts: Sequence[int] = getattr(tally, field)
        if not any(counts):
            continue
        points = [(plot.x(at), plot.y(count)) for at, count in enumerate(counts)]
        is_made = field == "made"
        drawn = area(plot, points, colour) if is_made else line(points, colour, _DASHES[colour])
        parts.append(drawn)
        keys.append(_key(words, sum(counts), colour))
    hours = [(0, "0"), (SLOTS // 2, duration(length_s / 2)), (SLOTS - 1, duration(length_s))]
    parts += [
        element("text", said, x=plot.x(at), y=_HEIGHT - 10, class_="axis", text_anchor="middle")
        for at, said in hours
    ]
    picture = drawing(WIDE, _HEIGHT, f"Calls over {duration(length_s)}", *parts)
    return joined(
        element("figure", picture, class_="scroll wide"), element("p", *keys, class_="legend")
    )


def _key(words: str, count: int, colour: str) -> Markup:
    sample = element(
        "svg",
        line([(0, 6), (30, 6)], colour, _DASHES[colour], dots=False),
        width=30.0,
        height=12.0,
        viewBox="0 0 30 12",
        aria_hidden="true",
    )
    return element("span", sample, f"{words}: {count:,}", class_="key")


def _table(block: TableBlock) -> Markup:
    names = element(
        "tr", *(element("th", name, class_="n") for name in ("", "without", "with breakers"))
    )
    rows = (
        element(
            "tr",
            element("td", row.name, class_="t"),
            element("td", row.plain, class_="n"),
            element("td", row.guarded, class_="n"),
        )
        for row in block.rows
    )
    table = element("table", element("thead", names), element("tbody", *rows))
    return element("div", table, class_="scroll")
