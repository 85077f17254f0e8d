"""Which steps of a conversation are new, so that each is recorded once. Pure.

A session has several conversations: its own, and those of its sub-agents, which some agents send under
one id. Each is a lane. A request continues the lane whose turns it repeats; compaction drops turns at the
front, an edited history at the end, and a retry repeats them all.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MOST_TURNS = 300
"""Keys that a lane remembers."""
MOST_LANES = 16
MAIN = ""


class HistoryLane(NamedTuple):
    """The turns of one conversation that were recorded."""

    keys: tuple[str, ...] = ()
    """The last ones, oldest first."""
    dropped: int = 0
    """How many turns of the last history came before them."""


Lanes = Mapping[str, HistoryLane]


class NewTurns(NamedTuple):
    """What a history adds to what is known."""

    lane: str
    """The name of its lane; empty: the session's own."""
    first: int
    """The index of the first new turn; those after it are new, too."""
    skipped: frozenset[int]
    """Indexes after the first that were recorded before."""
    lanes: Lanes
    """What is known from now on."""

    def is_new(self, index: int) -> bool:
        return index >= self.first and index not in self.skipped


def new_turns(
    lanes: Lanes, keys: Sequence[str], *, have_ids: bool, continues: bool = False
) -> NewTurns:
    """Find the lane that a history continues, and what is new in it.

    `keys`: those of all turns of the history, at least one. `have_ids`: equal keys mean the same turn;
    else the same call may have been made again. `continues`: the request has only what is new, and the
    upstream the rest.

    >>> first = new_turns({}, ["a", "a"], have_ids=False)
    >>> new_turns(first.lanes, ["a", "a", "a"], have_ids=False).first
    2
    """
    best, name = 0, None
    for each, lane in lanes.items():
        known = _overlap(lane, keys, have_ids=have_ids)
        if known > best:
            best, name = known, each
    seen = {key for lane in lanes.values() for key in lane.keys} if have_ids else set()
    if name is None:
        name = MAIN if not lanes or continues else keys[0]
    skipped = frozenset(index for index in range(best, len(keys)) if keys[index] in seen)
    kept = tuple(keys)
    if have_ids:  # a history that was edited may return to what it was
        now = set(keys)
        kept = (*(key for key in lanes.get(name, HistoryLane()).keys if key not in now), *keys)
    dropped = max(0, len(keys) - MOST_TURNS)
    rest = {key: value for key, value in lanes.items() if key != name}
    made = {**rest, name: HistoryLane(kept[-MOST_TURNS:], dropped)}
    while len(made) > MOST_LANES:
        made.pop(next(key for key in made if key not in {MAIN, name}))
    return NewTurns(name, best, skipped, made)


def _overlap(lane: HistoryLane, keys: Sequence[str], *, have_ids: bool) -> int:
    """How many turns at the front of a history a lane has recorded."""
    if have_ids:
        known = set(lane.keys)
        return next((i + 1 for i in range(len(keys) - 1, -1, -1) if keys[i] in known), 0)
    length = len(lane.keys)
    if tuple(keys[lane.dropped : lane.dropped + length]) == lane.keys:
        return lane.dropped + length  # it grew, or is sent again
    same = 0  # edited: it begins as before
    if lane.dropped == 0:
        while same < min(length, len(keys)) and keys[same] == lane.keys[same]:
            same += 1
    for size in range(min(length, len(keys)), same, -1):  # compacted: it begins with what was last
        if lane.keys[-size:] == tuple(keys[:size]):
            return size
    return same


def dump(lanes: Lanes) -> dict[str, Any]:
    """As JSON values."""
    return {name: [list(lane.keys), lane.dropped] for name, lane in lanes.items()}


def load(data: Any) -> dict[str, HistoryLane]:
    """The inverse of `dump`; what cannot be read is forgotten."""
    try:
        return {
            str(name): HistoryLane(tuple(keys), int(dropped))
            for name, (keys, dropped) in data.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
