"""An agent's "done" is a claim: it counts only if measurements confirm it."""

from pathlib import Path
from typing import Any

import pytest

from switchgear._run.loop import Runner
from unit.runner_stage import Stage, checker


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_done_with_an_empty_diff_is_reported_and_is_not_a_success(stage: Stage) -> None:
    result = stage.run("tell(type='result', text='All done', success=True)")
    assert result.exit_reason == "circuit_breaker"
    first = stage.iterations()[0]
    assert (first["outcome"], first["ok"], first["claims_done"]) == ("unproven", None, True)
    assert any("no file differs" in note for note in first["notes"])
    assert "You said that you are done, but no file differs" in stage.prompt(2)


def test_an_empty_iteration_whose_last_step_failed_is_a_failure_with_that_error(
    stage: Stage,
) -> None:
    step = "tell(type='tool', name='sh', arguments={'command': 'cat x'}, ok=False, error='cat: x: No such file')\n"
    result = stage.run(f"{step}print('It is not there.')")
    assert (result.exit_reason, result.state.iterations) == ("circuit_breaker", 3)
    assert result.stats == (3, 3, 1)
    assert stage.iterations()[0]["error"] == "cat: x: No such file"


def test_a_failed_step_that_a_later_step_fixed_is_not_a_failure(stage: Stage) -> None:
    body = "tell(type='tool', name='sh', arguments={}, ok=False, error='x')\n"
    body += "tell(type='tool', name='sh', arguments={}, ok=True)"
    stage.run(body, max_iterations=1)
    assert stage.iterations()[0]["ok"] is None


def test_done_with_a_failing_validation_is_reported_and_is_a_failure(stage: Stage) -> None:
    check = checker(stage, "print('boom: error in module'); sys.exit(3)")
    result = stage.run("write('n', str(n)); print('DONE')", validate=check)
    assert result.exit_reason == "circuit_breaker"
    first = stage.iterations()[0]
    assert (first["outcome"], first["ok"], first["claims_done"]) == ("failed", False, True)
    assert "boom: error in module" in stage.prompt(2)
    assert "You said that you are done, but the validation failed" in stage.prompt(2)


def test_changes_that_were_undone_are_an_empty_diff(stage: Stage) -> None:
    body = "write('README', 'other' if n == 1 else 'a project\\n')\n"
    body += "tell(type='result', text='', success=None if n == 1 else True)"
    result = stage.run(body, max_iterations=2)
    assert result.exit_reason == "max_iterations"
    assert [each["outcome"] for each in stage.iterations()] == ["worked", "unproven"]


def test_nothing_left_to_do_after_work_is_completed(stage: Stage) -> None:
    body = "if n == 1: write('a', 'b')\n"
    body += "tell(type='result', text='', success=None if n == 1 else True)"
    result = stage.run(body)
    assert (result.exit_reason, result.state.iterations) == ("completed", 2)


def test_with_a_promise_only_the_promise_is_a_claim(stage: Stage) -> None:
    body = "write('n', str(n)); print('I am done' if n < 3 else 'so: ALL DONE')"
    result = stage.run(body, completion_promise="ALL DONE")
    assert (result.exit_reason, result.state.iterations) == ("completed", 3)
    assert "print exactly this:\nALL DONE" in stage.prompt(1)


def test_a_promise_kept_without_any_change_is_a_failure(stage: Stage) -> None:
    result = stage.run("print('ALL DONE')", completion_promise="ALL DONE")
    assert result.exit_reason == "circuit_breaker"
    assert result.state.iterations == 3
    assert "3 consecutive failures" in result.reason


def test_a_promise_with_a_failing_validation_is_not_completed(stage: Stage) -> None:
    check = checker(stage, "sys.exit(1)")
    result = stage.run(
        "write('n', str(n)); print('ALL DONE')", completion_promise="ALL DONE", validate=check
    )
    assert result.exit_reason == "circuit_breaker"


def test_a_promise_spread_over_two_lines_of_output_is_found(stage: Stage) -> None:
    body = "write('a', 'b'); print('ALL'); print('DONE')"
    assert stage.run(body, completion_promise="ALL\nDONE").exit_reason == "completed"


def test_a_plan_is_done_when_every_box_is_ticked(stage: Stage) -> None:
    plan = stage.folder / "PLAN.md"
    plan.write_text("# Plan\n- [x] think\n- [ ] build it\n* [ ] test it\n")
    body = "p = pathlib.Path('PLAN.md'); p.write_text(p.read_text().replace('[ ]', '[x]', 1))"
    result = stage.run(body, plan="PLAN.md")
    assert (result.exit_reason, result.state.iterations) == ("completed", 2)
    assert "1 box is ticked, 2 are open. The next one: build it" in stage.prompt(1)
    assert "The next one: test it" in stage.prompt(2)


def test_a_missing_plan_is_requested_in_the_prompt(stage: Stage) -> None:
    stage.run("write('a', str(n))", plan="PLAN.md", max_iterations=1)
    assert "write it as a checklist first" in stage.prompt(1)


def test_more_tests_passing_is_progress_although_some_still_fail(stage: Stage) -> None:
    """Ten failing tests, one fixed in each iteration, must not trip after three failures."""
    count = "k = int(pathlib.Path('n').read_text()) if os.path.exists('n') else 0\n"
    shown = "print(f'{k} passed, {6 - k} failed in 0.1s' if k < 6 else '6 passed in 0.1s')\n"
    check = checker(stage, count + shown + "sys.exit(k < 6)")
    result = stage.run("write('n', str(n))", validate=check)
    assert (result.exit_reason, result.state.iterations) == ("completed", 6)
    assert [each["ok"] for each in stage.iterations()] == [True] * 6
    assert [each["tests_before"] for each in stage.iterations()] == [0, 1, 2, 3, 4, 5]
    assert stage.iterations()[0]["tests_passing"] == 1


def test_tests_that_pass_no_more_than_before_are_failures(stage: Stage) -> None:
    check = checker(stage, "print('2 passed, 1 failed in 0.1s'); sys.exit(1)")
    result = stage.run("write('n', str(n))", validate=check)
    assert (result.exit_reason, result.state.iterations) == ("circuit_breaker", 3)
    assert result.state.tests_passing == 2


def test_a_failing_test_is_identified_by_its_name(stage: Stage) -> None:
    check = checker(
        stage, "print('FAILED tests/test_a.py::test_b - boom\\n1 failed in 0.1s'); sys.exit(1)"
    )
    stage.run("write('n', str(n))", validate=check)
    assert stage.iterations()[0]["error"] == (
        "validation failed: failing tests: tests/test_a.py::test_b"
    )


def test_files_that_the_validation_writes_are_not_progress(stage: Stage) -> None:
    body = (
        "import random\npathlib.Path('coverage.dat').write_text(str(random.random())); sys.exit(1)"
    )
    check = checker(stage, body)
    result = stage.run(
        "tell(type='text', text='thinking')", validate=check, consecutive_failures=9, same_error=9
    )
    assert "No progress in 4 iterations" in result.reason
    assert [each["files_changed"] for each in stage.iterations()] == [0, 0, 0, 0]


def test_committed_work_counts_as_changed(stage: Stage) -> None:
    body = (
        "write('a', 'b'); subprocess.run('git add a && git commit -qm x', shell=True, check=True)"
    )
    result = stage.run(body)
    assert result.exit_reason == "completed"
    assert stage.iterations()[0]["files"] == ["a"]


def test_a_folder_outside_git_is_measured_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path, git=False)
    result = stage.run("write('a', 'b')")
    assert result.exit_reason == "completed"
    assert result.checkpoint is not None
    assert result.checkpoint.how.startswith("tar -xzf ")
    assert Path(result.checkpoint.how.removeprefix("tar -xzf ")).stat().st_size > 0


def test_an_unmeasurable_folder_is_judged_by_the_validation_alone(stage: Stage) -> None:
    class Blind:
        def mark(self) -> str:
            if (stage.folder / "a").exists():
                raise OSError("no such disk")
            return "start"

        def keep(self, *_: object) -> None:
            raise OSError("no such disk")

    def runner(**options: Any) -> Runner:
        (stage.folder / "a").unlink(missing_ok=True)
        made = stage.runner("write('a', 'b')", max_iterations=1, **options)
        made.context = made.context._replace(tree=Blind())  # type: ignore[arg-type]
        return made

    result = runner(validate="true").run()
    assert result.exit_reason == "completed"
    assert result.checkpoint is None
    assert any("the work was not saved: no such disk" in note for note in result.notes)
    assert runner().run().exit_reason == "unmeasurable"
    assert stage.iterations()[-1]["files_changed"] is None
