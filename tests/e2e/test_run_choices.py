"""Starting on an open circuit at a terminal: the choices are asked for, and each does what it says."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

LIMIT_S = 40.0
CONFIGURED = """
circuits:
  - match: "loop/*"
    policy:
      detectors: [{consecutive_failures: {threshold: 1}}]
      recovery: {cooldown: {base_s: COOLDOWN, lease_s: 60}}
"""


class Typing:
    """A command at a terminal of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        self.output = ""
        env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "TERM": "dumb"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", *words],
            cwd=folder,
            env={**env, "PYTHONUTF8": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def see(self, text: str) -> None:
        end_s = time.monotonic() + LIMIT_S
        while text not in self.output:
            assert time.monotonic() < end_s, f"{text!r} is not in {self.output!r}"
            self._read()

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
    """An open circuit; the call starts the same task again, with an agent that works now."""
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    opened: list[Typing] = []

    def begin(cooldown_s: float = 300.0) -> Typing:
        config = CONFIGURED.replace("COOLDOWN", str(cooldown_s))
        (folder / "switchgear.yaml").write_text(config)
        words = ("run", "write it", "--agent-cmd")
        first = Typing(folder, *words, "false")
        opened.append(first)
        assert first.code() == 10, first.output
        again = Typing(folder, *words, "sh -c 'date > written'")
        opened.append(again)
        return again

    yield begin
    for each in opened:
        each.close()


def test_abort_leaves_it_as_it_is(start: Start) -> None:
    screen = start()
    screen.see("is open: Circuit breaker tripped: 1 consecutive failure (threshold: 1)")
    screen.see("What now")
    screen.type("abort")
    assert screen.code() == 10
    assert "is left open" in screen.output
    assert "iteration 1" not in screen.output


def test_force_asks_for_the_reason_and_begins(start: Start) -> None:
    screen = start()
    screen.see("What now")
    screen.type("force")
    screen.see("Why")
    screen.type("the agent is another one now")
    assert screen.code() == 0, screen.output
    assert "closed by force" in screen.output
    assert "completed" in screen.output


def test_wait_waits_for_the_cooldown_and_then_retries(start: Start) -> None:
    screen = start(cooldown_s=4.0)
    screen.see("What now")
    screen.type("wait")
    assert screen.code() == 0, screen.output
    assert re.search(r"waiting \d(\.\d)? s: for the cooldown", screen.output)
    assert "completed" in screen.output


def test_what_is_no_choice_is_asked_again(start: Start) -> None:
    screen = start()
    screen.see("What now")
    screen.type("maybe")
    screen.see("is not one of")
    screen.type("abort")
    assert screen.code() == 10
