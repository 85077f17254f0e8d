"""The report of a run: one HTML file in its folder, written atomically, readable only by the user."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from switchgear._report import charts
from switchgear._report.environment import render
from switchgear._report.facts import (
    ENDS,
    PHASES,
    TONES,
    UNKNOWN,
    Done,
    count,
    done,
    items,
    mapping,
    money,
    number,
    readings,
    span,
    text,
    whole,
)
from switchgear._run.formats import spent as spent_words
from switchgear._run.record import RunFolder
from switchgear._system.files import write_whole

FILES = 50
_HIDDEN = frozenset({"task", "prompt"})
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


def page(run: Mapping[str, Any], iterations: Sequence[Mapping[str, Any]]) -> str:
    made = [done(facts, place) for place, facts in enumerate(iterations, 1)]
    end = mapping(run.get("end"))
    kept, held = mapping(end.get("checkpoint")), readings(run.get("readings"))
    status = text(end.get("exit_reason"), 40) or "not ended"
    in_table = {each.reason for each in held}
    return render(
        "run.html",
        run=run,
        end=end,
        status=status,
        colour=ENDS.get(status, "warn" if end else "idle"),
        listed=_facts(run),
        kept=kept,
        kept_words=_kept_text(kept),
        kept_files=[text(path, 300) for path in items(kept.get("files"))][:40],
        notes=items(end.get("notes")),
        made=made,
        outcomes=[name for name in TONES if any(each.outcome == name for each in made)],
        phases=[name for name in PHASES if any(each.phase == name for each in made)],
        has_break=any(is_break for _, _, is_break in charts.spans(made)),
        nudged=[each for each in made if each.nudge],
        evidence=[
            line for each in items(end.get("evidence")) if (line := text(each)) not in in_table
        ],
        held=held,
        trends=_trends(run, made),
        columns=_COLUMNS,
        options=[
            (name, value)
            for name, value in mapping(run.get("options")).items()
            if name not in _HIDDEN and value is not None
        ],
        agent_words=_agent,
        counted=_test_counts,
        date=_date,
        files_of=_files,
    )


def _facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    state, budget = mapping(run.get("state")), _budget(run)
    spent = spent_words(
        whole(state.get("spent_micros")) or 0, whole(state.get("unknown_prices")) or 0
    )
    tests, total = whole(state.get("tests_passing")), whole(state.get("tests_total"))
    of_total = "" if total is None else f" of {total:,}"
    return [
        ("iterations", f"{whole(state.get('iterations')) or 0:,}"),
        ("time", span(number(state.get("seconds")))),
        ("cost", spent if budget is None else f"{spent} of {money(budget)}"),
        ("tokens", f"{whole(state.get('tokens')) or 0:,}"),
        ("files changed", f"{len(items(state.get('changed'))):,}"),
        ("tests passing", UNKNOWN if tests is None else f"{tests:,}{of_total}"),
    ]


def _budget(run: Mapping[str, Any]) -> int | None:
    """The budget of the run, as reserved; older versions recorded only the option."""
    if "may_spend_micros" in run:
        return whole(run["may_spend_micros"])
    return whole(mapping(run.get("options")).get("budget_micros"))


def _date(value: object) -> str:
    shown = text(value, 40)
    return shown[:19].replace("T", " ") + (" UTC" if shown.endswith("+00:00") else "") or "now"


def _kept_text(kept: Mapping[str, Any]) -> str:
    words = f"{count(whole(kept.get('changed')), 'file')} changed since the start"
    added, removed = whole(kept.get("added_lines")), whole(kept.get("removed_lines"))
    return words if added is None else f"{words}, +{added} -{removed or 0} lines"


def _trends(run: Mapping[str, Any], made: Sequence[Done]) -> list[tuple[str, str]]:
    drawings: list[tuple[str, str]] = [("Total cost", charts.cost(made, _budget(run)))]
    if any(each.tests_passing is not None for each in made):
        before = whole(made[0].raw.get("tests_before"))
        drawings.append(("Tests passing", charts.tests(made, before)))
    if any(each.output_chars is not None for each in made):
        drawings.append(("Output, in characters", charts.output(made)))
    return drawings


def _agent(done: Done) -> str:
    agent, tools = mapping(done.raw.get("agent")), mapping(done.raw.get("tools"))
    used = ", ".join(f"{text(tool, 60)} {text(times, 20)}" for tool, times in tools.items())
    tokens = mapping(done.raw.get("tokens"))
    parts = [
        f"{count(done.steps, 'step')}{f' ({used})' if used else ''}",
        f"exit code {text(agent.get('exit_code'), 20) or 'unknown'}",
        money(done.cost_micros),
        f"{whole(tokens.get('input')) or 0:,} tokens in, {whole(tokens.get('output')) or 0:,} out",
    ]
    if agent.get("problem"):
        parts.append(text(agent.get("problem"), 600))
    if done.raw.get("stopped"):
        parts.append(f"stopped by Switchgear: {text(done.raw.get('stopped'), 60)}")
    if done.raw.get("claims_done") is True:
        parts.append("reports that the task is done")
    if done.raw.get("commit"):
        parts.append(f"commit {text(done.raw.get('commit'), 60)}")
    return "; ".join(parts)


def _files(done: Done) -> list[str]:
    paths = [text(path, 300) for path in items(done.raw.get("files"))]
    more = (done.files_changed or len(paths)) - len(paths[:FILES])
    return [*paths[:FILES], *([f"and {more:,} more"] if paths and more > 0 else [])]


def _test_counts(validation: Mapping[str, Any]) -> str:
    numbers = [
        f"{found} {name}"
        for name in ("passed", "failed")
        if (found := whole(validation.get(name))) is not None
    ]
    return f" ({', '.join(numbers)})" if numbers else ""


NAME = "report.html"


def write_report(record: RunFolder) -> Path:
    """Write the report of a run. Returns its path. Raises `RunUnreadable` and OSError."""
    path = record.path / NAME
    write_whole(str(path), page(record.read(), list(record.iterations())))
    return path
