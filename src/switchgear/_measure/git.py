"""A working folder in git: what differs from the start of a run, by content, and how it is saved.

For a measurement, git only lists paths, on a base of our own (see git_base.py); the contents are read and
hashed here. The user's index, branches and stash are never touched. A save leaves one reference, under
`refs/switchgear/`.
"""

import hashlib
import json
import os
import stat
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from switchgear._measure.git_base import (
    GITLINK,
    STATE_FOLDER,
    Content,
    GitBase,
    GitState,
    nested_home,
)
from switchgear._measure.git_command import (
    Deadline,
    GitError,
    Repository,
    clean_environment,
    is_behind_link,
    kill_group,
    repository_at,
    run_git,
)
from switchgear._measure.saved_refs import (
    KEPT,
    PREFIX,
    SAVE_S,
    ArchiveEntry,
    LeftOut,
    SavedWork,
    choose,
    how_to_unpack,
    own_output,
    quoted,
    remember_ref,
    save_archive,
    write_stream,
)

if TYPE_CHECKING:
    from switchgear._measure.tree import TreeChange

MARK_S = 60.0
"""Time limit for one measurement, in seconds."""
REFERENCE_S = 15.0
"""Time limit for one reference: if it is a pipe, git would use up all the time of the save."""
MAX_HASHED_FILE = 20_000_000
"""Maximum bytes of a file that is compared by content; larger files are compared by size and time."""
MAX_HASHED_BYTES = 1_000_000_000
"""Maximum bytes that one measurement reads; the other files are compared by size and time."""
MAX_NESTED = 256
"""Maximum number of nested repositories; more are an error."""
SETTLED_S = 0.1
"""A file that was changed within this time is read again by the next measurement."""
SKIPPED = frozenset({"node_modules", ".venv", "__pycache__"})
"""Folders that may be hidden by the agent's ignore rules."""
CACHES = SKIPPED | {".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"}
"""Folders that are never saved: their tools create the ignore rules that hide them."""
MAX_HIDDEN = 20_000
"""Maximum number of files saved from one folder that the agent's ignore rules hide."""


class GitTree:
    """The working folder of a repository. A mark is the name of a recorded state.

    A state is the difference by content from the index at the start of the run. So commits in between make
    no difference, and nested repositories are part of the state.
    """

    def __init__(self, repository: Repository, notes: Path) -> None:
        self._real = repository
        self._top = repository.top
        self._notes = notes
        self._base = GitBase(notes / "base", repository.top)
        self._own_output = own_output(repository.top, notes)
        self._states: dict[str, GitState] = {}
        self._inner: dict[str, GitBase] = {}
        """The bases of nested repositories, by path."""
        self._blobs: dict[str, dict[str, str]] = {}
        """The blobs of each base, by the prefix of its folder."""
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}
        """The identity and the content hash of each file that was read."""
        self._read = 0
        self._opened_s = time.time() - 1.0
        self._committed: tuple[GitState, str] | None = None
        """The last saved state, and its commit."""
        self.too_slow: GitError | None = None
        """Why the last measurement did not end in time; `None`: it did."""
        self._deadline = Deadline(MARK_S)
        """The time limit of the last measurement."""
        self._is_stopping = False
        self._complaints: dict[str, None] = {}

    def prepare(self) -> None:
        """Create the base, unless it exists. Raises `GitError`, OSError."""
        if self._base.exists:
            return
        deadline, before = Deadline(MARK_S), self._base_blobs()
        self._base = GitBase(self._base.home, self._top)
        self._base.create(self._real, deadline)
        self._scan(deadline, first=True)
        for prefix, base in self._bases().items():
            with suppress(GitError):
                sources = {source for source, _ in base.ignored(deadline)}
                hashes = {each: self._content(base, prefix, each, None) for each in sources}
                base.keep_ignoring(hashes)
        if self._states:  # the base was removed, as by `git clean -fdx`
            self._rebase_states(before)

    def _base_blobs(self) -> dict[str, str]:
        """The blob of every path of all bases."""
        bases = self._blobs.items()
        return {prefix + path: blob for prefix, blobs in bases for path, blob in blobs.items()}

    def _rebase_states(self, before: dict[str, str]) -> None:
        after = self._base_blobs()
        for name, state in self._states.items():
            whole = before | {path: content.now for path, content in state.files.items()}
            files = {
                path: Content(after.get(path), whole.get(path))
                for path in {*whole, *after}
                if after.get(path) != whole.get(path)
            }
            self._states[name] = GitState(self._base.facts.id, files)

    def stop(self) -> None:
        """Shorten the time limit of this and later measurements. Safe in signal handlers, like `kill`."""
        self._is_stopping = True
        self._deadline.stop()

    def kill(self) -> None:
        """End the measurement at once."""
        self._deadline.kill()

    def mark(self) -> str:
        """Mark the present state, without ignored files, the state folder, and Switchgear's own output."""
        if self._is_stopping and self.too_slow is not None:
            raise self.too_slow
        self.prepare()
        deadline = self._deadline = Deadline(MARK_S)
        if self._is_stopping:
            deadline.stop()
        state = self._scan(deadline)
        self._write_start(state, deadline)
        text = json.dumps(state, separators=(",", ":"))
        name = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]
        if name not in self._states:
            self._states[name] = state
            marks = self._notes / "marks"
            marks.mkdir(parents=True, exist_ok=True)
            (marks / f"{name}.json").write_text(text, encoding="ascii")
        return name

    def change(self, before: str, after: str) -> "TreeChange":
        """What differs between two marks. Raises KeyError for an unknown mark."""
        from switchgear._measure.tree import TreeChange  # noqa: PLC0415  circular import

        if before == after:
            return TreeChange()
        old, new = self._state(before), self._state(after)
        if old.base != new.base:
            raise KeyError(before)
        kinds: dict[str, list[str]] = {"added": [], "modified": [], "deleted": []}
        for path in sorted({*old.files, *new.files}):
            was = old.files[path].now if path in old.files else new.files[path].in_base
            now = new.files[path].now if path in new.files else old.files[path].in_base
            if was != now:
                kind = "added" if was is None else "deleted" if now is None else "modified"
                kinds[kind].append(path)
        return TreeChange(**{kind: tuple(paths) for kind, paths in kinds.items()})

    def keep(self, name: str, message: str, deadline: Deadline | None = None) -> SavedWork:
        """Save the present state on a private reference, else in an archive, and read it back.

        Raises `NotSaved` if both fail.
        """
        deadline = deadline or Deadline(SAVE_S)
        target = self._notes / f"{name.replace('/', '-')}.tar.gz"
        try:
            self.prepare()
            # Leave time to save the files without git, in case git does not end.
            state = self._scan(deadline.part(deadline.left_s / 3))
        except (GitError, OSError) as error:
            return self._keep_recent(target, str(error), deadline)
        reason = (
            "objects come from elsewhere than at the start of the run (objects/info/alternates)"
        )
        try:
            if self._base.alternates_changed(self._real):
                raise GitError(reason)
            head = self._head(deadline.part(REFERENCE_S))
            part = deadline.part(deadline.left_s * 2 / 3)  # for the same reason
            commit, left_out = self._commit(state, message, part, parent=head)
            reference = f"{PREFIX}{name}"
            for each in (reference, f"{KEPT}{name}"):
                # `--no-deref`: a symbolic reference of this name would otherwise move its branch.
                update = ("update-ref", "--no-deref", each, commit)
                self._real_git(*update, deadline=deadline.part(REFERENCE_S))
            remember_ref(str(self._top), reference, commit)
            check = ("rev-parse", "--verify", f"{reference}^{{commit}}")
            actual = self._real_git(*check, deadline=deadline.part(REFERENCE_S)).strip()
            if actual != commit:
                raise GitError(f"{reference} is {actual}, not {commit}")
            self._committed = (state, commit)
            view = "git show" if head is None else "git diff HEAD"
            return SavedWork(f"{view} {reference}", self._with_unreadable(left_out))
        except (GitError, OSError) as error:
            problem = str(error)
        paths = [path for path, content in state.files.items() if content.now is not None]
        archive, left_out = save_archive(self._top, paths, target, deadline)
        deleted = [path for path, content in state.files.items() if content.now is None]
        left_out += tuple(
            LeftOut(path, "deleted, which an archive cannot hold") for path in deleted
        )
        left_out += (LeftOut("refs/switchgear", f"git could not store it: {problem[:300]}"),)
        return SavedWork(how_to_unpack(archive), self._with_unreadable(left_out))

    def _keep_recent(self, target: Path, problem: str, deadline: Deadline) -> SavedWork:
        """Save an archive of the files newer than the run, because git could not list the differences."""
        since_s = self._opened_s
        with suppress(OSError):
            since_s = (self._base.home / "HEAD").stat().st_mtime
        recent = []
        for path in _files_below(self._top, "."):
            with suppress(OSError):
                status = (self._top / path).lstat()
                if max(status.st_mtime, status.st_ctime) >= since_s:
                    recent.append(path)
        archive, left_out = save_archive(self._top, recent, target, deadline)
        why = LeftOut(
            "files older than the run", f"git could not list what differs: {problem[:300]}"
        )
        return SavedWork(how_to_unpack(archive), (*left_out, why))

    def lines_since_start(self, deadline: Deadline | None = None) -> tuple[int, int] | None:
        """The number of lines added and removed since the first mark; `None`: no longer known."""
        deadline = deadline or Deadline(MARK_S)
        try:
            start = (self._notes / "start").read_text(encoding="ascii").strip()
            if not start:
                return None
            state, (saved, commit) = self._scan(deadline), self._committed or (None, "")
            if saved != state:
                commit, _ = self._commit(state, "lines", deadline, parent=None)
            listed = self._base(
                *("diff-tree", "-r", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"),
                *(start, commit),
                deadline=deadline,
            )
        except (OSError, ValueError, GitError):
            return None
        rows = [line.split("\t", 2) for line in listed.splitlines()]
        # Binary files have "-" in both columns.
        pairs = [(int(row[0]), int(row[1])) for row in rows if row[0].isdecimal()]
        return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)

    # Measuring

    def _scan(self, deadline: Deadline, *, first: bool = False) -> GitState:
        """The present state. Raises `GitError`."""
        self._read = 0
        self._complaints = {}
        found: dict[str, Content] = {}
        try:
            self._scan_folder(self._base, "", found, deadline, first=first)
        except GitError as error:
            if not deadline.is_over:
                raise
            blocking = _blocking_file(self._top)
            self.too_slow = error
            if blocking is None:
                raise
            text = f"{blocking} is not a regular file, and git blocks on it; remove it"
            self.too_slow = GitError(text)
            raise self.too_slow from error
        self.too_slow = None
        return GitState(self._base.facts.id, found)

    def _scan_folder(
        self,
        base: GitBase,
        prefix: str,
        found: dict[str, Content],
        deadline: Deadline,
        *,
        first: bool,
    ) -> None:
        """Add the differences below one working folder; nested repositories are compared separately."""
        listed = base.list_changes(deadline)
        for line in listed.complaints.splitlines():
            self._complaints[line.removeprefix("warning: ")] = None
        entries, skipped = base.entries(deadline), frozenset(base.facts.skipped)
        if prefix not in self._blobs or first:
            self._blobs[prefix] = {path: blob for path, (_, blob) in entries.items()}
        touched = False
        for path in listed.tracked:
            content = self._content(base, prefix, path, entries[path])
            if content is None and path in skipped:
                continue
            if content == entries[path][1]:
                touched = True
            else:
                self._add(found, prefix + path, entries[path][1], content)
        for path in listed.others:
            if prefix + path not in self._own_output:
                self._add(found, prefix + path, None, self._content(base, prefix, path, None))
        if touched:
            base.refresh(deadline)
        self._scan_nested(base, prefix, listed.nested, found, deadline, first=first)

    def _scan_nested(
        self,
        base: GitBase,
        prefix: str,
        listed: tuple[str, ...],
        found: dict[str, Content],
        deadline: Deadline,
        *,
        first: bool,
    ) -> None:
        known = _known_nested(base)
        for path in sorted({*listed, *base.facts.gitlinks, *known}):
            top = base.top / path
            inner = self._inner.get(prefix + path)
            if inner is None or first:
                inner = self._inner[prefix + path] = GitBase(nested_home(base.home, path), top)
            repository = repository_at(top)
            # Git does not list files in a nested repository, even in a damaged one.
            if repository is not None or path in listed:
                if not inner.exists:
                    if len(known) >= MAX_NESTED:
                        raise GitError(
                            f"{self._top} has more than {MAX_NESTED} repositories inside"
                        )
                    inner.create(repository if first else None, deadline)
                    (inner.home / "path").write_bytes(os.fsencode(path))
                    known.add(path)
                self._scan_folder(inner, f"{prefix}{path}/", found, deadline, first=first)
            elif inner.exists:
                # No longer a repository: its files are listed above, except for deleted ones.
                for name, entry in inner.entries(deadline).items():
                    full = f"{prefix}{path}/{name}"
                    content = self._content(inner, f"{prefix}{path}/", name, entry)
                    found.pop(full, None)
                    if content != entry[1]:
                        self._add(found, full, entry[1], content)

    def _add(
        self, found: dict[str, Content], path: str, in_base: str | None, now: str | None
    ) -> None:
        if in_base != now and STATE_FOLDER not in path.split("/"):
            found[path] = Content(in_base, now)

    def _content(
        self, base: GitBase, prefix: str, path: str, entry: tuple[str, str] | None
    ) -> str | None:
        """The git hash of the content at a path; `None`: there is no file.

        The mode is appended if it differs from the one in the base, whose `entry` is mode and hash.
        """
        full = base.top / path
        mode, blob = entry or (None, None)
        if entry is not None and is_behind_link(base.top, path):
            return None  # as in git: a path behind a link is not part of the project
        try:
            status = full.lstat()
            if stat.S_ISLNK(status.st_mode):
                now, content = "120000", _blob(os.fsencode(full.readlink()), base.facts.algorithm)
            elif stat.S_ISREG(status.st_mode):
                now = "100755" if status.st_mode & stat.S_IXUSR else "100644"
                content = self._file_content(full, status, base, prefix + path, blob)
            else:  # the files in a folder are listed separately
                return None if stat.S_ISDIR(status.st_mode) else "not a regular file"
        except OSError:
            return None
        if mode in {None, now} or ("120000" not in {mode, now} and not self._has_modes):
            return content
        return f"{content} {now}"

    def _file_content(
        self, full: Path, status: os.stat_result, base: GitBase, path: str, blob: str | None
    ) -> str:
        size_and_time = f"{status.st_size} {status.st_mtime_ns}"
        if status.st_size > MAX_HASHED_FILE or self._read + status.st_size > MAX_HASHED_BYTES:
            return size_and_time
        identity = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        known = self._known.get(path)
        if known is not None and known[0] == identity:
            return known[1]
        try:
            descriptor = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(MAX_HASHED_FILE + 1)
        except OSError:
            return size_and_time
        self._read += len(data)
        content = _blob(data, base.facts.algorithm)
        if blob is not None and content != blob and base.facts.autocrlf and b"\r\n" in data:
            plain = _blob(data.replace(b"\r\n", b"\n"), base.facts.algorithm)
            content = blob if plain == blob else content
        if time.time() - status.st_mtime > SETTLED_S:
            self._known[path] = (identity, content)
        return content

    def _state(self, mark: str) -> GitState:
        known = self._states.get(mark)
        if known is None:
            try:
                text = (self._notes / "marks" / f"{mark}.json").read_text(encoding="ascii")
                base, files = json.loads(text)
                known = GitState(base, {path: Content(*content) for path, content in files.items()})
            except (OSError, ValueError, TypeError, AttributeError):
                raise KeyError(mark) from None
            self._states[mark] = known
        return known

    # Saving

    def _write_start(self, state: GitState, deadline: Deadline) -> None:
        """Save the state at the start of the run, once, to count changed lines at the end."""
        start = self._notes / "start"
        if start.exists():
            return
        commit = ""
        with suppress(GitError):
            commit, _ = self._commit(state, "start", deadline, parent=None)
        start.write_text(commit, encoding="ascii")

    def _commit(
        self, state: GitState, message: str, deadline: Deadline, *, parent: str | None
    ) -> tuple[str, tuple[LeftOut, ...]]:
        """Commit the state to the repository's objects, and read it back. Raises `GitError`."""
        objects = self._real.objects
        if not objects.is_dir():
            raise GitError(f"{objects} no longer exists")
        base = self._base
        entries = base.entries(deadline)
        tree = base("write-tree", "--missing-ok", objects=objects, deadline=deadline).strip()
        empty = _blob(b"", base.facts.algorithm)
        wanted = [path for path, content in state.files.items() if content.now is not None]
        # A tree cannot contain files that were only added as intended (`add --intent-to-add`), or refer to
        # objects that were removed during the run (`git init`, `git gc`).
        lost = {empty, *self._missing({blob for _, blob in entries.values()}, deadline)}
        wanted += [path for path, (_, blob) in entries.items() if blob in lost]
        wanted += self._newly_ignored(deadline)
        chosen, left_out = choose(self._top, dict.fromkeys(wanted))
        chosen = [self._with_mode(entry, entries) for entry in chosen]
        deleted = [path for path, content in state.files.items() if content.now is None]
        folders = {str(each) for path in state.files for each in Path(path).parents}
        links = {path: at for path, at in base.facts.gitlinks.items() if path not in folders}
        head = [f"M {GITLINK} {at} ".encode() + quoted(path) for path, at in links.items()]
        head += [b"D " + quoted(path) for path in deleted if path in entries]
        commit, hashes = self._import(*(tree, parent, message, head), (chosen, left_out), deadline)
        self._verify(commit, hashes, deleted, left_out, deadline)
        return commit, tuple(left_out)

    def _with_mode(self, entry: ArchiveEntry, entries: dict[str, tuple[str, str]]) -> ArchiveEntry:
        """The entry with the mode in the base, if the file system has no modes."""
        known = entries.get(entry.path)
        if known is None or entry.mode == "120000" or known[0] == "120000" or self._has_modes:
            return entry
        return entry._replace(mode=known[0])

    @property
    def _has_modes(self) -> bool:
        with suppress(OSError):
            return "fileMode = false" not in (self._base.home / "config").read_text("ascii")
        return True

    def _newly_ignored(self, deadline: Deadline) -> list[str]:
        """Files hidden by ignore rules that changed during the run."""
        found: list[str] = []
        for prefix, base in self._bases().items():
            if not base.top.is_dir() or not base.exists:
                continue
            entries, ignoring = base.entries(deadline), base.facts.ignoring
            for source, path in base.ignored(deadline):
                now = self._content(base, prefix, source, None)
                if now in {ignoring.get(source), entries.get(source, ("", ""))[1]}:
                    continue
                inside = _files_below(base.top, path) if path.endswith("/") else [path]
                found += [prefix + each for each in inside if not CACHES & set(each.split("/"))]
        return found

    def _bases(self) -> dict[str, GitBase]:
        """The bases of the folder and of all nested repositories, by path prefix."""
        return {"": self._base, **{f"{path}/": base for path, base in self._inner.items()}}

    def _import(  # noqa: PLR0917  the parts of one commit
        self,
        tree: str,
        parent: str | None,
        message: str,
        head: list[bytes],
        entries: tuple[list[ArchiveEntry], list[LeftOut]],
        deadline: Deadline,
    ) -> tuple[str, dict[str, str]]:
        """Write the commit with `git fast-import`, which applies no filter, attribute, hook or index."""
        reference, (chosen, left_out) = "refs/switchgear/save", entries
        environment = clean_environment() | self._base.environment(self._real.objects)
        process = subprocess.Popen(
            ["git", "fast-import", "--quiet", "--force", "--done"],  # noqa: S607  the user's git
            cwd=self._top,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        stdin = cast("IO[bytes]", process.stdin)
        stderr = cast("IO[bytes]", process.stderr)
        timer = threading.Timer(deadline.left_s + 10.0, kill_group, (process,))
        timer.daemon = True
        timer.start()
        deadline.watch(process)
        hashes: dict[str, str] = {}
        text = message.encode(errors="replace")
        try:
            with suppress(BrokenPipeError):
                stdin.write(b"commit %s\n" % reference.encode())
                stdin.write(b"committer switchgear <switchgear@localhost> %d +0000\n" % time.time())
                stdin.write(b"data %d\n%s\n" % (len(text), text))
                stdin.write(b"from %s\n" % parent.encode() if parent else b"")
                stdin.write(b"deleteall\nM 040000 %s \n" % tree.encode())
                stdin.write(b"".join(line + b"\n" for line in head))
                for entry, data in write_stream(stdin, self._top, chosen, left_out, deadline):
                    hashes[entry.path] = _blob(data, self._base.facts.algorithm)
                stdin.write(b"\ndone\n")
                stdin.close()
            stderr_text = stderr.read().decode(errors="replace").strip()
            process.wait()
        except BaseException:
            kill_group(process)
            raise
        finally:
            timer.cancel()
            deadline.watch(None)
            with suppress(BrokenPipeError):
                stdin.close()
            stderr.close()
            process.wait()
        if process.returncode or deadline.cancelled:
            why = stderr_text or (
                "it was cancelled" if deadline.cancelled else f"exit code {process.returncode}"
            )
            raise GitError(f"git fast-import in {self._top}: {why[:500]}")
        commit = self._base("rev-parse", "--verify", reference, deadline=_at_least(deadline))
        return commit.strip(), hashes

    def _verify(
        self,
        commit: str,
        hashes: dict[str, str],
        deleted: list[str],
        left_out: list[LeftOut],
        deadline: Deadline,
    ) -> None:
        """Read the commit back: each path must have the content that was read, and each blob must exist."""
        deadline = _at_least(deadline)
        listed = self._base("ls-tree", "-r", "-z", "--full-tree", commit, deadline=deadline)
        found: dict[str, str] = {}
        for line in listed.split("\0")[:-1]:
            facts, _, path = line.partition("\t")
            found[path] = facts.split(" ")[2]
        wrong = [path for path, blob in hashes.items() if found.get(path) != blob]
        wrong += [path for path in deleted if path in found]
        left_out += [LeftOut(path, "not as it is in the folder") for path in sorted(wrong)]
        lost = self._missing(set(hashes.values()), deadline)
        left_out += [LeftOut(path, "not stored") for path, blob in hashes.items() if blob in lost]

    def _missing(self, blobs: set[str], deadline: Deadline) -> set[str]:
        """The blobs that the repository does not have."""
        stdin, objects = "".join(f"{blob}\n" for blob in blobs), self._real.objects
        check = ("cat-file", "--batch-check", "--buffer")
        checked = self._base(*check, stdin=stdin, objects=objects, deadline=deadline)
        return {line.split(" ")[0] for line in checked.splitlines() if line.endswith(" missing")}

    def _with_unreadable(self, left_out: tuple[LeftOut, ...]) -> tuple[LeftOut, ...]:
        """Add the folders that git could not read."""
        return (*left_out, *(LeftOut(line, "could not be read") for line in self._complaints))

    def _real_git(self, *arguments: str, deadline: Deadline) -> str:
        """Run a git command in the user's repository, without its hooks and monitors."""
        env = {"GIT_DIR": str(self._real.git_dir), "GIT_WORK_TREE": str(self._top)}
        return run_git(self._top, arguments, env=env, deadline=_at_least(deadline))

    def _head(self, deadline: Deadline) -> str | None:
        try:
            arguments = ("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
            return self._real_git(*arguments, deadline=deadline).strip() or None
        except GitError:
            return None  # a repository without a commit


def _files_below(top: Path, folder: str) -> list[str]:
    """The first `MAX_HIDDEN` files below a folder, without repositories and caches."""
    found: list[str] = []
    for here, folders, files in os.walk(top / folder):
        folders[:] = [each for each in folders if each not in CACHES | {STATE_FOLDER, ".git"}]
        found += [Path(here, each).relative_to(top).as_posix() for each in files]
        if len(found) > MAX_HIDDEN:
            break
    return found[:MAX_HIDDEN]


def _blocking_file(top: Path) -> str | None:
    """A pipe or similar file that git would read forever; `None`: there is none."""
    until_s = time.monotonic() + 5.0
    for here, folders, files in os.walk(top):
        inside = [".git/HEAD", ".git/commondir"] if ".git" in folders else []
        folders[:] = [each for each in folders if each not in SKIPPED | {STATE_FOLDER, ".git"}]
        for name in (*inside, *{".gitignore", ".gitattributes"}.intersection(files)):
            path = Path(here, name)
            with suppress(OSError):
                if path.exists() and not path.is_file():
                    return path.relative_to(top).as_posix()
        if time.monotonic() > until_s:
            break
    return None


def _at_least(deadline: Deadline) -> Deadline:
    """At least 10 s to finish what is already written, unless the work was cancelled."""
    return deadline if deadline.cancelled or deadline.left_s > 10.0 else Deadline(10.0)


def _known_nested(base: GitBase) -> set[str]:
    """The paths of nested repositories that were found before."""
    found = set()
    for file in (base.home / "nested").glob("*/path"):
        with suppress(OSError):
            found.add(os.fsdecode(file.read_bytes()))
    return found


def _blob(data: bytes, algorithm: str) -> str:
    make = hashlib.sha256 if algorithm == "sha256" else hashlib.sha1
    return make(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
