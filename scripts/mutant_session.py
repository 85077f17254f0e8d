"""Runs tests on many mutants from inside one pytest session: a forked child for each mutant.

The session imports package and tests once. A first pass records which tests run which lines, and
how long each test takes. Then each child replaces the code of the mutated function in place and
runs only the tests that run the mutated lines, until one fails.
"""

import ast
import gc
import hashlib
import math
import os
import pickle
import resource
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest
from mutant_operators import Mutant

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "switchgear"
# A mutant that never ends is stopped, and counts as killed. Seconds of CPU time, so that a busy
# machine kills nothing: so many for each test, and so many times what the test takes.
CPU_S, CPU_TIMES = 2, 4
IMPORTED_CPU_S = 900  # for all tests
MEMORY_BYTES = 3 * 2**30  # a mutant that never stops growing is stopped, and counts as killed
SURVIVED, KILLED, NOT_IN_PLACE, BROKEN = 0, 1, 97, 98
OPTIONS = (
    *("-x", "-q", "-s", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("--timeout", "600"),  # for a mutant that waits forever
    "--assert=plain",
)


class Level(NamedTuple):
    """How much is tried: the survivors of one level meet the next."""

    name: str
    options: tuple[str, ...]
    environment: dict[str, str]
    budget_s: float
    """CPU time for each mutant, after which no further test begins."""


class Verdict(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    killed: bool
    by: str
    """The test that failed, or that was running when the child was stopped."""
    seconds: float
    needs_import: bool
    """Whether importing the package or the tests runs the mutated lines."""


class Run(NamedTuple):
    """A test as it was recorded."""

    seconds: float
    lines: frozenset[tuple[str, int]]
    passed: bool


class Tracer:
    """Records which lines of the mutated files run."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = {str(PACKAGE / file): file for file in files}
        self.waiting: dict[int, tuple[CodeType, set[int]]] = {}
        """The lines of each code object that have not run yet: where none is left, tracing ends.

        By its id, because the interpreter computes the hash of a code object each time.
        """

    def start(self) -> None:
        """Trace this thread and those that start later."""
        self.waiting.clear()
        threading.settrace(self._call)
        sys.settrace(self._call)

    def stop(self) -> frozenset[tuple[str, int]]:
        """The lines that ran."""
        sys.settrace(None)
        threading.settrace(None)
        return frozenset(
            (self.files[code.co_filename], line)
            for code, waiting in list(self.waiting.values())  # other threads may still run
            for line in _lines(code) - waiting
        )

    def _call(self, frame: FrameType, event: str, _: object) -> Any:
        """Called by the interpreter when a function is called and for each line of those traced."""
        code = frame.f_code
        if code.co_filename not in self.files:
            return None
        if id(code) not in self.waiting:
            self.waiting[id(code)] = code, _lines(code)
        _, waiting = self.waiting[id(code)]
        waiting.discard(code.co_firstlineno if event == "call" else frame.f_lineno)
        return self._call if waiting else None


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None} | {code.co_firstlineno}


class Session:
    """A pytest plugin that runs mutants instead of tests."""

    def __init__(self, level: Level, files: Sequence[str], jobs: int, recording: Path) -> None:
        """`recording`: a file with what is known about the tests, from this run and earlier ones."""
        self.level, self.jobs, self.recording = level, jobs, recording
        self.tracer = Tracer(files)
        self.failed = self.is_child = False
        self.kills: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def run(self, mutants: Sequence[Mutant], report: Callable[[Verdict], None]) -> int:
        """Run the mutants in place, in a pytest session of this process."""
        self.mutants, self.report = mutants, report
        self.tracer.start()  # importing counts, too
        return int(pytest.main([*OPTIONS, *self.level.options], plugins=[self]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test failed."""
        self.failed = self.failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """End the child with the first failed test: the report of it takes longer than most tests."""
        failed = call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception)
        if self.is_child and failed and item.get_closest_marker("xfail") is None:
            os._exit(KILLED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record the tests, then run the mutants."""
        self.at_import = self.tracer.stop()
        self.items = {item.nodeid: item for item in session.items}
        self.live = _live_functions(self.tracer.files)
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder)
            self.runs = self._record()
            self._run_mutants()
        return True

    def _record(self) -> dict[str, Run]:
        """Run every test once without a mutant, distributed over the jobs, unless that is known."""
        known: dict[str, Run] = {}
        if self.recording.exists():
            known = pickle.loads(self.recording.read_bytes())
        traced = " ".join(self.tracer.files.values())
        versions = {
            name: f"{name} {_digest_of_test(item.path)} {traced}"
            for name, item in self.items.items()
        }
        names = [name for name, version in versions.items() if version not in known]
        started_s, pids = time.monotonic(), dict[int, Path]()
        for number in range(self.jobs):
            folder = self.folder / f"recording{number}"
            trace = partial(self._trace, names[number :: self.jobs], folder / "runs")
            pids[self._fork(folder, trace)] = folder
        for pid, folder in pids.items():
            if os.waitpid(pid, 0)[1]:
                pytest.exit((folder / "output").read_text(), BROKEN)
            done: dict[str, Run] = pickle.loads((folder / "runs").read_bytes())
            known |= {versions[name]: run for name, run in done.items()}
            shutil.rmtree(folder)
        runs = {name: known[version] for name, version in versions.items()}
        passed = {versions[name]: run for name, run in runs.items() if run.passed}
        self.recording.write_bytes(pickle.dumps(passed))
        failed = [name for name, run in runs.items() if not run.passed]
        if failed:
            pytest.exit(f"these tests fail without any mutant: {failed}", BROKEN)
        took_s, spent_s = time.monotonic() - started_s, sum(runs[name].seconds for name in names)
        summary = f"{len(names)} of {len(runs)} tests recorded in {took_s:.0f} s, {spent_s:.0f} of CPU time"
        print(summary, file=sys.stderr)
        return runs

    def _trace(self, names: Sequence[str], file: Path) -> int:
        runs = {}
        for name, following in pairwise([*names, None]):
            assert name is not None
            started_s, self.failed = time.process_time(), False
            self.tracer.start()
            self._run(name, following)
            lines = self.tracer.stop()
            runs[name] = Run(time.process_time() - started_s, lines, not self.failed)
        file.write_bytes(pickle.dumps(runs))
        return SURVIVED

    def _run(self, name: str, following: str | None) -> None:
        item, then = self.items[name], self.items[following] if following else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=then)

    def _fork(self, folder: Path, work: Callable[[], int]) -> int:
        """A child with temporary files and output of its own; it exits with what the work returns."""
        folder.mkdir()
        sys.stderr.flush()
        if pid := os.fork():
            return pid
        code = BROKEN
        try:
            silence(folder / "output")
            factory = next(iter(self.items.values())).config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001
            factory._basetemp = folder  # noqa: SLF001
            code = work()
        except BaseException:  # noqa: BLE001  a child must never return into the parent's loop
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _run_mutants(self) -> None:
        running: dict[int, tuple[Mutant, Path, float]] = {}
        for number, mutant in enumerate(self.mutants):
            if not (tests := self._tests(mutant)):
                self._report(mutant, "", 0.0)
                continue
            if len(running) == self.jobs:
                self._wait(running)
            folder = self.folder / str(number)
            pid = self._fork(folder, partial(self._test, mutant, tests, folder / "test"))
            running[pid] = mutant, folder, time.monotonic()
        while running:
            self._wait(running)

    def _wait(self, running: dict[int, tuple[Mutant, Path, float]]) -> None:
        """Wait until a child ends, and report its mutant."""
        pid, status = os.waitpid(-1, 0)
        mutant, folder, started_s = running.pop(pid)
        by, code = "", os.waitstatus_to_exitcode(status)
        if code not in (SURVIVED, NOT_IN_PLACE):
            if not (folder / "test").exists():
                pytest.exit((folder / "output").read_text(), BROKEN)
            by = (folder / "test").read_text()
            self.kills[mutant.file, mutant.function][by] += 1
            by += f" (stopped by signal {-code})" if code < 0 else ""
        self._report(mutant, by, time.monotonic() - started_s, in_place=code != NOT_IN_PLACE)
        shutil.rmtree(folder, ignore_errors=True)

    def _report(self, mutant: Mutant, by: str, seconds: float, *, in_place: bool = True) -> None:
        at_import = any((mutant.file, line) in self.at_import for line in _touched(mutant))
        self.report(Verdict(mutant, bool(by), by, seconds, at_import or not in_place))

    def _tests(self, mutant: Mutant) -> list[str]:
        """The tests that run the mutated lines, the most promising for their time first."""
        _, definitions = _original(mutant.file, mutant.function)
        whole = range(definitions[0].lineno, (definitions[-1].end_lineno or 0) + 1)
        for lines in (_touched(mutant), whole):
            wanted = {(mutant.file, line) for line in lines}
            found = [name for name, run in self.runs.items() if wanted & run.lines]
            if found:
                break
        kills = self.kills[mutant.file, mutant.function]

        def cost(name: str) -> float:
            """A test of few lines is about them; one that has killed a mutant of this function may again."""
            run = self.runs[name]
            return (0.002 + run.seconds) * len(run.lines) / (1 + 9 * kills[name])

        return sorted(found, key=cost)

    def _test(self, mutant: Mutant, tests: Sequence[str], file: Path) -> int:
        """In the child: apply the mutant and run the tests until one fails."""
        if not apply(mutant, self.live):
            return NOT_IN_PLACE
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.failed, self.is_child = False, True
        until_s = time.process_time() + self.level.budget_s
        with file.open("w") as running:
            for name, following in pairwise([*tests, None]):
                assert name is not None
                running.seek(0)
                running.truncate()
                running.write(name)
                running.flush()
                _allow(CPU_S + CPU_TIMES * self.runs[name].seconds)
                self._run(name, following)
                if self.failed:
                    return KILLED
                if time.process_time() > until_s:
                    break
        return SURVIVED


def digest(*files: Path) -> str:
    """A short text that changes with the files."""
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


@cache
def _digest_of_test(path: Path) -> str:
    """Of all that a recording depends on: the package, the helpers of the tests, and the test."""
    tests = (ROOT / "tests").rglob("*.py")
    helpers = [file for file in tests if not file.name.startswith("test_")]
    return digest(path, *helpers, *PACKAGE.rglob("*.py"))


def silence(output: Path) -> None:
    """Send what is printed to a file."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _allow(more_s: float) -> None:
    """So many seconds of CPU time from now on."""
    limit_s = math.ceil(time.process_time() + more_s)
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))


def _touched(mutant: Mutant) -> range:
    return range(mutant.line, mutant.line + mutant.original.count("\n") + 1)


@cache
def _original(file: str, function: str) -> tuple[ast.Module, list[ast.FunctionDef]]:
    return _only((PACKAGE / file).read_text(), function)


def _only(source: str, function: str) -> tuple[ast.Module, list[ast.FunctionDef]]:
    """A module without anything but a function, and its definitions: a property may have two."""
    node: Any = (module := ast.parse(source))
    for name in function.split("."):
        definitions = ast.ClassDef | ast.FunctionDef
        node.body = [e for e in node.body if isinstance(e, definitions) and e.name == name]
        found, node = node.body, node.body[0]
    return module, found


Live = dict[tuple[str, str, int], list[FunctionType]]


def _live_functions(paths: Collection[str]) -> Live:
    """All functions of these files that exist in this process, by path, name and first line."""
    live: Live = defaultdict(list)
    gc.unfreeze()  # tests/conftest.py freezes what was imported
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in paths:
            code = each.__code__
            live[code.co_filename, code.co_qualname, code.co_firstlineno].append(each)
    gc.collect()
    gc.freeze()
    return live


def apply(mutant: Mutant, live: Live) -> bool:
    """Replace code and defaults of the mutated function wherever it exists; False if impossible."""
    path = str(PACKAGE / mutant.file)
    before, was = _original(mutant.file, mutant.function)
    after, now = _only(mutant.source, mutant.function)
    places = _codes(compile(before, path, "exec"), mutant.function)
    if "__class__" in places[0].co_freevars:  # a method that loses its `super()` keeps the variable
        for node in now:
            node.body.insert(0, ast.parse("if 0: __class__").body[0])
    changed = _codes(compile(ast.fix_missing_locations(after), path, "exec"), mutant.function)
    definitions = {_first_line(old): (old, new) for old, new in zip(was, now, strict=True)}
    is_alike = [code.co_qualname for code in places] == [code.co_qualname for code in changed]
    for number, code in enumerate(places):
        for function in live.get((path, code.co_qualname, code.co_firstlineno), ()):
            if number and not is_alike:
                return False
            if changed[number].co_freevars != code.co_freevars:
                return False
            function.__code__ = changed[number]
            if code.co_qualname == mutant.function:
                _set_defaults(function, *definitions[code.co_firstlineno])
    return True


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _set_defaults(function: FunctionType, was: ast.FunctionDef, now: ast.FunctionDef) -> None:
    def value(old: ast.expr | None, new: ast.expr | None, present: Any) -> Any:
        if old is None or new is None or ast.dump(old) == ast.dump(new):
            return present
        return eval(compile(ast.Expression(new), "default", "eval"), function.__globals__)

    if function.__defaults__:
        pairs = zip(was.args.defaults, now.args.defaults, function.__defaults__, strict=True)
        function.__defaults__ = tuple(value(*each) for each in pairs)
    names = [each.arg for each in was.args.kwonlyargs]
    each_default = zip(names, was.args.kw_defaults, now.args.kw_defaults, strict=True)
    for name, old, new in each_default:
        if function.__kwdefaults__ and name in function.__kwdefaults__:
            function.__kwdefaults__[name] = value(old, new, function.__kwdefaults__[name])


def _codes(code: CodeType, function: str) -> list[CodeType]:
    """The code of a function, and of the functions in it, in the order of the text."""
    found = []
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_qualname == function or each.co_qualname.startswith(f"{function}.<locals>."):
                found.append(each)
            found += _codes(each, function)
    return found


def run_imported(mutant: Mutant, level: Level) -> int:
    """In a process that has not imported the package: import the mutant and run the tests."""
    path, original = str(PACKAGE / mutant.file), SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if loader.path == path:
            return compile(mutant.source, path, "exec")
        return original(loader, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _allow(IMPORTED_CPU_S)
    return int(pytest.main([*OPTIONS, *level.options]))
