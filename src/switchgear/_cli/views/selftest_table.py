"""What a self-test found, in the terminal: guard by guard, then what cannot fire and why."""

from rich.text import Text

from switchgear._analysis.selftest.rows import Row as SelftestRow, Status
from switchgear._cli.views.screen import WIDE, Screen, fitted
from switchgear._cli.views.text import clean, plural

_HEADS = ("guard", "attack", "path", "tripped by", "after")
_WIDTHS = (26, 16, 16, 28, 22)
_STYLES = {Status.OK: "green", Status.FAILED: "bold red", Status.SKIPPED: "yellow"}


def show_selftest(rows: list[SelftestRow]) -> None:
    """A line for each guard; where it does not fire, the reason below it; then the sum."""
    screen = Screen()
    signs = screen.signs
    marks = {Status.OK: signs.good, Status.FAILED: signs.bad, Status.SKIPPED: signs.dot}
    margin = max(map(len, marks.values()))
    stacked = screen.width is not None and screen.width < sum(_WIDTHS) + len(_WIDTHS) + margin
    if not stacked and rows:
        heads = " ".join(f"{head:{width}}" for head, width in zip(_HEADS, _WIDTHS, strict=True))
        screen.line(Text(f"{'':{margin}} {heads}".rstrip(), "dim"))
    for row in rows:
        mark = (f"{marks[row.status]:{margin}} ", _STYLES[row.status])
        screen.line(Text.assemble(mark, _cells(row, screen, stacked=stacked)), margin + 3)
        if row.status is not Status.OK or (screen.width or 0) >= WIDE:
            why = f"{'':{margin}}   {row.status}: {clean(row.reason, 600)}"
            screen.line(Text(why, "" if row.status is Status.FAILED else "dim"), margin + 3)
    _sum(screen, rows)


def _cells(row: SelftestRow, screen: Screen, *, stacked: bool) -> str:
    cells = [
        clean(cell, 200) for cell in (row.guard, row.attack, row.path, row.detector, row.after)
    ]
    if stacked:
        return ", ".join(filter(None, cells))
    pairs = zip(cells, _WIDTHS, strict=True)
    return " ".join(fitted(cell, width, screen.signs) for cell, width in pairs).rstrip()


def _sum(screen: Screen, rows: list[SelftestRow]) -> None:
    stopped = sum(row.status is Status.OK and row.signals > 0 for row in rows)
    bad, left = (
        sum(row.status is status for row in rows) for status in (Status.FAILED, Status.SKIPPED)
    )
    said = f"{plural(stopped, 'attack')} stopped"
    said += f", {plural(bad, 'guard')} cannot fire" if bad else ", every guard fires"
    said += f", {left:,} not tried" if left else ""
    screen.line()
    screen.line(Text(said, "bold red" if bad else "bold"))
