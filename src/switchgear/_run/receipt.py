"""The receipt of a run: what, why, cost, savings, how to continue; and the notice that it ended.

Made from run.json alone, so that old and interrupted runs have one too. As text it can be pasted into a
message: plain lines, no control characters, no secrets.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from switchgear._breaker.loop_breaker import CIRCUIT_OPEN
from switchgear._core.detector import plural
from switchgear._core.errors import elapsed
from switchgear._fleet.notify import Outcome, deliver, notice, target_from_text
from switchgear._fleet.targets import Target
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.formats import local_time, passing, shortened, spent
from switchgear._run.record import RunFolder, write_json
from switchgear._text.money import dollars
from switchgear._text.redact import redact

TEXT, JSON = "receipt.txt", "receipt.json"
SCHEMA = 1
_EVIDENCE = 5
_RUNNING = ("running", "broken off")


def receipt_of(run: Mapping[str, Any], *, alive: bool = False) -> dict[str, Any]:
    """The receipt of what run.json holds. Never raises for what is in it."""
    end, state, options = (_mapping(run.get(key)) for key in ("end", "state", "options"))
    kept = _mapping(end.get("checkpoint"))
    started, ended = run.get("started_at"), run.get("ended_at")
    micros, unknown = _whole(state.get("spent_micros")), _whole(state.get("unknown_prices"))
    iterations, lost = _whole(state.get("iterations")), _whole(state.get("lost"))
    reason = end.get("exit_reason")
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
        "exit_reason": _line(reason, 40) if reason else _RUNNING[0 if alive else 1],
        "exit_code": end.get("exit_code"),
        "exit_signal": CIRCUIT_OPEN if reason == "circuit_breaker" else None,
        "success": end.get("success") is True,
        "why": _line(end.get("reason"), 600) or "the run has not ended, or was broken off",
        "evidence": [_line(each, 600) for each in _list(end.get("evidence"))[:_EVIDENCE]],
        "started_at": _line(started, 40) or None,
        "ended_at": _line(ended, 40) or None,
        "seconds": _number(state.get("seconds")),
        "iterations": iterations,
        "files_changed": len(_list(state.get("changed"))),
        "tests_passing": _maybe_whole(state.get("tests_passing")),
        "tests_total": _maybe_whole(state.get("tests_total")),
        "spent": {
            "cost_micros": None if unknown and not micros else micros,
            "unknown_iterations": unknown,
            "budget_micros": _maybe_whole(options.get("budget_micros")),
            "tokens": _whole(state.get("tokens")),
            "priced_by": _line(state.get("priced_by"), 100) or None,
        },
        "saved": _saved(end, options, iterations - lost, micros, unknown),
        "kept": {
            "files": _whole(kept.get("changed")),
            "how": _line(kept.get("how"), 1000) or None,
            "report": _line(end.get("report"), 1000) or None,
        },
        "continue": _line(end.get("resume"), 2000) or None,
    }


def receipt_text(receipt: Mapping[str, Any]) -> str:
    """The same as lines that can be pasted."""
    what, kept = receipt["what"], receipt["kept"]
    code = "" if receipt["exit_code"] is None else f" (exit code {receipt['exit_code']})"
    rows = [
        ("what", f"{what['task']}"),
        ("agent", f"{what['agent']} in {what['folder']}"),
        ("why", receipt["why"]),
        *(("evidence", each) for each in receipt["evidence"]),
        ("when", _when(receipt)),
        ("done", _done(receipt)),
        ("spent", _spent(receipt)),
        ("saved", receipt["saved"]["text"]),
        ("kept", _kept(kept)),
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
    beside = path.with_name(f".{TEXT}")
    with suppress(FileNotFoundError):
        beside.unlink()
    with beside.open("x", encoding="utf-8", errors="replace") as file:
        file.write(receipt_text(receipt) + "\n")
    beside.replace(path)
    return path


def as_json(receipt: Mapping[str, Any]) -> str:
    """A receipt as JSON, readable by a person."""
    return json.dumps(receipt, indent=2, ensure_ascii=True)


def _saved(
    end: Mapping[str, Any], options: Mapping[str, Any], used: int, micros: int, unknown: int
) -> dict[str, Any]:
    """What stopping early avoided: iterations, and their cost at the average of those that ran."""
    most = _whole(options.get("max_iterations"))
    left = max(most - used, 0)
    if end.get("exit_reason") != "circuit_breaker" or not left:
        return {"iterations": 0, "cost_micros": None, "text": None}
    text = f"{left:,} of {plural(most, 'iteration')} not run"
    each = None if unknown or not used or not micros else micros // used
    if each:
        text += f", about {dollars(each * left)} at {dollars(each)} each"
    return {"iterations": left, "cost_micros": None if each is None else each * left, "text": text}


def _when(receipt: Mapping[str, Any]) -> str | None:
    started = _local(receipt["started_at"])
    if started is None:
        return None
    ended = _local(receipt["ended_at"])
    took = elapsed(receipt["seconds"])
    until = f" to {ended}" if ended else ""
    return f"{started}{until} ({took} in {plural(receipt['iterations'], 'iteration')})"


def _done(receipt: Mapping[str, Any]) -> str:
    parts = [f"{plural(receipt['files_changed'], 'file')} changed"]
    if receipt["tests_passing"] is not None:
        parts.append(passing(receipt["tests_passing"], receipt["tests_total"]))
    return ", ".join(parts)


def _spent(receipt: Mapping[str, Any]) -> str:
    money = receipt["spent"]
    text = spent(money["cost_micros"] or 0, money["unknown_iterations"])
    if money["budget_micros"] is not None:
        text += f" of {dollars(money['budget_micros'])}"
    return text if not money["priced_by"] else f"{text}, by the {money['priced_by']}"


def _kept(kept: Mapping[str, Any]) -> str | None:
    if not kept["files"] or not kept["how"]:
        return None
    return f"{plural(kept['files'], 'file')}; {kept['how']}"


def _local(at: Any) -> str | None:
    try:
        return local_time(datetime.fromisoformat(at).timestamp())
    except (TypeError, ValueError, OverflowError):
        return None


def _line(value: Any, longest: int) -> str:
    """One harmless line without secrets."""
    if value is None:
        return ""
    text = " ".join(redact(str(value), longest + 200).split())
    return shortened("".join(sign if sign.isprintable() else " " for sign in text), longest)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _maybe_whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _whole(value: Any) -> int:
    return max(_maybe_whole(value) or 0, 0)


def _number(value: Any) -> float:
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    return round(float(value), 3) if sound and 0 <= value < 1e12 else 0.0


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
    targets: Sequence[Target], receipt: Mapping[str, Any], owners: Iterable[str]
) -> list[Outcome]:
    """Send the receipt of a run that ended. Never raises; each target's outcome is returned."""
    if not targets:
        return []
    reason = str(receipt["exit_reason"])
    task = str(receipt["what"]["task"])
    words = f"run {receipt['run']} ended, {reason}: {receipt['why']} | task: {task}"
    if receipt["continue"]:
        words += f" | continue: {receipt['continue']}"
    message = notice(
        words,
        severity=SEVERITY.get(reason, "SEV3"),
        kind="run_ended",
        circuit=str(receipt["what"]["circuit"]),
        reason=str(receipt["why"]),
        owners=owners,
        receipt=dict(receipt),
    )
    return deliver(targets, message, TIMEOUT_S)


_BATCH_SEVERITY = {
    "done": "INFO",
    "interrupted": "INFO",
    "aborted": "SEV2",
    "disk_full": "SEV2",
}
"""By the end of a batch; others are SEV3."""


def notify_batch_end(
    targets: Sequence[Target], result: Mapping[str, Any], words: str, owners: Iterable[str]
) -> list[Outcome]:
    """Send what a batch came to. Never raises; each target's outcome is returned."""
    if not targets:
        return []
    message = notice(
        words,
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
