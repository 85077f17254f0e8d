"""httpx and httpx2: every request of a client within a circuit, sync and async.

>>> import httpx2
>>> from switchgear import Panel
>>> answer = httpx2.MockTransport(lambda request: httpx2.Response(200, text="pong"))
>>> client = guard(httpx2.Client(transport=answer), panel=Panel("memory:"))
>>> client.get("https://api.example.com/ping").text
'pong'
"""

from typing import Any, TypeVar, Unpack, cast

from switchgear.integrations._guard import Fallback, HttpGuard, HttpGuardOptions, ModelUsage
from switchgear.integrations._http import guard_http_client, guard_transport

__all__ = ["Fallback", "ModelUsage", "guard"]

T = TypeVar("T")


def guard(client: T, **options: Unpack[HttpGuardOptions]) -> T:
    """Guard a `Client` or `AsyncClient` in place and return it; for a transport, return a guarded one.

    A response with status 429 or 5xx is a failure, `Retry-After` and rate-limit headers are honoured, and a
    response belongs to its call until the last byte. Requests to model APIs are metered and priced. A
    refused request raises `Rejected`. `HttpGuardOptions` describes the options. Raises TypeError for anything
    other than a client or transport of httpx or httpx2.
    """
    http_guard = HttpGuard(**options)
    anything: Any = client
    if hasattr(anything, "handle_request") or hasattr(anything, "handle_async_request"):
        return cast("T", guard_transport(anything, http_guard))
    guard_http_client(anything, http_guard)
    return client
