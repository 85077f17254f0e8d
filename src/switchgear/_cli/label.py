"""`switchgear label`: labels recorded runs as solved or not, for `backtest` and `tune`."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from switchgear._agents.recordings.recording import (
    MIN_EPOCH_S,
    RecordedRun,
    RecordedStep,
    RecordingTally,
    command_of,
)
from switchgear._analysis.backtest.engine import Recordings, each_run
from switchgear._analysis.backtest.labels import add_label, read_labels
from switchgear._analysis.backtest.outcomes import DEFAULT_CONFIDENCE, content_key, infer, label_key
from switchgear._cli.backtest import EXIT_NO_RUN, check_paths, format_option, jobs_option
from switchgear._cli.context import say_json
from switchgear._cli.options import fail, reader_options
from switchgear._cli.views.terminal import Screen, progress
from switchgear._cli.views.text import clean, clock_time, plural, say, warn
from switchgear._text.agent_text import one_line

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
    content: str = ""
    folder: str = ""
    ended_at_s: float | None = None

    def save_label(self, label: str) -> None:
        """Save a label. Raises OSError."""
        add_label(self.key, label, source=str(Path(self.source).resolve()), content=self.content)


def summary(run: RecordedRun) -> LabelledRun:
    inference = infer(run)
    end = [_step_line(each) for each in run.steps[-_SHOWN_STEPS:]]
    last = run.messages[-1:] if run.messages and run.messages[-1].after else ()
    end += [f"user: {each.text}" for each in last]
    is_inferred = run.outcome_from in {"inferred", ""}
    return LabelledRun(
        label_key(run),
        run.id,
        run.agent,
        one_line(run.task, 120),
        len(run.steps),
        run.source,
        inference.solved if is_inferred else run.solved,
        run.outcome_from,
        inference.confidence if is_inferred else run.confidence,
        inference.how if is_inferred else "",
        tuple(one_line(each, 160) for each in end),
        content_key(run),
        one_line(run.folder, 120),
        next((each.at_s for each in reversed(run.steps) if each.at_s is not None), None),
    )


def _step_line(step: RecordedStep) -> str:
    """A step, and the last line of its result."""
    if not step.tool:
        return f"agent: {step.thought or ''}"
    try:
        command = command_of(json.loads(step.args))
    except (ValueError, RecursionError):
        command = ""
    action = one_line(command or step.args, 80)
    result = step.error or (step.result or "").strip().rpartition("\n")[2]
    shown = f" -> {one_line(result, 70)}" if result else ""
    return f"{step.tool}: {action}{' (failed)' if step.ok is False else ''}{shown}"


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

    PATH is as in `switchgear backtest`. For each run the command shows the task, its last steps,
    and the outcome that they suggest; Enter accepts it. Labels are saved in the user's state folder.
    `backtest` and `tune` prefer them to any other outcome. A new answer replaces the label.

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
        return 0 if rows else EXIT_NO_RUN
    if listing:
        for row in rows:
            say(clean(f"{row.id}  {outcome_text(row)}  {row.task}", 300))
        say(plural(len(rows), "run"))
        return 0 if rows else EXIT_NO_RUN
    selected = [row for row in rows if everything or row.outcome_from in {"inferred", ""}]
    selected.sort(key=lambda row: row.confidence or 0.5)
    if not selected:
        say("every run has a known outcome" if rows else "no run was found", err=not rows)
        return 0 if rows else EXIT_NO_RUN
    if not sys.stdin.isatty():
        fail("there is no terminal to prompt at: pass --run ID --outcome solved, or --list")
    return _prompt(selected)


def _rows(
    paths: tuple[str, ...], force: str | None, jobs: int | None, *, hidden: bool
) -> list[LabelledRun]:
    with progress("reading recordings", hidden=hidden) as report:
        recordings = Recordings(paths, {}, force, jobs, report, read_labels(), DEFAULT_CONFIDENCE)
        return list(each_run(recordings, summary, RecordingTally()))


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
        return EXIT_NO_RUN
    found[0].save_label(outcome)
    if as_json:
        say_json({"id": found[0].id, "key": found[0].key, "outcome": outcome})
    else:
        say(clean(f"{found[0].id}: {outcome if outcome != 'forget' else 'label removed'}", 300))
    return 0


def outcome_text(row: LabelledRun) -> str:
    """The outcome of a run, its source and its confidence."""
    word = {True: "solved", False: "unsolved", None: "unknown"}[row.solved]
    if row.outcome_from in {"label", "given", "recording"}:
        return f"{word} ({row.outcome_from})"
    if row.solved is None:
        return "unknown"
    return f"probably {word} ({row.confidence or 0.5:.0%}: {row.how})"


def _prompt(rows: list[LabelledRun], read_key: Callable[[], str] = click.getchar) -> int:
    """Prompt for each run; every answer is saved at once."""
    screen = Screen()
    screen.line(_HELP)
    rows, place, done = [*rows], 0, set[str]()
    while place < len(rows):
        row = rows[place]
        screen.line()
        screen.line(clean(f"{place + 1} of {len(rows)}  {_head(row)}", 400), 2)
        screen.line(clean(f"  task: {row.task or 'not recorded'}", 300), 4)
        for line in row.end:
            screen.line(clean(f"  {line}", 200), 4)
        screen.line(clean(f"  {outcome_text(row)}", 400), 4)
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
            row.save_label(answer)
            done.add(row.key)
            solved = {"solved": True, "unsolved": False}.get(answer)
            rows[place] = row._replace(solved=solved, outcome_from="label")
            screen.line(f"  {answer}")
        elif key not in {"s", "\r", "\n"}:
            screen.line(_HELP)
            continue
        place += 1
    screen.line()
    screen.line(f"{plural(len(done), 'run')} labelled")
    return 0


def _head(row: LabelledRun) -> str:
    """The id, the number of steps, the end and the project of a run."""
    parts = [row.id, plural(row.steps, "step")]
    if row.ended_at_s is not None and row.ended_at_s > MIN_EPOCH_S:  # else relative to its start
        parts.append(clock_time(row.ended_at_s, time.time()))
    if row.folder:
        parts.append(Path(row.folder).name)
    return "  ".join(parts)
