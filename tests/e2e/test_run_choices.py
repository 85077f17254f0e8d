"""Starting on an open circuit at a terminal: the prompt, and the effect of each choice."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.terminal import Terminal

CONFIGURED = """
circuits:
  - match: "loop/*"
    policy:
      detectors: [{consecutive_failures: {threshold: 1}}]
      recovery: {cooldown: {base_s: COOLDOWN, lease_s: 60}}
"""


Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """An open circuit; the call starts the same task again, with an agent that works now."""
    home, folder = str(tmp_path), tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    opened: list[Terminal] = []

    def begin(cooldown_s: float = 300.0) -> Terminal:
        config = CONFIGURED.replace("COOLDOWN", str(cooldown_s))
        (folder / "switchgear.yaml").write_text(config)
        agent = tmp_path / "agent.sh"
        agent.write_text("exit 1\n")
        words = ("run", "write it", "--agent-cmd", f"sh {agent}")
        first = Terminal(folder, *words, HOME=home, TERM="dumb")
        opened.append(first)
        assert first.wait() == 10, first.output
        agent.write_text("date > written\n")
        again = Terminal(folder, *words, HOME=home, TERM="dumb")
        opened.append(again)
        return again

    yield begin
    for each in opened:
        each.close()


def test_abort_leaves_the_circuit_open(start: Start) -> None:
    screen = start()
    screen.read_until("is open: Circuit breaker tripped: 1")
    screen.read_until("What now")
    screen.type("abort\n")
    assert screen.wait() == 10
    assert "is left open" in screen.output
    assert "iteration 1" not in screen.output


def test_force_prompts_for_the_reason_and_starts_the_run(start: Start) -> None:
    screen = start()
    screen.read_until("What now")
    screen.type("force\n")
    screen.read_until("Why")
    screen.type("the agent is another one now\n")
    assert screen.wait() == 0, screen.output
    assert "closed by force" in screen.output
    assert "completed" in screen.output


def test_wait_waits_for_the_cooldown_and_then_retries(start: Start) -> None:
    screen = start(cooldown_s=4.0)
    screen.read_until("What now")
    screen.type("wait\n")
    assert screen.wait() == 0, screen.output
    assert re.search(r"waiting \d(\.\d)? s: for the cooldown", screen.output)
    assert "completed" in screen.output


def test_an_invalid_choice_prompts_again(start: Start) -> None:
    screen = start()
    screen.read_until("What now")
    screen.type("maybe\n")
    screen.read_until("is not one of")
    screen.type("abort\n")
    assert screen.wait() == 10
