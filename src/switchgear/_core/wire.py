"""Circuits and events as JSON values, with a schema number; old shapes always load.

What is stored must be readable by every later version (golden files keep it so), and what is not
readable must be an error: a state that cannot be read is never taken for "closed".
"""

from collections.abc import Callable
from typing import Any

from switchgear._core import values
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    AgentStep,
    Circuit,
    Dated,
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
    Signal,
    Source,
    Totals,
)

SCHEMA = 1

UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each old schema, how its data becomes that of the next one."""


class WireError(ValueError):
    """Stored data that is no circuit or event: what was read, and what is wrong with it."""


def dump_circuit(policy: Policy, circuit: Circuit) -> dict[str, Any]:
    """A circuit as JSON values; detectors are named, so that a changed policy finds its own."""
    pairs = zip(Circuit._fields, circuit, strict=True)
    data = {name: dump_field(policy, name, value) for name, value in pairs}
    if circuit.recent is None:
        del data["recent"]  # most circuits have nothing recent
    if not circuit.isolated:
        del data["isolated"]
    data["schema"] = SCHEMA
    return data


def dump_field(policy: Policy, name: str, value: Any) -> Any:
    """One field of a circuit as JSON values: most messages change only a few of them."""
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
    if name == "recent" and value is not None:
        return _dump_recent(policy, value)
    return _dump_order(value) if name == "order" and value is not None else value


def load_circuit(policy: Policy, data: Any) -> Circuit:
    """The inverse of `dump_circuit`. Raises `WireError`.

    Detectors that the policy has and the data has not start afresh; the others are let go.
    """
    try:
        data = _upgraded(data)
        circuit = Circuit(
            key=_text(data["key"]),
            memories=_memories(policy, data["memories"]),
            phase=Phase(data["phase"]),
            mode=Mode(data["mode"]),
            order=None if data["order"] is None else _order(data["order"]),
            generation=_count(data["generation"]),
            version=_count(data["version"]),
            event_seq=_count(data["event_seq"]),
            seen_s=_number(data["seen_s"]),
            heat=_number(data["heat"]),
            outage=_outage(data["outage"]),
            probing=_probing(data["probing"]),
            failures=tuple(
                _failure(failure) for failure in values.row("failures", data["failures"])
            ),
            totals=Totals(**{name: _count(value) for name, value in data["totals"].items()}),
            recent=_recent(policy, data.get("recent")),
            isolated=tuple(map(_isolated, values.row("isolated", data.get("isolated", [])))),
        )
    except WireError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not the state of a circuit: {error!r}") from error
    return circuit


def _dump_recent(policy: Policy, recent: Recent) -> dict[str, Any]:
    tells = [
        [at_s, list(tell.signal), None if tell.permit is None else list(tell.permit)]
        for at_s, tell in recent.tells
    ]
    base = None if recent.base is None else dump_circuit(policy, recent.base)
    reports = [*map(list, recent.reports)]
    return {
        "version": recent.version,
        "base": base,
        "tells": tells,
        "final": recent.final,
        "reports": reports,
    }


def _recent(policy: Policy, data: Any) -> Recent | None:
    """What is recent; `None` for what cannot be read: the circuit itself has it folded in."""
    if data is None:
        return None
    try:
        tells = tuple(
            Dated(
                _number(at_s),
                Record(_wire_signal(signal), None if permit is None else Permit(*permit)),
            )
            for at_s, signal, permit in data["tells"]
        )
        base = None if data["base"] is None else load_circuit(policy, data["base"])
        reports = tuple((_text(name), _number(at_s)) for name, at_s in data["reports"])
        if base is None:
            return Recent(_count(data["version"]), None, (), 0, reports)
        return Recent(_count(data["version"]), base, tells, _count(data["final"]), reports)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _wire_signal(fields: list[Any]) -> Signal:
    signal = Signal(*fields)
    return signal if signal.step is None else signal._replace(step=AgentStep(*signal.step))


def dump_event(event: Event) -> dict[str, Any]:
    """An event as JSON values."""
    return {"schema": SCHEMA, **event._asdict()}


def load_event(data: Any) -> Event:
    """The inverse of `dump_event`. Raises `WireError`."""
    try:
        data = _upgraded(data)
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
    if len(set(names)) == len(names):
        return names
    names = []
    for detector in policy.detectors:
        same = sum(name.split("#")[0] == detector.kind for name in names)
        names.append(detector.kind if not same else f"{detector.kind}#{same + 1}")
    return names


def _upgraded(stored: Any) -> dict[str, Any]:
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
    fields = [order.by, order.why, order.mode, order.reset]  # its kind is history, not state
    return fields if order.until_s is None else [*fields, order.until_s]


def _order(data: Any) -> Override:
    by, why, mode, reset, *rest = values.row("order", data)
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
        admit=values.fraction("admit", data["admit"]),
        asked=_count(data["asked"]),
        reason=_text(data["reason"]),
    )


def _probing(data: dict[str, Any]) -> Probing:
    permits = tuple(_permit(permit) for permit in values.row("permits", data["permits"]))
    # Absent in what was written before there was such a thing.
    expired = tuple(_count(number) for number in values.row("expired", data.get("expired", [])))
    failures = _count(data.get("failures", 0))
    return Probing(permits, _count(data["issued"]), _count(data["successes"]), expired, failures)


def _permit(data: Any) -> Permit:
    generation, probe, lease_until_s = values.row("permit", data, 3)
    return Permit(_count(generation), _count(probe), _number(lease_until_s))


def _failure(data: Any) -> Failure:
    at_s, error = values.row("failure", data, 2)
    return Failure(_number(at_s), _maybe_text(error))


def _isolated(data: Any) -> Isolated:
    process, reason, since_s, retry_at_s = values.row("isolated process", data, 4)
    return Isolated(_text(process), _text(reason), _number(since_s), _number(retry_at_s))


def _count(value: Any) -> int:
    return values.whole("a count", value, least=0)


def _number(value: Any) -> float:
    return values.number("a number", value)


def _maybe_number(value: Any) -> float | None:
    return None if value is None else _number(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WireError(f"{value!r} is not a text")
    return value


def _maybe_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def dump_message(message: Message) -> list[Any]:
    """A message as JSON values."""
    if isinstance(message, Record):
        permit = None if message.permit is None else [*message.permit]
        told = ["tell", list(message.signal), permit]
        return told if message.source is None else [*told, list(message.source)]
    return [type(message).__name__.lower(), list(message)]


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
    signal = Signal(*fields)
    return signal if signal.step is None else signal._replace(step=AgentStep(*signal.step))


def _source(fields: list[Any]) -> Source:
    process, upto_s, times = fields
    return Source(process, upto_s, tuple((at_s, count) for at_s, count in times))
