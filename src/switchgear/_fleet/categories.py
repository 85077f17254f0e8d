"""The seven breaker categories of a fleet: functions from configuration keys to policies.

The arguments are the keys of the `breakers` section with their defaults, so the schema and the error
messages of the configuration come from here. Each category has its own circuits and its own cooldown.
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from switchgear._core import values
from switchgear._core.detector import Detector
from switchgear._core.policy import Cooldown, Latched, Policy, WeightedSum
from switchgear._detectors import (
    FailureRate,
    FailuresInWindow,
    LatencyP95,
    LockWait,
    RetryAfter,
    Spend,
    TotalCost,
    Violation,
)

LONGEST_COOLDOWN_S = 3600.0
LONGEST_DEPENDENCY_S = 120.0
"""Maximum cooldown of a provider in seconds: short, because all agents wait for one probe."""
OUTAGE = WeightedSum({"retry_after": 2.0, "failures_in_window": 1.0, "failure_rate": 1.0}, 2.0)
"""Trips at a Retry-After, or at failures that are both frequent and the majority of the calls."""
FARTHEST_APART_S = 10.0
"""Maximum default of `apart_seconds`: about the time of a successful call."""
MOST_DOLLARS = 1_000_000.0
"""Maximum budget of an agent or story in dollars; a larger value is a typing error."""


class Category(NamedTuple):
    """A breaker category as configured."""

    enabled: bool
    policy: Policy


class Breakers(NamedTuple):
    """The seven categories, as configured. Immutable."""

    budget: Category
    failure_rate: Category
    latency: Category
    constitutional: Category
    external_dep: Category
    resource_lock: Category
    story_cost: Category


class About(NamedTuple):
    """The circuits of a category, and what happens when one of them opens."""

    circuits: tuple[str, ...]
    """Globs of the circuits of the category."""
    severity: str
    action: str


ABOUT: dict[str, About] = {
    "budget": About(("agent/*/budget",), "SEV2", "the agent is halted for the cooldown"),
    "failure_rate": About(
        ("agent/*/failure_rate",),
        "SEV2",
        "the agent is halted; the next one of its chain takes over",
    ),
    "latency": About(
        ("agent/*/latency", "provider/*/latency"),
        "SEV3",
        "the load of the agent or provider is reduced",
    ),
    "constitutional": About(
        ("rules", "rules/*"), "SEV1", "the agent is halted until an operator resets the circuit"
    ),
    "external_dep": About(
        ("provider/*",), "SEV2", "the fallback model is used until the provider recovers"
    ),
    "resource_lock": About(("lock/*",), "SEV3", "callers that need the resource are queued again"),
    "story_cost": About(("story/*",), "SEV2", "the task is paused until it is resumed"),
}
"""The categories by name."""


def budget(
    *,
    enabled: bool = True,
    window_seconds: float = 60.0,
    threshold: float = 1.0,
    cooldown_seconds: float = 600.0,
    hard_cap_dollars: float = 5.0,
    max_cooldown_seconds: float | None = None,
    tripping_at: float = 0.75,
) -> Category:
    """An agent that spends `threshold` of its hard cap within the window is halted."""
    cap = micros("budget.hard_cap_dollars", hard_cap_dollars)
    share = values.check_positive("budget.threshold", threshold)
    detector = Spend(cap, share, values.check_window_s("budget.window_seconds", window_seconds))
    wait = _cooldown("budget", cooldown_seconds, max_cooldown_seconds)
    return _category("budget", enabled, [detector], wait, tripping_at)


def failure_rate(
    *,
    enabled: bool = True,
    window_calls: int = 20,
    threshold: float = 0.5,
    cooldown_seconds: float = 300.0,
    max_cooldown_seconds: float | None = None,
    tripping_at: float = 0.75,
) -> Category:
    """An agent of whose last calls more than `threshold` failed is halted."""
    window = values.check_int("failure_rate.window_calls", window_calls)
    detector = FailureRate(window, values.check_fraction("failure_rate.threshold", threshold))
    wait = _cooldown("failure_rate", cooldown_seconds, max_cooldown_seconds)
    return _category("failure_rate", enabled, [detector], wait, tripping_at)


def latency(
    *,
    enabled: bool = True,
    baseline_p95_ms: float = 90_000.0,
    threshold_multiplier: float = 3.0,
    sample_window_seconds: float = 300.0,
    cooldown_seconds: float = 180.0,
    max_cooldown_seconds: float | None = None,
    admit: float = 0.5,
    tripping_at: float = 0.75,
) -> Category:
    """An agent or provider whose p95 exceeds a multiple of its baseline keeps `admit` of its calls."""
    detector = LatencyP95(
        values.check_positive("latency.baseline_p95_ms", baseline_p95_ms) / 1000.0,
        values.check_at_least("latency.threshold_multiplier", threshold_multiplier, 1.0),
        values.check_window_s("latency.sample_window_seconds", sample_window_seconds),
        admit=values.check_fraction("latency.admit", admit),
    )
    wait = _cooldown("latency", cooldown_seconds, max_cooldown_seconds)
    return _category("latency", enabled, [detector], wait, tripping_at)


def constitutional(*, enabled: bool = True) -> Category:
    """An agent that breaks an absolute rule is halted at once, until an operator resets it."""
    policy = Policy([Violation()], Latched())
    return Category(values.check_bool("constitutional.enabled", enabled), policy)


def external_dep(
    *,
    enabled: bool = True,
    window_seconds: float = 60.0,
    threshold: int = 3,
    apart_seconds: float | None = None,
    window_calls: int = 20,
    failing_share: float = 0.5,
    rate_limits: int = 1,
    cooldown_seconds: float = 60.0,
    max_cooldown_seconds: float | None = None,
    tripping_at: float = 0.5,
) -> Category:
    """Opens after a Retry-After, or after enough failures if they are the majority of the calls."""
    often = values.check_int("external_dep.threshold", threshold)
    window_s = values.check_window_s("external_dep.window_seconds", window_seconds)
    calls = values.check_int("external_dep.window_calls", window_calls)
    share = values.check_fraction("external_dep.failing_share", failing_share)
    detectors = [
        RetryAfter(values.check_int("external_dep.rate_limits", rate_limits)),
        FailuresInWindow(often, window_s, _apart(apart_seconds, often, window_s)),
        FailureRate(calls, share, min(often, calls)),
    ]
    wait = _cooldown("external_dep", cooldown_seconds, max_cooldown_seconds, LONGEST_DEPENDENCY_S)
    enabled, policy = _category("external_dep", enabled, detectors, wait, tripping_at)
    return Category(enabled, policy.replace(combine=OUTAGE))


def _apart(seconds: Any, failures: int, window_s: float) -> float:
    """Seconds between failures that count separately; a burst of failures counts once."""
    if seconds is None:
        return min(FARTHEST_APART_S, window_s / (2 * failures))
    found = values.check_number("external_dep.apart_seconds", seconds)
    if found < 0.0 or found * (failures - 1) >= window_s:
        rule = f"it must not be below 0, and {failures} failures must fit into window_seconds"
        raise ValueError(f"external_dep.apart_seconds is {seconds!r}: {rule}")
    return found


def resource_lock(
    *,
    enabled: bool = True,
    threshold_seconds: float = 60.0,
    cooldown_seconds: float = 60.0,
    max_cooldown_seconds: float | None = None,
    tripping_at: float = 0.75,
) -> Category:
    """Work is queued again instead of waiting if a resource takes longer than `threshold_seconds`."""
    detector = LockWait(values.check_seconds("resource_lock.threshold_seconds", threshold_seconds))
    wait = _cooldown("resource_lock", cooldown_seconds, max_cooldown_seconds)
    return _category("resource_lock", enabled, [detector], wait, tripping_at)


def story_cost(
    *,
    enabled: bool = True,
    budget_dollars: float = 10.0,
    threshold: float = 1.5,
    tripping_at: float = 0.75,
) -> Category:
    """A story that costs more than `threshold` times its budget is paused until it is resumed."""
    amount = micros("story_cost.budget_dollars", budget_dollars)
    detector = TotalCost(amount, values.check_positive("story_cost.threshold", threshold))
    return _category("story_cost", enabled, [detector], Latched(), tripping_at)


CATEGORIES: dict[str, Callable[..., Category]] = {
    make.__name__: make
    for make in (
        *(budget, failure_rate, latency, constitutional),
        *(external_dep, resource_lock, story_cost),
    )
}
"""The categories by name; the configuration and its schema use their arguments."""


@cache
def default_breakers() -> Breakers:
    """The seven categories with their defaults."""
    return Breakers(*(make() for make in CATEGORIES.values()))


_SHOWN = {"external_dep": "provider", "constitutional": "policy_violation"}


def shown_name(category: str) -> str:
    """The name of a category in texts and in the current configuration format.

    >>> shown_name("external_dep"), shown_name("budget")
    ('provider', 'budget')
    """
    return _SHOWN.get(category, category)


_KINDS = {
    "rules": "constitutional",
    "provider": "external_dep",
    "dep": "external_dep",
    "lock": "resource_lock",
    "story": "story_cost",
}
"""Categories by the prefix of their circuits; earlier versions used `dep`."""


@lru_cache(maxsize=4096)
def category_of(circuit: str) -> str | None:
    """The category of a circuit; `None` if it does not belong to a fleet.

    >>> category_of("agent/coder/latency"), category_of("provider/openai"), category_of("loop/7")
    ('latency', 'external_dep', None)
    """
    head, _, rest = circuit.partition("/")
    if head == "agent":
        last = rest.rpartition("/")
        return last[2] if last[0] and last[2] in {"budget", "failure_rate", "latency"} else None
    if head in {"provider", "dep"} and rest.endswith("/latency"):
        return "latency"
    if circuit == "rules":
        return "constitutional"
    return _KINDS.get(head) if rest else None


def circuit_policies(breakers: Breakers, budgets: Mapping[str, int]) -> list[tuple[str, Policy]]:
    """Globs of circuits with their policies; the first match applies.

    `budgets` are the budgets of the stories that have their own, in micro-dollars.
    """
    found: list[tuple[str, Policy]] = []
    if breakers.story_cost.enabled:
        found += [
            (f"story/{name}", story_policy(breakers, amount)) for name, amount in budgets.items()
        ]
    for name, category in breakers._asdict().items():
        if category.enabled:
            found += [(glob, category.policy) for glob in ABOUT[name].circuits]
    return found


def story_policy(breakers: Breakers, budget_micros: int) -> Policy:
    """The policy of a story with its own budget."""
    policy = breakers.story_cost.policy
    [detector] = policy.detectors
    return policy.replace(detectors=[detector.replace(budget_micros=budget_micros)])


def micros(field: str, value: Any) -> int:
    """Dollars as whole micro-dollars, exactly. Raises ValueError.

    >>> micros("budget", 0.29)
    290000
    """
    number = values.check_number(field, value)
    if not 0 < number <= MOST_DOLLARS:
        rule = f"it must be dollars above 0, and at most {MOST_DOLLARS:,.0f}"
        raise ValueError(f"{field} is {value!r}: {rule}")
    whole = round(number * 1_000_000)
    if whole / 1_000_000 != number:
        rule = "money is counted in millionths of a dollar"
        raise ValueError(f"{field} is {value!r}: it has more digits than that, and {rule}")
    return whole


def _category(
    name: str,
    enabled: Any,
    detectors: list[Detector],
    recovery: Cooldown | Latched,
    tripping_at: Any,
) -> Category:
    warn_at = values.check_fraction(f"{name}.tripping_at", tripping_at, low_open=True)
    policy = Policy(detectors, recovery, tripping_at=warn_at)
    return Category(values.check_bool(f"{name}.enabled", enabled), policy)


def _cooldown(name: str, base: Any, most: Any, longest_s: float = LONGEST_COOLDOWN_S) -> Cooldown:
    base_s = values.check_seconds(f"{name}.cooldown_seconds", base)
    max_s = max(base_s, longest_s)
    if most is not None:
        max_s = values.check_seconds(f"{name}.max_cooldown_seconds", most)
        if max_s < base_s:
            rule = f"it must not be below cooldown_seconds, {base_s:g}"
            raise ValueError(f"{name}.max_cooldown_seconds is {most!r}: {rule}")
    return Cooldown(base_s, max_s)
