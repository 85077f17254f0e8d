"""Retries that respect a circuit: five requests, one refusal, and no storm. Needs no key and no network."""

from tenacity import retry, stop_after_attempt

from switchgear import CircuitBreaker, Rejected
from switchgear.integrations.tenacity import retry_unless_refused

breaker = CircuitBreaker("provider/example")
requests: list[str] = []


@retry(retry=retry_unless_refused(), stop=stop_after_attempt(50))
@breaker
def ask() -> str:
    """Stands in for a request to a provider that is down."""
    requests.append("one more")
    raise ConnectionError("connection refused")


try:
    ask()
except Rejected as refused:
    print(f"{len(requests)} requests, then: {refused}")
