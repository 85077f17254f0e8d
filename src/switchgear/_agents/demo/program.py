"""The program of the stand-in agent: `python -m switchgear._agents.demo.program`.

It reads a prompt from standard input as an agent does, and plays one scenario in the working
directory. The iteration comes from SWITCHGEAR_ITERATION; without it, a counter in the git
directory goes on by one each time, so that the program can also be tried by hand.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from switchgear._agents.demo.scenarios import SCENARIOS


def main() -> int:
    """Plays one iteration; exit code 1 if its result is a failure, as agents do."""
    parser = argparse.ArgumentParser(prog="demo-agent", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, default="story")
    parser.add_argument("--speed", type=float, default=1.0, help="divides every pause")
    chosen = parser.parse_args()
    sys.stdin.read()
    failed = False
    for line in SCENARIOS[chosen.scenario](_iteration()):
        if isinstance(line, float):
            # A hang stays one at any speed.
            time.sleep(line if line > 10 else line / chosen.speed)
            continue
        failed = line.get("success") is False
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return int(failed)


def _iteration() -> int:
    told = os.environ.get("SWITCHGEAR_ITERATION", "")
    if told.isdecimal():
        return max(1, int(told))
    counter = Path(".git", "switchgear-demo")
    if not counter.parent.is_dir():
        return 1
    number = int(counter.read_text(encoding="ascii")) + 1 if counter.exists() else 1
    counter.write_text(str(number), encoding="ascii")
    return number


if __name__ == "__main__":
    sys.exit(main())
