"""Google's SDK for Gemini: `client = guard(genai.Client())`, its sync and its async side.

The async side uses httpx afterwards, even where aiohttp is installed.
"""

from typing import Any, Unpack

from google import genai

from switchgear.integrations._guard import Fallback, HttpGuard, HttpGuardOptions, ModelUsage
from switchgear.integrations._http import guard_http_client, library_of

__all__ = ["Fallback", "ModelUsage", "guard"]


def guard(client: genai.Client, **options: Unpack[HttpGuardOptions]) -> genai.Client:
    """Guard the calls of a client and of its `aio` in place, and return the client.

    A refusal is never retried, whatever `retry_options` are. `HttpGuardOptions` describes the options; the
    default key is `"provider"`.
    """
    http_guard = HttpGuard(**options, default_key="provider", owner="google-genai")
    api: Any = client._api_client  # noqa: SLF001  the SDK has no public name for its HTTP clients
    guard_http_client(api._httpx_client, http_guard)  # noqa: SLF001
    asynchronous = getattr(api, "_async_httpx_client", None)
    if asynchronous is None:
        library = library_of(api._httpx_client)  # noqa: SLF001
        settings = dict(getattr(api, "_async_httpx_client_args", None) or {})
        asynchronous = library.AsyncClient(**{"follow_redirects": True, **settings})
    guard_http_client(asynchronous, http_guard)
    api._async_httpx_client = asynchronous  # noqa: SLF001
    api._use_aiohttp = lambda: False  # noqa: SLF001  otherwise it is used if it is installed
    return client
