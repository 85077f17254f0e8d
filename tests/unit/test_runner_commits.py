"""`--commit`: what the run changed and validated, nothing else, with the user's own hooks."""

from pathlib import Path

import pytest

from switchgear.runner.commits import commit_paths
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


def test_what_fails_the_validation_is_committed_with_what_mends_it(stage: Stage) -> None:
    check = checker(stage, "sys.exit(0 if os.path.exists('two') else 1)")
    body = "write('one' if n == 1 else 'two', str(n))"
    stage.run(body, commit=True, validate=check)
    assert len(log(stage)) == 2
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["one", "two"]


def test_what_the_user_left_there_is_not_swept_in(stage: Stage) -> None:
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


def test_what_the_agent_committed_itself_needs_no_commit(stage: Stage) -> None:
    body = "write('a', 'b'); subprocess.run('git add a && git commit -qm mine', shell=True)"
    result = stage.run(body, commit=True)
    assert log(stage) == ["mine", "start"]
    assert result.exit_reason == "completed"
    assert stage.iterations()[0]["commit"] is None


def test_hooks_of_the_user_run(stage: Stage) -> None:
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


def test_our_folder_is_never_committed(stage: Stage) -> None:
    (stage.folder / ".switchgear").mkdir(exist_ok=True)
    (stage.folder / ".switchgear" / "x").write_text("1")
    assert commit_paths(stage.folder, [".switchgear/x"], "m") == (None, None)
    assert log(stage) == ["start"]


def test_outside_git_it_is_said(tmp_path: Path) -> None:
    stage = Stage(tmp_path, git=False)
    stage.run("write('a', 'b')", commit=True)
    assert any("no git repository" in note for note in stage.iterations()[0]["notes"])
