"""What an iteration was: worked, failed, lost to the provider, or the end of the run. Pure.

An exit code and a "done" are facts, never proof. The rules, in the order in which they hold:

1. Stopped by us (interrupt, time, budget), or never started: the run ends, and it is no evidence.
   But time that was over while the agent only waited for its provider is the provider's failure.
2. The provider failed (rate limit, quota, overload, outage): evidence against it, not the loop.
   A key that is refused ends the run: no retry mends it.
3. A question asked with a tool ends the run as blocked.
4. More tests pass than ever before: progress, and no failure, whatever the exit code.
5. The agent failed (exit code, its own word, silence, one failing step again and again), or the
   validation did: a failure, with its error.
6. Last words that are a question end the run as blocked, unless files changed and were validated.
7. "Done" is believed when files differ from the start and the validation passes; else it is said
   to be unproven. An exit without any change is a standstill, and a failure if the last step
   failed, or if "done" was promised.
"""

from collections.abc import Callable
from typing import NamedTuple

from switchgear._agents.events import LIMITED, OUTAGE, AgentError
from switchgear._agents.process import AgentRun, ProcessEnd
from switchgear._run import words
from switchgear._run.disk import full_sentence
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.observation import Watch
from switchgear._run.stuck import STUCK
from switchgear._run.validation import Validated


class Seen(NamedTuple):
    """Everything that was measured of an iteration."""

    run: AgentRun
    watch: Watch
    stopped: str | None = None
    """Why we stopped the agent: `interrupt`, `stuck`, `score`, `budget`, `provider`; `None`: not."""
    changed: int | None = None
    """Files that differ from the start of the iteration."""
    changed_overall: Callable[[], bool] = bool
    """Says whether files differ from the start of the run; asked only after a claim."""
    validated: Validated | None = None
    best_tests: int | None = None
    """The most tests that passed in any iteration before."""
    promise: str | None = None
    plan_done: bool | None = None
    """Whether every box of the plan is ticked; `None`: there is no plan."""
    idle_s: float | None = None
    time_over: bool = False
    """Whether the time of the run was over at the end of the iteration."""


class Judgement(NamedTuple):
    """What the iteration was."""

    outcome: str
    """`worked`, `no change`, `failed`, `unproven`, `provider`, `stopped`, `stuck`, `blocked` or
    `completed`."""
    ok: bool | None = None
    error: str | None = None
    end: ExitReason | None = None
    reason: str = ""
    """Of the end, a sentence."""
    provider: AgentError | None = None
    claims: bool = False
    """Whether the agent says that it is done."""
    remark: str | None = None
    """For the next prompt and for the record."""


def judge(seen: Seen) -> Judgement:
    """What the iteration was."""
    return _stopped(seen) or _provider(seen) or _asked_by_tool(seen) or _worked(seen)


def provider_trouble(run: AgentRun, watch: Watch) -> AgentError | None:
    """The provider's complaint that ended the agent's work, if one did."""
    complaint = watch.complaint
    if complaint is None or complaint.kind not in OUTAGE | LIMITED | {"auth"}:
        return None
    claimed = watch.result.claimed_success if watch.result else None
    gave_up = complaint.final or run.exit_code != 0 or claimed is False
    return complaint if gave_up and claimed is not True else None


def _stopped(seen: Seen) -> Judgement | None:  # noqa: PLR0911  one for each way
    run = seen.run
    if run.end is ProcessEnd.NOT_FOUND:
        return _end(ExitReason.AGENT_ERROR, run.problem)
    if seen.stopped == "interrupt":
        return _end(ExitReason.INTERRUPTED, "stopped while the agent worked")
    if seen.stopped == STUCK:
        return Judgement("stuck", remark="The last agent was stopped: it appeared stuck")
    if seen.stopped == "disk":
        return _end(
            ExitReason.DISK_FULL, full_sentence("the log of the agent could not be written")
        )
    if seen.stopped == "budget":
        return _end(ExitReason.BUDGET, "the agent spent what was left and was stopped")
    if run.end is ProcessEnd.DEADLINE:
        return _waited_in_vain(seen.watch) or _end(
            ExitReason.TIMEOUT, "the time was over while the agent worked"
        )
    if seen.validated is not None and seen.validated.ok is None:
        return _end(ExitReason.INTERRUPTED, "stopped during the validation")
    if seen.validated is not None and seen.validated.late and seen.time_over:
        return _end(ExitReason.TIMEOUT, "the time was over during the validation")
    return None


def _waited_in_vain(watch: Watch) -> Judgement | None:
    trouble = watch.complaint
    if trouble is None or not watch.waits_for_provider:
        return None
    end = ExitReason.RATE_LIMIT if trouble.kind in LIMITED else ExitReason.AGENT_ERROR
    sentence = f"the time was over while the agent waited for its provider: {trouble.text}"
    return Judgement("provider", error=trouble.text, end=end, reason=sentence, provider=trouble)


def _end(reason: ExitReason, sentence: str) -> Judgement:
    return Judgement("stopped", None, None, reason, sentence)


def _provider(seen: Seen) -> Judgement | None:
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


def _asked_by_tool(seen: Seen) -> Judgement | None:
    question = seen.watch.question
    if question is None or not question.by_tool or seen.stopped is not None:
        return None
    return _blocked(question.text)


def _blocked(question: str) -> Judgement:
    return Judgement(
        "blocked", end=ExitReason.BLOCKED, reason=f"the agent asks: {question}", remark=question
    )


def _worked(seen: Seen) -> Judgement:
    failure = _failure(seen)
    claims = failure is None and _claims(seen)
    tests = tests_passing(seen.validated)
    if failure is not None or _validation_failed(seen):
        if tests is not None and seen.best_tests is not None and tests > seen.best_tests:
            counted = words.passing(tests, seen.validated.tests_total if seen.validated else None)
            more = f"{counted}, {tests - seen.best_tests} more than before, but not all"
            return Judgement("worked", ok=True, claims=claims, remark=more)
        said = "You said that you are done, but the" if claims else "The"
        broken = f"{said} validation failed" if failure is None else None
        error = failure or (seen.validated.error if seen.validated else "")
        return _asked_in_words(seen) or Judgement(
            "failed", ok=False, error=error, claims=claims, remark=broken
        )
    proven = seen.changed and seen.validated is not None
    if not proven and (asked := _asked_in_words(seen)):
        return asked
    return _judge_claim(seen) if claims else _going_on(seen)


def _judge_claim(seen: Seen) -> Judgement:
    # Where the folder cannot be measured, the validation alone must do.
    unmeasured = seen.changed is None and seen.validated is not None
    if unmeasured or seen.changed_overall():
        checked = "and the validation passes" if seen.validated else "(nothing validates it)"
        files = "the folder cannot be measured" if unmeasured else "files changed"
        sentence = f"the agent says that it is done, {files} {checked}"
        question = seen.watch.question
        if question is not None:
            sentence += f"; it also asks: {question.text}"
        return Judgement(
            "completed", ok=True, end=ExitReason.COMPLETED, reason=sentence, claims=True
        )
    unproven = "You said that you are done, but no file differs from the start of the run"
    error = seen.watch.ended_on
    if error is None and (seen.promise is not None or seen.plan_done):
        error = "said done, but no file differs from the start of the run"
    ok = None if error is None else False
    return Judgement("unproven", ok=ok, error=error, claims=True, remark=unproven)


def _going_on(seen: Seen) -> Judgement:
    if seen.changed:
        return Judgement("worked", ok=True)
    remark = "The last iteration changed no file"
    if seen.watch.ended_on is not None:
        return Judgement("failed", ok=False, error=seen.watch.ended_on, remark=remark)
    return Judgement("no change", remark=remark)


def _claims(seen: Seen) -> bool:
    if seen.promise is not None:
        return seen.watch.promised
    if seen.plan_done is not None:
        return seen.plan_done
    result = seen.watch.result
    # Where the agent has a word of its own for success, its silence is no claim.
    return seen.run.exit_code == 0 and (result is None or result.claimed_success is True)


def _failure(seen: Seen) -> str | None:  # noqa: PLR0911  one for each way
    """What the agent failed with; `None`: it did not."""
    run, watch = seen.run, seen.watch
    if seen.stopped == "stuck" and watch.repeated is not None:
        return watch.repeated.error
    if run.end is ProcessEnd.IDLE:
        return f"the agent said nothing for {seen.idle_s or 0:g} s and was stopped"
    if run.end is ProcessEnd.LOST:
        return run.problem or "the agent was lost"
    result = watch.result
    if run.exit_code == 0 and (result is None or result.claimed_success is not False):
        return None
    if watch.complaint is not None:
        return watch.complaint.text
    said = result.text if result is not None and result.claimed_success is False else ""
    if said and not (result and (result.reason or "").startswith("exit code")):
        return said
    return words.error_of(run.tail, 2000) or f"the agent ended with exit code {run.exit_code}"


def _validation_failed(seen: Seen) -> bool:
    return seen.validated is not None and seen.validated.ok is False


def _asked_in_words(seen: Seen) -> Judgement | None:
    question = seen.watch.question
    if question is None or seen.stopped is not None or seen.watch.promised:
        return None
    return _blocked(question.text)


def tests_passing(validated: Validated | None) -> int | None:
    """How many tests passed, as far as it is known."""
    if validated is None or validated.tests is None:
        return None
    return validated.tests.passed
