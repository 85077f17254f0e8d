"""OpenAI's SDK, version 2 and 3: `client = guard(OpenAI())`, sync and async."""

from typing import Any, TypeVar, Unpack

import openai
from openai import AsyncOpenAI, OpenAI

from switchgear.integrations._guard import Fallback, HttpGuard, HttpGuardOptions, ModelUsage
from switchgear.integrations._http import guard_http_client

__all__ = ["Fallback", "ModelUsage", "guard"]

Client = TypeVar("Client", bound=OpenAI | AsyncOpenAI)


def guard(client: Client, **options: Unpack[HttpGuardOptions]) -> Client:
    """Guard the calls of a client, also one for Azure, in place, and return the client.

    The guard is part of the HTTP client of the SDK, inside its retries: each attempt counts as a call, and
    a refusal is not retried. Clients made by `with_options` share the guard. `HttpGuardOptions` describes
    the options; the default key is `"provider"`.
    """
    is_old = int(openai.__version__.partition(".")[0]) < 3
    http_guard = HttpGuard(
        **options, default_key="provider", owner="openai", sdk_retries_errors=is_old
    )
    http_client: Any = client._client  # noqa: SLF001  the SDK has no public name for it
    guard_http_client(http_client, http_guard)
    return client
