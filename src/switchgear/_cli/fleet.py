"""`switchgear fleet status|watch|deliver|route|resume`: agents, and which stand in for others."""

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
from switchgear._cli.views.text import clean, plural, say, warn
from switchgear._config import Config, ConfigError
from switchgear._config.trust import trust_folder
from switchgear._core.types import Override
from switchgear._fleet.delivery import PendingDeliveries
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.watcher import Watcher, folder_of, world
from switchgear._text.formats import dollars, duration, elapsed

NOT_ALL_WORK = 1


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
    halted = any(one["state"] == "halted" for one in found["agents"].values())
    paused = any(one["paused"] for one in found["stories"].values())
    return NOT_ALL_WORK if halted or paused else 0


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
    seen = _stamp(chosen_config_file().value)  # before it is read, or a change would be missed
    with open_session() as session:
        watched = fleet_of(session)
        folder = folder_of(session.panel.store.url)
        watcher = Watcher(watched, folder, session.config.notifications, every_s)
        session.drains = False
        if once:
            found = watcher.note()
            sent = watcher.deliver()
            pending = [delivery.pending() for delivery in watcher.deliveries]
            say(f"{plural(len(found), 'new incident')}, {plural(sent, 'notification')} sent")
            for one in pending:
                if one.waiting or one.aside:
                    for line in pending_lines(one, session.now_s()):
                        say(clean(line, 1000))
            return
        say(clean(f"watching {plural(len(watched.crew.agents), 'agent')}; files in {folder}"))
        with watcher:
            _follow(watched, watcher, max(every_s, 1.0), seen, session.config)


@fleet.command(short_help="Send pending notifications now, and report what is left.")
@click.option("--retry", is_flag=True, help="Also send again what was set aside.")
@click.option("--drop", is_flag=True, help="Discard what was set aside, without sending it.")
@reader_options
def deliver(*, retry: bool, drop: bool, as_json: bool) -> int:
    """Send what is pending to every target of the configuration, and report what is left and why.

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
    return NOT_ALL_WORK if any(each.waiting or each.aside for _, each in found) else 0


@contextmanager
def _log_errors_only() -> Iterator[None]:
    """Log errors only: failed attempts are in the report."""
    logger = logging.getLogger("switchgear")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def pending_lines(pending: PendingDeliveries, now_s: float, sent: str = "") -> list[str]:
    """What a target has yet to receive and why, for people."""
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

    Takes no permit and no probe. Exit code 1: no agent is available.
    """
    with open_session(reading=True) as session:
        watched = fleet_of(session)
        watched.crew.agent(agent)
        found = world(watched)["agents"][agent]
    lines = [f"{agent}: {_who_works(found)}", *(f"  not {why}" for why in found["why"])]
    say_result({"agent": agent, **found}, lines, as_json=as_json, longest=1000)
    return NOT_ALL_WORK if found["works"] is None else 0


@fleet.command(short_help="Resume a paused task.")
@click.argument("story", metavar="TASK", callback=checked_text)
@click.option("--why", metavar="TEXT", callback=checked_text, help="Reason.")
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


def _follow(watched: Fleet, watcher: Watcher, every_s: float, seen: Any, before: Config) -> None:
    """Reload the configuration file when it changes, until the watcher is stopped."""
    while not watcher.wait(every_s):
        now = _stamp(chosen_config_file().value)
        if now == seen:
            continue
        seen = now
        try:
            config = load_chosen_config()
            if config == before:
                continue  # not trusted, or nothing but a comment: what was read before holds
            watched.reload(config._replace(retention=allowed_retention(watched.panel, config)))
            watcher.retarget(config.notifications)
            before = config
        except (ConfigError, ValueError) as error:
            for line in str(error).splitlines():
                warn(line)
            warn("the previous configuration stays in effect")
        else:
            agents, targets = len(watched.crew.agents), len(config.notifications)
            say(f"configuration read again: {plural(agents, 'agent')}, {plural(targets, 'target')}")


def _stamp(path: str | None) -> Any:
    """Changes when the file or its trust changes."""
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
    for name, one in found["agents"].items():
        load = "" if one["load"] >= 1 else f", load {one['load']:.0%}"
        yield f"agent {name} ({one['owner']}): {one['state']}, {_who_works(one)}{load}"
        yield from (f"  not {why}" for why in one["why"])
    for name, one in found["stories"].items():
        state = f"paused: {one['why']}" if one["paused"] else "active"
        spent = dollars(one["spent_micros"])
        yield f"task {name} ({', '.join(one['owners'])}): {spent} spent, {state}"
    for title, kind in (("provider", "dependencies"), ("lock", "locks")):
        for name, one in found[kind].items():
            why = f": {one['why']}" if one["why"] else ""
            queue = _queue(one, found["at_s"]) if kind == "locks" else ""
            state = one["phase"].replace("_", "-")
            if one["mode"] != "auto":
                state = one["mode"].replace("_", " ")
                why = why.removeprefix(f": {state}")
            what = re.sub("/latency$", ", latency", name)
            yield f"{title} {what}: {state}{why}{queue}"


def _who_works(one: dict[str, Any]) -> str:
    return "no agent available" if one["works"] is None else f"{one['works']} on {one['model']}"


def _queue(lock: dict[str, Any], now_s: float) -> str:
    """The holder of a lock, the number of waiters, and how long the first one has waited."""
    holder, waiting = lock["holder"], lock["waiting"]
    text = "" if holder is None else f", held by {holder['owner']}"
    if waiting:
        waited = elapsed(max(0.0, now_s - waiting[0]["since_s"]))
        text += f", {len(waiting)} waiting for up to {waited}"
    return text
