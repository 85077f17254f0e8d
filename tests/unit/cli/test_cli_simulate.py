"""`switchgear simulate`: what is printed, what is written, and the exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear._cli import main
from switchgear._cli.views.analysis import BLOCKS, PLAIN, spark

SMALL = ("--agents", "10", "--hours", "0.4")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("SWITCHGEAR_CONFIG", "SWITCHGEAR_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def simulate(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *words], standalone_mode=True)


def test_without_a_scenario_the_scenarios_are_listed() -> None:
    done = simulate()
    assert done.exit_code == 0
    for name in ("outage", "slow-down", "poisoned-agent", "budget-burn", "lock-convoy", "day"):
        assert f"\n{name} " in f"\n{done.stdout}"


def test_both_sides_the_plot_and_the_targets_are_printed_and_no_files_are_left(
    project: Path,
) -> None:
    done = simulate("outage", *SMALL)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert any(line.split() == ["without", "with", "breakers"] for line in lines)
    assert "policies: presets" in done.stdout
    assert "time to recover" in done.stdout
    assert any(line.startswith("without made") for line in lines)
    assert "of the doomed calls were not made" in done.stdout
    assert list(project.iterdir()) == []


def test_a_second_run_prints_the_same() -> None:
    assert simulate("outage", *SMALL).stdout == simulate("outage", *SMALL).stdout


def test_json_has_all_numbers_of_both_simulations() -> None:
    done = simulate("outage", *SMALL, "--json")
    data = json.loads(done.stdout)
    assert data["kept"] is True
    assert data["judged_by"] == "presets"
    plain, guarded = data["without_breakers"], data["with_breakers"]
    assert plain["troubles"][0]["detect_s"] is None
    assert guarded["troubles"][0]["wasted_calls"] < plain["troubles"][0]["wasted_calls"]
    assert len(guarded["slots"]["made"]) == 60


def test_the_configuration_is_evaluated_and_a_missed_target_has_exit_code_1(
    project: Path,
) -> None:
    text = "breakers:\n  external_dep:\n    enabled: false\n"
    (project / "switchgear.yaml").write_text(text)
    done = simulate("outage", *SMALL)
    assert done.exit_code == 1
    assert "policies:" in done.stdout
    assert "switchgear.yaml" in done.stdout.replace("\n", "")  # a long path is wrapped
    assert "the outage was not detected" in done.stdout
    assert simulate("outage", *SMALL, "--presets").exit_code == 0


def test_the_report_is_written_to_the_given_path(project: Path) -> None:
    done = simulate("outage", *SMALL, "--html", "report.html")
    assert done.exit_code == 0
    assert "report: report.html" in done.stdout
    assert (project / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("outrage",), "did you mean 'outage'?"),
        (("outage", "--agents", "3"), "agents is 3: it must be a whole number of at least 10"),
        (("outage", "--agents", "many"), "--agents"),
        (("outage", "--hours", "-1"), "hours is -1.0"),
        (("outage", "--seed", "-1"), "seed is -1"),
        (("outage", "--noise", "2"), "noise is 2.0"),
        (("outage", "--config", "gone.yaml"), "gone.yaml"),
        (("outage", *SMALL, "--html", "gone/report.html"), "--html gone/report.html"),
    ],
)
def test_invalid_options_are_refused_in_one_sentence_with_exit_code_2(
    words: tuple[str, ...], what: str
) -> None:
    done = simulate(*words)
    assert done.exit_code == 2
    assert what in done.stderr
    assert "Traceback" not in done.stderr


def test_a_report_that_cannot_be_written_is_reported_before_the_simulation() -> None:
    done = simulate("day", "--agents", "100000", "--html", "gone/report.html")
    assert done.exit_code == 2
    assert "gone/report.html" in done.stderr


def test_small_values_are_visible_in_a_plot() -> None:
    assert spark([0, 1, 500, 1000], 1000, BLOCKS, 4) == " ▁▄█"
    assert spark([0, 1, 500, 1000], 1000, PLAIN, 2) == ".@"
    assert spark([0, 0], 0, BLOCKS, 2) == "  "
