"""The progress of a run, saved as JSON values, and the dependencies of a run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from switchgear._agents.base import Agent
from switchgear._agents.process import SupervisorPool
from switchgear._breaker.loop_breaker import LoopStats
from switchgear._budgets.allowance import RECENT, RunBudget
from switchgear._core import values
from switchgear._core.policy import Policy
from switchgear._measure.tree import Tree
from switchgear._opinion.opinion import SecondOpinion
from switchgear._run.formats import passing, spent
from switchgear._run.inbox import OperatorInbox
from switchgear._run.interrupt import Interrupt, Time
from switchgear._run.options import RunOptions
from switchgear._run.record import RunFolder
from switchgear._run.run_lock import RunLock
from switchgear._run.view import RunView
from switchgear._sinks.dispatch import Sink
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.messages import Option
from switchgear._text.formats import elapsed, plural

Choose = Callable[[str, tuple[Option, ...]], str | None]
"""Shows a text and prompts for an option; `None`: no answer."""


class RunDependencies(NamedTuple):
    """What a run needs besides its options; every field has a default."""

    view: RunView = RunView()
    interrupt: Interrupt | None = None
    time: Time = Time()
    policy: Policy | None = None
    """Replaces the policy that the options describe."""
    sinks: tuple[Sink, ...] = ()
    report: Callable[[RunFolder], Path] | None = None
    """Writes a report of the finished run and returns its path."""
    circuit: str | None = None
    """The loop's circuit, for a run that continues; `None`: by folder, task, agent, validation."""
    answer: str | None = None
    """The operator's answer to the agent's question, for the first prompt."""
    interventions: Interventions = Interventions()
    """What is done about a stuck agent, where the options watch for one."""
    second_opinion: SecondOpinion | None = None
    """The second opinion to request before a stuck agent is stopped; `None`: none."""
    stuck_policy: Policy | None = None
    """Replaces the preset `stuck`."""
    progress_policy: Policy | None = None
    """Replaces the preset `progress`."""
    held_micros: int | None = None
    """The reservation in a budget tree: the run's budget while this process runs it."""
    choose: Choose | None = None
    """Prompts the user about a stuck agent; `None`: no terminal."""
    locks: tuple[RunLock, ...] = ()
    """The locks of the task and of the run, if the caller took them; the run releases them at its end."""
    owner: str = ""
    """The person to notify about the run; empty: unknown."""
    in_batch: bool = False
    """Whether the run is a task of a batch, which continues without it."""
    keeps_messages: bool = False
    """Whether operators may have written to the run already: it waited for this host, or another one lost it."""


class IterationContext(NamedTuple):
    """The environment of every iteration of a run."""

    options: RunOptions
    agent: Agent
    folder: Path
    record: RunFolder
    tree: Tree
    view: RunView
    interrupt: Interrupt
    time: Time
    supervisors: SupervisorPool
    inbox: OperatorInbox
    evidence: Path | None = None
    """The file with the evidence against a stuck agent."""
    helps: bool = False
    """Whether the escalation agent has taken over."""


def short_task(task: str) -> str:
    """The beginning of a task, in one line."""
    return " ".join(task.split())[:60]


KEPT_PATHS = 2_000
KEPT_ERRORS = 1_000


class RunState(NamedTuple):
    """The progress of a run. Immutable: each iteration makes the next one."""

    iterations: int = 0
    lost: int = 0
    """Iterations that the provider failed; they do not count against the maximum."""
    seconds: float = 0.0
    """Total seconds, including waits."""
    spent_micros: int = 0
    recent_micros: tuple[int, ...] = ()
    unknown_prices: int = 0
    priced_by: str | None = None
    """The price list that priced tokens, with its date or version; `None`: none was needed."""
    tokens: int = 0
    best_tests: int | None = None
    tests_passing: int | None = None
    tests_total: int | None = None
    """How many tests the last validation ran; `None`: unknown."""
    changed: tuple[str, ...] = ()
    """The paths that any iteration changed, sorted."""
    uncommitted: tuple[str, ...] = ()
    """The changed paths that are not yet committed."""
    start_mark: str | None = None
    started_s: float | None = None
    """When the run began for the first time, in seconds since the epoch."""
    begun_s: tuple[float, ...] = ()
    """When iterations of the last hour began, in seconds since the epoch."""
    provider_waited_s: float = 0.0
    """Seconds of waiting for the provider since it last worked."""
    provider_failures: int = 0
    """In a row."""
    resumptions: int = 0
    """How often it was resumed."""
    would_stop: int = 0
    """Iterations after which only --shadow let the loop continue."""
    failures: int = 0
    """Failures of this run; each repetition of a failing step counts."""
    failures_in_row: int = 0
    error_keys: tuple[str, ...] = ()
    """The fingerprints of this run's errors, each once."""
    notes: tuple[str, ...] = ()
    """For the next prompt."""
    nudge: str | None = None
    advice: str | None = None
    """Advice to the successor of a stuck agent, for the next prompt."""
    helped: bool = False
    """Whether the escalation agent has taken over."""
    extra_s: float = 0.0
    """Seconds that operators or the escalation granted beyond --timeout."""
    warned: tuple[int, ...] = ()
    """The time warnings already given, in percent."""
    failed_output: str | None = None
    last_error: str | None = None

    @property
    def used(self) -> int:
        """Iterations that count against the maximum."""
        return self.iterations - self.lost

    def work_text(self, *, tests: bool = False) -> str:
        """What was done: `2 iterations in 3 min, 1 file changed, $0.40`."""
        parts = [f"{plural(self.iterations, 'iteration')} in {elapsed(self.seconds)}"]
        parts.append(f"{plural(len(self.changed), 'file')} changed")
        if tests and self.tests_passing is not None:
            parts.append(passing(self.tests_passing, self.tests_total))
        return ", ".join((*parts, spent(self.spent_micros, self.unknown_prices)))

    def budget(self, limit_micros: int | None) -> RunBudget:
        """The cost so far, with a limit to compare it with."""
        return RunBudget(limit_micros, self.spent_micros, self.recent_micros, self.unknown_prices)

    def resumed(self) -> Self:
        """The state at the start of a resumed run: the provider's failures are reset."""
        return self._replace(
            resumptions=self.resumptions + 1, provider_failures=0, provider_waited_s=0.0
        )

    def paid(self, cost_micros: int | None) -> Self:
        """The state after an iteration of that cost."""
        after = self.budget(None).after(cost_micros)
        return self._replace(
            spent_micros=after.spent_micros,
            recent_micros=after.recent_micros,
            unknown_prices=after.unknown,
        )

    def failed(self, key: str | None, times: int) -> Self:
        """The state after `times` failures; `key` is the fingerprint of the error."""
        keys = self.error_keys
        if key is not None and key not in keys and len(keys) < KEPT_ERRORS:
            keys = (*keys, key)
        return self._replace(
            failures=self.failures + times,
            failures_in_row=self.failures_in_row + times,
            error_keys=keys,
        )

    def stats(self, of_circuit: LoopStats) -> LoopStats:
        """The failures of this run; counts that the circuit does not keep are `None`.

        The counts of the circuit itself may include earlier runs.
        """
        consecutive, unique = of_circuit.consecutive_failures, of_circuit.unique_errors
        return LoopStats(
            consecutive_failures=None if consecutive is None else self.failures_in_row,
            total_failures=self.failures,
            unique_errors=None if unique is None else len(self.error_keys),
        )

    def dump(self) -> dict[str, Any]:
        return {key: list(v) if isinstance(v, tuple) else v for key, v in self._asdict().items()}

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `dump`. Raises ValueError for invalid values."""
        known = {key: data[key] for key in cls._fields if key in data}
        for key in ("iterations", "lost", "spent_micros", "unknown_prices", "resumptions"):
            values.check_int(f"state.{key}", known.get(key, 0), least=0)
        values.check_at_least("state.seconds", known.get("seconds", 0.0), 0.0)
        for key, default in cls._field_defaults.items():
            if default == ():
                known[key] = tuple(values.check_list(f"state.{key}", known.get(key, [])))
        state = cls(**known)
        return state._replace(recent_micros=state.recent_micros[-RECENT:])
