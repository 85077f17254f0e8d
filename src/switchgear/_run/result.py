"""How a run ended: the reason, the evidence, what was done, and how to go on. As text and as JSON."""

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
from switchgear._run import words
from switchgear._run.checkpoint import Checkpoint
from switchgear._run.exit_reasons import ENDS, ExitReason
from switchgear._run.options import RunOptions
from switchgear._run.record import RunFolder
from switchgear._run.state import RunState

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
    """The circuit that an operator holds open; nothing goes on before it is released."""
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
        """`"circuit_open"` if the circuit ended the loop (seed 000); else `None`."""
        return CIRCUIT_OPEN if self.exit_reason is ExitReason.CIRCUIT_BREAKER else None

    def receipt(self) -> dict[str, Any]:
        """What, why, spent, saved, kept and how to continue, as `receipt.json` has it."""
        file = Path(self.receipt_file).with_suffix(".json")
        held: dict[str, Any] = json.loads(file.read_text(encoding="ascii"))
        return held

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return ENDS[self.exit_reason].code

    @property
    def resume(self) -> str | None:
        """The command that goes on with it; `None`: it is done."""
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
        cost = words.spent(state.spent_micros, state.unknown_prices)
        if state.priced_by is not None:
            cost += f" by the {state.priced_by}"
        tests = ""
        if state.tests_passing is not None:
            tests = f", {words.passing(state.tests_passing, state.tests_total)}"
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
            lines.append(f"  go on: {self.resume}")
        return "\n".join(lines)


def resume_command(result: RunResult) -> str:
    """The command that goes on, with the option without which it would end again at once."""
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
    except Exception as error:  # noqa: BLE001  observers cannot hurt the observed
        note = f"the report could not be written: {error}"
        return result._replace(notes=(*result.notes, note))
