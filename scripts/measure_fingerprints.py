"""How well do error fingerprints group? One table, on labelled lines and pairs.

    python scripts/measure_fingerprints.py FOLDER
    python scripts/measure_fingerprints.py --loghub CHECKOUT [--all-lines]

FOLDER holds `log_lines.jsonl.gz` (`system`, `message`, `group`) and `agent_error_pairs.jsonl.gz`
(`source`, `a`, `b`, `same`). Grouping accuracy is the share of lines whose predicted group is
exactly the true one; pair accuracy is the share of pairs that are rightly called the same or not.
drain3 learns from the lines it sees and so is no function of the text; it is shown if installed.

CHECKOUT is one of https://github.com/logpai/loghub: the second form scores the error lines of its
16 systems, or all 2,000 lines of each. Rules are chosen on the systems in `TUNED_ON` alone.
"""

import csv
import gzip
import json
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from switchgear._text.fingerprint import documented, fingerprint

TUNED_ON = {
    *("BGL", "Hadoop", "Linux", "Mac", "OpenSSH", "OpenStack", "Proxifier", "Thunderbird"),
    *("enigma_nyu_ctf", "sweagent_multi_java"),
}
"""The sources whose mistakes were looked at while the default was made; the others were not."""
SYSTEMS = (
    *("Android", "Apache", "BGL", "HDFS", "HPC", "Hadoop", "HealthApp", "Linux", "Mac", "OpenSSH"),
    *("OpenStack", "Proxifier", "Spark", "Thunderbird", "Windows", "Zookeeper"),
)
ERROR_LEVELS = ("err", "fatal", "sev", "warn")
ERROR_LETTERS = ("E", "F", "W")
ERROR_WORDS = (
    *("abort", "bad ", "can't", "cannot", "close", "could not", "critical", "denied", "error"),
    *("exceed", "exception", "fail", "fatal", "illegal", "interrupt", "invalid", "kill", "lost"),
    *("missing", "no such", "not answer", "not found", "panic", "refused", "reset", "terminat"),
    *("timed out", "timeout", "unable", "unavailable", "unknown", "unreachable", "warn"),
)

Keys = Callable[[Sequence[str]], list[str]]


def by_text(function: Callable[[str], str]) -> Keys:
    """The keys of texts by a function of each text alone."""
    return lambda texts: [function(text) for text in texts]


def by_drain3(texts: Sequence[str]) -> list[str]:
    """The clusters that drain3 ends with, having seen all the texts."""
    from drain3 import TemplateMiner  # noqa: PLC0415  optional

    miner = TemplateMiner()
    return [str(miner.add_log_message(" ".join(text.split()))["cluster_id"]) for text in texts]


def methods() -> dict[str, Keys]:
    """What is compared, by name."""
    found = {
        "exact text": by_text(str),
        "documented": by_text(documented),
        "default": by_text(fingerprint),
    }
    try:
        by_drain3(["is it there?"])
    except ImportError:
        return found
    return {**found, "drain3": by_drain3}


def grouping_accuracy(keys: Sequence[str], groups: Sequence[str]) -> float:
    """The share of lines whose predicted group is exactly the true one."""
    pairs = Counter(zip(keys, groups, strict=True))
    predicted, true = Counter(keys), Counter(groups)
    return sum(n for (key, group), n in pairs.items() if n == predicted[key] == true[group]) / len(
        keys
    )


def pair_accuracy(keys: Sequence[str], groups: Sequence[str]) -> float:
    """The share of all pairs of lines that are rightly called the same or not the same."""

    def pairs(counts: Counter[Any]) -> int:
        return sum(n * (n - 1) // 2 for n in counts.values())

    both = pairs(Counter(zip(keys, groups, strict=True)))
    everything = len(keys) * (len(keys) - 1) // 2
    wrong = pairs(Counter(keys)) + pairs(Counter(groups)) - 2 * both
    return 1 - wrong / everything


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a gzip JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def line_scores(folder: Path, ways: dict[str, Keys]) -> dict[str, list[tuple[float, float]]]:
    """Grouping and pair accuracy of each way, by system."""
    systems: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(folder / "log_lines.jsonl.gz"):
        systems[row["system"]].append(row)
    scores = {}
    for system, found in systems.items():
        groups = [row["group"] for row in found]
        keyed = [way([row["message"] for row in found]) for way in ways.values()]
        scores[system] = [(grouping_accuracy(k, groups), pair_accuracy(k, groups)) for k in keyed]
    return scores


def loghub_scores(
    checkout: Path, ways: dict[str, Keys], *, everything: bool
) -> dict[str, list[tuple[float, float]]]:
    """The same on all lines, or on those that are errors by their level or by a word."""
    scores = {}
    for system in SYSTEMS:
        path = checkout / system / f"{system}_2k.log_structured.csv"
        with path.open(encoding="utf-8", errors="replace", newline="") as lines:
            found = [row for row in csv.DictReader(lines) if everything or is_error(row)]
        groups = [row["EventId"] for row in found]
        keyed = [way([row["Content"] for row in found]) for way in ways.values()]
        scores[system] = [(grouping_accuracy(k, groups), pair_accuracy(k, groups)) for k in keyed]
    return scores


def is_error(row: dict[str, str]) -> bool:
    """Whether a line of a log is about an error, as far as its level and its words say so."""
    level, content = row.get("Level") or "", row["Content"].lower()
    if level in ERROR_LETTERS or any(sign in level.lower() for sign in ERROR_LEVELS):
        return True
    return any(word in content for word in ERROR_WORDS)


def agent_scores(folder: Path, ways: dict[str, Keys]) -> dict[str, tuple[int, list[float]]]:
    """The number of pairs of agents' errors and each way's accuracy on them, by source."""
    sources: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(folder / "agent_error_pairs.jsonl.gz"):
        sources[row["source"]].append(row)
    scores = {}
    for source, found in sources.items():
        right = []
        for way in ways.values():
            keys = way([text for row in found for text in (row["a"], row["b"])])
            said = [a == b for a, b in zip(keys[::2], keys[1::2], strict=True)]
            right.append(
                statistics.mean(s == bool(r["same"]) for s, r in zip(said, found, strict=True))
            )
        scores[source] = len(found), right
    return scores


def show_lines(scores: dict[str, list[tuple[float, float]]]) -> None:
    """The table of the log lines, and the means over the systems."""
    for tuned in (True, False):
        systems = [system for system in scores if (system in TUNED_ON) is tuned]
        if not systems:
            continue
        for system in systems:
            cells = " | ".join(f"{ga:.2f} / {pa:.3f}" for ga, pa in scores[system])
            print(f"| {system}{' (tuned on)' if tuned else ''} | {cells} |")
        columns = zip(*(scores[system] for system in systems), strict=True)
        means = [
            [statistics.mean(part) for part in zip(*column, strict=True)] for column in columns
        ]
        cells = " | ".join(f"**{ga:.2f} / {pa:.3f}**" for ga, pa in means)
        print(f"| **mean, {'' if tuned else 'not '}tuned on** | {cells} |")


def show_agents(scores: dict[str, tuple[int, list[float]]]) -> None:
    """The table of agents' errors, over all pairs of the sources."""
    for tuned in (True, False):
        chosen = [score for source, score in scores.items() if (source in TUNED_ON) is tuned]
        count = sum(n for n, _ in chosen)
        columns = zip(*([n * share for share in right] for n, right in chosen), strict=True)
        cells = " | ".join(f"**{sum(column) / count:.3f}**" for column in columns)
        print(
            f"| **{count} pairs of agents' errors, {'' if tuned else 'not '}tuned on** | {cells} |"
        )


def show_cost(folder: Path) -> None:
    """What a key costs."""
    lines = [row["message"] for row in rows(folder / "log_lines.jsonl.gz")]
    for name, function in (("default", fingerprint), ("documented", documented)):
        taken = []
        for line in lines:
            start = time.perf_counter()
            function(line)
            taken.append(time.perf_counter() - start)
        worst_ms = max(_milliseconds(function, text) for text in hostile_texts())
        print(
            f"{name}: {statistics.median(taken) * 1e6:.1f} µs a line (median); "
            f"the worst of {len(hostile_texts())} hostile texts of 1 MB: {worst_ms:.1f} ms"
        )


def hostile_texts() -> list[str]:
    """Texts of a million characters, each made to keep some pattern busy."""
    parts = [
        "1",
        "abcdef0",
        "at a(",
        "at ",
        "/a",
        "a.",
        "a=",
        "a:1",
        "a@",
        " ",
        "\t\n",
        "\x1b[",
        "# ",
    ]
    parts += [
        "1 ",
        "a/b.c ",
        "0x",
        "é",
        "port 1 ",
        "a.com.",
        "1.2.3.4:",
        "a1b",
        "-1",
        "ab://",
        "x.1/",
    ]
    parts += ["error\n", "a1b2c3d4 ", "(1:2)", "12345678-1234-", "\\", "E0308 ", "code=1 ", "user "]
    return [(part * (1_000_000 // len(part) + 1))[:1_000_000] for part in parts]


def _milliseconds(function: Callable[[str], str], text: str) -> float:
    """Of the processor, best of three: others are at work on the machine, too."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        function(text)
        taken.append(time.process_time() - start)
    return min(taken) * 1e3


def main() -> None:
    """Print the table."""
    ways = methods()
    match sys.argv[1:]:
        case ["--loghub", checkout, *flags] if flags in ([], ["--all-lines"]):
            scores = loghub_scores(Path(checkout), ways, everything=bool(flags))
            print_head(ways)
            show_lines(scores)
        case [folder]:
            print_head(ways)
            show_lines(line_scores(Path(folder), ways))
            show_agents(agent_scores(Path(folder), ways))
            show_cost(Path(folder))
        case _:
            sys.exit(__doc__)


def print_head(ways: dict[str, Keys]) -> None:
    """The head of the table."""
    print(f"| grouping / pair accuracy | {' | '.join(ways)} |")
    print(f"|---|{'---|' * len(ways)}")


if __name__ == "__main__":
    main()
