"""Invalid data in the server: a clear error or a fresh start with an event; nothing is lost or blocked."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.server import Server, running
from switchgear._core.errors import StoreTooNew
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import EventKind, Override, Record, Signal
from switchgear._core.wire import WireError
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.redis import RedisStore, envelope

POLICY = Policy([ConsecutiveFailures(3)])
FAILED = Record(Signal(ok=False, error="529"))
KEY = "{switchgear}:c:api"

a_number = st.one_of(st.integers(), st.floats(), st.just(10**400))
anything = st.recursive(
    st.none() | st.booleans() | a_number | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def an_event() -> dict[str, Any]:
    event = step(POLICY, POLICY.start("api", 1.0), Override("ann", "why", reset=True), 1.0).events[
        0
    ]
    value: dict[str, Any] = json.loads(envelope.seal_event(event))
    return value


def sound() -> dict[str, Any]:
    circuit = POLICY.start("api", 1.0)._replace(version=3)
    _, raw = envelope.seal("3-a-1", circuit, POLICY, envelope.PolicyTexts())
    value: dict[str, Any] = json.loads(raw)
    return value


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A stored circuit or event with one of its values replaced."""
    value = draw(st.sampled_from([sound(), an_event()]))
    place: Any = value
    while True:
        key = draw(
            st.sampled_from(sorted(place) if isinstance(place, dict) else [*range(len(place))])
        )
        if not isinstance(place[key], dict | list) or not place[key] or draw(st.booleans()):
            break
        place = place[key]
    place[key] = draw(anything)
    return json.dumps(value, separators=(",", ":")).encode()


rubbish = (
    st.binary(max_size=60) | damaged() | st.builds(lambda data: json.dumps(data).encode(), anything)
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@given(raw=rubbish)
def test_any_stored_state_is_read_or_set_aside_with_an_event(server: Server, raw: bytes) -> None:
    server.say("FLUSHALL")
    store = RedisStore(server.url, timeout_s=60.0)
    client = store._clients.blocking()
    client.set(KEY, raw)
    try:
        done = store.apply("api", POLICY, FAILED, store.now_s())
    except StoreTooNew:
        assert client.get(KEY) == raw, "left alone"
    else:
        if done.events and done.events[0].kind is EventKind.STATE_UNREADABLE:
            (kept,) = client.keys("{switchgear}:unreadable:api:*")
            assert client.get(kept) == raw
        assert store.apply("api", POLICY, FAILED, store.now_s()).circuit.totals.failed >= 1
        assert store.get("api") is not None
    store.close()


@given(entries=st.lists(rubbish, min_size=1, max_size=5, unique=True))
def test_any_garbage_in_the_queue_is_skipped(server: Server, entries: list[bytes]) -> None:
    server.say("FLUSHALL")
    store = RedisStore(server.url, timeout_s=60.0)
    store.apply("api", POLICY, FAILED, store.now_s())
    store._clients.blocking().rpush("{switchgear}:inbox:api", *entries)
    assert store.apply("api", POLICY, FAILED, store.now_s()).circuit.totals.failed >= 2
    assert server.say("LLEN", "{switchgear}:inbox:api").startswith(":0")
    store.close()


@given(raw=rubbish)
def test_reading_garbage_raises_only_documented_errors(raw: bytes) -> None:
    for read in (
        envelope.unseal,
        envelope.unseal_mail,
        envelope.unseal_answer,
        envelope.unseal_event,
    ):
        with suppress(WireError):
            read(raw)
