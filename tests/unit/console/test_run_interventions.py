"""Interventions in a real `switchgear run`, over the API: each takes effect in the other process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear._agents.command import CommandAgent
from switchgear._agents.events import Usage
from switchgear._agents.process import AgentProcess
from switchgear._cli import main
from switchgear._config import load_config
from switchgear._hooks.interrupt import _process_info as process_facts
from switchgear._hooks.session import Notes
from switchgear._panel.panel import Panel
from switchgear._run.inbox import (
    Extension,
    OperatorInbox,
    OperatorMessages,
    announce,
    with_extension,
)
from switchgear._run.iteration import operator_watch
from switchgear._run.judge import StreamObserver
from switchgear._run.record import RunFolder, new_run
from switchgear._stores.base import Transaction
from timeouts import LIMIT_S, end, eventually
from trusted_config import write_config
from unit.console_stage import CLIENT, OPERATOR, READ, Stage, stage

AGENT = """
import json, os, pathlib, sys, time
prompt = sys.stdin.read()
n = int(os.environ["SWITCHGEAR_ITERATION"])
folder = pathlib.Path("seen"); folder.mkdir(exist_ok=True)
(folder / f"prompt{n}").write_text(prompt)
(folder / f"pid{n}").write_text(str(os.getpid()))
print(json.dumps({"type": "tool", "name": "Edit", "arguments": {"path": f"f{n}"}, "ok": True}), flush=True)
step = 0
while not pathlib.Path(f"go{n}").exists() and not pathlib.Path("go").exists():
    step += 1
    (folder / "beat").write_text(str(step))
    time.sleep(0.02)
pathlib.Path(f"f{n}").write_text("x")
print(json.dumps({"type": "usage", "model": "m", "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.5}), flush=True)
"""
"""Works in each iteration until a file lets it go on, and shows that it is at work."""
HELPER = """
import pathlib
pathlib.Path("helped").write_text("yes")
print("DONE", flush=True)
"""


class RealRun:
    """`switchgear run` in a separate process, and the API over its project."""

    def __init__(self, root: Path, on: Stage, *options: str) -> None:
        self.root, self.on = root, on
        agent = root.parent / f"{root.name}-agent.py"
        agent.write_text(AGENT)
        command = f"{sys.executable} -S {agent}"
        words = ["run", "work on it", "--agent-cmd", command, "--no-validate", "--json", *options]
        words += ["--completion-promise", "DONE"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", *words],
            cwd=root,
            env={**os.environ, "SWITCHGEAR_RESIDENT": "off"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: self.seen("pid1"), "the agent is at work")
        runs = root / ".switchgear" / "runs"
        self.record = RunFolder(next(each for each in runs.iterdir() if each.is_dir()))
        self.id = self.record.id

    def seen(self, name: str) -> str:
        path = self.root / "seen" / name
        return path.read_text() if path.exists() else ""

    def let(self, name: str) -> None:
        (self.root / name).touch()

    def intervene(self, action: str, status: int = 200, **more: Any) -> dict[str, Any]:
        body = {"action": action, "by": "ann", "why": f"why {action}", **more}
        answer = self.on.post(f"/v1/runs/{self.id}/intervene", body, OPERATOR)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def page(self) -> dict[str, Any]:
        found: dict[str, Any] = self.on.get(f"/v1/runs/{self.id}").json()
        return found

    def result(self) -> dict[str, Any]:
        self.process.wait(LIMIT_S)
        found: dict[str, Any] = self.record.read()
        return found

    def audit(self) -> list[tuple[str, str]]:
        return [
            (event["by"], event["reason"])
            for event in self.page()["events"]
            if event["kind"] == "intervened"
        ]


@pytest.fixture(name="folder")
def a_project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    helper = tmp_path / "helper.py"
    helper.write_text(HELPER)
    escalate = json.dumps(f"{sys.executable} -S {helper} {{prompt}}")
    write_config(
        root / "switchgear.yaml",
        f"store: sqlite:///state.db\ninterventions:\n  escalate: {escalate}\n",
    )
    return root


@pytest.fixture(name="on")
def an_api(folder: Path) -> Iterator[Stage]:
    config = load_config(folder / "switchgear.yaml")
    with stage(folder, config) as made:
        yield made


@pytest.fixture(name="start")
def runs(folder: Path, on: Stage) -> Iterator[Any]:
    begun: list[RealRun] = []

    def start(*options: str) -> RealRun:
        begun.append(RealRun(folder, on, *options))
        return begun[-1]

    yield start
    for each in begun:
        (folder / "go").touch()
        end(each.process)


def test_a_hint_is_in_the_next_prompt_and_in_the_audit(start: Any) -> None:
    run = start("--max-iterations", "2")
    run.intervene("nudge", hint="Read the log first")
    run.let("go")
    assert run.result()["end"]["exit_reason"] == "max_iterations"
    assert "Read the log first" not in run.seen("prompt1")
    assert "a hint from ann: Read the log first" in run.seen("prompt2")
    assert run.audit() == [("ann", "nudge: why nudge")]


def test_a_pause_suspends_the_agent_and_its_time_until_it_is_continued(start: Any) -> None:
    run = start("--max-iterations", "1", "--timeout", "1h")
    run.intervene("pause")
    pid = int(run.seen("pid1"))

    def is_stopped() -> bool:
        return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()

    eventually(is_stopped, "the agent is suspended")
    assert run.page()["status"] == "paused"
    now = run.on.get("/v1/now").json()
    assert [item["state"] for item in now["attention"] if item["kind"] == "run"] == ["paused"]
    assert "continue" in run.page()["possible"]
    run.intervene("pause", status=422)
    beat = run.seen("beat")
    time.sleep(1.5)
    assert run.seen("beat") == beat
    run.intervene("continue")
    eventually(lambda: run.seen("beat") != beat, "the agent goes on")
    run.let("go")
    run.result()
    assert next(iter(run.record.iterations()))["outcome"] == "worked"
    assert [why.partition(":")[0] for _, why in run.audit()] == ["pause", "continue"]


def test_a_paused_run_that_is_stopped_ends_at_once_and_leaves_no_process(start: Any) -> None:
    run = start("--max-iterations", "3")
    run.intervene("pause")
    eventually(lambda: run.page()["status"] == "paused", "it is paused")
    run.intervene("abort")
    found = run.result()
    assert found["end"]["exit_reason"] == "interrupted"
    assert found["end"]["reason"] == "stopped by ann: why abort"
    assert process_facts(int(run.seen("pid1"))) is None
    assert run.seen("prompt2") == ""


def test_more_iterations_and_money_let_the_run_continue(start: Any) -> None:
    run = start("--max-iterations", "1", "--budget", "0.60")
    assert run.page()["may_extend"] == ["iterations", "money"]
    run.intervene("extend", status=422)
    run.intervene("extend", status=422, for_s=60)
    done = run.intervene("extend", iterations=1, cost_micros=5_000_000)
    assert done["done"] == "the run gets 1 iteration and $5.00 more"
    run.let("go")
    found = run.result()
    assert (found["end"]["exit_reason"], found["state"]["iterations"]) == ("max_iterations", 2)
    assert found["options"]["max_iterations"] == 2
    assert found["options"]["budget_micros"] == 5_600_000


def test_more_time_is_granted_to_the_run(start: Any) -> None:
    run = start("--max-iterations", "1", "--timeout", "1h")
    run.intervene("extend", for_s=600)
    run.let("go")
    assert run.result()["state"]["extra_s"] == 600.0


def test_granted_limits_reach_the_running_agent_once(tmp_path: Path) -> None:
    record = new_run(tmp_path)
    with Panel("memory:") as panel:
        inbox = OperatorInbox(
            panel.store, record, "demo", 60.0, is_watched=False, clock=time.monotonic
        )
        process = AgentProcess(CommandAgent("true"), "", tmp_path, deadline_s=60.0)
        watch, stops = StreamObserver(left_micros=10), list[str | None]()
        tick = operator_watch(inbox, process, watch, stops.append)
        tick()

        def send(tx: Transaction) -> None:
            tx.note = with_extension(Notes.load(tx.note), Extension(30.0, 0, 5)).dump()

        panel.store.transact(inbox.circuit, send)
        announce(record.path)
        for _ in range(3):
            tick()
        assert process.deadline_s == 90.0
        assert watch.see(Usage("m", 1, 1, cost_micros=15)) is None
        assert watch.see(Usage("m", 1, 1, cost_micros=16)) == "budget"
        assert inbox.take().extension == Extension(30.0, 0, 5)
        assert inbox.take().extension == Extension()
        assert set(stops) == {None}


@pytest.mark.parametrize(
    "note", ["{", '{"more": {"run": 7}}', '{"more": {"run": {"extend": ["x", [], {}]}}}']
)
def test_an_unreadable_note_is_not_a_message(tmp_path: Path, note: str) -> None:
    record = new_run(tmp_path)
    with Panel("memory:") as panel:
        inbox = OperatorInbox(
            panel.store, record, "demo", None, is_watched=False, clock=time.monotonic
        )

        def send(tx: Transaction) -> None:
            tx.note = note

        panel.store.transact(inbox.circuit, send)
        announce(record.path)
        assert inbox.take() == OperatorMessages()


def test_a_hand_over_stops_the_agent_and_the_configured_one_continues(
    start: Any, folder: Path
) -> None:
    run = start("--max-iterations", "2")
    run.intervene("escalate")
    found = run.result()
    first = next(iter(run.record.iterations()))
    assert (first["stopped"], first["outcome"]) == ("operator", "stopped")
    assert (folder / "helped").read_text() == "yes"
    assert found["state"]["helped"] is True
    assert found["end"]["exit_reason"] == "completed"
    assert "you take over: ann: why escalate" in run.record.prompt_file(2).read_text()


def test_the_run_page_has_the_steps_of_an_iteration(start: Any) -> None:
    run = start("--max-iterations", "1")
    run.let("go")
    run.result()
    log = run.on.get(f"/v1/runs/{run.id}/log?iteration=1")
    assert "[Edit]" in log.text
    assert run.on.get(f"/v1/runs/{run.id}/log?iteration=9").status_code == 404
    run.intervene("nudge", status=422)  # it has ended
    assert run.page()["possible"] == []


def test_a_repeated_request_acts_once_and_other_roles_are_refused(start: Any) -> None:
    run = start("--max-iterations", "1")
    path = f"/v1/runs/{run.id}/intervene"
    body = {"action": "nudge", "by": "ann", "why": "once", "hint": "x"}
    for token in (READ, CLIENT):
        assert run.on.post(path, body, token).status_code == 403
    assert run.on.post(path, {**body, "why": " "}, OPERATOR).status_code == 422
    keyed = {"Idempotency-Key": "k1"}
    first = run.on.post(path, body, OPERATOR, **keyed)
    again = run.on.post(path, body, OPERATOR, **keyed)
    assert (first.json(), again.headers["idempotency-replayed"]) == (again.json(), "true")
    assert len(run.audit()) == 1
    assert run.on.post("/v1/runs/none/intervene", body, OPERATOR).status_code == 404


def test_the_command_intervenes_in_the_same_way(
    start: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start("--max-iterations", "1")
    monkeypatch.chdir(folder)
    shown = CliRunner().invoke(main, ["intervene", run.id])
    assert "[Nudge agent]" in shown.output
    assert "[Resume agent]" not in shown.output
    refused = CliRunner().invoke(main, ["intervene", run.id, "--do", "abort"])
    assert (refused.exit_code, "needs a reason" in refused.output) == (2, True)
    done = CliRunner().invoke(main, ["intervene", run.id, "--do", "abort", "--why", "enough"])
    assert done.exit_code == 0, done.output
    assert run.result()["end"]["reason"].endswith(": enough")
