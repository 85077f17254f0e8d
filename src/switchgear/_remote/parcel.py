"""The state of a folder as a git bundle: packed where the batch runs, unpacked where the agent works.

A parcel holds one commit: its tree is the folder as it is, committed or not, and its parent is HEAD. What
comes back from a worker is applied to the folder only if the folder is still as it was packed.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from switchgear._core.errors import SwitchgearError
from switchgear._measure.git_command import Git, GitError, clean_environment, run_git
from switchgear._measure.saved_refs import NotSaved
from switchgear._measure.tree import open_tree

REFERENCE = "refs/switchgear/transfer"
BRANCH = "switchgear-work"
RECEIVE_TRIES, RECEIVE_WAIT_S = 6, 0.3
_WHO = ("-c", "user.name=switchgear", "-c", "user.email=switchgear@localhost")
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")


class TransferError(SwitchgearError):
    """A folder that could not be packed, unpacked or updated: what, and why."""


def snapshot(folder: Path, name: str) -> str:
    """Commit the state of the folder to `refs/switchgear/transfer/NAME`. Returns the commit.

    The user's index is not touched.
    """
    git = _repository(folder)
    with tempfile.TemporaryDirectory(prefix="switchgear-") as place:
        index = Path(place) / "index"
        try:
            if (git.git_dir / "index").is_file():
                shutil.copy2(
                    git.git_dir / "index", index
                )  # git need not read every file; its time matters
            git("add", "--all", ":/", index=index)
            tree = git("write-tree", index=index).strip()
            head = git("rev-parse", "HEAD").strip()
            commit = git(
                *_WHO, "commit-tree", tree, "-p", head, "-m", "switchgear transfer"
            ).strip()
            git("update-ref", f"{REFERENCE}/{name}", commit)
        except (GitError, OSError) as error:
            raise TransferError(f"{folder} could not be packed: {error}") from error
    return commit


def saved(folder: Path, notes: Path, name: str) -> str:
    """As `snapshot`, where an agent works: filters and attributes of its own cannot hide its work."""
    git = _repository(folder)
    try:
        kept = open_tree(git.top, notes).keep(f"transfer/{name}", f"switchgear transfer {name}")
        if not kept.how.startswith("git "):
            raise TransferError(f"{folder} could not be packed: {'; '.join(kept.notes)}")
        return git("rev-parse", "--verify", f"{REFERENCE}/{name}^{{commit}}").strip()
    except (GitError, NotSaved, OSError) as error:
        raise TransferError(f"{folder} could not be packed: {error}") from error


def drop(folder: Path, names: Iterable[str]) -> None:
    """Remove snapshots. Idempotent."""
    for name in names:
        with suppress(GitError):
            run_git(folder, ["update-ref", "-d", f"{REFERENCE}/{name}"])


def bundled(folder: Path, name: str, *, without: tuple[str, ...] = ()) -> bytes:
    """A snapshot as a bundle; commits in `without` are known at the other end."""
    git = _repository(folder)
    known = [f"^{each}" for each in without if each and _has(git.top, each)]
    with tempfile.TemporaryDirectory(prefix="switchgear-") as place:
        file = Path(place) / "bundle"
        try:
            git("bundle", "create", "--quiet", str(file), f"{REFERENCE}/{name}", *known)
        except GitError as error:
            raise TransferError(f"{folder} could not be packed: {error}") from error
        return file.read_bytes()


def unpack(bundle: bytes, folder: Path, repository: str = "") -> str:
    """Create a repository in the folder with the packed state. Returns the commit.

    HEAD is the packed HEAD and the index is clean, so that uncommitted changes are uncommitted again.
    With a `repository`, its commits are fetched first: the bundle may build on them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    try:
        run_git(folder, ["init", "--quiet", "--initial-branch", BRANCH])
        if repository:
            run_git(folder, ["remote", "add", "origin", repository])
            run_git(folder, ["fetch", "--quiet", "--no-tags", "origin"])
        commit = receive(bundle, folder, f"{REFERENCE}/start")
        run_git(folder, [*_NO_HOOKS, "checkout", "--quiet", "--force", "-B", BRANCH, commit])
        run_git(folder, ["reset", "--quiet", "--mixed", f"{commit}^"])
    except GitError as error:
        raise TransferError(f"the work could not be unpacked in {folder}: {error}") from error
    return commit


def receive(bundle: bytes, folder: Path, reference: str) -> str:
    """Fetch the commit of a bundle into a reference of the folder's repository. Returns the commit.

    Tries again for a moment: while git adds a worktree to the same repository, fetching fails.
    """
    with tempfile.TemporaryDirectory(prefix="switchgear-") as place:
        file = Path(place) / "bundle"
        file.write_bytes(bundle)
        for left in reversed(range(RECEIVE_TRIES)):
            try:
                return _received(file, folder, reference)
            except (GitError, IndexError) as error:
                if not left:
                    raise TransferError(
                        f"a bundle could not be read in {folder}: {error}"
                    ) from error
                time.sleep(RECEIVE_WAIT_S)
    raise AssertionError("unreachable")


def _received(file: Path, folder: Path, reference: str) -> str:
    heads = run_git(folder, ["bundle", "list-heads", str(file)]).split()
    run_git(folder, ["fetch", "--quiet", "--no-tags", str(file), f"+{heads[1]}:{reference}"])
    return run_git(folder, ["rev-parse", "--verify", f"{reference}^{{commit}}"]).strip()


def apply(folder: Path, start: str, work: str, name: str) -> str | None:
    """Bring the folder from `start` to `work`. Returns why not, if the folder has changed since.

    Idempotent: a folder that is already like `work` stays as it is.
    """
    git = _repository(folder)
    now = snapshot(folder, name)
    try:
        if _tree(git, now) != _tree(git, work):
            if _tree(git, now) != _tree(git, start):
                return f"{folder} was changed while the task was running elsewhere; it is left as it is"
            _patch(git, start, work)
        head, base = git("rev-parse", f"{work}^").strip(), git("rev-parse", "HEAD").strip()
        if head != base and git("merge-base", base, head).strip() == base:  # the agent committed
            git("update-ref", "-m", "switchgear: work from another host", "HEAD", head, base)
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


def _repository(folder: Path) -> Git:
    git = Git.find(folder)
    if git is None:
        raise TransferError(
            f"{folder} is not in a git repository: its work cannot move to another host"
        )
    try:
        git("rev-parse", "--verify", "HEAD^{commit}")
    except GitError:
        raise TransferError(
            f"{folder} has no commit yet: its work cannot move to another host"
        ) from None
    return git


def _has(top: Path, commit: str) -> bool:
    try:
        run_git(top, ["cat-file", "-e", f"{commit}^{{commit}}"])
    except GitError:
        return False
    return True


def _tree(git: Git, commit: str) -> str:
    return git("rev-parse", f"{commit}^{{tree}}").strip()
