"""Events to a target: at least once, in order, tried again with growing pauses, never in the way.

The events of the store are the outbox (`stream.py`). A message that a target refuses for good is set
aside after a few attempts, and the account of the place says so: nothing is dropped in silence.
"""

import os
from typing import Any

from switchgear.core.types import Event, Phase
from switchgear.fleet.categories import ABOUT, category_of
from switchgear.fleet.facts import concerned, owners
from switchgear.fleet.fleet import Fleet
from switchgear.fleet.incident_report import iso
from switchgear.fleet.incidents import incident_id
from switchgear.fleet.stream import SHELF, Place, Turn
from switchgear.fleet.targets import Message, NotSent, Target
from switchgear.listeners import log_warning
from switchgear.redact import redact
from switchgear.sinks.log import one_line
from switchgear.stores.base import Entry
from switchgear.stores.ledger import Amended, ledger_of

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 600.0
ATTEMPTS = 5
"""How often a message is sent that the target refuses for good."""
NEW_S = 3600.0
"""A target that is new hears of what happened in the last hour, not of all history."""


class Delivery:
    """Sends to one target. Used by one thread; processes take turns."""

    def __init__(self, fleet: Fleet, target: Target) -> None:
        self._fleet = fleet
        self.target = target
        self._key = f"notify/{target.name}"
        me = f"{os.uname().nodename}:{os.getpid()}:{os.urandom(4).hex()}"
        self._place = Place(fleet.panel, self._key, me)

    def run_once(self) -> int:
        """Send what is due; how many arrived. Raises `StoreError`, never for the target's sake."""
        turn = None if self._place.is_at_end() else self._place.take()
        if turn is None:
            return 0
        try:
            if turn.trouble.get("next_s", 0.0) > self._now_s():
                return 0
            return self._send_from(turn.cursor, self._begun_s(turn), turn.trouble.get("failed", 0))
        finally:
            self._place.leave()

    def _begun_s(self, turn: Turn) -> float | None:
        """When this target was first heard of; kept until its place is in the stream."""
        if turn.cursor is not None:
            return None
        begun_s: float = turn.trouble.get("begun_s", self._now_s())
        if "begun_s" not in turn.trouble:
            self._place.move(None, {"begun_s": begun_s})
        return begun_s

    def _send_from(self, cursor: str | None, begun_s: float | None, failed: int) -> int:
        sent = 0
        while entries := self._place.behind(cursor):
            for entry in entries:
                if not self._is_due(entry, begun_s):
                    cursor = entry.cursor
                    continue
                try:
                    self.target.send(self._message(entry.event), self._now_s())
                except NotSent as error:
                    failed += 1
                    if error.may_help or failed < ATTEMPTS:
                        self._try_later(cursor, begun_s, failed, str(error))
                        return sent
                    self._set_aside(entry, str(error))
                else:
                    sent += 1
                cursor, failed = entry.cursor, 0
                if not self._place.move(cursor):
                    return sent
            self._place.move(cursor)
        return sent

    def _is_due(self, entry: Entry, begun_s: float | None) -> bool:
        event = entry.event
        if begun_s is not None and event.at_s < begun_s - NEW_S:
            return False
        return self.target.wants(event.circuit)

    def _try_later(self, cursor: str | None, begun_s: float | None, failed: int, why: str) -> None:
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failed - 1, 20))
        trouble: dict[str, Any] = {"failed": failed, "next_s": self._now_s() + pause_s, "why": why}
        if cursor is None:
            trouble["begun_s"] = begun_s
        self._place.move(cursor, trouble)
        log_warning("notification target %r: %s; next try in %g s", self.target.name, why, pause_s)

    def _set_aside(self, entry: Entry, why: str) -> None:
        event = entry.event
        line = {"set_aside": f"{event.circuit}#{event.seq}", "why": why, "at_s": self._now_s()}

        def work(value: Any, now_s: float) -> Amended:
            del now_s
            return Amended(None, value, (line,))

        ledger_of(self._fleet.panel.store.inner).amend(SHELF, self._key, work)
        log_warning("notification target %r refuses %s: %s", self.target.name, line, why)

    def _now_s(self) -> float:
        return self._fleet.panel.store.now_s()

    def _message(self, event: Event) -> Message:
        return message_of(event, self._fleet)


def message_of(event: Event, fleet: Fleet) -> Message:
    """What is sent of an event: no secrets, no control characters, whom it concerns."""
    category = category_of(event.circuit)
    opened = event.after is Phase.OPEN and event.before in {Phase.CLOSED, Phase.TRIPPING}
    severity = ABOUT[category].severity if category is not None and opened else "INFO"
    return {
        "id": f"{redact(event.circuit)}#{event.seq}",
        "text": redact(f"[{severity}] {one_line(event)}", 800),
        "severity": severity,
        "category": category,
        "circuit": redact(event.circuit, 500),
        "seq": event.seq,
        "at": iso(event.at_s),
        "at_s": event.at_s,
        "kind": str(event.kind),
        "before": str(event.before),
        "after": str(event.after),
        "mode": str(event.mode),
        "reason": redact(event.reason, 400),
        "by": redact(event.by),
        "why": redact(event.why),
        "retry_after_s": event.retry_after_s,
        "incident": incident_id(event) if opened and category else None,
        "owners": owners(fleet, event.circuit),
        "agents": [agent.name for agent in concerned(fleet, event.circuit)],
    }
