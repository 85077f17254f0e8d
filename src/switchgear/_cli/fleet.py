"""`switchgear fleet status|watch|deliver|route|resume`: the agents of the fleet and their fallbacks."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from switchgear._cli.context import (
    Session,
    allowed_retention,
    chosen_config_file,
    load_chosen_config,
    open_session,
    say_result,
)
from switchgear._cli.options import (
    Branch,
    checked_text,
    fail,
    operator_name,
    operator_options,
    reader_options,
    required_reason,
    store_options,
)
from switchgear._cli.views.text import clean, plural, say, warn, words
from switchgear._config import Config, ConfigError
from switchgear._config.trust import trust_folder
from switchgear._core.types import Override
from switchgear._fleet.delivery import PendingDeliveries
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.watcher import Watcher, folder_of, world
from switchgear._text.formats import dollars, duration, elapsed

INCOMPLETE = 1
"""The exit code if an agent does not work, or a notification is not delivered."""


@click.group(cls=Branch)
def fleet() -> None:
    """Show the agents of the configuration, their providers and tasks; resume paused tasks."""


@fleet.command(short_help="Show active agents, and which stand in for others.")
@reader_options
def status(*, as_json: bool) -> int:
    """Show every agent, task, provider and lock. Exit code 1: an agent is halted or a task paused."""
    with open_session(reading=True) as session:
        found = world(fleet_of(session))
    say_result(found, _lines(found), as_json=as_json, longest=1000)
    halted = any(agent["state"] == "halted" for agent in found["agents"].values())
    paused = any(story["paused"] for story in found["stories"].values())
    return INCOMPLETE if halted or paused else 0


@fleet.command(short_help="Write incidents and the world state; send notifications.")
@click.option("--once", is_flag=True, help="Run once and exit; for a timer.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    help="Seconds between two checks.",
)
@store_options
def watch(*, once: bool, every_s: float) -> None:
    """Write incidents and world-state.json and send notifications, until Ctrl-C.

    Several watchers may run, on several machines: they take turns. A changed configuration file is
    read again; an invalid one is reported, and the previous one stays in effect. A watcher changes no
    circuit and no policy.
    """
    stamp = _config_stamp(chosen_config_file().value)  # first, or a change could be missed
    with open_session() as session:
        watched = fleet_of(session)
        folder = folder_of(session.panel.store.url)
        watcher = Watcher(watched, folder, session.config.notifications, every_s)
        session.drains = False
        if once:
            found = watcher.note()
            sent = watcher.deliver()
            say(f"{plural(len(found), 'new incident')}, {plural(sent, 'notification')} sent")
            for pending in [delivery.pending() for delivery in watcher.deliveries]:
                if pending.waiting or pending.aside:
                    for line in pending_lines(pending, session.now_s()):
                        say(clean(line, 1000))
            return
        say(clean(f"watching {plural(len(watched.crew.agents), 'agent')}; files in {folder}"))
        with watcher:
            _reload_on_change(watched, watcher, max(every_s, 1.0), stamp, session.config)


@fleet.command(short_help="Send pending notifications now, and report what is left.")
@click.option("--retry", is_flag=True, help="Also retry notifications that were set aside.")
@click.option("--drop", is_flag=True, help="Discard notifications that were set aside.")
@reader_options
def deliver(*, retry: bool, drop: bool, as_json: bool) -> int:
    """Send the pending notifications of every target, and report what is left and why.

    Does not wait for the pause after a failed attempt, unless the receiver requested it
    (Retry-After). Exit code 1: something is still pending or set aside.
    """
    with _log_errors_only(), open_session() as session:
        session.drains = False
        if not session.config.notifications:
            fail("the configuration names no targets: add some under 'notifications'")
        folder = folder_of(session.panel.store.url)
        watcher = Watcher(fleet_of(session), folder, session.config.notifications)
        found = []
        for delivery in watcher.deliveries:
            if drop:
                delivery.forget_set_aside()
            sent = delivery.run_once(now=True) + (delivery.retry_set_aside() if retry else 0)
            found.append((sent, delivery.pending()))
        now_s = session.now_s()
    lines = [
        line
        for sent, pending in found
        for line in pending_lines(pending, now_s, f"{plural(sent, 'notification')} sent")
    ]
    values = [{"sent": sent, **pending._asdict()} for sent, pending in found]
    say_result(values, lines, as_json=as_json, longest=1000)
    return INCOMPLETE if any(each.waiting or each.aside for _, each in found) else 0


@contextmanager
def _log_errors_only() -> Iterator[None]:
    """Hide warnings about failed attempts, which the report contains."""
    logger = logging.getLogger("switchgear")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def pending_lines(pending: PendingDeliveries, now_s: float, sent: str = "") -> list[str]:
    """The pending notifications of a target, and why they are pending."""
    parts = [sent] if sent else []
    if pending.waiting:
        parts.append(f"{pending.waiting} pending")
    lines = [f"target {pending.target}: {', '.join(parts) or 'nothing pending'}"]
    if pending.waiting and pending.why:
        wait_s = max(0.0, (pending.next_s or now_s) - now_s)
        tried = f"{plural(pending.failed, 'failed attempt')}, last: {pending.why}"
        lines.append(f"  {tried}; next try in {duration(wait_s)}")
    if pending.aside:
        what = f"{plural(pending.aside, 'notification')} undeliverable and set aside"
        lines.append(f"  {what}, last: {pending.aside_why}")
        lines.append("  send them again: switchgear fleet deliver --retry; discard them: --drop")
    return lines


@fleet.command(short_help="Show which agent and model would work now.")
@click.argument("agent", callback=checked_text)
@reader_options
def route(agent: str, *, as_json: bool) -> int:
    """Show which agent and model would work for AGENT now, and why not the others.

    Acquires no permit and no probe. Exit code 1: no agent is available.
    """
    with open_session(reading=True) as session:
        watched = fleet_of(session)
        watched.crew.agent(agent)
        found = world(watched)["agents"][agent]
    lines = [f"{agent}: {_working_agent(found)}", *(f"  not {why}" for why in found["why"])]
    say_result({"agent": agent, **found}, lines, as_json=as_json, longest=1000)
    return INCOMPLETE if found["works"] is None else 0


@fleet.command(short_help="Resume a paused task.")
@click.argument("story", metavar="TASK", callback=checked_text)
@click.option(
    "--why", metavar="TEXT", callback=checked_text, help="Reason; prompted for at a terminal."
)
@operator_options
def resume(story: str, *, why: str | None, by: str | None) -> None:
    """Resume TASK, which was paused because of its cost. It may spend the same amount again.

    Needs the operator token where one is configured.
    """
    with open_session(reading=True) as session:
        name = f"story/{story}"
        session.demand_operator(name)
        watched = fleet_of(session)
        watched.demand_paused(story)
        done = session.send(
            name, Override(operator_name(by), required_reason(why), None, reset=True)
        )
    if not done.verdict.admitted:
        fail(f"the cost of task {story!r} was cleared, but it stays {done.verdict.reason}")
    say(clean(f"task {story} resumed; its cost so far is cleared"))


def fleet_of(session: Session) -> Fleet:
    return Fleet(session.panel, session.config.crew, session.config.breakers)


def _reload_on_change(
    watched: Fleet, watcher: Watcher, every_s: float, stamp: Any, in_effect: Config
) -> None:
    """Reload the configuration file when it changes, until the watcher is stopped."""
    while not watcher.wait(every_s):
        new_stamp = _config_stamp(chosen_config_file().value)
        if new_stamp == stamp:
            continue
        stamp = new_stamp
        try:
            config = load_chosen_config()
            if config == in_effect:
                continue  # not trusted, or only a comment changed
            watched.reload(config._replace(retention=allowed_retention(watched.panel, config)))
            watcher.retarget(config.notifications)
            in_effect = config
        except (ConfigError, ValueError) as error:
            for line in str(error).splitlines():
                warn(line)
            warn("the previous configuration stays in effect")
        else:
            agents, targets = len(watched.crew.agents), len(config.notifications)
            say(f"configuration read again: {plural(agents, 'agent')}, {plural(targets, 'target')}")


def _config_stamp(path: str | None) -> Any:
    """A value that changes when the file or its trust changes."""
    marks = []
    for each in filter(None, (path, trust_folder())):
        try:
            found = os.stat(each)  # noqa: PTH116
        except OSError:
            continue
        marks.append((each, found.st_mtime_ns, found.st_size, found.st_ino))
    return marks


def _lines(found: dict[str, Any]) -> Iterator[str]:
    if not found["agents"]:
        yield "No agents yet: name them under 'agents' in the configuration."
    for name, agent in found["agents"].items():
        load = "" if agent["load"] >= 1 else f", load {agent['load']:.0%}"
        yield f"agent {name} ({agent['owner']}): {agent['state']}, {_working_agent(agent)}{load}"
        yield from (f"  not {why}" for why in agent["why"])
    for name, story in found["stories"].items():
        state = f"paused: {story['why']}" if story["paused"] else "active"
        spent = dollars(story["spent_micros"])
        yield f"task {name} ({', '.join(story['owners'])}): {spent} spent, {state}"
    for title, kind in (("provider", "dependencies"), ("lock", "locks")):
        for name, circuit in found[kind].items():
            why = f": {circuit['why']}" if circuit["why"] else ""
            queue = _queue(circuit, found["at_s"]) if kind == "locks" else ""
            state = words(circuit["phase"])
            if circuit["mode"] != "auto":
                state = words(circuit["mode"])
                why = why.removeprefix(f": {state}")
            what = re.sub("/latency$", ", latency", name)
            yield f"{title} {what}: {state}{why}{queue}"


def _working_agent(agent: dict[str, Any]) -> str:
    return (
        "no agent available" if agent["works"] is None else f"{agent['works']} on {agent['model']}"
    )


def _queue(lock: dict[str, Any], now_s: float) -> str:
    """The holder of a lock, the number of waiters, and how long the first one has waited."""
    holder, waiting = lock["holder"], lock["waiting"]
    text = "" if holder is None else f", held by {holder['owner']}"
    if waiting:
        waited = elapsed(max(0.0, now_s - waiting[0]["since_s"]))
        text += f", {len(waiting)} waiting for up to {waited}"
    return text
