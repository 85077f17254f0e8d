"""Measure 15: what an iteration of `switchgear run` costs besides the agent and the validation.

A run of an agent that only waits a moment and adds a line to a file, in a repository of 20,000
files: the run acquires permits, writes the prompt, starts the agent under its supervisor, reads its
output, measures and evaluates what changed, and records it in the circuits of a SQLite file.

Time is measured from the start of one iteration to the start of the next, so nothing is left out.
Between two iterations, outside of that time, the same command runs alone, which is subtracted, and
`git status`, with which the rest is compared.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.library import Role
from bench.result import TIMES, Bar, Row, Section
from switchgear import Panel
from switchgear._agents.command import CommandAgent
from switchgear._run.loop import Runner
from switchgear._run.options import RunOptions
from switchgear._run.record import new_run
from switchgear._run.state import RunDependencies
from switchgear._run.view import RunView

if TYPE_CHECKING:
    from bench.measure import Effort

FILES = 20_000
A_FOLDER = 100
"""So many files are in each folder."""
AT_MOST_TIMES = 1.5
AGENT = "sh -c 'echo line >> progress.txt; echo working; sleep 0.1'"
GIT_STATUS = ("git", "status")
WARM_UP = 2


class Stopwatch(RunView):
    """Times the iterations of one run and, between them, what they are compared with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun_s: float | None = None
        self.whole_s: list[float] = []
        self.agent_s: list[float] = []
        self.status_s: list[float] = []

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        del number, run
        now_s = time.perf_counter()
        if self._begun_s is not None:
            self.whole_s.append(now_s - self._begun_s)
            self.agent_s.append(self._taken_s(*CommandAgent(AGENT).argv))
            self.status_s.append(self._taken_s(*GIT_STATUS))
        self._begun_s = time.perf_counter()

    def _taken_s(self, *command: str) -> float:
        begun_s = time.perf_counter()
        subprocess.run(command, cwd=self._folder, capture_output=True, check=True)
        return time.perf_counter() - begun_s


def section(effort: Effort) -> Section:
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as place:
        folder = Path(place, "project")
        _make_repository(folder)
        watch = Stopwatch(folder)
        _run(folder, watch, WARM_UP + effort.iterations + 1)
    whole_s, agent_s, status_s = (
        taken_s[WARM_UP:] for taken_s in (watch.whole_s, watch.agent_s, watch.status_s)
    )
    rest_s = [whole - agent for whole, agent in zip(whole_s, agent_s, strict=True)]
    times = statistics.median(rest_s) / statistics.median(status_s)
    return Section(
        key="run",
        title="An iteration of switchgear run",
        method=(
            f"A repository of {FILES:,} files and an agent that adds a line to one and waits "
            f"0.1 s; {len(rest_s)} iterations, a new process each, measured, evaluated, recorded "
            "in circuits of a SQLite file and saved. After each iteration the agent runs alone, "
            "which is subtracted, and `git status`; the ratio is a ratio of medians."
        ),
        columns=("ms, median", "±", f"{TIMES} git status"),
        rows=[
            _row("git status", Role.FLOOR, status_s, 1.0),
            _row("switchgear, besides the agent", Role.OURS, rest_s, times),
        ],
        bars=[Bar(f"times one git status of {FILES:,} files", times, AT_MOST_TIMES)],
        numbers={
            "iterations (ms)": _in_ms(whole_s),
            "the agent alone (ms)": _in_ms(agent_s),
            "git status (ms)": _in_ms(status_s),
        },
    )


def _make_repository(folder: Path) -> None:
    for number in range(FILES):
        file = folder / f"part{number // A_FOLDER:03}" / f"file{number % A_FOLDER:02}.txt"
        if number % A_FOLDER == 0:
            file.parent.mkdir(parents=True)
        file.write_text(f"{number}\n" * 20)
    (folder / "progress.txt").write_text("line\n")
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"], ["status"]):
        subprocess.run([*git, *words], cwd=folder, check=True, capture_output=True)


def _run(folder: Path, watch: Stopwatch, iterations: int) -> None:
    options = RunOptions(
        "add lines",
        agent_cmd=AGENT,
        completion_promise="never said",
        max_iterations=iterations,
    )
    record = new_run(folder / ".switchgear" / "runs")
    with Panel(f"sqlite:///{folder.parent / 'state.db'}") as panel:
        runner = Runner(
            options,
            CommandAgent(AGENT),
            record,
            folder=folder,
            panel=panel,
            dependencies=RunDependencies(view=watch),
        )
        result = runner.run()
    if result.exit_reason != "max_iterations":
        raise RuntimeError(f"the run ended as {result.exit_reason}: {result.reason}")


def _row(name: str, role: Role, taken_s: list[float], times: float) -> Row:
    lower_s, median_s, upper_s = statistics.quantiles(taken_s, n=4)
    spread_ms = (upper_s - lower_s) / 2 * 1e3
    return Row(name, role, (f"{median_s * 1e3:,.1f}", f"{spread_ms:,.1f}", f"{times:.2f}"))


def _in_ms(taken_s: list[float]) -> list[float]:
    return [round(taken * 1e3, 3) for taken in taken_s]
