"""The state of a working folder, to compare before and after: what changed, committed or not."""

import os
import shutil
from hashlib import blake2b
from pathlib import Path
from stat import S_IXUSR
from typing import NamedTuple, Protocol

from switchgear._measure.git import GitTree
from switchgear._measure.git_base import STATE_FOLDER
from switchgear._measure.git_command import Deadline, GitError, Repository, find_repository, run_git
from switchgear._measure.saved_refs import (
    SAVE_S,
    LeftOut,
    SavedWork,
    how_to_unpack,
    own_output,
    save_archive,
)

SKIPPED = frozenset({STATE_FOLDER, ".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv"})
"""Folders whose changes are never progress, for working folders outside git."""
HASHED_BYTES = 1_000_000
"""Files up to this size are compared by content, larger ones by size and time."""


class TreeChange(NamedTuple):
    """What differs between two states of a folder."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that differ, sorted."""
        return tuple(sorted((*self.added, *self.modified, *self.deleted)))

    def __len__(self) -> int:
        return len(self.added) + len(self.modified) + len(self.deleted)

    def __bool__(self) -> bool:
        return len(self) > 0  # a type checker takes a tuple with fields as true


class Tree(Protocol):
    """A folder whose states can be marked and compared. Marks are short texts, fit for a file."""

    def mark(self) -> str:
        """Mark the present state."""

    def change(self, before: str, after: str) -> TreeChange:
        """What differs between two marks of this tree."""

    def keep(self, name: str, message: str, deadline: Deadline | None = None) -> SavedWork:
        """Save the present state, and return how to restore it. Raises `NotSaved`."""

    def lines_since_start(self, deadline: Deadline | None = None) -> tuple[int, int] | None:
        """The number of lines added and removed since the first mark; `None`: unknown."""


def open_tree(folder: Path, notes: Path) -> Tree:
    """The tree of a folder: compared with git in a repository, else by reading every file.

    Files are also read if the repository ignores the folder, or if git is missing or fails. `notes` is a folder
    for state between iterations.
    """
    repository = find_repository(folder)
    if repository is None or shutil.which("git") is None or _is_ignored(repository, folder):
        return PlainTree(folder, notes)
    tree = GitTree(repository, notes)
    try:
        tree.prepare()
    except GitError:
        return PlainTree(folder, notes)
    return tree


def _is_ignored(repository: Repository, folder: Path) -> bool:
    """Whether the repository around a folder ignores the folder and tracks nothing in it."""
    here = folder.resolve()
    if here == repository.top:
        return False
    env = {"GIT_DIR": str(repository.git_dir), "GIT_WORK_TREE": str(repository.top)}
    try:
        run_git(repository.top, ("check-ignore", "-q", "--", str(here)), env=env)
        tracked = run_git(repository.top, ("ls-files", "-z", "--", str(here)), env=env)
    except GitError:
        return False
    return not tracked


class _File(NamedTuple):
    size: int
    mtime_ns: int
    is_program: bool
    digest: str


class PlainTree:
    """A folder outside git. Small files are compared by content; a file is read again only if its time changed."""

    def __init__(self, folder: Path, notes: Path) -> None:
        self._folder = folder
        self._notes = notes
        self._own_output = own_output(folder, notes)
        self._states: dict[str, dict[str, _File]] = {}
        self._last: dict[str, _File] = {}
        self._start: str | None = None
        self._unread: list[str] = []
        """Folders that could not be read at the last mark."""

    def mark(self) -> str:
        """A digest over the present paths and contents."""
        self._last = {path: self._read_entry(path, entry) for path, entry in self._files()}
        whole = blake2b(digest_size=16)
        for path in sorted(self._last):
            _, _, is_program, digest = self._last[path]
            whole.update(f"{path}\0{is_program}{digest}\0".encode(errors="surrogateescape"))
        mark = whole.hexdigest()
        self._states[mark] = self._last
        self._start = self._start or mark
        return mark

    def change(self, before: str, after: str) -> TreeChange:
        old, new = self._states[before], self._states[after]
        return TreeChange(
            added=tuple(sorted(new.keys() - old.keys())),
            modified=tuple(sorted(p for p in new.keys() & old.keys() if new[p][2:] != old[p][2:])),
            deleted=tuple(sorted(old.keys() - new.keys())),
        )

    def keep(self, name: str, message: str, deadline: Deadline | None = None) -> SavedWork:
        """Pack what differs from the first mark into an archive, and return how to unpack it."""
        del message
        mark = self.mark()
        change = self.change(self._start or mark, mark)
        target = self._notes / f"{name}.tar.gz"
        place, left_out = save_archive(
            self._folder, (*change.added, *change.modified), target, deadline or Deadline(SAVE_S)
        )
        unread = (LeftOut(path, "could not be read") for path in self._unread)
        return SavedWork(how_to_unpack(place), (*left_out, *unread))

    def lines_since_start(self, deadline: Deadline | None = None) -> tuple[int, int] | None:
        del deadline
        return None

    def _files(self) -> list[tuple[str, os.DirEntry[str]]]:
        found: list[tuple[str, os.DirEntry[str]]] = []
        self._unread = []
        folders = [""]
        while folders:
            here = folders.pop()
            try:
                entries = list(os.scandir(self._folder / here))
            except OSError:
                if not here:
                    raise  # nothing can be measured
                self._unread.append(here)
                continue
            for entry in entries:
                path = f"{here}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        folders.append(f"{path}/")
                elif path not in self._own_output:
                    found.append((path, entry))
        return found

    def _read_entry(self, path: str, entry: os.DirEntry[str]) -> _File:
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:
            return _File(-1, -1, False, "gone")
        known, identity = self._last.get(path), (stat.st_size, stat.st_mtime_ns)
        is_program = bool(stat.st_mode & S_IXUSR) and not entry.is_symlink()
        if known is not None and known[:2] == identity:
            return known._replace(is_program=is_program)
        return _File(*identity, is_program, _digest(entry, stat))


def _digest(entry: os.DirEntry[str], stat: os.stat_result) -> str:
    if entry.is_symlink():
        return f"-> {os.readlink(entry.path)}"  # noqa: PTH115  an entry is not a Path
    if stat.st_size > HASHED_BYTES or not entry.is_file(follow_symlinks=False):
        return f"{stat.st_size} {stat.st_mtime_ns}"
    try:
        with open(entry.path, "rb") as file:  # noqa: PTH123  an entry is not a Path
            return blake2b(file.read(), digest_size=16).hexdigest()
    except OSError:
        return f"{stat.st_size} {stat.st_mtime_ns}"


def unmeasurable(tree: Tree) -> Exception | None:
    """Why the folder cannot be measured now; `None`: it can."""
    too_slow = getattr(tree, "too_slow", None)
    if isinstance(too_slow, GitError):
        return too_slow  # another attempt would take as long
    try:
        tree.mark()
    except (GitError, OSError) as error:
        return error
    return None


def mark(tree: Tree) -> str | None:
    """The state of the folder now; `None`: it cannot be measured."""
    try:
        return tree.mark()
    except (GitError, OSError):
        return None
