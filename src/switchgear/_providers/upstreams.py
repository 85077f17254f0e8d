"""The model APIs that requests can be forwarded to, and what an address of one must be. Pure."""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

ANTHROPIC, OPENAI, GOOGLE = "anthropic", "openai", "google"
DEFAULT_URLS = {
    ANTHROPIC: "https://api.anthropic.com",
    OPENAI: "https://api.openai.com",
    GOOGLE: "https://generativelanguage.googleapis.com",
}
"""The upstreams that are known without an option."""
ALIASES = {"gemini": GOOGLE}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Upstream(NamedTuple):
    """A model API that requests are forwarded to."""

    name: str
    family: str
    """Whose protocols it has: `anthropic`, `openai` or `google`."""
    url: str
    """Scheme, host and the path before that of the API, without a slash at the end."""
    key: str = ""
    """The key that replaces the client's; empty: the client's is forwarded."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc


def upstream(name: str, url: str, family: str = "", key: str = "") -> Upstream:
    """An upstream as options name it. Raises ValueError.

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
        raise ValueError(f"upstream {name!r}: the URL must hold no password")
    return Upstream(name, family, url.rstrip("/"), key)
