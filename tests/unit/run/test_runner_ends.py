"""Every way in which a run can end, with agents that are real processes."""

import re
from pathlib import Path

import pytest

from switchgear._agents.command import CommandAgent
from switchgear._core.types import Mode, Signal
from switchgear._run.exit_reasons import EXIT_CODES, ExitReason
from switchgear._run.interrupt import Interrupt
from switchgear._run.view import RunView
from unit.runner_stage import Stage, checker


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_files_changed_and_exit_0_is_completed(stage: Stage) -> None:
    result = stage.run("write('a.txt', 'done'); usage(0.5)")
    assert (result.exit_reason, result.exit_code, result.success) == ("completed", 0, True)
    assert result.state.iterations == 1
    assert result.state.spent_micros == 500_000
    assert result.resume is None


def test_the_loop_continues_until_the_validation_passes(stage: Stage) -> None:
    check = checker(stage, "sys.exit(0 if pathlib.Path('n').read_text() == '3' else 1)")
    result = stage.run("write('n', str(n))", validate=check)
    assert result.exit_reason == "completed"
    assert result.state.iterations == 3
    assert [each["validation"]["ok"] for each in stage.iterations()] == [False, False, True]


def test_three_failures_in_a_row_trip_the_circuit(stage: Stage) -> None:
    result = stage.run("write('n', str(n)); fail(f'step {n}: cannot open file')", same_error=9)
    assert result.exit_reason == "circuit_breaker"
    assert result.reason == "Circuit breaker tripped: 3 consecutive failures (threshold: 3)"
    assert result.stats == (3, 3, 1)
    assert result.dump()["stats"]["circuit_breaker"] == {
        "consecutive_failures": 3,
        "total_failures": 3,
        "unique_errors": 1,
    }


def test_the_same_error_trips_although_successes_come_between(stage: Stage) -> None:
    body = "write('n', str(n)); tell(type='text', text='hm')\n"
    body += "if n % 2: fail('Error: no such table: users')\n"
    body += "tell(type='result', text='going on', success=None)"
    result = stage.run(body, same_error=3)
    assert result.reason == "Circuit breaker tripped: Same error repeated 3 times (threshold: 3)"
    assert result.state.iterations == 5


def test_no_progress_trips_after_one_more_iteration(stage: Stage) -> None:
    result = stage.run("tell(type='text', text=f'thinking about {n}')")
    assert result.exit_reason == "circuit_breaker"
    assert result.state.iterations == 4
    assert "No progress in 4 iterations" in result.reason
    phases = [each["phase"] for each in stage.iterations()]
    assert phases == ["closed", "closed", "tripping", "open"]


def test_declining_output_trips(stage: Stage) -> None:
    body = "write('n', str(n)); print('x' * (1000 if n < 4 else 20)); tell(type='result', text='', success=None)"
    result = stage.run(body)
    assert result.exit_reason == "circuit_breaker"
    assert "Output declined" in result.reason
    assert result.state.iterations == 5


def test_one_failing_step_repeated_within_an_iteration_stops_the_agent(stage: Stage) -> None:
    body = """
for k in range(1000):
    tell(type='tool', name='bash', arguments={'command': 'make'}, ok=False, error=f'make: no rule for target {k}')
    time.sleep(0.05)
"""
    result = stage.run(body)
    assert result.exit_reason == "circuit_breaker"
    assert result.state.iterations == 1
    assert result.reason == (
        "Circuit breaker tripped: Same error repeated 5 times within one iteration"
    )
    facts = stage.iterations()[0]
    assert facts["stopped"] == "stuck"
    assert facts["repeated"]["times"] == 5
    assert facts["steps"] < 1000
    assert any("make: no rule" in each for each in result.evidence)


def test_steps_that_succeed_in_between_prevent_the_stop(stage: Stage) -> None:
    body = """
for k in range(8):
    tell(type='tool', name='bash', arguments={'command': 'make'}, ok=False, error='make: no rule')
    tell(type='tool', name='edit', arguments={'path': 'a'}, ok=True)
write('a', 'b')
"""
    assert stage.run(body).exit_reason == "completed"


def test_all_iterations_used_is_max_iterations(stage: Stage) -> None:
    body = "write('n', str(n)); tell(type='result', text='more to do', success=None)"
    result = stage.run(body, max_iterations=2)
    assert (result.exit_reason, result.exit_code) == ("max_iterations", 13)
    assert result.state.iterations == 2
    assert "--max-iterations 4" in str(result.resume)


def test_the_budget_ends_the_run_before_the_iteration_that_would_cross_it(stage: Stage) -> None:
    body = "write('n', str(n)); usage(0.4); tell(type='result', text='more', success=None)"
    result = stage.run(body, budget_micros=1_000_000)
    assert (result.exit_reason, result.exit_code) == ("budget", 11)
    assert result.state.iterations == 2
    assert result.state.spent_micros == 800_000
    assert "$0.40" in result.reason
    assert "--budget 2" in str(result.resume)


def test_an_agent_that_spends_what_is_left_is_stopped_at_once(stage: Stage) -> None:
    body = "usage(0.7); write('a', 'b'); usage(0.7); time.sleep(60)"
    result = stage.run(body, budget_micros=1_000_000)
    assert result.exit_reason == "budget"
    assert stage.iterations()[0]["stopped"] == "budget"
    assert result.state.spent_micros == 1_400_000


def test_an_unknown_price_is_refused_under_a_budget(stage: Stage) -> None:
    body = "write('n', str(n)); tell(type='result', text='more', success=None)"
    result = stage.run(body, budget_micros=1_000_000)
    assert result.exit_reason == "budget"
    assert result.state.iterations == 1
    assert "cost of 1 iteration is unknown" in result.reason
    assert "--allow-unknown-price" in str(result.resume)
    assert any("unknown cost: " in note for note in stage.view.facts[0]["notes"])


def test_an_unknown_price_may_be_allowed(stage: Stage) -> None:
    body = "write('n', str(n)); tell(type='result', text='more', success=None)"
    result = stage.run(body, budget_micros=1_000_000, allow_unknown_price=True, max_iterations=3)
    assert result.exit_reason == "max_iterations"
    assert result.state.unknown_prices == 3


def test_a_time_limit_reached_between_iterations_is_a_timeout(stage: Stage) -> None:
    class Slow(RunView):
        def iteration_started(self, number: int, run: dict[str, object]) -> None:
            stage.hands.now_s += 40

    stage.dependencies = stage.dependencies._replace(view=Slow())
    body = "write('n', str(n)); tell(type='result', text='more', success=None)"
    result = stage.run(body, timeout_s=100.0)
    assert (result.exit_reason, result.exit_code) == ("timeout", 12)
    assert result.state.iterations == 3
    assert "--more-time" in str(result.resume)


def test_an_agent_that_does_not_end_in_time_is_a_timeout(stage: Stage) -> None:
    result = stage.run("write('a', 'b'); time.sleep(60)", timeout_s=1.0)
    assert result.exit_reason == "timeout"
    assert result.checkpoint is not None
    assert result.checkpoint.files == ("a",)


def test_a_silent_agent_is_a_failure_and_not_the_end(stage: Stage) -> None:
    body = "if n == 1: time.sleep(60)\nwrite('a', 'b')"
    result = stage.run(body, idle_timeout_s=1.0)
    assert result.exit_reason == "completed"
    first = stage.iterations()[0]
    assert first["ok"] is False
    assert "printed nothing for 1 s" in first["error"]


def test_a_question_by_a_tool_is_blocked(stage: Stage) -> None:
    result = stage.run("write('a', 'b'); tell(type='question', text='Which of the two?')")
    assert (result.exit_reason, result.exit_code) == ("blocked", 15)
    assert result.reason == "the agent asks: Which of the two?"
    assert "--answer" in str(result.resume)
    assert result.stats.total_failures == 0


def test_an_output_that_ends_with_a_question_is_blocked(stage: Stage) -> None:
    assert stage.run("print('Shall I use SQLite or Redis?')").exit_reason == "blocked"


def test_a_question_after_validated_work_does_not_undo_it(stage: Stage) -> None:
    check = checker(stage, "sys.exit(0)")
    result = stage.run("write('a', 'b'); print('Shall I also add docs?')", validate=check)
    assert result.exit_reason == "completed"
    assert "it also asks: Shall I also add docs?" in result.reason


def test_a_question_after_work_that_nothing_validates_is_blocked(stage: Stage) -> None:
    assert stage.run("write('a', 'b'); print('Is this what you meant?')").exit_reason == "blocked"


def test_a_missing_program_is_an_agent_error(stage: Stage) -> None:
    runner = stage.runner("", validate="exit 7")
    runner.context = runner.context._replace(agent=CommandAgent("no-such-agent-anywhere {prompt}"))
    result = runner.run()
    assert (result.exit_reason, result.exit_code) == ("agent_error", 16)
    assert "no-such-agent-anywhere" in result.reason
    assert result.stats.total_failures == 0


def test_a_rejected_key_is_an_agent_error_at_once(stage: Stage) -> None:
    body = "tell(type='error', message='401 invalid api key', final=True); sys.exit(1)"
    result = stage.run(body)
    assert result.exit_reason == "agent_error"
    assert result.state.iterations == 1
    assert stage.view.waits == []


def test_a_dead_provider_is_an_agent_error_once_its_circuit_opens(stage: Stage) -> None:
    body = "tell(type='error', message='connection refused', final=True); sys.exit(1)"
    result = stage.run(body, max_iterations=2)
    assert result.exit_reason == "agent_error"
    assert "the agent's provider" in result.reason
    assert (result.state.iterations, result.state.lost) == (5, 5)
    assert result.stats.total_failures == 0
    assert [wait for wait in stage.view.waits if wait[1] in {5.0, 10.0, 20.0, 40.0}]
    assert list(stage.panel.circuits("provider/*")) == [], "a program is no provider"


def test_a_dead_provider_under_a_budget_has_no_unknown_price(stage: Stage) -> None:
    body = "tell(type='error', message='connection refused', final=True); sys.exit(1)"
    result = stage.run(body, budget_micros=1_000_000)
    assert result.exit_reason == "agent_error"
    assert result.state.unknown_prices == 0


def test_a_run_waits_visibly_for_a_rate_limit_which_is_not_evidence_against_the_loop(
    stage: Stage,
) -> None:
    body = """
if n == 1:
    tell(type='error', message='429 too many requests', status=429, retry_after_s=90, final=True)
    sys.exit(1)
write('a', 'b')
"""
    began_s = stage.hands.now_s
    result = stage.run(body)
    assert result.exit_reason == "completed"
    assert stage.hands.now_s - began_s == pytest.approx(90.0, abs=0.5)
    assert stage.view.waits[0][1] == 90.0
    assert "rate limit" in stage.view.waits[0][0]
    assert result.stats.total_failures == 0


def test_a_rate_limit_longer_than_the_time_left_ends_the_run(stage: Stage) -> None:
    body = "tell(type='error', message='429 slow down', status=429, retry_after_s=900, final=True); sys.exit(1)"
    result = stage.run(body, timeout_s=600.0)
    assert (result.exit_reason, result.exit_code) == ("rate_limit", 14)
    assert "15 min" in result.reason
    assert stage.view.waits == []


def test_a_quota_that_is_used_up_ends_the_run(stage: Stage) -> None:
    body = (
        "tell(type='error', message='insufficient_quota: check your plan', final=True); sys.exit(1)"
    )
    assert stage.run(body).exit_reason == "rate_limit"


def test_a_provider_with_endless_rate_limits_ends_the_run(stage: Stage) -> None:
    body = (
        "tell(type='error', message='429', status=429, retry_after_s=1000, final=True); sys.exit(1)"
    )
    result = stage.run(body)
    assert result.exit_reason == "rate_limit"
    assert result.state.iterations == 4


def test_a_provider_error_that_the_agent_recovered_from_does_not_count(stage: Stage) -> None:
    body = """
tell(type='error', message='529 overloaded', final=False)
tell(type='tool', name='edit', arguments={'path': 'a'}, ok=True)
write('a', 'b')
"""
    assert stage.run(body).exit_reason == "completed"


def test_a_provider_error_does_not_count_if_the_agent_reports_success(stage: Stage) -> None:
    body = "write('a', 'b'); tell(type='error', message='529 overloaded', final=True)\n"
    body += "tell(type='result', text='done by another model', success=True)"
    assert stage.run(body).exit_reason == "completed"


def test_an_interrupt_while_waiting_is_interrupted(stage: Stage) -> None:
    interrupt = Interrupt()

    class Impatient(RunView):
        def waiting(self, why: str, left_s: float) -> None:
            interrupt.ask("SIGTERM")

    stage.dependencies = stage.dependencies._replace(view=Impatient(), interrupt=interrupt)
    body = "write('n', str(n)); tell(type='result', text='more', success=None)"
    result = stage.run(body, rate_limit=1)
    assert (result.exit_reason, result.exit_code) == ("interrupted", 130)
    assert "SIGTERM" in result.reason
    assert result.state.iterations == 1


def test_a_run_waits_for_an_open_provider_circuit_and_probes(stage: Stage) -> None:
    runner = stage.runner("write('a', 'b')")
    runner.circuits.provider.record(Signal(ok=False, error="529", count=5))
    result = runner.run()
    assert result.exit_reason == "completed"
    assert stage.view.waits[0][1] == 60.0
    assert "5 failures in a row" in stage.view.waits[0][0]
    assert runner.circuits.provider.state == "closed"


def test_a_provider_circuit_open_beyond_the_time_limit_is_an_agent_error(
    stage: Stage,
) -> None:
    runner = stage.runner("write('a', 'b')", timeout_s=30.0)
    runner.circuits.provider.record(Signal(ok=False, error="529", count=5))
    result = runner.run()
    assert (result.exit_reason, result.state.iterations) == ("agent_error", 0)


def test_a_circuit_that_is_held_open_ends_the_run_before_it_starts(stage: Stage) -> None:
    runner = stage.runner("write('a', 'b')")
    runner.circuits.loop.hold_open(by="ops", why="not tonight")
    result = runner.run()
    assert result.exit_reason == "circuit_breaker"
    assert "held open by ops: not tonight" in result.reason
    assert result.state.iterations == 0
    assert result.resume is not None  # closing by force would be refused
    assert f"release {result.circuit} --why" in result.resume
    assert result.resume.endswith(f"resume {result.run}")


def test_a_hold_in_the_middle_of_a_run_ends_it_and_nothing_tripped(stage: Stage) -> None:
    class Operator(RunView):
        def iteration_started(self, number: int, run: dict[str, object]) -> None:
            runner.circuits.loop.hold_open(by="ops", why="enough for today")

    stage.dependencies = stage.dependencies._replace(view=Operator())
    runner = stage.runner("fail('no such file')")
    result = runner.run()
    assert (result.exit_reason, result.state.iterations) == ("circuit_breaker", 1)
    assert result.reason == "held open by ops: enough for today"
    assert f"release {result.circuit} --why" in str(result.resume)


def test_a_provider_that_is_held_open_ends_the_run_too(stage: Stage) -> None:
    runner = stage.runner("write('a', 'b')")
    runner.circuits.provider = stage.panel.breaker("provider/claude")
    runner.circuits.provider.hold_open(by="ops", why="bill")
    result = runner.run()
    assert result.exit_reason == "circuit_breaker"
    assert result.state.iterations == 0
    assert runner.circuits.loop.mode is Mode.AUTO
    assert result.resume is not None
    assert f"release {runner.circuits.provider.name} --why" in result.resume


def test_the_page_on_runs_has_every_end_with_its_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "run.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE))
    assert table == {str(reason): str(EXIT_CODES[reason].code) for reason in ExitReason}


def test_every_reason_has_its_own_exit_code() -> None:
    codes = [EXIT_CODES[reason].code for reason in ExitReason]
    assert len(set(codes)) == len(codes)
    assert EXIT_CODES[ExitReason.COMPLETED].code == 0
    assert not {1, 2} & set(codes)


def test_a_missing_test_runner_is_not_a_failure_of_the_agent(stage: Stage) -> None:
    command = "echo '/usr/bin/python3: No module named pytest'; exit 1"
    result = stage.run("write('n', str(n))", validate=command)
    assert result.exit_reason == "agent_error"
    assert "cannot be run: /usr/bin/python3: No module named pytest" in result.reason
    assert result.state.iterations == 0


def test_an_unknown_price_is_reported_once_a_run(stage: Stage) -> None:
    body = "write('n', str(n)); tell(type='result', text='more', success=None)"
    stage.run(body, max_iterations=3)
    told = [
        note for facts in stage.view.facts for note in facts["notes"] if "unknown cost: " in note
    ]
    assert len(told) == 1


def test_files_that_were_not_saved_are_not_counted_as_kept(stage: Stage) -> None:
    body = "write('a', 'work'); open('large', 'wb').truncate(1 << 40)"
    result = stage.run(body)
    assert result.checkpoint is not None
    assert (result.checkpoint.files, result.checkpoint.changed) == (("a",), 1)
    assert "not saved (larger than 100 MB): 1 file: large" in result.notes


def test_work_of_which_nothing_was_saved_is_not_called_kept(stage: Stage) -> None:
    result = stage.run("open('large', 'wb').truncate(1 << 40)")
    assert result.checkpoint is None
    assert "not saved (larger than 100 MB): 1 file: large" in result.notes
