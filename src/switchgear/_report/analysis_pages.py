"""The reports of a backtest and of a simulation: one HTML file each, without scripts or resources.

Pure functions of the results. Every text is escaped.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from switchgear._analysis.backtest.findings import BacktestFindings, Counts, Rate
from switchgear._analysis.backtest.outcomes import INFERRED
from switchgear._analysis.backtest.replay import Judged, RunRow
from switchgear._analysis.simulate.compare import Result, blocks
from switchgear._analysis.simulate.engine import SLOTS, Tally
from switchgear._report import charts
from switchgear._report.charts import WIDE, Plot, area, drawing, element, grid, key, line
from switchgear._report.environment import render
from switchgear._report.facts import DetectorHeat, Done, count, kind_name, money
from switchgear._text.formats import duration


def backtest_page(found: BacktestFindings) -> str:
    """The report of a backtest: what each policy would have done, then a chart for each run."""
    facts = [policy_facts(counts, kind_name, None) for counts in found.counts]
    lines = [
        (_ROW_NAMES.get(rows[0][0], rows[0][0].strip()), [value for _, value in rows])
        for rows in zip(*facts, strict=True)
    ]
    late = [f"{counts.too_late:,}" for counts in found.counts]
    lines[3:3] = [("tripped only at the end", late)] if lines else []
    return render(
        "backtest.html",
        found=found,
        names=" and ".join(counts.policy for counts in found.counts) or "no run",
        listed=_facts(found),
        stops=" / ".join(f"{counts.stopped:,}" for counts in found.counts) or "0",
        formats=", ".join(f"{name} {times:,}" for name, times in found.tally.formats.most_common()),
        policies=[(counts.policy, "") for counts in found.counts],
        lines=lines,
        runs=[_shown_run(row) for row in found.most_important()],
        remarks=_remarks(found),
        result_of=lambda step: ": ".join(filter(None, (_RESULTS[step.ok], step.told))),
    )


_EXPECTED = {"confirm": "unsolved", "delay": "solved", "hint": "solved"}


def outcome_lines(found: BacktestFindings) -> list[str]:
    """The sources of the outcomes, unless all are recorded; and how often second opinions were right."""
    counts, lines = found.outcomes, list[str]()
    if counts["label"] or counts["inferred"] or (counts[""] and found.noun == "run"):
        confidence = f"at least {found.least_confidence or 0:.0%} confidence"
        parts = (
            (counts["label"], "labelled"),
            (counts["given"] + counts["recording"], "recorded"),
            (counts["inferred"], f"inferred ({confidence})"),
            (counts[""], "unknown"),
        )
        shown = ", ".join(f"{number:,} {word}" for number, word in parts if number)
        lines.append(f"outcomes: {shown}; correct them with: switchgear label PATH")
    for verdict, numbers in found.opinions.as_values().items():
        if verdict == "none":
            lines.append(f"second opinion: {count(numbers['given'], 'time')} no answer")
            continue
        known = f"{numbers['right']:,} of {numbers['known']:,} with a known outcome were {_EXPECTED[verdict]}"
        known = known if numbers["known"] else "no outcome of these runs is known"
        lines.append(f"second opinion: {count(numbers['given'], verdict)}; {known}")
    return lines


def _facts(found: BacktestFindings) -> list[tuple[str, str]]:
    facts = [("runs", f"{found.runs:,}"), ("files", f"{found.tally.files:,}")]
    if found.counts:
        facts += [
            ("steps", f"{found.counts[0].steps:,}"),
            ("tokens", f"{found.counts[0].tokens:,}" if found.counts[0].tokens else "unknown"),
            ("known to be solved", f"{found.counts[0].solved:,}"),
            ("known to be unsolved", f"{found.counts[0].unsolved:,}"),
        ]
    return facts


def policy_facts(
    counts: Counts, named: Callable[[str], str] = str, most: int | None = 4
) -> list[tuple[str, str]]:
    """What a policy would have done: labels and values. An indented label belongs to the row above.

    `named` returns the shown name of a detector; at most `most` detectors are listed.
    """
    runs, stopped = f"of {counts.runs:,} run{'s' * (counts.runs != 1)}", counts.stopped
    by = (f"{named(kind)} {times:,}" for kind, times in counts.by_detector.most_common(most))
    tokens = _share_text(counts.saved_tokens, counts.tokens)
    saved = money(counts.saved_micros)
    if counts.unpriced:
        what = f"price unknown for {counts.unpriced:,} of {count(stopped, 'stopped run')}"
        saved = f"{saved}, {what}" if counts.unpriced < stopped else what
    harmful = f"{counts.harmful:,} of {count(counts.false_stops, 'false stop')}"
    if counts.maybe_harmful:
        harmful += f", {counts.maybe_harmful:,} unclear"
    return [
        ("would warn", f"{counts.warned:,} {runs}"),
        ("would stop", f"{stopped:,} {runs}"),
        ("  by", ", ".join(by) or "-"),
        ("steps saved", _share_text(counts.saved_steps, counts.steps)),
        ("tokens saved", tokens if counts.tokens or not stopped else "unknown"),
        ("money saved", saved),
        ("false stops", _rate(counts.false_stop_rate, "solved")),
        ("  harmful", harmful if counts.false_stops else "-"),
        ("caught", _rate(counts.catch_rate, "unsolved")),
        ("  of their steps", _share_text(counts.unsolved_saved, counts.unsolved_steps)),
    ]


_ROW_NAMES = {
    "  harmful": "harmful false stops",
    "caught": "unsolved runs caught",
    "  of their steps": "of their steps saved",
}
"""The labels on the page, where rows are not indented."""


def _share_text(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.1%})" if whole else "-"


def _rate(rate: Rate, what: str) -> str:
    if rate.value is None:
        return f"unknown: no run is known to be {what}"
    interval = f"95 %: {rate.low:.1%} to {rate.high:.1%}"
    return f"{rate.seen:,} of {rate.total:,} {what}, {rate.value:.1%} ({interval})"


class ShownRun(NamedTuple):
    what: str
    colour: str
    facts: list[str]
    judged: list[tuple[Any, ...]]
    """For each policy: what it would have done, why, a chart, and the steps before."""


def _shown_run(row: RunRow) -> ShownRun:
    run = row.run
    outcome, colour = _outcome(row)
    why = f" ({run.cost_unknown})" if run.cost_unknown else ""
    facts = [
        " ".join(part for part in (run.agent, run.model or "", run.source) if part),
        run.task,
        f"ended: {run.ended}" if run.ended else "",
        f"cost: {money(run.cost_micros)}{why}",
    ]
    judged = [
        (
            f"{each.policy}: {_stop_text(row, each)}",
            each.reason,
            _heat_chart(row, each),
            each.evidence,
        )
        for each in row.judged
    ]
    return ShownRun(f"{run.id}: {count(run.steps, 'step')}, {outcome}", colour, facts, judged)


def _outcome(row: RunRow) -> tuple[str, str]:
    """The outcome of a run, with how it was inferred, and its colour."""
    text, colour = _text_and_colour(row)
    if row.run.outcome_from == INFERRED:
        text = f"{text} (inferred, {row.run.confidence or 0.5:.0%}: {row.run.outcome_how})"
    return text, colour


def _text_and_colour(row: RunRow) -> tuple[str, str]:
    stopped = any(judged.stopped for judged in row.judged)
    if row.run.solved is None:
        return "outcome unknown", "warn" if stopped else "idle"
    if row.run.solved:
        return ("solved: a false stop", "bad") if stopped else ("solved", "good")
    return ("unsolved, caught", "best") if stopped else ("unsolved, not caught", "idle")


def _stop_text(row: RunRow, judged: Judged) -> str:
    if judged.tripped_at is None:
        warned = f", warned after step {judged.warned_at:,}" if judged.warned_at else ""
        return f"would not have stopped it{warned}"
    saved = money(judged.saved_micros) if row.run.format != "live" else ""
    parts = [count(judged.saved_steps, "step"), f"{judged.saved_tokens:,} tokens", saved]
    amounts = ", ".join(part for part in parts if part and not part.startswith("0 tokens"))
    return f"stops after step {judged.tripped_at:,} of {row.run.steps:,}; saves {amounts}"


def _heat_chart(row: RunRow, judged: Judged) -> Markup | None:
    if not judged.heats:
        return None
    stride = max(judged.heats[0][0], 1)
    numbers = sorted({*range(stride, row.run.steps + 1, stride), *(n for n, _ in judged.heats)})
    heats = dict(judged.heats)
    points = [_point(number, judged.kinds, heats.get(number)) for number in numbers]
    marks = [
        charts.Mark(
            bisect_left(numbers, number, hi=len(numbers) - 1), f"{words} after {number:,}", colour
        )
        for number, words, colour in (
            (judged.warned_at, "warned", "warn"),
            (judged.tripped_at, "stopped", "bad"),
        )
        if number is not None
    ]
    return charts.heat(points, marks, noun="steps")


def _point(number: int, kinds: Sequence[str], heats: Sequence[float] | None) -> Done:
    held = () if heats is None else zip(kinds, heats, strict=False)
    readings = tuple(DetectorHeat(kind, heat, "") for kind, heat in held)
    return Done(number, heat=max(heats or (0.0,)), readings=readings)


_RESULTS = {True: "ok", False: "failed", None: ""}


def _remarks(found: BacktestFindings) -> list[str]:
    tally = found.tally
    remarks = outcome_lines(found)
    remarks += [
        f"not understood: {name}, {times:,} times" for name, times in tally.unknown.most_common()
    ]
    remarks += [f"not read: {path}: {why}" for path, why in tally.problems]
    if tally.problem_count > len(tally.problems):
        remarks.append(f"and {tally.problem_count - len(tally.problems):,} more files")
    if found.untimed:
        remarks.append(
            f"{count(found.untimed, 'run')} without times: steps are assumed to be 1 s apart"
        )
    if tally.empty:
        remarks.append(f"{count(tally.empty, 'session')} in which the agent did nothing")
    return remarks


_HEIGHT = 190.0
_SERIES = (
    ("made", "calls made", "k-0", None),
    ("doomed", "wasted calls", "k-1", "7 4"),
    ("refused", "refused or sent elsewhere", "k-3", "2 3"),
)
"""The field, label, colour and dash pattern of each line."""


def simulation_page(result: Result) -> str:
    """The report of a simulation: targets, tables and charts."""
    world = result.world
    most = max(max(tally.made + tally.refused) for tally in (result.plain, result.guarded))
    return render(
        "simulate.html",
        world=world,
        verdict=("best", "targets met") if result.kept else ("bad", "target missed"),
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
    """The chart, and its legend: samples of lines with their labels."""
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
        element("text", label, x=plot.x(at), y=_HEIGHT - 10, class_="axis", text_anchor="middle")
        for at, label in hours
    ]
    return drawing(WIDE, _HEIGHT, f"Calls over {duration(length_s)}", *parts), keys
