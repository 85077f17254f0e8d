"""The scenarios of `--live`: the real hook command, the real store, the real loop runner."""

import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._agents.demo import TASK, Demo, make_repository
from switchgear._analysis.selftest.hook_trials import (
    BREACH,
    SESSION,
    TRIALS,
    Hook,
    installed_commands,
    jammed,
    send,
    throw_away,
)
from switchgear._analysis.selftest.library_scenarios import shared
from switchgear._analysis.selftest.plan import SelftestScenario
from switchgear._analysis.selftest.sandbox import Bench, GuardRow, GuardStatus, failed, hot, skipped
from switchgear._core.errors import OverrideRefused, StoreError
from switchgear._core.types import Acquire, Mode, Phase
from switchgear._hooks.command import AGENTS
from switchgear._hooks.interrupt import agent_process
from switchgear._panel.panel import Panel
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.loop import Runner
from switchgear._run.options import RunOptions
from switchgear._run.record import new_run
from switchgear._run.state import RunDependencies
from switchgear._stores.sqlite.store import SqliteStore
from switchgear._stores.url import default_file
from switchgear._text.redact import redact

_HOOKS_PATH = "hooks live"
_MOST_CALLS = 30
"""Attempts until the session itself must be cut."""


def attacked_hooks(bench: Bench) -> Iterator[GuardRow]:
    """Each agent whose hooks are installed; all of them, where none are."""
    commands = installed_commands(bench.root)
    for number, agent in enumerate(commands or AGENTS):
        if agent_process(agent, os.getpid()) is not None:
            why = f"this runs inside {agent}, which a refusal could interrupt; use a terminal"
            yield skipped(f"hook of {agent}", "rule breach", _HOOKS_PATH, why)
            continue
        yield from _agent(bench, agent, commands.get(agent), jam=number == 0 or agent in commands)


def _agent(bench: Bench, agent: str, command: str | None, *, jam: bool) -> Iterator[GuardRow]:
    """One agent, each trial in a separate project: where rules have a circuit, one breach opens it.

    A jammed store takes its whole timeout, so one agent is enough where no hooks are installed.
    """
    guard, source = f"hook of {agent}", bench.config.source
    for trial in (*TRIALS, *((jammed,) if jam else ())):
        with throw_away(agent, command, source) as hook:
            began_s = time.monotonic()
            found = trial(hook)
            seconds = time.monotonic() - began_s
        if found.wrong:
            why = f"{found.wrong}; the command is {hook.command}"
            yield failed(guard, found.attack, _HOOKS_PATH, why)
            return
        yield GuardRow(
            guard, found.attack, _HOOKS_PATH, found.by, found.sent, seconds, reason=found.reason
        )
    if bench.config.interventions.escalate is not None:
        why = "a stuck session would start the agent that `interventions.escalate` names"
        yield skipped(guard, "same error", _HOOKS_PATH, why)
        return
    with throw_away(agent, command, source) as hook:
        yield _stuck_session_row(hook, guard)


def _stuck_session_row(hook: Hook, guard: str) -> GuardRow:
    """The same refused call, again and again, is a stuck agent: its session must open."""
    key, began_s = f"session/{SESSION}", time.monotonic()
    judged = ""
    with closing(SqliteStore(hook.store)) as store:
        for number in range(1, _MOST_CALLS + 1):
            send(hook, BREACH)
            found = store.get(key)
            if found is None:
                return failed(guard, "same error", _HOOKS_PATH, f"no {key!r} reached the store")
            readings = found.policy.readings(found.circuit.memories, store.now_s())
            pairs = list(zip(found.policy.detectors, readings, strict=True))
            judged = ", ".join(each.kind for each, _ in pairs)
            if found.circuit.phase is Phase.OPEN:
                by = " + ".join(each.kind for each, reading in pairs if reading.heat >= 1)
                reason, seconds = found.circuit.outage.reason, time.monotonic() - began_s
                return GuardRow(
                    guard, "same error", _HOOKS_PATH, by, number, seconds, reason=reason
                )
    why = f"the same refused call {_MOST_CALLS} times does not open {key!r}, judged by {judged}"
    return skipped(guard, "same error", _HOOKS_PATH, why)


_RUNS_PATH = "loop runner live"
SPEED = 20.0
_MOST_ITERATIONS = 12
"""Iterations, at most."""


class Live(NamedTuple):
    """A scenario of the demo agent, and how the run must end."""

    attack: str
    scenario: str
    end: ExitReason
    options: dict[str, Any]


LIVES = (
    Live("same error", "same-error", ExitReason.CIRCUIT_BREAKER, {}),
    Live("standing still", "no-progress", ExitReason.CIRCUIT_BREAKER, {}),
    Live("output decline", "declining", ExitReason.CIRCUIT_BREAKER, {}),
    Live("hang", "hangs", ExitReason.CIRCUIT_BREAKER, {"idle_timeout_s": 1.5}),
    Live("overspend", "expensive", ExitReason.BUDGET, {"budget_micros": 3_000_000}),
)


def attacked_runs(bench: Bench) -> Iterator[GuardRow]:
    """Each scenario to its end."""
    for live in LIVES:
        with tempfile.TemporaryDirectory(prefix="switchgear-selftest-") as place:
            yield _run(bench, live, Path(place))


def _run(bench: Bench, live: Live, place: Path) -> GuardRow:
    folder = place / "work"
    make_repository(folder)
    options = RunOptions(
        TASK,
        agent=f"demo:{live.scenario}",
        max_iterations=_MOST_ITERATIONS,
        timeout_s=120.0,
        **live.options,
    )
    dependencies = RunDependencies(policy=bench.config.policy_for("loop/selftest"))
    with Panel("memory:", policies=bench.config.policy_for) as panel:
        agent, record = Demo(live.scenario, SPEED), new_run(place / "runs")
        runner = Runner(
            options, agent, record, folder=folder, panel=panel, dependencies=dependencies
        )
        result = runner.run()
        tripped = hot(runner.circuits.loop.readings())
    guard = "run --budget" if live.end is ExitReason.BUDGET else "loop/*"
    if result.exit_reason is not live.end:
        why = f"the run ended as {result.exit_reason}, not {live.end}: {result.reason}"
        return failed(guard, live.attack, _RUNS_PATH, why)
    by = "budget" if live.end is ExitReason.BUDGET else tripped
    state = result.state
    return GuardRow(
        guard, live.attack, _RUNS_PATH, by, state.iterations, state.seconds, reason=result.reason
    )


_STORE_PATH = "store live"
_SQLITE = "sqlite:///"


def attacked_store(bench: Bench) -> Iterator[GuardRow]:
    """A trip that two connections share, and an order without the token."""
    url = bench.store_url or f"{_SQLITE}{default_file(bench.root)}"
    guard = f"store {redact(url)}"
    file = url.removeprefix(_SQLITE) if url.startswith(_SQLITE) else None
    if url.startswith("memory:"):
        yield skipped(
            guard,
            "dead provider",
            _STORE_PATH,
            "memory: is local to this process; nothing is shared",
        )
        return
    if file is not None and not os.path.exists(os.path.expanduser(file)):  # noqa: PTH110, PTH111
        why = "the file does not exist yet, and a test creates none; use Switchgear once"
        yield skipped(guard, "dead provider", _STORE_PATH, why)
        return
    name = f"selftest/{secrets.token_hex(6)}"
    try:
        yield shared(url, name, guard, _STORE_PATH)
        yield _agent_override_row(url, name, guard)
        if bench.token is not None:
            yield _operator_override_row(url, name, guard, bench.token)
    except StoreError as error:
        yield failed(guard, "dead provider", _STORE_PATH, str(error))
    finally:
        left = _remove_circuit(url, name)
    if left:
        yield GuardRow(guard, "removed", _STORE_PATH, status=GuardStatus.SKIPPED, reason=left)


def _agent_override_row(url: str, name: str, guard: str) -> GuardRow:
    """An agent's order: where the store is sealed, it must be refused."""
    attack = "self-release"
    with Panel(url) as panel:
        if panel.store.operator_digest() is None:
            why = "the store is not sealed: overrides need no token; `switchgear config seal`"
            return skipped(guard, attack, _STORE_PATH, why)
        try:
            panel.order(name, by="an agent", why="I am fine", mode=Mode.HELD_CLOSED)
        except OverrideRefused as refused:
            return GuardRow(guard, attack, _STORE_PATH, "operator token", 1, reason=str(refused))
    return failed(guard, attack, _STORE_PATH, "an override without the token was accepted")


def _operator_override_row(url: str, name: str, guard: str, token: str) -> GuardRow:
    """An operator's override with the configured token must take effect."""
    with Panel(url, token=token) as panel:
        try:
            panel.order(name, by="selftest", why="a trial", mode=Mode.HELD_OPEN)
        except OverrideRefused as refused:
            return failed(
                guard, "operator's order", _STORE_PATH, f"the token does not match: {refused}"
            )
        verdict = panel.send(name, Acquire())
    if verdict.admitted:
        return failed(
            guard, "operator's order", _STORE_PATH, "the circuit is held open but admits calls"
        )
    return GuardRow(guard, "operator's order", _STORE_PATH, "held open", 1, reason=verdict.reason)


def _remove_circuit(url: str, name: str) -> str:
    """Remove what was created; report what cannot be removed."""
    with Panel(url) as panel:
        store: Any = panel.store.inner
        try:
            store.forget(name)
        except (StoreError, AttributeError) as error:
            return f"circuit {name!r} could not be removed: {error}"
    return ""


LIVE: dict[str, SelftestScenario] = {
    scenario.name: scenario
    for scenario in (
        SelftestScenario(
            "live-hooks",
            "The installed hook command, in a temporary project.",
            (attacked_hooks,),
        ),
        SelftestScenario(
            "live-store",
            "The configured store, with test circuits that are removed afterwards.",
            (attacked_store,),
        ),
        SelftestScenario(
            "live-runs",
            "`switchgear run` with the demo agent in a temporary repository.",
            (attacked_runs,),
        ),
    )
}
