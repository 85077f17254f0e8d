"""SDK exceptions, HTTP responses and CLI messages have one classification."""

import pytest

from switchgear._agents.events import LIMITED, OUTAGE, error_from_text, recognised_error
from switchgear._providers.errors import ProviderError, classify, classify_response
from switchgear._providers.table import (
    PROVIDER_FAILURES,
    ProviderErrorKind,
    kind_of_message,
    kind_of_status,
)

STATUSES = [*range(400, 432), 451, 498, 499, *range(500, 512), 520, 522, 524, 529, 599]


class Answered(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status_code = status


def kinds(status: int, text: str) -> set[ProviderErrorKind | None]:
    """The kind of the same error as an exception, as a response and as a message."""
    found: list[ProviderError | None] = [
        classify(Answered(status, text)),
        classify_response(status, None, {"error": {"message": text}}),
    ]
    written = kind_of_message(f"api error: {status} {text}".lower(), status)
    return {*(None if one is None else one.kind for one in found), written}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize(
    "text",
    [
        "no",
        "Your credit balance is too low",
        "prompt is too long: 210000 tokens",
        "Output blocked by content filtering policy",
        "rate limit",
        "overloaded",
        "authentication",
        "connection refused",
    ],
)
def test_an_exception_a_response_and_a_message_agree(status: int, text: str) -> None:
    assert len(kinds(status, text)) == 1


@pytest.mark.parametrize("status", STATUSES)
def test_a_message_of_an_agent_counts_against_the_provider_exactly_as_in_the_table(
    status: int,
) -> None:
    error = error_from_text(f"unexpected status {status}: no")
    assert error.status == status
    assert (error.kind in OUTAGE | {"rate_limit"}) is (kind_of_status(status) in PROVIDER_FAILURES)
    assert (error.kind == "auth") is (kind_of_status(status) is ProviderErrorKind.AUTH)


@pytest.mark.parametrize(
    ("status", "kind", "stored"),
    [(404, "bad_request", "other"), (408, "timeout", "connection"), (504, "timeout", "connection")],
)
def test_a_missing_model_is_a_bad_request_and_a_gateway_timeout_a_provider_failure(
    status: int, kind: str, stored: str
) -> None:
    assert kinds(status, "no") == {ProviderErrorKind(kind)}
    assert error_from_text(f"API Error: {status} no").kind == stored


def test_a_missing_model_is_not_a_rate_limit_whatever_the_message_mentions() -> None:
    assert (
        error_from_text("API Error: 404 no model 'rate limit'; authentication is fine").kind
        == "other"
    )


def test_resource_exhausted_with_a_delay_is_a_rate_limit_and_without_one_a_quota() -> None:
    quota = "429 RESOURCE_EXHAUSTED: You exceeded your current quota"
    assert error_from_text(quota).kind == "quota"
    limited = error_from_text(f'{quota} "retryDelay": "34s"')
    assert (limited.kind, limited.retry_after_s) == ("rate_limit", 34.0)
    assert {error_from_text(quota).kind, limited.kind} <= LIMITED


@pytest.mark.parametrize(
    "text",
    [
        "error: permission_denied: /etc/shadow",
        "Error: slow_down() is not defined",
        "error in content_filter.py",
    ],
)
def test_codes_that_other_programs_also_print_are_not_provider_errors(text: str) -> None:
    assert recognised_error(text) is None


def test_an_agent_that_stopped_itself_is_not_a_failing_provider() -> None:
    assert error_from_text("429 rate limit; maximum number of turns reached").kind == "limit"
