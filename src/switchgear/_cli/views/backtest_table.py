"""What a backtest found, in the terminal: a table of the policies, then the runs that they stop."""

from collections.abc import Iterator

from rich.text import Text

from switchgear._analysis.backtest.findings import Found
from switchgear._analysis.backtest.replay import Judged, Row
from switchgear._analysis.backtest.statistics import Counts, Rate
from switchgear._cli.views.screen import Screen, fitted
from switchgear._cli.views.text import clean, plural
from switchgear._text.money import dollars

_LABEL = 22


def show_backtest(screen: Screen, found: Found, limit: int) -> None:
    """Everything."""
    _head(screen, found)
    if found.runs:
        screen.line()
        _table(screen, found)
        _runs(screen, found, limit)
    elif found.noun == "circuit":
        screen.line(
            "no circuit is or was in shadow mode; `switchgear hold shadow NAME` puts one there"
        )
    _remarks(screen, found)


def _head(screen: Screen, found: Found) -> None:
    formats = ", ".join(f"{name} {count:,}" for name, count in found.tally.formats.most_common())
    files = f" in {plural(found.tally.files, 'file')} ({formats})" if formats else ""
    screen.line(Text(f"{plural(found.runs, found.noun)}{files}", "bold"), 2)


def _table(screen: Screen, found: Found) -> None:
    cells = [[counts.policy, *(text for _, text in _lines(counts))] for counts in found.counts]
    labels = ["", *(label for label, _ in _lines(found.counts[0]))]
    wide = [max(len(cell) for cell in column) for column in cells]
    narrow = screen.width is not None and _LABEL + sum(wide) + 3 * len(wide) > screen.width
    for place, label in enumerate(labels):
        values = [column[place] for column in cells]
        if narrow and len(values) > 1:
            _stacked(screen, label, values, [column[0] for column in cells])
            continue
        padded = "   ".join(value.ljust(width) for value, width in zip(values, wide, strict=True))
        style = "bold" if not label else ""
        screen.line(Text.assemble((f"{label:{_LABEL}}", "dim"), (padded.rstrip(), style)), _LABEL)


def _stacked(screen: Screen, label: str, values: list[str], names: list[str]) -> None:
    if not label:
        return
    screen.line(Text(label, "dim"))
    for name, value in zip(names, values, strict=True):
        screen.line(f"  {clean(name, 40)}: {value}", 4)


def _lines(counts: Counts) -> Iterator[tuple[str, str]]:
    yield "would warn", f"{counts.warned:,} of {plural(counts.runs, 'run')}"
    yield "would stop", f"{counts.stopped:,} of {plural(counts.runs, 'run')}"
    by = ", ".join(f"{kind} {times:,}" for kind, times in counts.by_detector.most_common(4))
    yield "  by", by or "-"
    yield "steps saved", _share(counts.saved_steps, counts.steps)
    yield "tokens saved", _share(counts.saved_tokens, counts.tokens) if counts.tokens else "unknown"
    yield "money saved", _money(counts)
    yield "false stops", _rate(counts.false_stop_rate, "solved")
    yield "  harmful", _harm(counts)
    yield "caught", _rate(counts.catch_rate, "unsolved")
    yield "  of their steps", _share(counts.unsolved_saved, counts.unsolved_steps)


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.1%})" if whole else "-"


def _rate(rate: Rate, what: str) -> str:
    if rate.value is None:
        return f"unknown: no run is known to be {what}"
    interval = f"95 %: {rate.low:.1%} to {rate.high:.1%}"
    return f"{rate.seen:,} of {rate.total:,} {what}, {rate.value:.1%} ({interval})"


def _harm(counts: Counts) -> str:
    if not counts.false_stops:
        return "-"
    maybe = f", {counts.maybe_harmful:,} cannot be told" if counts.maybe_harmful else ""
    return f"{counts.harmful:,} of {plural(counts.false_stops, 'false stop')}{maybe}"


def _money(counts: Counts) -> str:
    known = dollars(counts.saved_micros)
    if not counts.unpriced:
        return known
    what = f"price unknown for {counts.unpriced:,} of {plural(counts.stopped, 'stopped run')}"
    return f"{known}, {what}" if counts.unpriced < counts.stopped else what


def _runs(screen: Screen, found: Found, limit: int) -> None:
    stopped = [row for row in found.most_important() if any(each.stopped for each in row.judged)]
    total = max((counts.stopped for counts in found.counts), default=0)
    if not stopped or not limit:
        return
    screen.line()
    shown = stopped[:limit]
    more = f" (the first {len(shown):,} of {total:,})" if total > len(shown) else ""
    screen.line(Text(f"{found.noun.capitalize()}s that would be stopped{more}", "bold"))
    for row in shown:
        _run(screen, row, named=len(found.counts) > 1)


def _run(screen: Screen, row: Row, *, named: bool) -> None:
    run = row.run
    how = {True: "solved: a false stop", False: "unsolved", None: "outcome unknown"}[run.solved]
    style = "red" if run.solved else "green" if run.solved is False else ""
    width = min((screen.width or 120) - 4, 100)
    name = fitted(clean(run.id, 200), min(len(run.id), width), screen.signs)
    screen.line(Text.assemble((f"  {name}", "bold"), "  ", (how, style)), 4)
    last: Judged | None = None
    for judged in row.judged:
        if judged.stopped:
            _stop(screen, row, judged, named=named)
            last = judged
    for step in last.evidence[-3:] if last is not None else ():
        outcome = {True: screen.signs.good, False: screen.signs.bad, None: screen.signs.dot}
        said = f"{step.tool} {step.args}".strip() or step.thought
        told = f" {screen.signs.arrow} {step.told}" if step.told else ""
        line = clean(f"{step.number}: {outcome[step.ok]} {said}{told}", 160)
        screen.line(Text(f"      {line}", "dim"), 8)


def _stop(screen: Screen, row: Row, judged: Judged, *, named: bool) -> None:
    who = f"{clean(judged.policy, 40)}: " if named else ""
    saved = plural(judged.saved_steps, "step")
    cost = "" if not judged.saved_micros else f", {dollars(judged.saved_micros)}"
    warned = f", warned after {judged.warned_at:,}" if judged.warned_at is not None else ""
    where = f"after step {judged.tripped_at:,} of {row.run.steps:,}{warned}; saves {saved}{cost}"
    screen.line(f"    {who}{where}", 6)
    screen.line(f"    {screen.signs.corner} {clean(judged.reason, 300)}", 6)


def _remarks(screen: Screen, found: Found) -> None:
    tally = found.tally
    remarks = []
    if found.untimed:
        remarks.append(
            f"{plural(found.untimed, 'run')} without times: steps are taken as 1 s apart"
        )
    if tally.empty:
        remarks.append(f"{plural(tally.empty, 'session')} in which the agent did nothing")
    if tally.unknown:
        named = ", ".join(f"{name} {count:,}" for name, count in tally.unknown.most_common(5))
        many = plural(sum(tally.unknown.values()), "line")
        remarks.append(f"{many} not understood: {clean(named, 300)}")
    if tally.problem_count:
        remarks.append(f"{plural(tally.problem_count, 'file')} not read:")
    if remarks:
        screen.line()
    for remark in remarks:
        screen.line(Text(remark, "yellow" if remark.endswith(":") else "dim"), 2)
    for path, why in tally.problems[:5]:
        screen.line(Text(f"  {clean(path, 300)}: {clean(why, 200)}", "dim"), 4)
