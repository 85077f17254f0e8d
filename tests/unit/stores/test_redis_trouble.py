"""Each problem with a server has its own error, with what to do."""

import pytest
from redis import exceptions

from switchgear._core.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from switchgear._stores.redis.clients import store_error

IN_A_SCRIPT = "Error running script (call to f_1): @user_script:9: @user_script: 9: "


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (exceptions.ConnectionError("Error 111 connecting to h:1."), StoreUnavailable, "h:1"),
        (exceptions.TimeoutError("Timeout reading from socket"), StoreUnavailable, "within 2 s"),
        (TimeoutError(), StoreUnavailable, "within 2 s"),
        (exceptions.AuthenticationError("invalid"), StoreUnavailable, "password"),
        (exceptions.ResponseError("WRONGPASS invalid"), StoreUnavailable, "password"),
        (exceptions.NoPermissionError("this user has no permissions"), StoreUnavailable, "access rules"),
        (exceptions.BusyLoadingError("Redis is loading"), StoreUnavailable, "loading"),
        (exceptions.OutOfMemoryError("command not allowed"), StoreFull, "maxmemory"),
        (exceptions.ResponseError(IN_A_SCRIPT + "OOM command not allowed"), StoreFull, "maxmemory"),
        (exceptions.ReadOnlyError("You can't write"), StoreReadOnly, "primary"),
        (exceptions.ResponseError(IN_A_SCRIPT + "READONLY You can't"), StoreReadOnly, "primary"),
        (exceptions.ResponseError("MISCONF Redis is configured to save"), StoreReadOnly, "save"),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas"), StoreReadOnly, "replicate"),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), StoreCorrupt, "namespace"),
        (exceptions.ClusterDownError("The cluster is down"), StoreUnavailable, "CLUSTER INFO"),
        (exceptions.SlotNotCoveredError("Slot 7 not covered"), StoreUnavailable, "CLUSTER INFO"),
        (exceptions.MovedError("7 127.0.0.1:7001"), StoreUnavailable, "redis+cluster://"),
        (exceptions.RedisClusterException("Cluster mode is not enabled"), StoreUnavailable, "redis://"),
        (exceptions.ResponseError("BUSY Redis is busy running a script"), StoreUnavailable, "SCRIPT KILL"),
        (exceptions.ResponseError("ERR something new"), StoreError, "something new"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_an_error_contains_its_cause_and_a_solution(
    error: Exception, kind: type[StoreError], words: str
) -> None:
    told = store_error("redis://h", error, 2.0, None)
    assert type(told) is kind
    assert words in str(told)


def test_a_password_in_the_text_of_an_error_is_not_passed_on() -> None:
    error = exceptions.ConnectionError("cannot reach redis://:s3cret@h")
    assert "s3cret" not in str(store_error("redis://h", error, 1.0, "s3cret"))
