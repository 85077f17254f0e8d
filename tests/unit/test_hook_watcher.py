"""The watcher of a session: when it ends, whom it stops, and a real one that hears a silent agent."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from switchgear.hooks import sessions, watcher
from switchgear.hooks.command import hook_command
from switchgear.hooks.facts import Moment
from switchgear.hooks.sessions import Notes
from switchgear.hooks.watcher import Agent, Watcher
from switchgear.hooks.watching import Look
from switchgear.ladder import Climb
from switchgear.stores.sqlite import SqliteStore
from switchgear.testing import FakeClock


class FakeAgent(Agent):
    """A process that only remembers its signals."""

    signals: list[signal.Signals] = []  # noqa: RUF012  set anew by each test
    alive = True

    @property
    def lives(self) -> bool:
        return type(self).alive

    def send(self, number: signal.Signals) -> None:
        self.signals.append(number)


@pytest.fixture
def agent() -> FakeAgent:
    FakeAgent.signals, FakeAgent.alive = [], True
    return FakeAgent(1, None)


WORKS = Notes(works=True, heard_s=5.0)
OVER = Look(WORKS._replace(ended=True))


def watched(agent: FakeAgent, *looks: Look | Exception) -> tuple[str, list[str], float]:
    """Why a watcher of these looks ended, the help it called, and how much time passed."""
    clock, left, helped = FakeClock(0.0), list(looks), list[str]()

    def look() -> Look:
        found = left.pop(0) if left else OVER
        if isinstance(found, Exception):
            raise found
        return found

    why = Watcher(look, agent, help_=helped.append, clock=clock, sleep=clock.advance).run()
    return why, helped, clock()


def test_it_ends_with_the_session(agent: FakeAgent) -> None:
    assert watched(agent, Look(WORKS), Look(WORKS)) == ("the session is over", [], 10.0)
    assert watched(agent, Look(Notes(), known=False))[0] == "the session is over"


def test_it_ends_with_the_agent(agent: FakeAgent) -> None:
    FakeAgent.alive = False
    assert watched(agent)[0] == "the agent is gone"


def test_it_ends_after_a_day(agent: FakeAgent) -> None:
    assert watched(agent, *[Look(WORKS, every_s=5000.0)] * 30)[0] == "it has watched for a day"


def test_a_store_that_is_gone_for_a_while_is_asked_again(agent: FakeAgent) -> None:
    gone = [OSError("gone")] * (watcher.MOST_FAILURES - 1)
    assert watched(agent, *gone)[0] == "the session is over"
    assert watched(agent, *gone, OSError("gone"))[0] == "the store cannot be asked"


def test_an_agent_that_must_stop_is_interrupted_and_ended_if_it_stays_silent(
    agent: FakeAgent,
) -> None:
    watched(agent, Look(WORKS, interrupts=True), *[Look(WORKS)] * 5)
    assert agent.signals == [signal.SIGINT, signal.SIGTERM]


def test_an_agent_that_obeys_is_not_ended(agent: FakeAgent) -> None:
    rests = WORKS._replace(works=False)
    watched(agent, Look(WORKS, interrupts=True), *[Look(rests)] * 5)
    assert agent.signals == [signal.SIGINT]


def test_help_is_called_with_the_evidence(agent: FakeAgent) -> None:
    stopped = WORKS._replace(stop="what is known")
    _, helped, _ = watched(agent, Look(stopped, taken=Climb("escalate", ("nudge",))))
    assert helped == ["what is known"]


def test_a_process_that_has_another_ones_number_is_another() -> None:
    me = Agent.of(os.getpid())
    assert me.lives
    assert not Agent(os.getpid(), "long ago").lives
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    found = Agent.of(gone.pid)
    gone.wait()
    assert not found.lives


def test_only_one_watches_a_session(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert watcher._alone(path)
    command = f"from switchgear.hooks import watcher; print(watcher._alone({path!r}))"
    words = [sys.executable, "-c", command]
    other = subprocess.run(words, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("known", "moment", "needed"),
    [
        (None, Moment.SESSION_START, True),
        (None, Moment.AFTER_TOOL, True),
        (None, Moment.SESSION_END, False),
        (0, Moment.BEFORE_TOOL, False),
        (0, Moment.PROMPT, True),
    ],
)
def test_a_watcher_is_started_where_there_is_none(
    known: int | None, moment: Moment, *, needed: bool
) -> None:
    assert sessions.needs_watcher(Notes(watcher=known), moment) is needed


def test_a_watcher_that_lives_is_enough() -> None:
    assert not sessions.needs_watcher(Notes(watcher=os.getpid()), Moment.PROMPT)


# A real one


AGENT = """
import json, os, subprocess, sys, time
def hook(event, **more):
    facts = {"session_id": "s1", "cwd": os.getcwd(), "hook_event_name": event, **more}
    command = json.loads(os.environ["HOOK"])
    done = subprocess.run(command, input=json.dumps(facts), capture_output=True, text=True)
    print(json.dumps([event, done.stdout, done.stderr]), flush=True)
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


def test_a_real_watcher_hears_a_silent_agent_and_its_hint_is_delivered_once(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "switchgear.yaml").write_text(CONFIG)
    (tmp_path / "claude.py").write_text(AGENT)
    env = {**os.environ, "HOOK": json.dumps(hook_command("claude-code", root=str(tmp_path)))}
    env = {key: value for key, value in env.items() if not key.startswith("SWITCHGEAR_")}
    process = subprocess.Popen(
        [sys.executable, "-S", "claude.py"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        notes = _until(tmp_path, lambda notes: bool(notes.pending))
        assert notes.watcher not in {None, 0, process.pid}
        (tmp_path / "go-on").touch()
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    hinted = [line for line in said.splitlines() if "AGENT APPEARS STUCK" in line]
    assert len(hinted) == 1
    assert "no tool call for" in hinted[0]
    assert _until_gone(notes.watcher or 0)


def _until(folder: Path, fits: object) -> Notes:
    """The notes of the session, as soon as they fit; the watcher is a process of its own."""
    path, until_s = folder / ".switchgear" / "state.db", time.monotonic() + 60
    while time.monotonic() < until_s:
        if path.exists():
            store = SqliteStore(str(path))
            notes = store.transact("session/s1", lambda tx: Notes.load(tx.note))
            store.close()
            if callable(fits) and fits(notes):
                return notes
        time.sleep(0.05)  # another process works meanwhile
    raise AssertionError("the watcher did not hear the silence")


def _until_gone(pid: int) -> bool:
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
