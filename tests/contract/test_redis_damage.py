"""Unreadable data in a real Redis server, and writes that it rejects."""

import json

import pytest

from contract.redis_words import FAILED, KEY, POLICY, STRICT, tell, trip
from servers.server import Server, eventually, running
from switchgear._core.errors import (
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)
from switchgear._core.types import Acquire, EventKind, Mode
from switchgear._stores.redis import RedisStore
from switchgear._stores.redis.envelope import seal_event


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
def test_unreadable_state_is_set_aside_and_the_circuit_starts_from_scratch(
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


def test_an_unreadable_circuit_can_be_removed(server: Server, store: RedisStore) -> None:
    server.say("SET", KEY, "rubbish")
    assert store.forget("api")
    assert not store.forget("api")
    assert store.get("api") is None


def test_a_circuit_is_removed_with_all_its_events_however_many_there_are(
    server: Server, store: RedisStore
) -> None:
    trip(store)
    add = "for i = 1, ARGV[2] do redis.call('XADD', KEYS[1], '*', 'e', ARGV[1]) end"
    [entry] = store.events()
    for name, number in (("api", 9000), ("other", 1005)):
        event = seal_event(entry.event._replace(circuit=name)).decode()
        server.say("EVAL", add, "1", "{switchgear}:events", event, str(number))
    assert store.forget("api")
    assert server.say("XLEN", "{switchgear}:events") == ":1005\r\n"
    assert {found.event.circuit for found in store.events(limit=20_000)} == {"other"}


def test_a_strict_circuit_whose_state_is_unreadable_is_held_open(
    server: Server, store: RedisStore
) -> None:
    server.say("SET", KEY, "rubbish")
    done = store.apply("api", STRICT, Acquire(), store.now_s())
    assert not done.verdict.admitted
    assert done.circuit.mode is Mode.HELD_OPEN


def test_state_of_a_newer_switchgear_is_left_unchanged(server: Server, store: RedisStore) -> None:
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


def test_a_key_with_another_content_is_reported(server: Server, store: RedisStore) -> None:
    server.say("HSET", KEY, "a", "b")
    with pytest.raises(StoreCorrupt, match="has another content"):
        tell(store)
    with pytest.raises(StoreCorrupt, match="has another content"):
        store.get("api")


def test_a_full_server_is_full_and_can_still_be_read(server: Server, store: RedisStore) -> None:
    tell(store)
    server.say("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(StoreFull, match="maxmemory"):
            tell(store)
        assert store.apply("api", POLICY, Acquire(), store.now_s()).verdict.admitted
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


def test_a_cluster_url_for_a_single_server_is_an_error(server: Server) -> None:
    store = RedisStore(f"redis+cluster://127.0.0.1:{server.port}")
    with pytest.raises(StoreUnavailable, match="not a Cluster"):
        tell(store)
    store.close()
