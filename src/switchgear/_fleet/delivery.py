"""Delivers events to a target: at least once, in order, with growing pauses between attempts.

The events of the store are the outbox. A message that cannot be delivered is set aside
with the reason, and the next one is sent: nothing is dropped in silence and nothing blocks the rest.
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
from switchgear._fleet.incidents import concerned, event_line, incident_id, iso, owners
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
    """Why it did not arrive; empty if it did."""


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
    """A message with the keys that events have; `facts` are added as they are (JSON values).

    `severity` is one of SEV1, SEV2, SEV3, INFO. Raises ValueError for another.

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

    Returns after `timeout_s` seconds at most, with an outcome for each of them. A target that comes
    twice, such as in the configuration and by `--notify`, gets the message once.
    """
    circuit = str(message.get("circuit") or "")
    wanted = [one for one in targets if not circuit or one.wants(circuit)]
    late = f"no answer within {timeout_s:g} s"
    return _side_by_side(wanted, lambda target: _sent(target, message, timeout_s), timeout_s, late)


def deliver_event(
    fleet: Fleet, targets: Sequence[Target], event: Event, timeout_s: float = 10.0
) -> list[Outcome]:
    """Send an event in order to all targets that match it, in parallel.

    Returns after `timeout_s` seconds at most (one more if the store is busy), with an outcome for each
    of them. What did not arrive stays pending, and any process may send it. Raises `StoreError` for a
    store that keeps no turns.
    """
    wanted = {one.name: Delivery(fleet, one) for one in targets if one.wants(event.circuit)}
    late = f"no answer within {timeout_s:g} s; {_PENDING}"
    outcomes = _side_by_side(
        [delivery.target for delivery in wanted.values()],
        lambda target: _sent_in_turn(wanted[target.name], event),
        *(timeout_s, late),
    )
    _in_threads([wanted[each.target].stop for each in outcomes if each.why == late], STOP_S)
    return outcomes


def _side_by_side(
    targets: Sequence[Target], send: Callable[[Target], Outcome], timeout_s: float, late: str
) -> list[Outcome]:
    wanted = list({one.name: one for one in targets}.values())
    outcomes: dict[int, Outcome] = {}

    def work(number: int, target: Target) -> None:
        outcomes[number] = send(target)

    _in_threads([partial(work, *pair) for pair in enumerate(wanted)], timeout_s)
    return [
        outcomes.get(number, Outcome(target.name, False, late))
        for number, target in enumerate(wanted)
    ]


def _in_threads(works: Iterable[Callable[[], object]], seconds: float) -> None:
    """Run them in parallel, and wait that long at most."""
    threads = [
        threading.Thread(target=work, name="switchgear-notify", daemon=True) for work in works
    ]
    deadline_s = monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - monotonic()))


def target_from_text(text: str) -> Target:
    """The target that an option such as `--notify` names. Raises ValueError.

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
    except Exception as error:  # noqa: BLE001  a notice must not hurt what it is about
        return Outcome(target.name, False, redact(f"{type(error).__name__}: {error}"))
    return Outcome(target.name, True)


def _sent_in_turn(delivery: "Delivery", event: Event) -> Outcome:
    """Send what is pending, up to the event. Another process may be sending it: then wait for that."""
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
        aside = {one["id"]: one["why"] for one in delivery.set_aside()}
    except Exception as error:  # noqa: BLE001  a notice must not hurt what it is about
        return Outcome(name, False, redact(f"{type(error).__name__}: {error}"))
    why = aside.get(message_id(event), "")
    return Outcome(name, not why, why)


_PENDING = "it stays pending, `switchgear fleet deliver` sends it"
_TURN_S = 0.1
"""Seconds between two checks whether another process has sent an event."""
SHELF = "place"
LEASE_S = 60.0
"""Seconds for which a process has the exclusive turn, unless renewed."""
STOP_S = 1.0
"""Seconds to wait until unfinished turns are ended; a turn that is not ended stops with its lease."""
PAGE = 200


class Turn(NamedTuple):
    """A process's turn to act."""

    cursor: str | None
    """The last event that is done; `None`: none yet."""
    trouble: dict[str, Any]
    """Notes of the previous turn, such as failed attempts."""


class OutboxPlace:
    """A reader's place in the stream of events. Processes share it: one of them acts at a time."""

    def __init__(self, panel: Panel, name: str, me: str, lease_s: float = LEASE_S) -> None:
        self._panel = panel
        self._ledger = ledger_of(panel.store.inner)
        self._name = name
        self._me = me
        self._lease_s = lease_s
        self.is_given_up = False

    def take(self) -> Turn | None:
        """A turn, for a lease; `None`: another process has it. Raises `StoreError`."""

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
        """Mark everything up to this event as done and renew the lease. False: another process has it."""

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
        """End the turn for good; also while another thread acts."""
        self.is_given_up = True
        self.leave()

    def behind(self, cursor: str | None) -> list[Entry]:
        """The next events; from the oldest that is kept, for a reader without a position."""
        return self._panel.events(after="0" if cursor is None else cursor, limit=PAGE)

    def is_at_end(self) -> bool:
        """Whether there is nothing new; read-only, so that a waiting process writes nothing."""
        value = self._ledger.value(SHELF, self._name)
        return value is not None and not self.behind(value["cursor"])

    def each(self, act: Callable[[Entry], object]) -> int:
        """Act on every event after the saved position, if it is our turn. Returns their number. Raises what `act` does.

        The place moves behind each event that is done: one that is cut short is done again.
        """
        turn = None if self.is_at_end() else self.take()
        if turn is None:
            return 0
        cursor, done = turn.cursor, 0
        try:
            while entries := self.behind(cursor):
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
ATTEMPTS_ALONE = 8
"""After this many failures, and each multiple of it, a later message is tried, to see whether the target is down."""
NEW_S = 3600.0
"""A new target receives the events of this many seconds, not the whole history."""
ASIDE = "undelivered"
"""The shelf of what was set aside, by the name of the target."""
MOST_ASIDE = 100
"""Messages kept of those that were set aside; older ones are only counted."""
MOST_COUNTED = 10_000
_Aside = list[dict[str, Any]]
STOPS_WORK = frozenset({"loop", "run", "task", "session", "provider", "budget"})
"""Kinds of circuits outside a fleet that stop an agent when they open."""


class PendingDeliveries(NamedTuple):
    target: str
    waiting: int
    """Messages that are waiting, counted up to `MOST_COUNTED`."""
    why: str = ""
    """Why the last attempt failed; empty: there was none, or it succeeded."""
    failed: int = 0
    """Attempts in a row that failed."""
    next_s: float | None = None
    """When the next attempt is due, on the store's clock; `None`: at once."""
    aside: int = 0
    """Messages that could not be delivered and were set aside."""
    aside_why: str = ""
    """Why the last one of them was."""


class Delivery:
    """Sends to one target. Used by one thread, except `stop`; processes take turns."""

    def __init__(self, fleet: Fleet, target: Target) -> None:
        self._fleet = fleet
        self.target = target
        self._key = f"notify/{target.name}"
        me = f"{os.uname().nodename}:{os.getpid()}:{os.urandom(4).hex()}"
        self._place = OutboxPlace(fleet.panel, self._key, me)

    def run_once(self, *, now: bool = False) -> int:
        """Send what is due; returns how many arrived. Raises `StoreError`, but never because of the target.

        `now`: do not wait for the end of a pause, unless the receiver requested one.
        """
        turn = None if self._place.is_at_end() else self._place.take()
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
        """Let other processes send what is left, without waiting for the target. Never raises."""
        with suppress(StoreError):  # then the lease ends by itself
            self._place.give_up()

    def is_due(self) -> bool:
        """Whether there is something to send now. Only looks. Raises `StoreError`."""
        value, now_s = self._ledger().value(SHELF, self._key), self._now_s()
        if value is None:
            return bool(self._place.behind(None))
        sends = value["owner"] is not None and now_s < value["until_s"]  # another process
        waits = value["trouble"].get("next_s", 0.0) > now_s
        return not sends and not waits and bool(self._place.behind(value["cursor"]))

    def pending(self) -> PendingDeliveries:
        """The messages that this target has not received, and why. Changes nothing. Raises `StoreError`."""
        value = self._ledger().value(SHELF, self._key) or {"cursor": None, "trouble": {}}
        trouble, cursor = value["trouble"], value["cursor"]
        begun_s = trouble.get("begun_s", self._now_s()) if cursor is None else None
        count = 0
        while count < MOST_COUNTED and (entries := self._place.behind(cursor)):
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
        """Send the messages that were set aside again; return how many arrived. The others stay set aside."""
        sent = 0
        for one in self.set_aside():
            try:
                self.target.send(one["message"], self._now_s())
            except Exception as error:  # noqa: BLE001  one message must not block the others
                log_warning("notification target %r: %s", self.target.name, redact(str(error)))
                continue
            self._take_back(one["id"])
            sent += 1
        return sent

    def _begun_s(self, turn: Turn) -> float | None:
        """When this target was first known; kept until its place is in the stream."""
        if turn.cursor is not None:
            return None
        begun_s: float = turn.trouble.get("begun_s", self._now_s())
        if "begun_s" not in turn.trouble:
            self._place.move(None, {"begun_s": begun_s})
        return begun_s

    def _send_from(self, cursor: str | None, begun_s: float | None, failed: int) -> int:
        sent = 0
        while entries := self._place.behind(cursor):
            for number, entry in enumerate(entries):
                if not self._is_due(entry, begun_s):
                    cursor = entry.cursor
                    continue
                error = self._attempt(entry)
                if error is not None and self._takes_others(failed + 1, entries[number + 1 :]):
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
        """Send one message; why it did not arrive, or `None`."""
        try:
            self.target.send(message_of(entry.event, self._fleet), self._now_s())
        except NotSent as error:
            return error
        except StoreError:
            raise  # the message is not at fault: the next attempt sends it
        except Exception as error:  # noqa: BLE001  a defect must not block what comes after
            return Unsendable(redact(f"{type(error).__name__}: {error}"))
        return None

    def _takes_others(self, failed: int, later: list[Entry]) -> bool:
        """Whether the target takes a later message: then it is not down, and only one fails.

        The later one arrives again in its turn, with the same id.
        """
        if failed % ATTEMPTS_ALONE:
            return False
        other = next((one for one in later if self.target.wants(one.event.circuit)), None)
        return other is not None and self._attempt(other) is None

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
        except Exception:  # noqa: BLE001  it may be the message itself that cannot be made
            message = {"id": f"{redact(entry.event.circuit)}#{entry.event.seq}"}
        line = {"id": message["id"], "why": why, "at_s": self._now_s(), "message": message}

        self._amend_aside(lambda count, last: (None, count + 1, [*last, line][-MOST_ASIDE:]))
        log_warning(
            "notification target %r: %s cannot be delivered and is set aside: %s",
            *(self.target.name, message["id"], why),
        )

    def _take_back(self, name: str) -> None:
        def work(count: int, last: _Aside) -> tuple[None, int, _Aside]:
            left = [one for one in last if one["id"] != name]
            return None, max(0, count - len(last) + len(left)), left

        self._amend_aside(work)

    def _amend_aside(self, work: Callable[[int, _Aside], tuple[Any, int, _Aside]]) -> Any:
        """Change how many messages were set aside, and the last of them; returns the first of `work`."""

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
    """What is sent of an event: no secrets, no control characters, with its owners.

    An event that ended a run is sent with the receipt of that run.
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
        "agents": [agent.name for agent in concerned(fleet, event.circuit)],
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
    """The circuit and the number of an event: the same for the same event, and only for it."""
    name = redact(event.circuit)
    if name != event.circuit:  # shortened or cleaned: others may look the same now
        from hashlib import sha256  # noqa: PLC0415  seldom

        name += "~" + sha256(event.circuit.encode(errors="replace")).hexdigest()[:12]
    return f"{name}#{event.seq}"
