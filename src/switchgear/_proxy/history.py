"""The tool calls in a request, which repeats the conversation of the agent. Pure.

Each assistant turn becomes one step with all of its calls, as in hooks. A call without a result is not
finished, and is repeated in the next request.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from switchgear._agents import fields
from switchgear._agents.hook_protocol import HookFacts, Moment
from switchgear._core.types import Signal
from switchgear._hooks.inspect_call import call_signal, last_step
from switchgear._hooks.open_calls import merged_step
from switchgear._providers.traffic import ModelProtocol
from switchgear._text.redact import LONGEST_TEXT, redact_lines

_CALLS = {"function_call", "custom_tool_call", "local_shell_call", "computer_call", "mcp_call"}
_encode = json.JSONEncoder(default=str).encode
_MOST_CALLS = 64
_LONGEST = 20_000
"""Maximum number of characters of a result that are read."""


class FinishedCall(NamedTuple):
    """One finished tool call in a request; most of them were recorded with earlier requests."""

    id: str
    """The id from the model; empty if the protocol has none."""
    tool: str
    args: Any
    content: Any
    """The result in the format of the protocol."""
    is_error: Any
    """Whether the call failed, if the protocol reports it; `None`: unknown."""
    reply: Any
    """The text of the model with the call, in the format of the protocol."""

    @property
    def result(self) -> str:
        """The end of the result as text."""
        return _result(self.content)

    @property
    def facts(self) -> HookFacts:
        """The call in the form that hooks use."""
        result = self.result
        code = fields.exit_code(result)
        ok: bool | None = None
        if self.is_error is True:
            ok = False
        elif code is not None:
            ok = code == 0
        elif self.is_error is False or result:
            ok = True
        return HookFacts(
            *("proxy", "history", Moment.AFTER_TOOL, ""),
            tool=self.tool,
            args=self.args,
            result=result,
            thought=_text(self.reply) or None,
            ok=ok,
            error=result if ok is False else None,
        )


class ToolTurn(NamedTuple):
    """The finished calls of one reply of the model."""

    calls: tuple[FinishedCall, ...]

    @property
    def key(self) -> str:
        """A digest that identifies the turn, by the ids of its calls or by their content."""
        if self.has_ids:
            text = _encode([[call.id, call.tool, call.args] for call in self.calls])
        else:
            text = _encode([[call.tool, call.args, call.result] for call in self.calls])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    @property
    def has_ids(self) -> bool:
        """Whether every call has its own id."""
        return all(call.id for call in self.calls)

    def signal(self) -> Signal:
        """The turn as one step, for the progress detectors."""
        return merged_step(
            tuple(call_signal(call.facts, seconds=None, changed=None) for call in self.calls)
        )

    @property
    def line(self) -> str:
        """The last call in one short line."""
        return last_step(self.calls[-1].facts)


class PendingCall(NamedTuple):
    """A call of the model whose result is not known yet."""

    id: str
    tool: str
    args: Any


def turns_of(
    protocol: ModelProtocol,
    payload: Mapping[str, Any],
    earlier_calls: Mapping[str, PendingCall] | None = None,
) -> list[ToolTurn]:
    """The finished tool calls in a request, in order. Never raises, whatever the request contains.

    `earlier_calls` are the calls of earlier responses by id, because a request that continues a stored
    response contains only their results.
    """
    if protocol is ModelProtocol.OPENAI_CHAT:
        return list(_chat(payload.get("messages")))
    if protocol is ModelProtocol.OPENAI_RESPONSES:
        return list(_responses(payload.get("input"), earlier_calls or {}))
    if protocol.family == "google":
        return list(_gemini(payload.get("contents")))
    return list(_anthropic(payload.get("messages")))


def is_user_turn(protocol: ModelProtocol, payload: Mapping[str, Any]) -> bool:
    """Whether the request ends with a message of the user and not with results of tools."""
    name = {ModelProtocol.OPENAI_RESPONSES: "input"}.get(protocol, "messages")
    turns = payload.get("contents" if protocol.family == "google" else name)
    if isinstance(turns, str):
        return True
    last = turns[-1] if isinstance(turns, list) and turns else None
    if not isinstance(last, dict) or last.get("role") != "user":
        return False
    parts = last.get("parts" if protocol.family == "google" else "content")
    return not any(
        isinstance(part, dict) and (part.get("type") == "tool_result" or "functionResponse" in part)
        for part in (parts if isinstance(parts, list) else ())
    )


def _anthropic(messages: Any) -> Iterator[ToolTurn]:
    open_calls: list[PendingCall] = []
    thought: Any = ""
    for message in fields.objects(messages):
        blocks = fields.objects(message.get("content"))
        if message.get("role") == "assistant":
            open_calls = [
                PendingCall(_str(block.get("id")), _str(block.get("name")), block.get("input"))
                for block in blocks
                if block.get("type") in {"tool_use", "server_tool_use", "mcp_tool_use"}
            ]
            thought = message.get("content")
        elif open_calls:
            results = {
                _str(block.get("tool_use_id")): block
                for block in blocks
                if _str(block.get("type")).endswith("tool_result")
            }
            done = [
                FinishedCall(*call, found.get("content"), found.get("is_error"), thought)
                for call in open_calls
                if (found := results.get(call.id)) is not None
            ]
            if done:
                yield ToolTurn(tuple(done))
                open_calls = []


def _chat(messages: Any) -> Iterator[ToolTurn]:
    open_calls: list[PendingCall] = []
    done: list[FinishedCall] = []
    thought: Any = ""
    for message in fields.objects(messages):
        if message.get("role") == "tool":
            call_id = _str(message.get("tool_call_id"))
            found = next((call for call in open_calls if call.id == call_id), None)
            if found is not None:
                open_calls.remove(found)
                done.append(FinishedCall(*found, message.get("content"), None, thought))
            continue
        if done:
            yield ToolTurn(tuple(done))
            done = []
        if message.get("role") == "assistant":
            open_calls = [
                PendingCall(
                    _str(call.get("id")), _str(inner.get("name")), _args(inner.get("arguments"))
                )
                for call in fields.objects(message.get("tool_calls"))
                if isinstance(inner := call.get("function") or call.get("custom"), dict)
            ]
            thought = message.get("content")
    if done:
        yield ToolTurn(tuple(done))


def _responses(items: Any, earlier_calls: Mapping[str, PendingCall]) -> Iterator[ToolTurn]:
    known = dict(earlier_calls)
    done: list[FinishedCall] = []
    thought: Any = ""
    for item in fields.objects(items):
        kind = _str(item.get("type"))
        if kind.endswith("_output"):
            call = known.get(_str(item.get("call_id")))
            if call is not None:
                done.append(FinishedCall(*call, item.get("output"), None, thought))
            continue
        if done:  # items after results belong to the next reply
            yield ToolTurn(tuple(done))
            done, thought = [], ""
        if kind in _CALLS:
            call = pending_call(item)
            known[call.id] = call
        elif item.get("role") == "assistant":
            thought = item.get("content")
    if done:
        yield ToolTurn(tuple(done))


def pending_call(item: Mapping[str, Any]) -> PendingCall:
    """A call among the items of a Responses conversation."""
    args = item.get("arguments", item.get("input", item.get("action")))
    kind = _str(item.get("type")).removesuffix("_call")
    return PendingCall(_str(item.get("call_id")), _str(item.get("name")) or kind, _args(args))


def dump_response(session: str, calls: list[PendingCall]) -> str:
    """The session and the calls of a stored response, without secrets, for all workers."""
    texts = [[call.id, call.tool, _clip(_encode(call.args))] for call in calls[:_MOST_CALLS]]
    return _encode([session, texts])


def load_response(note: str) -> tuple[str, list[PendingCall]]:
    """The inverse of `dump_response`; an unreadable note gives empty values."""
    found = _args(note)
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[1], list):
        return "", []
    calls = [each for each in found[1] if isinstance(each, list) and len(each) == 3]
    return _str(found[0]), [PendingCall(_str(a), _str(b), _args(c)) for a, b, c in calls]


def _clip(text: str) -> str:
    """A short text without secrets; different texts stay different."""
    if len(text) <= LONGEST_TEXT:
        return redact_lines(text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return redact_lines(text[: LONGEST_TEXT - 20]) + f"… {digest}"


def _gemini(contents: Any) -> Iterator[ToolTurn]:
    open_calls: list[PendingCall] = []
    thought: Any = ""
    for content in fields.objects(contents):
        parts = fields.objects(content.get("parts"))
        if content.get("role") == "model":
            calls = [
                PendingCall(_str(call.get("id")), _str(call.get("name")), call.get("args"))
                for part in parts
                if isinstance(call := part.get("functionCall"), dict)
            ]
            if calls:
                open_calls = calls
                thought = parts
            continue
        done = []
        for part in parts:
            reply = part.get("functionResponse")
            if not isinstance(reply, dict):
                continue
            name, call_id = _str(reply.get("name")), _str(reply.get("id"))
            found = next(
                (each for each in open_calls if each.tool == name and call_id in {"", each.id}),
                None,
            )
            if found is not None:
                open_calls.remove(found)
                response = reply.get("response")
                failed = isinstance(response, dict) and bool(response.get("error"))
                done.append(FinishedCall(*found, response, True if failed else None, thought))
        if done:
            yield ToolTurn(tuple(done))


def _result(content: Any) -> str:
    if isinstance(content, str):
        text, code = fields.command_output(content)
        if code is None and text.startswith("{"):
            # Older versions of Codex write {"output": …, "metadata": …}.
            parsed = _args(text)
            if isinstance(parsed, dict) and isinstance(parsed.get("output"), str):
                text = parsed["output"]
                code = fields.at(parsed.get("metadata"), "exit_code")
        return (text if code is None else f"{text}\nExit code: {code}")[-_LONGEST:]
    if isinstance(content, dict):
        inner = content.get("output", content.get("error", content.get("content")))
        return _result(inner) if isinstance(inner, str) else json.dumps(content)[:_LONGEST]
    return _text(content)[-_LONGEST:]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = (part.get("text") for part in fields.objects(content) if not part.get("thought"))
    return "\n".join(part for part in parts if isinstance(part, str))


def _args(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _str(value: Any) -> str:
    return value[:500] if isinstance(value, str) else ""
