"""Break the mechanism on purpose, one small change at a time, and count what the tests catch.

    python scripts/mutants.py                      all of it, as `make mutants` does
    python scripts/mutants.py --only window.py     one file
    python scripts/mutants.py --sample 50 --seed 7 some, drawn
    python scripts/mutants.py --list               show the mutants and run nothing
    python scripts/mutants.py --explained          those that are explained, too: do they survive?

A run has three levels, and the survivors of each meet the next: the tests of `make test`, for a few
seconds of CPU time; the same tests at full depth; for code that runs when it is imported, an import
of package and tests with the mutant. The first two change the function in place, in a process that
has imported everything once, and run only the tests that run the mutated lines
(`mutant_session.py`). Nothing in the checkout changes.

Verdicts are written to a file as they come. A run that was interrupted continues there: it repeats
neither kills, unless the code of the file has changed, nor survivors, unless a test has.

A mutant that no test can tell from the original is explained in `mutants_explained.toml`; any other
that survives makes the command fail.
"""

import argparse
import ast
import contextlib
import difflib
import hashlib
import json
import math
import os
import random
import sys
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.stateful
from mutant_operators import Mutant, mutants_of
from mutant_session import (
    PACKAGE,
    ROOT,
    Level,
    Session,
    Verdict,
    digest,
    run_imported,
    silence,
)

EXPLAINED = Path(__file__).with_name("mutants_explained.toml")
FILES = (
    "_core/machine.py",
    "_core/evidence.py",
    "_core/policy.py",
    "_core/window.py",
    "_core/values.py",
    "_core/wire.py",
    "_core/detector.py",
    "_text/fingerprint.py",
    "_detectors/failures.py",
    "_detectors/loop_output.py",
    "_detectors/policy_wire.py",
    "_detectors/progress.py",
    "_detectors/same_error.py",
    "_detectors/same_tool.py",
    "_detectors/shares.py",
    "_detectors/usage.py",
    "_detectors/violation.py",
    "_detectors/waits.py",
    "_breaker/tickets.py",
    "_stores/fallback.py",
    "_hooks/shell_input.py",
    "_detectors/step_facts.py",
    "_detectors/stagnation.py",
)
TESTS = (
    *("tests/unit/core", "tests/unit/detectors", "tests/unit/breaker", "tests/unit/text"),
    *(
        "tests/unit/stuck",
        "tests/unit/fleet/test_fleet_detectors.py",
        "tests/unit/budgets/test_money.py",
    ),
    *(f"tests/unit/stores/test_{name}.py" for name in ("submitter", "resilient", "backlog")),
    *("tests/unit/stores/test_store_lost.py", "tests/unit/stores/test_store_lost_waiting.py"),
    *("tests/unit/hooks/test_typed_input.py", "tests/unit/hooks/test_kept_shell_input.py"),
    "tests/unit/rules/test_shell_input.py",
    *(f"tests/property/test_{name}.py" for name in ("counts", "machine", "progress_walks")),
    *("tests/property/test_step_laws.py", "tests/property/test_detector_laws.py"),
)
LIMIT_S = 60
"""How long tests of threads wait: a mutant that makes them wait for nothing is killed then."""
SLOW = "test_every_field_is_alive and debt"
LEVELS = (
    Level(
        "quick",
        ("-m", "not e2e_agents and not console and not stress", "-k", f"not ({SLOW})", *TESTS),
        {},
        budget_s=5.0,
    ),
    Level(
        "deep", ("-m", "not e2e_agents and not console", *TESTS), {"SWITCHGEAR_DEEP": "1"}, math.inf
    ),
)
IMPORTED = "imported"
"""The last level, for mutants of code that runs when it is imported: package and tests are imported anew."""
ENVIRONMENT = {"HYPOTHESIS_PROFILE": "mutants", "SWITCHGEAR_TEST_LIMIT_S": str(LIMIT_S)}


class Key(NamedTuple):
    """A mutant, its file without comments, and which of the equal changes of the function it is."""

    file: str
    function: str
    original: str
    mutated: str
    number: int
    code: str


class Results:
    """The verdicts so far, in a file: a run that was interrupted continues there.

    A kill stays one until the code of the file changes. A mutant that survived is run again when a
    test has changed.
    """

    def __init__(self, path: Path, mutants: Sequence[Mutant]) -> None:
        self.path, self.tests = path, digest(*(ROOT / "tests").rglob("*.py"))
        codes = {file: _digest_of_code(file) for file in FILES}
        numbers = Counter[tuple[str, ...]]()
        self.keys: dict[int, Key] = {}
        for mutant in mutants:
            self.keys[id(mutant)] = Key(*mutant.key, numbers[mutant.key], codes[mutant.file])
            numbers[mutant.key] += 1
        self.rows: dict[Key, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.read()

    def read(self) -> None:
        """Read the file: children of this process have written to it."""
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            row = json.loads(line)
            if row["killed"] or row["tests"] == self.tests:
                self.rows[Key(*row["key"])][row["level"]] = row

    def add(self, level: str, verdict: Verdict) -> None:
        """Write one verdict."""
        row: dict[str, Any] = {
            "key": self.keys[id(verdict.mutant)],
            "tests": self.tests,
            "level": level,
            **verdict._asdict(),
        }
        del row["mutant"]
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def of(self, mutant: Mutant) -> dict[str, dict[str, Any]]:
        """The verdicts on a mutant, by level."""
        return self.rows.get(self.keys[id(mutant)], {})

    def is_killed(self, mutant: Mutant) -> bool:
        """Whether a test of any level failed."""
        return any(row["killed"] for row in self.of(mutant).values())

    def is_due(self, mutant: Mutant, level: str) -> bool:
        """Whether this level must still run it."""
        rows = self.of(mutant)
        if self.is_killed(mutant) or level in rows:
            return False
        return level != IMPORTED or any(row["needs_import"] for row in rows.values())


def _digest_of_code(file: str) -> str:
    """Of what the interpreter sees of a file: comments and docstrings may change."""
    tree = ast.parse((PACKAGE / file).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def run(mutants: Sequence[Mutant], results: Results, jobs: int, *, quick: bool) -> None:
    """Let the mutants meet one level after the other, and write the verdicts."""
    for level in LEVELS[:1] if quick else LEVELS:
        due = [mutant for mutant in mutants if results.is_due(mutant, level.name)]
        if due:
            print(f"{level.name}: {len(due)} mutants", file=sys.stderr)
            pid = _apart(partial(_level, level, due, results, jobs), level.environment)
            if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
                sys.exit(code)
            results.read()
    due = [] if quick else [m for m in mutants if results.is_due(m, IMPORTED)]
    running = dict[int, tuple[Mutant, float]]()
    while due or running:
        while due and len(running) < jobs:
            mutant = due.pop()
            work = partial(run_imported, mutant, LEVELS[0])
            pid = _apart(work, {}, silent=True)
            running[pid] = mutant, time.monotonic()
        pid, status = os.waitpid(-1, 0)
        mutant, started_s = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - started_s
        by = f"exit code {code}" if code else ""
        results.add(IMPORTED, Verdict(mutant, code != 0, by, seconds, needs_import=True))
    results.read()


def _level(level: Level, mutants: Sequence[Mutant], results: Results, jobs: int) -> int:
    ended = 0

    def report(verdict: Verdict) -> None:
        nonlocal ended
        ended += 1
        results.add(level.name, verdict)
        if ended % 100 == 0 or sys.stderr.isatty():
            print(f"{ended} of {len(mutants)}", file=sys.stderr)

    recording = results.path.with_name(f"{results.path.stem}-{level.name}.pickle")
    return Session(level, FILES, jobs, recording).run(mutants, report)


def _apart(work: Callable[[], int], environment: dict[str, str], *, silent: bool = False) -> int:
    """A child for the work: this process must not import the package."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.chdir(ROOT)
        os.environ.update(ENVIRONMENT | environment)
        if silent:
            silence(Path(os.devnull))
        code = work()
    except BaseException:  # noqa: BLE001  a child must never return into the parent's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def explanations() -> dict[tuple[str, str, str, str], str]:
    """Why some mutants cannot be told from the original, by key."""
    with EXPLAINED.open("rb") as file:
        entries = tomllib.load(file).get("explained", [])
    return {(e["file"], e["function"], e["original"], e["mutated"]): e["why"] for e in entries}


def show(mutant: Mutant) -> None:
    """A mutant as a small diff, and as the key of an explanation."""
    print(f"\nsrc/switchgear/{mutant.file}:{mutant.line} in {mutant.function}")
    for line in difflib.ndiff(mutant.original.splitlines(), mutant.mutated.splitlines()):
        if not line.startswith("? "):
            print(f"    {line}", flush=True)


def table(mutants: Sequence[Mutant], killed: Sequence[Mutant], excused: Sequence[Mutant]) -> None:
    """The score of each file."""
    total, dead, explained = (
        Counter(mutant.file for mutant in each) for each in (mutants, killed, excused)
    )
    rows = [(file, total[file], dead[file], explained[file]) for file in FILES if total[file]]
    rows.append(("all", total.total(), dead.total(), explained.total()))
    print("\n| file | mutants | killed | explained | left |\n|---|---:|---:|---:|---:|")
    for name, made, *rest in rows:
        print(f"| {name} | {made} | {rest[0]} | {rest[1]} | {made - sum(rest)} |")


def chosen(options: argparse.Namespace) -> list[Mutant]:
    """The mutants that the command line asks for."""
    files = [name for name in FILES if name.endswith(tuple(options.only))]
    if not files:
        sys.exit(f"--only {options.only}: it must name the ends of some of {', '.join(FILES)}")
    found = [m for name in files for m in mutants_of(name, (PACKAGE / name).read_text())]
    if options.sample is not None:
        found = random.Random(options.seed).sample(found, min(options.sample, len(found)))
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--only", metavar="FILE", nargs="+", default=[""], help="ends of file names"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument("--sample", type=int, help="only so many, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--explained", action="store_true", help="run those with an explanation, too"
    )
    parser.add_argument(
        "--results",
        metavar="FILE",
        type=Path,
        default=ROOT / "build" / "mutants.jsonl",
        help="verdicts are written here, and those that are here are not run again (default: %(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="run only the first of the three levels"
    )
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    return parser.parse_args(arguments)


def main() -> int:
    """Run, print, and fail if a mutant survives that nobody has explained."""
    options = parse()
    mutants, why = chosen(options), explanations()
    if options.list:
        for mutant in mutants:
            show(mutant)
        print(f"\n{len(mutants)} mutants")
        return 0
    options.results.parent.mkdir(exist_ok=True)
    results, started_s = Results(options.results, mutants), time.monotonic()
    run(
        [m for m in mutants if options.explained or m.key not in why],
        results,
        options.jobs,
        quick=options.quick,
    )
    killed = [mutant for mutant in mutants if results.is_killed(mutant)]
    survivors = [mutant for mutant in mutants if not results.is_killed(mutant)]
    unexplained = [mutant for mutant in survivors if mutant.key not in why]
    for mutant in unexplained:
        show(mutant)
    table(mutants, killed, [mutant for mutant in survivors if mutant.key in why])
    print(f"\n{time.monotonic() - started_s:.0f} s; the verdicts are in {options.results}")
    stale = [] if options.sample else _stale(options.only, why, survivors)
    for file, function, original, mutated in stale:
        print(f"stale explanation: {file} {function}: {original!r} → {mutated!r}")
    return 1 if unexplained or stale else 0


def _stale(
    only: Sequence[str], why: dict[tuple[str, str, str, str], str], survivors: Sequence[Mutant]
) -> list[tuple[str, str, str, str]]:
    """Explanations of mutants that no longer exist or no longer survive."""
    alive = {mutant.key for mutant in survivors}
    return [key for key in why if key not in alive and key[0].endswith(tuple(only))]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        assert hypothesis.stateful is not None  # imported so that no child has to
        sys.exit(main())
    sys.exit(130)
