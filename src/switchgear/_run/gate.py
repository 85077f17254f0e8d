"""Whether the next iteration may begin: interrupts, time, iterations, money, circuits, the pace."""

from collections.abc import Callable

from switchgear._core.detector import plural
from switchgear._core.errors import Rejected, duration
from switchgear._run.budget import dollars
from switchgear._run.circuits import Circuits, RunPermits
from switchgear._run.disk import Disk, full_sentence
from switchgear._run.exit_reasons import Ending, ExitReason
from switchgear._run.iteration import Workshop
from switchgear._run.rate_limit import HOUR_S, Pace
from switchgear._run.state import RunState
from switchgear._run.wait import wait


class Gate:
    """Stands before each iteration of one run. Used by one thread.

    `left_s` gives the time that is left, `None` for no end.
    """

    def __init__(
        self, shop: Workshop, circuits: Circuits, left_s: Callable[[], float | None]
    ) -> None:
        self._shop = shop
        self._circuits = circuits
        self._left_s = left_s
        self._pace = Pace(shop.options.rate_limit)
        self._disk = Disk(shop.record.path, shop.folder)

    def remember(self, begun_s: tuple[float, ...]) -> None:
        """Iterations that an earlier process began, in seconds since the epoch."""
        for at_s in begun_s:
            if self._shop.time.wall() - at_s < HOUR_S:
                self._pace.begin(at_s)

    def objection(self, state: RunState, evidence: tuple[str, ...]) -> Ending | None:
        """Why the next iteration must not begin, whatever the circuits say."""
        shop, left_s = self._shop, self._left_s()
        if shop.interrupt.asked:
            return Ending(ExitReason.INTERRUPTED, f"stopped by {shop.interrupt.by}")
        if left_s is not None and left_s <= 0:
            given = duration(shop.options.timeout_s or 0)
            return Ending(ExitReason.TIMEOUT, f"the {given} for the run are over", evidence)
        full = self._disk.objection()
        if full is not None:
            return Ending(ExitReason.DISK_FULL, full_sentence(full), evidence)
        if state.used >= shop.options.max_iterations:
            sentence = f"{plural(state.used, 'iteration')} and the task is not done"
            return Ending(ExitReason.MAX_ITERATIONS, sentence, evidence)
        why = self._too_dear(state)
        return None if why is None else Ending(ExitReason.BUDGET, why, evidence)

    def _too_dear(self, state: RunState) -> str | None:
        options = self._shop.options
        if options.budget_micros is None:
            return None
        if state.unknown_prices and not options.allow_unknown_price:
            return (
                f"the cost of {plural(state.unknown_prices, 'iteration')} is unknown, so the budget "
                f"of {dollars(options.budget_micros)} cannot be enforced; --allow-unknown-price "
                "continues anyway"
            )
        return state.budget(options.budget_micros).objection

    def ask(self) -> RunPermits | Ending | None:
        """Leave of the circuits; `None`: one was waited for, so look again."""
        try:
            return self._circuits.ask()
        except Rejected as refused:
            loops = refused.circuit == self._circuits.loop.name
            if loops or refused.retry_after_s is None:
                hot = self._circuits.evidence()
                return Ending(ExitReason.CIRCUIT_BREAKER, str(refused), hot)
            why = f"for {refused.circuit} ({refused.reason})"
            return self.wait(why, refused.retry_after_s, ExitReason.AGENT_ERROR)

    def pace(self) -> Ending | float:
        """Wait for the rate limit. Returns when the iteration begins, in seconds since the epoch."""
        time = self._shop.time
        wait_s = self._pace.wait_s(time.wall())
        if wait_s > 0:
            limit = self._shop.options.rate_limit
            ending = self.wait(f"for --rate-limit {limit}/h", wait_s, ExitReason.RATE_LIMIT)
            if ending is not None:
                return ending
        now_s = time.wall()
        self._pace.begin(now_s)
        return now_s

    def wait(self, why: str, seconds: float, too_long: ExitReason) -> Ending | None:
        """Wait visibly, if there is so much time left."""
        shop, left_s = self._shop, self._left_s()
        if left_s is not None and seconds > left_s:
            needed, left = duration(seconds), duration(max(left_s, 0.0))
            sentence = f"waiting {needed} {why} would be longer than the {left} that are left"
            return Ending(too_long, sentence)
        if wait(why, seconds, on=shop.time, view=shop.view, interrupt=shop.interrupt):
            return None
        return Ending(ExitReason.INTERRUPTED, f"stopped by {shop.interrupt.by} while waiting {why}")
