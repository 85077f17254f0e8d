"""Incidents: one folder for each trip of the fleet, with a report for humans and JSON for programs.

Incidents are written from committed events, so a decision never waits for a disk. Each trip has exactly
one incident, even if probes fail, several processes watch, or one of them is killed: the folder is
named after the event and created atomically.
"""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear._breaker.views import View
from switchgear._core import values
from switchgear._core.errors import StoreError, SwitchgearError
from switchgear._core.evidence import FLOWING
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Event, EventKind, Mode, Phase
from switchgear._fleet.categories import ABOUT, CATEGORIES, Breakers, category_of, shown_name
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import FleetAgent
from switchgear._fleet.run_notes import is_loop, run_note
from switchgear._system.files import as_json, remove_old_drafts, write_whole
from switchgear._text.formats import dollars, elapsed, plural
from switchgear._text.redact import redact

if TYPE_CHECKING:
    from jinja2 import Template

MIN_SAMPLES = 5
"""Minimum number of trips or probes for a proposal."""
WRONG_SHARE = 0.3
"""The share of trips marked as false positives at which a threshold is too low."""
FAILED_SHARE = 0.5
"""The share of failed probes at which a cooldown is too short."""


class Knob(NamedTuple):
    """The key that makes a category more or less sensitive."""

    key: str
    field: str
    """The field of the detector."""
    looser: Callable[[float], float]
    tighter: Callable[[float], float]
    detector: int = 0


KNOBS: dict[str, Knob] = {
    "budget": Knob("threshold", "threshold", lambda x: x * 1.25, lambda x: x * 0.8),
    "failure_rate": Knob(
        *("threshold", "threshold"), lambda x: min(0.95, x + 0.1), lambda x: max(0.05, x - 0.1)
    ),
    "latency": Knob(
        *("threshold_multiplier", "multiplier"), lambda x: x * 1.25, lambda x: max(1.0, x * 0.8)
    ),
    "external_dep": Knob(
        *("threshold", "threshold"), lambda x: x + 2, lambda x: max(1, x - 1), detector=1
    ),
    "resource_lock": Knob("threshold_seconds", "limit_s", lambda x: x * 1.5, lambda x: x / 1.5),
    "story_cost": Knob("threshold", "threshold", lambda x: x * 1.25, lambda x: x * 0.8),
}
"""The knob of each category; `constitutional` has none, because a rule is broken or not."""


class Finding(NamedTuple):
    category: str
    trips: int
    false_positives: int
    false_negatives: int
    tests: int
    failed_tests: int
    proposals: dict[str, float]
    """The proposed value of each key of the configuration."""
    why: tuple[str, ...]


def review(
    breakers: Breakers, events: Iterable[Event], incidents: Iterable[dict[str, Any]]
) -> list[Finding]:
    """One finding for each category, from the stored events and the marks of the incidents."""
    trips: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for event in events:
        category = category_of(event.circuit)
        if category is None or event.kind is not EventKind.MOVED:
            continue
        if event.before is Phase.HALF_OPEN and event.after in {Phase.OPEN, Phase.CLOSED}:
            tests[category] += 1
            failed[category] += event.after is Phase.OPEN
        elif event.after is Phase.OPEN:
            trips[category] += 1
    marks = Counter((one.get("category"), one.get("mark")) for one in incidents)
    findings = []
    for name in CATEGORIES:
        policy = getattr(breakers, name).policy
        marked = marks[name, "false_positive"], marks[name, "false_negative"]
        tested = tests[name], failed[name]
        proposed = (_threshold(name, policy, trips[name], marked), _cooldown(policy, tested))
        changes = [change for change in proposed if change is not None]
        proposals = {key: to for change, _ in changes for key, to in change.items()}
        why = tuple(reason for _, reason in changes)
        findings.append(Finding(name, trips[name], *marked, *tested, proposals, why))
    return findings


def _threshold(
    name: str, policy: Policy, trips: int, marked: tuple[int, int]
) -> tuple[dict[str, float], str] | None:
    """The proposed change, if any, and why."""
    wrong, missed = marked
    knob = KNOBS.get(name)
    if trips + missed < MIN_SAMPLES:
        counts = f"{plural(trips, 'trip')}, {missed} missed"
        return {}, f"too few incidents: {counts}; {MIN_SAMPLES} are needed"
    too_soon = wrong >= 2 and wrong >= WRONG_SHARE * trips
    too_late = missed >= 2 and missed >= WRONG_SHARE * trips
    if knob is None:
        return ({}, "trips of harmless calls: exempt them with rules.allow") if wrong else None
    if too_soon and too_late:
        return {}, "both false trips and missed failures: give some circuits their own policy"
    now: float = getattr(policy.detectors[knob.detector], knob.field)
    if not too_soon and not too_late:
        return {}, f"no reason to change {knob.key} {now:g}"
    to = round(knob.looser(now) if too_soon else knob.tighter(now), 4)
    what = f"{wrong} of {trips} trips were false" if too_soon else f"{missed} were missed"
    return {knob.key: to}, f"{what}: {knob.key} {now:g} → {to:g}"


def _cooldown(policy: Policy, tested: tuple[int, int]) -> tuple[dict[str, float], str] | None:
    tests, failed = tested
    recovery = policy.recovery
    if not isinstance(recovery, Cooldown) or tests < MIN_SAMPLES or failed < FAILED_SHARE * tests:
        return None
    to = min(recovery.base_s * 2, recovery.max_s)
    if to <= recovery.base_s:
        return None
    why = f"{failed} of {tests} probes failed: cooldown {recovery.base_s:g} s → {to:g} s"
    return {"cooldown_seconds": to}, why


def as_configuration(findings: Iterable[Finding]) -> str:
    """The proposals as YAML to copy into the configuration; empty if there are none."""
    lines = [
        f"  {shown_name(one.category)}: {{{', '.join(f'{key}: {to:g}' for key, to in one.proposals.items())}}}"
        for one in findings
        if one.proposals
    ]
    return "\n".join(["breakers:", *lines]) + "\n" if lines else ""


MOST_LISTED = 20
"""Maximum number of agents, errors or reroutes that an incident lists."""


def facts_of(event: Event, category: str, fleet: Fleet, incident: str) -> dict[str, Any]:
    """The facts of an incident; facts that cannot be read are reported as unknown."""
    agents = affected_agents(fleet, event.circuit)
    facts: dict[str, Any] = {
        "agents": [agent.name for agent in agents],
        "owners": [],
        "evidence": [redact(event.reason, 400)],
        "spent_micros": None,
        "rerouted": [],
        "partial_state": [],
        "what_to_do": what_to_do(category, event.circuit, incident),
    }
    try:
        facts["owners"] = owners(fleet, event.circuit)
        view = fleet.panel.view(event.circuit)
        if view is not None:
            facts["evidence"] = _evidence(event, view)
        names = {event.circuit, *(f"agent/{agent.name}/budget" for agent in agents[:MOST_LISTED])}
        views = [fleet.panel.view(name) for name in sorted(names)]
        facts["spent_micros"] = sum(one.circuit.totals.cost_micros for one in views if one)
        facts["rerouted"] = rerouted(fleet, event.circuit, event.at_s)
        facts["partial_state"] = _unfinished_work(fleet, agents)
    except (StoreError, SwitchgearError) as error:
        facts["unknown"] = redact(str(error), 400)
    return facts


def affected_agents(fleet: Fleet, circuit: str) -> list[FleetAgent]:
    """The agents that a circuit concerns."""
    kind, _, rest = circuit.partition("/")
    members = fleet.crew.agents
    if kind == "agent":
        found = members.get(rest.rpartition("/")[0])
        return [] if found is None else [found]
    if kind == "rules":
        return [members[rest]] if rest in members else list(members.values()) if not rest else []
    if kind in {"provider", "dep"}:  # as in earlier versions
        provider = rest.removesuffix("/latency")
        return [one for one in members.values() if any(m.provider == provider for m in one.models)]
    if kind == "story":
        return [one for one in members.values() if rest in one.stories]
    if kind == "lock":
        return [members[name] for name in lock_users(fleet, rest) if name in members]
    return []


def lock_users(fleet: Fleet, resource: str) -> list[str]:
    """Holder and waiters of a resource: now, and when its circuit opened last."""
    try:
        locks = fleet.panel.locks
        alert = locks.alert(resource)
        tenures = [seen.tenure for seen in locks.all() if seen.resource == resource]
    except StoreError:
        return []
    found = [alert.get("holder", ""), alert.get("waiter", "")]
    for tenure in tenures:
        found += [tenure.holder.owner] if tenure.holder is not None else []
        found += [waiter.owner for waiter in tenure.waiting]
    return [name for name in dict.fromkeys(found) if name][:MOST_LISTED]


def owners(fleet: Fleet, circuit: str) -> list[str]:
    """The owners to notify: of the agents, and of the stories that they work on.

    Of a lock, its holder or waiter is an owner where no agent of that name is known; of a run, the
    person for whom it runs.
    """
    if is_loop(circuit):
        owner = run_note(fleet.panel, circuit).owner
        return [owner] if owner else []
    kind, _, rest = circuit.partition("/")
    if kind == "story":
        return list(fleet.crew.owners_of(rest))
    agents = affected_agents(fleet, circuit)
    found = [agent.owner for agent in agents]
    if kind == "lock":
        found += [name for name in lock_users(fleet, rest) if name not in fleet.crew.agents]
    for agent in agents:
        for story in agent.stories:
            found += fleet.crew.owners_of(story)
    return list(dict.fromkeys(found))


def _evidence(event: Event, view: View) -> list[str]:
    circuit = view.circuit
    readings = (
        [reading.reason for reading in view.policy.readings(circuit.memories, event.at_s)]
        if circuit.seen_s <= event.at_s
        else []  # the evidence has changed since then; the event contains the reason
    )
    errors = [one.error for one in circuit.failures if one.error and one.at_s <= event.at_s]
    found = dict.fromkeys([event.reason, *readings])
    return [redact(text, 400) for text in [*found, *errors[-MOST_LISTED:]]]


def what_to_do(category: str, circuit: str, incident: str) -> list[str]:
    """The next steps, as commands if possible."""
    named = quote(circuit)
    show = f"Look at the evidence: switchgear show {named}"
    steps = {
        "budget": "Find out what the money was spent on; raise hard_cap_dollars only if that was justified.",
        "failure_rate": "Read the last errors; the agent is tried again after the cooldown.",
        "latency": "See whether the provider or the work is slow; half of the load goes elsewhere.",
        "constitutional": f"Read what the agent tried. When it is safe: switchgear reset {named} --why '…'",
        "external_dep": "Nothing, if the provider reports an outage: the circuit probes by itself.",
        "resource_lock": "See what holds it: switchgear locks",
        "story_cost": f"Decide whether the task is worth more: switchgear fleet resume {quote(circuit[6:])} --why '…'",
    }
    close = f"Then close it: switchgear incidents close {incident} --why '…' --confirmed"
    return [show, steps[category], f"{close}, or --false-positive if it should not have tripped"]


def rerouted(fleet: Fleet, circuit: str, since_s: float) -> list[str]:
    """The agents that were rerouted since a time, or still are. Raises `StoreError`."""
    found: list[str] = []
    standings = fleet.standings()
    for agent in affected_agents(fleet, circuit)[:MOST_LISTED]:
        standing = standings.get(agent.name)
        if standing is None:
            continue
        switches = [
            line
            for line in fleet.switches(agent.name)
            if line.get("last_s", line["at_s"]) >= since_s
        ]
        found += [
            f"{agent.name}: {line['agent']} on {line['model']}" for line in switches if line["why"]
        ]
        if standing.why and not switches:
            found.append(f"{agent.name}: {standing.agent} on {standing.model}")
    return list(dict.fromkeys(found))[:MOST_LISTED]


def _unfinished_work(fleet: Fleet, agents: list[FleetAgent]) -> list[str]:
    """Unfinished work: stories with their costs, held locks."""
    found: list[str] = []
    for story in dict.fromkeys(story for agent in agents[:MOST_LISTED] for story in agent.stories):
        view = fleet.panel.view(f"story/{story}")
        if view is not None:
            state = "is active" if view.verdict.admitted else "is paused"
            dollars = view.circuit.totals.cost_micros / 1_000_000
            found.append(f"task {story} {state}, ${dollars:.2f} spent")
    names = {agent.name for agent in agents}
    for seen in fleet.panel.locks.all():
        holder = seen.tenure.holder
        if holder is not None and holder.owner in names:
            found.append(f"lock {seen.resource} is held by {holder.owner}")
    return found


def report(incident: dict[str, Any]) -> str:
    """The incident in Markdown."""
    return _report_template().render(one=incident)


@cache
def _report_template() -> "Template":
    from jinja2 import Environment, PackageLoader  # noqa: PLC0415  rarely needed, and slow to import

    found = Environment(  # noqa: S701  no HTML: `code` quotes outside text
        loader=PackageLoader("switchgear._fleet"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for each in (code, dollars, elapsed, shown_name):
        found.filters[each.__name__] = each
    return found.get_template("incident.md.jinja")


def code(text: Any) -> str:
    """A text as inline code for Markdown: one line, without secrets or control characters."""
    plain = redact(str(text), 400).replace("`", "'")
    return f"`{plain}`" if plain else "(nothing)"


def iso(at_s: float) -> str | None:
    """A time in ISO format, in UTC; `None` if it is outside of the calendar."""
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return None


_TEXTS = ("id", "severity", "category", "circuit", "status", "reason", "action")
_OPTIONAL_TEXTS = (
    *("mark", "opened_at", "recovered_at", "closed_by", "closed_why", "closed_at", "unknown"),
)
_LISTS = ("agents", "owners", "evidence", "rerouted", "partial_state", "what_to_do")
_LARGEST = 1e15
"""Maximum of times and amounts; larger numbers would break calculations."""
_LINE_TEXTS = ("at", "kind", "before", "after", "reason", "by", "why")


def fault_of(found: Any, name: str) -> str:
    """Why data is not a valid incident of this name; empty if it is valid."""
    if not isinstance(found, dict):
        return "it is not a mapping"
    wrong = [
        *(key for key in _TEXTS if not isinstance(found.get(key), str)),
        *(key for key in _OPTIONAL_TEXTS if not isinstance(found.get(key), str | None)),
        *(key for key in _LISTS if not _is_list_of(str, found.get(key, []))),
        *(key for key in ("seq", "opened_at_s") if not _is_number(found.get(key))),
        *(key for key in ("lasted_s", "spent_micros") if not _is_number(found.get(key) or 0)),
    ]
    lines = found.get("timeline")
    if not _is_list_of(dict, lines) or not all(map(_is_line, lines or ())):
        wrong.append("timeline")
    if wrong:
        return f"{', '.join(wrong)} is missing or has the wrong type"
    return "" if found["id"] == name else f"its id is {found['id']!r}"


def _is_line(line: dict[str, Any]) -> bool:
    texts = all(isinstance(line.get(key, 0), str | None) for key in _LINE_TEXTS)
    return texts and _is_number(line.get("seq"))


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _is_number(value: Any) -> bool:
    """Whether a value is a finite number; JSON can also contain infinity and NaN."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_LARGEST < value < _LARGEST


# ruff: noqa: PTH102, PTH103, PTH104, PTH112, PTH118, PTH123, PTH208  paths are texts, as in the stores

SCHEMA = 1
LARGEST_BYTES = 1 << 20
MARKS = ("false_positive", "false_negative", "confirmed")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}", re.ASCII)


class IncidentTrouble(SwitchgearError):
    """An incident that does not exist or cannot be read."""


class Incidents:
    """The incidents in a folder. Any thread or process may use it; files are replaced whole.

    With a `fleet`, an open incident also lists the reroutes since it was written.
    """

    def __init__(self, folder: str, fleet: Fleet | None = None) -> None:
        self.folder = folder
        self._fleet = fleet

    # Used by the watcher

    def process(self, event: Event, fleet: Fleet) -> str | None:
        """Process an event: a trip creates an incident, and later events are added to it.

        Returns the id of a new incident. Processing the same event again changes nothing.
        """
        category = category_of(event.circuit)
        if category is None or event.kind not in {EventKind.MOVED, EventKind.ORDERED}:
            return None
        if event.after is Phase.OPEN and event.before in FLOWING and event.kind is EventKind.MOVED:
            return self._create(event, category, fleet)
        known = self._latest(event.circuit)
        if known is not None and known["seq"] < event.seq and known["status"] != "closed":
            self._append(known, event, fleet)
        return None

    def _create(self, event: Event, category: str, fleet: Fleet) -> str | None:
        name = incident_id(event)
        final = os.path.join(self.folder, name)
        if os.path.lexists(final):
            return None
        incident = {
            **_new_incident(name, event, category, event.reason),
            "severity": ABOUT[category].severity,
            "action": _action(event, category),
            "timeline": [event_line(event)],
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
                return None  # another process was first
            raise
        return name

    def _append(self, incident: dict[str, Any], event: Event, fleet: Fleet) -> None:
        if any(line["seq"] == event.seq for line in incident["timeline"]):
            return
        with suppress(StoreError):  # the earlier reroutes are kept
            incident["rerouted"] = rerouted(fleet, event.circuit, incident["opened_at_s"])
        incident["timeline"] = [*incident["timeline"], event_line(event)][-200:]
        if event.after is Phase.CLOSED:
            incident["status"] = "recovered"
            incident["recovered_at"] = iso(event.at_s)
            incident["lasted_s"] = max(0.0, event.at_s - incident["opened_at_s"])
        self._write(os.path.join(self.folder, incident["id"]), incident)

    # Used by commands

    def all(self) -> Iterator[dict[str, Any]]:
        """The incidents, oldest first; an unreadable one has only its `id` and `trouble`."""
        for name in self._names():
            try:
                yield self.get(name)
            except IncidentTrouble as error:
                yield {"id": name, "trouble": str(error)}

    def _names(self) -> list[str]:
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        return sorted(filter(_ID.fullmatch, names))

    def get(self, name: str) -> dict[str, Any]:
        """An incident by its id. Raises `IncidentTrouble`."""
        if not _ID.fullmatch(name):
            raise IncidentTrouble(f"{name!r} is not an incident id")
        path = os.path.join(self.folder, name, "incident.json")
        try:
            with open(path, encoding="utf-8") as file:
                found = json.loads(file.read(LARGEST_BYTES + 1))
        except FileNotFoundError:
            raise IncidentTrouble(f"there is no incident {name!r} in {self.folder}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise IncidentTrouble(f"incident {name!r} cannot be read: {error}") from None
        fault = fault_of(found, name)
        if os.path.isdir(os.path.join(self.folder, name, "report.md")):
            fault = "its report.md is a folder, so nothing can be added to it"
        if fault:
            raise IncidentTrouble(f"incident {name!r} cannot be read: {fault}")
        if self._fleet is not None and found["status"] == "open":
            with suppress(StoreError):  # the stored reroutes are shown
                since = rerouted(self._fleet, found["circuit"], found["opened_at_s"])
                found["rerouted"] = list(dict.fromkeys([*found.get("rerouted", []), *since]))[
                    :MOST_LISTED
                ]
        return dict(found)

    def report_of(self, name: str) -> str:
        return report(self.get(name))

    def close(self, name: str, *, by: str, why: str, mark: str | None, now_s: float) -> None:
        """Close an incident, with its mark if there is one. Raises `IncidentTrouble`."""
        incident = self.get(name)
        if incident["status"] == "closed":
            raise IncidentTrouble(
                f"incident {name!r} was closed already, by {incident['closed_by']}"
            )
        if mark is not None:
            values.check_one_of("mark", mark, MARKS)
        incident |= {
            "status": "closed",
            "mark": mark or incident.get("mark"),
            "closed_by": redact(values.check_text("by", by)),
            "closed_why": redact(values.check_text("why", why), 400),
            "closed_at": iso(now_s),
        }
        self._write(os.path.join(self.folder, name), incident)

    def add_missed(self, circuit: str, *, by: str, why: str, now_s: float) -> str:
        """Add a false negative, a failure for which no circuit tripped; returns its id."""
        category = category_of(circuit)
        if category is None:
            kinds = ", ".join(glob for about in ABOUT.values() for glob in about.circuits)
            raise ValueError(f"circuit {circuit!r} does not belong to the fleet: {kinds}")
        event = Event(circuit, 0, now_s, EventKind.MOVED, Phase.CLOSED, Phase.CLOSED, Mode.AUTO, 1)
        name = incident_id(event, missed=True)
        incident = {
            **_new_incident(name, event, category, values.check_text("why", why)),
            "status": "closed",
            "mark": "false_negative",
            "action": "none: the circuit stayed closed",
            "closed_by": redact(values.check_text("by", by)),
            "closed_why": redact(why, 400),
            "closed_at": iso(now_s),
        }
        os.makedirs(os.path.join(self.folder, name), mode=0o700)
        self._write(os.path.join(self.folder, name), incident)
        return name

    def _latest(self, circuit: str) -> dict[str, Any] | None:
        part = f"-{slug(circuit)}-"
        tripped = [name for name in self._names() if part in name and f"{part}missed-" not in name]
        for name in reversed(tripped):
            try:
                found = self.get(name)
            except IncidentTrouble:
                return None  # the event belongs to this incident and not to an earlier one
            if found["circuit"] == circuit:
                return found
        return None

    def _write(self, folder: str, incident: dict[str, Any]) -> None:
        remove_old_drafts(folder)
        write_whole(os.path.join(folder, "report.md"), report(incident))
        write_whole(os.path.join(folder, "incident.json"), as_json(incident))


def incident_id(event: Event, *, missed: bool = False) -> str:
    """The name of the folder: time, circuit and event number, so the same for the same event."""
    when = (iso(event.at_s) or "0")[:19].replace("-", "").replace(":", "")
    tail = f"missed-{os.urandom(2).hex()}" if missed else str(event.seq)
    return f"{when}Z-{slug(event.circuit)}-{tail}"


def _new_incident(name: str, event: Event, category: str, reason: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": name,
        "severity": "SEV3",
        "category": category,
        "circuit": event.circuit,
        "seq": event.seq,
        "status": "open",
        "mark": None,
        "opened_at": iso(event.at_s),
        "opened_at_s": event.at_s,
        "reason": redact(reason, 400),
        "action": "",
        "timeline": [],
    }


def slug(circuit: str) -> str:
    """The name of a circuit as a unique part of a path."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", circuit)[:60].strip("-")
    return f"{plain}-{sha256(circuit.encode(errors='replace')).hexdigest()[:6]}"


def _action(event: Event, category: str) -> str:
    """The action that a trip causes; none if an operator override admits everything."""
    if event.mode is Mode.AUTO or event.mode is Mode.HELD_OPEN:
        return ABOUT[category].action
    mode = event.mode.replace("_", " ")
    return f"none: the circuit is in {mode} mode and admits everything"


def event_line(event: Event) -> dict[str, Any]:
    """The facts of an event as JSON values, redacted."""
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
