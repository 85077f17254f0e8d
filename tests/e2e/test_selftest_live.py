"""`switchgear selftest --live`: the real hook process, the real store, the real loop runner."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from e2e.hook_process import hook
from servers.server import running
from switchgear._analysis.selftest import live as live_hooks
from switchgear._analysis.selftest import live as live_runs
from switchgear._analysis.selftest import live as live_store
from switchgear._analysis.selftest.hook_trials import for_project, installed_commands
from switchgear._analysis.selftest.sandbox import Bench, GuardStatus
from switchgear._cli import main
from switchgear._cli.doctor import PROBLEM, hook_trials
from switchgear._config import DEFAULT, load_config
from switchgear._hooks.command import AGENTS
from switchgear._panel.panel import Panel
from timeouts import eventually


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("SWITCHGEAR_CONFIG", "SWITCHGEAR_STORE", "SWITCHGEAR_TOKEN", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return work


def push(folder: Path) -> dict[str, Any]:
    return {
        "session_id": "s",
        "cwd": str(folder),
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "git push --force"},
        "tool_use_id": "t",
    }


@pytest.mark.parametrize("agent", AGENTS)
def test_the_real_hook_command_of_each_agent_refuses_and_stops(
    project: Path, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    monkeypatch.setattr(live_hooks, "AGENTS", (agent,))
    rows = list(live_hooks.attacked_hooks(Bench(DEFAULT, str(project))))
    assert [(row.attack, row.status) for row in rows] == [
        ("rule breach", GuardStatus.OK),
        ("ordinary call", GuardStatus.OK),
        ("self-release", GuardStatus.OK),
        ("unusual path", GuardStatus.OK),
        ("padding", GuardStatus.OK),
        ("bad input", GuardStatus.OK),
        ("jammed store", GuardStatus.OK),
        ("same error", GuardStatus.OK),
    ], [row.reason for row in rows]
    by = {row.attack: row.detector for row in rows}
    assert by["rule breach"] == "rule force-push"
    assert by["self-release"] == by["jammed store"] == "rule guard/orders"
    assert "same_error" in by["same error"]
    assert all(row.signals >= 2 for row in rows if row.attack != "jammed store")
    assert [file.name for file in project.iterdir()] == [".git"]


def test_a_hook_that_finds_its_configuration_compiled_refuses_as_the_first_did(
    project: Path,
) -> None:
    for _ in range(2):
        told = hook(project, push(project)).told["hookSpecificOutput"]
        assert told["permissionDecision"] == "deny"


FORGETFUL = """
import json, os, sys
first = not os.path.exists("seen")
open("seen", "w").close()
deny = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "rule x: y"}
told = sys.stdin.read()
if first or "--root" not in sys.argv:
    print(json.dumps({"hookSpecificOutput": deny}))
else:
    print(json.dumps({"systemMessage": "could not decide, and admitted: TypeError"}))
"""


def test_a_hook_that_refuses_only_the_first_time_is_found(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a cache once did, from the second hook of a project on."""
    script = tmp_path / "hook.py"
    script.write_text(FORGETFUL)
    command = f"{sys.executable} {script} claude-code --root {project} || exit 2"
    monkeypatch.setattr(live_hooks, "installed_commands", lambda _: {"claude-code": command})
    (row,) = live_hooks.attacked_hooks(Bench(DEFAULT, str(project)))
    assert (row.attack, row.status) == ("rule breach", GuardStatus.FAILED)
    assert "is not refused: it answers allow" in row.reason
    (finding,) = hook_trials("claude-code", command, None)
    assert finding.level == PROBLEM
    assert "rule breach" in finding.what


def test_the_doctor_runs_the_installed_hooks_and_leaves_nothing_behind(project: Path) -> None:
    CliRunner().invoke(main, ["hooks", "install", "claude-code"])
    files = sorted(str(each) for each in project.rglob("*") if each.is_file())
    found = CliRunner().invoke(main, ["doctor"])
    assert "Claude Code: forbidden calls and unreadable input are refused" in found.output
    left = sorted(str(each) for each in project.rglob("*") if each.is_file())
    assert [path for path in left if ".switchgear" not in path] == files
    found = CliRunner().invoke(main, ["hooks", "doctor", "claude-code"])
    assert "ordinary calls admitted (" in " ".join(found.output.split())


@pytest.mark.parametrize(
    "text",
    [
        "circuits:\n  - {match: 'op/*/x', policy: operation}\n",
        "agents:\n  coder: {owner: a@example.com, provider: anthropic, model: opus}\n",
        "hooks: {on_trouble: refuse}\n",
    ],
)
def test_the_hook_is_tested_with_the_configuration_of_the_project(
    project: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "switchgear.yaml").write_text(text)
    monkeypatch.setattr(live_hooks, "AGENTS", ("codex",))
    rows = list(live_hooks.attacked_hooks(Bench(load_config("switchgear.yaml"), str(project))))
    assert {row.status for row in rows} == {GuardStatus.OK}, [row.reason for row in rows]


def test_the_tested_command_is_that_of_the_agents_settings(project: Path) -> None:
    CliRunner().invoke(main, ["hooks", "install", "claude-code"])
    commands = installed_commands(str(project))
    assert list(commands) == ["claude-code"]
    assert str(project) in commands["claude-code"]
    moved = for_project(commands["claude-code"], "/elsewhere")
    assert str(project) not in moved.replace(sys.executable, "")


def test_the_real_store_is_tripped_shared_and_left_as_it_was(project: Path) -> None:
    file = project / "circuits.db"
    url = f"sqlite:///{file}"
    with Panel(url) as panel:
        panel.breaker("provider/mine").call(int)
        panel.flush()
        before = [view.name for view in panel.circuits()], panel.events()
    rows = list(live_store.attacked_store(Bench(DEFAULT, str(project), url)))
    assert rows[0].status is GuardStatus.OK, rows[0].reason
    assert rows[0].detector == "consecutive_failures"
    assert rows[1].status is GuardStatus.SKIPPED, "it is not sealed"
    with Panel(url) as panel:
        assert ([view.name for view in panel.circuits()], panel.events()) == before


def test_a_sealed_store_refuses_the_override_of_an_agent(project: Path) -> None:
    url = f"sqlite:///{project / 'circuits.db'}"
    with Panel(url, operator_token_sha256="b" * 64) as panel:
        panel.breaker("provider/mine").call(int)
    rows = list(live_store.attacked_store(Bench(DEFAULT, str(project), url)))
    assert [row.status for row in rows] == [GuardStatus.OK, GuardStatus.OK]
    assert rows[1].detector == "operator token"


def test_the_operators_token_is_tried_where_it_is_given(project: Path) -> None:
    url = f"sqlite:///{project / 'circuits.db'}"
    with Panel(url, operator_token_sha256=sha256(b"mine").hexdigest()) as panel:
        panel.breaker("provider/mine").call(int)
    for token, status in (("mine", GuardStatus.OK), ("another", GuardStatus.FAILED)):
        rows = list(live_store.attacked_store(Bench(DEFAULT, str(project), url, token=token)))
        assert [row.status for row in rows] == [GuardStatus.OK, GuardStatus.OK, status]
    with Panel(url) as panel:
        assert [view.name for view in panel.circuits()] == ["provider/mine"], "nothing is left held"


def test_a_real_server_is_tripped_shared_and_left_as_it_was(project: Path) -> None:
    with running() as server:
        with Panel(server.url) as panel:
            panel.breaker("provider/mine").call(int)
        kept = server.say("KEYS", "*")
        rows = list(live_store.attacked_store(Bench(DEFAULT, str(project), server.url)))
        assert rows[0].status is GuardStatus.OK, rows[0].reason
        with Panel(server.url) as panel:
            assert [view.name for view in panel.circuits()] == ["provider/mine"]
            assert panel.events(glob="selftest/*") == []
        # The key that limits how often a failure is announced expires by itself after 250 ms.
        eventually(lambda: "selftest" not in str(server.say("KEYS", "*")), "no key is left")
    assert "selftest" in str(rows[0].reason)
    assert "provider/mine" in str(kept)


def test_a_missing_store_is_not_created(project: Path) -> None:
    (row,) = live_store.attacked_store(Bench(DEFAULT, str(project)))
    assert row.status is GuardStatus.SKIPPED
    assert "does not exist yet" in row.reason
    assert [file.name for file in project.iterdir()] == [".git"]


@pytest.mark.parametrize("live", live_runs.LIVES[:2], ids=lambda live: live.attack)
def test_the_real_loop_runner_stops_the_demo_agent(
    project: Path, monkeypatch: pytest.MonkeyPatch, live: live_runs.Live
) -> None:
    monkeypatch.setattr(live_runs, "LIVES", (live,))
    (row,) = live_runs.attacked_runs(Bench(DEFAULT, str(project)))
    assert row.status is GuardStatus.OK, row.reason
    assert row.detector
    assert [file.name for file in project.iterdir()] == [".git"]


def test_a_run_that_ends_differently_is_a_failure(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = live_runs.LIVES[0]._replace(scenario="asks")
    monkeypatch.setattr(live_runs, "LIVES", (asks,))
    (row,) = live_runs.attacked_runs(Bench(DEFAULT, str(project)))
    assert row.status is GuardStatus.FAILED
    assert "the run ended as blocked" in row.reason


def test_the_exit_code_shows_that_every_guard_trips(project: Path) -> None:
    command = [sys.executable, "-m", "switchgear", "selftest", "--only", "lock-convoy", "--json"]
    done = subprocess.run(
        command, cwd=project, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["exit_code"] == 0
