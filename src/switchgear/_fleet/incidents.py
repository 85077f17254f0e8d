"""Incidents: one folder for each trip of the fleet, with a report for people and JSON for programs.

Made from the events of the store after they are committed, so a decision never waits for a disk. A
trip has one incident, however often its probes fail, however many processes watch and whenever one
of them is killed: the name of the folder is that of the event, and a folder comes whole or not.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any

from switchgear._core import values
from switchgear._core.errors import StoreError, SwitchgearError
from switchgear._core.types import Event, EventKind, Mode, Phase
from switchgear._fleet.categories import ABOUT, category_of
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.incident_facts import facts_of, rerouted
from switchgear._fleet.incident_report import iso, report
from switchgear._system.files import as_json, remove_old_drafts, write_whole
from switchgear._text.redact import redact

_TEXTS = ("id", "severity", "category", "circuit", "status", "reason", "action")
_MAYBE_TEXTS = (
    "mark",
    "opened_at",
    "recovered_at",
    "closed_by",
    "closed_why",
    "closed_at",
    "unknown",
)
_LISTS = ("agents", "owners", "evidence", "rerouted", "partial_state", "what_to_do")
_LARGEST = 1e15
"""No time and no amount of money is beyond; a larger number would break who calculates with it."""
_LINE = ("at", "kind", "before", "after", "reason", "by", "why")


def fault_of(found: Any, name: str) -> str:
    """What keeps it from being the incident of that name; empty: nothing."""
    if not isinstance(found, dict):
        return "it is no mapping"
    wrong = [
        *(key for key in _TEXTS if not isinstance(found.get(key), str)),
        *(key for key in _MAYBE_TEXTS if not isinstance(found.get(key), str | None)),
        *(key for key in _LISTS if not _is_list_of_texts(found.get(key, []))),
        *(key for key in ("seq", "opened_at_s") if not _is_number(found.get(key))),
        *(key for key in ("lasted_s", "spent_micros") if not _is_number(found.get(key) or 0)),
    ]
    lines = found.get("timeline")
    if not isinstance(lines, list) or not all(map(_is_line, lines)):
        wrong.append("timeline")
    if wrong:
        return f"{', '.join(wrong)} is missing, or of another kind"
    return "" if found["id"] == name else f"it says that it is {found['id']!r}"


def _is_line(line: Any) -> bool:
    if not isinstance(line, dict) or not _is_number(line.get("seq")):
        return False
    return all(isinstance(line.get(key, 0), str | None) for key in _LINE)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_number(value: Any) -> bool:
    """Whether it can be calculated with: neither endless nor no number, both of which JSON can hold."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and -_LARGEST < value < _LARGEST


# ruff: noqa: PTH102, PTH103, PTH104, PTH112, PTH118, PTH123, PTH208  paths are texts, as in the stores

SCHEMA = 1
LARGEST_BYTES = 1 << 20
MARKS = ("false_positive", "false_negative", "confirmed")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}", re.ASCII)
_CALM = (Phase.CLOSED, Phase.TRIPPING)


class IncidentTrouble(SwitchgearError):
    """An incident that is not there or cannot be read; the sentence says which and why."""


class Incidents:
    """The incidents in a folder. Any thread or process may use it; files are replaced whole."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    # What the watcher does

    def hear(self, event: Event, fleet: Fleet) -> str | None:
        """Take note of an event: a trip begins an incident, and what follows is added to it.

        Returns the id of a new one. Hearing the same event again changes nothing.
        """
        category = category_of(event.circuit)
        if category is None or event.kind not in {EventKind.MOVED, EventKind.ORDERED}:
            return None
        if event.after is Phase.OPEN and event.before in _CALM and event.kind is EventKind.MOVED:
            return self._begin(event, category, fleet)
        known = self._latest(event.circuit)
        if known is not None and known["seq"] < event.seq and known["status"] != "closed":
            self._go_on(known, event, fleet)
        return None

    def _begin(self, event: Event, category: str, fleet: Fleet) -> str | None:
        name = incident_id(event)
        final = os.path.join(self.folder, name)
        if os.path.lexists(final):
            return None
        incident = {
            "schema": SCHEMA,
            "id": name,
            "severity": ABOUT[category].severity,
            "category": category,
            "circuit": event.circuit,
            "seq": event.seq,
            "status": "open",
            "mark": None,
            "opened_at": iso(event.at_s),
            "opened_at_s": event.at_s,
            "reason": redact(event.reason, 400),
            "action": _action(event, category),
            "timeline": [_line(event)],
            **facts_of(event, category, fleet, name),
        }
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        remove_old_drafts(self.folder)
        draft = os.path.join(self.folder, f".{name}.{os.urandom(4).hex()}.part")
        os.mkdir(draft, 0o700)
        try:
            self._write(draft, incident)
            os.rename(draft, final)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if os.path.isdir(final):
                return None  # another process was quicker
            raise
        return name

    def _go_on(self, incident: dict[str, Any], event: Event, fleet: Fleet) -> None:
        if any(line["seq"] == event.seq for line in incident["timeline"]):
            return
        with suppress(StoreError):  # what was known before stays
            incident["rerouted"] = rerouted(fleet, event.circuit, incident["opened_at_s"])
        incident["timeline"] = [*incident["timeline"], _line(event)][-200:]
        if event.after is Phase.CLOSED:
            incident["status"] = "recovered"
            incident["recovered_at"] = iso(event.at_s)
            incident["lasted_s"] = max(0.0, event.at_s - incident["opened_at_s"])
        self._write(os.path.join(self.folder, incident["id"]), incident)

    # What people do

    def all(self) -> Iterator[dict[str, Any]]:
        """The incidents, oldest first; what cannot be read comes as its id with `trouble`."""
        if not os.path.isdir(self.folder):
            return
        for name in sorted(os.listdir(self.folder)):
            if _ID.fullmatch(name):
                try:
                    yield self.get(name)
                except IncidentTrouble as error:
                    yield {"id": name, "trouble": str(error)}

    def get(self, name: str) -> dict[str, Any]:
        """An incident by its id. Raises `IncidentTrouble`."""
        if not _ID.fullmatch(name):
            raise IncidentTrouble(f"{name!r} is no id of an incident")
        path = os.path.join(self.folder, name, "incident.json")
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(LARGEST_BYTES + 1)
        except FileNotFoundError:
            raise IncidentTrouble(f"there is no incident {name!r} in {self.folder}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise IncidentTrouble(f"incident {name!r} cannot be read: {error}") from None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise IncidentTrouble(f"incident {name!r} cannot be read: {error}") from None
        fault = fault_of(found, name)
        if os.path.isdir(os.path.join(self.folder, name, "report.md")):
            fault = "its report.md is a folder, so nothing can be added to it"
        if fault:
            raise IncidentTrouble(f"incident {name!r} cannot be read: {fault}")
        return dict(found)

    def report_of(self, name: str) -> str:
        """The report, made anew from the JSON."""
        return report(self.get(name))

    def close(self, name: str, *, by: str, why: str, mark: str | None, now_s: float) -> None:
        """An operator has dealt with it: right, or a false positive. Raises `IncidentTrouble`."""
        incident = self.get(name)
        if incident["status"] == "closed":
            raise IncidentTrouble(
                f"incident {name!r} was closed already, by {incident['closed_by']}"
            )
        if mark is not None:
            values.one_of("mark", mark, MARKS)
        incident |= {
            "status": "closed",
            "mark": mark or incident.get("mark"),
            "closed_by": redact(values.text("by", by)),
            "closed_why": redact(values.text("why", why), 400),
            "closed_at": iso(now_s),
        }
        self._write(os.path.join(self.folder, name), incident)

    def add_missed(self, circuit: str, *, by: str, why: str, now_s: float) -> str:
        """Something went wrong and no circuit tripped: a false negative, for the review."""
        category = category_of(circuit)
        if category is None:
            kinds = ", ".join(glob for about in ABOUT.values() for glob in about.circuits)
            raise ValueError(f"circuit {circuit!r} is none of the fleet's: {kinds}")
        calm = Event(circuit, 0, now_s, EventKind.MOVED, Phase.CLOSED, Phase.CLOSED, Mode.AUTO, 1)
        name = incident_id(calm, missed=True)
        incident = {
            "schema": SCHEMA,
            "id": name,
            "severity": "SEV3",
            "category": category,
            "circuit": circuit,
            "seq": 0,
            "status": "closed",
            "mark": "false_negative",
            "opened_at": iso(now_s),
            "opened_at_s": now_s,
            "reason": redact(values.text("why", why), 400),
            "action": "none: the circuit stayed closed",
            "timeline": [],
            "closed_by": redact(values.text("by", by)),
            "closed_why": redact(why, 400),
            "closed_at": iso(now_s),
        }
        os.makedirs(os.path.join(self.folder, name), mode=0o700)
        self._write(os.path.join(self.folder, name), incident)
        return name

    def _latest(self, circuit: str) -> dict[str, Any] | None:
        mine = f"-{slug(circuit)}-"
        if not os.path.isdir(self.folder):
            return None
        names = [name for name in sorted(os.listdir(self.folder)) if mine in name]
        tripped = [name for name in names if _ID.fullmatch(name) and f"{mine}missed-" not in name]
        for name in reversed(tripped):
            try:
                found = self.get(name)
            except IncidentTrouble:
                return None  # what follows belongs to it, and to none before it
            if found["circuit"] == circuit:
                return found
        return None

    def _write(self, folder: str, incident: dict[str, Any]) -> None:
        remove_old_drafts(folder)
        write_whole(os.path.join(folder, "report.md"), report(incident))
        write_whole(os.path.join(folder, "incident.json"), as_json(incident))


def incident_id(event: Event, *, missed: bool = False) -> str:
    """The name of the folder: when, which circuit, which event. The same event, the same name."""
    when = (iso(event.at_s) or "0")[:19].replace("-", "").replace(":", "")
    tail = f"missed-{os.urandom(2).hex()}" if missed else str(event.seq)
    return f"{when}Z-{slug(event.circuit)}-{tail}"


def slug(circuit: str) -> str:
    """A circuit's name as a part of a path that only it has."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", circuit)[:60].strip("-")
    return f"{plain}-{sha256(circuit.encode(errors='replace')).hexdigest()[:6]}"


def _action(event: Event, category: str) -> str:
    """What is done because of it: nothing, where an operator overrules the evidence."""
    if event.mode is Mode.AUTO or event.mode is Mode.HELD_OPEN:
        return ABOUT[category].action
    mode = event.mode.replace("_", " ")
    return f"none: the circuit is in {mode} mode and admits everything"


def _line(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "at": iso(event.at_s),
        "kind": str(event.kind),
        "before": str(event.before),
        "after": str(event.after),
        "reason": redact(event.reason, 400),
        "by": redact(event.by),
        "why": redact(event.why),
    }
