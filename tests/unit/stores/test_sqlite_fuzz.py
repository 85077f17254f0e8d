"""Random bytes where a SQLite store expects its own: a clear error or set aside, nothing lost."""

import json
import random
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear._core.errors import StoreError
from switchgear._core.types import Acquire, EventKind
from switchgear._stores.sqlite import SqliteStore
from unit.sqlite_places import FAILED, NOW_S, OK, POLICY, set_aside, sql

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def used(path: Path) -> list[Any]:
    """Every operation of a store; only store errors are allowed. Returns the events."""
    notes: list[Any] = []
    with closing(SqliteStore(path)) as store:
        for use in (
            lambda: store.get("api"),
            lambda: store.apply("api", POLICY, Acquire(), NOW_S),
            lambda: store.apply("api", POLICY, FAILED, NOW_S),
            lambda: list(store.find()),
            store.events,
            store.facts,
            lambda: store.apply("api", POLICY, OK, NOW_S),
        ):
            try:
                notes.append(use())
            except StoreError as error:
                notes.append(error)
    assert all(note.what_to_do for note in notes if isinstance(note, StoreError))
    return notes


@given(content=st.binary(max_size=3000), headed=st.booleans())
def test_random_bytes_as_the_file_are_set_aside(content: bytes, headed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        path.write_bytes(b"SQLite format 3\0" * headed + content)
        before = path.read_bytes()
        notes = used(path)
        asides = set_aside(path)
        assert (asides and asides[0].read_bytes() == before) or path.read_bytes() == before
        if asides:
            assert not isinstance(notes[-1], StoreError)


@pytest.mark.parametrize("seed", range(25))
def test_a_file_with_random_damage_never_raises_anything_else(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "state.db"
    with closing(SqliteStore(path)) as store:
        for number in range(60):
            store.apply(f"loop/{number % 20}", POLICY, FAILED, NOW_S)
        store.apply("api", POLICY, FAILED, NOW_S)
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 10, 1000))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    if seed % 5 == 0:
        del data[chance.randrange(len(data)) :]
    path.write_bytes(data)
    used(path)
    assert path.read_bytes() or set_aside(path)


VALID = json.loads(
    '{"schema":1,"key":"api","memories":{"consecutive_failures":2},"phase":"closed",'
    '"mode":"auto","order":null,"generation":1,"version":2,"event_seq":0,"seen_s":1.0,"heat":0.5,'
    '"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,'
    '"admit":0.0,"asked":0,"reason":""},"probing":{"permits":[],"issued":0,"successes":0},'
    '"failures":[],"totals":{"succeeded":0,"failed":2,"ignored":0,"late":0,"refused":0,'
    '"overruled":0,"cost_micros":0}}'
)


@st.composite
def states(draw: st.DrawFn) -> Any:
    """Anything at all, or a state with one thing in it replaced."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=50) | st.text(max_size=50) | st.integers(0, 10**6))
    name = draw(st.sampled_from(sorted(VALID)))
    return json.dumps({**VALID, name: draw(JSON)})


@given(state=states(), column=st.sampled_from(("state", "policy")))
def test_random_values_in_a_row_are_kept_or_read_and_never_lost(state: Any, column: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        with closing(SqliteStore(path)) as store:
            store.apply("api", POLICY, FAILED, NOW_S)
        sql(path, f"UPDATE circuits SET {column} = ?", _storable(state))
        ((before,),) = sql(path, f"SELECT CAST({column} AS BLOB) FROM circuits")
        used(path)
        kept = [raw for (raw,) in sql(path, f"SELECT {column} FROM unreadable")]
        with closing(SqliteStore(path)) as store:
            said = [entry.event.kind for entry in store.events()]
        if column == "state" and EventKind.STATE_UNREADABLE in said:
            assert before in kept
        if column == "policy" and before != _policy_text(path):
            assert before in kept or _is_a_policy(before)


def _storable(value: Any) -> Any:
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def _policy_text(path: Path) -> Any:
    return sql(path, "SELECT CAST(policy AS BLOB) FROM circuits")[0][0]


def _is_a_policy(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except ValueError:
        return False
