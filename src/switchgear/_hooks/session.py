"""The state of a guarded session beside its circuits: a note in the store, one per session.

Read and changed inside `Store.transact(note_name(session), …)`, so parallel hooks of one session
lose nothing and each warning is given once, whichever process gives it. Everything here is pure:
a value in, a value out. The hook engine calls, in this order and in one transaction,

    notes = Notes.load(tx.note)
    notes = attend(notes, moment, now_s, …)         # every hook call, before anything is checked
    notes = user_message(circuit, notes)             # when the user wrote a message
    notes = left_to_hooks(notes, score)             # when `has_opened(step)` of the session
    notes, taken = take_escalation_step(circuit, notes, …)
    notes = progressed(notes)                       # when files were measured to have changed
    notes, words = deliver(notes, now_s)            # when the answer can carry a text
    tx.note = notes.dump()

The session's circuit decides whether it is stopped: while the circuit is open, the agent
must not continue. The note adds the text for the agent, and what was tried.

`words.texts` go to the agent, once; `words.stop` ends its turn. After the transaction it starts
the watcher where `needs_watcher(notes, moment)`, and the escalation agent where `taken.step_name` is `escalate`
(see `after_reply`). The watcher reads the same note to know whether the agent is silent, see `silent_s`.
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

_BOOT = "/proc/sys/kernel/random/boot_id"
_NUMBERS = "/proc/self/ns/pid"


def here() -> str:
    """Identifies the machine and the process namespace in which process ids are valid."""
    try:
        return f"{_machine()} {os.readlink(_NUMBERS)}"
    except OSError:
        return _machine()


def lives(pid: int) -> bool:
    """Whether a process of this user has this id on this machine."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return pid > 0


def folder_mark(path: str) -> str:
    """Identifies a folder, whatever its name and container; empty: it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{_machine()} {found.st_dev}:{found.st_ino}"


def _machine() -> str:
    """Identifies the machine since its last start."""
    try:
        return read_regular(_BOOT, 64).decode(errors="replace").strip()
    except OSError:
        return os.uname().nodename


LONGEST_REASON = 500
_GOES_ON = frozenset({Mode.SHADOW, Mode.HELD_CLOSED})
_LOOK = Record(Signal(count=0))
MOST_PENDING = 8
"""Maximum number of pending texts for the agent; the oldest are dropped."""


class Notes(NamedTuple):
    """A session. Times are seconds since the epoch on the store's clock."""

    agent: str = ""
    root: str = ""
    """Its project, identified by `folder_mark`."""
    host: str = ""
    """Where its hooks run, and so its watcher: see `here`."""
    began_s: float | None = None
    heard_s: float | None = None
    """When a hook of it was last called."""
    works: bool = False
    """Whether the agent is in a turn; else it waits for input, and its silence is no evidence."""
    ended: bool = False
    limit_s: float | None = None
    """The time limit of the session, including extensions."""
    warned: tuple[int, ...] = ()
    """The time warnings that were given, in percent of the limit."""
    pending: tuple[str, ...] = ()
    """A message for the agent, sent once, at the next opportunity."""
    stop: str | None = None
    """Why the agent must stop; until a new prompt or an operator resumes it."""
    untended: bool = False
    """Whether a watcher opened its circuit: the next hook takes the escalation step."""
    watcher: int | None = None
    """The process on its host that watches it; 0: one is being started."""
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
    """What the session has cost, in millionths of a dollar; `None`: not known."""
    last_step: str = ""
    """The last tool call, in one line, redacted."""
    pid: int | None = None
    """The agent's process on its host, where that is known."""
    pid_began: str = ""
    """When that process started, in system ticks: distinguishes it from a later one with the same id."""
    announced: bool = False
    """Whether the stop was notified."""
    opinion: str = ""
    """The name of the second opinion that was requested in this incident; empty: none."""
    delays: int = 0
    """Delays that second opinions were granted since the user's last message."""
    delay_left: int = 0
    """Steps until a delayed stop is due; progress ends the delay."""
    recent: tuple[str, ...] = ()
    """The last steps, one redacted line each, where a second opinion is configured."""
    steps: tuple[Sequence[Any], ...] = ()
    """The last steps for people: time, heat after it, whether it succeeded, the call, the error."""
    paused: bool = False
    """Whether an operator has paused the agent: its silence is no sign then."""
    more: Mapping[str, Any] = {}
    """The open calls of the session, see `open_calls`."""

    @property
    def warned_over(self) -> bool:
        return timeouts.OVER in self.warned

    def dump(self) -> str:
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def load(cls, text: str | None) -> Self:
        """The inverse of `dump`. A text that cannot be read gives empty notes."""
        try:
            data = json.loads(text or "{}")
            known = {key: data[key] for key in cls._fields if key in data}
            for key in ("warned", "pending", "indicators", "tried", "recent", "steps"):
                known[key] = tuple(known.get(key, ()))
            return cls(**known)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return cls()


class Words(NamedTuple):
    texts: tuple[str, ...] = ()
    stop: str | None = None


def note_name(session: str) -> str:
    return f"session/{session}"


class SessionCircuit(NamedTuple):
    apply: Apply
    key: str
    policy: Policy

    def send(self, message: Message) -> Step:
        return self.apply(self.key, self.policy, message)

    def is_open(self) -> bool:
        return self.send(_LOOK).circuit.phase is Phase.OPEN


class State(StrEnum):
    """The state of a session, in the words that people see."""

    WORKING = "working"
    STRUGGLING = "struggling"
    """The evidence against it grows; the agent is warned."""
    TRYING_AGAIN = "trying again"
    """An escalation step was taken, and no progress was measured since."""
    STOPPED = "stopped"
    PAUSED = "paused"
    IDLE = "idle"
    """The agent has answered and waits for the user."""
    ENDED = "ended"


def is_stopped(circuit: Circuit) -> bool:
    """Whether the circuit of a session refuses its calls."""
    refuses = circuit.phase is Phase.OPEN and circuit.mode not in _GOES_ON
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
    """Whether this message opened the circuit: its sender must handle it.

    Not while an operator lets it continue.
    """
    return step.circuit.mode not in _GOES_ON and any(
        event.after is Phase.OPEN and event.before is not Phase.OPEN for event in step.events
    )


def attend(
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
    """The notes after a hook call on `host`, in the project `root`.

    `limit_s` is what the session may take, where the notes have no limit yet; `time`, which beats
    it, when a run began that the session is part of, and what that may take.
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


WATCHED = "SWITCHGEAR_WATCHED"
"""The variable by which a run declares that it handles a stuck agent itself."""
TIME = "SWITCHGEAR_TIME"
"""The variable by which a run passes its time to the hooks of its agents: when it started, and how long
it may take, in seconds."""


def time_of_run(environ: Mapping[str, str]) -> tuple[float, float] | None:
    """The time of the run that this is part of; `None`: of none, or it has no limit.

    >>> time_of_run({"SWITCHGEAR_TIME": "1800000000 600"})
    (1800000000.0, 600.0)
    """
    try:
        began_s, limit_s = map(float, environ.get(TIME, "").split())
    except ValueError:
        return None
    return (began_s, limit_s) if limit_s > 0 else None


def needs_watcher(notes: Notes, moment: Moment) -> bool:
    """Whether to start a watcher: there was none, or the last one has ended when work starts."""
    if moment in {Moment.STOP, Moment.SESSION_END}:
        return False
    if notes.watcher is None:
        return True
    return moment in {Moment.SESSION_START, Moment.PROMPT} and not is_watched(notes)


def is_watched(notes: Notes) -> bool:
    """Whether it has a watcher: then no other process records its silence.

    One on another host cannot be asked for, and is believed to be.
    """
    return bool(notes.watcher) and (notes.host != here() or lives(notes.watcher or 0))


def silent_s(notes: Notes, now_s: float) -> float:
    """How long the agent has been silent in its turn; 0 while it waits or a tool is running.

    A tool runs until its result is recorded or its lease is over: then the result was lost.
    """
    running = any(call.until_s > now_s for call in open_calls.load(notes.more).calls)
    if notes.heard_s is None or notes.ended or notes.paused or not notes.works or running:
        return 0.0
    return max(0.0, now_s - notes.heard_s)


def remind(notes: Notes, text: str) -> Notes:
    return notes._replace(pending=(*notes.pending, text)[-MOST_PENDING:])


MOST_STEPS, LONGEST_STEP = 30, 80


def with_step(notes: Notes, signal: Signal, heat: float, now_s: float) -> Notes:
    """The notes with one more step of the agent. Texts must be redacted."""
    error = (signal.error or "")[:LONGEST_STEP]
    call = notes.last_step[:LONGEST_STEP]
    row = (round(now_s, 1), round(min(heat, 1.0), 3), signal.ok, call, error)
    return notes._replace(steps=(*notes.steps, row)[-MOST_STEPS:])


def save_circuit(circuit: SessionCircuit, earlier: Notes, notes: Notes) -> None:
    """Save the circuit of a new session: it is listed, and can be stopped, before its first step ends."""
    begins = notes.works and not earlier.works
    if begins and not circuit.send(_LOOK).circuit.version:
        circuit.send(Record(Signal(idle_s=0.0)))


def user_message(circuit: SessionCircuit, notes: Notes) -> Notes:
    """The user wrote a message: a stopped session starts over, unless its time is over.

    Only the user's own message does that; nothing that the agent does.
    """
    if notes.warned_over:
        return notes
    if circuit.is_open():
        why = "the user wrote a message"
        circuit.send(Override("user", why, reset=True, kind=EventKind.INTERVENED))
    notes = notes._replace(opinion="", delays=0, delay_left=0)
    return notes._replace(stop=None, untended=False, announced=False)


def released(circuit: SessionCircuit, notes: Notes) -> Notes:
    """The notes without a stop or a due step that no longer holds: an operator has reset the circuit since.

    Where the policy lets a circuit close by itself, that is no release.
    """
    if (notes.stop is None and not notes.untended) or notes.warned_over:
        return notes
    if not isinstance(circuit.policy.recovery, Latched) or circuit.is_open():
        return notes
    return notes._replace(stop=None, untended=False, announced=False)


def open_if_stopped(circuit: SessionCircuit, notes: Notes) -> None:
    """Open the circuit of a session that is stopped for another reason, such as its time limit."""
    if notes.stop is not None and not circuit.is_open():
        why = texts.one_line(
            notes.stop.removeprefix(texts.SAID).removesuffix(texts.UNTIL), LONGEST_REASON
        )
        circuit.send(Record(Signal(violation=why)))


def left_to_hooks(notes: Notes, score: Score) -> Notes:
    """The notes of a session whose circuit has just opened: its next hook takes the escalation step."""
    return notes._replace(untended=True, points=score.points, indicators=score.evidence)


def take_escalation_step(
    circuit: SessionCircuit, notes: Notes, plan: Interventions
) -> tuple[Notes, escalation.StepTaken]:
    """Take the next escalation step for the score in the notes.

    A nudge lets the agent go on; every other step leaves the circuit open. The caller starts the
    escalation agent, after the transaction: see `after_reply.start_help`.
    """
    return step_in(circuit, notes, plan, escalation.next_step_name(plan.step_names, notes.tried))


def step_in(
    circuit: SessionCircuit,
    notes: Notes,
    plan: Interventions,
    step_name: str,
    *,
    by: str = "switchgear",
    reason_given: str = "",
) -> tuple[Notes, escalation.StepTaken]:
    """Take this escalation step: an event, the circuit closed or open, the texts for the agent.

    `reason_given` is the reason of the person `by`, where one requested the step.
    """
    requested = f"requested by {by}" + (f": {reason_given}" if reason_given else "")
    if step_name == escalation.NUDGE:
        requested = f'hint "{texts.one_line(plan.hint)}", {requested}'
    why = "; ".join(notes.indicators) or requested
    taken = escalation.StepTaken(step_name, notes.tried)
    goes_on = step_name == escalation.NUDGE
    circuit.send(Override(by, f"{step_name}: {why}", reset=goes_on, kind=EventKind.INTERVENED))
    if not goes_on and not circuit.is_open():
        word = texts.GIVEN_UP if step_name == escalation.SKIP else step_name
        reason = f"{step_name} by {by}: {why}" if notes.indicators else f"{word}, {requested}"
        circuit.send(Record(Signal(violation=reason)))
    tried = notes.tried if step_name in notes.tried else (*notes.tried, step_name)
    task = circuit.key.removeprefix(note_name(""))
    seen = texts.Stuck(notes.agent or "agent", task, notes.points, notes.indicators)
    notes = notes._replace(tried=tried, untended=False)
    if goes_on:
        return remind(notes._replace(stop=None), texts.nudge(seen, plan.hint)), taken
    if step_name == escalation.SKIP:
        what = "The task is given up as blocked."
    else:
        notes = remind(notes, texts.fresh_start(seen, (*taken.tried, step_name)))
        who = plan.helper[:1].upper() + plan.helper[1:]
        what = "It must start over." if step_name == escalation.RESET else f"{who} takes over."
    return notes._replace(stop=texts.stopped(seen, what)), taken


def progressed(notes: Notes) -> Notes:
    """The notes after measured progress: the escalation starts with its first step again."""
    return notes._replace(tried=()) if notes.tried and notes.stop is None else notes


def deliver(notes: Notes, now_s: float) -> tuple[Notes, Words]:
    """The messages for the agent, each once; `stop` is repeated while it applies."""
    notes, warning = _time(notes, now_s)
    warnings = (warning,) if warning else ()
    if notes.stop is not None:  # only a new prompt starts over
        return notes, Words(warnings, notes.stop)
    return notes._replace(pending=()), Words((*notes.pending, *warnings))


def _time(notes: Notes, now_s: float) -> tuple[Notes, str | None]:
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


def over(notes: Notes, now_s: float) -> Notes:
    """The notes, stopped if the time is over; warnings are left to the agent's next hook."""
    limit_s, began_s = notes.limit_s, notes.began_s
    if limit_s is None or began_s is None or now_s - began_s < limit_s:
        return notes
    return _time(notes, now_s)[0]


def extended(notes: Notes, seconds: float, now_s: float) -> Notes:
    """The notes with more time; warnings that are due again will be given again."""
    if notes.limit_s is None or notes.began_s is None:
        return notes
    limit_s, used_s = notes.limit_s + seconds, now_s - notes.began_s
    still = timeouts.still_given(used_s, limit_s, notes.warned)
    over = notes.warned_over and timeouts.OVER not in still
    return notes._replace(limit_s=limit_s, warned=still, stop=None if over else notes.stop)
