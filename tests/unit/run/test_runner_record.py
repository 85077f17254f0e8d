"""A run is a folder: complete, private, readable after a crash, and harmless for other runs."""

import json
import os
import stat
from pathlib import Path

import pytest

from switchgear._run.record import (
    RunFolder,
    RunUnreadable,
    find_run,
    is_alive,
    list_runs,
    new_run,
    process_began,
    runs_root,
)
from switchgear._run.state import RunState
from unit.runner_stage import Stage, checker


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


WORKS = """
tell(type='tool', name='edit', arguments={'path': 'a'}, ok=True)
tell(type='tool', name='bash', arguments={'command': 'make'}, ok=False, error='Error: no rule')
tell(type='text', text='the key is sk-proj-abcdefghijklmnop')
write('a', 'b')
usage(0.25)
"""


def test_run_json_and_iterations_hold_everything_a_report_needs(stage: Stage) -> None:
    check = checker(stage, "print('3 passed in 0.1s')")
    result = stage.run(WORKS, validate=check)
    run, (facts,) = stage.run_json(), stage.iterations()
    assert run["end"] == result.dump()
    assert run["options"]["validate"] == check
    assert run["state"]["spent_micros"] == 250_000
    assert (run["schema"], run["circuit"]) == (1, result.circuit)
    assert facts["number"] == 1
    assert (facts["outcome"], facts["ok"], facts["error"]) == ("completed", True, None)
    assert facts["steps"] == 2
    assert facts["tools"] == {"edit": 1, "bash": 1}
    assert facts["errors"][0]["text"] == "Error: no rule"
    assert len(facts["errors"][0]["key"]) == 16
    assert (facts["files_changed"], facts["files"]) == (1, ["a"])
    assert facts["validation"]["passed"] == 3
    assert (facts["tests_before"], facts["tests_passing"]) == (3, 3)
    assert (facts["cost_micros"], facts["cost_source"]) == (250_000, "agent")
    assert facts["tokens"] == {"input": 10, "output": 5, "cache_read": 0, "cache_write": 0}
    assert facts["agent"]["end"] == "exited"
    assert facts["agent"]["exit_code"] == 0
    assert {reading["kind"] for reading in facts["readings"]} == {
        "consecutive_failures",
        "same_error",
        "no_progress",
        "output_decline",
    }
    assert facts["phase"] == "closed"
    assert facts["prompt_chars"] == len(stage.prompt(1))
    assert facts["output_chars"] > 0


def test_logs_are_redacted_and_the_folder_is_private(stage: Stage) -> None:
    stage.run(WORKS)
    assert stage.record is not None
    log = stage.record.log_file(1).read_text()
    assert "[edit] a: ok" in log
    assert "[bash] make: failed" in log
    assert "sk-proj" not in log
    assert "[redacted]" in log
    assert stat.S_IMODE(stage.record.path.stat().st_mode) == 0o700


def test_a_log_is_bounded(stage: Stage) -> None:
    stage.run("write('a', 'b')\nfor k in range(3000): print('x' * 900)")
    assert stage.record is not None
    assert stage.record.log_file(1).stat().st_size < 1_100_000
    assert "[the rest is left out]" in stage.record.log_file(1).read_text()


def test_the_folder_of_switchgear_is_not_a_change_of_the_project(stage: Stage) -> None:
    result = stage.run("write('a', 'b')")
    assert result.checkpoint is not None
    assert result.checkpoint.files == ("a",)
    assert stage.git("status", "--porcelain").splitlines() == ["?? a"]


def test_run_json_is_written_after_every_iteration(stage: Stage) -> None:
    seen = []

    class Reading(type(stage.view)):  # type: ignore[misc]
        def iteration_ended(self, facts: dict[str, object], run: dict[str, object]) -> None:
            held = stage.run_json()
            seen.append((held["state"]["iterations"], held["end"]))

    stage.dependencies = stage.dependencies._replace(view=Reading())
    stage.run("write('n', str(n)); tell(type='result', text='', success=None)", max_iterations=2)
    assert seen == [(1, None), (2, None)]


def test_a_view_that_raises_does_not_affect_the_run(stage: Stage) -> None:
    class Broken(type(stage.view)):  # type: ignore[misc]
        def iteration_started(self, number: int, run: dict[str, object]) -> None:
            raise RuntimeError("no terminal")

    stage.dependencies = stage.dependencies._replace(view=Broken())
    assert stage.run("write('a', 'b')").exit_reason == "completed"


def test_a_report_is_named_and_one_that_fails_is_a_note(stage: Stage) -> None:
    stage.dependencies = stage.dependencies._replace(
        report=lambda record: record.path / "report.html"
    )
    result = stage.run("write('a', 'b')")
    assert str(result.report).endswith("report.html")
    assert stage.run_json()["end"]["report"] == result.report

    def broken(record: RunFolder) -> Path:
        raise OSError("disk full")

    stage.record = None
    stage.dependencies = stage.dependencies._replace(report=broken)
    result = stage.run("write('a', 'c')")
    assert result.report is None
    assert any("disk full" in note for note in result.notes)


# Many runs


def test_ids_sort_by_time(tmp_path: Path) -> None:
    ids = [new_run(tmp_path / "runs", at_s).id for at_s in (1e9, 1e9 + 0.002, 1e9 + 1, 1.8e9)]
    assert ids == sorted(ids)
    assert len({new_run(tmp_path / "runs", 1e9).id for _ in range(20)}) == 20


def test_a_run_is_found_by_a_part_of_its_id_or_as_the_last(tmp_path: Path) -> None:
    first, second = (new_run(tmp_path, at_s) for at_s in (1e9, 1.8e9))
    assert find_run(tmp_path, first.id).id == first.id
    assert find_run(tmp_path, first.id[-6:]).id == first.id
    assert find_run(tmp_path, "2027").id == second.id
    assert find_run(tmp_path, "last").id == second.id
    with pytest.raises(RunUnreadable, match="matches 2 runs"):
        find_run(tmp_path, "20")
    with pytest.raises(RunUnreadable, match="`switchgear runs` lists 2"):
        find_run(tmp_path, "1999")
    with pytest.raises(RunUnreadable, match="no runs yet"):
        find_run(tmp_path / "none", "last")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"id": 1}', "\x00\x01", '{"schema": 99}', "[" * 100_000],
)
def test_a_damaged_run_json_is_reported_and_skipped(tmp_path: Path, text: str) -> None:
    stage = Stage(tmp_path)
    stage.run("write('a', 'b')")
    root = stage.folder / ".switchgear" / "runs"
    broken = new_run(root, 1e9)
    (broken.path / "run.json").write_text(text)
    new_run(root, 1.1e9)  # one that was broken off before it wrote anything
    bad, empty, good = list_runs(root)
    assert bad.run is None
    assert bad.problem
    assert empty.problem == "has no run.json"
    assert good.run is not None
    with pytest.raises(RunUnreadable):
        broken.read()


def test_a_run_of_a_newer_version_is_reported(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.run("write('a', 'b')")
    assert stage.record is not None
    file = stage.record.path / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema": 2}))
    with pytest.raises(RunUnreadable, match="newer Switchgear"):
        stage.record.read()


def test_a_line_that_was_cut_off_is_left_out(stage: Stage) -> None:
    stage.run("write('a', 'b')")
    assert stage.record is not None
    with (stage.record.path / "iterations.jsonl").open("a") as file:
        file.write('[1]\n{"number": 2, "outc')
    assert [each["number"] for each in stage.iterations()] == [1]


def test_a_run_is_alive_while_its_process_is(tmp_path: Path) -> None:
    assert is_alive({"pid": os.getpid(), "end": None})
    began = process_began(os.getpid())
    assert began is not None
    assert is_alive({"pid": os.getpid(), "pid_began": began, "end": None})
    assert not is_alive({"pid": os.getpid(), "pid_began": "another", "end": None})
    assert not is_alive({"pid": os.getpid(), "end": {}})
    assert not is_alive({"pid": 2**22 + 12345, "end": None})
    assert not is_alive({"pid": "x", "end": None})
    assert not is_alive({"pid": 10**30, "end": None})


def test_runs_are_kept_in_the_project_or_else_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "p" / "deep").mkdir(parents=True)
    (tmp_path / "p" / ".git").mkdir()
    assert runs_root(tmp_path / "p" / "deep") == tmp_path / "p" / ".switchgear" / "runs"


def test_the_state_outlasts_the_process() -> None:
    state = RunState(3, 1, 4.5, 10, (5, 5), changed=("a",), notes=("x",), begun_s=(1.0,))
    assert RunState.load(json.loads(json.dumps(state.dump()))) == state
    for wrong in ({"iterations": -1}, {"seconds": "x"}, {"changed": 5}, {"lost": None}):
        with pytest.raises(ValueError, match="state"):
            RunState.load({**state.dump(), **wrong})


@pytest.mark.parametrize(
    "swap",
    [
        "for i in range(1, 6): swap(f'logs/{i:04}.log')",
        "for i in range(n + 1, 6): swap(f'prompts/{i:04}.txt')",
        "swap('iterations.jsonl')",
        "swap('run.json')",
    ],
)
@pytest.mark.parametrize("by", ["os.mkfifo(path)", "os.symlink(victim, path)"])
def test_a_pipe_or_a_link_in_the_folder_of_a_run_neither_hangs_it_nor_is_followed(
    stage: Stage, swap: str, by: str
) -> None:
    victim = stage.scripts / "victim"
    victim.write_text("keep me")
    body = (
        f"victim = {str(victim)!r}\n"
        "folder = pathlib.Path('.switchgear/runs') / os.environ['SWITCHGEAR_RUN']\n"
        "def swap(name):\n"
        "    path = folder / name\n"
        "    if not path.is_fifo() and not path.is_symlink():\n"
        "        path.unlink(missing_ok=True)\n"
        f"        {by}\n"
        f"{swap}\n"
        "write(f'n{n}', 'x'); tell(type='result', text='more', success=None)"
    )
    result = stage.run(body, max_iterations=3)
    assert (result.exit_reason, result.state.iterations) == ("max_iterations", 3)
    assert victim.read_text() == "keep me"
    assert stage.run_json()["end"]["exit_reason"] == "max_iterations"
    assert stage.iterations()[-1]["number"] == 3
