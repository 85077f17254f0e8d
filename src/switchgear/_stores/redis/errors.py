"""What goes wrong with a server, in our words: which error it is, and what to do about it."""

import re

from switchgear._core.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

COMMANDS = (
    "EVAL", "EVALSHA", "GET", "SET", "DEL", "RENAME", "PEXPIRE", "MGET", "SCAN", "TIME",
    "LRANGE", "LINDEX", "LPOP", "BLPOP", "LREM", "LTRIM", "RPUSH", "XADD", "XLEN", "XRANGE",
    "XREVRANGE", "XTRIM", "PUBLISH", "SUBSCRIBE", "PING", "INFO",
)  # fmt: skip
"""What a user of the server must be allowed; the rules hold inside of scripts too."""
CLUSTER_COMMANDS = ("CLUSTER|SLOTS", "COMMAND")
"""And in a Cluster."""

BY_WORD: tuple[tuple[tuple[str, ...], type[StoreError], str, str], ...] = (
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
        "look into the server's log",
    ),
    (
        ("WRONGTYPE",),
        StoreCorrupt,
        "a key of ours holds something else",
        "remove it, or choose another namespace",
    ),
    (
        ("CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "not covered"),
        StoreUnavailable,
        "the Cluster has no node for our keys now",
        "look at CLUSTER INFO, and try again",
    ),
    (
        ("Cluster mode is not enabled", "cluster support disabled"),
        StoreUnavailable,
        "the server is no Cluster",
        "use a URL that begins with redis:// or rediss://",
    ),
    (
        ("MOVED", "ASK"),
        StoreUnavailable,
        "the server is a node of a Cluster and keeps sending us on",
        "use a URL that begins with redis+cluster:// or rediss+cluster://",
    ),
    (
        ("BUSY",),
        StoreUnavailable,
        "the server is busy with somebody's script",
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
"""The word by which the server began, which the redis package takes off."""


def store_error(
    label: str, error: BaseException, timeout_s: float, secret: str | None
) -> StoreError:
    """What an error of the client or the server is to us."""
    import redis.exceptions as of_redis  # noqa: PLC0415  only who uses Redis loads it

    text = str(error) or type(error).__name__
    if secret:
        text = text.replace(secret, "***")
    for words, kind, why, what_to_do in BY_WORD:
        if _says(error, text, words):
            return kind(label, why, what_to_do)
    if isinstance(error, of_redis.TimeoutError | TimeoutError):
        return StoreUnavailable(
            label, f"no answer within {timeout_s:g} s", "check that it runs and can be reached"
        )
    if isinstance(error, of_redis.ConnectionError | of_redis.RedisClusterException | OSError):
        return StoreUnavailable(label, text, "check that it runs and that the URL is right")
    return StoreError(label, text, "look into the server's log")


def is_known(error: BaseException) -> bool:
    """Whether the error says what is wrong with the server, so that asking again does not help."""
    return any(_says(error, str(error), words) for words, *_ in BY_WORD)


def _says(error: BaseException, text: str, words: tuple[str, ...]) -> bool:
    said = [WORDS.get(kind.__name__, "") for kind in type(error).__mro__]
    return any(word in said or re.search(rf"\b{word}\b", text) for word in words)
