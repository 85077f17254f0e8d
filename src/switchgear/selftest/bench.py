"""Where attacks take place: the user's configuration over stores of our own, on virtual time."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from switchgear.config import Config
from switchgear.core.policy import Policy
from switchgear.core.types import Mode, Reading
from switchgear.panel import Panel
from switchgear.selftest.virtual_hooks import EPOCH_S, VirtualHooks
from switchgear.stores.memory import MemoryStore
from switchgear.testing import FakeClock

FAILURES = ("consecutive_failures", "failure_rate", "failures_in_window", "same_error")
"""The detectors that see calls fail."""
PATIENCE = 1000
"""Calls or iterations after which a guard that has not fired will not."""


OVERLOADED = "529 overloaded"
"""What a dead provider says."""


class ProviderDown(Exception):
    """What a guarded call raises in an attack."""


class Standing(NamedTuple):
    """A circuit of the user's that an operator holds, as it was found."""

    name: str
    mode: Mode
    by: str
    why: str


class Bench(NamedTuple):
    """What a self-test is given. It changes nothing of it."""

    config: Config
    root: str
    """The project."""
    store_url: str | None = None
    """The store that is configured; `None`: the default file."""
    held: tuple[Standing, ...] = ()
    """Circuits in the store whose mode is not `auto`."""
    token: str | None = None
    """The operator's token, for the live store."""

    def hooks(self) -> VirtualHooks:
        """A new session under the hooks of the configuration."""
        clock = FakeClock(EPOCH_S)
        return VirtualHooks(self.config, self.root, MemoryStore(clock=clock), clock)

    def panel(self) -> tuple[Panel, FakeClock]:
        """A new panel in memory with the configured policies."""
        clock = FakeClock(EPOCH_S)
        panel = Panel(
            MemoryStore(clock=clock),
            policies=self.config.policy_for,
            operator_token_sha256=self.config.operator_token_sha256,
            clock=clock,
        )
        return panel, clock


def watchers(policy: Policy, kinds: Iterable[str]) -> list[str]:
    """Which of these detectors a policy has."""
    wanted = set(kinds)
    return [detector.kind for detector in policy.detectors if detector.kind in wanted]


def hot(readings: Mapping[str, Reading]) -> str:
    """The detectors that trip, by their kinds."""
    return " + ".join(kind for kind, reading in readings.items() if reading.heat >= 1)


def blind(key: str, policy: Policy) -> str:
    """The sentence about a policy that does not watch for an attack."""
    kinds = ", ".join(detector.kind for detector in policy.detectors)
    return f"nothing that judges {key} watches for it, only {kinds}"
