"""The presets have the numbers of their specifications, and every key has an effect."""

import ast
import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from switchgear import Cooldown, Latched, Phase, Policy, Signal, WeightedSum, detectors
from switchgear._breaker import presets
from switchgear._breaker.presets import DESCRIPTIONS, PRESETS
from switchgear._config import ConfigError, load_config, preset_policy
from switchgear._core.machine import step
from switchgear._core.policy import WindowEnd
from switchgear._core.types import Acquire, AgentStep, Override, Record

SUCCESS = Record(Signal(ok=True, seconds=1.0))
FAILURE = Record(Signal(ok=False, seconds=1.0))


def test_provider_has_the_numbers_of_its_specification() -> None:
    policy = preset_policy("provider")
    assert policy == Policy([detectors.ConsecutiveFailures(5)], Cooldown(60, 300))
    waits = [policy.recovery.wait_s("k", failed, Signal(), 0.0) for failed in range(5)]
    assert waits == [60, 120, 240, 300, 300]


def test_operation_has_the_numbers_of_its_specification() -> None:
    policy = preset_policy("operation")
    assert policy.detectors == (detectors.FailuresInWindow(3, 60),)
    assert [policy.recovery.wait_s("k", failed, Signal(), 0.0) for failed in range(3)] == [30] * 3
    assert policy.recovery.probes == 1


def test_failure_rate_has_the_numbers_of_its_specification() -> None:
    policy = preset_policy("failure_rate")
    assert policy == Policy([detectors.FailureRate(20, 0.5)], Cooldown(300, 3600))
    waits = [policy.recovery.wait_s("k", failed, Signal(), 0.0) for failed in range(6)]
    assert waits == [300, 600, 1200, 2400, 3600, 3600]


def test_latency_has_the_numbers_of_its_specification_and_reduces_the_load() -> None:
    policy = preset_policy("latency")
    assert policy == Policy([detectors.LatencyP95(90, 3, 300, admit=0.5)], Cooldown(180, 3600))


def test_budget_has_the_numbers_of_its_specification() -> None:
    policy = preset_policy("budget")
    assert policy == Policy([detectors.Spend(5_000_000, 1.0, 60)], Cooldown(600, 3600))


def test_story_cost_pauses_above_one_and_a_half_budgets_until_it_is_resumed() -> None:
    policy = preset_policy("story_cost")
    assert policy == Policy([detectors.TotalCost(10_000_000, 1.5)], Latched())


def test_resource_lock_trips_on_a_wait_of_more_than_a_minute() -> None:
    policy = preset_policy("resource_lock")
    assert policy == Policy([detectors.LockWait(60)], Cooldown(60, 3600))


def test_a_rate_limit_opens_a_dependency_at_once_for_as_long_as_it_requests() -> None:
    policy = preset_policy("external_dep")
    circuit = policy.start("provider/anthropic", 0.0)
    limited = Record(Signal(ok=False, error="429", retry_after_s=17.0))
    circuit = step(policy, circuit, limited, 100.0).circuit
    assert (circuit.phase, circuit.outage.retry_at_s) == (Phase.OPEN, 117.0)


def test_an_outage_opens_a_dependency_after_three_failures_in_a_minute_with_backoff() -> None:
    policy = preset_policy("external_dep")
    circuit = policy.start("provider/anthropic", 0.0)
    for at_s in (0.0, 20.0, 40.0):
        assert circuit.phase is Phase.CLOSED
        circuit = step(policy, circuit, FAILURE, at_s).circuit
    assert (circuit.phase, circuit.outage.retry_at_s) == (Phase.OPEN, 100.0)
    asked = step(policy, circuit, Acquire(), 100.0)
    failed = step(policy, asked.circuit, Record(FAILURE.signal, asked.verdict.permit), 101.0)
    assert failed.circuit.outage.retry_at_s == 101.0 + 120.0


def test_failures_among_many_successes_are_noise_and_not_an_outage() -> None:
    policy = preset_policy("external_dep")
    circuit = policy.start("provider/anthropic", 0.0)
    for now_s in range(60):
        circuit = step(policy, circuit, Record(Signal(ok=True, count=4)), float(now_s)).circuit
        circuit = step(policy, circuit, FAILURE, float(now_s)).circuit
        assert circuit.phase is Phase.CLOSED
    failures = 0
    while circuit.phase is Phase.CLOSED:
        circuit = step(policy, circuit, FAILURE, 60.0).circuit
        failures += 1
    assert failures == 8
    assert circuit.outage.reason == (
        "score 2 (trips at 2): 3 failures in 60 s, 10 s apart (threshold 3) (+1); "
        "11 of the last 20 calls failed (55%, threshold 50%) (+1)"
    )


def test_the_first_failures_of_a_starting_fleet_do_not_open_the_circuit() -> None:
    """One call in twenty fails, in a second; the others take half a minute to succeed."""
    policy = preset_policy("external_dep")
    circuit = policy.start("provider/anthropic", 0.0)
    for at_s in range(1, 15):
        circuit = step(
            policy, circuit, Record(Signal(ok=False, seconds=1.0, count=5)), at_s
        ).circuit
    for at_s in range(15, 90):
        circuit = step(
            policy, circuit, Record(Signal(ok=True, seconds=30.0, count=95)), at_s
        ).circuit
        circuit = step(
            policy, circuit, Record(Signal(ok=False, seconds=1.0, count=5)), at_s
        ).circuit
        assert circuit.phase is Phase.CLOSED


def test_calls_that_hung_and_failed_together_are_an_outage_at_once() -> None:
    policy = preset_policy("external_dep")
    circuit = policy.start("provider/anthropic", 0.0)
    hung = Record(Signal(ok=False, seconds=30.0, count=3))
    assert step(policy, circuit, hung, 30.0).circuit.phase is Phase.OPEN


def test_constitutional_halts_at_the_first_broken_rule_until_it_is_reset() -> None:
    policy = preset_policy("constitutional")
    circuit = policy.start("rules", 0.0)
    broken = Record(Signal(violation="rule force-push: git push -f"))
    circuit = step(policy, circuit, broken, 1.0).circuit
    assert (circuit.phase, circuit.outage.retry_at_s) == (Phase.OPEN, None)
    assert circuit.outage.reason == "rule force-push: git push -f"
    assert not step(policy, circuit, Acquire(), 1e9).verdict.admitted
    reset = Override("ada", "a mistake", reset=True)
    assert step(policy, circuit, reset, 1e9).circuit.phase is Phase.CLOSED


@pytest.mark.parametrize(("name", "limit"), [("careful", 16), ("default", 9), ("eager", 7.5)])
def test_a_progress_preset_warns_before_it_stops_and_stops_for_good(
    name: str, limit: float
) -> None:
    assert preset_policy(name) == Policy([detectors.Stagnation(limit)], Latched(), tripping_at=0.7)


def test_the_default_is_the_detector_as_it_comes_and_has_a_former_name() -> None:
    assert preset_policy("default").detectors == (detectors.Stagnation(),)
    assert preset_policy("ledger") == preset_policy("default")


def test_the_preset_progress_is_the_default_with_escalation_steps() -> None:
    policy, default = preset_policy("progress"), preset_policy("default")
    assert policy == Policy(default.detectors, WindowEnd(0.001), tripping_at=0.7)


def test_stuck_has_the_weights_and_thresholds_of_its_specification() -> None:
    policy = preset_policy("stuck")
    assert isinstance(policy.combine, WeightedSum)
    assert policy.combine.threshold == 60
    assert dict(policy.combine.weights) == {
        "silence": 30,
        "same_tool": 40,
        "tool_flood": 50,
        "same_error": 60,
        "context_burn": 20,
    }
    assert policy.detectors == (
        detectors.Silence(120),
        detectors.SameTool(5),
        detectors.ToolFlood(20),
        detectors.SameError(4, "consecutive"),  # more than three
        detectors.ContextBurn(0.05, 60),
    )


def test_every_preset_has_one_line_about_it() -> None:
    assert DESCRIPTIONS.keys() == PRESETS.keys()
    assert all(line.endswith(".") and "\n" not in line for line in DESCRIPTIONS.values())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_can_be_written_in_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "switchgear.yaml"
    path.write_text(f"policies: {{mine: {PRESETS[name]!r}}}")
    assert load_config(path).policies["mine"] == preset_policy(name)


def test_presets_are_data_only() -> None:
    tree = ast.parse(Path(presets.__file__).read_text(encoding="utf-8"))
    [table] = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "PRESETS"
    ]
    logic = (ast.Call, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.comprehension)
    assert not [node for node in ast.walk(table) if isinstance(node, logic)]


# Every key is alive


def conduct(policy: Policy) -> list[Any]:
    """The behaviour of a circuit under this policy in a few histories that cover every rule."""
    seen: list[Any] = []
    for count, gap_s, seconds in (
        *((n, 0.1, 1.0) for n in (2, 3, 4, 5, 9, 10, 11, 20, 40)),
        *((n, 20.0, 1.0) for n in (3, 4, 6, 14)),  # failures that leave a window of 60 s
        *((25, 0.1, seconds) for seconds in (100.0, 200.0, 271.0, 400.0)),
        (25, 20.0, 400.0),  # slow calls that leave a window of 300 s
    ):
        seen.append(_story(policy, count, gap_s, Signal(ok=seconds > 1, seconds=seconds)))
    for count, gap_s, fact in (
        *((n, 0.1, Signal(ok=True, cost_micros=1_000_000)) for n in (3, 4, 5, 6, 7)),
        (7, 15.0, Signal(ok=True, cost_micros=1_000_000)),  # spending that leaves a window of 60 s
        *((n, 0.1, Signal(cost_micros=cost)) for n in (15, 16) for cost in (1_000_000, 600_000)),
        *((1, 0.1, Signal(cost_micros=15_000_000 + more)) for more in (0, 1, 2)),
        (1, 0.1, Signal(cost_micros=4_999_999)),
        (1, 0.1, Signal(cost_micros=5_000_000)),
        *((1, 0.1, Signal(ok=True, waited_s=waited_s)) for waited_s in (36.0, 40.0, 60.0, 61.0)),
        *((n, 0.1, Signal(ok=False, retry_after_s=7.0)) for n in (1, 2)),
        (1, 0.1, Signal(violation="rule force-push")),
    ):
        seen.append(_story(policy, count, gap_s, fact))
    seen += [_tale(policy, acts) for acts in TALES]
    seen += [_rounds(policy, results) for results in ("ffff", "fssfsss", "sssss", "ssssfff")]
    for gap_s, seconds in (
        (1.0, 7.0),
        (1.0, 11.0),
        (1.0, 15.0),
        (4.0, 15.0),
        (5.0, 15.0),
        (7.0, 15.0),
    ):
        calls = [(gap_s, Signal(ok=True, seconds=seconds))] * 16
        seen.append(_agents_story(policy, calls))
        mixed = [(gap_s, Signal(ok=bool(number % 3), seconds=1.0)) for number in range(40)]
        mixed += [(gap_s, Signal(ok=False, seconds=1.0))] * 14
        seen.append(_agents_story(policy, mixed))
    return [*seen, *(_agents_story(policy, story) for story in AGENTS)]


def _rounds(policy: Policy, results: str) -> list[Any]:
    """The number of concurrent probes and the effect of their results, round after round."""
    circuit, now_s, seen = policy.start("k", 0.0), 0.0, list[Any]()
    circuit = step(policy, circuit, Record(Signal(ok=False, seconds=1.0, count=40)), now_s).circuit
    for _ in range(7):
        if circuit.outage.retry_at_s is None:
            break
        now_s = circuit.outage.retry_at_s
        for result in results:
            permits = []
            for _ in range(9):
                asked = step(policy, circuit, Acquire(), now_s)
                circuit = asked.circuit
                permits.append(asked.verdict.permit)
            seen.append((circuit.phase, sum(permit is not None for permit in permits)))
            told = (
                Record(Signal(ok=result == "s", seconds=1.0), circuit.probing.permits[0])
                if circuit.probing.permits
                else Record(Signal(count=0))
            )
            circuit = step(policy, circuit, told, now_s).circuit
        seen.append((circuit.phase, circuit.outage.retry_at_s))
    return seen


def _tale(policy: Policy, acts: list[Signal]) -> list[Phase]:
    """The state of a circuit after each step of an agent."""
    circuit, seen = policy.start("k", 0.0), []
    for at_s, signal in enumerate(acts):
        circuit = step(policy, circuit, Record(signal), float(at_s)).circuit
        seen.append(circuit.phase)
    return seen


CALL, FAILED = (
    Signal(ok=True, step=AgentStep("Bash", "ls", "a")),
    Signal(ok=False, error="no such table"),
)
AGENTS: tuple[list[tuple[float, Signal]], ...] = (
    [(0.0, Signal(idle_s=idle_s)) for idle_s in (60.0, 100.0, 130.0, 180.0)],
    [(0.1, CALL)] * 8,
    [(0.1, Signal(ok=False, step=AgentStep("Bash", "make", "no rule")))] * 20,
    [(0.1, Signal(ok=True, step=AgentStep("Read", str(number)))) for number in range(23)],
    [(0.1, FAILED)] * 6,
    [(0.1, FAILED), (0.1, FAILED), (0.1, FAILED), (0.1, CALL), (0.1, FAILED)],
    [(50.0, Signal(context_used=used)) for used in (0.0, 0.05, 0.07, 0.09, 0.17, 0.25)],
)
"""What agents do that are silent, repeat themselves, get nowhere, fail alike, and fill up."""


def _agents_story(policy: Policy, story: list[tuple[float, Signal]]) -> list[Any]:
    now_s, seen = 0.0, list[Any]()
    circuit = policy.start("k", now_s)
    for gap_s, signal in story:
        now_s += gap_s
        circuit = step(policy, circuit, Record(signal), now_s).circuit
        seen.append((circuit.phase, circuit.heat, circuit.outage.retry_at_s))
    return seen


def sentence(number: int, words: int = 5) -> str:
    """A sentence with words that no other sentence has."""
    return " ".join(chr(97 + number % 26) * 2 + chr(97 + word) * 3 for word in range(words))


def agent(thought: str, args: str, result: str, *, ok: bool = True) -> Signal:
    return Signal(ok=ok, step=AgentStep("bash", args, result, thought))


TALES: list[list[Signal]] = [
    # The same thoughts again after so many others, while something new comes back each time.
    *([agent(sentence(n % cycle), "look", f"line {n}") for n in range(60)] for cycle in (1, 8, 9)),
    # The same thought with new words in what it does, and one that resembles it by a third.
    [agent("the same again", f"do {sentence(n, 8)}", f"line {n}") for n in range(26)],
    [agent(f"one two three {sentence(n, 3)}", "look", f"line {n}") for n in range(26)],
    # Actions that differ in numbers, which are new words, and failing ones with new words; the same
    # reply after so many others.
    [agent("", f"look at a{n} b{n} c{n} d{n}", "as ever") for n in range(26)],
    [agent("", f"try {sentence(n, 3)}", "no", ok=False) for n in range(26)],
    *([Signal(step=AgentStep("", sentence(n % cycle))) for n in range(60)] for cycle in (1, 8, 9)),
    [Signal(step=AgentStep("", f"one two three {sentence(n, 3)}")) for n in range(26)],
    [agent("", "make", "no", ok=False)] * 20,
    [agent("", "make", "yes")] * 20,
]
"""What agents do, to touch every rule of the debts."""


def _story(policy: Policy, count: int, gap_s: float, bad: Signal) -> list[Any]:
    """Successes, then what is bad, then probes that fail, with two callers at a time."""
    now_s = 0.0
    circuit = policy.start("k", now_s)
    seconds = bad.seconds or 1.0
    seen: list[Any] = []
    for message in (*[SUCCESS] * 10, *[Record(bad)] * count):
        now_s += gap_s
        circuit = step(policy, circuit, message, now_s).circuit
        seen.append((circuit.phase, circuit.outage.admit, circuit.outage.retry_at_s))
    for _ in range(7):
        if circuit.outage.retry_at_s is None:
            break
        now_s = max(now_s, circuit.outage.retry_at_s)
        first = step(policy, circuit, Acquire(), now_s)
        second = step(policy, first.circuit, Acquire(), now_s)
        seen.append((first.verdict.admitted, second.verdict.admitted))
        result = Record(Signal(ok=False, seconds=seconds), first.verdict.permit)
        circuit = step(policy, second.circuit, result, now_s).circuit
        seen.append((circuit.phase, circuit.outage.retry_at_s))
    return seen


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all numbers in a preset."""
    if isinstance(value, str):
        return []  # a part without fields
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key], (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [] if isinstance(value, str) else [path]


def changed(preset: dict[str, Any], path: tuple[Any, ...], share: float) -> dict[str, Any]:
    """The preset with one number a little higher or lower."""
    other = copy.deepcopy(preset)
    place: Any = other
    for part in path[:-1]:
        place = place[part]
    number = place[path[-1]]
    if isinstance(number, str):
        place[path[-1]] = {"consecutive": "total"}[number]
        return other
    is_whole = isinstance(number, int)
    place[path[-1]] = number + (1 if share > 1 else -1) if is_whole else number * share
    return other


def conduct_with(preset: dict[str, Any]) -> list[Any] | None:
    """What a circuit does under this; `None` where it is not allowed, such as a base above the maximum."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "changed", preset)
        try:
            return conduct(preset_policy("changed"))
        except ConfigError:
            return None


@cache
def unchanged(name: str) -> list[Any] | None:
    return conduct_with(PRESETS[name])


KEYS = [(name, path) for name in PRESETS for path in leaves(PRESETS[name])]


@pytest.mark.parametrize(
    ("name", "path"), KEYS, ids=lambda part: part if isinstance(part, str) else str(part[-1])
)
def test_every_key_of_a_preset_changes_what_the_circuit_does(
    name: str, path: tuple[Any, ...]
) -> None:
    before = unchanged(name)
    after = (conduct_with(changed(PRESETS[name], path, share)) for share in (0.6, 1.4))
    assert before is not None
    assert any(other not in (None, before) for other in after)


def test_the_histories_reach_every_phase() -> None:
    phases = {
        entry[0]
        for name in PRESETS
        for story in conduct(preset_policy(name))
        for entry in story
        if isinstance(entry[0], Phase)
    }
    assert {Phase.CLOSED, Phase.OPEN} <= phases
