"""The base with which a run compares its working folder, and the state of the folder as a value."""

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from switchgear._measure.git_command import (
    Deadline,
    GitError,
    Repository,
    run_git,
)

STATE_FOLDER = ".switchgear"
GITLINK = "160000"
MAX_EXCLUDE_BYTES = 1_000_000
COMPARED_BYTES = 10_000_000
"""Maximum bytes of touched files that are compared here; beyond that, git compares them."""
_ATTRIBUTES = "* -text !eol -ident !filter !working-tree-encoding\n"


class Listed(NamedTuple):
    """What git lists of a working folder."""

    tracked: tuple[str, ...]
    """Paths of the base that git reports as changed or removed."""
    others: tuple[str, ...]
    """Files that the base does not have and that are not ignored."""
    nested: tuple[str, ...]
    """Folders that are separate repositories."""
    complaints: str = ""
    """Git's messages about folders that could not be read."""


class BaseFacts(NamedTuple):
    """Facts about a repository at the start of the run: base.json."""

    id: str
    objects: str | None
    """The folder with the repository's objects; `None`: the base is empty."""
    gitlinks: dict[str, str]
    """The submodules that the index records, with their commits."""
    skipped: list[str]
    """Paths outside a sparse checkout: they are absent, but not deleted."""
    autocrlf: bool
    """Whether the user has git convert line endings."""
    algorithm: str
    """How the repository names its objects: `sha1` or `sha256`."""
    alternates: str
    """Other sources of objects, which may disappear."""
    ignoring: dict[str, str | None] = {}  # noqa: RUF012  never changed
    """The `.gitignore` files that were in force, with their hashes."""


class GitBase:
    """The base of one working folder. Used by one thread.

    `home` is the git folder of the base, created by `create` and found again by later processes.
    """

    def __init__(self, home: Path, top: Path) -> None:
        self.home = home
        self.top = top
        self._entries: dict[str, tuple[str, str]] | None = None
        self._facts: BaseFacts | None = None
        self._is_slow = False
        """Whether git could not compare the files in time; then this is not tried again."""

    @property
    def exists(self) -> bool:
        return (self.home / "base.json").is_file()

    def create(self, real: Repository | None, deadline: Deadline) -> None:
        """Create the base from the present index of a repository; `None`: empty, so every file is new.

        If the index cannot be read, the last commit replaces it. Raises `GitError`, OSError.
        """
        shutil.rmtree(self.home, ignore_errors=True)
        for part in ("objects", "refs", "info"):
            (self.home / part).mkdir(parents=True)
        (self.home / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        (self.home / "info" / "attributes").write_text(_ATTRIBUTES, encoding="ascii")
        settings = {} if real is None else _settings(real, deadline)
        sha256 = settings.get("extensions.objectformat") == "sha256"
        (self.home / "config").write_text(
            f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tbare = false\n"
            f"\tfileMode = {settings.get('core.filemode', 'true')}\n"
            "\tautocrlf = false\n\tsafecrlf = false\n\tlooseCompression = 1\n"
            + ("[extensions]\n\tobjectFormat = sha256\n" if sha256 else ""),
            encoding="ascii",
        )
        (self.home / "info" / "exclude").write_bytes(_excludes(real, settings))
        gitlinks: dict[str, str] = {}
        skipped: list[str] = []
        if real is not None:
            gitlinks, skipped = self._copy_index(real, deadline)
        self._write_facts(
            BaseFacts(
                id=os.urandom(8).hex(),
                objects=None if real is None else str(real.objects),
                gitlinks=gitlinks,
                skipped=skipped,
                autocrlf=settings.get("core.autocrlf", "false") in {"true", "input"},
                algorithm="sha256" if sha256 else "sha1",
                alternates="" if real is None else _alternates(real.objects),
            )
        )

    # Reading

    @property
    def facts(self) -> BaseFacts:
        """Raises `GitError` if they cannot be read."""
        if self._facts is None:
            try:
                self._facts = BaseFacts(**json.loads((self.home / "base.json").read_text("ascii")))
            except (OSError, ValueError, TypeError) as error:
                raise GitError(f"the base in {self.home} cannot be read: {error}") from error
        return self._facts

    def alternates_changed(self, real: Repository) -> bool:
        """Whether objects now come from elsewhere than at the start."""
        return _alternates(real.objects) != self.facts.alternates

    def entries(self, deadline: Deadline) -> dict[str, tuple[str, str]]:
        """Mode and blob of every path. Raises `GitError`."""
        if self._entries is None:
            self._entries = {}
            # The working folder is not needed, and may have been removed.
            env = self.environment() | {"GIT_WORK_TREE": str(self.home)}
            listed = run_git(self.home, ("ls-files", "-s", "-z"), env=env, deadline=deadline)
            for entry in listed.split("\0")[:-1]:
                facts, _, path = entry.partition("\t")
                mode, blob, _ = facts.split(" ")
                self._entries[path] = (mode, blob)
        return self._entries

    def list_changes(self, deadline: Deadline) -> Listed:
        """The paths that differ from the base by the times of files. Raises `GitError`."""
        self._restore_skipped(deadline)
        changed, unreadable = self._changed(deadline)
        untracked, complaints = self._paths(
            deadline,
            *("ls-files", "-z", "-o", "--exclude-per-directory=.gitignore"),
            *(f"--exclude=/{STATE_FOLDER}/", f"--exclude={STATE_FOLDER}/"),
            *("--exclude-from", str(self.home / "info" / "exclude")),
        )
        return Listed(
            changed,
            tuple(path for path in untracked if not path.endswith("/")),
            tuple(path.rstrip("/") for path in untracked if path.endswith("/")),
            f"{unreadable}\n{complaints}".strip(),
        )

    def _changed(self, deadline: Deadline) -> tuple[tuple[str, ...], str]:
        """The tracked paths whose times have changed, and messages about unreadable folders.

        Unlike ls-files, diff-files reads times in several threads. The caller compares the contents; if there
        is much to read, git compares them, and no longer lists equal files.
        """
        arguments = ("diff-files", "--name-only", "-z")
        changed, unreadable = self._paths(deadline, *arguments)
        size = 0
        for path in changed:
            with suppress(OSError):
                size += (self.top / path).lstat().st_size
        if size > COMPARED_BYTES:
            self.refresh(deadline)
            changed, unreadable = self._paths(deadline, *arguments)
        return tuple(dict.fromkeys(changed)), unreadable

    def _paths(self, deadline: Deadline, *arguments: str) -> tuple[list[str], str]:
        """The paths that a git command lists outside the state folder, and its complaints. Raises `GitError`."""
        complaints: list[str] = []
        env = self.environment()
        listed = run_git(self.top, arguments, env=env, deadline=deadline, complaints=complaints)
        paths = listed.split("\0")[:-1]
        return [path for path in paths if STATE_FOLDER not in path.split("/")], complaints[0]

    def ignored(self, deadline: Deadline) -> list[tuple[str, str]]:
        """What `.gitignore` files hide, as pairs of file and path; hidden folders end with a slash.

        Raises `GitError`.
        """
        listed = self(
            *("ls-files", "-z", "-o", "-i", "--directory", "--exclude-per-directory=.gitignore"),
            deadline=deadline,
        )
        paths = [path for path in listed.split("\0")[:-1] if STATE_FOLDER not in path.split("/")]
        if not paths:
            return []
        output = self(
            *("check-ignore", "--no-index", "-v", "-z", "--stdin"),
            stdin=_lines(paths),
            deadline=deadline,
        ).split("\0")
        return list(zip(output[::4], output[3::4], strict=False))

    def keep_ignoring(self, files: dict[str, str | None]) -> None:
        """Save the hashes of the `.gitignore` files at the start of the run."""
        self._write_facts(self.facts._replace(ignoring=files))

    def refresh(self, deadline: Deadline) -> None:
        """Update the times of files that were touched but not changed, so that they are not read again.

        Git reads a file that was empty completely, even if it is now a terabyte, so it gets only a part of the
        time. Only this process uses the base, so a remaining lock belongs to a git that was killed.
        """
        if self._is_slow:
            return
        part = deadline.part(deadline.left_s / 3)
        with suppress(GitError):
            self("update-index", "-q", "--refresh", deadline=part)
        self._is_slow = part.is_over
        with suppress(OSError):
            (self.home / "index.lock").unlink(missing_ok=True)

    def __call__(
        self,
        *arguments: str,
        stdin: str = "",
        deadline: Deadline | None = None,
        objects: Path | None = None,
    ) -> str:
        """Run a git command on the base, and return its output. Raises `GitError`."""
        env = self.environment(objects)
        return run_git(self.top, arguments, stdin=stdin, env=env, deadline=deadline)

    def environment(self, objects: Path | None = None) -> dict[str, str]:
        """The variables that make git use this base, with no configuration but its own."""
        found = {
            "GIT_DIR": str(self.home),
            "GIT_WORK_TREE": str(self.top),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
        }
        if objects is None and (folder := self.facts.objects if self.exists else None):
            objects = Path(folder)
        if objects is not None and objects.is_dir():
            found["GIT_OBJECT_DIRECTORY"] = str(objects)
        return found

    # Helpers

    def _write_facts(self, facts: BaseFacts) -> None:
        (self.home / "base.json").write_text(json.dumps(facts._asdict()), encoding="ascii")
        self._facts = facts

    def _copy_index(self, real: Repository, deadline: Deadline) -> tuple[dict[str, str], list[str]]:
        """Copy the index without flags, extensions and submodules. Returns the submodules and the skipped paths."""
        index = self.home / "index"
        env = self.environment(real.objects)

        def git(*arguments: str, stdin: str = "") -> str:
            return run_git(self.top, arguments, stdin=stdin, env=env, deadline=deadline)

        try:
            if (real.git_dir / "index").is_file():
                for shared in real.git_dir.glob("sharedindex.*"):
                    shutil.copy2(shared, self.home / shared.name)
                # Keep its time: git uses it to detect files that changed at the same moment.
                shutil.copy2(real.git_dir / "index", index)
            git("update-index", "--no-split-index", "--no-untracked-cache")
            listed = git("ls-files", "-v", "-s", "-z")
        except (GitError, OSError):
            index.unlink(missing_ok=True)
            with suppress(GitError):
                head = run_git(
                    real.top,
                    ("rev-parse", "--verify", "--quiet", "HEAD"),
                    env={"GIT_DIR": str(real.git_dir)},
                    deadline=deadline,
                ).strip()
                git("read-tree", head)
            listed = git("ls-files", "-v", "-s", "-z")
        gitlinks, skipped, assumed_unchanged, unmerged = {}, [], [], {}
        for entry in listed.split("\0")[:-1]:
            facts, _, path = entry.partition("\t")
            tag, mode, blob, stage = facts.split(" ")
            if stage != "0":
                if path not in unmerged or stage == "2":
                    unmerged[path] = (mode, blob)
            elif mode == GITLINK:
                gitlinks[path] = blob
            else:
                if tag in {"S", "s"}:
                    skipped.append(path)
                if tag.islower():
                    assumed_unchanged.append(path)
        if assumed_unchanged:
            stdin = _lines(assumed_unchanged)
            git("update-index", "--no-assume-unchanged", "-z", "--stdin", stdin=stdin)
        zero = "0" * 40
        edits = [f"0 {zero}\t{path}" for path in (*gitlinks, *unmerged)]
        edits += [f"{mode} {blob}\t{path}" for path, (mode, blob) in unmerged.items()]
        if edits:
            git("update-index", "-z", "--index-info", stdin=_lines(edits))
        return gitlinks, skipped

    def _restore_skipped(self, deadline: Deadline) -> None:
        """Compare files outside a sparse checkout as soon as they exist."""
        skipped = self.facts.skipped
        present = [path for path in skipped if os.path.lexists(self.top / path)]
        if present:
            self(
                *("update-index", "--no-skip-worktree", "-z", "--stdin"),
                stdin=_lines(present),
                deadline=deadline,
            )
            self._write_facts(self.facts._replace(skipped=sorted(set(skipped) - set(present))))


def _lines(items: Iterable[str]) -> str:
    return "".join(f"{item}\0" for item in items)


def _settings(real: Repository, deadline: Deadline) -> dict[str, str]:
    """The user's configuration at the start of the run; empty if it cannot be read."""
    try:
        listed = run_git(
            real.top,
            ("config", "-z", "--list"),
            env={"GIT_DIR": str(real.git_dir)},
            deadline=deadline,
        )
    except GitError:
        return {}
    pairs = (entry.partition("\n") for entry in listed.split("\0")[:-1])
    settings = {key: value for key, _, value in pairs}
    mode = settings.get("core.filemode", "true").lower()
    settings["core.filemode"] = "false" if mode in {"false", "no", "off", "0"} else "true"
    return settings


def _excludes(real: Repository | None, settings: dict[str, str]) -> bytes:
    """The content of the exclude files outside the working folder at the start of the run."""
    configured = settings.get("core.excludesfile")
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    files = [Path(configured or f"{home}/git/ignore").expanduser()]
    if real is not None:
        files.append(real.common_dir / "info" / "exclude")
    found = []
    for file in files:
        with suppress(OSError):
            if file.is_file():
                found.append(file.read_bytes()[:MAX_EXCLUDE_BYTES])
    return b"\n".join(found) + b"\n"


def _alternates(objects: Path) -> str:
    try:
        text = (objects / "info" / "alternates").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text[:4096]


def nested_home(home: Path, path: str) -> Path:
    """The folder for the base of a nested repository."""
    name = sha1(path.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()[:16]
    return home / "nested" / name


class Content(NamedTuple):
    """The content of a path in the base and in the folder, where they differ."""

    in_base: str | None
    """The hash of the blob in the base; `None`: the base does not have it."""
    now: str | None = None
    """The hash of the present content, or size and time of a file that is too large; `None`: there is none."""


class GitState(NamedTuple):
    """A working folder: which base it is compared with, and what differs from it."""

    base: str
    files: dict[str, Content]
