"""What is particular to circuits in a Redis server, seen on a real one."""

import pickle
import threading

from contract.redis_words import FAILED, KEY, POLICY, SUCCEEDED, tell, trip
from servers.proxy import Proxy
from servers.server import Server, eventually
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    EventKind,
    Mode,
    Override,
    Phase,
    Record,
    Signal,
)
from switchgear._detectors import ConsecutiveFailures
from switchgear._panel.panel import Panel
from switchgear._stores.base import StoredCircuit
from switchgear._stores.redis import RedisStore
from timeouts import LIMIT_S

# How it is kept


def test_a_closed_circuit_expires_after_the_idle_time_and_an_open_or_held_one_never(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    ttl_ms = int(server.say("PTTL", KEY)[1:])
    assert 30 * 86_400_000 < ttl_ms <= 30 * 86_400_000 + 1000
    trip(store)
    assert server.say("PTTL", KEY).startswith(":-1")
    tell(store, Override("ann", "fixed", mode=Mode.HELD_OPEN, reset=True))
    assert server.say("PTTL", KEY).startswith(":-1")
    tell(store, Override("ann", "go", mode=Mode.AUTO))
    assert int(server.say("PTTL", KEY)[1:]) > 0


def test_an_abandoned_circuit_expires(server: Server) -> None:
    store = RedisStore(server.url, idle_s=0.05)
    tell(store, SUCCEEDED)
    eventually(lambda: store.get("api") is None, "the circuit has faded")
    before = tell(store, SUCCEEDED)
    assert before.totals.succeeded == 1, "it began anew"
    assert before.version > 1, "and yet is newer than what readers may hold"
    store.close()


def test_acquiring_from_a_closed_circuit_writes_nothing(server: Server, store: RedisStore) -> None:
    tell(store)
    before = server.say("GET", KEY)
    for _ in range(3):
        assert store.apply("api", POLICY, Acquire(), store.now_s()).verdict.admitted
    tell(store, Record(Signal(count=0)))
    assert server.say("GET", KEY) == before


def test_a_changed_policy_is_written_although_the_circuit_is_unchanged(store: RedisStore) -> None:
    tell(store)
    other = Policy([ConsecutiveFailures(5)])
    tell(store, Record(Signal(count=0)), other)
    found = store.get("api")
    assert found is not None
    assert found.policy == other
    assert found.circuit.memories == (1,)


def test_the_stream_of_events_stays_near_its_limit(server: Server) -> None:
    store = RedisStore(server.url, keep_events=100)
    order = Override("ann", "again", mode=Mode.SHADOW)
    for _ in range(350):
        tell(store, order)
    assert 100 <= len(store.events(limit=1000)) <= 200
    assert store.events(limit=1)[0].event.seq == 350
    store.close()


def test_many_events_are_read_page_by_page_each_once(store: RedisStore) -> None:
    order = Override("ann", "again", mode=Mode.SHADOW)
    for _ in range(620):
        tell(store, order)
    newest = store.events(limit=10_000)
    assert [entry.event.seq for entry in newest] == list(range(1, 621))
    assert store.events(after=newest[9].cursor, limit=10_000) == newest[10:]


def test_circuits_are_found_without_the_keys_command(server: Server, store: RedisStore) -> None:
    for name in ("b/1", "a/2", "a/1", "a[x]/*"):
        store.apply(name, POLICY, FAILED, store.now_s())
    server.say("CONFIG", "RESETSTAT")
    assert [found.circuit.key for found in store.find("a/*")] == ["a/1", "a/2"]
    assert [found.circuit.key for found in store.find()] == ["a/1", "a/2", "a[x]/*", "b/1"]
    assert [found.circuit.key for found in store.find("a[[]x]/[*]")] == ["a[x]/*"]
    stats = server.say("INFO", "commandstats")
    assert "cmdstat_scan" in stats
    assert "cmdstat_keys" not in stats


def test_namespaces_do_not_affect_each_other(server: Server, store: RedisStore) -> None:
    trip(store)
    other = RedisStore(server.url, namespace="team-b")
    assert other.get("api") is None
    assert not list(other.find())
    assert not other.events()
    other.close()


def test_a_pickled_breaker_keeps_the_namespace_of_its_url(server: Server) -> None:
    with Panel(f"{server.url}?namespace=team-a") as panel:
        breaker = panel.breaker("api", POLICY)
        pickle.loads(pickle.dumps(breaker)).record(Signal(ok=False, error="529"))
        assert breaker.snapshot().totals.failed == 1
    with Panel(server.url) as other:
        assert list(other) == []


def test_an_imported_circuit_adds_only_missing_events(store: RedisStore) -> None:
    order = Override("ann", "again", mode=Mode.SHADOW)
    tell(store, order)
    found = store.get("api")
    assert found is not None
    ahead = step(POLICY, found.circuit, order, 1.0)
    events = (store.events()[0].event, *ahead.events)
    assert store.put(StoredCircuit(ahead.circuit, POLICY), events)
    assert [entry.event.seq for entry in store.events()] == [1, 2]
    assert not store.put(StoredCircuit(ahead.circuit, POLICY), events)


# Pushes


def test_a_trip_is_pushed_to_other_processes_and_not_to_the_sender(
    server: Server, store: RedisStore
) -> None:
    other = RedisStore(server.url)
    theirs: list[Circuit] = []
    mine: list[Circuit] = []
    came = threading.Event()

    def hear(circuit: Circuit) -> None:
        theirs.append(circuit)
        came.set()
        raise RuntimeError("a listener may fail")

    other.on_change(hear)
    store.on_change(mine.append)
    eventually(lambda: other.refresh_s is store.refresh_s is None, "pushes arrive")
    tripped = trip(store)
    assert came.wait(LIMIT_S)
    assert theirs == [tripped]
    assert mine == []
    other.close()
    assert other.refresh_s is not None


def test_failures_are_published_at_intervals_and_not_one_by_one(
    server: Server, store: RedisStore
) -> None:
    heard: list[str] = []
    other = RedisStore(server.url)
    other.on_warm(heard.append)
    other.on_change(lambda circuit: None)
    eventually(lambda: other.refresh_s is None, "pushes arrive")
    server.say("SET", "{switchgear}:failing:api", "1")  # published a moment ago
    tell(store, FAILED)
    server.say("PUBLISH", "{switchgear}:warm", "x\nbetween")
    server.say("DEL", "{switchgear}:failing:api")
    tell(store, FAILED)
    eventually(lambda: len(heard) >= 2, "the second failure is published")
    assert heard == ["between", "api"]
    assert server.say("PTTL", "{switchgear}:failing:api") != ":-1\r\n", "it goes by itself"
    other.close()


def test_changes_of_other_processes_are_pushed_to_the_breaker_and_the_loop_of_a_name(
    server: Server,
) -> None:
    with Panel(server.url) as panel, Panel(server.url) as other:
        loop, breaker = panel.loop("loop/1"), panel.breaker("loop/1")
        eventually(lambda: panel.store.refresh_s is None, "pushes arrive")
        other.order("loop/1", mode=Mode.HELD_OPEN, by="ann", why="release night")
        # Neither asks the server for its mode.
        eventually(lambda: loop.mode is breaker.mode is Mode.HELD_OPEN, "both have heard")


def test_pushes_reconnect_automatically_and_missed_changes_are_read_again(
    server: Server, store: RedisStore
) -> None:
    with Proxy(server.port) as proxy:
        far = RedisStore(f"redis://127.0.0.1:{proxy.port}", timeout_s=0.2)
        heard: list[Circuit] = []
        tell(far)
        far.on_change(heard.append)
        eventually(lambda: far.refresh_s is None, "pushes arrive")
        proxy.cut()
        tripped = trip(store)
        eventually(lambda: far.refresh_s == 1.0, "the silence is noticed")
        proxy.mend()
        eventually(lambda: heard, "what was missed is read again")
        assert [circuit.phase for circuit in heard] == [tripped.phase]
        assert far.refresh_s is None
        far.close()


# What the server has lost


def test_a_client_restores_a_circuit_that_the_server_lost(
    server: Server, store: RedisStore
) -> None:
    trip(store)
    server.say("FLUSHALL")
    done = store.apply("api", POLICY, Acquire(), store.now_s())
    assert not done.verdict.admitted
    assert done.circuit.phase is Phase.OPEN
    assert [event.kind for event in done.events] == [EventKind.STORE_BACK]
    found = store.get("api")
    assert found is not None
    assert found.circuit == done.circuit


def test_the_newer_state_wins_over_one_that_began_after_the_loss(
    server: Server, store: RedisStore
) -> None:
    trip(store)
    server.say("FLUSHALL")
    newcomer = RedisStore(server.url)
    assert newcomer.apply("api", POLICY, Acquire(), newcomer.now_s()).verdict.admitted
    tell(newcomer)
    assert tell(store, Record(Signal(count=0))).phase is Phase.OPEN
    assert not newcomer.apply("api", POLICY, Acquire(), newcomer.now_s()).verdict.admitted
    newcomer.close()


# What a doctor wants to know


def test_the_facts_warn_of_settings_that_lose_circuits(server: Server, store: RedisStore) -> None:
    tell(store)
    facts = store.facts()
    assert facts["server"].split()[0] in {"redis", "valkey"}
    assert facts["mode"] == "standalone"
    assert "WARNING" in facts["persistence"], "this server was started without any"
    assert "WARNING" not in facts["eviction"]
    server.say("CONFIG", "SET", "maxmemory", "100mb")
    server.say("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        assert "WARNING" in store.facts()["eviction"]
    finally:
        server.say("CONFIG", "SET", "maxmemory", "0")
        server.say("CONFIG", "SET", "maxmemory-policy", "noeviction")
