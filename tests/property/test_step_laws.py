"""The laws of `step`, over the seeded corpus and over random states."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from depth import scaled
from property.corpus import walk, walk_loops
from property.strategies import COOLDOWNS, FEW_SIGNALS, TICKS, policies
from property.walker import Walker
from switchgear._core.machine import LEGAL_MOVES, Draft, refuses_until_s, step
from switchgear._core.policy import Latched, Policy, Recovery, WindowEnd
from switchgear._core.types import Acquire, Circuit, Event, Mode, Phase, Record, Signal, Totals

SEEDS = range(scaled(120, 12))
# Drawing a state means walking there, which a busy machine does slowly.
patiently = settings(suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.deep
@pytest.mark.parametrize("block", range(4))
def test_the_machine_agrees_with_the_oracle_on_the_corpus(block: int) -> None:
    for seed in SEEDS[block::4]:
        walk(seed)
        walk_loops(seed)


def test_the_corpus_makes_every_legal_move_and_no_other() -> None:
    moves = set().union(*(walk(seed).moves for seed in range(60)))
    assert moves == set(LEGAL_MOVES)


@pytest.mark.parametrize("before", Phase)
@pytest.mark.parametrize("to", Phase)
def test_a_move_that_is_not_in_the_table_cannot_be_made(before: Phase, to: Phase) -> None:
    policy = walk(0).policy
    draft = Draft(policy, policy.start("k", 0.0)._replace(phase=before), 0.0)
    if (before, to) in LEGAL_MOVES:
        draft.move(to, "why")
        assert (draft.phase, draft.event_seq) == (to, 1)
    else:
        with pytest.raises(AssertionError, match=f"a circuit cannot move from {before} to {to}"):
            draft.move(to, "why")


@st.composite
def walkers(draw: st.DrawFn) -> Walker:
    """A circuit with a history, in any phase and mode."""
    walker = Walker(draw(policies()), "k", 1000.0)
    for signal, seconds in draw(st.lists(st.tuples(FEW_SIGNALS, TICKS), max_size=5)):
        walker.record(signal, walker.ask())
        walker.wait(seconds)
    verbs = (lambda: None, walker.trip, walker.half_open, walker.wait_out)
    draw(st.sampled_from(verbs))()
    walker.order(draw(st.sampled_from(Mode)), reset=False)
    return walker


def without_versions(circuit: Circuit) -> Circuit:
    return circuit._replace(memories=(), version=0)


def dumped(policy: Policy, circuit: Circuit) -> list[object]:
    pairs = zip(policy.detectors, circuit.memories, strict=True)
    return [detector.dump(memory) for detector, memory in pairs]


@patiently
@given(walkers(), FEW_SIGNALS, st.integers(1, 30), st.booleans())
def test_n_equal_signals_are_one_with_count_n(
    walker: Walker, signal: Signal, count: int, with_permit: bool
) -> None:
    permit = walker.ask() if with_permit else None
    policy, apart, events = walker.policy, walker.circuit, list[Event]()
    for number in range(count):
        single = signal._replace(count=1, refused=signal.refused if not number else 0)
        done = step(policy, apart, Record(single, permit), walker.now_s)
        apart, events = done.circuit, [*events, *done.events]
    counted = Record(signal._replace(count=count), permit)
    together = step(policy, walker.circuit, counted, walker.now_s)
    assert [*together.events] == events
    assert together.verdict == done.verdict
    assert without_versions(together.circuit) == without_versions(apart)
    assert dumped(policy, together.circuit) == dumped(policy, apart)


@patiently
@given(walkers(), FEW_SIGNALS, st.booleans())
def test_every_record_and_every_refusal_is_in_the_totals_once(
    walker: Walker, signal: Signal, with_permit: bool
) -> None:
    before = walker.circuit.totals
    asked = walker.say(Acquire()) if with_permit else None
    walker.record(signal, asked.verdict.permit if asked else None)
    gained = Totals(*(new - old for new, old in zip(walker.circuit.totals, before, strict=True)))
    turned_away = asked is not None and not asked.verdict.admitted
    assert gained.refused == signal.refused + turned_away
    assert gained.overruled == (asked is not None and asked.verdict.overruled)
    assert gained.cost_micros == signal.count * (signal.cost_micros or 0)
    assert gained.succeeded + gained.failed + gained.ignored + gained.late == signal.count
    assert min(gained) >= 0


@patiently
@given(walkers(), st.sampled_from(Mode))
def test_the_override_decides_about_calls_and_never_changes_the_evidence(
    walker: Walker, mode: Mode
) -> None:
    phase = walker.circuit.phase
    walker.order(mode, reset=False)
    assert walker.circuit.phase in {phase, Phase.HALF_OPEN, Phase.CLOSED, Phase.OPEN}
    answer = walker.say(Acquire()).verdict
    assert answer.admitted is not (mode is Mode.HELD_OPEN) or mode is Mode.AUTO
    assert not answer.overruled or mode in {Mode.HELD_CLOSED, Mode.SHADOW}


@patiently
@given(walkers())
def test_a_reset_circuit_equals_a_new_one_except_for_its_numbers(walker: Walker) -> None:
    mode, generation = walker.circuit.mode, walker.circuit.generation
    walker.order(None, reset=True)
    after, fresh = walker.circuit, walker.policy.start("k", 1000.0)
    assert after.generation > generation
    assert after.mode is mode
    kept = {
        name: getattr(after, name)
        for name in ("mode", "order", "generation", "version", "event_seq", "seen_s")
    }
    assert after == fresh._replace(**kept)


@patiently
@given(policies(COOLDOWNS), st.sampled_from((Latched(), WindowEnd(9.0))), st.booleans())
def test_a_circuit_stored_while_probing_opens_under_a_policy_that_has_no_probes(
    policy: Policy, recovery: Recovery, with_probe: bool
) -> None:
    walker = Walker(policy, "k", 1000.0)
    walker.half_open()
    if walker.circuit.phase is not Phase.HALF_OPEN or not with_probe:
        walker.order(None, reset=True)
        walker.half_open()
    walker.policy = walker.oracle.policy = policy.replace(recovery=recovery)
    assert refuses_until_s(walker.policy, walker.circuit) <= walker.now_s + 1e6
    walker.ask()
    assert walker.circuit.phase is Phase.OPEN
    walker.wait_out()
    expected = Phase.OPEN if isinstance(recovery, Latched) else Phase.CLOSED
    assert walker.circuit.phase is expected
