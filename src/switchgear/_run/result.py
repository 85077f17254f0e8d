"""How a run ended: the reason, the evidence, the saved work, and how to continue. As text and as JSON.

At every end the state of the folder is saved, so partial work is never lost.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._breaker.loop_breaker import CIRCUIT_OPEN, LoopStats
from switchgear._core.detector import plural
from switchgear._core.errors import elapsed
from switchgear._measure.git_command import Deadline, GitError
from switchgear._measure.saving import SAVE_S, NotSaved
from switchgear._measure.tree import Tree, mark
from switchgear._run import formats
from switchgear._run.dependencies import IterationContext
from switchgear._run.exit_reasons import EXIT_CODES, Ending, ExitReason
from switchgear._run.options import RunOptions
from switchgear._run.record import RunFolder
from switchgear._run.state import RunState

LISTED = 200
NOTHING = "no file differs from the start"


class Checkpoint(NamedTuple):
    """What was kept, and how to get at it."""

    how: str
    """The command that shows or unpacks it."""
    files: tuple[str, ...]
    """The paths that differ from the start of the run, the first 200."""
    changed: int
    """How many there are."""
    added_lines: int | None = None
    removed_lines: int | None = None
    """`None`: not counted, outside git."""

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        return {**self._asdict(), "files": list(self.files)}

    def text(self) -> str:
        """In a line."""
        if not self.changed:
            return NOTHING
        lines = ""
        if self.added_lines is not None:
            lines = f" (+{self.added_lines} -{self.removed_lines} lines)"
        return f"{plural(self.changed, 'file')}{lines}; {self.how}"


def keep(
    context: IterationContext, state: RunState, ending: Ending, notes: list[str]
) -> Checkpoint | None:
    """Keep the state of the folder as it is now. What goes wrong becomes a note."""
    deadline = Deadline(SAVE_S)
    with context.interrupt.watching(deadline):
        return _keep(context, state, ending, notes, deadline)


def _keep(
    context: IterationContext, state: RunState, ending: Ending, notes: list[str], deadline: Deadline
) -> Checkpoint | None:
    first = " ".join(context.options.task.split())[:60]
    message = f"switchgear run {context.record.id}: {ending.reason}\n\n{first}"
    try:
        # An archive holds what changed since its process began: the next one is beside it.
        again = f"-{state.resumptions + 1}" if state.resumptions else ""
        saved = context.tree.keep(f"runs/{context.record.id}{again}", message, deadline)
    except (GitError, NotSaved, OSError) as error:
        notes.append(
            f"the work was not saved: {error}; it is in {context.folder} as the agent left it"
        )
        return None
    notes += saved.notes
    how = saved.how
    if how.startswith("git ") and context.folder != Path.cwd():
        how = f"git -C {shlex.quote(str(context.folder))} {how.removeprefix('git ')}"
    if getattr(context.tree, "too_slow", None) is not None or deadline.is_over:
        return Checkpoint(how, state.changed[:LISTED], max(1, len(state.changed)))
    now = mark(context.tree)
    paths = state.changed if now is None else _paths(context.tree, state, now)
    added, removed = context.tree.lines_since_start(deadline) or (None, None)
    return Checkpoint(how, paths[:LISTED], len(paths), added, removed)


def _paths(tree: Tree, state: RunState, now: str) -> tuple[str, ...]:
    try:
        if state.start_mark is not None:
            return tree.change(state.start_mark, now).paths
    except (KeyError, GitError):
        pass  # the start was another process's: what the iterations changed must do
    return state.changed


MORE_TIME = " --more-time 30m"


class RunResult(NamedTuple):
    """The end of a run."""

    run: str
    exit_reason: ExitReason
    reason: str
    """A sentence."""
    evidence: tuple[str, ...]
    stats: LoopStats
    state: RunState
    options: RunOptions
    circuit: str
    held: str | None = None
    """The circuit that an operator holds open; the run cannot continue before its release."""
    checkpoint: Checkpoint | None = None
    report: str | None = None
    receipt_file: str = ""
    """The path of `receipt.txt`; `receipt.json` is beside it."""
    notes: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Whether the task is done, as far as was measured."""
        return self.exit_reason is ExitReason.COMPLETED

    @property
    def exit_signal(self) -> str | None:
        """`"circuit_open"` if the circuit ended the loop; else `None`."""
        return CIRCUIT_OPEN if self.exit_reason is ExitReason.CIRCUIT_BREAKER else None

    def receipt(self) -> dict[str, Any]:
        """What, why, spent, saved, kept and how to continue, as `receipt.json` has it."""
        file = Path(self.receipt_file).with_suffix(".json")
        held: dict[str, Any] = json.loads(file.read_text(encoding="ascii"))
        return held

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return EXIT_CODES[self.exit_reason].code

    @property
    def resume(self) -> str | None:
        """The command that resumes the run; `None`: it is done."""
        return None if self.success else resume_command(self)

    def dump(self) -> dict[str, Any]:
        """The documented result: what `--json` prints."""
        state = self.state
        kept = self.checkpoint
        return {
            "success": self.success,
            "exit_reason": str(self.exit_reason),
            "exit_code": self.exit_code,
            "exit_signal": self.exit_signal,
            "reason": self.reason,
            "evidence": list(self.evidence),
            "iterations": state.iterations,
            "stats": {
                "circuit_breaker": self.stats._asdict(),
                "files_changed": len(state.changed),
                "tests_passing": state.tests_passing,
                "tests_total": state.tests_total,
                "cost_micros": state.spent_micros,
                "unknown_prices": state.unknown_prices,
                "priced_by": state.priced_by,
                "tokens": state.tokens,
                "seconds": round(state.seconds, 3),
                "lost_to_provider": state.lost,
                "would_have_stopped": state.would_stop,
            },
            "run": self.run,
            "circuit": self.circuit,
            "resume": self.resume,
            "report": self.report,
            "receipt": self.receipt_file or None,
            "checkpoint": None if kept is None else kept.dump(),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """The same for a person."""
        state = self.state
        head = f"{self.exit_reason}: {self.reason}"
        lines = [head, *(f"  evidence: {each}" for each in self.evidence)]
        cost = formats.spent(state.spent_micros, state.unknown_prices)
        if state.priced_by is not None:
            cost += f" by the {state.priced_by}"
        tests = ""
        if state.tests_passing is not None:
            tests = f", {formats.passing(state.tests_passing, state.tests_total)}"
        lines.append(
            f"  done so far: {plural(state.iterations, 'iteration')} in {elapsed(state.seconds)}, "
            f"{plural(len(state.changed), 'file')} changed{tests}, {cost}"
        )
        if self.checkpoint is not None:
            lines.append(f"  kept: {self.checkpoint.text()}")
        lines += [f"  note: {note}" for note in self.notes]
        if self.report is not None:
            lines.append(f"  report: {self.report}")
        if self.receipt_file:
            lines.append(f"  receipt: {self.receipt_file}")
        if self.resume is not None:
            lines.append(f"  continue: {self.resume}")
        return "\n".join(lines)


def resume_command(result: RunResult) -> str:
    """The command that resumes the run, with the option that it needs to continue."""
    more = {
        ExitReason.CIRCUIT_BREAKER: " --force-close --why 'what is different now'",
        ExitReason.BUDGET: _more_budget(result),
        ExitReason.TIMEOUT: MORE_TIME,
        ExitReason.RATE_LIMIT: "" if result.options.timeout_s is None else MORE_TIME,
        ExitReason.MAX_ITERATIONS: f" --max-iterations {result.options.max_iterations * 2}",
        ExitReason.BLOCKED: " --answer 'your answer'",
    }
    option = more.get(result.exit_reason, "")
    resume = f"{program()} resume {shlex.quote(result.run)}"
    if result.exit_reason is ExitReason.BUDGET and not option:
        node = shlex.quote(result.options.budget_node or "")
        return f"{program()} budgets set {node} DOLLARS && {resume}"
    if result.held is None or result.exit_reason is not ExitReason.CIRCUIT_BREAKER:
        return f"{resume}{option}"
    return f"{release_command(result.held)} && {resume}"


def release_command(circuit: str) -> str:
    """The command that ends an operator's hold: closing by force does not."""
    return f"{program()} release {shlex.quote(circuit)} --why 'what is different now'"


def program() -> str:
    """How this command is called from here: by its name, or by the Python that has it."""
    if shutil.which("switchgear"):
        return "switchgear"
    python = Path(sys.executable)
    shown = python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python
    return f"{shlex.quote(str(shown))} -m switchgear"


def _more_budget(result: RunResult) -> str:
    if result.state.unknown_prices and not result.options.allow_unknown_price:
        return " --allow-unknown-price"
    if result.options.budget_micros is None:
        return ""  # what its node had is spent
    return f" --budget {2 * result.options.budget_micros / 1_000_000:g}"


def reported(result: RunResult, record: RunFolder, write: Callable[[RunFolder], Path]) -> RunResult:
    """With a report; one that cannot be written is a note."""
    try:
        return result._replace(report=str(write(record)))
    except Exception as error:  # noqa: BLE001  a view must not end the run
        note = f"the report could not be written: {error}"
        return result._replace(notes=(*result.notes, note))
