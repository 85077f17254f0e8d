"""Work that is reported as saved is saved, whatever an agent did to the repository; the rest is listed."""

import errno
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from repositories import make_repository
from switchgear._measure import saved_refs
from switchgear._measure.git import MARK_S
from switchgear._measure.git_command import Deadline, GitError, run_git
from switchgear._measure.saved_refs import NotSaved, save_archive
from switchgear._measure.tree import Tree, TreeChange, open_tree
from timeouts import LIMIT_S, eventually

WHO = ("-c", "user.name=t", "-c", "user.email=t@localhost")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *WHO, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    make_repository(folder)
    (folder / "a").write_text("a\n")
    (folder / "b").write_text("b\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    return folder


def tree_of(folder: Path) -> Tree:
    return open_tree(folder, folder / ".switchgear" / "runs" / "1" / "notes")


def blob(project: Path, path: str) -> bytes:
    reference = f"refs/switchgear/runs/1:{path}"
    return subprocess.run(
        ["git", "--no-replace-objects", "cat-file", "blob", reference],
        cwd=project,
        check=True,
        capture_output=True,
    ).stdout


def config(*pairs: str) -> Callable[[Path], object]:
    def apply(project: Path) -> None:
        for pair in pairs:
            git(project, "config", *pair.split("=", 1))

    return apply


def attributes(where: str, text: str, *pairs: str) -> Callable[[Path], object]:
    def apply(project: Path) -> None:
        config(*pairs)(project)
        (project / where).parent.mkdir(exist_ok=True)
        (project / where).write_text(text)

    return apply


def excluded(project: Path) -> None:
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "exclude").write_text("*\n")


def excluded_by_file(project: Path) -> None:
    (project.parent / "ignore").write_text("*\n")
    git(project, "config", "core.excludesFile", str(project.parent / "ignore"))


def flagged(flag: str) -> Callable[[Path], object]:
    return lambda project: git(project, "update-index", flag, "a", "b")


def hooked(project: Path) -> None:
    hooks = project / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "reference-transaction", "post-index-change", "commit-msg"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    git(project, "config", "core.hooksPath", str(hooks))


def replaced(project: Path) -> None:
    old = git(project, "rev-parse", "HEAD:b").strip()
    new = git(project, "rev-parse", "HEAD:a").strip()
    git(project, "replace", old, new)


TAMPERED: dict[str, Callable[[Path], object]] = {
    "a clean filter": attributes(
        *(".gitattributes", "* filter=evil\n"),
        *("filter.evil.clean=echo nothing", "filter.evil.required=true"),
    ),
    "a filter that fails": attributes(
        *(".git/info/attributes", "* filter=evil\n"),
        *("filter.evil.clean=false", "filter.evil.required=true"),
    ),
    "a filter that hangs": attributes(
        *(".git/info/attributes", "* filter=evil\n"), "filter.evil.process=sleep 600"
    ),
    "text conversion": attributes(".gitattributes", "* text=auto eol=crlf ident\n"),
    "an encoding": attributes(".gitattributes", "* text working-tree-encoding=UTF-16\n"),
    "a monitor that lies": config("core.fsmonitor=true"),
    "a monitor that hangs": config("core.fsmonitor=sleep 600"),
    "autocrlf": config("core.autocrlf=true", "core.safecrlf=true"),
    "signed commits": config("commit.gpgsign=true", "gpg.program=false"),
    "an external diff": config("diff.external=false", "diff.noprefix=true"),
    "a broken setting": lambda project: (project / ".git" / "config").write_text("[oops"),
    "another worktree": config("core.worktree=/tmp"),
    "ignored stats": config(
        "core.ignoreStat=true", "core.trustctime=false", "core.checkStat=minimal"
    ),
    "hidden untracked files": config("status.showUntrackedFiles=no", "core.untrackedCache=true"),
    "a bare repository": config("core.bare=true"),
    "assume-unchanged": flagged("--assume-unchanged"),
    "skip-worktree": flagged("--skip-worktree"),
    "exclude": excluded,
    "excludesFile": excluded_by_file,
    "ignore rules": lambda project: (project / ".gitignore").write_text("*\n"),
    "hooks": hooked,
    "replacements": replaced,
    "a locked index": lambda project: (project / ".git" / "index.lock").write_text("x"),
    "a locked reference": lambda project: (project / ".git" / "packed-refs.lock").write_text(""),
    "no permissions in the index": lambda project: (project / ".git" / "index").write_bytes(b""),
}


@pytest.mark.parametrize("what", TAMPERED)
@pytest.mark.parametrize("when", ["before", "during"])
def test_nothing_that_an_agent_sets_changes_what_is_measured_and_saved(
    project: Path, tmp_path: Path, what: str, when: str
) -> None:
    if when == "before":
        if what in {"exclude", "excludesFile", "ignore rules"}:
            pytest.skip("what is excluded before the run is the user's choice")
        TAMPERED[what](project)
    tree = tree_of(project)
    before = tree.mark()
    if when == "during":
        TAMPERED[what](project)
    wanted = {"a": b"one\r\ntwo\n$Id$\n", "new": b"\xff\xfe\x00new\r\n", "dir/deep": b"deep"}
    for path, data in wanted.items():
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_bytes(data)
    began_s = time.monotonic()
    paths = tree.change(before, tree.mark()).paths
    if what != "ignore rules":  # they are a file of the project, which everybody can see
        assert set(wanted) <= set(paths)
    done = tree.keep("runs/1", "kept")
    assert time.monotonic() - began_s < LIMIT_S
    if done.how.startswith("git "):
        assert done.notes == ()
        config_file = project / ".git" / "config"
        config_file.write_text("[core]\n\trepositoryformatversion = 0\n")
        assert {path: blob(project, path) for path in wanted} == wanted
        assert blob(project, "b") == b"b\n"
    else:
        assert what == "a broken setting", done
        (tmp_path / "out").mkdir()
        subprocess.run(done.how, shell=True, cwd=tmp_path / "out", check=True)
        assert {path: (tmp_path / "out" / path).read_bytes() for path in wanted} == wanted
        assert any("git could not store it" in note for note in done.notes)


def test_objects_that_come_from_elsewhere_are_not_relied_on(project: Path, tmp_path: Path) -> None:
    tree = tree_of(project)
    tree.mark()
    (project / "new").write_text("new\n")
    elsewhere = tmp_path / "elsewhere"
    git(tmp_path, "init", "-q", "--bare", str(elsewhere))
    (project / ".git/objects/info").mkdir(exist_ok=True)
    (project / ".git/objects/info/alternates").write_text(f"{elsewhere}/objects\n")
    done = tree.keep("runs/1", "kept")
    assert done.how.startswith("tar ")
    assert any("alternates" in note for note in done.notes)


def test_a_symbolic_reference_in_its_place_moves_no_branch(project: Path) -> None:
    tree = tree_of(project)
    tree.mark()
    start = git(project, "rev-parse", "HEAD")
    branch = git(project, "symbolic-ref", "HEAD").strip()
    for place in ("refs/switchgear/runs/1", "refs/switchgear-kept/runs/1"):
        git(project, "symbolic-ref", place, branch)
    (project / "new").write_text("new\n")
    assert tree.keep("runs/1", "kept").notes == ()
    assert blob(project, "new") == b"new\n"
    assert git(project, "rev-parse", "HEAD") == start


@pytest.mark.parametrize("how", ["another repository", "removed objects"])
def test_a_save_does_not_rely_on_objects_that_are_removed_during_the_run(
    project: Path, how: str
) -> None:
    (project / "b").write_text("only in the index\n")
    git(project, "add", "b")
    tree = tree_of(project)
    tree.mark()
    if how == "another repository":
        shutil.rmtree(project / ".git")
        git(project, "init", "-q")
    else:
        git(project, "reset", "-q")
        git(project, "gc", "-q", "--prune=now")
    (project / "new").write_text("new\n")
    assert tree.keep("runs/1", "kept").notes == ()
    assert blob(project, "b") == b"only in the index\n"
    git(project, "rev-list", "--objects", "refs/switchgear/runs/1")


def test_files_that_cannot_be_saved_are_named_and_the_rest_is_saved_in_time(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(project)
    tree.mark()
    (project / "new").write_text("new\n")
    with (project / "sparse").open("wb") as file:
        file.truncate(10**12)
    os.mkfifo(project / "pipe")
    with (project / "b").open("wb") as file:  # a file that git knows
        file.truncate(10**11)
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(project)  # the name of a socket must be short
        server.bind("socket")
        began_s = time.monotonic()
        before = tree.mark()
        done = tree.keep("runs/1", "kept")
        assert time.monotonic() - began_s < LIMIT_S
    assert blob(project, "new") == b"new\n"
    assert done.notes == ("not saved (larger than 100 MB): 2 files: b, sparse",)
    os.truncate(project / "sparse", 10**12 + 1)
    assert tree.change(before, tree.mark()).modified == ("sparse",)


def test_an_empty_file_that_becomes_huge_leaves_time_for_the_rest(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "empty").touch()
    git(project, "add", "empty")
    tree = tree_of(project)
    before = tree.mark()
    refreshed: list[float] = []

    def without_waiting(
        folder: Path, arguments: Sequence[str], *, deadline: Deadline, **more: Any
    ) -> str:
        if "--refresh" in arguments:  # git reads all of it
            refreshed.append(deadline.left_s)
            deadline.kill()
            raise GitError("it did not end in time")
        return run_git(folder, arguments, deadline=deadline, **more)

    monkeypatch.setattr("switchgear._measure.git_base.run_git", without_waiting)
    os.truncate(project / "empty", 10**12)
    (project / "new").write_text("new\n")
    assert tree.change(before, tree.mark()).paths == ("empty", "new")
    done = tree.keep("runs/1", "kept")
    assert done.notes == ("not saved (larger than 100 MB): 1 file: empty",)
    assert blob(project, "new") == b"new\n"
    [given_s] = refreshed
    assert given_s < MARK_S / 2


def test_a_file_that_becomes_a_pipe_is_named(project: Path) -> None:
    tree = tree_of(project)
    tree.mark()
    (project / "a").unlink()
    os.mkfifo(project / "a")
    assert tree.keep("runs/1", "kept").notes == ("not saved (not a regular file): 1 file: a",)


def test_a_file_that_cannot_be_read_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(project)
    tree.mark()
    (project / "secret").write_text("s")
    (project / "new").write_text("new\n")
    read = saved_refs.read_entry

    def refuse(folder: Path, entry: saved_refs.ArchiveEntry) -> bytes:
        if entry.path == "secret":
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(folder, entry)

    monkeypatch.setattr(saved_refs, "read_entry", refuse)
    assert tree.keep("runs/1", "kept").notes == ("not saved (Permission denied): 1 file: secret",)
    assert blob(project, "new") == b"new\n"


def test_saving_has_a_deadline_and_what_was_not_reached_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(project)
    tree.mark()
    for number in range(20):
        (project / f"new{number:02}").write_text("x" * number)
    deadline = Deadline(60)
    read = saved_refs.read_entry
    seen: list[str] = []

    def slow(folder: Path, entry: saved_refs.ArchiveEntry) -> bytes:
        seen.append(entry.path)
        if len(seen) == 5:
            deadline._until_s = 0.0
        return read(folder, entry)

    monkeypatch.setattr(saved_refs, "read_entry", slow)
    done = tree.keep("runs/1", "kept", deadline)
    [note] = done.notes
    assert note.startswith("not saved (no time was left): 15 files: ")
    assert blob(project, "new04") == b"xxxx"


def test_a_save_that_is_cancelled_reports_that_nothing_was_saved(project: Path) -> None:
    tree = tree_of(project)
    tree.mark()
    (project / "new").write_text("new\n")
    deadline = Deadline(60)
    deadline.kill()
    with pytest.raises(Exception, match=r"cancelled|no time"):
        tree.keep("runs/1", "kept", deadline)


def test_links_modes_and_deletions_are_saved(project: Path) -> None:
    tree = tree_of(project)
    tree.mark()
    (project / "a").unlink()
    (project / "b").chmod(0o755)
    (project / "b").write_text("#!/bin/sh\n")
    (project / "link").symlink_to("/nowhere")
    assert tree.keep("runs/1", "kept").notes == ()
    listed = git(project, "ls-tree", "-r", "refs/switchgear/runs/1").splitlines()
    assert [line.split()[0] + " " + line.split()[-1] for line in listed] == [
        "100755 b",
        "120000 link",
    ]
    assert blob(project, "link") == b"/nowhere"


def modes(project: Path) -> dict[str, str]:
    listed = git(project, "ls-tree", "-r", "refs/switchgear/runs/1").splitlines()
    return {line.split()[-1]: line.split()[0] for line in listed}


def test_a_file_that_became_a_program_has_changed_and_is_saved_as_one(project: Path) -> None:
    tree = tree_of(project)
    before = tree.mark()
    (project / "b").chmod(0o755)
    assert tree.change(before, tree.mark()) == TreeChange(modified=("b",))
    assert tree.keep("runs/1", "kept").notes == ()
    assert modes(project) == {"a": "100644", "b": "100755"}


def test_a_file_that_became_a_link_to_what_it_contained_is_saved_as_a_link(project: Path) -> None:
    (project / "b").write_text("a")
    git(project, "commit", "-qam", "no newline")
    tree = tree_of(project)
    before = tree.mark()
    (project / "b").unlink()
    (project / "b").symlink_to("a")
    assert tree.change(before, tree.mark()) == TreeChange(modified=("b",))
    assert tree.keep("runs/1", "kept").notes == ()
    assert modes(project) == {"a": "100644", "b": "120000"}


def test_file_modes_that_git_ignores_are_not_changes(project: Path) -> None:
    git(project, "config", "core.fileMode", "false")
    tree = tree_of(project)
    before = tree.mark()
    (project / "b").chmod(0o755)
    assert not tree.change(before, tree.mark())


def test_a_folder_that_became_a_link_is_saved_as_a_link(project: Path, tmp_path: Path) -> None:
    (project / "folder").mkdir()
    (project / "folder" / "file").write_text("inside\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "a folder")
    tree = tree_of(project)
    before = tree.mark()
    (project / "folder").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "file").write_text("changed elsewhere\n")
    (project / "folder").symlink_to("../elsewhere")
    change = tree.change(before, tree.mark())
    assert change == TreeChange(added=("folder",), deleted=("folder/file",))
    assert tree.keep("runs/1", "kept").notes == ()
    assert modes(project) == {"a": "100644", "b": "100644", "folder": "120000"}


def test_a_conflict_in_the_index_is_saved_as_it_is_in_the_folder(project: Path) -> None:
    git(project, "checkout", "-qb", "other")
    (project / "a").write_text("theirs\n")
    git(project, "commit", "-qam", "theirs")
    git(project, "checkout", "-q", "-")
    (project / "a").write_text("ours\n")
    git(project, "commit", "-qam", "ours")
    merge = ["git", *WHO, "merge", "-q", "other"]
    subprocess.run(merge, cwd=project, capture_output=True, check=False)
    before = git(project, "status", "--porcelain", "-uno")
    assert before.startswith("UU a")
    tree = tree_of(project)
    start = tree.mark()
    assert tree.mark() == start
    assert tree.keep("runs/1", "kept").notes == ()
    assert b"<<<<<<<" in blob(project, "a")
    assert git(project, "status", "--porcelain", "-uno") == before


def test_a_file_added_with_intent_to_add_is_saved(project: Path) -> None:
    (project / "empty").write_text("")
    (project / "soon").write_text("soon\n")
    git(project, "add", "--intent-to-add", "empty", "soon")
    tree = tree_of(project)
    tree.mark()
    assert tree.keep("runs/1", "kept").notes == ()
    assert blob(project, "soon") == b"soon\n"
    assert blob(project, "empty") == b""


def test_rules_of_the_agents_hide_nothing_from_the_save(project: Path) -> None:
    (project / ".gitignore").write_text("build/\n")
    (project / "build").mkdir()
    (project / "build" / "out").write_text("of the user's rules")
    tree = tree_of(project)
    tree.mark()
    (project / "src").mkdir()
    (project / "src" / "work").write_text("work\n")
    (project / "src" / ".gitignore").write_text("*\n")
    (project / "node_modules").mkdir()
    (project / "node_modules" / "x").write_text("x")
    (project / "node_modules" / ".gitignore").write_text("*\n")
    assert tree.keep("runs/1", "kept").notes == ()
    listed = git(project, "ls-tree", "-r", "--name-only", "refs/switchgear/runs/1").split()
    assert listed == [".gitignore", "a", "b", "src/.gitignore", "src/work"]


@pytest.mark.parametrize("cache", [".pytest_cache", ".mypy_cache", ".ruff_cache", ".venv"])
def test_caches_with_their_own_gitignore_are_not_saved_or_counted(
    project: Path, cache: str
) -> None:
    tree = tree_of(project)
    tree.mark()
    (project / cache / "v").mkdir(parents=True)
    (project / cache / ".gitignore").write_text("*\n")
    (project / cache / "v" / "lastfailed").write_text("one\ntwo\n")
    (project / "a").write_text("another\n")
    assert tree.keep("runs/1", "kept").notes == ()
    listed = git(project, "ls-tree", "-r", "--name-only", "refs/switchgear/runs/1").split()
    assert listed == ["a", "b"]
    assert tree.lines_since_start() == (1, 1)


# Archives


def test_the_error_of_a_slow_measurement_is_not_its_own_cause(
    project: Path,
) -> None:
    tree = tree_of(project)
    with pytest.raises(GitError, match="no time was left") as raised:
        tree._scan(Deadline(0.0))  # type: ignore[attr-defined]
    assert tree.too_slow is raised.value  # type: ignore[attr-defined]
    assert raised.value.__cause__ is None
    assert not saved_refs.is_full(raised.value)


def test_a_request_to_stop_shortens_the_time_of_a_running_command(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear._measure.git_command.STOPPING_S", 0.0)
    deadline, started = Deadline(LIMIT_S), project / "started"

    def stop() -> None:
        eventually(started.exists, "the command runs")
        deadline.stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    waits = ["-c", f"alias.waits=!touch {started}; sleep 600", "waits"]
    with pytest.raises(GitError, match="did not end in time"):
        run_git(project, waits, deadline=deadline)
    stopping.join()
    assert deadline.is_over


def test_the_causes_of_an_error_are_followed_once() -> None:
    first, second = OSError(errno.EIO, "input"), OSError(errno.ENOSPC, "full")
    first.__cause__, second.__cause__ = second, first
    assert saved_refs.is_full(first)
    second.errno = errno.EIO
    assert not saved_refs.is_full(first)


def test_an_archive_goes_elsewhere_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "new").write_text("new")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(elsewhere))
    pack = saved_refs._pack

    def full(at: Path, entries: object, place: Path, *rest: object) -> None:
        if not place.is_relative_to(elsewhere):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        pack(at, entries, place, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(saved_refs, "_pack", full)
    place, missed = save_archive(folder, ["new"], folder / "runs" / "x.tar.gz", Deadline(60))
    assert place.is_relative_to(elsewhere)
    assert missed == ()
    listed = subprocess.run(["tar", "-tzf", place], capture_output=True, text=True, check=True)
    assert listed.stdout == "new\n"


def test_a_disk_that_is_full_everywhere_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(saved_refs, "_pack", full)
    with pytest.raises(NotSaved, match="No space left on device"):
        save_archive(tmp_path, ["new"], tmp_path / "x.tar.gz", Deadline(60))


def test_an_archive_leaves_out_huge_and_special_files(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    tree = tree_of(tmp_path)
    tree.mark()
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**12)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "new").write_text("new")
    began_s = time.monotonic()
    done = tree.keep("runs/1", "kept")
    assert time.monotonic() - began_s < LIMIT_S
    assert done.notes == (
        "not saved (larger than 100 MB): 1 file: sparse",
        "not saved (not a regular file): 1 file: pipe",
    )


@pytest.mark.parametrize("pipe", [".gitignore", "nested/.git/HEAD"])
def test_a_file_of_rules_that_is_a_pipe_is_named_and_the_work_is_saved(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipe: str
) -> None:
    tree = tree_of(project)
    tree.mark()
    monkeypatch.setattr("switchgear._measure.git.MARK_S", 1.0)
    (project / "new").write_text("new\n")
    if pipe.startswith("nested"):
        (project / "nested").mkdir()
        make_repository(project / "nested")
        (project / pipe).unlink()
    os.mkfifo(project / pipe)
    named = re.escape(pipe)
    with pytest.raises(GitError, match=f"{named} is not a regular file, and git blocks on it"):
        tree.mark()
    began_s = time.monotonic()
    done = tree.keep("runs/1", "kept", Deadline(6.0))
    assert time.monotonic() - began_s < LIMIT_S
    assert done.how.startswith("tar ")
    (tmp_path / "out").mkdir()
    subprocess.run(done.how, shell=True, cwd=tmp_path / "out", check=True)
    assert (tmp_path / "out" / "new").read_text() == "new\n"


@pytest.mark.parametrize("pipe", ["HEAD", "packed-refs"])
def test_a_pipe_in_place_of_a_reference_leaves_time_for_an_archive(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipe: str
) -> None:
    monkeypatch.setattr("switchgear._measure.git.REFERENCE_S", 0.5)
    monkeypatch.setattr("switchgear._measure.git._at_least", lambda deadline: deadline)
    tree = tree_of(project)
    tree.mark()
    (project / "new").write_text("new\n")
    (project / ".git" / pipe).unlink(missing_ok=True)
    os.mkfifo(project / ".git" / pipe)
    done = tree.keep("runs/1", "kept", Deadline(60.0))
    assert any("git could not store it" in note for note in done.notes), done
    (tmp_path / "out").mkdir()
    subprocess.run(done.how, shell=True, cwd=tmp_path / "out", check=True)
    assert (tmp_path / "out" / "new").read_text() == "new\n"


def test_the_command_that_unpacks_an_archive_can_be_typed_wherever_it_lies(tmp_path: Path) -> None:
    folder = tmp_path / "my 'own' $HOME"
    folder.mkdir()
    tree = open_tree(folder, folder / "notes of a run")
    tree.mark()
    (folder / "new").write_text("new\n")
    (folder / "new").chmod(0o755)
    done = tree.keep("runs", "kept")
    (tmp_path / "out").mkdir()
    subprocess.run(done.how, shell=True, cwd=tmp_path / "out", check=True)
    assert (tmp_path / "out" / "new").read_text() == "new\n"
    assert os.access(tmp_path / "out" / "new", os.X_OK)
