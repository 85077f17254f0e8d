"""What changed in a folder, committed or not, in git and outside it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repositories import make_repository
from switchgear._measure.git import GitTree
from switchgear._measure.tree import PlainTree, Tree, TreeChange, open_tree


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(params=["git", "plain"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "b.txt").write_text("b\n")
    if request.param == "git":
        make_repository(folder)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "start")
    return folder


def tree_of(folder: Path) -> Tree:
    return open_tree(folder, folder / ".switchgear" / "runs" / "1")


def test_a_repository_is_measured_by_git_and_a_folder_by_its_files(project: Path) -> None:
    kind = GitTree if (project / ".git").exists() else PlainTree
    assert isinstance(tree_of(project), kind)


def test_without_work_nothing_has_changed(project: Path) -> None:
    tree = tree_of(project)
    before = tree.mark()
    assert tree.mark() == before
    assert not tree.change(before, tree.mark())


def test_added_modified_and_deleted_files_are_distinguished(project: Path) -> None:
    tree = tree_of(project)
    before = tree.mark()
    (project / "src" / "a.py").write_text("a = 2\n")
    (project / "new.txt").write_text("new\n")
    (project / "b.txt").unlink()
    change = tree.change(before, tree.mark())
    assert change == TreeChange(("new.txt",), ("src/a.py",), ("b.txt",))
    assert change.paths == ("b.txt", "new.txt", "src/a.py")
    assert len(change) == 3


PRINTS_AND_MEASURES = """
import json, sys
from pathlib import Path
from switchgear._measure.tree import open_tree
said, *made = sys.argv[1:]
tree = open_tree(Path.cwd(), Path(".switchgear/runs/1").absolute())
before = tree.mark()
print("iteration 1 of 30", flush=True)
print("a warning", file=sys.stderr, flush=True)
for name in made:
    Path(name).write_text("made\\n")
found = tree.change(before, tree.mark()).paths, tree.lines_since_start()
Path(said).write_text(json.dumps(found))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not tell")
@pytest.mark.parametrize("made", [[], ["new.txt"]])
def test_output_of_switchgear_in_the_folder_is_not_progress(
    project: Path, tmp_path: Path, made: list[str]
) -> None:
    said = tmp_path / "said.json"
    with (project / "night.log").open("w") as log, (project / "src" / "err.log").open("w") as err:
        command = [sys.executable, "-c", PRINTS_AND_MEASURES, str(said), *made]
        subprocess.run(command, cwd=project, stdout=log, stderr=err, check=True)
    assert "iteration 1" in (project / "night.log").read_text()
    paths, lines = json.loads(said.read_text())
    assert paths == made
    assert lines == ([len(made), 0] if (project / ".git").exists() else None)
    resumed = tree_of(project)  # prints elsewhere, and knows what was printed to before
    before = resumed.mark()
    (project / "night.log").write_text("edited by somebody")
    assert not resumed.change(before, resumed.mark())


def test_a_file_that_is_written_with_the_same_content_has_not_changed(project: Path) -> None:
    tree = tree_of(project)
    before = tree.mark()
    (project / "b.txt").write_text("b\n")
    os.utime(project / "b.txt", (1, 1))
    assert not tree.change(before, tree.mark())


def test_a_file_that_became_a_program_has_changed(project: Path) -> None:
    tree = tree_of(project)
    before = tree.mark()
    (project / "b.txt").chmod(0o755)
    assert tree.change(before, tree.mark()) == TreeChange(modified=("b.txt",))


def test_a_change_that_is_undone_is_not_a_change(project: Path) -> None:
    tree = tree_of(project)
    before = tree.mark()
    (project / "b.txt").write_text("other\n")
    assert tree.change(before, tree.mark())
    (project / "b.txt").write_text("b\n")
    assert not tree.change(before, tree.mark())


def test_the_folder_of_switchgear_is_not_progress(project: Path) -> None:
    tree = tree_of(project)
    before = tree.mark()
    (project / ".switchgear").mkdir(exist_ok=True)
    (project / ".switchgear" / "state.db").write_text("x")
    assert not tree.change(before, tree.mark())


@pytest.mark.parametrize("name", ["spaced name.txt", "ünïcode.txt", 'quo"te.txt', "new\nline.txt"])
def test_any_file_name_is_measured(project: Path, name: str) -> None:
    tree = tree_of(project)
    before = tree.mark()
    (project / name).write_text("x")
    assert tree.change(before, tree.mark()).added == (name,)


def test_links_are_compared_by_their_target(project: Path) -> None:
    (project / "link").symlink_to("b.txt")
    tree = tree_of(project)
    before = tree.mark()
    (project / "link").unlink()
    (project / "link").symlink_to("src")
    assert tree.change(before, tree.mark()).modified == ("link",)


# In git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("a\n")
    (folder / ".gitignore").write_text("build/\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    return folder


def test_a_commit_hides_nothing_and_adds_nothing(repository: Path) -> None:
    tree = tree_of(repository)
    before = tree.mark()
    (repository / "a.txt").write_text("changed\n")
    uncommitted = tree.mark()
    git(repository, "commit", "-qam", "agent commits")
    committed = tree.mark()
    assert not tree.change(uncommitted, committed)
    assert tree.change(before, uncommitted) == tree.change(before, committed)
    assert tree.change(before, committed).modified == ("a.txt",)


def test_ignored_files_do_not_count(repository: Path) -> None:
    tree = tree_of(repository)
    before = tree.mark()
    (repository / "build").mkdir()
    (repository / "build" / "out.o").write_text("x")
    assert not tree.change(before, tree.mark())


def test_the_index_and_branches_of_the_user_stay_unchanged(repository: Path) -> None:
    (repository / "staged.txt").write_text("s")
    git(repository, "add", "staged.txt")
    (repository / "a.txt").write_text("unstaged\n")
    before = git(repository, "status", "--porcelain"), git(repository, "branch", "-a")
    tree = tree_of(repository)
    tree.keep("runs/1", "checkpoint")
    ours = "?? .switchgear/\n"
    after = git(repository, "status", "--porcelain").replace(ours, "")
    assert (after, git(repository, "branch", "-a")) == before


def test_a_checkpoint_holds_the_whole_state_on_a_private_reference(repository: Path) -> None:
    (repository / "a.txt").write_text("half done\n")
    (repository / "new.txt").write_text("new\n")
    tree = tree_of(repository)
    how = tree.keep("runs/1", "after 3 iterations").how
    assert how == "git diff HEAD refs/switchgear/runs/1"
    assert git(repository, "show", "refs/switchgear/runs/1:new.txt") == "new\n"
    assert git(repository, "show", "refs/switchgear/runs/1:a.txt") == "half done\n"
    assert "after 3 iterations" in git(repository, "log", "-1", "refs/switchgear/runs/1")


def test_a_repository_without_a_commit_can_be_kept_too(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text("a")
    tree = tree_of(tmp_path)
    how = tree.keep("runs/1", "first").how
    assert how == "git show refs/switchgear/runs/1"  # there is no HEAD to compare with
    assert git(tmp_path, "show", "refs/switchgear/runs/1:a.txt") == "a"


def test_a_subfolder_of_a_repository_is_measured_with_the_whole_of_it(repository: Path) -> None:
    (repository / "sub").mkdir()
    tree = tree_of(repository / "sub")
    before = tree.mark()
    (repository / "a.txt").write_text("changed above\n")
    assert tree.change(before, tree.mark()).modified == ("a.txt",)


def test_variables_of_a_surrounding_git_command_are_ignored(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    tree = tree_of(repository)
    before = tree.mark()
    (repository / "a.txt").write_text("changed\n")
    assert tree.change(before, tree.mark()).modified == ("a.txt",)


# Outside git


def test_a_checkpoint_outside_git_is_an_archive_of_what_changed(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    tree = tree_of(folder)
    tree.mark()
    (folder / "new.txt").write_text("new")
    how = tree.keep("checkpoint", "after 3 iterations").how
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(how, shell=True, cwd=elsewhere, check=True)
    assert [path.name for path in elsewhere.iterdir()] == ["new.txt"]


def test_large_files_are_compared_by_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear._measure.tree.HASHED_BYTES", 10)
    (tmp_path / "large").write_text("x" * 100)
    tree = tree_of(tmp_path)
    before = tree.mark()
    (tmp_path / "large").write_text("y" * 101)
    assert tree.change(before, tree.mark()).modified == ("large",)


def test_a_large_tracked_file_with_only_a_new_time_is_unchanged(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear._measure.git.MAX_HASHED_FILE", 10)
    monkeypatch.setattr("switchgear._measure.git_base.COMPARED_BYTES", 10)
    large = repository / "large"
    large.write_text("more than ten bytes\n")
    git(repository, "add", "large")
    git(repository, "commit", "-qm", "a large file")
    tree = tree_of(repository)
    before = tree.mark()
    os.utime(large, (1, 1))
    assert tree.mark() == before
    large.write_text("more than ten bytez\n")
    assert tree.change(before, tree.mark()).modified == ("large",)


def test_a_lock_that_a_killed_git_left_is_removed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear._measure.git_base.COMPARED_BYTES", 1)
    tree = tree_of(repository)
    before = tree.mark()
    [index] = (repository / ".switchgear").glob("**/base/index")
    index.with_name("index.lock").touch()
    os.utime(repository / "a.txt", (1, 1))
    assert tree.mark() == before
    assert not index.with_name("index.lock").exists()
    (repository / "new.txt").write_text("new\n")
    assert tree.keep("run-1", "work").how.startswith("git diff HEAD")


def test_without_git_on_the_machine_a_repository_is_a_folder(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    which: Callable[..., None] = lambda _: None  # noqa: E731
    monkeypatch.setattr("switchgear._measure.tree.shutil.which", which)
    assert isinstance(tree_of(repository), PlainTree)


def test_commits_deletions_and_reverts_between_marks_are_seen_by_content(repository: Path) -> None:
    tree = tree_of(repository)
    before = tree.mark()
    (repository / "new.txt").write_text("new")
    (repository / "a.txt").unlink()
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "agent")
    middle = tree.mark()
    assert tree.change(before, middle) == TreeChange(("new.txt",), (), ("a.txt",))
    git(repository, "revert", "--no-edit", "HEAD")
    assert not tree.change(before, tree.mark())
    assert tree.change(middle, tree.mark()) == TreeChange(("a.txt",), (), ("new.txt",))


def test_a_dirty_file_that_was_dirty_before_is_compared_with_what_it_was(repository: Path) -> None:
    (repository / "a.txt").write_text("dirty\n")
    (repository / "untracked.txt").write_text("u")
    tree = tree_of(repository)
    before = tree.mark()
    assert not tree.change(before, tree.mark())
    (repository / "a.txt").write_text("dirtier\n")
    git(repository, "add", "untracked.txt")
    assert tree.change(before, tree.mark()) == TreeChange((), ("a.txt",), ())
    git(repository, "checkout", "a.txt")
    assert tree.change(before, tree.mark()) == TreeChange((), ("a.txt",), ())


def test_marks_of_an_earlier_process_are_recognised_and_others_are_not(repository: Path) -> None:
    before = tree_of(repository).mark()
    (repository / "a.txt").write_text("changed\n")
    later = tree_of(repository)
    assert later.change(before, later.mark()).modified == ("a.txt",)
    with pytest.raises(KeyError):
        later.change("nobody", later.mark())


def test_filters_of_git_do_not_turn_a_commit_into_a_change(repository: Path) -> None:
    git(repository, "config", "core.autocrlf", "true")
    tree = tree_of(repository)
    (repository / "a.txt").write_text("one\r\ntwo\r\n", newline="")
    dirty = tree.mark()
    git(repository, "commit", "-qam", "agent")
    assert not tree.change(dirty, tree.mark())


def test_the_first_commit_of_a_repository_is_not_a_change(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text("a")
    tree = tree_of(tmp_path)
    before = tree.mark()
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-qm", "first")
    assert not tree.change(before, tree.mark())
