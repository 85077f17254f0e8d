"""Stored circuits and events: old files load forever, and what is unreadable is an error."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import write
from golden.scenarios import ALL_DETECTORS, SCENARIOS, lived
from switchgear._core import wire
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    DatedRecord,
    Override,
    Permit,
    Phase,
    Recent,
    Record,
    Signal,
)
from switchgear._core.wire import (
    WireError,
    detector_names,
    dump_circuit,
    dump_event,
    load_circuit,
    load_event,
)
from switchgear._detectors import ConsecutiveFailures, FailureRate, SlowCalls

GOLDEN = Path(write.__file__).parent
CIRCUITS = sorted(GOLDEN.glob("circuit-v*.json"))
EVENTS = sorted(GOLDEN.glob("event-v*.json"))


def named(path: Path) -> str:
    return path.stem


def policy_of(path: Path) -> Policy:
    return SCENARIOS[path.stem.split("-", 2)[2]]().policy


def stored(name: str = "open-all-detectors") -> dict[str, Any]:
    data: dict[str, Any] = json.loads((GOLDEN / f"circuit-v1-{name}.json").read_text())
    return data


# Golden files


def test_every_scenario_of_this_schema_has_its_golden_files() -> None:
    missing = [name for name in write.files() if not (GOLDEN / name).exists()]
    assert not missing, "run `python tests/golden/write.py`"


def test_there_is_a_golden_circuit_in_every_phase() -> None:
    assert {json.loads(path.read_text())["phase"] for path in CIRCUITS} == set(Phase)


@pytest.mark.parametrize("path", CIRCUITS, ids=named)
def test_a_golden_circuit_loads_to_the_same_values(path: Path) -> None:
    policy = policy_of(path)
    circuit = load_circuit(policy, json.loads(path.read_text()))
    assert write.value(policy, circuit) == path.with_suffix(".txt").read_text()


@pytest.mark.parametrize("path", EVENTS, ids=named)
def test_golden_events_load_to_the_same_values(path: Path) -> None:
    events = [load_event(data) for data in json.loads(path.read_text())]
    assert "".join(f"{event!r}\n" for event in events) == path.with_suffix(".txt").read_text()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob(f"circuit-v{wire.SCHEMA}-*.json")), ids=named)
def test_a_golden_circuit_is_dumped_to_the_same_bytes(path: Path) -> None:
    policy = policy_of(path)
    circuit = load_circuit(policy, json.loads(path.read_text()))
    assert write.as_text(dump_circuit(policy, circuit)) == path.read_text()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob(f"event-v{wire.SCHEMA}-*.json")), ids=named)
def test_golden_events_are_dumped_to_the_same_bytes(path: Path) -> None:
    events = [load_event(data) for data in json.loads(path.read_text())]
    assert write.as_text([*map(dump_event, events)]) == path.read_text()


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_machine_still_produces_the_golden_circuit(name: str) -> None:
    policy, circuit, events = lived(name)
    assert write.as_text(dump_circuit(policy, circuit)) == write.as_text(stored(name))
    assert not events or (GOLDEN / f"event-v{wire.SCHEMA}-{name}.json").exists()


# Schema numbers


@pytest.mark.parametrize(
    "load", [lambda data: load_circuit(Policy(ALL_DETECTORS), data), load_event]
)
def test_data_of_a_newer_switchgear_is_refused_as_such(load: Any) -> None:
    with pytest.raises(WireError, match="newer switchgear: schema 2, and this one reads up to 1"):
        load({**stored(), "schema": wire.SCHEMA + 1})


@pytest.mark.parametrize("schema", [None, 0, -1, True, "1", 1.0])
def test_data_without_a_schema_number_is_refused(schema: Any) -> None:
    with pytest.raises(WireError, match="no schema number"):
        load_circuit(Policy(ALL_DETECTORS), {**stored(), "schema": schema})


@pytest.mark.parametrize("data", [None, [], "open", 3, True])
def test_data_that_is_not_an_object_is_refused(data: Any) -> None:
    with pytest.raises(WireError, match="not a JSON object"):
        load_event(data)


def test_an_old_schema_is_upgraded_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, circuit, _ = lived("open-cooldown")
    old = dump_circuit(policy, circuit)
    old["named"] = old.pop("key")
    monkeypatch.setattr(wire, "SCHEMA", 3)
    monkeypatch.setitem(wire.UPGRADES, 1, lambda data: {**data, "name": data["named"]})
    monkeypatch.setitem(wire.UPGRADES, 2, lambda data: {**data, "key": data["name"]})
    assert load_circuit(policy, old) == circuit


# Policies that have changed


def test_detectors_of_one_kind_are_distinguished_by_number() -> None:
    policy = Policy([ConsecutiveFailures(2), FailureRate(), *[ConsecutiveFailures(9)] * 2])
    names = [f"consecutive_failures{suffix}" for suffix in ("", "#2", "#3")]
    assert detector_names(policy) == [names[0], "failure_rate", *names[1:]]


def test_a_new_detector_starts_empty_and_the_data_of_an_old_one_is_dropped() -> None:
    policy = Policy([SlowCalls(10.0), ConsecutiveFailures(7)])
    circuit = load_circuit(policy, stored("closed-two-of-a-kind"))
    assert circuit.memories == policy.fresh_memories()
    known = load_circuit(policy, stored("open-all-detectors"))
    assert known.memories[1] == 3
    assert known.memories[0].total == 20


# What cannot be read


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value inside."""
    if path:
        yield path
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from places(value, (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    data = json.loads(json.dumps(data))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return data


MISSING = object()
JUNK = [MISSING, None, True, False, -1, 1.5, 10**400, float("nan"), float("inf"), "", "x", [], {}]
JUNK += [[1], {"a": 1}, "failure_rate", [None, None], ["a", "b", "c", "d"], "1_0", -(10**5000)]
WHOLE = [("generation",), ("version",), ("event_seq",), ("outage", "asked"), ("totals", "late")]
NUMBERS = [("seen_s",), ("heat",), ("outage", "opened_at_s"), ("outage", "cooldown_s")]
OBJECTS = [("memories",), ("outage",), ("probing",), ("totals",)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_changed_value_is_refused_or_loads_to_a_circuit_that_works(name: str) -> None:
    policy, data = SCENARIOS[name]().policy, stored(name)
    for path in places(data):
        for value in JUNK:
            try:
                circuit = load_circuit(policy, changed(data, path, value))
            except WireError:
                continue
            again = json.loads(json.dumps(dump_circuit(policy, circuit), allow_nan=False))
            assert load_circuit(policy, again) == circuit
            for message in (Acquire(), Record(Signal(ok=False, seconds=99.0))):
                step(policy, circuit, message, 2000.0)


def test_hung_probes_are_stored_and_data_without_them_loads() -> None:
    policy, data = SCENARIOS["half-open-one-hung"]().policy, stored("half-open-one-hung")
    assert data["probing"]["expired"] == [1]
    assert load_circuit(policy, data).probing.expired == (1,)
    without = changed(data, ("probing", "expired"), MISSING)
    assert load_circuit(policy, without).probing.expired == ()
    with pytest.raises(WireError, match="expired is 'x': it must be a list"):
        load_circuit(policy, changed(data, ("probing", "expired"), "x"))


def test_recent_evidence_is_stored_in_full_and_in_short() -> None:
    policy = Policy([ConsecutiveFailures(3)])
    bad = Record(Signal(ok=False, error="no"))
    permit = Record(Signal(ok=False, seconds=2.0), Permit(0, 1, 9.0))
    records = (
        DatedRecord(1.0, bad),
        DatedRecord(2.0, bad),
        DatedRecord(3.0, permit),
        DatedRecord(4.0, permit),
    )
    base = policy.start("k", 0.0)
    circuit = step(policy, base, bad, 1.0).circuit
    circuit = circuit._replace(recent=Recent(1, base, records, 1, (("web", 3.0),), circuit))
    long, short = (dump_circuit(policy, circuit, short=short) for short in (False, True))
    assert dump_circuit(policy, circuit) == long
    assert long["recent"]["tells"] == [
        [1.0, [*bad.signal], None],
        [2.0, [*bad.signal], None],
        [3.0, [*permit.signal], [0, 1, 9.0]],
        [4.0, [*permit.signal], [0, 1, 9.0]],
    ]
    assert short["recent"]["tells"] == [
        [1.0, [False, None, "no"], None],
        [2.0],
        [3.0, [False, 2.0, None], [0, 1, 9.0]],
        [4.0],
    ]
    assert load_circuit(policy, long) == load_circuit(policy, short) == circuit


@pytest.mark.parametrize(
    "damage",
    [
        {"tells": [[1.0]]},  # "the same signal again", and there is none before
        {"tells": [[]]},
        {"tells": [[1.0, [True], None, 2]]},
        {"tells": 5},
        {"final": -1},
        {"base": {"phase": "ajar"}},
        {"reports": [["web"]]},
    ],
    ids=repr,
)
def test_recent_evidence_that_is_damaged_is_dropped(damage: dict[str, Any]) -> None:
    recent = {"version": 1, "base": {}, "tells": [[1.0, [True], None]], "final": 0, "reports": []}
    policy, data = Policy(ALL_DETECTORS), stored()
    whole = load_circuit(policy, {**data, "recent": recent}).recent
    assert whole is not None
    assert whole.tells == (DatedRecord(1.0, Record(Signal(ok=True))),)
    assert load_circuit(policy, {**data, "recent": {**recent, **damage}}).recent is None


@pytest.mark.parametrize("path", EVENTS, ids=named)
def test_a_changed_event_is_refused_or_loads_to_an_event(path: Path) -> None:
    for data in json.loads(path.read_text()):
        for place in places(data):
            for value in JUNK:
                try:
                    event = load_event(changed(data, place, value))
                except WireError:
                    continue
                assert load_event(json.loads(json.dumps(dump_event(event)))) == event


@pytest.mark.parametrize("path", WHOLE, ids=repr)
@pytest.mark.parametrize("value", [None, True, -1, 1.0, "1", [1], 2**63], ids=repr)
def test_a_count_must_be_a_count(path: tuple[str, ...], value: Any) -> None:
    rule = r"a count is .*: it must be a whole number of at least 0, and below 2\*\*63"
    with pytest.raises(WireError, match=rule):
        load_circuit(Policy(ALL_DETECTORS), changed(stored(), path, value))
    for count in (0, 1, 2**53, 2**63 - 1):
        assert load_circuit(Policy(ALL_DETECTORS), changed(stored(), path, count))


@pytest.mark.parametrize("path", NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "value",
    [None, True, "1", [1.0], float("nan"), float("inf"), float("-inf"), 10**400, -(10**400)],
    ids=str,
)
def test_a_number_must_be_a_finite_number(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(WireError, match="must be a finite number"):
        load_circuit(Policy(ALL_DETECTORS), changed(stored(), path, value))
    assert load_circuit(Policy(ALL_DETECTORS), changed(stored(), path, 7)).seen_s >= 7


@pytest.mark.parametrize("path", OBJECTS, ids=repr)
@pytest.mark.parametrize("value", [None, True, 1, "failure_rate", [], ["a"]], ids=repr)
def test_an_object_must_be_an_object(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(WireError):
        load_circuit(Policy(ALL_DETECTORS), changed(stored(), path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("key",), 3),
        (("phase",), "ajar"),
        (("mode",), None),
        (("order",), []),
        (("order",), ["ada", "why", None, 1]),
        (("order",), ["ada", "why", "ajar", True]),
        (("order",), ["ada", 3, None, True]),
        (("order",), {"ada": 1, "why": 2, "auto": 3, "x": 4}),
        (("failures",), {}),
        (("failures",), [[1.0]]),
        (("failures",), [[1.0, 2]]),
        (("failures",), ["ab"]),
        (("outage", "admit"), 1.0),
        (("outage", "admit"), -0.1),
        (("outage", "reason"), None),
        (("outage", "retry_at_s"), "soon"),
        (("probing", "permits"), {}),
        (("probing", "permits"), [[1, 1]]),
        (("probing", "permits"), [[1, 1, None]]),
        (("totals", "unheard"), 1),
        (("memories", "consecutive_failures"), "3"),
    ],
    ids=repr,
)
def test_each_field_of_a_circuit_is_checked(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(WireError):
        load_circuit(Policy(ALL_DETECTORS), changed(stored(), path, value))


@pytest.mark.parametrize("field", ["circuit", "reason", "by", "why", "kind", "before", "after"])
def test_each_text_of_an_event_is_checked(field: str) -> None:
    event = json.loads(EVENTS[0].read_text())[0]
    with pytest.raises(WireError):
        load_event({**event, field: 3})


PRIMITIVES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from([*stored()]), inner, max_size=6)
    ),
)


@given(PRIMITIVES, st.integers(0, 10**6))
def test_random_values_raise_only_wire_errors(junk: Any, seed: int) -> None:
    random = Random(seed)
    data = {**stored(), "schema": 1}
    for key in random.sample([*data], 3):
        data[key] = junk.get(key, junk) if isinstance(junk, dict) else junk
    for load in (lambda value: load_circuit(Policy(ALL_DETECTORS), value), load_event):
        for value in (junk, data):
            with suppress(WireError):
                load(value)


def test_messages_keep_the_kinds_under_which_they_are_queued_on_a_server() -> None:
    messages = (Acquire(), Record(Signal(ok=True)), Override("ana", "a drill"))
    assert [wire.dump_message(message)[0] for message in messages] == ["ask", "tell", "order"]
    assert tuple(wire.load_message(wire.dump_message(message)) for message in messages) == messages
