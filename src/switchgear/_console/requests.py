"""Requests of agents for more time or money, and the answers of operators: one note in the store.

An agent can only add a request with a reason; only an operator can answer it and change limits. All texts
of agents are redacted and bounded before they are stored.
"""

import json
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from switchgear._hooks.session import Notes, note_name, with_message, with_more_time
from switchgear._stores.base import Transaction
from switchgear._stuck.messages import TEXT_PREFIX
from switchgear._text.redact import redact

NOTE = "requests"
TIME, MONEY = "time", "money"
KINDS = (TIME, MONEY)
OPEN, GRANTED, DENIED = "open", "granted", "denied"
MOST_OPEN, MOST_PER_SESSION, MOST_KEPT = 20, 3, 60
KEEP_S = 7 * 86_400.0
LONGEST_REASON = 400
MOST_SECONDS, MAX_MICROS = 86_400.0, 1_000_000_000
Transact = Callable[[str, Callable[[Transaction], Any]], Any]


class AgentRequest(NamedTuple):
    """A request of an agent. Immutable."""

    id: str
    session: str
    kind: str
    """`time` or `money`."""
    amount: float
    """Seconds, or dollars."""
    reason: str
    asked_s: float
    state: str = OPEN
    answer: str = ""
    """The reason of the operator."""
    by: str = ""
    answered_s: float | None = None

    @property
    def wish(self) -> str:
        if self.kind == MONEY:
            return f"${self.amount:,.2f}"
        minutes = self.amount / 60
        return f"{minutes:g} minutes" if minutes >= 1 else f"{self.amount:g} seconds"


class RequestRefused(ValueError):
    """A request that is not recorded, or cannot be answered, with the reason."""


class RequestMissing(RequestRefused):
    """The request does not exist."""


def load(text: str | None) -> list[AgentRequest]:
    """The requests in a note; unreadable requests are left out."""
    try:
        rows = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    found: list[AgentRequest] = []
    for row in rows if isinstance(rows, list) else []:
        try:
            each = AgentRequest(**row)
            found.append(each._replace(amount=float(each.amount), asked_s=float(each.asked_s)))
        except (TypeError, ValueError):
            continue
    return found


def all_requests(transact: Transact) -> list[AgentRequest]:
    found: list[AgentRequest] = transact(NOTE, lambda tx: load(tx.note))
    return found


def add_request(
    transact: Transact, session: str, kind: str, amount: float, reason: str
) -> AgentRequest:
    """Store a request. Raises `RequestRefused`."""
    if kind not in KINDS:
        raise RequestRefused(f"kind is {kind!r}: it must be one of {', '.join(KINDS)}")
    most = MOST_SECONDS if kind == TIME else MAX_MICROS / 1e6
    if not 0 < amount <= most:
        unit = "seconds" if kind == TIME else "dollars"
        raise RequestRefused(
            f"amount is {amount!r}: it must be above 0 and at most {most:g} {unit}"
        )
    why = " ".join(redact(reason, LONGEST_REASON).split())
    if not why:
        raise RequestRefused("reason is empty: a person needs one to decide")

    def work(tx: Transaction) -> AgentRequest:
        rows = load(tx.note)
        waiting = [row for row in rows if row.state == OPEN]
        if sum(row.session == session for row in waiting) >= MOST_PER_SESSION:
            raise RequestRefused(f"{MOST_PER_SESSION} requests of this session wait for an answer")
        if len(waiting) >= MOST_OPEN:
            raise RequestRefused(f"{MOST_OPEN} requests wait for an answer")
        made = AgentRequest(secrets.token_hex(4), session, kind, amount, why, tx.now_s)
        done = [row for row in rows if row.state != OPEN]
        kept = {row.id for row in (*waiting, *done[len(done) + len(waiting) + 1 - MOST_KEPT :])}
        if len(rows) < MOST_KEPT:
            kept = {row.id for row in rows}
        _write(tx, [*(row for row in rows if row.id in kept), made])
        return made

    made: AgentRequest = transact(NOTE, work)
    return made


def answer_request(
    transact: Transact, request_id: str, *, grant: bool, by: str, why: str
) -> AgentRequest:
    """Store an answer, and send it to the agent at its next step. Raises `RequestRefused`."""

    def work(tx: Transaction) -> AgentRequest:
        rows = load(tx.note)
        index = next((n for n, row in enumerate(rows) if row.id == request_id), None)
        if index is None:
            raise RequestMissing(f"there is no request {request_id!r}")
        if rows[index].state != OPEN:
            raise RequestRefused(f"request {request_id} was {rows[index].state} already")
        rows[index] = rows[index]._replace(
            state=GRANTED if grant else DENIED,
            answer=redact(why, LONGEST_REASON),
            by=redact(by, 80),
            answered_s=tx.now_s,
        )
        _write(tx, rows)
        return rows[index]

    answered: AgentRequest = transact(NOTE, work)

    def remind_agent(tx: Transaction) -> None:
        if tx.note is not None:
            because = f": {answered.answer}" if answered.answer else ""
            text = f"{TEXT_PREFIX}your request for {answered.wish} was {answered.state}{because}"
            tx.note = with_message(Notes.load(tx.note), text).dump()

    if answered.session:
        transact(note_name(answered.session), remind_agent)
    return answered


def granted(transact: Transact, request: AgentRequest) -> str:
    """Extend the time limit of the session for a granted request; returns a sentence about it."""
    if request.kind == MONEY:
        return "raise the limit of its budget: switchgear budgets set NODE DOLLARS"
    if not request.session:
        return "the request names no session: nothing to extend"

    def work(tx: Transaction) -> str:
        notes = Notes.load(tx.note)
        if tx.note is None or notes.limit_s is None:
            return "the session has no time limit: nothing to extend"
        tx.note = with_more_time(notes, request.amount, tx.now_s).dump()
        return f"the session may take {request.amount:g} s longer"

    done: str = transact(note_name(request.session), work)
    return done


def _write(tx: Transaction, rows: list[AgentRequest]) -> None:
    tx.note = json.dumps([row._asdict() for row in rows])
    tx.keep_s = KEEP_S
