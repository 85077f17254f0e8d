"""Whatever an agent sends, a hook answers: it never raises, and what it could not use is counted."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchgear.hooks.answering import answer
from switchgear.hooks.command import AGENTS
from switchgear.hooks.dialects import claude_code, codex, gemini, opencode, pi
from switchgear.stores.base import Store
from switchgear.stores.memory import MemoryStore

EVENTS = sorted({*claude_code.MOMENTS, *codex.MOMENTS, *gemini.MOMENTS})
PLUGIN_EVENTS = sorted({*pi.MOMENTS, *opencode._HOOKS})
texts = st.text(max_size=40) | st.sampled_from(
    ["Bash", "Exit code 1", "git push", "\ud800", "/", "~"]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
commands = st.dictionaries(
    st.sampled_from(["command", "file_path", "path", "url", "content", "input"]), values, max_size=3
)
events = st.fixed_dictionaries(
    {"hook_event_name": st.sampled_from(EVENTS) | values, "session_id": st.just("s1") | values},
    optional={
        "agent_id": values,
        "cwd": values,
        "duration_ms": values,
        "error": values,
        "is_interrupt": values,
        "last_assistant_message": values,
        "llm_response": values,
        "prompt": values,
        "tool_calls": values | st.lists(st.dictionaries(texts, values), max_size=3),
        "tool_input": commands | values,
        "tool_name": texts | values,
        "tool_response": values,
        "tool_use_id": texts | values,
        "transcript_path": values,
    },
)
plugin_events = st.fixed_dictionaries(
    {"k": st.sampled_from(PLUGIN_EVENTS) | values},
    optional={
        "event": st.fixed_dictionaries({"toolName": texts, "input": commands}) | values,
        "input": st.fixed_dictionaries({"tool": texts, "sessionID": texts}) | values,
        "output": values,
        "properties": values,
        "session": values,
        "type": values,
        "usage": values,
        "cost": values,
    },
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / ".git").mkdir()
    return folder


def undecided(store: Store) -> int:
    found = [each.circuit.totals.ignored for each in store.find("hooks/*")]
    return sum(found)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(agent=st.sampled_from(AGENTS), data=events | plugin_events | values)
def test_every_input_is_answered(project: Path, agent: str, data: Any) -> None:
    store = MemoryStore()
    raw = json.dumps(data).encode()
    reply = answer(agent, raw, str(project), lambda _: store)
    assert reply.code == 0
    assert reply.stdout == "" or isinstance(json.loads(reply.stdout), dict)
    said = "could not decide" in reply.stderr
    assert undecided(store) == said
    assert "Error:" not in reply.stderr, "what nobody thought of"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(agent=st.sampled_from(AGENTS), raw=st.binary(max_size=300))
def test_every_byte_is_answered(project: Path, agent: str, raw: bytes) -> None:
    store = MemoryStore()
    reply = answer(agent, raw, str(project), lambda _: store)
    assert reply.code == 0
    assert undecided(store) == ("could not decide" in reply.stderr)
