"""A choice at the terminal: the options as they were shown, by number, name or first letter."""

import select
import sys
import time
from collections.abc import Sequence
from typing import IO

from switchgear.cli.text import clean, say
from switchgear.hooks.texts import Option


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
    block: str, options: Sequence[Option], wait_s: float | None, source: IO[str] | None = None
) -> str | None:
    """Show the block and ask which option; `None`: nobody answered in `wait_s` seconds."""
    source = sys.stdin if source is None else source
    say("\n".join(clean(line, 300) for line in block.splitlines()), err=True)
    until_s = None if wait_s is None else time.monotonic() + wait_s
    names = "/".join(f"{number} {each.key}" for number, each in enumerate(options, 1))
    alone = "" if wait_s is None else f", in {wait_s:g} s the ladder decides"
    while True:
        say(f"What now ({names}{alone})?", err=True)
        left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        if not select.select([source], [], [], left_s)[0]:
            say("nobody answered", err=True)
            return None
        line = source.readline()
        if not line:
            return None
        key = chosen(line, options)
        if key is not None:
            return key
        say(f"{clean(line.strip())!r} is none of them", err=True)
