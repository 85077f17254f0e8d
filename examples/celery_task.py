"""A Celery task of a service that an operator holds: it runs when the hold ends."""

import threading
import time

from celery import Celery
from celery.contrib.testing.worker import start_worker

from switchgear import Panel
from switchgear.integrations.celery import guard

panel = Panel("memory:")
app = Celery("demo", broker="memory://", backend="cache+memory://")


@app.task(  # type: ignore[untyped-decorator]
    base=guard(panel=panel, hold_s=1.0, spread_s=0.5), name="fetch"
)
def fetch() -> str:
    """Fetch something."""
    return "fetched"


circuit = panel.breaker("task/fetch")
circuit.hold_open(by="me", why="maintenance")
threading.Timer(5.0, lambda: circuit.release(by="me", why="done")).start()
started_s = time.monotonic()
with start_worker(app, perform_ping_check=False, pool="solo"):
    print(fetch.delay().get(timeout=60), f"after {time.monotonic() - started_s:.0f} seconds")
