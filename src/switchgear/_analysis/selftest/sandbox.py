"""Where attacks take place: the user's configuration over stores of our own, on virtual time."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from switchgear._analysis.selftest.virtual_fleet import VirtualFleet
from switchgear._analysis.selftest.virtual_hooks import EPOCH_S, VirtualHooks
from switchgear._config import Config
from switchgear._core.errors import LockTimeout, Rejected
from switchgear._core.policy import Policy
from switchgear._core.types import Mode, Reading
from switchgear._panel.panel import Panel
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock

FAILURES = (
    *("consecutive_failures", "failure_rate", "failure_share", "failures_in_window"),
    "same_error",
)
"""The detectors that see calls fail."""
LOOPS = ("same_tool", "tool_flood", "actions_debt", "stuck_probability")
"""The detectors that see the same call again and again."""
SLOW = ("slow_calls", "slow_call_share", "latency_p95")
"""The detectors that see calls take long."""
PATIENCE = 1000
"""Calls or iterations after which a guard that has not fired will not."""


OVERLOADED = "529 overloaded"
"""What a dead provider says."""


class ProviderDown(Exception):
    """What a guarded call raises in an attack: the answer of an overloaded provider."""

    status_code = 529


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

    def fleet(self) -> VirtualFleet:
        """A new fleet with the configured agents and breakers."""
        clock = FakeClock(EPOCH_S)
        return VirtualFleet(self.config, MemoryStore(clock=clock), clock)

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


class Waited(NamedTuple):
    """What came of waiting for a lock that stays."""

    looks: int
    ended: Exception | None
    """`None`: it was had, though another has it."""


def lock_in_vain(panel: Panel, clock: FakeClock) -> Waited:
    """One keeps the lock `selftest`, another waits for it, for a day at most."""
    panel.lock("selftest", owner="the one who stays", lease_s=1e6).acquire()
    looks = 0

    def wait(seconds: float) -> None:
        nonlocal looks
        looks += 1
        clock.advance(max(5.0, seconds))

    waiting = panel.locks.lock("selftest", owner="who waits", timeout_s=24 * 3600.0, sleep=wait)
    try:
        waiting.acquire()
    except (LockTimeout, Rejected) as error:
        return Waited(looks, error)
    return Waited(looks, None)
