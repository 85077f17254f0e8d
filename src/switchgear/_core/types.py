"""The types of the state machine: circuits, messages, verdicts and events.

State is a value (`Circuit`), what changes it is a message (`Acquire`, `Record`, `Override`), what happened
is an `Event`. All are immutable, so any thread may hold any of them.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])


def by_type(kind: type[T]) -> type[T]:
    """Let a named tuple equal only its own type: `Permit(1)` is no `(1, 0, None)`."""

    def equal(self: T, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    def unequal(self: T, other: object) -> bool:
        return not equal(self, other)

    for name, method in (("__eq__", equal), ("__ne__", unequal), ("__hash__", tuple.__hash__)):
        setattr(kind, name, method)
    return kind


def to_dict(value: Any) -> dict[str, Any]:
    """A named tuple as a dictionary that JSON can hold: tuples as lists, enums as texts."""
    return {name: _plain(member) for name, member in zip(value._fields, value, strict=True)}


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if not isinstance(value, tuple):
        return value
    return to_dict(value) if hasattr(value, "_fields") else [_plain(member) for member in value]


class Phase(StrEnum):
    """The state that follows from the evidence. Also a text: `Phase.OPEN == "open"`."""

    CLOSED = "closed"
    TRIPPING = "tripping"
    """Worried: admits, and looks at every step."""
    OPEN = "open"
    HALF_OPEN = "half_open"
    """The wait is over; probes decide."""


class Mode(StrEnum):
    """The operator's override, independent of the phase: evidence accumulates under every mode."""

    AUTO = "auto"
    HELD_OPEN = "held_open"
    HELD_CLOSED = "held_closed"
    SHADOW = "shadow"
    """Would have tripped, does not: everything is admitted and what would be refused is counted."""


class EventKind(StrEnum):
    """The kind of an event."""

    MOVED = "moved"
    """The phase changed."""
    ORDERED = "ordered"
    """An operator changed the mode, or reset the circuit."""
    LOAD_CUT = "load_cut"
    """An open or half-open circuit that still admitted a share admits less."""
    HOLD_ENDED = "hold_ended"
    """The time of an operator's hold is over; the evidence decides again."""
    PROBE_EXPIRED = "probe_expired"
    """A probe did not report in time; its place is free again."""
    STORE_LOST = "store_lost"
    """The store cannot be reached; the circuit goes on from its last known state."""
    STORE_BACK = "store_back"
    """The store is reached again, and what happened meanwhile is saved."""
    STATE_UNREADABLE = "state_unreadable"
    """What was stored could not be read; it was set aside and the circuit starts from scratch."""
    UNDECIDED = "undecided"
    """A hook could not decide: it admitted or refused as configured; the reason is in the event."""
    CALL_EXPIRED = "call_expired"
    """A tool call of an agent started and its end was never reported; it is given up."""
    RULE_BROKEN = "rule_broken"
    """An agent tried what a rule forbids; it was refused."""
    ISOLATED = "isolated"
    """One process fails while others succeed: it stays away by itself, and the circuit is closed."""
    REJOINED = "rejoined"
    """A process that was isolated calls again, or has ended."""
    GUARD_CHANGED = "guard_changed"
    """What guards an agent has changed: its configuration, or the settings that hold its hooks."""
    INTERVENED = "intervened"
    """An escalation step was taken for a stuck agent: a nudge, a fresh start, help, giving up."""
    SECOND_OPINION = "second_opinion"
    """A command or model of the user's choice gave its verdict on a stuck agent, or gave none."""


@by_type
class AgentStep(NamedTuple):
    """One step of an agent: the tool, its arguments, its result, and the thought before it.

    Texts as the agent wrote them, redacted; they may be shortened, so readers must not
    depend on their ends.
    """

    tool: str = ""
    """The tool's own name; empty: it only talked."""
    args: str = ""
    """What it was called with, as one text."""
    result: str | None = None
    thought: str | None = None
    """The agent's text before the action."""
    call_key: str = ""
    """A digest of the uncut arguments; empty: `args` is uncut, or it is not known."""
    result_key: str = ""
    """A digest of the uncut result, likewise."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them."""
        return to_dict(self)


class SignalFields(NamedTuple):
    """The fields of a `Signal`."""

    ok: bool | None = None
    """Whether it succeeded. `None` is no evidence: a cancelled call, a permit given back."""
    seconds: float | None = None
    error: str | None = None
    """One line about the failure, already redacted."""
    retry_after_s: float | None = None
    """The wait that the other side requested, in seconds from now."""
    count: int = 1  # type: ignore[assignment]  # hides tuple.count
    """Number of equal results in a row; 0 only moves the time."""
    refused: int = 0
    """Calls refused by a snapshot of this circuit since the last message."""
    cost_micros: int | None = None
    """What it cost, in millionths of a dollar."""
    files_changed: int | None = None
    """How many files differ from what they were before, committed or not."""
    tests_passing: int | None = None
    output_chars: int | None = None
    """How long the output was, in characters."""
    at_s: float | None = None
    """When it was measured, in seconds since the epoch."""
    step: AgentStep | None = None
    """The step of an agent that this was."""
    state: str | None = None
    """A key of the state the work is in after it: equal keys, equal files."""
    failing_tests: str | None = None
    """A key of the set of tests that fail: equal keys, the same tests."""
    context_used: float | None = None
    """The share of the agent's context window that is in use: 0 to 1."""
    idle_s: float | None = None
    """How long nothing has happened, as a watcher saw it."""
    waited_s: float | None = None
    """How long it waited for a lock."""
    violation: str | None = None
    """The rule that was broken, in one line."""


@by_type
class Signal(SignalFields):
    """Facts about one result; `None` means "not measured": detectors that need it abstain. Keywords only."""

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
        """The fields by name, as JSON can hold them."""
        return to_dict(self)


@by_type
class Permit(NamedTuple):
    """Permission for one call. A result with a permit of an older generation is stale."""

    generation: int
    probe: int = 0
    """Which probe this is, from 1; 0 is an ordinary call."""
    lease_until_s: float | None = None
    """When a probe that has not reported loses its place; its result still counts."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them."""
        return to_dict(self)


class Acquire(NamedTuple):
    """Requests a permit for one call."""


class ReportSource(NamedTuple):
    """Which process reports a signal to a circuit that several share, and when it happened."""

    process: str
    upto_s: float
    """Up to when this process has now reported everything."""
    times: tuple[tuple[float, int], ...] = ()
    """When how many of the signal's `count` happened; none: all of them now."""


@by_type
class Record(NamedTuple):
    """Records a result. Without a permit: an observation from outside, now."""

    signal: Signal
    permit: Permit | None = None
    source: ReportSource | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them."""
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
"""The kinds of events that Switchgear records without an operator; they change nothing else."""


@by_type
class Override(NamedTuple):
    """An operator's override: changes the mode, clears the evidence, or requests a probe."""

    by: str
    why: str
    mode: Mode | None = None
    reset: bool = False
    kind: EventKind = EventKind.ORDERED
    """The event it makes; other than ORDERED it is Switchgear's own remark, not an operator's."""
    until_s: float | None = None
    """When the mode ends by itself, on the circuit's clock; `None`: not before it is released."""
    probe: bool = False
    """Let an open circuit probe now, before its wait is over."""
    process: str = ""
    """The process that a remark is about, such as `process 17 on web-3`; `until_s` is its next probe."""

    @property
    def is_override(self) -> bool:
        """Whether it needs the operator token: everything does except a remark that changes nothing.

        The kind alone does not decide: a remark that also sets the mode or resets is an override.
        """
        changes = self.mode is not None or self.reset or self.probe
        return self.kind not in REMARKS or changes

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them."""
        return to_dict(self)


Message = Acquire | Record | Override


@by_type
class Reading(NamedTuple):
    """The reading of one detector."""

    heat: float
    """0 is calm; 1 and above trips."""
    reason: str
    """The evidence in words, with the threshold it is held against."""
    value: float | None = None
    """The evidence in numbers, such as 3 (failures in a row); `None`: it has none."""
    threshold: float | None = None
    """What the value is held against."""
    unit: str = ""
    """The unit of both: `failures`, `share` (0 to 1), `s`, `micros` (millionths of a dollar)…"""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them."""
        return to_dict(self)


class Failure(NamedTuple):
    """One recent failure, kept to explain a trip."""

    at_s: float
    error: str | None


class OpenState(NamedTuple):
    """Why and how long the circuit is open; what a closed circuit has is `NO_OUTAGE`."""

    opened_at_s: float = 0.0
    retry_at_s: float | None = None
    """When it will try again; `None`: not by itself."""
    cooldown_s: float = 0.0
    """How long this wait is; also how long a probe after it keeps its place, at least."""
    failed_probes: int = 0
    admit: float = 0.0
    """The share of calls that is still admitted: 0 is cut off, 0.25 is one call in four."""
    asked: int = 0
    """Calls that met the reduced load, to admit every so-many-th."""
    reason: str = ""


class Probing(NamedTuple):
    """The probes of a half-open circuit."""

    permits: tuple[Permit, ...] = ()
    issued: int = 0
    successes: int = 0
    expired: tuple[int, ...] = ()
    """The last probes that lost their place and have not reported: they still may, once."""
    failures: int = 0


@by_type
class Totals(NamedTuple):
    """All results and requests since the start or the last reset."""

    succeeded: int = 0
    failed: int = 0
    ignored: int = 0
    """Results that are no evidence: cancelled calls, permits given back."""
    late: int = 0
    """Stale results, from before the last transition, and a probe's second result: counted, never judged."""
    refused: int = 0
    overruled: int = 0
    """Admitted by the mode against the evidence: what shadow mode would have refused."""
    cost_micros: int = 0
    """The sum of the recorded costs, in millionths of a dollar."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them."""
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
    """The latest evidence on a shared circuit: other processes may yet report what came before it."""

    version: int
    """The version of the circuit that has it folded in."""
    base: MaybeCircuit
    """The circuit before it; `None`: no evidence is pending."""
    tells: tuple[DatedRecord, ...]
    final: int
    """How many of them are judged; a report that is very late is still put in its place."""
    reports: tuple[tuple[str, float], ...]
    """The processes that take part, and up to when each has reported everything."""
    settled: MaybeCircuit = None
    """The circuit with the judged ones and without the others; `None`: fold `base` to know it."""


class Isolated(NamedTuple):
    """A process that refuses its own calls although the shared circuit is closed."""

    process: str
    """Such as `process 17 on web-3`."""
    reason: str
    since_s: float
    retry_at_s: float
    """From when on its next call is a probe."""


NO_OUTAGE = OpenState()
NO_PROBES = Probing()
NO_TOTALS = Totals()


class Circuit(NamedTuple):
    """The state of one circuit. Immutable: `step` returns the next one."""

    key: str
    memories: tuple[Any, ...]
    """What each detector of the policy remembers, in the policy's order."""
    phase: Phase = Phase.CLOSED
    mode: Mode = Mode.AUTO
    order: Override | None = None
    """The last override that set the mode, with its author and reason."""
    generation: int = 1
    version: int = 0
    """Rises with every change; the higher version is the newer state."""
    event_seq: int = 0
    seen_s: float = 0.0
    """The latest time seen; the time of a circuit never runs backwards."""
    heat: float = 0.0
    outage: OpenState = NO_OUTAGE
    probing: Probing = NO_PROBES
    failures: tuple[Failure, ...] = ()
    totals: Totals = NO_TOTALS
    recent: Recent | None = None
    """What may still be preceded by reports of other processes; see `evidence.py`."""
    isolated: tuple[Isolated, ...] = ()
    """The processes that refuse their own calls, the latest last."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them, without what only detectors and stores read.

        That is `memories`, which a policy gives their meaning, and `recent`.
        """
        data = to_dict(self._replace(memories=(), recent=None))
        del data["memories"], data["recent"]
        return data


@by_type
class Verdict(NamedTuple):
    """The result of a message: whether a call is admitted, and the state of the circuit."""

    admitted: bool
    phase: Phase
    reason: str = ""
    """Why not; or, while admitted, what the circuit is worried about."""
    retry_after_s: float | None = None
    heat: float = 0.0
    permit: Permit | None = None
    overruled: bool = False
    """Admitted only because of the mode."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them."""
        return to_dict(self)


@by_type
class Event(NamedTuple):
    """A change of a circuit. Numbered per circuit from 1 without gaps, committed with the state."""

    circuit: str
    seq: int
    at_s: float
    kind: EventKind
    before: Phase
    after: Phase
    mode: Mode
    generation: int
    reason: str = ""
    by: str = ""
    why: str = ""
    retry_after_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON can hold them."""
        return to_dict(self)


class Step(NamedTuple):
    """What one message did."""

    circuit: Circuit
    verdict: Verdict
    events: tuple[Event, ...]
