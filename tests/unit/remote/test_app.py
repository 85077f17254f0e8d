"""The broker and the queues of a store, and the threads of a worker."""

import threading

import pytest
from celery.concurrency import get_implementation

from switchgear._remote.app import (
    Broker,
    Threads,
    application,
    broker_of_store,
    queue_of,
    queues_of,
)
from timeouts import LIMIT_S


@pytest.mark.parametrize(
    ("store", "broker"),
    [
        ("redis://localhost:6379/0", Broker("redis://localhost:6379/0")),
        ("valkey://localhost", Broker("redis://localhost")),
        ("valkeys://:p%40ss@h:7/1", Broker("rediss://:p%40ss@h:7/1")),
        ("redis://h/0?namespace=team-a", Broker("redis://h/0", "team-a")),
        ("redis://h?db=3&socket_timeout=5", Broker("redis://h/3")),
        (
            "rediss://h/0?ssl_ca_certs=%2Fca.pem&namespace=a&protocol=3",
            Broker("rediss://h/0?ssl_ca_certs=%2Fca.pem", "a"),
        ),
        ("redis+cluster://one:7000,two:7000?namespace=b", Broker("", "b")),
        ("unix:///run/redis.sock?db=1", Broker("")),
        ("sqlite:///state.db", Broker("")),
    ],
)
def test_the_redis_of_a_store_is_the_broker(store: str, broker: Broker) -> None:
    found = broker_of_store(store)
    assert found == broker
    if found.url:
        link = application(found).connection_for_write()
        assert link.transport_cls in {"redis", "rediss"}


def test_namespaces_have_their_own_queues() -> None:
    assert queue_of(("gpu",), "team-a") == "team-a.gpu"
    assert queues_of(("gpu",), "team-a") == ["team-a", "team-a.gpu"]
    assert not set(queues_of(("gpu",), "team-a")) & set(queues_of(("gpu",)))


def test_a_label_must_not_contain_the_separator() -> None:
    with pytest.raises(ValueError, match="'big\\+gpu' contains '\\+'"):
        queues_of(("big+gpu",))


def test_celery_can_change_the_number_of_threads_of_a_worker() -> None:
    pool = get_implementation(application(Broker("memory://")).conf.worker_pool)(1)
    assert isinstance(pool, Threads)
    pool.grow(2)
    together = threading.Barrier(3)
    results = [pool.on_apply(together.wait, (LIMIT_S,)) for _ in range(3)]
    for result in results:
        result.wait(LIMIT_S)
    assert not together.broken
    pool.shrink(2)
    assert pool.num_processes == 1
    pool.on_stop()
