"""`--commit`: what the run changed and validated, nothing else, with the user's own hooks."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from switchgear._run.commits import CommitContext, CommitResult, commit_paths
from switchgear._run.interrupt import Interrupt
from timeouts import LIMIT_S, eventually
from unit.runner_stage import Stage, checker

GOES_ON = "tell(type='result', text='', success=None)"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def log(stage: Stage) -> list[str]:
    return stage.git("log", "--format=%s").splitlines()


def test_a_validated_iteration_is_committed_with_task_and_run(stage: Stage) -> None:
    check = checker(stage, "sys.exit(0)")
    result = stage.run("write('a', 'b')", commit=True, validate=check, task="add the file a")
    message = stage.git("log", "-1", "--format=%B")
    assert message.startswith("add the file a\n")
    assert result.run in message
    assert stage.iterations()[0]["commit"] == stage.git("rev-parse", "HEAD").strip()
    assert stage.git("status", "--porcelain") == ""
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["a"]


def test_without_the_flag_nothing_is_committed(stage: Stage) -> None:
    stage.run("write('a', 'b')")
    assert log(stage) == ["start"]


def test_changes_that_fail_the_validation_are_committed_with_their_fix(stage: Stage) -> None:
    check = checker(stage, "sys.exit(0 if os.path.exists('two') else 1)")
    body = "write('one' if n == 1 else 'two', str(n))"
    stage.run(body, commit=True, validate=check)
    assert len(log(stage)) == 2
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["one", "two"]


def test_other_changes_of_the_user_are_not_committed(stage: Stage) -> None:
    (stage.folder / "README").write_text("half an idea\n")
    (stage.folder / "staged").write_text("x")
    (stage.folder / "draft").write_text("x")
    stage.git("add", "staged")
    stage.run("write('a', 'b')", commit=True)
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["a"]
    left = stage.git("status", "--porcelain").splitlines()
    assert sorted(left) == [" M README", "?? draft", "A  staged"]


def test_deleted_and_oddly_named_files_are_committed(stage: Stage) -> None:
    stage.run("os.remove('README'); write('*.py :x', '1'); write('-rf', '2')", commit=True)
    assert stage.git("status", "--porcelain") == ""


def test_files_that_become_folders_links_or_programs_are_committed(stage: Stage) -> None:
    for name in ("file", "program", "folder/inside"):
        (stage.folder / name).parent.mkdir(exist_ok=True)
        (stage.folder / name).write_text("x")
    stage.git("add", "-A")
    stage.git("commit", "-qm", "more")
    body = (
        "os.remove('file'); os.mkdir('file'); write('file/inside', '1'); os.chmod('program', 0o755);"
        "os.rename('folder', '../elsewhere'); os.symlink('../elsewhere', 'folder')"
    )
    stage.run(body, commit=True)
    assert stage.git("status", "--porcelain") == ""
    listed = [line.split() for line in stage.git("ls-tree", "-r", "HEAD").splitlines()]
    assert {line[-1]: line[0] for line in listed} == {
        "README": "100644",
        "file/inside": "100644",
        "folder": "120000",
        "program": "100755",
    }


def test_work_outside_a_sparse_checkout_is_committed(stage: Stage) -> None:
    stage.git("sparse-checkout", "set", "--no-cone", "/README")
    stage.run("os.mkdir('away'); write('away/a', '1')", commit=True)
    assert "away/a" in stage.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()


def test_changes_that_the_agent_committed_are_not_committed_again(stage: Stage) -> None:
    body = "write('a', 'b'); subprocess.run('git add a && git commit -qm mine', shell=True)"
    result = stage.run(body, commit=True)
    assert log(stage) == ["mine", "start"]
    assert result.exit_reason == "completed"
    assert stage.iterations()[0]["commit"] is None


def test_git_hooks_of_the_user_run(stage: Stage) -> None:
    hook = stage.folder / ".git" / "hooks" / "commit-msg"
    hook.write_text('#!/bin/sh\necho "hooked" >> "$1"\n')
    hook.chmod(0o755)
    stage.run("write('a', 'b')", commit=True)
    assert "hooked" in stage.git("log", "-1", "--format=%B")


def test_a_refused_commit_is_a_note_and_is_tried_again(stage: Stage) -> None:
    hook = stage.folder / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ntest -e two\n")
    hook.chmod(0o755)
    stage.run(f"write('one' if n == 1 else 'two', 'x'); {GOES_ON}", commit=True, max_iterations=2)
    first, second = stage.iterations()
    assert any("the commit was refused" in note for note in first["notes"])
    assert second["commit"]
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["one", "two"]


def test_the_folder_of_switchgear_is_never_committed(stage: Stage) -> None:
    (stage.folder / ".switchgear").mkdir(exist_ok=True)
    (stage.folder / ".switchgear" / "x").write_text("1")
    assert (
        commit_paths(stage.folder, [".switchgear/x"], "m", CommitContext(stage.scripts))
        == CommitResult()
    )
    assert log(stage) == ["start"]


def test_a_commit_outside_git_is_reported(tmp_path: Path) -> None:
    stage = Stage(tmp_path, git=False)
    stage.run("write('a', 'b')", commit=True)
    assert any("not in a git repository" in note for note in stage.iterations()[0]["notes"])


# What is the user's stays as it is


def index_of(stage: Stage) -> tuple[str, str]:
    return stage.git("ls-files", "-s", "-u"), stage.git("status", "--porcelain")


def conflict(stage: Stage) -> None:
    stage.git("checkout", "-qb", "other")
    (stage.folder / "README").write_text("theirs\n")
    stage.git("commit", "-qam", "theirs")
    stage.git("checkout", "-q", "-")
    (stage.folder / "README").write_text("ours\n")
    stage.git("commit", "-qam", "ours")
    command = ["git", "merge", "-q", "other"]
    assert subprocess.run(command, cwd=stage.folder, capture_output=True, check=False).returncode


def test_a_conflict_stays_a_conflict(stage: Stage) -> None:
    conflict(stage)
    before, head = index_of(stage), stage.git("rev-parse", "HEAD")
    result = stage.run("write('README', 'mine'); write('a', 'b')", commit=True)
    after = stage.git("ls-files", "-u")
    assert after.count("README") == 3, "a conflict became resolved"
    assert stage.git("rev-parse", "HEAD") == head
    assert (stage.folder / ".git" / "MERGE_HEAD").exists()
    assert before[1].splitlines()[0] == "UU README"
    [note] = [note for facts in stage.iterations() for note in facts["notes"] if "commit" in note]
    assert "nothing was committed: a merge is in progress in" in note
    assert result.exit_reason == "completed"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("MERGE_HEAD", "a merge"),
        ("rebase-merge", "a rebase"),
        ("rebase-apply", "a rebase"),
        ("CHERRY_PICK_HEAD", "a cherry-pick"),
        ("REVERT_HEAD", "a revert"),
        ("sequencer", "a cherry-pick or a revert of several commits"),
    ],
)
def test_nothing_is_committed_during_a_merge_or_rebase(stage: Stage, name: str, what: str) -> None:
    (stage.folder / ".git" / name).mkdir()
    (stage.folder / "a").write_text("b")
    before = stage.git("ls-files", "-s")
    made = commit_paths(stage.folder, ["a"], "m", CommitContext(stage.scripts))
    assert made.commit is None
    assert made.problem is not None
    assert made.problem.startswith(f"nothing was committed: {what}")
    assert stage.git("ls-files", "-s") == before


def hook(stage: Stage, name: str, text: str) -> None:
    file = stage.folder / ".git" / "hooks" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.mark.parametrize("refuses", ["exit 1", "kill -9 $PPID", "kill -TERM $PPID; sleep 9"])
def test_a_refused_commit_leaves_the_index_as_it_was(stage: Stage, refuses: str) -> None:
    hook(stage, "pre-commit", refuses)
    (stage.folder / "staged").write_text("x")
    stage.git("add", "staged")
    (stage.folder / "README").write_text("changed\n")
    (stage.folder / "a").write_text("b")
    before = index_of(stage)
    made = commit_paths(stage.folder, ["a", "README"], "m", CommitContext(stage.scripts))
    assert made.commit is None
    assert made.problem is not None
    assert index_of(stage) == before
    assert list(stage.scripts.iterdir()) == []
    assert not (stage.folder / ".git" / "index.lock").exists()


def test_files_that_a_git_hook_adds_are_not_staged_as_deleted(stage: Stage) -> None:
    hook(stage, "pre-commit", "echo made > made; git add made")
    (stage.folder / "mine").write_text("staged by the user\n")
    stage.git("add", "mine")
    (stage.folder / "a").write_text("b")
    assert commit_paths(stage.folder, ["a"], "m", CommitContext(stage.scripts)).commit is not None
    assert stage.git("show", "HEAD:made").strip() == "made"
    assert stage.git("status", "--porcelain").strip() == "A  mine"


def test_a_hook_that_refuses_without_a_message_is_reported(stage: Stage) -> None:
    hook(stage, "pre-commit", "exit 1")
    (stage.folder / "a").write_text("b")
    made = commit_paths(stage.folder, ["a"], "m", CommitContext(stage.scripts))
    assert made.problem == "the commit was refused: git ended with exit code 1"


def test_a_hook_is_bound_by_the_time_of_the_run(stage: Stage) -> None:
    hook(stage, "pre-commit", f"sleep 600 & echo $! > {stage.scripts}/pid; wait")
    (stage.folder / "a").write_text("b")
    before, began_s = index_of(stage), time.monotonic()
    made = commit_paths(stage.folder, ["a"], "m", CommitContext(stage.scripts, left_s=1.0))
    assert time.monotonic() - began_s < LIMIT_S
    assert made.problem is not None
    assert made.problem.startswith("the commit was stopped: its hooks did not end within")
    assert index_of(stage) == before
    pid = (stage.scripts / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()


def test_a_filter_that_hangs_is_ended_by_signals(stage: Stage) -> None:
    started = stage.scripts / "started"
    stage.git("config", "filter.hangs.clean", f"touch {started}; sleep 600")
    (stage.folder / ".gitattributes").write_text("README filter=hangs\n")
    (stage.folder / "README").write_text("other\n")
    interrupt = Interrupt()

    def ask() -> None:
        eventually(started.exists, "the filter runs")
        interrupt.ask()
        interrupt.ask()

    asking = threading.Thread(target=ask)
    asking.start()
    before = index_of(stage)
    made = commit_paths(
        stage.folder, ["README"], "m", CommitContext(stage.scripts, interrupt=interrupt)
    )
    asking.join()
    assert made.problem is not None
    assert index_of(stage) == before


def test_a_hook_after_the_commit_that_hangs_does_not_undo_it(stage: Stage) -> None:
    hook(stage, "post-commit", "sleep 300")
    (stage.folder / "a").write_text("b")
    made = commit_paths(stage.folder, ["a"], "m", CommitContext(stage.scripts, left_s=3.0))
    assert made.commit == stage.git("rev-parse", "HEAD").strip()
    assert made.problem is None
    assert made.note is not None
    assert made.note.startswith("committed, but a hook after the commit did not end within ")
    assert stage.git("status", "--porcelain") == ""


def test_changes_in_a_nested_repository_are_reported_and_not_committed(stage: Stage) -> None:
    subprocess.run(["git", "init", "-q", "nested"], cwd=stage.folder, check=True)
    stage.run("write('nested/a', 'b'); write('c', 'd')", commit=True)
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["c"]
    notes = stage.iterations()[0]["notes"]
    assert any("nested repositories (nested)" in note for note in notes)


def test_a_file_name_that_is_not_utf8_is_committed(stage: Stage) -> None:
    name = b"caf\xe9".decode(errors="surrogateescape")
    (stage.folder / name).write_text("x")
    made = commit_paths(stage.folder, [name], "m", CommitContext(stage.scripts))
    assert made.commit is not None, made.problem
    assert stage.git("status", "--porcelain") == ""
