"""Measure: what a guarded HTTP request takes against a bare one, on loopback, with interlock-cb's transport beside it.

The server runs in a process of its own. Each round sends a batch of requests through every client, in a new
random order; a ratio is the median of the ratios within the rounds, as everywhere here. What a guard does to
a request is the same whatever the network takes: loopback is the hardest case.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
from interlock.integrations.httpx import CircuitBreakerTransport

from bench.library import Role
from bench.result import TIMES, Bar, Row, Section
from switchgear import Panel
from switchgear.integrations.httpx import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.measure import Effort

AT_MOST_TIMES = 1.15
AT_MOST_US = 300.0
"""For a model call, which takes a second or more anywhere but on loopback."""
BATCH = 20
PAYLOAD = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "word " * 200}]}


@contextmanager
def api() -> Iterator[str]:
    """The URL of a running API."""
    command = [sys.executable, "-m", "bench.http_api"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.terminate()


def section(effort: Effort) -> Section:
    with ExitStack() as stack:
        url = stack.enter_context(api())
        panel = stack.enter_context(Panel("memory:"))

        def client(transport: Any = None) -> httpx.Client:
            made = httpx.Client(base_url=url, transport=transport, trust_env=False)
            return stack.enter_context(made)

        bare, ours = client(), guard(client(), panel=panel)
        peer = client(CircuitBreakerTransport(httpx.HTTPTransport()))
        plain = {"bare httpx": bare, "Switchgear": ours, "interlock-cb": peer}
        requests: dict[str, Callable[[], Any]] = {}
        for name, each in plain.items():
            requests[name] = partial(each.get, "/ping")
            requests[f"{name}, model call"] = partial(
                each.post, "/v1/chat/completions", json=PAYLOAD
            )
        samples = _samples(requests, max(15, effort.rounds))
        spent = panel.breaker(f"host/{url.removeprefix('http://')}").totals.cost_micros
    if not spent:
        raise RuntimeError("the model calls were not metered")
    roles = {"Switchgear": Role.OURS, "interlock-cb": Role.PEER, "bare httpx": Role.FLOOR}
    ratios, rows = {}, []
    for name, times_s in samples.items():
        base, _, rest = name.partition(", ")
        floor = samples[f"bare httpx, {rest}" if rest else "bare httpx"]
        ratios[name] = statistics.median(a / b for a, b in zip(times_s, floor, strict=True))
        taken_us = statistics.median(times_s) * 1e6 / BATCH
        cells = (f"{taken_us:,.0f} us", f"{ratios[name]:.3f} {TIMES}")
        rows.append(Row(name, roles[base], cells, ratios[name]))
    model, floor = samples["Switchgear, model call"], samples["bare httpx, model call"]
    added_us = statistics.median(a - b for a, b in zip(model, floor, strict=True)) * 1e6 / BATCH
    return Section(
        key="httpx",
        title="A guarded HTTP request on loopback",
        method=(
            f"Batches of {BATCH} requests over one kept-alive connection to a server in another process; a "
            "model call is parsed, metered and priced as well (interlock-cb guards it as any request)."
        ),
        columns=("request", "of bare"),
        rows=rows,
        bars=[
            Bar("times a bare request", ratios["Switchgear"], AT_MOST_TIMES),
            Bar(
                "microseconds to parse, meter, price and record a model call", added_us, AT_MOST_US
            ),
        ],
        numbers={"ratios": ratios, "added_us": added_us},
    )


def _samples(requests: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in requests}
    for request in requests.values():
        for _ in range(BATCH):
            request()
    names = list(requests)
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            request = requests[name]
            begun_s = time.perf_counter()
            for _ in range(BATCH):
                request()
            found[name].append(time.perf_counter() - begun_s)
    return found
