"""A run continues where it stopped: the same circuit, the money spent, the time used, the evidence."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from switchgear._cli.resume import _start
from switchgear._core.types import Phase
from switchgear._run.circuits import Measured
from switchgear._run.judge import Judgement
from switchgear._run.options import RunOptions
from switchgear._run.result import RunResult
from switchgear._run.state import RunState
from unit.runner_stage import Stage

GOES_ON = "write('n', str(n)); usage(0.4); tell(type='result', text='more', success=None)"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def resume(stage: Stage, body: str, **flags: Any) -> RunResult:
    held = stage.run_json()
    options = RunOptions.load(held["options"]).changed(flags)
    return stage.run(body, state=RunState.load(held["state"]), **options.dump())


def test_iterations_and_spending_continue(stage: Stage) -> None:
    stage.run(GOES_ON, max_iterations=1)
    result = resume(stage, GOES_ON, max_iterations=3)
    assert (result.exit_reason, result.state.iterations) == ("max_iterations", 3)
    assert result.state.spent_micros == 1_200_000
    assert [each["number"] for each in stage.iterations()] == [1, 2, 3]
    assert result.state.resumptions == 1


def test_a_budget_that_is_spent_stays_spent(stage: Stage) -> None:
    stage.run(GOES_ON, budget_micros=500_000)
    again = resume(stage, GOES_ON)
    assert (again.exit_reason, again.state.iterations) == ("budget", 1)
    more = resume(stage, GOES_ON, budget_micros=1_000_000)
    assert (more.exit_reason, more.state.iterations) == ("budget", 2)


def test_time_that_is_used_stays_used(stage: Stage) -> None:
    stage.run(GOES_ON, max_iterations=1, timeout_s=100.0)
    held = RunState.load(stage.run_json()["state"])._replace(seconds=100.0)
    options = RunOptions.load(stage.run_json()["options"]).changed({"max_iterations": 9})
    result = stage.run(GOES_ON, state=held, **options.dump())
    assert (result.exit_reason, result.state.iterations) == ("timeout", 1)


def test_more_time_re_enables_warnings_that_lie_ahead_again(stage: Stage) -> None:
    stage.run(GOES_ON, max_iterations=1, timeout_s=100.0)
    held = RunState.load(stage.run_json()["state"])
    options = RunOptions.load(stage.run_json()["options"])

    def told(used_s: float, timeout_s: float) -> bool:
        """Whether a run that had given both warnings gives one in the prompt of its next step."""
        state = held._replace(seconds=used_s, warned=(70, 90))
        changed = options.changed({"max_iterations": 2, "timeout_s": timeout_s})
        stage.run(GOES_ON, state=state, **changed.dump())
        return "TIME WARNING" in stage.prompt(2)

    assert not told(95.0, 100.0)
    assert not told(95.0, 200.0)
    assert stage.run_json()["state"]["warned"] == []
    assert not told(190.0, 200.0)


def test_more_time_is_as_much_as_requested_whatever_was_granted_before(stage: Stage) -> None:
    stage.run(GOES_ON, max_iterations=1, timeout_s=100.0)
    assert stage.record is not None
    held = stage.run_json()
    held["state"] |= {"seconds": 400.0, "extra_s": 300.0}
    held["pid"] = 0
    (stage.record.path / "run.json").write_text(json.dumps(held))
    start = _start(stage.record, {}, 60.0)
    assert start.state is not None
    assert start.options.timeout_s is not None
    assert start.options.timeout_s + start.state.extra_s == 460.0


def test_the_rate_limit_counts_earlier_starts(stage: Stage) -> None:
    stage.run(GOES_ON, max_iterations=1, rate_limit=1)
    stage.hands.now_s += 600
    resume(stage, GOES_ON, max_iterations=2)
    assert stage.view.waits[0][1] == pytest.approx(3000, abs=1)


def test_starting_again_on_an_open_circuit_reports_it(stage: Stage) -> None:
    fails = "fail('cannot do it')"
    stage.run(fails)
    stage.record = None
    again = stage.run(fails)
    assert (again.exit_reason, again.state.iterations) == ("circuit_breaker", 0)
    assert "is open: 3 failures in a row" in again.reason
    assert re.search(r"retries in \d+ s", again.reason)


def test_after_the_cooldown_one_retry_decides(stage: Stage) -> None:
    stage.run("fail('cannot do it')")
    stage.hands.now_s += 31
    again = resume(stage, "fail('something else')")
    assert (again.exit_reason, again.state.iterations) == ("circuit_breaker", 4)
    stage.hands.now_s += 31
    good = resume(stage, "write('a', 'b')")
    assert good.exit_reason == "completed"


def test_a_retry_that_changes_nothing_has_failed(stage: Stage) -> None:
    stage.run("fail('cannot do it')")
    stage.hands.now_s += 31
    again = resume(stage, "print('hm')")
    assert (again.exit_reason, again.state.iterations) == ("circuit_breaker", 4)


def test_a_retry_that_takes_longer_than_its_lease_still_decides(stage: Stage) -> None:
    stage.run("fail('cannot do it')")
    stage.hands.now_s += 31
    runner = stage.runner("", state=RunState.load(stage.run_json()["state"]))
    permits = runner.circuits.acquire()
    stage.hands.now_s += 9_000
    goes_on = runner.circuits.record_loop(
        permits, Judgement("failed", ok=False, error="x"), Measured(9_000.0)
    )
    assert not goes_on
    assert runner.circuits.loop.snapshot().phase is Phase.OPEN


def test_a_retry_that_the_provider_circuit_refuses_returns_its_permit(stage: Stage) -> None:
    """Otherwise the permit of a retry that never ran would block the circuit for an hour."""
    stage.run("fail('cannot do it')")
    stage.hands.now_s += 31
    held = stage.runner("", state=RunState.load(stage.run_json()["state"]))
    held.circuits.provider.hold_open(by="ops", why="bill")
    assert held.run().exit_reason == "circuit_breaker"
    held.circuits.provider.release(by="ops", why="paid")
    assert resume(stage, "write('a', 'b')").exit_reason == "completed"


def test_a_completed_task_leaves_a_clean_circuit(stage: Stage) -> None:
    body = "if n < 3: fail('cannot do it')\nwrite('a', 'b')"
    assert stage.run(body).exit_reason == "completed"
    stage.record = None
    runner = stage.runner("")
    assert runner.circuits.loop.stats() == (0, 0, 0)


def test_failures_of_an_earlier_run_that_did_not_trip_do_not_count(stage: Stage) -> None:
    stage.run("fail('cannot do it')", max_iterations=2)
    stage.record = None
    again = stage.run("fail('cannot do it')")
    assert (again.exit_reason, again.state.iterations) == ("circuit_breaker", 3)


def test_an_answer_is_in_the_next_prompt_only(stage: Stage) -> None:
    stage.run("tell(type='question', text='Which?')")
    stage.dependencies = stage.dependencies._replace(answer="The second one.")
    resume(
        stage, "write('n', str(n)); tell(type='result', text='', success=None)", max_iterations=3
    )
    assert "The answer to your question:\nThe second one." in stage.prompt(2)
    assert "The second one." not in stage.prompt(3)


def test_earlier_work_counts_for_a_later_claim(tmp_path: Path) -> None:
    stage = Stage(tmp_path, git=False)
    stage.run(GOES_ON, max_iterations=1)
    result = resume(stage, "tell(type='result', text='', success=True)", max_iterations=3)
    assert result.exit_reason == "completed"


def test_a_resumed_archive_does_not_replace_the_first(tmp_path: Path) -> None:
    stage = Stage(tmp_path, git=False)
    first = stage.run(
        "write('a', 'b'); tell(type='result', text='', success=None)", max_iterations=1
    )
    second = resume(
        stage, "write('c', 'd'); tell(type='result', text='', success=None)", max_iterations=2
    )
    assert first.checkpoint is not None
    assert second.checkpoint is not None
    assert first.checkpoint.how != second.checkpoint.how
    assert second.checkpoint.files == ("a", "c")


def test_a_checkpoint_in_git_contains_all_work_of_the_run(stage: Stage) -> None:
    (stage.folder / "README").write_text("dirty before the run\n")
    result = stage.run("write('a', 'one\\ntwo\\n'); write('README', 'x\\n')")
    kept = result.checkpoint
    assert kept is not None
    assert (kept.changed, kept.added_lines, kept.removed_lines) == (2, 3, 1)
    reference = f"refs/switchgear/runs/{result.run}"
    assert stage.git("show", f"{reference}:a") == "one\ntwo\n"
    assert stage.git("log", "-1", "--format=%s", reference).startswith("switchgear run ")
    assert stage.git("stash", "list") == ""
    assert stage.git("diff", "--cached", "--name-only") == ""


def test_the_time_limit_of_the_message_includes_what_an_operator_granted(stage: Stage) -> None:
    used = RunState(seconds=700.0, extra_s=600.0, iterations=1)
    result = stage.run("", state=used, timeout_s=60.0)
    assert result.exit_reason == "timeout"
    assert result.reason == "the time limit of 11 min was reached"
