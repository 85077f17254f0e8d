"""The connections of a store: one pool for threads, one per event loop, none across a fork."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from switchgear._stores.redis.address import Address, missing_package

_of_parents: list[object] = []
"""Connections that belong to the process we were forked from: neither used nor closed here."""


class Clients:
    """Makes clients when they are first needed. Thread-safe and fork-safe."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        try:
            from redis import exceptions  # noqa: PLC0415  only who uses Redis loads it
        except ImportError as error:
            raise missing_package(address.label) from error
        self._address = address
        self._timeout_s = timeout_s
        self.no_script: type[Exception] = exceptions.NoScriptError
        self.refusals: type[Exception] = exceptions.ResponseError
        """Errors that the server replied."""
        self.errors: tuple[type[Exception], ...] = (
            exceptions.RedisError,
            exceptions.RedisClusterException,
            OSError,
        )
        """What the redis package raises when something is wrong with the server.

        After each of them nobody knows whether the server did what it was sent. An error that the
        server replied may be the reply to another call: it repeats no nonce.
        """
        self.timeouts: tuple[type[Exception], ...] = (exceptions.TimeoutError, TimeoutError)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._blocking: Any = None
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self._keepers: dict[int, AsyncGenerator[None, None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def blocking(self) -> Any:
        """The client for threads. A Cluster's is made by asking its nodes, so this may fail."""
        self._check_fork()
        client = self._blocking
        if client is None:
            client = self._blocking = self.another()
        return client

    @property
    def is_connected(self) -> bool:
        """Whether the client for threads is there already."""
        return self._blocking is not None and self._pid == os.getpid()

    def hang_up(self, client: Any) -> None:
        """Close the connections of a client whose replies are out of step; the next call connects.

        Those in use stay: each of their users finds out what arrives there.
        """
        pools = [client.connection_pool] if not self._address.cluster else _pools(client)
        for pool in pools:
            with suppress(OSError):
                pool.disconnect(inuse_connections=False)

    async def ahang_up(self, client: Any) -> None:
        """The same for tasks."""
        if self._address.cluster:
            await client.aclose()
        else:
            await client.connection_pool.disconnect(inuse_connections=False)

    def another(self) -> Any:
        """A client of one's own, to be closed by whoever made it."""
        import redis.backoff  # noqa: PLC0415
        import redis.cluster  # noqa: PLC0415
        import redis.retry  # noqa: PLC0415

        # Whether to try again is the breaker's decision, and it does not want to wait for ours.
        retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        if not self._address.cluster:
            return redis.Redis.from_url(self._address.url, retry=retry, **self._options())
        node = redis.cluster.ClusterNode
        return redis.cluster.RedisCluster.from_url(
            self._address.url, retry=retry, **self._cluster_options(node)
        )

    async def of_this_loop(self) -> Any:
        """The client for tasks of the running event loop; closed when the loop shuts down."""
        self._check_fork()
        loop = asyncio.get_running_loop()
        client = self._by_loop.get(loop)
        if client is None:
            client = self._by_loop[loop] = self._for_tasks()
            # `asyncio.run` ends the generators of its loop: so it closes our connections too.
            keeper = self._keeper(loop, client)
            self._keepers[id(loop)] = keeper
            await anext(keeper)
        return client

    def close(self) -> None:
        """Let go of all connections. Those of other event loops are closed in their loops."""
        self._check_fork()
        client, self._blocking = self._blocking, None
        if client is not None:
            client.close()
        for loop in list(self._by_loop):
            keeper = self._keepers.get(id(loop))
            if keeper is not None and loop.is_running():
                loop.call_soon_threadsafe(self._close_soon, loop, keeper)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        keeper = self._keepers.get(id(asyncio.get_running_loop()))
        if keeper is not None:
            await keeper.aclose()

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            _of_parents.extend((self._blocking, self._by_loop, self._keepers, self._closing))
            self._begin()

    def _close_soon(
        self, loop: asyncio.AbstractEventLoop, keeper: AsyncGenerator[None, None]
    ) -> None:
        async def close() -> None:
            await keeper.aclose()

        task = loop.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _keeper(
        self, loop: asyncio.AbstractEventLoop, client: Any
    ) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._by_loop.pop(loop, None)
            self._keepers.pop(id(loop), None)
            await client.aclose()

    def _for_tasks(self) -> Any:
        import redis.asyncio.cluster  # noqa: PLC0415
        import redis.asyncio.retry  # noqa: PLC0415
        import redis.backoff  # noqa: PLC0415

        retry = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)
        if not self._address.cluster:
            return redis.asyncio.Redis.from_url(self._address.url, retry=retry, **self._options())
        node = redis.asyncio.cluster.ClusterNode
        return redis.asyncio.cluster.RedisCluster.from_url(
            self._address.url, retry=retry, **self._cluster_options(node)
        )

    def _options(self) -> dict[str, Any]:
        # RESP 2 is what every server speaks, and needs no greeting on each new connection.
        return {
            "socket_timeout": self._timeout_s,
            "socket_connect_timeout": self._timeout_s,
            "protocol": 2,
        }

    def _cluster_options(self, node: Callable[[str, int], Any]) -> dict[str, Any]:
        nodes = [node(host, port) for host, port in self._address.more_nodes]
        return {**self._options(), "startup_nodes": nodes}


def _pools(client: Any) -> list[Any]:
    """The pools of the nodes of a Cluster."""
    nodes = (node.redis_connection for node in client.get_nodes())
    return [connection.connection_pool for connection in nodes if connection is not None]
