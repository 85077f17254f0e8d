"""What `git status` says, as values: the commit, and each path that differs from it."""

from typing import NamedTuple


class Content(NamedTuple):
    """A path that differs from the commit: what the commit has, and what is there now."""

    in_head: str | None
    """The hash of the blob in the commit; `None`: the commit does not have it."""
    now: str | None = None
    """The hash of what is there; `None`: nothing is."""


class State(NamedTuple):
    """A working folder: the commit that is checked out (empty: none yet), and what differs."""

    head: str
    files: dict[str, Content]


def parse_status(listed: str, excluded: str) -> State:
    """The output of `git status --porcelain=v2 -z --branch --no-renames`.

    Folders named `excluded` are left out, wherever they are.
    """
    head, files = "", {}
    for entry in listed.split("\0"):
        kind, _, rest = entry.partition(" ")
        if kind == "#":
            name, _, value = rest.partition(" ")
            if name == "branch.oid" and value != "(initial)":
                head = value
        elif kind in _FIELDS_BEFORE_PATH:
            *fields, path = rest.split(" ", _FIELDS_BEFORE_PATH[kind])
            if excluded not in path.split("/"):
                files[path] = Content(_in_head(kind, fields))
    return State(head, files)


_FIELDS_BEFORE_PATH = {"1": 7, "u": 9, "?": 0}
"""How many fields stand before the path: changed, unmerged, untracked."""


def _in_head(kind: str, fields: list[str]) -> str | None:
    if kind == "?":
        return None
    # Of a changed path the commit's blob is the sixth; of an unmerged one "ours" is the eighth.
    blob = fields[5] if kind == "1" else fields[7]
    return blob if blob.strip("0") else None
