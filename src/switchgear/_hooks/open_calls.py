"""The open calls of a session, and the results that are not yet recorded on its circuits.

A part of the session's note (`Notes.more`), so it lives in the store, is changed in the same
transaction as the circuits, and is bounded. A call whose end never comes is a lease that runs out.

Each agent of a session, sub-agents too, has its own lane. In a lane, calls that overlap are
one step: parallel tools are counted once, and the lane's circuit is checked and recorded on once for them.
Where the agent reports the end of a batch of tools, the step ends there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import Action, Ruling, WorkAfterReply, allow
from switchgear._core.types import AgentStep, Permit, Signal

MOST_CALLS = 64
"""Open calls of a session; beyond that the oldest is given up."""
MOST_PARTS = 32
MOST_LANES = 32
MOST_ANSWERS = 16
"""Maximum number of events of a session whose rulings are kept."""
_LONGEST = 1500
"""Characters kept of the arguments and the result of a call until its step is recorded."""

Permits = dict[str, Permit]
Granted = Mapping[str, Permit]


class OpenCall(NamedTuple):
    id: str
    lane: str
    tool: str
    kind: str
    changes: int
    """How many files it changes, as far as known before it is done."""
    began_s: float
    until_s: float
    """When it is given up."""
    permits: Permits
    """Its permits of circuits that record this call alone."""
    context_used: float | None = None


class CallLane(NamedTuple):
    """The calls and permits of one agent of a session, or of one of its sub-agents."""

    parts: tuple[Signal, ...] = ()
    """The calls of the step that are done and not yet recorded."""
    permits: Granted = {}  # noqa: RUF012  never changed
    """The permit of the step."""
    batches: bool = False
    """Whether the agent reports when a batch of tools is done."""
    stopped: str = ""
    """Why a sub-agent must not continue."""


class Book(NamedTuple):
    """How far a transcript was read, and what was charged for its last answers."""

    offset: int = 0
    answers: Mapping[str, tuple[int, ...]] = {}
    """The counts that were charged for the last answers."""
    model: str = ""
    """The last model that was named."""


class CallsState(NamedTuple):
    """What hooks keep of a session between events."""

    calls: tuple[OpenCall, ...] = ()
    lanes: Mapping[str, CallLane] = {}
    told: Mapping[str, float] = {}
    """The heat of each circuit at the last warning."""
    books: Mapping[str, Book] = {}
    """How far the transcript of each agent of the session was read."""
    unpriced: tuple[str, ...] = ()
    """The models whose unknown price was reported."""
    answers: Mapping[str, Sequence[Any]] = {}
    """The rulings on the last events, by their identifiers: an event that is decided again, because the
    process that had decided it was killed before it responded, is not counted again."""

    def opened(self, call: OpenCall) -> "CallsState":
        others = tuple(each for each in self.calls if each.id != call.id or call.id[:1] == "#")
        return self._replace(calls=(*others, call))

    def found(self, call_id: str, lane: str) -> OpenCall | None:
        for call in self.calls:
            if call.id == call_id and call.lane == lane:
                return call
        return None

    def without(self, call: OpenCall) -> "CallsState":
        """The state without this call; other calls with the same id stay."""
        index = self.calls.index(call)
        return self._replace(calls=self.calls[:index] + self.calls[index + 1 :])

    def in_lane(self, name: str) -> tuple[OpenCall, ...]:
        return tuple(call for call in self.calls if call.lane == name)

    def lane(self, name: str) -> CallLane:
        return self.lanes.get(name, CallLane())

    def with_lane(self, name: str, lane: CallLane | None) -> "CallsState":
        """The state with this lane; `None` removes the lane."""
        lanes = {key: value for key, value in self.lanes.items() if key != name}
        if lane is not None and lane != CallLane():
            lanes = {**lanes, name: lane}
        return self._replace(lanes=dict([*lanes.items()][-MOST_LANES:]))

    def with_answer(
        self, event: str, ruling: Ruling, errand: WorkAfterReply | None
    ) -> "CallsState":
        """The state with the ruling on an event. Without an identifier the ruling is not kept."""
        if not event:
            return self
        is_plain = errand is None and ruling == allow()
        given = () if is_plain else (list(ruling), None if errand is None else list(errand))
        return self._replace(answers=dict([*self.answers.items(), (event, given)][-MOST_ANSWERS:]))

    def answer_to(self, event: str) -> tuple[Ruling, WorkAfterReply | None] | None:
        """The ruling on an event that was decided before; `None`: it is new."""
        given = self.answers.get(event)
        if given is None:
            return None
        if not given:
            return allow(), None
        (action, *texts), errand = given
        return Ruling(Action(action), *texts), None if errand is None else WorkAfterReply(*errand)

    def with_book(self, name: str, book: Book) -> "CallsState":
        others = {key: value for key, value in self.books.items() if key != name}
        books = dict([*others.items(), (name, book)][-MOST_LANES:])
        return self._replace(books=books)


def dump(state: CallsState) -> dict[str, Any]:
    """The state as `json` can write it: named tuples become lists."""
    lanes = {
        name: [[*map(_dump_part, parts)], *rest] for name, (parts, *rest) in state.lanes.items()
    }
    facts = state._asdict()
    return {"open": facts.pop("calls"), **facts, "lanes": lanes}


def load(data: Mapping[str, Any]) -> CallsState:
    """The inverse of `dump`. Data that cannot be read gives an empty state."""
    try:
        calls = tuple(
            OpenCall._make((*fields[:7], _load_permits(fields[7]), *fields[8:]))
            for fields in data.get("open", ())
        )
        lanes = {
            name: CallLane(tuple(_load_part(part) for part in parts), _load_permits(permits), *rest)
            for name, (parts, permits, *rest) in data.get("lanes", {}).items()
        }
        books = {
            name: Book(int(offset), {key: tuple(counts) for key, counts in read.items()}, model)
            for name, (offset, read, model) in data.get("books", {}).items()
        }
        return CallsState(
            *(calls, lanes, dict(data.get("told", {})), books, tuple(data.get("unpriced", ()))),
            dict(data.get("answers", {})),
        )
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        return CallsState()


def step_of(parts: tuple[Signal, ...]) -> Signal:
    """Several calls as the one step that they were.

    It failed if one of them failed, with that error; it took as long as the longest.
    """
    if len(parts) == 1:
        return parts[0]
    acts = [part.step for part in parts if part.step is not None]
    tools = dict.fromkeys(act.tool for act in acts)
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
            "\n".join(act.args for act in acts),
            "\n".join(act.result or "" for act in acts),
            next((act.thought for act in acts if act.thought), None),
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
    act = part.step or AgentStep()
    return [
        *(act.tool, act.args[:_LONGEST], None if act.result is None else act.result[:_LONGEST]),
        *(part.ok, part.seconds, part.error, part.files_changed, part.context_used),
        *(part.cost_micros, None if act.thought is None else act.thought[:_LONGEST], part.state),
        part.failing_tests,
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
