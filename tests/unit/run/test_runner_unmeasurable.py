"""A run never continues unmeasured: nested repositories count, and unmeasurable folders end it."""

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from switchgear._measure.git import GitTree
from switchgear._measure.git_command import GitError
from switchgear._run.exit_reasons import EXIT_CODES, ExitReason
from switchgear._run.interrupt import Interrupt
from timeouts import eventually
from unit.runner_stage import Stage

WORKS_INSIDE = "write('nested/f', str(n)); tell(type='result', text='more', success=None)"
STANDS_STILL = "tell(type='result', text='more', success=None)"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def nested(stage: Stage, *, commit: bool) -> None:
    subprocess.run(["git", "init", "-q", "nested"], cwd=stage.folder, check=True)
    if commit:
        (stage.folder / "nested" / "f").write_text("0")
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        for words in (["add", "-A"], ["commit", "-qm", "start"]):
            subprocess.run(["git", *who, *words], cwd=stage.folder / "nested", check=True)


@pytest.mark.parametrize("commit", [True, False])
def test_an_agent_that_works_in_a_nested_repository_makes_progress(
    stage: Stage, commit: bool
) -> None:
    nested(stage, commit=commit)
    result = stage.run(WORKS_INSIDE, max_iterations=6)
    assert (result.exit_reason, result.state.iterations) == ("max_iterations", 6)
    assert result.state.changed == ("nested/f",)
    assert stage.git("show", f"refs/switchgear/runs/{result.run}:nested/f") == "6"
    assert [facts["files_changed"] for facts in stage.iterations()] == [1] * 6


@pytest.mark.parametrize("commit", [True, False])
def test_an_agent_without_progress_beside_a_nested_repository_is_stopped(
    stage: Stage, commit: bool
) -> None:
    nested(stage, commit=commit)
    result = stage.run(STANDS_STILL)
    assert result.exit_reason == "circuit_breaker"
    assert result.state.iterations <= 5


def test_a_folder_that_cannot_be_measured_at_the_start_costs_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = stage.runner("write('ran', 'x')")

    def broken(_: object) -> str:
        raise GitError("git ls-files: it did not end in time")

    monkeypatch.setattr(GitTree, "mark", broken)
    result = runner.run()
    assert result.exit_reason is ExitReason.UNMEASURABLE
    assert (result.exit_code, EXIT_CODES[ExitReason.UNMEASURABLE].code) == (18, 18)
    assert "cannot be measured: git ls-files: it did not end in time" in result.reason
    assert not (stage.folder / "ran").exists()


def test_a_folder_that_becomes_unmeasurable_ends_the_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = GitTree.mark

    def breaks(tree: GitTree) -> str:
        if (stage.folder / "n2").exists():
            raise GitError("git ls-files: broken")
        return mark(tree)

    monkeypatch.setattr(GitTree, "mark", breaks)
    body = "write(f'n{n}', 'x'); tell(type='result', text='more', success=None)"
    result = stage.run(body)
    assert (result.exit_reason, result.state.iterations) == ("unmeasurable", 2)
    assert result.checkpoint is not None
    assert stage.git("show", f"refs/switchgear/runs/{result.run}:n2") == "x"


def test_one_measurement_that_fails_does_not_end_the_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, failures = GitTree.mark, [1]

    def hiccups(tree: GitTree) -> str:
        if (stage.folder / "n2").exists() and failures:
            failures.pop()
            raise GitError("git ls-files: interrupted")
        return mark(tree)

    monkeypatch.setattr(GitTree, "mark", hiccups)
    body = "write(f'n{n}', 'x'); tell(type='result', text='more', success=None)"
    result = stage.run(body, max_iterations=4)
    assert (result.exit_reason, result.state.iterations) == ("max_iterations", 4)


def test_an_agent_that_cleans_the_folder_loses_neither_the_run_nor_its_progress(
    stage: Stage,
) -> None:
    body = (
        "subprocess.run(['git', 'clean', '-fdxq'])\n"
        "write(f'n{n}', 'x'); tell(type='result', text='more', success=None)"
    )
    result = stage.run(body, max_iterations=3)
    assert (result.exit_reason, result.state.iterations) == ("max_iterations", 3)
    assert stage.run_json()["end"]["exit_reason"] == "max_iterations"


def test_signals_end_a_measurement_that_hangs_and_the_work_is_saved(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, real, path = stage.scripts / "started", shutil.which("git"), os.environ["PATH"]
    hangs = f'test -e work && mkdir "{started}" 2>/dev/null && exec sleep 600'
    wrapper = stage.scripts / "git"
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *diff-files*) {hangs};; esac\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stage.scripts}:{path}")
    interrupt = Interrupt()
    stage.dependencies = stage.dependencies._replace(interrupt=interrupt)

    def ask() -> None:
        eventually(started.exists, "the measurement hangs")
        interrupt.ask()
        interrupt.ask()

    asking = threading.Thread(target=ask)
    asking.start()
    result = stage.run("write('work', 'x'); tell(type='result', text='more', success=None)")
    asking.join()
    assert result.exit_reason == "interrupted"
    assert stage.git("show", f"refs/switchgear/runs/{result.run}:work") == "x"
