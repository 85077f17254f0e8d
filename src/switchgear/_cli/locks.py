"""`switchgear locks`: shows the shared locks with their holders and waiters, and breaks a lock."""

from collections.abc import Iterator
from typing import Any

import click

from switchgear._cli.context import open_session, say_result
from switchgear._cli.options import fail, reader_options, store_options, token_option
from switchgear._cli.views.text import clean, say
from switchgear._locks.locks import ResourceStatus
from switchgear._text.formats import duration, elapsed


@click.group(invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="Include free locks.")
@reader_options
@click.pass_context
def locks(ctx: click.Context, *, everything: bool, as_json: bool) -> None:
    """Show the locks that agents share: holder, remaining lease, and waiters."""
    if ctx.invoked_subcommand is not None:
        return
    with open_session(reading=True) as session:
        now_s = session.now_s()
        found = [
            status
            for status in session.panel.locks.all()
            if everything or status.tenure.holder or status.tenure.waiting
        ]
    lines = [line for status in found for line in _lines(status, now_s)] or ["No locks are held."]
    say_result([_as_values(status) for status in found], lines, as_json=as_json)


@locks.command("break", short_help="Release a lock by force.")
@click.argument("resource")
@store_options
@token_option
def break_lock(resource: str) -> None:
    """Release the lock on RESOURCE by force: the next waiter gets it.

    Needs the operator token where one is configured. The previous holder may still be running; it
    has the lower fencing token.
    """
    with open_session() as session:
        session.demand_operator(resource, f"breaking lock {resource!r}")
        if not session.panel.locks.break_lock(resource):
            fail(f"lock {resource!r} is not held; 'switchgear locks --all' shows all")
    say(clean(f"the lock {resource} is free"))


def _lines(status: ResourceStatus, now_s: float) -> Iterator[str]:
    resource, tenure = status.resource, status.tenure
    if tenure.holder is None:
        yield f"{resource}: free, last token {tenure.token}"
    else:
        owner, since_s, until_s = tenure.holder[1:]
        held, left = elapsed(max(0.0, now_s - since_s)), duration(max(0.0, until_s - now_s))
        yield f"{resource}: {owner} for {held}, lease ends in {left}, token {tenure.token}"
    for place, waiter in enumerate(tenure.waiting, 1):
        waited = elapsed(max(0.0, now_s - waiter.since_s))
        yield f"  {place}. {waiter.owner} has waited for {waited}"


def _as_values(status: ResourceStatus) -> dict[str, Any]:
    tenure = status.tenure
    return {
        "resource": status.resource,
        "token": tenure.token,
        "holder": None if tenure.holder is None else tenure.holder._asdict(),
        "waiting": [waiter._asdict() for waiter in tenure.waiting],
    }
