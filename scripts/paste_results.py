"""Put the results of the last `make bench` where they are read: the README and the documentation.

    python scripts/paste_results.py             from build/bench.md
    python scripts/paste_results.py other.md    from another run

The README gets the promises and what was measured, `docs/benchmarks.md` every table. Both have a
block between two comments, and nothing else of them is touched.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(?<=<!-- bench:begin -->\n).*?(?=<!-- bench:end -->)", re.DOTALL)


def pasted(page: str, results: str) -> str:
    """The page with the results in its block. Raises ValueError if it has no block, or several."""
    page, blocks = BLOCK.subn(lambda _: f"\n{results.strip()}\n\n", page)
    if blocks != 1:
        raise ValueError(f"there must be one block bench:begin … bench:end, and there are {blocks}")
    return page


def in_short(results: str) -> str:
    """Where it was measured, and the promises, one line for each measure."""
    first, *others = results.split("\n\n")
    promises = next((part for part in others if part.startswith("| measure |")), None)
    if promises is None:
        raise ValueError("there is no table of promises; is this what `make bench` wrote?")
    by_measure: dict[str, list[str]] = {}
    for row in promises.splitlines()[2:]:
        measure, promise, measured, bar, verdict = row.strip("| ").split(" | ")
        missed = "" if verdict == "passed" else f", {verdict}"
        by_measure.setdefault(measure, []).append(f"{measured} {promise} ({bar}{missed})")
    lines = [f"| {measure} | {'; '.join(told)} |" for measure, told in by_measure.items()]
    where = first.partition(". ")[0]
    return "\n".join(
        [
            f"{where}. The floor is a wrapper that does nothing; in parentheses is the bar. [Every table](docs/benchmarks.md).",
            "",
            "| measure | measured |",
            "|---|---|",
            *lines,
        ]
    )


def main() -> None:
    """Fill both pages."""
    source = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "bench.md"
    if not source.exists():
        sys.exit(f"{source} is not there; `make bench` writes it")
    results = source.read_text(encoding="utf-8")
    for name, text in (("README.md", in_short(results)), ("docs/benchmarks.md", results)):
        page = ROOT / name
        page.write_text(pasted(page.read_text(encoding="utf-8"), text), encoding="utf-8")
        print(f"{name} has the results of {source}")


if __name__ == "__main__":
    main()
