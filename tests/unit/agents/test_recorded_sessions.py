"""The readers on session files that the real CLIs wrote: whole, cut off, and damaged."""

import json
import random
import sqlite3
from pathlib import Path

import pytest

from switchgear._agents.recordings.formats import runs_in
from switchgear._agents.recordings.recording import RecordedRun, RecordingFile, RecordingTally
from switchgear._analysis.backtest.replay import Named, replay
from switchgear._config import preset_policy

SESSIONS = Path(__file__).parents[1] / "sessions"
AGENTS = ("claude", "codex", "gemini", "opencode", "pi", "qwen")
LINES = tuple(agent for agent in AGENTS if agent != "opencode")
NOT_FOUND = "cat: settings-that-do-not-exist.toml: No such file or directory"

each_agent = pytest.mark.parametrize("agent", AGENTS)
each_in_lines = pytest.mark.parametrize("agent", LINES)


def session(agent: str, folder: Path) -> Path:
    """The recorded file; a database is made anew from its rows."""
    if agent != "opencode":
        return SESSIONS / f"{agent}.jsonl"
    path = folder / "opencode.db"
    link = sqlite3.connect(path)
    for line in (SESSIONS / "opencode.dump").read_text().splitlines():
        if line.startswith("CREATE"):
            link.execute(line)
        else:
            table, *row = json.loads(line)
            link.execute(f"insert into {table} values ({', '.join('?' * len(row))})", row)
    link.commit()
    link.close()
    return path


def read(path: Path, agent: str | None = None) -> tuple[list[RecordedRun], RecordingTally]:
    tally = RecordingTally()
    return list(runs_in(RecordingFile(str(path)), tally, agent)), tally


def shape(run: RecordedRun) -> list[tuple[bool | None, str | None]]:
    return [(step.ok, step.error) for step in run.steps]


@each_agent
def test_a_session_of_the_real_agent_is_read_step_by_step(agent: str, tmp_path: Path) -> None:
    [run], tally = read(session(agent, tmp_path))
    assert (run.format, dict(tally.formats)) == (agent, {agent: 1})
    assert not tally.unknown
    assert not tally.problems
    line, *errors, end = run.steps
    assert (line.ok, "echo one more line" in line.args) == (True, True)
    assert [step.ok for step in errors] == [False] * 3
    assert [step.error for step in errors] == [NOT_FOUND] * 3
    assert all("settings-that-do-not-exist" in step.args for step in errors)
    assert (end.tool, end.thought) == ("", "The settings are missing. I give up.")


@each_agent
def test_tokens_model_and_times_are_those_that_the_agent_wrote(agent: str, tmp_path: Path) -> None:
    [run], _ = read(session(agent, tmp_path))
    used = [sum(one.input_tokens + one.output_tokens for one in step.usages) for step in run.steps]
    assert used == [1020] * 5
    assert run.model
    times = [step.at_s for step in run.steps if step.at_s is not None]
    assert len(times) == 5
    assert times == sorted(times)
    assert all(0 < (step.seconds or 0) < 30 for step in run.steps[1:4])


@each_agent
def test_a_policy_stops_it_where_it_would_have_stopped_the_agent(
    agent: str, tmp_path: Path
) -> None:
    [run], _ = read(session(agent, tmp_path))
    found = replay(Named("operation", preset_policy("operation")), run)
    assert (found.tripped_at, found.stopped, found.detector) == (4, True, "failures_in_window")


@each_in_lines
def test_a_session_that_is_cut_off_anywhere_keeps_the_steps_before(
    agent: str, tmp_path: Path
) -> None:
    """As a file is that an agent still writes, or whose disk was full."""
    data = (SESSIONS / f"{agent}.jsonl").read_bytes()
    [whole], _ = read(SESSIONS / f"{agent}.jsonl")
    path, longest = tmp_path / "cut.jsonl", 0
    for size in range(0, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:size])
        runs, tally = read(path, agent)
        assert not tally.problems or not runs
        assert sum(tally.unknown.values()) <= 1, "only the line that was cut"
        for run in runs:
            known = [pair for pair in shape(run) if pair[0] is not None]
            assert known == shape(whole)[: len(known)]
            longest = max(longest, len(known))
    assert longest == 4


@each_agent
def test_a_damaged_session_is_reported_without_an_error(agent: str, tmp_path: Path) -> None:
    data = session(agent, tmp_path).read_bytes()
    chance = random.Random(7)
    path = tmp_path / "damaged"
    for _ in range(25):
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 40)):
            at = chance.randrange(len(broken))
            broken[at : at + chance.randrange(1, 9)] = chance.randbytes(chance.randrange(9))
        path.write_bytes(broken)
        for force in (None, agent):
            runs, tally = read(path, force)
            assert runs or tally.problems or tally.empty or tally.unknown


@each_in_lines
def test_lines_of_a_kind_that_is_new_are_named_and_the_others_read(
    agent: str, tmp_path: Path
) -> None:
    lines = (SESSIONS / f"{agent}.jsonl").read_text().splitlines()
    strange = ['{"type": "telepathy", "payload": {"type": "dream"}}', "\x00\x01", "[]", "{"]
    path = tmp_path / "new.jsonl"
    path.write_text("\n".join([*lines[:5], *strange, *lines[5:]]) + "\n")
    [run], tally = read(path)
    [whole], _ = read(SESSIONS / f"{agent}.jsonl")
    assert run.steps == whole.steps
    assert sum(tally.unknown.values()) == len(strange)
    assert any("telepathy" in kind for kind in tally.unknown), tally.unknown
