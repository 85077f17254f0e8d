"""The connections of a store: one pool for threads, one per event loop, none across a fork."""

import asyncio
import math
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakKeyDictionary

from switchgear._core.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from switchgear._stores.redis.script import Names
from switchgear._stores.url import REDIS, REDIS_URLS
from switchgear._system.threads import ForkSafeLock

COMMANDS = (
    "EVAL", "EVALSHA", "GET", "SET", "DEL", "RENAME", "PEXPIRE", "MGET", "SCAN", "TIME",
    "LRANGE", "LINDEX", "LPOP", "BLPOP", "LREM", "LTRIM", "RPUSH", "XADD", "XDEL", "XLEN", "XRANGE",
    "XREVRANGE", "XTRIM", "PUBLISH", "SUBSCRIBE", "PING", "INFO",
)  # fmt: skip
"""The commands that the user of the server needs; access rules also apply inside scripts."""
CLUSTER_COMMANDS = ("CLUSTER|SLOTS", "COMMAND")
"""Commands that are also needed in a Cluster."""

ERRORS_BY_WORD: tuple[tuple[tuple[str, ...], type[StoreError], str, str], ...] = (
    (
        ("NOAUTH", "WRONGPASS", "unauthenticated", "invalid password", "invalid username-password"),
        StoreUnavailable,
        "the server refused the user or the password",
        "put the right ones into the URL",
    ),
    (
        ("NOPERM", "ACL failure in script", "user executing the script"),
        StoreUnavailable,
        "the server's access rules forbid a command or a key",
        f"allow {', '.join(COMMANDS)}; in a Cluster also {', '.join(CLUSTER_COMMANDS)}",
    ),
    (
        ("LOADING",),
        StoreUnavailable,
        "the server is still loading its data",
        "wait until it has, and try again",
    ),
    (
        ("OOM",),
        StoreFull,
        "the server has used all of its maxmemory",
        "raise maxmemory, or remove other keys",
    ),
    (
        ("READONLY",),
        StoreReadOnly,
        "the server is a replica",
        "use the URL of the primary",
    ),
    (
        ("MISCONF", "NOREPLICAS"),
        StoreReadOnly,
        "the server takes no writes because it cannot save or replicate them",
        "check the server's log",
    ),
    (
        ("WRONGTYPE",),
        StoreCorrupt,
        "a key of Switchgear has another content",
        "remove it, or choose another namespace",
    ),
    (
        ("CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "not covered"),
        StoreUnavailable,
        "the Cluster has no node for the keys of Switchgear now",
        "look at CLUSTER INFO, and try again",
    ),
    (
        ("Cluster mode is not enabled", "cluster support disabled"),
        StoreUnavailable,
        "the server is not a Cluster",
        "use a URL that begins with redis:// or rediss://",
    ),
    (
        ("MOVED", "ASK"),
        StoreUnavailable,
        "the server is a node of a Cluster and keeps redirecting",
        "use a URL that begins with redis+cluster:// or rediss+cluster://",
    ),
    (
        ("BUSY",),
        StoreUnavailable,
        "the server is busy with a script",
        "try again, or end it by SCRIPT KILL",
    ),
)


WORDS = {
    "AuthenticationError": "NOAUTH",
    "AuthenticationWrongNumberOfArgsError": "NOAUTH",
    "AuthorizationError": "NOAUTH",
    "NoPermissionError": "NOPERM",
    "BusyLoadingError": "LOADING",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "ClusterDownError": "CLUSTERDOWN",
    "SlotNotCoveredError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "AskError": "MOVED",
}
"""The first word of the error reply, by the class of the exception: the redis package removes it."""


def store_error(
    label: str, error: BaseException, timeout_s: float, secret: str | None
) -> StoreError:
    """The store error for an error of the client or the server."""
    import redis.exceptions as of_redis  # noqa: PLC0415  only loaded for Redis

    text = str(error) or type(error).__name__
    if secret:
        text = text.replace(secret, "***")
    for words, kind, why, what_to_do in ERRORS_BY_WORD:
        if _matches(error, text, words):
            return kind(label, why, what_to_do)
    if isinstance(error, of_redis.TimeoutError | TimeoutError):
        return StoreUnavailable(
            label, f"no answer within {timeout_s:g} s", "check that it runs and can be reached"
        )
    if isinstance(error, of_redis.ConnectionError | of_redis.RedisClusterException | OSError):
        return StoreUnavailable(label, text, "check that it runs and that the URL is right")
    return StoreError(label, text, "check the server's log")


def is_known(error: BaseException) -> bool:
    """Whether the error is permanent, so that retrying does not help."""
    return any(_matches(error, str(error), words) for words, *_ in ERRORS_BY_WORD)


def _matches(error: BaseException, text: str, words: tuple[str, ...]) -> bool:
    codes = [WORDS.get(kind.__name__, "") for kind in type(error).__mro__]
    return any(word in codes or re.search(rf"\b{word}\b", text) for word in words)


STALE_S = 10.0
"""Seconds after which a less exact measurement replaces an older one, because clocks drift."""
GUESSES_S = 3600.0
"""Maximum age in seconds of a local time that is sent to the server."""


class ServerClock:
    """Seconds since the epoch on the server: the monotonic clock plus the offset in every reply.

    Until the server has answered once, it is the wall clock of this machine. From then on it never runs
    backwards. Thread-safe.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lock = ForkSafeLock()
        self._offset_s: float | None = None
        self._error_s = 0.0
        self._learnt_s = 0.0
        self._last_s = 0.0
        self._guessed_s = -math.inf

    @property
    def is_set(self) -> bool:
        """Whether the server has answered yet."""
        return self._offset_s is not None

    def is_guess(self, now_s: float) -> bool:
        """Whether this time comes from the local clock, because the server has not answered yet."""
        return self._offset_s is None and self._guessed_s - GUESSES_S <= now_s <= self._guessed_s

    def corrected(self, guess_s: float) -> float:
        """A time of the local clock, converted to the server's clock."""
        return guess_s + self() - self._wall()

    def learn(self, server_s: float, asked_s: float, answered_s: float) -> None:
        """Record that the server's time was `server_s` between two readings of the local clock."""
        error_s = (answered_s - asked_s) / 2
        offset_s = server_s - (asked_s + answered_s) / 2
        with self._lock:
            known = self._offset_s
            if (
                known is None
                or error_s <= self._error_s
                or answered_s - self._learnt_s >= STALE_S
                or abs(offset_s - known) > error_s + self._error_s
            ):
                self._offset_s, self._error_s, self._learnt_s = offset_s, error_s, answered_s

    def __call__(self) -> float:
        with self._lock:
            if self._offset_s is None:
                self._guessed_s = self._wall()
                return self._guessed_s
            self._last_s = max(self._last_s, self._monotonic() + self._offset_s)
            return self._last_s


def facts(client: Any, names: Names, *, cluster: bool) -> dict[str, str]:
    """Facts about the node with the keys of Switchgear, for `switchgear doctor`."""
    target: dict[str, Any] = {}
    if cluster:
        target["target_nodes"] = client.get_node_from_key(names.root)
    info = client.info(**target)
    valkey = info.get("valkey_version")
    shown = {
        "server": f"valkey {valkey}" if valkey else f"redis {info.get('redis_version', '?')}",
        "mode": "cluster" if info.get("cluster_enabled") else str(info.get("redis_mode", "?")),
        "role": str(info.get("role", "?")),
        "replicas": str(info.get("connected_slaves", "?")),
        "memory": _memory(info),
        "eviction": _eviction(str(info.get("maxmemory_policy", "?")), info.get("maxmemory", 0)),
        "persistence": _persistence(client, info, target),
        "events": str(client.xlen(names.log)),
        "namespace": names.namespace,
    }
    if cluster:
        shown["primaries"] = str(len(client.get_primaries()))
    return shown


def _memory(info: dict[str, Any]) -> str:
    used, limit = info.get("used_memory_human", "?"), info.get("maxmemory", 0)
    return f"{used} of {info.get('maxmemory_human', limit)}" if limit else f"{used}, no limit"


def _eviction(policy: str, limit: int) -> str:
    if policy.startswith("allkeys") and limit:
        return f"{policy}: WARNING, a full server evicts circuits, open ones too; use noeviction"
    if policy.startswith("volatile") and limit:
        return f"{policy}: WARNING, a full server evicts closed circuits; use noeviction"
    return policy


def _persistence(client: Any, info: dict[str, Any], target: dict[str, Any]) -> str:
    if info.get("aof_enabled"):
        return "append-only file"
    try:
        saves = client.config_get("save", **target).get("save")
    except Exception:  # noqa: BLE001  many servers do not provide it
        return "snapshots, if any: the server does not report them"
    if saves:
        return f"snapshots ({saves}): a crash loses what came after the last one"
    return "WARNING, none: a restart loses every circuit"


DEFAULT_PORT = 6379


class Address(NamedTuple):
    """A parsed URL. Its repr shows no password."""

    label: str
    """The URL without user and password, for messages."""
    url: str
    """The URL in the form of the redis package: one host, and only its own schemes."""
    cluster: bool
    more_nodes: tuple[tuple[str, int], ...] = ()
    """The further nodes of a Cluster in the URL, as in `redis+cluster://one:7000,two:7000`."""
    secret: str | None = None
    namespace: str | None = None
    """The prefix of all keys, from `?namespace=NAME`."""

    def __repr__(self) -> str:
        return f"<Address {self.label}>"


def parsed(url: str) -> Address:
    """Parse a URL. The ValueError for an invalid URL shows no password."""
    url, namespace = _without_namespace(url)
    address = _parse_url(url)
    if namespace is None:
        return address
    return address._replace(label=f"{address.label}?namespace={namespace}", namespace=namespace)


def _without_namespace(url: str) -> tuple[str, str | None]:
    """The URL without the option `namespace`, which the redis package does not know, and its value."""
    rest, mark, query = url.rpartition("?")
    options = query.split("&") if mark else []
    others = [option for option in options if not option.startswith("namespace=")]
    if len(others) == len(options):
        return url, None
    namespace = parse_qs(query, keep_blank_values=True)["namespace"][-1]
    return rest + ("?" + "&".join(others) if others else ""), namespace


def _parse_url(url: str) -> Address:
    scheme, found, rest = url.partition("://")
    if not found or scheme not in REDIS:
        raise ValueError(
            f"the URL of a Redis store begins with {url.partition(':')[0]!r}: it must begin with "
            + ", ".join(REDIS_URLS)
        )
    cluster = scheme.endswith("+cluster")
    if scheme == "unix":
        parts = urlsplit(url)
        secret = _secret(parts.password, parts.query)
        return Address(f"unix://{parts.path}", url, cluster=False, secret=secret)
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    query = ""
    if "?" in hosts:
        hosts, _, query = hosts.partition("?")
    first, *others = hosts.split(",")
    tail = slash + path + (f"?{query}" if query else "")
    shown = path.partition("?")[0]
    label = f"{scheme}://{hosts}" + (f"/{shown}" if shown else "")
    try:
        more = tuple(map(_host_and_port, others))
        _host_and_port(first)
    except ValueError:
        raise ValueError(f"the URL {label} has no proper host and port") from None
    if others and not cluster:
        raise ValueError(f"the URL {label} names several hosts: only {scheme}+cluster:// may")
    password = login.partition(":")[2]
    return Address(
        label,
        f"{REDIS[scheme]}://{login}{at}{first}{tail}",
        cluster,
        more,
        _secret(password, (path.partition("?")[2] or query)),
    )


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "localhost", parts.port or DEFAULT_PORT


def _secret(password: str | None, query: str) -> str | None:
    in_query = parse_qs(query).get("password", [""])[0]
    return unquote(password or "") or in_query or None


_parent_connections: list[object] = []
"""Connections of the parent process after a fork: neither used nor closed here."""


class Links:
    """Connections to the node with the keys of Switchgear, used without the upper layers of the redis package.

    Those layers select a node and a connection for each call, which takes longer than everything else
    that this process does for the call. Thread-safe.
    """

    def __init__(self, node: Any) -> None:
        self._node = node
        """The client of the redis package; a reference, because without any it closes its connections."""
        self._pool = node.connection_pool
        self._idle: list[Any] = []
        self._is_closed = False

    def ask(self, packed: bytes, errors: tuple[type[Exception], ...]) -> Any:
        """The reply to a command. Raises what the redis package raises."""
        link = self._idle.pop() if self._idle else self._connected()
        try:
            try:
                is_stale = link.can_read()
            except errors:
                is_stale = True
            if is_stale:  # the server has closed it, or a reply has arrived that no call waits for
                link.disconnect()
            link.send_packed_command((packed,))
            return link.read_response()
        except BaseException:
            link.disconnect()
            raise
        finally:
            self._idle.append(link)
            if self._is_closed:
                self.close()

    def close(self) -> None:
        """Close the idle connections now, and the others after their use."""
        self._is_closed = True
        while self._idle:
            with suppress(IndexError):  # another thread was first
                link = self._idle.pop()
                link.disconnect()
                self._pool.release(link)

    def _connected(self) -> Any:
        try:
            return self._pool.get_connection()
        except TypeError:  # versions before 5.3 require the name of a command
            return self._pool.get_connection("EVAL")


def packed(words: Sequence[Any]) -> bytes:
    """A command in the wire format of the server."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if type(word) is bytes else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Clients:
    """Creates clients on first use. Thread-safe and fork-safe. `key` is any key of Switchgear."""

    def __init__(self, address: Address, timeout_s: float, key: str) -> None:
        try:
            from redis import exceptions  # noqa: PLC0415  only loaded for Redis
        except ImportError as error:
            why = "the Python package 'redis' is not installed"
            what_to_do = "install it: pip install 'switchgear[redis]'"
            raise StoreUnavailable(address.label, why, what_to_do) from error
        self._address = address
        self._timeout_s = timeout_s
        self._key = key
        self.no_script: type[Exception] = exceptions.NoScriptError
        self.refusals: type[Exception] = exceptions.ResponseError
        """Errors that the server sent as a reply."""
        self.errors: tuple[type[Exception], ...] = (
            exceptions.RedisError,
            exceptions.RedisClusterException,
            OSError,
        )
        """What the redis package raises if something is wrong with the server or the connection.

        After any of these it is unknown whether the server executed the command. Even an error reply may
        belong to another call, because it contains no nonce.
        """
        self.timeouts: tuple[type[Exception], ...] = (exceptions.TimeoutError, TimeoutError)
        self.moves: tuple[type[Exception], ...] = ()
        """Errors after which the redis package finds the keys on another node of a Cluster."""
        if address.cluster:
            self.moves = (exceptions.AskError, exceptions.MovedError, exceptions.TryAgainError)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = ForkSafeLock()
        """Ensures that all threads use one client: the redis package closes a client without references."""
        self._blocking: Any = None
        self._links: Links | None = None
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self._closers: dict[int, AsyncGenerator[None, None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def blocking(self) -> Any:
        """The client for threads. In a Cluster, creating it queries the nodes, so it may raise."""
        self._check_fork()
        client = self._blocking
        if client is None:
            created = self.create_client()
            with self._lock:
                client = self._blocking = self._blocking or created
        return client

    def ask(self, *words: Any) -> Any:
        """Send a command about the keys of Switchgear from a thread, and return the reply.

        After an error, the redis package sends the next command, because it finds keys that a Cluster
        has moved.
        """
        client, links = self.blocking(), self._links
        if links is not None:
            return links.ask(packed(words), self.errors)
        reply = client.execute_command(*words)
        node = client
        if self._address.cluster:
            node = client.get_redis_connection(client.get_node_from_key(self._key))
        links = Links(node)
        with self._lock:
            if self._links is None and client is self._blocking:
                self._links = links
        return reply

    @property
    def is_connected(self) -> bool:
        """Whether the client for threads exists already."""
        return self._blocking is not None and self._pid == os.getpid()

    def disconnect_idle(self, client: Any) -> None:
        """Close the idle connections of a client whose replies are out of step; the next call reconnects.

        Connections in use stay open: their users check the replies themselves.
        """
        links, self._links = self._links, None
        if links is not None:
            links.close()
        pools = [client.connection_pool] if not self._address.cluster else _pools(client)
        for pool in pools:
            with suppress(OSError):
                pool.disconnect(inuse_connections=False)

    async def adisconnect_idle(self, client: Any) -> None:
        if self._address.cluster:
            await client.aclose()
        else:
            await client.connection_pool.disconnect(inuse_connections=False)

    def create_client(self) -> Any:
        """A new client, which the caller closes."""
        import redis.backoff  # noqa: PLC0415
        import redis.cluster  # noqa: PLC0415
        import redis.retry  # noqa: PLC0415

        # The breaker decides whether to retry, so the redis package must not.
        retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        if not self._address.cluster:
            return redis.Redis.from_url(
                self._address.url, retry=retry, **self._options(), **_driver_info()
            )
        node = redis.cluster.ClusterNode
        return redis.cluster.RedisCluster.from_url(
            self._address.url, retry=retry, **self._cluster_options(node), **_driver_info()
        )

    async def for_running_loop(self) -> Any:
        """The client for tasks of the running event loop; closed when the loop shuts down."""
        self._check_fork()
        loop = asyncio.get_running_loop()
        client = self._by_loop.get(loop)
        if client is None:
            client = self._by_loop[loop] = self._create_async_client()
            # `asyncio.run` ends the generators of its loop, and so this one closes the connections.
            closer = self._close_with_loop(loop, client)
            self._closers[id(loop)] = closer
            await anext(closer)
        return client

    def close(self) -> None:
        """Close all connections. Those of other event loops are closed in their loops."""
        self._check_fork()
        client, self._blocking = self._blocking, None
        if client is not None:
            self.disconnect_idle(client)
            client.close()
        for loop in list(self._by_loop):
            closer = self._closers.get(id(loop))
            if closer is not None and loop.is_running():
                loop.call_soon_threadsafe(self._close_soon, loop, closer)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        closer = self._closers.get(id(asyncio.get_running_loop()))
        if closer is not None:
            await closer.aclose()

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            _parent_connections.extend(
                (self._blocking, self._links, self._by_loop, self._closers, self._closing)
            )
            self._begin()

    def _close_soon(
        self, loop: asyncio.AbstractEventLoop, closer: AsyncGenerator[None, None]
    ) -> None:
        async def close() -> None:
            await closer.aclose()

        task = loop.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_with_loop(
        self, loop: asyncio.AbstractEventLoop, client: Any
    ) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._by_loop.pop(loop, None)
            self._closers.pop(id(loop), None)
            await client.aclose()

    def _create_async_client(self) -> Any:
        import redis.asyncio.cluster  # noqa: PLC0415
        import redis.asyncio.retry  # noqa: PLC0415
        import redis.backoff  # noqa: PLC0415

        retry = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)
        if not self._address.cluster:
            return redis.asyncio.Redis.from_url(
                self._address.url, retry=retry, **self._options(), **_driver_info()
            )
        node = redis.asyncio.cluster.ClusterNode
        return redis.asyncio.cluster.RedisCluster.from_url(
            self._address.url, retry=retry, **self._cluster_options(node)
        )

    def _options(self) -> dict[str, Any]:
        # Every server supports RESP 2, which needs no handshake on each new connection.
        return {
            "socket_timeout": self._timeout_s,
            "socket_connect_timeout": self._timeout_s,
            "protocol": 2,
        }

    def _cluster_options(self, node: Callable[[str, int], Any]) -> dict[str, Any]:
        nodes = [node(host, port) for host, port in self._address.more_nodes]
        return {**self._options(), "startup_nodes": nodes}


@cache
def _driver_info() -> dict[str, Any]:
    """The client information that all connections of this process send to the server.

    Without it, the redis package reads its own version from the disk for each new connection, which
    takes most of the time to connect. Versions before 7.1 read it once.
    """
    try:
        from redis.driver_info import DriverInfo  # noqa: PLC0415
    except ImportError:
        return {}
    return {"driver_info": DriverInfo()}


def _pools(client: Any) -> list[Any]:
    """The pools of the nodes of a Cluster."""
    nodes = (node.redis_connection for node in client.get_nodes())
    return [connection.connection_pool for connection in nodes if connection is not None]
