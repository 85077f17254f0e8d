"""Saves work: as archives, as input of `git fast-import`, and as remembered references.

An agent that deletes `refs/switchgear/…` would make its partial work unreachable. So the commit of each
reference is also saved in the user's state folder, and a second reference keeps git from pruning the
objects.
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
"""Time limit for saving, in seconds."""
MAX_FILE_BYTES = 100_000_000
"""Maximum size of a saved file; larger ones are reported as not saved."""
MAX_SAVE_BYTES = 2_000_000_000
"""Maximum size of all files of one save."""
_MAX_NAMES = 5
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LeftOut(NamedTuple):
    """A path that was not saved, and why."""

    path: str
    why: str


class SavedWork(NamedTuple):
    """The command that shows or unpacks saved work, and what was left out."""

    how: str
    left_out: tuple[LeftOut, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The paths that were left out, as one sentence for each reason."""
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
    seen: set[int] = set()  # an error that is raised again may be its own cause
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def means_disk_full(text: str) -> bool:
    """Whether a program's message means that a disk is full."""
    return any(os.strerror(number).lower() in text.lower() for number in FULL)


def choose(folder: Path, paths: Iterable[str]) -> tuple[list[ArchiveEntry], list[LeftOut]]:
    """Split paths into those that can be saved, smallest first, and others: pipes, devices, huge files."""
    entries: list[ArchiveEntry] = []
    left_out: list[LeftOut] = []
    for path in paths:
        try:
            found = (folder / path).lstat()
        except OSError:
            continue  # removed in the meantime
        kind = found.st_mode
        if stat.S_ISLNK(kind):
            entries.append(ArchiveEntry(path, "120000", 0))
        elif not stat.S_ISREG(kind):
            left_out.append(LeftOut(path, "not a regular file"))
        elif found.st_size > MAX_FILE_BYTES:
            left_out.append(LeftOut(path, f"larger than {MAX_FILE_BYTES // 1_000_000} MB"))
        else:
            mode = "100755" if kind & stat.S_IXUSR else "100644"
            entries.append(ArchiveEntry(path, mode, found.st_size))
    entries.sort(key=lambda entry: (entry.size, entry.path))
    return entries, left_out


def contents(
    folder: Path, entries: Sequence[ArchiveEntry], left_out: list[LeftOut], deadline: Deadline
) -> Iterator[tuple[ArchiveEntry, bytes]]:
    """Yields entries with their content, up to the time or size limit; other paths are added to `left_out`."""
    total = 0
    for at, entry in enumerate(entries):
        if deadline.is_over or total + entry.size > MAX_SAVE_BYTES:
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
    """The content of a file, or the target of a link. Raises OSError, also if it is now of another type."""
    path = folder / entry.path
    if entry.mode == "120000":
        return os.fsencode(path.readlink())
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_FILE_BYTES // 1_000_000} MB")
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
    """Yields the target, then paths on other file systems that may have space."""
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
    left_out: list[LeftOut],
    deadline: Deadline,
) -> None:
    import io  # noqa: PLC0415  only at the end of a run
    import tarfile  # noqa: PLC0415

    part = place.with_name(f".{place.name}.{os.getpid()}")
    packed: set[str] = set()
    try:
        with tarfile.open(part, "x:gz", compresslevel=1) as archive:
            for entry, data in contents(folder, entries, left_out, deadline):
                info = tarfile.TarInfo(entry.path)
                info.mode = 0o755 if entry.mode == "100755" else 0o644
                if entry.mode == "120000":
                    info.type, info.linkname = tarfile.SYMTYPE, os.fsdecode(data)
                    archive.addfile(info)
                else:
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
                packed.add(entry.path)
        if deadline.cancelled:
            raise TimeIsUp("saving was cancelled")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        with tarfile.open(part, "r:gz") as archive:  # read it back: all of it can be unpacked
            found = {info.name for info in archive}
        left_out += [LeftOut(path, "not in the archive") for path in sorted(packed - found)]
        part.replace(place)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_stream(
    stream: IO[bytes],
    folder: Path,
    entries: Sequence[ArchiveEntry],
    left_out: list[LeftOut],
    deadline: Deadline,
) -> Iterator[tuple[ArchiveEntry, bytes]]:
    """Write entries as input for `git fast-import`, and yield each one that was written."""
    for entry, data in contents(folder, entries, left_out, deadline):
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
    shown = ", ".join(paths[:_MAX_NAMES])
    more = len(paths) - _MAX_NAMES
    return f"{plural(len(paths), 'file')}: {shown}" + (f" and {more} more" if more > 0 else "")


def own_output(folder: Path, notes: Path) -> frozenset[str]:
    """The files below a folder that receive Switchgear's output, as in `switchgear run > night.log`.

    Paths are as git writes them. Detected on Linux only. Those of earlier processes are saved in `notes`,
    because a resumed run may print to another file.
    """
    root = folder.resolve()
    targets = (_target(descriptor) for descriptor in (1, 2))
    now = frozenset(
        target.relative_to(root).as_posix()
        for target in targets
        if target is not None and target.is_relative_to(root) and target.is_file()
    )
    file = notes / "own_output.json"
    before = _read(file)
    if not now <= before:
        notes.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(sorted(before | now)), encoding="ascii")
    return before | now


def _target(descriptor: int) -> Path | None:
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:
        return None


def _read(file: Path) -> frozenset[str]:
    with suppress(OSError, ValueError):
        listed = json.loads(file.read_text(encoding="ascii"))
        return frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()
    return frozenset()


# Paths are texts here, as in the hooks that read this.
# ruff: noqa: PTH113, PTH118, PTH120, PTH123

PREFIX, KEPT = "refs/switchgear/", "refs/switchgear-kept/"
MAX_REFS = 500
"""Maximum number of remembered references of a repository; the oldest are dropped first."""
_LARGEST = 1_000_000


def common_dir(folder: str) -> str | None:
    """The real path of the folder with the references of the repository around `folder`; `None`: there is none."""
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
    """The folder with the references, also for a worktree or a submodule."""
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
    """Remember a reference to saved work. Never raises: the work itself is already saved."""
    git = common_dir(folder)
    if git is None or not reference.startswith(PREFIX):
        return
    refs = {name: value for name, value in remembered_refs(git).items() if name != reference}
    write_refs(git, {**refs, reference: commit})


def write_refs(git: str, refs: dict[str, str]) -> None:
    """Replace the remembered references of a repository."""
    newest = dict(list(refs.items())[-MAX_REFS:])
    with suppress(OSError):
        write_private(_place(git), json.dumps({"git": git, "refs": newest}).encode())


def remembered_refs(git: str) -> dict[str, str]:
    """The remembered references of a repository, with their commits."""
    try:
        data: Any = json.loads(read_private(_place(git), _LARGEST) or b"null")
        found = {str(name): str(value) for name, value in data["refs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return found if data.get("git") == git else {}


def _place(git: str) -> str:
    key = sha256(git.encode(errors="surrogateescape")).hexdigest()[:32]
    return os.path.join(state_folder("guard", "refs"), f"{key}.json")
