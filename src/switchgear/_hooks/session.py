"""The state of a guarded session beside its circuits: a note in the store, one per session.

The note is read and changed inside `Store.transact(note_name(session), …)`, so that parallel hooks of one
session do not overwrite each other's changes, and each warning is given once. The functions that take `Notes`
return new ones and have no other effect than messages to the circuit they receive. A hook calls them in one
transaction, in this order:

    notes = Notes.load(tx.note)
    notes = after_event(notes, moment, now_s, …)    # at every event, before anything is checked
    notes = after_user_message(circuit, notes)      # when the user wrote a message
    notes = after_trip(notes, score)                # when `has_opened(step)` of the session's circuit
    notes, taken = take_escalation_step(circuit, notes, …)
    notes = after_progress(notes)                   # when a tool call changed files
    notes, messages = take_messages(notes, now_s)   # when the reply can carry a text
    tx.note = notes.dump()

The session's circuit decides whether the session is stopped: while it is open, the agent must not continue.
The note adds the text for the agent and the escalation steps taken.

`messages.texts` go to the agent, once each; `messages.stop` ends its turn. After the transaction, the hook
starts a watcher if `needs_watcher(notes, moment)`, and the escalation agent if `taken.step_name` is `escalate`
(see `after_reply`). The watcher uses the same note to measure the agent's silence (`silence_s`).
"""

import json
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Self

from switchgear._agents.hook_protocol import Moment
from switchgear._core.policy import Latched, Policy
from switchgear._core.types import (
    Circuit,
    EventKind,
    Message,
    Mode,
    Override,
    Phase,
    Record,
    Signal,
    Step,
)
from switchgear._hooks import open_calls
from switchgear._stuck import escalation, timeouts
from switchgear._stuck import messages as texts
from switchgear._stuck.escalation import Apply, Interventions
from switchgear._stuck.score import Score
from switchgear._system.files import read_regular

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PID_NAMESPACE = "/proc/self/ns/pid"


def host_id() -> str:
    """An identifier of this machine and process namespace: process ids are valid only within it."""
    try:
        return f"{_machine_id()} {os.readlink(_PID_NAMESPACE)}"
    except OSError:
        return _machine_id()


def process_exists(pid: int) -> bool:
    """Whether a process of this user has this id on this machine."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return pid > 0


def folder_id(path: str) -> str:
    """An identifier of a folder, the same under every path and in every container; empty: it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{_machine_id()} {found.st_dev}:{found.st_ino}"


def _machine_id() -> str:
    """An identifier of the machine since its last boot."""
    try:
        return read_regular(_BOOT_ID, 64).decode(errors="replace").strip()
    except OSError:
        return os.uname().nodename


MAX_REASON_CHARS = 500
_ADMITTING_MODES = frozenset({Mode.SHADOW, Mode.HELD_CLOSED})
_NO_CHANGE = Record(Signal(count=0))
"""A message that only reads the state of a circuit."""
MAX_PENDING = 8
"""Maximum number of pending texts for the agent; the oldest are dropped."""


class Notes(NamedTuple):
    """The note of a session. Times are seconds since the epoch on the store's clock."""

    agent: str = ""
    root: str = ""
    """The project's `folder_id`."""
    host: str = ""
    """The `host_id` of the machine on which the hooks and the watcher run."""
    began_s: float | None = None
    heard_s: float | None = None
    """When the last event of the session arrived."""
    works: bool = False
    """Whether the agent is in a turn; otherwise it waits for input, and silence is not evidence."""
    ended: bool = False
    limit_s: float | None = None
    """The time limit of the session, including extensions."""
    warned: tuple[int, ...] = ()
    """The time warnings that were given, in percent of the limit."""
    pending: tuple[str, ...] = ()
    """Messages for the agent, each sent once, with the next reply that can carry a text."""
    stop: str | None = None
    """Why the agent must stop, until a new prompt or an operator resumes it."""
    untended: bool = False
    """Whether the circuit has opened and no escalation step was taken yet: the next hook takes it."""
    watcher: int | None = None
    """The id of the process on `host` that watches the session; 0: one is being started."""
    points: float = 0.0
    """The stuck score at the last trip."""
    indicators: tuple[str, ...] = ()
    """The reasons for the score."""
    tried: tuple[str, ...] = ()
    """The escalation steps taken since the last measured progress."""
    project: str = ""
    """The folder of the project."""
    task: str = ""
    """The user's task, in one line, redacted."""
    spent_micros: int | None = None
    """What the session has cost, in millionths of a dollar; `None`: unknown."""
    last_step: str = ""
    """The last tool call, in one line, redacted."""
    pid: int | None = None
    """The id of the agent's process on `host`, if known."""
    pid_began: str = ""
    """When that process started, in system ticks: distinguishes it from a later one with the same id."""
    announced: bool = False
    """Whether the user was notified of the stop."""
    opinion: str = ""
    """The name of the second opinion requested in this incident; empty: none."""
    delays: int = 0
    """The number of delays granted to second opinions since the user's last message."""
    delay_left: int = 0
    """Steps until a delayed stop is due; progress ends the delay."""
    recent: tuple[str, ...] = ()
    """The last steps as evidence for a second opinion, one redacted line each; empty if none is configured."""
    steps: tuple[Sequence[Any], ...] = ()
    """The last steps for display: time, heat afterwards, whether it succeeded, the call, the error."""
    paused: bool = False
    """Whether an operator has paused the agent: silence is not evidence then."""
    more: Mapping[str, Any] = {}
    """The open calls of the session, see `open_calls`."""

    @property
    def warned_over(self) -> bool:
        return timeouts.OVER in self.warned

    def dump(self) -> str:
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def load(cls, text: str | None) -> Self:
        """The inverse of `dump`. An unreadable text gives empty notes."""
        try:
            data = json.loads(text or "{}")
            known = {key: data[key] for key in cls._fields if key in data}
            for key in ("warned", "pending", "indicators", "tried", "recent", "steps"):
                known[key] = tuple(known.get(key, ()))
            return cls(**known)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return cls()


class AgentMessages(NamedTuple):
    texts: tuple[str, ...] = ()
    stop: str | None = None
    """Why the agent must stop; `None`: it may continue."""


def note_name(session: str) -> str:
    return f"session/{session}"


class SessionCircuit(NamedTuple):
    """The circuit of a session inside a transaction."""

    apply: Apply
    key: str
    policy: Policy

    def send(self, message: Message) -> Step:
        return self.apply(self.key, self.policy, message)

    def is_open(self) -> bool:
        return self.send(_NO_CHANGE).circuit.phase is Phase.OPEN


class State(StrEnum):
    """The state of a session, as it is displayed."""

    WORKING = "working"
    STRUGGLING = "struggling"
    """The circuit is tripping; the agent is warned."""
    TRYING_AGAIN = "trying again"
    """An escalation step was taken, and no progress has been measured since."""
    STOPPED = "stopped"
    PAUSED = "paused"
    IDLE = "idle"
    """The agent has answered and waits for the user."""
    ENDED = "ended"


def is_stopped(circuit: Circuit) -> bool:
    """Whether the circuit of a session refuses its calls."""
    refuses = circuit.phase is Phase.OPEN and circuit.mode not in _ADMITTING_MODES
    return refuses or circuit.mode is Mode.HELD_OPEN


def state_of(notes: Notes, circuit: Circuit) -> State:
    if notes.ended:
        return State.ENDED
    if is_stopped(circuit):
        return State.STOPPED
    if notes.paused:
        return State.PAUSED
    if not notes.works:
        return State.IDLE
    if notes.tried:
        return State.TRYING_AGAIN
    return State.STRUGGLING if circuit.phase is Phase.TRIPPING else State.WORKING


def has_opened(step: Step) -> bool:
    """Whether this message opened the circuit; its sender must then escalate.

    False while an operator holds the circuit closed or in shadow mode.
    """
    return step.circuit.mode not in _ADMITTING_MODES and any(
        event.after is Phase.OPEN and event.before is not Phase.OPEN for event in step.events
    )


def after_event(
    notes: Notes,
    moment: Moment,
    now_s: float,
    *,
    agent: str = "",
    root: str = "",
    host: str = "",
    limit_s: float | None = None,
    time: tuple[float, float] | None = None,
) -> Notes:
    """The notes after an event on `host`, in the project whose id is `root`.

    `limit_s` is the time limit of a session that has none yet. `time` takes precedence: the start and the
    time limit of the run that the session is part of.
    """
    began_s = now_s if notes.began_s is None else notes.began_s
    if time is not None and notes.limit_s is None:
        began_s, limit_s = time
    rests = moment in {Moment.STOP, Moment.SESSION_END, Moment.SESSION_START}
    works = notes.works if moment is Moment.OTHER else not rests
    moved = bool(notes.watcher) and notes.host not in {"", host}
    return notes._replace(
        agent=agent or notes.agent,
        root=root,
        host=host,
        began_s=began_s,
        heard_s=now_s,
        works=works,
        ended=moment is Moment.SESSION_END,
        limit_s=limit_s if notes.limit_s is None else notes.limit_s,
        paused=False,
        watcher=None if moved else notes.watcher,
    )


WATCHED_VARIABLE = "SWITCHGEAR_WATCHED"
"""Set by a run that handles stuck agents itself."""
TIME_VARIABLE = "SWITCHGEAR_TIME"
"""Set by a run for the hooks of its agents: when the run started, and its time limit in seconds."""


def time_of_run(environ: Mapping[str, str]) -> tuple[float, float] | None:
    """The start and the time limit of the run that this process belongs to; `None`: no run, or no limit.

    >>> time_of_run({"SWITCHGEAR_TIME": "1800000000 600"})
    (1800000000.0, 600.0)
    """
    try:
        began_s, limit_s = map(float, environ.get(TIME_VARIABLE, "").split())
    except ValueError:
        return None
    return (began_s, limit_s) if limit_s > 0 else None


def needs_watcher(notes: Notes, moment: Moment) -> bool:
    """Whether to start a watcher: the session never had one, or its watcher has ended and a turn begins."""
    if moment in {Moment.STOP, Moment.SESSION_END}:
        return False
    if notes.watcher is None:
        return True
    return moment in {Moment.SESSION_START, Moment.PROMPT} and not is_watched(notes)


def is_watched(notes: Notes) -> bool:
    """Whether the session has a watcher: then no other process records its silence.

    A watcher on another host cannot be checked, and is assumed to run.
    """
    return bool(notes.watcher) and (notes.host != host_id() or process_exists(notes.watcher or 0))


def silence_s(notes: Notes, now_s: float) -> float:
    """Seconds since the agent's last event in this turn; 0 while it waits for input or a tool runs.

    A tool counts as running until its result is recorded or its lease expires.
    """
    running = any(call.until_s > now_s for call in open_calls.load(notes.more).calls)
    if notes.heard_s is None or notes.ended or notes.paused or not notes.works or running:
        return 0.0
    return max(0.0, now_s - notes.heard_s)


def with_message(notes: Notes, text: str) -> Notes:
    return notes._replace(pending=(*notes.pending, text)[-MAX_PENDING:])


MAX_STEPS, MAX_STEP_CHARS = 30, 80


def with_step(notes: Notes, signal: Signal, heat: float, now_s: float) -> Notes:
    """The notes with one more step of the agent. `signal.error` must be redacted."""
    error = (signal.error or "")[:MAX_STEP_CHARS]
    call = notes.last_step[:MAX_STEP_CHARS]
    row = (round(now_s, 1), round(min(heat, 1.0), 3), signal.ok, call, error)
    return notes._replace(steps=(*notes.steps, row)[-MAX_STEPS:])


def save_circuit(circuit: SessionCircuit, earlier: Notes, notes: Notes) -> None:
    """Save the circuit of a new session, so that it is listed and can be stopped during its first step."""
    begins_turn = notes.works and not earlier.works
    if begins_turn and not circuit.send(_NO_CHANGE).circuit.version:
        circuit.send(Record(Signal(idle_s=0.0)))


def after_user_message(circuit: SessionCircuit, notes: Notes) -> Notes:
    """The notes after a message of the user: a stopped session starts over, unless its time is over.

    Nothing that the agent does has this effect.
    """
    if notes.warned_over:
        return notes
    if circuit.is_open():
        why = "the user wrote a message"
        circuit.send(Override("user", why, reset=True, kind=EventKind.INTERVENED))
    notes = notes._replace(opinion="", delays=0, delay_left=0)
    return notes._replace(stop=None, untended=False, announced=False)


def after_release(circuit: SessionCircuit, notes: Notes) -> Notes:
    """The notes without their stop and due escalation step, if an operator has reset the circuit since.

    A circuit whose policy lets it close by itself does not count as released.
    """
    if (notes.stop is None and not notes.untended) or notes.warned_over:
        return notes
    if not isinstance(circuit.policy.recovery, Latched) or circuit.is_open():
        return notes
    return notes._replace(stop=None, untended=False, announced=False)


def open_if_stopped(circuit: SessionCircuit, notes: Notes) -> None:
    """Open the circuit of a session that was stopped for another reason, such as its time limit."""
    if notes.stop is not None and not circuit.is_open():
        why = texts.one_line(
            notes.stop.removeprefix(texts.TEXT_PREFIX).removesuffix(texts.TAMPERING_END),
            MAX_REASON_CHARS,
        )
        circuit.send(Record(Signal(violation=why)))


def after_trip(notes: Notes, score: Score) -> Notes:
    """The notes after the session's circuit has opened: an escalation step is due, and the next hook takes it."""
    return notes._replace(untended=True, points=score.points, indicators=score.evidence)


def take_escalation_step(
    circuit: SessionCircuit, notes: Notes, plan: Interventions
) -> tuple[Notes, escalation.StepTaken]:
    """Take the next escalation step for the score in the notes.

    A nudge lets the agent continue; every other step leaves the circuit open. After the transaction, the
    caller starts the escalation agent: see `after_reply.start_escalation_agent`.
    """
    return take_step(circuit, notes, plan, escalation.next_step_name(plan.step_names, notes.tried))


def take_step(
    circuit: SessionCircuit,
    notes: Notes,
    plan: Interventions,
    step_name: str,
    *,
    by: str = "switchgear",
    reason_given: str = "",
) -> tuple[Notes, escalation.StepTaken]:
    """Take an escalation step: record an event, close or open the circuit, and add the texts for the agent.

    `by` requested the step, for the reason `reason_given` if there is one.
    """
    requested = f"requested by {by}" + (f": {reason_given}" if reason_given else "")
    if step_name == escalation.NUDGE:
        requested = f'hint "{texts.one_line(plan.hint)}", {requested}'
    why = "; ".join(notes.indicators) or requested
    taken = escalation.StepTaken(step_name, notes.tried)
    continues = step_name == escalation.NUDGE
    circuit.send(Override(by, f"{step_name}: {why}", reset=continues, kind=EventKind.INTERVENED))
    if not continues and not circuit.is_open():
        label = texts.GIVEN_UP_PREFIX if step_name == escalation.SKIP else step_name
        reason = f"{step_name} by {by}: {why}" if notes.indicators else f"{label}, {requested}"
        circuit.send(Record(Signal(violation=reason)))
    tried = notes.tried if step_name in notes.tried else (*notes.tried, step_name)
    task = circuit.key.removeprefix(note_name(""))
    evidence = texts.Stuck(notes.agent or "agent", task, notes.points, notes.indicators)
    notes = notes._replace(tried=tried, untended=False)
    if continues:
        return with_message(notes._replace(stop=None), texts.nudge(evidence, plan.hint)), taken
    if step_name == escalation.SKIP:
        consequence = "The task is given up as blocked."
    else:
        notes = with_message(notes, texts.fresh_start(evidence, (*taken.tried, step_name)))
        helper = plan.helper[:1].upper() + plan.helper[1:]
        starts_over = step_name == escalation.RESET
        consequence = "It must start over." if starts_over else f"{helper} takes over."
    return notes._replace(stop=texts.stopped(evidence, consequence)), taken


def after_progress(notes: Notes) -> Notes:
    """The notes after measured progress: the next escalation begins with its first step."""
    return notes._replace(tried=()) if notes.tried and notes.stop is None else notes


def take_messages(notes: Notes, now_s: float) -> tuple[Notes, AgentMessages]:
    """Remove the pending messages from the notes, and return both; `stop` is repeated while it applies."""
    notes, warning = _due_time_warning(notes, now_s)
    warnings = (warning,) if warning else ()
    if notes.stop is not None:  # pending messages wait for the next prompt
        return notes, AgentMessages(warnings, notes.stop)
    return notes._replace(pending=()), AgentMessages((*notes.pending, *warnings))


def _due_time_warning(notes: Notes, now_s: float) -> tuple[Notes, str | None]:
    limit_s, began_s = notes.limit_s, notes.began_s
    if limit_s is None or began_s is None:
        return notes, None
    mark = timeouts.due(now_s - began_s, limit_s, notes.warned)
    if mark is None:
        return notes, None
    notes = notes._replace(warned=timeouts.with_given(notes.warned, mark.percent))
    if mark.percent == timeouts.OVER:
        return notes._replace(stop=texts.time_over(limit_s)), None
    return notes, texts.time_warning(mark.percent, mark.left_s, limit_s)


def stopped_if_over(notes: Notes, now_s: float) -> Notes:
    """The notes, with a stop if the time is over; time warnings are left to the agent's next hook."""
    limit_s, began_s = notes.limit_s, notes.began_s
    if limit_s is None or began_s is None or now_s - began_s < limit_s:
        return notes
    return _due_time_warning(notes, now_s)[0]


def with_more_time(notes: Notes, seconds: float, now_s: float) -> Notes:
    """The notes with a later time limit; warnings that become due again are given again."""
    if notes.limit_s is None or notes.began_s is None:
        return notes
    limit_s, used_s = notes.limit_s + seconds, now_s - notes.began_s
    still = timeouts.still_given(used_s, limit_s, notes.warned)
    was_over = notes.warned_over and timeouts.OVER not in still
    return notes._replace(limit_s=limit_s, warned=still, stop=None if was_over else notes.stop)
