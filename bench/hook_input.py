"""How long the hook process takes to answer input of up to 1 MB: `python -m bench.hook_input [ROUNDS] [--cpu]`.

Each input goes through the real command, from the start of the process to its answer. The inputs are
made to be slow to read: long commands, many words, here-documents, deep nesting, quotes, one long word.
A forbidden command is in each; an answer that does not refuse it is counted as wrong.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from switchgear._hooks.command import hook_command

if TYPE_CHECKING:
    from collections.abc import Callable

FORBIDDEN = "rm -rf /etc"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
AT_MOST_MS = 300.0
CPU = "--cpu" in sys.argv
"""Count the time on the processor instead, which a busy machine does not lengthen."""
SHAPES: dict[str, Callable[[int], str]] = {
    "commands": lambda size: f"{FORBIDDEN}; " + "cd a/b/c/d/e/f/g/h;" * (size // 19),
    "commands before": lambda size: "echo x;" * (size // 7) + FORBIDDEN,
    "here-documents": lambda size: f"{FORBIDDEN}; " + "cat <<a;" * (size // 8),
    "one word": lambda size: f"{FORBIDDEN} " + "x" * size,
    "words": lambda size: f"{FORBIDDEN} " + "x/y " * (size // 4),
    "substitutions": lambda size: f"{FORBIDDEN}; echo " + "$(" * (size // 4) + ")" * (size // 4),
    "quotes": lambda size: f"{FORBIDDEN}; echo " + "'\"'" * (size // 3),
    "redirections": lambda size: f"{FORBIDDEN} " + "> a " * (size // 4),
    "variables": lambda size: f"{FORBIDDEN}; " + "a=$a$a;" * (size // 7),
    "globs": lambda size: f"{FORBIDDEN} " + "*/[a-z]? " * (size // 9),
    "braces": lambda size: f"{FORBIDDEN}; echo " + "{a,b}" * (size // 5),
}


def main() -> int:
    """Print the percentiles; exit code 1 if the 99th is above the bar or an answer is wrong."""
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 3)
    taken: dict[int, list[float]] = {size: [] for size in SIZES}
    slowest = (0.0, "")
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".git").mkdir()
        line = hook_command("claude-code", root=folder)
        for number in range(rounds + 1):
            for size in SIZES:
                for name, shape in SHAPES.items():
                    seconds, refused = _ask(line, folder, shape(size), f"{number}-{size}-{name}")
                    if not refused:
                        wrong.append(f"{name} of {size} bytes")
                    if number:  # the first round fills the caches
                        taken[size].append(seconds)
                        slowest = max(slowest, (seconds, f"{name} of {size:,} bytes"))
    print("| input | median ms | p99 ms |\n|---|---|---|")
    for size, each in taken.items():
        print(f"| {size:,} bytes | {statistics.median(each) * 1e3:.0f} | {_p99(each) * 1e3:.0f} |")
    p99_ms = _p99([second for each in taken.values() for second in each]) * 1e3
    print(
        f"\np99 of all {p99_ms:.0f} ms (bar {AT_MOST_MS:.0f}); slowest {slowest[0] * 1e3:.0f} ms: {slowest[1]}"
    )
    print(f"admitted: {', '.join(wrong) or 'none'}")
    return 1 if wrong or p99_ms > AT_MOST_MS else 0


def _ask(line: list[str], folder: str, command: str, session: str) -> tuple[float, bool]:
    event = {
        "session_id": session,
        "cwd": folder,
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_use_id": "t",
    }
    raw = json.dumps(event).encode()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.perf_counter()
    done = subprocess.run(line, input=raw, capture_output=True, check=False)
    seconds = time.perf_counter() - began_s
    if CPU:
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return seconds, done.returncode == 2 or b'"deny"' in done.stdout


def _p99(seconds: list[float]) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


if __name__ == "__main__":
    sys.exit(main())
