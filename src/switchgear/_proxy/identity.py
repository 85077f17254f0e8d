"""The session, agent and key of a request, by the most reliable source. Pure.

The sources of the session, in order: a name in the URL; the headers and fields that agents send; a digest
of the system prompt and the whole first turn, which every request of a conversation repeats.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import safe_id
from switchgear._providers.traffic import ModelProtocol
from switchgear._providers.upstreams import KEY_HEADERS

_AGENTS: tuple[tuple[str, str], ...] = (
    ("claude-cli", "claude"),
    ("claude-code", "claude"),
    ("codex", "codex"),
    ("gemini", "gemini"),
    ("opencode", "opencode"),
    ("qwen", "qwen"),
    ("goose", "goose"),
)
"""Agents by a part of their user agent; the first match applies."""
_SESSION_HEADERS = (
    *("x-switchgear-session", "x-claude-code-session-id", "thread-id", "session-id"),
    *("session_id", "conversation_id", "x-session-id", "x-session-affinity"),
)
_KEY_IN_URL = re.compile(r"[?&]key=([^&]+)")
_LONGEST = 2_000_000
"""Maximum characters of a first turn that are digested."""


class Identity(NamedTuple):
    """The sender of a request."""

    session: str
    """The session, safe as a part of a circuit's name; empty: unknown."""
    parent: str = ""
    """The session that started this session; empty: none or unknown."""
    agent: str = ""
    """`claude`, `codex`, `gemini`, `opencode`, `qwen`, `goose`, or empty."""
    key: str = ""
    """Twelve hexadecimal digits of the digest of the key; empty: the request has no key."""
    source: str = ""
    """The source of the session: `url`, the name of a header or field, `first turn`, or empty."""


def identify(
    named: str,
    headers: Mapping[str, str],
    path: str,
    protocol: ModelProtocol,
    payload: Mapping[str, Any],
) -> Identity:
    """The sender of a request; `named` is the session of its URL, `headers` have names in lower case."""
    agent = agent_of(headers.get("user-agent", ""), headers)
    session, source = _session(named, headers, protocol, payload)
    parent = headers.get("x-parent-session-id", "") or headers.get("x-openai-subagent-parent", "")
    parent = safe_id(parent) if parent.strip() else ""
    if not parent and source == "thread-id" and headers.get("session-id"):
        root = safe_id(headers["session-id"])
        parent = root if root != session else ""
    return Identity(session, parent, agent, key_digest(headers, path), source)


def agent_of(user_agent: str, headers: Mapping[str, str]) -> str:
    """The agent CLI, by its user agent or by a header that only this CLI sends."""
    lower = user_agent.lower()
    for mark, agent in _AGENTS:
        if mark in lower:
            return agent
    if "x-claude-code-session-id" in headers:
        return "claude"
    if "x-session-affinity" in headers:
        return "opencode"
    return ""


def key_digest(headers: Mapping[str, str], path: str = "") -> str:
    """Twelve digits of the digest of the key in a request; empty: there is no key."""
    key = next((headers[name] for name in KEY_HEADERS if headers.get(name)), "")
    if not key and (found := _KEY_IN_URL.search(path)) is not None:
        key = found[1]
    key = key.removeprefix("Bearer ").strip()
    return hashlib.sha256(b"switchgear key\0" + key.encode()).hexdigest()[:12] if key else ""


def _session(
    named: str, headers: Mapping[str, str], protocol: ModelProtocol, payload: Mapping[str, Any]
) -> tuple[str, str]:
    if named:
        return safe_id(named), "url"
    for name in _SESSION_HEADERS:
        if (value := headers.get(name, "").strip()) and len(value) <= 500:
            return safe_id(value), name
    found = _in_body(payload)
    if found[0]:
        return found
    if payload.get("previous_response_id"):
        return "", ""  # the request does not contain the first turn
    return _first_turn(protocol, payload), "first turn"


def _in_body(payload: Mapping[str, Any]) -> tuple[str, str]:
    metadata = payload.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if isinstance(user, str) and user:
        if user.startswith("{"):
            try:
                data = json.loads(user)
                inner = data.get("session_id") if isinstance(data, dict) else None
            except (ValueError, RecursionError):
                inner = None
            if isinstance(inner, str) and inner:
                return safe_id(inner), "metadata.user_id"
        elif "_session_" in user:  # user_<hash>_account_<id>_session_<id>
            return safe_id(user.rpartition("_session_")[2]), "metadata.user_id"
    conversation = payload.get(
        "conversation"
    )  # in the Responses API: the id, or an object with the id
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    if isinstance(conversation, str) and conversation.strip():
        return safe_id(conversation), "conversation"
    for name in ("prompt_cache_key", "session_id"):
        value = payload.get(name)
        if isinstance(value, str) and value.strip():
            return safe_id(value), name
    return "", ""


def _first_turn(protocol: ModelProtocol, payload: Mapping[str, Any]) -> str:
    """A digest of the system prompt and of everything before the first reply of the model."""
    if protocol.family == "google":
        first: list[Any] = [payload.get("systemInstruction", payload.get("system_instruction"))]
        turns: Any = payload.get("contents")
        first += _until(turns, lambda turn: turn.get("role") == "model")
    elif protocol is ModelProtocol.OPENAI_RESPONSES:
        first = [payload.get("instructions")]
        turns = payload.get("input")
        first += [turns] if isinstance(turns, str) else _until(turns, _is_reply)
    else:
        first = [payload.get("system")]
        turns = payload.get("messages")
        first += _until(turns, lambda turn: turn.get("role") in {"assistant", "tool"})
    if not any(first):
        return ""
    text = json.dumps(first)[:_LONGEST]
    return "t-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_reply(item: Mapping[str, Any]) -> bool:
    kind = item.get("type", "message")
    return item.get("role") == "assistant" or (kind != "message" and "role" not in item)


def _until(turns: Any, is_reply: Any) -> list[Any]:
    found: list[Any] = []
    for turn in turns if isinstance(turns, list) else ():
        if not isinstance(turn, dict) or is_reply(turn):
            break
        found.append(turn)
    return found
