"""The resident process watches a session, beside a stand-in agent that calls real hooks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from switchgear._hooks import resident
from switchgear._hooks.command import hook_command
from switchgear._hooks.install import saved_copies
from switchgear._hooks.install.settings import hook_file
from switchgear._hooks.session import Notes
from switchgear._stores.sqlite import SqliteStore
from timeouts import LIMIT_S, ended
from trusted_config import write_config

AGENT = """
import json, os, subprocess, sys, time
def hook(event, **more):
    facts = {"session_id": "s1", "cwd": os.getcwd(), "hook_event_name": event, **more}
    command = json.loads(os.environ["HOOK"])
    done = subprocess.run(command, input=json.dumps(facts), capture_output=True, text=True)
    print(json.dumps([event, done.stdout, done.stderr]), flush=True)
    if "TIME OVER" in done.stdout:
        sys.exit(3)
hook("SessionStart", source="startup")
hook("UserPromptSubmit", prompt="go")
for number in range(6):
    call = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": str(number)}
    hook("PreToolUse", **call)
    hook("PostToolUse", tool_response={"stdout": "a"}, **call)
while not os.path.exists("go-on"):
    time.sleep(0.05)
hook("PreToolUse", tool_name="Read", tool_input={"file_path": "b"}, tool_use_id="last")
hook("SessionEnd", reason="other")
"""
CONFIG = """
circuits:
  - {match: "progress/*", policy: careful}  # six equal calls alone do not open the circuit
  - match: session/*
    policy:
      extends: stuck
      detectors:
        - silence: {limit_s: 0.6}
        - same_tool
        - tool_flood
        - same_error: {threshold: 4, scope: consecutive}
        - context_burn
"""
PATIENT = CONFIG.replace("0.6", "30")
TOLD_BY_A_HOOK = 3


def started(folder: Path, config: str, name: str = "claude.py") -> subprocess.Popen[str]:
    """A script with the name of Claude Code that calls the hooks, in a project with this configuration."""
    (folder / ".git").mkdir()
    write_config(folder / "switchgear.yaml", config)
    (folder / name).write_text(AGENT)
    env = {**os.environ, "HOOK": json.dumps(hook_command("claude-code", root=str(folder)))}
    return subprocess.Popen(
        [sys.executable, "-S", name],
        cwd=folder,
        env={key: value for key, value in env.items() if not key.startswith("SWITCHGEAR_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def silent(process: subprocess.Popen[str], folder: Path) -> list[str]:
    """Wait until the agent has called its last hook, and only then watch its silence.

    On a busy machine it is silent for as long between two hooks.
    """
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(14)]
    write_config(folder / "switchgear.yaml", CONFIG)
    return said


def test_a_silent_agent_is_stopped_when_its_time_is_over(tmp_path: Path) -> None:
    for session_s in (2, 10, 50, 250):
        folder = tmp_path / str(session_s)
        folder.mkdir()
        process = started(folder, f"{PATIENT}timeouts: {{session_s: {session_s}}}\n")
        with ended(process):
            code = process.wait(LIMIT_S)
        assert "TIME OVER" in (_until(folder, lambda notes: notes.stop is not None).stop or "")
        if code != TOLD_BY_A_HOOK:  # on a slow machine, the time ends before the agent is silent
            break
    assert code == -signal.SIGINT


def test_a_real_watcher_detects_a_silent_agent_and_its_hint_is_delivered_once(
    tmp_path: Path,
) -> None:
    process = started(tmp_path, PATIENT)
    with ended(process):
        said = silent(process, tmp_path)
        notes = _until(tmp_path, lambda notes: bool(notes.pending))
        assert notes.watcher not in {None, 0, process.pid}
        (tmp_path / "go-on").touch()
        said.append(process.communicate(timeout=LIMIT_S)[0])
    hinted = [line for line in "".join(said).splitlines() if "AGENT APPEARS STUCK" in line]
    assert len(hinted) == 1
    assert "no tool call for" in hinted[0]
    _until(tmp_path, lambda notes: notes.ended)
    found = resident.status()
    assert found is not None
    assert notes.watcher == found["pid"]


def test_a_watcher_repairs_the_guard_of_a_silent_agent_and_stops_it(tmp_path: Path) -> None:
    hooks = hook_file("claude-code", "project", str(tmp_path))
    hooks.install()
    saved_copies.save("claude-code", "project", str(tmp_path))
    good = Path(hooks.path).read_bytes()
    process = started(tmp_path, PATIENT)
    with ended(process):
        silent(process, tmp_path)
        _until(tmp_path, lambda notes: bool(notes.watcher))
        Path(hooks.path).unlink()
        stopped = _until(tmp_path, lambda notes: "changed without" in (notes.stop or ""))
        assert "settings.json was removed: restored from the saved copy" in (stopped.stop or "")
        assert Path(hooks.path).read_bytes() == good


def test_a_killed_agent_counts_as_ended_and_not_as_silent(tmp_path: Path) -> None:
    process = started(tmp_path, PATIENT)
    with ended(process):
        silent(process, tmp_path)
        _until(tmp_path, lambda notes: bool(notes.watcher))
    assert _until(tmp_path, lambda notes: notes.ended).watcher is None


@pytest.mark.parametrize("verb", [("watch", "--interval", "0.1"), ("serve", "--port", "0")])
def test_without_a_known_process_any_active_watcher_records_the_silence(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    process = started(tmp_path, PATIENT, "robot.py")
    said = silent(process, tmp_path)
    onlooker = subprocess.Popen(
        [sys.executable, "-m", "switchgear", *verb],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path.parent),
            "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
        },
        stdout=subprocess.DEVNULL,
    )
    with ended(process, onlooker):
        seen = _until(tmp_path, lambda notes: bool(notes.pending or notes.untended))
        assert seen.watcher == 0
        assert seen.untended is (verb[0] == "watch"), "who watches only tells"
        (tmp_path / "go-on").touch()
        said.append(process.communicate(timeout=LIMIT_S)[0])
    assert "".join(said).count("AGENT APPEARS STUCK") == 1
    assert "no tool call for" in said[-1]


def _until(folder: Path, fits: Callable[[Notes], bool]) -> Notes:
    """The notes of the session, once the condition holds; the watcher is a separate process."""
    path, until_s = folder / ".switchgear" / "state.db", time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        if path.exists():
            store = SqliteStore(str(path))
            notes = store.transact("session/s1", lambda tx: Notes.load(tx.note))
            store.close()
            if fits(notes):
                return notes
        time.sleep(0.05)  # another process works in the meantime
    raise AssertionError("the watcher did not hear the silence")


def test_the_silence_that_a_watcher_records_reaches_the_configured_sink(tmp_path: Path) -> None:
    heard = tmp_path / "heard.jsonl"
    process = started(tmp_path, f"{CONFIG}sinks: [{{jsonl: {{path: '{heard}'}}}}]\n")
    try:
        give_up_s = time.monotonic() + LIMIT_S
        while not (heard.exists() and "no tool call for" in heard.read_text()):
            assert time.monotonic() < give_up_s, "the sink never heard of the silence"
            time.sleep(0.05)
        events = [json.loads(line) for line in heard.read_text().splitlines()]
        (tmp_path / "go-on").touch()
        process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    told = [event for event in events if "no tool call for" in event["reason"]]
    assert told[0]["circuit"] == "session/s1"
