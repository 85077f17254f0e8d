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
    temporary_project,
)
from switchgear._analysis.selftest.library_scenarios import trip_for_others
from switchgear._analysis.selftest.plan import SelftestScenario, by_name
from switchgear._analysis.selftest.sandbox import Bench, GuardCase, GuardRow, hot
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
_MAX_CALLS = 30
"""Maximum number of attempts until the session must be stopped."""


def attacked_hooks(bench: Bench) -> Iterator[GuardRow]:
    """Attack the hooks of each agent that has them installed; of all agents if none has."""
    commands = installed_commands(bench.root)
    for number, agent in enumerate(commands or AGENTS):
        if agent_process(agent, os.getpid()) is not None:
            why = f"this runs inside {agent}, which a refusal could interrupt; use a terminal"
            yield GuardCase(f"hook of {agent}", "rule breach", _HOOKS_PATH).skipped(why)
            continue
        yield from _agent(bench, agent, commands.get(agent), jam=number == 0 or agent in commands)


def _agent(bench: Bench, agent: str, command: str | None, *, jam: bool) -> Iterator[GuardRow]:
    """The rows of one agent. Each trial has its own project, because one breach may open the circuit of the rules.

    `jam`: also lock the store. That takes its whole timeout, so one agent is enough if no hooks are installed.
    """
    guard, source = f"hook of {agent}", bench.config.source
    stuck = GuardCase(guard, "same error", _HOOKS_PATH)
    for trial in (*TRIALS, *((jammed,) if jam else ())):
        with temporary_project(agent, command, source) as hook:
            began_s = time.monotonic()
            found = trial(hook)
            seconds = time.monotonic() - began_s
        case = GuardCase(guard, found.attack, _HOOKS_PATH)
        if found.wrong:
            yield case.failed(f"{found.wrong}; the command is {hook.command}")
            return
        yield case.fired(found.by, found.sent, seconds, found.reason)
    if bench.config.interventions.escalate is not None:
        why = "a stuck session would start the agent that `interventions.escalate` names"
        yield stuck.skipped(why)
        return
    with temporary_project(agent, command, source) as hook:
        yield _stuck_session_row(hook, stuck)


def _stuck_session_row(hook: Hook, case: GuardCase) -> GuardRow:
    """An agent that repeats the same refused call is stuck: the circuit of its session must open."""
    key, began_s = f"session/{SESSION}", time.monotonic()
    detectors = ""
    with closing(SqliteStore(hook.store)) as store:
        for number in range(1, _MAX_CALLS + 1):
            send(hook, BREACH)
            found = store.get(key)
            if found is None:
                return case.failed(f"no {key!r} reached the store")
            readings = found.policy.readings(found.circuit.memories, store.now_s())
            pairs = list(zip(found.policy.detectors, readings, strict=True))
            detectors = ", ".join(each.kind for each, _ in pairs)
            if found.circuit.phase is Phase.OPEN:
                by = " + ".join(each.kind for each, reading in pairs if reading.heat >= 1)
                seconds = time.monotonic() - began_s
                return case.fired(by, number, seconds, found.circuit.outage.reason)
    why = f"the same refused call {_MAX_CALLS} times does not open {key!r}, judged by {detectors}"
    return case.skipped(why)


_RUNS_PATH = "loop runner live"
SPEED = 20.0
_MAX_ITERATIONS = 12


class Live(NamedTuple):
    """A scenario of the demo agent, and the expected end of its run."""

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
    """Run each scenario of the demo agent to its end."""
    for live in LIVES:
        with tempfile.TemporaryDirectory(prefix="switchgear-selftest-") as place:
            yield _run(bench, live, Path(place))


def _run(bench: Bench, live: Live, place: Path) -> GuardRow:
    folder = place / "work"
    make_repository(folder)
    options = RunOptions(
        TASK,
        agent=f"demo:{live.scenario}",
        max_iterations=_MAX_ITERATIONS,
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
    is_budget = live.end is ExitReason.BUDGET
    case = GuardCase("run --budget" if is_budget else "loop/*", live.attack, _RUNS_PATH)
    if result.exit_reason is not live.end:
        why = f"the run ended as {result.exit_reason}, not {live.end}: {result.reason}"
        return case.failed(why)
    by, state = "budget" if is_budget else tripped, result.state
    return case.fired(by, state.iterations, state.seconds, result.reason)


_STORE_PATH = "store live"
_SQLITE = "sqlite:///"


def attacked_store(bench: Bench) -> Iterator[GuardRow]:
    """A trip shared by two connections, and an override without the token."""
    url = bench.store_url or f"{_SQLITE}{default_file(bench.root)}"
    case = GuardCase(f"store {redact(url)}", "dead provider", _STORE_PATH)
    file = url.removeprefix(_SQLITE) if url.startswith(_SQLITE) else None
    if url.startswith("memory:"):
        yield case.skipped("memory: is local to this process; nothing is shared")
        return
    if file is not None and not Path(file).expanduser().exists():
        why = "the file does not exist yet, and a test creates none; use Switchgear once"
        yield case.skipped(why)
        return
    name = f"selftest/{secrets.token_hex(6)}"
    try:
        yield trip_for_others(url, name, case)
        yield _agent_override_row(url, name, case._replace(attack="self-release"))
        if bench.token is not None:
            operator = case._replace(attack="operator's order")
            yield _operator_override_row(url, name, operator, bench.token)
    except StoreError as error:
        yield case.failed(str(error))
    finally:
        problem = _remove_circuit(url, name)
    if problem:
        yield case._replace(attack="removed").skipped(problem)


def _agent_override_row(url: str, name: str, case: GuardCase) -> GuardRow:
    """An agent's override: a sealed store must refuse it."""
    with Panel(url) as panel:
        if panel.store.operator_digest() is None:
            why = "the store is not sealed: overrides need no token; `switchgear config seal`"
            return case.skipped(why)
        try:
            panel.order(name, by="an agent", why="I am fine", mode=Mode.HELD_CLOSED)
        except OverrideRefused as refused:
            return case.fired("operator token", 1, reason=refused)
    return case.failed("an override without the token was accepted")


def _operator_override_row(url: str, name: str, case: GuardCase, token: str) -> GuardRow:
    """An operator's override with the configured token must take effect."""
    with Panel(url, token=token) as panel:
        try:
            panel.order(name, by="selftest", why="a trial", mode=Mode.HELD_OPEN)
        except OverrideRefused as refused:
            return case.failed(f"the token does not match: {refused}")
        verdict = panel.send(name, Acquire())
    if verdict.admitted:
        return case.failed("the circuit is held open but admits calls")
    return case.fired("held open", 1, reason=verdict.reason)


def _remove_circuit(url: str, name: str) -> str:
    """Remove a test circuit. Returns the problem; empty: there was none."""
    with Panel(url) as panel:
        store: Any = panel.store.inner
        try:
            store.forget(name)
        except (StoreError, AttributeError) as error:
            return f"circuit {name!r} could not be removed: {error}"
    return ""


LIVE = by_name(
    SelftestScenario(
        "live-hooks", "The installed hook command, in a temporary project.", (attacked_hooks,)
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
