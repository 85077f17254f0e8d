"""A choice at the terminal: the options as they were shown, by number, name or first letter."""

import math
import os
import select
import sys
import time
from collections.abc import Callable, Sequence

from switchgear._cli.views.text import clean, say
from switchgear._stuck.messages import Option

SLICE_S = 0.2
"""How often it is looked whether the answer is still wanted."""


def is_attended() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def chosen(text: str, options: Sequence[Option]) -> str | None:
    """The key of the option that is meant; `None`: it is not clear which.

    >>> chosen("2", [Option("wait", "Wait", ""), Option("force", "Force close", "")])
    'force'
    """
    word = text.strip().strip("[]").lower()
    if word.isdecimal() and 1 <= int(word) <= len(options):
        return options[int(word) - 1].key
    found = [each.key for each in options if word and each.key.startswith(word)]
    found = found or [each.key for each in options if word and each.label.lower().startswith(word)]
    return found[0] if len(found) == 1 else None


def ask(
    block: str,
    options: Sequence[Option],
    wait_s: float | None,
    source: int | None = None,
    *,
    alone: str = "the escalation decides",
    stopped: Callable[[], int] = int,
) -> str | None:
    """Show the block and ask which option; `None`: nobody answered in `wait_s` seconds.

    `source` is the descriptor that is read; default: standard input. `alone` says what happens
    without an answer, `stopped` whether nobody needs one any more.
    """
    source = sys.stdin.fileno() if source is None else source
    say("\n".join(clean(line, 300) for line in block.splitlines()), err=True)
    until_s = math.inf if wait_s is None else time.monotonic() + wait_s
    names = "/".join(f"{number} {each.key}" for number, each in enumerate(options, 1))
    alone = "" if wait_s is None else f", in {wait_s:g} s {alone}"
    while True:
        say(f"What now ({names}{alone})?", err=True)
        line = _line(source, until_s, stopped)
        if line is None:
            say("nobody answered", err=True)
            return None
        key = chosen(line, options)
        if key is not None:
            return key
        say(f"{clean(line.strip())!r} is none of them", err=True)


def _line(source: int, until_s: float, stopped: Callable[[], int]) -> str | None:
    """One line, read without a buffer: what is in one, `select` does not see."""
    data = b""
    while not data.endswith(b"\n"):
        left_s = max(0.0, until_s - time.monotonic())
        if not select.select([source], [], [], min(left_s, SLICE_S))[0]:
            if left_s <= SLICE_S or stopped():
                return None
            continue
        byte = os.read(source, 1)
        if not byte:
            return data.decode(errors="replace") if data else None
        data += byte
    return data.decode(errors="replace")
