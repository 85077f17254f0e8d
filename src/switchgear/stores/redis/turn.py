"""Several messages and one note on a server: in turn, each message by itself.

Compare-and-set goes by circuit, so a transaction over several takes turns by the note's name. A
turn is a lease: whoever dies in it, or takes longer, loses it, and their note is not written.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

from switchgear.core.policy import Policy
from switchgear.core.types import Message, Step
from switchgear.errors import StoreUnavailable
from switchgear.stores.base import NOTE_S
from switchgear.stores.redis import script
from switchgear.stores.redis.script import Names

TURN_MS = 5000
"""How long a turn is at most."""
LOOK_S = 0.002
"""How often one who waits looks whether it is their turn."""

Ask = Callable[..., Any]
"""Sends a script with its keys and arguments, until its own reply arrives."""
Apply = Callable[[str, Policy, Message, float], Step]


class Turn:
    """A transaction while it is our turn. Used by one thread."""

    __slots__ = ("_apply", "keep_s", "note", "now_s")

    def __init__(self, apply: Apply, now_s: float, note: str | None) -> None:
        self._apply = apply
        self.now_s = now_s
        self.note = note
        self.keep_s = NOTE_S

    def apply(self, key: str, policy: Policy, message: Message) -> Step:
        """Fold one message."""
        return self._apply(key, policy, message, self.now_s)


@contextmanager
def taken(
    ask: Ask, names: Names, name: str, apply: Apply, *, now_s: Callable[[], float], label: str
) -> Iterator[Turn]:
    """Our turn with the note of that name. Raises `StoreUnavailable` if it does not come."""
    turn, note, token = names.turn(name), names.note(name), os.urandom(8).hex()
    until_s = monotonic() + 2 * TURN_MS / 1000
    while True:
        is_ours, kept, _ = ask(script.TAKE, (turn, note), token, TURN_MS)
        if is_ours:
            break
        if monotonic() >= until_s:
            why = f"others have kept the note {name!r} to themselves for {2 * TURN_MS / 1000:g} s"
            raise StoreUnavailable(label, why, "try again, or look for a stopped process")
        sleep(LOOK_S)
    done = False
    try:
        before = None if kept is None else bytes(kept).decode(errors="replace")
        inside = Turn(apply, now_s(), before)
        yield inside
        if inside.note == before:
            return
        text = inside.note or ""
        ttl_ms = "" if inside.note is None else max(1, int(inside.keep_s * 1000))
        keys = (turn, note, names.receipts + token)
        done = bool(ask(script.NOTE, keys, token, text, ttl_ms)[0])
        if not done:
            why = f"the turn with the note {name!r} took longer than {TURN_MS / 1000:g} s"
            raise StoreUnavailable(label, why, "try again")
    finally:
        if not done:
            ask(script.FORGET, (turn,), token)
