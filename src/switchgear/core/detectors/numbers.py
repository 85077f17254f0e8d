"""What a debt knows, as rows of small numbers: in the order they came, bounded, short when stored."""

from itertools import filterfalse
from typing import Any

from switchgear.core.act_facts import MOST

ROOM = 2 * MOST
"""How much of each kind is known: at least one step, so that it is known when it comes again."""
BYTES = 3
"""Of a number in what is stored, as hexadecimal digits."""

Numbers = tuple[int, ...]


def known(before: Numbers, more: Numbers, room: int = ROOM) -> Numbers:
    """What is known after more has come: what came last is forgotten last."""
    if before[-len(more) :] == more or not more:
        return before
    return (*filterfalse(frozenset(more).__contains__, before), *more)[-room:]


def new_of(more: Numbers, before: Numbers) -> int:
    """How many were not known before."""
    return len(frozenset(more).difference(before))


def dump(numbers: Numbers) -> str:
    """As one text.

    >>> dump((1, 255))
    '0000010000ff'
    """
    return b"".join([number.to_bytes(BYTES) for number in numbers]).hex()


def load(text: Any) -> Numbers:
    """The inverse of `dump`; raises ValueError on what it never dumped."""
    digits = text if isinstance(text, str) else "?"
    row = bytes.fromhex(digits)
    if 2 * len(row) != len(digits) or len(row) % BYTES:
        raise ValueError(f"{text!r} must be numbers of {2 * BYTES} hexadecimal digits")
    return tuple([int.from_bytes(row[at : at + BYTES]) for at in range(0, len(row), BYTES)])
