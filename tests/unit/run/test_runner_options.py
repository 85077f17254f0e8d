"""Options precede the preset, the preset the configuration, the configuration the defaults; all have an effect."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from switchgear._breaker.presets import LOOP_PRESETS, LoopPreset
from switchgear._cli import main
from switchgear._core.types import Phase
from switchgear._run.circuits import loop_name, policy_of
from switchgear._run.interrupt import Time
from switchgear._run.options import AUTO, RunOptions, micros, per_hour, run_options, seconds
from timeouts import LIMIT_S
from unit.runner_stage import Stage, checker

FAILS = "write('n', str(n)); fail('cannot do it')"
GOES_ON = "write('n', str(n)); usage(0.1); tell(type='result', text='more', success=None)"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def of(**flags: Any) -> RunOptions:
    return run_options("do it", {"agent": "demo", **flags})


@pytest.mark.parametrize("name", LOOP_PRESETS)
def test_every_preset_is_applied_completely(name: str) -> None:
    preset, options = LOOP_PRESETS[name], of(preset=name)
    assert options.preset == name
    assert options.prompt == preset.prompt
    assert options.max_iterations == preset.max_iterations
    assert options.consecutive_failures == preset.consecutive_failures
    assert options.same_error == preset.same_error
    assert options.validate == (AUTO if preset.validate else None)
    assert options.commit == preset.commit


@pytest.mark.parametrize("name", LOOP_PRESETS)
def test_every_preset_stops_a_failing_loop_at_its_own_threshold(name: str, tmp_path: Path) -> None:
    preset = LOOP_PRESETS[name]
    stage = Stage(tmp_path)
    options = of(preset=name)
    loop = stage.runner("", **options._replace(agent=None, agent_cmd="true").dump()).circuits.loop
    needed = min(preset.consecutive_failures, preset.same_error)
    tripped = [loop.record_failure("cannot do it") for _ in range(needed)]
    assert tripped == [False] * (needed - 1) + [True]


def test_flags_take_precedence_over_the_preset() -> None:
    options = of(preset="migration-safety", consecutive_failures=3, max_iterations=7, commit=False)
    assert (options.consecutive_failures, options.max_iterations, options.commit) == (3, 7, False)
    assert options.same_error == LOOP_PRESETS["migration-safety"].same_error


def test_the_preset_takes_precedence_over_the_configuration_and_that_over_the_defaults() -> None:
    told = {"max_iterations": 99, "rate_limit": 5, "agent": "claude"}
    options = run_options("t", {"preset": "review"}, defaults=told)
    assert (options.max_iterations, options.rate_limit, options.agent) == (10, 5, "claude")
    assert run_options("t", {}, defaults=told).max_iterations == 99
    assert run_options("t", {"agent": "demo"}).max_iterations == 30


def test_the_users_own_presets_are_found_first() -> None:
    mine = LoopPreset("review", 3, "Mine.", "Look closely.")
    assert run_options("t", {"agent": "demo", "preset": "review"}, presets={"review": mine}).prompt == "Look closely."  # fmt: skip


def test_a_preset_of_the_configuration_is_used_without_a_flag() -> None:
    options = run_options("t", {"agent": "demo"}, defaults={"preset": "docs"})
    assert (options.preset, options.max_iterations) == ("docs", 20)


def test_a_command_that_was_typed_replaces_the_configured_agent() -> None:
    options = run_options("t", {"agent_cmd": "mine {prompt}"}, defaults={"agent": "claude"})
    assert (options.agent, options.agent_cmd) == (None, "mine {prompt}")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"preset": "featur"}, "did you mean 'feature'?"),
        ({"agent_cmd": "x"}, "both given"),
        ({"max_iterations": 0}, "--max-iterations"),
        ({"same_error": -1}, "--circuit-breaker-errors"),
        ({"output_decline_percent": 101.0}, "--output-decline"),
        ({"completion_promise": " "}, "--completion-promise is empty"),
        ({"nonsense": 1}, "no option 'nonsense'"),
    ],
)
def test_invalid_options_are_reported(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        of(**flags)


def test_a_run_needs_a_task_and_an_agent() -> None:
    with pytest.raises(ValueError, match="no agent is named"):
        run_options("t", {})
    with pytest.raises(ValueError, match="the task is empty"):
        run_options(" ", {"agent": "demo"})


def test_zero_switches_a_limit_off() -> None:
    fields = ("consecutive_failures", "same_error", "no_progress", "output_decline_percent")
    more = ("idle_timeout_s", "timeout_s", "rate_limit")
    options = of(**dict.fromkeys((*fields, *more), 0), validate="")
    assert {options.dump()[field] for field in (*fields, *more, "validate")} == {None}


def test_options_outlast_the_process() -> None:
    options = of(preset="debug", budget_micros=5, timeout_s=9.5, plan="P.md", shadow=True)
    assert RunOptions.load(options.dump()) == options
    with pytest.raises(ValueError, match="no task"):
        RunOptions.load({"agent": "demo"})


# Each flag changes what a run does


def test_circuit_breaker_failures_limits_failures_in_a_row(stage: Stage) -> None:
    assert stage.run(FAILS, consecutive_failures=2).state.iterations == 2


def test_circuit_breaker_errors_limits_repeated_errors(stage: Stage) -> None:
    result = stage.run(FAILS, consecutive_failures=None, same_error=4)
    assert (result.state.iterations, result.exit_reason) == (4, "circuit_breaker")


def test_no_progress_limits_iterations_without_progress(stage: Stage) -> None:
    assert stage.run("print('hm')", no_progress=1).state.iterations == 2


def test_without_its_detectors_a_loop_only_ends_at_its_maximum(stage: Stage) -> None:
    result = stage.run(
        "print('hm')", no_progress=None, output_decline_percent=None, max_iterations=6
    )
    assert result.exit_reason == "max_iterations"


def test_output_decline_limits_declining_output(stage: Stage) -> None:
    body = "write('n', str(n)); print('x' * (1000 if n < 4 else 600)); tell(type='result', text='', success=None)"
    assert stage.run(body, output_decline_percent=50.0, max_iterations=6).exit_reason == "max_iterations"  # fmt: skip
    other = Stage(stage.folder.parent / "other")
    assert other.run(body, output_decline_percent=70.0, max_iterations=6).exit_reason == "circuit_breaker"  # fmt: skip


def test_rate_limit_waits_visibly_between_iterations(stage: Stage) -> None:
    began_s = stage.hands.now_s
    result = stage.run(GOES_ON, rate_limit=2, max_iterations=3)
    assert result.exit_reason == "max_iterations"
    assert stage.hands.now_s - began_s == pytest.approx(3600, abs=1)
    assert stage.view.waits[0] == ("for --rate-limit 2/h", 3600.0)
    assert len(stage.view.waits) == 3600
    assert stage.iterations()[2]["number"] == 3


def test_a_rate_limit_beyond_the_time_left_ends_the_run(stage: Stage) -> None:
    result = stage.run(GOES_ON, rate_limit=1, timeout_s=600.0)
    assert (result.exit_reason, result.state.iterations) == ("rate_limit", 1)
    assert "60 min" in result.reason


def test_shadow_reports_what_would_have_stopped_it_and_continues(stage: Stage) -> None:
    runner = stage.runner(FAILS, shadow=True, max_iterations=5)
    result = runner.run()
    assert result.exit_reason == "max_iterations"
    assert result.dump()["stats"]["would_have_stopped"] == 3
    third = stage.iterations()[2]
    assert third["would_stop"] is True
    assert any(
        "would have stopped here: Circuit breaker tripped" in note for note in third["notes"]
    )
    assert runner.circuits.loop.mode == "auto"
    assert runner.circuits.loop.snapshot().phase is Phase.OPEN


def test_shadow_does_not_stop_a_repeated_step_either(stage: Stage) -> None:
    body = "for k in range(9): tell(type='tool', name='sh', arguments={}, ok=False, error='no rule')\nwrite('a', 'b')"
    assert stage.run(body, shadow=True).exit_reason == "completed"


def test_validate_finds_the_projects_own_tests(stage: Stage) -> None:
    (stage.folder / "test_x.py").write_text("def test_x(): assert True\n")
    runner = stage.runner("write('a', 'b')", validate=AUTO)
    assert runner.context.options.validate == "python3 -m pytest -q"


def test_validate_without_a_test_command_is_reported_and_continues(stage: Stage) -> None:
    result = stage.run("write('a', 'b')", validate=AUTO)
    assert result.exit_reason == "completed"
    assert "no test command was found" in stage.view.notes[0]
    assert result.dump()["notes"] == stage.view.notes


def test_a_validation_that_cannot_be_run_ends_before_anything_is_spent(stage: Stage) -> None:
    result = stage.run("write('a', 'b')", validate="no-such-tester --all")
    assert (result.exit_reason, result.state.iterations) == ("agent_error", 0)
    assert "no-such-tester" in result.reason


def test_a_validation_that_hangs_is_ended_by_the_time_of_the_run(stage: Stage) -> None:
    stage.dependencies = stage.dependencies._replace(time=Time())
    check = checker(stage, "import time\nif os.path.exists('a'): time.sleep(600)")
    began_s = time.monotonic()
    result = stage.run("write('a', 'b')", validate=check, timeout_s=2.0)
    assert result.exit_reason == "timeout"
    assert time.monotonic() - began_s < LIMIT_S


def test_every_option_of_the_commands_is_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "run.md").read_text(encoding="utf-8")
    for verb in (main.commands["run"], main.commands["resume"]):
        for option in verb.params:
            long = [name for name in option.opts if name.startswith("--")]
            if long and long[0] not in {"--store", "--config", "--token-file"}:
                assert long[0] in page, f"docs/run.md does not name {long[0]}"


def test_the_circuit_is_named_by_folder_and_task(tmp_path: Path) -> None:
    one = of()
    assert loop_name(tmp_path, one) == loop_name(tmp_path, one._replace(max_iterations=3))
    assert loop_name(tmp_path, one) != loop_name(tmp_path, one._replace(task="other"))
    assert loop_name(tmp_path, one) != loop_name(tmp_path / "x", one)


def test_the_policy_matches_the_options() -> None:
    kinds = [detector.kind for detector in policy_of(of(no_progress=0)).detectors]
    assert kinds == ["consecutive_failures", "same_error", "output_decline"]


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25)]
)
def test_durations_are_parsed(text: str, value: float) -> None:
    assert seconds("--timeout", text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "h", "-5", "5x", "1 2", "nan", "1e9", "5m5"])
def test_an_invalid_duration_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="--timeout is"):
        seconds("--timeout", text)


@pytest.mark.parametrize(
    "text", ["", "-1", "x", "nan", "inf", "0.0000001", "1e99", "1000000000.01"]
)
def test_an_invalid_amount_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match=r"--budget is .*, and not above 1,000,000,000"):
        micros("--budget", text)


@pytest.mark.parametrize("text", ["", "0", "-1", "5/min", "x/h"])
def test_an_invalid_rate_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="--rate-limit is"):
        per_hour("--rate-limit", text)
