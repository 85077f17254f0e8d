"""A simulation on the terminal: both sides in columns, and how the calls went over time."""

from collections.abc import Sequence

from rich.text import Text

from switchgear._analysis.simulate.compare import Result, blocks
from switchgear._analysis.simulate.tally import SLOTS
from switchgear._cli.views.screen import Screen
from switchgear._cli.views.text import clean
from switchgear._core.errors import duration

BLOCKS, PLAIN = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_NAME, _VALUE, _TAG = 36, 20, 16


def show_simulation(result: Result, source: str) -> None:
    """Print it all."""
    screen = Screen()
    world = result.world
    size = f"{world.agents:,} agents, {duration(world.length_s)}, seed {world.seed}"
    noise = f", noise {world.noise:g}" if world.noise else ""
    screen.line(Text(f"{world.scenario.name}: {world.scenario.about}", "bold"))
    screen.line(clean(f"{size}{noise}, judged by {source}"))
    screen.line()
    screen.line(Text(f"{'':<{_NAME}}{'without':>{_VALUE}}{'with breakers':>{_VALUE}}", "bold"))
    for block in blocks(result):
        screen.line(Text(block.title, "bold"))
        for row in block.rows:
            values = f"{row.plain:>{_VALUE}}{row.guarded:>{_VALUE}}"
            screen.line(f"  {row.name:<{_NAME - 2}}{values}")
    screen.line()
    for line in plots(result, has_blocks=screen.signs.full == "█", width=screen.width):
        screen.line(line)
    screen.line()
    for bar in result.bars:
        sign, style = (screen.signs.good, "green") if bar.kept else (screen.signs.bad, "bold red")
        screen.line(Text(f"{sign} {bar.words}", style))


def plots(result: Result, *, has_blocks: bool, width: int | None) -> list[str]:
    """How many calls were made, wasted and refused in each slot of time, on both sides."""
    signs = BLOCKS if has_blocks else PLAIN
    room = SLOTS if width is None else max(min(SLOTS, width - _TAG), 10)
    rows = []
    for side, tally in (("without", result.plain), ("with", result.guarded)):
        rows.append((f"{side:<8}made", tally.made))
        rows.append((f"{'':<8}wasted", tally.doomed))
        if any(tally.refused):
            rows.append((f"{'':<8}refused", tally.refused))
    most = max(max(counts) for _, counts in rows)
    found = [f"{name:<{_TAG}}{spark(counts, most, signs, room)}" for name, counts in rows]
    end = duration(result.world.length_s)
    return [*found, f"{'':<{_TAG}}0{end:>{room - 1}}"]


def spark(counts: Sequence[int], most: int, signs: str, width: int) -> str:
    """Counts as signs of rising height; what is not nothing is seen.

    >>> spark([0, 1, 50, 100], 100, " .:-=+*#@", 4)
    ' .=@'
    """
    # With fewer columns than slots, a column is the highest of its slots.
    edges = [place * len(counts) // width for place in range(width + 1)]
    highest = [max(counts[low:high]) for low, high in zip(edges, edges[1:], strict=False)]
    top = len(signs) - 1
    return "".join(signs[-(-count * top // max(most, 1))] for count in highest)
