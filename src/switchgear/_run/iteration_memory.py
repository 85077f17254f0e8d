"""What a run remembers of an iteration: its counts, and what the next prompt must say. Pure."""

from switchgear._agents.prices import price_list
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.iteration import Iteration
from switchgear._run.judge import tests_passing
from switchgear._run.state import KEPT_PATHS, RunState
from switchgear._text.fingerprint import fingerprint


def counted(state: RunState, done: Iteration, *, would_stop: bool) -> RunState:
    """The state after an iteration."""
    tests = tests_passing(done.validated)
    paths = () if done.change is None else done.change.paths
    lost = done.judged.provider is not None
    known = [number for number in (state.best_tests, tests) if number is not None]
    if done.may_have_cost:
        state = state.paid(done.cost.micros)
        if "price list" in done.cost.source:
            state = state._replace(priced_by=price_list())
    if done.judged.ok:
        state = state._replace(failures_in_row=0)
    elif done.judged.ok is False:
        error, again = done.judged.error, done.watch.repeated
        key = None if error is None else fingerprint(error)
        state = state.failed(key, 1 if again is None else again.times)
    return state._replace(
        iterations=state.iterations + 1,
        lost=state.lost + lost,
        tokens=state.tokens
        + sum(usage.input_tokens + usage.output_tokens for usage in done.run.usage),
        tests_passing=state.tests_passing if tests is None else tests,
        tests_total=state.tests_total
        if tests is None or done.validated is None
        else done.validated.tests_total,
        best_tests=max(known, default=None),
        changed=tuple(sorted({*state.changed, *paths}))[:KEPT_PATHS],
        uncommitted=tuple(sorted({*state.uncommitted, *paths}))[:KEPT_PATHS],
        provider_failures=state.provider_failures + 1 if lost else 0,
        provider_waited_s=state.provider_waited_s if lost else 0.0,
        would_stop=state.would_stop + would_stop,
        last_error=done.judged.error or state.last_error,
    )


def for_next(
    state: RunState, done: Iteration, *, error: str | None, nudge: str | None, notes: list[str]
) -> RunState:
    """The state with what the next prompt must say; `error` is what is kept of the error."""
    said = [done.judged.remark] if done.judged.remark else []
    if done.judged.outcome == "failed" and error:
        said.append(f"The last iteration failed: {error}")
    again = done.watch.repeated
    if again is not None:
        said.append(
            f"It was stopped because `{again.arguments}` failed {again.times} times in a row"
        )
    said += [note for note in notes if note.startswith("the commit was refused")]
    failed = done.validated is not None and done.validated.ok is False
    tail = done.validated.tail[-4000:] if failed and done.validated else None
    return state._replace(notes=tuple(said), nudge=nudge, failed_output=tail)


def notes_on(before: RunState, done: Iteration) -> list[str]:
    """What there is to know of an iteration that is no failure; of unknown prices once a run."""
    notes = []
    if done.change is None:
        notes.append("the folder could not be measured in this iteration")
    if done.cost.unknown and done.may_have_cost and not before.unknown_prices:
        notes.append(f"unknown cost: {done.cost.unknown}")
    if done.judged.claims and done.judged.outcome != "completed":
        told = f"; it is told: {done.judged.remark}" if done.judged.remark else ""
        notes.append(f'the agent says "done", which is not proven{told}')
    return notes


def proof(done: Iteration) -> tuple[str, ...]:
    """What an end rests on that the iteration itself decided."""
    if done.judged.end is ExitReason.INTERRUPTED:
        return ()
    words = [done.judged.provider.text] if done.judged.provider else []
    if done.validated is not None and done.validated.ok:
        words.append(f"`{done.validated.command}` passes")
    if done.change:
        words.append(f"changed: {', '.join(done.change.paths[:10])}")
    return tuple(words)
