"""The receipt of a run, the notice at its end, and the runs that can be removed."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from switchgear._breaker.loop_breaker import LoopBreaker
from switchgear._fleet.delivery import Outcome
from switchgear._run.record import RunFolder, list_runs, prunable, prune, pruned_circuits
from switchgear._run.result import (
    failed_notices,
    notify_run_end,
    receipt_of,
    receipt_text,
    targets_of,
)
from unit.runner_stage import Stage

FAILS = "usage(0.05); write('n', str(n)); fail('Error: boom')"
HOSTILE = (
    "\x1b[2J<script>alert(1)</script>`rm -rf /`$(id)\r\nX-Evil: 1 sk-proj-abcdefghijklmnopqrst"
)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_run_leaves_a_receipt_as_text_and_as_json(stage: Stage) -> None:
    result = stage.run(FAILS)
    folder = Path(result.receipt_file).parent
    text = (folder / "receipt.txt").read_text()
    held = json.loads((folder / "receipt.json").read_text())
    assert held == result.receipt() == receipt_of(stage.run_json())
    assert text.rstrip("\n") == receipt_text(held)
    assert text.startswith(f"Switchgear run {result.run}: circuit_breaker (exit code 10)\n")
    for line in (
        "  what:      do it",
        "  why:       Circuit breaker tripped: 3 consecutive failures (threshold: 3)",
        "  spent:     $0.15",
        "  saved:     27 of 30 iterations not run, about $1.35 at $0.05 each",
        f"resume {result.run} --force-close",
    ):
        assert line in text
    assert held["exit_signal"] == result.exit_signal == "circuit_open"
    assert held["spent"]["cost_micros"] == 150_000
    assert held["saved"]["iterations"] == 27
    assert result.dump()["receipt"] == str(folder / "receipt.txt")
    assert stage.run_json()["end"]["receipt"] == str(folder / "receipt.txt")


def test_a_run_that_completed_saved_nothing_and_unknown_cost_is_unknown(stage: Stage) -> None:
    result = stage.run("write('a', 'b')")
    text = receipt_text(result.receipt())
    assert "saved" not in text
    assert "  spent:     unknown cost" in text
    assert "$0.00" not in text
    assert result.receipt()["spent"]["cost_micros"] is None
    assert result.exit_signal is None


@pytest.mark.parametrize("broken", [{}, {"state": 7}, {"end": [], "options": None}, {"task": 3}])
def test_a_receipt_is_made_of_whatever_a_run_holds(broken: dict[str, Any]) -> None:
    receipt = receipt_of({"id": "r", **broken})
    assert receipt["exit_reason"] == "broken off"
    assert receipt_of({"id": "r", **broken}, alive=True)["exit_reason"] == "running"
    assert receipt_text(receipt).startswith("Switchgear run r: broken off")


def test_hostile_text_is_harmless_in_a_receipt(stage: Stage) -> None:
    result = stage.run(f"fail({HOSTILE!r})", task=f"do {HOSTILE}")
    text = receipt_text(result.receipt())
    assert "\x1b" not in text
    assert "\r" not in text
    assert "sk-proj" not in text
    assert "\nX-Evil" not in text


def test_a_command_target_gets_the_notice_on_standard_input(stage: Stage, tmp_path: Path) -> None:
    result = stage.run(f"fail({HOSTILE!r})", task=f"do {HOSTILE}")
    script = tmp_path / "notify.sh"
    script.write_text(f'cat > {tmp_path}/got; echo "$#" > {tmp_path}/arguments\n')
    targets = targets_of([f"command:sh {script}", f"command:sh {script}"])
    assert len(targets) == 1, "the same target is told once"
    assert notify_run_end(targets, result.receipt(), "ana") == [Outcome(targets[0].name, True)]
    got = json.loads((tmp_path / "got").read_text())
    assert (got["severity"], got["owners"], got["kind"]) == ("SEV2", ["ana"], "run_ended")
    assert got["text"].startswith(f"[SEV2] run {result.run} ended, circuit_breaker: ")
    assert got["receipt"] == result.receipt()
    assert (tmp_path / "arguments").read_text() == "0\n", "nothing is passed through a shell"


@pytest.mark.parametrize(
    ("reason", "severity"),
    [
        ("completed", "INFO"),
        ("interrupted", "INFO"),
        ("circuit_breaker", "SEV2"),
        ("agent_error", "SEV2"),
        ("budget", "SEV3"),
        ("timeout", "SEV3"),
        ("blocked", "SEV3"),
    ],
)
def test_each_end_has_its_severity(tmp_path: Path, reason: str, severity: str) -> None:
    receipt = receipt_of({"id": "r", "end": {"exit_reason": reason, "reason": "because"}})
    notify_run_end(targets_of([f"command:tee {tmp_path}/got"]), receipt, "ana")
    assert json.loads((tmp_path / "got").read_text())["severity"] == severity


def test_a_target_of_the_configuration_and_of_the_command_is_notified_once(tmp_path: Path) -> None:
    targets = targets_of([f"command:tee -a {tmp_path}/got"])
    outcomes = notify_run_end((*targets, *targets), receipt_of({"id": "r"}), "ana")
    assert outcomes == [Outcome(targets[0].name, True)]
    assert (tmp_path / "got").read_text().count('"run_ended"') == 1


def test_a_notice_that_does_not_arrive_is_reported_and_never_raised() -> None:
    receipt = receipt_of({"id": "r"})
    targets = targets_of(["command:false", "command:no-such-program-anywhere"])
    said = failed_notices(notify_run_end(targets, receipt, "ana"))
    assert len(said) == 2
    assert all(line.startswith("notification to command-") for line in said)
    assert notify_run_end((), receipt, "ana") == []


@pytest.mark.parametrize(
    "text", ["", "pager", "file:///etc/passwd", "command:", "slack:not a name"]
)
def test_an_invalid_target_is_a_usage_error(text: str) -> None:
    with pytest.raises(ValueError, match="--notify: "):
        targets_of([text])


def test_the_coordinator_of_a_loop_gets_the_exit_signal() -> None:
    loop = LoopBreaker.for_stagnation("loop/x")
    assert loop.check().exit_signal is None
    for _ in range(5):
        loop.record_error("the same")
    assert loop.check().exit_signal == "circuit_open"


def ended(root: Path, name: str, at: str | None, **fields: Any) -> None:
    folder = RunFolder(root / name)
    folder.make()
    run = {"id": name, "task": "t", "options": {}, "state": {}, "folder": "/", "circuit": "loop/x"}
    folder.write(
        {**run, "ended_at": at, "end": {"exit_reason": "completed"} if at else None, **fields}
    )


def test_only_runs_that_have_ended_and_are_old_enough_are_removed(tmp_path: Path) -> None:
    root = tmp_path / ".switchgear" / "runs"
    ended(root, "a", "2026-01-01T00:00:00+00:00")
    ended(root, "b", "2026-01-05T00:00:00+00:00")
    ended(root, "c", "2026-01-09T00:00:00+00:00")
    ended(root, "d", None, pid=os.getpid())
    (root / "broken").mkdir()
    now_s = 1_768_003_200.0  # 2026-01-10
    day_s = 86_400.0
    assert [each.id for each in prunable(root, now_s=now_s, older_than_s=3 * day_s)] == ["a", "b"]
    assert [each.id for each in prunable(root, now_s=now_s, keep=2)] == ["a", "b"]
    assert [each.id for each in prunable(root, now_s=now_s, keep=0)] == ["a", "b", "c"]
    both = prunable(root, now_s=now_s, older_than_s=3 * day_s, keep=4)
    assert [each.id for each in both] == ["a"]
    removed, left = prune(root, both)
    assert ([each.id for each in removed], left) == (["a"], [])
    assert [each.id for each in list_runs(root)] == ["b", "broken", "c", "d"]
    assert pruned_circuits(root) == {"loop/x"}
    assert prunable(tmp_path / "nothing", now_s=time.time(), keep=0) == []
