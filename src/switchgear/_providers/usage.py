"""Tokens, completeness and errors of a model response, read from its bytes as they pass.

A `ResponseMeter` changes nothing and keeps at most 256 KiB, however long the response is. It reads server-sent
events and JSON, plain or compressed by gzip or deflate, in chunks of any size. Other encodings pass unread.
"""

import json
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from switchgear._providers.errors import ProviderError, classify_response
from switchgear._providers.prices import TokenCost, TokenUsage, token_cost
from switchgear._providers.table import ProviderErrorKind
from switchgear._providers.traffic import ModelProtocol, ModelRequest, parsed_json

LONGEST_KEPT = 256 * 1024
"""Maximum bytes of an event or a JSON body that is kept whole; of a longer one, both ends are kept."""
_ENDS = 64 * 1024
_MOST_INFLATED = 1024 * 1024 * 1024
_MOST_TOKENS = 10**9

_NULL_USAGE = re.compile(rb'"usage"\s*:\s*null')
_RESPONSES_END = re.compile(
    rb'"type"\s*:\s*"(response\.(?:completed|incomplete|failed|cancelled|created)|error)"'
)
_CHAT_CONTENT = re.compile(rb'"(?:content|arguments)"\s*:\s*"[^"]')
_CHAT_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"\w')
"""The end of a choice; some servers send an empty reason with each chunk before it."""
_FINISHED = re.compile(rb'"(?:finishReason|finish_reason|blockReason)"\s*:\s*"[A-Z_]+"')
_IN_BACKGROUND = frozenset(("queued", "in_progress"))
_REQUEST_ERRORS = {"invalid_request_error": 400, "not_found_error": 404, "invalid_prompt": 400}


class Metered(NamedTuple):
    """What a response contained, as far as it was read."""

    usage: TokenUsage | None = None
    """The tokens that it reported; `None`: it reported none."""
    model: str = ""
    """The model that answered; empty if the response names none."""
    complete: bool = False
    """Whether it ended as its protocol requires; a stream that breaks off is incomplete."""
    error: ProviderError | None = None
    """The error inside the response, such as an `error` event in a stream with status 200."""
    output_tokens: int = 0
    """An estimate of the output by the size of the response, for responses that report none."""

    def usage_or_estimate(self, request: ModelRequest) -> TokenUsage:
        """The reported tokens, or an estimate by the sizes of request and response.

        For a stream that broke off, the larger number of output tokens counts, because the number that
        was reported at its beginning does not include the rest.
        """
        if request.protocol is ModelProtocol.ANTHROPIC_COUNT_TOKENS:
            return TokenUsage()
        if self.usage is None:
            return TokenUsage(request.input_tokens, self.output_tokens)
        if self.complete:
            return self.usage
        return self.usage._replace(output=max(self.usage.output, self.output_tokens))

    def cost(self, request: ModelRequest) -> TokenCost:
        """The cost of the response, by `usage_or_estimate`; counting tokens is free of charge."""
        if request.protocol is ModelProtocol.ANTHROPIC_COUNT_TOKENS:
            return TokenCost(0)
        if self.usage is None and not self.output_tokens:
            return TokenCost(None, "the response reported no token usage")
        usage = self.usage_or_estimate(request)
        found = token_cost(self.model or request.model, usage, request.provider)
        if found.micros is None and request.model and self.model != request.model:
            found = token_cost(request.model, usage, request.provider)
        return found


_READERS = {
    ModelProtocol.ANTHROPIC_MESSAGES: "_read_anthropic",
    ModelProtocol.ANTHROPIC_COUNT_TOKENS: "_read_anthropic",
    ModelProtocol.OPENAI_CHAT: "_read_chat",
    ModelProtocol.OPENAI_RESPONSES: "_read_responses",
    ModelProtocol.GEMINI_GENERATE: "_read_gemini",
    ModelProtocol.GEMINI_STREAM: "_read_gemini",
}


class ResponseMeter:
    r"""Reads one response: `feed` each chunk as it passes, then `finish` once. Not thread-safe.

    `content_type` and `content_encoding` are those headers of the response; without a content type,
    `stream` decides between events and JSON. `feed` never raises, whatever the content.

    >>> meter = ResponseMeter(ModelProtocol.OPENAI_CHAT, stream=True, content_type="text/event-stream")
    >>> meter.feed(b'data: {"model":"gpt-5","choices":[]}\n\ndata: [DO')
    >>> meter.feed(b"NE]\n\n")
    >>> meter.finish().complete
    True
    """

    def __init__(
        self,
        protocol: ModelProtocol,
        *,
        stream: bool,
        content_type: str = "",
        content_encoding: str = "",
    ) -> None:
        kind = content_type.lower()
        encoding = content_encoding.strip().lower()
        self._protocol = protocol
        self._is_events = "event-stream" in kind or (stream and not kind)
        self._inflater = _Inflater() if encoding in {"gzip", "x-gzip", "deflate"} else None
        is_read = encoding in {"", "identity"} or self._inflater is not None
        self._is_opaque = not is_read or bool(kind and "json" not in kind and not self._is_events)
        self._read: Callable[[bytes], None] = getattr(self, _READERS[protocol])
        self._buffer = bytearray()
        self._is_cut = False
        self._fields: dict[str, Any] = {}
        self._gemini_last = b""
        self._model = ""
        self._is_done = False
        self._error: ProviderError | None = None
        self._events = 0
        self._bytes = 0
        self._shortest = 0

    @property
    def has_ended(self) -> bool:
        """Whether the last event or an error has passed; anything after it changes nothing."""
        return self._is_done or self._error is not None

    def feed(self, chunk: bytes) -> None:
        if self._is_opaque or not chunk:
            return
        if self._inflater is None:
            self._add_chunk(chunk)
            return
        try:
            for piece in self._inflater.pieces(chunk):
                self._add_chunk(piece)
        except zlib.error:
            self._is_opaque = True

    def finish(self, *, ended: bool = True) -> Metered:
        """The result. `ended=False`: the connection broke, or the client closed it early."""
        if self._is_opaque:
            return Metered(complete=ended)
        if not self._is_events:
            self._read_body(bytes(self._buffer))
        elif self._buffer:
            self._read_line(bytes(self._buffer))
        self._buffer.clear()
        if self._gemini_last:
            self._add_gemini_usage(self._gemini_last)
        is_whole = self._inflater is None or self._inflater.is_whole
        return Metered(
            _usage_of(self._protocol, self._fields),
            self._model,
            ended and is_whole and self._is_done and self._error is None,
            self._error,
            # The shortest event has about the size of the JSON around the text in each event.
            max(self._events, (self._bytes - self._events * self._shortest) // 4),
        )

    def _add_chunk(self, chunk: bytes) -> None:
        if not self._is_events:
            self._bytes += len(chunk)
            self._add_to_buffer(chunk)
            return
        first, *complete_lines = chunk.split(b"\n")
        if not complete_lines:
            self._add_to_buffer(first)
            return
        if self._buffer:
            self._add_to_buffer(first)
            first = bytes(self._buffer)
        self._read_line(first)
        self._buffer.clear()
        self._is_cut = False
        rest = complete_lines.pop()
        for line in complete_lines:
            self._read_line(line)
        self._add_to_buffer(rest)

    def _add_to_buffer(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > LONGEST_KEPT:
            del self._buffer[_ENDS : len(self._buffer) - _ENDS]
            self._is_cut = True

    def _read_line(self, line: bytes) -> None:
        if line[:5] == b"data:":
            self._read(line[5:].strip())

    # Events of each protocol; only those with usage are parsed

    def _read_anthropic(self, data: bytes) -> None:
        if b'"content_block_delta"' in data[:200]:
            self._count(data)
            return
        event = _object(data)
        kind = event.get("type")
        if kind == "message_start":
            self._add_message(event.get("message"))
        elif kind == "message_delta":
            self._add_usage(event.get("usage"))
        elif kind == "message_stop":
            self._is_done = True
        elif kind == "error":
            self._fail(event)

    def _read_chat(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._is_done = True
            return
        has_usage = b'"usage"' in data and not (b"null" in data and _NULL_USAGE.search(data))
        if has_usage or not self._model or b'"error"' in data:
            event = _object(data)
            if isinstance(event.get("error"), dict | str) and event.get("error"):
                self._fail(event)
                return
            self._model = self._model or _text(event.get("model"))
            self._add_usage(event.get("usage") or _part(event, "x_groq").get("usage"))
        if _CHAT_FINISHED.search(data):
            self._is_done = True  # some servers send no [DONE]
        elif self._is_done and _CHAT_CONTENT.search(data):
            self._is_done = False  # another choice continues
        self._count(data)

    def _read_responses(self, data: bytes) -> None:
        found = _RESPONSES_END.search(data)
        if found is None:
            self._count(data)
            return
        event = _object(data)
        if not event and self._is_cut:
            self._model = self._model or _first_text(data, rb"model")
            self._add_usage(_last_object(data, b'"usage"'))
            self._is_done = found[1] in {b"response.completed", b"response.incomplete"}
            return
        kind = event.get("type")
        if kind == "error":
            self._fail(event)
        elif kind in {"response.completed", "response.incomplete", "response.failed"}:
            self._add_response(_part(event, "response"))
        elif kind == "response.cancelled":
            self._is_done = True
        elif kind == "response.created":
            self._model = self._model or _text(_part(event, "response").get("model"))
        else:
            self._count(data)

    def _read_gemini(self, data: bytes) -> None:
        if b'"error"' in data:
            event = _object(data)
            if isinstance(event.get("error"), dict):
                self._fail(event)
                return
        if b'"usageMetadata"' in data:
            self._gemini_last = data if len(data) <= 2 * _ENDS else data[:_ENDS] + data[-_ENDS:]
        if _FINISHED.search(data):
            self._is_done = True
        self._count(data)

    def _count(self, data: bytes) -> None:
        size = len(data)
        self._events += 1
        self._bytes += size
        if size < self._shortest or self._events == 1:
            self._shortest = size

    # Whole bodies

    def _read_body(self, body: bytes) -> None:
        parsed = None if self._is_cut else parsed_json(body)
        if self._protocol.family == "google":
            self._read_gemini_body(body, parsed)
        elif isinstance(parsed, dict):
            self._is_done = True
            if parsed.get("type") == "error" or isinstance(parsed.get("error"), dict):
                self._fail(parsed)
            elif self._protocol is ModelProtocol.ANTHROPIC_MESSAGES:
                self._add_message(parsed)
            elif self._protocol is not ModelProtocol.ANTHROPIC_COUNT_TOKENS:
                self._add_response(parsed)
        else:
            self._is_done = self._is_cut and body.rstrip()[-1:] == b"}"
            self._model = _first_text(body, rb"model")
            self._add_usage(_last_object(body, b'"usage"'))

    def _read_gemini_body(self, body: bytes, parsed: Any) -> None:
        parts = parsed if isinstance(parsed, list) else [parsed]
        for part in parts:
            if isinstance(part, dict) and isinstance(part.get("error"), dict):
                self._fail(part)
        self._add_gemini_usage(body)
        is_stream = self._protocol is ModelProtocol.GEMINI_STREAM
        has_end = _FINISHED.search(body) is not None
        is_json = parsed is not None or (self._is_cut and body.rstrip()[-1:] in {b"}", b"]"})
        self._is_done = is_json and (has_end or not is_stream)

    def _add_message(self, message: Any) -> None:
        if isinstance(message, dict):
            self._model = _text(message.get("model"))
            self._add_usage(message.get("usage"))

    def _add_response(self, response: Mapping[str, Any]) -> None:
        self._model = _text(response.get("model")) or self._model
        self._add_usage(response.get("usage"))
        status = response.get("status")
        if status == "failed":
            self._fail(response)
            return
        self._is_done = True
        if status in _IN_BACKGROUND:
            self._bytes = 0  # its output comes later, so the cost is unknown

    def _add_gemini_usage(self, data: bytes) -> None:
        self._add_usage(_last_object(data, b'"usageMetadata"'))
        self._model = _first_text(data, rb"modelVersion") or self._model

    def _add_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._fields.update((key, value) for key, value in usage.items() if value is not None)

    def _fail(self, event: Mapping[str, Any]) -> None:
        if self._error is None:
            self._error = event_error(event)


class _Inflater:
    """Decompresses gzip and zlib in bounded pieces, also several members in a row."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=47)
        self._total = 0

    @property
    def is_whole(self) -> bool:
        return self._stream.eof

    def pieces(self, chunk: bytes) -> Any:
        while chunk:
            if self._stream.eof:
                self._stream = zlib.decompressobj(wbits=47)
            piece = self._stream.decompress(chunk, _ENDS)
            self._total += len(piece)
            if self._total > _MOST_INFLATED:
                raise zlib.error  # larger than any response, so the rest passes unread
            yield piece
            chunk = self._stream.unconsumed_tail or self._stream.unused_data


def event_error(event: Mapping[str, Any]) -> ProviderError:
    """The error that an event of a stream reports; an unknown code is an outage.

    >>> event_error({"type": "error", "error": {"type": "overloaded_error"}}).kind
    <ProviderErrorKind.OVERLOAD: 'overload'>
    """
    inner = event.get("error")
    about: Any = inner if isinstance(inner, dict) else event
    code = about.get("code")
    status = _REQUEST_ERRORS.get(_text(about.get("type"))) or _REQUEST_ERRORS.get(_text(code))
    if status is None and type(code) is int and 400 <= code <= 599:
        status = code
    body = {"message": inner} if isinstance(inner, str) else {"error": about}
    found = classify_response(status or 500, None, body)
    return found or ProviderError(ProviderErrorKind.OUTAGE, status)


def _usage_of(protocol: ModelProtocol, fields: Mapping[str, Any]) -> TokenUsage | None:
    if not fields:
        return None
    if protocol.family == "anthropic":
        read = _count(fields.get("cache_read_input_tokens"))
        written = _count(fields.get("cache_creation_input_tokens"))
        for_an_hour = _count(_part(fields, "cache_creation").get("ephemeral_1h_input_tokens"))
        written = max(written, for_an_hour)
        fresh = _count(fields.get("input_tokens"))
        output = _count(fields.get("output_tokens"))
        sent = fresh + read + written
        return TokenUsage(sent, output, read, written - for_an_hour, for_an_hour)
    if protocol.family == "google":
        sent = _count(fields.get("promptTokenCount")) + _count(
            fields.get("toolUsePromptTokenCount")
        )
        output = _count(fields.get("candidatesTokenCount")) + _count(
            fields.get("thoughtsTokenCount")
        )
        return TokenUsage(sent, output, _count(fields.get("cachedContentTokenCount")))
    # Chat uses prompt and completion, Responses input and output; some servers mix them.
    details = _part(fields, "prompt_tokens_details") or _part(fields, "input_tokens_details")
    read = _count(details.get("cached_tokens")) or _count(fields.get("prompt_cache_hit_tokens"))
    return TokenUsage(
        _count(fields.get("prompt_tokens", fields.get("input_tokens"))),
        _count(fields.get("completion_tokens", fields.get("output_tokens"))),
        read,
        _count(details.get("cache_write_tokens")),
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= _MOST_TOKENS else 0


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _part(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _first_text(data: bytes, key: bytes) -> str:
    """The first text under a key, at any depth."""
    found = re.search(rb'"' + key + rb'"\s*:\s*"([^"\\]{1,200})"', data)
    return "" if found is None else found[1].decode("utf-8", "replace")


def _object(data: bytes) -> dict[str, Any]:
    found = parsed_json(data)
    return found if isinstance(found, dict) else {}


def _last_object(data: bytes, key: bytes) -> dict[str, Any] | None:
    """The last object under a key, at any depth; other parts of the text may be cut off."""
    at = len(data)
    for _ in range(20):
        at = data.rfind(key, 0, at)
        if at < 0:
            return None
        rest = data[at + len(key) : at + len(key) + _ENDS].decode("utf-8", "replace").lstrip()
        if not rest.startswith(":"):
            continue
        try:
            found, _end = json.JSONDecoder().raw_decode(rest[1:].lstrip())
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None
