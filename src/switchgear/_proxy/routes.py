"""Where a request goes: its upstream, the path there, and the session that its URL names. Pure.

A URL is `[/t/<token>][/s/<session>][/<upstream>]<path of the API>`. Without the name of an upstream the
path and the headers identify the API.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from switchgear._providers.traffic import ModelProtocol, protocol_of
from switchgear._providers.upstreams import ALIASES, ANTHROPIC, GOOGLE, OPENAI, Upstream

_SESSION = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._~@:+-]{0,119}")
_TOKEN = re.compile(rb"[!-.0-~]{1,200}")
_KEY = re.compile(r"([?&])(?:key=[^&]*(?:&|$))+")
_VERSION = re.compile(r"/v\d+(?:beta|alpha)?\d*")


class ProxyRoute(NamedTuple):
    """The route of a request, by its target and headers."""

    upstream: str
    path: str
    """The path and query of the API, as the client wrote them."""
    protocol: ModelProtocol | None
    """`None`: the request is not guarded and passes through."""
    session: str = ""
    """The name in `/s/<name>/`; empty: none."""
    token: str = ""
    """The token in `/t/<token>/`; empty: none."""


class BadRoute(ValueError):
    """A target that cannot be forwarded."""


def route(
    target: bytes, headers: list[tuple[bytes, bytes]], upstreams: frozenset[str]
) -> ProxyRoute:
    """Where a request goes. Raises `BadRoute`.

    >>> found = route(b"/s/nightly/v1/messages?beta=true", [], frozenset({"anthropic"}))
    >>> found.upstream, found.session, found.path
    ('anthropic', 'nightly', '/v1/messages?beta=true')
    """
    if not target.startswith(b"/") or target.startswith(b"//"):
        raise BadRoute("the target must be a path that begins with one slash")
    plain = target.partition(b"?")[0]
    if b"#" in target or b"\\" in plain or not target.isascii():
        raise BadRoute("the target contains a character that a URL must not contain")
    decoded = unquote_to_bytes(plain)
    if any(part in {b".", b".."} for part in decoded.replace(b"\\", b"/").split(b"/")):
        raise BadRoute("the path must not contain '.' or '..'")
    if any(byte < 32 or byte == 127 for byte in decoded):
        raise BadRoute("the path must not contain control characters")
    token, rest = _prefix(target, b"/t/", _TOKEN)
    session, rest = _prefix(rest, b"/s/", _SESSION)
    path = rest.decode("ascii")
    first = path[1:].partition("/")[0].partition("?")[0]
    named = ALIASES.get(first, first)
    if named in upstreams:
        path = path[1 + len(first) :] or "/"
        return ProxyRoute(named, path, protocol_of(path), session, token)
    protocol = protocol_of(path)
    family = protocol.family if protocol is not None else _family(path, headers)
    return ProxyRoute(family, path, protocol, session, token)


def _prefix(target: bytes, mark: bytes, allowed: re.Pattern[bytes]) -> tuple[str, bytes]:
    if not target.startswith(mark):
        return "", target
    name, slash, rest = target[len(mark) :].partition(b"/")
    if not slash or not allowed.fullmatch(name):
        what = "token" if mark == b"/t/" else "session"
        raise BadRoute(f"the name of the {what} in the URL is not valid")
    return name.decode("ascii"), b"/" + rest


def _family(path: str, headers: list[tuple[bytes, bytes]]) -> str:
    """The API for an ambiguous path, by the headers that only one API has."""
    names = {name.lower() for name, _ in headers}
    if b"x-goog-api-key" in names or path.startswith("/v1beta") or ":countTokens" in path:
        return GOOGLE
    if b"anthropic-version" in names or b"x-api-key" in names:
        return ANTHROPIC
    return OPENAI


def upstream_url(to: Upstream, path: str) -> str:
    """The URL of a request at an upstream; a version that both paths have is not repeated.

    If the upstream has its own key, a key of the client in the query is removed.

    >>> upstream_url(Upstream("openai", "openai", "http://gpu:8000/v1"), "/v1/chat/completions")
    'http://gpu:8000/v1/chat/completions'
    """
    if to.key and "key=" in path:
        path = _KEY.sub(r"\1", path).rstrip("?&")
    version = _VERSION.match(path)
    if version is not None and to.url.endswith(version[0]) and urlsplit(to.url).path:
        after = path[version.end() :]
        if after[:1] in {"/", "?", ""}:
            return to.url + after
    return to.url + path
