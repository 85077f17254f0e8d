"""The real hook process for tests: one event on standard input, what it answers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._hooks import client, resident
from switchgear._hooks.command import hook_command

PATIENCE_S = 300.0


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str

    @property
    def told(self) -> Any:
        """The reply to the agent, as JSON values."""
        return json.loads(self.stdout or "{}")


def command(folder: Path, agent: str = "claude-code") -> list[str]:
    """The hook's command line, with the interpreter that runs the tests."""
    return [sys.executable, *hook_command(agent, root=str(folder))[1:]]


WAYS = ("resident", "own process")
"""How an event is decided."""


def use(way: str) -> None:
    """Have hooks decide in this way; for `WAYS`, with the environment of the test."""
    if way == "own process":
        os.environ[client.RESIDENT_VARIABLE] = "off"
        return
    os.environ[client.RESIDENT_VARIABLE] = "30"
    until_s = time.monotonic() + PATIENCE_S
    start_s = 0.0
    while resident.status() is None:
        if time.monotonic() >= start_s:
            assert resident.start()
            start_s = time.monotonic() + 5.0
        assert time.monotonic() < until_s, "no resident process"
        time.sleep(0.05)


def stop_residents(state: Path) -> None:
    """End the resident processes whose sockets are in this state folder, by the numbers in their locks."""
    for lock in (state / "switchgear" / "run").glob("*.lock"):
        words = lock.read_text().split()
        line = Path(f"/proc/{words[0]}/cmdline") if words else None
        if line is not None and line.exists() and str(lock.parent) in line.read_text():
            os.kill(int(words[0]), signal.SIGKILL)


def hook(folder: Path, data: Any, agent: str = "claude-code") -> Ran:
    """Run the hook with this input: bytes unchanged, any other value as JSON.

    A hook refuses when it takes too long. On a busy machine that tells nothing: it is run again.
    """
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    until_s = time.monotonic() + PATIENCE_S
    while True:
        done = subprocess.run(
            command(folder, agent),
            input=raw,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
            cwd="/",
            env={
                "HOME": str(folder / "home"),
                "PATH": os.defpath,
                "PYTHONPATH": "/nowhere",
                "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
                **{
                    name: os.environ[name]
                    for name in (client.RESIDENT_VARIABLE,)
                    if name in os.environ
                },
            },
        )
        ran = Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
        if f"no answer after {client.ALARM_S} s" not in ran.stderr or time.monotonic() > until_s:
            return ran
