"""Money of a route: spending is charged, however the work ends."""

import asyncio
import threading
from typing import Any

import pytest

from switchgear._budgets.budgets import Reservation
from switchgear._core.errors import StoreUnavailable
from switchgear._fleet.categories import CATEGORIES, Breakers
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import agent, crew
from switchgear._fleet.router import Route
from switchgear.testing import FakeClock
from timeouts import LIMIT_S


def fleet(breakers: Breakers | None = None) -> Fleet:
    people = crew([agent(name="coder", owner="ana", provider="p", model="m")])
    made = Fleet.open("memory:", people, breakers, clock=FakeClock(1000.0))
    made.panel.budgets.open("team", 2000)
    return made


def spent(one: Fleet) -> int:
    return one.panel.budgets.book("team").nodes["team"].spent_micros


WHERE: dict[str, Any] = {"budget": "team", "estimate_micros": 400}


class Answered(Exception):
    def __init__(self, status: int | None) -> None:
        super().__init__("overloaded_error" if status is None else f"HTTP {status}")
        self.status_code = status


@pytest.mark.parametrize(
    ("status", "charged"),
    [
        (429, 0),
        (529, 0),
        (503, 0),
        (401, 0),
        (402, 0),
        (400, 400),
        (404, 400),
        (413, 400),
        (500, 400),
        (408, 400),
        (None, 400),
    ],
)
def test_a_call_that_the_provider_rejected_costs_nothing(status: int | None, charged: int) -> None:
    def work(route: Route) -> None:
        raise Answered(status)

    def billed_work(route: Route) -> None:
        route.spent(7)
        raise Answered(status)

    one, other = fleet(), fleet()
    with pytest.raises(Answered):
        one.call("coder", work, **WHERE)
    assert spent(one) == charged, "what broke off may be billed"
    with pytest.raises(Answered):
        other.call("coder", billed_work, **WHERE)
    assert spent(other) == 7, "what was said to be spent is"


def test_an_error_that_wraps_another_costs_the_estimate() -> None:
    def work(route: Route) -> None:
        raise RuntimeError("a tool failed after 12 paid calls") from Answered(429)

    one = fleet()
    with pytest.raises(RuntimeError):
        one.call("coder", work, **WHERE)
    assert spent(one) == 400, "nobody knows what was paid before"


@pytest.mark.parametrize(("told", "charged"), [(None, 400), (150, 150)])
def test_interrupted_work_has_spent_its_reported_cost_or_its_whole_reservation(
    told: int | None, charged: int
) -> None:
    one = fleet()

    def work(route: Route) -> None:
        if told is not None:
            route.spent(told)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.call("coder", work, **WHERE)
    assert spent(one) == charged
    view = one.panel.view("agent/coder/budget")
    assert (view.circuit.totals.cost_micros if view else 0) == (told or 0)

    async def awork(route: Route) -> None:
        if told is not None:
            route.spent(told)
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(one.acall("coder", awork, **WHERE))
    assert spent(one) == 2 * charged
    with pytest.raises(KeyboardInterrupt), one.route("coder", **WHERE) as route:
        work(route)
    assert spent(one) == 3 * charged


def test_a_task_that_is_cancelled_while_permits_are_acquired_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = fleet()
    asked, may_answer = threading.Event(), threading.Event()
    route = one.router._route

    def slow(*args: Any, **options: Any) -> Route:
        asked.set()
        assert may_answer.wait(LIMIT_S)
        return route(*args, **options)

    monkeypatch.setattr(one.router, "_route", slow)

    async def work(_: Route) -> None:
        raise AssertionError("it was cancelled before")

    async def cancel() -> None:
        task = asyncio.ensure_future(one.acall("coder", work, **WHERE))
        await asyncio.to_thread(asked.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert one.panel.budgets.free_micros("team") == 2000
    assert spent(one) == 0


def test_a_result_is_not_lost_if_settling_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = fleet()

    def gone(*_: object) -> int:
        raise StoreUnavailable("x", "it was cut off", "mend it")

    monkeypatch.setattr(Reservation, "settle", gone)
    assert one.call("coder", lambda _: "done", **WHERE) == "done"
    assert "could not be settled" in caplog.text
    assert one.panel.budgets.free_micros("team") == 1600, "held until its lease ends"


def test_a_reservation_is_settled_although_every_breaker_is_disabled() -> None:
    one = fleet(Breakers(*(make(enabled=False) for make in CATEGORIES.values())))
    with one.route("coder", **WHERE) as route:
        route.spent(100)
    assert spent(one) == 100
    assert one.panel.budgets.free_micros("team") == 1900
