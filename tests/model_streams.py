"""Responses of model APIs as they are on the wire, for each protocol: used by tests of meters, transports and proxy."""

import json
from typing import Any, NamedTuple

from switchgear._providers.prices import TokenUsage
from switchgear._providers.traffic import ModelProtocol

EVENTS = "text/event-stream; charset=utf-8"
JSON = "application/json"


class Sample(NamedTuple):
    protocol: ModelProtocol
    content_type: str
    body: bytes
    usage: TokenUsage
    model: str

    @property
    def is_stream(self) -> bool:
        return self.content_type == EVENTS or self.protocol is ModelProtocol.GEMINI_STREAM


def sse(*events: Any, named: bool = False, end: bytes = b"\n") -> bytes:
    parts = []
    for event in events:
        text = event if isinstance(event, str) else json.dumps(event, separators=(",", ":"))
        if named and isinstance(event, dict):
            parts.append(b"event: " + event["type"].encode() + end)
        parts.append(b"data: " + text.encode() + end + end)
    return b"".join(parts)


ANTHROPIC_USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 500,
    "cache_read_input_tokens": 2000,
    "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 200},
    "output_tokens": 1,
}
ANTHROPIC = TokenUsage(2512, 42, 2000, 300, 200)


def anthropic_events(text: str = 'Hello, "usage" and é', stop: bool = True) -> list[Any]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": ANTHROPIC_USAGE,
    }
    delta = {"type": "content_block_delta", "index": 0}
    events: list[Any] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({**delta, "delta": {"type": "text_delta", "text": word}} for word in text.split()),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 42},
        },
    ]
    return [*events, {"type": "message_stop"}] if stop else events


def chat_events(done: bool = True, usage: bool = True) -> list[Any]:
    base: dict[str, Any] = {"id": "c-1", "object": "chat.completion.chunk", "created": 1}
    base["model"] = "gpt-4.1-2025-04-14"
    choice = {"index": 0, "finish_reason": None}
    empty = {"usage": None} if usage else {}
    events: list[Any] = [
        {**base, "choices": [{**choice, "delta": {"role": "assistant", "content": ""}}], **empty},
        *(
            {**base, "choices": [{**choice, "delta": {"content": word}}], **empty}
            for word in ("Hello", ' "usage": {"prompt_tokens": 9}', " [DONE]")
        ),
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **empty},
    ]
    if usage:
        events.append({**base, "choices": [], "usage": CHAT_USAGE})
    return [*events, "[DONE]"] if done else events


CHAT_USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 50,
    "total_tokens": 1050,
    "prompt_tokens_details": {"cached_tokens": 768},
    "completion_tokens_details": {"reasoning_tokens": 20},
}
RESPONSES_USAGE = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 768},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 1050,
}
OPENAI = TokenUsage(1000, 50, 768)


def response_body(status: str = "completed") -> dict[str, Any]:
    text = {"type": "output_text", "text": 'Hello, "type":"response.failed"', "annotations": []}
    output = {"type": "message", "id": "m-1", "role": "assistant", "status": status}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "gpt-5-2025-08-07",
        "error": None,
        "output": [{**output, "content": [text]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": RESPONSES_USAGE,
    }


def responses_events(end: str = "completed") -> list[Any]:
    created = {**response_body("in_progress"), "output": [], "usage": None}
    events: list[Any] = [
        {"type": "response.created", "sequence_number": 0, "response": created},
        {"type": "response.in_progress", "sequence_number": 1, "response": created},
        *(
            {
                "type": "response.output_text.delta",
                "sequence_number": 2 + number,
                "item_id": "m-1",
                "output_index": 0,
                "content_index": 0,
                "delta": word,
                "logprobs": [],
            }
            for number, word in enumerate(("Hel", "lo"))
        ),
    ]
    if end:
        last = {"type": f"response.{end}", "sequence_number": 9, "response": response_body(end)}
        events.append(last)
    return events


def gemini_chunks(finished: bool = True) -> list[Any]:
    chunks: list[Any] = []
    for number, word in enumerate(("Hel", "lo")):
        candidate: dict[str, Any] = {"content": {"parts": [{"text": word}], "role": "model"}}
        if finished and number == 1:
            candidate["finishReason"] = "STOP"
        counts = {
            "promptTokenCount": 1000,
            "candidatesTokenCount": 15 * (number + 1),
            "thoughtsTokenCount": 20,
            "cachedContentTokenCount": 768,
            "totalTokenCount": 1050,
        }
        chunks.append(
            {
                "candidates": [{**candidate, "index": 0}],
                "usageMetadata": counts,
                "modelVersion": "gemini-2.5-flash",
            }
        )
    return chunks


ANTHROPIC_MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {**ANTHROPIC_USAGE, "output_tokens": 42},
}
CHAT_COMPLETION = {
    "id": "c-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4.1-2025-04-14",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello"},
            "finish_reason": "stop",
        }
    ],
    "usage": CHAT_USAGE,
}


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


SAMPLES = {
    "anthropic stream": Sample(
        ModelProtocol.ANTHROPIC_MESSAGES,
        EVENTS,
        sse(*anthropic_events(), named=True),
        ANTHROPIC,
        "claude-sonnet-4-5-20250929",
    ),
    "anthropic": Sample(
        ModelProtocol.ANTHROPIC_MESSAGES,
        JSON,
        dumped(ANTHROPIC_MESSAGE),
        ANTHROPIC,
        "claude-sonnet-4-5-20250929",
    ),
    "chat stream": Sample(
        ModelProtocol.OPENAI_CHAT, EVENTS, sse(*chat_events()), OPENAI, "gpt-4.1-2025-04-14"
    ),
    "chat": Sample(
        ModelProtocol.OPENAI_CHAT, JSON, dumped(CHAT_COMPLETION), OPENAI, "gpt-4.1-2025-04-14"
    ),
    "responses stream": Sample(
        ModelProtocol.OPENAI_RESPONSES,
        EVENTS,
        sse(*responses_events(), named=True),
        OPENAI,
        "gpt-5-2025-08-07",
    ),
    "responses": Sample(
        ModelProtocol.OPENAI_RESPONSES, JSON, dumped(response_body()), OPENAI, "gpt-5-2025-08-07"
    ),
    "gemini stream": Sample(
        ModelProtocol.GEMINI_STREAM,
        EVENTS,
        sse(*gemini_chunks(), end=b"\r\n"),
        OPENAI,
        "gemini-2.5-flash",
    ),
    "gemini array": Sample(
        ModelProtocol.GEMINI_STREAM,
        JSON,
        json.dumps(gemini_chunks(), indent=2).encode(),
        OPENAI,
        "gemini-2.5-flash",
    ),
    "gemini": Sample(
        ModelProtocol.GEMINI_GENERATE,
        JSON,
        json.dumps(gemini_chunks()[1], indent=2).encode(),
        OPENAI,
        "gemini-2.5-flash",
    ),
}


class CutStream(NamedTuple):
    """The events of a stream, for tests that cut it between two of them."""

    events: list[Any]
    named: bool
    reason_at: int
    """The number of the event with the reason of the end; a stream without it is truncated."""

    def body(self, count: int) -> bytes:
        return sse(*self.events[:count], named=self.named)

    def cuts(self) -> list[tuple[bytes, bool]]:
        """Each beginning of the stream, and whether the reason of the end is in it."""
        counts = range(len(self.events) + 1)
        return [(self.body(count), count >= self.reason_at) for count in counts]


CUT_STREAMS = {
    "anthropic": CutStream(anthropic_events(), named=True, reason_at=9),
    "chat": CutStream(chat_events(), named=False, reason_at=5),
    "gemini": CutStream(gemini_chunks(), named=False, reason_at=2),
    "responses": CutStream(responses_events(), named=True, reason_at=5),
}
