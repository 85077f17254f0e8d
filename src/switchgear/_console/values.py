"""The JSON values of the command and the API. docs/command.md lists the fields; fields are only added.

The JSON is always valid and ASCII: texts of agents are escaped, and numbers that are not finite are null.
"""

import json
import math
from datetime import UTC, datetime
from typing import Any

from switchgear._breaker.views import View
from switchgear._core.types import Circuit, Event, Step
from switchgear._stores.base import Entry


def iso(at_s: float) -> str | None:
    """A time in ISO 8601, in UTC with milliseconds; `None` if it is outside of the calendar."""
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        return None


def printed(value: Any, indent: int | None = 2) -> str:
    return json.dumps(finite(value), indent=indent, ensure_ascii=True, allow_nan=False)


def of_view(view: View) -> dict[str, Any]:
    """A circuit, as `status --json` shows it."""
    circuit, verdict = view.circuit, view.verdict
    last = circuit.failures[-1] if circuit.failures else None
    return {
        "name": circuit.key,
        "phase": circuit.phase,
        "mode": circuit.mode,
        "admits": verdict.admitted,
        "reason": verdict.reason,
        "retry_after_s": verdict.retry_after_s,
        "heat": heat_of(view),
        "score": _score(view, shares=False),
        "last_error": None if last is None else last.error,
        "last_failure_at": None if last is None else iso(last.at_s),
        "held_by": _held(circuit, 0),
        "held_why": _held(circuit, 1),
        "hold_left_s": view.hold_left_s,
        "isolated": [
            {
                "process": one.process,
                "reason": one.reason,
                "since": iso(one.since_s),
                "retry_after_s": one.retry_after_s,
            }
            for one in view.isolated
        ],
        "totals": circuit.totals._asdict(),
        "generation": circuit.generation,
        "version": circuit.version,
        "seen_at": iso(circuit.seen_s),
    }


def of_page(view: View, entries: list[Entry]) -> dict[str, Any]:
    """A circuit, as `show --json` shows it: the values of `of_view`, and all details."""
    from switchgear._core.wire import detector_names  # noqa: PLC0415
    from switchgear._detectors.policy_wire import dump_policy  # noqa: PLC0415

    circuit, outage = view.circuit, view.circuit.outage
    names = detector_names(view.policy)
    return {
        **of_view(view),
        "opened_at": iso(outage.opened_at_s) if outage.opened_at_s else None,
        "failed_probes": outage.failed_probes,
        "admit_share": outage.admit,
        "probes_under_way": len(circuit.probing.permits),
        "score": _score(view, shares=True),
        "detectors": [
            {"name": name, **reading._asdict(), "heat": min(reading.heat, 1.0)}
            for name, reading in zip(names, view.readings, strict=True)
        ],
        "failures": [
            {"at": iso(failure.at_s), "at_s": failure.at_s, "error": failure.error}
            for failure in circuit.failures
        ],
        "policy": dump_policy(view.policy),
        "events": [of_entry(entry) for entry in entries],
    }


def _score(view: View, *, shares: bool) -> dict[str, Any] | None:
    """The score, if the policy adds up weighted detectors: points of 100, and the threshold."""
    from switchgear._stuck.score import score_of  # noqa: PLC0415

    score = score_of(view.policy, view.readings)
    if score is None:
        return None
    whole = {"points": score.points, "threshold": score.threshold}
    return {**whole, "shares": [each._asdict() for each in score.shares]} if shares else whole


def of_entry(entry: Entry) -> dict[str, Any]:
    """An event, as `events --json` shows it."""
    return {"cursor": entry.cursor, **of_event(entry.event)}


def of_event(event: Event) -> dict[str, Any]:
    """An event, with its time also in ISO 8601."""
    return {"at": iso(event.at_s), **event._asdict()}


def standing_of(name: str, done: Step) -> dict[str, Any]:
    return {
        "name": name,
        "phase": done.verdict.phase,
        "mode": done.circuit.mode,
        "admits": done.verdict.admitted,
        "reason": done.verdict.reason,
        "retry_after_s": done.verdict.retry_after_s,
        "heat": min(done.verdict.heat, 1.0),
    }


def heat_of(view: View) -> float:
    """The current heat of a circuit, at most 1; the stored heat may be older."""
    heats = [reading.heat for reading in view.readings]
    return min(view.policy.combine.heat(view.policy.detectors, heats), 1.0)


def _held(circuit: Circuit, field: int) -> str | None:
    """The author (0) or the reason (1) of a hold."""
    if circuit.order is None or circuit.mode == "auto":
        return None
    return str(circuit.order[field])


def finite(value: Any) -> Any:
    """The value with `None` in place of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
