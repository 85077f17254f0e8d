# mypy: disable-error-code="untyped-decorator"
"""Celery, with the real package: a worker in this process, and its broker in memory."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("celery")

from celery import Celery
from celery.contrib.testing.worker import start_worker

from switchgear import Cooldown, Panel, Policy, Rejected
from switchgear.detectors import ConsecutiveFailures
from switchgear.integrations.celery import guard

pytestmark = pytest.mark.filterwarnings("default")
FAST = Policy([ConsecutiveFailures(5)], Cooldown(1.0, 1.0))


@pytest.fixture
def app() -> Iterator[Any]:
    made = Celery("test", broker="memory://", backend="cache+memory://")
    made.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
    yield made
    made.close()


def working(app: Any) -> Any:
    return start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=60)


def test_a_refused_task_is_retried_until_the_circuit_admits_it(app: Any) -> None:
    panel = Panel("memory:")
    breaker = panel.breaker("task/fetch")
    calls = []

    @app.task(base=guard(panel=panel, hold_s=0.2, spread_s=0.1), name="fetch")
    def fetch(number: int) -> str:
        calls.append(number)
        if number < 5:
            raise ConnectionError("no route")
        return "fetched"

    with working(app):
        for number in range(5):
            with pytest.raises(ConnectionError):
                fetch.delay(number).get(timeout=60)
        assert breaker.state == "open"
        breaker.reset(by="test", why="mended")
        breaker.hold_open(by="test", why="maintenance")
        delayed = fetch.delay(5)
        for _ in range(600):
            if breaker.snapshot().totals.refused:
                break
            time.sleep(0.1)
        assert calls == [0, 1, 2, 3, 4]  # the refusal made no call
        breaker.release(by="test", why="done")
        assert delayed.get(timeout=60) == "fetched"
    assert calls == [0, 1, 2, 3, 4, 5]


def test_the_refusal_of_a_guard_inside_delays_the_task_and_is_no_evidence_against_it(
    app: Any,
) -> None:
    panel = Panel("memory:", policies={"provider/*": FAST})
    inner = panel.breaker("provider/openai")

    def down() -> None:
        raise ConnectionError("down")

    for _ in range(5):
        with pytest.raises(ConnectionError):
            inner.call(down)

    @app.task(base=guard(panel=panel, spread_s=0.1), name="ask")
    def ask() -> str:
        return inner.call(str, "answered")

    with working(app):
        assert ask.delay().get(timeout=60) == "answered"
    assert panel.breaker("task/ask").totals.failed == 0


def test_a_task_that_is_refused_too_often_fails_with_the_refusal(app: Any) -> None:
    panel = Panel("memory:")
    panel.breaker("task/held").hold_open(by="test", why="maintenance")
    base = guard(panel=panel, max_refusals=2, hold_s=0.1, spread_s=0.0)

    @app.task(base=base, name="held")
    def held() -> str:
        raise AssertionError

    with working(app), pytest.raises(Rejected, match="maintenance"):
        held.delay().get(timeout=60)
    with pytest.raises(Rejected):
        held()  # called directly, there is nothing to retry
