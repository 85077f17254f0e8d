"""Counts of the proxy for `/metrics`: the time that it adds to requests, and their outcomes.

Workers add their counts to one note in the store, which `switchgear serve` reads.
"""

import json
from bisect import bisect_left
from typing import Any

from switchgear._core.errors import StoreError
from switchgear._sinks.metrics import MetricFamily
from switchgear._stores.base import Store, Transaction

NOTE = "proxy-metrics"
BUCKETS_S = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Upper limits of the histogram's buckets in seconds; the last bucket has no limit."""
_KEEP_S = 90 * 86_400.0
_MOST_REQUESTS = 300
"""Maximum number of pairs of upstream and outcome that are counted."""


class ProxyCounts:
    """The counts of one worker since they were last saved. Counted in one thread, saved in another."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._requests: dict[str, int] = {}

    def request(self, upstream: str, outcome: str) -> None:
        """Count a request with its outcome: `success`, `failure`, `refused` or `disconnected`."""
        key = f"{upstream} {outcome}"
        self._requests[key] = self._requests.get(key, 0) + 1

    def overhead(self, seconds: float) -> None:
        """Count the seconds that the proxy added before the first byte."""
        if len(self._seconds) < 100_000:  # limits memory while the store is unavailable
            self._seconds.append(max(0.0, seconds))

    def save(self, store: Store) -> None:
        """Add the counts to those of all workers. Raises `StoreError`, and then keeps them."""
        seconds, self._seconds = self._seconds, []
        requests, self._requests = self._requests, {}
        if not seconds and not requests:
            return

        def work(tx: Transaction) -> None:
            kept = _load(tx.note)
            for each in seconds:
                kept["buckets"][bisect_left(BUCKETS_S, each)] += 1
            kept["sum"] += sum(seconds)
            for key, count in requests.items():
                if key in kept["requests"] or len(kept["requests"]) < _MOST_REQUESTS:
                    kept["requests"][key] = kept["requests"].get(key, 0) + count
            tx.note, tx.keep_s = json.dumps(kept), _KEEP_S

        try:
            store.transact(NOTE, work)
        except StoreError:
            self._seconds += seconds
            for key, count in requests.items():
                self._requests[key] = self._requests.get(key, 0) + count
            raise


def proxy_families(store: Store) -> list[MetricFamily]:
    """The metrics of all workers; without samples if no proxy has run. Raises `StoreError`."""
    kept = _load(store.transact(NOTE, lambda tx: tx.note))
    overhead = MetricFamily(
        "switchgear_proxy_overhead_seconds",
        "histogram",
        "Time that the proxy added before the first byte of a response.",
    )
    requests = MetricFamily(
        "switchgear_proxy_requests_total", "counter", "Model calls that came to the proxy."
    )
    for key, count in sorted(kept["requests"].items()):
        upstream, _, outcome = key.partition(" ")
        requests.add(count, upstream=upstream, outcome=outcome)
    if total := sum(kept["buckets"]):
        below = 0
        for limit, count in zip((*BUCKETS_S, None), kept["buckets"], strict=True):
            below += count
            overhead.add(below, "_bucket", le="+Inf" if limit is None else f"{limit:g}")
        overhead.add(kept["sum"], "_sum")
        overhead.add(total, "_count")
    return [overhead, requests]


def _load(note: str | None) -> dict[str, Any]:
    """The counts in a note; unreadable counts start from zero."""
    try:
        found = json.loads(note or "{}")
        buckets = [int(count) for count in found["buckets"]]
        requests = {str(key): int(count) for key, count in found["requests"].items()}
        if len(buckets) == len(BUCKETS_S) + 1:
            return {"buckets": buckets, "sum": float(found["sum"]), "requests": requests}
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    return {"buckets": [0] * (len(BUCKETS_S) + 1), "sum": 0.0, "requests": {}}
