"""The hook command itself: a process, fed by standard input, in a throw-away project."""

import os
import time
from collections.abc import Iterator
from contextlib import closing

from switchgear._analysis.selftest.hook_trials import (
    BREACH,
    SESSION,
    TRIALS,
    Hook,
    installed_commands,
    jammed,
    send,
    throw_away,
    turned,
)
from switchgear._analysis.selftest.rows import GuardRow, failed, skipped
from switchgear._analysis.selftest.sandbox import Bench
from switchgear._core.types import Phase
from switchgear._hooks.command import AGENTS
from switchgear._hooks.interrupt import agent_process
from switchgear._stores.sqlite.store import SqliteStore

__all__ = ["attacked", "installed_commands", "turned"]
PATH = "hooks live"
_MOST = 30
"""Attempts until the session itself must be cut."""


def attacked(bench: Bench) -> Iterator[GuardRow]:
    """Each agent whose hooks are installed; all of them, where none are."""
    commands = installed_commands(bench.root)
    for number, agent in enumerate(commands or AGENTS):
        if agent_process(agent, os.getpid()) is not None:
            why = f"this runs inside {agent}, which a refusal could interrupt; use a terminal"
            yield skipped(f"hook of {agent}", "rule breach", PATH, why)
            continue
        yield from _agent(bench, agent, commands.get(agent), jam=number == 0 or agent in commands)


def _agent(bench: Bench, agent: str, command: str | None, *, jam: bool) -> Iterator[GuardRow]:
    """One agent, each trial in a project of its own: where rules have a circuit, one breach opens it.

    A jammed store is waited for, so where no hooks are installed one agent is enough.
    """
    guard, source = f"hook of {agent}", bench.config.source
    for trial in (*TRIALS, *((jammed,) if jam else ())):
        with throw_away(agent, command, source) as hook:
            began_s = time.monotonic()
            found = trial(hook)
            seconds = time.monotonic() - began_s
        if found.wrong:
            why = f"{found.wrong}; the command is {hook.command}"
            yield failed(guard, found.attack, PATH, why)
            return
        yield GuardRow(
            guard, found.attack, PATH, found.by, found.sent, seconds, reason=found.reason
        )
    if bench.config.interventions.escalate is not None:
        why = "a stuck session would call the help that `interventions.escalate` names"
        yield skipped(guard, "same error", PATH, why)
        return
    with throw_away(agent, command, source) as hook:
        yield _cut(hook, guard)


def _cut(hook: Hook, guard: str) -> GuardRow:
    """The same refused call, again and again, is a stuck agent: its session must open."""
    key, began_s = f"session/{SESSION}", time.monotonic()
    judged = ""
    with closing(SqliteStore(hook.store)) as store:
        for number in range(1, _MOST + 1):
            send(hook, BREACH)
            found = store.get(key)
            if found is None:
                return failed(guard, "same error", PATH, f"no {key!r} came to the store")
            readings = found.policy.readings(found.circuit.memories, store.now_s())
            pairs = list(zip(found.policy.detectors, readings, strict=True))
            judged = ", ".join(each.kind for each, _ in pairs)
            if found.circuit.phase is Phase.OPEN:
                by = " + ".join(each.kind for each, reading in pairs if reading.heat >= 1)
                reason, seconds = found.circuit.outage.reason, time.monotonic() - began_s
                return GuardRow(guard, "same error", PATH, by, number, seconds, reason=reason)
    why = f"the same refused call {_MOST} times does not open {key!r}, judged by {judged}"
    return skipped(guard, "same error", PATH, why)
