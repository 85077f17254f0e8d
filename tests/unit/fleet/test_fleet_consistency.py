"""A route uses one configuration, load is reduced once per call, and a flapping provider does not fill the store."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear import Panel, Rejected, Signal
from switchgear._config import Config, preset_policy
from switchgear._config.loader import load_with_notes
from switchgear._core.errors import NoRoute
from switchgear._fleet.categories import default_breakers, latency, resource_lock
from switchgear._fleet.delivery import message_of
from switchgear._fleet.fleet import MOST_SWITCHES, SHELF, Fleet
from switchgear._fleet.manifest import Crew, agent, crew
from switchgear._fleet.watcher import world
from switchgear._stores.base import ledger_of
from switchgear.testing import FakeClock
from timeouts import LIMIT_S


class Down(Exception):
    status_code = 503


def big() -> Crew:
    return crew(
        [
            agent(name="coder", owner="ana", provider="p", model="m", fallback_chain=["junior"]),
            agent(name="junior", owner="ben", provider="q", model="n"),
        ]
    )


def small() -> Crew:
    return crew([agent(name="coder", owner="ana", provider="p", model="m")])


def config(people: Crew) -> Config:
    return Config(store="memory:", crew=people, breakers=default_breakers())


def test_a_call_ends_with_the_configuration_it_started_with() -> None:
    with Fleet.from_config(config(big())) as fleet:
        workers: list[str | None] = []

        def work(route: Any) -> str:
            workers.append(route.worker)
            if len(workers) == 1:
                fleet.reload(config(small()))
                raise Down("overloaded")
            return "done"

        assert fleet.call("coder", work) == "done"
        assert workers == ["coder", "junior"], "who was to stand in still does"
        with pytest.raises(Down):
            fleet.call("coder", _down)
        with pytest.raises(ValueError, match="there is no agent 'junior'"):
            fleet.route("junior")


def _down(_: object) -> str:
    raise Down("overloaded")


def test_an_agent_that_is_removed_while_it_works_ends_with_its_own_error() -> None:
    with Fleet.from_config(config(big())) as fleet:

        def work(_: object) -> str:
            fleet.reload(config(crew([agent(name="x", owner="o", provider="p", model="m")])))
            raise Down("overloaded")

        with pytest.raises(Down):
            fleet.call("coder", work)


def test_routes_and_reports_continue_while_the_configuration_changes_all_the_time() -> None:
    fleet = Fleet.from_config(config(big()))
    stopped, errors = threading.Event(), list[BaseException]()

    def again(act: Callable[[], object]) -> None:
        while not stopped.is_set():
            try:
                act()
            except NoRoute:
                continue
            except BaseException as error:
                errors.append(error)
                return

    acts: list[Callable[[], object]] = [
        lambda: fleet.call("coder", lambda _: None),
        lambda: fleet.route("coder").record(error=Down("x")),
        lambda: world(fleet),
    ]
    threads = [threading.Thread(target=again, args=(act,)) for act in acts * 2]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for number in range(300):
            fleet.reload(config(big() if number % 2 else small()))
    finally:
        stopped.set()
        for thread in threads:
            thread.join(LIMIT_S)
        sys.setswitchinterval(interval_s)
        fleet.close()
    assert errors == []


def slow_stage(people: Crew) -> Fleet:
    breakers = default_breakers()._replace(latency=latency(baseline_p95_ms=1000))
    return Fleet.open("memory:", people, breakers, clock=FakeClock(1_000_000.0))


def shares(fleet: Fleet, name: str, calls: int = 100) -> Counter[tuple[str | None, str]]:
    found: Counter[tuple[str | None, str]] = Counter()
    for _ in range(calls):
        route = fleet.route(name)
        found[route.worker, str(route.model)] += 1
        route.record(ok=True, seconds=9.0) if route.admitted else None
    return found


def test_a_slow_agent_alone_gets_half_of_its_load_and_not_a_quarter() -> None:
    fleet = slow_stage(small())
    for _ in range(20):
        fleet.route("coder").record(ok=True, seconds=9.0)
    assert shares(fleet, "coder") == {("coder", "p/m"): 50, (None, "None"): 50}


def test_all_agents_of_a_slow_provider_get_half_of_their_load() -> None:
    people = crew([agent(name=n, owner="o", provider="p", model="m") for n in ("a", "b", "new")])
    fleet = slow_stage(people)
    for name in ("a", "b") * 20:
        route = fleet.route(name)
        if route.admitted:
            route.record(ok=True, seconds=9.0)
    for name in ("a", "b", "new"):
        assert shares(fleet, name, 20)[name, "p/m"] == 10, name


def test_a_slow_agent_on_a_quick_provider_and_the_other_way_round_get_half() -> None:
    fleet = slow_stage(small())
    fleet.panel.breaker("agent/coder/latency").record(Signal(ok=True, seconds=9.0, count=20))
    assert shares(fleet, "coder", 20)["coder", "p/m"] == 10
    fleet = slow_stage(small())
    fleet.panel.breaker("provider/p/latency").record(Signal(ok=True, seconds=9.0, count=20))
    assert shares(fleet, "coder", 10)["coder", "p/m"] == 5


def test_a_circuit_that_refused_one_agent_refuses_the_next_of_the_same_call() -> None:
    people = crew(
        [
            agent(name="a", owner="o", provider="p", model="m", fallback_chain=["b"]),
            agent(name="b", owner="o", provider="p", model="m"),
        ]
    )
    fleet = slow_stage(people)
    fleet.panel.breaker("provider/p/latency").record(Signal(ok=True, seconds=9.0, count=20))
    found = Counter(fleet.route("a").worker for _ in range(20))
    assert found == {"a": 10, None: 10}


def test_a_provider_that_flaps_leaves_few_lines_with_a_count() -> None:
    clock = FakeClock(1_000_000.0)
    fleet = Fleet.open("memory:", big(), clock=clock)
    breaker = fleet.panel.breaker("provider/p")
    for _ in range(500):
        breaker.hold_open(by="ana", why="down")
        fleet.route("coder").give_back()
        breaker.release(by="ana", why="up")
        fleet.route("coder").give_back()
        clock.advance(60.0)
    lines = fleet.switches("coder")
    assert len(lines) <= 3
    assert sum(line["count"] for line in lines) == 1000
    assert lines[-1]["last_s"] > lines[-1]["at_s"]
    assert len(list(ledger_of(fleet.panel.store.inner).lines(SHELF, "agent/coder"))) == 0


def test_switches_that_differ_are_bounded_too() -> None:
    clock = FakeClock(1_000_000.0)
    fleet = Fleet.open("memory:", big(), clock=clock)
    breaker = fleet.panel.breaker("provider/p")
    for _ in range(MOST_SWITCHES):
        breaker.hold_open(by="ana", why="down")
        fleet.route("coder").give_back()
        breaker.release(by="ana", why="up")
        fleet.route("coder").give_back()
        clock.advance(5000.0)
    assert len(fleet.switches("coder")) == MOST_SWITCHES


def test_lines_of_earlier_versions_are_still_read() -> None:
    fleet = Fleet.open("memory:", big(), clock=FakeClock(1_000_000.0))
    from switchgear._stores.base import Amended  # noqa: PLC0415

    old = {"at_s": 5.0, "from": None, "agent": "junior", "model": "q/n", "why": "x"}
    value = {"agent": "junior", "model": "q/n", "why": "x", "since_s": 5.0}
    ledger = ledger_of(fleet.panel.store.inner)
    ledger.amend(SHELF, "agent/coder", lambda *_: Amended(None, value, (old,)))
    fleet.route("coder").give_back()
    assert [line["agent"] for line in fleet.switches("coder")] == ["junior", "coder"]


def test_an_alert_of_a_lock_names_the_owners_of_holder_and_waiters() -> None:
    clock = FakeClock(1_000_000.0)
    fleet = Fleet.open("memory:", big(), clock=clock)
    held = fleet.panel.lock("db", owner="coder", lease_s=1000.0)
    held.acquire()
    waiting = fleet.panel.locks.lock("db", owner="junior", sleep=clock.advance)
    with pytest.raises(Rejected):
        waiting.acquire()
    held.release()
    [event] = [
        entry.event for entry in fleet.panel.events(glob="lock/*") if entry.event.after == "open"
    ]
    message = message_of(event, fleet)
    assert message["severity"] == "SEV3"
    assert message["owners"] == ["ana", "ben"]
    assert message["agents"] == ["coder", "junior"]


def test_a_lock_holder_outside_the_fleet_is_its_owner() -> None:
    clock = FakeClock(1_000_000.0)
    fleet = Fleet.open("memory:", big(), clock=clock)
    fleet.panel.lock("db", owner="nightly-build", lease_s=1000.0).acquire()
    with pytest.raises(Rejected):
        fleet.panel.locks.lock("db", owner="coder", sleep=clock.advance).acquire()
    [event] = [
        entry.event for entry in fleet.panel.events(glob="lock/*") if entry.event.after == "open"
    ]
    assert message_of(event, fleet)["owners"] == ["ana", "nightly-build"]


@pytest.mark.parametrize("limit_s", [2.0, 0.5, 7.0, 60.0])
def test_a_wait_trips_as_soon_as_it_exceeds_the_limit(limit_s: float) -> None:
    clock = FakeClock(1_000_000.0)
    breakers = default_breakers()._replace(resource_lock=resource_lock(threshold_seconds=limit_s))
    fleet = Fleet.open("memory:", big(), breakers, clock=clock)
    fleet.panel.lock("db", owner="coder", lease_s=1000.0).acquire()
    began_s = clock()
    with pytest.raises(Rejected):
        fleet.panel.locks.lock("db", owner="junior", sleep=clock.advance).acquire()
    assert limit_s <= clock() - began_s <= limit_s + 0.1


def test_circuits_with_the_former_prefix_dep_continue_as_providers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with Panel(url) as panel:
        panel.breaker("dep/p", preset_policy("external_dep")).record(
            Signal(ok=False, retry_after_s=900.0)
        )
    given = config(big())._replace(store=url)
    for _ in range(2):
        with Fleet.from_config(given) as fleet:
            assert fleet.route("coder").worker == "junior", "the provider is still cut"
            assert fleet.take_over_names() == []


def test_files_with_the_former_prefix_dep_mean_providers(tmp_path: Path) -> None:
    path = tmp_path / "switchgear.yaml"
    path.write_text(
        "circuits: [{match: 'dep/slow', policy: latency}]\n"
        "notifications: [{command: {run: 'true', match: 'dep/*'}}]\n"
    )
    loaded, notes = load_with_notes(path)
    assert loaded.policy_for("provider/slow") == preset_policy("latency")
    assert loaded.notifications[0].wants("provider/p")
    assert len(notes) == 2
