"""A real Redis server for a module, empty for each test, and a store in it."""

from collections.abc import Iterator

import pytest

from servers.server import Server, running
from switchgear._stores.redis import RedisStore


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
