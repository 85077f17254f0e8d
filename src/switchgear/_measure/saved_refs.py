"""Which references hold saved work: remembered outside the repository, and kept twice inside it.

An agent that deletes `refs/switchgear/…` would delete the only way to its partial work. The value of
each reference is remembered in the user's state folder, and a second reference keeps the objects
from being pruned.
"""

import json
import os
from hashlib import sha256
from typing import Any

from switchgear._system.files import read_private, state_folder, write_private

# Paths are texts here, as in the hooks that read this.
# ruff: noqa: PTH113, PTH118, PTH120, PTH123

PREFIX, KEPT = "refs/switchgear/", "refs/switchgear-kept/"
MOST_REFS = 500
"""References that are remembered of one repository; the oldest are forgotten first."""
_LARGEST = 1_000_000


def common_dir(folder: str) -> str | None:
    """The folder of a repository's references, without links; `None`: there is none around `folder`."""
    here = os.path.realpath(folder)
    while True:
        found = os.path.join(here, ".git")
        if os.path.lexists(found):
            return _followed(found)
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above


def _followed(git: str) -> str | None:
    """The folder that holds the references, of a worktree or a submodule too."""
    try:
        if os.path.isfile(git):
            with open(git, encoding="utf-8") as file:
                told = file.read(4096).strip().removeprefix("gitdir:").strip()
            git = os.path.join(os.path.dirname(git), told)
        common = os.path.join(git, "commondir")
        if os.path.isfile(common):
            with open(common, encoding="utf-8") as file:
                git = os.path.join(git, file.read(4096).strip())
    except (OSError, UnicodeDecodeError):
        return None
    return os.path.realpath(git)


def remember_ref(folder: str, reference: str, commit: str) -> None:
    """Remember that this reference holds saved work. Never raises: the work is saved already."""
    git = common_dir(folder)
    if git is None or not reference.startswith(PREFIX):
        return
    refs = {name: value for name, value in remembered_refs(git).items() if name != reference}
    write_refs(git, {**refs, reference: commit})


def write_refs(git: str, refs: dict[str, str]) -> None:
    """Remember these references of a repository, and no others."""
    kept = dict(list(refs.items())[-MOST_REFS:])
    try:
        write_private(_place(git), json.dumps({"git": git, "refs": kept}).encode())
    except OSError:
        return


def remembered_refs(git: str) -> dict[str, str]:
    """The references that hold saved work of a repository, and their commits."""
    try:
        told: Any = json.loads(read_private(_place(git), _LARGEST) or b"null")
        found = {str(name): str(value) for name, value in told["refs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return found if told.get("git") == git else {}


def _place(git: str) -> str:
    key = sha256(git.encode(errors="surrogateescape")).hexdigest()[:32]
    return os.path.join(state_folder("guard", "refs"), f"{key}.json")
