"""Put measured results into the documentation.

    python scripts/paste_results.py                          the benchmark, from build/bench.md
    python scripts/paste_results.py --mutants build/*.txt    what runs of `make mutants` printed

The benchmark goes to `docs/benchmarks.md`. The tables of several runs of mutants, each over some
files, become one in `docs/correctness.md`. Only the block between the two comments changes.
"""

import argparse
import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCORE = re.compile(r"^\| ([\w/]+\.py) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)


def pasted(page: str, name: str, results: str) -> str:
    """The page with the results in its block. Raises ValueError if it has no block, or several."""
    block = re.compile(rf"(?<=<!-- {name}:begin -->\n).*?(?=<!-- {name}:end -->)", re.DOTALL)
    page, blocks = block.subn(lambda _: f"\n{results.strip()}\n\n", page)
    if blocks != 1:
        raise ValueError(f"there must be one block {name}:begin … {name}:end, not {blocks}")
    return page


def scores(printed: Iterable[str], when: str) -> str:
    """One table of the mutants of all files; a later run of a file counts."""
    of_file = {
        name: tuple(map(int, numbers)) for text in printed for name, *numbers in SCORE.findall(text)
    }
    if not of_file:
        raise ValueError("there is no table of files; is this what `make mutants` printed?")
    total, killed, explained, left = map(sum, zip(*of_file.values(), strict=True))
    lines = [
        f"Measured {when} by `make mutants`: of {total:,} mutants, {killed:,} were killed,",
        f"{explained} are explained in `scripts/mutants_explained.toml` because no test can distinguish them",
        f"from the original, and {left} are left.",
        "",
        "| file | mutants | killed | explained | left |",
        "|---|---:|---:|---:|---:|",
        *(f"| `{name}` | {' | '.join(map(str, row))} |" for name, row in of_file.items()),
        f"| **all** | **{total:,}** | **{killed:,}** | **{explained}** | **{left}** |",
    ]
    return "\n".join(lines)


def today_and_commit() -> str:
    """As in "on 2026-11-15 at 1a2b3c4": a score is one of a certain text."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return f"on {datetime.now(UTC):%Y-%m-%d} at {commit.strip()}"


def fill(name: str, block: str, results: str) -> None:
    """Fill the block of one page."""
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    page.write_text(pasted(text, block, results), encoding="utf-8")
    print(f"{name} has the results")


def main() -> None:
    """Fill the pages that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("bench", type=Path, nargs="?", default=ROOT / "build" / "bench.md")
    parser.add_argument("--mutants", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    if options.mutants:
        printed = [file.read_text(encoding="utf-8") for file in options.mutants]
        fill("docs/correctness.md", "mutants", scores(printed, today_and_commit()))
        return
    if not options.bench.exists():
        parser.error(f"{options.bench} is not there; `make bench` writes it")
    results = options.bench.read_text(encoding="utf-8")
    fill("docs/benchmarks.md", "bench", results)


if __name__ == "__main__":
    main()
