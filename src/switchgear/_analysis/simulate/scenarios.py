"""What goes wrong in the simulated fleet, and when: scenarios as data."""

from typing import NamedTuple

OUTAGE, SLOW, POISON, BURN, CONVOY = "outage", "slow-down", "poisoned-agent", "budget-burn", "lock-convoy"  # fmt: skip


class Trouble(NamedTuple):
    """Something that goes wrong for a while; times are shares of the simulated time."""

    kind: str
    begins: float
    ends: float


class Scenario(NamedTuple):
    """What is simulated under one name."""

    name: str
    about: str
    hours: float
    """How long it is simulated, unless the user says otherwise."""
    troubles: tuple[Trouble, ...]


def _alone(kind: str, about: str) -> Scenario:
    return Scenario(kind, about, 1.0, (Trouble(kind, 0.25, 7 / 12),))


SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (
        _alone(OUTAGE, "a provider is down for 20 minutes of the hour"),
        _alone(SLOW, "a provider takes six times as long for 20 minutes of the hour"),
        _alone(POISON, "one agent in a hundred fails at most of what it does, one breaks a rule"),
        _alone(BURN, "one agent in a hundred spends fifty times as much, as fast as it can"),
        _alone(CONVOY, "whoever gets one lock in ten keeps it for 90 s; the others queue up"),
        Scenario(
            "day",
            "all of them over a day: 30 to 60 minutes each, at 3, 9, 13, 16 and 20 h",
            24.0,
            (
                Trouble(SLOW, 3 / 24, 3.67 / 24),
                Trouble(OUTAGE, 9 / 24, 9.5 / 24),
                Trouble(POISON, 13 / 24, 14 / 24),
                Trouble(BURN, 16 / 24, 17 / 24),
                Trouble(CONVOY, 20 / 24, 20.67 / 24),
            ),
        ),
    )
}
"""The scenarios by name."""
