"""`switchgear wrap`: runs a command whose Python processes guard their model calls, and reports what it did.

The processes find the guard through PYTHONPATH (`wrap_site/`), share circuits and budget through the store, and
append what they do to a journal. This module starts the command, follows the journal, and stops the command when
it continues although its calls are refused, or at its time limit.
"""

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from switchgear._agents.supervisor import children, send_signal
from switchgear._run.exit_reasons import EXIT_CODES, ExitReason

SITE = Path(__file__).parent / "wrap_site"
PACKAGE = Path(__file__).parents[1]
_POLL_S = 0.1
_GRACE_S = 5.0
"""Seconds that the command has to end after SIGTERM."""
_LARGEST_JOURNAL = 64 * 1024 * 1024


class WrapSettings(NamedTuple):
    store: str
    budget: str | None = None
    """The budget node that model calls draw on."""
    allow_unknown: bool = False
    key: str = "provider"
    fallback: tuple[str, ...] = ()
    config: str | None = None
    max_refusals: int = 20
    """Refused calls in a row after which the command is stopped."""
    timeout_s: float | None = None


class ModelTotals(NamedTuple):
    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    unpriced: int = 0
    """Calls whose cost is unknown."""

    @classmethod
    def sum(cls, totals: Iterable[Self]) -> Self:
        return cls(*map(sum, zip(*totals, strict=True)))


class WrapReport(NamedTuple):
    command: tuple[str, ...]
    exit_code: int
    """The exit code of `switchgear wrap`."""
    reason: str
    """`exited`, or a reason of `switchgear run`: circuit_breaker, budget, timeout, agent_error, interrupted."""
    command_exit_code: int | None
    """The exit code of the command; below 0: the signal that ended it; `None`: it could not be started."""
    seconds: float
    processes: int
    """Python processes that were guarded."""
    calls: int
    failed: int
    refused: int
    last_refusal: str
    input_tokens: int
    output_tokens: int
    cost_micros: int
    unpriced: int
    models: dict[str, ModelTotals]
    circuits: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        fields = self._asdict()
        fields["command"], fields["circuits"] = list(self.command), list(self.circuits)
        fields["models"] = {name: total._asdict() for name, total in self.models.items()}
        return fields


class WrapJournal:
    """The totals of what the processes of a command have written so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._rest = b""
        self.processes = 0
        self.refused = 0
        self.refused_in_a_row = 0
        self.refused_by: set[str] = set()
        self.last_refusal = ""
        self.models: dict[str, ModelTotals] = {}
        self.circuits: set[str] = set()

    def follow(self) -> None:
        """Read what was added since the last call. Unreadable lines are skipped."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                added = file.read(_LARGEST_JOURNAL)
        except OSError:
            return
        self._read_bytes += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        for line in lines:
            with suppress(ValueError, TypeError, AttributeError):
                self._add(json.loads(line))

    def _add(self, entry: dict[str, Any]) -> None:
        kind = entry.get("kind")
        if kind == "process":
            self.processes += 1
        elif kind == "refusal":
            self.refused += 1
            self.refused_in_a_row += 1
            self.refused_by.add(str(entry.get("by")))
            self.last_refusal = str(entry.get("reason"))[:1000]
        elif kind == "call":
            self._add_call(entry)

    def _add_call(self, entry: dict[str, Any]) -> None:
        if entry.get("outcome") == "success":
            self.refused_in_a_row = 0
        self.circuits.add(str(entry.get("circuit")))
        name = str(entry.get("model")) or "unknown"
        cost = entry.get("cost_micros")
        call = ModelTotals(
            1,
            int(entry.get("outcome") == "failure"),
            int(entry.get("input_tokens") or 0),
            int(entry.get("output_tokens") or 0),
            int(cost or 0),
            int(cost is None),
        )
        self.models[name] = ModelTotals.sum((self.models.get(name, ModelTotals()), call))

    @property
    def refusal_reason(self) -> ExitReason | None:
        """Why calls were refused; `None`: no call was."""
        if not self.refused:
            return None
        return ExitReason.BUDGET if "budget" in self.refused_by else ExitReason.CIRCUIT_BREAKER


def run_wrapped(
    command: Sequence[str], settings: WrapSettings, *, clock: Callable[[], float] = time.monotonic
) -> WrapReport:
    """Run a command, guarded, with this process's terminal and working folder. Blocks until it ends."""
    started_s = clock()
    with tempfile.TemporaryDirectory(prefix="switchgear-wrap-") as folder:
        journal = WrapJournal(Path(folder) / "journal.jsonl")
        environment = _environment(settings, Path(folder) / "journal.jsonl")
        try:
            process = subprocess.Popen(list(command), env=environment)  # noqa: S603  it is what the user typed
        except OSError as error:
            text = f"{command[0]}: {error.strerror or error}"
            if command[0].endswith(".py"):
                text += f"; to run a Python file: switchgear wrap python {shlex.quote(command[0])}"
            return _report(
                command, journal, ExitReason.AGENT_ERROR, None, clock() - started_s, problem=text
            )
        with _ending_signals() as received:
            stopped = _wait_for_end(process, journal, settings, clock, started_s, received=received)
        journal.follow()
        code, reason = process.returncode, stopped
        if reason is None and code in {-signal.SIGINT, 130}:
            reason = ExitReason.INTERRUPTED
        elif reason is None and code:  # refused calls are the reason of a failure after them
            reason = journal.refusal_reason
        return _report(command, journal, reason, code, clock() - started_s)


def _environment(settings: WrapSettings, journal: Path) -> dict[str, str]:
    shared = {**settings._asdict(), "package": str(PACKAGE), "journal": str(journal)}
    before = os.environ.get("PYTHONPATH")
    path = str(SITE) if not before else os.pathsep.join((str(SITE), before))
    return {**os.environ, "PYTHONPATH": path, "SWITCHGEAR_WRAP": json.dumps(shared)}


@contextmanager
def _ending_signals() -> Iterator[list[int]]:
    """The signals received that end this process. Ctrl-C is not one: the terminal sends it to the command, too."""
    received: list[int] = []
    before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        before[number] = signal.signal(number, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_for_end(
    process: "subprocess.Popen[bytes]",
    journal: WrapJournal,
    settings: WrapSettings,
    clock: Callable[[], float],
    started_s: float,
    *,
    received: Sequence[int],
) -> ExitReason | None:
    """Wait for the end of the command. Returns why it was stopped; `None`: it ended by itself."""
    while True:
        if received:
            _stop(process)
            return ExitReason.INTERRUPTED
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
            return ExitReason.INTERRUPTED if received else None
        journal.follow()
        if journal.refused_in_a_row >= settings.max_refusals:
            _stop(process)
            return journal.refusal_reason
        if settings.timeout_s is not None and clock() - started_s >= settings.timeout_s:
            _stop(process)
            return ExitReason.TIMEOUT


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the command and all its descendants: SIGTERM, then SIGKILL."""
    send_signal(_family(process.pid), signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    send_signal(_family(process.pid), signal.SIGKILL)
    process.wait()


def _family(pid: int) -> list[int]:
    """A process and its living descendants, the youngest first."""
    found, parents = [pid], [pid]
    while parents:
        young = [child for child in children(parents.pop()) if child not in found]
        found += young
        parents += young
    return found[::-1]


def _report(
    command: Sequence[str],
    journal: WrapJournal,
    reason: ExitReason | None,
    code: int | None,
    seconds: float,
    *,
    problem: str = "",
) -> WrapReport:
    total = ModelTotals.sum((ModelTotals(), *journal.models.values()))
    if reason is not None:
        exit_code = EXIT_CODES[reason].code
    else:
        exit_code = 1 if code is None else code if code >= 0 else 128 - code
    return WrapReport(
        tuple(command),
        exit_code,
        "exited" if reason is None else str(reason),
        code,
        round(seconds, 3),
        journal.processes,
        total.calls,
        total.failed,
        journal.refused,
        problem or journal.last_refusal,
        *total[2:],
        journal.models,
        tuple(sorted(journal.circuits)),
    )
