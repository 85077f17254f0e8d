"""Stuck agents and tripped circuits at a real terminal: the prompt, and the effect of each choice."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.hook_process import hook
from e2e.terminal import ENTER, LEAVE, Terminal
from switchgear._config.trust import trust_file
from unit.hook_calls import after, before

AGENT = """
import json, sys, time
print("working", flush=True)
for _ in range(21):
    print(json.dumps({"type": "tool", "name": "read", "arguments": {"path": "a"}, "ok": True}), flush=True)
time.sleep(60)
"""
TASK = "sort out the shapes"


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "switchgear.yaml").write_text("interventions: {ask_s: 30, progress: false}\n")
    terminals: list[Terminal] = []

    def start(*more: str) -> Terminal:
        command = f"{sys.executable} -S {tmp_path / 'agent.py'} {{prompt}}"
        args = ("run", TASK, "--agent-cmd", command, "--stuck", "--no-validate", *more)
        # Not at home: what is kept there would count as the agent's work.
        terminals.append(Terminal(tmp_path, *args, HOME=str(tmp_path.parent)))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


def test_an_answer_at_the_terminal_is_applied(stuck: Callable[..., Terminal]) -> None:
    terminal = stuck("--timeout", "10m")
    terminal.read_until("What now (1 nudge/2 extend/3 abort, in 30 s the escalation decides)?")
    shown = terminal.output.rpartition(LEAVE)[2].replace("\r\n", "\n")
    assert "AGENT APPEARS STUCK\n\nAgent: python" in shown
    assert f"({TASK})\nStuck score: 90/100\n" in shown
    assert "[Extend timeout]     - Grant 5 more minutes\n" in shown
    asked = len(terminal.output)
    terminal.type("nudge\n")
    terminal.read_until(ENTER, asked)  # it is drawn again
    terminal.read_until("What now", asked)
    terminal.type("3\n")
    assert terminal.wait() == 10
    assert "the agent was stuck, and you gave up the task" in terminal.normal
    assert terminal.left_clean()


KLAUS = """
import os, pathlib
pathlib.Path("found.txt").write_text(pathlib.Path(os.environ["SWITCHGEAR_EVIDENCE"]).read_text())
print('{"type": "result", "text": "done", "success": true}')
"""


def with_help(folder: Path, **more: object) -> None:
    """A configuration with an escalation agent that saves the evidence that it receives."""
    (folder / "klaus.py").write_text(KLAUS)
    plan = {"escalate": f"{sys.executable} -S {folder / 'klaus.py'} {{prompt}}", **more}
    config = {"interventions": plan, "timeouts": {"session_s": 600}}
    (folder / "switchgear.yaml").write_text(json.dumps(config))
    trust_file(str(folder / "switchgear.yaml"))


def test_the_user_can_choose_more_time_a_hint_and_a_hand_over(
    stuck: Callable[..., Terminal], tmp_path: Path
) -> None:
    with_help(tmp_path, ask_s=30, progress=False)
    terminal = stuck("--timeout", "10m")
    menu, asked = (
        "What now (1 nudge/2 extend/3 escalate/4 abort, in 30 s the escalation decides)?",
        0,
    )
    for choice in ("2", "nudge", "esc"):
        terminal.read_until(menu, asked)
        asked = len(terminal.output)
        terminal.type(f"{choice}\n")
    assert terminal.wait() == 0
    assert terminal.left_clean()
    [run] = (tmp_path / ".switchgear" / "runs").glob("*/run.json")
    assert json.loads(run.read_text())["state"]["extra_s"] == 300.0
    prompts = [(run.parent / "prompts" / f"{n:04}.txt").read_text() for n in (1, 2, 3, 4)]
    told = ["You have more time now" in prompt for prompt in prompts]
    assert told == [False, True, False, False]
    told = ["Try a different approach" in prompt for prompt in prompts]
    assert told == [False, False, True, False]
    assert "Tried so far: nudge, escalate." in prompts[3]
    assert "[Hand over]          - Escalate to " in (tmp_path / "found.txt").read_text()


def test_a_guarded_agent_is_nudged_from_another_terminal(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with_help(tmp_path)
    for number in range(5):
        hook(tmp_path, before("Read", {"file_path": "a"}, f"t{number}"))
        hook(tmp_path, after("Read", {"file_path": "a"}, f"t{number}"))
    said = {
        "nudge": "the agent receives the hint at its next step",
        "extend": "the session may take 300 s longer",
        "escalate": "the escalation agent takes over",
    }
    told = {}
    for choice, answer in said.items():
        terminal = Terminal(tmp_path, "intervene", "s1", HOME=str(tmp_path.parent))
        try:
            terminal.read_until("What now (1 nudge/2 extend/3 escalate/4 abort)?")
            shown = "AGENT APPEARS STUCK\n\nAgent: claude-code (s1)\nStuck score: 56/100"
            if choice != "nudge":  # the nudge has answered the evidence
                shown = "Session s1 (claude-code) is trying again."
            assert shown in terminal.seen
            terminal.type(f"{choice}\n")
            terminal.read_until(answer)
            assert terminal.wait() == 0
        finally:
            terminal.close()
        told[choice] = hook(tmp_path, before("Read", {"file_path": "b"}, choice)).stdout
    assert "Try a different approach." in told["nudge"]
    assert told["extend"] == ""
    assert "escalation agent" in told["escalate"]
    assert json.loads(told["escalate"])["continue"] is False


def test_the_user_can_close_a_tripped_circuit(tmp_path: Path) -> None:
    (tmp_path / "switchgear.yaml").write_text(
        "store: sqlite:///state.db\ncircuits: [{match: op/*, policy: operation}]\n"
    )
    told = ("record", "op/agent_spawn", "failure", "--count", "3", "--error", "Rate limit exceeded")
    command = [sys.executable, "-m", "switchgear"]
    subprocess.run([*command, *told], cwd=tmp_path, check=True, capture_output=True)
    terminal = Terminal(tmp_path, "intervene", "op/agent_spawn")
    try:
        terminal.read_until("What now (1 wait/2 force/3 skip/4 abort)?")
        shown = terminal.output.replace("\r\n", "\n")
        assert "CIRCUIT BREAKER TRIPPED\n\nOperation: agent_spawn\n" in shown
        assert " - Rate limit exceeded\n" in shown
        terminal.type("force\n")
        terminal.read_until("Why")
        terminal.type("the key was renewed\n")
        assert terminal.wait() == 0
    finally:
        terminal.close()
    asked = subprocess.run([*command, "check", "op/agent_spawn"], cwd=tmp_path, check=False)
    assert asked.returncode == 0
