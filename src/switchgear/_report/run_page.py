"""Puts the report into the folder of its run: whole, at once, for the user only."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from switchgear._report import charts
from switchgear._report.charts import STYLE, Markup, element, joined, shown
from switchgear._report.facts import (
    ENDS,
    PHASES,
    TONES,
    UNKNOWN,
    Done,
    count,
    done,
    items,
    kind_name,
    mapping,
    money,
    number,
    percent,
    phase_name,
    readings,
    span,
    text,
    tone,
    whole,
)
from switchgear._run.formats import spent as spent_words
from switchgear._run.record import RunFolder

NOTHING = Markup("")
FILES = 50


def details(done: Done) -> Markup:
    """A summary line, and behind it everything that the record has."""
    said = f"{done.number}: {done.outcome} in {span(done.seconds)}"
    chip = element("span", class_=f"chip t-{tone(done.outcome)}")
    agent = mapping(done.raw.get("agent"))
    inside = (
        _agent(done, agent),
        _texts("Final message of the agent", [agent.get("result")]),
        _texts("Question of the agent", [agent.get("question")]),
        _texts("Error", [done.error]),
        _repeated(mapping(done.raw.get("repeated"))),
        _errors(done),
        _files(done),
        _validation(mapping(done.raw.get("validation"))),
        _texts("Remark", [done.raw.get("remark")]),
        _texts("Notes", items(done.raw.get("notes"))),
        _texts("Added to its prompt", [done.nudge]),
        _kept_files(done),
    )
    return element(
        "details",
        element("summary", chip, " ", said),
        element("div", *inside),
        id=f"iteration-{done.number}",
    )


def _agent(done: Done, agent: Mapping[str, Any]) -> Markup:
    tools = mapping(done.raw.get("tools"))
    used = ", ".join(f"{text(tool, 60)} {text(times, 20)}" for tool, times in tools.items())
    tokens = mapping(done.raw.get("tokens"))
    parts = [
        f"{count(done.steps, 'step')}{f' ({used})' if used else ''}",
        f"exit code {text(agent.get('exit_code'), 20) or 'not known'}",
        money(done.cost_micros),
        f"{whole(tokens.get('input')) or 0:,} tokens in, {whole(tokens.get('output')) or 0:,} out",
    ]
    if agent.get("problem"):
        parts.append(text(agent.get("problem"), 600))
    if done.raw.get("stopped"):
        parts.append(f"stopped by Switchgear: {text(done.raw.get('stopped'), 60)}")
    if done.raw.get("claims_done") is True:
        parts.append("it reports that it is done")
    if done.raw.get("commit"):
        parts.append(f"commit {text(done.raw.get('commit'), 60)}")
    return element("p", "; ".join(parts))


def _texts(title: str, texts: list[Any]) -> Markup:
    said = [text(each) for each in texts if each]
    if not said:
        return NOTHING
    return joined(element("h3", title), *(element("pre", each) for each in said))


def _repeated(again: Mapping[str, Any]) -> Markup:
    if not again:
        return NOTHING
    words = f"{text(again.get('tool'), 60)} {text(again.get('arguments'), 600)}"
    title = f"One step failed {text(again.get('times'), 20)} times in a row"
    return joined(element("h3", title), element("pre", words))


def _errors(done: Done) -> Markup:
    errors = [mapping(each) for each in items(done.raw.get("errors"))]
    rows = [
        element(
            "tr",
            element("td", f"{text(each.get('times'), 20)} times", class_="n"),
            element("td", text(each.get("kind"), 60), class_="t"),
            element("td", text(each.get("text"), 1000), class_="long"),
        )
        for each in errors
        if each
    ]
    return (
        joined(element("h3", "Errors of its steps"), element("table", *rows)) if rows else NOTHING
    )


def _files(done: Done) -> Markup:
    paths = [text(path, 300) for path in items(done.raw.get("files"))]
    if not paths:
        return NOTHING
    more = (done.files_changed or len(paths)) - len(paths[:FILES])
    rest = f"\nand {more:,} more" if more > 0 else ""
    title = f"{count(done.files_changed, 'file')} changed"
    return joined(element("h3", title), element("pre", "\n".join(paths[:FILES]) + rest))


def _validation(validation: Mapping[str, Any]) -> Markup:
    if not validation:
        return NOTHING
    verdict = validation.get("ok")
    passes = "passes" if verdict is True else "fails" if verdict is False else "did not end"
    numbers = [
        f"{found} {name}"
        for name in ("passed", "failed")
        if (found := whole(validation.get(name))) is not None
    ]
    counted = f" ({', '.join(numbers)})" if numbers else ""
    took = span(number(validation.get("seconds")))
    line = element(
        "p", "The validation ", element("code", text(validation.get("command"), 600)),
        f" {passes}{counted} in {took}.",
    )  # fmt: skip
    tail = text(validation.get("tail"))
    return joined(line, element("pre", tail) if tail else NOTHING)


def _kept_files(done: Done) -> Markup:
    names = [text(done.raw.get(key), 100) for key in ("prompt", "log") if done.raw.get(key)]
    if not names:
        return NOTHING
    said = f"In the folder of the run: {', '.join(names)}"
    return element("p", said, class_="dim small")


_HIDDEN = frozenset({"task", "prompt"})


def page(run: Mapping[str, Any], iterations: Sequence[Mapping[str, Any]]) -> str:
    """The report as one HTML document."""
    made = [done(facts, place) for place, facts in enumerate(iterations, 1)]
    body = element(
        "main",
        _head(run),
        _next(mapping(run.get("end"))),
        _timeline(made),
        _evidence(run),
        _heat(made),
        _trends(run, made),
        _nudges(made),
        _table(made),
        _all_details(made),
        _options(run),
        element("footer", f"Switchgear {text(run.get('id'), 80)}, {text(run.get('circuit'), 80)}"),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{_status(run)}: {text(run.get('task'), 80)}"),
        element("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n"


def _status(run: Mapping[str, Any]) -> str:
    end = mapping(run.get("end"))
    return text(end.get("exit_reason"), 40) or "not ended"


def _section(title: str, *inside: Markup) -> Markup:
    return element("section", element("h2", title), *inside)


def _head(run: Mapping[str, Any]) -> Markup:
    end, state = (mapping(run.get(key)) for key in ("end", "state"))
    status = _status(run)
    colour = ENDS.get(status, "warn" if end else "idle")
    reason = text(end.get("reason")) or "This run has not ended, or was broken off."
    where = f"{text(run.get('agent'), 60)} in {text(run.get('folder'), 400)}"
    when = f"{_date(run.get('started_at'))} to {_date(run.get('ended_at'))}"
    spent = spent_words(
        whole(state.get("spent_micros")) or 0, whole(state.get("unknown_prices")) or 0
    )
    budget = _budget(run)
    if budget is not None:
        spent += f" of {money(budget)}"
    tests, total = whole(state.get("tests_passing")), whole(state.get("tests_total"))
    of_total = "" if total is None else f" of {total:,}"
    facts = [
        ("iterations", f"{whole(state.get('iterations')) or 0:,}"),
        ("time", span(number(state.get("seconds")))),
        ("cost", spent),
        ("tokens", f"{whole(state.get('tokens')) or 0:,}"),
        ("files changed", f"{len(items(state.get('changed'))):,}"),
        ("tests passing", UNKNOWN if tests is None else f"{tests:,}{of_total}"),
    ]
    listed = (element("div", element("dt", name), element("dd", said)) for name, said in facts)
    return element(
        "header",
        element("span", status, class_=f"badge t-{colour}"),
        element("h1", text(run.get("task"), 2000)),
        element("p", reason, class_="reason"),
        element("p", f"{where}, {when}", class_="dim small"),
        element("dl", *listed, class_="facts"),
        class_=f"e-{colour}",
    )


def _date(value: object) -> str:
    said = text(value, 40)
    return said[:19].replace("T", " ") + (" UTC" if said.endswith("+00:00") else "") or "now"


def _next(end: Mapping[str, Any]) -> Markup:
    kept = mapping(end.get("checkpoint"))
    rows = []
    if kept:
        rows.append(_kept(kept, done=end.get("success") is True))
    if end.get("resume"):
        rows.append(element("h3", "Go on"))
        rows.append(element("pre", text(end.get("resume"))))
    notes = [element("li", text(note)) for note in items(end.get("notes"))]
    if notes:
        rows.append(joined(element("h3", "Notes"), element("ul", *notes)))
    title = "What was kept, and how to go on" if end.get("resume") else "What was done"
    return _section(title, *rows) if rows else NOTHING


def _kept(kept: Mapping[str, Any], *, done: bool) -> Markup:
    changed = whole(kept.get("changed"))
    words = f"{count(changed, 'file')} changed since the start"
    added, removed = whole(kept.get("added_lines")), whole(kept.get("removed_lines"))
    if added is not None:
        words += f", +{added} -{removed or 0} lines"
    files = [text(path, 300) for path in items(kept.get("files"))]
    listed = element("p", "\n".join(files[:40]), class_="small dim files") if files else NOTHING
    how = element("pre", text(kept.get("how"))) if changed else NOTHING
    return joined(element("h3", words if done else f"Partial work: {words}"), listed, how)


def _timeline(made: Sequence[Done]) -> Markup:
    if not made:
        return _section("Timeline", element("p", "No iteration was finished.", class_="dim"))
    outcomes = [name for name in TONES if any(each.outcome == name for each in made)]
    keys = [
        element("span", element("span", class_=f"chip t-{tone(name)}"), name, class_="key")
        for name in outcomes
    ]
    phases = [name for name in PHASES if any(each.phase == name for each in made)]
    keys += [element("span", charts.lamp(name), phase_name(name), class_="key") for name in phases]
    if any(is_break for _, _, is_break in charts.spans(made)):
        keys.append(element("span", "⋯ a pause, drawn shorter", class_="key"))
    if any(each.nudge for each in made):
        keys.append(element("span", "▼ the agent was warned", class_="key warned"))
    drawing = element("figure", charts.timeline(made), class_="scroll wide")
    return _section("Timeline", drawing, element("p", *keys, class_="legend"))


def _evidence(run: Mapping[str, Any]) -> Markup:
    end = mapping(run.get("end"))
    held = readings(run.get("readings"))
    in_table = {each.reason for each in held}
    evidence = [text(each) for each in items(end.get("evidence"))]
    listed = [element("li", each) for each in evidence if each not in in_table]
    parts = [element("ul", *listed)] if listed else []
    rows = [
        element(
            "tr",
            element("td", kind_name(each.kind), class_="t"),
            element("td", charts.bar(each.heat, _hot(each.heat))),
            element("td", percent(each.heat), class_="n"),
            element("td", each.reason, class_="long"),
        )
        for each in held
    ]
    if rows:
        head = _row("th", ("detector", ""), ("heat", ""), ("", ""), ("what it holds", ""))
        table = element("table", element("thead", head), element("tbody", *rows), class_="held")
        parts.append(element("div", table, class_="scroll"))
    return _section("Evidence", *parts) if parts else NOTHING


def _hot(heat: float) -> str:
    return "bad" if heat >= 1 else "warn" if heat >= 0.6 else "good"


def _heat(made: Sequence[Done]) -> Markup:
    if not any(each.readings for each in made):
        return NOTHING
    return _section(
        "Heat of each detector", element("figure", charts.heat(made), class_="scroll wide")
    )


def _budget(run: Mapping[str, Any]) -> int | None:
    """What it may spend, with what was set aside for it; older runs have but the option."""
    if "may_spend_micros" in run:
        return whole(run["may_spend_micros"])
    return whole(mapping(run.get("options")).get("budget_micros"))


def _trends(run: Mapping[str, Any], made: Sequence[Done]) -> Markup:
    if not made:
        return NOTHING
    drawings = [("Cost in all", charts.cost(made, _budget(run)))]
    if any(each.tests_passing is not None for each in made):
        before = whole(made[0].raw.get("tests_before"))
        drawings.append(("Tests passing", charts.tests(made, before)))
    if any(each.output_chars is not None for each in made):
        drawings.append(("Output, in characters", charts.output(made)))
    figures = (element("figure", element("h3", name), drawn) for name, drawn in drawings)
    return _section("Trends", element("div", *figures, class_="pair"))


def _nudges(made: Sequence[Done]) -> Markup:
    told = [each for each in made if each.nudge]
    if not told:
        return NOTHING
    words = "The evidence that was put into the prompt before the breaker would stop the loop."
    rows = [
        element(
            "tr",
            element("td", f"{each.number}", class_="n"),
            element("td", each.nudge, class_="long"),
        )
        for each in told
    ]
    head = _row("th", ("iteration", "n"), ("told", ""))
    table = element("table", element("thead", head), element("tbody", *rows), class_="told")
    return _section("Nudges", element("p", words, class_="dim small"), table)


_COLUMNS = (
    ("#", "n"),
    ("outcome", ""),
    ("circuit", ""),
    ("heat", "n"),
    ("time", "n"),
    ("steps", "n"),
    ("files", "n"),
    ("tests", "n"),
    ("cost", "n"),
    ("error", ""),
)


def _table(made: Sequence[Done]) -> Markup:
    if not made:
        return NOTHING
    rows = (_iteration(each) for each in made)
    table = element(
        "table", element("thead", _row("th", *_COLUMNS)), element("tbody", *rows), class_="all"
    )
    return _section("Iterations", element("div", table, class_="scroll"))


def _iteration(each: Done) -> Markup:
    outcome = each.outcome + (" (would stop)" if each.would_stop else "")
    link = element("a", f"{each.number}", href=f"#iteration-{each.number}")
    return element(
        "tr",
        element("td", link, class_="n"),
        element(
            "td", element("span", class_=f"chip t-{tone(each.outcome)}"), " ", outcome, class_="t"
        ),
        element("td", charts.lamp(each.phase), " ", phase_name(each.phase), class_="t"),
        element("td", percent(each.heat), class_="n"),
        element("td", span(each.seconds), class_="n"),
        *(
            element("td", UNKNOWN if value is None else f"{value:,}", class_="n")
            for value in (each.steps, each.files_changed, each.tests_passing)
        ),
        element("td", money(each.cost_micros), class_="n"),
        element("td", text(each.error, 300), class_="long"),
    )


def _all_details(made: Sequence[Done]) -> Markup:
    if not made:
        return NOTHING
    return _section("What each iteration did", *(details(each) for each in made))


def _options(run: Mapping[str, Any]) -> Markup:
    options = mapping(run.get("options"))
    rows = [
        element("tr", element("td", name.replace("_", " ")), element("td", _said(value)))
        for name, value in options.items()
        if name not in _HIDDEN and value is not None
    ]
    if not rows:
        return NOTHING
    folded = element("details", element("summary", "Options of the run"), element("table", *rows))
    return element("section", folded)


def _said(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else text(value, 1000)


def _row(tag: str, *cells: tuple[str, str]) -> Markup:
    return element("tr", *(element(tag, shown(said), class_=name or None) for said, name in cells))


NAME = "report.html"


def write_report(record: RunFolder) -> Path:
    """Write the report of a run and return where it is. Raises `RunUnreadable` and OSError."""
    place = record.path / NAME
    put_in_place(place, page(record.read(), list(record.iterations())))
    return place


def put_in_place(path: str | Path, whole: str) -> None:
    """Write a file beside its place and put it there at once. Raises OSError."""
    place = Path(path)
    beside = place.parent / f".{place.name}.{os.getpid()}"
    # What an agent may have put there, a link above all, is not written through.
    beside.unlink(missing_ok=True)
    try:
        with beside.open("x", encoding="utf-8", errors="backslashreplace") as file:
            beside.chmod(0o600)
            file.write(whole)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
