"""For any output of an agent, its reader continues: no exception, bounded memory, no secrets."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchgear._agents.base import StreamReader
from switchgear._agents.events import (
    StreamEvent,
    Usage,
    error_from_text,
    looks_failed,
    recognised_error,
)
from switchgear._agents.process import LineBuffer
from switchgear._agents.registry import AGENTS, agent_named, agent_of_command
from switchgear._text.agent_text import clean, final_question, summarise

STREAMS = sorted((Path(__file__).parents[1] / "streams").glob("*.jsonl"))
LINES = [line for file in STREAMS for line in file.read_text().splitlines()]
OBJECTS = [json.loads(line) for line in LINES if line.startswith("{")]
names = st.sampled_from(sorted(AGENTS))
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["1e999", "\x1b[2J", "sk-proj-abcdefghijklmnop", "?"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def mutated(value: Any, draw: st.DrawFn) -> Any:
    """A recorded object with some of its parts replaced by anything or left out."""
    if draw(st.integers(0, 12)) == 0:
        return draw(values)
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if draw(st.integers(0, 15))}
        return {key: mutated(part, draw) for key, part in kept.items()}
    if isinstance(value, list):
        return [mutated(part, draw) for part in value[:4]]
    return value


@st.composite
def broken_objects(draw: st.DrawFn) -> bytes:
    return json.dumps(mutated(draw(st.sampled_from(OBJECTS)), draw)).encode()


def survives(reader: StreamReader, lines: list[bytes]) -> list[StreamEvent]:
    events = [event for line in lines for event in reader.feed(line)]
    events += [event for line in lines[:3] for event in reader.feed(line, stderr=True)]
    events += reader.close(0)
    for event in events:
        shown = [part for part in event if isinstance(part, str)]
        assert all(len(text) <= 4_100 for text in shown)
        assert not any(ord(sign) < 32 and sign != "\n" for text in shown for sign in text)
        if isinstance(event, Usage):
            assert all(part >= 0 and part == int(part) for part in event[1:5])
            assert event.cost_micros is None or event.cost_micros >= 0
    assert reader.lines == len(lines) + len(lines[:3])
    return events


@given(names, st.lists(st.binary(max_size=200), max_size=8))
@example("claude", [b'{"type":"result","total_cost_usd":NaN,"usage":{"input_tokens":1e999}}'])
@example("claude", [b"[" * 100_000])
@example("codex", [b'{"type":"turn.completed","usage":{"input_tokens":' + b"9" * 5_000 + b"}}"])
@example("aider", [b"Tokens: ... sent, ,,, received."])
@example("mini", [b"mini-swe-agent (step 1, $...):"])
def test_random_bytes_never_stop_a_reader(name: str, lines: list[bytes]) -> None:
    survives(agent_named(name).reader(), lines)


@given(names, st.lists(broken_objects(), max_size=6))
def test_recorded_lines_with_broken_parts_never_stop_a_reader(
    name: str, lines: list[bytes]
) -> None:
    survives(agent_named(name).reader(), lines)


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_the_stream_of_another_agent_is_counted_as_unknown_lines(name: str) -> None:
    reader = agent_named(name).reader()
    survives(reader, [line.encode() for line in LINES])


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "qwen", "opencode", "pi"])
def test_unknown_lines_are_counted_with_their_length(name: str) -> None:
    reader = agent_named(name).reader()
    lines = [b"not json", b'{"type":"from the future"}', b"[1,2]", b'"text"']
    assert [reader.feed(line) for line in lines] == [[], [], [], []]
    assert reader.unknown_lines == 4
    assert reader.output_chars == sum(len(line) for line in lines)


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 30))
def test_lines_are_the_same_however_the_bytes_arrive(chunks: list[bytes], longest: int) -> None:
    lines = LineBuffer(longest)
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    found += lines.close()
    whole = b"".join(chunks).split(b"\n")
    expected = [line[:longest] for line in (whole if whole[-1] else whole[:-1])]
    assert found == expected


@given(st.text(max_size=300))
def test_texts_are_bounded_and_without_control_characters(text: str) -> None:
    for made in (clean(text, 50), clean(text * 30), summarise(text), summarise({"command": text})):
        assert len(made) <= 4_000
        assert not any(ord(sign) < 32 and sign != "\n" for sign in made)
    assert len(clean(text * 30, 50)) <= 50
    final_question(text)


@given(st.text(max_size=300))
def test_complaints_are_made_of_any_text(text: str) -> None:
    assert error_from_text(text).text is not None
    recognised_error(text)
    looks_failed(text)


@pytest.mark.parametrize(
    "unit", ["a", "1", " ", "Error: ", "\x1b[", "status 5", "sk-", "\n", "w" * 61]
)
def test_megabytes_of_one_thing_are_read_in_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    began_s = time.process_time()
    clean(text)
    error_from_text(text)
    looks_failed(text)
    for agent in map(agent_named, AGENTS):
        agent.reader().feed(text.replace("\n", " ").encode())
    assert time.process_time() - began_s < 30.0  # hundreds of times what it takes


def test_readers_redact_secrets() -> None:
    secret = "sk-proj-abcdefghijklmnop"
    line = json.dumps({"type": "tool", "name": secret, "arguments": {"command": f"use {secret}"},
                       "ok": False, "error": f"bad {secret}", "files": [secret]})  # fmt: skip
    reader = agent_named("demo").reader()
    events = [*reader.feed(line.encode()), *reader.feed(f"plain {secret}".encode())]
    assert len(events) == 3
    assert secret not in str(events)


@pytest.mark.parametrize(
    ("text", "kind", "retry_after_s"),
    [
        ("429 Too Many Requests; retry after 20 s", "rate_limit", 20.0),
        ("Rate limit reached. Please try again in 2.5s.", "rate_limit", 2.5),
        ('"retryDelay": "37s" RESOURCE_EXHAUSTED', "rate_limit", 37.0),
        ("rate limit: try again in 5 min", "rate_limit", 300.0),
        ("You exceeded your current quota, 429", "quota", None),
        ("unexpected status 529: Overloaded", "overloaded", None),
        ("unexpected status 500 Internal Server Error", "server", None),
        ("connect ECONNREFUSED 127.0.0.1:443", "connection", None),
        ("401 invalid x-api-key", "auth", None),
        ("prompt is too long: 210000 tokens", "context", None),
        ("Reached maximum number of turns (3)", "limit", None),
        ("Loop detected, stopping execution", "loop", None),
        ("segmentation fault", "other", None),
    ],
)
def test_errors_of_providers_are_distinguished(
    text: str, kind: str, retry_after_s: float | None
) -> None:
    found = error_from_text(text)
    assert (found.kind, found.retry_after_s) == (kind, retry_after_s)
    known = recognised_error(text)
    assert (known.kind if known else "other") == kind


@pytest.mark.parametrize(
    "text",
    ["Ripgrep is not available.", "warning: 401 files changed", "listening on port 5000", ""],
)
def test_ordinary_output_on_stderr_is_not_an_error(text: str) -> None:
    assert agent_named("gemini").reader().feed(text.encode(), stderr=True) == []


def test_a_known_program_that_prints_json_is_read_as_that_agent() -> None:
    line = next(line for line in LINES if '"turn.failed"' in line).encode()
    known = agent_of_command("codex exec --json {prompt}").reader()
    assert len(known.feed(line)) == 2
    plain = agent_of_command("codex exec {prompt}").reader()
    assert len(plain.feed(line)) == 1
