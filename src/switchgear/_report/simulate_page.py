"""The report of a simulation as one HTML document: bars, tables, drawings; no script, no network."""

from collections.abc import Sequence

from markupsafe import Markup

from switchgear._analysis.simulate.compare import Result, blocks
from switchgear._analysis.simulate.engine import SLOTS, Tally
from switchgear._report.charts import WIDE, Plot, area, drawing, element, grid, key, line
from switchgear._report.environment import render
from switchgear._text.formats import duration

_HEIGHT = 190.0
_SERIES = (("made", "calls made", "k-0", None), ("doomed", "of them wasted", "k-1", "7 4"), ("refused", "refused or sent elsewhere", "k-3", "2 3"))  # fmt: skip


def page(result: Result) -> str:
    """The report."""
    world = result.world
    most = max(max(tally.made + tally.refused) for tally in (result.plain, result.guarded))
    return render(
        "simulate.html",
        world=world,
        verdict=("best", "bars kept") if result.kept else ("bad", "bar missed"),
        bars=result.bars,
        listed=[
            ("agents", f"{world.agents:,}"),
            ("time", duration(world.length_s)),
            ("seed", f"{world.seed}"),
            ("noise", f"{world.noise:g}"),
        ],
        pictures=[
            ("Without breakers", *_chart(result.plain, most, world.length_s)),
            ("With breakers", *_chart(result.guarded, most, world.length_s)),
        ],
        blocks=blocks(result),
    )


def _chart(tally: Tally, most: int, length_s: float) -> tuple[Markup, list[tuple[Markup, str]]]:
    """The drawing, and the samples of its legend with their words."""
    plot = Plot(WIDE, _HEIGHT, SLOTS, max(most, 1) * 1.08)
    parts = [grid(plot, [(0.0, "0"), (float(most), f"{most:,}")])]
    keys = []
    for field, words, colour, dash in _SERIES:
        counts: Sequence[int] = getattr(tally, field)
        if not any(counts):
            continue
        points = [(plot.x(at), plot.y(count)) for at, count in enumerate(counts)]
        parts.append(area(plot, points, colour) if dash is None else line(points, colour, dash))
        keys.append((key(colour, dash), f"{words}: {sum(counts):,}"))
    hours = [(0, "0"), (SLOTS // 2, duration(length_s / 2)), (SLOTS - 1, duration(length_s))]
    parts += [
        element("text", said, x=plot.x(at), y=_HEIGHT - 10, class_="axis", text_anchor="middle")
        for at, said in hours
    ]
    return drawing(WIDE, _HEIGHT, f"Calls over {duration(length_s)}", *parts), keys
