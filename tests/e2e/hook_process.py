"""The real hook process for tests: one event on standard input, what it answers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._hooks.command import hook_command

PATIENCE_S = 300.0


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str

    @property
    def told(self) -> Any:
        """What the agent is told, as JSON values."""
        return json.loads(self.stdout or "{}")


def command(folder: Path, agent: str = "claude-code") -> list[str]:
    """The hook's command line, with the interpreter that runs the tests."""
    return [sys.executable, *hook_command(agent, root=str(folder))[1:]]


def hook(folder: Path, data: Any, agent: str = "claude-code") -> Ran:
    """Run the hook with this input: bytes as they are, anything else as JSON."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
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
        },
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
