"""A seeded corpus of walks, drawn without hypothesis: quick, and the same on every machine.

Because it is quick and fixed, it is the first to meet a mutant, and it is what the claim "every
legal move is reached" is checked over.
"""

from collections.abc import Callable
from random import Random

from property.strategies import failures_apart
from property.walker import Walker
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
from switchgear._core.types import Acquire, Mode, Override, Record, Signal

TIMES = (0.25, 0.5, 1.0, 1.5, 3.0, 9.0)
ADMITS = (0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9)
BAD = Signal(ok=False, seconds=9.0)
SHARES = (0.0, 0.25, 0.29, 0.5, 0.7, 0.99)


def a_detector_of_calls(random: Random) -> Detector:
    one = random.choice
    window = one((1, 2, 3, 5, 10, 20))
    least = one((None, random.randint(1, window)))
    kinds: tuple[Callable[[], Detector], ...] = (
        lambda: _detectors.ConsecutiveFailures(random.randint(1, 6)),
        lambda: _detectors.FailureRate(window, one(SHARES), least),
        lambda: failures_apart(random.randint(1, 6), one(TIMES), one((0.0, 0.0, 0.5, 1.0))),
        lambda: _detectors.SlowCalls(one(TIMES), window, one(SHARES), least, one(ADMITS)),
        lambda: _detectors.FailureShare(one((1.0, 7.5)), one((0.25, 0.5, 1.0)), one((1, 3, 20))),
        lambda: _detectors.SlowCallShare(
            one(TIMES), one((1.0, 7.5)), one((0.25, 0.5, 1.0)), one((1, 3, 20)), one(ADMITS)
        ),
        lambda: _detectors.LatencyP95(
            one((0.25, 0.5, 1.0)), one((1.0, 2.0)), one((1.0, 7.5)), one((1, 3, 20)), one(ADMITS)
        ),
    )
    return one(kinds)()


def a_detector_of_loops(random: Random) -> Detector:
    one = random.choice
    kinds: tuple[Callable[[], Detector], ...] = (
        lambda: _detectors.NoProgress(random.randint(1, 5), one((0.5, 0.7, 1.0))),
        lambda: _detectors.OutputDecline(one((0.29, 0.7, 1.0)), random.randint(1, 5)),
        lambda: _detectors.SameError(
            random.randint(1, 6),
            one(("total", "total", "consecutive")),
            one(("default", "documented")),
            one((1, 2, 3, 32)),
        ),
        lambda: a_detector_of_calls(random),
    )
    return one(kinds)()


def a_recovery(random: Random) -> Recovery:
    one, base_s = random.choice, random.choice(TIMES)
    if random.random() < 0.2:
        return one((WindowEnd(base_s), Latched()))
    successes = random.randint(1, 3)
    return Cooldown(
        base_s,
        one((None, base_s, base_s * 2.5)),
        factor=one((1.0, 1.5, 2.0)),
        jitter=one((0.0, 0.0, 0.5)),
        probes=random.randint(1, 3),
        successes=successes,
        of=one((None, successes + random.randint(0, 3))),
        lease_s=one((None, *TIMES)),
        retry_after_max_s=one((2.0, 3600.0)),
    )


def a_policy(random: Random, a_detector: Callable[[Random], Detector]) -> Policy:
    among = [a_detector(random) for _ in range(random.randint(1, 3))]
    combine: Combine = AnyDetector()
    if random.random() < 0.3:
        alone = random.choice((None, 0.2, 0.7))
        weighed = among if alone is None else among[: random.randint(1, len(among))]
        weights = {detector.kind: random.choice((10.0, 20.0, 40.0)) for detector in weighed}
        reachable = sum(weights.get(detector.kind, 0.0) for detector in among)
        combine = WeightedSum(weights, reachable * random.choice((0.25, 0.5, 1.0)), alone)
    warn_at = random.choice((None, 0.1, 0.2, 0.5, 0.75))
    return Policy(among, a_recovery(random), combine, warn_at)


def an_iteration(random: Random) -> Signal:
    one = random.choice
    return a_call(random)._replace(
        error=one((None, "529 overloaded", "exit code 1", "exit code 2", "no /a", "no /b")),
        files_changed=one((None, 0, 0, 0, 3)),
        tests_passing=one((None, None, 0, 4, 7)),
        output_chars=one((None, 0, 10, 35, 70, 100, 100, 1000)),
    )


def a_call(random: Random) -> Signal:
    one = random.choice
    return Signal(
        ok=one((None, True, True, False, False)),
        seconds=one((None, 0.25, 1.0, 9.0)),
        error=one((None, "529 overloaded")),
        retry_after_s=one((None, None, None, 0.0, -1.0, 2.5)),
        count=one((0, 1, 1, 1, 1, 2, 21)),
        refused=one((0, 0, 0, 3)),
    )


def act(walker: Walker, random: Random, signal: Signal) -> None:
    """One verb, drawn."""
    one = random.choice
    mode, reset = one((None, *Mode)), random.random() < 0.5
    verbs: tuple[Callable[[], object], ...] = (
        lambda: walker.record(signal, walker.ask()),
        lambda: walker.record(signal, walker.ask()),
        lambda: walker.record(signal),
        lambda: walker.trip(one((None, 0.0, 2.5, 1e6))),
        lambda: walker.wait(one((0.0, 0.25, 1.0, 3.0, 31.25))),
        lambda: walker.wait_out(early=True),
        walker.wait_out,
        lambda: walker.probe(signal._replace(count=1)),
        lambda: walker.probe(Signal(ok=True)),
        lambda: walker.hang_probes(signal),
        lambda: walker.hang_many_probes(one((2, 3, 17)), Signal(ok=one((None, True, False)))),
        lambda: walker.bring_stale(signal, random.randint(1, 9)),
        lambda: walker.meet_reduced_load(random.randint(1, 12), signal),
        lambda: walker.escalate(signal),
        lambda: walker.escalate_while_probing(one((signal, BAD))),
        lambda: walker.worry_and_calm(one((signal, BAD, BAD)), one((0.0, 0.25, 3.0, 9.0))),
        lambda: walker.worry_and_calm(BAD, 9.0),
        lambda: walker.order(mode, reset=reset and one((True, False))),
        lambda: walker.order(Mode.AUTO, reset=False),
        lambda: walker.order(mode, reset=False, for_s=one((0.0, 0.25, 3.0)), probe=reset),
        lambda: walker.hold_for(one([*Mode]), one((0.0, 0.25, 3.0))),
        lambda: walker.probe_now(signal),
        lambda: walker.say(
            one((Acquire(), Record(signal), Override("bob", "clock", reset=True))),
            back_s=one((0.25, 1e3)),
        ),
    )
    one(verbs)()


def change_recovery(walker: Walker, random: Random) -> None:
    """The circuit continues under another policy, as one that was stored does after an upgrade."""
    policy = walker.policy.replace(recovery=a_recovery(random))
    walker.policy = walker.oracle.policy = policy


def walk(seed: int, verbs: int = 40) -> Walker:
    """One walk of calls under one policy; every step of it is checked."""
    return _walked(Random(seed), a_detector_of_calls, a_call, verbs)


def walk_loops(seed: int, verbs: int = 20) -> Walker:
    """The same with iterations, under detectors of which most judge loops."""
    return _walked(Random(seed), a_detector_of_loops, an_iteration, verbs)


def _walked(
    random: Random,
    a_detector: Callable[[Random], Detector],
    a_signal: Callable[[Random], Signal],
    verbs: int,
) -> Walker:
    policy = a_policy(random, a_detector)
    walker = Walker(policy, random.choice(("k", "op/ü", "a\udc80")), 1000.0)
    for _ in range(verbs):
        act(walker, random, a_signal(random))
        if random.random() < 0.03:
            random.choice((walker.half_open, walker.trip))()
            change_recovery(walker, random)
    return walker
