"""The words in which model providers complain, as data: codes, phrases, statuses, exceptions.

From the published error pages of the providers and the sources of their SDKs.
"""

WORDS: dict[str, str] = {
    # Anthropic
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "quota",
    "request_too_large": "context_length",
    "rate_limit_error": "rate_limit",
    "api_error": "outage",
    "overloaded_error": "overload",
    "timeout_error": "timeout",
    # OpenAI and Azure
    "invalid_api_key": "auth",
    "account_deactivated": "auth",
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "context_length_exceeded": "context_length",
    "string_above_max_length": "context_length",
    "content_filter": "content_policy",
    "content_policy_violation": "content_policy",
    "moderation_blocked": "content_policy",
    "responsibleaipolicyviolation": "content_policy",
    "rate_limit_exceeded": "rate_limit",
    "slow_down": "overload",
    "server_overloaded": "overload",
    "server_error": "outage",
    # Google
    "unauthenticated": "auth",
    "permission_denied": "auth",
    "api_key_invalid": "auth",
    "prohibited_content": "content_policy",
    "unavailable": "overload",
    "internal": "outage",
    "deadline_exceeded": "timeout",
    # AWS
    "accessdeniedexception": "auth",
    "servicequotaexceededexception": "quota",
    "throttlingexception": "rate_limit",
    "serviceunavailableexception": "overload",
    "internalserverexception": "outage",
    "modeltimeoutexception": "timeout",
}
"""Codes and types in the body of an error; `resource_exhausted` is judged by what stands beside it."""

PHRASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("quota", ("credit balance", "exceeded your current quota", "check your plan and billing")),
    (
        "context_length",
        (
            *("prompt is too long", "maximum context length", "context window", "context length"),
            *("input token count", "maximum number of tokens", "input is too long"),
        ),
    ),
    (
        "content_policy",
        (
            *("content filtering policy", "content management policy", "safety system"),
            *("content policy", "usage policies", "flagged as potentially violating"),
        ),
    ),
    ("auth", ("api key not valid", "api key expired", "invalid api key", "invalid x-api-key")),
)
"""What a message says where its status alone says too little."""

STATUSES: dict[int, str] = {
    401: "auth",
    402: "quota",
    403: "auth",
    407: "auth",
    408: "timeout",
    413: "context_length",
    425: "overload",
    429: "rate_limit",
    503: "overload",
    504: "timeout",
    529: "overload",
}
"""What is not here is an outage from 500 on, and a bad request below."""

NAMES: dict[str, str] = {
    "ContentFilterFinishReasonError": "content_policy",
    "ContentPolicyViolationError": "content_policy",
    "BlockedPromptException": "content_policy",
    "LengthFinishReasonError": "context_length",
    "ContextWindowExceededError": "context_length",
}
"""Exceptions that say more than their status, by the names of their types."""

UNANSWERED: dict[str, str] = {
    # Timeouts first: to some they are connection errors too.
    "APITimeoutError": "timeout",
    "TimeoutException": "timeout",
    "Timeout": "timeout",
    "TimeoutError": "timeout",
    "APIConnectionError": "outage",
    "TransportError": "outage",
    "ClientConnectionError": "outage",
    "ConnectionError": "outage",
    "URLError": "outage",
    "gaierror": "outage",
}
"""Exceptions that say that nobody answered, by the names of their types and of those that they
derive from. One that has a status was answered: `urllib` derives those from `URLError`."""
