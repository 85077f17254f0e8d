"""The verbs for scripts: `check` before a call, `record` after it. They print plain lines without colour."""

import math
import shlex
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

import click

from switchgear._cli.context import Session, open_session, say_json
from switchgear._cli.options import (
    checked_text,
    circuit_argument,
    fail,
    given,
    json_option,
    number,
    store_options,
    token_option,
)
from switchgear._cli.views.circuits import what_happened
from switchgear._cli.views.text import clean, say, signs_for, warn, words
from switchgear._console.permits import dump_permit, load_permit
from switchgear._console.values import of_event, standing_of
from switchgear._core.errors import Refusal, Rejected
from switchgear._core.machine import standing
from switchgear._core.types import Acquire, Circuit, Record, Signal, Verdict
from switchgear._stores.base import start_from_scratch
from switchgear._text.formats import duration
from switchgear._text.redact import redact

REFUSED = 1
_MOST_DOLLARS = 1_000_000_000


@click.command()
@circuit_argument()
@click.option("--take", is_flag=True, help="Acquire a permit and print it.")
@json_option
@token_option
@store_options
def check(circuit: str, *, take: bool, as_json: bool) -> int:
    """Test whether CIRCUIT admits a call: exit code 0 admitted, 1 refused, 2 error.

    Changes nothing without --take. With --take it acquires a permit as a call does: a half-open
    circuit uses its probe, a refusal is counted, and the printed permit is for 'switchgear
    record --permit'. A refusal lists the options: wait, force, skip, abort.
    """
    with open_session(reading=not take) as session:
        if take:
            step = session.send(circuit, Acquire())
            state, verdict = step.circuit, step.verdict
        else:
            state, verdict = _read_circuit(session, circuit)
        token = None if verdict.permit is None else dump_permit(circuit, verdict.permit)
        options = (
            [] if verdict.admitted else _options_after_refusal(session, circuit, verdict, state)
        )
        if as_json:
            facts = {
                "name": circuit,
                "admitted": verdict.admitted,
                "phase": verdict.phase,
                "mode": state.mode,
                "reason": verdict.reason,
                "retry_after_s": verdict.retry_after_s,
                "heat": min(verdict.heat, 1.0),
                "overruled": verdict.overruled,
                "last_error": state.failures[-1].error if state.failures else None,
            }
            say_json({**facts, "permit": token, "options": options})
        elif take and verdict.admitted:
            say(token)
        else:
            # With --take, standard output is for the permit: permit=$(…) must not swallow a refusal.
            say(_sentence(circuit, state, verdict), err=take)
            for option in options:
                command = f"\n         {clean(option['command'])}" if option["command"] else ""
                say(f"  {option['option']:5}  {option['what']}{command}", err=take)
    return 0 if verdict.admitted else REFUSED


def _read_circuit(session: Session, name: str) -> tuple[Circuit, Verdict]:
    lost = session.panel.lost()
    if lost is None or session.panel.store.get(name) is not None:
        view = session.panel.view(name)
        if view is not None:
            return view.circuit, view.verdict
    policy, now_s = session.panel.policy_of(name), session.now_s()
    fresh = policy.start(name, now_s)
    if lost is not None:
        # The state after the next message: a strict policy refuses, because the state is unknown.
        fresh = start_from_scratch(
            policy, name, Acquire(), now_s, why=lost.why, event_seq=0
        ).circuit
        warn(f"the state of {name!r} is lost: {lost}")
    return fresh, standing(policy, fresh, now_s)


def _sentence(name: str, state: Circuit, verdict: Verdict) -> str:
    signs = signs_for()
    if not verdict.admitted:
        last = state.failures[-1].error if state.failures else None
        wait = float("inf") if verdict.retry_after_s is None else verdict.retry_after_s
        held = state.mode == "held_open"
        refusal = Refusal(verdict.phase, verdict.reason, wait, last, held)
        return f"{signs.open} {clean(str(Rejected(name, refusal, 0.0)), 1000)}"
    sign = signs.half_open if verdict.phase == "half_open" else signs.closed
    why = f": {verdict.reason}" if verdict.reason else ""
    mode = "" if state.mode == "auto" else f" ({words(state.mode)})"
    verb = "admits, against the evidence" if verdict.overruled else "admits"
    if not state.version and not state.event_seq:
        why = ": no results are recorded yet"
    return clean(f"{sign} circuit {name!r} {verb}; phase {words(verdict.phase)}{mode}{why}", 1000)


def _options_after_refusal(
    session: Session, name: str, verdict: Verdict, state: Circuit
) -> list[dict[str, Any]]:
    """What a person or an agent can do about a refusal, each with the exact command."""
    quoted, where = shlex.quote(name), _store_options()
    sealed = not session.is_operator()
    arguments = f"{quoted} --why WHY{where}{' --token-file FILE' if sealed else ''}"
    wait = verdict.retry_after_s
    if wait is not None:
        seconds = max(math.ceil(wait), 1)
        again = f"sleep {seconds} && switchgear check {quoted}{where}"
        waiting = (f"{duration(wait)}, then check again", again)
    elif state.mode == "held_open":
        waiting = ("until an operator releases it", f"switchgear release {arguments}")
    else:
        who = "the operator must reset it" if sealed else "reset it"
        waiting = (
            f"not useful: only a manual reset closes it; {who}",
            f"switchgear reset {arguments}",
        )
    token = "; this needs the operator token" if sealed else ""
    force = f"admit every call until you release it{token}"
    rows = (
        ("wait", *waiting, wait),
        ("force", force, f"switchgear hold closed {arguments}", None),
        ("skip", "continue without this call; nothing to do here", "", None),
        ("abort", "stop the run", "exit 1", None),
    )
    return [dict(zip(("option", "what", "command", "seconds"), row, strict=True)) for row in rows]


def _store_options() -> str:
    """The options that select the same store, without URLs that may contain a password."""
    options = ""
    for option in ("config", "store"):
        value = given(option)
        if value is not None and "@" not in value:
            options += f" --{option} {shlex.quote(value)}"
    return options


@click.command()
@circuit_argument()
@click.argument("outcome", type=click.Choice(["success", "failure", "ignored"]))
@click.option(
    "--error",
    metavar="TEXT",
    callback=checked_text,
    help="What went wrong; secrets in it are redacted.",
)
@click.option("--seconds", type=number("seconds"), help="Duration of the call.")
@click.option("--cost", metavar="USD", help="Cost of each result in dollars.")
@click.option("--permit", metavar="TOKEN", help="Permit that 'check --take' printed.")
@click.option("--retry-after", type=number("seconds"), help="Wait requested by the provider.")
@click.option(
    "--count",
    type=click.IntRange(1, 1_000_000),
    default=1,
    help="Record this many identical results.",
)
@json_option
@token_option
@store_options
def record(
    circuit: str, outcome: str, *, cost: str | None, permit: str | None, as_json: bool, **facts: Any
) -> None:
    """Record a result on CIRCUIT. Exit code 0: recorded, even if the circuit trips.

    Use 'ignored' for a cancelled call or a returned permit: it is no evidence.
    """
    ok = {"success": True, "failure": False, "ignored": None}[outcome]
    if ok is not False and (facts["error"] is not None or facts["retry_after"] is not None):
        fail("--error and --retry-after belong to a failure")
    signal = Signal(
        ok=ok,
        seconds=facts["seconds"],
        error=None if facts["error"] is None else redact(facts["error"]),
        retry_after_s=facts["retry_after"],
        cost_micros=None if cost is None else parse_cost(cost),
        count=facts["count"],
    )
    try:
        acquired = None if permit is None else load_permit(circuit, permit)
    except ValueError as error:
        fail(f"--permit: {error}")
    with open_session() as session:
        step = session.send(circuit, Record(signal, acquired))
    moved = [event for event in step.events if event.kind == "moved"]
    is_stale = acquired is not None and acquired.generation != step.circuit.generation and not moved
    if as_json:
        events = [of_event(event) for event in step.events]
        say_json({**standing_of(circuit, step), "late": is_stale, "events": events})
        return
    times = "" if facts["count"] == 1 else f", {facts['count']:,} times"
    say(clean(f"recorded {outcome} of {circuit}") + times)
    if is_stale:
        say("the permit was issued before the last trip: counted, but not used as evidence")
    for event in step.events:
        say(what_happened(event, signs_for()))


def parse_cost(text: str) -> int:
    """Parse dollars into micro-dollars, rounded up: a recorded cost is never too low."""
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= _MOST_DOLLARS:
        rule = f"it must be an amount of dollars from 0 to {_MOST_DOLLARS:,}, such as 0.0125"
        fail(f"--cost is {text!r}: {rule}")
    return int((amount * 1_000_000).to_integral_value(ROUND_CEILING))
