"""What `switchgear tune` proposes, its held-out result, and when it proposes nothing."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from switchgear import Policy, _detectors
from switchgear._agents.recordings.recording import RecordedRun, RecordedStep
from switchgear._analysis.backtest.tune import (
    FACTORS,
    Profile,
    allowed,
    as_config,
    choose,
    cross_validate,
    fewest_solved,
    profile_of,
    scaled,
    too_little,
    tunable,
)
from switchgear._breaker.presets import PRESETS
from switchgear._cli import main
from switchgear._config import load_config
from switchgear._config.sections import preset_policy
from switchgear._core.policy import Cooldown, WeightedSum


def run_of(random: Random, number: int, *, solved: bool, failures: int) -> dict[str, Any]:
    """Work that continues, with failures in a row in it: many if the run was not solved."""
    good = [
        {"tool": "bash", "args": f"make part{random.random()}", "result": f"built {random.random()}",
         "thought": f"Next comes {random.random()}", "error": False}
        for _ in range(12)
    ]  # fmt: skip
    bad = {
        "tool": "bash",
        "args": "make all",
        "result": "no rule",
        "thought": "again",
        "error": True,
    }
    steps = [*good[:6], *[bad] * failures, *good[6:]]
    return {"id": f"r{number}", "task": f"t{number // 2}", "solved": solved, "steps": steps}


def runs(solved: int, unsolved: int, *, seed: int = 1) -> list[dict[str, Any]]:
    random = Random(seed)
    good = [run_of(random, n, solved=True, failures=random.randrange(4)) for n in range(solved)]
    bad = [
        run_of(random, solved + n, solved=False, failures=random.randrange(5, 9))
        for n in range(unsolved)
    ]
    return good + bad


def written(folder: Path, lines: list[dict[str, Any]]) -> Path:
    path = folder / "runs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def tune(*arguments: str) -> Any:
    return CliRunner().invoke(
        main, ["tune", *arguments, "--jobs", "1"], standalone_mode=False, catch_exceptions=False
    )


ROW_OF_TWO = "policies: {row: {detectors: [{consecutive_failures: {threshold: 2}}]}}\n"


@pytest.fixture
def row_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    path = tmp_path / "row.yaml"
    path.write_text(ROW_OF_TWO)
    return path


def test_a_threshold_that_stops_solved_runs_is_raised_until_it_does_not(
    tmp_path: Path, row_of_two: Path
) -> None:
    path = written(tmp_path, runs(90, 40))
    done = tune(str(path), "--false-stops", "5%", "--policy", str(row_of_two), "--json")
    values = json.loads(done.output)
    assert done.return_value == 0
    proposal = values["proposal"]
    [detector] = proposal["policy"]["detectors"]
    assert detector == {"consecutive_failures": {"threshold": 4}}
    assert proposal["held_out"]["false_stop_rate"]["count"] == 0
    assert proposal["all_runs"]["catch_rate"]["rate"] == 1.0


def test_the_printed_proposal_is_a_valid_configuration(tmp_path: Path, row_of_two: Path) -> None:
    path, new = written(tmp_path, runs(90, 40)), tmp_path / "tuned.yaml"
    done = tune(
        str(path), "--false-stops", "0.05", "--policy", str(row_of_two), "--write", str(new)
    )
    assert done.return_value == 0, done.output
    assert load_config(new).policies["tuned"].detectors == (_detectors.ConsecutiveFailures(4),)
    assert "threshold: 4" in done.output
    _, use = done.output.rsplit("copy it into switchgear.yaml, with ", 1)
    new.write_text(f"{new.read_text()}{use.splitlines()[0]}\n")
    assert load_config(new).policy_for("progress/x") == load_config(new).policies["tuned"]
    with pytest.raises(Exception, match="exists already"):
        tune(str(path), "--false-stops", "5%", "--write", str(new))


def test_with_too_few_runs_the_shown_rate_is_above_the_requested_one(tmp_path: Path) -> None:
    done = tune(str(written(tmp_path, runs(16, 40))), "--false-stops", "20%")
    assert done.return_value == 3
    assert "16 runs known to be solved, which can prove a rate of 20.9% at" in done.output
    assert "For 20.00% it takes 17" in done.output


def test_too_little_data_is_reported_with_the_rule(tmp_path: Path, row_of_two: Path) -> None:
    done = tune(str(written(tmp_path, runs(20, 40))), "--false-stops", "1%")
    assert done.return_value == 3
    assert "20 runs known to be solved, which can prove a rate of 17.1% at" in done.output
    assert "the rate is below 3/n. For 1.00% it takes 373" in done.output
    assert "add outcomes with `switchgear label PATH`" in done.output


def test_no_rate_above_100_percent_is_reported() -> None:
    problem = too_little([Profile("g", True, 5, (None,))], 0.01)
    assert problem is not None
    assert problem.why.startswith("1 run known to be solved, which can prove a rate of 97.6% at")


def test_without_failed_runs_the_catch_rate_is_unknown() -> None:
    profiles = [Profile(f"g{n}", True, 5, (None,)) for n in range(100)]
    problem = too_little(profiles, 0.05)
    assert problem is not None
    assert "0 runs are known to be unsolved: 10 are needed" in problem.why


def test_a_rate_that_nothing_keeps_is_reported(tmp_path: Path, row_of_two: Path) -> None:
    lines = runs(90, 40)
    for line in lines[:90]:
        line["steps"] = [{**line["steps"][0], "error": True}] * 30 + line["steps"]
    done = tune(str(written(tmp_path, lines)), "--false-stops", "5%", "--policy", str(row_of_two))
    assert done.return_value == 3
    assert "no proposal: even with thresholds 8 times as high, more solved runs" in done.output
    assert "add outcomes" not in done.output, "more data would not help"


@pytest.mark.parametrize("rate", ["0", "100%", "x", "-1%"])
def test_a_rate_must_be_a_rate(rate: str, row_of_two: Path) -> None:
    with pytest.raises(Exception, match="it must be above 0 and below 100 %"):
        tune(str(row_of_two), "--false-stops", rate)


def test_a_score_by_weights_is_not_tuned(tmp_path: Path, row_of_two: Path) -> None:
    row_of_two.write_text(
        "policies: {row: {detectors: [consecutive_failures],"
        " combine: {weighted_sum: {weights: {consecutive_failures: 60}}}}}\n"
    )
    with pytest.raises(ValueError, match="trip by themselves"):
        tune(str(tmp_path), "--false-stops", "5%", "--policy", str(row_of_two))


# The parts


def test_folds_never_divide_a_task() -> None:
    profiles = [Profile(f"g{n % 30}", n % 3 != 0, 9, (3,)) for n in range(300)]
    seen = []

    def choose_place(others: Sequence[Profile]) -> int:
        seen.append(Counter(profile.group for profile in others))
        return 0

    held = cross_validate(profiles, choose_place)
    for group in {profile.group for profile in profiles}:
        assert sorted(others[group] for others in seen) == [0, 10, 10, 10, 10]
    assert held.false_stops[:2] == (200, 200)
    assert held.caught[:2] == (100, 100)
    assert (held.saved_steps, held.unsolved_steps) == (600, 900)


def test_the_allowed_false_stops_still_show_the_rate() -> None:
    assert [allowed(n, 0.05) for n in (50, 58, 59, 93, 1000)] == [-1, -1, 0, 1, 38]
    assert fewest_solved(0.05) == 74
    never = (None,) * (len(FACTORS) - 1)
    assert choose([Profile("g", True, 9, (1, *never))] * 59, 0.05) == 1
    assert choose([Profile("g", True, 9, (1,) * len(FACTORS))] * 59, 0.05) is None


def test_a_profile_has_the_same_stop_for_every_factor_as_a_replay() -> None:
    steps = tuple(RecordedStep("bash", ok=False, error="boom") for _ in range(30))
    run = RecordedRun("r", "f", "plain", steps=steps)
    profile = profile_of(Policy([_detectors.ConsecutiveFailures(4)]), run)
    exact = [-(-4 * factor // 1) for factor in FACTORS]
    assert profile.stops == tuple(int(at) if at <= 30 else None for at in exact)


def test_thresholds_that_are_shares_are_left_alone() -> None:
    assert tunable(_detectors.FailureRate()) is None
    assert tunable(_detectors.RepeatedThoughts()) == "limit"
    policy = Policy([_detectors.FailureRate(), _detectors.ConsecutiveFailures(3)])
    assert scaled(policy, 1.5).detectors == (
        _detectors.FailureRate(),
        _detectors.ConsecutiveFailures(5),
    )


def test_a_detector_that_cannot_be_raised_stops_at_every_factor() -> None:
    steps = tuple(RecordedStep("bash", ok=False) for _ in range(30))
    policy = Policy([_detectors.FailureRate(window=10), _detectors.ConsecutiveFailures(20)])
    profile = profile_of(policy, RecordedRun("r", "f", "plain", steps=steps))
    assert profile.stops == (10,) * len(FACTORS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_the_same_policy_after_it_was_written_and_read(
    name: str, tmp_path: Path
) -> None:
    policy = preset_policy(name)
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump({"policies": {"p": as_config(policy)}}))
    assert load_config(path).policies["p"] == policy


def test_combination_and_strictness_are_written_too(tmp_path: Path) -> None:
    policy = Policy(
        [_detectors.ConsecutiveFailures(3), _detectors.SameError(4)],
        Cooldown(5.0, 50.0),
        WeightedSum({"consecutive_failures": 40, "same_error": 20}, 60),
        0.5,
        strict=True,
    )
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump({"policies": {"p": as_config(policy)}}))
    assert load_config(path).policies["p"] == policy
