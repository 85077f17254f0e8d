"""`switchgear incidents list|show|close|add`, and `switchgear review`, which proposes thresholds from them."""

import os
from typing import Any

import click

from switchgear._cli.context import Session, file_of, open_session, say_json, say_result
from switchgear._cli.fleet import fleet_of
from switchgear._cli.options import (
    Branch,
    by_option,
    checked_text,
    fail,
    operator_name,
    operator_options,
    parse_since,
    reader_options,
    refuse_ambiguous,
    required_reason,
    store_options,
    token_option,
)
from switchgear._cli.views.text import clean, clock_time, plural, say
from switchgear._fleet.categories import default_breakers, shown_name
from switchgear._fleet.incidents import Incidents, as_configuration
from switchgear._fleet.incidents import review as review_events
from switchgear._fleet.watcher import INCIDENTS, folder_of

MOST_EVENTS = 100_000


@click.group(cls=Branch)
def incidents() -> None:
    """Show and close the incidents of the fleet: one folder each, with a report."""


@incidents.command("list", short_help="List open incidents.")
@click.option("--all", "everything", is_flag=True, help="Include closed incidents.")
@reader_options
def list_incidents(*, everything: bool, as_json: bool) -> None:
    """List the open incidents, oldest first."""
    with open_session(reading=True) as session:
        found = list(incidents_of(session).all())
    shown = [each for each in found if everything or each.get("status") != "closed"]
    none = "No open incidents." if found else "No incidents."
    say_result(shown, map(_incident_line, shown) if shown else [none], as_json=as_json)


def _incident_line(incident: dict[str, Any]) -> str:
    if "trouble" in incident:
        return f"{incident['id']}: {incident['trouble']}"
    mark = f", {incident['mark'].replace('_', ' ')}" if incident["mark"] else ""
    head = f"{incident['id']}  {incident['severity']}  {incident['status']}{mark}"
    return f"{head}  {incident['circuit']}: {incident['reason']}"


def _full_id(kept: Incidents, name: str) -> str:
    """The id that `name` stands for: the name, the only id that begins with it, or the newest (`last`)."""
    ids = [str(each["id"]) for each in kept.all()]
    if name == "last":
        return ids[-1] if ids else fail("there are no incidents")
    starts = [each for each in ids if name and each.startswith(name)]
    if name not in starts:
        refuse_ambiguous(name, starts, "incidents")
    return starts[0] if len(starts) == 1 else name


@incidents.command(short_help="Print the report of an incident.")
@click.argument("incident", callback=checked_text)
@reader_options
def show(incident: str, *, as_json: bool) -> None:
    """Print the report of INCIDENT, in Markdown or JSON. The start of an id is enough, or `last`."""
    with open_session(reading=True) as session:
        kept = incidents_of(session)
        incident = _full_id(kept, incident)
        if as_json:
            say_json(kept.get(incident))
            return
        for line in kept.report_of(incident).splitlines():
            say(clean(line, 2000))


@incidents.command(short_help="Close an incident.")
@click.argument("incident", callback=checked_text)
@click.option("--why", metavar="TEXT", callback=checked_text, help="How it was resolved.")
@by_option
@click.option("--false-positive", is_flag=True, help="The circuit should not have tripped.")
@click.option("--confirmed", is_flag=True, help="The trip was right.")
@store_options
@token_option
def close(
    incident: str, *, why: str | None, by: str | None, false_positive: bool, confirmed: bool
) -> None:
    """Close INCIDENT, and mark whether the trip was right (for `switchgear review`)."""
    if false_positive and confirmed:
        fail("--false-positive and --confirmed contradict each other; use one of them")
    mark = "false_positive" if false_positive else "confirmed" if confirmed else None
    with open_session(reading=True) as session:
        kept = incidents_of(session)
        incident = _full_id(kept, incident)
        session.demand_operator(incident, f"closing incident {incident!r}")
        kept.close(
            incident,
            by=operator_name(by),
            why=required_reason(why),
            mark=mark,
            now_s=session.now_s(),
        )
    say(clean(f"{incident}: closed" + (f" as {mark.replace('_', ' ')}" if mark else "")))


@incidents.command(short_help="Report a failure that no circuit caught.")
@click.option(
    "--false-negative",
    "circuit",
    metavar="CIRCUIT",
    required=True,
    callback=checked_text,
    help="The circuit that should have tripped.",
)
@click.option("--why", metavar="TEXT", callback=checked_text, help="Description of the failure.")
@operator_options
def add(circuit: str, *, why: str | None, by: str | None) -> None:
    """Report a failure that no circuit caught; `switchgear review` counts it."""
    with open_session(reading=True) as session:
        session.demand_operator(circuit, "adding an incident")
        name = incidents_of(session).add_missed(
            circuit, by=operator_name(by), why=required_reason(why), now_s=session.now_s()
        )
    say(clean(name))


@click.command()
@click.option(
    "--since",
    metavar="TIME",
    help="Use only events since then: 90d, 12h, 30m, or a date such as 2026-11-01. [default: all]",
)
@reader_options
def review(since: str | None, *, as_json: bool) -> None:
    """Propose threshold changes, from recorded events and from incidents marked as right or wrong.

    Changes nothing: prints the proposal as configuration that you can copy.
    """
    with open_session(reading=True) as session:
        from_s = parse_since(since, session.now_s(), cursors=False).at_s or float("-inf")
        stored = [entry.event for entry in session.panel.events(limit=MOST_EVENTS)]
        events = [event for event in stored if event.at_s >= from_s]
        readable = [each for each in incidents_of(session).all() if "trouble" not in each]
        recent = [each for each in readable if each["opened_at_s"] >= from_s]
        breakers = session.config.breakers or default_breakers()
        keeps = min(session.config.retention.events, MOST_EVENTS)
    findings = review_events(breakers, events, recent)
    if as_json:
        say_json([finding._asdict() for finding in findings])
        return
    if since is not None and len(stored) >= keeps and stored[0].at_s > from_s:
        oldest = clock_time(stored[0].at_s, from_s)
        say(f"The store only has events since {oldest}; raise retention.events for more.")
    unused: list[str] = []
    for finding in findings:
        name = shown_name(finding.category)
        if not finding.trips + finding.false_negatives + finding.tests:
            unused.append(name)
            continue
        trips = plural(finding.trips, "trip")
        counts = f"{trips}, {finding.false_positives} false, {finding.false_negatives} missed"
        say(f"{name}: {counts}, {finding.failed_tests} of {finding.tests} probes failed")
        for why in finding.why:
            say(f"  {why}")
    if unused:
        say(f"no trips, missed failures or probes are recorded for {', '.join(unused)}")
    say(f"\n{as_configuration(findings) or 'No change is proposed.'}".rstrip())


def incidents_of(session: Session) -> Incidents:
    file = file_of(session.store) if session.store.source != "given" else None
    folder = os.path.dirname(file) if file else folder_of(session.panel.store.url)  # noqa: PTH120
    return Incidents(os.path.join(folder, INCIDENTS), fleet_of(session))  # noqa: PTH118
