"""Recognises requests to model APIs by path and body: the protocol, provider, model and size.

Pure: headers and bytes in, values out. The transports, the proxy and the framework integrations use it.
"""

import json
import re
import zlib
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from switchgear._providers.prices import TokenCost, TokenUsage, token_cost

LONGEST_MODEL = 200
"""Maximum length of a model's name; a longer one is cut."""
DEFAULT_OUTPUT_TOKENS = 4_096
"""Maximum tokens expected of a response if the request sets no limit."""
_LARGEST_BODY = 64 * 1024 * 1024
_MOST_VALUES = 1_000_000
"""Maximum number of values in a body; 39 KB of hostile gzip can take 20 s to parse."""
_IMAGE_TOKENS = 1_600
_ENCODED = re.compile(rb"[A-Za-z0-9+/_=-]{1000,}")


class ModelProtocol(StrEnum):
    """The format of a request and its response."""

    ANTHROPIC_MESSAGES = "anthropic_messages"
    ANTHROPIC_COUNT_TOKENS = "anthropic_count_tokens"
    OPENAI_CHAT = "openai_chat"
    OPENAI_RESPONSES = "openai_responses"
    GEMINI_GENERATE = "gemini_generate"
    GEMINI_STREAM = "gemini_stream"

    def __init__(self, name: str) -> None:
        self.family: str = "google" if name.startswith("gemini") else name.partition("_")[0]
        """The family of the protocol: `anthropic`, `openai` or `google`."""


HOSTS: tuple[tuple[str, str], ...] = (
    ("api.anthropic.com", "anthropic"),
    ("api.openai.com", "openai"),
    (".openai.azure.com", "azure"),
    (".services.ai.azure.com", "azure"),
    (".cognitiveservices.azure.com", "azure"),
    ("generativelanguage.googleapis.com", "google"),
    ("aiplatform.googleapis.com", "google"),
    (".amazonaws.com", "aws"),
    ("openrouter.ai", "openrouter"),
    ("api.mistral.ai", "mistral"),
    ("api.groq.com", "groq"),
    ("api.deepseek.com", "deepseek"),
    ("api.x.ai", "x-ai"),
    ("api.together.xyz", "together"),
    ("api.fireworks.ai", "fireworks"),
    ("api.cohere.com", "cohere"),
    ("api.perplexity.ai", "perplexity"),
    ("api.cerebras.ai", "cerebras"),
)
"""Providers, by the end of the host; their names are those of the price list."""

_GEMINI = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)$")
_DEPLOYMENT = re.compile(r"/deployments/([^/]+)/")
_SUFFIXES: tuple[tuple[str, ModelProtocol], ...] = (
    ("/messages", ModelProtocol.ANTHROPIC_MESSAGES),
    ("/messages/count_tokens", ModelProtocol.ANTHROPIC_COUNT_TOKENS),
    ("/chat/completions", ModelProtocol.OPENAI_CHAT),
    ("/responses", ModelProtocol.OPENAI_RESPONSES),
)


class ModelRequest(NamedTuple):
    """A request to a model API."""

    protocol: ModelProtocol
    provider: str
    """The name of the provider, such as `openai`; for an unknown host, the host with its port."""
    model: str
    """Empty if the request names none or its body is unreadable."""
    is_stream: bool
    max_output_tokens: int | None
    """The limit that the request sets; `None`: it sets none."""
    input_tokens: int
    """An estimate by the size of the body: four ASCII bytes per token, 1,600 tokens per image."""
    payload: Mapping[str, Any]
    """The parsed body; empty if it is unreadable. Must not be changed."""

    def most_usage(self, default_output_tokens: int = DEFAULT_OUTPUT_TOKENS) -> TokenUsage:
        """The tokens to reserve money for: the estimated input and the largest output allowed."""
        output = self.max_output_tokens
        return TokenUsage(self.input_tokens, default_output_tokens if output is None else output)

    def most_cost(self, default_output_tokens: int = DEFAULT_OUTPUT_TOKENS) -> TokenCost:
        """The amount to reserve before the request is sent; counting tokens is free of charge."""
        if self.protocol is ModelProtocol.ANTHROPIC_COUNT_TOKENS:
            return TokenCost(0)
        return token_cost(self.model, self.most_usage(default_output_tokens), self.provider)


@lru_cache(256)
def protocol_of(path: str) -> ModelProtocol | None:
    """The protocol of a path, whatever its prefix; `None`: unknown.

    >>> protocol_of("/v1/messages?beta=true"), protocol_of("/v1/models")
    (<ModelProtocol.ANTHROPIC_MESSAGES: 'anthropic_messages'>, None)
    """
    plain = unquote(path.partition("?")[0].partition("#")[0]).partition(";")[0].rstrip("/")
    gemini = _GEMINI.search(plain)
    if gemini is not None:
        is_stream = gemini[2] == "streamGenerateContent"
        return ModelProtocol.GEMINI_STREAM if is_stream else ModelProtocol.GEMINI_GENERATE
    return next((protocol for suffix, protocol in _SUFFIXES if plain.endswith(suffix)), None)


@lru_cache(256)
def provider_of(host: str) -> str:
    """The name of the provider for a host; for an unknown host, the host with its port.

    >>> provider_of("api.openai.com"), provider_of("eu.openai.azure.com:443"), provider_of("gpu-1:8000")
    ('openai', 'azure', 'gpu-1:8000')
    """
    known = host.lower().strip()
    name = known if known.startswith("[") else known.partition(":")[0]
    for ending, provider in HOSTS:
        if name.endswith(ending) and (
            ending.startswith(".") or name.removesuffix(ending)[-1:] in {"", ".", "-"}
        ):
            return provider
    return known


def read_request(
    host: str, path: str, headers: Mapping[str, str], body: bytes, method: str = "POST"
) -> ModelRequest | None:
    """The model request in an HTTP request; `None`: it is no model request. Never raises.

    `path` may have a query. For an unreadable body, the model is empty and the estimate of the input
    is made from its size.

    >>> found = read_request("api.openai.com", "/v1/chat/completions", {}, b'{"model": "gpt-5"}')
    >>> found.provider, found.model, found.is_stream
    ('openai', 'gpt-5', False)
    """
    protocol = protocol_of(path) if method.upper() == "POST" else None
    if protocol is None:
        return None
    text = _decode_body(headers, body)
    payload = _payload(text)
    return ModelRequest(
        protocol,
        provider_of(host),
        _model(path, payload),
        protocol is ModelProtocol.GEMINI_STREAM or payload.get("stream") is True,
        _limit(protocol, payload),
        estimate_tokens(text),
        payload,
    )


def estimate_tokens(body: bytes) -> int:
    """Tokens by size: four ASCII or two other bytes per token; an encoded file counts as an image.

    >>> estimate_tokens(b"x" * 400), estimate_tokens("é".encode() * 100)
    (100, 100)
    """
    images = 0
    if len(body) > 1000 and (b"base64" in body or b"nline" in body):  # inline_data, inlineData
        images = len(_ENCODED.findall(body))
        body = _ENCODED.sub(b"", body)
    size = len(body)
    plain = size if body.isascii() else len(body.translate(None, _HIGH_BYTES))
    return -(-plain // 4) + -(-(size - plain) // 2) + images * _IMAGE_TOKENS


_HIGH_BYTES = bytes(range(128, 256))


def _decode_body(headers: Mapping[str, str], body: bytes) -> bytes:
    if isinstance(headers, dict):
        found = (value for name, value in headers.items() if name.lower() == "content-encoding")
        encoding = next(found, "")
    else:  # the headers of a client library, whatever the case of a name
        encoding = headers.get("content-encoding", "")
    if encoding.strip().lower() not in {"gzip", "x-gzip", "deflate"}:
        return body
    try:
        return zlib.decompressobj(wbits=47).decompress(body, _LARGEST_BODY)
    except zlib.error:
        return body


def _payload(text: bytes) -> dict[str, Any]:
    if text.count(b",") > _MOST_VALUES:
        return {}
    parsed = parsed_json(text)
    return parsed if isinstance(parsed, dict) else {}


def parsed_json(data: bytes) -> Any:
    """The value of a JSON text; `None` if it is invalid."""
    try:
        # A text is faster, because `json` detects the encoding of bytes. UTF-16 has a mark or a null byte here.
        is_utf_8 = data[:1] == b"{" and data[1:2] != b"\0"
        return json.loads(data.decode() if is_utf_8 else data)
    except (ValueError, RecursionError):
        return None


def _model(path: str, payload: Mapping[str, Any]) -> str:
    path_model, is_certain = _model_in(path)
    model = payload.get("model")
    if not is_certain and isinstance(model, str) and model:
        return model[:LONGEST_MODEL]
    return path_model


@lru_cache(256)
def _model_in(path: str) -> tuple[str, bool]:
    """The model that a path names, and whether it takes precedence over the model in the body."""
    plain = unquote(path.partition("?")[0]).rstrip("/")
    gemini = _GEMINI.search(plain)
    found = gemini or _DEPLOYMENT.search(plain)
    return ("" if found is None else found[1][:LONGEST_MODEL]), gemini is not None


_LIMITS: dict[ModelProtocol, tuple[str, ...]] = {
    ModelProtocol.ANTHROPIC_MESSAGES: ("max_tokens",),
    ModelProtocol.ANTHROPIC_COUNT_TOKENS: (),
    ModelProtocol.OPENAI_CHAT: ("max_completion_tokens", "max_tokens"),
    ModelProtocol.OPENAI_RESPONSES: ("max_output_tokens",),
    ModelProtocol.GEMINI_GENERATE: ("maxOutputTokens", "max_output_tokens"),
    ModelProtocol.GEMINI_STREAM: ("maxOutputTokens", "max_output_tokens"),
}
"""The fields of a request that limit its output, in order of precedence."""


def _limit(protocol: ModelProtocol, payload: Mapping[str, Any]) -> int | None:
    holder: Any = payload
    names = _LIMITS[protocol]
    if protocol.family == "google":
        config = payload.get("generationConfig", payload.get("generation_config"))
        holder = config if isinstance(config, dict) else {}
    for name in names:
        value = holder.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
            choices = payload.get("n", 1) if protocol is ModelProtocol.OPENAI_CHAT else 1
            count = choices if type(choices) is int and 0 < choices <= 128 else 1
            return value * count
    return None
