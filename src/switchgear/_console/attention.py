"""*Now*: the items that need attention, most urgent first, each with a reason and an action.

Pure: rows in, items out. The page and `switchgear watch` show the same list.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

NEARLY = 0.8
"""Share of a budget, spent or reserved, at which the budget needs attention."""
LIVE_S = 300.0
"""Seconds since the last event of a session during which it counts as live."""
RATE_S = 300.0
"""Seconds over which spend per minute is measured."""
LEAST_RATE_S = 60.0
"""Minimum seconds of measurement."""
_HINT = (4, "nudge", "Give it a hint, or watch its next steps.")
_SESSIONS = {
    "stopped": (0, "resume", "Resume it, give it a hint, or hand it over."),
    "paused": (2, "continue", "Continue it when you are ready."),
    "trying again": _HINT,
    "struggling": _HINT,
}
"""Rank, intervention and action, by the state of a session."""


class Attention(NamedTuple):
    rank: int
    """0 is the most urgent: stopped, open, waiting, budget, warned, incident."""
    kind: str
    """session, circuit, run, budget or incident."""
    name: str
    state: str
    reason: str
    action: str
    """The recommended action, as a sentence."""
    command: str
    """The command for the action."""
    retry_after_s: float | None = None
    """Seconds until the next probe; `None`: none is planned."""
    since_s: float | None = None
    heat: float | None = None
    spend_micros_per_min: int | None = None
    activity: str | None = None
    """For a session: live, dormant or ended."""


class SpendRates:
    """Spend per minute by key, computed from earlier costs. Used by one thread."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def rate(self, key: str, micros: int | None, now_s: float) -> int | None:
        """Millionths of a dollar per minute over the last five minutes; `None`: unknown."""
        if micros is None:
            return None
        seen = self._seen.setdefault(key, deque())
        if seen and micros < seen[-1][1]:
            seen.clear()  # the cost was reset
        if not seen or now_s - seen[-1][0] >= 1.0 or micros != seen[-1][1]:
            seen.append((now_s, micros))
        while len(seen) > 2 and now_s - seen[0][0] > RATE_S:
            seen.popleft()
        took_s = now_s - seen[0][0]
        return None if took_s < LEAST_RATE_S else round((micros - seen[0][1]) * 60.0 / took_s)

    def forget_all_but(self, keys: Iterable[str]) -> None:
        self._seen = {key: seen for key in keys if (seen := self._seen.get(key)) is not None}


def activity(state: str, heard_s: float, now_s: float) -> str:
    """Whether a session is live, dormant (silent for five minutes) or ended."""
    if state == "ended":
        return "ended"
    return "live" if now_s - heard_s < LIVE_S else "dormant"


def attention(
    *,
    circuits: Iterable[Mapping[str, Any]],
    sessions: Iterable[Mapping[str, Any]] = (),
    runs: Iterable[Mapping[str, Any]] = (),
    budgets: Iterable[Mapping[str, Any]] = (),
    incidents: Iterable[Mapping[str, Any]] = (),
) -> list[Attention]:
    """The items that need attention, for rows of the API, most urgent first."""
    found = [
        *filter(None, map(_session, sessions)),
        *filter(None, map(circuit_attention, circuits)),
        *filter(None, map(_run_attention, runs)),
        *filter(None, map(_budget, budgets)),
        *filter(None, map(_incident, incidents)),
    ]
    return sorted(found, key=lambda item: (item.rank, -(item.since_s or 0.0), item.name))


def _item(row: Mapping[str, Any], rank: int, kind: str, *texts: str, **more: Any) -> Attention:
    """An item about a row; `texts` are name, state, reason, action and command."""
    name, state, reason, action, command = texts
    facts = {key: row.get(key) for key in ("heat", "spend_micros_per_min", "activity")}
    facts["since_s"] = row.get("since_s") or row.get("opened_at_s")
    return Attention(rank, kind, name, state, reason, action, command, **{**facts, **more})


def _session(row: Mapping[str, Any]) -> Attention | None:
    state, name = str(row["state"]), str(row["id"])
    if state not in _SESSIONS:
        return None
    rank, intervention, action = _SESSIONS[state]
    task = f": {row['task']}" if row.get("task") else ""
    reason = str(row["reason"] or f"{row['agent']}{task}")
    command = f"switchgear intervene {name} --do {intervention}"
    return _item(row, rank, "session", name, state, reason, action, command)


def circuit_attention(row: Mapping[str, Any]) -> Attention | None:
    """The item of a circuit that refuses, probes, is held or is about to trip; else `None`.

    Circuits of sessions have none, because their session has one.
    """
    name = str(row["name"])
    if name.partition("/")[0] in {"session", "progress", "ladder"}:
        return None
    found = _held(row, name) if row["mode"] != "auto" else _circuit_attention(row, name)
    if found is None:
        return None
    rank, *texts = found
    retry_after_s = row.get("retry_after_s") if texts[0] == "open" else None
    return _item(row, rank, "circuit", name, *texts, retry_after_s=retry_after_s)


def _run_attention(row: Mapping[str, Any]) -> Attention | None:
    """The item of a run that waits for an operator; else `None`."""
    if row["status"] != "paused":
        return None
    name, reason = str(row["id"]), f"{row['agent']}: {row['task']}"
    command = f"switchgear intervene {name} --do continue --why TEXT"
    action = "Continue it when you are ready."
    return _item(row, 2, "run", name, "paused", reason, action, command)


_Found = tuple[int, str, str, str, str]
"""Rank, state, reason, action, command."""


def _held(row: Mapping[str, Any], name: str) -> _Found | None:
    release = f"switchgear release '{name}' --why TEXT"
    if row["mode"] == "held_open":
        why = f"held open by {row.get('held_by')}: {row.get('held_why')}"
        return 1, "held open", why, "Release it when the cause is gone.", release
    if row["phase"] not in {"open", "half_open"}:
        return None
    action = "It would refuse calls now; release it to let the evidence decide."
    return 4, str(row["mode"]).replace("_", " "), str(row.get("reason") or ""), action, release


def _circuit_attention(row: Mapping[str, Any], name: str) -> _Found | None:
    phase, retry_s = row["phase"], row.get("retry_after_s")
    show, reason = (
        f"switchgear show '{name}'",
        str(row.get("reason") or row.get("last_error") or ""),
    )
    if phase == "open" and retry_s is None:
        reset = f"switchgear reset '{name}' --why TEXT"
        return 1, "open", reason, "Reset it once the cause is fixed.", reset
    if phase == "open":
        action = "Wait for the probe, or probe now if the cause is fixed."
        return 1, "open", reason, action, f"switchgear probe '{name}' --why TEXT"
    if phase == "half_open":
        return 2, "half-open", reason, "Wait for the result of the probe.", show
    if row.get("isolated"):
        why = f"{len(row['isolated'])} isolated: {row['isolated'][0]['reason']}"
        action = "Check the network and the settings of that process."
        return 3, "isolated process", why, action, show
    return (4, "tripping", reason, "Look at its errors.", show) if phase == "tripping" else None


def _budget(row: Mapping[str, Any]) -> Attention | None:
    limit = row.get("limit_micros")
    used = int(row.get("spent_micros") or 0) + int(row.get("held_micros") or 0)
    if not limit or used < NEARLY * limit:
        return None
    node, share = str(row["path"]), min(used / limit, 1.0)
    rank, state = (1, "exhausted") if share >= 1.0 else (3, "nearly exhausted")
    reason = f"{math.floor(share * 100)} % of ${limit / 1e6:,.2f} spent or reserved"
    action, command = "Raise the limit, or let the work end.", "switchgear budgets set"
    return _item(
        row, rank, "budget", node, state, reason, action, f"{command} '{node}' DOLLARS", heat=share
    )


def _incident(row: Mapping[str, Any]) -> Attention | None:
    if "trouble" in row or row.get("status") == "closed":
        return None
    name, state = str(row["id"]), str(row.get("status") or "open")
    reason = f"{row.get('circuit')}: {row.get('reason')}"
    action = "Read its report; close it when it is resolved."
    return _item(
        row, 5, "incident", name, state, reason, action, f"switchgear incidents show {name}"
    )
