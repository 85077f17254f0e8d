"""The pure parts: routes, identities, histories, lanes, refusals, hints, headers."""

import json
from typing import Any

import pytest

from switchgear._providers.traffic import ModelProtocol
from switchgear._providers.upstreams import DEFAULT_URLS, Upstream, upstream
from switchgear._proxy import lanes
from switchgear._proxy.headers import request_headers
from switchgear._proxy.hints import with_hint
from switchgear._proxy.history import (
    PendingCall,
    ToolTurn,
    dump_response,
    is_user_turn,
    load_response,
    turns_of,
)
from switchgear._proxy.identity import identify
from switchgear._proxy.refusals import ProxyRefusal, Reaction, answer
from switchgear._proxy.routes import BadRoute, route, upstream_url
from unit.proxy_stage import loop_history

NAMES = frozenset((*DEFAULT_URLS, "backup"))
CHAT, RESPONSES = ModelProtocol.OPENAI_CHAT, ModelProtocol.OPENAI_RESPONSES
ANTHROPIC, GEMINI = ModelProtocol.ANTHROPIC_MESSAGES, ModelProtocol.GEMINI_STREAM


# Routes


@pytest.mark.parametrize(
    ("target", "headers", "expected"),
    [
        (b"/v1/messages", [], ("anthropic", "/v1/messages", "")),
        (b"/v1/messages/count_tokens", [], ("anthropic", "/v1/messages/count_tokens", "")),
        (b"/v1/chat/completions", [], ("openai", "/v1/chat/completions", "")),
        (b"/v1/responses", [], ("openai", "/v1/responses", "")),
        (
            b"/v1beta/models/g:streamGenerateContent?alt=sse",
            [],
            ("google", "/v1beta/models/g:streamGenerateContent?alt=sse", ""),
        ),
        (b"/v1/models", [(b"X-Api-Key", b"k")], ("anthropic", "/v1/models", "")),
        (b"/v1beta/models", [], ("google", "/v1beta/models", "")),
        (b"/v1/models", [(b"Authorization", b"Bearer k")], ("openai", "/v1/models", "")),
        (b"/s/n-1/v1/messages", [], ("anthropic", "/v1/messages", "n-1")),
        (b"/backup/v1/messages", [], ("backup", "/v1/messages", "")),
        (b"/s/a/gemini/v1/x", [], ("google", "/v1/x", "a")),
        (b"/openai", [], ("openai", "/", "")),
    ],
)
def test_a_request_is_routed_by_its_path_and_headers(
    target: bytes, headers: list[tuple[bytes, bytes]], expected: tuple[str, str, str]
) -> None:
    found = route(target, headers, NAMES)
    assert (found.upstream, found.path, found.session) == expected


@pytest.mark.parametrize(
    "target", [b"*", b"x", b"/s//v1", b"/s/a", b"/s/a b/v1", b"/s/%41/v1", b"/t/", b"/a#b"]
)
def test_targets_that_could_mean_something_else_are_rejected(target: bytes) -> None:
    with pytest.raises(BadRoute):
        route(target, [], NAMES)


@pytest.mark.parametrize(
    ("url", "path", "expected"),
    [
        ("http://h", "/v1/x?y", "http://h/v1/x?y"),
        ("http://h/v1", "/v1/x", "http://h/v1/x"),
        ("http://h/api/v1", "/v1/x", "http://h/api/v1/x"),
        ("http://h/api", "/v1/x", "http://h/api/v1/x"),
        ("http://h/v1", "/v1beta/x", "http://h/v1/v1beta/x"),
        ("http://h.v1", "/v1/x", "http://h.v1/v1/x"),
    ],
)
def test_a_version_that_both_paths_have_is_not_repeated(url: str, path: str, expected: str) -> None:
    assert upstream_url(Upstream("a", "openai", url), path) == expected


@pytest.mark.parametrize(
    ("name", "url", "family"),
    [
        ("own", "http://h", ""),
        ("a/b", "http://h", "openai"),
        ("openai", "ftp://h", ""),
        ("openai", "http://user:pw@h", ""),
        ("openai", "http://h?key=1", ""),
        ("s", "http://h", "openai"),
    ],
)
def test_an_invalid_upstream_is_rejected(name: str, url: str, family: str) -> None:
    with pytest.raises(ValueError, match="upstream"):
        upstream(name, url, family)


# Identity


def who(
    headers: dict[str, str] | None = None,
    named: str = "",
    protocol: Any = ANTHROPIC,
    **payload: Any,
) -> Any:
    return identify(named, headers or {}, "/v1/x", protocol, payload)


def test_the_session_is_identified_by_the_most_reliable_source() -> None:
    user = json.dumps({"device_id": "d", "session_id": "in-body"})
    body: dict[str, Any] = {
        "metadata": {"user_id": user},
        "messages": [{"role": "user", "content": "x"}],
    }
    header = {"x-claude-code-session-id": "in-header", "user-agent": "claude-cli/2.1"}
    assert who(header, "in-url", **body).session == "in-url"
    assert who(header, **body).session == "in-header"
    assert who(header, **body).agent == "claude"
    assert who(**body).session == "in-body"
    assert who(metadata={"user_id": "user_1_account_2_session_abc"}).session == "abc"
    assert who(protocol=RESPONSES, prompt_cache_key="cache", input=[]).session == "cache"
    for conversation in ("conv_1", {"id": "conv_1"}):
        found = who(protocol=RESPONSES, conversation=conversation, prompt_cache_key="cache")
        assert (found.session, found.source) == ("conv_1", "conversation")
    assert who(messages=body["messages"]).source == "first turn"


def test_sub_agents_are_linked_to_their_parent() -> None:
    child = who({"x-session-id": "c", "x-parent-session-id": "p"})
    assert (child.session, child.parent) == ("c", "p")
    codex = who({"session-id": "root", "thread-id": "thread"})
    assert (codex.session, codex.parent) == ("thread", "root")
    assert who({"session-id": "root", "thread-id": "root"}).parent == ""


def test_the_first_turn_is_the_same_in_every_request_of_a_conversation_and_no_other() -> None:
    start = [{"role": "user", "content": "a" * 5000 + "1"}]
    longer = [*start, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    other = [{"role": "user", "content": "a" * 5000 + "2"}]
    first = who(messages=start, system="s").session
    assert first == who(messages=longer, system="s").session
    assert first != who(messages=other, system="s").session
    assert first != who(messages=start, system="t").session
    contents = [{"role": "user", "parts": [{"text": "x"}]}]
    more = [*contents, {"role": "model", "parts": [{"text": "y"}]}]
    assert (
        who(protocol=GEMINI, contents=contents).session
        == who(protocol=GEMINI, contents=more).session
    )


def test_keys_are_distinguished_by_their_digests_wherever_they_are() -> None:
    keys = {
        who({"x-api-key": "k1"}).key,
        who({"authorization": "Bearer k1"}).key,
        who({"x-goog-api-key": "k1"}).key,
        identify("", {}, "/v1beta/x?alt=sse&key=k1", GEMINI, {}).key,
    }
    assert len(keys) == 1
    assert keys != {who({"x-api-key": "k2"}).key}
    assert who().key == ""


# Histories


CHAT_LOOP = [
    {"role": "user", "content": "fix"},
    {
        "role": "assistant",
        "content": "I run it",
        "tool_calls": [
            {"id": "c1", "function": {"name": "shell", "arguments": '{"cmd": "make"}'}},
            {"id": "c2", "function": {"name": "shell", "arguments": '{"cmd": "ls"}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "c2", "content": "a b"},
    {"role": "tool", "tool_call_id": "c1", "content": "oh no\nExit code: 2"},
]
RESPONSES_LOOP = [
    {"role": "user", "content": "fix"},
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"cmd": "make"}'},
    {
        "type": "function_call_output",
        "call_id": "c1",
        "output": '{"output": "oh no", "metadata": {"exit_code": 2}}',
    },
    {"type": "custom_tool_call", "call_id": "c2", "name": "exec", "input": "ls"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "a b"},
]
GEMINI_LOOP = [
    {"role": "user", "parts": [{"text": "fix"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "shell", "args": {"cmd": "make"}}}]},
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "shell", "response": {"output": "oh no\nExit Code: 2"}}}
        ],
    },
]


def test_every_protocol_has_the_same_steps() -> None:
    anthropic = turns_of(ANTHROPIC, {"messages": loop_history(1, "oh no\nExit code: 2")})
    chat = turns_of(CHAT, {"messages": CHAT_LOOP})
    responses = turns_of(RESPONSES, {"input": RESPONSES_LOOP})
    gemini = turns_of(GEMINI, {"contents": GEMINI_LOOP})
    assert [len(each) for each in (anthropic, chat, responses, gemini)] == [1, 1, 2, 1]
    assert [call.tool for call in chat[0].calls] == ["shell", "shell"]
    for turn in (anthropic[0], chat[0], responses[0], gemini[0]):
        signal = turn.signal()
        assert signal.ok is False
        assert signal.error is not None
        assert "exit code 2" in signal.error
    assert chat[0].signal().step is not None
    assert responses[1].signal().ok is True


def turn_with(output: str) -> ToolTurn:
    result = {"type": "function_call_output", "call_id": "c1", "output": output}
    return turns_of(RESPONSES, {"input": [RESPONSES_LOOP[2], result]})[0]


@pytest.mark.parametrize("code", [0, 1])
def test_the_id_and_the_duration_that_codex_adds_to_a_result_are_left_out(code: int) -> None:
    def result_of(chunk: str, seconds: float) -> str:
        header = f"Chunk ID: {chunk}\nWall time: {seconds} seconds\nProcess exited with code {code}"
        output = f"{header}\nOriginal token count: 16\nOutput:\nno such file\n"
        turn = turn_with(output)
        assert turn.signal().ok is (code == 0)
        return turn.calls[0].result

    assert result_of("8b0e82", 0.5581) == result_of("cb45b7", 0.5409)
    assert result_of("8b0e82", 0.5581).startswith("no such file")


def test_an_output_that_mentions_an_output_is_kept_whole() -> None:
    text = "Example:\nOutput:\n3"
    assert turn_with(text).calls[0].result == text


def test_calls_without_a_result_are_not_steps_yet() -> None:
    assert turns_of(ANTHROPIC, {"messages": loop_history(2)[:-1]}) == turns_of(
        ANTHROPIC, {"messages": loop_history(1)}
    )
    assert turns_of(CHAT, {"messages": CHAT_LOOP[:2]}) == []


def test_results_alone_find_the_calls_of_the_response_they_continue() -> None:
    made = {"c1": PendingCall("c1", "shell", {"cmd": "make"})}
    found = turns_of(RESPONSES, {"input": [RESPONSES_LOOP[3]]}, made)
    assert found[0].calls[0].args == {"cmd": "make"}
    assert turns_of(RESPONSES, {"input": [RESPONSES_LOOP[3]]}) == []


def test_the_calls_of_a_stored_response_survive_storage_without_secrets() -> None:
    long = {"text": "é" * 10_000}
    calls = [PendingCall("c1", "shell", {"cmd": "make"}), PendingCall("c2", "write", long)]
    session, found = load_response(dump_response("s", calls))
    assert (session, found[0]) == ("s", calls[0])
    assert len(found[1].args) < 10_000
    other = dump_response("s", [calls[1]._replace(args={"text": "é" * 10_001})])
    assert load_response(other)[1][0].args != found[1].args
    secret = dump_response(
        "s", [PendingCall("c", "shell", "curl -H 'api-key: sk-ant-abcdefghijklmn'")]
    )
    assert "abcdefghijklmn" not in secret
    for junk in ("", "s", "{}", "[1]", '["s", 5]', '["s", [[1, 2, 3], 4]]'):
        load_response(junk)


def test_the_author_of_the_last_message_is_known() -> None:
    assert not is_user_turn(ANTHROPIC, {"messages": loop_history(1)})
    assert is_user_turn(
        ANTHROPIC, {"messages": [*loop_history(1), {"role": "user", "content": "stop"}]}
    )
    assert not is_user_turn(CHAT, {"messages": CHAT_LOOP})
    assert is_user_turn(RESPONSES, {"input": "hello"})
    assert not is_user_turn(RESPONSES, {"input": RESPONSES_LOOP})
    assert not is_user_turn(GEMINI, {"contents": GEMINI_LOOP})


@pytest.mark.parametrize(
    "junk",
    [None, 5, "x", [1], [None], [{}], [{"role": "assistant", "content": 7, "tool_calls": 9}]],
)
def test_invalid_content_has_no_steps(junk: Any) -> None:
    for protocol in ModelProtocol:
        assert turns_of(protocol, {"messages": junk, "input": junk, "contents": junk}) == []


# Lanes


def feed(known: lanes.Lanes, keys: str, *, ids: bool) -> tuple[str, str, lanes.Lanes]:
    """The new turns, the lane, and the memory after them."""
    found = lanes.new_turns(known, list(keys), have_ids=ids)
    new = "".join(key for index, key in enumerate(keys) if found.is_new(index))
    return new, found.lane, found.lanes


@pytest.mark.parametrize("ids", [True, False])
def test_a_history_that_grows_adds_its_end(ids: bool) -> None:
    _, _, known = feed({}, "abc", ids=ids)
    assert feed(known, "abcde", ids=ids)[:2] == ("de", "")
    assert feed(known, "abc", ids=ids)[:2] == ("", "")


@pytest.mark.parametrize("ids", [True, False])
def test_compaction_adds_only_what_came_after(ids: bool) -> None:
    _, _, known = feed({}, "abcd", ids=ids)
    assert feed(known, "cde", ids=ids)[0] == "e"


@pytest.mark.parametrize("ids", [True, False])
def test_an_edited_history_adds_what_differs(ids: bool) -> None:
    _, _, known = feed({}, "abcd", ids=ids)
    assert feed(known, "abx", ids=ids)[0] == "x"


def test_an_edited_history_that_returns_adds_nothing() -> None:
    _, _, known = feed({}, "abcd", ids=True)
    _, _, known = feed(known, "abx", ids=True)
    assert feed(known, "abcd", ids=True)[0] == ""


def test_equal_calls_without_ids_are_counted_each_time() -> None:
    known: lanes.Lanes = {}
    total = ""
    for count in range(1, 8):
        new, _, known = feed(known, "a" * count, ids=False)
        total += new
    assert total == "a" * 7


def test_conversations_that_share_an_id_are_separate_lanes() -> None:
    known: lanes.Lanes = {}
    counted = ""
    for count in range(1, 5):
        for history in ("abcdef"[:count], "uvwxyz"[:count]):
            new, lane, known = feed(known, history, ids=True)
            counted += new
            assert lane == ("" if history[0] == "a" else "u")
    assert sorted(counted) == sorted("abcduvwx")


def test_lanes_are_bounded_and_survive_storage() -> None:
    known: lanes.Lanes = {}
    for number in range(50):
        keys = [f"{number}-{index}" for index in range(400)]
        known = lanes.new_turns(known, keys, have_ids=True).lanes
    assert len(known) <= lanes.MOST_LANES
    assert all(len(lane.keys) <= lanes.MOST_TURNS for lane in known.values())
    assert lanes.load(json.loads(json.dumps(lanes.dump(known)))) == known
    assert lanes.load("junk") == {}


def test_a_long_history_without_ids_is_still_aligned() -> None:
    keys = [f"k{index}" for index in range(500)]
    known = lanes.new_turns({}, keys, have_ids=False).lanes
    found = lanes.new_turns(known, [*keys, "new"], have_ids=False)
    assert found.first == 500


# Refusals


WAIT = ProxyRefusal(Reaction.WAIT, "Switchgear: wait", "circuit", 41.2)
STOP = ProxyRefusal(Reaction.STOP, "Switchgear: stop", "loop")


@pytest.mark.parametrize("protocol", list(ModelProtocol))
def test_waits_have_a_status_and_a_time_that_clients_use(protocol: ModelProtocol) -> None:
    made = answer(WAIT, protocol, "")
    headers = dict(made.headers)
    assert made.status == (529 if protocol.family == "anthropic" else 429)
    assert headers[b"retry-after"] == b"42"
    assert int(headers[b"content-length"]) == len(made.body)
    error = json.loads(made.body)["error"]
    assert error["message"] == "Switchgear: wait"
    if protocol.family == "google":
        assert error["details"][0]["retryDelay"] == "42s"


@pytest.mark.parametrize(
    ("agent", "protocol", "status"),
    [
        ("claude", ANTHROPIC, 402),
        ("", ANTHROPIC, 400),
        ("codex", RESPONSES, 400),
        ("gemini", GEMINI, 400),
        ("opencode", CHAT, 400),
        ("qwen", CHAT, 400),
    ],
)
def test_stops_end_the_turn_of_each_agent(agent: str, protocol: ModelProtocol, status: int) -> None:
    made = answer(STOP, protocol, agent)
    assert made.status == status
    assert dict(made.headers)[b"x-should-retry"] == b"false"
    assert b"retry-after" not in dict(made.headers)


# Hints and headers


@pytest.mark.parametrize(
    ("protocol", "payload"),
    [
        (ANTHROPIC, {"messages": loop_history(1)}),
        (CHAT, {"messages": CHAT_LOOP}),
        (RESPONSES, {"input": RESPONSES_LOOP}),
        (GEMINI, {"contents": GEMINI_LOOP}),
    ],
)
def test_a_hint_is_added_at_the_end_and_nothing_else_changes(
    protocol: ModelProtocol, payload: dict[str, Any]
) -> None:
    before = json.dumps(payload)
    made = with_hint(protocol, payload, "the same error 4 times")
    assert made is not None
    assert json.dumps(payload) == before
    assert made.count(b"the same error 4 times") == 1
    [name] = payload
    assert json.loads(made)[name][:-1] == payload[name][: len(json.loads(made)[name]) - 1]
    assert with_hint(protocol, {}, "x") is None


def test_a_key_of_the_upstream_replaces_the_clients() -> None:
    client = [
        (b"X-Api-Key", b"mine"),
        (b"Authorization", b"Bearer mine"),
        (b"Anthropic-Version", b"1"),
    ]
    made = request_headers(client, Upstream("a", "anthropic", "http://h", "theirs"))
    assert made == [(b"Anthropic-Version", b"1"), (b"x-api-key", b"theirs")]
    assert request_headers(client, Upstream("o", "openai", "http://h", "k"))[-1] == (
        b"authorization",
        b"Bearer k",
    )
