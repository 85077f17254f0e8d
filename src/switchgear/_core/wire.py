"""Circuits and events as JSON values, with a schema number.

Every later version must be able to read stored data (golden files verify this). Unreadable data is
an error: a state that cannot be read never counts as "closed".
"""

from collections.abc import Callable
from typing import Any

from switchgear._core import values
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    AgentStep,
    Circuit,
    DatedRecord,
    Event,
    EventKind,
    Failure,
    Isolated,
    Message,
    Mode,
    OpenState,
    Override,
    Permit,
    Phase,
    Probing,
    Recent,
    Record,
    ReportSource,
    Signal,
    Totals,
)

SCHEMA = 1

UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each old schema, the function that converts its data to the next one."""


RESTORED_FIELDS = Circuit._fields[: Circuit._fields.index("recent")]
"""The fields of the earlier states of a circuit that are stored with it."""
_SIGNAL_DEFAULTS = Signal()
_PLAIN = 2**53
"""Numbers below this are valid without further checks."""
_SHORT_SIGNALS = (3, 6, 11)
"""Number of stored fields of a signal if all later fields have their defaults."""


class WireError(ValueError):
    """Stored data that is not a valid circuit or event: the data, and the error."""


def dump_circuit(policy: Policy, circuit: Circuit, *, short: bool = False) -> dict[str, Any]:
    """A circuit as JSON values; memories are stored by the names of detectors, so that they survive a changed policy.

    `short`: repeated signals and earlier states are stored as differences.
    """
    pairs = zip(Circuit._fields, circuit, strict=True)
    data = {name: dump_field(policy, name, value) for name, value in pairs}
    if circuit.recent is None:
        del data["recent"]  # most circuits have nothing recent
    else:
        data["recent"] = _dump_recent(policy, data, circuit.recent, short=short)
    if not circuit.isolated:
        del data["isolated"]
    data["schema"] = SCHEMA
    return data


def dump_field(policy: Policy, name: str, value: Any) -> Any:
    """One field of a circuit, except `recent`, as JSON values: most messages change only a few."""
    if name == "memories":
        names = detector_names(policy)
        triples = zip(names, policy.detectors, value, strict=True)
        return {kind: detector.dump(memory) for kind, detector, memory in triples}
    if name == "outage" or name == "totals":  # noqa: PLR1714  quicker than a set
        return value._asdict()
    if name == "probing":
        permits = [*map(list, value.permits)]
        data = {**value._asdict(), "permits": permits, "expired": [*value.expired]}
        if not value.failures:
            del data["failures"]  # only a policy with `of` has any
        return data
    if name == "failures" or name == "isolated":  # noqa: PLR1714
        return [*map(list, value)]
    return _dump_order(value) if name == "order" and value is not None else value


def load_circuit(policy: Policy, data: Any) -> Circuit:
    """The inverse of `dump_circuit`. Raises `WireError`.

    Detectors without data start empty; data of other detectors is dropped.
    """
    try:
        data = _upgrade(data)
        fields = [load(policy, data[name]) for name, load in _LOAD.items()]
        isolated = tuple(
            map(_load_isolated, values.check_list("isolated", data.get("isolated", [])))
        )
        circuit = Circuit._make([*fields, None, isolated])
        recent = data.get("recent")
        if recent is not None:
            circuit = circuit._replace(recent=_load_recent(policy, circuit, recent))
    except WireError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not the state of a circuit: {error!r}") from error
    return circuit


def _dump_recent(
    policy: Policy, now: dict[str, Any], recent: Recent, *, short: bool
) -> dict[str, Any]:
    def earlier(circuit: Circuit | None) -> dict[str, Any] | None:
        if circuit is None:
            return None
        return _difference(policy, now, circuit) if short else dump_circuit(policy, circuit)

    tells, last = [], None
    for dated in recent.tells:
        if not short:
            signal, permit, _ = dated.record
            tells.append([dated.at_s, [*signal], None if permit is None else [*permit]])
        else:
            tells.append([dated.at_s] if dated.record == last else dump_dated(dated))
            last = dated.record
    data = {
        "version": recent.version,
        "base": earlier(recent.base),
        "tells": tells,
        "final": recent.final,
        "reports": [*map(list, recent.reports)],
    }
    if recent.settled is not None:
        data["settled"] = earlier(recent.settled)
    return data


def _difference(policy: Policy, now: dict[str, Any], earlier: Circuit) -> dict[str, Any]:
    """The fields of an earlier state of a circuit that differ from it."""
    pairs = zip(RESTORED_FIELDS, earlier, strict=False)
    data = {name: dump_field(policy, name, value) for name, value in pairs}
    return {name: value for name, value in data.items() if value != now[name]}


def dump_dated(dated: DatedRecord) -> list[Any]:
    """A recent signal as JSON values, without the defaults at the end of its fields."""
    signal, permit, _ = dated.record
    fields = [*signal]
    for size in _SHORT_SIGNALS:
        if signal[size:] == _SIGNAL_DEFAULTS[size:]:
            fields = [*signal[:size]]
            break
    return [dated.at_s, fields, None if permit is None else [*permit]]


def _load_recent(policy: Policy, circuit: Circuit, data: Any) -> Recent | None:
    """The recent evidence; `None` if it cannot be read, because the circuit itself already contains it."""
    try:
        version, final = _count(data["version"]), _count(data["final"])
        reports = tuple((_text(name), _number(at_s)) for name, at_s in data["reports"])
        if data["base"] is None:
            return Recent(version, None, (), 0, reports)
        tells: list[DatedRecord] = []
        for at_s, *rest in data["tells"]:
            if rest:
                signal, permit = rest
                record = Record(_signal(signal), None if permit is None else Permit(*permit))
            else:  # a time alone: the same signal again
                record = tells[-1].record
            tells.append(DatedRecord(_number(at_s), record))
        settled = _earlier(policy, circuit, data["settled"]) if "settled" in data else None
        base = _earlier(policy, circuit, data["base"])
        return Recent(version, base, tuple(tells), final, reports, settled)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _earlier(policy: Policy, circuit: Circuit, data: dict[str, Any]) -> Circuit:
    """An earlier state of a circuit, from the fields that differ."""
    fields = {name: load(policy, data[name]) for name, load in _LOAD.items() if name in data}
    return circuit._replace(**fields)


def dump_event(event: Event) -> dict[str, Any]:
    """An event as JSON values."""
    return {"schema": SCHEMA, **event._asdict()}


def load_event(data: Any) -> Event:
    """The inverse of `dump_event`. Raises `WireError`."""
    try:
        data = _upgrade(data)
        return Event(
            circuit=_text(data["circuit"]),
            seq=_count(data["seq"]),
            at_s=_number(data["at_s"]),
            kind=EventKind(data["kind"]),
            before=Phase(data["before"]),
            after=Phase(data["after"]),
            mode=Mode(data["mode"]),
            generation=_count(data["generation"]),
            reason=_text(data["reason"]),
            by=_text(data["by"]),
            why=_text(data["why"]),
            retry_after_s=_maybe_number(data["retry_after_s"]),
        )
    except WireError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not an event: {error!r}") from error


def detector_names(policy: Policy) -> list[str]:
    """A name for each detector: its kind, numbered where a policy has several of a kind."""
    names = [detector.kind for detector in policy.detectors]
    if len(names) == 1 or len(set(names)) == len(names):
        return names
    names = []
    for detector in policy.detectors:
        same = sum(name.split("#")[0] == detector.kind for name in names)
        names.append(detector.kind if not same else f"{detector.kind}#{same + 1}")
    return names


def _upgrade(stored: Any) -> dict[str, Any]:
    if not isinstance(stored, dict):
        raise WireError(f"not a JSON object but {type(stored).__name__}")
    data: dict[str, Any] = stored
    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise WireError(f"no schema number, but {schema!r}")
    if schema > SCHEMA:
        raise WireError(
            f"written by a newer switchgear: schema {schema}, and this one reads up to {SCHEMA}"
        )
    while schema < SCHEMA:
        data, schema = UPGRADES[schema](data), schema + 1
    return data


def _memories(policy: Policy, data: Any) -> tuple[Any, ...]:
    if not isinstance(data, dict):
        raise WireError(f"memories is {data!r}, not an object")
    return tuple(
        detector.load(data[name]) if name in data else detector.start()
        for name, detector in zip(detector_names(policy), policy.detectors, strict=True)
    )


def _dump_order(order: Override) -> list[Any]:
    # The kind of an override is not part of the state.
    fields = [order.by, order.why, order.mode, order.reset]
    return fields if order.until_s is None else [*fields, order.until_s]


def _order(data: Any) -> Override:
    by, why, mode, reset, *rest = values.check_list("order", data)
    if len(rest) > 1:
        raise WireError(f"order has {len(data)} fields")
    if not isinstance(reset, bool):
        raise WireError(f"reset is {reset!r}, neither true nor false")
    until_s = _number(rest[0]) if rest else None
    return Override(
        _text(by), _text(why), None if mode is None else Mode(mode), reset, until_s=until_s
    )


def _outage(data: dict[str, Any]) -> OpenState:
    return OpenState(
        opened_at_s=_number(data["opened_at_s"]),
        retry_at_s=_maybe_number(data["retry_at_s"]),
        cooldown_s=_number(data["cooldown_s"]),
        failed_probes=_count(data["failed_probes"]),
        admit=values.check_fraction("admit", data["admit"]),
        asked=_count(data["asked"]),
        reason=_text(data["reason"]),
    )


def _probing(data: dict[str, Any]) -> Probing:
    permits = tuple(_permit(permit) for permit in values.check_list("permits", data["permits"]))
    # Absent in data of earlier versions.
    expired = tuple(
        _count(number) for number in values.check_list("expired", data.get("expired", []))
    )
    failures = _count(data.get("failures", 0))
    return Probing(permits, _count(data["issued"]), _count(data["successes"]), expired, failures)


def _permit(data: Any) -> Permit:
    generation, probe, lease_until_s = values.check_list("permit", data, 3)
    return Permit(_count(generation), _count(probe), _number(lease_until_s))


def _failure(data: Any) -> Failure:
    at_s, error = values.check_list("failure", data, 2)
    return Failure(_number(at_s), _maybe_text(error))


def _load_isolated(data: Any) -> Isolated:
    process, reason, since_s, retry_at_s = values.check_list("isolated process", data, 4)
    return Isolated(_text(process), _text(reason), _number(since_s), _number(retry_at_s))


def _failures(data: Any) -> tuple[Failure, ...]:
    return tuple(map(_failure, values.check_list("failures", data)))


def _totals(data: dict[str, Any]) -> Totals:
    return Totals(**{name: _count(value) for name, value in data.items()})


# Most numbers are plain, and each circuit that is loaded has dozens of them: a fast path.


def _count(value: Any) -> int:
    if type(value) is int and 0 <= value < _PLAIN:
        return value
    return values.check_int("a count", value, least=0)


def _number(value: Any) -> float:
    if type(value) is float and -_PLAIN < value < _PLAIN:
        return value
    return values.check_number("a number", value)


def _maybe_number(value: Any) -> float | None:
    return None if value is None else _number(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WireError(f"{value!r} is not a text")
    return value


def _maybe_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def dump_message(message: Message) -> list[Any]:
    if isinstance(message, Record):
        permit = None if message.permit is None else [*message.permit]
        dumped = ["tell", list(message.signal), permit]
        return dumped if message.source is None else [*dumped, list(message.source)]
    return ["ask" if isinstance(message, Acquire) else "order", list(message)]


def load_message(data: Any) -> Message:
    """The inverse of `dump_message`. Raises `WireError`."""
    try:
        kind, fields, *rest = data
        if kind == "ask":
            return Acquire(*fields)
        if kind == "order":
            by, why, mode, reset, event, *rest = fields
            mode = None if mode is None else Mode(mode)
            return Override(by, why, mode, reset, EventKind(event), *rest)
        if kind == "tell":
            permit, *source = rest
            tell = Record(_signal(fields), None if permit is None else Permit(*permit))
            return tell._replace(source=_source(*source)) if source else tell
    except (TypeError, ValueError) as error:
        raise WireError(f"not a message: {error!r}") from error
    raise WireError(f"not a message: it begins with {kind!r}")


def _signal(fields: list[Any]) -> Signal:
    signal = Signal(**dict(zip(Signal._fields, fields, strict=False)))
    return signal if signal.step is None else signal._replace(step=AgentStep(*signal.step))


def _source(fields: list[Any]) -> ReportSource:
    process, upto_s, times = fields
    return ReportSource(process, upto_s, tuple((at_s, count) for at_s, count in times))


_LOAD: dict[str, Callable[[Policy, Any], Any]] = {
    "key": lambda _, data: _text(data),
    "memories": _memories,
    "phase": lambda _, data: Phase(data),
    "mode": lambda _, data: Mode(data),
    "order": lambda _, data: None if data is None else _order(data),
    "generation": lambda _, data: _count(data),
    "version": lambda _, data: _count(data),
    "event_seq": lambda _, data: _count(data),
    "seen_s": lambda _, data: _number(data),
    "heat": lambda _, data: _number(data),
    "outage": lambda _, data: _outage(data),
    "probing": lambda _, data: _probing(data),
    "failures": lambda _, data: _failures(data),
    "totals": lambda _, data: _totals(data),
}
"""The function that reads each required field of a circuit, in the order of the fields."""
