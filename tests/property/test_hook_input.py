"""Whatever an agent sends, a hook answers: it never raises, and what it could not use is counted."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchgear._agents.claude_code import hooks
from switchgear._agents.codex import hooks as codex
from switchgear._agents.gemini import hooks as gemini
from switchgear._agents.hook_protocol import Reply
from switchgear._agents.opencode import hooks as opencode
from switchgear._agents.pi import hooks as pi
from switchgear._agents.registry import dialect_of
from switchgear._core.errors import StoreUnavailable
from switchgear._hooks import handler
from switchgear._hooks.command import AGENTS
from switchgear._hooks.handler import answer
from switchgear._stores.base import Store
from switchgear._stores.memory import MemoryStore

EVENTS = sorted({*hooks.MOMENTS, *codex.MOMENTS, *gemini.MOMENTS})
PLUGIN_EVENTS = sorted({*pi.MOMENTS, *opencode.MOMENTS})
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


def refused(agent: str, reply: Reply) -> bool:
    """Whether the agent that gets this reply before a tool does not call it."""
    if agent in {"opencode", "pi"}:
        return bool(json.loads(reply.stdout)["action"] in {"deny", "stop"})
    if reply.code == 2:
        return True
    told = json.loads(reply.stdout or "{}")
    if agent == "gemini":
        return bool(told.get("decision") == "deny")
    return bool(told.get("hookSpecificOutput", {}).get("permissionDecision") == "deny")


def surely_not_before_a_tool(agent: str, data: Any) -> bool:
    return dialect_of(agent).is_surely_not_before_a_tool(data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(agent=st.sampled_from(AGENTS), data=events | plugin_events | values)
def test_every_input_is_answered(project: Path, agent: str, data: Any) -> None:
    store = MemoryStore()
    raw = json.dumps(data).encode()
    reply = answer(agent, raw, str(project), lambda _: store)
    assert reply.code in {0, 2}
    assert reply.stdout == "" or isinstance(json.loads(reply.stdout), dict)
    unread = "cannot be checked" in reply.stderr or "cannot check" in reply.stderr
    assert undecided(store) == (unread or "could not decide" in reply.stderr)
    assert not unread or refused(agent, reply)
    assert not unread or not surely_not_before_a_tool(agent, data)
    assert "Error:" not in reply.stderr, "an exception that nothing provides for"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(agent=st.sampled_from(AGENTS), raw=st.binary(max_size=300))
def test_bytes_that_are_not_an_event_are_refused(project: Path, agent: str, raw: bytes) -> None:
    store = MemoryStore()
    reply = answer(agent, raw, str(project), lambda _: store)
    assert refused(agent, reply)
    assert undecided(store) == 1


# A forbidden call stays refused, whatever else is done to the input that carries it

FORBIDDEN = "rm -rf /etc"


def forbidden(agent: str) -> dict[str, Any]:
    """A call that a rule forbids, as the agent sends it."""
    if agent == "opencode":
        call = {"tool": "bash", "sessionID": "s1", "callID": "c1"}
        made = {"args": {"command": FORBIDDEN}}
        return {"k": "tool.execute.before", "input": call, "output": made, "cwd": "/srv/shop"}
    if agent == "pi":
        event = {"toolName": "bash", "toolCallId": "c1", "input": {"command": FORBIDDEN}}
        return {"k": "tool_call", "event": event, "session": "s1", "cwd": "/srv/shop"}
    gemini = agent == "gemini"
    return {
        "session_id": "01a1ddf3-4b8c-7c80-b2ab-5c43b34b74b8",
        "transcript_path": "/home/user/.agent/talk.jsonl",
        "cwd": "/srv/shop",
        "permission_mode": "bypassPermissions",
        "hook_event_name": "BeforeTool" if gemini else "PreToolUse",
        "tool_name": "run_shell_command" if agent in {"gemini", "qwen"} else "Bash",
        "tool_input": {"command": FORBIDDEN, "description": "tidy up"},
        "tool_use_id": "toolu_01",
    }


def mutate(draw: Any, agent: str) -> bytes:
    """The same call in another encoding: further fields, other escapes, order and white space."""
    data = forbidden(agent)
    known = {
        "agent_id",
        "agent_type",
        "agent_transcript_path",
        "rootID",
        "cost",
        "usage",
        "directory",
    }
    extra = draw(st.dictionaries(texts | st.sampled_from(sorted(known)), values, max_size=4))
    data = {**{key: value for key, value in extra.items() if key not in data}, **data}
    given = next(
        part
        for part in (
            data.get("tool_input"),
            data.get("event", {}).get("input"),
            data.get("output", {}).get("args"),
        )
        if isinstance(part, dict)
    )
    for name, value in draw(st.dictionaries(texts, values, max_size=3)).items():
        given.setdefault(name, value)
    order = draw(st.permutations(list(data)))
    text = json.dumps(
        {key: data[key] for key in order},
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, 1])),
    )
    if draw(st.booleans()):
        text = text.replace("rm", "\\u0072m")
    around = st.text(alphabet=" \t\r\n", max_size=4)
    text = f"{draw(around)}{text}{draw(around)}"
    mark: bytes = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return mark + text.encode(errors="surrogatepass")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(agent=st.sampled_from(AGENTS), data=st.data())
def test_a_forbidden_call_is_refused_in_any_encoding(project: Path, agent: str, data: Any) -> None:
    raw = mutate(data.draw, agent)
    store = MemoryStore()
    assert refused(agent, answer(agent, raw, str(project), lambda _: store)), raw


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    agent=st.sampled_from(AGENTS),
    cuts=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 9), st.binary(max_size=3)), max_size=3
    ),
)
def test_damaged_bytes_never_admit_the_call(
    project: Path, agent: str, cuts: list[tuple[int, int, bytes]]
) -> None:
    raw = json.dumps(forbidden(agent)).encode()
    for start, length, inserted in cuts:
        raw = raw[:start] + inserted + raw[start + length :]
    store = MemoryStore()
    reply = answer(agent, raw, str(project), lambda _: store)
    try:
        still = FORBIDDEN in json.dumps(json.loads(raw))
    except ValueError:
        still = True
    if still and not surely_not_before_a_tool(agent, outcome_of(raw)):
        assert refused(agent, reply), raw


def outcome_of(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


class Broken:
    """A store that fails with one kind of store error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        raise self.error


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("sqlite:///x", "it is locked", "wait"),
        OSError(28, "No space left on device"),
        MemoryError(),
        RecursionError(),
        TypeError("unexpected keyword argument 'typed'"),
        KeyError("x"),
    ],
    ids=repr,
)
def test_no_failure_of_the_store_admits_a_forbidden_call(
    project: Path, agent: str, error: Exception
) -> None:
    store: Any = Broken(error)
    reply = answer(agent, json.dumps(forbidden(agent)).encode(), str(project), lambda _: store)
    assert refused(agent, reply)
    assert "deletes/outside" in reply.stdout


@pytest.mark.parametrize(
    "error", [TypeError("x"), OSError(40, "loop"), MemoryError(), KeyError("x")], ids=repr
)
def test_no_failure_to_open_the_store_admits_a_forbidden_call(
    project: Path, error: Exception
) -> None:
    def open_store(_: Any) -> Any:
        raise error

    for agent in AGENTS:
        reply = answer(agent, json.dumps(forbidden(agent)).encode(), str(project), open_store)
        assert refused(agent, reply)


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "x"),
        OSError(40, "loop"),
        ValueError("embedded null byte"),
        RecursionError(),
        MemoryError(),
    ],
    ids=repr,
)
def test_no_failure_of_the_analysis_admits_any_call(
    project: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(handler, "inspect_tool_call", look)
    store = MemoryStore()
    for agent in AGENTS:
        harmless = json.dumps(forbidden(agent)).replace(FORBIDDEN, "git status").encode()
        reply = answer(agent, harmless, str(project), lambda _: store)
        assert refused(agent, reply)
        assert "its effects cannot be determined" in reply.stdout
