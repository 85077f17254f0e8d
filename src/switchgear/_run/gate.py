"""Whether the next iteration may begin: interrupts, time, iterations, money, circuits, rate limit, provider.

A rate limit of the provider is waited out for as long as it says. An outage is retried after growing
pauses until the provider's circuit opens; then the run ends. Neither is evidence against the loop.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from switchgear._agents.events import LIMITED, AgentError
from switchgear._breaker.handle import Breaker
from switchgear._core import values
from switchgear._core.detector import plural
from switchgear._core.errors import Rejected, duration
from switchgear._core.types import Phase
from switchgear._run.circuits import Circuits, RunPermits
from switchgear._run.dependencies import IterationContext
from switchgear._run.exit_reasons import Ending, ExitReason
from switchgear._run.interrupt import wait
from switchgear._run.record import Disk, full_sentence
from switchgear._run.state import RunState
from switchgear._text.money import dollars

HOUR_S = 3600.0


class RateLimit:
    """Counts the iterations begun within the last hour. Owned by one run, in one thread.

    >>> limit = RateLimit(2)
    >>> limit.begin(0.0), limit.begin(10.0), limit.wait_s(20.0)
    (None, None, 3580.0)
    """

    def __init__(self, per_hour: int | None) -> None:
        self._per_hour = None if per_hour is None else values.whole("rate_limit", per_hour)
        self._begun: deque[float] = deque()

    def begin(self, now_s: float) -> None:
        """An iteration begins."""
        self._begun.append(now_s)

    def wait_s(self, now_s: float) -> float:
        """How long the next iteration must wait; 0: not at all."""
        while self._begun and now_s - self._begun[0] >= HOUR_S:
            self._begun.popleft()
        if self._per_hour is None or len(self._begun) < self._per_hour:
            return 0.0
        return self._begun[-self._per_hour] + HOUR_S - now_s


FIRST_PAUSE_S = 5.0
PROVIDER_PATIENCE_S = 3600.0
"""Total seconds to wait for a provider until it has worked once."""


class Pause(NamedTuple):
    """What to do next."""

    seconds: float
    why: str
    ends: ExitReason | None = None
    """End the run instead, for that reason; `why` is the sentence."""
    too_long: ExitReason = ExitReason.RATE_LIMIT
    """The exit reason if less time than that is left."""


def pause_for(trouble: AgentError, state: RunState, provider: Breaker) -> Pause:
    """What to do after an iteration that the provider failed."""
    growing_s = FIRST_PAUSE_S * 2.0 ** min(max(state.provider_failures - 1, 0), 16)
    if trouble.kind not in LIMITED:
        if provider.last_known.phase is Phase.OPEN:
            words = (
                f"{provider.name} is down, {plural(state.provider_failures, 'iteration')} in a row"
            )
            return Pause(0.0, f"{words}: {trouble.text}", ExitReason.AGENT_ERROR)
        seconds = max(trouble.retry_after_s or 0.0, growing_s)
        why = f"for {provider.name} to come back ({trouble.kind})"
        return _patient(Pause(seconds, why, None, ExitReason.AGENT_ERROR), state, trouble)
    if trouble.kind == "quota" and trouble.retry_after_s is None:
        words = f"the quota at {provider.name} is used up"
        return Pause(0.0, f"{words}: {trouble.text}", ExitReason.RATE_LIMIT)
    wait_s = trouble.retry_after_s if trouble.retry_after_s is not None else growing_s
    return _patient(Pause(wait_s, f"for the rate limit of {provider.name}"), state, trouble)


def _patient(pause: Pause, state: RunState, trouble: AgentError) -> Pause:
    waited_s = state.provider_waited_s + pause.seconds
    if waited_s <= PROVIDER_PATIENCE_S:
        return pause
    words = f"waiting {duration(pause.seconds)} {pause.why} would make it {duration(waited_s)}"
    limit = f"more than the {duration(PROVIDER_PATIENCE_S)} that a provider gets"
    return Pause(0.0, f"{words}, {limit}: {trouble.text}", pause.too_long)


class IterationGate:
    """Stands before each iteration of one run. Used by one thread.

    `left_s` gives the time that is left, `None` for no end.
    """

    def __init__(
        self, context: IterationContext, circuits: Circuits, left_s: Callable[[], float | None]
    ) -> None:
        self._context = context
        self._circuits = circuits
        self._left_s = left_s
        self._rate_limit = RateLimit(context.options.rate_limit)
        self._disk = Disk(context.record.path, context.folder)

    def remember(self, begun_s: tuple[float, ...]) -> None:
        """Iterations that an earlier process began, in seconds since the epoch."""
        for at_s in begun_s:
            if self._context.time.wall() - at_s < HOUR_S:
                self._rate_limit.begin(at_s)

    def objection(self, state: RunState, evidence: tuple[str, ...]) -> Ending | None:
        """Why the next iteration must not begin, regardless of the circuits."""
        context, left_s = self._context, self._left_s()
        if context.interrupt.asked:
            return Ending(ExitReason.INTERRUPTED, f"stopped by {context.interrupt.by}")
        if left_s is not None and left_s <= 0:
            given = duration(context.options.timeout_s or 0)
            return Ending(ExitReason.TIMEOUT, f"the time limit of {given} was reached", evidence)
        full = self._disk.objection()
        if full is not None:
            return Ending(ExitReason.DISK_FULL, full_sentence(full), evidence)
        if state.used >= context.options.max_iterations:
            sentence = f"{plural(state.used, 'iteration')} and the task is not done"
            return Ending(ExitReason.MAX_ITERATIONS, sentence, evidence)
        why = self._too_dear(state)
        return None if why is None else Ending(ExitReason.BUDGET, why, evidence)

    def _too_dear(self, state: RunState) -> str | None:
        options = self._context.options
        if options.budget_micros is None:
            return None
        if state.unknown_prices and not options.allow_unknown_price:
            return (
                f"the cost of {plural(state.unknown_prices, 'iteration')} is unknown, so the budget "
                f"of {dollars(options.budget_micros)} cannot be enforced; --allow-unknown-price "
                "continues anyway"
            )
        return state.budget(options.budget_micros).objection

    def acquire(self) -> RunPermits | Ending | None:
        """The permits; `None`: a wait has ended, so check again."""
        try:
            return self._circuits.acquire()
        except Rejected as refused:
            loops = refused.circuit == self._circuits.loop.name
            if loops or refused.retry_after_s is None:
                hot = self._circuits.evidence()
                return Ending(ExitReason.CIRCUIT_BREAKER, str(refused), hot)
            why = f"for {refused.circuit} ({refused.reason})"
            return self.wait(why, refused.retry_after_s, ExitReason.AGENT_ERROR)

    def wait_for_rate_limit(self) -> Ending | float:
        """Wait for the rate limit. Returns when the iteration begins, in seconds since the epoch."""
        time = self._context.time
        wait_s = self._rate_limit.wait_s(time.wall())
        if wait_s > 0:
            limit = self._context.options.rate_limit
            ending = self.wait(f"for --rate-limit {limit}/h", wait_s, ExitReason.RATE_LIMIT)
            if ending is not None:
                return ending
        now_s = time.wall()
        self._rate_limit.begin(now_s)
        return now_s

    def wait(self, why: str, seconds: float, too_long: ExitReason) -> Ending | None:
        """Wait with a countdown, if enough time is left."""
        context, left_s = self._context, self._left_s()
        if left_s is not None and seconds > left_s:
            needed, left = duration(seconds), duration(max(left_s, 0.0))
            sentence = f"waiting {needed} {why} would be longer than the {left} that are left"
            return Ending(too_long, sentence)
        if wait(why, seconds, on=context.time, view=context.view, interrupt=context.interrupt):
            return None
        return Ending(
            ExitReason.INTERRUPTED, f"stopped by {context.interrupt.by} while waiting {why}"
        )
