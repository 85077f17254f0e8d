"""Recorded runs with known ends, and how a detector that stops them is scored.

The corpus is a folder of `*.jsonl.gz`, one run a line, beside the `score.py` that says what a
false stop and an exhausted run are; it is not part of this repository. Nothing of it is kept but
what a score needs.
"""

import gzip
import hashlib
import importlib.util
import json
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._core.types import AgentStep, Signal

Step = dict[str, Any]


class Run(NamedTuple):
    """One recorded run: its steps up to where nothing is left to stop, and how it ended."""

    source: str
    model: str
    side: str
    """Which half its task is in, by a hash: all runs of a task are in one half."""
    solved: bool | None
    exhausted: bool
    """Not solved, and ended by a limit."""
    length: int
    """All its steps."""
    changes_until: int
    """A stop after so many steps or fewer loses work, if the run was solved."""
    steps: tuple[Step, ...]
    signals: tuple[Signal, ...]


class Score(NamedTuple):
    """What a detector did to the runs, in percent; every source weighs the same."""

    harm: int
    """Harmful stops of solved runs, pooled: the figure that decides."""
    solved: int
    false_stops: float
    harmful: float
    """FSRh: false stops after which something was still changed."""
    caught: float | None
    """catchX: of the exhausted runs."""
    saved: float | None
    """savedX: of the steps of the exhausted runs."""
    net5: float
    """Steps saved on unsolved runs, less five times the runs harmfully stopped, of all steps."""


def read(folder: Path) -> list[Run]:
    """The runs of all sources."""
    if not (folder / "score.py").is_file():
        raise SystemExit(f"{folder} has no score.py: is it the corpus?")
    spec = importlib.util.spec_from_file_location("stuck_score", folder / "score.py")
    assert spec is not None
    assert spec.loader is not None
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    runs = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            runs += [
                _run(path.name.removesuffix(".jsonl.gz"), json.loads(line), rules) for line in lines
            ]
    if not runs:
        raise SystemExit(f"{folder} has no *.jsonl.gz: is it the corpus?")
    return runs


def _run(source: str, recorded: Step, rules: Any) -> Run:
    steps = recorded["steps"]
    ends = [n for n, step in enumerate(steps) if _is_over(step["tool"])]
    judged = steps[: ends[0] if ends else None]
    changing = [n for n, step in enumerate(steps) if rules.changes(step)]
    keeps = recorded["source"].startswith(rules.SWE)
    return Run(
        source,
        recorded["model"] or "",
        f"half {1 + hashlib.sha1(str(recorded['task']).encode()).digest()[0] % 2}",
        recorded["solved"],
        rules.exhausted(recorded),
        len(steps),
        max(changing, default=-1) if keeps else len(steps) + 1,
        tuple(judged),
        tuple(signal_of(step) for step in judged),
    )


def _is_over(tool: str) -> bool:
    return tool in {"submit", "finish"} or tool.startswith("exit_")


def signal_of(step: Step) -> Signal:
    """What a guard would have told of a recorded step."""
    tool = "" if step["tool"] == "none" else step["tool"]
    act = AgentStep(tool, step["args"], step["observation"], step.get("thought") or None)
    return Signal(ok=not step.get("error"), step=act)


def judged(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of the sources with solved and unsolved runs, by source."""
    by_source: dict[str, list[Run]] = {}
    for run in runs:
        by_source.setdefault(run.source, []).append(run)
    return {
        source: found
        for source, found in by_source.items()
        if {True, False} <= {run.solved for run in found}
    }


def stops_by(make: Callable[[], Callable[[Step], bool]], runs: Sequence[Run]) -> list[int | None]:
    """After how many steps it stops each run; `None`: never."""
    stops: list[int | None] = []
    for run in runs:
        see = make()
        stops.append(next((n for n, step in enumerate(run.steps, 1) if see(step)), None))
    return stops


def score(
    runs: Sequence[Run], stops: Sequence[int | None], sources: Collection[str] | None = None
) -> Score:
    """The score of those stops, over these sources or all that have both ends."""
    known = judged(runs)
    per_source: dict[str, list[tuple[Run, int | None]]] = {}
    for run, stop in zip(runs, stops, strict=True):
        if run.source in known and (sources is None or run.source in sources):
            per_source.setdefault(run.source, []).append((run, stop))
    tallies = {source: _tally(pairs) for source, pairs in per_source.items()}
    steps = sum(tally["steps"] for tally in tallies.values())
    net = sum(tally["saved"] - 5 * tally["lost"] for tally in tallies.values())
    return Score(
        sum(tally["harmful"] for tally in tallies.values()),
        sum(tally["solved"] for tally in tallies.values()),
        _macro(tallies, "false", "solved") or 0.0,
        _macro(tallies, "harmful", "solved") or 0.0,
        _macro(tallies, "caught", "exhausted"),
        _macro(tallies, "saved_x", "steps_x"),
        100 * net / steps if steps else 0.0,
    )


def _tally(pairs: Sequence[tuple[Run, int | None]]) -> Counter[str]:
    tally = Counter[str]()
    for run, stop in pairs:
        if run.solved is None:
            continue
        tally["steps"] += run.length
        if run.solved:
            harmful = stop is not None and run.changes_until >= stop
            tally["solved"] += 1
            tally["false"] += stop is not None
            tally["harmful"] += harmful
            tally["lost"] += run.length * harmful
            continue
        saved = 0 if stop is None else run.length - stop
        tally["saved"] += saved
        if run.exhausted:
            tally["exhausted"] += 1
            tally["caught"] += stop is not None
            tally["saved_x"] += saved
            tally["steps_x"] += run.length
    return tally


def _macro(tallies: Mapping[str, Mapping[str, int]], part: str, whole: str) -> float | None:
    shares = [100 * tally[part] / tally[whole] for tally in tallies.values() if tally[whole]]
    return statistics.mean(shares) if shares else None
