"""The built-in stand-in as an agent, and a throw-away repository for it to work in.

It needs nothing installed, no key and no network: `switchgear._agents.demo.program` is the program.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from switchgear._agents.base import Agent, Invocation, StreamReader
from switchgear._agents.command import CommandReader
from switchgear._agents.demo.scenarios import SCENARIOS

FILES = {
    "shapes.py": '''"""Areas and volumes, one function after the other."""


def square(side: float) -> float:
    raise NotImplementedError


def rectangle(width: float, height: float) -> float:
    raise NotImplementedError


def triangle(base: float, height: float) -> float:
    raise NotImplementedError


def cube(side: float) -> float:
    raise NotImplementedError
''',
    "test_shapes.py": """import unittest

import shapes


class Shapes(unittest.TestCase):
    def test_square(self):
        self.assertEqual(shapes.square(3), 9)

    def test_rectangle(self):
        self.assertEqual(shapes.rectangle(3, 4), 12)

    def test_triangle(self):
        self.assertEqual(shapes.triangle(3, 4), 6)

    def test_cube(self):
        self.assertEqual(shapes.cube(3), 27)
""",
    "README.md": "# Shapes\n\nImplement every function in shapes.py; test_shapes.py says when it is right.\n",
    ".gitignore": "__pycache__/\n",
}
VALIDATION = f"{sys.executable} -B -m unittest -q"
"""The command that tests the throw-away repository."""
VALIDATED = ("", "story", "works", "rate-limited")
"""The scenarios that work on the tests; the others would only fail them."""
TASK = "Implement every function in shapes.py so that all tests pass."


class Demo(Agent):
    """The stand-in in one of its scenarios; `speed` divides its pauses.

    Raises ValueError for a scenario that it does not know.
    """

    name = "demo"
    install = "it is part of switchgear"

    def __init__(self, scenario: str = "story", speed: float = 1.0) -> None:
        if scenario not in SCENARIOS:
            raise ValueError(
                f"there is no scenario {scenario!r} of the demo agent; known: {', '.join(SCENARIOS)}"
            )
        if not speed > 0:
            raise ValueError(f"speed is {speed!r}: it must be a number above 0")
        self.scenario = scenario
        self.speed = speed

    def invocation(
        self, prompt: str, cwd: Path, *, model: str | None = None, extra: tuple[str, ...] = ()
    ) -> Invocation:
        """The running Python with the stand-in's program; the prompt is on stdin."""
        del cwd, model
        argv = [
            sys.executable,
            "-m",
            "switchgear._agents.demo.program",
            "--scenario",
            self.scenario,
        ]
        return Invocation((*argv, "--speed", str(self.speed), *extra), prompt)

    def reader(self, *, model: str | None = None) -> StreamReader:
        """A reader for one run."""
        return CommandReader(model=model)


def make_repository(path: Path) -> None:
    """Writes the throw-away project into an empty directory, under git where git is there."""
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise ValueError(f"{str(path)!r} must be an empty directory")
    for name, text in FILES.items():
        (path / name).write_text(text, encoding="utf-8")
    git = shutil.which("git")
    if git is None:
        return
    who = ("-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    # No hook, template or signature of the machine takes part in a demonstration.
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for arguments in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "Stubs")):
        subprocess.run(  # noqa: S603 - fixed arguments
            [git, *who, *arguments], cwd=path, env=env, check=True, capture_output=True
        )
