"""Outcomes of recorded runs that a person labelled, saved in the user's state folder.

Each answer appends a line, and the last line of a run counts: two terminals can label at the same time, and
another answer corrects a mistake.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from switchgear._analysis.backtest.outcomes import named
from switchgear._system.files import append_descriptor, make_private_folder, state_folder

_MAX_BYTES = 64 * 1024 * 1024
SOLVED, UNSOLVED, UNKNOWN, FORGET = "solved", "unsolved", "unknown", "forget"
ANSWERS = (SOLVED, UNSOLVED, UNKNOWN, FORGET)
_MEANING = {SOLVED: True, UNSOLVED: False, UNKNOWN: None}


class OutcomeLabel(NamedTuple):
    """One answer of a person."""

    key: str
    """The `outcomes.label_key` of the run."""
    answer: str
    at_s: float
    source: str = ""
    """The file of the run."""
    content: str = ""
    """The `outcomes.content_key` of the run: identifies it if its file was moved."""


def labels_file() -> Path:
    """The path of the file, which may not exist."""
    return Path(state_folder("labels.jsonl"))


def read_labels(path: Path | None = None) -> dict[str, bool | None]:
    """The outcome of each labelled run, by `outcomes.label_names`; unreadable lines are skipped.

    If the file of a run no longer exists, also by its content alone. Raises OSError.
    """
    found: dict[str, bool | None] = {}
    for each in all_labels(path):
        found[named(each.key, each.content)] = _MEANING[each.answer]
        if each.content and not os.path.exists(each.source):  # noqa: PTH110  never raises
            found[each.content] = _MEANING[each.answer]
    return found


def all_labels(path: Path | None = None) -> list[OutcomeLabel]:
    """The labels in effect, oldest first. Raises OSError."""
    found: dict[str, OutcomeLabel] = {}
    try:
        with (path or labels_file()).open("rb") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        label = _label(line)
        if label is None:
            continue
        found.pop(label.key, None)
        if label.answer == FORGET and label.content:
            found = {key: each for key, each in found.items() if each.content != label.content}
        if label.answer != FORGET:
            found[label.key] = label
    return list(found.values())


def add_label(
    key: str, answer: str, path: Path | None = None, *, source: str = "", content: str = ""
) -> OutcomeLabel:
    """Save an answer, one of `ANSWERS`. Raises OSError."""
    if answer not in ANSWERS:
        raise ValueError(f"label {answer!r}: it must be one of {', '.join(ANSWERS)}")
    label = OutcomeLabel(key, answer, time.time(), source, content)
    path = path or labels_file()
    make_private_folder(str(path.parent))
    line = json.dumps(label._asdict()).encode() + b"\n"
    if _is_torn(path):
        line = b"\n" + line
    file = append_descriptor(path)
    try:
        os.write(file, line)  # one write: lines of two terminals do not mix
    finally:
        os.close(file)
    return label


def _is_torn(path: Path) -> bool:
    """Whether the last line is incomplete, as after a crash: the next line must not be appended to it."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
    return False


def _label(line: bytes) -> OutcomeLabel | None:
    try:
        data = json.loads(line)
        known = (str(data["key"]), str(data["answer"]), float(data["at_s"]))
        label = OutcomeLabel(*known, str(data.get("source", "")), str(data.get("content", "")))
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    return label if label.answer in ANSWERS else None
