"""A lock against what a lock is: one holder at a time, numbers that only grow, first come first served."""

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from switchgear._locks.state import (
    PLACE_S,
    AcquireLock,
    BreakLock,
    LockAnswer,
    LockRequest,
    ReleaseLock,
    RenewLease,
    Tenure,
    apply,
    dump_tenure,
    load_tenure,
)

IDS = st.sampled_from("abcd")
LEASES = st.sampled_from((1.0, 1.0, 2.0, 20.0))


class Lock(RuleBasedStateMachine):
    """Random requests to a lock, and to a list of leases and a queue that are looked through anew."""

    def __init__(self) -> None:
        super().__init__()
        self.tenure = Tenure()
        self.now_s = 1000.0
        self.holder: tuple[str, float] | None = None
        self.queue: dict[str, float] = {}
        """Who waits, in the order in which they came, and when they were last seen."""
        self.given = [0]

    def ask(self, asked: LockRequest) -> LockAnswer:
        self.forget()
        step = apply(self.tenure, asked, self.now_s)
        self.tenure = load_tenure(json.loads(json.dumps(dump_tenure(step.tenure))))
        assert self.tenure == step.tenure
        return step.answer

    def forget(self) -> None:
        if self.holder is not None and self.holder[1] <= self.now_s:
            self.holder = None
        self.queue = {who: at for who, at in self.queue.items() if self.now_s - at < PLACE_S}

    @rule(who=IDS, lease=LEASES)
    def somebody_wants_it(self, who: str, lease: float) -> None:
        self.forget()
        holder, queue = self.holder, list(self.queue)
        mine = holder is not None and holder[0] == who
        first = not queue or queue[0] == who
        answer = self.ask(AcquireLock(who, who, lease))
        assert answer.held == (mine or (holder is None and first))
        if answer.held and not mine:
            assert answer.token > self.given[-1], "a number is given once, and they only grow"
            self.given.append(answer.token)
            self.holder = who, self.now_s + lease
            self.queue.pop(who, None)
        elif not answer.held:
            assert answer.holder == ("" if holder is None else holder[0])
            seen = self.queue.get(who)
            if seen is None or self.now_s - seen >= PLACE_S / 4:
                self.queue[who] = self.now_s
            assert answer.ahead == list(self.queue).index(who) + (holder is not None)

    @rule(who=IDS, lease=LEASES)
    def somebody_needs_longer(self, who: str, lease: float) -> None:
        answer = self.ask(RenewLease(who, lease))
        assert answer.held == (self.holder is not None and self.holder[0] == who)
        if answer.held:
            self.holder = who, self.now_s + lease

    @rule(who=IDS)
    def somebody_lets_go(self, who: str) -> None:
        answer = self.ask(ReleaseLock(who))
        assert answer.held == (self.holder is not None and self.holder[0] == who)
        if answer.held:
            self.holder = None
        self.queue.pop(who, None)

    @rule()
    def somebody_breaks_it(self) -> None:
        assert self.ask(BreakLock()).held == (self.holder is not None)
        self.holder = None

    @rule(seconds=st.sampled_from((0.5, 1.0, 1.0, 2.0, PLACE_S, 30.0)))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(back_s=st.sampled_from((1.0, 500.0)), who=IDS)
    def somebodys_clock_is_late(self, back_s: float, who: str) -> None:
        self.forget()
        self.tenure = apply(self.tenure, RenewLease("nobody", 1.0), self.now_s).tenure
        late = apply(self.tenure, AcquireLock(who, who, 1.0), self.now_s - back_s)
        assert late == apply(self.tenure, AcquireLock(who, who, 1.0), self.now_s)

    @invariant()
    def what_is_stored_is_what_is_known(self) -> None:
        holder = self.tenure.holder
        if self.holder is not None and self.holder[1] > self.now_s:
            assert holder is not None
            assert (holder.id, holder.until_s) == self.holder
        elif holder is not None:
            assert holder.until_s <= self.now_s
        assert self.tenure.token == self.given[-1]


TestLock = Lock.TestCase
TestLock.settings = settings(stateful_step_count=40, deadline=None)
