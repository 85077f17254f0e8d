"""A batch at a terminal: the table lives, and whoever sits there is asked."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

LIMIT_S = 60.0
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


class Typing:
    """A batch at a terminal of its own."""

    def __init__(self, folder: Path, terminal: str) -> None:
        self._ours, theirs = pty.openpty()
        self.output = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", "batch", "tasks.yaml"],
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder.parent),
                "TERM": terminal,
                "PYTHONUTF8": "1",
                "COLUMNS": "100",
                "LINES": "24",
            },
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def see(self, text: str) -> None:
        end_s = time.monotonic() + LIMIT_S
        while text not in self.seen:
            assert time.monotonic() < end_s, f"{text!r} is not in {self.seen!r}"
            self._read()

    @property
    def seen(self) -> str:
        """The output without what only moves the cursor and changes colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.output).replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._ours, f"{text}\n".encode())

    def code(self) -> int:
        end_s = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end_s, self.output
            self._read()
        self._read()
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _read(self) -> None:
        ready, _, _ = select.select([self._ours], [], [], 0.05)
        if ready:
            with suppress(OSError):  # the other end is gone
                self.output += os.read(self._ours, 65536).decode(errors="replace")


Start = Callable[..., Typing]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Begins a batch of these tasks: a name, how long its agent sleeps, and more keys."""
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    script = tmp_path / "agent.py"
    script.write_text(SLEEPS)
    opened: list[Typing] = []

    def begin(*tasks: tuple[str, str, str], terminal: str = "dumb", config: str = "") -> Typing:
        (folder / "switchgear.yaml").write_text(config)
        lines = ["defaults: {stuck: false, max_iterations: 1, timeout: 60s}", "tasks:"]
        for name, seconds, keys in tasks:
            command = f"{sys.executable} -S {script} {name} {seconds}"
            lines.append(f"  - {{name: {name}, task: do it, agent_cmd: '{command}'{keys}}}")
        (folder / "tasks.yaml").write_text("\n".join(lines) + "\n")
        opened.append(Typing(folder, terminal))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def test_whoever_sits_there_chooses_what_becomes_of_a_task_whose_time_is_over(start: Start) -> None:
    batch = start(("a", "60", ", timeout: 5s"), ("b", "0", ", needs: [a]"))
    batch.see("TASK TIMED OUT")
    batch.see("[Accept partial]")
    batch.see("What now (1 resume/2 accept/3 retry/4 skip, in 60 s the policy decides)?")
    batch.type("accept")
    assert batch.code() == 20, batch.output
    assert "[a] partial: its time was over; you chose to accept" in batch.seen


@pytest.mark.parametrize(("choice", "code"), [("skip", 21), ("abort", 22), ("force", 21)])
def test_whoever_sits_there_chooses_what_to_do_about_an_open_circuit(
    start: Start, choice: str, code: int
) -> None:
    batch = start(("a", "no", ""), ("b", "0", ""), config=CONFIGURED)
    batch.see("CIRCUIT BREAKER TRIPPED")
    batch.see("[Abort batch]")
    batch.type(choice)
    assert batch.code() == code, batch.output
    b = {"skip": "skipped", "abort": "waiting", "force": "done"}[choice]
    assert re.search(rf"^b +{b} ", batch.seen, re.MULTILINE)


def test_ctrl_c_ends_a_question_too(start: Start) -> None:
    batch = start(("a", "60", ", timeout: 5s"))
    batch.see("What now")
    batch.process.send_signal(signal.SIGINT)
    assert batch.code() == 130, batch.output


def test_a_table_of_the_tasks_lives_while_they_run(start: Start) -> None:
    batch = start(("first", "4", ""), ("second", "0", ", needs: [first]"), terminal="xterm")
    batch.see("1 waiting, 1 running")
    batch.see("Ctrl-C ends it gently, twice at once; the work is kept")
    assert batch.code() == 0, batch.output
    end = batch.output.rpartition("\x1b[?1049l")[2]
    assert "TASK    END " in end
    assert "2 of 2 tasks done" in end
