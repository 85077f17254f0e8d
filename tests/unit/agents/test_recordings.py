"""Every reader returns the same steps for the same session, in every format."""

import gzip
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.recordings.formats import FORMATS, find, runs_in, usual_places
from switchgear._agents.recordings.recording import RecordedRun, RecordingFile, RecordingTally
from unit import recording_samples as samples
from unit import run_facts

each_sample = pytest.mark.parametrize("sample", samples.FILES)
PRICED = {"claude", "codex", "gemini", "qwen", "opencode", "pi", "openhands", "otel", "plain"}


def read(path: Path, force: str | None = None) -> tuple[list[RecordedRun], RecordingTally]:
    tally = RecordingTally()
    return list(runs_in(RecordingFile(str(path)), tally, force)), tally


@each_sample
def test_a_recording_is_recognised_by_its_content_and_read_whole(
    sample: str, tmp_path: Path
) -> None:
    path = samples.write(sample, tmp_path)
    other = path.rename(tmp_path / "anything.json")
    runs, tally = read(other)
    assert list(tally.formats) == [sample.split(maxsplit=1)[0]]
    assert not tally.unknown
    assert not tally.problems
    run = runs[0]
    assert [step.ok for step in run.steps] == [True, False, False, False, None]
    assert [step.error for step in run.steps[1:4]] == [samples.NOT_FOUND] * 3
    assert run.steps[0].result == "all is well"
    assert all("cat missing.txt" in step.args for step in run.steps[1:4])
    assert [step.thought for step in run.steps[:4]] == [f"Look number {n}." for n in range(1, 5)]
    assert (run.steps[4].tool, run.steps[4].thought) == ("", samples.LAST_WORDS)
    assert [step.changed for step in run.steps] == [False] * 5


@each_sample
def test_tokens_belong_to_the_step_that_they_were_spent_for(sample: str, tmp_path: Path) -> None:
    [run, *_], _ = read(samples.write(sample, tmp_path))
    tokens = [sum(u.input_tokens + u.output_tokens for u in step.usages) for step in run.steps]
    if (
        sample.split(maxsplit=1)[0] in PRICED and sample != "openhands sdk"
    ) or sample == "mini-swe-agent":
        assert tokens[:4] == [1020] * 4
    else:
        assert not any(tokens)


@pytest.mark.parametrize("sample", ["claude", "codex", "gemini", "otel", "opencode", "plain"])
def test_times_are_those_of_the_recording(sample: str, tmp_path: Path) -> None:
    [run, *_], _ = read(samples.write(sample, tmp_path))
    times = [step.at_s for step in run.steps]
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]
    if sample != "plain":
        assert all(step.seconds == 1.0 for step in run.steps[:4])


@pytest.mark.parametrize(
    ("sample", "solved", "ended"),
    [
        ("plain", [False, True], "gave up"),
        ("openhands evaluation", [True, False], ""),
        ("swe-agent", [None], "exit_cost"),
        ("mini-swe-agent", [None], "LimitsExceeded"),
        ("codex", [None], "completed"),
    ],
)
def test_the_outcome_of_a_recording_is_used(
    sample: str, solved: list[bool | None], ended: str, tmp_path: Path
) -> None:
    runs, _ = read(samples.write(sample, tmp_path))
    assert [run.solved for run in runs] == solved
    assert runs[0].ended == ended


def test_sub_agents_are_separate_runs(tmp_path: Path) -> None:
    lines = samples.claude()
    side = [{**line, "isSidechain": True, "agentId": "a1"} for line in lines if "sessionId" in line]
    path = tmp_path / "a.jsonl"
    path.write_text(samples.as_lines([*lines[:4], *side, *lines[4:]]))
    runs, _ = read(path)
    assert [(run.id, len(run.steps)) for run in runs] == [("s-claude", 5), ("s-claude/a1", 5)]


def test_opencode_is_read_from_its_database_too(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    link = sqlite3.connect(path)
    link.execute("create table session (id text, time_created integer)")
    link.execute("create table message (id text, session_id text, time_created integer, data text)")
    link.execute("create table part (id text, message_id text, data text)")
    link.execute("insert into session values ('ses_1', 1)")
    for number, message in enumerate(samples.opencode()["messages"]):
        info = json.dumps(message["info"])
        link.execute("insert into message values (?, 'ses_1', ?, ?)", (f"m{number}", number, info))
        for place, part in enumerate(message["parts"]):
            data = json.dumps(part)
            link.execute("insert into part values (?, ?, ?)", (f"p{place}", f"m{number}", data))
    link.commit()
    link.close()
    [exported], _ = read(samples.write("opencode", tmp_path))
    [stored], tally = read(path)
    assert not tally.problems
    assert stored.steps == exported.steps


def test_opencode_is_read_from_the_session_files_of_earlier_versions(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    document = samples.opencode()
    (storage / "session" / "p").mkdir(parents=True)
    (storage / "session" / "p" / "ses_1.json").write_text(json.dumps(document["info"]))
    for number, message in enumerate(document["messages"]):
        parts = storage / "part" / f"msg_{number}"
        parts.mkdir(parents=True)
        (storage / "message" / "ses_1").mkdir(parents=True, exist_ok=True)
        info = {**message["info"], "id": f"msg_{number}"}
        (storage / "message" / "ses_1" / f"msg_{number}.json").write_text(json.dumps(info))
        for place, part in enumerate(message["parts"]):
            (parts / f"prt_{place}.json").write_text(json.dumps(part))
    found = list(find([str(tmp_path)], RecordingTally()))
    assert [Path(path).name for path in found] == ["ses_1.json"]
    [run], _ = read(Path(found[0]))
    [exported], _ = read(samples.write("opencode", tmp_path))
    assert run.steps == exported.steps


def test_the_folder_of_a_conversation_is_one_run(tmp_path: Path) -> None:
    events = tmp_path / "abc" / "events"
    events.mkdir(parents=True)
    for number, event in enumerate(samples.openhands_sdk()):
        (events / f"event-{number:05}.json").write_text(json.dumps(event))
    [path] = find([str(tmp_path)], RecordingTally())
    [run], tally = read(Path(path))
    assert (run.id, len(run.steps), tally.problem_count) == ("abc", 5, 0)


LOG = """I look at the settings.
[Bash] cat there.txt: ok
Now the other file.
[Bash] cat missing.txt: failed
    cat: missing.txt: No such file or directory
exit code 1
[Edit] a.py: ok
[result] done
[end] stopped, exit code 0; the last lines:
[Bash] this is: ok
"""


def our_run(folder: Path, **changed: Any) -> Path:
    """A run of `switchgear run` with one iteration, of which the log tells three steps."""
    run = folder / "runs" / "r1"
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "0001.log").write_text(LOG)
    facts = run_facts.facts(1, error="no", ok=False, cost_micros=1003, **changed)
    (run / "iterations.jsonl").write_text(json.dumps(facts) + "\n")
    whole = {"schema": 1, "id": "r1", "task": samples.TASK, "options": {"model": "gpt-5"},
             "state": {}, "folder": "x", "circuit": "loop/1", "agent": "claude",
             "end": {"success": False, "exit_reason": "circuit_breaker"}}  # fmt: skip
    (run / "run.json").write_text(json.dumps(whole))
    return run


def test_our_own_run_has_the_steps_of_its_logs_and_the_facts_of_its_iterations(
    tmp_path: Path,
) -> None:
    our_run(tmp_path)
    [path] = find([str(tmp_path)], RecordingTally())
    [run], tally = read(Path(path))
    assert (run.id, run.solved, run.ended, tally.problem_count) == (
        "r1",
        False,
        "circuit_breaker",
        0,
    )
    assert [(step.tool, step.ok) for step in run.steps] == [
        ("Bash", True), ("Bash", False), ("Edit", True), ("iteration", False)
    ]  # fmt: skip
    assert [step.thought for step in run.steps[:2]] == [
        "I look at the settings.",
        "Now the other file.",
    ]
    assert run.steps[1].error == samples.NOT_FOUND
    assert [step.changed for step in run.steps] == [False, False, True, True]
    last = run.steps[-1].signal()
    assert (last.step, last.files_changed, last.tests_passing, last.output_chars) == (
        None,
        1,
        3,
        120,
    )


def test_the_duration_of_an_iteration_is_divided_over_its_steps(tmp_path: Path) -> None:
    [run], _ = read(our_run(tmp_path) / "run.json")
    costs = [step.usages[0].cost_micros for step in run.steps]
    assert costs == [250, 250, 250, 253]
    assert sum(step.usages[0].input_tokens for step in run.steps) == 100


def test_a_log_outside_the_run_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.log").write_text(LOG)
    [run], _ = read(our_run(tmp_path, log="../../secret.log") / "run.json")
    assert [step.tool for step in run.steps] == ["iteration"]


def test_unknown_lines_are_counted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    strange = [{"type": "new-kind", "sessionId": "s"}] * 2
    path.write_text(samples.as_lines([*samples.claude(), *strange]) + "no json\n\0\n")
    [run], tally = read(path)
    assert len(run.steps) == 5
    assert dict(tally.unknown) == {"claude: new-kind": 2, "claude: not a JSON object": 2}


def test_compressed_recordings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(gzip.compress(samples.FILES["plain"][1].encode()))
    runs, _ = read(path)
    assert [run.id for run in runs] == ["run-1", "run-2"]


def test_a_compressed_file_that_was_cut_off_is_a_problem_of_that_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(gzip.compress(samples.FILES["plain"][1].encode() * 50)[:-200])
    _, tally = read(path)
    assert tally.problem_count == 1


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    path = samples.write("claude", tmp_path)
    runs, tally = read(path, "codex")
    assert runs == []
    assert tally.unknown["codex: user"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\xd0\xffELF\x00", "is not a text in UTF-8"),
        (b'{"steps": ' + b"[" * 200_000, "is JSON that is nested too deeply"),
        (b"{", "is not valid JSON: Expecting property name"),
    ],
)
def test_a_file_that_is_not_a_recording_is_reported_in_plain_words(
    content: bytes, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)
    _, tally = read(path)
    [(_, found)] = tally.problems
    assert found.startswith(why)


def test_secrets_of_a_recording_are_redacted(tmp_path: Path) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuv"
    step = {"tool": "bash", "args": f"echo {secret}", "result": secret, "error": secret}
    path = tmp_path / "runs.jsonl"
    path.write_text(samples.as_lines([{"id": secret, "task": secret, "steps": [step]}]))
    [run], _ = read(path)
    assert secret not in repr(run)


def test_a_secret_where_a_long_text_was_cut_does_not_leave_a_recording(tmp_path: Path) -> None:
    key = "MIIEowIBAAKCAQEA" * 200
    result = f"{'x ' * 2000}-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\ndone"
    path = tmp_path / "runs.jsonl"
    path.write_text(samples.as_lines([{"steps": [{"tool": "bash", "result": result}]}]))
    [run], _ = read(path)
    assert "MIIE" not in repr(run)
    assert str(run.steps[0].result).endswith("[redacted]\ndone")


def test_cyclic_links_and_pipes_are_skipped(tmp_path: Path) -> None:
    samples.write("plain", tmp_path)
    (tmp_path / "circle").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    tally = RecordingTally()
    found = list(find([str(tmp_path)], tally))
    assert sorted(Path(path).name for path in found) == ["pipe.jsonl", "runs.jsonl"]
    _, tally = read(tmp_path / "pipe.jsonl")
    assert tally.problems == [(str(tmp_path / "pipe.jsonl"), "is not a regular file")]


def test_a_file_that_is_given_twice_is_read_once(tmp_path: Path) -> None:
    path = samples.write("plain", tmp_path)
    assert len(list(find([str(path), str(tmp_path), str(path)], RecordingTally()))) == 1


def test_deeply_nested_and_huge_numbers_are_unknown_lines(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.jsonl"
    deep, huge = '{"steps":' + "[" * 200_000, '{"steps": [' + "9" * 6000 + "]}"
    path.write_text(samples.FILES["plain"][1] + f"{deep}\n{huge}\n")
    runs, tally = read(path)
    assert len(runs) == 2
    assert tally.unknown["plain: not a JSON object"] == 2


def test_a_line_that_is_too_long_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear._agents.recordings.recording.MAX_LINE_BYTES", 5000)
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"steps": ["x" * 20_000]}) + "\n" + samples.FILES["plain"][1])
    runs, tally = read(path)
    assert [run.id for run in runs] == ["run-1", "run-2"]
    assert sum(tally.unknown.values()) == 1


def test_the_usual_places_list_only_agents_with_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert usual_places() == []
    folder = tmp_path / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    samples.write("claude", folder)
    assert usual_places() == [("claude", "~/.claude/projects", 1)]


def test_the_command_offers_every_format() -> None:
    from switchgear._cli.backtest import FORMATS as OFFERED  # noqa: PLC0415

    assert set(OFFERED) == set(FORMATS)


def test_the_stream_of_claude_is_read_like_its_transcript(tmp_path: Path) -> None:
    transcript, _ = read(samples.write("claude", tmp_path))
    stream = [
        {**{key: value for key, value in line.items() if key != "sessionId"}, "session_id": "s"}
        for line in samples.claude()[1:]
    ]
    result = {"type": "result", "subtype": "success", "session_id": "s", "total_cost_usd": 0.5}
    path = tmp_path / "stream.jsonl"
    path.write_text(samples.as_lines([{"type": "system", "session_id": "s"}, *stream, result]))
    [run], tally = read(path)
    assert run.steps == transcript[0].steps
    assert (run.ended, run.cost_micros, dict(tally.unknown)) == ("success", 500_000, {})


def test_early_rollouts_of_codex_have_no_wrapper_and_their_exit_codes_in_json(
    tmp_path: Path,
) -> None:
    told = json.dumps({"output": "no", "metadata": {"exit_code": 2, "duration_seconds": 0.5}})
    call = {"command": ["bash", "-lc", "make"]}
    lines: samples.Lines = [
        {"id": "old-1", "timestamp": samples.AT.format(0), "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Build."}]},
        {"type": "local_shell_call", "call_id": "c1", "action": call},
        {"type": "function_call_output", "call_id": "c1", "output": told},
    ]
    path = tmp_path / "rollout-old.jsonl"
    path.write_text(samples.as_lines(lines))
    [run], tally = read(path)
    assert (run.id, run.task, dict(tally.unknown)) == ("old-1", "Build.", {})
    [step] = run.steps
    assert (step.tool, step.ok, step.result, step.seconds) == ("shell", False, "no", 0.5)


def test_tool_calls_of_spans_are_read_from_messages_where_no_span_has_them(tmp_path: Path) -> None:
    call = {"type": "tool_call", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}
    answer = {"type": "tool_call_response", "id": "c1", "response": "a.txt"}

    def span(key: str, second: int, facts: dict[str, Any]) -> dict[str, Any]:
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "talk", **facts}
        at = f"2026-11-15T10:00:{second:02}+00:00"
        return {"name": "chat", "context": {"span_id": key, "trace_id": "t"}, "parent_id": None,
                "start_time": at, "end_time": at, "attributes": attributes, "status": {}}  # fmt: skip

    said = {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [call]}])}
    heard = {"gen_ai.input.messages": [{"role": "tool", "parts": [answer]}]}
    path = tmp_path / "spans.jsonl"
    path.write_text(samples.as_lines([span("b", 5, heard), span("a", 1, said)]))
    [run], tally = read(path)
    assert (run.id, list(tally.formats)) == ("talk", ["otel"])
    [step] = run.steps
    assert (step.tool, step.ok, step.result) == ("bash", True, "a.txt")
