"""What a message is folded into: what the server has, or what it should have."""

import re
from typing import Any, NamedTuple

from switchgear.core.policy import Policy
from switchgear.core.types import Circuit, Event
from switchgear.core.wire import WireError
from switchgear.stores.redis import envelope
from switchgear.stores.redis.envelope import Sealed


class Base(NamedTuple):
    """What the next message is folded into."""

    expected: bytes
    """What the server must have for the commit to count, as `script.Exchange` wants it."""
    circuit: Circuit | None = None
    broken: str = ""
    """Why the stored state could not be read."""
    version: int = 0
    """The last version of a state that is given up, as far as is known."""
    event_seq: int = 0
    fits: bool = True
    """Whether the stored policy is the one that judges now."""
    restored: str = ""
    """Why this is our own copy and not the server's."""


class Start(NamedTuple):
    """The circuit before the message, and the events that it already brings."""

    circuit: Circuit
    events: tuple[Event, ...]


def base_of(sealed: Sealed) -> Base:
    """A stored circuit to fold into."""
    return Base(b"=" + sealed.begins, sealed.circuit, fits=sealed.fits)


def again(policy: Policy, old: Circuit, new: Circuit | None, now_s: float) -> Circuit:
    """The circuit in place of an abandoned one: its numbers go on, so that it is the newer."""
    circuit = policy.start(old.key, now_s) if new is None else new
    return circuit._replace(
        version=old.version,
        event_seq=max(circuit.event_seq, old.event_seq),
        generation=max(circuit.generation, old.generation + 1),
    )


def place_of(waiting: list[bytes], token: bytes) -> int | None:
    """Where in the queue a message is, from 0; `None`: it is not to be seen."""
    for place, raw in enumerate(waiting):
        if envelope.token_of(raw) == token:
            return place
    return None


def last_seq(key: str, entries: Any) -> int:
    """The number of the newest event of a circuit among these entries of the stream."""
    for _, fields in entries:
        try:
            event = envelope.unseal_event(fields[1])
        except WireError:
            continue
        if event.circuit == key:
            return event.seq
    return 0


def salvaged_version(raw: bytes) -> int:
    """The version that a value we cannot read had, as far as can be seen."""
    found = re.match(rb'\{"stamp":"(\d{1,15})-', raw)
    return int(found[1]) if found else 0
