"""The stores under one interface, for the tests of stores.

The Redis servers are started by the first test that needs them and stopped at the end.
"""

import atexit
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from servers.cluster import running_cluster
from servers.server import running
from switchgear._stores.base import Store
from switchgear._stores.memory import MemoryStore
from switchgear._stores.redis import RedisStore
from switchgear._stores.sqlite import SqliteStore

_numbers = count(1)
_servers = ExitStack()
atexit.register(_servers.close)


class Backend:
    """One empty store. `open` returns a handle on it; all handles share its content."""

    def __init__(self, make: Callable[..., Store]) -> None:
        self._make = make
        self._opened: list[Store] = []

    def open(self, **options: Any) -> Store:
        store = self._make(**options)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()


@contextmanager
def memory(_: Path) -> Iterator[Backend]:
    made: list[Store] = []

    def make(**options: Any) -> Store:
        if not made:
            made.append(MemoryStore(**options))
        return made[0]

    yield Backend(make)


@contextmanager
def sqlite(folder: Path) -> Iterator[Backend]:
    file = folder / f"state-{next(_numbers)}.db"
    yield from _closing(Backend(lambda **options: SqliteStore(file, **options)))


@contextmanager
def redis(_: Path) -> Iterator[Backend]:
    yield from _closing(_on_redis(_server_url()))


@contextmanager
def redis_cluster(_: Path) -> Iterator[Backend]:
    yield from _closing(_on_redis(_cluster_url()))


BACKENDS = {"memory": memory, "sqlite": sqlite, "redis": redis, "redis_cluster": redis_cluster}


def _closing(backend: Backend) -> Iterator[Backend]:
    try:
        yield backend
    finally:
        backend.close()


def _on_redis(url: str) -> Backend:
    namespace = f"test-{next(_numbers)}"
    # A machine under load keeps eight writers waiting for longer than the default of a second.
    given = {"namespace": namespace, "timeout_s": 10.0}
    return Backend(lambda **options: RedisStore(url, **{**given, **options}))


@cache
def _server_url() -> str:
    return _servers.enter_context(running()).url


@cache
def _cluster_url() -> str:
    return _servers.enter_context(running_cluster()).url
