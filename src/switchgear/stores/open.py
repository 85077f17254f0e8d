"""From a URL to a store, and where the embedded default lies."""

import os
from weakref import WeakValueDictionary

from switchgear.clock import Clock
from switchgear.stores.base import IDLE_S, KEEP_EVENTS, Store
from switchgear.stores.memory import MemoryStore
from switchgear.stores.operator import OperatorLock
from switchgear.stores.places import default_file, default_url, keep_out_of_git
from switchgear.stores.resilient import Resilient
from switchgear.stores.schemes import REDIS_URLS, STORE_URLS

__all__ = ["default_file", "default_url", "open_store", "reopen"]

_reopened: "WeakValueDictionary[tuple[str, str | None], Resilient]" = WeakValueDictionary()


def open_store(
    url: str | None = None,
    *,
    clock: Clock | None = None,
    keep_events: int = KEEP_EVENTS,
    idle_s: float = IDLE_S,
) -> Store:
    """The store that the URL names; without one, the SQLite file of the project or the user.

    Raises ValueError for a URL of no known kind, `StoreError` for a store that cannot be used.
    """
    url = default_url() if url is None else url
    if ":" not in url:
        known = "memory:, sqlite:///path or redis://host"
        raise ValueError(f"store is {url!r}: it must be a URL such as {known}")
    scheme = url.split(":", 1)[0]
    if url == "memory:":
        return MemoryStore(clock=clock, keep_events=keep_events)
    if scheme == "sqlite":
        return _sqlite(_path(url), clock, keep_events)
    if url.startswith(REDIS_URLS):
        return _redis(url, clock, keep_events, idle_s)
    # Only the scheme is shown: the rest may hold a password.
    allowed = ", ".join(STORE_URLS)
    raise ValueError(f"store is '{scheme}:…': it must begin with one of {allowed}")


def reopen(url: str, operator_digest: str | None) -> Resilient:
    """The store of a breaker that was pickled in another process, once per process."""
    known = _reopened.get((url, operator_digest))
    if known is None:
        operator = OperatorLock(operator_digest)
        known = Resilient(open_store(url), url=url, operator=operator)
        _reopened[url, operator_digest] = known
    return known


def _path(url: str) -> str:
    if not url.startswith("sqlite:///") or len(url) == len("sqlite:///"):
        raise ValueError(
            f"store is {url!r}: it must be sqlite:///relative/path or sqlite:////absolute/path"
        )
    return os.path.expanduser(url.removeprefix("sqlite:///"))


def _sqlite(path: str, clock: Clock | None, keep_events: int) -> Store:
    keep_out_of_git(os.path.dirname(os.path.abspath(path)))
    from switchgear.stores.sqlite import SqliteStore  # noqa: PLC0415  a store imports its own needs

    return SqliteStore(path, clock=clock, keep_events=keep_events)


def _redis(url: str, clock: Clock | None, keep_events: int, idle_s: float) -> Store:
    from switchgear.stores.redis import RedisStore  # noqa: PLC0415

    return RedisStore(url, clock=clock, keep_events=keep_events, idle_s=idle_s)
