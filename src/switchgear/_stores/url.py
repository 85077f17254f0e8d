"""Opens the store of a URL, and finds the path of the default store."""

import os
from typing import TYPE_CHECKING

from switchgear._stores.base import IDLE_S, KEEP_EVENTS, Store
from switchgear._system.clock import Clock
from switchgear._text.fingerprint import digest

if TYPE_CHECKING:
    from weakref import ref

    from switchgear._stores.fallback import Resilient

# Stores are imported when they are opened: hooks use this module for its paths.
# ruff: noqa: PLC0415

REDIS = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
    "redis+cluster": "redis",
    "rediss+cluster": "rediss",
    "valkey+cluster": "redis",
    "valkeys+cluster": "rediss",
}
"""The URL schemes of servers, and the corresponding scheme of the redis package."""

REDIS_URLS = tuple(f"{scheme}://" for scheme in REDIS)
SQLITE = "sqlite:///"
STORE_URLS = ("memory:", SQLITE, *REDIS_URLS)


FOLDER = ".switchgear"
PROJECT_MARKS = (FOLDER, "switchgear.yaml", "switchgear.yml", "switchgear.toml", ".git")


def default_file(start: str | None = None) -> str:
    """`.switchgear/state.db` of the project around `start` (default: the working directory).

    A project is the nearest folder above that has a `.switchgear` folder, a configuration or a
    `.git`. Outside any project each folder has its own file in the user's state folder (XDG),
    `switchgear/folders/<name>-<key>/state.db`; the home folder has `switchgear/state.db` there.
    """
    first = folder = os.path.abspath(start or os.getcwd())
    home = os.path.expanduser("~")
    while folder != home:
        if any(os.path.exists(os.path.join(folder, mark)) for mark in PROJECT_MARKS):
            return os.path.join(folder, FOLDER, "state.db")
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    from switchgear._system.files import state_folder

    if first == home:
        return state_folder("state.db")
    name = "".join(sign for sign in os.path.basename(first) if sign.isalnum() or sign in "_-")
    unique_name = f"{name[:40] or 'folder'}-{digest(os.path.realpath(first))}"
    return state_folder("folders", unique_name, "state.db")


def sqlite_file(url: str) -> str | None:
    """The absolute path of the SQLite file of a URL; `None`: the URL is that of another store."""
    if not url.startswith(SQLITE):
        return None
    return os.path.abspath(os.path.expanduser(url.removeprefix(SQLITE)))


def default_url() -> str:
    """The URL of the default store, with an absolute path."""
    return f"sqlite:///{default_file()}"


def keep_out_of_git(folder: str) -> None:
    """Create the state folder with a `.gitignore` that keeps it out of version control."""
    if os.path.basename(folder) != FOLDER or os.path.exists(folder):
        return
    try:
        os.makedirs(folder, mode=0o700)
        with open(os.path.join(folder, ".gitignore"), "w", encoding="utf-8") as file:
            file.write("*\n")
    except OSError:
        return  # opening the store reports the reason in a better message


_reopened: "dict[tuple[str, str | None], ref[Resilient]]" = {}


def open_store(
    url: str | None = None,
    *,
    clock: Clock | None = None,
    keep_events: int = KEEP_EVENTS,
    idle_s: float = IDLE_S,
) -> Store:
    """The store of a URL; without a URL, the SQLite file of the project (`default_file()`).

    `clock` returns seconds since the epoch, for tests. `keep_events` (10,000) is the number of events
    to keep, `idle_s` (30 days) the seconds after which Redis drops an unused circuit. Raises ValueError
    for an unknown kind of URL, `StoreError` for a store that cannot be used.

    >>> open_store("memory:").label
    'memory:'
    """
    url = default_url() if url is None else url
    if ":" not in url:
        known = f"memory:, sqlite:///{url or 'path'} or redis://host"
        raise ValueError(f"store is {url!r}: it must be a URL such as {known}")
    scheme = url.split(":", 1)[0]
    if url in {"memory:", "memory://"}:
        from switchgear._stores.memory import MemoryStore

        return MemoryStore(clock=clock, keep_events=keep_events)
    if scheme == "sqlite":
        return _sqlite(_path(url), clock, keep_events)
    if url.startswith(REDIS_URLS):
        return _redis(url, clock, keep_events, idle_s)
    # Only the scheme is shown: the rest may hold a password.
    allowed = ", ".join(STORE_URLS)
    raise ValueError(f"store is '{scheme}:…': it must begin with one of {allowed}")


def reopen(url: str, operator_digest: str | None) -> "Resilient":
    """The store of a breaker that was pickled in another process; the same object for each URL."""
    from weakref import ref

    from switchgear._stores.fallback import Resilient
    from switchgear._stores.operator import OperatorLock

    found = _reopened.get((url, operator_digest))
    known = None if found is None else found()
    if known is None:
        operator = OperatorLock(operator_digest)
        known = Resilient(open_store(url), url=url, operator=operator)
        _reopened[url, operator_digest] = ref(known)
    return known


def _path(url: str) -> str:
    if not url.startswith("sqlite:///") or len(url) == len("sqlite:///"):
        raise ValueError(
            f"store is {url!r}: it must be sqlite:///relative/path or sqlite:////absolute/path"
        )
    return os.path.expanduser(url.removeprefix("sqlite:///"))


def _sqlite(path: str, clock: Clock | None, keep_events: int) -> Store:
    keep_out_of_git(os.path.dirname(os.path.abspath(path)))
    from switchgear._stores.sqlite import SqliteStore

    return SqliteStore(path, clock=clock, keep_events=keep_events)


def _redis(url: str, clock: Clock | None, keep_events: int, idle_s: float) -> Store:
    from switchgear._stores.redis import RedisStore

    return RedisStore(url, clock=clock, keep_events=keep_events, idle_s=idle_s)
