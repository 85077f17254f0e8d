"""A stage for runs: a folder, a stand-in agent that is a real process, and a clock to move."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import stand_in
from repositories import make_repository
from switchgear._agents.command import CommandAgent
from switchgear._panel.panel import Panel
from switchgear._run.interrupt import Time
from switchgear._run.loop import Runner
from switchgear._run.options import RunOptions
from switchgear._run.record import RunFolder, new_run
from switchgear._run.result import RunResult
from switchgear._run.state import RunDependencies, RunState
from switchgear._run.view import RunView

USAGE = """\
def usage(dollars): tell(type="usage", model="m", input_tokens=10, output_tokens=5, cost_usd=dollars)
"""


class Watching(RunView):
    """Keeps what a run shows."""

    def __init__(self) -> None:
        self.waits: list[tuple[str, float]] = []
        self.notes: list[str] = []
        self.facts: list[dict[str, Any]] = []
        self.events: list[object] = []

    def waiting(self, why: str, left_s: float) -> None:
        self.waits.append((why, left_s))

    def noted(self, text: str) -> None:
        self.notes.append(text)

    def event(self, event: object) -> None:
        self.events.append(event)

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        self.facts.append(facts)


class Hands:
    """A clock that moves at once when the code waits."""

    def __init__(self, start_s: float = 1_800_000_000.0) -> None:
        self.now_s = start_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def time(self) -> Time:
        return Time(clock=self, wall=self, sleep=self.sleep, took=lambda *_: None)


class Stage:
    """A folder to work in and everything a run needs."""

    def __init__(self, path: Path, *, git: bool = True) -> None:
        self.folder = path / "project"
        self.folder.mkdir(parents=True)
        self.scripts = path / "scripts"
        self.scripts.mkdir()
        self.hands = Hands()
        self.view = Watching()
        self.panel = Panel("memory:", clock=self.hands)
        self.dependencies = RunDependencies(view=self.view, time=self.hands.time)
        self.record: RunFolder | None = None
        (self.folder / "README").write_text("a project\n")
        if git:
            make_repository(self.folder, has_identity=True)
            self.git("add", ".")
            self.git("commit", "-qm", "start")

    def git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def command(self, body: str, name: str = "agent.py") -> str:
        """The command line of a stand-in agent with this body."""
        path = self.scripts / name
        path.write_text(stand_in.script(USAGE + body))
        return f"{sys.executable} -S {path}"

    def runner(self, body: str, *, state: RunState | None = None, **options: Any) -> Runner:
        command = self.command(body)
        chosen = RunOptions(**{"task": "do it", "agent_cmd": command, **options})
        self.record = self.record or new_run(self.folder / ".switchgear" / "runs")
        return Runner(
            chosen,
            CommandAgent(command),
            self.record,
            folder=self.folder,
            panel=self.panel,
            state=state,
            dependencies=self.dependencies,
        )

    def run(self, body: str, **options: Any) -> RunResult:
        """Run the stand-in to the end."""
        return self.runner(body, **options).run()

    def run_json(self) -> dict[str, Any]:
        assert self.record is not None
        return self.record.read()

    def iterations(self) -> list[dict[str, Any]]:
        assert self.record is not None
        return list(self.record.iterations())

    def prompt(self, number: int) -> str:
        assert self.record is not None
        return self.record.prompt_file(number).read_text()


def checker(stage: Stage, body: str) -> str:
    """A validation command: a script outside the folder that the agent works in."""
    script = stage.scripts / "check.py"
    script.write_text(stand_in.with_imports(body))
    return f"{sys.executable} -S {script}"


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
