"""How often is an inferred outcome right? Measured on recorded runs with a known outcome.

    python scripts/measure_outcomes.py FOLDER

FOLDER is the corpus of `scripts/stuck_corpus.py`. The outcome of each run is inferred without the
recorded one, and compared with it: by sign, by stated confidence, and by source. Signs that need a
person or a repository (the next message, an interruption, a surviving commit) do not occur there.
"""

import gzip
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._agents.recordings.recording import RecordedRun, RecordedStep, changed
from switchgear._analysis.backtest.outcomes import DEFAULT_CONFIDENCE, InferredOutcome, infer

TELLING = ("solved", "success", "fail", "safe", "submitted")
"""Ends that are written by the benchmark's judge, and say what is to be inferred."""


class Compared(NamedTuple):
    """A run: what is inferred, and what is true."""

    source: str
    found: InferredOutcome
    solved: bool


def recorded(row: dict[str, Any]) -> RecordedRun:
    """A run of the corpus as a recording would have it, without its outcome."""
    end = str(row.get("exit") or "")
    steps = tuple(_step(step) for step in row["steps"])
    hidden = any(word in end.lower() for word in TELLING)
    return RecordedRun(row["id"], row["source"], "plain", steps=steps, ended="" if hidden else end)


def _step(step: dict[str, Any]) -> RecordedStep:
    tool, ok = "" if step["tool"] == "none" else step["tool"], not step.get("error")
    try:
        arguments = json.loads(step["args"])
    except ValueError:
        arguments = step["args"]
    did, said = changed(tool, arguments, ok=ok), step.get("thought")
    return RecordedStep(tool, step["args"], step["observation"], thought=said, ok=ok, changed=did)


def compared(folder: Path) -> Iterator[Compared]:
    """Every run of the folder with a known outcome."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if row["solved"] is not None:
                    source = path.name.removesuffix(".jsonl.gz")
                    yield Compared(source, infer(recorded(row), look_at_git=False), row["solved"])


def kind_of(sign: str) -> str:
    """A sign without its numbers and names."""
    head, _, after = sign.partition(",")
    kind = head.partition(" (")[0].partition(" '")[0]
    return f"{kind}, {after.strip()}" if after else kind


def show(title: str, groups: dict[str, list[tuple[float, bool]]]) -> None:
    """A table: stated confidence and the share that was right."""
    print(f"\n| {title} | runs | stated | right |\n|---|---:|---:|---:|")
    for name, found in sorted(groups.items()):
        stated = statistics.mean(confidence for confidence, _ in found)
        right = sum(right for _, right in found)
        print(f"| {name} | {len(found)} | {stated:.0%} | {right / len(found):.0%} ({right}) |")


def main() -> None:
    """Print the tables."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    runs = list(compared(Path(sys.argv[1])))
    alone, bands, sources = defaultdict(list), defaultdict(list), defaultdict(list)
    for source, found, solved in runs:
        if found.solved is None:
            continue
        judged = found.confidence, found.solved is solved
        if len(found.signs) == 1:
            alone[kind_of(found.signs[0].text)].append(judged)
        says = "solved" if found.solved else "unsolved"
        bands[f"{says}, {10 * int(10 * found.confidence)} % and more"].append(judged)
        if found.confidence >= DEFAULT_CONFIDENCE:
            sources[source].append(judged)
    show("the only sign", alone)
    show("inferred", bands)
    show(f"source, from {DEFAULT_CONFIDENCE:.0%}", sources)
    known = sum(len(found) for found in sources.values())
    right = sum(right for found in sources.values() for _, right in found)
    print(
        f"\n{known} of {len(runs)} outcomes inferred from {DEFAULT_CONFIDENCE:.0%}; {right} right."
    )


if __name__ == "__main__":
    main()
