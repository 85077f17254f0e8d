"""A Redis server that is killed, emptied, frozen, disconnected or replaced: errors and recovery of the store.

A store says quickly what is wrong and works again by itself; going on in the meantime is the panel's
business (test_panel_redis.py).
"""

import asyncio
import time
from collections.abc import Iterator

import pytest

from servers.cluster import running_cluster
from servers.proxy import Proxy
from servers.server import Server, eventually, running
from switchgear._core.errors import StoreError, StoreReadOnly, StoreUnavailable
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Acquire, Circuit, Phase, Record, Signal
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.redis import RedisStore
from switchgear._stores.redis.clients import ServerClock

pytestmark = pytest.mark.stress

POLICY = Policy([ConsecutiveFailures(3)], Cooldown(30.0))
FAILED = Record(Signal(ok=False, error="529"))
SUCCEEDED = Record(Signal(ok=True))
TIMEOUT_S = 0.3
SLACK_S = 10.0


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    store = RedisStore(server.url, timeout_s=TIMEOUT_S)
    yield store
    store.close()


def tell(store: RedisStore, message: Record | Acquire = SUCCEEDED) -> Circuit:
    return store.apply("api", POLICY, message, store.now_s()).circuit


def works(store: RedisStore) -> bool:
    try:
        tell(store)
    except StoreError:
        return False
    return True


def test_a_killed_server_is_unreachable_at_once_and_used_again_when_it_is_back(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    server.kill()
    for _ in range(2):
        started_s = time.monotonic()
        with pytest.raises(StoreUnavailable, match="check that it runs"):
            tell(store)
        assert time.monotonic() - started_s < TIMEOUT_S + SLACK_S
    before_s = store.now_s()
    assert before_s > 1e9, "the clock goes on"
    server.start()
    assert tell(store).totals.succeeded == 2, "what it forgot is given back"
    assert store.now_s() >= before_s


def test_tasks_are_recorded_as_quickly_as_threads(server: Server, store: RedisStore) -> None:
    async def main() -> None:
        await store.aapply("api", POLICY, SUCCEEDED, store.now_s())
        server.kill()
        with pytest.raises(StoreUnavailable):
            await store.aapply("api", POLICY, SUCCEEDED, store.now_s())
        server.start()
        done = await store.aapply("api", POLICY, SUCCEEDED, store.now_s())
        assert done.circuit.totals.succeeded == 2

    asyncio.run(main())


def test_a_task_cancelled_while_the_server_is_frozen_leaves_its_failure_in_doubt(
    server: Server, store: RedisStore
) -> None:
    tell(store)

    async def main() -> str | None:
        await store.aapply("api", POLICY, SUCCEEDED, store.now_s())
        server.pause()
        work = store.aapply("api", POLICY, FAILED, store.now_s())
        with pytest.raises(TimeoutError) as ended:
            await asyncio.wait_for(work, TIMEOUT_S / 3)
        cancelled = ended.value.__cause__
        assert isinstance(cancelled, asyncio.CancelledError)
        assert isinstance(cancelled.__cause__, StoreUnavailable)
        return cancelled.__cause__.in_doubt

    in_doubt = asyncio.run(main())
    server.resume()
    done = store.apply("api", POLICY, FAILED, store.now_s(), identity=in_doubt)
    assert done.circuit.totals.failed == 1
    done = store.apply("api", POLICY, FAILED, store.now_s(), identity=in_doubt)
    assert done.circuit.totals.failed == 1, "once, although it was sent three times"


def test_a_server_that_restarts_empty_gets_an_open_circuit_back(
    server: Server, store: RedisStore
) -> None:
    for _ in range(3):
        tell(store, FAILED)
    server.kill()
    server.start()
    done = store.apply("api", POLICY, Acquire(), store.now_s())
    assert not done.verdict.admitted, "never silently closed"
    assert "lost" in done.events[0].reason
    newcomer = RedisStore(server.url)
    assert not newcomer.apply("api", POLICY, Acquire(), newcomer.now_s()).verdict.admitted
    newcomer.close()


def test_a_frozen_server_times_out_and_is_used_again_when_it_thaws(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    server.pause()
    try:
        for _ in range(2):
            started_s = time.monotonic()
            with pytest.raises(StoreUnavailable, match=r"no answer within 0\.3 s"):
                tell(store)
            assert time.monotonic() - started_s < TIMEOUT_S + SLACK_S

        async def main() -> None:
            with pytest.raises(StoreUnavailable, match=r"no answer within 0\.3 s"):
                await store.aapply("api", POLICY, SUCCEEDED, store.now_s())

        asyncio.run(main())
    finally:
        server.resume()
    eventually(lambda: works(store), "the server answers again")
    found = store.get("api")
    assert found is not None
    assert found.circuit.totals.succeeded == 2, "what was given up is not done when it thaws"


def test_a_network_that_drops_all_packets_counts_as_an_unreachable_server(
    server: Server,
) -> None:
    with Proxy(server.port) as proxy:
        store = RedisStore(f"redis://127.0.0.1:{proxy.port}", timeout_s=TIMEOUT_S)
        heard: list[Circuit] = []
        store.on_change(heard.append)
        eventually(lambda: store.refresh_s is None, "pushes arrive")
        tell(store)
        proxy.cut()
        started_s = time.monotonic()
        with pytest.raises(StoreUnavailable, match="no answer"):
            tell(store)
        assert time.monotonic() - started_s < TIMEOUT_S + SLACK_S
        eventually(lambda: store.refresh_s == 1.0, "the pushes are missed")
        other = RedisStore(server.url)
        for _ in range(3):
            tell(other, FAILED)
        proxy.mend()
        eventually(lambda: heard, "what was missed is read again")
        assert heard[-1].phase is Phase.OPEN
        assert works(store)
        store.close()
        other.close()


def test_a_replica_that_is_promoted_continues_with_the_circuits(server: Server) -> None:
    with running("--replicaof", "127.0.0.1", str(server.port)) as replica:
        store = RedisStore(server.url, timeout_s=TIMEOUT_S)
        eventually(lambda: "master_link_status:up" in replica.say("INFO", "replication"), "in step")
        for _ in range(3):
            tripped = tell(store, FAILED)
        behind = RedisStore(replica.url, timeout_s=TIMEOUT_S)

        def has_it() -> bool:
            found = behind.get("api")
            return found is not None and found.circuit == tripped

        eventually(has_it, "the replica has the open circuit")
        server.kill()
        with pytest.raises(StoreReadOnly):
            tell(behind)
        replica.say("REPLICAOF", "NO", "ONE")
        done = behind.apply("api", POLICY, Acquire(), behind.now_s())
        assert not done.verdict.admitted
        assert done.circuit.version == tripped.version + 1
        store.close()
        behind.close()


def test_a_cluster_whose_node_dies_continues_with_its_replica() -> None:
    with running_cluster(replicas=1) as cluster:
        store = RedisStore(cluster.url, timeout_s=TIMEOUT_S)
        heard: list[Circuit] = []
        other = RedisStore(cluster.url, timeout_s=TIMEOUT_S)
        other.on_change(heard.append)
        eventually(lambda: other.refresh_s is None, "pushes arrive")
        tell(other)
        for _ in range(3):
            tell(store, FAILED)
        eventually(lambda: heard, "the trip is pushed")
        holder = cluster.holder("{switchgear}:probe")
        holder.say("WAIT", "1", "5000")
        holder.kill()
        with pytest.raises(StoreUnavailable):
            tell(store)
        eventually(lambda: works(store), "the replica has taken over")
        assert not store.apply("api", POLICY, Acquire(), store.now_s()).verdict.admitted
        eventually(lambda: other.refresh_s is None, "pushes arrive again")
        store.close()
        other.close()


def test_a_cluster_that_moves_the_circuits_to_another_node_is_followed() -> None:
    with running_cluster() as cluster:
        store = RedisStore(cluster.url, timeout_s=TIMEOUT_S)
        for _ in range(2):  # the first call finds the node, the second goes there directly
            tell(store)
        cluster.move("{switchgear}:")
        assert tell(store).totals.succeeded == 3
        store.close()


def test_a_change_of_the_server_clock_is_followed(server: Server, store: RedisStore) -> None:
    tell(store)
    for set_s in (-3600.0, 3600.0):
        asked_s = time.monotonic()
        store._server_clock.learn(time.time() + set_s, asked_s, asked_s)
        assert works(store)


@pytest.mark.parametrize("skew_s", [30.0, -30.0])
def test_clients_whose_clocks_differ_agree_on_the_time(server: Server, skew_s: float) -> None:
    right = RedisStore(server.url)
    for _ in range(3):
        tripped = tell(right, FAILED)
    skewed = RedisStore(server.url)
    skewed._server_clock = skewed._protocol._clock = ServerClock(wall=lambda: time.time() + skew_s)
    done = skewed.apply("api", POLICY, Acquire(), skewed.now_s())
    assert abs(skewed.now_s() - right.now_s()) < 1.0
    assert not done.verdict.admitted, "a clock that is fast does not end the wait"
    assert done.circuit.seen_s - tripped.seen_s < 5.0
    assert done.verdict.retry_after_s is not None
    assert 20.0 < done.verdict.retry_after_s <= 30.0
    right.close()
    skewed.close()


def test_a_reader_gets_the_time_of_the_server(server: Server, store: RedisStore) -> None:
    tell(store)
    for read in (
        lambda other: other.get("api"),
        lambda other: list(other.find()),
        lambda other: other.events(),
        lambda other: other.facts(),
    ):
        other = RedisStore(server.url)
        other._server_clock = other._protocol._clock = ServerClock(wall=lambda: time.time() + 1e6)
        read(other)
        assert abs(other.now_s() - store.now_s()) < 1.0
        other.close()


def test_a_client_whose_clock_is_far_ahead_vacuums_nothing(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    other = RedisStore(server.url)
    other._server_clock = other._protocol._clock = ServerClock(wall=lambda: time.time() + 1e6)
    gone = other.vacuum(keep_events=100, idle_s=3600.0, now_s=other.now_s())
    assert gone.circuits == 0
    other.close()
