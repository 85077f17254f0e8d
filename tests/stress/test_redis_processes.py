"""Many processes on one circuit in Redis: every result is counted, events are numbered without gaps."""

from collections.abc import Iterator

import pytest

from servers.cluster import running_cluster
from servers.server import Server, running
from stress.redis_crew import (
    FAILED,
    POLICY,
    SUCCEEDED,
    ask_once,
    fail_once,
    hear_a_trip,
    in_processes,
    tell_often,
)
from switchgear._core.types import Phase
from switchgear._stores.redis import RedisStore

pytestmark = pytest.mark.stress

PROCESSES, TELLS = 8, 2000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def check_conservation(store: RedisStore, seqs: list[list[int]], told: int) -> None:
    found = store.get("hot")
    assert found is not None
    totals = found.circuit.totals
    failures = sum((n + i) % 7 == 0 for i in range(PROCESSES) for n in range(told // PROCESSES))
    assert totals.failed == failures
    assert totals.succeeded == told - failures
    assert totals.cost_micros == 3 * totals.succeeded
    assert found.circuit.version == told, "one version for each message"
    everybody = sorted(seq for one in seqs for seq in one)
    assert everybody == list(range(1, found.circuit.event_seq + 1)), "each event has one owner"
    stream = [entry.event.seq for entry in store.events(limit=10_000)]
    assert stream == sorted(stream)
    assert stream == everybody[-len(stream) :], "and the stream has no gaps"


def test_the_records_of_eight_processes_on_one_circuit_are_counted_exactly_once(
    server: Server,
) -> None:
    store = RedisStore(server.url)
    seqs = in_processes(tell_often, PROCESSES, server.url, TELLS)
    check_conservation(store, seqs, PROCESSES * TELLS)
    assert server.say("EXISTS", "{switchgear}:inbox:hot").startswith(":0"), "nobody still waits"
    store.close()


def test_records_are_counted_exactly_once_on_a_cluster_of_three_nodes() -> None:
    with running_cluster() as cluster:
        store = RedisStore(cluster.url)
        seqs = in_processes(tell_often, PROCESSES, cluster.url, TELLS // 10)
        check_conservation(store, seqs, PROCESSES * TELLS // 10)
        store.close()


def test_sixteen_callers_of_a_half_open_circuit_get_one_probe(server: Server) -> None:
    store = RedisStore(server.url)
    now_s = store.now_s()
    for _ in range(5):
        store.apply("half", POLICY, FAILED, now_s)
    admitted = in_processes(ask_once, 4, server.url, 4, now_s + 31.0)
    assert sum(admitted) == 1
    found = store.get("half")
    assert found is not None
    assert found.circuit.totals.refused == 15
    store.close()


def test_one_failure_in_each_of_five_processes_is_one_trip(server: Server) -> None:
    assert sum(in_processes(fail_once, 5, server.url)) == 1
    store = RedisStore(server.url)
    found = store.get("sum")
    assert found is not None
    assert found.circuit.phase is Phase.OPEN
    assert found.circuit.totals.failed == 5
    assert store.apply("sum", POLICY, SUCCEEDED, store.now_s()).circuit.phase is Phase.OPEN
    store.close()


def test_a_trip_reaches_seven_other_processes_at_once(server: Server) -> None:
    at_s = in_processes(hear_a_trip, 8, server.url)
    assert max(at_s) - min(at_s) < 2.0, "generous: the machine may be busy"
