"""Observes an iteration while it runs, and judges what its result means for the run.

`StreamObserver` collects steps, errors, output and costs as they arrive, and stops an agent that repeats one
failing step, has spent the rest of its budget, or keeps retrying a provider that is down.

`judge` is pure. An exit code and a "done" are facts, never proof. The rules, in order of precedence:

1. Stopped by Switchgear (interrupt, time, budget), or never started: the run ends, without evidence.
   Time that ran out while the agent only waited for its provider is the provider's failure.
2. The provider failed (rate limit, quota, overload, outage): evidence against it, not the loop.
   A refused key ends the run: no retry fixes it.
3. A question asked with a tool ends the run as blocked.
4. More tests pass than ever before: progress, and no failure, whatever the exit code.
5. The agent failed (exit code, its own report, silence, one failing step repeated), or the validation
   did: a failure, with its error.
6. Final output that is a question ends the run as blocked, unless files changed and were validated.
7. "Done" is accepted when files differ from the start and the validation passes; otherwise it is
   reported as unproven. An exit without any change is a standstill, and a failure if the last step
   failed, or if "done" was promised.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from switchgear._agents.events import (
    LIMITED,
    OUTAGE,
    AgentError,
    AgentResult,
    Question,
    StreamEvent,
    TextOutput,
    ToolStep,
    Usage,
)
from switchgear._agents.prices import cost_of
from switchgear._agents.process import AgentRun, ProcessEnd
from switchgear._providers.prices import Rates
from switchgear._run import formats, validation
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.record import full_sentence
from switchgear._run.stuck import OPERATOR, STUCK
from switchgear._run.validation import ValidationResult
from switchgear._text.fingerprint import fingerprint, gist
from switchgear._text.redact import redact

KEPT_ERRORS = 20
COMPLAINTS = 3
"""Consecutive complaints from which a provider counts as down."""
PATIENCE_S = 30.0
"""Seconds that an agent without any output may retry its provider."""
PATIENCE_AFTER_OUTPUT_S = 300.0
_KEPT_TEXT = 4_000


class SeenError(NamedTuple):
    """An error of the stream, as the record of an iteration contains it."""

    source: str
    """`tool` or `agent`."""
    kind: str
    """The tool's name, or the kind of the agent's complaint."""
    text: str
    key: str
    """Its fingerprint."""
    times: int = 1


class RepeatedStep(NamedTuple):
    """A step that failed repeatedly in the same way, with no successful step in between."""

    tool: str
    arguments: str
    error: str
    times: int


class StreamObserver:
    """Collects the events of one iteration. Used by one thread.

    - `promise`: the text that means "done"; it may be spread over several pieces of output.
    - `same_error`: the number of equal failed steps in a row at which the agent is stopped.
    - `left_micros`: what may still be spent. `rates`: the user's own prices of tokens.
    - `clock`: monotonic, in seconds.
    """

    def __init__(
        self,
        *,
        promise: str | None = None,
        same_error: int | None = None,
        left_micros: int | None = None,
        rates: Rates | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._has_output = False
        self._waiting_since_s = 0.0
        self._complaints = 0
        self._promise = promise
        self._same_error = same_error
        self._left_micros = left_micros
        self._rates = rates
        self._failed_key: str | None = None
        self._failed_step: ToolStep | None = None
        self._repetition: RepeatedStep | None = None
        self._text = ""
        self._usages: dict[str | None, Usage] = {}
        self.promised = False
        self.steps = 0
        self.tools: Counter[str] = Counter()
        self.errors: dict[str, SeenError] = {}
        self.complaint: AgentError | None = None
        """The last complaint of agent or provider; cleared by a later successful step, unless it is final."""
        self.down: AgentError | None = None
        """The complaint after which the provider counts as down and the agent is stopped."""
        self.question: Question | None = None
        self.result: AgentResult | None = None
        self.repeated: RepeatedStep | None = None

    def see(self, event: StreamEvent) -> str | None:
        """Add an event. Returns why the agent must be stopped now: `stuck`, `budget`, `provider`; else `None`."""
        if isinstance(event, ToolStep | TextOutput):
            self._has_output, self._complaints = True, 0
        if isinstance(event, ToolStep):
            return self._step(event)
        if isinstance(event, TextOutput):
            self._add_text(event.text)
        elif isinstance(event, Usage):
            return self._spend(event)
        elif isinstance(event, AgentError):
            return self._complain(event)
        elif isinstance(event, Question):
            self.question = event
        elif isinstance(event, AgentResult):
            self.result = event
            self._add_text(event.text)
        return None

    def grant(self, micros: int) -> None:
        """Raise the spending limit, if there is one."""
        if self._left_micros is not None:
            self._left_micros += micros

    @property
    def usages(self) -> tuple[Usage, ...]:
        return tuple(self._usages.values())

    @property
    def waits_for_provider(self) -> bool:
        """Whether the agent does nothing but retry its provider; after any output, for `PATIENCE_S` at least."""
        if not self._complaints:
            return False
        return not self._has_output or self._clock() - self._waiting_since_s >= PATIENCE_S

    @property
    def ended_on(self) -> str | None:
        """The error of the agent's last step, if that step failed."""
        return None if self._repetition is None else self._repetition.error

    def _step(self, step: ToolStep) -> str | None:
        self.steps += 1
        self.tools[step.tool] += 1
        if step.ok:
            self._failed_key = self._failed_step = self._repetition = None
            if self.complaint is not None and not self.complaint.final:
                self.complaint = None  # a retry succeeded
            return None
        if step.ok is None or step.error is None:
            return None
        key = self._error("tool", step.tool, step.error)
        last = self._repetition if self._is_repetition(step, key) else None
        # Some agents lose the output of a command: then the previous error counts.
        error = last.error if last is not None and step.silent else redact(gist(step.error))
        self._failed_key, self._failed_step = key, step
        times = 1 if last is None else last.times + 1
        self._repetition = RepeatedStep(step.tool, step.arguments, error, times)
        if self._same_error is not None and times >= self._same_error:
            self.repeated = self._repetition
            return "stuck"
        return None

    def _complain(self, error: AgentError) -> str | None:
        self.complaint = error
        self._error("agent", error.kind, error.text)
        if error.kind not in OUTAGE | LIMITED:
            self._complaints = 0
            return None
        if not self._complaints:
            self._waiting_since_s = self._clock()
        self._complaints += 1
        if error.final or error.kind in LIMITED or self._complaints < COMPLAINTS:
            return None
        patience_s = PATIENCE_AFTER_OUTPUT_S if self._has_output else PATIENCE_S
        if self._clock() - self._waiting_since_s < patience_s:
            return None
        self.down = self.down or error
        return "provider"

    def _is_repetition(self, step: ToolStep, key: str) -> bool:
        """Whether the last failure is repeated: the same error, or the same call if an output is lost."""
        last = self._failed_step
        if last is None:
            return False
        if step.silent or last.silent:
            return step.call_key == last.call_key
        return key == self._failed_key

    def _spend(self, usage: Usage) -> str | None:
        self._usages[usage.model] = usage
        if self._left_micros is None:
            return None
        known = sum(cost_of([each], self._rates).micros or 0 for each in self._usages.values())
        return "budget" if known > self._left_micros else None

    def _add_text(self, text: str) -> None:
        self._text = f"{self._text}\n{text}"[-2 * _KEPT_TEXT :]
        if self._promise is not None and self._promise in self._text:
            self.promised = True

    def _error(self, source: str, kind: str, text: str) -> str:
        key = fingerprint(text)
        seen = self.errors.get(f"{source} {key}")
        if seen is not None:
            self.errors[f"{source} {key}"] = seen._replace(times=seen.times + 1)
        elif len(self.errors) < KEPT_ERRORS:
            self.errors[f"{source} {key}"] = SeenError(source, kind, redact(gist(text)), key)
        return key


class Measurements(NamedTuple):
    run: AgentRun
    watch: StreamObserver
    stopped: str | None = None
    """Why the agent was stopped: `interrupt`, `operator`, `stuck`, `score`, `budget`, `provider`;
    `None`: not."""
    changed: int | None = None
    """Files that differ from the start of the iteration."""
    changed_overall: Callable[[], bool] = bool
    """Returns whether files differ from the start of the run; called only after a claim."""
    validated: ValidationResult | None = None
    best_tests: int | None = None
    """The most tests that passed in any iteration before."""
    promise: str | None = None
    plan_done: bool | None = None
    """Whether every box of the plan is ticked; `None`: there is no plan."""
    idle_s: float | None = None
    time_over: bool = False
    """Whether the time of the run was over at the end of the iteration."""


class Judgement(NamedTuple):
    outcome: str
    """`worked`, `no change`, `failed`, `unproven`, `provider`, `stopped`, `stuck`, `blocked` or
    `completed`."""
    ok: bool | None = None
    error: str | None = None
    end: ExitReason | None = None
    reason: str = ""
    """Why the run ends, as a sentence."""
    provider: AgentError | None = None
    claims: bool = False
    """Whether the agent claims to be done."""
    remark: str | None = None
    """For the next prompt and for the record."""


def judge(seen: Measurements) -> Judgement:
    return (
        _judge_stop(seen)
        or _judge_provider(seen)
        or _judge_question(seen, by_tool=True)
        or _judge_work(seen)
    )


def provider_trouble(run: AgentRun, watch: StreamObserver) -> AgentError | None:
    """The provider's complaint that ended the agent's work, if one did."""
    complaint = watch.complaint
    if complaint is None or complaint.kind not in OUTAGE | LIMITED | {"auth"}:
        return None
    claimed = watch.result.claimed_success if watch.result else None
    gave_up = complaint.final or run.exit_code != 0 or claimed is False
    return complaint if gave_up and claimed is not True else None


def _judge_stop(seen: Measurements) -> Judgement | None:  # noqa: PLR0911  one for each way
    run = seen.run
    if run.end is ProcessEnd.NOT_FOUND:
        return _end(ExitReason.AGENT_ERROR, run.problem)
    if seen.stopped == "interrupt":
        return _end(ExitReason.INTERRUPTED, "stopped while the agent worked")
    if seen.stopped == OPERATOR:
        return Judgement("stopped", remark="An operator stopped the last agent")
    if seen.stopped == STUCK:
        return Judgement("stuck", remark="The last agent was stopped: it appeared stuck")
    if seen.stopped == "disk":
        sentence = full_sentence("the log of the agent could not be written")
        return _end(ExitReason.DISK_FULL, sentence)
    if seen.stopped == "budget":
        return _end(ExitReason.BUDGET, "the agent spent the rest of the budget and was stopped")
    if run.end is ProcessEnd.DEADLINE:
        return _waited_too_long(seen.watch) or _end(
            ExitReason.TIMEOUT, "the time limit was reached while the agent worked"
        )
    if seen.validated is not None and seen.validated.ok is None:
        return _end(ExitReason.INTERRUPTED, "stopped during the validation")
    if seen.validated is not None and seen.validated.late and seen.time_over:
        return _end(ExitReason.TIMEOUT, "the time limit was reached during the validation")
    return None


def _waited_too_long(watch: StreamObserver) -> Judgement | None:
    trouble = watch.complaint
    if trouble is None or not watch.waits_for_provider:
        return None
    end = ExitReason.RATE_LIMIT if trouble.kind in LIMITED else ExitReason.AGENT_ERROR
    sentence = f"the time limit was reached while the agent waited for its provider: {trouble.text}"
    return Judgement("provider", error=trouble.text, end=end, reason=sentence, provider=trouble)


def _end(reason: ExitReason, sentence: str) -> Judgement:
    return Judgement("stopped", None, None, reason, sentence)


def _judge_provider(seen: Measurements) -> Judgement | None:
    trouble = seen.watch.down or provider_trouble(seen.run, seen.watch)
    if trouble is None or seen.stopped not in {None, "provider"}:
        return None
    if trouble.kind == "auth":
        return Judgement(
            "provider",
            end=ExitReason.AGENT_ERROR,
            reason=f"the provider refuses the key or login: {trouble.text}",
            provider=trouble,
        )
    return Judgement("provider", provider=trouble, error=trouble.text)


def _judge_question(seen: Measurements, *, by_tool: bool = False) -> Judgement | None:
    """Blocked, if the agent asks: with a tool, or else in its text without the promise."""
    question = seen.watch.question
    if question is None or seen.stopped is not None:
        return None
    if not question.by_tool if by_tool else seen.watch.promised:
        return None
    reason = f"the agent asks: {question.text}"
    return Judgement("blocked", end=ExitReason.BLOCKED, reason=reason, remark=question.text)


def _judge_work(seen: Measurements) -> Judgement:
    failure = _failure(seen)
    claims = failure is None and _claims_done(seen)
    tests = tests_passing(seen.validated)
    broken = seen.validated is not None and seen.validated.ok is False
    if failure is not None or broken:
        if tests is not None and seen.best_tests is not None and tests > seen.best_tests:
            counted = formats.passing(tests, seen.validated.tests_total if seen.validated else None)
            more = f"{counted}, {tests - seen.best_tests} more than before, but not all"
            return Judgement("worked", ok=True, claims=claims, remark=more)
        claim = "You said that you are done, but the" if claims else "The"
        remark = f"{claim} validation failed" if failure is None else None
        error = failure or (seen.validated.error if seen.validated else "")
        return _judge_question(seen) or Judgement(
            "failed", ok=False, error=error, claims=claims, remark=remark
        )
    proven = seen.changed and seen.validated is not None
    if not proven and (question := _judge_question(seen)):
        return question
    return _judge_claim(seen) if claims else _judge_without_claim(seen)


def _judge_claim(seen: Measurements) -> Judgement:
    # If the folder cannot be measured, the validation alone decides.
    unmeasured = seen.changed is None and seen.validated is not None
    if unmeasured or seen.changed_overall():
        checked = "and the validation passes" if seen.validated else "(nothing validates it)"
        files = "the folder cannot be measured" if unmeasured else "files changed"
        sentence = f"the agent reports that it is done, {files} {checked}"
        question = seen.watch.question
        if question is not None:
            sentence += f"; it also asks: {question.text}"
        return Judgement(
            "completed", ok=True, end=ExitReason.COMPLETED, reason=sentence, claims=True
        )
    unproven = "You said that you are done, but no file differs from the start of the run"
    error = seen.watch.ended_on
    if error is None and (seen.promise is not None or seen.plan_done):
        error = "reported done, but no file differs from the start of the run"
    ok = None if error is None else False
    return Judgement("unproven", ok=ok, error=error, claims=True, remark=unproven)


def _judge_without_claim(seen: Measurements) -> Judgement:
    if seen.changed:
        return Judgement("worked", ok=True)
    remark = "The last iteration changed no file"
    if seen.watch.ended_on is not None:
        return Judgement("failed", ok=False, error=seen.watch.ended_on, remark=remark)
    return Judgement("no change", remark=remark)


def _claims_done(seen: Measurements) -> bool:
    if seen.promise is not None:
        return seen.watch.promised
    if seen.plan_done is not None:
        return seen.plan_done
    result = seen.watch.result
    # A result must report success: without that, exit code 0 claims nothing.
    return seen.run.exit_code == 0 and (result is None or result.claimed_success is True)


def _failure(seen: Measurements) -> str | None:  # noqa: PLR0911  one for each way
    """The error of the agent; `None`: it did not fail."""
    run, watch = seen.run, seen.watch
    if seen.stopped == "stuck" and watch.repeated is not None:
        return watch.repeated.error
    if run.end is ProcessEnd.IDLE:
        return f"the agent printed nothing for {seen.idle_s or 0:g} s and was stopped"
    if run.end is ProcessEnd.LOST:
        return run.problem or "the agent was lost"
    result = watch.result
    if run.exit_code == 0 and (result is None or result.claimed_success is not False):
        return None
    if watch.complaint is not None:
        return watch.complaint.text
    text = result.text if result is not None and result.claimed_success is False else ""
    if text and not (result and (result.reason or "").startswith("exit code")):
        return text
    return validation.error_of(run.tail, 2000) or f"the agent ended with exit code {run.exit_code}"


def tests_passing(validated: ValidationResult | None) -> int | None:
    return None if validated is None or validated.tests is None else validated.tests.passed
