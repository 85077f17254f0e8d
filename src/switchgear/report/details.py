"""What one iteration did, folded away until somebody wants to know."""

from collections.abc import Mapping
from typing import Any

from switchgear.report.facts import Done, items, mapping, number, text, whole
from switchgear.report.markup import Markup, element, joined
from switchgear.report.words import count, money, span, tone

NOTHING = Markup("")
FILES = 50


def details(done: Done) -> Markup:
    """A summary line, and behind it everything that the record has."""
    said = f"{done.number}: {done.outcome} in {span(done.seconds)}"
    chip = element("span", class_=f"chip t-{tone(done.outcome)}")
    agent = mapping(done.raw.get("agent"))
    inside = (
        _agent(done, agent),
        _texts("The agent said at its end", [agent.get("result")]),
        _texts("It asked", [agent.get("question")]),
        _texts("Error", [done.error]),
        _repeated(mapping(done.raw.get("repeated"))),
        _errors(done),
        _files(done),
        _validation(mapping(done.raw.get("validation"))),
        _texts("Remark", [done.raw.get("remark")]),
        _texts("Notes", items(done.raw.get("notes"))),
        _texts("Told before it began", [done.nudge]),
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
        parts.append("it says that it is done")
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
