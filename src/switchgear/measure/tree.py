"""The state of a working folder, to compare before and after: what changed, committed or not."""

import os
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Protocol

from switchgear.measure.git import Git, GitTree
from switchgear.measure.own_output import own_output

OURS = ".switchgear"
SKIPPED = frozenset({OURS, ".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv"})
"""Folders that are never somebody's progress, for working folders outside git."""
HASHED_BYTES = 1_000_000
"""Larger files count as changed when their size or time did; smaller ones when their content did."""


class Change(NamedTuple):
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
        return bool(self.added or self.modified or self.deleted)


class Tree(Protocol):
    """A folder whose states can be marked and compared. Marks are short texts, fit for a file."""

    def mark(self) -> str:
        """The state now."""

    def change(self, before: str, after: str) -> Change:
        """What differs between two marks of this tree."""

    def keep(self, mark: str, name: str, message: str) -> str:
        """Keep a state for good, and say how to get at it."""

    def lines_since_start(self) -> tuple[int, int] | None:
        """Lines added and removed since the first mark; `None`: nobody can tell."""


def open_tree(folder: Path, notes: Path) -> Tree:
    """The tree of a folder: by git where it is a repository, else by looking at every file.

    `notes` is a folder of ours for what must be remembered between iterations.
    """
    git = Git.find(folder)
    if git is None:
        return PlainTree(folder, notes)
    return GitTree(git, folder, notes)


class _File(NamedTuple):
    size: int
    mtime_ns: int
    digest: str


class PlainTree:
    """A folder outside git. Small files are compared by content; each is read again only if touched."""

    def __init__(self, folder: Path, notes: Path) -> None:
        self._folder = folder
        self._notes = notes
        self._own_output = own_output(folder, notes)
        self._states: dict[str, dict[str, _File]] = {}
        self._last: dict[str, _File] = {}
        self._start: str | None = None

    def mark(self) -> str:
        """The state now: a digest over paths and contents."""
        self._last = {path: self._look_at(path, entry) for path, entry in self._files()}
        whole = blake2b(digest_size=16)
        for path in sorted(self._last):
            whole.update(f"{path}\0{self._last[path].digest}\0".encode(errors="surrogateescape"))
        mark = whole.hexdigest()
        self._states[mark] = self._last
        self._start = self._start or mark
        return mark

    def change(self, before: str, after: str) -> Change:
        """What differs between two marks made by this object."""
        old, new = self._states[before], self._states[after]
        return Change(
            added=tuple(sorted(new.keys() - old.keys())),
            modified=tuple(
                sorted(p for p in new.keys() & old.keys() if new[p].digest != old[p].digest)
            ),
            deleted=tuple(sorted(old.keys() - new.keys())),
        )

    def keep(self, mark: str, name: str, message: str) -> str:
        """Pack what differs from the first mark into an archive, and say how to unpack it."""
        import tarfile  # noqa: PLC0415  only at the end of a run

        del message
        change = self.change(self._start or mark, mark)
        target = self._notes / f"{name}.tar.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target, "w:gz") as archive:
            for path in (*change.added, *change.modified):
                if (self._folder / path).exists():
                    archive.add(self._folder / path, arcname=path, recursive=False)
        return f"tar -xzf {target}"

    def lines_since_start(self) -> tuple[int, int] | None:
        """Nobody can tell: the old contents are gone."""
        return None

    def _files(self) -> list[tuple[str, os.DirEntry[str]]]:
        found: list[tuple[str, os.DirEntry[str]]] = []
        folders = [""]
        while folders:
            here = folders.pop()
            try:
                entries = list(os.scandir(self._folder / here))
            except OSError:
                continue  # gone, or not ours to read: then no change of it can be seen either
            for entry in entries:
                path = f"{here}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        folders.append(f"{path}/")
                elif path not in self._own_output:
                    found.append((path, entry))
        return found

    def _look_at(self, path: str, entry: os.DirEntry[str]) -> _File:
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:
            return _File(-1, -1, "gone")
        known = self._last.get(path)
        if known is not None and (known.size, known.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
            return known
        return _File(stat.st_size, stat.st_mtime_ns, _digest(entry, stat))


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
