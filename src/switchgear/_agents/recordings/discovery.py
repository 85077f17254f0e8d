"""From paths to files: folders are walked, links in them are not followed, work is bounded."""

import os
import stat
from collections.abc import Iterator, Sequence

from switchgear._agents.recordings.formats import FORMATS
from switchgear._agents.recordings.openhands import is_folder
from switchgear._agents.recordings.recorded import Tally

MOST_FILES = 200_000
_ENDINGS = (".jsonl", ".json", ".ndjson", ".traj", ".db", ".jsonl.gz", ".json.gz", ".traj.gz")
_OF_OPENCODE = frozenset({"message", "part", "session_diff", "todo", "project"})
"""Folders beside `session` whose files belong to the sessions."""
OURS = ".switchgear"
_RUN, _ITERATIONS = "run.json", "iterations.jsonl"


def find(paths: Sequence[str], tally: Tally) -> Iterator[str]:
    """The files that may hold runs, each once, in the order of the paths and their names."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        for found in _below(path, tally):
            key = _identity(found)
            if key is None or key in seen:
                continue
            if len(seen) >= MOST_FILES:
                tally.problem(path, f"has more than {MOST_FILES:,} files: the rest is left out")
                return
            seen.add(key)
            yield found


def usual_places() -> list[tuple[str, str, int]]:
    """Format, place and number of files, for each place of an agent that is there."""
    found = []
    for each in FORMATS.values():
        for place in each.places:
            path = os.path.expanduser(place)
            if os.path.isdir(path) and (files := sum(1 for _ in find([path], Tally()))):
                found.append((each.name, place, files))
    return found


def _below(path: str, tally: Tally) -> Iterator[str]:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        tally.problem(path, getattr(error, "strerror", None) or "is no path")
        return
    if not stat.S_ISDIR(mode) or is_folder(path):
        yield path
        return
    for folder, folders, files in os.walk(path, followlinks=False):
        if _RUN in files and _ITERATIONS in files:
            folders.clear()
            yield os.path.join(folder, _RUN)
            continue
        if os.path.basename(folder) == OURS:
            folders[:] = [each for each in folders if each == "runs"]
            continue
        if "session" in folders:
            folders[:] = [each for each in folders if each not in _OF_OPENCODE]
        events = os.path.join(folder, "events")
        if "events" in folders and is_folder(events) and _has_events(events):
            folders.remove("events")
            yield events
        folders.sort()
        yield from (os.path.join(folder, each) for each in sorted(files) if _may_be(each))


def _may_be(file_name: str) -> bool:
    return file_name.endswith(_ENDINGS) and file_name != "base_state.json"


def _has_events(folder: str) -> bool:
    try:
        return any(each.startswith("event-") for each in os.listdir(folder))
    except OSError:
        return False


def _identity(path: str) -> tuple[int, int] | None:
    """What tells a file from every other; `None`: it has gone meanwhile."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
