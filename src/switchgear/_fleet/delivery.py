"""Delivers events to a target: at least once, in order, with growing pauses between attempts.

The events of the store are the outbox. A message that cannot be delivered is set aside with the
reason, and the next one is sent: no message is dropped silently, and none blocks the others.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, sleep, time
from typing import Any, NamedTuple

from switchgear._core import values
from switchgear._core.errors import StoreError
from switchgear._core.evidence import FLOWING
from switchgear._core.types import Event, Phase
from switchgear._fleet.categories import ABOUT, category_of
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.incidents import affected_agents, event_line, incident_id, iso, owners
from switchgear._fleet.run_notes import is_loop, run_note
from switchgear._fleet.targets import (
    Command,
    Desktop,
    Message,
    NotSent,
    Slack,
    Target,
    Unsendable,
    Webhook,
)
from switchgear._panel.panel import Panel
from switchgear._sinks.dispatch import log_warning
from switchgear._sinks.log import one_line
from switchgear._stores.base import Amended, Entry, Ledger, ledger_of
from switchgear._text.redact import redact

SEVERITIES = ("SEV1", "SEV2", "SEV3", "INFO")


class Outcome(NamedTuple):
    target: str
    """The target's name."""
    sent: bool
    why: str = ""
    """Why the message did not arrive; empty if it did."""


def notice(
    text: str,
    *,
    severity: str = "INFO",
    kind: str = "notice",
    circuit: str = "",
    reason: str = "",
    owners: Iterable[str] = (),
    at_s: float | None = None,
    **facts: Any,
) -> Message:
    """A message with the keys of an event; `facts` are JSON values that are added unchanged.

    `severity` is SEV1, SEV2, SEV3 or INFO. Raises ValueError for any other.

    >>> notice("run r1 ended", severity="SEV2", owners=["ana"], run="r1")["text"]
    '[SEV2] run r1 ended'
    """
    values.check_one_of("severity", severity, SEVERITIES)
    now_s = time() if at_s is None else at_s
    return {
        "id": f"{redact(circuit or kind)}#{now_s:.3f}-{os.urandom(4).hex()}",
        "text": redact(f"[{severity}] {text}", 800),
        "severity": severity,
        "category": None,
        "circuit": redact(circuit, 500),
        "kind": kind,
        "at": iso(now_s),
        "at_s": now_s,
        "reason": redact(reason, 400),
        "owners": [redact(owner) for owner in owners],
        **facts,
    }


def deliver(targets: Sequence[Target], message: Message, timeout_s: float = 10.0) -> list[Outcome]:
    """Send a message to all targets that match its circuit, in parallel. Never raises.

    Returns an outcome for each target after `timeout_s` seconds at most. A target that is given twice,
    for example in the configuration and by `--notify`, gets the message once.
    """
    circuit = str(message.get("circuit") or "")
    matching = [target for target in targets if not circuit or target.wants(circuit)]
    late = f"no answer within {timeout_s:g} s"
    return _in_parallel(matching, lambda target: _sent(target, message, timeout_s), timeout_s, late)


def deliver_event(
    fleet: Fleet, targets: Sequence[Target], event: Event, timeout_s: float = 10.0
) -> list[Outcome]:
    """Send an event, after all events before it, to the targets that match it, in parallel.

    Returns an outcome for each target after `timeout_s` seconds at most (one more if the store is
    busy). Events that did not arrive stay pending, and any process may send them. Raises `StoreError`
    for a store without a ledger.
    """
    deliveries = {
        target.name: Delivery(fleet, target) for target in targets if target.wants(event.circuit)
    }
    late = f"no answer within {timeout_s:g} s; {_PENDING}"
    outcomes = _in_parallel(
        [delivery.target for delivery in deliveries.values()],
        lambda target: _sent_in_turn(deliveries[target.name], event),
        *(timeout_s, late),
    )
    _in_threads([deliveries[each.target].stop for each in outcomes if each.why == late], STOP_S)
    return outcomes


def _in_parallel(
    targets: Sequence[Target], send: Callable[[Target], Outcome], timeout_s: float, late: str
) -> list[Outcome]:
    distinct = list({target.name: target for target in targets}.values())
    outcomes: dict[int, Outcome] = {}

    def work(number: int, target: Target) -> None:
        outcomes[number] = send(target)

    _in_threads([partial(work, *pair) for pair in enumerate(distinct)], timeout_s)
    return [
        outcomes.get(number, Outcome(target.name, False, late))
        for number, target in enumerate(distinct)
    ]


def _in_threads(functions: Iterable[Callable[[], object]], timeout_s: float) -> None:
    """Run functions in parallel, and wait `timeout_s` seconds at most."""
    threads = [
        threading.Thread(target=work, name="switchgear-notify", daemon=True) for work in functions
    ]
    deadline_s = monotonic() + timeout_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - monotonic()))


def target_from_text(text: str) -> Target:
    """The target for the value of an option such as `--notify`. Raises ValueError.

    `desktop`; an http or https URL; `slack:VARIABLE`; `command:PROGRAM ARGUMENTS`.

    >>> target_from_text("desktop").name
    'desktop'
    """
    kind, _, rest = text.partition(":")
    if text == "desktop":
        return Desktop()
    if kind in {"http", "https"}:
        return Webhook(text)
    if kind == "slack":
        return Slack(rest)
    if kind == "command":
        return Command(rest)
    rule = "it must be desktop, a URL, slack:VARIABLE or command:PROGRAM"
    raise ValueError(f"target is {redact(text)!r}: {rule}")


def _sent(target: Target, message: Message, timeout_s: float) -> Outcome:
    try:
        target.replace(timeout_s=min(target.timeout_s, timeout_s)).send(message, time())
    except NotSent as error:
        return Outcome(target.name, False, str(error))
    except Exception as error:  # noqa: BLE001  a notification must not stop its caller
        return Outcome(target.name, False, redact(f"{type(error).__name__}: {error}"))
    return Outcome(target.name, True)


def _sent_in_turn(delivery: "Delivery", event: Event) -> Outcome:
    """Send the pending events up to this one; if another process is sending them, wait for it."""
    name = delivery.target.name
    try:
        while not delivery.is_stopped:
            delivery.run_once(now=True)
            left = delivery.pending()
            if left.failed:
                return Outcome(name, False, f"{left.why}; {_PENDING}")
            if not left.waiting:
                break
            sleep(_TURN_S)
        aside = {each["id"]: each["why"] for each in delivery.set_aside()}
    except Exception as error:  # noqa: BLE001  a notification must not stop its caller
        return Outcome(name, False, redact(f"{type(error).__name__}: {error}"))
    why = aside.get(message_id(event), "")
    return Outcome(name, not why, why)


_PENDING = "it stays pending, `switchgear fleet deliver` sends it"
_TURN_S = 0.1
"""Seconds between two checks whether another process has sent an event."""
SHELF = "place"
LEASE_S = 60.0
"""Seconds for which a process has the turn, unless it renews the lease."""
STOP_S = 1.0
"""Seconds to wait for unfinished turns to end; after that, a turn ends with its lease."""
PAGE = 200


class Turn(NamedTuple):
    """The exclusive right of a process to process events."""

    cursor: str | None
    """The last event that was processed; `None`: none yet."""
    trouble: dict[str, Any]
    """Notes of the previous turn, such as failed attempts."""


class OutboxPlace:
    """A reader's position in the event stream, shared by processes that take turns."""

    def __init__(self, panel: Panel, name: str, me: str, lease_s: float = LEASE_S) -> None:
        self._panel = panel
        self._ledger = ledger_of(panel.store.inner)
        self._name = name
        self._me = me
        self._lease_s = lease_s
        self.is_given_up = False

    def acquire(self) -> Turn | None:
        """Acquire the turn for a lease; `None` if another process has it. Raises `StoreError`."""

        def work(value: Any, now_s: float) -> Amended:
            value = value or {"cursor": None, "owner": None, "until_s": 0.0, "trouble": {}}
            if self.is_given_up:
                return Amended(None)
            if value["owner"] not in {None, self._me} and now_s < value["until_s"]:
                return Amended(None)
            ours = {**value, "owner": self._me, "until_s": now_s + self._lease_s}
            return Amended(Turn(value["cursor"], value["trouble"]), ours)

        turn: Turn | None = self._ledger.amend(SHELF, self._name, work)
        return turn

    def move(self, cursor: str | None, trouble: dict[str, Any] | None = None) -> bool:
        """Save the position after this event and renew the lease; False if another process has the turn."""

        def work(value: Any, now_s: float) -> Amended:
            if value is None or value["owner"] != self._me:
                return Amended(False)
            place = {"cursor": cursor, "trouble": trouble or {}}
            return Amended(True, {**value, **place, "until_s": now_s + self._lease_s})

        return bool(self._ledger.amend(SHELF, self._name, work))

    def leave(self) -> None:
        """End the turn, so that other processes can act."""

        def work(value: Any, now_s: float) -> Amended:
            del now_s
            if value is None or value["owner"] != self._me:
                return Amended(None)
            return Amended(None, {**value, "owner": None, "until_s": 0.0})

        self._ledger.amend(SHELF, self._name, work)

    def give_up(self) -> None:
        """End the turn for good; another thread may call this while the turn is in use."""
        self.is_given_up = True
        self.leave()

    def after(self, cursor: str | None) -> list[Entry]:
        """The next events after a position; without one, from the oldest stored event."""
        return self._panel.events(after="0" if cursor is None else cursor, limit=PAGE)

    def is_at_end(self) -> bool:
        """Whether there are no new events; read-only, so that a waiting process writes nothing."""
        value = self._ledger.value(SHELF, self._name)
        return value is not None and not self.after(value["cursor"])

    def for_each(self, act: Callable[[Entry], object]) -> int:
        """Call `act` for every event after the saved position; returns the number of events.

        Does nothing if another process has the turn. An event for which `act` raises is processed
        again later, and the error is raised.
        """
        turn = None if self.is_at_end() else self.acquire()
        if turn is None:
            return 0
        cursor, done = turn.cursor, 0
        try:
            while entries := self.after(cursor):
                for entry in entries:
                    act(entry)
                    done += 1
                    cursor = entry.cursor
                if not self.move(cursor):
                    return done
        finally:
            if done:
                self.move(cursor)
            self.leave()
        return done


FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 600.0
ATTEMPTS = 5
"""Maximum attempts for a message that the target refuses."""
ATTEMPTS_PER_CHECK = 8
"""After this many failed attempts, and every multiple, a later message shows whether the target is down."""
NEW_S = 3600.0
"""The age in seconds of the oldest events that a new target receives."""
ASIDE = "undelivered"
"""The shelf of messages that were set aside, by the name of the target."""
MOST_ASIDE = 100
"""Maximum number of stored messages that were set aside; older ones are only counted."""
MOST_COUNTED = 10_000
_Aside = list[dict[str, Any]]
STOPS_WORK = frozenset({"loop", "run", "task", "session", "provider", "budget"})
"""Kinds of circuits outside of a fleet that stop an agent when they open."""


class PendingDeliveries(NamedTuple):
    target: str
    waiting: int
    """Messages that are waiting, counted up to `MOST_COUNTED`."""
    why: str = ""
    """Why the last attempt failed; empty if it succeeded or there was none."""
    failed: int = 0
    """Attempts in a row that failed."""
    next_s: float | None = None
    """When the next attempt is due, on the store's clock; `None`: at once."""
    aside: int = 0
    """Messages that could not be delivered and were set aside."""
    aside_why: str = ""
    """Why the latest of these was set aside."""


class Delivery:
    """Sends to one target. Used by one thread, except `stop`; processes take turns."""

    def __init__(self, fleet: Fleet, target: Target) -> None:
        self._fleet = fleet
        self.target = target
        self._key = f"notify/{target.name}"
        me = f"{os.uname().nodename}:{os.getpid()}:{os.urandom(4).hex()}"
        self._place = OutboxPlace(fleet.panel, self._key, me)

    def run_once(self, *, now: bool = False) -> int:
        """Send the messages that are due; returns how many arrived. Raises `StoreError`.

        Failures of the target are stored and not raised. With `now`, a pause is cut short unless the
        receiver requested it.
        """
        turn = None if self._place.is_at_end() else self._place.acquire()
        if turn is None:
            return 0
        try:
            is_early = turn.trouble.get("next_s", 0.0) > self._now_s()
            if is_early and not (now and not turn.trouble.get("asked")):
                return 0
            return self._send_from(turn.cursor, self._begun_s(turn), turn.trouble.get("failed", 0))
        finally:
            self._place.leave()

    @property
    def is_stopped(self) -> bool:
        return self._place.is_given_up

    def stop(self) -> None:
        """Let other processes send the remaining messages; does not wait for the target. Never raises."""
        with suppress(StoreError):  # then the turn ends with its lease
            self._place.give_up()

    def is_due(self) -> bool:
        """Whether there are events to send now. Read-only. Raises `StoreError`."""
        value, now_s = self._ledger().value(SHELF, self._key), self._now_s()
        if value is None:
            return bool(self._place.after(None))
        is_sending = value["owner"] is not None and now_s < value["until_s"]  # another process
        is_pausing = value["trouble"].get("next_s", 0.0) > now_s
        return not is_sending and not is_pausing and bool(self._place.after(value["cursor"]))

    def pending(self) -> PendingDeliveries:
        """The number of messages that this target has not received, and why. Read-only. Raises `StoreError`."""
        value = self._ledger().value(SHELF, self._key) or {"cursor": None, "trouble": {}}
        trouble, cursor = value["trouble"], value["cursor"]
        begun_s = trouble.get("begun_s", self._now_s()) if cursor is None else None
        count = 0
        while count < MOST_COUNTED and (entries := self._place.after(cursor)):
            count += sum(self._is_due(entry, begun_s) for entry in entries)
            cursor = entries[-1].cursor
        aside = self._ledger().value(ASIDE, self.target.name) or {"count": 0, "last": []}
        return PendingDeliveries(
            self.target.name,
            count,
            trouble.get("why", "") if count else "",
            trouble.get("failed", 0) if count else 0,
            trouble.get("next_s") if count else None,
            aside["count"],
            aside["last"][-1]["why"] if aside["last"] else "",
        )

    def set_aside(self) -> list[dict[str, Any]]:
        """The messages that were set aside, oldest first: `id`, `why`, `at_s` and `message`."""
        value = self._ledger().value(ASIDE, self.target.name) or {"last": []}
        return list(value["last"])

    def forget_set_aside(self) -> int:
        """Drop the messages that were set aside; return their number."""
        return int(self._amend_aside(lambda count, _: (count, 0, [])))

    def retry_set_aside(self) -> int:
        """Send the messages that were set aside again; returns how many arrived. The rest stay set aside."""
        sent = 0
        for line in self.set_aside():
            try:
                self.target.send(line["message"], self._now_s())
            except Exception as error:  # noqa: BLE001  one message must not block the others
                log_warning("notification target %r: %s", self.target.name, redact(str(error)))
                continue
            self._remove_aside(line["id"])
            sent += 1
        return sent

    def _begun_s(self, turn: Turn) -> float | None:
        """When this target was first used; `None` once it has a position in the stream."""
        if turn.cursor is not None:
            return None
        begun_s: float = turn.trouble.get("begun_s", self._now_s())
        if "begun_s" not in turn.trouble:
            self._place.move(None, {"begun_s": begun_s})
        return begun_s

    def _send_from(self, cursor: str | None, begun_s: float | None, failed: int) -> int:
        sent = 0
        while entries := self._place.after(cursor):
            for number, entry in enumerate(entries):
                if not self._is_due(entry, begun_s):
                    cursor = entry.cursor
                    continue
                error = self._attempt(entry)
                if error is not None and self._accepts_later(failed + 1, entries[number + 1 :]):
                    error = self._attempt(entry)
                    if error is not None:
                        error = Unsendable(f"{error}, while other notifications are delivered")
                if error is not None and self.is_stopped:
                    return sent  # another process may have sent it in the meantime
                if error is None:
                    sent += 1
                elif isinstance(error, Unsendable) or (
                    not error.may_help and error.retry_after_s is None and failed + 1 >= ATTEMPTS
                ):
                    self._put_aside(entry, str(error))
                else:
                    self._try_later(cursor, begun_s, failed + 1, error)
                    return sent
                cursor, failed = entry.cursor, 0
                if not self._place.move(cursor):
                    return sent
            self._place.move(cursor)
        return sent

    def _attempt(self, entry: Entry) -> NotSent | None:
        """Send one message; returns why it did not arrive, or `None`."""
        try:
            self.target.send(message_of(entry.event, self._fleet), self._now_s())
        except NotSent as error:
            return error
        except StoreError:
            raise  # the message is not at fault, so it is sent again later
        except Exception as error:  # noqa: BLE001  a defect must not block later messages
            return Unsendable(redact(f"{type(error).__name__}: {error}"))
        return None

    def _accepts_later(self, failed: int, later: list[Entry]) -> bool:
        """Whether the target accepts a later message, so it is not down and only one message fails.

        The later message is sent again in its turn, with the same id.
        """
        if failed % ATTEMPTS_PER_CHECK:
            return False
        entry = next((each for each in later if self.target.wants(each.event.circuit)), None)
        return entry is not None and self._attempt(entry) is None

    def _is_due(self, entry: Entry, begun_s: float | None) -> bool:
        event = entry.event
        if begun_s is not None and event.at_s < begun_s - NEW_S:
            return False
        return self.target.wants(event.circuit)

    def _try_later(
        self, cursor: str | None, begun_s: float | None, failed: int, error: NotSent
    ) -> None:
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failed - 1, 20))
        trouble: dict[str, Any] = {"failed": failed, "why": str(error)}
        if error.retry_after_s is not None:
            pause_s = max(pause_s, error.retry_after_s)
            trouble["asked"] = True
        trouble["next_s"] = self._now_s() + pause_s
        if cursor is None:
            trouble["begun_s"] = begun_s
        self._place.move(cursor, trouble)
        log_warning(
            "notification target %r: %s; next try in %g s", self.target.name, error, pause_s
        )

    def _put_aside(self, entry: Entry, why: str) -> None:
        message: Message | None
        try:
            message = message_of(entry.event, self._fleet)
        except Exception:  # noqa: BLE001  building the message may be what failed
            message = {"id": f"{redact(entry.event.circuit)}#{entry.event.seq}"}
        line = {"id": message["id"], "why": why, "at_s": self._now_s(), "message": message}

        self._amend_aside(lambda count, last: (None, count + 1, [*last, line][-MOST_ASIDE:]))
        log_warning(
            "notification target %r: %s cannot be delivered and is set aside: %s",
            *(self.target.name, message["id"], why),
        )

    def _remove_aside(self, message_id: str) -> None:
        def work(count: int, last: _Aside) -> tuple[None, int, _Aside]:
            rest = [line for line in last if line["id"] != message_id]
            return None, max(0, count - len(last) + len(rest)), rest

        self._amend_aside(work)

    def _amend_aside(self, work: Callable[[int, _Aside], tuple[Any, int, _Aside]]) -> Any:
        """Change the count and the list of messages that were set aside; returns the first value of `work`."""

        def amend(value: Any, now_s: float) -> Amended:
            del now_s
            known = value or {"count": 0, "last": []}
            answer, count, last = work(known["count"], known["last"])
            return Amended(answer, {"count": count, "last": last})

        return self._ledger().amend(ASIDE, self.target.name, amend)

    def _ledger(self) -> Ledger:
        return ledger_of(self._fleet.panel.store.inner)

    def _now_s(self) -> float:
        return self._fleet.panel.store.now_s()


def message_of(event: Event, fleet: Fleet) -> Message:
    """The message for an event, with its owners, without secrets or control characters.

    The message for an event that ended a run includes the receipt of the run.
    """
    category = category_of(event.circuit)
    opened = event.after is Phase.OPEN and event.before in FLOWING
    severity = severity_of(event.circuit) if opened else "INFO"
    message = {
        "id": message_id(event),
        "text": redact(f"[{severity}] {one_line(event)}", 800),
        "severity": severity,
        "category": category,
        "circuit": redact(event.circuit, 500),
        **event_line(event),
        "at_s": event.at_s,
        "mode": str(event.mode),
        "retry_after_s": event.retry_after_s,
        "incident": incident_id(event) if opened and category else None,
        "owners": owners(fleet, event.circuit),
        "agents": [agent.name for agent in affected_agents(fleet, event.circuit)],
    }
    if not is_loop(event.circuit):
        return message
    note = run_note(fleet.panel, event.circuit)
    return {**message, **(note.ended or {})} if note.event == message["id"] else message


def severity_of(circuit: str) -> str:
    """The severity of an open circuit: by category in a fleet, else by kind.

    >>> severity_of("rules/coder"), severity_of("loop/7f3a"), severity_of("op/git")
    ('SEV1', 'SEV2', 'SEV3')
    """
    category = category_of(circuit)
    if category is not None:
        return ABOUT[category].severity
    head = circuit.partition("/")[0]
    return "SEV2" if head in STOPS_WORK else "SEV3"


def message_id(event: Event) -> str:
    """The unique and stable id of an event: its circuit and its number."""
    name = redact(event.circuit)
    if name != event.circuit:  # after redaction, several circuits may have the same name
        from hashlib import sha256  # noqa: PLC0415  rarely needed

        name += "~" + sha256(event.circuit.encode(errors="replace")).hexdigest()[:12]
    return f"{name}#{event.seq}"
