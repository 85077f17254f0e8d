"""What one process knows of a circuit: the last state it saw, and what the fast paths read of it.

A closed circuit is passed and an open one refused by this, without a lock and without a message.
"""

import math
import os
from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

from switchgear._breaker.tickets import FOLD_EVERY_S, UNLIMITED, Run
from switchgear._core.errors import Refusal
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Mode, Permit, Phase, Signal, Verdict
from switchgear._core.verdicts import refuses_until_s, standing
from switchgear._sinks.dispatch import CallHook, Sink
from switchgear._stores.base import Remembers
from switchgear._stores.memory import MemoryCell
from switchgear._system.clock import Clock
from switchgear._system.fork_lock import ForkSafeLock

WARM_S = 1.0
"""How long a circuit stays warm after a failure: so long each success has its own time."""
MOST_TIMES = 512
"""How many successes of a warm circuit wait at most before they are submitted."""
MOST_DATES = 32
"""How many different times one report has at most."""

_FLOWING = (Phase.CLOSED, Phase.TRIPPING)


class SharedEvidence:
    """The part of one breaker. Changed under the breaker's lock or by one assignment."""

    __slots__ = (
        "failed_s",
        "generation",
        "isolated",
        "own",
        "process",
        "remarked_s",
        "settle_at_s",
        "since_s",
        "submitted_s",
        "warm_until_s",
    )

    def __init__(self, store: Any) -> None:
        self.process = store.process
        self.warm_until_s = -math.inf
        """Until when, on our own clock, the circuit is warm."""
        self.since_s = -math.inf
        """Up to when, on the circuit's clock, this process has reported everything."""
        self.submitted_s = -math.inf
        """When, on our own clock, it last reported."""
        self.settle_at_s = math.inf
        """When, on our own clock, evidence that waits for others is final at the latest."""
        self.failed_s = 0.0
        """The last failure elsewhere that was noticed."""
        self.own: Circuit | None = None
        """The circuit as the calls of this process alone make it."""
        self.isolated = False
        """Whether this process stays away although the shared circuit is closed."""
        self.remarked_s: float | None = None
        """The next probe, on the circuit's clock, that was last recorded in the shared circuit."""
        self.generation = 0
        """The generation of the shared circuit in which it isolated itself: a reset begins another."""

    def is_isolated(self, circuit: Circuit) -> bool:
        """Whether this process stays away although that circuit is closed."""
        return (
            self.isolated
            and circuit.generation == self.generation
            and circuit.phase in _FLOWING
            and circuit.mode is Mode.AUTO
        )


def shared_evidence(store: Any) -> SharedEvidence | None:
    """The part of a breaker over this store; `None` where no other process can take part."""
    return SharedEvidence(store) if getattr(store, "process", None) is not None else None


def this_process() -> str:
    """The name of this process in remarks, such as `process 17 on web-3`."""
    return f"process {os.getpid()} on {os.uname().nodename}"


def isolation_reason(reason: str) -> str:
    """Why a process refuses on a circuit that is closed for all others."""
    return f"this process: {reason}; the shared circuit is closed: other processes succeed"


def dates(times: tuple[float, ...]) -> tuple[tuple[float, int], ...]:
    """When how many happened; neighbours together where there are too many to list."""
    if len(times) <= MOST_DATES:
        return tuple((at_s, 1) for at_s in times)
    size = -(-len(times) // MOST_DATES)
    parts = [times[start : start + size] for start in range(0, len(times), size)]
    return tuple((part[-1], len(part)) for part in parts)


NO_REFUSALS = repeat(None, 0)
_FIRST_PERMIT = Permit(1)
"""That of all circuits that never opened: there are many, and one is always at hand."""


class Times(NamedTuple):
    """What the clocks said before the lock was taken."""

    due_s: float
    """When, on our own clock, a run must be folded and a snapshot read again."""
    ahead_s: float
    """How far our own clock is ahead of the circuit's."""


class Snapshot:
    """What a breaker knows of its circuit. Changed under the lock, read without.

    Without a `store` it remembers the circuit itself. A store that others share comes with its
    `wall`, the clock of those who share it; `clock` then only measures how long things take.
    """

    __slots__ = (
        "__weakref__",
        "_circuit",
        "_clock",
        "_lock",
        "_on_call",
        "_probe_refusal",
        "_refusal",
        "_refusals",
        "_refusals_folded",
        "_refuse_until_s",
        "_run",
        "_shared",
        "_slow_from_s",
        "_store",
        "_wall",
        "name",
        "policy",
        "sinks",
    )

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        clock: Clock,
        sinks: tuple[Sink, ...],
        store: Remembers | None,
        wall: Clock | None,
    ) -> None:
        self.name = name
        self.policy = policy
        self._clock = clock
        self._wall = wall
        self.sinks = sinks
        self._on_call: tuple[CallHook, ...] = ()
        self._slow_from_s = policy.slow_from_s
        self._lock = ForkSafeLock()
        self._store: Remembers = MemoryCell(self._lock) if store is None else store
        self._run: Run | None = None
        """Where successes are counted while the circuit is closed; `None` while it is not."""
        self._refusal: Refusal | None = None
        """What everybody is told until its time, while the circuit refuses everybody."""
        self._probe_refusal: Refusal | None = None
        """The same while it refuses because of its probes: all but those who are inside of one."""
        self._refuse_until_s = -math.inf
        self._refusals: Iterator[None] = NO_REFUSALS
        """Counts refusals by what is left of it: taking one is atomic and needs no lock."""
        self._refusals_folded = 0
        self._shared = None if wall is None else shared_evidence(self._store)
        """What this process has yet to report, where others share the circuit."""
        self._circuit = policy.start(self.name, self._now_s())
        self._look_at(self._circuit, self._times())

    # Time

    def _now_s(self) -> float:
        """Now, as the circuit counts time."""
        return self._clock() if self._wall is None else self._wall()

    def _due_s(self) -> float:
        """When, on our own clock, a run must be folded and a snapshot read again."""
        limits = [] if self._slow_from_s is None else [FOLD_EVERY_S, self._slow_from_s]
        refresh_s = self._store.refresh_s
        if refresh_s is not None or self._store.pushes:
            limits.append(FOLD_EVERY_S if refresh_s is None else refresh_s)
        return self._clock() + min(limits) if limits else math.inf

    def _times(self) -> Times:
        """What clocks have to say of a snapshot; asked for first, because they are user code."""
        ahead_s = 0.0 if self._wall is None else self._clock() - self._wall()
        return Times(self._due_s(), ahead_s)

    @property
    def _polls(self) -> bool:
        """Whether a snapshot must be read again now and then, because nobody pushes changes."""
        return self._wall is not None and self._store.refresh_s is not None

    @property
    def _asks_always(self) -> bool:
        """Whether nothing passes or is refused unasked: a strict policy over a shared store."""
        return self.policy.strict and self._wall is not None

    # The snapshot

    def _look_at(self, circuit: Circuit, times: Times) -> Run | None:
        """Set what the fast paths read; returns the run that this ends, if it ends one."""
        run = self._run
        closed = circuit.phase is Phase.CLOSED and circuit.mode is not Mode.HELD_OPEN
        if self._shared is not None and self._shared.is_isolated(circuit):
            self._set_run(None)
            if self._refusals is NO_REFUSALS:
                self._refusals = repeat(None, UNLIMITED)
            self._probe_refusal, self._refusal = None, self._isolation(times)
            return run
        if closed and not self._asks_always:
            most = self._most(circuit)
            if run is not None and run.permit.generation == circuit.generation:
                if run.fits(most):
                    self._set_run(run)  # again: pushes may have begun or ceased to arrive
                    return None
                self._set_run(Run(run.permit, run.due_s, 0))  # which takes over from this one
                return run
            self._refusal = self._probe_refusal = None
            first = circuit.generation == _FIRST_PERMIT.generation
            permit = _FIRST_PERMIT if first else Permit(circuit.generation)
            self._set_run(Run(permit, times.due_s, most))
            return run
        self._set_run(None)
        if self._refusals is NO_REFUSALS:
            self._refusals = repeat(
                None, UNLIMITED
            )  # before the refusal, or somebody is not counted
        refusal = None if self._asks_always else self._what_to_refuse_with(circuit, times)
        probing = circuit.phase is Phase.HALF_OPEN and circuit.mode is Mode.AUTO
        self._probe_refusal, self._refusal = (refusal, None) if probing else (None, refusal)
        return run

    def _most(self, circuit: Circuit) -> int:
        """How many successes may take tickets: on a warm circuit none, as each has its time."""
        shared = self._shared
        if shared is not None and self._clock() < shared.warm_until_s:
            return 0
        return self._limit(circuit)

    def _limit(self, circuit: Circuit) -> int:
        """How many successes may go untold: the next one could make a detector begin to judge."""
        try:
            before = self.policy.judges_after(circuit.memories, self._success(1), circuit.seen_s)
        except (AttributeError, TypeError, ValueError):
            # Pushed by one whose policy has other detectors; the next message brings our own.
            return UNLIMITED
        return before - 1 if before else UNLIMITED

    def _what_to_refuse_with(self, circuit: Circuit, times: Times) -> Refusal | None:
        until_s = refuses_until_s(self.policy, circuit)
        if until_s == -math.inf:
            return None
        until_s += times.ahead_s
        self._refuse_until_s = min(until_s, times.due_s) if self._polls else until_s
        return self._refusal_of(circuit, standing(self.policy, circuit, circuit.seen_s), until_s)

    def _refusal_of(self, circuit: Circuit, verdict: Verdict, until_s: float) -> Refusal:
        last_error = circuit.failures[-1].error if circuit.failures else None
        held = circuit.mode is Mode.HELD_OPEN
        return Refusal(verdict.phase, verdict.reason, until_s, last_error, held)

    def _isolation(self, times: Times) -> Refusal | None:
        """What this process is told while its own calls fail and those of others succeed."""
        own = None if self._shared is None else self._shared.own
        if own is None:
            return None
        until_s = refuses_until_s(self.policy, own)
        if until_s == -math.inf:
            return None
        until_s += times.ahead_s
        self._refuse_until_s = min(until_s, times.due_s) if self._polls else until_s
        last_error = own.failures[-1].error if own.failures else None
        reason = isolation_reason(standing(self.policy, own, own.seen_s).reason)
        return Refusal(own.phase, reason, until_s, last_error, False)

    def _set_run(self, run: Run | None) -> None:
        self._run = run

    def _success(self, count: int) -> Signal:
        # Nothing in a run was slow, and to the detectors all durations that are not are alike.
        return Signal(ok=True, seconds=None if self._slow_from_s is None else 0.0, count=count)
