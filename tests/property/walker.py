"""Walks a circuit through messages and holds every step against the oracle and the laws.

The verbs are composite: one of them trips and waits, hangs a probe, or brings results from three
generations ago, so that few of them reach states that single random messages hardly ever do.
`test_machine.py` lets hypothesis choose the verbs, `corpus.py` a seeded generator.
"""

import json
import math
from typing import Any

from property.oracle import Oracle
from property.strategies import better_times, hottest
from switchgear._core.machine import LEGAL_MOVES, refuses_until_s, step
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    EventKind,
    Message,
    Mode,
    Override,
    Permit,
    Phase,
    Record,
    Signal,
    Step,
)
from switchgear._core.wire import dump_circuit, dump_event, load_circuit, load_event

MOMENT_S = 1 / 1024  # exact in binary, and less than any time in a policy


class Walker:
    """A circuit, its oracle, and a second circuit that is dumped and loaded after every step."""

    def __init__(self, policy: Policy, key: str, now_s: float) -> None:
        self.policy, self.now_s = policy, now_s
        self.circuit = self.stored = policy.start(key, now_s)
        self.oracle = Oracle(policy, key, now_s)
        self.permits: list[Permit] = []
        self.moves: set[tuple[Phase, Phase]] = set()

    # Single messages

    def say(self, message: Message, *, back_s: float = 0.0) -> Step:
        at_s, before = self.now_s - back_s, self.circuit
        done = step(self.policy, before, message, at_s)
        expected = self.oracle.hear(message, at_s)
        assert done._replace(circuit=done.circuit._replace(memories=())) == expected
        assert step(self.policy, before, message, at_s) == done, "step is not pure"
        self.check_change(before, done, at_s)
        self.check_snapshot(done)
        self.check_stored(message, at_s, done)
        self.moves.update((e.before, e.after) for e in done.events if e.kind is EventKind.MOVED)
        self.circuit = done.circuit
        if done.verdict.permit is not None:
            self.permits.append(done.verdict.permit)
        return done

    def ask(self) -> Permit | None:
        return self.say(Acquire()).verdict.permit

    def record(self, signal: Signal, permit: Permit | None = None) -> Step:
        return self.say(Record(signal, permit))

    def order(
        self, mode: Mode | None, *, reset: bool, for_s: float | None = None, probe: bool = False
    ) -> None:
        why = f"because {len(self.oracle.events)}"
        until_s = None if for_s is None else self.now_s + for_s
        self.say(Override("ada", why, mode, reset, until_s=until_s, probe=probe))

    def hold_for(self, mode: Mode, for_s: float) -> None:
        """Hold, and check that the hold ends exactly at its time."""
        self.order(mode, reset=False, for_s=for_s)
        ends_s = self.now_s + for_s
        if for_s > MOMENT_S:
            self.now_s = ends_s - MOMENT_S
            self.ask()
            assert self.circuit.mode is mode
        self.now_s = ends_s
        self.record(Signal(count=0))
        assert self.circuit.mode is Mode.AUTO

    def probe_now(self, signal: Signal) -> None:
        """An operator does not wait for the end of the cooldown."""
        self.trip()
        self.order(None, reset=False, probe=True)
        self.record(signal, self.ask())

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    # The laws of one step

    def check_change(self, before: Any, done: Step, at_s: float) -> None:
        after = done.circuit
        if after == before:
            assert after is before, "what has not changed must be the same object"
            assert not done.events
        else:
            assert after.version == before.version + 1
            assert after.seen_s == max(at_s, before.seen_s)
        numbers = [event.seq for event in done.events]
        assert numbers == [*range(before.event_seq + 1, after.event_seq + 1)]
        for event in done.events:
            moved = event.kind is EventKind.MOVED
            assert (event.before, event.after) in LEGAL_MOVES if moved else True
            assert moved or event.before is event.after
        assert done.verdict.phase is after.phase
        assert (after.probing.permits == ()) or after.phase is Phase.HALF_OPEN

    def check_snapshot(self, done: Step) -> None:
        """Check that a snapshot refuses exactly the calls that a message would refuse."""
        now_s, circuit = max(self.now_s, done.circuit.seen_s), done.circuit
        until_s = refuses_until_s(self.policy, circuit)
        answer = step(self.policy, circuit, Acquire(), now_s).verdict
        if now_s < until_s:
            assert not answer.admitted
            if circuit.mode is Mode.HELD_OPEN:
                assert until_s == math.inf or self.ends_at(circuit, until_s)
                return
            rule, probing = self.policy.recovery, circuit.probing
            known = probing.successes + probing.failures
            places = rule.probes if rule.of is None else min(rule.probes, rule.of - known)
            # The policy was changed, or a probe that had lost its place reports.
            crowded = len(probing.permits) > places
            if until_s < math.inf and not crowded:
                assert step(self.policy, circuit, Acquire(), until_s).verdict.admitted
        elif not circuit.outage.admit:
            assert answer.admitted

    def ends_at(self, circuit: Circuit, until_s: float) -> bool:
        return step(self.policy, circuit, Acquire(), until_s).circuit.mode is Mode.AUTO

    def check_stored(self, message: Message, at_s: float, done: Step) -> None:
        """The circuit that was written and read after every step has the same future."""
        again = step(self.policy, self.stored, message, at_s)
        assert again[1:] == done[1:]
        text = json.dumps(dump_circuit(self.policy, again.circuit), allow_nan=False)
        assert text == json.dumps(dump_circuit(self.policy, done.circuit))
        self.stored = load_circuit(self.policy, json.loads(text))
        assert self.stored._replace(memories=()) == done.circuit._replace(memories=())
        for event in done.events:
            assert load_event(json.loads(json.dumps(dump_event(event)))) == event

    # Composite verbs

    def trip(self, retry_after_s: float | None = None) -> None:
        """Record the worst signal, under a permit if one is issued."""
        for signal in better_times(self.policy):
            self.record(signal)
        permit = self.ask()
        self.record(hottest(self.policy)._replace(retry_after_s=retry_after_s), permit)

    def wait_out(self, *, early: bool = False) -> None:
        """Wait exactly until the circuit changes by time, or until just before."""
        moments = [self.circuit.outage.retry_at_s]
        moments += [permit.lease_until_s for permit in self.circuit.probing.permits]
        known = [at_s for at_s in moments if at_s is not None]
        if known:
            self.now_s = max(self.now_s, min(known) - (MOMENT_S if early else 0.0))
        self.ask()

    def half_open(self) -> None:
        if self.circuit.phase is not Phase.HALF_OPEN:
            self.trip()
            self.wait_out(early=True)
            self.wait_out()

    def probe(self, signal: Signal) -> None:
        """One probe from half-open to its report."""
        self.half_open()
        self.record(signal, self.ask())

    def hang_probes(self, late: Signal) -> None:
        """Every probe hangs until its lease ends, others are admitted, and all report in the end."""
        self.half_open()
        hung = [self.ask() for _ in range(self.policy.recovery.probes + 1)]
        self.wait_out(early=True)
        self.wait_out()
        for permit in hung:
            self.record(late, permit)
            self.record(late, permit)

    def hang_many_probes(self, many: int, late: Signal) -> None:
        """More probes hang than are kept; the newest and the oldest of them report."""
        self.half_open()
        hung = []
        for _ in range(many):
            hung.append(self.ask())
            self.wait_out()
        for permit in (hung[0], hung[-1], hung[many // 2], hung[-1]):
            self.record(late, permit)

    def bring_stale(self, signal: Signal, how_old: int) -> None:
        """A result from long ago."""
        self.half_open()
        if self.permits:
            self.record(signal, self.permits[-min(how_old, len(self.permits))])

    def meet_reduced_load(self, asks: int, signal: Signal) -> None:
        for permit in [self.ask() for _ in range(asks)]:
            if permit is not None:
                self.record(signal, permit)

    def escalate(self, signal: Signal) -> None:
        """Slow calls reduce the load; then failures come on top."""
        self.record(hottest(self.policy)._replace(ok=True))
        self.meet_reduced_load(3, signal)
        self.record(hottest(self.policy)._replace(retry_after_s=2.5))
        self.meet_reduced_load(3, signal)

    def escalate_while_probing(self, signal: Signal) -> None:
        """Slow calls reduce the load, the wait ends, a probe is out: then failures come on top."""
        self.order(Mode.AUTO, reset=True)
        self.record(hottest(self.policy)._replace(ok=True))
        self.wait_out()
        for _ in range(self.policy.recovery.probes):
            self.ask()
        self.meet_reduced_load(12, signal)

    def worry_and_calm(self, signal: Signal, quiet_s: float) -> None:
        """Failures until a reset circuit is TRIPPING; then only time passes."""
        self.order(Mode.AUTO, reset=True)
        for _ in range(12):
            if self.circuit.phase is not Phase.CLOSED:
                break
            self.record(signal, self.ask())
        self.wait(quiet_s)
        self.ask()

    def run_backwards(self, message: Message, back_s: float) -> None:
        self.say(message, back_s=back_s)
