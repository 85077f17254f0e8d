"""Retries that wait for the circuit: five requests, one refusal, one recovery. Needs no key and no network."""

import stamina

from switchgear import CircuitBreaker
from switchgear.integrations.stamina import after_refusal

breaker = CircuitBreaker("provider/example", base_timeout=0.5)
requests: list[str] = []


@stamina.retry(on=after_refusal(ConnectionError), attempts=20, timeout=60, wait_max=0.01)
@breaker
def ask() -> str:
    """Stands in for a request to a provider that comes back after five failures."""
    requests.append("one more")
    if len(requests) <= 5:
        raise ConnectionError("connection refused")
    return "hello"


print(f"{ask()} after {len(requests)} requests: the circuit is {breaker.state}")
