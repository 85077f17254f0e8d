"""`switchgear run --stuck` at a real terminal: it asks what to do, and does what is chosen."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.test_run_terminal import ENTER, LEAVE, Terminal

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
    (tmp_path / "switchgear.yaml").write_text("interventions: {ask_s: 30}\n")
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


def test_somebody_at_the_terminal_is_asked_and_obeyed(stuck: Callable[..., Terminal]) -> None:
    terminal = stuck("--timeout", "10m")
    terminal.read_until("What now (1 nudge/2 extend/3 abort, in 30 s the ladder decides)?")
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
    assert "the agent was stuck, and you gave the task up" in terminal.normal
    assert terminal.left_clean()
