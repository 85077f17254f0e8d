"""The states of a git repository: which commit, and what differs from it, by content.

One `git status` and one `git hash-object` tell it. The user's index, branches and stash are never
touched; only a checkpoint leaves a reference, under `refs/switchgear/`.
"""

import json
import os
import shutil
import subprocess
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Self

from switchgear.measure.git_state import Content, State, parse_status
from switchgear.measure.own_output import own_output

if TYPE_CHECKING:
    from switchgear.measure.tree import Change

EXCLUDED = ".switchgear"
EXCLUDE_OURS = f":(exclude,top,glob)**/{EXCLUDED}/**"
TIMEOUT_S = 120.0

Committed = dict[str, tuple[str | None, str | None]]
"""The blobs of paths that differ between two commits, before and after."""


class GitError(Exception):
    """A git command failed: what it was and what it said."""


class Git:
    """The git command in one repository. Reads nothing from the terminal, asks nobody anything."""

    def __init__(self, top: Path, git_dir: Path) -> None:
        self.top = top
        self.git_dir = git_dir

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The repository that a folder is in; `None` if it is in none, or git is missing."""
        if shutil.which("git") is None:
            return None
        asked = ["rev-parse", "--show-toplevel", "--absolute-git-dir"]
        try:
            found = run_git(folder, asked).splitlines()
        except GitError:
            return None
        return cls(Path(found[0]), Path(found[1])) if len(found) == 2 else None

    def __call__(self, *arguments: str, index: Path | None = None, stdin: str = "") -> str:
        """What the command prints. Raises `GitError`."""
        return run_git(self.top, arguments, index=index, stdin=stdin)


class GitTree:
    """The working folder of a repository. A mark is the name of a state that we wrote down.

    A state is the commit that is checked out and the contents of what differs from it. Two states
    are compared by contents alone, so a commit in between hides nothing and adds nothing.
    """

    def __init__(self, git: Git, folder: Path, notes: Path) -> None:
        self._git = git
        self._folder = folder
        self._notes = notes
        self._own_output = own_output(git.top, notes)
        self._states: dict[str, State] = {}

    def mark(self) -> str:
        """The state now, ignored files, our own folder and our own output left out."""
        start = self._notes / "start"
        if not start.exists():  # once a run: the whole of it, to count lines against at the end
            self._notes.mkdir(parents=True, exist_ok=True)
            start.write_text(self._write_tree(), encoding="ascii")
        state = look(self._git, self._own_output)
        text = json.dumps(state, separators=(",", ":"))
        name = sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]
        if name not in self._states:
            self._states[name] = state
            marks = self._notes / "marks"
            marks.mkdir(parents=True, exist_ok=True)
            (marks / f"{name}.json").write_text(text, encoding="ascii")
        return name

    def change(self, before: str, after: str) -> "Change":
        """What differs between two marks. Raises KeyError for one that nobody wrote down."""
        from switchgear.measure.tree import Change  # noqa: PLC0415  it opens us

        if before == after:
            return Change()
        old, new = self._state(before), self._state(after)
        committed = self._committed(old.head, new.head)
        kinds: dict[str, list[str]] = {"added": [], "modified": [], "deleted": []}
        for path in sorted({*old.files, *new.files, *committed}):
            was = _content(path, old, new, committed, side=0)
            now = _content(path, new, old, committed, side=1)
            if was != now:
                kind = "added" if was is None else "deleted" if now is None else "modified"
                kinds[kind].append(path)
        return Change(**{kind: tuple(paths) for kind, paths in kinds.items()})

    def keep(self, mark: str, name: str, message: str) -> str:
        """Commit the present state on a private reference, and say how to look at it."""
        del mark  # what is there now is kept, should it have changed since
        tree = self._write_tree()
        parent = self._head()
        commit = self._git(
            "-c",
            "user.name=switchgear",
            "-c",
            "user.email=switchgear@localhost",
            "commit-tree",
            tree,
            *(("-p", parent) if parent else ()),
            "-m",
            message,
        ).strip()
        reference = f"refs/switchgear/{name}"
        self._git("update-ref", reference, commit)
        return f"git diff HEAD {reference}"

    def lines_since_start(self) -> tuple[int, int] | None:
        """Lines added and removed since the first mark; `None`: it is not known any more."""
        try:
            start = (self._notes / "start").read_text(encoding="ascii").strip()
            listed = self._git(
                "diff-tree", "-r", "--numstat", "--no-renames", start, self._write_tree()
            )
        except (OSError, ValueError, GitError):
            return None
        rows = [line.split("\t", 2) for line in listed.splitlines()]
        # A binary file has "-" for both.
        pairs = [(int(row[0]), int(row[1])) for row in rows if row[0].isdecimal()]
        return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)

    def _state(self, mark: str) -> State:
        known = self._states.get(mark)
        if known is None:
            try:
                text = (self._notes / "marks" / f"{mark}.json").read_text(encoding="ascii")
                head, files = json.loads(text)
                known = State(head, {path: Content(*content) for path, content in files.items()})
            except (OSError, ValueError, TypeError, AttributeError):
                raise KeyError(mark) from None
            self._states[mark] = known
        return known

    def _committed(self, old: str, new: str) -> Committed:
        """The contents of what differs between two commits, before and after."""
        if old == new:
            return {}
        nothing = "" if old and new else self._git("hash-object", "-t", "tree", os.devnull).strip()
        heads = (old or nothing, new or nothing)
        listed = self._git("diff-tree", "-r", "-z", "--raw", "--no-renames", *heads)
        fields = listed.split("\0")[:-1]
        changed: Committed = {}
        for raw, path in zip(fields[::2], fields[1::2], strict=True):
            _, _, was, now, _ = raw.split()
            if EXCLUDED not in path.split("/") and path not in self._own_output:
                changed[path] = (_named(was), _named(now))
        return changed

    def _write_tree(self) -> str:
        """Everything that is not ignored as a git tree, by an index of our own."""
        index = self._notes / "index"
        index.parent.mkdir(parents=True, exist_ok=True)
        theirs = self._git.git_dir / "index"
        if theirs.exists():
            shutil.copyfile(theirs, index)  # so that git need not read every file again
        output = (f":(exclude,top,literal){path}" for path in self._own_output)
        self._git("add", "--all", "--", ".", EXCLUDE_OURS, *output, index=index)
        tree = self._git("write-tree", index=index).strip()
        index.unlink(missing_ok=True)
        return tree

    def _head(self) -> str | None:
        try:
            return self._git("rev-parse", "--verify", "--quiet", "HEAD").strip() or None
        except GitError:
            return None  # a repository without a commit


def look(git: Git, left_out: frozenset[str] = frozenset()) -> State:
    """The state of the working folder now, but for the paths that are left out."""
    listed = git(
        "status", "--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--no-renames"
    )
    head, found = parse_status(listed, EXCLUDED)
    differing = {path: content for path, content in found.items() if path not in left_out}
    dirty = [path for path in differing if _is_plain(git.top / path)]
    hashes = git("hash-object", "--stdin-paths", stdin="\n".join(dirty)).split() if dirty else []
    known = dict(zip(dirty, hashes, strict=True))
    files = {
        path: content._replace(now=known.get(path) or _odd(git.top / path))
        for path, content in differing.items()
    }
    return State(head, files)


def _is_plain(path: Path) -> bool:
    """Whether git can be asked about it by a line: a file, and no line break in its name."""
    return "\n" not in str(path) and path.is_file() and not path.is_symlink()


def _odd(path: Path) -> str | None:
    """The hash of anything else, as git would name it; `None`: there is nothing."""
    try:
        if path.is_symlink():
            return _blob(os.fsencode(path.readlink()))
        return "folder" if path.is_dir() else _blob(path.read_bytes())
    except OSError:
        return None


def _blob(data: bytes) -> str:
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _content(path: str, at: State, other: State, committed: Committed, side: int) -> str | None:
    """The content of a path in a state; `None`: there is none."""
    if path in at.files:
        return at.files[path].now
    if path in committed:
        return committed[path][side]
    # Clean here and not there, and the commits agree on it: it is what the commit has.
    return other.files[path].in_head


def _named(blob: str) -> str | None:
    return blob if blob.strip("0") else None


def run_git(
    folder: Path,
    arguments: "list[str] | tuple[str, ...]",
    index: Path | None = None,
    stdin: str = "",
) -> str:
    """Run git without any of the caller's git variables, hooks or editors. Raises `GitError`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(  # noqa: S603  the arguments are ours
            command,
            cwd=folder,
            env=environment,
            input=stdin.encode(errors="surrogateescape"),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"git {arguments[0]} in {folder}: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise GitError(f"git {arguments[0]} in {folder}: {said}")
    return done.stdout.decode(errors="surrogateescape")
