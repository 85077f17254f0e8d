"""Outcomes that the recordings do not know, from a file beside them: which runs were solved.

Two shapes: an object that maps ids (of runs or of tasks) to true or false, and the report of a
SWE-bench evaluation, which lists `resolved_ids` and `unresolved_ids`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from switchgear._agents.recordings.recording import RecordedRun
from switchgear._core.errors import SwitchgearError

_LARGEST_BYTES = 64 * 1024 * 1024
_LISTS = {"resolved_ids": True, "unresolved_ids": False, "empty_patch_ids": False}


class OutcomesUnreadable(SwitchgearError):
    """A file of outcomes that cannot be used. `path` and `why`."""

    args: tuple[str, str]

    def __str__(self) -> str:
        return (
            f"outcomes {self.args[0]!r}: {self.args[1]}; it must be a JSON object of ids and "
            "true or false, or a SWE-bench report with resolved_ids"
        )


def read_outcomes(path: str) -> dict[str, bool]:
    """Which runs were solved, by id. Raises `OutcomesUnreadable`."""
    try:
        with Path(path).open("rb") as file:
            value = json.loads(file.read(_LARGEST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or "is no JSON"
        raise OutcomesUnreadable(path, why) from error
    found = _outcomes(value) if isinstance(value, dict) else {}
    if not found:
        raise OutcomesUnreadable(path, "holds no outcome")
    return found


def with_outcome(run: RecordedRun, outcomes: Mapping[str, bool]) -> RecordedRun:
    """The run with the outcome that is told of it: by its id, else by its task."""
    if not outcomes:
        return run
    told = outcomes.get(run.id, outcomes.get(run.task))
    return run if told is None else run._replace(solved=told)


def _outcomes(value: dict[str, Any]) -> dict[str, bool]:
    if "resolved_ids" in value:
        return {key: solved for name, solved in _LISTS.items() for key in _texts(value.get(name))}
    return {key: solved for key, solved in value.items() if isinstance(solved, bool)}


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
