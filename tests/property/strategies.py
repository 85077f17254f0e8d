"""Random policies, signals and histories. Numbers are small and meet each other's limits often."""

from math import ceil

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

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
    WindowEnd,
)
from switchgear._core.types import AgentStep, Signal

# Multiples of a quarter are exact in binary, so sums and differences of times are exact, too.
DURATIONS = st.sampled_from((0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5, 9.0))
SHARES = st.sampled_from((0.0, 0.05, 0.25, 0.29, 0.3, 0.5, 0.6, 0.7, 0.75, 0.99))
REACHED = st.sampled_from((0.05, 0.25, 0.29, 0.3, 0.5, 0.6, 0.7, 0.75, 0.99, 1.0))
WINDOWS_S = st.sampled_from((0.25, 1.0, 3.0, 7.5, 30.0, 300.0))
ADMITS = st.sampled_from((0.0, 0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9))
WINDOWS = st.sampled_from((1, 2, 3, 4, 5, 7, 10, 20, 100, 300))
TICKS = st.sampled_from((0.0, 0.0, 0.25, 0.5, 1.0, 1.75, 3.0, 10.0, 31.25))


@st.composite
def share_fields(draw: st.DrawFn) -> tuple[int, float, int | None]:
    window = draw(WINDOWS)
    return window, draw(SHARES), draw(st.none() | st.integers(1, window))


@st.composite
def slow_calls(draw: st.DrawFn) -> _detectors.SlowCalls:
    window, threshold, min_calls = draw(share_fields())
    return _detectors.SlowCalls(draw(DURATIONS), window, threshold, min_calls, draw(ADMITS))


def failures_apart(threshold: int, window_s: float, share: float) -> _detectors.FailuresInWindow:
    """Failures so far apart that they take this share of the window, and fit into it."""
    return _detectors.FailuresInWindow(threshold, window_s, share * window_s / threshold)


LIMITS = st.sampled_from((0.5, 1.0, 1.5, 2.0, 3.0, 5.0))
USUAL = st.sampled_from((0.0, 0.3, 0.5, 0.9))
CREDITS = st.sampled_from((0.0, 0.05, 0.1, 0.5, 1.0))

CONFIGS: dict[type[Detector], SearchStrategy[Detector]] = {
    _detectors.RepeatedActions: st.builds(_detectors.RepeatedActions, LIMITS, CREDITS),
    _detectors.ConsecutiveFailures: st.builds(_detectors.ConsecutiveFailures, st.integers(1, 7)),
    _detectors.RepeatedErrors: st.builds(_detectors.RepeatedErrors, LIMITS, CREDITS),
    _detectors.FailureRate: share_fields().map(lambda fields: _detectors.FailureRate(*fields)),
    _detectors.FailureShare: st.builds(
        _detectors.FailureShare, WINDOWS_S, REACHED, st.sampled_from((1, 2, 5, 20, 21, 40))
    ),
    _detectors.FailuresInWindow: st.builds(
        failures_apart,
        st.sampled_from((1, 2, 3, 4, 6, 33, 70)),
        DURATIONS,
        st.sampled_from((0.0, 0.0, 0.25, 0.5, 1.0)),
    ),
    _detectors.LatencyP95: st.builds(
        _detectors.LatencyP95,
        baseline_s=st.sampled_from((0.25, 0.5, 1.0, 1.5)),
        multiplier=st.sampled_from((1.0, 1.5, 2.0, 3.0)),
        window_s=st.sampled_from((0.25, 1.0, 3.0, 7.5, 30.0, 300.0)),
        min_calls=st.sampled_from((1, 2, 5, 20, 21, 40)),
        admit=ADMITS,
    ),
    _detectors.LockWait: st.builds(_detectors.LockWait, DURATIONS),
    _detectors.NoProgress: st.builds(
        _detectors.NoProgress, st.integers(1, 5), st.sampled_from((0.1, 0.5, 0.7, 1.0))
    ),
    _detectors.OutputDecline: st.builds(
        _detectors.OutputDecline, st.sampled_from((0.1, 0.29, 0.5, 0.7, 1.0)), st.integers(1, 20)
    ),
    _detectors.RetryAfter: st.builds(_detectors.RetryAfter, st.integers(1, 4)),
    _detectors.SameError: st.builds(
        _detectors.SameError,
        st.integers(1, 7),
        st.sampled_from(("total", "consecutive")),
        st.sampled_from(("default", "documented")),
        st.sampled_from((1, 2, 3, 32)),
    ),
    _detectors.ContextBurn: st.builds(
        _detectors.ContextBurn, st.sampled_from((0.05, 0.25, 0.5)), DURATIONS
    ),
    _detectors.SameTool: st.builds(
        _detectors.SameTool, st.integers(1, 7), st.sampled_from(("outcome", "call", "tool"))
    ),
    _detectors.Silence: st.builds(_detectors.Silence, DURATIONS),
    _detectors.SlowCalls: slow_calls(),
    _detectors.SlowCallShare: st.builds(
        _detectors.SlowCallShare,
        DURATIONS,
        WINDOWS_S,
        REACHED,
        st.sampled_from((1, 2, 5, 20, 21, 40)),
        ADMITS,
    ),
    _detectors.Spend: st.builds(
        _detectors.Spend,
        st.sampled_from((1, 3, 7, 19)),
        st.sampled_from((0.29, 0.5, 1.0, 1.5)),
        st.sampled_from((0.25, 1.0, 3.0, 30.0, 300.0)),
    ),
    _detectors.SpendVelocity: st.builds(
        _detectors.SpendVelocity,
        st.sampled_from((1.0, 1.5, 5.0)),
        st.sampled_from((0.25, 1.0, 3.0, 30.0, 300.0)),
        st.sampled_from((1, 7, 19)),
    ),
    _detectors.TotalCost: st.builds(
        _detectors.TotalCost, st.sampled_from((1, 2, 7, 19)), st.sampled_from((0.29, 1.0, 1.5, 2.0))
    ),
    _detectors.Violation: st.just(_detectors.Violation()),
    _detectors.Stagnation: st.builds(_detectors.Stagnation, LIMITS),
    _detectors.IdleTalk: st.builds(_detectors.IdleTalk, LIMITS, USUAL, st.sampled_from((1, 2, 8))),
    _detectors.RepeatedThoughts: st.builds(
        _detectors.RepeatedThoughts, LIMITS, USUAL, CREDITS, st.sampled_from((1, 2, 8))
    ),
    _detectors.ToolFlood: st.builds(_detectors.ToolFlood, st.integers(1, 20)),
}
"""How to draw each detector of the registry; a new detector needs a row."""

DEBTS = (
    _detectors.RepeatedActions,
    _detectors.RepeatedErrors,
    _detectors.IdleTalk,
    _detectors.RepeatedThoughts,
    _detectors.Stagnation,
)

PECULIAR = {
    *(
        *DEBTS,
        _detectors.ContextBurn,
        _detectors.SpendVelocity,
    ),  # no single signal with a count trips them
    *(
        _detectors.RetryAfter,
        _detectors.TotalCost,
        _detectors.Violation,
    ),  # a recovery forgets nothing
}
TOGETHER = CONFIGS[_detectors.FailuresInWindow].filter(lambda found: not found.fields()["apart_s"])
"""Those that a single signal with a count trips."""
ANY_DETECTOR = st.one_of(
    *(
        TOGETHER if kind is _detectors.FailuresInWindow else CONFIGS[kind]
        for kind in CONFIGS
        if kind not in PECULIAR
    )
)
"""Any that the walks can trip and see recover; the peculiar ones have the laws and their own tests."""

ACTS = (
    AgentStep(
        "bash", "ls -la src/a.py", "a.py 12:00:01\nb.py", "I will list the files again, to see"
    ),
    AgentStep(
        "bash", "ls -la src/b.py", "a.py 12:00:02\nb.py", "I will look at the files again, to see"
    ),
    AgentStep("bash", "make 1", "", "Now build everything from the beginning"),
    AgentStep("bash", "make 22", "took 3.5 s\nno rule for x.c", None),
    AgentStep(
        "edit", "x.c\nint alpha, beta, gamma;", "saved", "The header is missing, so I add it"
    ),
    AgentStep("edit", "src/a.py\nalpha = 1", None, "no"),
    AgentStep("", "", None, "I have done what was asked, tell me more"),
    AgentStep("", "Please wait until everybody agrees"),
    AgentStep("", "I have done all that was asked; what more?"),
)

CALLS = (
    AgentStep("Bash", "ls", "a"),
    AgentStep("Bash", "ls", "b"),
    AgentStep("Bash", "ls"),
    AgentStep("Bash", "pwd", "a"),
    AgentStep("Read", "ls", "a"),
    AgentStep(thought="hm"),
)

SIGNALS = st.builds(
    Signal,
    ok=st.sampled_from((None, True, True, False, False, False)),
    seconds=st.none() | DURATIONS,
    error=st.sampled_from((None, "529 overloaded", "exit code 1", "exit code 2", "no /a", "no /b")),
    retry_after_s=st.sampled_from((None, None, None, None, 0.0, -1.0, 2.5, 20.0, 1e6)),
    count=st.sampled_from((0, 1, 1, 1, 1, 2, 3, 5, 21, 300)),
    refused=st.sampled_from((0, 0, 0, 0, 0, 1, 4)),
    cost_micros=st.sampled_from((None, None, None, 0, 1, 1_250_000)),
    files_changed=st.sampled_from((None, 0, 0, 0, 0, 3)),
    tests_passing=st.sampled_from((None, None, None, 0, 4, 7)),
    output_chars=st.sampled_from((None, None, 0, 10, 35, 50, 70, 100, 100)),
    at_s=st.sampled_from((None, 0.25, 1.75e9)),
    waited_s=st.none() | DURATIONS,
    violation=st.sampled_from((None, None, None, "rule a: x", "rule b: y")),
    step=st.sampled_from((None, None, None, *CALLS, *ACTS)),
    state=st.sampled_from((None, None, None, "state 1", "state 2", "state 3")),
    failing_tests=st.sampled_from((None, None, None, "", "test_a", "test_a test_b")),
    context_used=st.sampled_from((None, None, None, None, 0.1, 0.2, 0.9)),
    idle_s=st.sampled_from((None, None, 0.0, 1.0, 1.75, 9.0, 300.0)),
)

FEW_SIGNALS = SIGNALS.map(lambda signal: signal._replace(count=min(signal.count, 21)))


@st.composite
def histories(draw: st.DrawFn, max_size: int = 30) -> list[tuple[float, Signal]]:
    """Signals at times that never run backwards."""
    now_s = draw(st.sampled_from((0.0, 0.25, 1000.0, 1.75e9)))
    history = []
    for tick, signal in draw(st.lists(st.tuples(TICKS, SIGNALS), max_size=max_size)):
        now_s += tick
        history.append((now_s, signal))
    return history


COOLDOWNS: SearchStrategy[Recovery] = st.builds(
    lambda base_s, growth, more, successes, **fields: Cooldown(
        base_s,
        base_s * growth,
        successes=successes,
        of=None if more is None else successes + more,
        **fields,
    ),
    DURATIONS,
    st.sampled_from((1.0, 2.0, 2.5, 5.0, 16.0)),
    factor=st.sampled_from((1.0, 1.5, 2.0, 3.0)),
    jitter=st.sampled_from((0.0, 0.0, 0.5, 0.9)),
    probes=st.integers(1, 3),
    successes=st.integers(1, 3),
    more=st.none() | st.integers(0, 3),
    lease_s=st.none() | DURATIONS,
    retry_after_max_s=st.sampled_from((2.0, 10.0, 3600.0)),
)
RECOVERIES: SearchStrategy[Recovery] = st.one_of(
    COOLDOWNS, COOLDOWNS, COOLDOWNS, st.builds(WindowEnd, DURATIONS), st.just(Latched())
)


@st.composite
def weights(draw: st.DrawFn, among: list[Detector]) -> WeightedSum:
    alone = draw(st.none() | st.sampled_from((0.2, 0.5, 0.7, 1.0)))
    kinds = list(dict.fromkeys(detector.kind for detector in among))
    weighed = kinds if alone is None else kinds[: draw(st.integers(1, len(kinds)))]
    pairs = {kind: draw(st.sampled_from((10.0, 20.0, 40.0, 60.0))) for kind in weighed}
    reachable = sum(pairs.get(detector.kind, 0.0) for detector in among)
    return WeightedSum(pairs, draw(st.sampled_from((0.25, 0.5, 0.75, 1.0))) * reachable, alone)


def small(detector: Detector) -> bool:
    """Whether twenty calls or so show all it does: the oracle reads its history at every step."""
    return most_calls(detector) <= 21


@st.composite
def policies(draw: st.DrawFn, recoveries: SearchStrategy[Recovery] = RECOVERIES) -> Policy:
    """One to four small detectors, of the same kind now and then, under any rules."""
    among = draw(st.lists(ANY_DETECTOR.filter(small), min_size=1, max_size=4))
    combine: Combine = draw(st.just(AnyDetector()) | weights(among))
    warn_at = draw(st.none() | st.sampled_from((0.2, 0.25, 0.5, 0.75, 0.9)))
    return Policy(among, draw(recoveries), combine, warn_at)


def hottest(policy: Policy) -> Signal:
    """A signal that trips every detector there is, at once, if `better_times` were before."""
    return worst_signal()._replace(count=max(map(most_calls, policy.detectors)), output_chars=0)


def better_times(policy: Policy) -> list[Signal]:
    """Signals before the worst one, for detectors that compare with earlier ones: only outputs need them."""
    needy = any(isinstance(detector, _detectors.OutputDecline) for detector in policy.detectors)
    return [Signal(output_chars=1000, count=21)] * needy


def worst_signal() -> Signal:
    """One signal with every kind of bad fact."""
    act = AgentStep("bash", "make", "no rule", "I try the same thing again")
    return Signal(
        ok=False,
        seconds=1e6,
        error="storm",
        retry_after_s=1.0,
        cost_micros=100,
        files_changed=0,
        tests_passing=0,
        waited_s=1e6,
        violation="rule storm",
        step=act,
        idle_s=1e6,
    )


def worst_history(detector: Detector) -> list[tuple[float, Signal]]:
    """A history that trips this detector: the worst signal repeated, after good signals."""
    good = [Signal(output_chars=1000)] * most_calls(detector)
    bad = [worst_signal()] * most_calls(detector)
    worst = [worst_signal()._replace(output_chars=0)] * 2
    if isinstance(detector, _detectors.IdleTalk):  # whom any action would calm down
        bad, worst = [Signal(step=ACTS[-1])] * most_calls(detector), []
    if isinstance(detector, _detectors.ContextBurn):
        return [(0.0, Signal(context_used=0.0)), (10.0, Signal(context_used=1.0))]
    if isinstance(detector, _detectors.SpendVelocity):
        cheap, dear = Signal(cost_micros=1), Signal(cost_micros=1_000_000)
        return [(0.0, cheap), (3.0 * detector.window_s, dear)]
    if isinstance(detector, _detectors.FailuresInWindow):
        step_s = detector.apart_s * (1 + 1e-9)  # or rounding brings two of them too close
        ago_s = [step_s * each for each in range(detector.threshold)]
        return [(-each_s, worst_signal()) for each_s in reversed(ago_s)]
    return [(0.0, signal) for signal in [*good, *bad, *worst]]


def most_calls(detector: Detector) -> int:
    """The number of equal calls after which no detector changes."""
    if isinstance(detector, DEBTS):
        return ceil(detector.limit) * 10 + 2  # of a resemblance of which 0.9 is usual
    fields = {**detector.fields(), "remember": 1}  # other errors, not more calls
    return max(value for value in fields.values() if isinstance(value, int)) + 1
