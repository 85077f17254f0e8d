"""Print how many of our functions four everyday operations call, and in how many files.

| trace | what is counted |
|---|---|
| tripping failure | `breaker.record` of the failure that opens a circuit in a SQLite file; the shortest of three |
| run iteration | messages to the store during the second of three iterations of `switchgear run` |
| PreToolUse ls | the answer to Claude Code before `ls`; the shortest of five in one process |
| routed call | `fleet.call` with a reservation in a budget; the shortest of ten in one process |

Only Python functions below `src/switchgear` count, without comprehensions and generator expressions, which newer versions
of Python inline: `python scripts/call_trace.py [--json] [--list NAME]`.
"""

# ruff: noqa: PLC0415  each trace imports what it needs, so that one that fails leaves the others

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

SOURCE = str(Path(__file__).parents[1] / "src" / "switchgear") + os.sep

_INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}


class Trace:
    """Counts the calls of our functions in this thread while it is entered."""

    def __init__(self) -> None:
        self.functions: Counter[str] = Counter()
        self.files: Counter[str] = Counter()

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name in _INLINED:
            return
        if code.co_filename.startswith(SOURCE):
            file = code.co_filename.removeprefix(SOURCE)
            self.files[file] += 1
            self.functions[f"{file}:{code.co_qualname}"] += 1

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return sum(self.files.values())


def tripping_failure(folder: Path) -> Trace:
    """Record the fifth failure in a row over SQLite."""
    from switchgear import Cooldown, Panel, Policy, Signal, detectors

    policy = Policy([detectors.ConsecutiveFailures(5)], Cooldown(60.0))
    failed = Signal(ok=False, error="529 overloaded")
    traces: list[Trace] = []
    with Panel(f"sqlite:///{folder / 'state.db'}") as panel:
        for number in range(3):
            breaker = panel.breaker(f"provider/traced-{number}", policy)
            for _ in range(4):
                breaker.record(failed)
            with Trace() as trace:
                breaker.record(failed)
            if breaker.state != "open":
                raise RuntimeError(f"the circuit is {breaker.state}")
            traces.append(trace)
    return _least(traces)


def run_iteration(folder: Path) -> Counter[str]:
    """Count the messages to the store in the second iteration of a run."""
    from switchgear import Panel
    from switchgear._agents.command import CommandAgent
    from switchgear._run.loop import Runner
    from switchgear._run.options import RunOptions
    from switchgear._run.record import new_run
    from switchgear._run.state import RunDependencies
    from switchgear._run.view import RunView
    from switchgear._stores.sqlite.store import SqliteStore

    project = folder / "project"
    project.mkdir()
    (project / "progress.txt").write_text("line\n")
    git = ["git", "-c", "user.name=trace", "-c", "user.email=trace@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], cwd=project, check=True, capture_output=True)
    messages: list[Counter[str]] = []

    class Iterations(RunView):
        def iteration_started(self, number: int, run: dict[str, Any]) -> None:
            del number, run
            messages.append(Counter())

    for name in ("apply", "transact"):
        setattr(SqliteStore, name, _counted(getattr(SqliteStore, name), name, messages))
    agent = "sh -c 'echo line >> progress.txt; echo working'"
    options = RunOptions("add", agent_cmd=agent, completion_promise="never", max_iterations=3)
    record = new_run(project / ".switchgear" / "runs")
    with Panel(f"sqlite:///{folder / 'run.db'}") as panel:
        Runner(
            options,
            CommandAgent(agent),
            record,
            folder=project,
            panel=panel,
            dependencies=RunDependencies(view=Iterations()),
        ).run()
    return messages[1]


def _counted(
    function: Callable[..., Any], name: str, messages: list[Counter[str]]
) -> Callable[..., Any]:
    def counted(self: Any, *arguments: Any) -> Any:
        if messages:
            what = f" {type(arguments[2]).__name__}" if name == "apply" else ""
            messages[-1][f"{name}{what} {arguments[0]}"] += 1
        return function(self, *arguments)

    return counted


def pre_tool_use(folder: Path) -> Trace:
    """Answer Claude Code's PreToolUse for `ls`."""
    from switchgear._hooks.handler import answer
    from switchgear._stores.url import open_store

    project = folder / "guarded"
    (project / ".git").mkdir(parents=True)
    os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(folder / "xdg")
    store = open_store(f"sqlite:///{folder / 'hooks.db'}")
    traces = []
    for number in range(5):
        data = {
            "hook_event_name": "PreToolUse",
            "session_id": "s1",
            "cwd": str(project),
            "tool_name": "Bash",
            "tool_input": {"command": "ls"},
            "tool_use_id": f"t{number}",
        }
        raw = json.dumps(data).encode()
        with Trace() as trace:
            answer("claude-code", raw, str(project), lambda _: store)
        traces.append(trace)
    return _least(traces)


def routed_call(folder: Path) -> Trace:
    """Call through a fleet, with a reservation in a budget."""
    from switchgear.fleet import Fleet, agent, crew, story

    people = crew(
        [agent(name="coder", owner="ana", provider="anthropic", model="opus", stories=["S-12"])],
        [story(name="S-12", owner="cy", budget_dollars=3)],
    )
    with Fleet.open(f"sqlite:///{folder / 'fleet.db'}", people) as fleet:
        fleet.panel.budgets.open("atlas", limit_micros=50_000_000, who="trace")
        traces = []
        for _ in range(10):
            with Trace() as trace:
                fleet.call(
                    "coder",
                    lambda route: route.spent(1_000),
                    story="S-12",
                    budget="atlas",
                    estimate_micros=10_000,
                )
            traces.append(trace)
    return _least(traces)


def _least(traces: list[Trace]) -> Trace:
    """The shortest one: on a busy machine snapshots expire in between and are read again."""
    return min(traces, key=lambda trace: trace.calls)


def main() -> int:
    """Print the four traces; with `--list NAME` the functions of one of them."""
    threading.setprofile(None)
    wanted = sys.argv[sys.argv.index("--list") + 1] if "--list" in sys.argv else None
    facts: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="switchgear-trace-") as place:
        for name, trace_of, most in (
            ("tripping failure", tripping_failure, "<= 120 calls in <= 14 files"),
            ("PreToolUse ls", pre_tool_use, "< 700 calls"),
            ("routed call", routed_call, "<= 250 calls"),
        ):
            folder = Path(place, name.replace(" ", "-"))
            folder.mkdir()
            trace = trace_of(folder)
            facts[name] = {"calls": trace.calls, "files": len(trace.files)}
            print(f"{name:<18} {trace.calls:>5} calls in {len(trace.files):>2} files   ({most})")
            if wanted == name:
                for function, count in sorted(trace.functions.items()):
                    print(f"  {count:>4} {function}")
        messages = run_iteration(Path(place))
    facts["run iteration"] = {"messages": messages.total()}
    print(f"{'run iteration':<18} {messages.total():>5} store messages     (<= 3)")
    if wanted == "run iteration":
        for message, count in messages.items():
            print(f"  {count:>4} {message}")
    if "--json" in sys.argv:
        print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
