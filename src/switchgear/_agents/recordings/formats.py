"""The formats of recordings: which one a file has, by its content, and which files there are."""

import os
import stat
from collections.abc import Iterator, Sequence

from switchgear._agents.recordings import otel, own_formats, swe_trajectories
from switchgear._agents.recordings.files import RecordingFile, RecordingFormat, UnreadableRecording
from switchgear._agents.recordings.recording import RecordedRun, RecordingTally
from switchgear._agents.recordings.swe_trajectories import is_folder
from switchgear._agents.registry import transcript_formats

FORMATS: dict[str, RecordingFormat] = {
    each.name: each
    for each in (
        *(own_formats.RUN_FOLDER, own_formats.PLAIN, *transcript_formats()),
        *(swe_trajectories.OPENHANDS, swe_trajectories.SWE_AGENT, otel.SPANS),
    )
}
"""The formats by name; the first that recognises a file reads it."""


def recognise(source: RecordingFile) -> RecordingFormat:
    """The format of a file. Raises `Unreadable`."""
    if is_folder(source.path):
        return swe_trajectories.OPENHANDS
    if source.is_database:
        for each in FORMATS.values():
            if each.is_database is not None and each.is_database(source):
                return each
        raise UnreadableRecording("is a database of another program")
    head = source.head()
    for each in FORMATS.values():
        try:
            if each.recognises(head, source):
                return each
        except _MISREADINGS:
            continue
    raise UnreadableRecording("is in no format that is known")


def runs_in(
    source: RecordingFile, tally: RecordingTally, force: str | None = None
) -> Iterator[RecordedRun]:
    """The runs of a file that hold at least one step. Never raises; problems are in the tally."""
    try:
        found = FORMATS[force] if force else recognise(source)
        tally.formats[found.name] += source.first_line == 1
        for run in found.read(source, tally):
            if run.steps:
                tally.runs += 1
                yield run
            else:
                tally.empty += 1
    except UnreadableRecording as problem:
        tally.problem(source.path, str(problem))
    except _MISREADINGS as error:
        # A shape that no reader foresaw: the rest of this file is lost, no other file is.
        tally.problem(source.path, f"is not as its format has it: {type(error).__name__}")


_MISREADINGS = (
    *(AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError),
    *(RecursionError, OSError),
)


# Finding files

MOST_FILES = 200_000
_ENDINGS = (".jsonl", ".json", ".ndjson", ".traj", ".db", ".jsonl.gz", ".json.gz", ".traj.gz")
_OF_OPENCODE = frozenset({"message", "part", "session_diff", "todo", "project"})
"""Folders beside `session` whose files belong to the sessions."""
OURS = ".switchgear"
_RUN, _ITERATIONS = "run.json", "iterations.jsonl"


def find(paths: Sequence[str], tally: RecordingTally) -> Iterator[str]:
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
            if os.path.isdir(path) and (files := sum(1 for _ in find([path], RecordingTally()))):
                found.append((each.name, place, files))
    return found


def _below(path: str, tally: RecordingTally) -> Iterator[str]:
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
