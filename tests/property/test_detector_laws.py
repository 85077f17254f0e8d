"""The laws that every detector of the registry obeys."""

import json
import pickle
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import Phase as Searching
from hypothesis import find, given, settings
from hypothesis import strategies as st

from depth import scaled
from property import naive
from property.strategies import CONFIGS, SHARES, SIGNALS, histories, worst_history
from switchgear import _detectors
from switchgear._core.detector import Detector
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import AgentStep, Permit, Phase, Record, Signal
from switchgear._detectors import ALL

over_the_registry = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.kind)

GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70) | st.floats() | st.text("01af#", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("window_s", "slices", "x")), inner, max_size=3)
    ),
    max_leaves=8,
)


def remembered(detector: Detector, history: naive.History) -> Any:
    memory = detector.start()
    for at_s, signal in history:
        memory = detector.fold(memory, signal, at_s)
    return memory


@cache
def many_acts() -> list[AgentStep]:
    """Steps of agents, with more words, lines and files than a detector remembers."""
    random = Random(0)
    letters = str.maketrans("0123456789", "ghijklmnop")

    def words(form: str, between: str) -> str:
        found = (form.format(f"{random.randrange(16**6):x}".translate(letters)) for _ in range(15))
        return between.join(found)

    return [
        AgentStep(
            random.choice(("bash", "")),
            words("dir/{}.py", " "),
            words("{} it", "\n"),
            words("{}", " "),
        )
        for _ in range(300)
    ]


def times(history: naive.History) -> list[float]:
    """Times of readings: at the last signal, and later, when signals leave the window."""
    last_s = history[-1][0] if history else 0.0
    return [last_s + later_s for later_s in (0.0, 0.25, 1.0, 2.75, 3.0, 8.75, 9.0, 300.0)]


def test_every_detector_of_the_registry_has_a_row_in_the_tests() -> None:
    assert set(CONFIGS) == set(naive.KINDS) == set(ALL)


def test_kinds_name_one_detector_each() -> None:
    assert len({kind.kind for kind in ALL}) == len(ALL)


@over_the_registry
@given(st.data())
def test_a_detector_can_trip_from_its_own_fields(kind: type[Detector], data: st.DataObject) -> None:
    detector = data.draw(CONFIGS[kind])
    assert detector.heat(detector.start(), 0.0) < 1
    assert detector.heat(remembered(detector, worst_history(detector)), 0.0) >= 1


@pytest.mark.parametrize("kind", [_detectors.FailureRate, _detectors.SlowCalls])
@pytest.mark.parametrize("threshold", [0.0, 0.999, 1.0])
def test_a_share_that_no_calls_can_exceed_is_refused(kind: Any, threshold: float) -> None:
    slow = {"slow_s": 1.0} if kind is _detectors.SlowCalls else {}
    if threshold == 1.0:
        with pytest.raises(ValueError, match=f"{kind.__name__}.threshold is 1.0: it must"):
            kind(**slow, window=10, threshold=threshold)
        return
    detector = kind(**slow, window=10, threshold=threshold)
    memory = detector.fold(detector.start(), Signal(ok=False, seconds=2.0, count=10), 0.0)
    assert detector.heat(memory, 0.0) >= 1, f"{detector!r} can never fire"


@over_the_registry
@given(st.data())
def test_heat_and_reason_equal_those_of_the_naive_function(
    kind: type[Detector], data: st.DataObject
) -> None:
    detector, history = data.draw(CONFIGS[kind]), data.draw(histories())
    for seen in range(len(history) + 1):
        memory = remembered(detector, history[:seen])
        for at_s in times(history[:seen]):
            expected = naive.KINDS[kind].reading(detector, history[:seen], at_s)
            assert detector.heat(memory, at_s) == expected.heat
            assert detector.reason(memory, at_s) == expected.reason


@over_the_registry
@given(st.data())
def test_a_detector_abstains_on_facts_that_were_not_measured(
    kind: type[Detector], data: st.DataObject
) -> None:
    detector = data.draw(CONFIGS[kind])
    memory = remembered(detector, data.draw(histories()))
    silent = Signal(error="who knows", retry_after_s=9.0, count=7, refused=3)
    assert detector.fold(memory, silent, 2e9) == memory
    assert detector.objection(silent) is None
    assert detector.objection(silent._replace(ok=True)) is None


@over_the_registry
@given(st.data(), SIGNALS, st.integers(0, 40))
def test_n_equal_signals_are_one_with_count_n(
    kind: type[Detector], data: st.DataObject, signal: Signal, count: int
) -> None:
    detector, history = data.draw(CONFIGS[kind]), data.draw(histories())
    at_s = history[-1][0] if history else 0.0
    apart = together = remembered(detector, history)
    for _ in range(count):
        apart = detector.fold(apart, signal._replace(count=1), at_s)
    together = detector.fold(together, signal._replace(count=count), at_s)
    assert detector.dump(apart) == detector.dump(together)
    for later_s in (0.0, 0.25, 1.0, 9.0):
        assert detector.heat(apart, at_s + later_s) == detector.heat(together, at_s + later_s)


@over_the_registry
@given(st.data(), SIGNALS, st.integers(2, 40))
def test_under_equal_signals_the_heat_moves_in_one_direction(
    kind: type[Detector], data: st.DataObject, signal: Signal, count: int
) -> None:
    detector, history = data.draw(CONFIGS[kind]), data.draw(histories())
    at_s, single = history[-1][0] if history else 0.0, signal._replace(count=1)
    memory = detector.fold(remembered(detector, history), single, at_s)
    heats = [min(1.0, detector.heat(memory, at_s))]
    for _ in range(count):
        begins = detector.judges_after(memory, single, at_s)
        memory = detector.fold(memory, single, at_s)
        left = detector.judges_after(memory, single, at_s)
        assert left == max(0, begins - 1) or (not begins and left == 0)
        if begins == 1:
            heats = []
        heats.append(min(1.0, detector.heat(memory, at_s)))
        assert heats in (sorted(heats), sorted(heats, reverse=True))
        assert begins <= 1 or heats[-1] < 1.0


@pytest.mark.deep
@over_the_registry
@settings(max_examples=scaled(5, 2))
@given(st.data())
def test_the_memory_is_bounded_by_the_fields(kind: type[Detector], data: st.DataObject) -> None:
    detector = data.draw(CONFIGS[kind])
    random = Random(data.draw(st.integers(0, 99)))
    memory, bound, now_s = detector.start(), naive.KINDS[kind].memory_bound(detector), 1.75e9
    for number in range(scaled(10_000, 2000)):
        now_s += random.choice((0.0, 0.0, 0.0, 0.03125, 0.25))
        fact = Signal(
            ok=random.random() < 0.1,
            seconds=random.choice((None, 0.25, 9.0)),
            error=f"{random.choice('abcdefgh') * 190} {number % 300:b}x",
            files_changed=random.choice((None, 0)),
            tests_passing=number,
            output_chars=random.randrange(100_000),
            at_s=now_s,
            cost_micros=number,
            waited_s=now_s,
            violation=f"rule {number}" * 100,
            step=random.choice(many_acts()),
            state=f"{number}",
            failing_tests=f"{number % 99}",
            context_used=number / 10_000,
        )
        memory = detector.fold(memory, fact, now_s)
        if number % 1000 == 999:
            assert len(pickle.dumps(memory)) <= bound
            assert len(json.dumps(detector.dump(memory))) <= 2 * bound


@over_the_registry
@given(st.data())
def test_load_restores_what_dump_returns(kind: type[Detector], data: st.DataObject) -> None:
    detector, history = data.draw(CONFIGS[kind]), data.draw(histories())
    memory = remembered(detector, history)
    dumped = detector.dump(memory)
    loaded = detector.load(json.loads(json.dumps(dumped)))
    assert detector.dump(loaded) == dumped
    now_s = times(history)[-1]
    for later_s, signal in data.draw(histories(max_size=5)):
        memory = detector.fold(memory, signal, now_s + later_s)
        loaded = detector.fold(loaded, signal, now_s + later_s)
        assert detector.dump(loaded) == detector.dump(memory)
        for at_s in times([(now_s + later_s, signal)]):
            assert detector.heat(loaded, at_s) == detector.heat(memory, at_s)


@over_the_registry
@given(st.data(), GARBAGE)
def test_load_refuses_what_dump_never_returned(
    kind: type[Detector], data: st.DataObject, garbage: Any
) -> None:
    detector = data.draw(CONFIGS[kind])
    try:
        memory = detector.load(garbage)
    except ValueError:
        return
    detector.load(json.loads(json.dumps(detector.dump(memory), allow_nan=False)))
    assert detector.heat(memory, 0.0) >= 0
    assert detector.reason(memory, 0.0)
    fact = Signal(
        ok=False,
        seconds=9.0,
        error="boom",
        retry_after_s=1.0,
        count=3,
        cost_micros=1,
        files_changed=0,
        output_chars=5,
        waited_s=1.0,
        violation="rule",
        step=AgentStep("Bash"),
        context_used=0.5,
        idle_s=9.0,
    )
    assert detector.fold(memory, fact, 1.0) != detector.start()


@over_the_registry
@given(st.data())
def test_the_dump_of_another_configuration_is_loaded_or_dropped(
    kind: type[Detector], data: st.DataObject
) -> None:
    old, new = data.draw(CONFIGS[kind]), data.draw(CONFIGS[kind])
    history = data.draw(histories())
    memory = new.load(json.loads(json.dumps(old.dump(remembered(old, history)))))
    assert len(pickle.dumps(memory)) <= naive.KINDS[kind].memory_bound(new)
    assert new.heat(memory, times(history)[-1]) >= 0


def fields(kind: type[Detector]) -> tuple[str, ...]:
    return kind.__slots__


FIELDS = [(kind, name) for kind in ALL for name in fields(kind)]


def conduct(detector: Detector, history: naive.History) -> list[Any]:
    """The observable behaviour of a detector."""
    memory, seen = detector.start(), list[Any]()
    for at_s, signal in history:
        memory = detector.fold(memory, signal, at_s)
        seen += [detector.heat(memory, later) >= 1 for later in (at_s, at_s + 1.0)]
        seen.append(detector.objection(signal) is None)
    policy = Policy([detector])
    circuit = policy.start("k", 0.0)
    for at_s, signal in history:
        circuit = step(policy, circuit, Record(signal), at_s).circuit
        seen.append((circuit.phase, circuit.outage.admit))
    return seen


@pytest.mark.stress
@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=lambda part: getattr(part, "kind", part))
def test_every_field_has_an_effect(kind: type[Detector], field: str) -> None:
    def changes_something(case: tuple[Detector, Detector, list[tuple[float, Signal]]]) -> bool:
        one, donor, history = case
        try:
            other = one.replace(**{field: donor.fields()[field]})
        except ValueError:
            return False
        if field == "remember":  # which errors are shown with their text
            last_s = history[-1][0] if history else 0.0
            texts = [each.reason(remembered(each, history), last_s) for each in (one, other)]
            return texts[0] != texts[1]
        return conduct(one, history) != conduct(other, history)

    cases = st.tuples(CONFIGS[kind], CONFIGS[kind], histories())
    search = settings(max_examples=5000, phases=[Searching.generate], database=None)
    find(cases, changes_something, settings=search, random=Random(1))


@over_the_registry
@given(st.data())
def test_the_reason_names_the_threshold(kind: type[Detector], data: st.DataObject) -> None:
    detector = data.draw(CONFIGS[kind])
    reason = detector.reason(remembered(detector, worst_history(detector)), 0.0)
    assert naive.KINDS[kind].held_against(detector) in reason


@given(st.integers(1, 300), SHARES, st.data())
def test_a_share_trips_strictly_above_its_threshold(
    window: int, threshold: float, data: st.DataObject
) -> None:
    failed = data.draw(st.integers(0, window))
    detector = _detectors.FailureRate(window, threshold)
    memory = detector.fold(detector.start(), Signal(ok=True, count=window - failed), 0.0)
    memory = detector.fold(memory, Signal(ok=False, count=failed), 0.0)
    success_rate = 1 - naive.exact(failed) / window
    assert (detector.heat(memory, 0.0) >= 1) == (success_rate < 1 - naive.exact(threshold))


@given(st.data())
def test_p95_is_the_nearest_rank_of_the_raw_list(data: st.DataObject) -> None:
    sample = data.draw(st.lists(st.sampled_from((0.5, 2.9, 3.0, 3.1, 50.0)), min_size=1))
    detector = _detectors.LatencyP95(baseline_s=1.0, multiplier=3.0, min_calls=1)
    memory = remembered(detector, [(5.0, Signal(ok=True, seconds=s)) for s in sample])
    assert (detector.heat(memory, 5.0) >= 1) == (naive.p95(sample) > 3.0)


FIRST = settings(phases=[Searching.generate], database=None)
"""The first example is enough: hypothesis need not look for a smaller one and explain it."""


def test_a_circuit_trips_by_each_detector_alone() -> None:
    for kind in ALL:
        detector = find(CONFIGS[kind], lambda _: True, settings=FIRST, random=Random(0))
        policy = Policy([detector])
        circuit = policy.start("k", 0.0)
        for at_s, signal in worst_history(detector):
            circuit = step(policy, circuit, Record(signal, Permit(1)), at_s).circuit
        assert circuit.phase is Phase.OPEN


@over_the_registry
@given(st.data())
def test_the_measured_value_reaches_the_threshold_at_the_trip(
    kind: type[Detector], data: st.DataObject
) -> None:
    detector, history = data.draw(CONFIGS[kind]), data.draw(histories())
    for told in (history, worst_history(detector)):
        memory = remembered(detector, told)
        last_s = told[-1][0] if told else 0.0
        measured = detector.measure(memory, last_s)
        assert measured is not None
        assert measured.unit
        assert measured.threshold >= 0
        if detector.heat(memory, last_s) >= 1:
            assert measured.value >= measured.threshold - 1e-6
