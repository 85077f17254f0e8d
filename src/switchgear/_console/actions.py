"""The write operations of the API, each at most once per idempotency key.

A message goes directly to the store and fails if the store fails: a breaker may continue without its
store, but an operator must be informed. With an idempotency key, the message and its answer are saved in
one transaction, so a repeated request gets the first answer, also from another process.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from switchgear._breaker.signals import check_probes
from switchgear._config.sections import default_policy
from switchgear._console.interventions import (
    IMPOSSIBLE,
    INTERVENTIONS,
    RUN_ACTIONS,
    Author,
    NotPossible,
    intervene,
    intervene_in_run,
    options_of,
)
from switchgear._console.permits import dump_permit, load_permit
from switchgear._console.requests import answer_request, granted
from switchgear._console.sessions import notes_of
from switchgear._console.sources import NotFound, Sources
from switchgear._console.values import finite, of_event, standing_of
from switchgear._core.errors import StoreCorrupt
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    Event,
    EventKind,
    Message,
    Mode,
    Override,
    Record,
    Signal,
    Step,
)
from switchgear._hooks import session as guarded
from switchgear._hooks.after_reply import RecordingStore
from switchgear._run.inbox import Extension
from switchgear._run.record import find_run, runs_root
from switchgear._sinks.dispatch import emit
from switchgear._stores.base import Transaction, checked_name
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.score import evidence_score
from switchgear._text.redact import redact

KEPT_S = 86_400.0
"""Seconds for which the answer to a request with an idempotency key is repeated."""
LONGEST_KEY = 200
LONGEST_TEXT = 10_000
LONGEST_HOLD_S = 365 * 86_400.0
MOST_AT_ONCE = 1_000_000
MOST_ITERATIONS = 10_000
MAX_MICROS = 10**12
ANSWERS = ("grant", "deny")
"""The answers to a request of an agent."""
VERDICTS = ("confirmed", "false_positive")
"""Whether the trip of an incident was right."""
OVERRIDES: dict[str, tuple[Mode | None, bool, bool]] = {
    "hold_open": (Mode.HELD_OPEN, False, False),
    "hold_closed": (Mode.HELD_CLOSED, False, False),
    "shadow": (Mode.SHADOW, False, False),
    "release": (Mode.AUTO, False, False),
    "reset": (None, True, False),
    "probe": (None, False, True),
}
"""Mode, reset and probe of each override."""


class Conflict(ValueError):
    """The idempotency key was used for another request."""


class ApiAnswer(NamedTuple):
    body: dict[str, Any]
    is_replay: bool = False


class Actions:
    """Sends messages to the circuits of one installation. Thread-safe; raises `StoreError`."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def acquire(self, name: str, given: Mapping[str, Any], key: str | None = None) -> ApiAnswer:
        """Acquire a permit; the answer says whether the call is admitted."""
        _check_fields(given)

        def body(done: Step) -> dict[str, Any]:
            permit = done.verdict.permit
            return {
                **standing_of(name, done),
                "admitted": done.verdict.admitted,
                "permit": None if permit is None else dump_permit(name, permit),
            }

        return self._send(name, Acquire(), body, key=key, content=f"{name}\0acquire")

    def record(self, name: str, given: Mapping[str, Any], key: str | None = None) -> ApiAnswer:
        """Record a result. Raises ValueError for an invalid result."""
        message = record_of(name, given)
        content = f"{name}\0record {message!r}"
        return self._send(name, message, _with_events(name), key=key, content=content)

    def override(self, name: str, given: Mapping[str, Any], key: str | None = None) -> ApiAnswer:
        """Override a circuit that exists. Raises ValueError, `NotFound`."""
        message = override_of(given, self._sources.panel.store.inner.now_s())
        policy = self._policy(name, must_exist=given.get("create") is not True)
        if message.probe:
            check_probes(name, policy)
        content = _content(name, "override", given)
        return self._send(
            name, message, _with_events(name), key=key, content=content, policy=policy
        )

    def intervene(self, name: str, given: Mapping[str, Any], key: str | None = None) -> ApiAnswer:
        """Help or stop a session. Raises ValueError, `NotFound`, `NotPossible`."""
        _check_fields(given, "action", "by", "why", "hint", "for_s")
        action, author, plan = self._intervention(given, INTERVENTIONS)
        for_s = _number(given, "for_s", LONGEST_HOLD_S)
        if for_s is not None:
            plan = plan._replace(extend_s=for_s)

        def work() -> dict[str, Any]:
            return {"session": name, "done": self._intervene(name, action, plan, author)}

        return self._once(key, _content(name, "intervene", given), work)

    def intervene_run(
        self, name: str, given: Mapping[str, Any], key: str | None = None
    ) -> ApiAnswer:
        """Help or stop a run. Raises ValueError, `RunUnreadable`, `NotPossible`."""
        _check_fields(given, "action", "by", "why", "hint", "for_s", "iterations", "cost_micros")
        action, author, plan = self._intervention(given, RUN_ACTIONS)
        more = Extension(
            _number(given, "for_s", LONGEST_HOLD_S) or 0.0,
            _int_field(given, "iterations", 0, MOST_ITERATIONS) or 0,
            _int_field(given, "cost_micros", 0, MAX_MICROS) or 0,
        )
        if any(more) and action != "extend":
            raise ValueError("for_s, iterations and cost_micros belong to extend")
        record = find_run(runs_root(self._sources.root), name)

        def work() -> dict[str, Any]:
            done = intervene_in_run(
                self._transact, record, action, plan=plan, author=author, more=more
            )
            return {"run": record.id, "done": done}

        return self._once(key, _content(record.id, "intervene run", given), work)

    def close_incident(
        self, name: str, given: Mapping[str, Any], key: str | None = None
    ) -> ApiAnswer:
        """Close an incident. Raises ValueError, `IncidentTrouble`."""
        _check_fields(given, "verdict", "by", "why")
        by, why = author_and_reason(given)
        verdict = None if given.get("verdict") is None else _choice(given, "verdict", VERDICTS)

        def work() -> dict[str, Any]:
            circuit = self._sources.close_incident(name, by=by, why=why, verdict=verdict)
            audit = Override(by, f"incident {name} closed: {why}", kind=EventKind.INTERVENED)
            policy = self._policy(circuit)
            self._transact(circuit, lambda tx: tx.apply(circuit, policy, audit))
            return {"incident": name, "done": "closed"}

        return self._once(key, _content(name, "close", given), work)

    def answer_request(
        self, name: str, given: Mapping[str, Any], key: str | None = None
    ) -> ApiAnswer:
        """Grant or deny a request of an agent. Raises ValueError, `RequestMissing`."""
        _check_fields(given, "action", "by", "why")
        by, why = author_and_reason(given)
        grant = _choice(given, "action", ANSWERS) == "grant"

        def work() -> dict[str, Any]:
            found = answer_request(self._transact, name, grant=grant, by=by, why=why)
            more = f"; {granted(self._transact, found)}" if grant else ""
            return {"request": found.id, "done": f"{found.wish} {found.state}{more}"}

        return self._once(key, _content(name, "answer", given), work)

    def _intervention(
        self, given: Mapping[str, Any], actions: tuple[str, ...]
    ) -> tuple[str, Author, Interventions]:
        action = _choice(given, "action", actions)
        plan, hint = self._sources.config.interventions, _text(given, "hint")
        if hint is not None:
            plan = plan._replace(hint=redact(hint, 2000))
        return action, Author(*author_and_reason(given), audited=True), plan

    def _once(self, key: str | None, content: str, work: Callable[[], dict[str, Any]]) -> ApiAnswer:
        """Do work of several transactions; a repeated request with the same key gets the first answer."""
        request = _digest(content)
        if key is not None:
            kept = self._transact(_note_name(key), lambda tx: _earlier_answer(tx.note, request))
            if kept is not None:
                return ApiAnswer(kept, is_replay=True)
        body = work()
        if key is not None:
            self._transact(_note_name(key), lambda tx: _keep(tx, request, body))
        return ApiAnswer(body)

    def _intervene(self, name: str, action: str, plan: Interventions, author: Author) -> str:
        circuit = f"session/{name}"
        view = None if "/" in name else self._sources.panel.view(circuit)
        if view is None:
            raise NotFound(f"there is no session {name!r}")
        notes = notes_of(self._sources.panel, circuit)
        if guarded.state_of(notes, view.circuit) is guarded.State.ENDED:
            raise NotPossible(f"session {name} has ended")
        score = evidence_score(view.policy, view.readings)
        if score.evidence:
            notes = notes._replace(points=score.points, indicators=score.evidence)
        stopped = guarded.is_stopped(view.circuit)
        possible = [option.key for option in options_of(plan, notes, stopped=stopped)]
        if action not in possible:
            why = f" ({IMPOSSIBLE[action]})" if action in IMPOSSIBLE else ""
            raise NotPossible(
                f"{action} is not possible now{why}: choose one of {', '.join(possible)}"
            )
        return intervene(self._transact, view, action, evidence=notes, plan=plan, author=author)

    def _transact(self, name: str, work: Callable[[Transaction], Any]) -> Any:
        """Do `work` directly in the store, and call the sinks after it."""
        events: list[Event] = []
        done = RecordingStore(self._sources.panel.store.inner, events).transact(name, work)
        emit(events, tuple(self._sources.config.sinks))
        return done

    def _policy(self, name: str, *, must_exist: bool = False) -> Policy:
        """The policy of a circuit: the stored one, else the configured one, else the default."""
        checked_name(name)
        try:
            found = self._sources.panel.store.inner.get(name)
        except StoreCorrupt:
            found = None  # the circuit exists, and the message repairs it
        else:
            if found is None and must_exist:
                raise NotFound(f'there is no circuit {name!r}; to create it, add "create": true')
        if found is not None:
            return found.policy
        return self._sources.config.policy_for(name) or default_policy(name)

    def _send(
        self,
        name: str,
        message: Message,
        body_of: Callable[[Step], dict[str, Any]],
        *,
        key: str | None,
        content: str,
        policy: Policy | None = None,
    ) -> ApiAnswer:
        panel = self._sources.panel
        store = panel.store.inner
        effective = policy or self._policy(name)
        panel.store.operator.keep_in(store)
        if key is None:
            done = store.apply(name, effective, message, store.now_s())
            emit(done.events, tuple(self._sources.config.sinks))
            return ApiAnswer(finite(body_of(done)))
        request = _digest(content)

        def work(tx: Transaction) -> ApiAnswer:
            kept = _earlier_answer(tx.note, request)
            if kept is not None:
                return ApiAnswer(kept, is_replay=True)
            body = finite(body_of(tx.apply(name, effective, message)))
            _keep(tx, request, body)
            return ApiAnswer(body)

        answer: ApiAnswer = self._transact(_note_name(key), work)
        return answer


def operator_digest(sources: Sources) -> str | None:
    """The digest of the token that overrides need; `None`: they need none."""
    lock, store = sources.panel.store.operator, sources.panel.store.inner
    lock.keep_in(store)
    return store.operator_digest() or lock.digest


def _content(name: str, action: str, given: Mapping[str, Any]) -> str:
    """The content of a request as a text; requests with the same key must have the same content."""
    return f"{name}\0{action} {json.dumps(dict(given), sort_keys=True)}"


def _note_name(key: str) -> str:
    return f"console/once/{_digest(key)}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()


def _keep(tx: Transaction, request: str, body: dict[str, Any]) -> None:
    tx.note = json.dumps({"request": request, "body": body})
    tx.keep_s = KEPT_S


def _earlier_answer(note: str | None, request: str) -> dict[str, Any] | None:
    """The earlier answer to a request; `None`: there is none. Raises `Conflict`."""
    try:
        kept = json.loads(note or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(kept, dict) or not isinstance(kept.get("body"), dict):
        return None
    if kept.get("request") != request:
        rule = "was used for another request; use a new one for each request"
        raise Conflict(f"the Idempotency-Key {rule}")
    body: dict[str, Any] = kept["body"]
    return body


def _with_events(name: str) -> Callable[[Step], dict[str, Any]]:
    def body(done: Step) -> dict[str, Any]:
        return {**standing_of(name, done), "events": [of_event(event) for event in done.events]}

    return body


# Parsing requests


def record_of(name: str, given: Mapping[str, Any]) -> Record:
    """The message that records a result. Raises ValueError."""
    _check_fields(
        given, "outcome", "seconds", "error", "retry_after_s", "cost_micros", "count", "permit"
    )
    outcomes = {"success": True, "failure": False, "ignored": None}
    outcome = _choice(given, "outcome", outcomes)
    error, retry_s = _text(given, "error"), _number(given, "retry_after_s", LONGEST_HOLD_S)
    if outcome != "failure" and (error is not None or retry_s is not None):
        raise ValueError("error and retry_after_s belong to a failure")
    permit = _text(given, "permit")
    count = _int_field(given, "count", 1, MOST_AT_ONCE)
    signal = Signal(
        ok=outcomes[outcome],
        seconds=_number(given, "seconds", LONGEST_HOLD_S),
        error=None if error is None else redact(error),
        retry_after_s=retry_s,
        cost_micros=_int_field(given, "cost_micros", 0, 10**15),
        count=1 if count is None else count,
    )
    return Record(signal, None if permit is None else load_permit(name, permit))


def override_of(given: Mapping[str, Any], now_s: float) -> Override:
    _check_fields(given, "action", "by", "why", "for_s", "create")
    mode, reset, probe = OVERRIDES[_choice(given, "action", OVERRIDES)]
    by, why = author_and_reason(given)
    for_s = _number(given, "for_s", LONGEST_HOLD_S)
    if for_s is not None and (mode in {None, Mode.AUTO} or for_s <= 0):
        raise ValueError("for_s must be more than 0, and belongs to a hold")
    until_s = None if for_s is None else now_s + for_s
    if not isinstance(given.get("create", False), bool):
        raise ValueError("create must be true or false")
    return Override(by, why, mode, reset, until_s=until_s, probe=probe)


def author_and_reason(given: Mapping[str, Any]) -> tuple[str, str]:
    """Author and reason, redacted because they are stored and shown. Raises ValueError."""
    found = []
    for field in ("by", "why"):
        text = redact(_text(given, field) or "")
        if not text.strip():
            raise ValueError(
                f"{field} is missing: an override needs an author (by) and a reason (why)"
            )
        found.append(text)
    return found[0], found[1]


def _check_fields(given: Mapping[str, Any], *fields: str) -> None:
    unknown = [field for field in given if field not in fields]
    if unknown:
        known = f"; known are {', '.join(fields)}" if fields else ""
        raise ValueError(f"unknown field {unknown[0][:60]!r}{known}")


def _choice(given: Mapping[str, Any], field: str, choices: Collection[str]) -> str:
    value = given.get(field)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{field} is {value!r:.60}: it must be one of {', '.join(choices)}")
    return value


def _text(given: Mapping[str, Any], field: str) -> str | None:
    value = given.get(field)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise ValueError(f"{field} must be a text of at most {LONGEST_TEXT:,} characters")
    return value


def _number(given: Mapping[str, Any], field: str, most: float) -> float | None:
    value = given.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{field} is {value!r:.60}: it must be a number")
    if not math.isfinite(value) or not 0 <= value <= most:
        raise ValueError(f"{field} is {value!r:.60}: it must be between 0 and {most:g}")
    return float(value)


def _int_field(given: Mapping[str, Any], field: str, least: int, most: int) -> int | None:
    value = given.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(
            f"{field} is {value!r:.60}: it must be a whole number from {least} to {most}"
        )
    return value
