"""Names of tasks as parts of branch names and folder names: valid for git, and different for each task."""

import re
import unicodedata
from collections.abc import Iterable
from hashlib import blake2b

LONGEST_BYTES = 180
"""Of one part: with git's own suffixes it still fits into a file name of 255 bytes."""
_NOT_ALLOWED = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\]\\/@{}'\"`$&|;<>()!#%]|\.{2,}|^[-.]|\.$|\.lock$", re.IGNORECASE
)


def branch_parts(names: Iterable[str]) -> dict[str, str]:
    """For each name a part of a branch name that is valid, and differs from all others by more than case.

    A name that is valid by itself stays as it is, unless it differs from an earlier one only in case.

    >>> branch_parts(["parser", "Parser", "v1..v2"])
    {'parser': 'parser', 'Parser': 'Parser-35f2953e', 'v1..v2': 'v1-v2-ab7737d5'}
    """
    parts: dict[str, str] = {}
    used: set[str] = set()
    for name in sorted(
        names, key=lambda name: (_valid(name) != name, name != name.casefold(), name)
    ):
        part = _valid(name)
        if part != name or _folded(part) in used:
            part = f"{part}-{blake2b(name.encode(errors='surrogateescape'), digest_size=4).hexdigest()}"
        used.add(_folded(part))
        parts[name] = part
    return parts


def _valid(name: str) -> str:
    part = unicodedata.normalize("NFC", name)
    before = None
    while before != part:  # taking a suffix away may leave another one
        before, part = part, _NOT_ALLOWED.sub("-", part)
        while len(part.encode(errors="replace")) > LONGEST_BYTES:
            part = part[:-1]
    return part.strip("-") or "task"


def _folded(part: str) -> str:
    return unicodedata.normalize("NFC", part.casefold())
