"""The machine against its oracle: hypothesis chooses the policy and then the verbs."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from depth import scaled
from property.strategies import FEW_SIGNALS, TICKS, policies
from property.walker import Walker
from switchgear._core.policy import Policy
from switchgear._core.types import Acquire, EventKind, Mode, Override, Phase, Record, Signal

RETRY_AFTERS = st.sampled_from((None, None, 0.0, -1.0, 2.5, 1e6))
RESULTS = st.sampled_from(
    [
        Signal(ok=ok, seconds=seconds, error=error, files_changed=files)
        for ok in (True, True, False, None)
        for seconds in (None, 0.25, 9.0)
        for error, files in ((None, None), ("529 overloaded", 0))
    ]
)
MESSAGES = st.one_of(
    st.just(Acquire()),
    FEW_SIGNALS.map(Record),
    st.sampled_from([Override("bob", "clock", mode) for mode in (None, *Mode)]),
    st.just(Override("bob", "clock", reset=True)),
    st.just(Override("switchgear", "gone", kind=EventKind.STORE_LOST)),
    st.just(Override("switchgear", "torn", Mode.HELD_OPEN, kind=EventKind.STATE_UNREADABLE)),
)


class MachineAgainstOracle(RuleBasedStateMachine):
    """Every rule is a verb of the walker, and the walker checks every step."""

    walker: Walker

    def phase(self) -> Phase:
        return self.walker.circuit.phase

    @initialize(
        policy=policies(), key=st.sampled_from(("k", "op/ü")), now_s=st.sampled_from((0.0, 1.75e9))
    )
    def begin(self, policy: Policy, key: str, now_s: float) -> None:
        self.walker = Walker(policy, key, now_s)

    @rule(seconds=TICKS)
    def time_passes(self, seconds: float) -> None:
        self.walker.wait(seconds)

    @rule(signal=FEW_SIGNALS)
    def a_call_is_asked_for_and_told(self, signal: Signal) -> None:
        self.walker.record(signal, self.walker.ask())

    @rule(signal=FEW_SIGNALS)
    def something_is_seen_from_outside(self, signal: Signal) -> None:
        self.walker.record(signal)

    @rule(signal=FEW_SIGNALS, seconds=TICKS)
    def a_call_takes_its_time(self, signal: Signal, seconds: float) -> None:
        permit = self.walker.ask()
        self.walker.wait(seconds)
        self.walker.record(signal, permit)

    @rule(retry_after_s=RETRY_AFTERS)
    def the_worst_happens(self, retry_after_s: float | None) -> None:
        self.walker.trip(retry_after_s)

    @rule(retry_after_s=RETRY_AFTERS, early=st.booleans())
    def it_trips_and_waits(self, retry_after_s: float | None, early: bool) -> None:
        self.walker.trip(retry_after_s)
        self.walker.wait_out(early=early)

    @precondition(lambda self: self.phase() in {Phase.OPEN, Phase.HALF_OPEN})
    @rule(early=st.booleans())
    def the_wait_or_the_lease_ends(self, early: bool) -> None:
        self.walker.wait_out(early=early)

    @rule(signal=RESULTS, times=st.integers(1, 3))
    def probes_report(self, signal: Signal, times: int) -> None:
        for _ in range(times):
            self.walker.probe(signal)

    @rule(late=RESULTS)
    def every_probe_hangs(self, late: Signal) -> None:
        self.walker.hang_probes(late)

    @rule(many=st.sampled_from((1, 2, 3, 17)), late=RESULTS)
    def one_probe_after_the_other_hangs(self, many: int, late: Signal) -> None:
        self.walker.hang_many_probes(many, late)

    @rule(signal=FEW_SIGNALS, how_old=st.integers(1, 30))
    def a_result_comes_from_long_ago(self, signal: Signal, how_old: int) -> None:
        self.walker.bring_stale(signal, how_old)

    @rule(asks=st.integers(1, 25), signal=RESULTS)
    def many_ask_at_once(self, asks: int, signal: Signal) -> None:
        self.walker.meet_reduced_load(asks, signal)

    @rule(signal=RESULTS)
    def slow_calls_become_failures(self, signal: Signal) -> None:
        self.walker.escalate(signal)

    @rule(signal=RESULTS)
    def slow_calls_become_failures_while_probes_are_out(self, signal: Signal) -> None:
        self.walker.escalate_while_probing(signal)

    @rule(signal=FEW_SIGNALS, quiet_s=TICKS)
    def worry_is_calmed_by_time(self, signal: Signal, quiet_s: float) -> None:
        self.walker.worry_and_calm(signal, quiet_s)

    @rule(mode=st.none() | st.sampled_from(Mode), reset=st.booleans())
    def an_operator_orders(self, mode: Mode | None, reset: bool) -> None:
        self.walker.order(mode, reset=reset)

    @rule(mode=st.sampled_from(Mode), for_s=TICKS, probe=st.booleans())
    def an_operator_holds_for_a_time(self, mode: Mode, for_s: float, probe: bool) -> None:
        self.walker.order(mode, reset=False, for_s=for_s, probe=probe)

    @rule(mode=st.sampled_from(Mode), for_s=TICKS)
    def a_hold_ends_by_itself(self, mode: Mode, for_s: float) -> None:
        self.walker.hold_for(mode, for_s)

    @rule(signal=RESULTS)
    def an_operator_asks_for_a_probe(self, signal: Signal) -> None:
        self.walker.probe_now(signal)

    @rule(mode=st.sampled_from(Mode), signal=FEW_SIGNALS)
    def an_operator_overrules_for_a_while(self, mode: Mode, signal: Signal) -> None:
        self.walker.order(mode, reset=False)
        self.walker.trip()
        self.walker.record(signal, self.walker.ask())
        self.walker.wait_out()
        self.walker.order(Mode.AUTO, reset=False)
        self.walker.ask()

    @rule(message=MESSAGES, back_s=st.sampled_from((0.25, 10.0, 3600.0)))
    def the_clock_is_set_back(self, message: Acquire | Record | Override, back_s: float) -> None:
        self.walker.say(message, back_s=back_s)


# A minute of work, of which a busy machine makes more.
TestMachineAgainstOracle = MachineAgainstOracle.TestCase
TestMachineAgainstOracle.settings = settings(
    max_examples=scaled(settings().max_examples, 5), stateful_step_count=25
)
