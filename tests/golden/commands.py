"""Commands in a project that has some of everything: their exit codes, and the shape of their JSON.

A shape has the keys and types of a JSON value, not its contents. The elements of a list have one
shape together: `str|null` where they differ, a `?` behind a key that some lack. Keys that are paths or
names with a slash become `<name>`.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from click.testing import CliRunner

from golden.place import project
from switchgear import Panel, Signal
from switchgear._cli import main
from switchgear._config import load_config
from switchgear._hooks.handler import answer
from timeouts import LIMIT_S

CONFIG = "store: sqlite:///{folder}/state.db\n"
FLEET = """
agents:
  coder: {owner: ana, provider: p, model: m, fallback_models: [q/n], fallback_chain: [junior], stories: [S-1]}
  junior: {owner: ben, provider: r, model: s}
stories:
  S-1: {owner: cy, budget_dollars: 1}
"""
AGENT = """
import json, pathlib, sys
sys.stdin.read()
pathlib.Path(sys.argv[1]).write_text("x")
usage = {"type": "usage", "model": "m", "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.01}
print(json.dumps(usage))
print(json.dumps({"type": "result", "text": "done", "success": True}))
"""
TASKS = """
tasks:
  - {{name: one, task: do it, agent_cmd: '{agent} one'}}
  - {{name: two, task: do it, agent_cmd: '{agent} two', needs: [one]}}
"""
RECORDED = Path(__file__).parents[1] / "unit" / "sessions" / "claude.jsonl"
INCIDENT = "{incident}"

SHOWN = (
    "status --json",
    "status --all --json",
    "show provider/p --json",
    "show calm --json",
    "show held --json",
    "events --json",
    "check calm --json",
    "check calm --take --json",
    "check provider/p --json",
    "sessions --all --json",
    "rules list --json",
    "rules test --command ls --json",
    "rules test --command 'rm -rf /etc' --json",
    "budgets list --json",
    "budgets show atlas --json",
    "budgets audit --json",
    "locks --json",
    "locks --all --json",
    "fleet status --json",
    "fleet route coder --json",
    "fleet route junior --json",
    "incidents list --json",
    f"incidents show {INCIDENT} --json",
    "review --json",
    "config check --json",
    "config show --json",
    "hooks status --json",
    "trust --list --json",
    "doctor --json",
    "vacuum --json",
    f"backtest {RECORDED} --jobs 1 --json",
    f"backtest {RECORDED} --compare stuck --jobs 1 --json",
    "simulate outage --agents 10 --hours 0.4 --json",
    "selftest --only same-error --json",
)
"""What is cheap to run in this process, in this order: none changes what the next one shows."""
STARTED = (
    "run 'do it' --agent-cmd '{agent} made' --json",
    "runs --json",
    "runs list --json",
    "runs show last --json",
    "runs show last --receipt --json",
    "batch tasks.yaml --json",
)
"""What starts agents, in separate processes, and shows what they did."""
ENDED = {
    "--version": 0,
    "--help": 0,
    "nonsense": 2,
    "status": 0,
    "status --nonsense": 2,
    "status --store nonsense:": 2,
    "status nothing-matches": 0,
    "watch --times 1": 0,
    "show calm": 0,
    "show nothing": 2,
    "events": 0,
    "events --since nonsense": 2,
    "check calm": 0,
    "check provider/p": 1,
    "check held": 1,
    "check new": 0,
    "check ''": 2,
    "record calm success": 0,
    "record calm nonsense": 2,
    "sessions": 0,
    "rules list": 0,
    "rules test --command ls": 0,
    "rules test --command 'rm -rf /etc'": 1,
    "rules test": 2,
    "budgets list": 0,
    "budgets show atlas": 0,
    "budgets show nothing": 2,
    "budgets audit": 0,
    "budgets set atlas nonsense": 2,
    "budgets close nothing": 2,
    "locks": 0,
    "locks break nothing": 2,
    "fleet status": 1,
    "fleet route coder": 0,
    "fleet route junior": 1,
    "fleet route nobody": 2,
    "fleet resume S-9": 2,
    "fleet deliver": 2,
    "incidents list": 0,
    "incidents show nothing": 2,
    "review": 0,
    "simulate": 0,
    "simulate nonsense": 2,
    "simulate outage --agents 10 --hours 0.4": 0,
    "hold open calm": 2,
    "hold open nothing --why x": 2,
    "hold shadow calm --why x": 0,
    "release calm --why x": 0,
    "release nothing --why x": 2,
    "reset calm --why x": 0,
    "reset nothing --why x": 2,
    "probe provider/p --why x": 0,
    "probe nothing --why x": 2,
    "intervene calm": 0,
    "intervene held": 1,
    "intervene nothing": 2,
    "export": 0,
    "export --store nonsense:": 2,
    "import nothing.jsonl": 2,
    "vacuum": 0,
    "vacuum --keep-events 0": 2,
    "selftest --list": 0,
    "selftest --only nonsense": 2,
    "doctor --store nonsense:": 2,
    "config check": 0,
    "config check nothing.yaml": 2,
    "config show": 0,
    "config schema": 0,
    "trust --list": 0,
    "trust nothing.yaml": 2,
    "hooks status": 0,
    "hooks status codex": 1,
    "hooks status nonsense": 2,
    "hooks doctor codex": 2,
    "completion bash": 0,
    "completion nonsense": 2,
    "backtest nothing": 2,
    "backtest empty": 3,
    "requests": 2,
    "requests list": 0,
    "requests answer x --grant": 2,
    "mcp --nonsense": 2,
    "label nothing": 2,
    "label empty --list": 3,
    "tune empty --false-stops 1%": 3,
    "tune empty": 2,
    "run": 2,
    "run x --agent nonsense": 2,
    "run x --agent-cmd 'true' --dry-run": 0,
    "resume nothing": 2,
    "runs": 0,
    "runs show nothing": 2,
    "runs report nothing": 2,
    "batch nothing.yaml": 2,
    "wrap": 2,
    "wrap -- no-such-program": 16,
    "metrics rules": 0,
    "metrics dashboard": 0,
    "worker --store memory:": 2,
    "serve --port nonsense": 2,
    "proxy --port nonsense": 2,
    "demo --speed 0": 2,
}
"""Commands and their exit codes, as `docs/command.md` has them; typed in this order, in one project.

How a run or a batch ends has codes of its own, see `test_runner_ends.py` and `test_batch_command.py`.
"""


class Done(NamedTuple):
    code: int
    stdout: str
    output: str


@contextmanager
def stage(fleet: str = FLEET) -> Iterator["Stage"]:
    """The commands of a new project. None starts a process that works off the outbox in the meantime."""
    no_process = patch("os.posix_spawn", side_effect=OSError("not in this test"))
    with project() as folder, no_process:
        made = Stage(folder, fleet)
        with made.panel:
            yield made


class Stage:
    """The project with its circuits, budgets, locks, sessions and a halted agent."""

    def __init__(self, folder: Path, fleet: str) -> None:
        self.folder = folder
        self.agent = f"{sys.executable} -S {folder / 'agent.py'}"
        (folder / "agent.py").write_text(AGENT)
        (folder / "tasks.yaml").write_text(TASKS.format(agent=self.agent))
        (folder / "empty").mkdir()
        (folder / ".git").rmdir()
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        config = folder / "switchgear.yaml"
        config.write_text(CONFIG.format(folder=folder) + fleet)
        self.type("trust", "--yes", str(config))
        self.panel = Panel.from_config(load_config(config))
        self.fill()

    def fill(self) -> None:
        tell = self.record
        tell("calm", ok=True, seconds=0.1)
        tell("calm", ok=False, error="529 overloaded")
        for _ in range(5):
            tell("open", ok=False, error="529 overloaded")
        tell("provider/p", ok=False, retry_after_s=3600.0)
        self.type("hold", "open", "held", "--create", "--why", "x", "--by", "ada")
        tell("rules/junior", violation="rule x")
        budgets = self.panel.budgets
        budgets.open("atlas", 10_000_000)
        budgets.open("atlas/w1", 5_000_000)
        budgets.reserve("atlas/w1", 700_000, owner="coder").settle(650_000)
        budgets.reserve("atlas/w1", 100_000, owner="tester")
        self.panel.lock("press", owner="ada", lease_s=3600.0).acquire()
        self.panel.lock("free", owner="ada", lease_s=3600.0).acquire()
        self.type("locks", "break", "free")
        for event in (
            {"hook_event_name": "UserPromptSubmit", "prompt": "fix it"},
            {
                "hook_event_name": "PreToolUse",
                "tool_name": "Bash",
                "tool_input": {"command": "ls"},
                "tool_use_id": "t1",
            },
        ):
            data = {"session_id": "s1", "cwd": str(self.folder), **event}
            answer(
                "claude-code",
                json.dumps(data).encode(),
                str(self.folder),
                lambda _: self.panel.store,
            )
        self.type("incidents", "add", "--false-negative", "provider/p", "--why", "was down")
        self.type("fleet", "watch", "--once")
        listed = json.loads(self.type("incidents", "list", "--all", "--json").stdout)
        self.incident = str(min(each["id"] for each in listed))

    def record(self, circuit: str, **facts: Any) -> None:
        self.panel.breaker(circuit).record(Signal(**facts))

    def type(self, *words: str) -> Done:
        """A command in this process."""
        done = CliRunner().invoke(main, words, standalone_mode=True)
        return Done(done.exit_code, done.stdout, done.output)

    def start(self, *words: str) -> Done:
        """A command in a separate process."""
        command = [sys.executable, "-m", "switchgear", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return Done(done.returncode, done.stdout, done.stdout + done.stderr)


def shapes() -> dict[str, Any]:
    """The shape of what each command prints as JSON."""
    found: dict[str, Any] = {}
    with stage(fleet="") as made:
        for line in STARTED:
            words = shlex.split(line.replace("{agent}", made.agent))
            done = made.type(*words) if words[0] == "runs" else made.start(*words)
            found[line] = shape_of(line, done)
    with stage() as made:
        for line in SHOWN:
            done = made.type(*shlex.split(line.replace(INCIDENT, made.incident)))
            found[line.replace(str(RECORDED), RECORDED.name)] = shape_of(line, done)
    return found


def exit_codes() -> dict[str, int]:
    """The exit code with which each command of `ENDED` ends now."""
    with stage() as made:
        return {line: made.type(*shlex.split(line)).code for line in ENDED}


def shape_of(line: str, done: Done) -> Any:
    try:
        values = [json.loads(done.stdout)]
    except ValueError:
        try:
            values = [json.loads(text) for text in done.stdout.splitlines()]
        except ValueError:
            raise AssertionError(f"`switchgear {line}` printed no JSON:\n{done.output}") from None
        assert values, f"`switchgear {line}` printed nothing:\n{done.output}"
        return {"lines": merged([shape(value) for value in values])}
    return shape(values[0])


ONE_OF = "one of"
_KINDS = {str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        named: dict[str, list[Any]] = {}
        for key, part in value.items():
            name = key if re.fullmatch(r"[\w.:-]+", key) else "<name>"
            named.setdefault(name, []).append(shape(part))
        return {name: merged(parts) for name, parts in sorted(named.items())}
    if isinstance(value, list):
        return [merged([shape(part) for part in value])] if value else []
    return _KINDS[type(value)]


def merged(shapes: list[Any]) -> Any:
    """One shape for several."""
    for each in [each for each in shapes if isinstance(each, dict) and ONE_OF in each]:
        return merged([*(other for other in shapes if other is not each), *each[ONE_OF]])
    dicts = [each for each in shapes if isinstance(each, dict)]
    lists = [each for each in shapes if isinstance(each, list)]
    kinds = {kind for each in shapes if isinstance(each, str) for kind in each.split("|")}
    parts: list[Any] = []
    if dicts:
        parts.append(_merged_dicts(dicts))
    if lists:
        inner = [part for each in lists for part in each]
        parts.append([merged(inner)] if inner else [])
    if not parts:
        return "|".join(sorted(kinds))
    if len(parts) == 1 and not kinds:
        return parts[0]
    return {ONE_OF: [*parts, *sorted(kinds)]}


def _merged_dicts(dicts: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for name in sorted({name.removesuffix("?") for each in dicts for name in each}):
        have = [each[key] for each in dicts for key in (name, f"{name}?") if key in each]
        always = all(name in each for each in dicts)
        found[name if always else f"{name}?"] = merged(have)
    return found
