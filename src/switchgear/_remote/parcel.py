"""The state of a folder as a git bundle: packed where the batch runs, unpacked where the agent works.

A parcel holds one commit: its tree is the folder as it is, committed or not. It is HEAD, or a child of HEAD
where something is uncommitted. What comes back from a worker is applied to the folder only if the folder is
still as it was packed.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from switchgear._core.errors import SwitchgearError
from switchgear._measure.git_command import Git, GitError, clean_environment, run_git
from switchgear._measure.saved_refs import NotSaved
from switchgear._measure.tree import open_tree
from switchgear._remote.job import Parcel

REFERENCE = "refs/switchgear/transfer"
BRANCH = "switchgear-work"
RECEIVE_TRIES, RECEIVE_WAIT_S = 6, 0.3
_FETCH = (
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
)
_WHO = ("-c", "user.name=switchgear", "-c", "user.email=switchgear@localhost")
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")


class TransferError(SwitchgearError):
    """A folder that could not be packed, unpacked or updated: what, and why."""


class Snapshot(NamedTuple):
    """The state of a folder as a commit."""

    commit: str
    """Its tree is the folder; where nothing is uncommitted, HEAD itself."""
    head: str
    top: Path

    @property
    def is_clean(self) -> bool:
        """Whether nothing is uncommitted."""
        return self.commit == self.head


def snapshot(folder: Path, name: str) -> Snapshot:
    """Commit the state of the folder to `refs/switchgear/transfer/NAME`, if something is uncommitted.

    The user's index is not touched.
    """
    try:
        asked = ["rev-parse", "--show-toplevel", "--absolute-git-dir", "HEAD"]
        top, git_dir, head = run_git(folder, asked).splitlines()
    except (GitError, ValueError):
        raise _why_not(folder) from None
    git = Git(Path(top), Path(git_dir))
    try:
        if not git("status", "--porcelain", "--untracked-files=all", "--ignore-submodules=none"):
            return Snapshot(head, head, git.top)
        commit = _committed(git, head)
        git("update-ref", f"{REFERENCE}/{name}", commit)
    except (GitError, OSError) as error:
        raise TransferError(f"{folder} could not be packed: {error}") from error
    return Snapshot(commit, head, git.top)


def _committed(git: Git, head: str) -> str:
    with tempfile.TemporaryDirectory(prefix="switchgear-") as place:
        index = Path(place) / "index"
        if (git.git_dir / "index").is_file():
            shutil.copy2(
                git.git_dir / "index", index
            )  # git need not read every file; its time matters
        git("add", "--all", ":/", index=index)
        tree = git("write-tree", index=index).strip()
    return git(*_WHO, "commit-tree", tree, "-p", head, "-m", "switchgear transfer").strip()


def _why_not(folder: Path) -> TransferError:
    """Why a folder cannot be packed."""
    if Git.find(folder) is None:
        return TransferError(
            f"{folder} is not in a git repository: its work cannot move to another host"
        )
    return TransferError(f"{folder} has no commit yet: its work cannot move to another host")


def saved(folder: Path, notes: Path, name: str) -> str:
    """Commit the state of a folder in which an agent works to `refs/switchgear/NAME`. Returns the commit.

    Filters and attributes that the agent set cannot hide its work.
    """
    try:
        kept = open_tree(folder, notes).keep(name, f"switchgear {name}")
        if not kept.how.startswith("git "):
            raise TransferError(f"{folder} could not be packed: {'; '.join(kept.notes)}")
        return run_git(folder, ["rev-parse", "--verify", f"refs/switchgear/{name}"]).strip()
    except (GitError, NotSaved, OSError) as error:
        raise TransferError(f"{folder} could not be packed: {error}") from error


def drop(folder: Path, names: Iterable[str]) -> None:
    """Remove snapshots. Idempotent."""
    for name in names:
        with suppress(GitError):
            run_git(folder, ["update-ref", "-d", f"{REFERENCE}/{name}"])


def bundled(folder: Path, reference: str, *, without: tuple[str, ...] = ()) -> bytes:
    """The commit of a reference as a bundle; commits in `without` are known at the other end."""
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
    commit = parcel.commit
    try:
        run_git(folder, ["init", "--quiet", "--initial-branch", BRANCH])
        if repository:
            run_git(folder, ["remote", "add", "origin", repository])
            run_git(folder, ["fetch", "--quiet", "--no-tags", "origin"])
        receive(bundle, folder, parcel.reference, f"{REFERENCE}/start")
        run_git(folder, [*_NO_HOOKS, "checkout", "--quiet", "--force", "-B", BRANCH, commit])
        if parcel.head != commit:
            run_git(folder, ["reset", "--quiet", "--mixed", parcel.head])
    except GitError as error:
        raise TransferError(f"the work could not be unpacked in {folder}: {error}") from error


def receive(bundle: bytes, folder: Path, reference: str, into: str) -> None:
    """Fetch the commit of a bundle's reference into a reference of the folder's repository.

    Tries again for a moment: while git adds a worktree to the same repository, fetching fails.
    """
    with tempfile.TemporaryDirectory(prefix="switchgear-") as place:
        file = Path(place) / "bundle"
        file.write_bytes(bundle)
        for left in reversed(range(RECEIVE_TRIES)):
            try:
                run_git(folder, [*_FETCH, str(file), f"+{reference}:{into}"])
            except GitError as error:
                if not left:
                    raise TransferError(
                        f"a bundle could not be read in {folder}: {error}"
                    ) from error
                time.sleep(RECEIVE_WAIT_S)
            else:
                return


def apply(folder: Path, start: Parcel, work: Parcel, name: str) -> str | None:
    """Bring the folder from `start` to `work`. Returns why not, if the folder has changed since.

    Idempotent: a folder that is already like `work` stays as it is.
    """
    now = snapshot(folder, name)
    git = Git(now.top, now.top)
    try:
        if _tree(git, now.commit) != _tree(git, start.commit):
            if _tree(git, now.commit) != _tree(git, work.commit):
                return f"{folder} was changed while the task was running elsewhere; it is left as it is"
        elif now.is_clean:
            git(
                *_NO_HOOKS,
                "restore",
                "--quiet",
                f"--source={work.commit}",
                "--worktree",
                "--",
                ":/",
            )
        else:
            _patch(git, start.commit, work.commit)
        if work.head != now.head and git("merge-base", now.head, work.head).strip() == now.head:
            # The agent committed.
            git(
                "update-ref",
                "-m",
                "switchgear: work from another host",
                "HEAD",
                work.head,
                now.head,
            )
            git("reset", "--quiet", "--mixed")
    except GitError as error:
        raise TransferError(f"the work could not be applied in {folder}: {error}") from error
    return None


def push(folder: Path, work: str, reference: str) -> None:
    """Push a commit to the repository that the folder was fetched from. Raises `TransferError`."""
    try:
        run_git(folder, [*_NO_HOOKS, "push", "--quiet", "--force", "origin", f"{work}:{reference}"])
    except GitError as error:
        raise TransferError(f"{reference} could not be pushed: {error}") from error


def _patch(git: Git, start: str, work: str) -> None:
    """Apply the difference of two commits to the working tree, whatever its bytes are."""
    diff = [
        "git",
        "diff",
        "--binary",
        "--no-ext-diff",
        "--no-textconv",
        "--no-renames",
        start,
        work,
    ]
    taken = ["git", *_NO_HOOKS, "apply", "--whitespace=nowarn", "--allow-empty", "-"]
    environment = clean_environment()
    difference = subprocess.run(  # noqa: S603  the arguments are ours
        diff, cwd=git.top, env=environment, capture_output=True, check=False
    )
    applied = subprocess.run(  # noqa: S603
        taken,
        cwd=git.top,
        env=environment,
        input=difference.stdout,
        capture_output=True,
        check=False,
    )
    for done in (difference, applied):
        if done.returncode:
            raise GitError(done.stderr.decode(errors="replace").strip()[:500])


def _tree(git: Git, commit: str) -> str:
    return git("rev-parse", f"{commit}^{{tree}}").strip()
