"""How fast many processes refuse after a circuit has opened. No test: it prints times.

    PYTHONPATH=tests python -m stress.crowd_times [PROCESSES] [RUNS]

So many processes share one circuit over a Redis cluster of three nodes. Each calls every second, and from one
moment on all calls of all processes fail at once, 20 times a second each. Counted from the failure that opens
the circuit, as the server has dated it. The share of the machine that each process gets is in the result, too:
all of them run on this one.
"""

import multiprocessing
import os
import sys
import time
from typing import Any

from servers.cluster import running_cluster
from switchgear import Panel, Policy, Rejected, detectors

POLICY = Policy([detectors.ConsecutiveFailures(5)])
EVERY_S = 0.05


def _fails() -> None:
    raise ConnectionError("connection refused")


def _member(url: str, link: Any, begin: Any) -> None:
    """Succeed until it begins, then fail; report when the circuit first refused."""
    panel = Panel(url)
    breaker = panel.breaker("api", POLICY)
    breaker.call(int)
    link.send("ready")
    while not begin.wait(1.0):
        breaker.call(int)
    calls = 0
    while True:
        try:
            calls += 1
            breaker.call(_fails)
        except ConnectionError:
            time.sleep(EVERY_S)
        except Rejected as error:
            link.send((time.time(), error.reason, calls))
            break
    link.recv()
    os._exit(0)  # without the reports that a panel still has to send


def times_s(url: str, processes: int) -> list[float]:
    """When each process first refused, in seconds after the circuit opened."""
    fork = multiprocessing.get_context("fork")
    begin, crew = fork.Event(), []
    for _ in range(processes):
        ours, theirs = fork.Pipe()
        process = fork.Process(target=_member, args=(url, theirs, begin), daemon=True)
        process.start()
        crew.append((process, ours))
    for _, link in crew:
        link.recv()
    time.sleep(2.0)
    begin.set()
    seen = [link.recv() for _, link in crew]
    with Panel(url) as panel:
        events = [entry.event for entry in panel.events(glob="api")]
    opened = [event for event in events if event.after == "open" != event.before]
    for process, link in crew:
        link.send("end")
        process.join()
    assert len(opened) == 1, "it opened once"
    assert not [reason for _, reason, _ in seen if reason.startswith("this process")]
    return sorted(at_s - opened[0].at_s for at_s, _, _ in seen)


def main(processes: int, runs: int) -> None:
    for _ in range(runs):
        with running_cluster() as cluster:
            found = [1000 * each for each in times_s(cluster.url, processes)]
        places = {"median": len(found) // 2, "p95": len(found) * 95 // 100, "last": -1}
        texts = [f"{what} {found[place]:.0f} ms" for what, place in places.items()]
        load = os.getloadavg()[0]
        sys.stdout.write(
            f"{processes} processes refuse after: {', '.join(texts)} (load {load:.0f})\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [200, 1][len(numbers) :]))
