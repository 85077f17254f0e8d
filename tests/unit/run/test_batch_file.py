"""A file of tasks: how it is parsed, and errors with their line."""

from pathlib import Path

import pytest

from switchgear._config.problems import ConfigError
from switchgear._run.batch.file import read_batch
from switchgear._run.batch.model import Task
from switchgear._stuck.timeouts import Estimate

TASK = "tasks:\n  - {name: a, task: do it, agent: codex"


def read(path: Path, text: str, name: str = "tasks.yaml") -> tuple[Task, ...]:
    file = path / name
    file.write_text(text)
    return read_batch(file).tasks


def wrong(path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(path, text)
    return str(caught.value).replace(str(path / "tasks.yaml"), "tasks.yaml")


def test_a_task_has_its_needs_its_size_and_its_agent(tmp_path: Path) -> None:
    text = """
defaults: {agent: codex, validate: true, budget: 2.50, attempts: 2, on_timeout: accept}
budget: 10
parallel: 3
on_open: skip
tasks:
  - name: auth
    task: Add auth middleware
    needs: [base]
    files: 3
    loc: 150
    complex: true
  - name: base
    task: Lay the base
    agent_cmd: my-agent {prompt}
    validate: make test
    timeout: 1h30m
    idle_timeout: 5m
    budget: $0.25
    worktree: true
    more_time: 10m
    stuck: false
"""
    (tmp_path / "tasks.yaml").write_text(text)
    batch = read_batch(tmp_path / "tasks.yaml")
    auth, base = batch.tasks
    assert (batch.parallel, batch.budget_micros, batch.on_open) == (3, 10_000_000, "skip")
    assert auth.estimate == Estimate(3, 150, 1, complex=True)
    assert auth.timeout == "auto"
    assert auth.flags == {"agent": "codex", "validate": "auto", "budget_micros": 2_500_000}
    assert (auth.attempts, auth.on_timeout, auth.worktree) == (2, "accept", False)
    assert base.flags == {
        "agent_cmd": "my-agent {prompt}",
        "validate": "make test",
        "idle_timeout_s": 300.0,
        "budget_micros": 250_000,
        "stuck": False,
    }
    assert (base.timeout, base.more_time_s, base.worktree) == (5400.0, 600.0, True)


def test_a_timeout_of_0_is_no_limit_and_a_policy_can_be_named(tmp_path: Path) -> None:
    assert read(tmp_path, f"{TASK}, timeout: 0}}")[0].timeout is None
    assert read(tmp_path, f"{TASK}, timeout: learned}}")[0].timeout == "learned"
    assert read(tmp_path, f"{TASK}, timeout: 90}}")[0].timeout == 90.0


def test_toml_is_read_as_well(tmp_path: Path) -> None:
    text = '[[tasks]]\nname = "a"\ntask = "do it"\nagent = "codex"\n'
    assert [task.name for task in read(tmp_path, text, "tasks.toml")] == ["a"]


def test_a_changed_task_is_detected_and_reordered_keys_are_not_a_change(
    tmp_path: Path,
) -> None:
    one = read(tmp_path, f"{TASK}, validate: true, stuck: true}}")[0]
    other = read(tmp_path, f"{TASK}, stuck: true, validate: true}}")[0]
    changed = read(tmp_path, f"{TASK}, stuck: true, validate: false}}")[0]
    assert one.digest == other.digest != changed.digest


PROBLEMS = [
    ("", "tasks.yaml: is empty: it must have the key 'tasks'"),
    ("tasks: []", "tasks.yaml:1: tasks: there are no tasks"),
    ("parallel: 2", "there are no tasks"),
    ("tasks: 5", "tasks.yaml:1: tasks: is 5: it must be a list"),
    ("tasks:\n  - 5", "tasks.yaml:2: tasks[0]: is 5: it must be a mapping"),
    ("tasks:\n  - {name: a, agent: codex}", "tasks[0]: needs the key 'task'"),
    ("tasks:\n  - {task: a, agent: codex}", "tasks[0]: needs the key 'name'"),
    ("tasks:\n  - {name: a, task: b}", "tasks.yaml:2: tasks[0]: has no agent"),
    (f"{TASK}x}}", "tasks[0].agent: there is no agent 'codexx'; did you mean 'codex'?"),
    (f"{TASK}, neds: [b]}}", "tasks[0].neds: unknown key; did you mean 'needs'?"),
    (f"{TASK}, needs: [b]}}", "tasks[0].needs: is 'b': there is no task of that name"),
    (f"{TASK}, needs: [a]}}", "tasks[0].needs: the tasks need each other in a cycle: a needs a"),
    (f"{TASK}, needs: 7}}", "tasks[0].needs: is 7: it must be a list of names"),
    (f"{TASK}, agent_cmd: x}}", "tasks[0].agent_cmd: cannot be combined with 'agent'"),
    (f"{TASK}, files: -1}}", "tasks[0].files: is -1"),
    (f"{TASK}, complex: 1}}", "tasks[0].complex: is 1: it must be true or false"),
    (f"{TASK}, timeout: soon}}", "it must be a span such as 90s, 30m, 2h or 1h30m, or one of auto"),
    (f"{TASK}, budget: lots}}", "tasks[0].budget: is 'lots': it must be dollars"),
    (f"{TASK}, on_timeout: cry}}", "tasks[0].on_timeout: is 'cry'"),
    (f"{TASK}, attempts: 0}}", "tasks[0].attempts: is 0"),
    (f"{TASK}, preset: nope}}", "tasks[0].preset: there is no preset 'nope'"),
    (f"{TASK}, cwd: nowhere-at-all}}", "tasks[0].cwd: is 'nowhere-at-all': there is no such folder"),
    ("tasks:\n  - {name: 'a b', task: x, agent: codex}", "is 'a b': it must be a name of letters"),
    ("on_open: cry\ntasks: []", "tasks.yaml:1: on_open: is 'cry'"),
    ("parallel: 0\ntasks: []", "tasks.yaml:1: parallel: is 0"),
    ("defaults: {name: a}\ntasks: []", "defaults.name: unknown key"),
    ("tasks: [", "not valid YAML"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), PROBLEMS)
def test_an_invalid_value_is_reported_with_its_position(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in wrong(tmp_path, text)


def test_a_file_of_tasks_may_have_more_values_than_a_configuration(tmp_path: Path) -> None:
    first = [f"- {{name: a-{n}, task: do it}}" for n in range(200)]
    needs = ", ".join(f"a-{n}" for n in range(200))
    later = [f"- {{name: b-0, task: do it, needs: &all [{needs}]}}"]
    later += [f"- {{name: b-{n}, task: do it, needs: *all}}" for n in range(1, 260)]
    text = "\n".join(["defaults: {agent: codex}", "tasks:", *first, *later])
    assert len(read(tmp_path, text)[-1].needs) == 200


def test_two_tasks_of_one_name_are_reported_with_both_lines(tmp_path: Path) -> None:
    text = f"{TASK}}}\n  - {{name: a, task: again, agent: codex}}"
    said = wrong(tmp_path, text)
    assert "tasks.yaml:3: tasks[1].name: is 'a': another task of that name is in line 2" in said


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    said = wrong(tmp_path, f"{TASK}, files: x, loc: y}}\n  - {{name: b, task: c}}\nparallel: no")
    assert len(said.splitlines()) == 4


def test_a_need_that_is_nearly_a_name_is_suggested(tmp_path: Path) -> None:
    text = f"{TASK}}}\n  - {{name: parser, task: x, agent: codex}}\n  - {{name: c, task: x, agent: codex, needs: [parsre]}}"
    assert "did you mean 'parser'?" in wrong(tmp_path, text)


def test_the_agent_of_a_task_replaces_the_command_of_the_defaults(tmp_path: Path) -> None:
    text = "defaults: {agent_cmd: my-agent}\ntasks:\n  - {name: a, task: x, agent: codex}\n"
    assert read(tmp_path, text)[0].flags == {"agent": "codex"}


def test_half_of_a_surrogate_pair_is_reported_before_anything_starts(tmp_path: Path) -> None:
    problem = wrong(tmp_path, 'tasks:\n  - {name: a, task: "do \\ud800 it", agent: codex}')
    assert "tasks.yaml:2: tasks[0].task: 'do \\ud800 it' has half of a surrogate pair" in problem


def test_a_label_among_the_needs_is_not_a_task(tmp_path: Path) -> None:
    [task] = read(tmp_path, f"labels: [gpu, big]\n{TASK}, needs: [gpu]}}\n")
    assert (task.needs, task.labels) == ((), ("gpu",))


def test_a_label_is_a_name(tmp_path: Path) -> None:
    message = wrong(tmp_path, f"labels: [big+gpu]\n{TASK}}}\n")
    assert "labels: is 'big+gpu': it must be a name of letters, digits" in message
