"""`--timeout auto`: computed from the size of the task, or learned from saved runs."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from switchgear._cli.options import Fail
from switchgear._cli.run_options import given_flags, limit_flags, split_timeout, with_timeout
from switchgear._run.options import RunOptions
from switchgear._run.record import similar_durations_s
from switchgear._stuck.timeouts import Timeouts

OPTIONS = RunOptions("add auth", agent="codex")


def parsed(*words: str) -> dict[str, Any]:
    """The options of a command line."""
    found: dict[str, Any] = {}

    @click.command()
    @limit_flags
    def verb(**flags: Any) -> None:
        found.update(given_flags(flags))

    verb.main(list(words), standalone_mode=False)
    return found


def kept(root: Path, number: int, seconds: float, **fields: Any) -> None:
    """A finished run, as it is saved."""
    run: dict[str, Any] = {
        "schema": 1,
        "id": f"r{number:03}",
        "task": "add auth",
        "agent": "codex",
        "folder": "/",
        "circuit": "loop/x",
        "options": {"preset": None},
        "state": {"seconds": seconds},
        "end": {"exit_reason": "completed"},
    } | fields
    folder = root / f"r{number:03}"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run))


def test_a_timeout_of_auto_uses_the_size_of_the_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    flags, timeout = split_timeout(
        parsed("--timeout", "auto", "--files", "3", "--loc", "150", "--deps", "1")
    )
    options, note = with_timeout(OPTIONS, timeout, Timeouts())
    assert "timeout_s" not in flags
    assert options.timeout_s == 285.0
    assert note == "the timeout is 285 s (adaptive: 120 + 3 x 30 + 150 x 0.1 + 1 x 60 s)"


def test_complex_doubles_the_timeout_and_a_policy_may_be_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    _, timeout = split_timeout(parsed("--timeout", "adaptive", "--complex"))
    assert with_timeout(OPTIONS, timeout, Timeouts(policy="fixed"))[0].timeout_s == 240.0
    _, timeout = split_timeout(parsed("--timeout", "auto"))
    assert with_timeout(OPTIONS, timeout, Timeouts(policy="fixed"))[0].timeout_s == 300.0


def test_a_duration_is_a_fixed_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    flags, timeout = split_timeout(parsed("--timeout", "30m"))
    assert (flags["timeout_s"], timeout) == (1800.0, {})
    assert with_timeout(OPTIONS, timeout, Timeouts()) == (OPTIONS, None)


def test_an_invalid_timeout_is_refused_with_the_valid_forms() -> None:
    with pytest.raises(click.UsageError, match="or one of auto, fixed, adaptive, learned, longest"):
        parsed("--timeout", "soon")


def test_a_size_without_auto_would_do_nothing_and_is_refused() -> None:
    with pytest.raises(Fail, match="matters only with --timeout auto"):
        split_timeout(parsed("--timeout", "5m", "--files", "3"))


def test_similar_runs_are_those_of_the_same_task_and_agent_that_were_completed(
    tmp_path: Path,
) -> None:
    kept(tmp_path, 1, 100.0)
    kept(tmp_path, 2, 200.0, task="something else")
    kept(tmp_path, 3, 300.0, agent="pi")
    kept(tmp_path, 4, 400.0, end={"exit_reason": "timeout"})
    kept(tmp_path, 5, 500.0, end=None)
    kept(tmp_path, 6, 600.0, task="add  auth\n")
    rules = Timeouts(policy="learned", min_runs=2)
    found = similar_durations_s(tmp_path, rules, task="add auth", agent="codex", preset=None)
    assert found == [100.0, 600.0]


def test_with_too_few_runs_of_the_task_those_of_the_preset_count(tmp_path: Path) -> None:
    kept(tmp_path, 1, 100.0)
    kept(tmp_path, 2, 200.0, task="another", options={"preset": "feature"})
    kept(tmp_path, 3, 300.0, task="a third", options={"preset": "feature"})
    rules = Timeouts(policy="longest", min_runs=5)
    found = similar_durations_s(tmp_path, rules, task="add auth", agent="codex", preset="feature")
    assert found == [200.0, 300.0]


def test_a_timeout_is_learned_from_the_runs_of_the_project(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        kept(tmp_path / ".switchgear" / "runs", number, 100.0)
    options, note = with_timeout(OPTIONS, {"policy": "learned"}, Timeouts())
    assert options.timeout_s == 100.0
    assert note is not None
    assert "mean 100 s + 4 x 0.0 s of 5 similar tasks" in note
