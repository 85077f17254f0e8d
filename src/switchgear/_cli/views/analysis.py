"""Tables of `backtest`, `selftest` and `simulate` in the terminal."""

from collections.abc import Sequence

from rich.text import Text

from switchgear._analysis.backtest.findings import BacktestFindings
from switchgear._analysis.backtest.replay import Judged, RunRow
from switchgear._analysis.selftest.sandbox import GuardRow, GuardStatus
from switchgear._analysis.simulate.compare import Result, blocks
from switchgear._analysis.simulate.engine import SLOTS
from switchgear._breaker.presets import MEASURED
from switchgear._cli.views.terminal import WIDE, Screen, fitted
from switchgear._cli.views.text import clean, plural
from switchgear._report.analysis_pages import outcome_lines, policy_facts
from switchgear._text.formats import dollars, duration

_HEADS = ("guard", "attack", "path", "tripped by", "after")
_WIDTHS = (26, 16, 16, 28, 22)
_STYLES = {GuardStatus.OK: "green", GuardStatus.FAILED: "bold red", GuardStatus.SKIPPED: "yellow"}


def show_selftest(rows: list[GuardRow]) -> None:
    """A line for each guard, with the reason below it if it does not fire; then the totals."""
    screen = Screen()
    signs = screen.signs
    marks = dict(zip(_STYLES, (signs.good, signs.bad, signs.dot), strict=True))
    margin = max(map(len, marks.values()))
    stacked = screen.width is not None and screen.width < sum(_WIDTHS) + len(_WIDTHS) + margin
    if not stacked and rows:
        heads = " ".join(f"{head:{width}}" for head, width in zip(_HEADS, _WIDTHS, strict=True))
        screen.line(Text(f"{'':{margin}} {heads}".rstrip(), "dim"))
    for row in rows:
        mark = (f"{marks[row.status]:{margin}} ", _STYLES[row.status])
        screen.line(Text.assemble(mark, _cells(row, screen, stacked=stacked)), margin + 3)
        if row.status is not GuardStatus.OK or (screen.width or 0) >= WIDE:
            why = f"{'':{margin}}   {row.status}: {clean(row.reason, 600)}"
            screen.line(Text(why, "" if row.status is GuardStatus.FAILED else "dim"), margin + 3)
    _show_totals(screen, rows)


def _cells(row: GuardRow, screen: Screen, *, stacked: bool) -> str:
    cells = [
        clean(cell, 200) for cell in (row.guard, row.attack, row.path, row.detector, row.after)
    ]
    if stacked:
        return ", ".join(filter(None, cells))
    pairs = zip(cells, _WIDTHS, strict=True)
    return " ".join(fitted(cell, width, screen.signs) for cell, width in pairs).rstrip()


def _show_totals(screen: Screen, rows: list[GuardRow]) -> None:
    stopped = sum(row.status is GuardStatus.OK and row.signals > 0 for row in rows)
    failed, skipped = (
        sum(row.status is status for row in rows)
        for status in (GuardStatus.FAILED, GuardStatus.SKIPPED)
    )
    summary = f"{plural(stopped, 'attack')} stopped"
    summary += f", {plural(failed, 'guard')} cannot fire" if failed else ", every guard fires"
    summary += f", {skipped:,} skipped" if skipped else ""
    screen.line()
    screen.line(Text(summary, "bold red" if failed else "bold"))


BLOCKS, PLAIN = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_NAME, _VALUE, _TAG = 36, 20, 16


def show_simulation(result: Result, source: str) -> None:
    screen = Screen()
    world = result.world
    size = f"{world.agents:,} agents, {duration(world.length_s)}, seed {world.seed}"
    noise = f", noise {world.noise:g}" if world.noise else ""
    screen.line(Text(f"{world.scenario.name}: {world.scenario.about}", "bold"))
    screen.line(clean(f"{size}{noise}, policies: {source}"))
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
    """The calls made, wasted and refused in each slot of time, without and with breakers."""
    signs = BLOCKS if has_blocks else PLAIN
    room = SLOTS if width is None else max(min(SLOTS, width - _TAG), 10)
    rows = []
    for side, tally in (("without", result.plain), ("with", result.guarded)):
        rows.append((f"{side:<8}made", tally.made))
        rows.append((f"{'':<8}wasted", tally.doomed))
        if any(tally.refused):
            rows.append((f"{'':<8}refused", tally.refused))
    most = max(max(counts) for _, counts in rows)
    lines = [f"{name:<{_TAG}}{spark(counts, most, signs, room)}" for name, counts in rows]
    end = duration(result.world.length_s)
    return [*lines, f"{'':<{_TAG}}0{end:>{room - 1}}"]


def spark(counts: Sequence[int], most: int, signs: str, width: int) -> str:
    """Counts as symbols of rising height; every count above 0 is visible.

    >>> spark([0, 1, 50, 100], 100, " .:-=+*#@", 4)
    ' .=@'
    """
    # With fewer columns than slots, a column shows its highest slot.
    edges = [place * len(counts) // width for place in range(width + 1)]
    highest = [max(counts[low:high]) for low, high in zip(edges, edges[1:], strict=False)]
    top = len(signs) - 1
    return "".join(signs[-(-count * top // max(most, 1))] for count in highest)


_LABEL = 22
_SHOWN_PROBLEMS = 5


def show_backtest(screen: Screen, found: BacktestFindings, limit: int) -> None:
    formats = ", ".join(f"{name} {count:,}" for name, count in found.tally.formats.most_common())
    files = f" in {plural(found.tally.files, 'file')} ({formats})" if formats else ""
    screen.line(Text(f"{plural(found.runs, found.noun)}{files}", "bold"), 2)
    if found.runs:
        for line in outcome_lines(found):
            screen.line(line, 2)
        screen.line()
        _table(screen, found)
        _runs(screen, found, limit)
    elif found.noun == "circuit":
        screen.line(
            "no circuit is or was in shadow mode; `switchgear hold shadow NAME` puts one there"
        )
    else:
        screen.line(
            "no recorded session was found; `switchgear backtest --help` lists the formats, and"
            " `switchgear backtest` without a path the folders of agents on this computer",
            2,
        )
    _remarks(screen, found)


def _table(screen: Screen, found: BacktestFindings) -> None:
    cells = [
        [counts.policy, *(text for _, text in policy_facts(counts))] for counts in found.counts
    ]
    labels = ["", *(label for label, _ in policy_facts(found.counts[0]))]
    widths = [max(len(cell) for cell in column) for column in cells]
    is_narrow = screen.width is not None and _LABEL + sum(widths) + 3 * len(widths) > screen.width
    for place, label in enumerate(labels):
        values = [column[place] for column in cells]
        if is_narrow and len(values) > 1:
            if label:
                screen.line(Text(label, "dim"))
                for column in cells:
                    screen.line(f"  {clean(column[0], 40)}: {column[place]}", 4)
            continue
        padded = "   ".join(value.ljust(width) for value, width in zip(values, widths, strict=True))
        style = "bold" if not label else ""
        screen.line(Text.assemble((f"{label:{_LABEL}}", "dim"), (padded.rstrip(), style)), _LABEL)


def _runs(screen: Screen, found: BacktestFindings, limit: int) -> None:
    stopped = [row for row in found.most_important() if any(each.stopped for each in row.judged)]
    total = max((counts.stopped for counts in found.counts), default=0)
    if not stopped or not limit:
        return
    screen.line()
    shown = stopped[:limit]
    more = f" (the first {len(shown):,} of {total:,})" if total > len(shown) else ""
    screen.line(Text(f"{found.noun.capitalize()}s that would be stopped{more}", "bold"))
    for row in shown:
        _show_run(screen, row, with_policy=len(found.counts) > 1)


def _show_run(screen: Screen, row: RunRow, *, with_policy: bool) -> None:
    run = row.run
    outcome = {True: "solved: a false stop", False: "unsolved", None: "outcome unknown"}[run.solved]
    if run.outcome_from == "inferred":
        inferred = f"inferred, {run.confidence or 0.5:.0%}: {clean(run.outcome_how, 120)}"
        outcome = f"{outcome} ({inferred})"
    style = "red" if run.solved else "green" if run.solved is False else ""
    width = min((screen.width or 120) - 4, 100)
    name = fitted(clean(run.id, 200), min(len(run.id), width), screen.signs)
    screen.line(Text.assemble((f"  {name}", "bold"), "  ", (outcome, style)), 4)
    stops = [judged for judged in row.judged if judged.stopped]
    for judged in stops:
        _show_stop(screen, row, judged, with_policy=with_policy)
    signs = {True: screen.signs.good, False: screen.signs.bad, None: screen.signs.dot}
    for step in stops[-1].evidence[-3:] if stops else ():
        action = f"{step.tool} {step.args}".strip() or step.thought
        result = f" {screen.signs.arrow} {step.told}" if step.told else ""
        line = clean(f"{step.number}: {signs[step.ok]} {action}{result}", 160)
        screen.line(Text(f"      {line}", "dim"), 8)


def _show_stop(screen: Screen, row: RunRow, judged: Judged, *, with_policy: bool) -> None:
    policy = f"{clean(judged.policy, 40)}: " if with_policy else ""
    saved = plural(judged.saved_steps, "step")
    cost = "" if not judged.saved_micros else f", {dollars(judged.saved_micros)}"
    warned = f", warned after {judged.warned_at:,}" if judged.warned_at is not None else ""
    where = f"after step {judged.tripped_at:,} of {row.run.steps:,}{warned}; saves {saved}{cost}"
    screen.line(f"    {policy}{where}", 6)
    screen.line(f"    {screen.signs.corner} {clean(judged.reason, 300)}", 6)


def _remarks(screen: Screen, found: BacktestFindings) -> None:
    tally = found.tally
    remarks = [
        f"{counts.policy} on other recorded runs: {MEASURED[counts.policy]}"
        for counts in found.counts
        if counts.policy in MEASURED and found.runs
    ]
    if found.unmatched:
        names = clean(", ".join(sorted(found.unmatched)[:3]), 200)
        count = plural(len(found.unmatched), "outcome")
        remarks.append(f"{count} of --outcomes without a run of that id or task: {names}")
    if found.untimed:
        remarks.append(
            f"{plural(found.untimed, 'run')} without times: steps are assumed to be 1 s apart"
        )
    if tally.empty:
        remarks.append(f"{plural(tally.empty, 'session')} in which the agent did nothing")
    if tally.unknown:
        kinds = ", ".join(f"{name} {times:,}" for name, times in tally.unknown.most_common(5))
        count = plural(sum(tally.unknown.values()), "line")
        remarks.append(f"{count} not understood: {clean(kinds, 300)}")
    if tally.problem_count:
        count = plural(tally.problem_count, "file")
        first = f" (the first {_SHOWN_PROBLEMS})" if tally.problem_count > _SHOWN_PROBLEMS else ""
        remarks.append(f"{count} not read{first}:")
    if remarks:
        screen.line()
    for remark in remarks:
        screen.line(Text(remark, "yellow" if remark.endswith(":") else "dim"), 2)
    for path, why in tally.problems[:_SHOWN_PROBLEMS]:
        screen.line(Text(f"  {clean(path, 300)}: {clean(why, 200)}", "dim"), 4)
