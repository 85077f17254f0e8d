"""Selects the headers to forward: all except those that concern one connection or the proxy. Pure."""

import hmac
from collections.abc import Iterable
from hashlib import sha256

from switchgear._providers.upstreams import KEY_HEADERS, Upstream, key_header
from switchgear._proxy.http1 import Headers

TOKEN_HEADER = b"x-switchgear-token"
_HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
        *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    )
)
_NOT_FORWARDED = frozenset(
    (b"host", b"content-length", b"expect", TOKEN_HEADER, b"x-switchgear-session")
)
_KEYS = frozenset(name.encode() for name in KEY_HEADERS)
_READABLE = frozenset((b"gzip", b"x-gzip", b"deflate", b"identity"))
"""Encodings in which the tokens of a response can be read."""


def request_headers(headers: Headers, to: Upstream, *, is_metered: bool = False) -> Headers:
    """The headers that are forwarded to an upstream.

    With `is_metered`, only encodings in which the usage can be read are accepted.
    """
    dropped = _HOP_BY_HOP | _NOT_FORWARDED | _connection_headers(headers)
    if to.key:
        dropped |= _KEYS
    kept = []
    for name, value in headers:
        lower = name.lower()
        if lower not in dropped:
            if is_metered and lower == b"accept-encoding":
                kept.append((name, readable_encodings(value)))
            else:
                kept.append((name, value))
    if to.key:
        header, key = key_header(to.family, to.key)
        kept.append((header.encode(), key.encode()))
    return kept


def response_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    listed = list(headers)
    dropped = _HOP_BY_HOP | _connection_headers(listed)
    return [
        (name, value)
        for name, value in listed
        if name.lower() not in dropped and not name.lower().startswith(b"x-switchgear-")
    ]


def readable_encodings(value: bytes) -> bytes:
    """An `Accept-Encoding` without encodings that the proxy cannot read.

    >>> readable_encodings(b"gzip, deflate, br, zstd"), readable_encodings(b"br")
    (b'gzip, deflate', b'identity')
    """
    kept = [
        part.strip()
        for part in value.split(b",")
        if part.partition(b";")[0].strip().lower() in _READABLE
    ]
    return b", ".join(kept) or b"identity"


def is_token(given: str, digest: bytes) -> bool:
    """Whether a token has this SHA-256 digest, compared in constant time."""
    return hmac.compare_digest(sha256(given.encode("utf-8", "surrogateescape")).digest(), digest)


def _connection_headers(headers: Headers) -> frozenset[bytes]:
    """The headers that `Connection` names, which concern only one connection, too."""
    return frozenset(
        part.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for part in value.split(b",")
    )
