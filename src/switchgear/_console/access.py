"""Decides which requests are answered, by host, origin, token and rate. Pure: the time is an argument.

- `Host` must name this server, so that a page of another site cannot reach it by a host name that
  resolves to this address (DNS rebinding).
- `Origin`, if a browser sends one, must be this server's own page.
- A token in `Authorization: Bearer TOKEN` decides the role. Only digests are kept and compared.
- No cookies are used: a browser adds nothing to a forged request that this server would accept.
"""

from collections.abc import Mapping
from enum import IntEnum
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from threading import Lock
from typing import NamedTuple

LONGEST_TOKEN = 200
REQUESTS_PER_S, REQUESTS_AT_ONCE = 2_000.0, 4_000.0
"""Rate and burst of the requests of one role from one address."""
FAILURES_PER_S, FAILURES_AT_ONCE = 1.0, 200.0
"""Rate and burst of requests without a valid token from one address; further requests get 429."""
MOST_ADDRESSES = 10_000


class Role(IntEnum):
    """What a token allows; each role allows everything below it."""

    READ = 1
    CLIENT = 2
    """Acquire permits and record results."""
    OPERATOR = 3
    """Override circuits and intervene in sessions."""


class Denied(NamedTuple):
    status: int
    reason: str
    """One word for the counter `switchgear_http_refused_total`."""
    message: str


class Tokens(NamedTuple):
    """The SHA-256 digests of the accepted tokens, in hexadecimal; `None`: no such token."""

    read: str | None
    client: str | None
    operator: str | None

    def role_of(self, token: str, operator_digest: str | None = None) -> Role | None:
        """The role of a token. `operator_digest`, from the store, replaces the digest for operators."""
        given = digest(token)
        operator = operator_digest or self.operator
        found: Role | None = None
        for role, known in (
            (Role.READ, self.read),
            (Role.CLIENT, self.client),
            (Role.OPERATOR, operator),
        ):
            if known is not None and compare_digest(given, known.lower()):
                found = role
        return found


def digest(token: str) -> str:
    return sha256(token[:LONGEST_TOKEN].encode(errors="replace")).hexdigest()


def bearer(header: str | None) -> str | None:
    """The token in an `Authorization` header; `None`: there is none."""
    scheme, _, token = (header or "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None


class Places(NamedTuple):
    is_loopback: bool = True
    names: frozenset[str] = frozenset()
    """Further host names that the operator allows, in lower case."""

    def denied(self, headers: Mapping[str, str], *, is_page: bool = False) -> Denied | None:
        """Why a request with these headers is refused, by its `Host` and `Origin`.

        `is_page`: the request is for a file of the page. It contains no data, so other sites may link to it.
        """
        host = headers.get("host", "").lower()
        if not self._is_ours(_name_of(host)):
            rule = "the Host must be 127.0.0.1, localhost, or a name given with --allow-host"
            return Denied(403, "host", rule)
        origin = headers.get("origin")
        foreign = origin is not None and origin.lower() not in {f"http://{host}", f"https://{host}"}
        site = headers.get("sec-fetch-site", "none").lower()
        if site not in {"none", "same-origin"}:
            foreign |= not (is_page and _is_navigation(headers))
        if foreign:
            return Denied(403, "origin", "requests from pages of another origin are refused")
        return None

    def _is_ours(self, name: str) -> bool:
        if name == "localhost" or name in self.names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        # An address is not resolved, so no other site can use it for DNS rebinding.
        return address.is_loopback or not self.is_loopback


def _is_navigation(headers: Mapping[str, str]) -> bool:
    """Whether the request is a navigation of the browser window, and not a frame, script or form."""
    mode, place = headers.get("sec-fetch-mode", ""), headers.get("sec-fetch-dest", "")
    return (mode.lower(), place.lower()) == ("navigate", "document")


def _name_of(host: str) -> str:
    """The name in a `Host` header, without the port and the brackets of IPv6."""
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name if bracket and (not rest or _is_port(rest)) else ""
    name, colon, port = host.partition(":")
    return name if not colon or _is_port(f":{port}") else ""


def _is_port(text: str) -> bool:
    return text[:1] == ":" and text[1:].isascii() and text[1:].isdigit() and len(text) <= 6


class RequestRate:
    """Token buckets by key. Thread-safe. If there are too many keys, the oldest are dropped."""

    def __init__(self, per_s: float, at_once: float) -> None:
        self._per_s, self._at_once = per_s, at_once
        self._lock = Lock()
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, key: str, now_s: float) -> bool:
        """Whether another request is allowed now; if so, it is counted."""
        with self._lock:
            left, at_s = self._left.pop(key, (self._at_once, now_s))
            left = min(self._at_once, left + max(0.0, now_s - at_s) * self._per_s)
            allowed = left >= 1.0
            self._left[key] = (left - 1.0 if allowed else left, now_s)
            while len(self._left) > MOST_ADDRESSES:
                del self._left[next(iter(self._left))]
            return allowed


SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""The headers of every response. The page may only load its own files, and may not be framed."""
