"""Real agents with hooks that the `switchgear` command installed, in clean environments."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from e2e.agents.fake_llm import ScriptedApi
from e2e.agents.scripts_of_models import Turn
from e2e.agents.worlds import World

HOOK_NAMES = {
    "claude": "claude-code",
    "codex": "codex",
    "gemini": "gemini",
    "opencode": "opencode",
    "qwen": "qwen",
    "pi": "pi",
}
"""The agents of the tests that have hooks, and what `switchgear hooks` calls them."""
EXTRA = {"codex": ("--dangerously-bypass-hook-trust",)}
"""Codex runs only hooks that a person has reviewed; nobody is there to do it."""
LONGEST_S = 300


class Ended(NamedTuple):
    """A run that is over."""

    code: int
    output: str
    seconds: float


class Guarded:
    """An agent in a project with our hooks installed."""

    def __init__(self, name: str, world: World, project: Path) -> None:
        self.name = HOOK_NAMES[name]
        self.world = world
        self.project = project
        self.extra = EXTRA.get(name, ())
        # Our own command is within the reach of the agent's shell: it must be refused, not missing.
        path = os.pathsep.join((world.env["PATH"], str(Path(sys.executable).parent)))
        self.env = {**world.env, "PATH": path}

    def switchgear(self, *words: str, good: Sequence[int] = (0,)) -> str:
        """The `switchgear` command, in the environment of the agent."""
        done = subprocess.run(
            [sys.executable, "-m", "switchgear", *words],
            cwd=self.project,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in good, done.stdout + done.stderr
        return done.stdout

    def run(self, prompt: str = "Check the settings.") -> Ended:
        """One headless run of the agent, ended by force if it does not end."""
        made = self.world.agent.invocation(prompt, model=self.world.model, extra=self.extra)
        began_s = time.monotonic()
        done = subprocess.run(
            ["timeout", "-k", "5", str(LONGEST_S), *made.argv],
            cwd=self.project,
            env={**self.env, **made.env},
            input=made.stdin or "",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return Ended(done.returncode, done.stdout, time.monotonic() - began_s)

    def events(self) -> list[dict[str, Any]]:
        """All events of the circuits, oldest first."""
        told = self.switchgear("events", "--json", "--limit", "1000", good=(0, 1))
        return [json.loads(line) for line in told.splitlines() if line.strip()]


class ScriptedModel(ScriptedApi):
    """Plays these turns one after the other, and then reports that it is done."""

    def __init__(self, *turns: Turn) -> None:
        super().__init__()
        self.turns = turns

    def turn(self, answers: int) -> Turn:
        return self.turns[answers] if answers < len(self.turns) else Turn(text="Done.")

    def was_told(self, text: str) -> bool:
        """Whether a request to the model contained a text; JSON escapes it."""
        return any(json.dumps(text)[1:-1] in body for body in self.bodies)


def shell(*commands: str) -> tuple[Turn, ...]:
    return tuple(Turn(shell=command) for command in commands)
