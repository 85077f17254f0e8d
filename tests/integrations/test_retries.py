"""tenacity and stamina, the real packages: no retry before the circuit may admit again."""

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("tenacity")
pytest.importorskip("stamina")

import stamina
from tenacity import (
    AsyncRetrying,
    RetryError,
    Retrying,
    retry,
    retry_if_exception_type,
    stop_after_attempt,
    wait_fixed,
)

from switchgear import CircuitBreaker, Rejected
from switchgear.errors import BudgetRefused
from switchgear.integrations.stamina import after_refusal, unless_refused
from switchgear.integrations.tenacity import (
    retry_unless_refused,
    stop_if_refused,
    wait_for_circuit,
)
from switchgear.testing import FakeClock, force_state


class Provider:
    """A provider behind a breaker, and a clock on which retries sleep."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.breaker = CircuitBreaker("provider/x", clock=self.clock)
        self.requests = 0
        self.up = False
        self.slept: list[float] = []

    def call(self) -> str:
        with self.breaker:
            self.requests += 1
            if not self.up:
                raise ConnectionError("down")
            return "answer"

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture(autouse=True)
def _fast_stamina() -> Iterator[None]:
    with stamina.set_testing(True, attempts=10, cap=True):
        yield


def test_without_the_integration_tenacity_hammers_the_refusing_circuit(provider: Provider) -> None:
    retrying = Retrying(stop=stop_after_attempt(50), sleep=provider.sleep)
    with pytest.raises(RetryError):
        retrying(provider.call)
    assert provider.breaker.totals.refused > 40


def test_tenacity_ends_with_the_refusal_itself(provider: Provider) -> None:
    retrying = Retrying(
        retry=retry_unless_refused(), stop=stop_after_attempt(50), sleep=provider.sleep
    )
    with pytest.raises(Rejected):
        retrying(provider.call)
    assert (provider.requests, provider.breaker.totals.refused) == (5, 1)


def test_tenacity_waits_for_the_circuit_and_succeeds(provider: Provider) -> None:
    retrying = Retrying(
        wait=wait_for_circuit(wait_fixed(0.5)),
        stop=stop_if_refused(longer_than_s=120) | stop_after_attempt(20),
        sleep=provider.sleep,
        reraise=True,
    )
    force_state(provider.breaker, "open", retry_after_s=42.0)
    provider.up = True
    assert retrying(provider.call) == "answer"
    assert provider.slept == [pytest.approx(42.0)]
    assert provider.requests == 1


@pytest.mark.parametrize("wait_s", [None, 3600.0])
def test_tenacity_gives_up_on_a_refusal_that_lasts(
    provider: Provider, wait_s: float | None
) -> None:
    force_state(provider.breaker, "open", retry_after_s=wait_s)
    retrying = Retrying(
        wait=wait_for_circuit(), stop=stop_if_refused(), sleep=provider.sleep, reraise=True
    )
    with pytest.raises(Rejected):
        retrying(provider.call)
    assert (provider.slept, provider.requests) == ([], 0)


def test_tenacity_works_with_coroutines_and_its_own_conditions(provider: Provider) -> None:
    async def call() -> str:
        return provider.call()

    retrying = AsyncRetrying(
        retry=retry_unless_refused(retry_if_exception_type(ConnectionError)),
        stop=stop_after_attempt(50),
        sleep=provider.asleep,
    )
    with pytest.raises(Rejected):
        asyncio.run(retrying(call))
    assert provider.requests == 5

    @retry(retry=retry_unless_refused(retry_if_exception_type(KeyError)))
    def other() -> None:
        raise ValueError("not retried")

    with pytest.raises(ValueError, match="not retried"):
        other()


def test_a_refusal_is_found_as_the_cause_of_another_exception(
    provider: Provider,
) -> None:
    tries: list[int] = []

    @retry(retry=retry_unless_refused(), stop=stop_after_attempt(5))
    def wrapped() -> None:
        tries.append(1)
        try:
            raise BudgetRefused("team", "nothing is left", 0)
        except BudgetRefused as error:
            raise RuntimeError("no answer") from error

    with pytest.raises(RuntimeError):
        wrapped()
    assert len(tries) == 1


def test_stamina_does_not_retry_a_refusal(provider: Provider) -> None:
    call = stamina.retry(on=unless_refused(ConnectionError), attempts=50)(provider.call)
    with pytest.raises(Rejected):
        call()
    assert (provider.requests, provider.breaker.totals.refused) == (5, 1)


def test_stamina_waits_for_the_retry_after_of_the_circuit(provider: Provider) -> None:
    decide = after_refusal(ConnectionError, longer_than_s=60)
    force_state(provider.breaker, "open", retry_after_s=42.0)
    with pytest.raises(Rejected) as caught:
        provider.call()
    assert decide(caught.value) == pytest.approx(42.0)
    assert decide(ConnectionError("down")) is True
    assert decide(KeyError("x")) is False
    force_state(provider.breaker, "open", retry_after_s=None)
    with pytest.raises(Rejected) as caught:
        provider.call()
    assert decide(caught.value) is False
    assert decide(BudgetRefused("team", "nothing is left", 0)) is False


def test_stamina_really_waits_and_succeeds() -> None:
    breaker = CircuitBreaker("provider/x")
    force_state(breaker, "open", retry_after_s=0.05)
    stamina.set_testing(False)

    @stamina.retry(on=after_refusal(), attempts=20, wait_jitter=0)
    def call() -> str:
        with breaker:
            return "answer"

    assert call() == "answer"


@pytest.mark.parametrize("library", ["tenacity", "stamina"])
def test_a_cancelled_call_is_not_retried_and_the_next_call_probes(
    provider: Provider, library: str
) -> None:
    force_state(provider.breaker, "half_open")
    started = asyncio.Event()

    async def hangs() -> str:
        async with provider.breaker:
            provider.requests += 1
            started.set()
            await asyncio.Event().wait()
            return "never"

    async def cancelled() -> None:
        running: asyncio.Future[str]
        if library == "tenacity":
            retrying = AsyncRetrying(
                retry=retry_unless_refused(),
                wait=wait_for_circuit(),
                stop=stop_if_refused() | stop_after_attempt(5),
                sleep=provider.asleep,
            )
            running = asyncio.ensure_future(retrying(hangs))
        else:
            running = asyncio.ensure_future(stamina.retry(on=after_refusal())(hangs)())
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert (provider.requests, provider.slept) == (1, [])
    assert provider.breaker.state == "half_open"
    provider.up = True
    assert provider.call() == "answer"
    assert provider.breaker.state == "closed"


def test_the_breaker_outside_of_the_retries_counts_a_call_once(provider: Provider) -> None:
    """The recommended order: one result for the breaker, however often the inside tries."""
    requests = 0

    @retry(stop=stop_after_attempt(3), sleep=provider.sleep, reraise=True)
    def inside() -> None:
        nonlocal requests
        requests += 1
        raise ConnectionError("down")

    for _ in range(5):
        with pytest.raises(ConnectionError), provider.breaker:
            inside()
    with pytest.raises(Rejected), provider.breaker:
        inside()
    assert requests == 15


@pytest.mark.parametrize("longest_s", [-1.0, float("nan")])
def test_an_invalid_limit_is_refused(longest_s: float) -> None:
    with pytest.raises(ValueError, match="longer_than_s"):
        stop_if_refused(longest_s)
    with pytest.raises(ValueError, match="longer_than_s"):
        after_refusal(longer_than_s=longest_s)
