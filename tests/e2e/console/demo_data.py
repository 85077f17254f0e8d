"""An installation with some of everything, for the tests of the page and for its screenshots."""

import json
import os
import time
from pathlib import Path
from typing import Any

from switchgear._config import Config, preset_policy
from switchgear._core.types import Mode, Record, Signal
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.incidents import Incidents
from switchgear._hooks.session import Notes, note_name
from switchgear._panel.panel import Panel
from switchgear._run.record import process_began, write_json
from trusted_config import write_config

CONFIG = """
agents:
  coder: {owner: ana@example.com, provider: anthropic, model: opus, fallback_models: [openai/large], fallback_chain: [junior], stories: [S-12]}
  junior: {owner: ben@example.com, provider: google, model: flash}
  reviewer: {owner: cy@example.com, provider: anthropic, model: opus}
stories:
  S-12: {owner: cy@example.com, budget_dollars: 3}
"""


def fill(root: Path, text: str = "") -> None:
    """Create circuits, sessions, budgets, runs, a batch and an incident. `text` is in every text of an agent."""
    write_config(root / "switchgear.yaml", CONFIG)
    with Panel(f"sqlite:///{root}/.switchgear/state.db") as panel:
        _circuits(panel, text)
        _sessions(panel, text)
        panel.budgets.open("atlas", 50_000_000, who="ann")
        panel.budgets.open("atlas/week-46", 20_000_000, who="ann")
        panel.budgets.charge("atlas/week-46", 17_400_000)
        panel.budgets.open("borealis", 10_000_000, who="ann")
        panel.budgets.charge("borealis", 2_100_000)
    _run(root, text)
    _batch(root, text)
    _incident(root, text)


def _circuits(panel: Panel, text: str) -> None:
    store = panel.store.inner
    for name, good, bad, error in (
        ("provider/anthropic", 214, 6, f"529 overloaded_error: Overloaded{text}"),
        ("provider/openai", 480, 0, ""),
        ("provider/google", 96, 3, "429 RESOURCE_EXHAUSTED, retry in 20 s"),
        ("tool/web-search", 31, 5, f"timeout after 30 s{text}"),
        ("mcp/github", 77, 2, "502 Bad Gateway"),
        ("db/staging", 12, 0, ""),
        (f"op/agent_spawn{text}", 9, 1, f"spawn failed{text}"),
    ):
        policy = panel.policy_of(name)
        store.apply(
            name, policy, Record(Signal(ok=True, count=good, cost_micros=900)), store.now_s()
        )
        for _ in range(bad):
            store.apply(
                name, policy, Record(Signal(ok=False, error=error, seconds=1.2)), store.now_s()
            )
    panel.order("db/staging", by="ann", why=f"migration until 18:00{text}", mode=Mode.HELD_OPEN)
    panel.order("mcp/github", by="ben", why="tuning the threshold", mode=Mode.SHADOW)


def _sessions(panel: Panel, text: str) -> None:
    policy, now_s = preset_policy("stuck"), panel.store.now_s()
    sessions = (
        ("0199f3aa-parser", "claude-code", f"Fix the flaky parser test{text}", "Bash: pytest tests/parser", 4_120_000, 3.0, True, 0),
        ("0199f3b1-auth", "codex", "Add rate limits to the login", "Edit: src/auth/limits.py", 1_870_000, 8.0, True, 0),
        ("0199f3c4-docs", "gemini", "Rewrite the tutorial", "Read: docs/index.md", None, 2_400.0, False, 0),
        ("0199f3d8-loop", "claude-code", f"Upgrade the framework{text}", f"Bash: npm test{text}", 6_930_000, 20.0, True, 9),
    )  # fmt: skip
    for name, agent, task, step, spent, ago_s, works, failures in sessions:
        key = note_name(name)
        notes = Notes(
            agent=agent, began_s=now_s - 1_800, heard_s=now_s - ago_s, works=works, project="/home/ann/atlas", task=task,
            spent_micros=spent, last_step=step, tried=("nudge",) if failures else (),
            indicators=(f"the same error 4 times: ERR_MODULE_NOT_FOUND{text}",) if failures else (),
            steps=_steps(step, failures, now_s - ago_s, text),
        )  # fmt: skip

        def work(tx: Any, key: str = key, notes: Notes = notes, failures: int = failures) -> None:
            tx.apply(key, policy, Record(Signal(ok=True)))
            for _ in range(failures):
                tx.apply(key, policy, Record(Signal(ok=False, error=f"ERR_MODULE_NOT_FOUND{text}")))
            tx.note = notes.dump()

        panel.store.transact(key, work)
    panel.order(
        note_name("0199f3d8-loop"),
        by="switchgear",
        why=f"the agent repeats itself{text}",
        mode=Mode.HELD_OPEN,
    )


def _steps(last: str, failures: int, until_s: float, text: str) -> tuple[tuple[Any, ...], ...]:
    """The last steps of an agent, as hooks save them."""
    calls = ("Read: package.json", "Bash: npm install", "Edit: src/main.ts", last)
    rows = []
    for at in range(14):
        failed = bool(failures) and at > 5
        error = f"ERR_MODULE_NOT_FOUND{text}" if failed else ""
        heat = min(max(at - 5, 0) * 0.125, 1.0) if failures else 0.04 * (at % 4)
        rows.append((until_s - 40.0 * (13 - at), heat, not failed, calls[at % 4], error))
    return tuple(rows)


def _run(root: Path, text: str) -> None:
    folder = root / ".switchgear" / "runs" / "20261116-141203-417ab3"
    folder.mkdir(parents=True)
    outcomes = ("worked", "worked", "no change", "failed", "failed")
    rows = [
        {
            "number": at, "started_at": "2026-11-16T14:12:03+00:00", "seconds": 61.5 + at, "outcome": outcome, "ok": outcome == "worked",
            "error": f"AssertionError: 3 != 4{text}" if outcome == "failed" else None, "steps": 12 + at, "files_changed": 2,
            "files": [f"src/parser{text}.py", "tests/test_parser.py"], "tests_passing": 30 + min(at, 3), "cost_micros": 310_000,
            "heat": min(0.18 * at * at / 3, 1.0), "phase": "closed", "errors": [{"times": 3, "kind": "test", "text": f"3 != 4{text}"}],
            "log": f"logs/{at:04}.log",
            "readings": [{"kind": "no_progress", "heat": 0.2 * at, "reason": f"{at - 2} iterations without progress{text}"}],
        }
        for at, outcome in enumerate(outcomes, start=1)
    ]  # fmt: skip
    (folder / "iterations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "logs").mkdir()
    for row in rows:
        lines = f"I will look at the parser first.{text}\n[Read] src/parser.py: ok\n[Bash] pytest: failed\n    3 != 4{text}\n"
        (folder / "logs" / f"{row['number']:04}.log").write_text(lines)
    kept = {
        "how": "git diff HEAD refs/switchgear/runs/20261116-141203-417ab3",
        "files": [f"src/parser{text}.py"],
        "changed": 2,
        "added_lines": 41,
        "removed_lines": 7,
    }
    write_json(
        folder / "run.json",
        {
            "schema": 1, "id": folder.name, "task": f"Make all parser tests pass{text}", "agent": "claude-code", "folder": str(root),
            "circuit": f"loop/{folder.name}", "options": {"budget_micros": 5_000_000}, "started_at": "2026-11-16T14:12:03+00:00",
            "ended_at": "2026-11-16T14:18:00+00:00", "state": {"iterations": 5, "spent_micros": 1_550_000, "seconds": 357.0},
            "end": {"exit_reason": "circuit_breaker", "reason": f"no progress in 3 iterations{text}", "success": False, "evidence": [f"the same test fails again{text}"], "checkpoint": kept, "resume": f"switchgear resume {folder.name}"},
        },
    )  # fmt: skip
    alive = folder.with_name("20261116-150000-901fe2")
    alive.mkdir()
    write_json(
        alive / "run.json",
        {
            "schema": 1, "id": alive.name, "task": "Port the CLI to click 9", "agent": "codex", "folder": str(root), "circuit": f"loop/{alive.name}",
            "options": {"max_iterations": 30, "budget_micros": 2_000_000}, "may_extend": ["iterations", "money"],
            "started_at": "2026-11-16T15:00:00+00:00", "pid": os.getppid(), "pid_began": process_began(os.getppid()),
            "state": {"iterations": 2, "spent_micros": 640_000, "seconds": 140.0},
        },
    )  # fmt: skip


def _batch(root: Path, text: str) -> None:
    tasks = root / "tasks.yaml"
    names = ["schema", "api", "worker", "page", "docs"]
    needs = {"api": ["schema"], "worker": ["schema"], "page": ["api"], "docs": ["api", "worker"]}
    lines = ["tasks:"]
    for name in names:
        lines += [
            f"  - name: {name}",
            f"    task: {json.dumps(f'Build the {name}{text}')}",
            "    agent_cmd: 'true'",
        ]
        if name in needs:
            lines.append(f"    needs: {json.dumps(needs[name])}")
    tasks.write_text("\n".join(lines) + "\n")
    progress = {
        "schema": {"status": "done", "attempts": 1, "seconds": 340.0, "spent_micros": 900_000},
        "api": {"status": "running", "attempts": 1, "run": "20261116-150000-901fe2"},
        "worker": {"status": "failed", "reason": f"stuck: the same error{text}", "attempts": 2, "spent_micros": 1_400_000, "run": "20261116-141203-417ab3"},
        "page": {"status": "waiting"},
        "docs": {"status": "blocked", "blocked_by": "worker", "reason": "worker failed"},
    }  # fmt: skip
    folder = root / ".switchgear" / "batches" / "20261116-140000-112ab3"
    folder.mkdir(parents=True)
    state = {
        "schema": 1,
        "id": folder.name,
        "file": str(tasks),
        "folder": str(root),
        "progress": progress,
        "forces": 0,
        "end": None,
    }
    write_json(
        folder / "batch.json",
        {**state, "pid": os.getppid(), "pid_began": process_began(os.getppid())},
    )


def _incident(root: Path, text: str) -> None:
    kept = Incidents(str(root / ".switchgear" / "incidents"))
    with Panel(f"sqlite:///{root}/.switchgear/state.db") as panel:
        config, entries = Config(), panel.events(glob="provider/anthropic")
        fleet = Fleet(panel, config.crew, config.breakers)
        for entry in entries:
            kept.process(entry.event, fleet)
    kept.add_missed(
        "provider/anthropic",
        by="ann",
        why=f"answers were empty for ten minutes{text}",
        now_s=time.time(),
    )
