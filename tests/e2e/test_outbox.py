"""Sinks, incidents and notifications without `fleet watch`: the process that commits an event handles it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from e2e.hook_process import hook
from switchgear import CircuitBreaker, Event, Signal
from switchgear._analysis.selftest.hook_trials import temporary_project
from switchgear._cli import main
from switchgear._config import load_config
from switchgear._config.trust import trust_file
from switchgear._core.wire import dump_event
from switchgear._hooks import drain
from switchgear.fleet import Fleet
from unit.hook_calls import before

PATIENCE_S = 300.0
FLEET = "agents: {coder: {owner: ana, provider: p, model: m}}\n"


def lines(path: Path, count: int = 1) -> list[dict[str, Any]]:
    """The JSON lines of a file, once it has at least this number."""
    give_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_s:
        if path.exists():
            found = path.read_text().splitlines()
            if len(found) >= count and path.read_text().endswith("\n"):
                return [json.loads(line) for line in found]
        time.sleep(0.05)
    raise AssertionError(f"{path} has no {count} lines after {PATIENCE_S} s")


def wait_for(path: Path) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < give_up_s, f"{path} never came"
        time.sleep(0.05)


def target(path: Path) -> str:
    return f"notifications: [{{command: {{run: 'tee -a {path}', timeout_s: 30}}}}]\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "home").mkdir()
    return folder


def configure(project: Path, text: str) -> None:
    """Write the file, as a user does who trusts it."""
    path = project / "switchgear.yaml"
    path.write_text(text)
    trust_file(str(path))


def test_a_hook_calls_the_configured_sinks_and_targets(project: Path) -> None:
    heard, taken = project / "heard.jsonl", project / "taken.jsonl"
    configure(project, f"sinks: [{{jsonl: {{path: '{heard}'}}}}]\n" + target(taken))
    breach = before("Bash", {"command": "switchgear reset x"}, cwd=str(project))
    assert hook(project, breach).told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert lines(heard)[0]["circuit"].startswith("rules")
    assert lines(taken)[0]["circuit"].startswith("rules")


def test_the_sinks_and_commands_of_an_untrusted_file_are_not_used(project: Path) -> None:
    heard, taken = project / "heard.jsonl", project / "taken.jsonl"
    text = f"sinks: [{{jsonl: {{path: '{heard}'}}}}]\n" + target(taken)
    (project / "switchgear.yaml").write_text(text)
    hook(project, before("Bash", {"command": "switchgear reset x"}, cwd=str(project)))
    drain.process(str(project), {"events": []})
    assert not heard.exists()
    assert not taken.exists()


def test_the_events_of_a_self_test_reach_no_sink_and_no_target(project: Path) -> None:
    heard, taken = project / "heard.jsonl", project / "taken.jsonl"
    configure(project, f"sinks: [{{jsonl: {{path: '{heard}'}}}}]\n" + target(taken))
    config = str(project / "switchgear.yaml")
    events: list[Event] = []
    CircuitBreaker("rules", threshold=1, sinks=[events.append]).record(Signal(ok=False))
    asked = {"events": [dump_event(event) for event in events], "config": config}
    with temporary_project("claude-code", None, config) as trial:
        drain.process(trial.folder, asked)
        assert not (Path(trial.folder) / ".switchgear").exists()
    assert not heard.exists()
    assert not taken.exists()
    named = project / "switchgear-selftest-mine"  # of a project, whatever its name, they do
    named.mkdir()
    drain.process(str(named), asked)
    assert lines(heard)[0]["circuit"] == "rules"


def test_a_hook_without_sinks_and_targets_starts_nothing(project: Path) -> None:
    breach = before("Bash", {"command": "switchgear reset x"}, cwd=str(project))
    hook(project, breach)
    assert not (project / ".switchgear" / "outbox.log").exists()


def test_a_sink_that_fails_is_logged_and_the_answer_is_the_same(project: Path) -> None:
    broken = project / "a-folder"
    broken.mkdir()
    configure(project, f"sinks: [{{jsonl: {{path: '{broken}'}}}}]\n")
    breach = before("Bash", {"command": "switchgear reset x"}, cwd=str(project))
    ran = hook(project, breach)
    assert ran.told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "a-folder" not in ran.stdout + ran.stderr
    wait_for(project / ".switchgear" / "outbox.log")
    assert "was not written" in (project / ".switchgear" / "outbox.log").read_text()


def test_a_command_sends_its_events_and_earlier_pending_ones(project: Path) -> None:
    taken = project / "taken.jsonl"
    base = f"store: sqlite:///{project}/state.db\n{FLEET}"
    path = project / "switchgear.yaml"
    configure(project, base + target(taken))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "switchgear",
            "hold",
            "open",
            "provider/p",
            "--create",
            "--why",
            "a test",
        ],
        cwd=project,
        env={**os.environ, "SWITCHGEAR_CONFIG": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert lines(taken)[0]["circuit"] == "provider/p"
    wait_for(project / "world-state.json")


def test_a_fleet_in_a_program_writes_incidents_and_sends_notifications(project: Path) -> None:
    taken = project / "taken.jsonl"
    path = project / "switchgear.yaml"
    path.write_text(f"store: sqlite:///{project}/state.db\n{FLEET}" + target(taken))
    with Fleet.from_config(load_config(path)) as fleet:
        fleet.panel.breaker("rules/coder").record(Signal(violation="rule x"))
        assert lines(taken)[0]["severity"] == "SEV1"
        wait_for(project / "world-state.json")
    [incident] = (project / "incidents").iterdir()
    assert json.loads((incident / "incident.json").read_text())["owners"] == ["ana"]


def run(folder: Path, *args: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*args, "--config", str(folder / "switchgear.yaml")])
    return done.exit_code, done.output


def test_pending_notifications_are_reported_with_the_reason(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.delenv("SLACK_URL", raising=False)
    (project / "switchgear.yaml").write_text(
        f"store: sqlite:///{project}/state.db\nnotifications: [{{slack: {{url_env: SLACK_URL, name: team}}}}]\n"
    )
    config = load_config(project / "switchgear.yaml")
    with Fleet(_panel(config), config.crew) as fleet:
        for number in range(7):
            fleet.panel.breaker(f"provider/p{number}").hold_open(by="ana", why="a test")
    code, text = run(project, "fleet", "deliver")
    assert code == 1
    assert "target team: 0 notifications sent, 7 pending" in text
    assert "1 failed attempt, last: the environment variable SLACK_URL is not set" in text
    code, text = run(project, "doctor")
    assert "target team: 7 pending" in text
    assert "SLACK_URL is not set" in text
    assert "no problems found" not in text.lower()
    monkeypatch.setenv("SLACK_URL", "http://127.0.0.1:1/")
    assert "Connection refused" in run(project, "fleet", "deliver")[1]


def _panel(config: Any) -> Any:
    from switchgear import Panel  # noqa: PLC0415

    return Panel.from_config(config)


def test_an_undeliverable_message_is_reported_sent_again_or_dropped(project: Path) -> None:
    (project / "switchgear.yaml").write_text(
        f"store: sqlite:///{project}/state.db\nnotifications: [desktop]\n"
    )
    config = load_config(project / "switchgear.yaml")
    with Fleet(_panel(config), config.crew) as fleet:
        fleet.panel.breaker("provider/p").hold_open(by="ana", why="a test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        code, text = run(project, "fleet", "deliver")
    assert code == 1
    assert "1 notification undeliverable and set aside, last: " in text
    assert "notify-send" in text
    said = run(project, "doctor")[1]
    assert "target desktop: nothing pending; 1 notification undeliverable" in " ".join(said.split())
    assert run(project, "fleet", "deliver", "--drop")[0] == 0
    found = json.loads(run(project, "fleet", "deliver", "--json")[1])
    assert found[0]["aside"] == 0
