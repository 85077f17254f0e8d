"""Attacks on the library: call breakers, budgets, locks, rules, overrides."""

import asyncio
import os
import tempfile
from collections.abc import Iterator

from switchgear._analysis.selftest.configured_guards import sample_name
from switchgear._analysis.selftest.hook_trials import first_breach
from switchgear._analysis.selftest.sandbox import (
    FAILURES,
    MAX_ATTEMPTS,
    OVERLOADED,
    SLOW,
    Bench,
    GuardCase,
    GuardRow,
    ProviderOutage,
    hot,
    reasons_of,
    until_refused,
    wait_for_held_lock,
    watchers,
)
from switchgear._breaker.circuit_breaker import CircuitBreaker, classic
from switchgear._breaker.rules import RuleGuard, place_at
from switchgear._config import preset_policy
from switchgear._core.errors import BudgetRefused, OverrideRefused, Rejected
from switchgear._core.policy import Policy
from switchgear._core.types import Mode
from switchgear._panel.panel import Panel
from switchgear._stores.url import REDIS_URLS
from switchgear.testing import FakeClock

NAME = "provider/selftest"
PATH = "library"
_OWNED = ("session/", "op/", "loop/", "lock/", "rules")
_DOLLAR = 1_000_000
_CALLERS = 200
"""Calls that wait for a slow provider at the same time."""


def shared_trip(bench: Bench) -> Iterator[GuardRow]:
    """A trip in a temporary store, of the configured kind, that two panels share."""
    url = bench.store_url or "sqlite:///"
    attack = "dead provider"
    if url.startswith(REDIS_URLS):
        why = "a server cannot be copied; --live tests the real one"
        yield GuardCase("store redis", attack, "store").skipped(why)
    elif url.startswith("memory:"):
        why = "memory: is local to one process; other processes do not see its trips"
        yield GuardCase("store memory", attack, "store").skipped(why)
    else:
        with tempfile.TemporaryDirectory(prefix="switchgear-selftest-") as folder:
            file = os.path.join(folder, "state.db")  # noqa: PTH118  URLs hold texts
            yield trip_for_others(
                f"sqlite:///{file}", NAME, GuardCase("store sqlite", attack, "store")
            )


def trip_for_others(url: str, name: str, case: GuardCase) -> GuardRow:
    """Trip a circuit through one panel, and verify that another one refuses. Tests the store, not the policy."""
    policy = classic()
    with Panel(url) as one, Panel(url) as other:
        breaker = one.breaker(name, policy)
        row = until_refused(
            case, lambda _: breaker.call(_raise_outage), breaker.readings, one.store.now_s
        )
        if row is None:
            return case.failed(f"{MAX_ATTEMPTS:,} failures do not trip it")
        try:
            other.breaker(name, policy).call(int)
        except Rejected as refused:
            return row._replace(seconds=max(0.0, row.seconds), reason=str(refused))
    return case.failed("one process opens it, and another keeps calling")


def _raise_outage() -> None:
    raise ProviderOutage(OVERLOADED)


def dead_provider(bench: Bench) -> Iterator[GuardRow]:
    """Calls that fail, one after the other, until one is refused without being made."""
    case = GuardCase("provider/*", "dead provider", PATH)
    panel, clock = bench.panel()

    def provider() -> None:
        clock.advance(0.5)
        raise ProviderOutage(OVERLOADED)

    with panel:
        breaker = panel.breaker(NAME)
        row = case.unwatched(breaker.policy, FAILURES) or until_refused(
            case, lambda _: breaker.call(provider), breaker.readings, clock
        )
        why = f"{MAX_ATTEMPTS:,} failures in a row, and calls are still admitted"
        yield row or case.failed(f"{why}; {reasons_of(breaker)}")


def slow_provider(bench: Bench) -> Iterator[GuardRow]:
    """Many concurrent calls to a provider that answers, but takes far too long."""
    targets = list(_slow_targets(bench))
    if not targets:
        why = f"no policy has {' or '.join(SLOW)}; the preset `latency` has"
        yield GuardCase("provider/*", "slow provider", PATH).skipped(why)
    for guard, name, policy in targets:
        panel, clock = bench.panel()
        with panel:
            case = GuardCase(guard, "slow provider", PATH)
            yield _concurrent_calls(case, panel.breaker(name, policy), clock)


def _slow_targets(bench: Bench) -> Iterator[tuple[str, str, Policy | None]]:
    for index, rule in enumerate(bench.config.circuits):
        name = sample_name(bench.config, index)
        owned = rule.match.startswith(_OWNED)
        if name is not None and not owned and watchers(rule.policy, SLOW):
            yield rule.match, name, None
    if bench.config.source is None:
        yield "preset latency", NAME, preset_policy("latency")


def _concurrent_calls(case: GuardCase, breaker: CircuitBreaker, clock: FakeClock) -> GuardRow:
    """Let all callers wait at the same time, so that their calls are in one window."""
    began_s = clock()
    slow_s = 2.0 * (breaker.policy.slow_from_s or 0.0) + 1.0

    async def attack() -> None:
        answered = asyncio.Event()
        callers = [asyncio.ensure_future(breaker.acall(answered.wait)) for _ in range(_CALLERS)]
        await asyncio.sleep(0)
        clock.advance(slow_s)
        answered.set()
        await asyncio.gather(*callers, return_exceptions=True)

    asyncio.run(attack())
    breaker.refresh()
    by, seconds = hot(breaker.readings()), clock() - began_s
    for _ in range(40):
        try:
            breaker.call(int)
        except Rejected as refused:
            return case.fired(by, _CALLERS, seconds, refused)
    why = f"{_CALLERS} calls that took {slow_s:g} s each, and all are admitted"
    return case.failed(f"{why}; {reasons_of(breaker)}")


def overspend(bench: Bench) -> Iterator[GuardRow]:
    """Reservations until the budget refuses, and its circuit opens."""
    case = GuardCase("budgets", "overspend", "budgets")
    panel, clock = bench.panel()
    with panel:
        name, began_s = "agent/selftest", clock()
        panel.budgets.open("selftest", _DOLLAR, circuit=name)
        for number in range(1, MAX_ATTEMPTS + 1):
            try:
                with panel.budgets.reserve("selftest", _DOLLAR // 8) as reservation:
                    reservation.settle(_DOLLAR // 8)
            except BudgetRefused as refused:
                by = " + ".join(filter(None, ("budget", hot(panel.breaker(name).readings()))))
                yield case.fired(by, number, clock() - began_s, refused)
                return
    yield case.failed("a budget of $1.00 does not limit spending")


def rule_breach(bench: Bench) -> Iterator[GuardRow]:
    """The circuit of the rules: after the first breach, all calls are refused until it is reset."""
    sees = ("violation",)
    known = {name: bench.config.policy_for(name) for name in ("rules/selftest", "rules")}
    judged = {name: policy for name, policy in known.items() if policy is not None}
    name, policy = next(
        (pair for pair in judged.items() if watchers(pair[1], sees)),
        next(iter(judged.items()), ("rules/selftest", preset_policy("constitutional"))),
    )
    guard = name.replace("selftest", "*") if judged else "preset constitutional"
    case = GuardCase(guard, "rule breach", PATH)
    place, rules = place_at(bench.root), bench.config.rules.rules
    breach = first_breach(rules, place)
    if unwatched := case.unwatched(policy, sees):
        yield unwatched
        return
    if breach is None:
        yield case.failed("no rule is in effect, so none can be broken")
        return
    panel, clock = bench.panel()
    with panel:
        breaker, began_s = panel.breaker(name, policy), clock()
        try:
            RuleGuard(breaker, rules, place).ask(breach.tool, breach.inputs)
        except Rejected as refused:
            yield case.fired(hot(breaker.readings()), 1, clock() - began_s, refused)
        else:
            yield case.failed(f"it was admitted; {reasons_of(breaker)}")


def self_release(bench: Bench) -> Iterator[GuardRow]:
    """Overrides without the operator's token."""
    case = GuardCase("operator token", "self-release", "store")
    if bench.config.operator_token_sha256 is None:
        why = "none is configured: anyone who can run a command here can override circuits; `switchgear config token`"
        yield case.skipped(why)
        return
    panel, _ = bench.panel()
    with panel:
        panel.breaker(NAME).call(int)
        for mode in (Mode.HELD_CLOSED, Mode.AUTO):
            try:
                panel.order(NAME, by="an agent", why="I am fine", mode=mode)
            except OverrideRefused:
                continue
            yield case.failed(f"the order {mode} was accepted without a token")
            return
        yield case.fired("operator token", 2)


def lock_convoy(bench: Bench) -> Iterator[GuardRow]:
    """One agent keeps a lock, and another waits for it until its circuit opens."""
    case = GuardCase("lock/*", "lock convoy", "locks")
    panel, clock = bench.panel()
    with panel:
        policy = bench.config.policy_for("lock/selftest")
        if policy is not None and (unwatched := case.unwatched(policy, ("lock_wait",))):
            yield unwatched
            return
        began_s = clock()
        tries, ended = wait_for_held_lock(panel, clock)
        breaker, seconds = panel.breaker("lock/selftest"), clock() - began_s
        if ended is None:
            yield case.failed("two holders have the same lock at once")
        elif isinstance(ended, Rejected):
            yield case.fired(hot(breaker.readings()), tries, seconds, ended)
        else:
            yield case.failed(f"a wait of a day does not open it; {reasons_of(breaker)}")
