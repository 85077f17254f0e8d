"""Which steps of a conversation are new, so that each is recorded once. Pure.

A session has several conversations: its own and those of its sub-agents, for which some agents use the
same id. Each conversation is a lane. A request continues the lane whose turns it repeats. Compaction drops
turns at the front, editing the history drops turns at the end, and a retry repeats all turns.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MOST_TURNS = 300
"""Maximum number of keys that a lane stores."""
MOST_LANES = 16
MAIN = ""


class HistoryLane(NamedTuple):
    """The recorded turns of one conversation."""

    keys: tuple[str, ...] = ()
    """The keys of the last turns, oldest first."""
    dropped: int = 0
    """The number of turns before these in the last history."""


Lanes = Mapping[str, HistoryLane]


class NewTurns(NamedTuple):
    """The new turns in a history."""

    lane: str
    """The name of the lane of the history; empty: the session's own lane."""
    first: int
    """The index of the first new turn; the turns after it are new, too, except `skipped`."""
    skipped: frozenset[int]
    """Indexes of later turns that were already recorded."""
    lanes: Lanes
    """The lanes including the new turns."""

    def is_new(self, index: int) -> bool:
        return index >= self.first and index not in self.skipped


def new_turns(
    lanes: Lanes, keys: Sequence[str], *, have_ids: bool, continues: bool = False
) -> NewTurns:
    """Find the lane that a history continues, and the turns that are new.

    `keys` are those of all turns of the history, at least one. With `have_ids`, equal keys mean the same
    turn; otherwise the same call may have been made again. With `continues`, the request contains only
    new turns, and the upstream has stored the others.

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
    if have_ids:  # an edited history may later return to its old turns
        now = set(keys)
        kept = (*(key for key in lanes.get(name, HistoryLane()).keys if key not in now), *keys)
    dropped = max(0, len(keys) - MOST_TURNS)
    rest = {key: value for key, value in lanes.items() if key != name}
    made = {**rest, name: HistoryLane(kept[-MOST_TURNS:], dropped)}
    while len(made) > MOST_LANES:
        made.pop(next(key for key in made if key not in {MAIN, name}))
    return NewTurns(name, best, skipped, made)


def _overlap(lane: HistoryLane, keys: Sequence[str], *, have_ids: bool) -> int:
    """The number of turns at the front of a history that a lane has recorded."""
    if have_ids:
        known = set(lane.keys)
        return next((i + 1 for i in range(len(keys) - 1, -1, -1) if keys[i] in known), 0)
    length = len(lane.keys)
    if tuple(keys[lane.dropped : lane.dropped + length]) == lane.keys:
        return lane.dropped + length  # the history grew, or is sent again
    same = 0  # an edited history begins with the same turns
    if lane.dropped == 0:
        while same < min(length, len(keys)) and keys[same] == lane.keys[same]:
            same += 1
    for size in range(min(length, len(keys)), same, -1):  # compacted: it begins with the last turns
        if lane.keys[-size:] == tuple(keys[:size]):
            return size
    return same


def dump(lanes: Lanes) -> dict[str, Any]:
    """The lanes as JSON values."""
    return {name: [list(lane.keys), lane.dropped] for name, lane in lanes.items()}


def load(data: Any) -> dict[str, HistoryLane]:
    """The inverse of `dump`; unreadable data gives no lanes."""
    try:
        return {
            str(name): HistoryLane(tuple(keys), int(dropped))
            for name, (keys, dropped) in data.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
