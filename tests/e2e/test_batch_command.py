"""`switchgear batch` with real processes, signals and worktrees."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import quick_command
import stand_in
from repositories import make_repository
from switchgear import Panel
from switchgear._fleet.run_notes import run_note
from switchgear._run.batch.scheduler import Scheduler
from switchgear._run.record import RunFolder
from switchgear._stores.url import default_file
from timeouts import LIMIT_S, end

COMMAND = (sys.executable, "-m", "switchgear", "batch")
AGENT = """
here = pathlib.Path(__file__).parent
log = here / "log"
def spend(dollars): tell(type="usage", model="m", input_tokens=1, output_tokens=1, cost_usd=dollars)
def times(name):
    with (here / name).open("a") as file: file.write("x")
    return len((here / name).read_text())
def until(path, seconds=300):
    end = time.monotonic() + seconds
    while not pathlib.Path(path).exists():
        if time.monotonic() > end: fail(f"no {path}")
        time.sleep(0.02)
name = sys.argv[1]
with log.open("a") as file: file.write(name + "\\n")
"""
DONE = "write(name); done()"
SPAWN = """
circuits:
  - match: op/agent_spawn
    policy:
      detectors: [{failures_in_window: {threshold: 1, window_s: 60}}]
      recovery: {cooldown: {base_s: 1, max_s: 1, lease_s: 60}}
"""


class Project:
    """A repository with stand-in agents beside it, one for each task."""

    def __init__(self, path: Path) -> None:
        self.beside = path
        self.path = path / "project"
        self.path.mkdir()
        self.started: list[subprocess.Popen[str]] = []
        self.env = {
            "PATH": os.environ["PATH"],
            "SWITCHGEAR_TRUST": "1",
            "HOME": str(path),
            "XDG_STATE_HOME": str(path / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        (self.path / "README").write_text("a project\n")
        make_repository(self.path, has_identity=True)
        self.git("add", ".")
        self.git("commit", "-qm", "start")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.path, check=True, capture_output=True)
        return done.stdout.decode()

    def tasks(self, whole: str = "", **bodies: str) -> None:
        """Write tasks.yaml: a task of each name, with `keys | body` for its agent."""
        lines = [whole, "defaults: {stuck: false}" if "defaults" not in whole else "", "tasks:"]
        for name, text in bodies.items():
            keys, _, body = text.rpartition("|")
            script = self.beside / f"{name}.py"
            script.write_text(stand_in.script(AGENT + body.strip()))
            command = f"{sys.executable} -S {script} {name}"
            lines.append(f"  - {{name: {name}, task: do {name}, agent_cmd: '{command}', {keys}}}")
        (self.path / "tasks.yaml").write_text("\n".join(lines) + "\n")

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, "tasks.yaml", *words],
            cwd=self.path,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return quick_command.run("batch", "tasks.yaml", *words, cwd=self.path, env=self.env)

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    @property
    def log(self) -> list[str]:
        file = self.beside / "log"
        return file.read_text().split() if file.exists() else []

    def wait_for(self, name: str) -> None:
        end_s = time.monotonic() + LIMIT_S
        while not (self.beside / name).exists():
            assert time.monotonic() < end_s, f"{name} was not written in time"
            time.sleep(0.02)


def statuses(result: Any) -> dict[str, str]:
    return {task["name"]: task["status"] for task in result["tasks"]}


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    for process in made.started:
        end(process)


def test_tasks_run_in_order_and_end_in_a_table(project: Project) -> None:
    project.tasks(b=f"needs: [a] | until('a', 1); {DONE}", a=DONE, c=f"needs: b | {DONE}")
    done = project()
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.log == ["a", "b", "c"]
    assert "[b] the timeout is 180 s (adaptive: 120 + 0 x 30 + 0 x 0.1 + 1 x 60 s)" in done.stdout
    head, b, a, c, end = done.stdout.splitlines()[-5:]
    assert head.split() == ["TASK", "END", "ITERATIONS", "TIME", "SPEND", "CHECKPOINT"]
    assert [line.split()[:3] for line in (b, a, c)] == [[n, "done", "1"] for n in "bac"]
    assert "git diff" in a
    assert end.endswith("done: 3 of 3 tasks done, unknown cost")


def test_a_failed_task_blocks_the_tasks_that_need_it(project: Project) -> None:
    bad = "fail('Error: boom')"
    project.tasks(a=f"max_iterations: 1 | {bad}", b=f"needs: [a] | {DONE}", c=DONE)
    result = project.json()
    assert (result["end"], result["exit_code"]) == ("incomplete", 21)
    assert statuses(result) == {"a": "failed", "b": "blocked", "c": "done"}
    assert result["tasks"][1]["blocked_by"] == "a"
    assert project.log == ["a", "c"]
    assert result["resume"].endswith(f"--resume {result['batch']}")


def test_parallel_tasks_have_worktrees_and_a_task_that_needs_both_gets_both(
    project: Project,
) -> None:
    meet = "(here / f'here-{name}').touch(); until(here / f'here-{other}')"
    told = "(here / 'told').write_text(os.getcwd() + ' ' + os.environ['SWITCHGEAR_STORE'])"
    project.tasks(
        "parallel: 2\ndefaults: {worktree: true, stuck: false}",
        a=f"other = 'b'; {meet}; {DONE}",
        b=f"other = 'a'; {meet}; {DONE}",
        c=f"needs: [a, b] | until('a', 1); until('b', 1); {told}; {DONE}",
    )
    done = project()
    assert done.returncode == 0, done.stdout + done.stderr
    batch = next(project.path.glob(".switchgear/batches/*")).name
    assert f"  git merge switchgear/{batch}/c" in done.stdout
    assert not (project.path / "a").exists()
    tree, store = (project.beside / "told").read_text().split()
    assert tree == str(project.beside / "project-trees" / batch / "c")
    assert store == f"sqlite:///{project.path}/.switchgear/state.db"
    project.git("merge", "-q", f"switchgear/{batch}/c")
    assert {"a", "b", "c"} <= {path.name for path in project.path.iterdir()}


def test_parallel_tasks_in_one_tree_are_refused(project: Project) -> None:
    project.tasks(a=DONE, b=DONE)
    done = project("--parallel", "2")
    assert done.returncode == 2
    assert "tasks 'a' and 'b' could run at the same time in" in done.stderr
    assert project.log == []


def test_a_merge_conflict_fails_only_its_task(project: Project) -> None:
    project.tasks(
        "parallel: 2\ndefaults: {worktree: true, stuck: false}",
        a="write('same', 'a'); done()",
        b="write('same', 'b'); done()",
        c=f"needs: [a, b] | {DONE}",
    )
    result = project.json()
    assert statuses(result) == {"a": "done", "b": "done", "c": "failed"}
    assert "cannot be merged" in result["tasks"][2]["reason"]


SLOW = "k = times('tries'); write(name, str(k)); (time.sleep(60) if k == 1 else done())"


@pytest.mark.parametrize(
    ("policy", "ends", "attempts", "iterations"),
    [
        ("resume", ("done", "done"), 2, 2),
        ("accept", ("partial", "partial"), 1, 1),
        ("retry", ("done", "done"), 2, 1),
        ("skip", ("incomplete", "skipped"), 1, 1),
    ],
)
def test_each_timeout_policy_keeps_the_partial_work(
    project: Project, policy: str, ends: tuple[str, str], attempts: int, iterations: int
) -> None:
    project.tasks(a=f"timeout: 6s, on_timeout: {policy}, more_time: 30s | {SLOW}")
    result = project.json()
    [task] = result["tasks"]
    assert (result["end"], task["status"]) == ends
    assert (task["attempts"], task["iterations"]) == (attempts, iterations)
    assert task["checkpoint"].startswith("git diff")
    assert (project.path / "a").exists()
    assert len(task["runs"]) == (1 if policy == "retry" else 0)


def test_a_retry_starts_in_a_new_worktree(project: Project) -> None:
    body = "left = pathlib.Path('half').exists(); write('half', str(left)); time.sleep(60 if times('tries') == 1 else 0); done()"
    project.tasks(a=f"worktree: true, timeout: 6s, on_timeout: retry | {body}")
    [task] = project.json()["tasks"]
    assert (task["status"], task["attempts"]) == ("done", 2)
    assert project.git("show", f"{task['branch']}:half") == "False"


def test_a_task_without_a_folder_fails_alone(project: Project) -> None:
    elsewhere = project.beside / "plain"
    elsewhere.mkdir()
    project.tasks(a=f"worktree: true, cwd: {elsewhere} | {DONE}", b=DONE)
    result = project.json()
    assert statuses(result) == {"a": "failed", "b": "done"}
    assert result["tasks"][0]["reason"].endswith("is not a git repository, so it has no worktrees")


def test_the_policy_on_the_command_line_overrides_that_of_the_file(project: Project) -> None:
    project.tasks(a=f"timeout: 6s, on_timeout: resume | {SLOW}")
    assert statuses(project.json("--when-alone", "timeout=accept")) == {"a": "partial"}
    assert project("--when-alone", "timeout=cry").returncode == 2


@pytest.mark.parametrize(
    ("on_open", "code", "b"),
    [
        ("wait", 21, "done"),
        ("force", 21, "done"),
        ("skip", 21, "skipped"),
        ("abort", 22, "waiting"),
    ],
)
def test_an_open_spawn_circuit_is_handled_by_the_configured_policy(
    project: Project, on_open: str, code: int, b: str
) -> None:
    (project.path / "switchgear.yaml").write_text(SPAWN)
    project.tasks(f"on_open: {on_open}", a="max_iterations: 1 | fail('Error: x')", b=DONE)
    done = project("--json")
    result = json.loads(done.stdout)
    assert (done.returncode, statuses(result)["b"]) == (code, b)
    assert (
        "CIRCUIT BREAKER TRIPPED\n\nOperation: agent_spawn\nFailures: 1 in last 60" in done.stderr
    )
    assert ("Circuit CLOSED. Resuming normal operations." in done.stderr) == (on_open == "wait")
    if on_open != "wait":  # on a busy machine the second may be over before the next task asks
        assert "s for op/agent_spawn" not in done.stderr


def test_a_stuck_task_escalates_and_is_skipped(project: Project) -> None:
    loops = "[tell(type='tool', name='bash', arguments=str(i), ok=False, error='no such host') for i in range(9)]; time.sleep(30)"
    project.tasks("defaults: {stuck: true}", a=f"timeout: 60s | {loops}", b=DONE)
    (project.path / "switchgear.yaml").write_text("interventions: {when_alone: [nudge]}\n")
    result = project.json()
    assert statuses(result) == {"a": "skipped", "b": "done"}
    assert "tried nudge, skip" in result["tasks"][0]["reason"]


def test_parallel_tasks_do_not_overspend_the_budget(project: Project) -> None:
    spends = "spend(0.2); write(name, str(n)); tell(type='result', text='more', success=None)"
    whole = "budget: 1\nparallel: 2\ndefaults: {worktree: true, stuck: false}"
    project.tasks(whole, a=spends, b=spends)
    result = project.json()
    assert [task["exit_reason"] for task in result["tasks"]] == ["budget", "budget"]
    assert [task["spent_micros"] for task in result["tasks"]] == [400_000, 400_000]


def test_a_budget_for_a_cost_that_cannot_be_known_is_refused_before_the_start(
    project: Project,
) -> None:
    (project.path / "tasks.yaml").write_text(
        "budget: 1\ntasks:\n  - {name: a, task: x, agent_cmd: 'true'}\n"
    )
    run = partial(quick_command.run, "batch", "tasks.yaml", cwd=project.path, env=project.env)
    refused = run()
    assert refused.returncode == 2
    assert "task 'a': its budget cannot be enforced" in refused.stderr
    assert "allow_unknown_price: true" in refused.stderr
    (project.path / "tasks.yaml").write_text(
        "tasks:\n  - {name: a, task: x, agent_cmd: 'true', max_iterations: 1, budget: 1,"
        " allow_unknown_price: true}\n"
    )
    assert run().returncode == 21


def test_batches_at_once_cannot_overspend_a_node(project: Project) -> None:
    command = [sys.executable, "-m", "switchgear", "budgets"]
    run = partial(subprocess.run, cwd=project.path, env=project.env, check=True)
    run([*command, "set", "atlas", "0.8"])
    spends = "spend(0.4); until(here / 'both'); write(name + str(os.getppid())); done()"
    project.tasks(
        "defaults: {stuck: false, worktree: true, budget_node: atlas, budget: 0.4}",
        a=spends,
        b=spends,
    )
    batches = [project.start("--json") for _ in range(3)]
    project.wait_for("log")
    while len(project.log) < 2:  # there is no room for a third
        time.sleep(0.02)
    (project.beside / "both").touch()
    results = [json.loads(each.communicate(timeout=LIMIT_S)[0]) for each in batches]
    tasks = [task for result in results for task in result["tasks"]]
    shown = run([*command, "show", "atlas", "--json"], capture_output=True)
    [node] = json.loads(shown.stdout)["nodes"]
    spent = sum(task["spent_micros"] for task in tasks)
    assert spent == node["spent_micros"] == 800_000
    assert node["held_micros"] == 0
    assert len(project.log) == 2
    assert sorted(task["exit_reason"] for task in tasks) == ["budget"] * 4 + ["completed"] * 2
    run([*command, "audit"])


def test_a_killed_batch_is_resumed_without_repeating_finished_tasks(project: Project) -> None:
    hangs = "write(name, str(n)); (here / 'pid').write_text(str(os.getpid())); (here / 'up').touch(); time.sleep(60)"
    body = f"if times('tries') == 1: {hangs}\nelse: write(name, 'again'); done()"
    project.tasks(a=DONE, b=f"needs: [a] | {body}", c=f"needs: [b] | {DONE}")
    process = project.start()
    project.wait_for("up")
    process.kill()
    process.communicate(timeout=LIMIT_S)
    agent = int((project.beside / "pid").read_text())
    end_s = time.monotonic() + LIMIT_S
    while is_running(agent):
        assert time.monotonic() < end_s, "the agent lives on"
        time.sleep(0.05)
    file = project.path / "tasks.yaml"
    file.write_text(file.read_text().replace("task: do c", "task: do more of c"))
    extra = "  - {name: d, task: x, agent_cmd: 'false', max_iterations: 1}\n"
    file.write_text(file.read_text() + extra)
    result = project.json("--resume")
    assert statuses(result) == {"a": "done", "b": "done", "c": "done", "d": "failed"}
    assert project.log == ["a", "b", "b", "c"]
    assert result["notes"] == ["c was changed in the file", "d is new in the file"]
    [b] = [task for task in result["tasks"] if task["name"] == "b"]
    assert (b["attempts"], b["runs"]) == (2, [])
    again = project.json("--resume", result["batch"])
    assert project.log == ["a", "b", "b", "c"]
    assert again["end"] == "incomplete"


def test_a_failed_task_is_resumed_on_request(project: Project) -> None:
    flaky = "fail('Error: x') if times('tries') == 1 else (write(name), done())"
    project.tasks(a=f"max_iterations: 1 | {flaky}", b=f"needs: [a] | {DONE}")
    assert project.json()["end"] == "incomplete"
    file = project.path / "tasks.yaml"
    file.write_text(file.read_text().replace("max_iterations: 1", "max_iterations: 3"))
    result = project.json("--resume", "--retry-failed")
    assert result["end"] == "done"
    assert result["notes"] == ["a was changed in the file"]


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_it_keeps_the_work_and_leaves_nothing_running(
    project: Project, times: int
) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " if times == 2 else ""
    body = f"{deaf}write(name); (here / 'pid').write_text(str(os.getpid())); (here / 'up').touch(); time.sleep(60)"
    project.tasks(a=body, b=DONE)
    process = project.start("--json")
    project.wait_for("up")
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    out, _ = process.communicate(timeout=LIMIT_S)
    result = json.loads(out)
    assert (process.returncode, result["end"]) == (130, "interrupted")
    assert statuses(result) == {"a": "interrupted", "b": "waiting"}
    assert result["tasks"][0]["checkpoint"].startswith("git diff")
    assert not is_running(int((project.beside / "pid").read_text()))


def test_ctrl_c_twice_leaves_none_of_several_running(project: Project) -> None:
    body = "(here / f'pid-{name}').write_text(str(os.getpid())); (here / f'up-{name}').touch(); time.sleep(60)"
    whole = "parallel: 2\ndefaults: {worktree: true, stuck: false}"
    project.tasks(whole, a=body, b=body)
    process = project.start("--json")
    for name in "ab":
        project.wait_for(f"up-{name}")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert statuses(json.loads(out)) == {"a": "interrupted", "b": "interrupted"}
    for name in "ab":
        assert not is_running(int((project.beside / f"pid-{name}").read_text()))


BAD = [
    ("tasks:\n  - {name: a, task: x, agent: codx}\n", "tasks.yaml:2: tasks[0].agent: there is no agent"),
    ("tasks:\n  - {name: a, task: x, agent: demo, needs: [a]}\n", "the tasks need each other in a cycle"),
    ("", "tasks.yaml: is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_file_that_cannot_be_used_starts_nothing(
    project: Project, text: str, message: str
) -> None:
    (project.path / "tasks.yaml").write_text(text)
    done = project()
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project.path / ".switchgear" / "batches").exists()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("", "--budget-node: node is '': it must be a text that is not empty"),
        ("nope", "budget 'nope' is not open"),
    ],
)
def test_a_node_that_cannot_be_used_starts_nothing(
    project: Project, node: str, message: str
) -> None:
    project.tasks(a=DONE)
    done = project("--budget-node", node)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (project.path / ".switchgear" / "batches").exists()


def test_nothing_to_resume_is_reported(project: Project) -> None:
    project.tasks(a=DONE)
    for words in (["--resume"], ["--resume", "nope"]):
        done = project(*words)
        assert done.returncode == 2
        assert "batch '" in done.stderr


def test_the_demo_agent_works_in_its_own_repository(project: Project) -> None:
    text = "tasks:\n  - {name: shapes, task: Implement all, agent: 'demo:works', timeout: 2m}\n"
    (project.path / "tasks.yaml").write_text(text)
    assert project.json()["end"] == "done"
    assert project.git("status", "--porcelain").split() == ["??", "tasks.yaml"]


def test_a_run_that_was_completed_by_hand_is_done(project: Project) -> None:
    asks = "(write(name), done()) if 'use tabs' in prompt else tell(type='question', text='tabs?')"
    project.tasks(a=asks, b=f"needs: [a] | {DONE}")
    first = project.json()
    assert first["tasks"][0]["exit_reason"] == "blocked"
    words = ["resume", first["tasks"][0]["run"], "--answer", "use tabs"]
    by_hand = quick_command.run(*words, cwd=project.path, env=project.env)
    assert by_hand.returncode == 0, by_hand.stdout
    assert statuses(project.json("--resume")) == {"a": "done", "b": "done"}
    assert project.log == ["a", "a", "b"]


def test_the_cost_of_a_killed_attempt_is_kept(project: Project) -> None:
    hangs = "(here / 'up').touch(); time.sleep(60)"
    goes_on = "tell(type='result', text='more', success=None)"
    body = f"spend(0.3); write(name, str(n))\nif n == 2 and times('tries') == 1: {hangs}\n{goes_on}"
    project.tasks("budget: 0.7", a=body)
    process = project.start()
    project.wait_for("up")
    process.kill()
    process.communicate(timeout=LIMIT_S)
    [task] = project.json("--resume")["tasks"]
    assert (task["exit_reason"], task["attempts"]) == ("budget", 2)
    assert task["spent_micros"] == 600_000


def test_the_example_of_the_page_works(project: Project) -> None:
    page = (Path(__file__).parents[2] / "docs" / "batch.md").read_text()
    example = page.partition("```yaml\n")[2].partition("```")[0]
    (project.path / "tasks.yaml").write_text(example)
    done = project()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[parser] the timeout is 225 s (adaptive: 120 + 3 x 30 + 150 x 0.1" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("done: 2 of 2 tasks done, $0.096")


def test_one_of_two_concurrent_resumes_of_a_batch_continues(project: Project) -> None:
    hangs = "if times('tries') == 1: (here / 'up').touch(); time.sleep(60)\nelse: time.sleep(1); write(name, 'x'); done()"
    project.tasks(a=hangs, b=f"needs: [a] | {DONE}")
    first = project.start()
    project.wait_for("up")
    busy = project("--resume")
    assert busy.returncode == 19
    assert f"is already running: batch {batch_id(project)}, process {first.pid}" in busy.stderr
    assert project.log == ["a"]
    first.kill()
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # a zombie is not alive
    both = [project.start("--resume", "--json") for _ in range(2)]
    results = [(each.communicate(timeout=LIMIT_S), each.returncode) for each in both]
    first.communicate()
    assert sorted(code for _, code in results) in ([0, 19], [0, 0]), results
    assert project.log == ["a", "a", "b"], "a task was run twice"


def batch_id(project: Project) -> str:
    return next(project.path.glob(".switchgear/batches/*")).name


def test_a_batch_that_runs_a_task_which_is_running_elsewhere_reports_the_conflict(
    project: Project,
) -> None:
    waits = "(here / 'up').touch(); until(here / 'go'); write(name, 'x'); done()"
    project.tasks(a=waits)
    first = project.start("--json")
    project.wait_for("up")
    result = project.json()
    assert statuses(result) == {"a": "failed"}
    assert f"is already running: run {project_run(project)}" in result["tasks"][0]["reason"]
    (project.beside / "go").touch()
    assert statuses(json.loads(first.communicate(timeout=LIMIT_S)[0])) == {"a": "done"}
    assert project.log == ["a"]


def project_run(project: Project) -> str:
    files = sorted(project.path.glob(".switchgear/runs/*/run.json"))
    return files[0].parent.name


def test_names_that_are_not_valid_branch_names_get_branches(project: Project) -> None:
    names = {"v1..v2": DONE, "x.lock": DONE, "Case": DONE, "case": DONE}
    project.tasks("parallel: 4\ndefaults: {worktree: true, stuck: false}", **names)
    result = project.json()
    assert set(statuses(result).values()) == {"done"}, result
    branches = [task["branch"] for task in result["tasks"]]
    assert len({branch.casefold() for branch in branches}) == 4
    for branch in branches:
        project.git("rev-parse", "--verify", "--quiet", branch)


@pytest.mark.parametrize("name", ["a b", "-a", "a~1", "a/b", "a:b", "", "x" * 61, "a\tb"])
def test_an_invalid_name_of_a_task_is_reported_with_its_line(project: Project, name: str) -> None:
    text = f"tasks:\n  - {{name: {json.dumps(name)}, task: x, agent: demo}}\n"
    (project.path / "tasks.yaml").write_text(text)
    done = project()
    assert done.returncode == 2
    assert "tasks.yaml:2: tasks[0].name" in done.stderr, done.stderr


def test_a_plan_that_is_a_pipe_is_refused_before_anything_is_started(project: Project) -> None:
    os.mkfifo(project.path / "plan.md")
    project.tasks(a=f"plan: plan.md | {DONE}")
    done = project()
    assert done.returncode == 2
    assert "task 'a': --plan 'plan.md': is not a regular file" in done.stderr
    assert project.log == []


def test_a_repository_without_a_commit_inside_a_worktree_does_not_lose_the_rest(
    project: Project,
) -> None:
    nests = "subprocess.run(['git', 'init', '-q', 'nested'], check=True); write('nested/f')"
    project.tasks(
        "defaults: {worktree: true, stuck: false}",
        a=f"{nests}; {DONE}",
        b=f"needs: [a] | until('a', 1); {DONE}",
    )
    done = project()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not everything was committed to" in done.stdout


@pytest.mark.parametrize("leaves", ["checkout -q -b own", "checkout -q --detach", "branch -m own"])
def test_work_reaches_its_branch_although_the_agent_leaves_it(
    project: Project, leaves: str
) -> None:
    agent = f"subprocess.run({['git', *leaves.split()]}, check=True); {DONE}"
    project.tasks(
        "defaults: {worktree: true, stuck: false}",
        a=f"|{agent}",
        b=f"needs: [a] | until('a', 1); {DONE}",
    )
    result = project.json()
    assert statuses(result) == {"a": "done", "b": "done"}
    assert project.git("show", f"{result['tasks'][0]['branch']}:a") == "x"


def test_work_on_a_separate_history_is_reported_as_missing_in_its_branch(
    project: Project,
) -> None:
    words = ["git", "checkout", "-q", "--orphan", "own"]
    project.tasks(
        "defaults: {worktree: true, stuck: false}",
        a=f"|subprocess.run({words}, check=True); {DONE}",
    )
    done = project()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/a does not have the work: the agent committed it elsewhere" in done.stdout


def hang_once(project: Project, words: str) -> Path:
    """A git that hangs the first time it gets these arguments; returns the file with its process id."""
    commands, real, pid = project.beside / "bin", shutil.which("git"), project.beside / "pid"
    commands.mkdir()
    hangs = f'mkdir "{project.beside}/once" 2>/dev/null && echo $$ > "{pid}~" && mv "{pid}~" "{pid}" && exec sleep 600'
    (commands / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *"{words}"*) {hangs};; esac\nexec {real} "$@"\n'
    )
    (commands / "git").chmod(0o755)
    project.env["PATH"] = f"{commands}:{project.env['PATH']}"
    return pid


@pytest.mark.parametrize("signals", [(signal.SIGKILL,), (signal.SIGTERM, signal.SIGINT)])
def test_work_reaches_its_branch_although_the_batch_ends_before_it_is_committed_there(
    project: Project, signals: tuple[signal.Signals, ...]
) -> None:
    pid = hang_once(project, "add --all")
    project.tasks(
        "defaults: {worktree: true, stuck: false}",
        a=f"|{DONE}",
        b=f"needs: [a] | until('a', 0); {DONE}",
    )
    process = project.start()
    project.wait_for("pid")
    for number in signals:
        process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    if signals[0] == signal.SIGKILL:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    else:
        assert process.returncode == 130, out + err
        assert "the work could not be committed to" in out
    done = project("--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.log == ["a", "b"], "no task runs twice"


def test_signals_end_the_creation_of_a_worktree_and_the_batch_can_be_resumed(
    project: Project,
) -> None:
    hang_once(project, "reset --quiet --hard")
    project.tasks("defaults: {worktree: true, stuck: false}", a=DONE)
    process = project.start("--json")
    project.wait_for("pid")
    for number in (signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert statuses(json.loads(out)) == {"a": "waiting"}
    assert project("--resume").returncode == 0
    assert project.log == ["a"]


def test_changes_in_a_repository_inside_a_worktree_are_reported_as_missing_in_its_branch(
    project: Project,
) -> None:
    made = project.beside / "library"
    script = "git init -q .; echo x > f; git add f; git -c user.name=a -c user.email=a@localhost commit -qm x"
    made.mkdir()
    subprocess.run(script, shell=True, cwd=made, check=True)
    allowed = ("-c", "protocol.file.allow=always")
    project.git(*allowed, "submodule", "add", "-q", str(made), "library")
    project.git("commit", "-qm", "with a submodule")
    update = (
        f"subprocess.run({['git', *allowed, 'submodule', 'update', '--init', '-q']}, check=True)"
    )
    nests = f"os.mkdir('nested'); subprocess.run({script!r}, shell=True, cwd='nested', check=True)"
    project.tasks(
        "defaults: {worktree: true, stuck: false}",
        a=f"|{update}; {DONE}",
        b=f"|{update}; write('library/new'); {DONE}",
        c=f"|{nests}; {DONE}",
    )
    done = project()
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"\[(\w)\] (\S+) does not contain the changes in .*\((\w+)\)", done.stdout)
    assert [(task, branch[-1], inside) for task, branch, inside in found] == [
        ("b", "b", "library"),
        ("c", "c", "nested"),
    ]
    assert project.git("show", f"{found[0][1]}:b") == "x"


def test_a_batch_notifies_the_owners_of_its_agents(project: Project) -> None:
    taken, agent = project.beside / "taken.jsonl", Path(sys.executable).name
    (project.path / "switchgear.yaml").write_text(
        f"agents: {{{agent}: {{owner: ana, provider: p, model: m}}}}\n"
    )
    project.tasks(a="|" + DONE)
    result = project.json("--notify", f"command:tee {taken}")
    assert json.loads(taken.read_text())["owners"] == ["ana"]
    runs = project.path / ".switchgear" / "runs"
    circuit = RunFolder(runs / result["tasks"][0]["run"]).read()["circuit"]
    with Panel(f"sqlite:///{default_file(str(project.path))}") as panel:
        assert run_note(panel, circuit).owner == "ana"


def test_a_batch_notifies_its_targets_at_its_end(project: Project) -> None:
    project.tasks(a="|" + DONE, b="needs: [a] |fail('no such table')")
    taken = project.beside / "taken.jsonl"
    result = project.json("--notify", f"command:tee {taken}", "--notify", "command:no-such-program")
    data = json.loads(taken.read_text())
    assert (data["kind"], data["severity"]) == ("batch_ended", "SEV3")
    assert data["circuit"] == f"batch/{result['batch']}"
    assert data["owners"]
    assert "incomplete: 1 of 2 tasks done" in data["text"]
    assert f"--resume {result['batch']}" in data["text"]
    assert data["result"]["tasks"][1]["status"] == "failed"
    sent, lost = result["notifications"]
    assert sent["sent"]
    assert not lost["sent"]
    assert "no-such-program" in lost["why"]


def test_configured_targets_are_notified_of_the_end_of_a_batch(project: Project) -> None:
    project.tasks(a="|" + DONE)
    taken, other = project.beside / "taken.jsonl", project.beside / "other.jsonl"
    (project.path / "switchgear.yaml").write_text(
        f"notifications:\n  - command: {{run: 'tee {taken}', match: 'batch/*'}}\n"
        f"  - command: {{run: 'tee {other}', match: 'provider/*'}}\n"
    )
    assert project().returncode == 0
    assert json.loads(taken.read_text())["severity"] == "INFO"
    assert not other.exists()


def test_an_invalid_target_ends_a_batch_before_anything_starts(project: Project) -> None:
    project.tasks(a="|" + DONE)
    done = project("--notify", "pigeon")
    assert done.returncode == 2
    assert "--notify: target is 'pigeon'" in done.stderr
    assert not (project.beside / "log").exists()


DEFECT = f"""
import runpy, sys
from {Scheduler.__module__} import Scheduler
usual = Scheduler.{{where}}
def broken(*args, **kw):
    usual(*args, **kw)
    raise RuntimeError("oh no")
Scheduler.{{where}} = broken
sys.argv = ["switchgear", "batch", "tasks.yaml"]
runpy.run_module("switchgear", run_name="__main__")
"""


def with_defect(project: Project, where: str) -> subprocess.CompletedProcess[str]:
    """The batch with a defect of Switchgear right after one of its steps."""
    script = project.beside / "defect.py"
    script.write_text(DEFECT.format(where=where))
    words = [sys.executable, str(script)]
    return subprocess.run(
        words,
        cwd=project.path,
        env=project.env,
        capture_output=True,
        check=False,
        text=True,
        timeout=LIMIT_S,
    )


def test_a_defect_of_switchgear_after_a_task_has_run_is_exit_code_1_and_the_batch_continues(
    project: Project,
) -> None:
    project.tasks(a=DONE, b=f"needs: [a] | {DONE}")
    done = with_defect(project, "_settle")
    assert done.returncode == 1, "2 would mean that nothing was started"
    assert "this is a defect of Switchgear (RuntimeError: oh no)" in done.stderr
    assert "Traceback" not in done.stderr
    assert project.log == ["a"]
    goes_on = next(line for line in done.stderr.splitlines() if "Continue: " in line)
    batch = goes_on.partition(" --resume ")[2]
    assert project("--resume", batch).returncode == 0
    assert project.log == ["a", "b"], "what was done is not done again"


def test_a_defect_of_switchgear_before_any_task_is_exit_code_2(project: Project) -> None:
    project.tasks(a=DONE)
    done = with_defect(project, "_block")
    assert done.returncode == 2
    assert "this is a defect of Switchgear (RuntimeError: oh no)" in done.stderr
    assert project.log == []
