"""What the recorded history says of the thresholds: which breakers trip too soon, too late, or flap.

Proposes and never changes anything. Where there is too little to go by, it says so.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from switchgear._core.detector import plural
from switchgear._core.policy import Policy
from switchgear._core.recovery import Cooldown
from switchgear._core.types import Event, EventKind, Phase
from switchgear._fleet.categories import CATEGORIES, Breakers, category_of, shown_name

FEWEST = 5
"""Trips, marks or tests below which nothing is proposed."""
WRONG_SHARE = 0.3
"""The share of trips marked as false positives from which a threshold is too low."""
FAILED_SHARE = 0.5
"""The share of failed tests from which a cooldown is too short."""


class Knob(NamedTuple):
    """The key that makes a category more or less sensitive."""

    key: str
    read: Callable[[Policy], float]
    looser: Callable[[float], float]
    tighter: Callable[[float], float]


KNOBS: dict[str, Knob] = {
    "budget": Knob(
        "threshold", lambda p: _field(p, "threshold"), lambda x: x * 1.25, lambda x: x * 0.8
    ),
    "failure_rate": Knob(
        "threshold",
        lambda p: _field(p, "threshold"),
        lambda x: min(0.95, x + 0.1),
        lambda x: max(0.05, x - 0.1),
    ),
    "latency": Knob(
        "threshold_multiplier",
        lambda p: _field(p, "multiplier"),
        lambda x: x * 1.25,
        lambda x: max(1.0, x * 0.8),
    ),
    "external_dep": Knob(
        "threshold",
        lambda p: _field(p, "threshold", at=1),
        lambda x: x + 2,
        lambda x: max(1, x - 1),
    ),
    "resource_lock": Knob(
        "threshold_seconds", lambda p: _field(p, "limit_s"), lambda x: x * 1.5, lambda x: x / 1.5
    ),
    "story_cost": Knob(
        "threshold", lambda p: _field(p, "threshold"), lambda x: x * 1.25, lambda x: x * 0.8
    ),
}
"""Constitutional breakers have no threshold: a rule is broken or not."""


class Finding(NamedTuple):
    """What the history says of one category."""

    category: str
    trips: int
    false_positives: int
    false_negatives: int
    tests: int
    failed_tests: int
    proposals: dict[str, float]
    """Keys of the configuration and the values proposed."""
    why: tuple[str, ...]


def review(
    breakers: Breakers, events: Iterable[Event], incidents: Iterable[dict[str, Any]]
) -> list[Finding]:
    """One finding for each category, from the events that the store keeps and the marks."""
    trips: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for event in events:
        category = category_of(event.circuit)
        if category is None or event.kind is not EventKind.MOVED:
            continue
        if event.before is Phase.HALF_OPEN and event.after in {Phase.OPEN, Phase.CLOSED}:
            tests[category] += 1
            failed[category] += event.after is Phase.OPEN
        elif event.after is Phase.OPEN:
            trips[category] += 1
    marks = Counter((one.get("category"), one.get("mark")) for one in incidents)
    return [
        _finding(
            name,
            getattr(breakers, name).policy,
            trips[name],
            (marks[name, "false_positive"], marks[name, "false_negative"]),
            (tests[name], failed[name]),
        )
        for name in CATEGORIES
    ]


def _finding(
    name: str, policy: Policy, trips: int, marked: tuple[int, int], tested: tuple[int, int]
) -> Finding:
    proposals: dict[str, float] = {}
    why: list[str] = []
    for found in (_threshold(name, policy, trips, marked), _cooldown(policy, tested)):
        if found is not None:
            change, reason = found
            proposals |= change
            why.append(reason)
    return Finding(name, trips, *marked, *tested, proposals, tuple(why))


def _threshold(
    name: str, policy: Policy, trips: int, marked: tuple[int, int]
) -> tuple[dict[str, float], str] | None:
    """What to change, if anything, and why."""
    wrong, missed = marked
    knob = KNOBS.get(name)
    if trips + missed < FEWEST:
        return (
            {},
            f"too little to go by: {plural(trips, 'trip')}, {missed} missed; {FEWEST} are needed",
        )
    too_soon = wrong >= 2 and wrong >= WRONG_SHARE * trips
    too_late = missed >= 2 and missed >= WRONG_SHARE * trips
    if knob is None:
        return (
            ({}, "rules were broken that should not be rules: see rules.allow") if wrong else None
        )
    if too_soon and too_late:
        return {}, "it trips too soon and too late: give some circuits a policy of their own"
    now = knob.read(policy)
    if not too_soon and not too_late:
        return {}, f"nothing speaks against {knob.key} {now:g}"
    to = round(knob.looser(now) if too_soon else knob.tighter(now), 4)
    what = f"{wrong} of {trips} trips were false" if too_soon else f"{missed} were missed"
    return {knob.key: to}, f"{what}: {knob.key} {now:g} → {to:g}"


def _cooldown(policy: Policy, tested: tuple[int, int]) -> tuple[dict[str, float], str] | None:
    tests, failed = tested
    recovery = policy.recovery
    if not isinstance(recovery, Cooldown) or tests < FEWEST or failed < FAILED_SHARE * tests:
        return None
    to = min(recovery.base_s * 2, recovery.max_s)
    if to <= recovery.base_s:
        return None
    why = f"{failed} of {tests} probes failed: cooldown {recovery.base_s:g} s → {to:g} s"
    return {"cooldown_seconds": to}, why


def as_configuration(findings: Iterable[Finding]) -> str:
    """The proposals as YAML, to be copied; empty: there are none."""
    lines = [
        f"  {shown_name(one.category)}: {{{', '.join(f'{key}: {to:g}' for key, to in one.proposals.items())}}}"
        for one in findings
        if one.proposals
    ]
    return "\n".join(["breakers:", *lines]) + "\n" if lines else ""


def _field(policy: Policy, name: str, at: int = 0) -> float:
    value: float = getattr(policy.detectors[at], name)
    return value
