"""`switchgear intervene`: what can be done about a stuck agent or a tripped circuit, and doing it.

At a terminal the block is shown and somebody chooses; where nobody is, the ladder decides about an
agent, and a circuit is left to its cooldown. Every choice is wired to what it says.
"""

from typing import TYPE_CHECKING

import click

from switchgear.cli.entry import fail
from switchgear.cli.options import circuit_argument, store_options, token_option
from switchgear.cli.text import clean, say
from switchgear.runner.amounts import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from switchgear.cli.opening import Session
    from switchgear.core.score import Score
    from switchgear.hooks.sessions import Notes
    from switchgear.hooks.texts import Option, Stuck
    from switchgear.ladder import Climb, Interventions
    from switchgear.stores.base import Transaction
    from switchgear.views import View

# ruff: noqa: PLC0415  what a verb needs is imported when it is used

SESSION = "session/"
KEYS = ("nudge", "extend", "escalate", "wait", "force", "skip", "abort")


@click.command(short_help="Help a stuck agent, or deal with a tripped circuit.")
@circuit_argument()
@click.option("--do", "choice", type=click.Choice(KEYS), help="Do this and ask nothing.")
@click.option("--hint", metavar="TEXT", help="Of nudge: what the agent is told.")
@click.option("--for", "span", metavar="D", help="Of extend: how much more time (5m, 1h).")
@click.option("--test", "command", metavar="CMD", help="Of wait: the half-open test.")
@click.option("--why", metavar="TEXT", help="Of force and skip: the reason.")
@token_option
@store_options
def intervene(
    circuit: str,
    *,
    choice: str | None,
    hint: str | None,
    span: str | None,
    command: str | None,
    why: str | None,
) -> int:
    """Deal with CIRCUIT: a session by its id or `session/ID`, or any other circuit by its name.

    A stuck agent can be nudged (a hint at its next step), given more time, handed over to the help
    that `interventions.escalate` names, or aborted. A tripped circuit can be waited for, closed by
    force, left out (skip), and everything can be stopped (abort). At a terminal you are asked;
    elsewhere the ladder of the configuration decides about an agent, and a circuit is only shown.
    """
    from switchgear.cli.opening import open_session

    with open_session() as session:
        name = circuit if session.panel.view(circuit) is not None else f"{SESSION}{circuit}"
        view = session.panel.view(name)
        if view is None:
            from switchgear.cli.opening import unknown_circuit

            fail(unknown_circuit(session, circuit))
        if name.startswith(SESSION) and "/" not in name.removeprefix(SESSION):
            extra_s = None if span is None else seconds("--for", span)
            return _stuck(session, view, choice, hint, extra_s)
        return _tripped(session, view, choice, command, why)


def _picked(choice: str | None, block: str, options: "Sequence[Option]") -> str | None:
    """What is to be done: as told, as chosen at the terminal; `None`: nobody said."""
    from switchgear.cli.choosing import ask, is_attended

    if choice is not None:
        if choice not in {option.key for option in options}:
            known = ", ".join(option.key for option in options)
            fail(f"--do {choice}: here it must be one of {known}")
        return choice
    if is_attended():
        key = ask(block, options, None)
        if key is None:
            raise click.Abort
        return key
    say(block)
    return None


# A stuck agent


def _stuck(
    session: "Session", view: "View", choice: str | None, hint: str | None, extra_s: float | None
) -> int:
    from switchgear.core.score import Score, score_of
    from switchgear.hooks import sessions, texts

    plan = session.config.interventions
    if hint is not None:
        plan = plan._replace(hint=hint)
    if extra_s is not None:
        plan = plan._replace(extend_s=extra_s)
    score = score_of(view.policy, view.readings) or Score(0.0, 0.0, ())
    notes: Notes = session.panel.store.transact(
        view.name, lambda tx: sessions.Notes.load(_kept(tx))
    )
    task = view.name.removeprefix(SESSION)
    seen = texts.Stuck(notes.agent or "agent", task, score.points, score.evidence)
    if not score.points:  # the circuit has closed again since; what opened it is in the note
        seen = seen._replace(points=notes.points, indicators=notes.indicators)
    options = texts.stuck_options(plan)
    key = _picked(choice, texts.agent_stuck(seen, options), options)
    if key is None and not score.points:
        say("\nnobody is here, and there is nothing against this agent now: nothing was done")
        return 0
    session.demand_operator(view.name, "an intervention")
    say(_helped(session, view.name, key, (seen, score), plan))
    return 0


def _kept(tx: "Transaction") -> str | None:
    """The note of a session, left as it is."""
    return tx.note


def _helped(
    session: "Session",
    name: str,
    key: str | None,
    found: "tuple[Stuck, Score]",
    plan: "Interventions",
) -> str:
    """Do it in one transaction, start the help behind it; a sentence about it."""
    from switchgear.hooks import sessions
    from switchgear.ladder import ESCALATE

    if key == ESCALATE and plan.escalate is None:
        fail("nobody is configured to take over: set interventions.escalate to an agent or command")
    seen, score = found

    def work(tx: "Transaction") -> "tuple[str, Climb | None, Notes]":
        notes = sessions.Notes.load(tx.note)
        after, sentence, taken = _decided(tx, notes, name, key, seen, score, plan)
        tx.note = after.dump()
        return sentence, taken, after

    sentence, taken, notes = session.panel.store.transact(name, work)
    if taken is not None and taken.rung == ESCALATE and plan.escalate is not None:
        from switchgear.hooks.errands import start_help

        sentence += f"; see {start_help(plan.escalate, notes.stop or '', name)}"
    return sentence


def _decided(  # noqa: PLR0917  the facts of one decision
    tx: "Transaction",
    notes: "Notes",
    name: str,
    key: str | None,
    seen: "Stuck",
    score: "Score",
    plan: "Interventions",
) -> "tuple[Notes, str, Climb | None]":
    from switchgear import ladder
    from switchgear.hooks import sessions

    if key == "extend":
        more = sessions.extended(notes, plan.extend_s, tx.now_s)
        if more is notes:
            return notes, "the session has no time limit, so nothing was extended", None
        return more, f"the session may take {plan.extend_s:g} s longer", None
    if key is None:
        notes, taken = sessions.stuck(tx.apply, notes, name, score, plan)
        return notes, f"nobody is here: the ladder says {taken.rung}", taken
    rung = ladder.SKIP if key == "abort" else key
    why = "; ".join(score.evidence) or "by hand"
    taken = ladder.take(tx.apply, name, plan.rungs, rung, why)
    notes = sessions.after_rung(notes._replace(incident=True), taken, seen, plan)
    said = {
        "nudge": "the agent is told at its next step",
        "escalate": f"{plan.helper} takes over; the agent is stopped at its next step",
        "abort": "the agent is stopped at its next step, and the task is given up",
    }
    return notes, said[key], taken


# A tripped circuit


def _tripped(
    session: "Session", view: "View", choice: str | None, command: str | None, why: str | None
) -> int:
    from switchgear.core.types import Mode, Phase
    from switchgear.hooks import texts

    circuit = view.circuit
    if circuit.phase in {Phase.CLOSED, Phase.TRIPPING} and circuit.mode is not Mode.HELD_OPEN:
        say(f"{clean(view.name)} is {circuit.phase}: there is nothing to be done")
        return 0
    options = texts.trip_options(view.verdict.retry_after_s)
    key = _picked(choice, texts.circuit_tripped(circuit, session.now_s()), options)
    acts: dict[str | None, Callable[[], int]] = {
        "wait": lambda: _wait(session, view, command),
        "force": lambda: _force(session, view.name, why),
        "skip": lambda: _skip(session, view.name, why),
        "abort": lambda: _abort(session),
        None: lambda: 1,
    }
    return acts[key]()


def _wait(session: "Session", view: "View", command: str | None) -> int:
    """Wait for the cooldown; then the test decides, if one is given, else the next call."""
    from switchgear.cli.run_choices import wait_visibly
    from switchgear.hooks import texts

    wait_s = view.verdict.retry_after_s
    if wait_s is None:
        fail(f"{view.name} does not come back by itself: close it by force, or wait for somebody")
    if wait_s > 0:
        wait_visibly(wait_s)
    opened_s = session.now_s() - view.circuit.outage.opened_at_s
    say(f"{texts.recovery_begins(view.name, opened_s, 0.0)}\n\n{texts.PROBING}\n")
    if command is None:
        say("The next call is the test.")
        return 0
    return _test(session, view.name, command)


def _test(session: "Session", name: str, command: str) -> int:
    """Run the test as the probe of the circuit, and tell how it went."""
    import subprocess

    from switchgear.core.types import Ask, Signal, Tell
    from switchgear.hooks import texts
    from switchgear.redact import redact

    leave = session.send(name, Ask()).verdict
    if not leave.admitted:
        fail(f"{name} lets no test through now: {leave.reason}")
    done = subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True, text=True)  # noqa: S603
    ok = done.returncode == 0
    said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit {done.returncode}"]
    signal = Signal(ok=ok, error=None if ok else redact(said[0]))
    after = session.send(name, Tell(signal, leave.permit)).verdict
    say(texts.recovery_ends(after.phase, ok=ok))
    return 0 if ok else 1


def _force(session: "Session", name: str, why: str | None) -> int:
    from switchgear.cli.run_choices import reason, who
    from switchgear.core.types import Mode, Order

    by, why = who(), reason(why)
    step = session.send(name, Order(by, why, reset=True))
    if step.circuit.mode is Mode.HELD_OPEN:  # by who chose to skip it
        session.send(name, Order(by, why, Mode.AUTO))
    say(f"{clean(name)} was closed by force")
    return 0


def _skip(session: "Session", name: str, why: str | None) -> int:
    """Hold it open, and tell every agent at work to do without it."""
    from switchgear.cli.run_choices import reason, who
    from switchgear.core.types import Mode, Order
    from switchgear.hooks import sessions, texts

    session.send(name, Order(who(), reason(why), Mode.HELD_OPEN))
    text = f"{texts.operation(name)} is left out from now on. Continue without this operation."
    told = _every_session(session, lambda notes: sessions.remind(notes, text))
    release = f"switchgear release {clean(name)}"
    say(f"{clean(name)} is held open; {told} told to go on without it. '{release}' ends that")
    return 0


def _abort(session: "Session") -> int:
    """Stop every agent at work."""
    session.demand_operator("*", "an abort of everything")
    reason = "The batch was aborted by an operator. Stop now; what is done is kept."
    told = _every_session(session, lambda notes: notes._replace(stop=reason))
    say(f"{told} stopped at the next step")
    return 0


def _every_session(session: "Session", change: "Callable[[Notes], Notes]") -> str:
    """Change the notes of all sessions that are not over; how many these were, in words."""
    from switchgear.core.detectors.base import plural
    from switchgear.hooks.sessions import Notes

    def work(tx: "Transaction") -> bool:
        notes = Notes.load(tx.note)
        if tx.note is None or notes.ended:
            return False
        tx.note = change(notes).dump()
        return True

    names = [found.circuit.key for found in session.panel.store.find(f"{SESSION}*")]
    whole = [name for name in names if "/" not in name.removeprefix(SESSION)]
    return plural(sum(session.panel.store.transact(name, work) for name in whole), "agent")
