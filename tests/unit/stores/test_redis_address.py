"""URLs of Redis stores: their meaning, and the parts that are shown."""

import subprocess
import sys

import pytest

from switchgear._core.errors import StoreError
from switchgear._stores.redis import RedisStore
from switchgear._stores.redis.clients import parsed


@pytest.mark.parametrize(
    ("url", "label", "for_redis", "cluster"),
    [
        ("redis://h", "redis://h", "redis://h", False),
        ("redis://:pw@h:7000/2", "redis://h:7000/2", "redis://:pw@h:7000/2", False),
        ("rediss://u:pw@h/0?ssl_ca_certs=/ca", "rediss://h/0", "rediss://u:pw@h/0?ssl_ca_certs=/ca", False),
        ("valkey://h", "valkey://h", "redis://h", False),
        ("valkeys://:pw@h?db=1", "valkeys://h", "rediss://:pw@h?db=1", False),
        ("redis+cluster://h:1", "redis+cluster://h:1", "redis://h:1", True),
        ("rediss+cluster://:pw@h:1,i:2", "rediss+cluster://h:1,i:2", "rediss://:pw@h:1", True),
        ("unix:///run/s?password=pw", "unix:///run/s", "unix:///run/s?password=pw", False),
        ("redis://[::1]:7000/0", "redis://[::1]:7000/0", "redis://[::1]:7000/0", False),
    ],
)  # fmt: skip
def test_a_url_determines_host_and_options(
    url: str, label: str, for_redis: str, cluster: bool
) -> None:
    address = parsed(url)
    assert (address.label, address.url, address.cluster) == (label, for_redis, cluster)
    assert address.secret == ("pw" if "pw" in url else None)
    assert "pw" not in repr(address)
    assert "pw" not in repr(RedisStore(url))


def test_a_cluster_may_be_named_by_several_of_its_nodes() -> None:
    assert parsed("redis+cluster://a:1,b:2,c").more_nodes == (("b", 2), ("c", 6379))
    with pytest.raises(ValueError, match="several hosts"):
        parsed("redis://a:1,b:2")


@pytest.mark.parametrize("url", ["redis://u:s3cret@h:port", "http://u:s3cret@h", "redis:s3cret@h"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        RedisStore(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("namespace", ["", "a{b}", "a b", "a*"])
def test_a_namespace_that_would_break_the_keys_is_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        RedisStore("redis://h", namespace=namespace)


@pytest.mark.parametrize(
    ("url", "label", "for_redis"),
    [
        ("redis://h?namespace=team-a", "redis://h", "redis://h"),
        ("redis://:pw@h/2?namespace=team-a&timeout=3", "redis://h/2", "redis://:pw@h/2?timeout=3"),
        ("redis+cluster://h:1,i:2?db=0&namespace=team-a", "redis+cluster://h:1,i:2", "redis://h:1?db=0"),
        ("unix:///run/s?namespace=team-a&password=pw", "unix:///run/s", "unix:///run/s?password=pw"),
    ],
)  # fmt: skip
def test_a_url_may_name_the_namespace(url: str, label: str, for_redis: str) -> None:
    address = parsed(url)
    assert (address.namespace, address.url) == ("team-a", for_redis)
    assert address.label == f"{label}?namespace=team-a"
    assert address.secret == ("pw" if "pw" in url else None)
    assert RedisStore(url)._names.root == "{team-a}:"
    assert RedisStore(url, namespace="b")._names.root == "{b}:"


@pytest.mark.parametrize("namespace", ["", "a%7Bb%7D", "a+b", "a*"])
def test_a_namespace_in_a_url_is_checked_as_well(namespace: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        RedisStore(f"redis://h?namespace={namespace}")


def test_without_the_redis_package_the_error_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['redis'] = None\n"
        "from switchgear._stores.redis import RedisStore\n"
        "from switchgear.errors import StoreUnavailable\n"
        "try: RedisStore('redis://:s3cret@h')\n"
        "except StoreUnavailable as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "pip install 'switchgear[redis]'" in done.stdout
    assert "s3cret" not in done.stdout


def test_importing_switchgear_does_not_load_redis() -> None:
    script = "import sys, switchgear, switchgear._stores.url; print('redis' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_nothing_is_connected_before_it_is_needed() -> None:
    store = RedisStore("redis://127.0.0.1:1")
    with pytest.raises(StoreError, match=r"redis://127\.0\.0\.1:1"):
        store.get("api")
    store.close()
    store.close()
