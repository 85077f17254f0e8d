"""Requests a second opinion in a separate process: nothing waits for it.

Run as `python -I -S …/opinion_process.py CWD ROOT`, with the request on its standard input.
"""

import os
import signal
import sys
from typing import Any

LONGEST_S = 150
"""Ends the process whatever the other side does; the longest time limit of an opinion is 120 s."""


def main(argv: list[str]) -> int:
    """Request an opinion, and save the answer for the next hook."""
    from switchgear._hooks.opinions import ask  # noqa: PLC0415  found only now

    cwd, root = argv[1:3]
    try:
        ask(sys.stdin.buffer.read(), root, cwd)
    except (OSError, ValueError, KeyError, TypeError):
        return 1
    return 0


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the hook that started this need not wait
    os.setsid()
    signal.alarm(LONGEST_S)
    package: Any = type(sys)("switchgear")
    package.__path__ = [__file__.rpartition("/_hooks/")[0]]
    sys.modules["switchgear"] = package
    sys.exit(main(sys.argv))
