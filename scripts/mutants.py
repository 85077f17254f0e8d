"""Break the mechanism on purpose, one small change at a time, and count what the tests catch.

    python scripts/mutants.py                      all of it, as `make mutants` does
    python scripts/mutants.py --only window.py     one file
    python scripts/mutants.py --sample 50 --seed 7 some, drawn
    python scripts/mutants.py --list               show the mutants and run nothing
    python scripts/mutants.py --explained          those that are explained, too: do they survive?

Each mutant lives in a temporary copy of package and tests, never in the checkout. A parent process
has imported pytest and hypothesis once and forks a child for each mutant, so a quick kill takes a
fraction of a second. A mutant that no test can tell from the original is explained in
`mutants_explained.toml`; any other that survives makes the command fail.
"""

import argparse
import contextlib
import difflib
import importlib
import math
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import hypothesis.stateful
import pytest
from mutant_operators import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "switchgear"
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
    "_detectors/progress.py",
    "_detectors/same_error.py",
    "_detectors/same_tool.py",
    "_detectors/shares.py",
    "_detectors/step_facts.py",
    "_detectors/usage.py",
    "_detectors/violation.py",
    "_detectors/waits.py",
    "_breaker/tickets.py",
    "_stores/fallback.py",
    "_hooks/shell_input.py",
)
# A mutant first meets the walks of the seeded corpus, without pytest: most end there, in a
# fraction of a second. The others meet the tests of their own file, then all others by hand, then
# the laws that concern them. What few walks tread on meets its own tests at once.
WALKS = 40
PROGRESS = ("_detectors/step_facts.py", "_detectors/progress.py")
FIRST = {
    **dict.fromkeys(PROGRESS, "tests/property/test_progress_walks.py"),
    "_core/evidence.py": "tests/unit/core/test_evidence.py",
    "_core/values.py": "tests/unit/core/test_recovery.py",
    "_core/window.py": "tests/unit/core/test_windows.py",
    "_core/wire.py": "tests/unit/core/test_wire.py",
    "_core/policy.py": "tests/unit/core/test_verdicts.py",
    "_core/machine.py": "tests/unit/core/test_verdicts.py",
    "_text/fingerprint.py": "tests/unit/text/test_fingerprint.py",
    "_breaker/tickets.py": "tests/unit/breaker/test_tickets.py",
    "_stores/fallback.py": "tests/unit/stores/test_submitter.py tests/unit/stores/test_resilient.py "
    "tests/unit/stores/test_store_lost.py tests/unit/stores/test_store_lost_waiting.py tests/unit/stores/test_backlog.py",
    "_hooks/shell_input.py": "tests/unit/hooks/test_typed_input.py "
    "tests/unit/hooks/test_kept_shell_input.py tests/unit/rules/test_shell_input.py",
    **dict.fromkeys(
        ("_detectors/loop_output.py", "_detectors/same_error.py"),
        "tests/unit/detectors/test_loop_detectors.py",
    ),
    **dict.fromkeys(
        ("_detectors/same_tool.py", "_detectors/waits.py"),
        "tests/unit/detectors/test_stuck_detectors.py",
    ),
    **dict.fromkeys(
        ("_detectors/usage.py", "_detectors/violation.py"),
        "tests/unit/fleet/test_fleet_detectors.py",
    ),
    **dict.fromkeys(
        ("_detectors/failures.py", "_detectors/shares.py"),
        "tests/unit/detectors/test_detectors.py",
    ),
}
WALKED = (
    *("_core/machine.py", "_core/policy.py", "_core/window.py", "_core/values.py", "_core/wire.py"),
    *("_core/detector.py", "_text/fingerprint.py", "_breaker/tickets.py", "_detectors/failures.py"),
    "_detectors/shares.py",
)
"""What nearly every walk treads on."""
TESTS = (
    "tests/property/test_progress_walks.py",
    "tests/unit/detectors/test_progress_values.py",
    "tests/unit/core/test_evidence.py",
    "tests/unit/detectors/test_detectors.py",
    "tests/unit/detectors/test_loop_detectors.py",
    "tests/unit/breaker/test_loop_stagnation.py",
    "tests/unit/breaker/test_loop_failures.py",
    "tests/unit/text/test_fingerprint.py",
    "tests/unit/core/test_progress_presets.py",
    "tests/unit/detectors/test_stuck_detectors.py",
    "tests/unit/fleet/test_fleet_detectors.py",
    "tests/unit/core/test_verdicts.py",
    "tests/unit/core/test_recovery.py",
    "tests/unit/core/test_isolated_processes.py",
    "tests/unit/breaker/test_tickets.py",
    "tests/unit/core/test_wire.py",
    "tests/unit/core/test_windows.py",
    "tests/property/test_counts.py",
    "tests/property/test_machine.py",
)
STEP_LAWS = "tests/property/test_step_laws.py"
DETECTOR_LAWS = "tests/property/test_detector_laws.py"
# A mutant that never ends is stopped, and counts as killed. Seconds of work, not of the clock, so
# that a busy machine kills nobody: the walks need five, each batch of tests at most forty.
WALK_CPU_S = 20
CPU_S = 160
LIMIT_S = (
    30  # of the clock, for tests of threads: a mutant that makes them wait for nothing is killed
)
MEMORY_BYTES = 3 * 2**30  # a mutant that never stops growing is stopped, and counts as killed
NO_IMPORT, NO_TESTS = 99, 98
OPTIONS = (
    *("-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-m", "not e2e_agents"),  # what make stress runs, too
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # imported before the fork, on purpose
)


class Result(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    killed: bool
    seconds: float


class Slot:
    """A copy of package and tests in which one mutant at a time lives and is tested by a child."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, folder / "switchgear", ignore=ignore)
        shutil.copytree(ROOT / "tests", folder / "tests", ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.child = 0
        self.original = ""
        self.started_s = 0.0
        self.mutant: Mutant | None = None

    def start(self, mutant: Mutant | None) -> None:
        """Fork a child that tests the mutant, or the package as it is."""
        self.mutant, self.started_s = mutant, time.monotonic()
        if mutant is not None:
            path = self.folder / "switchgear" / mutant.file
            self.original = path.read_text()
            path.write_text(mutant.source)
        sys.stdout.flush()
        self.child = os.fork()
        if not self.child:
            # Compiled files are told apart by second and size: too coarse to tell mutants apart.
            sys.dont_write_bytecode = mutant is not None
            _test(self.folder, _batches(mutant), walk_first=_walks_first(mutant))

    def outcome(self) -> int | None:
        """The child's exit code, negative if it had to be stopped, `None` while it runs."""
        pid, status = os.waitpid(self.child, os.WNOHANG)
        if not pid:
            return None
        if self.mutant is not None:
            (self.folder / "switchgear" / self.mutant.file).write_text(self.original)
        return os.waitstatus_to_exitcode(status)


def _batches(mutant: Mutant | None) -> list[list[str]]:
    """The tests in batches: a mutant that survives one meets the next."""
    if mutant is None:
        return [
            sorted({*TESTS, *" ".join(FIRST.values()).split()}),
            [STEP_LAWS],
            [DETECTOR_LAWS],
        ]
    first = FIRST.get(mutant.file, "tests/property/test_machine.py").split()
    others = [test for test in TESTS if test not in first]
    laws = [DETECTOR_LAWS, "-k", _concerned(mutant.file)]
    is_of_one = " or " in laws[-1]
    return [first, *([laws, others] if is_of_one else [others, laws]), [STEP_LAWS]]


def _concerned(file: str) -> str:
    """Which laws a file can break; those of the progress detectors take a minute, and only their file needs them."""
    kinds = re.findall(r'kind: ClassVar\[str\] = "(\w+)"', (PACKAGE / file).read_text())
    if file == "_detectors/step_facts.py":
        kinds = ["debt", "stagnation"]
    return (
        " or ".join([*kinds, "share", "p95", "alone"]) if kinds else "not debt and not stagnation"
    )


def _walks_first(mutant: Mutant | None) -> bool:
    return mutant is not None and mutant.file in WALKED


def _walk(folder: Path) -> None:
    """The walks that `test_step_laws.py` makes, too."""
    sys.path.insert(0, str(folder / "tests"))
    corpus = importlib.import_module("property.corpus")
    for seed in range(WALKS):
        corpus.walk(seed)
        corpus.walk_loops(seed)


def _allow(more_s: int) -> None:
    """So many seconds of work from now on."""
    limit_s = math.ceil(time.process_time()) + more_s
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))


def _test(folder: Path, batches: list[list[str]], *, walk_first: bool) -> None:
    """In the child: run the tests on the package in the folder, and exit."""
    code = 1
    try:
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        sys.path.insert(0, str(folder))
        os.chdir(folder)
        if walk_first:
            _allow(WALK_CPU_S)
            _walk(folder)
        code = 0
        while batches and not code:
            _allow(CPU_S)
            code = int(pytest.main([*OPTIONS, *batches.pop(0)]))
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            code = NO_TESTS  # nothing is proven
        module = sys.modules.get("switchgear")
        if module is not None and not str(module.__file__).startswith(str(folder)):
            code = NO_IMPORT  # the tests have seen another copy: nothing is proven
    except BaseException:  # noqa: BLE001  a child must never return into the parent's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def run(mutants: Sequence[Mutant], jobs: int) -> Iterator[Result]:
    """Test the mutants, so many at a time; results come as they end."""
    waiting = list(reversed(mutants))
    with tempfile.TemporaryDirectory() as folder:
        slots = [Slot(Path(folder, str(number))) for number in range(jobs)]
        pass_without_mutants(slots)
        while waiting or any(slot.child for slot in slots):
            for slot in slots:
                if slot.child and (code := slot.outcome()) is not None:
                    assert slot.mutant is not None
                    assert code != NO_IMPORT, "the tests did not import the mutant"
                    assert code != NO_TESTS, f"no test was selected for {slot.mutant.file}"
                    slot.child = 0
                    yield Result(slot.mutant, code != 0, time.monotonic() - slot.started_s)
                if not slot.child and waiting:
                    slot.start(waiting.pop())
            time.sleep(0.005)


def pass_without_mutants(slots: Sequence[Slot]) -> None:
    """The package as it is must pass in every slot, or a kill would mean nothing."""
    for slot in slots:
        slot.start(None)
    for slot in slots:
        while (code := slot.outcome()) is None:
            time.sleep(0.01)
        if code:
            output = (slot.folder / "output").read_text()
            sys.exit(f"{output}\nthe tests fail without any mutant (exit code {code})")
        slot.child = 0
        for compiled in (slot.folder / "switchgear").rglob("__pycache__"):  # the tests' stay
            shutil.rmtree(compiled)


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


def table(results: Sequence[Result], excused: Counter[str]) -> None:
    """The score of each file."""
    total = Counter(result.mutant.file for result in results)
    killed = Counter(result.mutant.file for result in results if result.killed)
    print("\n| file | mutants | killed | explained | left |\n|---|---:|---:|---:|---:|")
    for file in [name for name in FILES if total[name]]:
        left = total[file] - killed[file] - excused[file]
        print(f"| {file} | {total[file]} | {killed[file]} | {excused[file]} | {left} |")
    left = total.total() - killed.total() - excused.total()
    print(f"| all | {total.total()} | {killed.total()} | {excused.total()} | {left} |")


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
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    os.environ["SWITCHGEAR_DEEP"] = "1"
    os.environ["SWITCHGEAR_TEST_LIMIT_S"] = str(LIMIT_S)
    started_s, results, progress = time.monotonic(), list[Result](), sys.stderr.isatty()
    due = [mutant for mutant in mutants if options.explained or mutant.key not in why]
    results += [
        Result(mutant, killed=False, seconds=0.0) for mutant in mutants if mutant not in due
    ]
    for result in run(due, options.jobs):
        results.append(result)
        if not result.killed and result.mutant.key not in why:
            show(result.mutant)
        if progress or len(results) % 100 == 0:
            end = "\r" if progress else "\n"
            print(f"{len(results)} of {len(mutants)}", end=end, file=sys.stderr, flush=True)
    survivors = sorted((r.mutant for r in results if not r.killed), key=lambda m: (m.file, m.line))
    unexplained = [mutant for mutant in survivors if mutant.key not in why]
    table(results, Counter(mutant.file for mutant in survivors if mutant.key in why))
    slowest = max(results, key=lambda result: result.seconds)
    print(f"\n{time.monotonic() - started_s:.0f} s, the slowest {slowest.seconds:.0f} s")
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
