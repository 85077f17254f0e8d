"""The open calls of a session, and the results that are not yet recorded on its circuits.

This state is a part of the session's note (`Notes.more`): it is in the store, it changes in the same
transaction as the circuits, and its size is bounded. A call whose end is never reported expires with its lease.

Each agent of a session, including sub-agents, has its own lane. Overlapping calls in a lane are one step: the
lane's circuit admits and records them once. If the agent reports the end of a batch of tools, the step ends
there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import Action, Ruling, WorkAfterReply, allow
from switchgear._core.types import AgentStep, Permit, Signal

MAX_CALLS = 64
"""Maximum number of open calls of a session; the oldest is given up."""
MAX_PARTS = 32
MAX_LANES = 32
MAX_RULINGS = 16
"""Maximum number of a session's events whose rulings are kept."""
_MAX_CHARS = 1500
"""Maximum length of a call's arguments and result until its step is recorded."""

Permits = dict[str, Permit]


class OpenCall(NamedTuple):
    id: str
    lane: str
    tool: str
    kind: str
    changes: int
    """The number of files that the call would change, as far as this is known before it runs."""
    began_s: float
    until_s: float
    """When the call is given up."""
    permits: Permits
    """The permits of the circuits that record this call, in addition to the agent's circuit."""
    context_used: float | None = None


class CallLane(NamedTuple):
    """The calls and permits of one agent or sub-agent of a session."""

    parts: tuple[Signal, ...] = ()
    """The finished calls of the current step, which is not recorded yet."""
    permits: Mapping[str, Permit] = {}
    """The permit of the step."""
    batches: bool = False
    """Whether the agent reports the end of a batch of tools."""
    stopped: str = ""
    """Why a sub-agent must not continue; empty: it may."""


class ReadPosition(NamedTuple):
    """How far a transcript was read, and what was charged for its last responses."""

    offset: int = 0
    charged: Mapping[str, tuple[int, ...]] = {}
    """The token counts that were charged for the last responses, by their ids."""
    model: str = ""
    """The last model that the transcript named."""


class CallsState(NamedTuple):
    """What hooks keep of a session between events."""

    calls: tuple[OpenCall, ...] = ()
    lanes: Mapping[str, CallLane] = {}
    warned_heat: Mapping[str, float] = {}
    """The heat of each circuit at the last warning."""
    positions: Mapping[str, ReadPosition] = {}
    """How far the transcript of each agent of the session was read."""
    unpriced: tuple[str, ...] = ()
    """The models for which an unknown price was reported."""
    rulings: Mapping[str, Sequence[Any]] = {}
    """The rulings on the last events, by their identifiers. If the process that decided an event was killed
    before it responded, the event is decided again, but not counted again."""

    def with_call(self, call: OpenCall) -> "CallsState":
        others = tuple(each for each in self.calls if each.id != call.id or call.id[:1] == "#")
        return self._replace(calls=(*others, call))

    def find(self, call_id: str, lane: str) -> OpenCall | None:
        for call in self.calls:
            if call.id == call_id and call.lane == lane:
                return call
        return None

    def without(self, call: OpenCall) -> "CallsState":
        """The state without this call; other calls with the same id stay."""
        index = self.calls.index(call)
        return self._replace(calls=self.calls[:index] + self.calls[index + 1 :])

    def calls_in(self, name: str) -> tuple[OpenCall, ...]:
        return tuple(call for call in self.calls if call.lane == name)

    def lane(self, name: str) -> CallLane:
        return self.lanes.get(name, CallLane())

    def with_lane(self, name: str, lane: CallLane | None) -> "CallsState":
        """The state with this lane; `None` removes the lane."""
        lanes = {key: value for key, value in self.lanes.items() if key != name}
        if lane is not None and lane != CallLane():
            lanes = {**lanes, name: lane}
        return self._replace(lanes=dict([*lanes.items()][-MAX_LANES:]))

    def with_ruling(
        self, event: str, ruling: Ruling, work_after: WorkAfterReply | None
    ) -> "CallsState":
        """The state with the ruling on an event. Without an identifier the ruling is not kept."""
        if not event:
            return self
        is_plain = work_after is None and ruling == allow()
        given = () if is_plain else (list(ruling), None if work_after is None else list(work_after))
        return self._replace(rulings=dict([*self.rulings.items(), (event, given)][-MAX_RULINGS:]))

    def earlier_ruling(self, event: str) -> tuple[Ruling, WorkAfterReply | None] | None:
        """The ruling on an event that was decided before; `None`: the event is new."""
        given = self.rulings.get(event)
        if given is None:
            return None
        if not given:
            return allow(), None
        (action, *texts), work = given
        work_after = None if work is None else WorkAfterReply(*work)
        return Ruling(Action(action), *texts), work_after

    def with_position(self, name: str, position: ReadPosition) -> "CallsState":
        others = {key: value for key, value in self.positions.items() if key != name}
        positions = dict([*others.items(), (name, position)][-MAX_LANES:])
        return self._replace(positions=positions)


def dump(state: CallsState) -> dict[str, Any]:
    """The state as JSON values; `json` writes named tuples as lists."""
    lanes = {
        name: [[*map(_dump_part, parts)], *rest] for name, (parts, *rest) in state.lanes.items()
    }
    return {
        "open": state.calls,
        "lanes": lanes,
        "told": state.warned_heat,
        "books": state.positions,
        "unpriced": state.unpriced,
        "answers": state.rulings,
    }


def load(data: Mapping[str, Any]) -> CallsState:
    """The inverse of `dump`. Unreadable data gives an empty state."""
    try:
        calls = tuple(
            OpenCall._make((*fields[:7], _load_permits(fields[7]), *fields[8:]))
            for fields in data.get("open", ())
        )
        lanes = {
            name: CallLane(tuple(_load_part(part) for part in parts), _load_permits(permits), *rest)
            for name, (parts, permits, *rest) in data.get("lanes", {}).items()
        }
        positions = {
            name: ReadPosition(int(offset), {key: tuple(counts[key]) for key in counts}, model)
            for name, (offset, counts, model) in data.get("books", {}).items()
        }
        return CallsState(
            calls,
            lanes,
            warned_heat=dict(data.get("told", {})),
            positions=positions,
            unpriced=tuple(data.get("unpriced", ())),
            rulings=dict(data.get("answers", {})),
        )
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        return CallsState()


def merged_step(parts: tuple[Signal, ...]) -> Signal:
    """One step for several overlapping calls: it has the first failure, if any, and the longest duration."""
    if len(parts) == 1:
        return parts[0]
    steps = [part.step for part in parts if part.step is not None]
    tools = dict.fromkeys(step.tool for step in steps)
    failed = next((part for part in parts if part.ok is False), None)
    known = [part.ok for part in parts if part.ok is not None]
    return Signal(
        ok=False if failed else (True if known else None),
        seconds=max((part.seconds for part in parts if part.seconds is not None), default=None),
        error=failed.error if failed else None,
        cost_micros=_sum([part.cost_micros for part in parts]),
        files_changed=_sum([part.files_changed for part in parts]),
        context_used=max(
            (part.context_used for part in parts if part.context_used is not None), default=None
        ),
        step=AgentStep(
            "+".join(tools)[:80],
            "\n".join(step.args for step in steps),
            "\n".join(step.result or "" for step in steps),
            next((step.thought for step in steps if step.thought), None),
        ),
        state=_last([part.state for part in parts]),
        failing_tests=_last([part.failing_tests for part in parts]),
    )


def _last(texts: list[str | None]) -> str | None:
    return next((text for text in reversed(texts) if text is not None), None)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _load_permits(data: Mapping[str, Any]) -> Permits:
    return {key: Permit(*fields) for key, fields in data.items()}


def _dump_part(part: Signal) -> list[Any]:
    step = part.step or AgentStep()
    texts = (step.args, step.result, step.thought)
    args, result, thought = (text and text[:_MAX_CHARS] for text in texts)
    return [
        *(step.tool, args, result, part.ok, part.seconds, part.error, part.files_changed),
        *(part.context_used, part.cost_micros, thought, part.state, part.failing_tests),
    ]


def _load_part(data: Any) -> Signal:
    tool, args, result, ok, seconds, error, changed, used, cost, *rest = data
    thought, state, failing = [*rest, None, None, None][:3]
    return Signal(
        ok=ok,
        seconds=seconds,
        error=error,
        files_changed=changed,
        context_used=used,
        cost_micros=cost,
        step=AgentStep(tool, args, result, thought),
        state=state,
        failing_tests=failing,
    )
