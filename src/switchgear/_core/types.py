"""The types of the state machine: circuits, messages, verdicts and events.

A `Circuit` is the state, a message (`Acquire`, `Record`, `Override`) changes it, and an `Event` describes a
change. All are immutable, so threads can share them.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])


def by_type(kind: type[T]) -> type[T]:
    """Decorate a named tuple so that it equals only its own type: `Permit(1) != (1, 0, None)`."""

    def equal(self: T, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    def unequal(self: T, other: object) -> bool:
        return not equal(self, other)

    for name, method in (("__eq__", equal), ("__ne__", unequal), ("__hash__", tuple.__hash__)):
        setattr(kind, name, method)
    return kind


def to_dict(value: Any) -> dict[str, Any]:
    """A named tuple as a JSON-compatible dictionary: tuples become lists, enums become strings."""
    return {name: _to_json(member) for name, member in zip(value._fields, value, strict=True)}


def _to_json(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if not isinstance(value, tuple):
        return value
    return to_dict(value) if hasattr(value, "_fields") else [_to_json(member) for member in value]


class Phase(StrEnum):
    """The state that follows from the evidence. Also a string: `Phase.OPEN == "open"`."""

    CLOSED = "closed"
    TRIPPING = "tripping"
    """Close to a trip: admits calls, and evaluates every result."""
    OPEN = "open"
    HALF_OPEN = "half_open"
    """The cooldown is over; probes decide."""


class Mode(StrEnum):
    """The operator's override, independent of the phase: evidence accumulates under every mode."""

    AUTO = "auto"
    HELD_OPEN = "held_open"
    HELD_CLOSED = "held_closed"
    SHADOW = "shadow"
    """Everything is admitted; calls that would have been refused are counted."""


class EventKind(StrEnum):
    """The kind of an event."""

    MOVED = "moved"
    """The phase changed."""
    ORDERED = "ordered"
    """An operator changed the mode, or reset the circuit."""
    LOAD_CUT = "load_cut"
    """An open or half-open circuit under reduced load admits a smaller share than before."""
    HOLD_ENDED = "hold_ended"
    """The time of an operator's hold is over; the evidence decides again."""
    PROBE_EXPIRED = "probe_expired"
    """A probe had no result in time; another probe is admitted."""
    STORE_LOST = "store_lost"
    """The store cannot be reached; the circuit continues from its last known state."""
    STORE_BACK = "store_back"
    """The store is available again, and has saved what happened in the meantime."""
    STATE_UNREADABLE = "state_unreadable"
    """The stored state could not be read; it was saved separately, and the circuit starts without it."""
    UNDECIDED = "undecided"
    """A hook could not decide: it admitted or refused as configured; the reason is in the event."""
    CALL_EXPIRED = "call_expired"
    """A tool call of an agent started and its end was never reported; it counts as lost."""
    RULE_BROKEN = "rule_broken"
    """An agent tried to do what a rule forbids; the call was refused."""
    ISOLATED = "isolated"
    """One process fails while others succeed: only this process refuses its calls; the circuit stays closed."""
    REJOINED = "rejoined"
    """An isolated process admits its calls again, or has ended."""
    GUARD_CHANGED = "guard_changed"
    """The guard of an agent has changed: its configuration, or the settings that contain its hooks."""
    INTERVENED = "intervened"
    """An escalation step was taken for a stuck agent: nudge, restart, hand over or skip."""
    SECOND_OPINION = "second_opinion"
    """The configured command or model gave a verdict on a stuck agent, or failed to."""


@by_type
class AgentStep(NamedTuple):
    """One step of an agent: the tool, its arguments, its result, and the thought before it.

    The texts are the agent's own, with secrets redacted. They may be shortened, so do not depend
    on how they end.
    """

    tool: str = ""
    """The name of the tool; empty: a turn without a tool call."""
    args: str = ""
    """The arguments, as one text."""
    result: str | None = None
    thought: str | None = None
    """The agent's text before the action."""
    call_key: str = ""
    """A digest of the uncut arguments; empty: `args` is uncut, or the digest is unknown."""
    result_key: str = ""
    """A digest of the uncut result; empty: `result` is uncut, or the digest is unknown."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values."""
        return to_dict(self)


class SignalFields(NamedTuple):
    """The fields of a `Signal`."""

    ok: bool | None = None
    """Whether the call succeeded. `None` is no evidence: the call was cancelled, or its permit returned."""
    seconds: float | None = None
    """Duration of the call in seconds."""
    error: str | None = None
    """One line about the failure, already redacted."""
    retry_after_s: float | None = None
    """The wait that the service requested with Retry-After, in seconds from now."""
    count: int = 1  # type: ignore[assignment]  # hides tuple.count
    """Number of equal results in a row; 0 only advances the time."""
    refused: int = 0
    """Number of calls refused from a local copy of the circuit since the last message."""
    cost_micros: int | None = None
    """Cost in millionths of a dollar."""
    files_changed: int | None = None
    """Number of files that differ from before, committed or not."""
    tests_passing: int | None = None
    """Number of tests that pass."""
    output_chars: int | None = None
    """Length of the output in characters."""
    at_s: float | None = None
    """When it was measured, in seconds since the epoch."""
    step: AgentStep | None = None
    """The agent's step, if the signal describes one."""
    state: str | None = None
    """A key for the contents of the files after the call: equal keys mean equal files."""
    failing_tests: str | None = None
    """A key for the set of failing tests: equal keys mean the same tests."""
    context_used: float | None = None
    """The share of the agent's context window that is in use: 0 to 1."""
    idle_s: float | None = None
    """Seconds without activity, as measured by a watcher."""
    waited_s: float | None = None
    """Seconds of waiting for a lock."""
    violation: str | None = None
    """The rule that was broken, in one line."""


@by_type
class Signal(SignalFields):
    """Facts about one result. All arguments are keywords.

    `None` means "not measured": detectors that need the value abstain.

    >>> Signal(ok=False, seconds=2.5, error="HTTP 529").error
    'HTTP 529'
    """

    __slots__ = ()

    def __new__(
        cls,
        *,
        ok: bool | None = None,
        seconds: float | None = None,
        error: str | None = None,
        retry_after_s: float | None = None,
        count: int = 1,
        refused: int = 0,
        cost_micros: int | None = None,
        files_changed: int | None = None,
        tests_passing: int | None = None,
        output_chars: int | None = None,
        at_s: float | None = None,
        step: AgentStep | None = None,
        state: str | None = None,
        failing_tests: str | None = None,
        context_used: float | None = None,
        idle_s: float | None = None,
        waited_s: float | None = None,
        violation: str | None = None,
    ) -> Self:
        return cls._make(
            (
                ok,
                seconds,
                error,
                retry_after_s,
                count,
                refused,
                cost_micros,
                files_changed,
                tests_passing,
                output_chars,
                at_s,
                step,
                state,
                failing_tests,
                context_used,
                idle_s,
                waited_s,
                violation,
            )
        )

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), self._asdict()

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values."""
        return to_dict(self)


@by_type
class Permit(NamedTuple):
    """Permission for one call. A result with a permit of an older generation is stale."""

    generation: int
    """The generation of the circuit when it admitted the call."""
    probe: int = 0
    """Number of the probe, from 1; 0 is an ordinary call."""
    lease_until_s: float | None = None
    """When another probe may replace this one; its result still counts."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values."""
        return to_dict(self)


class Acquire(NamedTuple):
    """Requests a permit for one call."""


class ReportSource(NamedTuple):
    """Which process reports a signal to a shared circuit, and when the results occurred."""

    process: str
    upto_s: float
    """The time up to which this process has reported everything."""
    times: tuple[tuple[float, int], ...] = ()
    """Pairs of a time and how many of the signal's `count` results occurred then; empty: all of them now."""


@by_type
class Record(NamedTuple):
    """Records a result. Without a permit, the result is an observation from outside, made now."""

    signal: Signal
    permit: Permit | None = None
    source: ReportSource | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values."""
        return to_dict(self)


REMARKS = frozenset(
    {
        EventKind.STORE_LOST,
        EventKind.STORE_BACK,
        EventKind.STATE_UNREADABLE,
        EventKind.UNDECIDED,
        EventKind.CALL_EXPIRED,
        EventKind.RULE_BROKEN,
        EventKind.ISOLATED,
        EventKind.REJOINED,
        EventKind.GUARD_CHANGED,
        EventKind.SECOND_OPINION,
    }
)
"""The kinds of remarks: events that Switchgear records without an operator."""


@by_type
class Override(NamedTuple):
    """An operator's override: changes the mode, clears the evidence, or requests a probe."""

    by: str
    """The author, as shown in the event."""
    why: str
    """The reason, as shown in the event."""
    mode: Mode | None = None
    """The new mode; `None`: unchanged."""
    reset: bool = False
    """Clear the evidence and the totals, and close the circuit."""
    kind: EventKind = EventKind.ORDERED
    """The kind of the event; a kind in `REMARKS` is a remark of Switchgear, not an operator's override."""
    until_s: float | None = None
    """When the mode ends, on the circuit's clock; `None`: not before an operator changes it."""
    probe: bool = False
    """Admit a probe on an open circuit now, before its cooldown ends."""
    process: str = ""
    """The process that a remark is about, such as `process 17 on web-3`; `until_s` is when it probes next."""

    @property
    def is_override(self) -> bool:
        """Whether the message needs the operator token: only a remark that changes nothing does not.

        The kind alone does not decide: a remark that also sets the mode, resets or probes is an override.
        """
        changes = self.mode is not None or self.reset or self.probe
        return self.kind not in REMARKS or changes

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values."""
        return to_dict(self)


Message = Acquire | Record | Override


@by_type
class Reading(NamedTuple):
    """The reading of one detector."""

    heat: float
    """0 is calm; 1 and above trips."""
    reason: str
    """The evidence in words, with the threshold."""
    value: float | None = None
    """The evidence as a number, such as 3 (failures in a row); `None`: the detector has no number."""
    threshold: float | None = None
    """The threshold for the value."""
    unit: str = ""
    """The unit of both numbers: `failures`, `share` (0 to 1), `s`, `micros` (millionths of a dollar)…"""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values."""
        return to_dict(self)


class Failure(NamedTuple):
    """One recent failure, kept to explain a trip."""

    at_s: float
    error: str | None


class OpenState(NamedTuple):
    """Why and for how long the circuit is open; `NO_OUTAGE` for a closed circuit."""

    opened_at_s: float = 0.0
    retry_at_s: float | None = None
    """When it admits a probe; `None`: not before an operator acts."""
    cooldown_s: float = 0.0
    """Length of the cooldown in seconds; also the minimum lease of a probe after it."""
    failed_probes: int = 0
    admit: float = 0.0
    """The share of calls that is still admitted: 0 is none, 0.25 is one call in four."""
    asked: int = 0
    """Number of requests under reduced load; used to spread the admitted calls evenly."""
    reason: str = ""


class Probing(NamedTuple):
    """The probes of a half-open circuit."""

    permits: tuple[Permit, ...] = ()
    issued: int = 0
    successes: int = 0
    expired: tuple[int, ...] = ()
    """The numbers of the last probes whose lease ended without a result: each may still report once."""
    failures: int = 0


@by_type
class Totals(NamedTuple):
    """All results and requests since the start or the last reset."""

    succeeded: int = 0
    failed: int = 0
    ignored: int = 0
    """Results that are no evidence: cancelled calls, returned permits."""
    late: int = 0
    """Stale results, from before the last transition, and a probe's second result: counted, never evaluated."""
    refused: int = 0
    overruled: int = 0
    """Calls admitted by the mode against the evidence, as in shadow mode."""
    cost_micros: int = 0
    """The sum of the recorded costs, in millionths of a dollar."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values."""
        return to_dict(self)


class DatedRecord(NamedTuple):
    """A signal and when it happened."""

    at_s: float
    record: Record


if TYPE_CHECKING:
    MaybeCircuit: TypeAlias = "Circuit | None"
else:
    MaybeCircuit = (
        object  # Python compiles an annotation in quotes: 1 ms of each hook that decides itself
    )


class Recent(NamedTuple):
    """The latest evidence on a shared circuit: other processes may still report earlier evidence."""

    version: int
    """The version of the circuit that contains it."""
    base: MaybeCircuit
    """The circuit before it; `None`: no evidence is pending."""
    tells: tuple[DatedRecord, ...]
    """The recent signals, in the order of their times."""
    final: int
    """How many of `tells` are final; a late report is still inserted before them."""
    reports: tuple[tuple[str, float], ...]
    """The participating processes, and up to when each has reported everything."""
    settled: MaybeCircuit = None
    """The circuit with only the final signals; `None`: fold `base` to compute it."""


class Isolated(NamedTuple):
    """A process that refuses its own calls although the shared circuit is closed."""

    process: str
    """Such as `process 17 on web-3`."""
    reason: str
    since_s: float
    retry_at_s: float
    """When its next call becomes a probe."""


NO_OUTAGE = OpenState()
NO_PROBES = Probing()
NO_TOTALS = Totals()


class Circuit(NamedTuple):
    """The state of one circuit. Immutable: `step` returns the next one."""

    key: str
    memories: tuple[Any, ...]
    """The memory of each detector, in the order of the policy."""
    phase: Phase = Phase.CLOSED
    mode: Mode = Mode.AUTO
    order: Override | None = None
    """The last override that set the mode, with its author and reason."""
    generation: int = 1
    """Increases when the circuit opens, half-opens or closes; results of earlier permits are then stale."""
    version: int = 0
    """Increases with every change; the higher version is the newer state."""
    event_seq: int = 0
    """The number of the last event."""
    seen_s: float = 0.0
    """The time of the latest message; the time of a circuit never runs backwards."""
    heat: float = 0.0
    """The heat after the last message: 0 is calm, 1 trips."""
    outage: OpenState = NO_OUTAGE
    probing: Probing = NO_PROBES
    failures: tuple[Failure, ...] = ()
    """The most recent failures, oldest first."""
    totals: Totals = NO_TOTALS
    recent: Recent | None = None
    """Evidence that late reports of other processes may precede; see `evidence.py`."""
    isolated: tuple[Isolated, ...] = ()
    """The processes that refuse their own calls, the most recent last."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values, without the internal ones: `memories` and `recent`."""
        data = to_dict(self._replace(memories=(), recent=None))
        del data["memories"], data["recent"]
        return data


@by_type
class Verdict(NamedTuple):
    """The result of a message: whether a call is admitted, and the state of the circuit."""

    admitted: bool
    phase: Phase
    reason: str = ""
    """The reason for a refusal or, if admitted, for a warning."""
    retry_after_s: float | None = None
    """Seconds until the next probe or the end of a hold; `None`: no time is set."""
    heat: float = 0.0
    permit: Permit | None = None
    """The permit that an `Acquire` obtained."""
    overruled: bool = False
    """Admitted only because of the mode."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values."""
        return to_dict(self)


@by_type
class Event(NamedTuple):
    """A change of a circuit. Numbered per circuit from 1 without gaps, committed with the state."""

    circuit: str
    """The name of the circuit."""
    seq: int
    """The number of the event."""
    at_s: float
    """When it happened, in seconds on the circuit's clock."""
    kind: EventKind
    before: Phase
    after: Phase
    """The phase after the event; equal to `before` unless the kind is MOVED."""
    mode: Mode
    generation: int
    reason: str = ""
    """Why it happened, in words; for an override, what was changed."""
    by: str = ""
    """The author of an override or a remark."""
    why: str = ""
    """The reason that the operator gave."""
    retry_after_s: float | None = None
    """Seconds from the event until the circuit admits a probe; `None`: no time is set."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON-compatible values."""
        return to_dict(self)


class Step(NamedTuple):
    """The result of one message."""

    circuit: Circuit
    verdict: Verdict
    events: tuple[Event, ...]
