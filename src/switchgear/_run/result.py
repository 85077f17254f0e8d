"""How a run ended: the reason, the evidence, the saved work, and how to continue. As text and as JSON.

At every end the state of the folder is saved, so partial work is never lost.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._agents.fields import items, part
from switchgear._breaker.loop_breaker import CIRCUIT_OPEN, LoopStats
from switchgear._core.errors import StoreError
from switchgear._core.types import Event, EventKind, Phase
from switchgear._fleet.delivery import (
    Outcome,
    deliver,
    deliver_event,
    message_id,
    notice,
    target_from_text,
)
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.run_notes import RunNote, run_note, save_run_note
from switchgear._fleet.targets import Message, Target
from switchgear._measure.git_command import Deadline, GitError
from switchgear._measure.saved_refs import SAVE_S, NotSaved
from switchgear._measure.tree import Tree, mark
from switchgear._panel.panel import Panel
from switchgear._run.exit_reasons import EXIT_CODES, Ending, ExitReason
from switchgear._run.formats import local_time, passing, spent
from switchgear._run.options import RunOptions
from switchgear._run.record import RunFolder, write_json
from switchgear._run.state import IterationContext, RunState, short_task
from switchgear._stuck.escalation import escalation_key
from switchgear._stuck.messages import one_line
from switchgear._system.files import write_whole
from switchgear._text.formats import dollars, elapsed, plural
from switchgear._text.redact import redact

TEXT, JSON = "receipt.txt", "receipt.json"
SCHEMA = 1
BROKEN_OFF = "broken off"
"""The status of a run whose process ended during an iteration, so its record has no end."""
_EVIDENCE = 5


def _unended(run: Mapping[str, Any], *, alive: bool) -> str:
    if not alive:
        return BROKEN_OFF
    return "waiting" if run.get("waiting") else "running"


def receipt_of(run: Mapping[str, Any], *, alive: bool = False) -> dict[str, Any]:
    """The receipt of a run, from the content of run.json. Never raises for invalid content."""
    end, state, options = (part(run, key) for key in ("end", "state", "options"))
    checkpoint = part(end, "checkpoint")
    started, ended = run.get("started_at"), run.get("ended_at")
    counts = ("spent_micros", "unknown_prices", "iterations", "lost")
    micros, unknown, iterations, lost = (_int_or_zero(state.get(key)) for key in counts)
    reason = end.get("exit_reason")
    if not reason and not alive:
        unknown += 1  # the interrupted iteration
    return {
        "schema": SCHEMA,
        "run": _line(run.get("id"), 80),
        "what": {
            "task": _line(run.get("task"), 500),
            "agent": _line(run.get("agent"), 80),
            "folder": _line(run.get("folder"), 1000),
            "validation": _line(options.get("validate"), 300) or None,
            "circuit": _line(run.get("circuit"), 300),
        },
        "exit_reason": _line(reason, 40) if reason else _unended(run, alive=alive),
        "exit_code": end.get("exit_code"),
        "exit_signal": CIRCUIT_OPEN if reason == "circuit_breaker" else None,
        "success": end.get("success") is True,
        "why": _line(end.get("reason"), 600) or "the run has not ended, or was broken off",
        "evidence": [_line(each, 600) for each in items(end.get("evidence"))[:_EVIDENCE]],
        "started_at": _line(started, 40) or None,
        "ended_at": _line(ended, 40) or None,
        "seconds": _number(state.get("seconds")),
        "iterations": iterations,
        "files_changed": len(items(state.get("changed"))),
        "tests_passing": _int_or_none(state.get("tests_passing")),
        "tests_total": _int_or_none(state.get("tests_total")),
        "spent": {
            "cost_micros": None if unknown and not micros else micros,
            "unknown_iterations": unknown,
            "budget_micros": _int_or_none(options.get("budget_micros")),
            "tokens": _int_or_zero(state.get("tokens")),
            "priced_by": _line(state.get("priced_by"), 100) or None,
        },
        "saved": _savings(end, options, iterations - lost, micros, unknown),
        "kept": {
            "files": _int_or_zero(checkpoint.get("changed")),
            "how": _line(checkpoint.get("how"), 1000) or None,
            "report": _line(end.get("report"), 1000) or None,
        },
        "continue": _line(end.get("resume"), 2000) or None,
    }


def receipt_text(receipt: Mapping[str, Any]) -> str:
    what, kept = receipt["what"], receipt["kept"]
    how = kept["how"] if kept["files"] else None
    passed = receipt["tests_passing"]
    tests = "" if passed is None else f", {passing(passed, receipt['tests_total'])}"
    code = "" if receipt["exit_code"] is None else f" (exit code {receipt['exit_code']})"
    rows = [
        ("what", what["task"]),
        ("agent", f"{what['agent']} in {what['folder']}"),
        ("why", receipt["why"]),
        *(("evidence", each) for each in receipt["evidence"]),
        ("when", _time_text(receipt)),
        ("done", f"{plural(receipt['files_changed'], 'file')} changed{tests}"),
        ("spent", _spent(receipt)),
        ("saved", receipt["saved"]["text"]),
        ("kept", how and f"{plural(kept['files'], 'file')}; {how}"),
        ("report", kept["report"]),
        ("continue", receipt["continue"]),
    ]
    lines = [f"Switchgear run {receipt['run']}: {receipt['exit_reason']}{code}"]
    lines += [f"  {name + ':':10} {text}" for name, text in rows if text]
    return "\n".join(lines)


def write_receipt(record: RunFolder, run: Mapping[str, Any]) -> Path:
    """Write both files into the folder of the run. Returns the path of the text; may raise OSError."""
    receipt = receipt_of(run)
    write_json(record.path / JSON, receipt)
    path = record.path / TEXT
    write_whole(str(path), receipt_text(receipt) + "\n")
    return path


def as_json(receipt: Mapping[str, Any]) -> str:
    return json.dumps(receipt, indent=2, ensure_ascii=True)


def _savings(
    end: Mapping[str, Any], options: Mapping[str, Any], used: int, micros: int, unknown: int
) -> dict[str, Any]:
    """What stopping early saved: iterations, and their cost at the average of those that ran."""
    limit = _int_or_zero(options.get("max_iterations"))
    left = max(limit - used, 0)
    if end.get("exit_reason") != "circuit_breaker" or not left:
        return {"iterations": 0, "cost_micros": None, "text": None}
    text = f"{left:,} of {plural(limit, 'iteration')} not run"
    each = None if unknown or not used or not micros else micros // used
    if each:
        text += f", about {dollars(each * left)} at {dollars(each)} each"
    return {"iterations": left, "cost_micros": None if each is None else each * left, "text": text}


def _time_text(receipt: Mapping[str, Any]) -> str | None:
    started = _local_time(receipt["started_at"])
    if started is None:
        return None
    ended = _local_time(receipt["ended_at"])
    took = elapsed(receipt["seconds"])
    until = f" to {ended}" if ended else ""
    return f"{started}{until} ({took} in {plural(receipt['iterations'], 'iteration')})"


def _spent(receipt: Mapping[str, Any]) -> str:
    money = receipt["spent"]
    text = spent(money["cost_micros"] or 0, money["unknown_iterations"])
    if money["budget_micros"] is not None:
        text += f" of {dollars(money['budget_micros'])}"
    return text if not money["priced_by"] else f"{text}, by the {money['priced_by']}"


def _local_time(at: Any) -> str | None:
    try:
        return local_time(datetime.fromisoformat(at).timestamp())
    except (TypeError, ValueError, OverflowError):
        return None


def _line(value: Any, longest: int) -> str:
    """The value as one printable line without secrets."""
    return "" if value is None else one_line(redact(str(value), longest + 200), longest)


def _int_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _int_or_zero(value: Any) -> int:
    return max(_int_or_none(value) or 0, 0)


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return round(float(value), 3) if is_number and 0 <= value < 1e12 else 0.0


TIMEOUT_S = 10.0
"""Time limit in seconds for all notices of a run."""
SEVERITY: dict[str, str] = {
    ExitReason.COMPLETED: "INFO",
    ExitReason.INTERRUPTED: "INFO",
    ExitReason.CIRCUIT_BREAKER: "SEV2",
    ExitReason.AGENT_ERROR: "SEV2",
    ExitReason.DISK_FULL: "SEV2",
    ExitReason.UNMEASURABLE: "SEV2",
}
"""By exit reason; others are SEV3: a decision is needed, and nothing is broken."""


def targets_of(texts: Iterable[str]) -> tuple[Target, ...]:
    """The targets that `--notify` names. Raises ValueError."""
    found = []
    for text in texts:
        try:
            found.append(target_from_text(text))
        except ValueError as problem:
            raise ValueError(f"--notify: {problem}") from None
    return tuple(dict.fromkeys(found))


def notify_run_end(
    targets: Sequence[Target], receipt: Mapping[str, Any], owner: str
) -> list[Outcome]:
    """Send the receipt of a run that ended. Never raises; each target's outcome is returned."""
    return deliver(targets, _run_end(receipt, owner), TIMEOUT_S) if targets else []


def notify_configured(
    fleet: Fleet, targets: Sequence[Target], receipt: Mapping[str, Any], owner: str
) -> list[Outcome]:
    """Send the receipt to the configured targets, which also receive the events of circuits.

    If a trip ended the run, the receipt is sent as the message of that event: one notification per trip.
    """
    if not targets:
        return []
    loop = str(receipt["what"]["circuit"])
    try:
        trip = _trip(fleet.panel, loop) if receipt["exit_signal"] == CIRCUIT_OPEN else None
        if trip is None or run_note(fleet.panel, loop).event == message_id(trip):
            return notify_run_end(targets, receipt, owner)  # no trip, or the trip of an earlier run
        message = _run_end(receipt, owner)
        del message["id"]  # the event has its own id, by which receivers detect duplicates
        save_run_note(fleet.panel, loop, RunNote(owner, message_id(trip), message))
        outcomes = deliver_event(fleet, targets, trip, TIMEOUT_S)
    except StoreError:
        return notify_run_end(targets, receipt, owner)
    others = [each for each in targets if each.wants(loop) and not each.wants(trip.circuit)]
    return [*outcomes, *notify_run_end(others, receipt, owner)]


def _trip(panel: Panel, loop: str) -> Event | None:
    """The event that ended a run, if it is the latest one of its circuit or of its escalation."""
    for circuit in (loop, escalation_key(loop)):
        for entry in panel.events(glob=circuit, limit=1):
            if entry.event.kind is EventKind.MOVED and entry.event.after is Phase.OPEN:
                return entry.event
    return None


def _run_end(receipt: Mapping[str, Any], owner: str) -> Message:
    reason = str(receipt["exit_reason"])
    task = str(receipt["what"]["task"])
    text = f"run {receipt['run']} ended, {reason}: {receipt['why']} | task: {task}"
    if receipt["continue"]:
        text += f" | continue: {receipt['continue']}"
    return notice(
        text,
        severity=SEVERITY.get(reason, "SEV3"),
        kind="run_ended",
        circuit=str(receipt["what"]["circuit"]),
        reason=str(receipt["why"]),
        owners=[owner],
        receipt=dict(receipt),
    )


_BATCH_SEVERITY = {"done": "INFO", "interrupted": "INFO", "aborted": "SEV2", "disk_full": "SEV2"}
"""By the end of a batch; others are SEV3."""


def notify_batch_end(
    targets: Sequence[Target], result: Mapping[str, Any], text: str, owners: Iterable[str]
) -> list[Outcome]:
    """Send the result of a batch. Never raises; each target's outcome is returned."""
    if not targets:
        return []
    message = notice(
        text,
        severity=_BATCH_SEVERITY.get(str(result["end"]), "SEV3"),
        kind="batch_ended",
        circuit=f"batch/{result['batch']}",
        reason=str(result["reason"]),
        owners=owners,
        result=dict(result),
    )
    return deliver(targets, message, TIMEOUT_S)


def failed_notices(outcomes: Iterable[Outcome]) -> list[str]:
    """A sentence for each notice that did not arrive."""
    return [
        f"notification to {each.target} failed: {each.why}" for each in outcomes if not each.sent
    ]


LISTED = 200
NO_CHANGE = "no file differs from the start"


class Checkpoint(NamedTuple):
    how: str
    """The command that shows or unpacks it."""
    files: tuple[str, ...]
    """The saved paths that differ from the start of the run, the first 200."""
    changed: int
    """The number of all such paths."""
    added_lines: int | None = None
    removed_lines: int | None = None
    """`None`: not counted, outside git."""

    def dump(self) -> dict[str, Any]:
        return {**self._asdict(), "files": list(self.files)}

    def text(self) -> str:
        if not self.changed:
            return NO_CHANGE
        lines = ""
        if self.added_lines is not None:
            lines = f" (+{self.added_lines} -{self.removed_lines} lines)"
        return f"{plural(self.changed, 'file')}{lines}; {self.how}"


def keep(
    context: IterationContext, state: RunState, ending: Ending, notes: list[str]
) -> Checkpoint | None:
    """Save the present state of the folder. Problems are added to the notes."""
    deadline, tree, folder = Deadline(SAVE_S), context.tree, context.folder
    task = short_task(context.options.task)
    message = f"switchgear run {context.record.id}: {ending.reason}\n\n{task}"
    # An archive holds only the changes since its process started: a resumed run adds another one.
    suffix = f"-{state.resumptions + 1}" if state.resumptions else ""
    with context.interrupt.watching(deadline):
        try:
            saved = tree.keep(f"runs/{context.record.id}{suffix}", message, deadline)
        except (GitError, NotSaved, OSError) as error:
            notes.append(f"the work was not saved: {error}; it is in {folder} as the agent left it")
            return None
        notes += saved.notes
        how = saved.how
        if how.startswith("git ") and folder != _working_directory():
            how = f"git -C {shlex.quote(str(folder))} {how.removeprefix('git ')}"
        if getattr(tree, "too_slow", None) is not None or deadline.is_over:
            return Checkpoint(how, state.changed[:LISTED], max(1, len(state.changed)))
        now = mark(tree)
        left_out = {each.path for each in saved.left_out}
        changed = state.changed if now is None else _paths(tree, state, now)
        paths = tuple(path for path in changed if path not in left_out)
        if changed and not paths:
            return None  # the notes name what was not saved
        added, removed = tree.lines_since_start(deadline) or (None, None)
        return Checkpoint(how, paths[:LISTED], len(paths), added, removed)


def _paths(tree: Tree, state: RunState, now: str) -> tuple[str, ...]:
    try:
        if state.start_mark is not None:
            return tree.change(state.start_mark, now).paths
    except (KeyError, GitError):
        pass  # another process marked the start: rely on the changes of the iterations
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
        """The content of `receipt.json`: what, why, spent, saved, kept, and how to continue."""
        file = Path(self.receipt_file).with_suffix(".json")
        receipt: dict[str, Any] = json.loads(file.read_text(encoding="ascii"))
        return receipt

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_CODES[self.exit_reason].code

    @property
    def resume(self) -> str | None:
        """The command that resumes the run; `None`: it is done."""
        return None if self.success else resume_command(self)

    def dump(self) -> dict[str, Any]:
        """The documented result: what `--json` prints."""
        state = self.state
        checkpoint = self.checkpoint
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
            "checkpoint": None if checkpoint is None else checkpoint.dump(),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """The result for people."""
        state = self.state
        head = f"{self.exit_reason}: {self.reason}"
        lines = [head, *(f"  evidence: {each}" for each in self.evidence)]
        by = "" if state.priced_by is None else f" by the {state.priced_by}"
        lines.append(f"  done so far: {state.work_text(tests=True)}{by}")
        if self.checkpoint is not None:
            lines.append(f"  kept: {self.checkpoint.text()}")
        lines += [f"  note: {note}" for note in self.notes]
        ends = (("report", self.report), ("receipt", self.receipt_file), ("continue", self.resume))
        lines += [f"  {name}: {text}" for name, text in ends if text]
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
    """The command line that starts Switchgear here: its name, or this Python with `-m switchgear`."""
    if shutil.which("switchgear"):
        return "switchgear"
    python, here = Path(sys.executable), _working_directory()
    if here is not None and python.is_relative_to(here):
        python = python.relative_to(here)
    return f"{shlex.quote(str(python))} -m switchgear"


def _working_directory() -> Path | None:
    """The working directory; `None`: an agent has removed it."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _more_budget(result: RunResult) -> str:
    if result.state.unknown_prices and not result.options.allow_unknown_price:
        return " --allow-unknown-price"
    if result.options.budget_micros is None:
        return ""  # the budget of its node is spent
    if result.options.budget_micros == 0:
        return " --budget 5"
    return f" --budget {2 * result.options.budget_micros / 1_000_000:g}"


def reported(result: RunResult, record: RunFolder, write: Callable[[RunFolder], Path]) -> RunResult:
    """The result with a report, or with a note if the report cannot be written."""
    try:
        return result._replace(report=str(write(record)))
    except Exception as error:  # noqa: BLE001  a view must not end the run
        note = f"the report could not be written: {error}"
        return result._replace(notes=(*result.notes, note))
