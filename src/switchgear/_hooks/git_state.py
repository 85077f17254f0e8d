"""Determines which of the guard's files a git command would discard: untracked, ignored or modified files.

`git clean -fd` deletes a settings file that was installed a minute ago and is not committed yet, but keeps a
tracked one. Only git's index distinguishes them. The size of every read is limited. If the index cannot be read,
is too large or has an unknown format, a command that discards any files is assumed to discard the guard's.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

from switchgear._rules.patterns import is_glob, path_matches, word_list
from switchgear._system.files import read_regular

MAX_INDEX_BYTES = 64_000_000
"""A larger index is not read. One of half a million files is smaller."""
MAX_PATH_BYTES = 16_384
"""Longer paths in the index are invalid: parsing a small file of version 4 could take hours otherwise."""
MAX_IGNORE_BYTES = 100_000
MAX_FILE_BYTES = 1_000_000
_FILES = word_list("""
    switchgear.yaml switchgear.yml switchgear.toml .claude/settings.json .claude/settings.local.json
    .codex/config.toml .codex/hooks.json .gemini/settings.json .qwen/settings.json opencode.json
    .pi/settings.json
""")
_FOLDERS = word_list(".switchgear .claude/hooks .opencode/plugin .opencode/plugins .pi/extensions")
GIT_TIMEOUT_S = 2.0
"""Seconds to wait for git to list the last commit."""
MAX_FILES = 50
"""Maximum number of files of one folder that are checked."""
_EXTENDED, _STAGE, _LENGTH = 0x4000, 0x3000, 0xFFF
"""The bits of an index entry's flags: it has extended flags, it is part of a merge conflict, its path's length."""


def discarded_file(sweeps: Sequence[str], root: str) -> str:
    """The first of the guard's files in the project that a command would discard; empty: none.

    `sweeps` are the files that the command discards, each `kind:folder`. The kinds are `untracked`, `ignored`,
    `modified`, `uncommitted` and `tracked`; the folder may be a glob.
    """
    project = _project(root)
    if not project:
        return ""
    ignored = _ignored_names(project)
    tracked = committed = None
    relative = {name: os.path.relpath(f"{root}/{name}", project) for name in _present_files(root)}
    for name, in_project in relative.items():
        path = os.path.join(root, name)
        kinds = (each.partition(":") for each in sweeps)
        matching = [what for what, _, where in kinds if _is_in(path, where)]
        if not matching:
            continue
        if tracked is None:
            index = os.path.join(_git_folder(project), "index")
            tracked = _tracked_digests(index, set(map(os.fsencode, relative.values())))
        if tracked is None:
            return name
        kind = _kind(in_project, path, tracked, ignored)
        if kind in matching or (kind in {"", "modified"} and "tracked" in matching):
            return name
        if not kind and "uncommitted" in matching:
            committed = _committed_digests(root) if committed is None else committed
            if committed.get(in_project) != _blob_digest(path).hex():
                return name
    return ""


def _is_in(path: str, folder: str) -> bool:
    if is_glob(folder):
        return path_matches(folder, path) or path_matches(f"{folder}/**", path)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _committed_digests(root: str) -> dict[str, str]:
    """The guard's files below `root` in the last commit: their paths in git and the digests of their contents."""
    from pathlib import Path  # noqa: PLC0415  only if a tracked file may be discarded

    from switchgear._measure.git_command import Deadline, GitError, run_git  # noqa: PLC0415

    words = ["ls-tree", "-rz", "--full-name", "HEAD", "--", *_FILES, *_FOLDERS]
    try:
        listed = run_git(Path(root), words, deadline=Deadline(GIT_TIMEOUT_S))
    except GitError:
        return {}
    found: dict[str, str] = {}
    for line in listed.split("\0"):
        facts, _, name = line.partition("\t")
        found[name] = facts.rpartition(" ")[2]
    return found


def _project(root: str) -> str:
    """The nearest folder with a `.git`, at or above a folder; empty: there is none."""
    folder = os.path.abspath(root)
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def _git_folder(project: str) -> str:
    path = os.path.join(project, ".git")
    if os.path.isdir(path):
        return path
    named = _read(path, 4096).decode(errors="replace").partition("gitdir:")[2].strip()
    return os.path.join(project, named) if named else path


def _present_files(root: str) -> Iterator[str]:
    """The existing files of the guard, relative to the project's root."""
    for name in _FILES:
        if os.path.lexists(os.path.join(root, name)):
            yield name
    for folder in _FOLDERS:
        try:
            found = sorted(os.listdir(os.path.join(root, folder)))[:MAX_FILES]
        except OSError:
            continue
        yield from (f"{folder}/{name}" for name in found)


def _kind(name: str, path: str, tracked: Mapping[bytes, bytes], ignored: frozenset[str]) -> str:
    """`untracked`, `ignored`, `modified`, or empty for a tracked, unmodified file."""
    recorded = tracked.get(os.fsencode(name))
    if recorded is None:
        parts = name.split("/")
        above = {"/".join(parts[:length]) for length in range(1, len(parts) + 1)}
        in_ours = ".switchgear" in parts and os.path.exists(
            os.path.join(path[: path.index(".switchgear")], ".switchgear", ".gitignore")
        )
        return "ignored" if in_ours or above & ignored or parts[-1] in ignored else "untracked"
    return "" if recorded == _blob_digest(path) else "modified"


def _tracked_digests(path: str, paths: set[bytes]) -> dict[bytes, bytes] | None:
    """The digests that git's index has for these files, by path; `None`: unreadable, unknown format, or split."""
    if not os.path.lexists(path):
        return {}  # nothing was ever added
    index = _read(path, MAX_INDEX_BYTES)
    for digest_size in (20, 32):  # SHA-1, SHA-256
        try:
            return {name: found for name, found in _entries(index, digest_size) if name in paths}
        except (IndexError, ValueError):
            continue
    return None


def _entries(index: bytes, digest_size: int) -> Iterator[tuple[bytes, bytes]]:
    """The path and the digest of each entry; of a file with a merge conflict, no digest. Raises ValueError.

    An entry has 40 bytes of facts, the digest, two bytes of flags with the length of the path, in some entries
    two bytes of extended flags, and the path. Version 4 of the format leaves out the beginning of a path that
    is also that of the path before.
    """
    version, count = int.from_bytes(index[4:8], "big"), int.from_bytes(index[8:12], "big")
    if index[:4] != b"DIRC" or version not in {2, 3, 4}:
        raise ValueError
    at, path = 12, b""
    for _ in range(count):
        flags_at = at + 40 + digest_size
        flags = int.from_bytes(index[flags_at : flags_at + 2], "big")
        start, shared = flags_at + (4 if flags & _EXTENDED else 2), 0
        if version == 4:
            dropped, start = _read_number(index, start)
            shared = len(path) - dropped
        end = index.index(b"\0", start)
        path = path[:shared] + index[start:end]
        is_valid = 0 <= shared <= len(path) <= MAX_PATH_BYTES
        if not is_valid or flags & _LENGTH != min(len(path), _LENGTH):
            raise ValueError  # damaged, or digests of another size
        yield path, b"" if flags & _STAGE else index[at + 40 : flags_at]
        at = end + 1 if version == 4 else at + (end - at) // 8 * 8 + 8
    if index[at : at + 4] == b"link":
        raise ValueError  # a split index: most entries are in another file


def _read_number(index: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, seven bits per byte, and the position after it."""
    number = index[at] & 0x7F
    while index[at] & 0x80:
        at += 1
        number = (number + 1) << 7 | index[at] & 0x7F
    return number, at + 1


def _blob_digest(path: str) -> bytes:
    from hashlib import sha1  # noqa: PLC0415  only if a tracked file may be discarded

    data = _read(path, MAX_FILE_BYTES)
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()


def _ignored_names(project: str) -> frozenset[str]:
    """The plain names and paths that the project's ignore files list."""
    found: set[str] = set()
    for path in (
        os.path.join(project, ".gitignore"),
        os.path.join(_git_folder(project), "info", "exclude"),
        os.path.expanduser("~/.config/git/ignore"),
    ):
        for line in _read(path, MAX_IGNORE_BYTES).decode(errors="replace").splitlines():
            plain = line.strip().removeprefix("**/").strip("/").removesuffix("/*")
            if plain and not plain.startswith(("#", "!")):
                found.add(plain.removesuffix("/**"))
    return frozenset(found)


def _read(path: str, max_bytes: int) -> bytes:
    """The content of a file; empty if it is larger than `max_bytes` or cannot be read."""
    try:
        data = read_regular(path, max_bytes + 1)
    except (OSError, ValueError):
        return b""
    return data if len(data) <= max_bytes else b""
