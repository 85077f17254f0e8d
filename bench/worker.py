"""One process of a fleet: `python -m bench.worker URL`, which reads commands as lines of JSON.

It imports no other module of the suite, because sixteen of these start at once. Times are those of
the monotonic clock, which the processes of one machine share.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

from switchgear import Cooldown, Panel, Policy, Rejected, Signal, detectors

FAILED = Signal(ok=False, error="529 overloaded")
AT_ONCE = Policy(
    detectors=[detectors.ConsecutiveFailures(threshold=1)], recovery=Cooldown(base_s=600.0)
)
NEVER = Policy(
    detectors=[detectors.ConsecutiveFailures(threshold=10**9)], recovery=Cooldown(base_s=60.0)
)
LOOK_EVERY_S = 0.001
GIVE_UP_S = 20.0


class Worker:
    """What a process of the fleet can do."""

    def __init__(self, url: str) -> None:
        redis: Any = import_module("redis")
        self._panel = Panel(url)
        self._tripping = self._panel.breaker("bench/trip", AT_ONCE)
        self._crowded = self._panel.breaker("bench/crowd", NEVER)
        self._ping = redis.Redis.from_url(url).ping

    def until_admitted(self) -> float:
        """When a call came through."""
        return self._until(admitted=True)

    def until_refused(self) -> float:
        """When a call was refused."""
        return self._until(admitted=False)

    def trip(self) -> float:
        """When the failure that trips the circuit was about to be recorded."""
        begun_s = time.monotonic()
        self._tripping.record(FAILED)
        return begun_s

    def reset(self) -> None:
        self._tripping.reset(by="bench", why="the next round")

    def ping(self, start_s: float, end_s: float) -> list[float]:
        """How long each PING took that was begun between the two times."""
        return _timed(self._ping, start_s, end_s)

    def record(self, start_s: float, end_s: float) -> list[float]:
        """The same for failures recorded in the shared circuit."""
        return _timed(lambda: self._crowded.record(FAILED), start_s, end_s)

    def told(self) -> int:
        """How many failures all processes have recorded in the circuit."""
        self._crowded.refresh()
        return self._crowded.totals.failed

    def _until(self, *, admitted: bool) -> float:
        """Call again and again, as an agent would, until it is so."""
        give_up_s = time.monotonic() + GIVE_UP_S
        while (now_s := time.monotonic()) < give_up_s:
            try:
                self._tripping.call(_succeed)
            except Rejected:
                if not admitted:
                    return time.monotonic()
            else:
                if admitted:
                    return now_s
            time.sleep(LOOK_EVERY_S)
        raise TimeoutError(f"not {'admitted' if admitted else 'refused'} within {GIVE_UP_S:g} s")


def _timed(once: Any, start_s: float, end_s: float) -> list[float]:
    time.sleep(max(0.0, start_s - time.monotonic()))
    taken_s = []
    while (begun_s := time.monotonic()) < end_s:
        once()
        taken_s.append(time.monotonic() - begun_s)
    return taken_s


def _succeed() -> None:
    """A call that costs nothing."""


def main() -> None:
    worker = Worker(sys.argv[1])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        print(json.dumps(getattr(worker, what)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
