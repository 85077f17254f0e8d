"""`switchgear label`: which recorded runs were solved, a key per run, for `backtest` and `tune`."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import click

from switchgear._agents.recordings.recording import RecordedRun, RecordingTally
from switchgear._analysis.backtest.engine import Recordings, each_run
from switchgear._analysis.backtest.labels import add_label, read_labels
from switchgear._analysis.backtest.outcomes import ENOUGH, infer, label_key
from switchgear._cli.backtest import check_paths, format_option, jobs_option
from switchgear._cli.context import say_json
from switchgear._cli.options import fail, reader_options
from switchgear._cli.views.terminal import progress
from switchgear._cli.views.text import clean, plural, say, warn
from switchgear._text.agent_text import one_line

NO_RUN = 3
_ANSWERS = ("solved", "unsolved", "unknown", "forget")
_KEYS = {"y": "solved", "n": "unsolved", "u": "unknown"}
_HELP = "y solved · n not solved · u unknown · Enter accept · s skip · b back · q quit"
_SHOWN_STEPS = 3


class LabelledRun(NamedTuple):
    key: str
    id: str
    agent: str
    task: str
    steps: int
    source: str
    solved: bool | None
    outcome_from: str
    confidence: float | None
    how: str
    end: tuple[str, ...]
    """The last steps and messages, one line each."""


def summary(run: RecordedRun) -> LabelledRun:
    found = infer(run)
    end = [
        f"{each.tool or 'agent'}: {each.args if each.tool else each.thought or ''}"
        f"{'' if each.ok is not False else ' (failed)'}"
        for each in run.steps[-_SHOWN_STEPS:]
    ]
    last = run.messages[-1:] if run.messages and run.messages[-1].after else ()
    end += [f"user: {each.text}" for each in last]
    inferred = run.outcome_from in {"inferred", ""}
    return LabelledRun(
        label_key(run),
        run.id,
        run.agent,
        one_line(run.task, 120),
        len(run.steps),
        run.source,
        found.solved if inferred else run.solved,
        run.outcome_from,
        found.confidence if inferred else run.confidence,
        found.how if inferred else "",
        tuple(one_line(each, 160) for each in end),
    )


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--run",
    "run_id",
    metavar="ID",
    help="Label only this run; the start of its id is enough. Needs --outcome.",
)
@click.option(
    "--outcome",
    type=click.Choice(_ANSWERS),
    help="The outcome of the run that --run names; 'forget' removes its label.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Also prompt for runs with a known outcome."
)
@click.option("--list", "listing", is_flag=True, help="List runs and outcomes; do not prompt.")
@format_option
@jobs_option
@reader_options
def label(
    paths: tuple[str, ...],
    run_id: str | None,
    outcome: str | None,
    force: str | None,
    jobs: int | None,
    *,
    everything: bool,
    listing: bool,
    as_json: bool,
) -> int:
    """Label recorded runs as solved or not, with one key per run: least certain runs first.

    PATH is what `switchgear backtest` reads. For each run the command shows the task, its last steps,
    and the outcome that they suggest; Enter accepts it. Labels are kept in the user's state folder.
    `backtest` and `tune` use them before any other outcome. Answering again replaces a label.

    Without a terminal, name the run: --run ID --outcome solved.

    Exit code 0: done; 2: bad input; 3: no such run was found.
    """
    if (run_id is None) != (outcome is None):
        fail("--run and --outcome belong together")
    if not paths:
        fail("give a file or folder with recorded sessions, such as ~/.claude/projects")
    check_paths(paths)
    rows = _rows(paths, force, jobs, hidden=as_json)
    if run_id is not None and outcome is not None:
        return _label_one(rows, run_id, outcome, as_json=as_json)
    if as_json:
        say_json([row._asdict() for row in rows])
        return 0 if rows else NO_RUN
    if listing:
        for row in rows:
            say(clean(f"{row.id}  {outcome_text(row)}  {row.task}", 300))
        say(plural(len(rows), "run"))
        return 0 if rows else NO_RUN
    selected = [row for row in rows if everything or row.outcome_from in {"inferred", ""}]
    selected.sort(key=lambda row: row.confidence or 0.5)
    if not selected:
        say("every run has a known outcome" if rows else "no run was found", err=not rows)
        return 0 if rows else NO_RUN
    if not sys.stdin.isatty():
        fail("there is no terminal to prompt at: pass --run ID --outcome solved, or --list")
    return _prompt(selected)


def _rows(
    paths: tuple[str, ...], force: str | None, jobs: int | None, *, hidden: bool
) -> list[LabelledRun]:
    with progress("reading recordings", hidden=hidden) as tell:
        read = Recordings(paths, {}, force, jobs, tell, read_labels(), ENOUGH)
        return list(each_run(read, summary, RecordingTally()))


def _label_one(rows: list[LabelledRun], run_id: str, outcome: str, *, as_json: bool) -> int:
    found = [row for row in rows if run_id in {row.id, row.key}]
    if len({row.key for row in found}) > 1:
        fail(f"--run {run_id!r}: {len(found)} runs have this id; name the file, not its folder")
    if not found and run_id:
        found = [row for row in rows if row.id.startswith(run_id)]
        if len({row.key for row in found}) > 1:
            fail(f"--run {run_id!r}: {len(found)} runs begin with it; give more of the id")
    if not found:
        warn(f"--run {run_id!r}: there is no such run")
        return NO_RUN
    add_label(found[0].key, outcome)
    if as_json:
        say_json({"id": found[0].id, "key": found[0].key, "outcome": outcome})
    else:
        say(clean(f"{found[0].id}: {outcome if outcome != 'forget' else 'label removed'}", 300))
    return 0


def outcome_text(row: LabelledRun) -> str:
    """The outcome of a run, where it comes from and how sure it is."""
    word = {True: "solved", False: "unsolved", None: "unknown"}[row.solved]
    if row.outcome_from in {"label", "given", "recording"}:
        return f"{word} ({row.outcome_from})"
    if row.solved is None:
        return "unknown"
    return f"probably {word} ({row.confidence or 0.5:.0%}: {row.how})"


def _prompt(rows: list[LabelledRun], read_key: Callable[[], str] = click.getchar) -> int:
    """Prompt for each run; every answer is saved at once."""
    say(_HELP)
    rows, place, done = [*rows], 0, set[str]()
    while place < len(rows):
        row = rows[place]
        say("")
        say(clean(f"{place + 1} of {len(rows)}  {row.id}  {plural(row.steps, 'step')}", 300))
        say(clean(f"  task: {row.task or 'not recorded'}", 300))
        for line in row.end:
            say(clean(f"  {line}", 200))
        say(clean(f"  {outcome_text(row)}", 400))
        key = read_key().lower()
        if key in {"q", "\x03", "\x04", "\x1b"}:
            break
        if key == "b":
            place = max(0, place - 1)
            continue
        answer = _KEYS.get(key)
        if key in {"\r", "\n"} and row.solved is not None:
            answer = "solved" if row.solved else "unsolved"
        if answer is not None:
            add_label(row.key, answer)
            done.add(row.key)
            solved = {"solved": True, "unsolved": False}.get(answer)
            rows[place] = row._replace(solved=solved, outcome_from="label")
            say(f"  {answer}")
        elif key not in {"s", "\r", "\n"}:
            say(_HELP)
            continue
        place += 1
    say("")
    say(f"{plural(len(done), 'run')} labelled")
    return 0
