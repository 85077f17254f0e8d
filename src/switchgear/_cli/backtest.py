"""`switchgear backtest`: replays recorded sessions to show what a policy would have done."""

import importlib
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from switchgear._agents.recordings.formats import usual_places
from switchgear._analysis.backtest.engine import Judging, Recordings, each_run, read_outcomes
from switchgear._analysis.backtest.findings import BacktestFindings, as_values, shadow_row
from switchgear._analysis.backtest.labels import read_labels
from switchgear._analysis.backtest.replay import Named, RunRow
from switchgear._breaker.presets import PRESETS
from switchgear._cli.context import ALL_EVENTS, load_chosen_config, open_session, say_json
from switchgear._cli.options import Fail, combined, fail, reader_options
from switchgear._cli.views.analysis import show_backtest
from switchgear._cli.views.terminal import Screen, progress
from switchgear._cli.views.text import clean, plural, say, warn
from switchgear._config import Config, load_config
from switchgear._config.problems import suggestion
from switchgear._config.sections import preset_policy
from switchgear._core.errors import SwitchgearError
from switchgear._core.policy import Policy
from switchgear._core.types import EventKind
from switchgear._report.analysis_pages import backtest_page
from switchgear._stuck.score import session_policy
from switchgear._system.files import write_whole
from switchgear._text.glob import literal

_ENDINGS = (".yaml", ".yml", ".toml")


def load_policy(text: str, *, allow_code: bool = False) -> Named:
    """The policy that `--policy` names: of a file (`FILE`, `FILE#NAME`) or the configuration, a preset, or `session`.

    `allow_code`: the file may be a Python module, which is executed.
    """
    path, _, name = text.partition("#")
    if path.endswith(".py"):
        if not allow_code:
            raise Fail(f"--policy {text!r}: a Python file works with `switchgear backtest` only")
        return _from_module(path, name)
    if path.endswith(_ENDINGS) or Path(path).is_file():
        return _select(path, name, load_config(path).policies, "add them under `policies:`")
    config = load_chosen_config()
    configured = config.policies
    if text in configured:
        return Named(text, configured[text])
    if text in PRESETS:
        return Named(text, preset_policy(text))
    if text == SESSION:
        return Named(text, _policy_of_sessions(config))
    near = suggestion(text, [*configured, *PRESETS, SESSION])
    raise Fail(f"--policy {text!r}: there is no such policy, preset or file; {near}")


def _policy_of_sessions(config: Config) -> Policy:
    """The policy of guarded sessions: the stuck score and the progress detectors, as configured."""
    score = config.policy_for("session/any") or preset_policy("stuck")
    progress = config.policy_for("progress/any") or preset_policy("progress")
    return session_policy(score, progress if config.interventions.progress else None)


def _from_module(path: str, name: str) -> Named:
    """A policy of a Python module. Imported by name, so that worker processes can import it, too."""
    file = Path(path).resolve()
    if not file.is_file() or not file.stem.isidentifier():
        raise Fail(
            f"--policy {path!r}: there is no such file, or its name is not a valid module name"
        )
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    try:
        module = importlib.import_module(file.stem)
    except Exception as error:
        raise Fail(f"--policy {path!r}: {type(error).__name__}: {error}") from error
    if Path(module.__file__ or "").resolve() != file:
        raise Fail(f"--policy {path!r}: another module is named {file.stem!r}; rename the file")
    policies = {key: value for key, value in vars(module).items() if isinstance(value, Policy)}
    return _select(path, name, policies, "assign a Policy to a variable")


def _select(path: str, name: str, policies: Mapping[str, Policy], how_to_add: str) -> Named:
    """The policy of this name; without a name, the only one of the file."""
    if name in policies:
        return Named(name, policies[name])
    if not name and len(policies) == 1:
        [(only, policy)] = policies.items()
        return Named(only, policy)
    if not policies:
        raise Fail(f"--policy {path!r}: the file has no policies; {how_to_add}")
    known = ", ".join(sorted(policies))
    if name:
        raise Fail(f"--policy {path + '#' + name!r}: the file has no such policy; it has {known}")
    raise Fail(
        f"--policy {path!r}: the file has {len(policies)} policies; add #NAME, one of {known}"
    )


DEFAULT = "default"
SESSION = "session"
"""The value of `--policy` for the policy of guarded sessions."""
EXIT_NO_RUN = 3
"""The exit code if no run was found."""
FORMATS = (
    *("claude", "codex", "gemini", "qwen", "opencode", "pi", "openhands", "swe-agent"),
    *("mini-swe-agent", "otel", "switchgear", "plain"),
)


format_option = click.option(
    "--format",
    "force",
    metavar="NAME",
    type=click.Choice(FORMATS),
    help=f"Force this input format: {', '.join(FORMATS)}.",
)
jobs_option = click.option(
    "--jobs", type=click.IntRange(1, 256), help="Number of processes [default: one per core]."
)


class _Confidence(click.FloatRange):
    """A confidence, as a percentage such as 70% or as a share such as 0.7."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = value.strip() if isinstance(value, str) else ""
        if text.endswith("%"):
            try:
                value = float(text.removesuffix("%")) / 100
            except ValueError:
                self.fail(f"{value!r} is not a percentage.", param, ctx)
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return found


outcome_options = combined(
    click.option(
        "--outcomes",
        metavar="FILE",
        help="JSON object that says which runs were solved: true or false by id.",
    ),
    click.option(
        "--confidence",
        type=_Confidence(0.5, 1.0),
        default=0.7,
        help="Use inferred outcomes of at least this confidence, such as 80% or 0.8.",
    ),
    click.option("--no-infer", "recorded_only", is_flag=True, help="Do not infer outcomes."),
)


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--policy",
    metavar="NAME|FILE",
    help="Policy to evaluate: a preset (careful, default, eager), `session` (what guarded sessions have), "
    "a name or a file. [default: default]",
)
@click.option(
    "--compare",
    metavar="NAME|FILE",
    multiple=True,
    help="Another policy to compare with. May be repeated.",
)
@format_option
@outcome_options
@click.option("--html", metavar="FILE", help="Write an HTML report with a chart for each run.")
@click.option(
    "--pictures",
    type=click.IntRange(0, 2000),
    default=100,
    help="Maximum number of charts in the report: false stops first, then largest savings.",
)
@click.option(
    "--limit",
    type=click.IntRange(0, 100_000),
    default=10,
    help="Show at most this many stopped runs in the terminal.",
)
@jobs_option
@click.option("--live", is_flag=True, help="Evaluate the circuits in shadow mode instead of files.")
@reader_options
def backtest(  # noqa: PLR0917  click passes them by name
    paths: tuple[str, ...],
    policy: str | None,
    compare: tuple[str, ...],
    force: str | None,
    outcomes: str | None,
    confidence: float,
    html: str | None,
    pictures: int,
    limit: int,
    jobs: int | None,
    *,
    live: bool,
    recorded_only: bool,
    as_json: bool,
) -> int:
    """Replay recorded sessions: where a policy would have warned and tripped, and what it saves.

    PATH is a file or a folder: transcripts of Claude Code, rollouts of Codex, chats of Gemini CLI
    and Qwen Code, sessions of OpenCode and pi, trajectories of OpenHands, SWE-agent and
    mini-swe-agent, OpenTelemetry GenAI spans, runs of `switchgear run`, and plain JSONL
    (docs/backtest.md). The format is detected from the content; unknown lines are counted.

    A policy is a preset, `session`, a policy of the configuration, or a file: FILE or FILE#NAME. A file
    that ends in .py is a Python module with a `Policy`; it is run.

    Outcomes come from `switchgear label`, --outcomes or the recording; else they are inferred
    from how a run ends, and the output shows how many are inferred.

    Exit code 0: done; 2: bad input; 3: no run was found.
    """
    if live and paths:
        fail("--live evaluates circuits and takes no PATH")
    if not live and not paths:
        return _show_sources()
    names = [policy or DEFAULT, *compare]
    if len(set(names)) < len(names):
        fail("--policy and --compare name the same policy twice")
    check_paths(paths)
    check_folder("--html", html)
    found = BacktestFindings(pictures if html else 0)
    found.noun = "circuit" if live else "run"
    with progress("replaying recordings", hidden=as_json or live) as report:
        given = {} if outcomes is None else read_outcomes(outcomes)
        least = None if recorded_only else confidence
        recordings = Recordings(paths, given, force, jobs, report, read_labels(), least)
        for row in _shadow_rows() if live else _replay_rows(found, recordings, names):
            found.add(row)
    if not live:
        _add_opinions(found)
    if html is not None:
        write_whole(html, backtest_page(found))
    if as_json:
        say_json(as_values(found))
    else:
        screen = Screen()
        show_backtest(screen, found, limit)
        if html is not None:
            screen.line(f"report: {clean(html, 1000)}")
    return 0 if found.runs else EXIT_NO_RUN


def check_paths(paths: tuple[str, ...]) -> None:
    """End the command if a path does not exist."""
    for path in paths:
        if not Path(path).exists():
            fail(f"{path!r}: there is no such file or folder")


def check_folder(option: str, path: str | None) -> None:
    """End the command if the folder of an output file does not exist, before any work is done."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        fail(f"{option} {path!r}: its folder does not exist")


def _replay_rows(
    found: BacktestFindings, recordings: Recordings, names: list[str]
) -> Iterator[RunRow]:
    policies = tuple(load_policy(text, allow_code=True) for text in names)
    found.least_confidence = recordings.least_confidence
    found.unmatched = set(recordings.outcomes)
    found.judged_by(policies)
    return each_run(recordings, Judging(policies, pictures=found.pictures > 0).row, found.tally)


def _add_opinions(found: BacktestFindings) -> None:
    """Compare the second opinions in the store with the outcomes."""
    try:
        with open_session(reading=True) as session:
            entries = session.panel.events(glob="session/*", limit=ALL_EVENTS)
            for entry in entries:
                if entry.event.kind is EventKind.SECOND_OPINION:
                    found.opinions.add(entry.event.circuit, entry.event.reason)
    except (SwitchgearError, OSError):
        return  # a backtest needs no store
    found.opinions.compare(row.run for row in found.rows)


def _shadow_rows() -> Iterator[RunRow]:
    """A row for each circuit that is or was in shadow mode."""
    with open_session(reading=True) as session:
        views, error = session.read("*")
        for view in views:
            entries = session.panel.events(glob=literal(view.name), limit=ALL_EVENTS)
            row = shadow_row(view, (entry.event for entry in entries), session.label)
            if row is not None:
                yield row
        if error is not None:
            raise error


def _show_sources() -> int:
    """Print example commands for the sessions of the agents on this machine. Returns the exit code."""
    warn("give a file or folder with recorded sessions, for example:")
    places = list(usual_places())
    width = max((len(place) for _, place, _ in places), default=0)
    for name, place, files in places:
        say(f"  switchgear backtest {place:{width}}  # {name}, {plural(files, 'file')}", err=True)
    if not places:
        say("  switchgear backtest ~/.claude/projects", err=True)
        say("  switchgear backtest runs.jsonl", err=True)
        say("  (no agent's sessions were found in the usual places)", err=True)
    say("Try 'switchgear backtest --help'.", err=True)
    return 2
