"""The report of a backtest: what each policy would have done, then a picture for each run.

A pure function of what was found. One file without script or resources; every text is escaped.
"""

from collections.abc import Sequence

from switchgear._analysis.backtest.findings import BacktestFindings
from switchgear._analysis.backtest.replay import Judged, RunRow, Shown
from switchgear._analysis.backtest.statistics import Counts, Rate
from switchgear._report import charts
from switchgear._report.charts import STYLE, Markup, element, joined
from switchgear._report.facts import DetectorHeat, Done, count, kind_name, money

NOTHING = Markup("")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(found: BacktestFindings) -> str:
    """The report as one HTML document."""
    rows = found.most_important()
    body = element(
        "main",
        _head(found),
        _table(found),
        _pictures(found, rows),
        _remarks(found),
        element("footer", "Switchgear backtest"),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"Backtest: {_names(found)}"),
        element("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n"


def _names(found: BacktestFindings) -> str:
    return " and ".join(counts.policy for counts in found.counts) or "no run"


def _head(found: BacktestFindings) -> Markup:
    formats = ", ".join(f"{name} {many:,}" for name, many in found.tally.formats.most_common())
    facts = [("runs", f"{found.runs:,}"), ("files", f"{found.tally.files:,}")]
    if found.counts:
        facts += [
            ("steps", f"{found.counts[0].steps:,}"),
            ("tokens", f"{found.counts[0].tokens:,}" if found.counts[0].tokens else "unknown"),
            ("known to be solved", f"{found.counts[0].solved:,}"),
            ("known to be unsolved", f"{found.counts[0].unsolved:,}"),
        ]
    listed = (element("div", element("dt", name), element("dd", said)) for name, said in facts)
    stops = " / ".join(f"{counts.stopped:,}" for counts in found.counts) or "0"
    return element(
        "header",
        element("span", "backtest", class_="badge t-asks"),
        element("h1", f"What {_names(found)} would have done"),
        element(
            "p", f"{stops} of {count(found.runs, 'run')} would have been stopped", class_="reason"
        ),
        element("p", formats, class_="dim small"),
        element("dl", *listed, class_="facts"),
        class_="e-asks",
    )


def _table(found: BacktestFindings) -> Markup:
    if not found.counts:
        return NOTHING
    lines = [_lines(counts) for counts in found.counts]
    head = element(
        "tr", element("th", ""), *(element("th", counts.policy) for counts in found.counts)
    )
    rows = [
        element(
            "tr",
            element("td", lines[0][place][0], class_="t"),
            *(element("td", column[place][1]) for column in lines),
        )
        for place in range(len(lines[0]))
    ]
    table = element("table", element("thead", head), element("tbody", *rows))
    return element(
        "section",
        element("h2", "All runs"),
        element("div", table, class_="scroll"),
        element(
            "p",
            "A false stop is a run that was solved in the end and would have been stopped before; "
            "it is harmful when the work was still changed after that step. Intervals are those of "
            "Wilson, 95 %. A recording cannot show what a stop would have led to.",
            class_="dim small",
        ),
    )


def _lines(counts: Counts) -> list[tuple[str, str]]:
    by = ", ".join(
        f"{kind_name(kind)} {times:,}" for kind, times in counts.by_detector.most_common()
    )
    saved = money(counts.saved_micros)
    if counts.unpriced:
        unknown = f"price unknown for {count(counts.unpriced, 'run')}"
        saved = f"{saved}, and {unknown}" if counts.unpriced < counts.stopped else unknown
    harmful = f"{counts.harmful:,}"
    if counts.maybe_harmful:
        harmful += f", {counts.maybe_harmful:,} unclear"
    return [
        ("would warn", f"{counts.warned:,} of {count(counts.runs, 'run')}"),
        ("would stop", f"{counts.stopped:,} of {count(counts.runs, 'run')}"),
        ("by", by or "-"),
        ("tripped only at the end", f"{counts.too_late:,}"),
        ("steps saved", _share(counts.saved_steps, counts.steps)),
        ("tokens saved", _share(counts.saved_tokens, counts.tokens)),
        ("money saved", saved),
        ("false stops", _rate(counts.false_stop_rate, "solved")),
        ("harmful false stops", harmful if counts.solved else "unknown"),
        ("unsolved runs caught", _rate(counts.catch_rate, "unsolved")),
        ("of their steps saved", _share(counts.unsolved_saved, counts.unsolved_steps)),
    ]


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.1%})" if whole else "unknown"


def _rate(rate: Rate, what: str) -> str:
    if rate.value is None:
        return f"unknown: no run is known to be {what}"
    interval = f"{rate.low:.1%} to {rate.high:.1%}"
    return f"{rate.seen:,} of {rate.total:,} ({rate.value:.1%}; 95 %: {interval})"


def _pictures(found: BacktestFindings, rows: Sequence[RunRow]) -> Markup:
    if not rows:
        return NOTHING
    words = f"{count(len(rows), 'run')} of {found.runs:,}: false stops first, then what saves most."
    return element(
        "section",
        element("h2", "Runs"),
        element("p", words, class_="dim small"),
        *(_run(row, is_open=place < 5) for place, row in enumerate(rows)),
    )


def _run(row: RunRow, *, is_open: bool) -> Markup:
    run = row.run
    how, colour = _outcome(row)
    what = f"{run.id}: {count(run.steps, 'step')}, {how}"
    where = " ".join(part for part in (run.agent, run.model or "", run.source) if part)
    facts = [where, run.task]
    if run.ended:
        facts.append(f"ended: {run.ended}")
    facts.append(f"cost: {money(run.cost_micros)}{_because(run.cost_unknown)}")
    return element(
        "details",
        element("summary", element("span", class_=f"chip t-{colour}"), " ", what),
        element(
            "div",
            *(element("p", fact, class_="dim small") for fact in facts if fact),
            *(_judged(row, judged) for judged in row.judged),
        ),
        open="" if is_open else None,
    )


def _because(why: str) -> str:
    return f" ({why})" if why else ""


def _outcome(row: RunRow) -> tuple[str, str]:
    stopped = any(judged.stopped for judged in row.judged)
    if row.run.solved is None:
        return "outcome unknown", "warn" if stopped else "idle"
    if row.run.solved:
        return ("solved: a false stop", "bad") if stopped else ("solved", "good")
    return ("unsolved, caught", "best") if stopped else ("unsolved, not caught", "idle")


def _judged(row: RunRow, judged: Judged) -> Markup:
    said = f"{judged.policy}: {_done(row, judged)}"
    reason = element("p", judged.reason, class_="small") if judged.reason else NOTHING
    return joined(element("h3", said), reason, _picture(row, judged), _evidence(judged.evidence))


def _done(row: RunRow, judged: Judged) -> str:
    if judged.tripped_at is None:
        warned = f", warned after step {judged.warned_at:,}" if judged.warned_at else ""
        return f"would not have stopped it{warned}"
    saved = money(judged.saved_micros) if row.run.format != "live" else ""
    parts = [count(judged.saved_steps, "step"), f"{judged.saved_tokens:,} tokens", saved]
    told = ", ".join(part for part in parts if part and not part.startswith("0 tokens"))
    return f"stops after step {judged.tripped_at:,} of {row.run.steps:,}; saves {told}"


def _picture(row: RunRow, judged: Judged) -> Markup:
    if not judged.heats:
        return NOTHING
    stride = max(judged.heats[0][0], 1)
    numbers = sorted({*range(stride, row.run.steps + 1, stride), *(n for n, _ in judged.heats)})
    heats = dict(judged.heats)
    points = [_point(number, judged.kinds, heats.get(number)) for number in numbers]
    marks = [
        charts.Mark(_place(numbers, number), f"{words} after {number:,}", colour)
        for number, words, colour in (
            (judged.warned_at, "warned", "warn"),
            (judged.tripped_at, "stopped", "bad"),
        )
        if number is not None
    ]
    return element("figure", charts.heat(points, marks, noun="steps"), class_="scroll wide")


def _place(numbers: Sequence[int], number: int) -> int:
    """The place of the first point that is not before a step."""
    return next((at for at, each in enumerate(numbers) if each >= number), len(numbers) - 1)


def _point(number: int, kinds: Sequence[str], heats: Sequence[float] | None) -> Done:
    readings = () if heats is None else tuple(map(_reading, kinds, heats))
    return Done(
        number=number,
        outcome="",
        seconds=0.0,
        began_s=None,
        phase="",
        heat=max(heats or (0.0,)),
        readings=readings,
        cost_micros=None,
        tests_passing=None,
        output_chars=None,
        files_changed=None,
        steps=None,
        error="",
        nudge="",
        would_stop=False,
        raw={},
    )


def _reading(kind: str, heat: float) -> DetectorHeat:
    return DetectorHeat(kind, heat, "")


def _evidence(evidence: Sequence[Shown]) -> Markup:
    if not evidence:
        return NOTHING
    names = (("step", "n"), ("tool", ""), ("called with", ""), ("outcome", ""), ("thought", ""))
    head = element("tr", *(element("th", name, class_=kind or None) for name, kind in names))
    rows = [
        element(
            "tr",
            element("td", f"{step.number:,}", class_="n"),
            element("td", step.tool, class_="t"),
            element("td", step.args, class_="long"),
            element("td", _told(step), class_="long"),
            element("td", step.thought, class_="long"),
        )
        for step in evidence
    ]
    table = element("table", element("thead", head), element("tbody", *rows), class_="all")
    return element("div", table, class_="scroll")


def _told(step: Shown) -> str:
    word = {True: "ok", False: "failed", None: ""}[step.ok]
    return ": ".join(part for part in (word, step.told) if part)


def _remarks(found: BacktestFindings) -> Markup:
    tally = found.tally
    listed = [
        f"not understood: {name}, {many:,} times" for name, many in tally.unknown.most_common()
    ]
    listed += [f"not read: {path}: {why}" for path, why in tally.problems]
    if tally.problem_count > len(tally.problems):
        listed.append(f"and {tally.problem_count - len(tally.problems):,} files more")
    if found.untimed:
        listed.append(f"{count(found.untimed, 'run')} without times: steps are taken as 1 s apart")
    if tally.empty:
        listed.append(f"{count(tally.empty, 'session')} in which the agent did nothing")
    if not listed:
        return NOTHING
    items = (element("li", said) for said in listed)
    return element("section", element("h2", "What was not understood"), element("ul", *items))
