"""Measure the rules: how many evasions they refuse, how many harmless commands, and how long it takes.

Run by `make rules`. `SWITCHGEAR_FUZZ_COMMANDS` sets the number of random commands (default 2000).
"""

# ruff: noqa: T201  a command that prints

import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from rules import grammar
from rules.evasions import evasions, offences, rewritten, wrapped
from rules.harmless import COMMANDS
from rules.project import Project

MEGABYTE = 1_000_000


def share(count: int, whole: int) -> str:
    return f"{count:5} of {whole:5}  ({100 * count / whole:.1f} %)"


def times(project: Project, texts: list[str]) -> list[float]:
    found: list[float] = []
    for text in texts:
        begun = time.process_time()
        project.refusal(text)
        found.append(1000 * (time.process_time() - begun))
    return sorted(found)


def main() -> None:
    count = int(os.environ.get("SWITCHGEAR_FUZZ_COMMANDS", "2000"))
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        for name, texts in (
            ("plain offences refused", list(offences())),
            ("with other paths", list(rewritten())),
            ("by other means", list(wrapped())),
            ("evasions refused", evasions()),
        ):
            refused = sum(project.refusal(text) is not None for text in texts)
            print(f"{name:28} {share(refused, len(texts))}")
        refused = sum(project.refusal(text) is not None for text in COMMANDS)
        print(f"{'harmless commands refused':28} {share(refused, len(COMMANDS))}")
        random = Random(1)
        for name, texts in (
            (f"{count} random commands", [grammar.text(random) for _ in range(count)]),
            ("200 texts of up to 1 MB", [grammar.long_text(random, MEGABYTE) for _ in range(200)]),
            ("harmless commands", COMMANDS),
        ):
            taken = times(project, texts)
            p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
            print(f"{name:28} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   slowest {taken[-1]:7.2f} ms")


if __name__ == "__main__":
    main()
