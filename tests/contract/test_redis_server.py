"""What is particular to circuits in a Redis server, seen on a real one."""

import asyncio
import gc
import json
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import servers.certificates
from servers.proxy import Proxy
from servers.server import Server, eventually, running
from switchgear.core.detectors import ConsecutiveFailures
from switchgear.core.machine import step
from switchgear.core.policy import Policy
from switchgear.core.types import Ask, Circuit, EventKind, Mode, Order, Phase, Signal, Tell
from switchgear.errors import (
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)
from switchgear.panel import Panel
from switchgear.stores.base import Found
from switchgear.stores.redis import RedisStore

POLICY = Policy([ConsecutiveFailures(3)])
STRICT = POLICY.replace(strict=True)
FAILED = Tell(Signal(ok=False, error="529 overloaded"))
SUCCEEDED = Tell(Signal(ok=True))
KEY = "{switchgear}:c:api"


@pytest.fixture(scope="module")
def the_server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def server(the_server: Server) -> Server:
    the_server.say("FLUSHALL")
    return the_server


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    store = RedisStore(server.url)
    yield store
    store.close()


def tell(
    store: RedisStore, message: Tell | Order | Ask = FAILED, policy: Policy = POLICY
) -> Circuit:
    return store.apply("api", policy, message, store.now_s()).circuit


def trip(store: RedisStore) -> Circuit:
    return [tell(store) for _ in range(3)][-1]


# How it is kept


def test_a_closed_circuit_fades_after_the_idle_time_and_an_open_or_held_one_never(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    ttl_ms = int(server.say("PTTL", KEY)[1:])
    assert 30 * 86_400_000 < ttl_ms <= 30 * 86_400_000 + 1000
    trip(store)
    assert server.say("PTTL", KEY).startswith(":-1")
    tell(store, Order("ann", "fixed", mode=Mode.HELD_OPEN, reset=True))
    assert server.say("PTTL", KEY).startswith(":-1")
    tell(store, Order("ann", "go", mode=Mode.AUTO))
    assert int(server.say("PTTL", KEY)[1:]) > 0


def test_an_abandoned_circuit_is_gone_by_itself(server: Server) -> None:
    store = RedisStore(server.url, idle_s=0.05)
    tell(store, SUCCEEDED)
    eventually(lambda: store.get("api") is None, "the circuit has faded")
    before = tell(store, SUCCEEDED)
    assert before.totals.succeeded == 1, "it began anew"
    assert before.version > 1, "and yet is newer than what readers may hold"
    store.close()


def test_asking_a_closed_circuit_writes_nothing(server: Server, store: RedisStore) -> None:
    tell(store)
    before = server.say("GET", KEY)
    for _ in range(3):
        assert store.apply("api", POLICY, Ask(), store.now_s()).verdict.admitted
    tell(store, Tell(Signal(count=0)))
    assert server.say("GET", KEY) == before


def test_a_changed_policy_is_written_although_the_circuit_stays(store: RedisStore) -> None:
    tell(store)
    other = Policy([ConsecutiveFailures(5)])
    tell(store, Tell(Signal(count=0)), other)
    found = store.get("api")
    assert found is not None
    assert found.policy == other
    assert found.circuit.memories == (1,)


def test_the_stream_of_events_stays_near_its_limit(server: Server) -> None:
    store = RedisStore(server.url, keep_events=100)
    order = Order("ann", "again", mode=Mode.SHADOW)
    for _ in range(350):
        tell(store, order)
    assert 100 <= len(store.events(limit=1000)) <= 200
    assert store.events(limit=1)[0].event.seq == 350
    store.close()


def test_many_events_are_read_page_by_page_each_once(store: RedisStore) -> None:
    order = Order("ann", "again", mode=Mode.SHADOW)
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


def test_namespaces_do_not_meet(server: Server, store: RedisStore) -> None:
    trip(store)
    other = RedisStore(server.url, namespace="team-b")
    assert other.get("api") is None
    assert not list(other.find())
    assert not other.events()
    other.close()


def test_a_pickled_breaker_keeps_the_namespace_of_its_url(server: Server) -> None:
    with Panel(f"{server.url}?namespace=team-a") as panel:
        breaker = panel.breaker("api", POLICY)
        pickle.loads(pickle.dumps(breaker)).tell(Signal(ok=False, error="529"))
        assert breaker.totals.failed == 1
    with Panel(server.url) as other:
        assert list(other) == []


def test_a_circuit_taken_over_brings_only_the_events_that_are_not_here(store: RedisStore) -> None:
    order = Order("ann", "again", mode=Mode.SHADOW)
    tell(store, order)
    found = store.get("api")
    assert found is not None
    ahead = step(POLICY, found.circuit, order, 1.0)
    events = (store.events()[0].event, *ahead.events)
    assert store.put(Found(ahead.circuit, POLICY), events)
    assert [entry.event.seq for entry in store.events()] == [1, 2]
    assert not store.put(Found(ahead.circuit, POLICY), events)


# Scripts and connections


def test_a_server_that_forgot_the_scripts_is_told_them_again(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    server.say("SCRIPT", "FLUSH")
    assert tell(store).totals.failed == 2


def test_a_url_brings_tls_and_a_password(tmp_path: Path) -> None:
    made = servers.certificates.made_in(tmp_path)
    with (
        running("--requirepass", "s3cr3t/@:") as server,
        Proxy(server.port, tls=made.context()) as tls,
    ):
        end = f"localhost:{tls.port}/0?ssl_ca_certs={made.authority}"
        store = RedisStore(f"rediss://:s3cr3t%2F%40%3A@{end}")
        assert tell(store).totals.failed == 1
        store.close()
        doubtful = RedisStore(f"rediss://:s3cr3t%2F%40%3A@localhost:{tls.port}/0")
        with pytest.raises(StoreUnavailable, match="certificate"):
            tell(doubtful)
        doubtful.close()


@pytest.mark.parametrize("login", [":wr0ng-secret@", ""])
def test_a_wrong_or_missing_password_is_said_and_never_shown(login: str) -> None:
    with running("--requirepass", "right") as server:
        store = RedisStore(f"valkey://{login}127.0.0.1:{server.port}/0")
        with pytest.raises(StoreUnavailable, match="refused the user or the password") as caught:
            tell(store)
        store.close()
    for text in (str(caught.value), repr(caught.value), repr(store), store.label):
        assert "wr0ng" not in text


def test_a_socket_file_serves_as_well(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with running("--unixsocket", str(path)):
        store = RedisStore(f"unix://{path}")
        assert tell(store).totals.failed == 1
        assert store.label == f"unix://{path}"
        store.close()


def test_tasks_of_several_event_loops_share_circuits_and_leave_no_connection_open(
    store: RedisStore,
) -> None:
    async def main() -> int:
        done = await asyncio.gather(
            *(store.aapply("api", POLICY, SUCCEEDED, store.now_s()) for _ in range(20))
        )
        return max(step.circuit.totals.succeeded for step in done)

    assert asyncio.run(main()) == 20
    assert asyncio.run(main()) == 40
    gc.collect()  # a connection left open would warn here, and warnings are errors


def test_close_closes_the_connections_of_a_running_loop(server: Server, store: RedisStore) -> None:
    def connections() -> int:
        return server.say("CLIENT", "LIST").count("addr=") // 2 or server.say(
            "CLIENT", "LIST"
        ).count(" name=")

    async def main() -> None:
        await store.aapply("api", POLICY, SUCCEEDED, store.now_s())
        await store.aclose()

    asyncio.run(main())
    gc.collect()
    eventually(lambda: connections() <= 1, "only the one who asks is connected")


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_child_uses_connections_of_its_own(store: RedisStore) -> None:
    tell(store, SUCCEEDED)
    store.on_change(lambda _: None)
    eventually(lambda: store.refresh_s is None, "pushes arrive")
    child = os.fork()
    if not child:
        for _ in range(50):
            tell(store, SUCCEEDED)
        os._exit(0 if store.refresh_s is not None else 1)
    for _ in range(50):
        tell(store, SUCCEEDED)
    assert os.waitpid(child, 0)[1] == 0
    assert tell(store, SUCCEEDED).totals.succeeded == 102


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_child_that_listens_does_not_listen_for_its_parent(
    store: RedisStore, server: Server
) -> None:
    tell(store, SUCCEEDED)
    of_parent: list[Circuit] = []
    store.on_change(of_parent.append)
    eventually(lambda: store.refresh_s is None, "pushes arrive")
    child = os.fork()
    if not child:
        heard: list[Circuit] = []
        store.on_change(heard.append)
        eventually(lambda: store.refresh_s is None, "pushes arrive in the child")
        other = RedisStore(server.url)
        trip(other)
        eventually(lambda: heard, "the child hears")
        os._exit(1 if of_parent else 0)
    assert os.waitpid(child, 0)[1] == 0


# Pushes


def test_a_trip_is_pushed_to_the_others_and_not_to_oneself(
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
    assert came.wait(5.0)
    assert theirs == [tripped]
    assert mine == []
    other.close()
    assert other.refresh_s is not None


def test_pushes_come_back_by_themselves_and_what_was_missed_is_read_again(
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


# What cannot be read or written


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "rubbish",
        "{}",
        '{"stamp":"7-x-1","format":1}',
        '{"stamp":"7-x-1","format":1,"circuit":7}',
    ],
)
def test_state_that_cannot_be_read_is_kept_beside_and_the_circuit_starts_anew(
    server: Server, store: RedisStore, raw: str
) -> None:
    trip(store)
    server.say("SET", KEY, raw)
    with pytest.raises(StoreCorrupt, match="'api'"):
        store.get("api")
    store.apply("other", POLICY, FAILED, store.now_s())
    found = store.find()
    assert next(iter(found)).circuit.key == "other"
    fresh = RedisStore(server.url)
    done = fresh.apply("api", POLICY, FAILED, fresh.now_s())
    assert [event.kind for event in done.events] == [EventKind.STATE_UNREADABLE]
    assert done.events[0].seq == 2, "numbers go on"
    assert done.circuit.totals.failed == 1
    kept = server.say("KEYS", "{switchgear}:unreadable:api:*").split("\r\n")[2]
    assert server.say("GET", kept) == f"${len(raw)}\r\n{raw}\r\n"
    assert int(server.say("PTTL", kept)[1:]) > 0, "but not for ever"
    assert tell(store).totals.failed == 2, "the old client takes it for the newer one"
    fresh.close()


def test_a_strict_circuit_whose_state_is_unreadable_is_held_open(
    server: Server, store: RedisStore
) -> None:
    server.say("SET", KEY, "rubbish")
    done = store.apply("api", STRICT, Ask(), store.now_s())
    assert not done.verdict.admitted
    assert done.circuit.mode is Mode.HELD_OPEN


def test_state_of_a_newer_switchgear_is_left_alone(server: Server, store: RedisStore) -> None:
    tell(store)
    value = json.loads(server.say("GET", KEY).split("\r\n")[1])
    for change in ({"format": 2}, {"circuit": {**value["circuit"], "schema": 99}}):
        newer = json.dumps({**value, **change}, separators=(",", ":"))
        server.say("SET", KEY, newer)
        fresh = RedisStore(server.url)
        with pytest.raises(StoreTooNew, match="upgrade"):
            tell(fresh)
        with pytest.raises(StoreTooNew, match="upgrade"):
            fresh.get("api")
        assert server.say("GET", KEY).split("\r\n")[1] == newer
        fresh.close()


def test_a_key_that_holds_something_else_is_said_to(server: Server, store: RedisStore) -> None:
    server.say("HSET", KEY, "a", "b")
    with pytest.raises(StoreCorrupt, match="holds something else"):
        tell(store)
    with pytest.raises(StoreCorrupt, match="holds something else"):
        store.get("api")


def test_a_full_server_is_full_and_can_still_be_read(server: Server, store: RedisStore) -> None:
    tell(store)
    server.say("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(StoreFull, match="maxmemory"):
            tell(store)
        assert store.apply("api", POLICY, Ask(), store.now_s()).verdict.admitted
    finally:
        server.say("CONFIG", "SET", "maxmemory", "0")
    assert tell(store).totals.failed == 2


def test_a_replica_can_be_read_but_not_written(server: Server, store: RedisStore) -> None:
    tell(store)
    with running("--replicaof", "127.0.0.1", str(server.port)) as replica:
        eventually(lambda: replica.say("GET", KEY).startswith("$"), "the replica is in step")
        behind = RedisStore(replica.url)
        eventually(lambda: behind.get("api") is not None, "the replica has the circuit")
        with pytest.raises(StoreReadOnly, match="primary"):
            tell(behind)
        behind.close()


def test_a_cluster_url_for_a_server_that_is_none_says_so(server: Server) -> None:
    store = RedisStore(f"redis+cluster://127.0.0.1:{server.port}")
    with pytest.raises(StoreUnavailable, match="no Cluster"):
        tell(store)
    store.close()


# What the server has lost


def test_a_circuit_that_the_server_lost_is_given_back_by_who_remembers_it(
    server: Server, store: RedisStore
) -> None:
    trip(store)
    server.say("FLUSHALL")
    done = store.apply("api", POLICY, Ask(), store.now_s())
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
    assert newcomer.apply("api", POLICY, Ask(), newcomer.now_s()).verdict.admitted
    tell(newcomer)
    assert tell(store, Tell(Signal(count=0))).phase is Phase.OPEN
    assert not newcomer.apply("api", POLICY, Ask(), newcomer.now_s()).verdict.admitted
    newcomer.close()


# What a doctor wants to know


def test_the_facts_warn_of_settings_that_forget_circuits(server: Server, store: RedisStore) -> None:
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
