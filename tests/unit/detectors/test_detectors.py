"""Each detector by hand: its defaults, its reason, its exact limit, and what it refuses."""

import pickle
from functools import partial
from typing import Any

import pytest

from switchgear import _detectors
from switchgear._core.detector import Detector
from switchgear._core.policy import (
    AnyDetector,
    Combine,
    Cooldown,
    Latched,
    Policy,
    Recovery,
    WeightedSum,
    counts_calls,
)
from switchgear._core.types import Reading, Signal
from switchgear._detectors import (
    ConsecutiveFailures,
    FailureRate,
    FailuresInWindow,
    LatencyP95,
    SlowCalls,
)
from switchgear._text.formats import CENTURY_S, plural, span

BAD, GOOD = Signal(ok=False), Signal(ok=True)


def after(detector: Detector, *signals: Signal, at_s: float = 0.0) -> Reading:
    memory = detector.start()
    for signal in signals:
        memory = detector.fold(memory, signal, at_s)
    return Reading(detector.heat(memory, at_s), detector.reason(memory, at_s))


def took(seconds: float, count: int = 1) -> Signal:
    return Signal(ok=True, seconds=seconds, count=count)


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (partial(ConsecutiveFailures), {"threshold": 5}),
        (partial(FailureRate), {"window": 20, "threshold": 0.5, "min_calls": 20}),
        (partial(FailuresInWindow), {"threshold": 3, "window_s": 60.0, "apart_s": 0.0}),
        (
            partial(LatencyP95, 9.0),
            {
                "baseline_s": 9.0,
                "multiplier": 3.0,
                "window_s": 300.0,
                "min_calls": 20,
                "admit": 0.5,
            },
        ),
        (
            partial(SlowCalls, 9.0),
            {"slow_s": 9.0, "window": 20, "threshold": 0.5, "min_calls": 20, "admit": 0.0},
        ),
    ],
    ids=lambda part: getattr(getattr(part, "func", None), "kind", ""),
)
def test_the_defaults_are_those_of_the_documentation(
    made: "partial[Detector]", fields: dict[str, object]
) -> None:
    detector = made()
    assert detector.fields() == fields
    assert pickle.loads(pickle.dumps(detector)) == detector
    assert detector.replace() == detector
    assert hash(detector.replace()) == hash(detector)


def test_failures_are_counted_in_a_row() -> None:
    detector = ConsecutiveFailures(3)
    assert after(detector, BAD, BAD) == Reading(2 / 3, "2 failures in a row (threshold 3)")
    assert after(detector, BAD, GOOD, BAD) == Reading(1 / 3, "1 failure in a row (threshold 3)")
    assert after(detector, BAD._replace(count=3)).heat == 1.0
    assert after(detector, BAD, GOOD._replace(count=0)).heat == 1 / 3
    assert detector.load(0) == 0
    with pytest.raises(ValueError, match="failures in a row is -1"):
        detector.load(-1)


def test_failures_are_counted_within_a_time_window() -> None:
    detector = FailuresInWindow(3, 60.0)
    memory = detector.fold(detector.start(), BAD, 10.0)
    memory = detector.fold(detector.fold(memory, GOOD, 20.0), BAD, 30.0)
    assert detector.reason(memory, 69.9) == "2 failures in 60 s (threshold 3)"
    assert detector.reason(memory, 70.0) == "1 failure in 60 s (threshold 3)"
    assert detector.heat(detector.fold(memory, BAD, 69.0), 69.0) == 1.0
    assert detector.heat(detector.fold(memory, BAD, 70.0), 70.0) == 2 / 3
    assert detector.load([1.0, 2.0, 3.0, 4.0]).dump() == [2.0, 3.0, 4.0]


def test_the_share_of_failures_must_be_more_than_the_threshold() -> None:
    detector = FailureRate(4)
    early = "2 of 3 calls failed (threshold 50%, from 4 calls on)"
    assert after(detector, GOOD, BAD, BAD) == Reading(2 / 3, early)
    assert after(detector, BAD, BAD, BAD).heat == 0.999, "it warns, and cannot trip yet"
    half = "2 of the last 4 calls failed (50%, threshold 50%)"
    assert after(detector, GOOD, BAD, BAD, GOOD) == Reading(2 / 3, half)
    assert after(detector, GOOD, BAD, BAD, BAD).heat == 1.0
    assert after(FailureRate(100, 0.29), BAD._replace(count=29), GOOD._replace(count=71)).heat < 1
    assert after(FailureRate(4, 0.0, 1), BAD).heat == 1.0


def test_the_share_of_slow_calls_must_be_more_than_the_threshold() -> None:
    detector = SlowCalls(10.0, 2, 0.4, admit=0.25)
    reason = "1 of the last 2 calls took longer than 10 s (50%, threshold 40%)"
    assert after(detector, took(10.0), took(10.1)) == Reading(1.0, reason)
    assert after(detector, took(10.0), took(10.0)).heat == 0.0
    assert detector.slow_from_s == 10.0
    assert detector.objection(took(10.0)) is None
    assert detector.objection(took(10.5)) == "took 10.5 s, longer than 10 s"


def test_the_p95_is_compared_with_a_baseline() -> None:
    detector = LatencyP95(2.0)
    assert (detector.limit_s, detector.slow_from_s) == (6.0, 6.0)
    assert after(detector, took(9.0, 19)) == Reading(0.0, "19 of the 20 calls needed to judge")
    reason = "1 of 20 calls in 300 s took longer than 6 s (3 x baseline), 1 may"
    assert after(detector, took(6.0, 19), took(6.1)) == Reading(0.5, reason)
    assert after(detector, took(6.0, 18), took(6.1, 2)).heat == 1.0
    assert detector.objection(took(6.0)) is None
    assert detector.objection(took(7.5)) == "took 7.5 s, longer than 6 s"
    memory = detector.fold(detector.start(), took(1.0), 5.0)
    assert LatencyP95(2.0, window_s=30.0).load(detector.dump(memory)).total == 0
    assert detector.fold(memory, took(1.0, 0), 900.0) is memory


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"window_s": 300.0},
        {"slices": [[0, 0, 0]]},
        {"window_s": 300.0, "slices": [[0, 0, 0]], "more": 1},
        {"window_s": "300", "slices": [[0, 0, 0]]},
        {"window_s": 0, "slices": [[0, 0, 0]]},
        {"window_s": 30.0, "slices": [[0, 0, 1]]},
    ],
    ids=repr,
)
def test_an_invalid_dump_of_a_p95_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        LatencyP95(2.0).load(data)


def test_a_unit_is_singular_for_one_and_plural_otherwise() -> None:
    assert [plural(count, "call") for count in range(3)] == ["0 calls", "1 call", "2 calls"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConsecutiveFailures(0), "ConsecutiveFailures.threshold is 0"),
        (lambda: ConsecutiveFailures(2**63), f"ConsecutiveFailures.threshold is {2**63}: it must"),
        (lambda: ConsecutiveFailures(True), "ConsecutiveFailures.threshold is True"),
        (lambda: FailuresInWindow(0), "FailuresInWindow.threshold is 0"),
        (lambda: FailuresInWindow(3, 0.0), "FailuresInWindow.window_s is 0.0"),
        (lambda: FailuresInWindow(3, 60.0, -1.0), "FailuresInWindow.apart_s is -1.0"),
        (lambda: FailuresInWindow(3, 60.0, 30.0), "FailuresInWindow.apart_s is 30.0"),
        (lambda: FailureRate(0), "FailureRate.window is 0"),
        (lambda: FailureRate(5, -0.1), "FailureRate.threshold is -0.1"),
        (
            lambda: FailureRate(5, 1.0),
            "FailureRate.threshold is 1.0: it must be at least 0 and bel",
        ),
        (lambda: FailureRate(5, 0.5, 6), "FailureRate.min_calls is 6: it must not be above window"),
        (lambda: FailureRate(5, 0.5, 0), "FailureRate.min_calls is 0"),
        (lambda: SlowCalls(0.0), "SlowCalls.slow_s is 0.0"),
        (lambda: SlowCalls(1.0, admit=1.0), "SlowCalls.admit is 1.0"),
        (lambda: SlowCalls(1.0, admit=-0.5), "SlowCalls.admit is -0.5"),
        (lambda: LatencyP95(-1.0), "LatencyP95.baseline_s is -1.0"),
        (lambda: LatencyP95(1.0, 0.9), "LatencyP95.multiplier is 0.9"),
        (lambda: LatencyP95(1.0, window_s=0.0), "LatencyP95.window_s is 0.0"),
        (
            lambda: LatencyP95(1.0, window_s=1e-320),
            "LatencyP95.window_s is 1e-320: it must be at least 1e-06 seconds",
        ),
        (lambda: LatencyP95(1e308), "LatencyP95.baseline_s is 1e+308: times multiplier, 3.0, it"),
        (lambda: WeightedSum({}), "WeightedSum.weights is {}: it must map kinds of detectors to"),
        (lambda: WeightedSum(7), "WeightedSum.weights is 7: it must map kinds"),  # type: ignore[arg-type]
        (
            lambda: WeightedSum({1: 1, "a": 2}),  # type: ignore[dict-item]
            "WeightedSum.weights is {1: 1, 'a': 2}: it must map kinds of detectors to weights",
        ),
        (
            lambda: WeightedSum({"a": 60}, alone_from=0.0),
            "WeightedSum.alone_from is 0.0: it must be above 0 and at most 1",
        ),
        (lambda: LatencyP95(1.0, min_calls=0), "LatencyP95.min_calls is 0"),
        (lambda: LatencyP95(1.0, admit=1.0), "LatencyP95.admit is 1.0"),
    ],
)
def test_a_bad_field_is_refused_by_name_and_value(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        make()
    assert str(refused.value).startswith(message)


def test_the_limits_themselves_are_allowed() -> None:
    assert FailureRate(1, 0.0, 1).min_calls == 1
    assert ConsecutiveFailures(2**63 - 1).threshold == 2**63 - 1
    assert LatencyP95(1.0, 1.0, admit=0.0, min_calls=1).admit == 0.0
    assert FailureRate(5, 0.5, 5).min_calls == 5


# Policies

TWO: Any = [ConsecutiveFailures(2), FailureRate(4)]
ANY: Any = Policy  # to call it as its types forbid


def test_any_detector_gives_the_reason_of_the_hottest_or_of_the_first_that_is_as_hot() -> None:
    hot, warm, also = Reading(2.0, "hot"), Reading(1.0, "warm"), Reading(2.0, "xx as hot")
    for readings in ((hot, warm), (warm, hot), (hot, also), (warm, hot, also)):
        assert AnyDetector().reason((), readings) == "hot"


def test_the_strictest_detector_is_one_that_trips_and_the_first_of_equal_ones() -> None:
    slow = SlowCalls(9.0, admit=0.5)
    pair = (ConsecutiveFailures(4), slow)
    readings = (Reading(0.5, "half"), Reading(1.0, "slow"))
    assert AnyDetector().strictest(pair, readings) == "slow"
    assert AnyDetector().strictest((slow, slow), (Reading(1.0, "a"), Reading(1.0, "b"))) == "a"


@pytest.mark.parametrize(("weight", "trips"), [(60.0, True), (59.5, False)])
def test_a_detector_that_counts_alone_adds_nothing_to_the_weights(
    weight: float, trips: bool
) -> None:
    rule = WeightedSum({"failure_rate": weight}, alone_from=0.5)
    if trips:
        assert Policy(TWO, combine=rule).combine == rule
        return
    with pytest.raises(ValueError, match=r"must not be above the sum of the weights, 59\.5"):
        Policy(TWO, combine=rule)


@pytest.mark.parametrize(
    ("threshold", "heats", "reason"),
    [
        (60.0, (0.25, 0.75, 0.5), "score 45 (trips at 60): one"),
        (60.0, (0.25, 0.75, 0.75), "score 45 (trips at 60): one"),
        (60.0, (0.25, 0.5, 0.75), "score 45 (trips at 60): two"),
        (10.0, (0.25, 0.75, 0.5), "score 8 (trips at 10): one"),
        (9.5, (0.25, 0.75, 0.5), "score 7.125 (trips at 9.5): one"),
        (5.0, (0.25, 0.75, 0.5), "score 3.75 (trips at 5): one"),
        (60.0, (1.0, 1.0, 0.5), "weighted"),
        (60.0, (1.0, 1.5, 0.5), "one"),
        (60.0, (0.25, 0.25, 0.25), "score 0 (trips at 60)"),
    ],
)
def test_the_reason_of_a_sum_is_the_one_of_what_is_hotter(
    threshold: float, heats: tuple[float, ...], reason: str
) -> None:
    rule = WeightedSum({"consecutive_failures": threshold}, threshold, alone_from=0.5)
    readings = [
        Reading(heat, why) for heat, why in zip(heats, ("weighted", "one", "two"), strict=True)
    ]
    assert rule.reason([*TWO, SlowCalls(9.0)], readings) == reason


def test_the_defaults_of_a_policy() -> None:
    policy = Policy(TWO)
    assert policy == Policy(tuple(TWO), Cooldown(), AnyDetector(), None)
    assert policy.slow_from_s is None
    assert policy.admit(policy.fresh_memories(), 0.0) == 0.0
    assert Policy([*TWO, SlowCalls(9.0), LatencyP95(2.0)]).slow_from_s == 6.0
    assert WeightedSum({"failure_rate": 60}).threshold == 60.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Policy([]),
            "Policy.detectors is empty: it must hold at least one of ConsecutiveFailures",
        ),
        (lambda: ANY("abc"), "Policy.detectors is 'abc': it must be a list of detectors"),
        (lambda: ANY(TWO[0]), "Policy.detectors is ConsecutiveFailures(threshold=2): it must"),
        (lambda: ANY({1}), "Policy.detectors is {1}: it must be a list"),
        (lambda: ANY([*TWO, "x"]), "Policy.detectors[2] is 'x': it must be a detector such as"),
        (lambda: ANY(TWO, recovery="x"), "Policy.recovery is 'x': it must be a Cooldown, Win"),
        (lambda: ANY(TWO, combine="x"), "Policy.combine is 'x': it must be an AnyDetector or"),
        (lambda: Policy(TWO, tripping_at=0.0), "Policy.tripping_at is 0.0: it must be above 0 and"),
        (lambda: Policy(TWO, tripping_at=1.0), "Policy.tripping_at is 1.0: it must be above 0 and"),
        (lambda: Policy(TWO, tripping_at=-1), "Policy.tripping_at is -1: it must be above 0"),
        (lambda: Policy(TWO, tripping_at=2), "Policy.tripping_at is 2: it must be above 0"),
        (
            lambda: Policy(TWO, combine=WeightedSum({"failure_rate": 60})),
            "WeightedSum.weights has no weight for the detector 'consecutive_failures'",
        ),
        (
            lambda: Policy(TWO[:1], combine=WeightedSum({"consecutive_failures": 60, "x": 1})),
            "WeightedSum.weights names 'x', and the policy has no such detector",
        ),
        (
            lambda: Policy(TWO[:1], combine=WeightedSum({"consecutive_failures": 59.9})),
            "WeightedSum.threshold is 60: it must not be above the sum of the weights, 59.9",
        ),
        (lambda: WeightedSum({"x": 0}), "WeightedSum.weights['x'] is 0: it must be a finite"),
        (lambda: WeightedSum({"x": 1}, 0), "WeightedSum.threshold is 0: it must be a finite"),
    ],
)
def test_a_bad_policy_is_refused_by_name_and_value(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        make()
    assert str(refused.value).startswith(message)


def test_weights_add_up_as_they_are_written() -> None:
    combine = WeightedSum({"failure_rate": 0.7, "consecutive_failures": 0.1}, 0.8)
    policy = Policy([FailureRate(1), ConsecutiveFailures(1)], combine=combine)
    both = policy.fold(policy.fresh_memories(), Signal(ok=False), 0.0)
    assert policy.heat(both, 0.0) == 1.0
    with pytest.raises(ValueError, match=r"threshold is 0\.801: it must not be above the sum"):
        Policy(policy.detectors, combine=combine.replace(threshold=0.801))


def test_the_shortest_window_of_time_is_a_microsecond() -> None:
    shortest = LatencyP95(1.0, window_s=1e-6, min_calls=1)
    memory = shortest.fold(shortest.start(), Signal(ok=True, seconds=9.0), 1.75e9)
    assert shortest.heat(memory, 1.75e9) == 1.0


def test_a_score_that_is_just_reachable_is_allowed() -> None:
    weights = {"failure_rate": 20, "consecutive_failures": 40}
    policy = Policy(TWO, Latched(), WeightedSum(weights, 60.0), 0.5)
    assert policy.combine.fields()["weights"] == (
        ("consecutive_failures", 40.0),
        ("failure_rate", 20.0),
    )
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert policy != policy.replace(tripping_at=0.4)


@pytest.mark.parametrize("base", [Detector(), Combine(), Recovery()], ids=repr)
def test_the_base_class_decides_nothing(base: Any) -> None:
    methods: dict[type, dict[str, tuple[Any, ...]]] = {
        Detector: {
            "start": (),
            "fold": (0, BAD, 0.0),
            "heat": (0, 0.0),
            "reason": (0, 0.0),
            "dump": (0,),
            "load": (0,),
        },
        Combine: {"heat": ([], []), "reason": ([], [])},
        Recovery: {"wait_s": ("k", 0, BAD, 0.0)},
    }
    for name, arguments in methods[type(base)].items():
        with pytest.raises(NotImplementedError):
            getattr(base, name)(*arguments)


def test_among_equally_strict_detectors_the_hottest_gives_the_reason() -> None:
    pair = (ConsecutiveFailures(1), ConsecutiveFailures(2))
    readings = (Reading(1.0, "warm"), Reading(2.0, "hot"))
    assert AnyDetector().strictest(pair, readings) == "hot"
    assert AnyDetector().strictest(pair[::-1], readings[::-1]) == "hot"


def test_a_policy_is_strict_only_if_configured() -> None:
    assert Policy([ConsecutiveFailures(1)]).strict is False


def test_a_policy_begins_to_evaluate_with_the_first_of_its_detectors() -> None:
    policy = Policy([FailureRate(8, min_calls=4), _detectors.FailureShare(min_calls=7)])
    memories = policy.fold(policy.fresh_memories(), BAD, 0.0)
    pairs = zip(policy.detectors, memories, strict=True)
    assert [one.judges_after(memory, BAD, 0.0) for one, memory in pairs] == [3, 6]
    assert policy.judges_after(memories, BAD, 0.0) == 3


def test_a_policy_counts_calls_if_one_of_its_detectors_does() -> None:
    assert counts_calls(Policy(TWO)) is True
    assert counts_calls(Policy(TWO[:1])) is False
    assert counts_calls(Policy(TWO[1:])) is True


def test_a_reading_has_the_numbers_that_the_detector_compares() -> None:
    policy = Policy([ConsecutiveFailures(2)])
    memories = policy.fold(policy.fresh_memories(), BAD, 0.0)
    reason = "1 failure in a row (threshold 2)"
    assert policy.readings(memories, 0.0) == (Reading(0.5, reason, 1, 2, "failures"),)


def test_a_p95_is_evaluated_only_where_a_call_was_over_the_limit() -> None:
    p95 = LatencyP95(baseline_s=1.0, multiplier=3.0, min_calls=5)
    quick, slow = Signal(ok=True, seconds=0.5), Signal(ok=True, seconds=9.0)
    assert p95.judges_after(p95.fold(p95.start(), slow, 0.0), quick, 0.0) == 4
    assert p95.judges_after(p95.fold(p95.start(), quick, 0.0), quick, 0.0) == 0
    assert p95.judges_after(p95.fold(p95.start(), slow, 0.0), Signal(ok=True), 0.0) == 0


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (partial(_detectors.RepeatedActions), {"limit": 7.0, "credit": 0.1}),
        (partial(_detectors.ConsecutiveFailures), {"threshold": 5}),
        (partial(_detectors.RepeatedErrors), {"limit": 6.0, "credit": 0.1}),
        (partial(_detectors.ContextBurn), {"per_minute": 0.05, "window_s": 60.0}),
        (partial(_detectors.FailureRate), {"window": 20, "threshold": 0.5, "min_calls": 20}),
        (
            partial(_detectors.FailureShare),
            {"window_s": 60.0, "threshold": 0.5, "min_calls": 10},
        ),
        (partial(_detectors.FailuresInWindow), {"threshold": 3, "window_s": 60.0, "apart_s": 0.0}),
        (partial(_detectors.LockWait), {"limit_s": 60.0}),
        (partial(_detectors.NoProgress), {"threshold": 3, "recovers_at": 0.7}),
        (partial(_detectors.OutputDecline), {"threshold": 0.7, "min_iterations": 3}),
        (partial(_detectors.RetryAfter), {"threshold": 1}),
        (
            partial(_detectors.SameError),
            {"threshold": 5, "scope": "total", "fingerprint": "default", "remember": 32},
        ),
        (partial(_detectors.SameTool), {"threshold": 5, "match": "outcome"}),
        (partial(_detectors.Silence), {"limit_s": 120.0}),
        (
            partial(_detectors.SlowCallShare, 9.0),
            {"slow_s": 9.0, "window_s": 60.0, "threshold": 0.5, "min_calls": 10, "admit": 0.0},
        ),
        (partial(_detectors.Stagnation), {"limit": 9.0}),
        (partial(_detectors.Spend, 7), {"hard_cap_micros": 7, "threshold": 1.0, "window_s": 60.0}),
        (
            partial(_detectors.SpendVelocity),
            {"factor": 5.0, "window_s": 300.0, "least_micros": 500_000},
        ),
        (partial(_detectors.IdleTalk), {"limit": 2.0, "usual": 0.3, "remember": 8}),
        (
            partial(_detectors.RepeatedThoughts),
            {"limit": 3.0, "usual": 0.25, "credit": 0.05, "remember": 8},
        ),
        (partial(_detectors.ToolFlood), {"threshold": 20}),
        (partial(_detectors.TotalCost, 7), {"budget_micros": 7, "threshold": 1.5}),
    ],
    ids=lambda part: getattr(getattr(part, "func", None), "kind", ""),
)
def test_a_detector_has_its_documented_defaults(
    made: "partial[Detector]", fields: dict[str, object]
) -> None:
    assert made().fields() == fields


def test_calls_of_a_share_in_time_are_alike_up_to_a_slice_of_its_window() -> None:
    assert _detectors.FailureShare(window_s=60.0).slow_from_s == 2.0
    assert _detectors.SlowCallShare(1.5, window_s=60.0).slow_from_s == 1.5
    assert _detectors.SlowCallShare(9.0, window_s=60.0).slow_from_s == 2.0


def test_spending_cannot_be_compared_with_less_than_it_was() -> None:
    with pytest.raises(ValueError, match=r"SpendVelocity\.factor is 0\.5: it must be"):
        _detectors.SpendVelocity(factor=0.5)
    assert _detectors.SpendVelocity(factor=1.0).factor == 1.0


def test_quick_spending_of_little_money_is_not_hot() -> None:
    detector = _detectors.SpendVelocity(factor=2.0, window_s=60.0, least_micros=1_000_000)
    memory = detector.start()
    for minute in range(3):
        memory = detector.fold(memory, Signal(cost_micros=30), 60.0 * minute)
    assert "times the usual: not known yet" not in detector.reason(memory, 179.0)
    memory = detector.fold(memory, Signal(cost_micros=250_000), 200.0)
    assert detector.heat(memory, 200.0) == pytest.approx(0.25)


def test_a_negative_total_of_what_was_spent_is_refused() -> None:
    detector = _detectors.SpendVelocity()
    data = detector.dump(detector.start())
    assert detector.load({**data, "total_micros": 0}) == detector.start()
    with pytest.raises(ValueError, match="total_micros is -1: it must be"):
        detector.load({**data, "total_micros": -1})


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"FailureShare\.threshold is 0\.0: it must be above 0"):
        _detectors.FailureShare(threshold=0.0)
    assert _detectors.FailureShare(threshold=1.0).threshold == 1.0


def test_failures_in_quick_succession_count_as_one() -> None:
    detector = FailuresInWindow(3, 60.0, apart_s=10.0)
    memory = detector.start()
    heats = []
    for at_s, count in ((0.0, 50), (9.75, 1), (10.0, 2), (19.0, 1), (20.0, 1), (70.0, 9)):
        memory = detector.fold(memory, Signal(ok=False, count=count), at_s)
        heats.append(round(detector.heat(memory, at_s) * 3))
    assert heats == [1, 1, 2, 2, 3, 2], "the one of 10 s has left the window, as the first has"
    assert detector.reason(memory, 70.0) == "2 failures in 60 s, 10 s apart (threshold 3)"


def test_failures_that_took_as_long_as_a_success_count_each() -> None:
    detector = FailuresInWindow(3, 60.0, apart_s=10.0)
    quick, hung = (Signal(ok=False, seconds=seconds, count=5) for seconds in (9.75, 10.0))
    assert detector.heat(detector.fold(detector.start(), quick, 0.0), 0.0) == 1 / 3
    assert detector.heat(detector.fold(detector.start(), hung, 0.0), 0.0) == 1


def test_a_failure_of_unknown_duration_is_not_apart_from_the_one_before() -> None:
    detector = FailuresInWindow(3, 60.0, apart_s=0.5)
    memory = detector.start()
    for at_s in (0.0, 0.25, 1.0):
        memory = detector.fold(memory, Signal(ok=False), at_s)
    assert memory.length == 2


def test_apart_s_is_limited_by_the_window() -> None:
    assert FailuresInWindow(3, 60.0, 29.75).apart_s == 29.75
    assert FailuresInWindow(1, 60.0, 1e6).threshold == 1, "one alone is apart from none"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0.4 s"),
        (599.5, "599.5 s"),
        (600.0, "10 min"),
        (3661.0, "1 h 1 min 1 s"),
        (CENTURY_S, "876,600 h"),
        (CENTURY_S * 2, "6.312e+09 s"),
    ],
)
def test_a_duration_is_written_in_common_units(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(
    ("threshold", "heat"), [(0.999999996, 1.0), (0.9999999996, 0.5)], ids=["nine", "ten"]
)
def test_a_share_of_calls_is_compared_to_nine_digits(threshold: float, heat: float) -> None:
    assert after(FailureRate(1, threshold), BAD).heat == heat


@pytest.mark.parametrize(
    ("threshold", "heat"), [(0.500000002, 0.5), (0.5000000002, 1.0)], ids=["nine", "ten"]
)
def test_a_share_in_time_is_compared_to_nine_digits(threshold: float, heat: float) -> None:
    share = _detectors.FailureShare(60.0, threshold, min_calls=2)
    assert after(share, BAD, GOOD).heat == heat


def test_a_share_in_time_needs_one_hit_at_least() -> None:
    assert after(_detectors.FailureShare(60.0, 1e-10, min_calls=1), BAD).heat == 1.0
