"""The parts of the four model APIs that a scripted model needs.

Reading: how many answers a request already has, and which tools it offers. Writing: one answer, as
a JSON body or as the events of a stream.
"""

import itertools
import json
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from e2e.agents.scripts_of_models import Turn

Body = dict[str, Any]
Event = tuple[str | None, Body | str]
SHELLS = (
    *("Bash", "bash", "exec_command", "shell_command", "shell", "local_shell"),
    *("run_shell_command", "terminal", "execute_bash"),
)


class Tool(NamedTuple):
    name: str
    schema: Body
    kind: str


class Call(NamedTuple):
    name: str
    arguments: Any
    kind: str


def api_of(path: str) -> str | None:
    for ending, api in (
        ("/messages", "anthropic"),
        ("/chat/completions", "chat"),
        ("/responses", "responses"),
        ("enerateContent", "gemini"),
    ):
        if path.endswith(ending):
            return api
    return None


def tools_of(api: str, body: Body) -> dict[str, Tool]:
    found = []
    for tool in body.get("tools") or []:
        if api == "anthropic":
            found.append(Tool(str(tool.get("name")), tool.get("input_schema") or {}, "function"))
        elif api == "chat":
            function = tool.get("function") or {}
            found.append(
                Tool(str(function.get("name")), function.get("parameters") or {}, "function")
            )
        elif api == "gemini":
            for function in tool.get("functionDeclarations") or []:
                schema = function.get("parametersJsonSchema") or function.get("parameters") or {}
                found.append(Tool(function["name"], schema, "function"))
        elif tool.get("type") == "namespace":
            found += [
                Tool(part["name"], part.get("parameters") or {}, "function")
                for part in tool.get("tools") or []
            ]
        else:
            name = tool.get("name") or tool.get("type")
            found.append(Tool(name, tool.get("parameters") or {}, tool.get("type")))
    return {tool.name: tool for tool in found}


def answers_in(api: str, body: Body) -> int:
    if api == "gemini":
        return sum(part.get("role") == "model" for part in body.get("contents") or [])
    if api != "responses":
        return sum(part.get("role") == "assistant" for part in body.get("messages") or [])
    answers, in_calls = 0, False
    items = body.get("input")
    for item in items if isinstance(items, list) else []:
        kind = item.get("type", "message")
        is_call = kind in {"function_call", "custom_tool_call", "local_shell_call"}
        spoke = kind == "message" and item.get("role") == "assistant"
        answers += (is_call and not in_calls) or spoke
        in_calls = is_call
    return answers


def call_shell(tools: dict[str, Tool], command: str) -> Call:
    for name in SHELLS:
        if name not in tools:
            continue
        tool = tools[name]
        if tool.kind == "local_shell":
            return Call(name, {"command": ["bash", "-lc", command]}, tool.kind)
        properties = tool.schema.get("properties") or {}
        key = "cmd" if "cmd" in properties else "command"
        as_list = str((properties.get(key) or {}).get("type")).lower() == "array"
        value: Any = ["bash", "-lc", command] if as_list else command
        return Call(name, fill({key: value}, tool.schema), tool.kind)
    if "exec" in tools:  # Codex's code mode: a piece of JavaScript
        script = (
            f"const r = await tools.exec_command({{cmd: {json.dumps(command)}}});\ntext(r.output);"
        )
        return Call("exec", script, "custom")
    raise LookupError(f"no shell among {sorted(tools)}")


def fill(arguments: Body, schema: Body) -> Body:
    """Whatever else is required, with a value of its type."""
    properties = schema.get("properties") or {}
    empty: Body = {"number": 1, "integer": 1, "boolean": False, "array": [], "object": {}}
    for name in schema.get("required") or []:
        if name not in arguments:
            wanted = properties.get(name) or {}
            kind = str(wanted.get("type")).lower()
            arguments[name] = (wanted.get("enum") or [empty.get(kind, "list the settings")])[0]
    return arguments


def answer(api: str, turn: Turn, call: Call | None, model: str) -> Body:
    """One answer that is not streamed."""
    makers = {"anthropic": anthropic, "chat": chat, "responses": responses, "gemini": gemini}
    return makers[api](turn, call, model)


def events(api: str, whole: Body) -> Iterator[Event]:
    """The same answer as a stream."""
    streams = {
        "anthropic": anthropic_events,
        "chat": chat_events,
        "responses": responses_events,
        "gemini": gemini_events,
    }
    return streams[api](whole)


def failure(api: str, turn: Turn) -> Body:
    words = {429: "Rate limited (scripted)", 529: "Overloaded", 500: "Internal server error"}
    text = words.get(turn.status, "scripted error")
    kind = {429: "rate_limit_error", 529: "overloaded_error"}.get(turn.status, "api_error")
    if api == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": text}}
    if api == "gemini":
        status = "RESOURCE_EXHAUSTED" if turn.status == 429 else "INTERNAL"
        return {"error": {"code": turn.status, "message": text, "status": status}}
    return {"error": {"message": text, "type": kind, "code": None}}


def new_id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:20]


def anthropic(turn: Turn, call: Call | None, model: str) -> Body:
    content: list[Body] = [{"type": "text", "text": turn.text}] if turn.text else []
    if call:
        content.append(
            {
                "type": "tool_use",
                "id": new_id("toolu_"),
                "name": call.name,
                "input": call.arguments,
            }
        )
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if call else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": turn.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": turn.output_tokens,
        },
    }


def anthropic_events(whole: Body) -> Iterator[Event]:
    def event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, **fields}

    start = {**whole, "content": [], "stop_reason": None}
    start["usage"] = {**whole["usage"], "output_tokens": 1}
    yield event("message_start", message=start)
    for index, part in enumerate(whole["content"]):
        if part["type"] == "text":
            block, delta = {**part, "text": ""}, {"type": "text_delta", "text": part["text"]}
        else:
            block = {**part, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(part["input"])}
        yield event("content_block_start", index=index, content_block=block)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    yield event(
        "message_delta",
        delta={"stop_reason": whole["stop_reason"], "stop_sequence": None},
        usage={"output_tokens": whole["usage"]["output_tokens"]},
    )
    yield event("message_stop")


def chat(turn: Turn, call: Call | None, model: str) -> Body:
    message: Body = {"role": "assistant", "content": turn.text or None}
    if call:
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        message["tool_calls"] = [{"id": new_id("call_"), "type": "function", "function": function}]
    return {
        "id": new_id("chatcmpl-"),
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
        ],
        "usage": {
            "prompt_tokens": turn.input_tokens,
            "completion_tokens": turn.output_tokens,
            "total_tokens": turn.input_tokens + turn.output_tokens,
        },
    }


def chat_events(whole: Body) -> Iterator[Event]:
    choice = whole["choices"][0]
    head = {**whole, "object": "chat.completion.chunk", "usage": None}

    def chunk(delta: Body, finish: str | None = None) -> Event:
        return None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": choice["message"]["content"] or ""})
    for index, call in enumerate(choice["message"].get("tool_calls", [])):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, choice["finish_reason"])
    yield None, {**head, "choices": [], "usage": whole["usage"]}
    yield None, "[DONE]"


def responses(turn: Turn, call: Call | None, model: str) -> Body:
    items: list[Body] = []
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        items.append({"type": "message", "role": "assistant", "content": [part]})
    if call and call.kind == "custom":
        items.append({"type": "custom_tool_call", "name": call.name, "input": call.arguments})
    elif call and call.kind == "local_shell":
        action = {"type": "exec", "command": call.arguments["command"], "env": {}}
        items.append({"type": "local_shell_call", "action": action})
    elif call:
        arguments = json.dumps(call.arguments)
        items.append({"type": "function_call", "name": call.name, "arguments": arguments})
    for item in items:
        item.update(id=new_id("item_"), status="completed")
        if item["type"] != "message":
            item["call_id"] = new_id("call_")
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": model,
        "output": items,
        "error": None,
        "usage": {
            "input_tokens": turn.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": turn.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": turn.input_tokens + turn.output_tokens,
        },
    }


def responses_events(whole: Body) -> Iterator[Event]:
    numbers = itertools.count()

    def event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, "sequence_number": next(numbers), **fields}

    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    for index, item in enumerate(whole["output"]):
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield event("response.output_item.added", output_index=index, item=item)
        if item["type"] == "message":
            text = item["content"][0]["text"]
            yield event("response.output_text.delta", **place, delta=text)
            yield event("response.output_text.done", **place, text=text)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=whole)


def gemini(turn: Turn, call: Call | None, model: str) -> Body:
    parts: list[Body] = [{"text": turn.text}] if turn.text else []
    if call:
        function = {"name": call.name, "args": call.arguments}
        parts.append({"functionCall": function, "thoughtSignature": "c2lnbmF0dXJl"})
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": turn.input_tokens,
            "candidatesTokenCount": turn.output_tokens,
            "totalTokenCount": turn.input_tokens + turn.output_tokens,
        },
        "modelVersion": model,
        "responseId": new_id("g"),
    }


def gemini_events(whole: Body) -> Iterator[Event]:
    yield None, whole
