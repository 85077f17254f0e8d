"""The state of a folder as a git bundle: packed where the batch runs, unpacked where the agent works.

A parcel holds one commit: its tree is the folder as it is, committed or not. It is HEAD, or a child of HEAD
where something is uncommitted. What comes back from a worker is applied to the folder only if the folder is
still as it was packed.
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from switchgear._core.errors import SwitchgearError
from switchgear._measure.git_command import (
    Git,
    GitError,
    conflicts_in,
    find_repository,
    operation_of,
    run_git,
)
from switchgear._measure.saved_refs import NotSaved
from switchgear._measure.tree import open_tree
from switchgear._remote.job import Parcel
from switchgear._text.redact import redact

REFERENCE = "refs/switchgear/transfer"
BRANCH = "switchgear-work"
DETACHED = "(detached)"
"""Git's name for HEAD while no branch is checked out."""
FEW_OBJECTS = 100
"""A parcel with fewer objects is unpacked to single files, because every pack slows git down."""
MAX_STARTS = 4
"""Maximum number of unpacked parcels that a worker keeps."""
_IDENTITY = ("-c", "user.name=switchgear", "-c", "user.email=switchgear@localhost")


class TransferError(SwitchgearError):
    """A folder that could not be packed, unpacked or updated: what, and why."""


class FolderBusyError(TransferError):
    """A folder in which an operation of the user is in progress, or that has conflicts: what to do."""


class Snapshot(NamedTuple):
    commit: str
    """The commit whose tree is the folder; HEAD itself if nothing is uncommitted."""
    head: str
    top: Path
    branch: str
    """The branch that is checked out; `DETACHED`: none."""

    @property
    def is_clean(self) -> bool:
        return self.commit == self.head


def snapshot(folder: Path, name: str) -> Snapshot:
    """Commit the state of the folder to `refs/switchgear/transfer/NAME`, if something is uncommitted.

    The user's index is not touched. Raises `FolderBusyError` in the middle of an operation of the user.
    """
    found = find_repository(folder)
    if found is None:
        raise TransferError(
            f"{folder} is not in a git repository: its work cannot move to another host"
        )
    git = Git(found.top, found.git_dir)
    try:
        if operation := operation_of(found):
            raise FolderBusyError(operation)
        head, branch, is_clean = _status(git)
        if is_clean:
            return Snapshot(head, head, git.top, branch)
        commit = _committed(git, head)
        git("update-ref", "--no-deref", f"{REFERENCE}/{name}", commit)
    except (GitError, OSError) as error:
        raise TransferError(f"{folder} could not be packed: {error}") from error
    return Snapshot(commit, head, git.top, branch)


def _status(git: Git) -> tuple[str, str, bool]:
    """HEAD, its branch, and whether nothing is uncommitted. Raises `TransferError` before the first commit."""
    arguments = ["--porcelain=v2", "--branch", "--untracked-files=all", "--ignore-submodules=none"]
    lines = git("status", *arguments).splitlines()
    facts = dict(line[2:].partition(" ")[::2] for line in lines if line.startswith("# "))
    head = facts.get("branch.oid", "(initial)")
    if head == "(initial)":
        raise TransferError(f"{git.top} has no commit yet: its work cannot move to another host")
    if any(line.startswith("u ") for line in lines):
        raise FolderBusyError(conflicts_in(git.top))
    is_clean = all(line.startswith("# ") for line in lines)
    return head, facts.get("branch.head", ""), is_clean


def _committed(git: Git, head: str) -> str:
    with tempfile.TemporaryDirectory(prefix="switchgear-") as place:
        index = Path(place) / "index"
        if (git.git_dir / "index").is_file():
            # With the index and its time, git need not read every file.
            shutil.copy2(git.git_dir / "index", index)
        git("add", "--all", ":/", index=index)
        tree = git("write-tree", index=index).strip()
    return git(*_IDENTITY, "commit-tree", tree, "-p", head, "-m", "switchgear transfer").strip()


def saved(folder: Path, notes: Path, name: str) -> str:
    """Commit the state of an agent's folder to `refs/switchgear/NAME`. Returns the commit.

    Filters and attributes that the agent sets cannot hide its work.
    """
    try:
        work = open_tree(folder, notes).keep(name, f"switchgear {name}")
        if not work.how.startswith("git "):
            why = "; ".join(work.notes) or "git could not save its state"
            raise TransferError(f"{folder} could not be packed: {why}")
        return run_git(folder, ["rev-parse", "--verify", f"refs/switchgear/{name}"]).strip()
    except (GitError, NotSaved, OSError) as error:
        raise TransferError(f"{folder} could not be packed: {error}") from error


def drop(folder: Path, names: Iterable[str]) -> None:
    """Remove snapshots. Idempotent."""
    for name in names:
        with suppress(GitError):
            run_git(folder, ["update-ref", "--no-deref", "-d", f"{REFERENCE}/{name}"])


def bundled(folder: Path, reference: str, *, without: tuple[str, ...] = ()) -> bytes:
    """A bundle with the commit of a reference, without the commits that the receiver has."""
    known = [f"^{each}" for each in without]
    with tempfile.TemporaryDirectory(prefix="switchgear-") as place:
        file = Path(place) / "bundle"
        try:
            run_git(folder, ["bundle", "create", "--quiet", str(file), reference, *known])
        except GitError as error:
            raise TransferError(f"{folder} could not be packed: {error}") from error
        return file.read_bytes()


def unpack(bundle: bytes, folder: Path, parcel: Parcel, repository: str = "") -> None:
    """Create a repository in the folder with the packed state.

    HEAD is the packed HEAD and the index is clean, so that uncommitted changes are uncommitted again.
    With a `repository`, its commits are fetched first: the bundle may build on them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    try:
        run_git(folder, ["init", "--quiet", "--template=", "--initial-branch", BRANCH])
        if repository:
            _fetch_commits(folder, repository)
        receive(bundle, folder, parcel.reference, f"{REFERENCE}/start")
        _check_out(folder, parcel)
    except GitError as error:
        raise TransferError(f"the work could not be unpacked in {folder}: {error}") from error


def _fetch_commits(folder: Path, repository: str) -> None:
    run_git(folder, ["remote", "add", "origin", repository])
    try:
        run_git(folder, ["fetch", "--quiet", "--no-tags", "origin"])
    except GitError as error:
        why = str(error).removeprefix(f"git fetch in {folder}: ")  # the cause fits into one line
        raise TransferError(f"{redact(repository)} could not be fetched: {why}") from error


def _check_out(folder: Path, parcel: Parcel) -> None:
    commit = parcel.commit
    run_git(folder, ["checkout", "--quiet", "--force", "-B", BRANCH, commit])
    if parcel.head != commit:
        run_git(folder, ["reset", "--quiet", "--mixed", parcel.head])
        _announce_ignored(folder)


def _announce_ignored(folder: Path) -> None:
    """Add packed files that git ignores here to the index as intended: otherwise they would count as deleted.

    Such files were added by force and never committed, or only this host ignores them.
    """
    listed = run_git(folder, ["ls-files", "-z", "--others", "--ignored", "--exclude-standard"])
    if listed:
        named = ["--pathspec-from-file=-", "--pathspec-file-nul"]
        literal = {"GIT_LITERAL_PATHSPECS": "1"}
        run_git(folder, ["add", "--force", "--intent-to-add", *named], stdin=listed, env=literal)


class UnpackedStarts:
    """Unpacks parcels, and keeps the latest repositories, because many tasks start from one commit.

    Thread-safe. Each folder gets its own copy, so that no agent can change the start of another task.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()

    def unpack(
        self, fetch: Callable[[], bytes], folder: Path, parcel: Parcel, repository: str
    ) -> None:
        """Create a repository in the folder, as `unpack` does; `fetch` is called for an unknown parcel."""
        cached = self._root / sha256(f"{parcel!r} {repository}".encode()).hexdigest()[:32]
        if not self._copy_cached(cached, folder, parcel):
            unpack(fetch(), folder, parcel, repository)
            self._cache(folder, cached)

    def _copy_cached(self, cached: Path, folder: Path, parcel: Parcel) -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with self._lock:  # `_cache` must not remove it in the meantime
                os.utime(cached)
                shutil.copytree(cached, folder / ".git", symlinks=True)
            _check_out(folder, parcel)
        except FileNotFoundError:
            return False
        except (OSError, shutil.Error, GitError):  # damaged: unpack it again
            shutil.rmtree(cached, ignore_errors=True)
            return False
        return True

    def _cache(self, folder: Path, cached: Path) -> None:
        """Keep the repository of a folder in which no agent has worked yet."""
        try:
            with self._lock:
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
                by_use = sorted(self._root.iterdir(), key=lambda each: each.lstat().st_mtime)
                for old in by_use[: 1 - MAX_STARTS]:
                    shutil.rmtree(old, ignore_errors=True)
                with tempfile.TemporaryDirectory(prefix="new-", dir=self._root) as place:
                    new = Path(place) / "git"
                    shutil.copytree(folder / ".git", new, symlinks=True)
                    new.rename(cached)
        except (OSError, shutil.Error):
            return  # the next unpacking is only slower


def receive(bundle: bytes, folder: Path, reference: str, into: str) -> None:
    """Bring the commit of a bundle's reference into a reference of the folder's repository.

    Unlike `git fetch`, it does not read all references and worktrees, of which a batch has many.
    """
    try:
        heads, needed, pack = _parts(bundle)
        commit = heads[reference]
        lines = run_git(
            folder, ["cat-file", "--batch-check"], stdin="".join(f"{each}\n" for each in needed)
        )
        missing = [line.split()[0] for line in lines.splitlines() if line.endswith(" missing")]
        if missing:
            raise GitError(f"the repository lacks {', '.join(missing)}")
        few = int.from_bytes(pack[8:12]) < FEW_OBJECTS
        unpack_with = ["unpack-objects", "-q"] if few else ["index-pack", "--stdin", "--fix-thin"]
        run_git(folder, unpack_with, stdin=pack)
        run_git(folder, ["update-ref", "--no-deref", into, commit])
    except (GitError, KeyError, ValueError) as error:
        raise TransferError(f"a bundle could not be read in {folder}: {error}") from error


def bring(
    fetch: Callable[[], bytes], folder: Path, parcel: Parcel, repository: str, into: str
) -> None:
    """Bring the commit of a parcel into a reference of the folder's repository.

    A parcel without a name was too large for the store: it is in the repository that all hosts share.
    """
    if parcel.name:
        receive(fetch(), folder, parcel.reference, into)
        return
    options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"]
    source = f"+{parcel.reference}:{into}"
    try:
        run_git(folder, ["fetch", *options, repository, source])
        found = run_git(folder, ["rev-parse", "--verify", into]).strip()
    except GitError as error:
        why = str(error).removeprefix(f"git fetch in {folder}: ")  # the cause fits into one line
        raise TransferError(f"{parcel.reference} could not be fetched: {why}") from error
    if found != parcel.commit:
        where = redact(repository)  # the URL may contain a password
        raise TransferError(f"{parcel.reference} in {where} is not the work that was saved")


def _parts(bundle: bytes) -> tuple[dict[str, str], list[str], bytes]:
    """The references of a bundle with their commits, the commits that it builds on, and its pack."""
    header, found, pack = bundle.partition(b"\n\n")
    first, *lines = header.decode().split("\n")
    if not found or first not in {"# v2 git bundle", "# v3 git bundle"}:
        raise ValueError("it is not a bundle")
    needed = [line[1:].split(" ")[0] for line in lines if line.startswith("-")]
    heads = (line.split(" ", 1) for line in lines if line[:1] not in {"-", "@"})
    return {name: commit for commit, name in heads}, needed, pack


def apply(folder: Path, start: Parcel, work: Parcel, name: str, *, branch: str = "") -> str | None:
    """Bring the folder from `start` to `work`. Returns why not, if the folder has changed since `start`.

    Idempotent: a folder that already equals `work` is not changed. `branch` is the branch that was checked
    out at `start`, so that no other branch gets the work; empty: unknown.
    """
    now = snapshot(folder, name)
    git = Git(now.top, now.top)
    try:
        if not now.is_clean:
            drop(folder, (name,))
        if branch and now.branch != branch:
            is_applied = _tree(git, now.commit) == _tree(git, work.commit)
            if is_applied and not _has_commits(git, now, work):
                return None
            was = start.head[:12] if branch == DETACHED else branch
            new = now.head[:12] if now.branch == DETACHED else now.branch
            return (
                f"{folder} has {new} checked out instead of {was}; nothing was applied; check out {was} and "
                f"merge the work, or merge it into {new}"
            )
        if now.commit != start.commit and _tree(git, now.commit) != _tree(git, start.commit):
            if _tree(git, now.commit) != _tree(git, work.commit):
                return f"{folder} was changed while the task was running elsewhere; it is left as it is"
        elif now.is_clean:
            if hidden := _hidden_file(git, start.commit, work.commit):
                return f"{hidden}, which git ignores or another repository has, would be replaced"
            _restore(git, start, work)
        else:
            _patch(git, start.commit, work.commit)
        if _has_commits(git, now, work):
            why = "switchgear: work from another host"
            git("update-ref", "-m", why, "HEAD", work.head, now.head)
            _unstage(git, now.head, work.head)
    except GitError as error:
        raise TransferError(f"the work could not be applied in {folder}: {error}") from error
    return None


def _has_commits(git: Git, now: Snapshot, work: Parcel) -> bool:
    """Whether the agent committed: its HEAD contains this HEAD, and more."""
    return work.head != now.head and not git("rev-list", "-n1", now.head, f"^{work.head}")


def _unstage(git: Git, before: str, after: str) -> None:
    """Reset the paths that differ between two commits in the index; other staged paths stay."""
    arguments = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", before, after)
    if paths := git(*arguments):
        named = ["--pathspec-from-file=-", "--pathspec-file-nul", "HEAD"]
        literal = {"GIT_LITERAL_PATHSPECS": "1"}
        run_git(git.top, ["reset", "--quiet", *named], stdin=paths, env=literal)


def push(folder: Path, repository: str, work: str, reference: str) -> None:
    """Push a commit to a repository by its URL, because the agent may change `origin`. Raises `TransferError`."""
    arguments = ["push", "--quiet", "--force", "--no-recurse-submodules"]
    try:
        run_git(folder, [*arguments, repository, f"{work}:{reference}"])
    except GitError as error:
        raise TransferError(f"{reference} could not be pushed: {error}") from error


def _patch(git: Git, start: str, work: str) -> None:
    """Apply the difference of two commits to the working tree.

    The plumbing command prints it, because the user's settings may change what `git diff` prints.
    """
    options = ("--binary", "--no-ext-diff", "--no-textconv", "--no-renames")
    difference = git("diff-tree", "-r", "-p", *options, start, work)
    git("apply", "--whitespace=nowarn", "--allow-empty", "-", stdin=difference)


def _hidden_file(git: Git, start: str, work: str) -> str | None:
    """A file that the work would replace although it was not sent; `None`: there is none.

    Git ignores the file, or it is in a submodule, so the agent could not know it.
    """
    arguments = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", start, work)
    fields = git(*arguments).split("\0")[:-1]
    changes = list(zip(fields[1::2], fields[::2], strict=True))
    known = {name for name, kind in changes if kind != "A"}
    for name in (name for name, kind in changes if kind == "A"):
        for part in (*reversed(Path(name).parents), Path(name)):
            place = git.top / part
            is_folder = place.is_dir() and not place.is_symlink() and str(part) != name
            if str(part) not in known and not is_folder and os.path.lexists(place):
                return str(place)
    return None


def _restore(git: Git, start: Parcel, work: Parcel) -> None:
    source = f"--source={work.commit}"
    try:
        git("restore", "--quiet", source, "--worktree", "--", ":/")
    except GitError:  # an empty folder that stays empty matches nothing
        if _tree(git, start.commit) != _tree(git, work.commit):
            raise


def _tree(git: Git, commit: str) -> str:
    return git("rev-parse", f"{commit}^{{tree}}").strip()
