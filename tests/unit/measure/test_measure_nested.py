"""Work inside nested repositories, submodules, worktrees and sparse checkouts is measured and saved."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repositories import make_repository
from switchgear._measure.git import GitTree
from switchgear._measure.tree import PlainTree, Tree, TreeChange, open_tree


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def repository(path: Path, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    make_repository(path)
    for name, text in files.items():
        (path / name).write_text(text)
    if files:
        git(path, "add", "-A")
        git(path, "commit", "-qm", "start")
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return repository(tmp_path / "project", a="a\n")


def tree_of(folder: Path) -> Tree:
    return open_tree(folder, folder / ".switchgear" / "runs" / "1" / "notes")


def saved(project: Path, path: str) -> str:
    return git(project, "show", f"refs/switchgear/runs/1:{path}")


def keep(tree: Tree) -> tuple[str, ...]:
    done = tree.keep("runs/1", "kept")
    assert done.how == "git diff HEAD refs/switchgear/runs/1"
    return done.notes


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("there_before", [True, False])
def test_work_in_a_nested_repository_counts_and_is_saved(
    project: Path, commits: bool, there_before: bool
) -> None:
    def make() -> None:
        repository(project / "nested", **({"old": "old\n"} if commits else {}))

    if there_before:
        make()
    tree = tree_of(project)
    before = tree.mark()
    if not there_before:
        make()
    (project / "nested" / "new").write_text("new\n")
    after = tree.mark()
    assert "nested/new" in tree.change(before, after).added
    (project / "nested" / "new").write_text("newer\n")
    assert tree.change(after, tree.mark()).modified == ("nested/new",)
    assert keep(tree) == ()
    assert saved(project, "nested/new") == "newer\n"
    assert saved(project, "a") == "a\n"


def _without_objects(nested: Path) -> None:
    shutil.rmtree(nested / ".git" / "objects")


def _with_linked_head(nested: Path) -> None:
    (nested / ".git" / "HEAD").unlink()
    (nested / ".git" / "HEAD").symlink_to("refs/heads/unborn")


def _with_odd_git_folder(nested: Path) -> None:
    (nested / ".git").rename(nested.parent.parent / "moved ")
    (nested / ".git").write_text(f"gitdir: {nested.parent.parent / 'moved '}\n")


@pytest.mark.parametrize("odd", [_without_objects, _with_linked_head, _with_odd_git_folder])
@pytest.mark.parametrize("there_before", [True, False])
def test_work_in_a_folder_that_git_treats_as_a_repository_counts_and_is_saved(
    project: Path, odd: Callable[[Path], None], there_before: bool
) -> None:
    def make() -> None:
        repository(project / "nested")
        odd(project / "nested")

    if there_before:
        make()
    tree = tree_of(project)
    before = tree.mark()
    if not there_before:
        make()
    (project / "nested" / "work").write_text("work\n")
    assert tree.change(before, tree.mark()) == TreeChange(added=("nested/work",))
    assert keep(tree) == ()
    assert saved(project, "nested/work") == "work\n"


def test_a_commit_inside_a_nested_repository_hides_nothing(project: Path) -> None:
    nested = repository(project / "nested", old="old\n")
    tree = tree_of(project)
    before = tree.mark()
    (nested / "old").write_text("new\n")
    dirty = tree.mark()
    git(nested, "commit", "-qam", "by the agent")
    assert not tree.change(dirty, tree.mark())
    assert tree.change(before, tree.mark()).modified == ("nested/old",)
    keep(tree)
    assert saved(project, "nested/old") == "new\n"


@pytest.fixture
def with_submodule(project: Path, tmp_path: Path) -> Path:
    library = repository(tmp_path / "library", lib="lib\n")
    git(project, "submodule", "add", "-q", str(library), "sub")
    git(project, "commit", "-qm", "submodule")
    return project


@pytest.mark.parametrize("what", ["dirty", "untracked", "commit", "staged", "deleted"])
def test_work_in_a_submodule_counts_and_is_saved(with_submodule: Path, what: str) -> None:
    sub = with_submodule / "sub"
    tree = tree_of(with_submodule)
    before = tree.mark()
    assert tree.mark() == before
    name = "new" if what == "untracked" else "lib"
    if what == "deleted":
        (sub / name).unlink()
    else:
        (sub / name).write_text("changed\n")
    if what in {"commit", "staged"}:
        git(sub, "add", "-A")
    if what == "commit":
        git(sub, "commit", "-qm", "more")
    assert tree.change(before, tree.mark()).paths == (f"sub/{name}",)
    assert keep(tree) == ()
    if what == "deleted":
        with pytest.raises(subprocess.CalledProcessError):
            saved(with_submodule, f"sub/{name}")
    else:
        assert saved(with_submodule, f"sub/{name}") == "changed\n"


def test_an_unchanged_submodule_stays_a_submodule(with_submodule: Path) -> None:
    tree = tree_of(with_submodule)
    tree.mark()
    (with_submodule / "a").write_text("changed\n")
    keep(tree)
    assert git(with_submodule, "diff", "--name-only", "HEAD", "refs/switchgear/runs/1") == "a\n"


def test_a_repository_whose_git_folder_is_removed_is_a_folder_again(project: Path) -> None:
    nested = repository(project / "nested", one="1\n", two="2\n")
    tree = tree_of(project)
    before = tree.mark()
    shutil.rmtree(nested / ".git")
    assert not tree.change(before, tree.mark())
    (nested / "one").unlink()
    (nested / "two").write_text("zwei\n")
    assert tree.change(before, tree.mark()) == TreeChange((), ("nested/two",), ("nested/one",))
    keep(tree)
    assert saved(project, "nested/two") == "zwei\n"


def test_the_removal_of_a_nested_repository_is_detected(project: Path) -> None:
    nested = repository(project / "nested", one="1\n")
    (nested / "untracked").write_text("u")
    tree = tree_of(project)
    before = tree.mark()
    shutil.rmtree(nested)
    assert tree.change(before, tree.mark()).deleted == ("nested/one", "nested/untracked")


def test_repositories_inside_repositories_are_detected(project: Path) -> None:
    repository(project / "one", x="x\n")
    deep = repository(project / "one" / "two" / "three")
    tree = tree_of(project)
    before = tree.mark()
    (deep / "deep").write_text("deep\n")
    assert tree.change(before, tree.mark()).added == ("one/two/three/deep",)
    keep(tree)
    assert saved(project, "one/two/three/deep") == "deep\n"


def test_files_that_a_nested_repository_ignores_do_not_count(project: Path) -> None:
    nested = repository(project / "nested", **{".gitignore": "build/\n"})
    tree = tree_of(project)
    before = tree.mark()
    (nested / "build").mkdir()
    (nested / "build" / "out").write_text("x")
    assert not tree.change(before, tree.mark())


def test_work_in_a_worktree_inside_the_project_counts(project: Path) -> None:
    git(project, "worktree", "add", "-q", "inner", "-b", "inner")
    tree = tree_of(project)
    before = tree.mark()
    (project / "inner" / "a").write_text("changed\n")
    assert tree.change(before, tree.mark()).modified == ("inner/a",)
    keep(tree)
    assert saved(project, "inner/a") == "changed\n"


def test_a_project_that_is_a_worktree_is_measured_and_saved(project: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "inner")
    tree = tree_of(tmp_path / "tree")
    before = tree.mark()
    (tmp_path / "tree" / "a").write_text("changed\n")
    assert tree.change(before, tree.mark()).modified == ("a",)
    keep(tree)
    assert saved(project, "a") == "changed\n"


def test_a_git_file_with_a_missing_target_hides_nothing(project: Path) -> None:
    (project / "broken").mkdir()
    (project / "broken" / ".git").write_text("gitdir: /nowhere\n")
    tree = tree_of(project)
    before = tree.mark()
    (project / "broken" / "new").write_text("new\n")
    assert "broken/new" in tree.change(before, tree.mark()).added
    keep(tree)
    assert saved(project, "broken/new") == "new\n"


def test_work_in_a_bare_repository_inside_counts(project: Path) -> None:
    git(project, "init", "-q", "--bare", "bare.git")
    tree = tree_of(project)
    before = tree.mark()
    (project / "bare.git" / "description").write_text("changed\n")
    assert tree.change(before, tree.mark()).modified == ("bare.git/description",)


@pytest.mark.parametrize("sparse_index", ["--sparse-index", "--no-sparse-index"])
def test_work_in_a_sparse_checkout_counts_inside_and_outside_of_it(
    project: Path, sparse_index: str
) -> None:
    for folder in ("inside", "outside"):
        (project / folder).mkdir()
        (project / folder / "file").write_text(f"{folder}\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "folders")
    git(project, "sparse-checkout", "set", "--cone", sparse_index, "inside")
    assert not (project / "outside").exists()
    tree = tree_of(project)
    before = tree.mark()
    assert tree.mark() == before
    (project / "inside" / "file").write_text("changed\n")
    (project / "outside").mkdir()
    (project / "outside" / "new").write_text("new\n")
    change = tree.change(before, tree.mark())
    assert change == TreeChange(("outside/new",), ("inside/file",), ())
    keep(tree)
    shown = git(project, "diff", "--name-status", "HEAD", "refs/switchgear/runs/1")
    assert shown.splitlines() == ["M\tinside/file", "A\toutside/new"]
    (project / "outside" / "file").write_text("written\n")
    assert "outside/file" in tree.change(before, tree.mark()).paths
    keep(tree)
    assert saved(project, "outside/file") == "written\n"


def test_a_repository_of_another_user_is_measured(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    if os.getuid() == 0:
        for path in (project, project / ".git"):
            os.chown(path, 12345, 12345)
    tree = tree_of(project)
    assert isinstance(tree, GitTree)
    before = tree.mark()
    (project / "a").write_text("changed\n")
    assert tree.change(before, tree.mark()).modified == ("a",)
    assert tree.keep("runs/1", "kept").how.startswith("git diff")


@pytest.mark.parametrize("damage", ["index", "config", "HEAD", "no index", "locked"])
def test_a_damaged_repository_is_measured_anyway(project: Path, damage: str) -> None:
    (project / "b").write_text("b\n")
    if damage == "no index":
        (project / ".git" / "index").unlink()
    elif damage == "locked":
        (project / ".git" / "index.lock").write_text("")
    else:
        (project / ".git" / damage).write_text("[[[ damaged")
    tree = tree_of(project)
    before = tree.mark()
    (project / "a").write_text("changed\n")
    (project / "new").write_text("new\n")
    assert tree.change(before, tree.mark()) == TreeChange(("new",), ("a",), ())
    assert tree.keep("runs/1", "kept").how


def test_a_repository_that_is_damaged_during_the_run_is_measured_and_saved_elsewhere(
    project: Path, tmp_path: Path
) -> None:
    tree = tree_of(project)
    before = tree.mark()
    (project / "a").write_text("changed\n")
    shutil.rmtree(project / ".git")
    assert tree.change(before, tree.mark()).modified == ("a",)
    done = tree.keep("runs/1", "kept")
    assert done.how.startswith("tar -xzf ")
    subprocess.run(done.how, shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "a").read_text() == "changed\n"
    assert any("git could not store it" in note for note in done.notes)


def test_a_folder_is_measured_although_git_fails(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "git"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    tree = tree_of(project)
    assert isinstance(tree, PlainTree)
    before = tree.mark()
    (project / "a").write_text("changed\n")
    assert tree.change(before, tree.mark()).modified == ("a",)


def test_a_project_that_the_repository_around_it_ignores_is_measured(project: Path) -> None:
    (project / ".gitignore").write_text("work/\n")
    work = project / "work" / "project"
    work.mkdir(parents=True)
    (work / "a").write_text("a")
    tree = tree_of(work)
    before = tree.mark()
    (work / "a").write_text("b")
    assert tree.change(before, tree.mark()).modified == ("a",)


def test_a_project_that_is_a_link_is_measured(project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    tree = open_tree(tmp_path / "link", tmp_path / "link" / ".switchgear" / "notes")
    before = tree.mark()
    (project / "a").write_text("changed\n")
    assert tree.change(before, tree.mark()).modified == ("a",)


@pytest.mark.parametrize("clean", ["git clean -fdxq", "rm -rf .switchgear"])
def test_an_agent_that_removes_our_folder_hides_nothing(project: Path, clean: str) -> None:
    (project / "b").write_text("untracked\n")
    tree = tree_of(project)
    before = tree.mark()
    (project / "a").write_text("changed\n")
    git(project, "commit", "-qam", "by the agent")
    subprocess.run(clean, shell=True, cwd=project, check=True)
    change = tree.change(before, tree.mark())
    assert change.modified == ("a",)
    assert change.deleted == (("b",) if clean.startswith("git") else ())


def test_a_repository_with_sha256_names_is_measured_and_saved(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "--object-format=sha256")
    (folder / "a").write_text("a\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    tree = tree_of(folder)
    before = tree.mark()
    assert tree.mark() == before
    (folder / "a").write_text("changed\n")
    assert tree.change(before, tree.mark()).modified == ("a",)
    keep(tree)
    assert saved(folder, "a") == "changed\n"


def test_a_later_process_reads_the_bases_of_nested_repositories(project: Path) -> None:
    nested = repository(project / "nested", one="1\n")
    before = tree_of(project).mark()
    (nested / "one").write_text("eins\n")
    script = (
        "import sys; from pathlib import Path; from switchgear._measure.tree import open_tree\n"
        "folder = Path(sys.argv[1]); tree = open_tree(folder, folder / '.switchgear/runs/1/notes')\n"
        "print(tree.change(sys.argv[2], tree.mark()).paths)"
    )
    command = [sys.executable, "-c", script, str(project), before]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "('nested/one',)\n"
