"""Requests to model APIs: protocol, provider, model, limits and an estimate of their size."""

import base64
import gzip
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear._providers.prices import Rates, TokenUsage, model_price, token_cost
from switchgear._providers.traffic import (
    DEFAULT_OUTPUT_TOKENS,
    ModelProtocol,
    ModelRequest,
    estimate_tokens,
    protocol_of,
    provider_of,
    read_request,
)


def read(host: str, path: str, payload: Any, **headers: str) -> ModelRequest:
    found = read_request(host, path, headers, json.dumps(payload).encode())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        ("/v1/messages", ModelProtocol.ANTHROPIC_MESSAGES),
        ("/v1/messages?beta=true", ModelProtocol.ANTHROPIC_MESSAGES),
        ("/s/mine/v1/messages/", ModelProtocol.ANTHROPIC_MESSAGES),
        ("/v1/messages/count_tokens?beta=true", ModelProtocol.ANTHROPIC_COUNT_TOKENS),
        ("/v1/messages/batches", None),
        ("/v1/chat/completions", ModelProtocol.OPENAI_CHAT),
        ("/openai/deployments/mine/chat/completions?api-version=1", ModelProtocol.OPENAI_CHAT),
        ("/v1/responses", ModelProtocol.OPENAI_RESPONSES),
        ("/v1/responses/resp_1/cancel", None),
        ("/v1beta/models/gemini-2.5-pro:generateContent", ModelProtocol.GEMINI_GENERATE),
        (
            "/v1beta/models/gemini-2.5-pro%3AstreamGenerateContent?alt=sse",
            ModelProtocol.GEMINI_STREAM,
        ),
        (
            "/v1/projects/p/locations/l/publishers/google/models/g:generateContent",
            ModelProtocol.GEMINI_GENERATE,
        ),
        ("/v1beta/models/gemini-2.5-pro:countTokens", None),
        ("/v1/models", None),
        ("/", None),
        ("", None),
    ],
)
def test_a_path_has_its_protocol(path: str, protocol: ModelProtocol | None) -> None:
    assert protocol_of(path) is protocol


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.anthropic.com", "anthropic"),
        ("API.OpenAI.com:443", "openai"),
        ("eu.api.openai.com", "openai"),
        ("mine.openai.azure.com", "azure"),
        ("europe-west1-aiplatform.googleapis.com", "google"),
        ("evil-api.openai.com.example.org", "evil-api.openai.com.example.org"),
        ("notapi.openai.com", "notapi.openai.com"),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("[::1]:8080", "[::1]:8080"),
    ],
)
def test_a_host_has_its_provider(host: str, provider: str) -> None:
    assert provider_of(host) == provider


def test_a_chat_request_is_read() -> None:
    found = read(
        "api.openai.com",
        "/v1/chat/completions",
        {"model": "gpt-5", "stream": True, "max_completion_tokens": 100, "n": 3},
    )
    assert found[:5] == (ModelProtocol.OPENAI_CHAT, "openai", "gpt-5", True, 300)


def test_a_gemini_request_names_its_model_in_the_path() -> None:
    payload = {"contents": [], "generationConfig": {"maxOutputTokens": 7}}
    path = "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    found = read("generativelanguage.googleapis.com", path, payload)
    assert found[:5] == (ModelProtocol.GEMINI_STREAM, "google", "gemini-2.5-pro", True, 7)


def test_an_azure_deployment_is_the_model_where_the_body_names_none() -> None:
    path = "/openai/deployments/mine/chat/completions"
    assert read("a.openai.azure.com", path, {}).model == "mine"


def test_other_methods_and_paths_are_not_model_requests() -> None:
    assert read_request("api.openai.com", "/v1/responses", {}, b"", "GET") is None
    assert read_request("api.openai.com", "/v1/embeddings", {}, b"{}") is None


def test_a_compressed_request_is_read() -> None:
    body = gzip.compress(b'{"model": "gpt-5", "stream": true}')
    found = read_request("api.openai.com", "/v1/responses", {"Content-Encoding": "gzip"}, body)
    assert found is not None
    assert (found.model, found.is_stream) == ("gpt-5", True)


@given(body=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@pytest.mark.parametrize("encoding", ["", "gzip", "zstd"])
def test_a_body_that_cannot_be_read_leaves_the_model_empty(encoding: str, body: bytes) -> None:
    found = read_request("h", "/v1/messages", {"content-encoding": encoding}, body)
    assert found is not None
    assert found.input_tokens <= max(1, len(body))


def test_invalid_values_are_not_limits() -> None:
    for value in (True, -1, 0, "9", None, 10**12, 1.5):
        found = read("h", "/v1/messages", {"model": 7, "stream": "true", "max_tokens": value})
        assert found[2:5] == ("", False, None)


def test_an_image_is_not_counted_as_text() -> None:
    image = base64.b64encode(os.urandom(200_000)).decode()
    source = {"type": "base64", "media_type": "image/png", "data": image}
    body = json.dumps({"messages": [{"content": [{"type": "image", "source": source}]}]}).encode()
    assert 1_600 <= estimate_tokens(body) < 2_000


def test_the_reservation_is_the_estimated_input_and_the_largest_output() -> None:
    payload = {"model": "claude-sonnet-4-5", "max_tokens": 1_000, "messages": "x" * 4_000}
    found = read("api.anthropic.com", "/v1/messages", payload)
    cost = found.most_cost().micros
    assert cost is not None
    assert 15_000 + 3_000 <= cost < 15_000 + 3_400
    unlimited = read("api.openai.com", "/v1/responses", {"model": "gpt-5"})
    assert unlimited.most_usage().output == DEFAULT_OUTPUT_TOKENS


def test_a_model_without_a_price_has_an_unknown_cost_and_not_zero() -> None:
    found = read("api.openai.com", "/v1/responses", {"model": "no-such-model"}).most_cost()
    assert found.micros is None
    assert "has no price for the model 'no-such-model'" in found.unknown
    assert token_cost("", TokenUsage(1)).micros is None


def test_caches_have_their_own_prices() -> None:
    usage = TokenUsage(2_512, 42, 2_000, 300, 200)  # 12 fresh
    expected = 12 * 3 + 42 * 15 + 2_000 * 0.3 + 300 * 3.75 + 200 * 6
    assert token_cost("claude-sonnet-4-5", usage, "anthropic").micros == int(expected)


def test_a_very_long_request_has_its_own_price() -> None:
    short, long = TokenUsage(100_000), TokenUsage(300_000)
    assert token_cost("claude-sonnet-4-5", short).micros == 300_000
    assert token_cost("claude-sonnet-4-5", long).micros == 1_800_000


@pytest.mark.parametrize("provider", ["anthropic", "", "127.0.0.1:8080", "no such"])
def test_an_unknown_host_prices_a_model_by_its_name(provider: str) -> None:
    rates = model_price("claude-sonnet-4-5", provider)
    assert rates is not None
    assert rates[:4] == Rates(3_000_000, 15_000_000, 300_000, 3_750_000)[:4]


def test_a_model_may_carry_its_provider() -> None:
    assert model_price("anthropic/claude-sonnet-4-5") == model_price("claude-sonnet-4-5")
