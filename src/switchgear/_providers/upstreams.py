"""The model APIs that requests can be forwarded to: their addresses, keys and errors. Pure."""

import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

ANTHROPIC, OPENAI, GOOGLE = "anthropic", "openai", "google"
DEFAULT_URLS = {
    ANTHROPIC: "https://api.anthropic.com",
    OPENAI: "https://api.openai.com",
    GOOGLE: "https://generativelanguage.googleapis.com",
}
"""The URLs of the upstreams that need no option."""
ALIASES = {"gemini": GOOGLE}
KEY_HEADERS = ("x-api-key", "authorization", "x-goog-api-key", "api-key")
"""The headers that carry a key, in order of precedence."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Upstream(NamedTuple):
    """A model API that requests are forwarded to."""

    name: str
    family: str
    """The family of its protocols: `anthropic`, `openai` or `google`."""
    url: str
    """Scheme, host and the path before that of the API, without a slash at the end."""
    key: str = ""
    """The key that replaces the client's; empty: the client's is forwarded."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc


def upstream(name: str, url: str, family: str = "", key: str = "") -> Upstream:
    """An upstream from the values of options. Raises ValueError.

    >>> upstream("backup", "https://eu.example/anthropic/", "anthropic").url
    'https://eu.example/anthropic'
    """
    name = ALIASES.get(name, name)
    family = ALIASES.get(family, family) or name
    if not _NAME.fullmatch(name) or name in {"s", "t", "v1", "v1beta", "healthz"}:
        raise ValueError(f"upstream {name!r}: it must be a short name of letters and digits")
    if family not in DEFAULT_URLS:
        known = ", ".join(DEFAULT_URLS)
        raise ValueError(f"upstream {name!r}: name its protocol, one of {known}")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"upstream {name!r}: {url!r} must be a URL such as https://host/path")
    if parts.username or parts.password:
        raise ValueError(f"upstream {name!r}: the URL must not contain a password")
    return Upstream(name, family, url.rstrip("/"), key)


def key_header(family: str, key: str) -> tuple[str, str]:
    """The header that carries a key to an API of this family."""
    if family == "anthropic":
        return "x-api-key", key
    if family == "google":
        return "x-goog-api-key", key
    return "authorization", f"Bearer {key}"


def error_body(
    family: str, status: int, kind: str, message: str, code: str | None = None
) -> dict[str, Any]:
    """The body of an error response in the format of a family.

    `kind` is the family's name for the error; `code` is for `openai`, which has both.

    >>> error_body("anthropic", 529, "overloaded_error", "try later")
    {'type': 'error', 'error': {'type': 'overloaded_error', 'message': 'try later'}}
    """
    if family == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}}
    if family == "google":
        return {"error": {"code": status, "message": message, "status": kind}}
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
