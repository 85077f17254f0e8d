"""Checks the types that users see, with mypy and pyright. Part of `make check`.

- Every line of `typing_errors.py` marked ERROR is an error, and no other line is.
- `pyright --verifytypes` finds no incomplete type in the public modules.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
MISSPELLED = HERE / "typing_errors.py"
BIN = Path(sys.executable).parent


def main() -> int:
    marked = {
        number
        for number, line in enumerate(MISSPELLED.read_text().splitlines(), 1)
        if line.endswith("# ERROR")
    }
    problems = []
    for name, command in (
        ("mypy", [BIN / "mypy", "--strict", "--no-error-summary", MISSPELLED]),
        ("pyright", [BIN / "pyright", MISSPELLED]),
    ):
        found = {int(line) for line in re.findall(r"\.py:(\d+):.*\berror\b", _run(command))}
        problems += [
            f"{name} accepts line {number} of {MISSPELLED.name}" for number in marked - found
        ]
        problems += [
            f"{name} refuses line {number} of {MISSPELLED.name}" for number in found - marked
        ]
    verified = _run([BIN / "pyright", "--verifytypes", "switchgear", "--ignoreexternal"])
    if "Type completeness score" not in verified:
        problems.append(f"pyright --verifytypes switchgear:\n{verified}")
    problems += _incomplete(verified)
    sys.stdout.write("".join(f"{problem}\n" for problem in problems) or "types: complete\n")
    return 1 if problems else 0


def _incomplete(verified: str) -> list[str]:
    """What pyright finds incomplete in the public modules.

    `make integrations` checks the types of `integrations`, which need packages that are not installed here.
    """
    found, symbol = [], ""
    for line in verified.splitlines():
        if re.fullmatch(r"\s*switchgear[\w.]*", line):
            symbol = line.strip()
        elif "error:" in line and "integrations" not in symbol + line:
            found.append(f"{symbol}: {line.strip()}")
    return found


def _run(command: Sequence[object]) -> str:
    # pyright looks for the installed package with the first Python of the path.
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE,
        env={**os.environ, "PATH": path},
    )
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
