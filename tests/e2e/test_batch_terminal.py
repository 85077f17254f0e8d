"""A batch at a terminal: the live table, and the prompts."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.terminal import Terminal

SLEEPS = """
import pathlib, sys, time
sys.stdin.read()
pathlib.Path(sys.argv[1]).write_text(str(time.time_ns()))
time.sleep(float(sys.argv[2]))
"""
CONFIGURED = """
circuits:
  - match: op/agent_spawn
    policy:
      detectors: [{failures_in_window: {threshold: 1, window_s: 60}}]
      recovery: {cooldown: {base_s: 300, max_s: 300}}
"""


Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Begins a batch of these tasks: a name, how long its agent sleeps, and more keys."""
    home, folder = str(tmp_path), tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    script = tmp_path / "agent.py"
    script.write_text(SLEEPS)
    opened: list[Terminal] = []

    def begin(*tasks: tuple[str, str, str], terminal: str = "dumb", config: str = "") -> Terminal:
        (folder / "switchgear.yaml").write_text(config)
        lines = ["defaults: {stuck: false, max_iterations: 1, timeout: 60s}", "tasks:"]
        for name, seconds, keys in tasks:
            command = f"{sys.executable} -S {script} {name} {seconds}"
            lines.append(f"  - {{name: {name}, task: do it, agent_cmd: '{command}'{keys}}}")
        (folder / "tasks.yaml").write_text("\n".join(lines) + "\n")
        opened.append(
            Terminal(folder, "batch", "tasks.yaml", size=(24, 100), HOME=home, TERM=terminal)
        )
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def test_the_user_chooses_what_to_do_with_a_task_that_timed_out(start: Start) -> None:
    batch = start(("a", "60", ", timeout: 5s"), ("b", "0", ", needs: [a]"))
    batch.read_until("TASK TIMED OUT")
    batch.read_until("[Accept partial]")
    batch.read_until("What now (1 resume/2 accept/3 retry/4 skip, in 60 s the policy decides)?")
    batch.type("accept\n")
    assert batch.wait() == 20, batch.output
    assert "[a] partial: time limit reached; you chose to accept" in batch.seen


@pytest.mark.parametrize(("choice", "code"), [("skip", 21), ("abort", 22), ("force", 21)])
def test_the_user_chooses_what_to_do_about_an_open_circuit(
    start: Start, choice: str, code: int
) -> None:
    batch = start(("a", "no", ""), ("b", "0", ""), config=CONFIGURED)
    batch.read_until("CIRCUIT BREAKER TRIPPED")
    batch.read_until("[Abort batch]")
    batch.type(f"{choice}\n")
    assert batch.wait() == code, batch.output
    b = {"skip": "skipped", "abort": "waiting", "force": "done"}[choice]
    assert re.search(rf"^b +{b} ", batch.seen, re.MULTILINE)


def test_ctrl_c_ends_a_prompt_too(start: Start) -> None:
    batch = start(("a", "60", ", timeout: 5s"))
    batch.read_until("What now")
    batch.process.send_signal(signal.SIGINT)
    assert batch.wait() == 130, batch.output


def test_a_live_table_shows_the_running_tasks(start: Start) -> None:
    batch = start(("first", "4", ""), ("second", "0", ", needs: [first]"), terminal="xterm")
    batch.read_until("1 waiting, 1 running")
    batch.read_until("Ctrl-C: stop gracefully; Ctrl-C again: stop now; the work is kept")
    assert batch.wait() == 0, batch.output
    assert "TASK    END " in batch.normal
    assert "2 of 2 tasks done" in batch.normal
