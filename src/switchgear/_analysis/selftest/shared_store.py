"""The configured kind of store, as a throw-away copy: what one process trips, another must refuse."""

import os
import tempfile
from collections.abc import Iterator
from itertools import count

from switchgear._analysis.selftest.rows import GuardRow, failed, skipped
from switchgear._analysis.selftest.sandbox import OVERLOADED, PATIENCE, Bench, ProviderOutage, hot
from switchgear._breaker.circuit_breaker import classic
from switchgear._core.errors import Rejected
from switchgear._panel.panel import Panel
from switchgear._stores.url import REDIS_URLS

NAME = "provider/selftest"


def trips(bench: Bench) -> Iterator[GuardRow]:
    """A file of our own, like the configured one, with two panels on it."""
    url = bench.store_url or "sqlite:///"
    if url.startswith(REDIS_URLS):
        why = "a server cannot be copied; --live asks the real one"
        yield skipped("store redis", "dead provider", "store", why)
        return
    if url.startswith("memory:"):
        why = "memory: is one process's own; what one trips, no other hears of"
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
                breaker.call(_down)
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
    return failed(guard, "dead provider", path, "one process cuts it, and another goes on calling")


def _down() -> None:
    raise ProviderOutage(OVERLOADED)
