"""Tokens and completeness of responses of every protocol, in any chunks."""

import gzip
import json
import re
import tracemalloc
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_streams import (
    ANTHROPIC,
    EVENTS,
    JSON,
    OPENAI,
    SAMPLES,
    Sample,
    anthropic_events,
    chat_events,
    dumped,
    gemini_chunks,
    response_body,
    responses_events,
    sse,
)
from switchgear._providers.table import ProviderErrorKind
from switchgear._providers.traffic import ModelProtocol, read_request
from switchgear._providers.usage import LONGEST_KEPT, Metered, ResponseMeter


def metered(
    protocol: ModelProtocol,
    body: bytes,
    content_type: str = EVENTS,
    encoding: str = "",
    cuts: Iterable[int] = (),
) -> Metered:
    is_stream = content_type == EVENTS
    meter = ResponseMeter(
        protocol, stream=is_stream, content_type=content_type, content_encoding=encoding
    )
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in zip(edges, edges[1:], strict=False):
        meter.feed(body[start:end])
    return meter.finish()


def of(sample: Sample, cuts: Iterable[int] = ()) -> Metered:
    return metered(sample.protocol, sample.body, sample.content_type, cuts=cuts)


@pytest.mark.parametrize("name", SAMPLES)
@given(cuts=st.lists(st.integers(0, 10**6), max_size=60))
def test_the_size_of_the_chunks_has_no_effect(name: str, cuts: list[int]) -> None:
    sample = SAMPLES[name]
    found = of(sample, cuts=cuts)
    assert (found.usage, found.model) == (sample.usage, sample.model)
    assert found.complete
    assert found.error is None


@pytest.mark.parametrize("name", SAMPLES)
def test_single_bytes_are_read_too(name: str) -> None:
    sample = SAMPLES[name]
    assert of(sample, cuts=range(len(sample.body))).usage == sample.usage


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
def test_a_response_that_breaks_off_is_incomplete(name: str, data: st.DataObject) -> None:
    sample = SAMPLES[name]
    end = len(sample.body.rstrip())
    kept = data.draw(st.integers(0, end - 2))
    found = metered(sample.protocol, sample.body[:kept], sample.content_type)
    has_reason = re.search(rb'"(finishReason|finish_reason)":"', sample.body[:kept])
    if has_reason and sample.content_type == EVENTS:
        return  # Gemini has no other mark of its end, and some servers with OpenAI's protocol send no [DONE]
    assert not found.complete


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_stream_with_two_choices_is_complete_when_both_have_ended(is_cut: bool) -> None:
    choices = [
        {"index": 0, "delta": {"content": "a"}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
        {"index": 1, "delta": {"content": "b"}, "finish_reason": None},
        {"index": 1, "delta": {}, "finish_reason": "stop"},
    ]
    body = "".join(
        f"data: {json.dumps({'model': 'm', 'choices': [each]})}\n\n"
        for each in (choices[:-1] if is_cut else choices)
    )
    found = metered(ModelProtocol.OPENAI_CHAT, body.encode(), EVENTS)
    assert found.complete is not is_cut


@pytest.mark.parametrize("name", SAMPLES)
def test_a_connection_that_breaks_makes_it_incomplete(name: str) -> None:
    sample = SAMPLES[name]
    meter = ResponseMeter(
        sample.protocol, stream=sample.is_stream, content_type=sample.content_type
    )
    meter.feed(sample.body)
    assert not meter.finish(ended=False).complete


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@given(cuts=st.lists(st.integers(0, 10**6), max_size=20))
def test_compressed_responses_are_read(name: str, encoding: str, cuts: list[int]) -> None:
    sample = SAMPLES[name]
    compress = gzip.compress if encoding == "gzip" else zlib.compress
    body = compress(sample.body)
    found = metered(sample.protocol, body, sample.content_type, encoding, cuts)
    assert (found.usage, found.complete) == (sample.usage, True)
    broken = metered(sample.protocol, body[:-9], sample.content_type, encoding, cuts)
    assert not broken.complete


@pytest.mark.parametrize("encoding", ["br", "zstd"])
def test_an_encoding_that_cannot_be_read_passes_and_reports_no_usage(encoding: str) -> None:
    found = metered(ModelProtocol.OPENAI_CHAT, b"\x1b\x03 not text", JSON, encoding)
    assert found == Metered(complete=True)


@given(body=st.binary(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=5))
@pytest.mark.parametrize("protocol", list(ModelProtocol))
@pytest.mark.parametrize("content_type", [EVENTS, JSON, "text/html", ""])
def test_no_input_raises(
    protocol: ModelProtocol, content_type: str, body: bytes, cuts: list[int]
) -> None:
    for encoding in ("", "gzip", "br"):
        metered(protocol, body, content_type, encoding, cuts)
    metered(protocol, b"data: " + body + b"\n\n", content_type, "", cuts)


def test_an_error_event_in_a_stream_with_status_200_is_an_error() -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    body = sse(*anthropic_events(stop=False)[:4], overloaded, named=True)
    found = metered(ModelProtocol.ANTHROPIC_MESSAGES, body)
    assert found.error is not None
    assert found.error.kind is ProviderErrorKind.OVERLOAD
    assert not found.complete
    chat = sse(*chat_events(done=False)[:2], {"error": {"message": "x", "type": "server_error"}})
    assert metered(ModelProtocol.OPENAI_CHAT, chat + sse("[DONE]")).error.kind == "outage"  # type: ignore[union-attr]
    gemini = sse({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}})
    assert metered(ModelProtocol.GEMINI_STREAM, gemini).error.kind == "overload"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["response.failed", "error"])
def test_a_failed_response_is_an_error(name: str) -> None:
    error = {"code": "rate_limit_exceeded", "message": "Rate limit reached"}
    last = (
        {"type": "error", "sequence_number": 4, **error}
        if name == "error"
        else {"type": name, "response": {**response_body("failed"), "error": error}}
    )
    body = sse(*responses_events(end=""), last, named=True)
    found = metered(ModelProtocol.OPENAI_RESPONSES, body)
    assert found.error is not None
    assert found.error.kind is ProviderErrorKind.RATE_LIMIT


def test_a_request_error_inside_a_stream_counts_against_the_caller() -> None:
    bad = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}
    found = metered(ModelProtocol.ANTHROPIC_MESSAGES, sse(bad, named=True))
    assert found.error is not None
    assert not found.error.is_provider_failure


def test_a_response_that_ends_at_its_limit_is_complete() -> None:
    body = sse(*responses_events("incomplete"), named=True)
    found = metered(ModelProtocol.OPENAI_RESPONSES, body)
    assert (found.complete, found.usage) == (True, OPENAI)


def test_events_without_a_line_that_names_them_are_read() -> None:
    found = metered(ModelProtocol.ANTHROPIC_MESSAGES, sse(*anthropic_events()))
    assert (found.complete, found.usage) == (True, ANTHROPIC)


def test_a_stream_without_usage_is_estimated_by_its_size() -> None:
    events = chat_events(usage=False)
    found = metered(ModelProtocol.OPENAI_CHAT, sse(*events))
    assert (found.complete, found.usage) == (True, None)
    body = json.dumps({"model": "gpt-4.1", "messages": [{"role": "user", "content": "x" * 4000}]})
    request = read_request("api.openai.com", "/v1/chat/completions", {}, body.encode())
    assert request is not None
    usage = found.usage_or_estimate(request)
    assert 1000 <= usage.input <= 1100
    assert 3 <= usage.output <= 40
    assert found.cost(request).micros


def test_a_stream_that_broke_off_costs_what_was_streamed_so_far() -> None:
    text = "word " * 400
    events = [*anthropic_events(text)[:300]]
    found = metered(ModelProtocol.ANTHROPIC_MESSAGES, sse(*events, named=True))
    request = read_request(
        "api.anthropic.com", "/v1/messages", {}, b'{"model":"claude-sonnet-4-5","max_tokens":9}'
    )
    assert request is not None
    assert found.usage_or_estimate(request).output >= 290
    assert found.usage_or_estimate(request).input == ANTHROPIC.input


def test_a_huge_event_is_read_at_its_ends_and_takes_bounded_memory() -> None:
    big = response_body()
    big["output"][0]["content"][0]["text"] = "x" * (32 * LONGEST_KEPT)
    last = {"type": "response.completed", "response": big}
    body = sse(*responses_events(end=""), last, named=True)
    tracemalloc.start()
    meter = ResponseMeter(ModelProtocol.OPENAI_RESPONSES, stream=True, content_type=EVENTS)
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for start in range(0, len(body), 16_000):
        meter.feed(body[start : start + 16_000])
    found = meter.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.complete, found.usage, found.model) == (True, OPENAI, "gpt-5-2025-08-07")
    assert peak - before < 8 * LONGEST_KEPT


def test_a_huge_json_body_is_read_at_its_ends() -> None:
    big = response_body()
    big["output"][0]["content"][0]["text"] = "x" * (2 * LONGEST_KEPT)
    body = json.dumps(big).encode()
    found = metered(ModelProtocol.OPENAI_RESPONSES, body, JSON)
    assert (found.complete, found.usage, found.model) == (True, OPENAI, "gpt-5-2025-08-07")
    assert not metered(ModelProtocol.OPENAI_RESPONSES, body[:-3], JSON).complete


def test_a_decompression_bomb_is_not_inflated_into_memory() -> None:
    bomb = gzip.compress(b"x" * (200 * LONGEST_KEPT))
    tracemalloc.start()
    found = metered(ModelProtocol.OPENAI_CHAT, bomb, JSON, "gzip")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not found.complete
    assert peak < 8 * LONGEST_KEPT


def test_a_blocked_prompt_ends_a_gemini_stream() -> None:
    body = sse(
        {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}
    )
    assert metered(ModelProtocol.GEMINI_STREAM, body).complete


def test_a_gemini_stream_without_its_finish_reason_is_incomplete() -> None:
    found = metered(ModelProtocol.GEMINI_STREAM, sse(*gemini_chunks(finished=False)))
    assert not found.complete
    assert found.usage == OPENAI


def test_a_chat_stream_may_end_with_its_finish_reason() -> None:
    events = chat_events(done=False, usage=False)
    assert metered(ModelProtocol.OPENAI_CHAT, sse(*events)).complete
    assert not metered(ModelProtocol.OPENAI_CHAT, sse(*events[:-1])).complete
    text = {"choices": [{"delta": {"content": '"finish_reason":"stop"'}, "finish_reason": ""}]}
    assert not metered(ModelProtocol.OPENAI_CHAT, sse(text)).complete


def test_the_cost_of_a_background_response_is_unknown() -> None:
    request = read_request("api.openai.com", "/v1/responses", {}, b'{"model":"gpt-5"}')
    assert request is not None
    body = {**response_body("queued"), "output": [], "usage": None}
    found = metered(request.protocol, dumped(body), JSON)
    assert found.complete
    assert found.cost(request).micros is None


def test_counting_tokens_is_free() -> None:
    request = read_request(
        "api.anthropic.com", "/v1/messages/count_tokens", {}, b'{"model":"claude-sonnet-4-5"}'
    )
    assert request is not None
    found = metered(request.protocol, b'{"input_tokens": 14}', JSON)
    assert found.complete
    assert found.cost(request).micros == 0
    assert request.most_cost().micros == 0
