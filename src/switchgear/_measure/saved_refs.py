"""How work is saved: as archives, as input of `git fast-import`, and which references hold it.

An agent that deletes `refs/switchgear/…` would delete the only way to its partial work. The value of
each reference is kept in the user's state folder, and a second reference keeps the objects
from being pruned.
"""

import errno
import json
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple

from switchgear._measure.git_command import Deadline, TimeIsUp
from switchgear._system.files import read_private, state_folder, write_private
from switchgear._text.formats import plural

SAVE_S = 120.0
"""What saving may take, however large the folder is."""
LARGEST_FILE = 100_000_000
"""Bytes of one file that is saved; a larger one is named as missing."""
LARGEST_SAVE = 2_000_000_000
"""Bytes of all files of one save."""
_NAMED = 5
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LeftOut(NamedTuple):
    """A path that is not in what was saved, and why."""

    path: str
    why: str


class SavedWork(NamedTuple):
    """What was saved: the command that shows or unpacks it, and what it does not hold."""

    how: str
    left_out: tuple[LeftOut, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing, in sentences: one for each reason."""
        by_reason: dict[str, list[str]] = {}
        for path, why in self.left_out:
            by_reason.setdefault(why, []).append(path)
        return tuple(
            f"not saved ({why}): {_names(paths)}" for why, paths in sorted(by_reason.items())
        )


class NotSaved(Exception):
    """Nothing could be saved, with the reason."""


class ArchiveEntry(NamedTuple):
    path: str
    mode: str
    """As git writes it: 100644, 100755 or 120000."""
    size: int


def is_full(error: BaseException | None) -> bool:
    """Whether an error means that the disk is full."""
    seen: set[int] = set()
    while (
        error is not None and id(error) not in seen
    ):  # an error that is raised again may cause itself
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def means_disk_full(text: str) -> bool:
    """Whether a program's message means that a disk is full."""
    return any(os.strerror(number).lower() in text.lower() for number in FULL)


def choose(folder: Path, paths: Iterable[str]) -> tuple[list[ArchiveEntry], list[LeftOut]]:
    """What can be saved, the smallest first, and what cannot: pipes, sockets, devices, huge files."""
    entries: list[ArchiveEntry] = []
    left_out: list[LeftOut] = []
    for path in paths:
        try:
            found = (folder / path).lstat()
        except OSError:
            continue  # gone in the meantime
        kind = found.st_mode
        if stat.S_ISLNK(kind):
            entries.append(ArchiveEntry(path, "120000", 0))
        elif not stat.S_ISREG(kind):
            left_out.append(LeftOut(path, "not a regular file"))
        elif found.st_size > LARGEST_FILE:
            left_out.append(LeftOut(path, f"larger than {LARGEST_FILE // 1_000_000} MB"))
        else:
            mode = "100755" if kind & stat.S_IXUSR else "100644"
            entries.append(ArchiveEntry(path, mode, found.st_size))
    entries.sort(key=lambda entry: (entry.size, entry.path))
    return entries, left_out


def contents(
    folder: Path, entries: Sequence[ArchiveEntry], left_out: list[LeftOut], deadline: Deadline
) -> Iterator[tuple[ArchiveEntry, bytes]]:
    """The entries with what they hold, until the time or size limit; paths that are missed are added to `left_out`."""
    total = 0
    for at, entry in enumerate(entries):
        if deadline.is_over or total + entry.size > LARGEST_SAVE:
            why = "no time was left" if deadline.is_over else "the save would be too large"
            left_out += [LeftOut(each.path, why) for each in entries[at:]]
            return
        try:
            data = read_entry(folder, entry)
        except OSError as error:
            left_out.append(LeftOut(entry.path, error.strerror or str(error)))
            continue
        total += len(data)
        yield entry, data


def read_entry(folder: Path, entry: ArchiveEntry) -> bytes:
    """What a file or a link holds. Raises OSError, also if it is another kind of thing by now."""
    path = folder / entry.path
    if entry.mode == "120000":
        return os.fsencode(path.readlink())
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise OSError(errno.EFBIG, f"larger than {LARGEST_FILE // 1_000_000} MB")
    return data


def save_archive(
    folder: Path, paths: Iterable[str], target: Path, deadline: Deadline
) -> tuple[Path, tuple[LeftOut, ...]]:
    """Pack paths into an archive, elsewhere if the disk of `target` is full. Raises `NotSaved`."""
    entries, left_out = choose(folder, paths)
    problem: OSError | None = None
    for place in _places(target):
        missed = list(left_out)
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _pack(folder, entries, place, missed, deadline)
        except TimeIsUp as error:
            raise NotSaved(str(error)) from None
        except OSError as error:
            problem = error
            continue
        return place, tuple(missed)
    raise NotSaved(f"no archive could be written: {problem}") from problem


def how_to_unpack(archive: Path) -> str:
    """The command that unpacks an archive, for a shell."""
    return f"tar -xzf {shlex.quote(str(archive))}"


def _places(target: Path) -> Iterator[Path]:
    """The target, then other file systems that may have space."""
    yield target
    home = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    name = f"switchgear-{os.getuid()}"
    for root in (tempfile.gettempdir(), "/var/tmp", "/dev/shm", home):  # noqa: S108  a folder of our own
        folder = Path(root) / name
        if Path(root).is_dir() and not folder.is_symlink():
            yield folder / f"{target.parent.name}-{target.name}"


def _pack(
    folder: Path,
    entries: list[ArchiveEntry],
    place: Path,
    missed: list[LeftOut],
    deadline: Deadline,
) -> None:
    import io  # noqa: PLC0415  only at the end of a run
    import tarfile  # noqa: PLC0415

    part = place.with_name(f".{place.name}.{os.getpid()}")
    packed: set[str] = set()
    try:
        with tarfile.open(part, "x:gz", compresslevel=1) as archive:
            for entry, data in contents(folder, entries, missed, deadline):
                about = tarfile.TarInfo(entry.path)
                about.mode = 0o755 if entry.mode == "100755" else 0o644
                if entry.mode == "120000":
                    about.type, about.linkname = tarfile.SYMTYPE, os.fsdecode(data)
                    archive.addfile(about)
                else:
                    about.size = len(data)
                    archive.addfile(about, io.BytesIO(data))
                packed.add(entry.path)
        if deadline.cancelled:
            raise TimeIsUp("saving was cancelled")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        with tarfile.open(part, "r:gz") as archive:  # read back: the whole of it can be unpacked
            found = {about.name for about in archive}
        missed += [LeftOut(path, "not in the archive") for path in sorted(packed - found)]
        part.replace(place)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_stream(
    stream: IO[bytes],
    folder: Path,
    entries: Sequence[ArchiveEntry],
    missed: list[LeftOut],
    deadline: Deadline,
) -> Iterator[tuple[ArchiveEntry, bytes]]:
    """Write entries as `git fast-import` reads them, and yield each as it was written."""
    for entry, data in contents(folder, entries, missed, deadline):
        mode, path = entry.mode.encode(), quoted(entry.path)
        stream.write(b"M %s inline %s\ndata %d\n" % (mode, path, len(data)))
        stream.write(data)
        stream.write(b"\n")
        yield entry, data


def quoted(path: str) -> bytes:
    """A path as `git fast-import` reads any path."""
    raw = path.encode(errors="surrogateescape")
    return (
        b'"' + re.sub(rb'["\\\x00-\x1f\x7f-\xff]', lambda odd: b"\\%03o" % ord(odd[0]), raw) + b'"'
    )


def free_bytes(folder: Path) -> int | None:
    """Free disk space at a folder, in bytes; `None`: unknown."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.free if usage.total else None


def _names(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_NAMED])
    more = len(paths) - _NAMED
    return f"{plural(len(paths), 'file')}: {shown}" + (f" and {more} more" if more > 0 else "")


def own_output(folder: Path, notes: Path) -> frozenset[str]:
    """Files below a folder that Switchgear's standard output or error goes to, as `switchgear run > night.log`.

    Paths as git writes them. Known only on Linux; elsewhere there are none.
    `notes` remembers those of the processes before: a resumed run may print elsewhere.
    """
    root = folder.resolve()
    targets = (_target(descriptor) for descriptor in (1, 2))
    now = frozenset(
        target.relative_to(root).as_posix()
        for target in targets
        if target is not None and target.is_relative_to(root) and target.is_file()
    )
    kept = notes / "own_output.json"
    before = _read(kept)
    if not now <= before:
        notes.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(sorted(before | now)), encoding="ascii")
    return before | now


def _target(descriptor: int) -> Path | None:
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:
        return None


def _read(kept: Path) -> frozenset[str]:
    with suppress(OSError, ValueError):
        listed = json.loads(kept.read_text(encoding="ascii"))
        return frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()
    return frozenset()


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
            return _common_git_folder(found)
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above


def _common_git_folder(git: str) -> str | None:
    """The folder that holds the references, of a worktree or a submodule too."""
    try:
        if os.path.isfile(git):
            with open(git, encoding="utf-8") as file:
                target = file.read(4096).strip().removeprefix("gitdir:").strip()
            git = os.path.join(os.path.dirname(git), target)
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
    with suppress(OSError):
        write_private(_place(git), json.dumps({"git": git, "refs": kept}).encode())


def remembered_refs(git: str) -> dict[str, str]:
    """The references that hold saved work of a repository, and their commits."""
    try:
        data: Any = json.loads(read_private(_place(git), _LARGEST) or b"null")
        found = {str(name): str(value) for name, value in data["refs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return found if data.get("git") == git else {}


def _place(git: str) -> str:
    key = sha256(git.encode(errors="surrogateescape")).hexdigest()[:32]
    return os.path.join(state_folder("guard", "refs"), f"{key}.json")
