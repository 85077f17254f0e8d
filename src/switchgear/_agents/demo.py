"""The built-in demo agent, its scenarios, and a demo repository for it to work in.

It needs no installation, no key and no network: its program is `python -m switchgear._agents.demo`. Like an
agent, it reads a prompt from standard input, and then plays one scenario in the working directory. The number of
the iteration is in SWITCHGEAR_ITERATION; without it, a counter in the git directory is used, so that the program
can be run by hand.

A scenario depends only on the iteration and the content of the working directory, so every run is the same. It
yields lines of Switchgear's own stream format (see `command.py`), and really does what it reports: it edits files
and runs commands, and their failures are real.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from switchgear._agents.base import Agent, Invocation
from switchgear._agents.command import CommandReader

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
    "README.md": "# Shapes\n\nImplement every function in shapes.py; test_shapes.py checks them.\n",
    ".gitignore": "__pycache__/\n",
}
VALIDATION = f"{sys.executable} -B -m unittest -q"
"""The command that tests the demo repository."""
VALIDATED = ("", "story", "works", "rate-limited")
"""The scenarios whose work is validated with the tests."""
TASK = "Implement every function in shapes.py so that all tests pass."


class Demo(Agent):
    """The demo agent in one of its scenarios; `speed` divides its pauses.

    Raises ValueError for a scenario that it does not know.
    """

    name = "demo"
    install = "it is part of switchgear"
    model_option = ""
    reader_class = CommandReader

    def __init__(self, scenario: str = "story", speed: float = 1.0) -> None:
        if scenario not in SCENARIOS:
            raise ValueError(
                f"there is no scenario {scenario!r} of the demo agent; known: {', '.join(SCENARIOS)}"
            )
        if not speed > 0:
            raise ValueError(f"speed is {speed!r}: it must be a number above 0")
        self.scenario = scenario
        self.speed = speed

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """The current Python with the demo program; the prompt is on stdin."""
        argv = [sys.executable, "-m", "switchgear._agents.demo", "--scenario", self.scenario]
        return Invocation((*argv, "--speed", str(self.speed), *options), prompt)


def make_repository(path: Path) -> None:
    """Write the demo project into an empty directory, under git if it is installed."""
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise ValueError(f"{str(path)!r} must be an empty directory")
    for name, text in FILES.items():
        (path / name).write_text(text, encoding="utf-8")
    git = shutil.which("git")
    if git is None:
        return
    who = ("-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    # The git configuration of the machine must not affect the demonstration.
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for arguments in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "Stubs")):
        subprocess.run(  # noqa: S603 - fixed arguments
            [git, *who, *arguments], cwd=path, env=env, check=True, capture_output=True
        )


# Scenarios

Line = dict[str, Any]
Scenario = Callable[[int], Iterator[Line | float]]
"""Receives the number of the iteration, from 1; yields lines to print and seconds to pause."""

_BODIES = {
    "square": "return side * side",
    "rectangle": "return width * height",
    "triangle": "return base * height / 2",
    "cube": "return side**3",
}
_STUB = re.compile(r"def (\w+)\([^)]*\) -> float:\n    (raise NotImplementedError)")
_MODEL = "demo-model"
_FILLER = (
    "I went through the module once more and compared the signatures with the tests. "
    "The approach stands, the details need another look. "
)
_EXCUSES = (
    "I reviewed the layout of the module and have a clear picture now.",
    "The structure is understood; the design of the next step is taking shape.",
    "Good progress: the plan covers every function and its edge cases.",
    "I refined the plan and weighed two alternatives against each other.",
    "Nearly there: the remaining question is how to name the helpers.",
)


def works(iteration: int) -> Iterator[Line | float]:
    """Implements one function each iteration, runs the tests, and reports when all are done."""
    del iteration
    yield 0.4
    source = Path("shapes.py")
    text = source.read_text(encoding="utf-8") if source.exists() else ""
    stub = _STUB.search(text)
    if stub is None:
        yield {"type": "text", "text": "Every function is implemented."}
        yield _usage(900, 40, 0.004)
        yield {"type": "result", "text": "All functions are implemented. DONE", "success": True}
        return
    body = _BODIES.get(stub[1], "return 0.0")
    source.write_text(text[: stub.start(2)] + body + text[stub.end(2) :], encoding="utf-8")
    yield {"type": "text", "text": f"Implementing {stub[1]}. {_FILLER}"}
    yield _step("edit", {"path": "shapes.py", "new": body})
    yield 0.4
    yield _run_command(sys.executable, "-B", "-m", "unittest", "-q")
    yield _usage(1_500, 220, 0.012)
    left = len(_STUB.findall(source.read_text(encoding="utf-8")))
    yield {"type": "result", "text": f"Implemented {stub[1]}; {left} left.", "success": left == 0}


def same_error(iteration: int) -> Iterator[Line | float]:
    """Runs the same failing command again and again."""
    yield {"type": "text", "text": f"Attempt {iteration}: using the fast implementation. {_FILLER}"}
    for _ in range(2):
        yield 0.3
        yield _run_command(sys.executable, "-B", "-c", "import shapes_fast")
    yield _usage(1_800, 160, 0.013)
    text = "The fast implementation cannot be imported."
    yield {"type": "result", "text": text, "success": False}


def no_progress(iteration: int) -> Iterator[Line | float]:
    """Changes nothing, and describes it differently each time."""
    yield 0.4
    words = _EXCUSES[(iteration - 1) % len(_EXCUSES)]
    names = " ".join(sorted(path.name for path in Path().iterdir() if path.is_file()))
    yield _step("read", {"path": "shapes.py"}) | {"output": names}
    yield {"type": "text", "text": f"{words} {_FILLER}"}
    yield _usage(1_600, 180, 0.011)
    yield {"type": "result", "text": words, "success": True}


def declining(iteration: int) -> Iterator[Line | float]:
    """Changes something each time, with less and less output."""
    yield 0.4
    notes = Path("notes.md")
    old = notes.read_text(encoding="utf-8") if notes.exists() else "# Notes\n"
    notes.write_text(f"{old}- thought {iteration}\n", encoding="utf-8")
    yield _step("write", {"path": "notes.md", "n": iteration})
    length = 1_200 if iteration <= 3 else max(20, 1_200 // 3 ** (iteration - 3))
    yield {"type": "text", "text": (_FILLER * 20)[:length]}
    yield _usage(1_200, length // 4, 0.006)
    yield {"type": "result", "text": "ok", "success": None}


def hangs(iteration: int) -> Iterator[Line | float]:
    """Prints one line and then nothing, forever."""
    yield {"type": "text", "text": f"Iteration {iteration}: waiting for the language server."}
    for _ in itertools.count():
        yield 60.0


def expensive(iteration: int) -> Iterator[Line | float]:
    """Makes little progress at high cost."""
    yield 0.4
    ledger = Path("ledger.txt")
    old = ledger.read_text(encoding="utf-8") if ledger.exists() else ""
    ledger.write_text(f"{old}entry {iteration}\n", encoding="utf-8")
    yield _step("write", {"path": "ledger.txt", "n": iteration})
    yield {"type": "text", "text": f"Considered every alternative in depth. {_FILLER}"}
    yield _usage(180_000, 12_000, 0.75)
    yield {"type": "result", "text": f"Entry {iteration} is written.", "success": None}


def asks(iteration: int) -> Iterator[Line | float]:
    """Asks the user for a decision."""
    del iteration
    yield 0.4
    yield {"type": "text", "text": f"Two readings of the task are possible. {_FILLER}"}
    yield _usage(1_000, 90, 0.006)
    yield {"type": "question", "text": "Should triangle() take three sides or base and height?"}
    yield {"type": "result", "text": "I need a decision before I go on.", "success": None}


def claims_done(iteration: int) -> Iterator[Line | float]:
    """Reports that everything is done, but has changed nothing."""
    del iteration
    yield 0.4
    yield {"type": "text", "text": f"All functions are implemented and all tests pass. {_FILLER}"}
    yield _usage(900, 60, 0.005)
    yield {"type": "result", "text": "Everything is implemented and tested. DONE", "success": True}


def provider_down(iteration: int) -> Iterator[Line | float]:
    """Cannot reach its provider and gives up."""
    del iteration
    down = "connection refused: api.example.invalid:443"
    for final in (False, False, True):
        yield 0.3
        yield {"type": "error", "message": down, "final": final}
    yield {"type": "result", "text": down, "success": False}


def rate_limited(iteration: int) -> Iterator[Line | float]:
    """Receives one rate limit, in the second iteration, and works otherwise."""
    if iteration == 2:
        message = "429 too many requests"
        yield {
            "type": "error",
            "message": message,
            "status": 429,
            "retry_after_s": 2,
            "final": True,
        }
        yield {"type": "result", "text": message, "success": False}
    else:
        yield from works(iteration)


def story(iteration: int) -> Iterator[Line | float]:
    """Works in two iterations, then repeats a failing command; slow enough to be followed on the screen."""
    for line in works(iteration) if iteration <= 2 else same_error(iteration):
        yield line
        if isinstance(line, dict) and line["type"] in {"text", "tool"}:
            yield 0.8


SCENARIOS: dict[str, Scenario] = {
    "story": story,
    "works": works,
    "same-error": same_error,
    "no-progress": no_progress,
    "declining": declining,
    "hangs": hangs,
    "expensive": expensive,
    "asks": asks,
    "claims-done": claims_done,
    "provider-down": provider_down,
    "rate-limited": rate_limited,
}


def _usage(input_tokens: int, output_tokens: int, dollars: float) -> Line:
    tokens = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    return {"type": "usage", "model": _MODEL, **tokens, "cost_usd": dollars}


def _step(tool: str, arguments: dict[str, Any]) -> Line:
    return {"type": "tool", "name": tool, "arguments": arguments, "ok": True}


def _run_command(*argv: str) -> Line:
    done = subprocess.run(  # noqa: S603 - our own arguments
        argv, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )
    shown = " ".join(("python", *argv[2:]))
    output = (done.stdout + done.stderr).strip()
    ok = done.returncode == 0
    return _step("bash", {"command": shown}) | {"ok": ok, "output" if ok else "error": output}


# The program


def main() -> int:
    """Play one iteration. Returns exit code 1 if its result is a failure, as agents do."""
    parser = argparse.ArgumentParser(prog="demo-agent", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, default="story")
    parser.add_argument("--speed", type=float, default=1.0, help="divides every pause")
    chosen = parser.parse_args()
    sys.stdin.read()
    failed = False
    for line in SCENARIOS[chosen.scenario](_iteration()):
        if isinstance(line, float):
            # `speed` does not shorten a hang.
            time.sleep(line if line > 10 else line / chosen.speed)
            continue
        failed = line.get("success") is False
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return int(failed)


def _iteration() -> int:
    digits = os.environ.get("SWITCHGEAR_ITERATION", "")
    if digits.isdecimal():
        return max(1, int(digits))
    counter = Path(".git", "switchgear-demo")
    if not counter.parent.is_dir():
        return 1
    number = int(counter.read_text(encoding="ascii")) + 1 if counter.exists() else 1
    counter.write_text(str(number), encoding="ascii")
    return number


if __name__ == "__main__":
    sys.exit(main())
