"""The fleet's breakers do not flap: a partly recovered dependency stays refused, longer each time."""

import pytest

from switchgear import Phase, Signal
from switchgear._config import preset_policy
from switchgear._core import policy as policies
from switchgear._core.machine import step
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Acquire, Record
from switchgear._fleet.categories import default_breakers, external_dep, latency

DAY_S = 86_400.0


def moves(policy: Policy, bad: Signal, heals_at_s: float) -> list[tuple[float, Phase]]:
    """A dependency that fails until it recovers; called every ten seconds for a day."""
    circuit = policy.start("k", 0.0)
    seen: list[tuple[float, Phase]] = []
    now_s = 0.0
    while now_s < DAY_S:
        now_s += 10.0
        asked = step(policy, circuit, Acquire(), now_s)
        told = asked
        if asked.verdict.admitted:
            result = bad if now_s < heals_at_s else Signal(ok=True, seconds=1.0)
            told = step(policy, asked.circuit, Record(result, asked.verdict.permit), now_s)
        events = asked.events if told is asked else (*asked.events, *told.events)
        seen += [(event.at_s, event.after) for event in events]
        circuit = told.circuit
    return seen


@pytest.mark.parametrize(
    ("policy", "bad"),
    [
        (preset_policy("failure_rate"), Signal(ok=False, seconds=1.0)),
        (external_dep(max_cooldown_seconds=3600).policy, Signal(ok=False, seconds=1.0)),
        (latency(admit=0.0).policy, Signal(ok=True, seconds=400.0)),  # cut, to see the probes alone
    ],
    ids=["failure_rate", "external_dep", "latency"],
)
def test_a_day_of_outage_is_a_few_probes_and_not_hundreds(policy: Policy, bad: Signal) -> None:
    steady = moves(policy, bad, heals_at_s=DAY_S / 2)
    recovery = policy.recovery
    assert isinstance(recovery, Cooldown)
    without = policy.replace(recovery=recovery.replace(factor=1.0, max_s=recovery.base_s))
    flapping = moves(without, bad, heals_at_s=DAY_S / 2)

    def probes(seen: list[tuple[float, Phase]]) -> int:
        return sum(phase is Phase.HALF_OPEN for _, phase in seen)

    assert probes(steady) <= 20
    assert probes(flapping) > 4 * probes(steady), "without the backoff it would flap"
    assert steady[-1][1] is Phase.CLOSED
    assert steady[-1][0] - DAY_S / 2 <= 3600.0, "and it is back within the longest wait"
    gaps = [later - now for (now, _), (later, _) in zip(steady[:-1], steady[1:], strict=True)]
    assert max(gaps) <= 3610.0


def test_a_provider_is_probed_every_two_minutes_and_used_again_within_two_minutes() -> None:
    """All agents wait for it, and one probe decides for all: see decision 42."""
    policy = preset_policy("external_dep")
    seen = moves(policy, Signal(ok=False, seconds=1.0), heals_at_s=DAY_S / 2)
    tried = [at_s for at_s, phase in seen if phase is Phase.HALF_OPEN]
    waits = {later - now for now, later in zip(tried[:-1], tried[1:], strict=True)}
    assert waits == {120.0}
    assert tried[0] - seen[0][0] == 60.0
    assert seen[-1][1] is Phase.CLOSED
    assert seen[-1][0] - DAY_S / 2 <= 120.0


def test_an_agent_that_overspends_again_is_halted_longer_each_time() -> None:
    policy = preset_policy("budget")
    circuit = policy.start("agent/coder", 0.0)
    now_s, waits = 0.0, []
    for _ in range(5):
        probe = step(policy, circuit, Acquire(), now_s)
        assert probe.verdict.admitted
        burnt = Signal(ok=False, cost_micros=5_000_000)
        circuit = step(policy, probe.circuit, Record(burnt, probe.verdict.permit), now_s).circuit
        assert circuit.phase is Phase.OPEN
        assert circuit.outage.retry_at_s is not None
        waits.append(circuit.outage.retry_at_s - now_s)
        now_s = circuit.outage.retry_at_s
    assert waits == [600.0, 1200.0, 2400.0, 3600.0, 3600.0]


@pytest.mark.parametrize("steady", [True, False])
def test_spending_around_the_warning_threshold_warns_once(
    monkeypatch: pytest.MonkeyPatch, *, steady: bool
) -> None:
    """A minute's spend goes to and fro between 73 and 77 % of the hard cap, for an hour."""
    if not steady:  # calm as soon as it is below, as without hysteresis
        monkeypatch.setattr(policies, "CALM_SHARE", 1.0)
    policy = default_breakers().budget.policy
    circuit = policy.start("agent/coder/budget", 0.0)
    seen: list[Phase] = []
    for call in range(720):
        cost = 5_000_000 // 12 * (73 if call // 12 % 2 else 77) // 100
        signal = Signal(ok=True, cost_micros=cost)
        told = step(policy, circuit, Record(signal), 5.0 * call)
        seen += [event.after for event in told.events]
        circuit = told.circuit
    if steady:
        assert seen == [Phase.TRIPPING]
    else:
        assert len(seen) > 20, "it would flap"
    calm = step(policy, circuit, Record(Signal(count=0)), 4000.0)
    assert calm.circuit.phase is Phase.CLOSED
