"""`switchgear selftest`: every scenario fires on the defaults, and fails with its reason when broken."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from switchgear._analysis.selftest import live, plan
from switchgear._analysis.selftest.attacks import MAX_SIGNALS, against, attacks_on
from switchgear._analysis.selftest.hook_trials import breach_of
from switchgear._analysis.selftest.plan import SCENARIOS, perform
from switchgear._analysis.selftest.sandbox import Bench, GuardRow, GuardStatus
from switchgear._budgets.budgets import Budgets
from switchgear._cli import main
from switchgear._config import load_config
from switchgear._core.policy import Policy
from switchgear._core.types import Signal
from switchgear._detectors import ALL, ConsecutiveFailures, ContextBurn
from switchgear._hooks import decide as deciding
from switchgear._hooks import inspect_call, session
from switchgear._hooks.inspect_call import CallInspection, inspect_tool_call
from switchgear._rules.builtin import BUILTIN
from switchgear._rules.effects import Place
from switchgear._run.circuits import Circuits
from switchgear._run.stuck import StuckWatch

DEAD = "{detectors: [{consecutive_failures: {threshold: 3}}]}"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A separate project, a home without agents, and a place for throw-away files."""
    home, work, scratch = (tmp_path / name for name in ("home", "work", "scratch"))
    for folder in (home, work / ".git", scratch):
        folder.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    for name in ("SWITCHGEAR_CONFIG", "SWITCHGEAR_STORE", "SWITCHGEAR_TOKEN", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield work
    assert not list(scratch.iterdir()), "throw-away places are gone afterwards"


def bench(project: Path, config: str = "") -> Bench:
    file = project / "switchgear.yaml"
    file.write_text(config)
    return Bench(load_config(file), str(project))


def rows_of(project: Path, config: str, *names: str) -> list[GuardRow]:
    return list(perform(bench(project, config), names))


def failures(rows: list[GuardRow]) -> dict[str, str]:
    return {row.guard: row.reason for row in rows if row.status is GuardStatus.FAILED}


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["selftest", *words])


# The defaults


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_trips_on_the_defaults(name: str) -> None:
    done = run("--only", name, "--json")
    rows = json.loads(done.stdout)["rows"]
    assert done.exit_code == 0
    assert "ok" in {row["status"] for row in rows} <= {"ok", "skipped"}
    for row in rows:
        if row["status"] == "ok" and name != "standing":
            assert row["detector"]
            assert row["signals"] > 0
            assert row["reason"] or row["guard"] == "operator token"


def test_every_detector_of_the_registry_has_an_attack_that_ends() -> None:
    fields: dict[str, dict[str, Any]] = {
        "latency_p95": {"baseline_s": 1.0},
        "slow_call_share": {"slow_s": 100.0},
        "slow_calls": {"slow_s": 1.0},
        "spend": {"hard_cap_micros": 100},
        "total_cost": {"budget_micros": 100},
    }
    for kind in ALL:
        detector = kind(**fields.get(kind.kind, {}))
        assert attacks_on(detector), f"{kind.kind} is never attacked"
        assert against(Policy([detector]), detector).tripped
        assert all(sum(1 for _ in attack.begin()) <= MAX_SIGNALS for attack in attacks_on(detector))


def test_each_guard_shows_when_it_trips_and_by_which_detector(project: Path) -> None:
    found = rows_of(
        project, f"circuits: [{{match: 'provider/*', policy: {DEAD}}}]", "dead-provider"
    )
    row = next(row for row in found if row.guard == "provider/*")
    assert (row.detector, row.signals, row.seconds) == ("consecutive_failures", 3, 1.5)
    assert "3 failures in a row (threshold 3)" in row.reason


# What is configured


def test_every_row_of_the_configuration_is_attacked_by_each_of_its_detectors(project: Path) -> None:
    config = """
circuits:
  - match: provider/*
    policy: {detectors: [{failure_rate: {window: 10}}, {slow_calls: {slow_s: 5}}, retry_after]}
"""
    rows = [row for row in rows_of(project, config, "guards") if row.guard == "provider/*"]
    assert [row.status for row in rows] == [GuardStatus.OK] * 3
    assert [row.detector for row in rows] == ["failure_rate", "slow_calls", "retry_after"]
    assert [row.attack for row in rows] == ["failures", "slow provider", "rate limit"]


@pytest.mark.parametrize(
    ("detector", "says"),
    [
        ("{consecutive_failures: {threshold: 5000}}", "1,000 signals of the attack reach 20%"),
        ("{failures_in_window: {threshold: 100, window_s: 2}}", "failures in 2 s (threshold 100)"),
        ("{context_burn: {per_minute: 0.9, window_s: 600}}", "10.0% of the context window"),
    ],
)
def test_a_threshold_that_cannot_be_reached_is_a_failure(
    project: Path, detector: str, says: str
) -> None:
    config = f"circuits: [{{match: 'provider/*', policy: {{detectors: [{detector}]}}}}]"
    why = failures(rows_of(project, config, "guards"))["provider/*"]
    assert "out of reach" in why
    assert says in why


def test_a_detector_whose_facts_are_not_recorded_on_its_path_is_a_failure(project: Path) -> None:
    config = "circuits: [{match: 'session/*', policy: {detectors: [words_debt, talk_debt]}}]"
    rows = [row for row in rows_of(project, config, "guards") if row.guard == "session/*"]
    bad = {row.reason.partition(":")[0]: row.reason for row in rows if row.status == "failed"}
    assert set(bad) == {"words_debt", "talk_debt"}
    assert bad["words_debt"].endswith("on this path (hooks): step.thought")
    assert bad["talk_debt"].endswith("step without a tool")


@pytest.mark.stress
def test_a_guard_that_stops_recording_its_facts_is_detected(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = inspect_call.call_signal

    def without_the_act(*args: Any, **facts: Any) -> Signal:
        return whole(*args, **facts)._replace(step=None)

    monkeypatch.setattr(inspect_call, "call_signal", without_the_act)
    rows = rows_of(project, "", "guards", "loop")
    bad = [row.reason for row in rows if row.status == "failed" and "session/*" in row.guard]
    assert any(
        "same_tool: the facts it needs are not recorded" in why and "act" in why for why in bad
    )
    assert any("such calls are admitted" in why for why in bad), "the loop itself is not cut either"


def test_a_row_that_an_earlier_one_hides_is_a_failure(project: Path) -> None:
    config = "circuits: [{match: 'op/*', policy: operation}, {match: 'op/git*', policy: operation}]"
    why = failures(rows_of(project, config, "guards"))["op/git*"]
    assert why == "never used: the first match wins, and 'op/*' before it catches its circuits"


def test_a_policy_that_applies_to_nothing_is_a_failure_unless_another_extends_it(
    project: Path,
) -> None:
    config = f"""
policies:
  base: {DEAD}
  used: {{extends: base}}
  lost: {DEAD}
circuits: [{{match: 'provider/*', policy: used}}]
"""
    bad = failures(rows_of(project, config, "guards"))
    assert list(bad) == ["policy lost"]
    assert "is unused" in bad["policy lost"]


def test_a_loop_that_ends_before_its_guard_can_trip_is_a_failure(project: Path) -> None:
    config = "loops: {short: {max_iterations: 3, consecutive_failures: 3}}"
    rows = [row for row in rows_of(project, config, "guards") if row.guard == "loop short"]
    bad = [row.reason for row in rows if row.status == "failed"]
    assert any(
        "no_progress: it needs 4 iterations, and the loop ends after 3" in why for why in bad
    )
    assert not any(why.startswith("consecutive_failures") for why in bad)


def test_weighted_detectors_trip_together(project: Path) -> None:
    rows = [row for row in rows_of(project, "", "guards") if row.guard == "session/* (default)"]
    assert {row.attack: row.detector for row in rows}["hang"] == "silence + same_tool"


def test_detectors_that_one_attack_trips_together_share_a_row() -> None:
    told = json.loads(run("--only", "guards", "--json").output)["rows"]
    rows = [(row["guard"], row["attack"], row["detector"]) for row in told]
    together = ("preset external_dep", "failures", "failures_in_window + failure_rate")
    assert rows.count(together) == 1
    assert ("preset external_dep", "rate limit", "retry_after") in rows


def test_the_nearest_miss_shows_its_heat() -> None:
    detector = ContextBurn(per_minute=0.9, window_s=600)
    trial = against(Policy([detector]), detector)
    assert not trial.tripped
    assert 0 < trial.heat < 1
    assert not against(
        Policy([ConsecutiveFailures(MAX_SIGNALS + 1)]), ConsecutiveFailures(MAX_SIGNALS + 1)
    ).tripped


# Rules and self-release


def test_a_rule_that_is_switched_off_is_a_failure(project: Path) -> None:
    bad = failures(rows_of(project, "rules: {builtin: [secrets, deletes]}", "rule-breach"))
    assert set(bad) == {"rules force-push", "rules guard"}
    assert "switched off: `rules.builtin`" in bad["rules force-push"]


def test_rules_without_the_group_guard_let_an_agent_remove_its_guard(project: Path) -> None:
    bad = failures(rows_of(project, "rules: {builtin: [secrets]}", "self-release"))
    assert "guard: release" in bad
    assert "the hooks answer allow" in bad["guard: release"]
    assert bad["guard: release"].endswith("no rule matches it")


def test_a_rule_that_its_own_allow_list_excuses_is_a_failure(project: Path) -> None:
    config = "rules: {own: [{name: no-curl, commands: [curl], allow: {commands: ['curl*']}}]}"
    assert "allow-lists exempt" in failures(rows_of(project, config, "rule-breach"))["rule no-curl"]


def test_rules_of_the_configuration_are_refused_by_the_hooks(project: Path) -> None:
    config = (
        "rules: {own: [{name: no-prod, commands: ['kubectl --context=prod*'], why: not yours}]}"
    )
    rows = {row.guard: row for row in rows_of(project, config, "rule-breach")}
    assert rows["rule no-prod"].status is GuardStatus.OK
    assert rows["rule no-prod"].detector == "rule no-prod"


def test_rule_circuits_without_a_violation_detector_are_reported_and_not_failures(
    project: Path,
) -> None:
    rows = rows_of(project, "circuits: [{match: '*', policy: failure_rate}]", "rule-breach")
    library = [row for row in rows if row.path == "library"]
    assert [row.status for row in library] == [GuardStatus.SKIPPED]
    both = "circuits: [{match: rules, policy: constitutional}, {match: '*', policy: failure_rate}]"
    library = [row for row in rows_of(project, both, "rule-breach") if row.path == "library"]
    assert [(row.guard, row.status) for row in library] == [("rules", GuardStatus.OK)]


def test_a_self_test_inside_a_run_gives_the_same_result(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHGEAR_WATCHED", "1")
    monkeypatch.setenv("SWITCHGEAR_TIME", "1 1")
    assert run("--only", "loop").exit_code == 0


def test_hooks_that_do_not_check_the_rules_are_detected(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(*looked: Any) -> CallInspection:
        return inspect_tool_call(*looked)._replace(broken=None)

    monkeypatch.setattr(deciding, "inspect_tool_call", blind)
    bad = failures(rows_of(project, "", "rule-breach"))
    assert bad["rule force-push"].endswith("the rules match it, but the hooks do not apply them")


def test_overrides_without_the_token_are_refused_where_one_is_configured(project: Path) -> None:
    rows = rows_of(project, f"operator_token_sha256: '{'a' * 64}'", "self-release")
    token = next(row for row in rows if row.guard == "operator token")
    assert token.status is GuardStatus.OK


# Guards that are broken on purpose


@pytest.mark.parametrize(
    ("name", "target", "attribute", "instead", "guard"),
    [
        ("loop", deciding.EventDecision, "_after_tool", lambda *_: None, "session/*"),
        ("same-error", Circuits, "record_loop", lambda *_: True, "loop/*"),
        ("standing-still", Circuits, "record_loop", lambda *_: True, "loop/*"),
        ("output-decline", Circuits, "record_loop", lambda *_: True, "loop/*"),
        ("hang", session, "silence_s", lambda *_: 0.0, "session/*"),
        ("overspend", Budgets, "_record_cost", lambda *_: 1 / 0, "overspend"),
        ("dead-provider", Circuits, "record_provider", lambda *_: None, "provider/demo"),
        ("dead-provider", deciding.EventDecision, "_after_tool", lambda *_: None, "op/*"),
        ("loop", StuckWatch, "see", lambda *_: None, "session/* progress"),
    ],
)
def test_a_guard_that_is_broken_on_purpose_is_a_failure(  # noqa: PLR0917
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    target: Any,
    attribute: str,
    instead: Any,
    guard: str,
) -> None:
    monkeypatch.setattr(target, attribute, instead)
    assert guard in failures(rows_of(project, "", name))


def test_a_slow_provider_without_a_policy_is_reported_and_a_policy_that_cannot_trip_fails(
    project: Path,
) -> None:
    rows = rows_of(project, f"circuits: [{{match: 'provider/*', policy: {DEAD}}}]", "slow-provider")
    assert [row.status for row in rows if row.path == "library"] == [GuardStatus.SKIPPED]
    slow = "{detectors: [{slow_calls: {slow_s: 1, window: 900}}]}"
    bad = failures(
        rows_of(project, f"circuits: [{{match: 'provider/*', policy: {slow}}}]", "slow-provider")
    )
    assert "all are admitted" in bad["provider/*"]


def test_a_lock_whose_long_wait_opens_no_circuit_is_a_failure(project: Path) -> None:
    policy = "{detectors: [{lock_wait: {limit_s: 200000}}]}"
    bad = failures(
        rows_of(project, f"circuits: [{{match: 'lock/*', policy: {policy}}}]", "lock-convoy")
    )
    assert "a wait of a day does not open it" in bad["lock/*"]


def test_an_error_in_a_scenario_is_a_row_and_the_others_continue(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_row() -> GuardRow:
        raise RuntimeError("no such thing")

    def breaks(_: Bench) -> Iterator[GuardRow]:
        yield broken_row()

    broken = plan.SelftestScenario("loop", "", (breaks, *SCENARIOS["loop"].attacks))
    monkeypatch.setitem(SCENARIOS, "loop", broken)
    rows = rows_of(project, "", "loop")
    assert rows[0].reason == "the test failed: RuntimeError: no such thing"
    assert rows[1].status is GuardStatus.OK


# How it stands


@pytest.mark.parametrize(
    ("mode", "says"), [("closed", "held closed by"), ("shadow", "in shadow mode by")]
)
def test_a_circuit_that_an_operator_holds_closed_cannot_trip(mode: str, says: str) -> None:
    CliRunner().invoke(main, ["record", "provider/x", "failure"])
    held = CliRunner().invoke(main, ["hold", mode, "provider/x", "--why", "a trial", "--yes"])
    assert held.exit_code == 0, held.output
    done = run("--only", "standing")
    assert done.exit_code == 1
    assert says in done.stdout
    assert "a trial; it admits everything" in done.stdout


def test_a_store_whose_file_cannot_be_created_is_a_failure(project: Path) -> None:
    (project / "file").write_text("")
    held = bench(project)._replace(store_url=f"sqlite:///{project}/file/deep/state.db")
    [why] = failures(list(perform(held, ["standing"]))).values()
    assert why == f"{project}/file is not a folder: name another place"
    fine = held._replace(store_url=f"sqlite:///{project}/new/deep/state.db")
    assert not failures(list(perform(fine, ["standing"])))


def test_hooks_that_are_configured_and_not_installed_are_a_failure(project: Path) -> None:
    bad = failures(rows_of(project, "hooks: {on_trouble: refuse}", "standing"))
    assert "no agent has them installed" in bad["hooks"]
    done = CliRunner().invoke(main, ["hooks", "install", "claude-code"])
    assert done.exit_code == 0, done.output
    assert not failures(rows_of(project, "hooks: {on_trouble: refuse}", "standing"))


def test_installed_hooks_that_lead_nowhere_are_a_failure(project: Path) -> None:
    CliRunner().invoke(main, ["hooks", "install", "claude-code"])
    settings = project / ".claude" / "settings.json"
    settings.write_text(settings.read_text().replace(sys.executable, "/no/such/python"))
    bad = failures(rows_of(project, "", "standing"))
    assert any("which is missing" in why for why in bad.values()), bad


# The verb


def test_a_self_test_changes_no_data_of_the_user(project: Path) -> None:
    (project / "switchgear.yaml").write_text(f"circuits: [{{match: 'provider/*', policy: {DEAD}}}]")
    CliRunner().invoke(main, ["record", "provider/x", "failure"])
    CliRunner().invoke(main, ["hooks", "install", "claude-code"])

    def everything() -> dict[str, bytes]:
        files = [each for each in project.parent.rglob("*") if each.is_file()]
        return {str(file): file.read_bytes() for file in files if ".db-" not in file.name}

    def stored() -> tuple[str, str]:
        verbs = (["status", "--json"], ["events", "--json"])
        circuits, events = (CliRunner().invoke(main, verb).stdout for verb in verbs)
        return circuits, events

    before, circuits = everything(), stored()
    assert run().exit_code == 0
    assert stored() == circuits
    assert everything() == before


def test_a_project_without_a_store_gets_none(project: Path) -> None:
    assert run().exit_code == 0
    assert [file.name for file in project.iterdir()] == [".git"]


def test_the_table_is_plain_in_a_pipe_and_ends_with_the_totals() -> None:
    done = run("--only", "lock-convoy")
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[-1] == "2 attacks stopped, every guard fires"
    assert "lock/*" in done.stdout
    assert "12 signals, 60 s" in done.stdout


def test_a_guard_that_cannot_trip_is_exit_code_1_with_the_reason(project: Path) -> None:
    (project / "switchgear.yaml").write_text("rules: {builtin: [secrets, deletes, guard]}")
    done = run("--only", "rule-breach")
    assert done.exit_code == 1
    assert "failed: switched off" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("1 guard cannot fire")


def test_a_scenario_can_be_excluded(project: Path) -> None:
    """CI has no agent with hooks, although the configuration has rules for them."""
    (project / "switchgear.yaml").write_text("circuits: [{match: 'op/*', policy: operation}]")
    shown = run("--only", "standing").stdout
    assert "no agent has them installed" in " ".join(shown.split())
    done = run("--without", "standing")
    assert done.exit_code == 0, done.stdout
    assert run("--only", "standing", "--without", "standing").exit_code == 2


def test_an_error_is_exit_code_2_and_a_sentence(project: Path) -> None:
    done = run("--only", "lop")
    assert done.exit_code == 2
    assert "there is no such scenario; did you mean 'loop'?" in done.stderr
    assert "add --live" in run("--only", "live-hooks").stderr
    assert "--without is 'lop'" in run("--without", "lop").stderr
    (project / "switchgear.yaml").write_text("nonsense: 1")
    assert run().exit_code == 2


def test_the_names_are_listed() -> None:
    listed = [line.split()[0] for line in run("--list").stdout.splitlines()]
    assert listed == [*SCENARIOS, "live-hooks", "live-store", "live-runs"]


def test_a_hook_command_that_does_nothing_is_a_failure(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "installed_commands", lambda _: {"claude-code": "true"})
    (row,) = live.attacked_hooks(bench(project))
    assert row.status is GuardStatus.FAILED
    assert "'git push --force origin main' is not refused: it answers allow" in row.reason


def test_a_hook_command_that_fails_is_a_failure(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "installed_commands", lambda _: {"gemini": "sh -c 'exit 3'"})
    (row,) = live.attacked_hooks(bench(project))
    assert row.status is GuardStatus.FAILED
    assert "exit code 3" in row.reason


def test_a_call_can_be_made_up_for_every_built_in_rule() -> None:
    place = Place("/w", protected=("/w/switchgear.yaml",))
    rules = [rule for group in BUILTIN.values() for rule in group]
    assert [rule.name for rule in rules if breach_of(rule, place).breach is None] == []
