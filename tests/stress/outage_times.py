"""How long after the begin of an outage on all nodes each process refuses. No test: it prints times.

    PYTHONPATH=tests python -m stress.outage_times [RUNS]

Four processes call 100 times a second each, through the default circuit of one store, and from one
moment on every call fails.
"""

import statistics
import sys
import tempfile
import time
from contextlib import ExitStack

from servers.cluster import running_cluster
from servers.server import running
from stress.evidence_crew import begin, end, outage

PROCESSES = 4


def times_s(url: str) -> list[float]:
    """When each process first refused, in seconds after the begin, the first first."""
    crew = [begin(outage, url, "default", 100.0) for _ in range(PROCESSES)]
    try:
        for _, link in crew:
            link.recv()
        for _, link in crew:
            link.send("go")
        time.sleep(2.0)
        begun_s = time.time()
        for _, link in crew:
            link.send(begun_s)
        seen = [link.recv() for _, link in crew]
        for _, link in crew:
            link.send("end")
        local = [reason for _, reason in seen if reason.startswith("this process")]
        assert not local, "the shared circuit is open, not a process isolated"
        return sorted(after_s for after_s, _ in seen)
    finally:
        end(crew)


def main(runs: int) -> None:
    for store in ("SQLite", "Redis", "Redis Cluster"):
        found = []
        for _ in range(runs):
            with ExitStack() as stack:
                if store == "SQLite":
                    folder = stack.enter_context(tempfile.TemporaryDirectory())
                    url = f"sqlite:///{folder}/state.db"
                elif store == "Redis":
                    url = stack.enter_context(running()).url
                else:
                    url = stack.enter_context(running_cluster()).url
                found.append(times_s(url))
        for what, place in (("first", 0), ("last", -1)):
            ms = [1000 * times[place] for times in found]
            sys.stdout.write(
                f"{store}: the {what} process refuses after {statistics.median(ms):.0f} ms "
                f"(median of {runs}), {max(ms):.0f} ms at worst\n"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
