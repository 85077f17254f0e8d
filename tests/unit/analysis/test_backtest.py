"""The result of a backtest: where a policy trips, what it saves, and its false stops."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear import Policy, Signal, _detectors
from switchgear._agents.events import Usage
from switchgear._agents.recordings.recording import RecordedRun, RecordedStep, RecordingTally
from switchgear._analysis.backtest.engine import Judging, Recordings, each_run
from switchgear._analysis.backtest.findings import (
    BacktestFindings,
    Counts,
    most_likely_below,
    rate,
    shadow_row,
)
from switchgear._analysis.backtest.replay import Named, cost_of_steps, judge
from switchgear._cli import main
from switchgear._core.policy import Latched
from switchgear._panel.panel import Panel
from switchgear._report.analysis_pages import backtest_page
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock
from unit import recording_samples as samples

THREE = Named("three", Policy([_detectors.ConsecutiveFailures(3)], Latched(), tripping_at=0.5))
USAGE = Usage("gpt-5", 900, 100, cost_micros=2000)


def run_of(outcomes: str, **facts: Any) -> RecordedRun:
    """A run from characters: `.` a step that succeeded, `x` one that failed, `!` one that changed files."""
    steps = tuple(
        RecordedStep(
            "bash",
            f"step {place}",
            "<b>out</b>",
            ok=sign != "x",
            error="no \x1b[31mway" if sign == "x" else None,
            usages=(USAGE,),
            changed=sign == "!",
        )
        for place, sign in enumerate(outcomes)
    )
    return RecordedRun(**{"id": "r", "source": "f", "format": "plain", "steps": steps, **facts})


def judged(run: RecordedRun) -> Any:
    return judge(run, (THREE,), pictures=True).judged[0]


def cli(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments), standalone_mode=False, catch_exceptions=False)


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(home)
    return home


# Replay


def test_a_backtest_reports_the_steps_of_the_warning_and_the_stop() -> None:
    found = judged(run_of("..xxx...."))
    assert (found.warned_at, found.tripped_at, found.stopped) == (4, 5, True)
    assert (found.detector, found.reason) == (
        "consecutive_failures",
        "3 failures in a row (threshold 3)",
    )


def test_the_steps_after_the_stop_are_saved() -> None:
    found = judged(run_of("..xxx...."))
    assert (found.saved_steps, found.saved_tokens, found.saved_micros) == (4, 4000, 8000)


def test_the_evidence_is_the_steps_before_made_harmless() -> None:
    found = judged(run_of("........xxx."))
    assert [shown.number for shown in found.evidence] == [6, 7, 8, 9, 10, 11]
    assert found.evidence[-1].told == "no  way"


def test_a_trip_after_the_last_step_stops_nothing() -> None:
    found = judged(run_of("..xxx", solved=True))
    assert found.tripped_at == 5
    assert not found.stopped


@pytest.mark.parametrize(
    ("outcomes", "harmful"), [("xxx.!.", True), ("xxx...", False), ("!xxx..", False)]
)
def test_a_false_stop_is_harmful_when_work_was_still_changed(outcomes: str, harmful: bool) -> None:
    assert judged(run_of(outcomes, solved=True)).harmful is harmful


def test_an_unknown_price_is_none_with_the_reason() -> None:
    step = RecordedStep("bash", ok=False, usages=(Usage("no-such-model", 10, 10),))
    run = run_of("", steps=(step,) * 5)
    row = judge(run, (THREE,))
    assert row.run.cost_micros is None
    assert "no-such-model" in row.run.cost_unknown
    assert row.judged[0].saved_micros is None


def test_the_cost_of_a_whole_run_is_shared_out_evenly() -> None:
    bare = tuple(step._replace(usages=()) for step in run_of("xxx.").steps)
    assert cost_of_steps(run_of("", steps=bare, cost_micros=1000), 3).micros == 250


# Counting


def test_intervals_are_those_of_wilson() -> None:
    assert rate(0, 0)[2:] == (0.0, 1.0)
    assert rate(5, 50)[2:] == (0.0435, 0.2136)
    assert rate(50, 50)[2:] == (0.9287, 1.0)


def test_no_false_stop_in_n_runs_shows_about_three_in_n() -> None:
    assert most_likely_below(0, 300) == pytest.approx(3 / 300, rel=0.01)
    assert most_likely_below(0, 0) == most_likely_below(4, 4) == 1.0


def test_false_stops_and_catches_are_counted_where_the_outcome_is_known() -> None:
    counts = Counts("three")
    for outcomes, solved in (("xxx.!", True), ("....", True), ("xxx..", False), ("xxx.", None)):
        row = judge(run_of(outcomes, solved=solved), (THREE,))
        counts.add(row.run, row.judged[0])
    assert (counts.runs, counts.stopped, counts.saved_steps) == (4, 3, 5)
    assert counts.false_stop_rate[:2] == (1, 2)
    assert counts.catch_rate[:2] == (1, 1)
    assert (counts.harmful, counts.unsolved_saved, counts.unsolved_steps) == (1, 2, 5)


# Many files


def test_several_processes_find_what_one_finds_in_the_same_order(tmp_path: Path) -> None:
    for name in samples.FILES:
        (tmp_path / name).mkdir()
        samples.write(name, tmp_path / name)
    lines = samples.as_lines(samples.plain() * 40)
    (tmp_path / "many.jsonl").write_text(lines)
    found, tallies = [], []
    for jobs in (1, 2):
        tally = RecordingTally()
        read = Recordings((str(tmp_path),), {"run-1": True}, jobs=jobs)
        found.append(list(each_run(read, Judging((THREE,), pictures=True).row, tally)))
        tallies.append((tally.files, tally.runs, tally.formats, tally.unknown, tally.problem_count))
    assert found[0] == found[1]
    assert tallies[0] == tallies[1]
    assert tallies[0][1] == 96
    assert {row.run.solved for row in found[0] if row.run.id == "run-1"} == {True}


def test_the_number_of_pictures_is_limited_and_false_stops_come_first() -> None:
    found = BacktestFindings(pictures=2)
    for number, solved in enumerate((False, None, True, False)):
        run = run_of("xxx" + "." * (number + 1), solved=solved, id=f"r{number}")
        found.add(judge(run, (THREE,), pictures=True))
    assert [row.run.id for row in found.most_important()] == ["r2", "r3"]
    assert len(found.rows) == 4
    assert all(not judged.heats for row in found.rows for judged in row.judged)


# The command


def test_the_table_names_what_was_found_and_what_was_not_understood(
    tmp_path: Path, empty_home: Path
) -> None:
    path = samples.write("plain", tmp_path)
    path.write_text(path.read_text() + "no json\n")
    done = cli("backtest", str(path), "--policy", "operation", "--compare", "provider")
    assert done.return_value == 0
    for said in (
        "2 runs in 1 file (plain 1)",
        "operation",
        "would stop            1 of 2 runs",
        "0 of 1 solved, 0.0% (95 %: 0.0% to 79.3%)",
        "1 of 1 unsolved",
        "after step 4 of 5",
        "1 line not understood: plain: not a JSON object 1",
    ):
        assert said in done.output, done.output


def test_the_default_policy_is_the_preset_default(tmp_path: Path, empty_home: Path) -> None:
    done = cli("backtest", str(samples.write("claude", tmp_path)), "--json")
    assert json.loads(done.output)["policies"][0]["name"] == "default"


def test_the_json_has_every_run_with_its_evidence(tmp_path: Path, empty_home: Path) -> None:
    path = samples.write("plain", tmp_path)
    done = cli("backtest", str(path), "--policy", "operation", "--json")
    values = json.loads(done.output)
    assert [row["id"] for row in values["rows"]] == ["run-1", "run-2"]
    [first] = values["rows"][0]["judged"]
    assert (first["tripped_at"], first["stopped"], first["saved_steps"]) == (4, True, 1)
    assert first["evidence"][-1]["told"] == samples.NOT_FOUND
    assert values["policies"][0]["catch_rate"]["count"] == 1


def test_a_policy_of_a_file_is_selected_by_name(tmp_path: Path, empty_home: Path) -> None:
    path = samples.write("plain", tmp_path)
    config = tmp_path / "mine.yaml"
    config.write_text(
        "policies:\n"
        "  one: {detectors: [{consecutive_failures: {threshold: 1}}]}\n"
        "  two: {extends: one, detectors: [{consecutive_failures: {threshold: 2}}]}\n"
    )
    done = cli("backtest", str(path), "--policy", f"{config}#two", "--json")
    assert json.loads(done.output)["rows"][0]["judged"][0]["tripped_at"] == 3
    with pytest.raises(Exception, match="2 policies; add #NAME, one of one, two"):
        cli("backtest", str(path), "--policy", str(config))
    with pytest.raises(Exception, match="no such policy, preset or file"):
        cli("backtest", str(path), "--policy", "legder")


def test_outcomes_can_be_given_in_a_file(tmp_path: Path, empty_home: Path) -> None:
    path = samples.write("swe-agent", tmp_path)
    told = tmp_path / "report.json"
    told.write_text(json.dumps({"resolved_ids": ["task-1"], "unresolved_ids": []}))
    done = cli("backtest", str(path), "--outcomes", str(told), "--json")
    assert json.loads(done.output)["rows"][0]["solved"] is True
    told.write_text("[]")
    with pytest.raises(Exception, match="contains no outcomes"):
        cli("backtest", str(path), "--outcomes", str(told))


def test_without_a_path_it_lists_the_usual_places(
    empty_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest"], standalone_mode=False) == 2
    assert "no agent's sessions were found" in capsys.readouterr().err
    folder = empty_home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    samples.write("claude", folder)
    assert main(["backtest"], standalone_mode=False) == 2
    assert "switchgear backtest ~/.claude/projects  # claude, 1 file" in capsys.readouterr().err


def test_without_a_run_the_exit_code_is_3(tmp_path: Path, empty_home: Path) -> None:
    (tmp_path / "notes.json").write_text('{"a": 1}')
    done = cli("backtest", str(tmp_path))
    assert done.return_value == 3
    assert "has no known format; --format NAME forces one" in done.output
    assert "no recorded session was found" in done.output
    assert "on other recorded runs" not in done.output, "it says nothing about these"


def test_outcomes_that_belong_to_no_run_are_reported(tmp_path: Path, empty_home: Path) -> None:
    runs, outcomes = tmp_path / "runs.jsonl", tmp_path / "outcomes.json"
    runs.write_text('{"id": "monday", "steps": [{"tool": "bash", "args": "make"}]}\n')
    outcomes.write_text('{"monday": true}')
    assert "without a run" not in cli("backtest", str(runs), "--outcomes", str(outcomes)).output
    outcomes.write_text('{"monday": true, "munday": false}')
    done = cli("backtest", str(runs), "--outcomes", str(outcomes))
    assert "1 outcome of --outcomes without a run of that id or task: munday" in done.output


def test_without_a_stop_no_tokens_are_unknown(tmp_path: Path, empty_home: Path) -> None:
    (tmp_path / "runs.jsonl").write_text('{"steps": [{"tool": "bash", "args": "make"}]}\n')
    assert "tokens saved          -\n" in cli("backtest", str(tmp_path / "runs.jsonl")).output


def test_missing_paths_are_refused_before_any_work(tmp_path: Path, empty_home: Path) -> None:
    with pytest.raises(Exception, match="gone': there is no such file or folder"):
        cli("backtest", str(tmp_path / "gone"))
    with pytest.raises(Exception, match="its folder does not exist"):
        cli("backtest", str(tmp_path), "--html", str(tmp_path / "no" / "r.html"))


def test_live_without_a_shadowed_circuit_explains_how_to_get_one(
    tmp_path: Path, empty_home: Path
) -> None:
    done = cli("backtest", "--live", "--store", f"sqlite:///{tmp_path}/s.db")
    assert done.return_value == 3
    assert "no circuit is or was in shadow mode" in done.output


# The report


def test_the_report_draws_each_run_and_escapes_the_text_of_agents() -> None:
    hostile = "</style><script>alert(1)</script>"
    found = BacktestFindings(pictures=5)
    found.judged_by((THREE,))
    run = run_of("..xxx....", id=hostile, task=hostile, solved=True, source="\x1b[2J")
    found.add(judge(run, (THREE,), pictures=True))
    found.tally.unknown_line("plain", hostile)
    found.tally.problem(hostile, hostile)
    html = backtest_page(found)
    assert "<script" not in html
    assert "\x1b" not in html
    assert "http" not in html.replace("http-equiv", "")
    for said in ("warned after 4", "stopped after 5", "solved: a false stop", "&lt;b&gt;out"):
        assert said in html
    assert "default-src 'none'" in html


def test_the_report_is_written_for_the_user_only(tmp_path: Path, empty_home: Path) -> None:
    path, html = samples.write("plain", tmp_path), tmp_path / "report.html"
    cli("backtest", str(path), "--html", str(html), "--policy", "operation")
    assert html.read_text().startswith("<!doctype html>")
    assert html.stat().st_mode & 0o777 == 0o600


# Live


def shadowed(panel: Panel) -> None:
    breaker = panel.breaker("agent/a", THREE.policy)
    breaker.shadow(by="me", why="try it")
    for _ in range(3):
        breaker.record(Signal(ok=False, error="boom"))
    for _ in range(2):
        with breaker:
            pass
    panel.breaker("agent/b", THREE.policy).record(Signal(ok=False))
    panel.flush()


def test_a_circuit_in_shadow_mode_is_a_row_of_the_same_report() -> None:
    with Panel("memory:") as panel:
        shadowed(panel)
        rows = [
            shadow_row(view, (entry.event for entry in panel.events(glob=view.name)), "store")
            for view in panel
        ]
    found, other = rows
    assert other is None
    assert found is not None
    [judged] = found.judged
    assert (judged.stopped, judged.saved_steps) == (True, 2)
    assert judged.reason == "3 failures in a row (threshold 3)"
    assert judged.evidence[-1].told == "boom"


@pytest.mark.parametrize(("after", "saved"), [(0, 0), (1, 1), (2, 2)])
def test_a_shadowed_circuit_without_refusals_saves_the_signals_after_its_trip(
    after: int, saved: int
) -> None:
    clock = FakeClock(1000.0)
    with Panel(MemoryStore(clock=clock), clock=clock) as panel:
        breaker = panel.breaker("session/a", THREE.policy)
        breaker.shadow(by="me", why="try it")
        for _ in range(3 + after):
            clock.advance(1.0)
            breaker.record(Signal(ok=False, error="boom"))
        [view] = panel
        row = shadow_row(view, [entry.event for entry in panel.events()], "store")
    assert row is not None
    [judged] = row.judged
    assert (judged.tripped_at, judged.saved_steps) == (3, saved)
    assert judged.stopped is bool(saved)


def test_a_shadowed_session_that_continues_without_failing_would_have_been_stopped() -> None:
    clock = FakeClock(1000.0)
    with Panel(MemoryStore(clock=clock), clock=clock) as panel:
        breaker = panel.breaker("session/a", THREE.policy)
        breaker.shadow(by="me", why="try it")
        for ok in (False, False, False, True):
            clock.advance(1.0)
            breaker.record(Signal(ok=ok))
        [view] = panel
        row = shadow_row(view, [entry.event for entry in panel.events()], "store")
    assert row is not None
    assert row.judged[0].saved_steps == 1


def test_live_shows_what_shadowed_circuits_would_have_done(
    tmp_path: Path, empty_home: Path
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with Panel(url) as panel:
        shadowed(panel)
    done = cli("backtest", "--live", "--store", url, "--html", str(tmp_path / "r.html"))
    assert done.return_value == 0
    assert "agent/a" in done.output
    assert "3 failures in a row (threshold 3)" in done.output
    assert "agent/b" not in done.output
    with pytest.raises(Exception, match="takes no PATH"):
        cli("backtest", "--live", "x")


MODULE = """
from typing import Any, ClassVar

from switchgear import Policy, Signal, detectors


class AllFailures(detectors.Detector):
    __slots__ = ("threshold",)
    kind: ClassVar[str] = "all_failures"
    threshold: int

    def __init__(self, threshold: int = 10) -> None:
        super().__init__(threshold=threshold)

    def start(self) -> int:
        return 0

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        return memory + signal.count if signal.ok is False else memory

    def heat(self, memory: int, now_s: float) -> float:
        return memory / self.threshold

    def reason(self, memory: int, now_s: float) -> str:
        return f"{memory} failures in all"

    def dump(self, memory: int) -> int:
        return memory

    def load(self, data: Any) -> int:
        return int(data)


strict = Policy(detectors=[AllFailures(threshold=2)])
"""


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 2
    return done.stderr


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module with a policy; what its import leaves behind is removed."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_policy_of_a_test", raising=False)
    file = tmp_path / "own_policy_of_a_test.py"
    file.write_text(MODULE)
    yield file
    sys.modules.pop("own_policy_of_a_test", None)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_policy_of_a_python_module_with_its_own_detector_is_evaluated(
    tmp_path: Path, empty_home: Path, module: Path, jobs: str
) -> None:
    path = samples.write("plain", tmp_path)
    done = cli("backtest", str(path), "--policy", str(module), "--jobs", jobs)
    assert done.return_value == 0
    assert "strict" in done.output
    assert "all_failures 1" in done.output
    both = refused("backtest", str(path), "--policy", f"{module}#lax")
    assert "the file has no such policy; it has strict" in both
    tuned = refused("tune", str(path), "--false-stops", "5%", "--policy", str(module))
    assert "`switchgear backtest` only" in tuned


def test_a_python_module_that_cannot_be_imported_is_named_with_its_error(
    tmp_path: Path, empty_home: Path, module: Path
) -> None:
    module.write_text("import no_such_module_at_all\n")
    done = refused("backtest", str(samples.write("plain", tmp_path)), "--policy", str(module))
    assert "ModuleNotFoundError: No module named 'no_such_module_at_all'" in done
    module.with_name("json.py").write_text(MODULE)
    taken = refused("backtest", str(tmp_path), "--policy", str(module.with_name("json.py")))
    assert "another module is named 'json'; rename the file" in taken


def test_every_policy_to_compare_has_a_column(tmp_path: Path, empty_home: Path) -> None:
    path = samples.write("plain", tmp_path)
    more = ("--compare", "provider", "--compare", "stuck")
    done = cli("backtest", str(path), "--policy", "operation", *more, "--json")
    named = [each["name"] for each in json.loads(done.output)["policies"]]
    assert named == ["operation", "provider", "stuck"]
    twice = refused("backtest", str(path), "--policy", "stuck", *more)
    assert "name the same policy twice" in twice
