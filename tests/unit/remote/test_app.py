"""The broker and the queues of a store."""

import pytest

from switchgear._remote.app import Broker, application, broker_of_store, queue_of, queues_of


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


def test_namespaces_have_queues_of_their_own() -> None:
    assert queue_of(("gpu",), "team-a") == "team-a.gpu"
    assert queues_of(("gpu",), "team-a") == ["team-a", "team-a.gpu"]
    assert not set(queues_of(("gpu",), "team-a")) & set(queues_of(("gpu",)))
