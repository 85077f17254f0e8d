"""One of many processes that record results in one circuit: `sqlite_teller.py PATH WHO TIMES`."""

import sys

from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Record, Signal
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.sqlite import SqliteStore

POLICY = Policy([ConsecutiveFailures(threshold=3)], Cooldown(base_s=1e-3, max_s=1e-3))


def main(path: str, who: int, times: int) -> None:
    store = SqliteStore(path, busy_timeout_s=30.0)
    events = 0
    for number in range(times):
        signal = Signal(ok=(number * 7 + who) % 4 == 0, cost_micros=who + 1)
        events += len(store.apply("told", POLICY, Record(signal), store.now_s()).events)
    store.close()
    sys.stdout.write(f"{events}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
