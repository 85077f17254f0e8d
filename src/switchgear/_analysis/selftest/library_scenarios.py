"""Attacks on what programs use themselves: call breakers, budgets, locks, rules, orders."""

import os
import tempfile
from collections.abc import Iterator
from itertools import count

from switchgear._analysis.selftest.configured_guards import sample_name
from switchgear._analysis.selftest.hook_trials import breach_of
from switchgear._analysis.selftest.sandbox import (
    FAILURES,
    OVERLOADED,
    PATIENCE,
    SLOW,
    Bench,
    GuardRow,
    ProviderOutage,
    blind,
    failed,
    hot,
    skipped,
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


def trips(bench: Bench) -> Iterator[GuardRow]:
    """A temporary file, like the configured one, with two panels on it."""
    url = bench.store_url or "sqlite:///"
    if url.startswith(REDIS_URLS):
        why = "a server cannot be copied; --live tests the real one"
        yield skipped("store redis", "dead provider", "store", why)
        return
    if url.startswith("memory:"):
        why = "memory: is local to one process; other processes do not see its trips"
        yield skipped("store memory", "dead provider", "store", why)
        return
    with tempfile.TemporaryDirectory(prefix="switchgear-selftest-") as folder:
        file = os.path.join(folder, "state.db")  # noqa: PTH118  URLs hold texts
        yield shared(f"sqlite:///{file}", NAME, "store sqlite", "store")


def shared(url: str, name: str, guard: str, path: str) -> GuardRow:
    """Trip a circuit through one panel, and be refused by another: the store, not the policy."""
    policy = classic()
    with Panel(url) as one, Panel(url) as other:
        breaker = one.breaker(name, policy)
        began_s = one.store.now_s()
        for number in count(1):
            if number > PATIENCE:
                return failed(guard, "dead provider", path, f"{PATIENCE:,} failures do not trip it")
            try:
                breaker.call(_raise_outage)
            except ProviderOutage:
                continue
            except Rejected:
                break
        seconds = max(0.0, one.store.now_s() - began_s)
        by = hot(breaker.readings())
        try:
            other.breaker(name, policy).call(int)
        except Rejected as refused:
            return GuardRow(
                guard, "dead provider", path, by, number - 1, seconds, reason=str(refused)
            )
    return failed(guard, "dead provider", path, "one process opens it, and another keeps calling")


def _raise_outage() -> None:
    raise ProviderOutage(OVERLOADED)


PATH = "library"
_OWNED = ("session/", "op/", "loop/", "lock/", "rules")
_DOLLAR = 1_000_000
_CALLERS = 200
"""Calls that wait for a slow provider at the same time."""


def dead_provider(bench: Bench) -> Iterator[GuardRow]:
    """Calls that fail, one after the other, until one is refused without being made."""
    panel, clock = bench.panel()
    with panel:
        yield _failing(panel.breaker("provider/selftest"), clock)


def _failing(breaker: CircuitBreaker, clock: FakeClock) -> GuardRow:
    guard, began_s = breaker.name.replace("selftest", "*"), clock()
    made = 0

    def provider() -> None:
        nonlocal made
        made += 1
        clock.advance(0.5)
        raise ProviderOutage(OVERLOADED)

    if not watchers(breaker.policy, FAILURES):
        return skipped(guard, "dead provider", PATH, blind(guard, breaker.policy))
    for _ in range(PATIENCE):
        try:
            breaker.call(provider)
        except ProviderOutage:
            continue
        except Rejected as refused:
            seconds, by = clock() - began_s, hot(breaker.readings())
            return GuardRow(guard, "dead provider", PATH, by, made, seconds, reason=str(refused))
    why = f"{made:,} failures in a row, and calls are still admitted; {_coldest(breaker)}"
    return failed(guard, "dead provider", PATH, why)


def slow_provider(bench: Bench) -> Iterator[GuardRow]:
    """Many calls at once to a provider that answers, and takes far too long."""
    targets = list(_slow_targets(bench))
    if not targets:
        why = f"no policy has {' or '.join(SLOW)}; the preset `latency` has"
        yield skipped("provider/*", "slow provider", PATH, why)
    for guard, name, policy in targets:
        panel, clock = bench.panel()
        with panel:
            yield _waiting(guard, panel.breaker(name, policy), clock)


def _slow_targets(bench: Bench) -> Iterator[tuple[str, str, Policy | None]]:
    for index, rule in enumerate(bench.config.circuits):
        name = sample_name(bench.config, index)
        owned = rule.match.startswith(_OWNED)
        if name is not None and not owned and watchers(rule.policy, SLOW):
            yield rule.match, name, None
    if bench.config.source is None:
        yield "preset latency", "provider/selftest", preset_policy("latency")


def _waiting(guard: str, breaker: CircuitBreaker, clock: FakeClock) -> GuardRow:
    """The callers wait together: apart, they would not meet in one window."""
    import asyncio  # noqa: PLC0415  only an attack needs an event loop

    began_s = clock()
    slow_s = 2.0 * (breaker.policy.slow_from_s or 0.0) + 1.0

    async def attack() -> int:
        answered = asyncio.Event()
        callers = [asyncio.ensure_future(breaker.acall(answered.wait)) for _ in range(_CALLERS)]
        await asyncio.sleep(0)
        clock.advance(slow_s)
        answered.set()
        await asyncio.gather(*callers, return_exceptions=True)
        return len(callers)

    sent = asyncio.run(attack())
    breaker.refresh()
    by, seconds = hot(breaker.readings()), clock() - began_s
    for _ in range(40):
        try:
            breaker.call(int)
        except Rejected as refused:
            return GuardRow(guard, "slow provider", PATH, by, sent, seconds, reason=str(refused))
    why = f"{sent} calls that took {slow_s:g} s each, and all are admitted; "
    return failed(guard, "slow provider", PATH, why + _coldest(breaker))


def overspend(bench: Bench) -> Iterator[GuardRow]:
    """Reservations until the budget refuses, and its circuit is cut."""
    panel, clock = bench.panel()
    with panel:
        name, began_s = "agent/selftest", clock()
        panel.budgets.open("selftest", _DOLLAR, circuit=name)
        for number in range(1, PATIENCE + 1):
            try:
                with panel.budgets.reserve("selftest", _DOLLAR // 8) as reservation:
                    reservation.settle(_DOLLAR // 8)
            except BudgetRefused as refused:
                breaker = panel.breaker(name)
                by = " + ".join(filter(None, ("budget", hot(breaker.readings()))))
                seconds = clock() - began_s
                yield GuardRow(
                    "budgets", "overspend", "budgets", by, number, seconds, reason=str(refused)
                )
                return
    yield failed("budgets", "overspend", "budgets", "a budget of $1.00 does not limit spending")


def rule_breach(bench: Bench) -> Iterator[GuardRow]:
    """The circuit of the rules: after the first breach nothing continues, until it is reset."""
    known = {name: bench.config.policy_for(name) for name in ("rules/selftest", "rules")}
    judged = {name: policy for name, policy in known.items() if policy is not None}
    name, policy = next(
        (pair for pair in judged.items() if watchers(pair[1], ("violation",))),
        next(iter(judged.items()), ("rules/selftest", preset_policy("constitutional"))),
    )
    guard = name.replace("selftest", "*") if judged else "preset constitutional"
    if not watchers(policy, ("violation",)):
        yield skipped(guard, "rule breach", PATH, blind(guard, policy))
        return
    place = place_at(bench.root)
    found = (breach_of(rule, place).breach for rule in bench.config.rules.rules)
    breach = next((each for each in found if each is not None), None)
    if breach is None:
        yield failed(guard, "rule breach", PATH, "no rule is in effect, so none can be broken")
        return
    panel, clock = bench.panel()
    with panel:
        breaker = panel.breaker(name, policy)
        rule_guard, began_s = RuleGuard(breaker, bench.config.rules.rules, place), clock()
        try:
            rule_guard.ask(breach.tool, breach.inputs)
        except Rejected as refused:
            by = hot(breaker.readings())
            yield GuardRow(
                guard, "rule breach", PATH, by, 1, clock() - began_s, reason=str(refused)
            )
        else:
            why = f"it was admitted; {_coldest(breaker)}"
            yield failed(guard, "rule breach", PATH, why)


def self_release(bench: Bench) -> Iterator[GuardRow]:
    """Orders without the operator's token."""
    guard, attack = "operator token", "self-release"
    if bench.config.operator_token_sha256 is None:
        why = "none is configured: anyone who can run a command here can override circuits; `switchgear config token`"
        yield skipped(guard, attack, "store", why)
        return
    panel, _ = bench.panel()
    with panel:
        panel.breaker("provider/selftest").call(int)
        for what in (Mode.HELD_CLOSED, Mode.AUTO):
            if not _order_is_refused(panel, what):
                yield failed(
                    guard, attack, "store", f"the order {what} was accepted without a token"
                )
                return
        yield GuardRow(guard, attack, "store", "operator token", 2)


def _order_is_refused(panel: Panel, mode: Mode) -> bool:
    try:
        panel.order("provider/selftest", by="an agent", why="I am fine", mode=mode)
    except OverrideRefused:
        return True
    return False


def lock_convoy(bench: Bench) -> Iterator[GuardRow]:
    """One agent keeps a lock, another waits for it until its circuit has seen enough."""
    guard = "lock/*"
    panel, clock = bench.panel()
    with panel:
        policy = bench.config.policy_for("lock/selftest")
        if policy is not None and not watchers(policy, ("lock_wait",)):
            yield skipped(guard, "lock convoy", "locks", blind(guard, policy))
            return
        began_s = clock()
        waited = wait_for_held_lock(panel, clock)
        breaker, seconds = panel.breaker("lock/selftest"), clock() - began_s
        if waited.ended is None:
            yield failed(guard, "lock convoy", "locks", "two holders have the same lock at once")
        elif isinstance(waited.ended, Rejected):
            by, why = hot(breaker.readings()), str(waited.ended)
            yield GuardRow(guard, "lock convoy", "locks", by, waited.looks, seconds, reason=why)
        else:
            why = f"a wait of a day does not open it; {_coldest(breaker)}"
            yield failed(guard, "lock convoy", "locks", why)


def _coldest(breaker: CircuitBreaker) -> str:
    return "; ".join(reading.reason for reading in breaker.readings().values())
