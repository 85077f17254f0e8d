"""`switchgear intervene`: shows and takes the actions for a stuck agent or a tripped circuit.

At a terminal the user chooses an action. Without a terminal, the configured escalation decides about
a stuck agent, and a circuit stays as it is. Only possible actions are offered.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import click

from switchgear._breaker.views import View
from switchgear._cli.context import SESSION, Session, full_name, open_session, view_named
from switchgear._cli.options import (
    circuit_argument,
    fail,
    required_reason,
    store_options,
    token_option,
)
from switchgear._cli.run_options import FORCED, wait_visibly
from switchgear._cli.views.terminal import ask, is_attended
from switchgear._cli.views.text import clean, clock_time, say, words
from switchgear._console.interventions import (
    IMPOSSIBLE,
    INTERVENTIONS,
    Author,
    intervene_in_run,
    options_of,
    run_options_of,
)
from switchgear._console.interventions import intervene as intervene_in_session
from switchgear._console.runs import run_status
from switchgear._core.policy import Policy
from switchgear._core.types import Acquire, Mode, Override, Phase, Record, Signal
from switchgear._hooks import session as sessions
from switchgear._hooks.session import Notes
from switchgear._run.inbox import Extension
from switchgear._run.options import micros, seconds
from switchgear._run.record import RunFolder, RunUnreadable, find_run, is_alive, runs_root
from switchgear._run.result import receipt_of
from switchgear._stores.base import Transaction
from switchgear._stuck import messages
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.messages import Option
from switchgear._stuck.score import evidence_score, session_policy
from switchgear._system.login import login_name
from switchgear._text.formats import plural
from switchgear._text.redact import redact

KEYS = (*INTERVENTIONS[:-1], "wait", "force", "skip", "abort")


@click.command()
@circuit_argument()
@click.option("--do", "choice", type=click.Choice(KEYS), help="Take this action without a prompt.")
@click.option("--hint", metavar="TEXT", help="With --do nudge: hint for the agent.")
@click.option("--for", "span", metavar="D", help="With --do extend: additional time (5m, 1h).")
@click.option(
    "--iterations",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="With --do extend, of a run: additional iterations.",
)
@click.option("--money", metavar="USD", help="With --do extend, of a run: additional dollars.")
@click.option("--test", "command", metavar="CMD", help="With --do wait: the command to probe with.")
@click.option(
    "--why", metavar="TEXT", help="With --do resume, force or skip, or for a run: the reason."
)
@token_option
@store_options
def intervene(
    circuit: str,
    *,
    choice: str | None,
    hint: str | None,
    span: str | None,
    iterations: int | None,
    money: str | None,
    command: str | None,
    why: str | None,
) -> int:
    """Take an action on CIRCUIT: a session or a run by its id, or any other circuit.

    The start of a name is enough.

    A session can be resumed after a stop, nudged (a hint at its next step), given more time, handed
    over to the agent that `interventions.escalate` names, paused and continued, or aborted. An
    active run has the same actions; it can also get more iterations and money, and its hint is in
    the next prompt. For a tripped circuit, wait for its cooldown, close it by force, skip the
    operation, or stop all agents (abort). Only possible actions are offered. Without a terminal,
    the configured escalation decides about a stuck agent, and a circuit is only shown.
    """
    with open_session() as session:
        extra_s = None if span is None else seconds("--for", span)
        plan = session.config.interventions
        if hint is not None:
            plan = plan._replace(hint=hint)
        if extra_s is not None:
            plan = plan._replace(extend_s=extra_s)
        record = _run_named(session, circuit)
        if record is not None:
            spent = 0 if money is None else micros("--money", money)
            more = Extension(extra_s or 0.0, iterations or 0, spent)
            return _intervene_in_run(session, record, choice, plan, more, why)
        if iterations is not None or money is not None:
            fail("--iterations and --money are for an active run")
        view = view_named(session, circuit)
        name = view.name
        if name.startswith(SESSION) and "/" not in name.removeprefix(SESSION):
            return _intervene_in_session(session, view, choice, plan, why)
        return _intervene_in_circuit(session, view, choice, command, why)


def _pick_action(
    choice: str | None,
    block: str,
    options: Sequence[Option],
    impossible: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """The action to take: the requested one, or the user's choice; `None`: there is no terminal."""
    if choice is not None:
        if choice not in {option.key for option in options}:
            known = ", ".join(option.key for option in options)
            why = f" ({impossible[choice]})" if choice in impossible else ""
            fail(f"--do {choice} is not possible here{why}: choose one of {known}")
        return choice
    if is_attended():
        key = ask(block, options, None)
        if key is None:
            raise click.Abort
        return key
    say(block)
    return None


# A run


def _run_named(session: Session, name: str) -> RunFolder | None:
    """The active run with this id; `None`: there is none.

    Ends the command for a run that is over, unless a circuit has this name.
    """
    run_id = name.removeprefix(SESSION).removeprefix("run-")
    if len(run_id) < 4:
        return None
    try:
        record = find_run(runs_root(Path.cwd()), run_id)
        run = record.read()
    except RunUnreadable:
        return None
    if is_alive(run):
        return record
    if session.panel.view(name) is None and full_name(session, name) is None:
        again = receipt_of(run)["continue"] or f"switchgear resume {record.id}"
        fail(f"run {record.id} is not running ({run_status(run)}); to continue it: {clean(again)}")
    return None


def _intervene_in_run(  # noqa: PLR0917
    session: Session,
    record: RunFolder,
    choice: str | None,
    plan: Interventions,
    more: Extension,
    why: str | None,
) -> int:
    run = record.read()
    options = run_options_of(session.transact, record, plan)
    agent = messages.Stuck(str(run.get("agent") or "agent"), f"run {record.id}", 0.0, ())
    key = _pick_action(choice, messages.session_state(agent, run_status(run), options), options)
    if key is None:
        say("\nNo terminal: nothing done. Choose an action with --do.")
        return 0
    if key == "extend" and not any(more):
        if not is_attended():
            fail("--do extend of a run needs --for, --iterations or --money")
        more = more._replace(seconds=plan.extend_s)
    session.demand_operator(str(run["circuit"]), "an intervention")
    author = Author(login_name(), required_reason(why, "an intervention in a run"), audited=True)
    say(intervene_in_run(session.transact, record, key, plan=plan, author=author, more=more))
    return 0


# A session


def _intervene_in_session(
    session: Session, view: View, choice: str | None, plan: Interventions, why: str | None
) -> int:
    notes: Notes = session.panel.store.transact(view.name, lambda tx: sessions.Notes.load(tx.note))
    task = view.name.removeprefix(SESSION)
    state = sessions.state_of(notes, view.circuit)
    if state is sessions.State.ENDED:
        heard_s = notes.heard_s or view.circuit.seen_s
        ended = f"session {clean(task)} ended at {clock_time(heard_s, session.now_s())}"
        if sessions.is_stopped(view.circuit):
            ended += f", stopped: {messages.one_line(view.verdict.reason, 500)}"
        again = messages.resume_command(notes.agent, task)
        to_continue = f"; to continue it: {again}" if again else ""
        if choice is not None:
            fail(f"{ended}; --do {choice} is no longer possible{to_continue}")
        say(f"{ended}; nothing to do here{to_continue}")
        return 0
    score = evidence_score(view.policy, view.readings)
    has_evidence = bool(score.evidence)
    stopped = state is sessions.State.STOPPED
    if has_evidence:
        notes = notes._replace(points=score.points, indicators=score.evidence)
    agent = messages.Stuck(notes.agent or "agent", task, notes.points, notes.indicators)
    options = options_of(plan, notes, stopped=stopped)
    if has_evidence or stopped:
        block = messages.agent_stuck(agent, options)
    else:
        block = messages.session_state(agent, str(state), options)
    if stopped:
        opened_s = view.circuit.outage.opened_at_s
        since = clock_time(opened_s, session.now_s()) if opened_s else "now"
        block = f"Stopped since {since}: {messages.one_line(view.verdict.reason, 500)}\n\n{block}"
    key = _pick_action(choice, block, options, IMPOSSIBLE)
    if key is None and (stopped or not has_evidence):
        standing = "stopped; choose an action with --do" if stopped else "not stuck now"
        say(f"\nNo terminal, and the agent is {standing}: nothing done.")
        return 0
    session.demand_operator(view.name, "an intervention")
    reason = required_reason(why, FORCED) if key == "resume" else redact(why or "")
    author = Author("switchgear" if key is None else login_name(), reason)
    say(intervene_in_session(session.transact, view, key, evidence=notes, plan=plan, author=author))
    return 0


# A tripped circuit


def _intervene_in_circuit(
    session: Session, view: View, choice: str | None, command: str | None, why: str | None
) -> int:
    circuit = view.circuit
    if circuit.phase in {Phase.CLOSED, Phase.TRIPPING} and circuit.mode is not Mode.HELD_OPEN:
        say(f"{clean(view.name)} is {words(circuit.phase)}: nothing to do")
        return 0
    options = messages.trip_options(view.verdict.retry_after_s)
    key = _pick_action(choice, messages.circuit_tripped(circuit, session.now_s()), options)
    if key == "wait":
        return _wait(session, view, command)
    if key is None:
        return 1
    if key == "abort":
        say(_abort(session))
    else:
        say((_force if key == "force" else _skip)(session, view.name, why))
    return 0


def _wait(session: Session, view: View, command: str | None) -> int:
    """Wait for the cooldown; then probe with the test command, or leave the probe to the next call."""
    wait_s = view.verdict.retry_after_s
    if wait_s is None:
        fail(f"{view.name} does not close by itself: close it with --do force, or reset it")
    if wait_s > 0:
        wait_visibly(wait_s)
    opened_s = session.now_s() - view.circuit.outage.opened_at_s
    say(f"{messages.recovery_begins(view.name, opened_s, 0.0)}\n\n{messages.PROBING}\n")
    if command is None:
        say("The next call is the probe.")
        return 0
    return _probe_with(session, view.name, command)


def _probe_with(session: Session, name: str, command: str) -> int:
    """Run the command as the probe of the circuit, and record its result."""
    verdict = session.send(name, Acquire()).verdict
    if not verdict.admitted:
        fail(f"{name} admits no probe now: {verdict.reason}")
    done = subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True, text=True)  # noqa: S603
    ok = done.returncode == 0
    output = (done.stderr or done.stdout).strip() or f"exit {done.returncode}"
    signal = Signal(ok=ok, error=None if ok else redact(output.splitlines()[-1]))
    after = session.send(name, Record(signal, verdict.permit)).verdict
    say(messages.recovery_ends(after.phase, ok=ok))
    return 0 if ok else 1


def _force(session: Session, name: str, why: str | None) -> str:
    by, why = login_name(), required_reason(why, FORCED)
    step = session.send(name, Override(by, why, reset=True))
    if step.circuit.mode is Mode.HELD_OPEN:  # by an earlier `skip`
        session.send(name, Override(by, why, Mode.AUTO))
    return f"{clean(name)} was closed by force"


def _skip(session: Session, name: str, why: str | None) -> str:
    """Hold the circuit open, and send every active agent a message to continue without the operation."""
    session.send(name, Override(login_name(), required_reason(why, FORCED), Mode.HELD_OPEN))
    text = f"{messages.operation(name)} is left out from now on. Continue without this operation."
    notified = _change_all_sessions(session, lambda notes: sessions.with_message(notes, text))
    held = f"{clean(name)} is held open; {notified} notified to continue without it"
    return f"{held}. 'switchgear release {clean(name)}' ends the hold"


def _abort(session: Session) -> str:
    session.demand_operator("*", "an abort of everything")
    reason = "The batch was aborted by an operator. Stop now; what is done is kept."
    stopped = _change_all_sessions(session, lambda notes: notes._replace(stop=reason), stops=True)
    return f"{stopped} will stop at the next step"


def _change_all_sessions(
    session: Session, change: Callable[[Notes], Notes], *, stops: bool = False
) -> str:
    """Change the notes of all sessions that have not ended. Returns their number, such as `2 agents`.

    `stops`: also open their circuits, because the next hook takes a closed circuit for a release.
    """

    def work(tx: Transaction, circuit: str, policy: Policy) -> bool:
        notes = Notes.load(tx.note)
        if tx.note is None or notes.ended:
            return False
        notes = change(notes)
        if stops:
            policy = session_policy(policy, None)  # adds what policies of older versions lack
            sessions.open_if_stopped(sessions.SessionCircuit(tx.apply, circuit, policy), notes)
        tx.note = notes.dump()
        return True

    found = [(each.circuit.key, each.policy) for each in session.panel.store.find(f"{SESSION}*")]
    changed = [
        session.transact(name, partial(work, circuit=name, policy=policy))
        for name, policy in found
        if "/" not in name.removeprefix(SESSION)
    ]
    return plural(sum(changed), "agent")
