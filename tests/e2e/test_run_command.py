"""`switchgear run`, `runs` and `resume` with real processes and signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quick_command
import stand_in
from repositories import make_repository
from timeouts import LIMIT_S, end

COMMAND = (sys.executable, "-m", "switchgear")
GOES_ON = "write('n', str(n)); tell(type='result', text='more', success=None)"


class Project:
    """A folder with a stand-in agent beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path / "project"
        self.path.mkdir()
        self.started: list[subprocess.Popen[str]] = []
        self.agent = path / "agent.py"
        self.env = {
            "PATH": os.environ["PATH"],
            "SWITCHGEAR_TRUST": "1",
            "HOME": str(path),
            "XDG_STATE_HOME": str(path / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        make_repository(self.path)

    def arguments(self, *words: str, agent: str | None = None) -> list[str]:
        if agent is not None:
            self.agent.write_text(stand_in.script(agent))
            words = (*words, "--agent-cmd", f"{sys.executable} -S {self.agent}")
        return [*COMMAND, *words]

    def __call__(self, *words: str, agent: str | None = None) -> subprocess.CompletedProcess[str]:
        words = tuple(self.arguments(*words, agent=agent)[len(COMMAND) :])
        return quick_command.run(*words, cwd=self.path, env=self.env)

    def start(self, *words: str, agent: str | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.arguments(*words, agent=agent),
            cwd=self.path,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def json(self, *words: str, agent: str | None = None) -> Any:
        return json.loads(self(*words, "--json", agent=agent).stdout)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    for process in made.started:
        end(process)


def wait_for(path: Path) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < until_s, f"{path.name} was not written in time"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_run_that_works_is_completed_and_shown_in_lines(project: Project) -> None:
    done = project("run", "write a", agent="write('a', 'b')")
    assert done.returncode == 0, done.stderr
    assert "task: write a" in done.stdout
    assert "iteration 1 of 30" in done.stdout
    assert "completed: the agent reports that it is done" in done.stdout
    assert "\x1b" not in done.stdout


def test_json_is_the_documented_result_and_nothing_else(project: Project) -> None:
    done = project("run", "x", "--json", agent="print('Error: boom'); sys.exit(1)")
    assert done.returncode == 10
    result = json.loads(done.stdout)
    assert result["success"] is False
    assert result["exit_reason"] == "circuit_breaker"
    assert result["stats"]["circuit_breaker"] == {
        "consecutive_failures": 3,
        "total_failures": 3,
        "unique_errors": 1,
    }
    assert result["iterations"] == 3
    assert f"switchgear resume {result['run']} --force-close" in result["resume"]
    assert result["reason"] == "Circuit breaker tripped: 3 consecutive failures (threshold: 3)"
    assert "iteration 3 of 30" in done.stderr


def test_a_run_reserves_its_budget_and_does_not_start_without_it(project: Project) -> None:
    project("budgets", "set", "atlas", "1")
    spends = "tell(type='usage', model='m', input_tokens=1, output_tokens=1, cost_usd=0.3); write('a', str(os.getpid()))"
    flags = ("--budget", "0.8", "--budget-node", "atlas")
    assert project.json("run", "x", *flags, agent=spends)["exit_code"] == 0
    refused = project.json("run", "again", *flags, agent=spends)
    assert (refused["exit_code"], refused["exit_reason"], refused["run"]) == (11, "budget", None)
    assert refused["reason"] == "budget 'atlas' refuses: $0.80 requested, $0.70 of $1.00 free"
    done = project("run", "again", *flags[2:], "--max-iterations", "1", agent=spends)
    assert done.returncode == 0, done.stderr
    assert "$0.40" in project("budgets", "show", "atlas").stdout
    done = project("run", "x", "--budget-node", "other", agent=spends)
    assert done.returncode == 2
    assert "budget 'other' is not open; 'switchgear budgets list' shows the trees" in done.stderr


SPENDS = "tell(type='usage', model='m', input_tokens=1, output_tokens=1, cost_usd=0.5); write('a', str(os.getpid()))"


def spent_micros(project: Project) -> int:
    [node] = project.json("budgets", "show", "atlas")["nodes"]
    assert node["held_micros"] == 0
    return int(node["spent_micros"])


def test_a_run_that_never_started_costs_nothing(project: Project) -> None:
    project("budgets", "set", "atlas", "1")
    runs = project.path / ".switchgear" / "runs"
    runs.touch()  # no folder can be made in a file
    done = project("run", "x", "--budget-node", "atlas", agent=SPENDS)
    assert done.returncode == 2
    assert "Not a directory" in done.stderr
    assert spent_micros(project) == 0
    runs.unlink()
    notes = project.path / "switchgear.yaml"
    notes.write_text("interventions: {escalate: nobody}\n")
    done = project("run", "x", "--stuck", "--budget-node", "atlas", agent=SPENDS)
    assert done.returncode == 2, done.stdout
    assert spent_micros(project) == 0
    notes.write_text(project("config", "token", "-o", str(project.agent) + ".token").stdout)
    done = project("run", "x", "--shadow", "--budget-node", "atlas", agent=SPENDS)
    assert "accepts overrides only with the operator token" in done.stderr
    assert spent_micros(project) == 0
    assert not list(runs.iterdir()), "it leaves no folder behind"


def test_an_empty_node_refuses_a_run_and_a_higher_limit_lets_it_continue(project: Project) -> None:
    project("budgets", "set", "atlas", "0.5")
    goes_on = SPENDS + "; tell(type='result', text='more', success=None)"
    ended = project.json("run", "x", "--budget-node", "atlas", agent=goes_on)
    assert (ended["exit_reason"], ended["iterations"]) == ("budget", 1)
    assert "budgets set atlas DOLLARS && " in ended["resume"]
    assert spent_micros(project) == 500_000
    for words in (
        ["resume", "last"],
        ["run", "y", "--agent-cmd", "true", "--budget-node", "atlas"],
    ):
        refused = project.json(*words)
        assert (refused["exit_code"], refused["run"]) == (11, None)
        assert refused["reason"] == "budget 'atlas' refuses: nothing is free"
        assert refused["choices"][1].startswith("switchgear budgets set atlas DOLLARS")
    project("budgets", "set", "atlas", "1.5")
    on = project.json("resume", "last")
    assert (on["exit_reason"], on["iterations"]) == ("budget", 3), "the new money is there"
    assert spent_micros(project) == 1_500_000


def test_a_refused_demo_run_leaves_no_files(project: Project) -> None:
    done = project("run", "--agent", "demo", "--budget-node", "nope")
    assert done.returncode == 2
    assert "budget 'nope' is not open" in done.stderr
    assert not (project.path / ".switchgear" / "runs").exists()


FLAGS: list[tuple[list[str], str, str, int]] = [
    (["--circuit-breaker-failures", "2"], "sys.exit(1)", "circuit_breaker", 2),
    (["--circuit-breaker-failures", "0", "--circuit-breaker-errors", "4"], "print('Error: x'); sys.exit(1)", "circuit_breaker", 4),
    (["--no-progress", "1"], "print('hm')", "circuit_breaker", 2),
    (["--output-decline", "90", "--max-iterations", "6"], "write('n', str(n)); print('x' * (1000 if n < 4 else 800)); tell(type='result', text='', success=None)", "circuit_breaker", 5),
    (["--max-iterations", "2"], GOES_ON, "max_iterations", 2),
    (["--validate", "false"], GOES_ON, "circuit_breaker", 3),
    (["--validate", "false", "--no-validate", "--max-iterations", "1"], GOES_ON, "max_iterations", 1),
    (["--budget", "0.5", "--allow-unknown-price", "--max-iterations", "2"], GOES_ON, "max_iterations", 2),
    (["--rate-limit", "1/h", "--timeout", "1m"], GOES_ON, "rate_limit", 1),
    (["--rate-limit", "0", "--timeout", "1m", "--max-iterations", "2"], GOES_ON, "max_iterations", 2),
    (["--timeout", "1s"], "time.sleep(30)", "timeout", 1),
    (["--idle-timeout", "0.3s", "--circuit-breaker-failures", "1"], "time.sleep(30)", "circuit_breaker", 1),
    (["--completion-promise", "DONE"], "write('n', str(n)); print('DONE' if n == 2 else 'not yet')", "completed", 2),
    (["--plan", "PLAN.md"], "write('PLAN.md', '- [x] a' + ('\\n- [ ] b' if n == 1 else ''))", "completed", 2),
    (["--shadow", "--max-iterations", "5"], "print('Error: x'); sys.exit(1)", "max_iterations", 5),
    (["--preset", "migration-safety"], "sys.exit(1)", "circuit_breaker", 1),
    (["--preset", "migration-safety", "--circuit-breaker-failures", "2"], "sys.exit(1)", "circuit_breaker", 2),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "agent", "reason", "iterations"), FLAGS, ids=lambda v: " ".join(v) if isinstance(v, list) else "")  # fmt: skip
def test_each_flag_changes_what_a_run_does(
    project: Project, flags: list[str], agent: str, reason: str, iterations: int
) -> None:
    result = project.json("run", "x", *flags, agent=agent)
    assert (result["exit_reason"], result["iterations"]) == (reason, iterations)


def test_the_commit_option_commits(project: Project) -> None:
    for key, value in (("user.name", "a"), ("user.email", "a@example.invalid")):
        subprocess.run(["git", "config", key, value], cwd=project.path, check=True)
    project("run", "write a", "--commit", agent="write('a', 'b')")
    said = subprocess.run(["git", "log", "--format=%s"], cwd=project.path, capture_output=True, text=True, check=True)  # fmt: skip
    assert said.stdout == "write a\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "TASK is missing"),
        (["run", "x"], "no agent is named"),
        (["run", "", "--agent", "demo"], "the task is empty"),
        (["run", "x", "--agent", "clade"], "did you mean 'claude'"),
        (["run", "x", "--agent", "claude", "--agent-cmd", "y"], "both given"),
        (["run", "x", "--agent", "claude", "--preset", "featur"], "did you mean 'feature'"),
        (["run", "x", "--agent", "claude", "--timeout", "soon"], "--timeout is 'soon'"),
        (["run", "x", "--agent", "claude", "--price-in", "1"], "--price-in and --price-out belong"),
        (["run", "x", "--agent", "claude", "--budget", "-1"], "--budget is '-1'"),
        (["run", "x", "--agent", "claude", "--rate-limit", "fast"], "--rate-limit is 'fast'"),
        (["run", "x", "--agent", "claude", "--max-iterations", "0"], "--max-iterations"),
        (["resume", "last"], "there are no runs yet"),
        (["runs", "show", "nope"], "there are no runs yet"),
    ],
)
def test_a_usage_error_is_one_sentence_and_exits_with_2(
    project: Project, words: list[str], said: str
) -> None:
    done = project(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project.path / ".switchgear" / "runs").exists()


def test_a_missing_agent_is_reported_with_its_install_command(
    project: Project,
) -> None:
    project.env["PATH"] = "/usr/bin:/bin"
    done = project("run", "x", "--agent", "goose")
    assert done.returncode == 16
    assert "install it with" in done.stderr
    assert not (project.path / ".switchgear" / "runs").exists(), (
        "nothing is made before it is there"
    )


def test_a_missing_command_creates_no_run(project: Project) -> None:
    for command in ("no-such-agent --task {prompt}", "./not/here.sh"):
        done = project("run", "x", "--agent-cmd", command)
        assert done.returncode == 16
        assert "there is no program" in done.stderr
    result = project.json("run", "x", "--agent-cmd", "no-such-agent")
    assert (result["exit_reason"], result["run"], result["iterations"]) == ("agent_error", None, 0)
    assert not (project.path / ".switchgear" / "runs").exists()


def test_a_task_that_validate_took_as_its_command_is_reported(project: Project) -> None:
    done = project("run", "--validate", "make the tests pass", "--agent", "claude")
    assert done.returncode == 2
    assert "--validate took 'make the tests pass' as its command" in done.stderr
    assert "--validate=CMD" in done.stderr


@pytest.mark.parametrize("flag", ["--timeout", "--idle-timeout"])
@pytest.mark.parametrize("value", ["8", " 90", "1.5"])
def test_a_span_without_a_unit_is_a_usage_error_with_suggestions(
    project: Project, flag: str, value: str
) -> None:
    done = project("run", "x", "--agent", "claude", flag, value)
    assert done.returncode == 2
    number = value.strip()
    assert f"it needs a unit; write {number}s for seconds, {number}m for minutes" in done.stderr
    more = project("resume", "last", "--more-time", "8")
    assert more.returncode == 2


SAYS = "print('working')"
USES = "tell(type='usage', model='m', input_tokens=1000, output_tokens=100); write('n', str(n)); tell(type='result', text='', success=None)"


def test_a_budget_for_a_cost_that_cannot_be_known_is_refused_before_anything_starts(
    project: Project,
) -> None:
    for flags in (["--budget", "5"], ["--budget", "5", "--json"]):
        done = project("run", "x", *flags, agent=f"write('started', ''); {SAYS}")
        assert done.returncode == 2
        assert "--budget cannot be enforced: the command" in done.stderr
        for way in ("--price-in and --price-out", "--allow-unknown-price", "leave out --budget"):
            assert way in done.stderr
    known = project("run", "x", "--agent", "codex", "--model", "nobodys-model", "--budget", "5")
    assert known.returncode == 2
    assert "has no price for the model 'nobodys-model'" in known.stderr
    assert "pip install -U 'switchgear[prices]'" in known.stderr
    assert not (project.path / ".switchgear" / "runs").exists()
    assert not (project.path / "started").exists()


def test_a_budget_is_enforced_by_prices_that_are_given(project: Project) -> None:
    prices = ("--price-in", "100", "--price-out", "1000")
    result = project.json("run", "x", "--budget", "0.5", *prices, agent=USES)
    assert (result["exit_reason"], result["iterations"]) == ("budget", 2)
    assert result["stats"]["cost_micros"] == 400_000
    assert result["stats"]["priced_by"] is None
    alone = project("run", "x", "--price-in", "1", agent=USES)
    assert (alone.returncode, "belong together" in alone.stderr) == (2, True)


def test_an_earlier_run_that_reported_its_cost_lets_a_command_have_a_budget(
    project: Project,
) -> None:
    spends = "u = 'us' + 'age'; k = 'cost' + '_usd'; tell(type=u, model='m', **{k: 0.25}); write('n', str(n) + os.environ['SWITCHGEAR_RUN'])"
    assert project("run", "x", "--budget", "1", agent=spends).returncode == 2
    assert project("run", "x", agent=spends).returncode == 0
    assert project("run", "y", "--budget", "1", agent=spends).returncode == 0


def test_a_dry_run_shows_the_plan_and_leaves_nothing_behind(project: Project) -> None:
    before = sorted(project.path.iterdir())
    flags = ("--validate=make test", "--circuit-breaker-failures", "8", "--timeout", "2h")
    done = project("run", "fix the \x1b[2J parser", *flags, "--dry-run", agent="write('a', 'b')")
    assert done.returncode == 0, done.stderr
    for shown in (
        "validation  make test",
        "circuit     loop/fix-the-parser-",
        "failed iterations in a row: 8 (set)",
        "time: 2 h",
        "no budget",
        "is not known to report tokens or cost",
        "there are no past runs of this agent here",
        "It is checked by `make test`.",
        "the run would start",
    ):
        assert shown in done.stdout
    assert "\x1b" not in done.stdout
    assert sorted(project.path.iterdir()) == before
    shown = project.json("run", "x", "--dry-run", "--budget", "1", agent="write('a', 'b')")
    assert (shown["would_start"], shown["exit_code"]) == (False, 2)
    assert sorted(project.path.iterdir()) == before
    demo = project("run", "--agent", "demo", "--dry-run")
    assert (demo.returncode, "demo reports its cost" in demo.stdout) == (0, True)
    assert sorted(project.path.iterdir()) == before


def test_a_dry_run_reports_missing_tests_and_an_exhausted_budget(
    project: Project,
) -> None:
    done = project("run", "x", "--validate", "--dry-run", agent="write('a', 'b')")
    assert (done.returncode, "no test command was found" in done.stdout) == (0, True)
    shown = project.json("run", "--agent", "demo", "--budget", "0", "--dry-run")
    assert (shown["would_start"], shown["exit_code"]) == (False, 11)
    ended = project("run", "--agent", "demo", "--budget", "0")
    assert (ended.returncode, "--budget 5" in ended.stdout) == (11, True)


def test_a_script_that_cannot_be_started_is_reported_with_the_reason(project: Project) -> None:
    script = project.path / "agent.sh"
    done = project("run", "x", "--agent-cmd", "./agent.sh")
    assert (done.returncode, "on the PATH" in done.stderr) == (16, False)
    assert f"there is no program '{script}'" in done.stderr
    script.write_text("#!/no/such/interpreter\n")
    done = project("run", "x", "--agent-cmd", "./agent.sh")
    assert (done.returncode, "chmod +x ./agent.sh" in done.stderr) == (16, True)
    assert not (project.path / ".switchgear" / "runs").exists()
    script.chmod(0o755)
    done = project("run", "x", "--agent-cmd", "./agent.sh")
    assert (done.returncode, "an interpreter that is installed?" in done.stdout) == (16, True)


def test_an_unknown_cost_is_null_in_the_list_of_runs(project: Project) -> None:
    project("run", "x", "--max-iterations", "1", agent="sys.exit(1)")
    [row] = project.json("runs")["runs"]
    assert (row["cost_micros"], row["unknown_prices"]) == (None, 1)


def test_a_dry_run_estimates_from_past_runs_and_reports_an_open_circuit(project: Project) -> None:
    spends = (
        "tell(type='usage', model='m', input_tokens=1, output_tokens=1, cost_usd=0.3); sys.exit(1)"
    )
    project("run", "x", agent=spends)
    held = (project.path / ".switchgear" / "runs").iterdir()
    runs = sorted(each.name for each in held)
    done = project("run", "x", "--dry-run", agent=spends)
    assert done.returncode == 10
    assert (
        "$0.90, $0.30 each iteration (1 past run of this task, median 3 iterations" in done.stdout
    )
    assert "the run would not start: loop/x-" in done.stdout
    assert sorted(each.name for each in (project.path / ".switchgear" / "runs").iterdir()) == runs


def test_a_tripped_run_notifies_configured_targets_and_those_of_notify(project: Project) -> None:
    out = project.path.parent
    (project.path / "switchgear.yaml").write_text(
        "notifications:\n"
        f"  - command: {{run: 'tee -a {out}/configured'}}\n"
        f"  - command: {{run: 'tee {out}/other', match: 'provider/*'}}\n"
    )
    project.env["SWITCHGEAR_CONFIG"] = str(project.path / "switchgear.yaml")
    flags = ("--notify", f"command:tee {out}/flag", "--notify", "command:false")
    done = project("run", "x", *flags, agent="print('Error: boom'); sys.exit(1)")
    assert done.returncode == 10
    assert "switchgear: notification to command-" in done.stderr
    for name in ("configured", "flag"):  # a configured target receives other events, too
        data = [json.loads(line) for line in (out / name).read_text().splitlines()]
        [got] = [each for each in data if each["severity"] != "INFO"]
        assert (got["kind"], got["severity"]) == ("run_ended", "SEV2")
        assert len(got["owners"]) == 1
        assert all(each["owners"] == got["owners"] for each in data)
        assert got["receipt"]["exit_reason"] == "circuit_breaker"
    assert not (out / "other").exists(), "it matches other circuits"
    again = project("run", "x", *flags, agent="print('Error: boom'); sys.exit(1)")
    assert again.returncode == 10
    got = json.loads((out / "flag").read_text())
    assert (got["severity"], got["kind"]) == ("SEV3", "run_not_started")
    assert project("run", "x", "--notify", "pager", "--agent", "demo").returncode == 2


def test_runs_have_start_end_and_duration_and_can_be_cut_to_the_last(project: Project) -> None:
    for number in range(3):
        project("run", f"task {number}", agent="write('a', os.environ['SWITCHGEAR_RUN'])")
    lines = project("runs").stdout.splitlines()
    assert len(lines) == 3
    when = r"20\d\d-\d\d-\d\d \d\d:\d\d to (20\d\d-\d\d-\d\d )?\d\d:\d\d, [\d.]+ s  1 iteration, unknown cost, "
    assert all(re.search(when, line) for line in lines)
    last = project("runs", "--last", "1").stdout
    assert "task 2" in last
    assert "task 1" not in last
    assert "2 earlier" in last
    assert len(project.json("runs", "--last", "2")["runs"]) == 2
    page = project("runs", "show", "last").stdout
    for line in ("started: 20", "ended: 20", "took: ", "receipt: "):
        assert f"\n{line}" in page
    receipt = project("runs", "show", "last", "--receipt").stdout
    assert receipt.startswith("Switchgear run 20")
    assert project.json("runs", "show", "last", "--receipt")["what"]["task"] == "task 2"
    assert project("runs", "prune").returncode == 2
    assert "2 runs would be removed" in project("runs", "prune", "--keep", "1", "--dry-run").stdout
    assert len(project.json("runs")["runs"]) == 3
    assert "2 runs removed" in project("runs", "prune", "--keep", "1").stdout
    assert [each["task"] for each in project.json("runs")["runs"]] == ["task 2"]
    assert project("runs", "prune", "--older-than", "8").returncode == 2


@pytest.mark.parametrize("name", ["last", "the id"])
def test_an_intervention_in_a_run_that_has_ended_names_the_command_that_continues(
    project: Project, name: str
) -> None:
    run = project.json("run", "x", "--max-iterations", "1", agent="sys.exit(1)")["run"]
    done = project("intervene", run if name == "the id" else name)
    assert done.returncode == 2
    assert f"run {run} is not running (max_iterations)" in done.stderr
    assert f"switchgear resume {run}" in done.stderr
    tripped = project.json("run", "y", agent="sys.exit(1)")["run"]
    refused = " ".join(project("intervene", tripped).stderr.split())
    assert f"switchgear resume {tripped} --force-close --why" in refused


def test_status_counts_the_runs_that_the_list_of_runs_shows(project: Project) -> None:
    for _ in range(2):
        project("run", "x", "--max-iterations", "1", agent="sys.exit(1)")
    assert "2 finished runs: `switchgear runs`" in project("status").stdout
    project("runs", "prune", "--keep", "0")
    assert "finished run" not in project("status").stdout


def test_status_leaves_out_finished_runs_and_shows_active_ones(project: Project) -> None:
    first = project.json("run", "fix the parser", agent="print('Error: x'); sys.exit(1)")
    assert first["circuit"].startswith("loop/fix-the-parser-")
    project("record", "provider/anthropic", "success")
    shown = project("status").stdout
    assert "loop/" not in shown
    assert "provider/anthropic" in shown
    assert "1 finished run: `switchgear runs`" in shown
    assert first["circuit"] in project("status", "--all").stdout
    assert first["circuit"] in project("status", "loop/*").stdout
    names = [each["name"] for each in project.json("status")]
    assert names == ["provider/anthropic"]
    project("hold", "open", first["circuit"], "--why", "not now")
    assert first["circuit"] in project("status").stdout, "what an operator holds stays"
    running = project.start(
        "run", "another one", agent="n > 1 and (write('working', ''), time.sleep(300)); sys.exit(1)"
    )
    try:
        wait_for(project.path / "working")
        shown = project("status").stdout
        assert "loop/another-one-" in shown
        assert re.search(r"running: 20\S+, iteration 2, python\S*: another one", shown)
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=LIMIT_S)
    assert "loop/another-one-" not in project("status").stdout
    project("release", first["circuit"], "--why", "now")
    project("runs", "prune", "--keep", "0")
    assert "loop/" not in project("status").stdout


def test_every_line_of_a_log_has_its_time(project: Project) -> None:
    done = project("run", "x", "--max-iterations", "1", agent=GOES_ON)
    lines = done.stdout.splitlines()
    assert len(lines) > 5
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line), line


def test_the_help_of_completion_shows_lines_and_no_escape(project: Project) -> None:
    said = project("completion", "--help").stdout
    assert "\\b" not in said
    assert "\b" not in said
    assert '  bash: eval "$(switchgear completion bash)"      in ~/.bashrc\n' in said


def test_starting_a_run_on_an_open_circuit_offers_the_choices(project: Project) -> None:
    fails = "print('Error: boom'); sys.exit(1)"
    project("run", "x", agent=fails)
    again = project("run", "x", agent=fails)
    assert again.returncode == 10
    assert "is open: Circuit breaker tripped: 3 consecutive failures (threshold: 3)" in again.stderr
    for choice in ("- wait: ", "- force: ", "- abort: "):
        assert choice in again.stderr
    refused = project.json("run", "x", agent=fails)
    assert (refused["exit_reason"], refused["iterations"]) == ("circuit_breaker", 0)
    assert len(refused["choices"]) == 3
    assert len(project.json("runs")["runs"]) == 1
    other = project("run", "another task", agent="write('a', 'b')")
    assert other.returncode == 0


def test_force_close_requires_a_reason(project: Project) -> None:
    project("run", "x", agent="sys.exit(1)")
    project.agent.write_text(stand_in.script("write('a', 'b')"))
    without = project("resume", "last", "--force-close")
    assert without.returncode == 2
    assert "add --why TEXT" in without.stderr
    forced = project("resume", "last", "--force-close", "--why", "the disk is mended")
    assert forced.returncode == 0, forced.stderr
    assert "resumed after iteration 3" in forced.stdout
    events = project("events", "--json").stdout
    assert "the disk is mended" in events


def test_a_circuit_that_is_held_open_is_not_closed_by_force(project: Project) -> None:
    first = project.json("run", "x", "--max-iterations", "1", agent=GOES_ON)
    project("hold", "open", first["circuit"], "--why", "not now", "--by", "ops")
    again = project("resume", "last", "--force-close", "--why", "now", "--max-iterations", "2")
    assert again.returncode == 10
    assert "held open by ops: not now" in again.stderr
    assert f"switchgear release {first['circuit']}" in again.stderr


def test_two_runs_in_one_folder_report_each_other(project: Project) -> None:
    body = "write('started', 'x'); time.sleep(300 if 'slow' in prompt else 0)"
    slow = project.start("run", "slow", agent=body)
    wait_for(project.path / "started")
    quick = project("run", "quick", agent=body)
    slow.terminate()
    slow.communicate(timeout=LIMIT_S)
    assert "is also active in this folder" in quick.stdout


def test_resume_continues_with_task_options_and_spending(project: Project) -> None:
    first = project.json("run", "count", "--max-iterations", "1", agent=GOES_ON)
    assert first["resume"].endswith(f"switchgear resume {first['run']} --max-iterations 2")
    second = project.json("resume", first["run"], "--max-iterations", "3")
    assert (second["run"], second["iterations"]) == (first["run"], 3)
    assert second["exit_reason"] == "max_iterations"


def test_more_time_is_added_to_what_was_used(project: Project) -> None:
    first = project.json(
        "run", "x", "--timeout", "1s", agent="time.sleep(30 if n == 1 else 0); write('a', 'b')"
    )
    assert first["exit_reason"] == "timeout"
    again = project.json("resume", "last")
    assert (again["exit_reason"], again["iterations"]) == ("timeout", 1)
    more = project.json("resume", "last", "--more-time", "1m")
    assert (more["exit_reason"], more["iterations"]) == ("completed", 2)
    done = project("resume", "last")
    assert done.returncode == 2
    assert "is completed" in done.stderr


def test_an_answer_unblocks_a_run(project: Project) -> None:
    ask = "if n == 1: tell(type='question', text='Red or blue?'); sys.exit()\n"
    body = ask + "write('answer', prompt)"
    first = project.json("run", "paint it", agent=body)
    assert (first["exit_reason"], first["reason"]) == ("blocked", "the agent asks: Red or blue?")
    assert project.json("resume", "last", "--answer", "Blue, of course.")["success"]
    assert "Blue, of course." in (project.path / "answer").read_text()


def test_runs_are_listed_and_shown_and_a_damaged_one_is_reported(project: Project) -> None:
    project("run", "first", agent="write('a', 'b')")
    project("run", "second", agent="sys.exit(1)")
    root = project.path / ".switchgear" / "runs"
    (root / "20200101-000000-abcdef").mkdir()
    (root / "20200101-000000-abcdef" / "run.json").write_text("{broken")
    listed = project("runs")
    assert listed.returncode == 0
    lines = listed.stdout.splitlines()
    assert lines[0].startswith("20200101-000000-abcdef  cannot be read")
    assert "completed" in lines[1]
    assert "first" in lines[1]
    assert "circuit_breaker" in lines[2]
    assert project("runs", "list").stdout == listed.stdout
    project.env["COLUMNS"] = "40"
    narrow = project("runs").stdout
    assert max(map(len, narrow.splitlines())) == 40
    assert narrow.split() == listed.stdout.split()
    del project.env["COLUMNS"]
    shown = project("runs", "show", "last")
    assert "reason: Circuit breaker tripped" in shown.stdout
    assert shown.stdout.count("#") == 3
    assert "0 files changed, unknown cost, 0 steps" in shown.stdout
    assert "kept: no file differs from the start\n" in shown.stdout
    assert "1 file changed, " in project("runs", "show", lines[1].split()[0]).stdout
    page = project.json("runs", "show", "last")
    assert len(page["iterations"]) == 3
    assert page["status"] == "circuit_breaker"
    broken = project("runs", "show", "abcdef")
    assert broken.returncode == 2
    assert "cannot be read" in broken.stderr


def test_the_demo_agent_changes_nothing_in_the_current_folder(project: Project) -> None:
    done = project("run", "--agent", "demo:same-error")
    assert done.returncode == 10, done.stdout + done.stderr
    assert "Circuit breaker tripped" in done.stdout
    assert {path.name for path in project.path.iterdir()} == {".git", ".switchgear"}


def test_the_demo_uses_the_presets_and_policies_of_the_configuration(project: Project) -> None:
    (project.path / "switchgear.yaml").write_text(
        "loops: {quick: {max_iterations: 2}}\n"
        "policies: {two: {detectors: [{consecutive_failures: {threshold: 2}}]}}\n"
        "circuits: [{match: 'loop/*', policy: two}]\n"
    )
    quick = project.json("run", "--agent", "demo:works", "--preset", "quick")
    assert (quick["exit_reason"], quick["iterations"]) == ("max_iterations", 2)
    two = project.json("run", "--agent", "demo:same-error", "--no-validate")
    assert (two["exit_reason"], two["iterations"]) == ("circuit_breaker", 2)
    assert two["stats"]["circuit_breaker"]["unique_errors"] is None, "nothing counts them"


# Signals

SLEEPER = """
write('pids', str(os.getpid()))
write('started', 'x')
time.sleep(300)
"""
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-S', '-c', 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)'], start_new_session=True)
write('pids', f'{os.getpid()} {child.pid}')
write('started', 'x')
time.sleep(300)
"""


def stopped(project: Project, agent: str, *signals: signal.Signals) -> tuple[Any, list[int]]:
    process = project.start("run", "wait", "--json", agent=agent)
    wait_for(project.path / "started")
    pids = [int(pid) for pid in (project.path / "pids").read_text().split()]
    for number in signals:
        process.send_signal(number)
        time.sleep(0.3)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert not [pid for pid in pids if is_running(pid)], "an orphan is left"
    return json.loads(out), pids


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_ends_the_iteration_gracefully_and_keeps_the_work(
    project: Project, number: signal.Signals
) -> None:
    result, _ = stopped(project, SLEEPER, number)
    assert result["exit_reason"] == "interrupted"
    assert result["checkpoint"]["files"] == ["pids", "started"]
    assert result["resume"].endswith(f"switchgear resume {result['run']}")
    assert result["stats"]["circuit_breaker"]["total_failures"] == 0
    kept = f"refs/switchgear/runs/{result['run']}:started"
    shown = subprocess.run(["git", "show", kept], cwd=project.path, capture_output=True, check=True)
    assert shown.stdout == b"x"


def test_two_signals_end_it_at_once_although_the_agent_ignores_them(project: Project) -> None:
    result, pids = stopped(project, STUBBORN, signal.SIGINT, signal.SIGINT)
    assert result["exit_reason"] == "interrupted"
    assert len(pids) == 2


def test_one_signal_ends_a_tree_that_ignores_it_after_the_grace_period(project: Project) -> None:
    result, _ = stopped(project, STUBBORN, signal.SIGINT)
    assert result["exit_reason"] == "interrupted"


def test_a_run_whose_process_was_killed_is_broken_off_and_can_be_resumed(project: Project) -> None:
    body = "if n == 2 and not os.path.exists('again'): write('started', 'x'); time.sleep(300)\n"
    process = project.start("run", "x", "--max-iterations", "3", agent=body + GOES_ON)
    wait_for(project.path / "started")
    assert project.json("runs")["runs"][0]["status"] == "running"
    [listed] = project("runs").stdout.splitlines()
    assert re.search(r"  running +since \d{4}-\d\d-\d\d \d\d:\d\d  1 iteration ended, ", listed)
    assert "took: running since" in project("runs", "show", "last").stdout
    busy = project("resume", "last")
    assert busy.returncode == 19
    assert f"is already running: run {runs(project)[0]['id']}, process {process.pid}" in busy.stderr
    process.kill()
    process.communicate(timeout=LIMIT_S)
    (project.path / "again").write_text("x")
    [row] = project.json("runs")["runs"]
    assert (row["status"], row["cost_micros"]) == ("broken off", None)
    assert "unknown cost" in project("runs").stdout
    assert "unknown cost" in project("runs", "show", "last", "--receipt").stdout
    result = project.json("resume", "last")
    assert (result["exit_reason"], result["iterations"]) == ("max_iterations", 3)


def test_closing_the_pipe_of_a_reader_does_not_stop_the_run(project: Project) -> None:
    process = project.start("run", "x", agent="time.sleep(0.3); write('a', 'b')")
    assert process.stdout is not None
    process.stdout.close()
    process.wait(timeout=LIMIT_S)
    assert (project.path / "a").read_text() == "b"
    assert project.json("runs")["runs"][0]["status"] == "completed"
    assert process.stderr is not None
    process.stderr.close()


def runs(project: Project) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = project.json("runs")["runs"]
    return listed


def test_a_second_run_of_the_same_task_reports_the_conflict(project: Project) -> None:
    waits = "write('started', 'x'); time.sleep(300)"
    process = project.start("run", "x", agent=waits)
    wait_for(project.path / "started")
    second = project("run", "x", agent=waits)
    assert second.returncode == 19
    assert f"process {process.pid}" in second.stderr
    assert f"run {runs(project)[0]['id']}" in second.stderr
    assert f"kill {process.pid}" in second.stderr
    data = project.json("run", "x", agent=waits)
    assert (data["exit_reason"], data["exit_code"], data["run"]) == ("conflict", 19, None)
    assert len(data["choices"]) == 3
    assert len(runs(project)) == 1
    other = project("run", "y", agent="write('b', 'c')")  # another task is no conflict
    assert other.returncode == 0, other.stderr
    process.kill()
    process.communicate(timeout=LIMIT_S)
    assert project("run", "x", agent="write('a', 'b')").returncode == 0


def test_one_of_two_concurrent_resumes_continues(project: Project) -> None:
    first = project.json("run", "x", "--max-iterations", "1", agent=GOES_ON)
    assert first["exit_reason"] == "max_iterations"
    both = [project.start("resume", "last", "--max-iterations", "2") for _ in "12"]
    codes = sorted(each.wait(timeout=LIMIT_S) for each in both)
    for each in both:
        each.communicate()
    assert codes in ([13, 19], [13, 13])
    assert runs(project)[0]["iterations"] == 2, "an iteration was done twice"


def test_a_plan_that_is_a_pipe_is_refused_at_once(project: Project) -> None:
    os.mkfifo(project.path / "plan.md")
    done = project("run", "x", "--plan", "plan.md", agent="write('a', 'b')")
    assert done.returncode == 2
    assert "--plan 'plan.md': is not a regular file" in done.stderr
    assert runs(project) == []


@pytest.mark.parametrize("plan", ["/dev/zero", "."])
def test_a_plan_that_is_not_a_file_is_refused(project: Project, plan: str) -> None:
    done = project("run", "x", "--plan", plan, agent="write('a', 'b')")
    assert done.returncode == 2
    assert "it must be a text file with a checklist" in done.stderr


def test_a_plan_that_the_agent_replaces_by_a_pipe_does_not_hang_the_run(project: Project) -> None:
    (project.path / "plan.md").write_text("- [ ] do it\n")
    swaps = (
        "write('n', str(n))\n"
        "if n == 1: os.remove('plan.md'); os.mkfifo('plan.md')\n"
        "tell(type='result', text='more', success=None)"
    )
    data = project.json("run", "x", "--plan", "plan.md", "--max-iterations", "2", agent=swaps)
    assert (data["exit_reason"], data["iterations"]) == ("max_iterations", 2)
