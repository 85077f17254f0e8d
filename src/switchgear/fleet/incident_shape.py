"""Whether what was read is an incident: files can be edited, and one must not hide the others."""

from typing import Any

_TEXTS = ("id", "severity", "category", "circuit", "status", "reason", "action")
_MAYBE_TEXTS = (
    "mark",
    "opened_at",
    "recovered_at",
    "closed_by",
    "closed_why",
    "closed_at",
    "unknown",
)
_LISTS = ("agents", "owners", "evidence", "rerouted", "partial_state", "what_to_do")
_LARGEST = 1e15
"""No time and no amount of money is beyond; a larger number would break who calculates with it."""
_LINE = ("at", "kind", "before", "after", "reason", "by", "why")


def fault_of(found: Any, name: str) -> str:
    """What keeps it from being the incident of that name; empty: nothing."""
    if not isinstance(found, dict):
        return "it is no mapping"
    wrong = [
        *(key for key in _TEXTS if not isinstance(found.get(key), str)),
        *(key for key in _MAYBE_TEXTS if not isinstance(found.get(key), str | None)),
        *(key for key in _LISTS if not _is_list_of_texts(found.get(key, []))),
        *(key for key in ("seq", "opened_at_s") if not _is_number(found.get(key))),
        *(key for key in ("lasted_s", "spent_micros") if not _is_number(found.get(key) or 0)),
    ]
    lines = found.get("timeline")
    if not isinstance(lines, list) or not all(map(_is_line, lines)):
        wrong.append("timeline")
    if wrong:
        return f"{', '.join(wrong)} is missing, or of another kind"
    return "" if found["id"] == name else f"it says that it is {found['id']!r}"


def _is_line(line: Any) -> bool:
    if not isinstance(line, dict) or not _is_number(line.get("seq")):
        return False
    return all(isinstance(line.get(key, 0), str | None) for key in _LINE)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_number(value: Any) -> bool:
    """Whether it can be calculated with: neither endless nor no number, both of which JSON can hold."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and -_LARGEST < value < _LARGEST
