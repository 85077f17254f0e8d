"""What is known of a guarded session beside its circuits: a note in the store, one per session.

Read and changed inside `Store.transact(note_name(session), …)`, so parallel hooks of one session
lose nothing and each warning is given once, whichever process gives it. Everything here is pure:
a value in, a value out. The hook engine calls, in this order and in one transaction,

    notes = Notes.load(tx.note)
    notes = attend(notes, moment, now_s, …)         # every hook call, before anything is asked
    notes, taken = stuck(tx.apply, notes, …)        # when `has_opened(step)` of the session
    notes = progressed(tx.apply, notes, …)          # when files were measured to have changed
    notes, words = deliver(notes, now_s)            # when the answer can carry a text
    tx.note = notes.dump()

`words.texts` go to the agent, once; `words.stop` ends its turn. After the transaction it starts
the watcher where `needs_watcher(notes, moment)`, and the help where `taken.rung` is `escalate`
(see `errands`). The watcher reads the same note to know whether the agent is silent, see `silent_s`.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from switchgear import ladder, timeouts
from switchgear.core.score import Score
from switchgear.core.types import Mode, Phase, Step
from switchgear.hooks import open_calls, texts
from switchgear.hooks.facts import Moment
from switchgear.hooks.whereabouts import here, lives
from switchgear.ladder import Apply, Interventions

_GOES_ON = frozenset({Mode.SHADOW, Mode.HELD_CLOSED})
MOST_PENDING = 8
"""Texts that wait for the agent; of more the oldest are let go."""


class Notes(NamedTuple):
    """A session. Times are seconds since the epoch on the store's clock."""

    agent: str = ""
    root: str = ""
    """Its project, as `whereabouts.folder_mark` tells it from all others."""
    host: str = ""
    """Where its hooks run, and so its watcher: see `whereabouts.here`."""
    began_s: float | None = None
    heard_s: float | None = None
    """When a hook of it was last called."""
    works: bool = False
    """Whether the agent is in a turn; else it waits for somebody, and its silence is no sign."""
    ended: bool = False
    limit_s: float | None = None
    """How long the session may take, with all that was granted."""
    warned: tuple[int, ...] = ()
    """The marks of its time, in percent, that were given."""
    pending: tuple[str, ...] = ()
    """What the agent is to be told, once, as soon as it can be."""
    stop: str | None = None
    """Why the agent must not go on; until a new prompt or an operator says otherwise."""
    untended: bool = False
    """Whether its circuit was opened by who only looks on: the next hook takes the rung."""
    incident: bool = False
    """Whether rungs of the ladder were taken since the last progress."""
    watcher: int | None = None
    """The process on its host that watches it; 0: one is being started."""
    points: float = 0.0
    """The stuck score at the last trip."""
    indicators: tuple[str, ...] = ()
    """What it was made of."""
    more: Mapping[str, Any] = {}
    """What the hook engine keeps beside, as JSON values."""

    def dump(self) -> str:
        """As JSON."""
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def load(cls, text: str | None) -> Self:
        """The inverse of `dump`; what cannot be read is a session of which nothing is known."""
        try:
            data = json.loads(text or "{}")
            known = {key: data[key] for key in cls._fields if key in data}
            for key in ("warned", "pending", "indicators"):
                known[key] = tuple(known.get(key, ()))
            return cls(**known)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return cls()


class Words(NamedTuple):
    """What a hook has to say now."""

    texts: tuple[str, ...] = ()
    stop: str | None = None


def note_name(session: str) -> str:
    """The name of a session's note, for `Store.transact`."""
    return f"session/{session}"


def progress_name(circuit: str) -> str:
    """The circuit of the progress ledger beside an agent's circuit.

    It has a family of its own, so that a policy for `session/*` stays what it is.

    >>> progress_name("session/7f3a/agent/b")
    'progress/7f3a/agent/b'
    """
    return f"progress/{circuit.removeprefix(note_name(''))}"


def has_opened(step: Step) -> bool:
    """Whether this very message opened the circuit: so whoever sent it must see to it.

    Not in a mode in which an operator lets it go on: then nobody is to step in.
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
    stopped, untended = notes.stop, notes.untended
    if moment is Moment.PROMPT and timeouts.OVER not in notes.warned:
        stopped, untended = None, False  # somebody has looked, and wants it to go on
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
        stop=stopped,
        untended=untended,
        watcher=None if moved else notes.watcher,
    )


WATCHED = "SWITCHGEAR_WATCHED"
"""The variable by which a run says that it steps in itself when its agent is stuck."""
TIME = "SWITCHGEAR_TIME"
"""The variable by which a run tells the hooks of its agents its time: when it began, and how long
it may take, in seconds."""


def time_told(environ: Mapping[str, str]) -> tuple[float, float] | None:
    """The time of the run that this is part of; `None`: of none, or it has no limit.

    >>> time_told({"SWITCHGEAR_TIME": "1800000000 600"})
    (1800000000.0, 600.0)
    """
    try:
        began_s, limit_s = map(float, environ.get(TIME, "").split())
    except ValueError:
        return None
    return (began_s, limit_s) if limit_s > 0 else None


def needs_watcher(notes: Notes, moment: Moment) -> bool:
    """Whether somebody should start a watcher: none was, or the last is gone when work begins."""
    if moment in {Moment.STOP, Moment.SESSION_END}:
        return False
    if notes.watcher is None:
        return True
    return moment in {Moment.SESSION_START, Moment.PROMPT} and not is_watched(notes)


def is_watched(notes: Notes) -> bool:
    """Whether a watcher of its own is at work: then nobody else tells its silence.

    One on another host cannot be asked for, and is believed to be.
    """
    return bool(notes.watcher) and (notes.host != here() or lives(notes.watcher or 0))


def silent_s(notes: Notes, now_s: float) -> float:
    """How long the agent has been silent in its turn; 0 while it waits or a tool is running.

    A tool runs until its end is told, or its lease is over: then the end was lost.
    """
    running = any(call.until_s > now_s for call in open_calls.load(notes.more).calls)
    if notes.heard_s is None or notes.ended or not notes.works or running:
        return 0.0
    return max(0.0, now_s - notes.heard_s)


def remind(notes: Notes, text: str) -> Notes:
    """The notes with one more text for the agent."""
    return notes._replace(pending=(*notes.pending, text)[-MOST_PENDING:])


def stuck(
    apply: Apply, notes: Notes, subject: str, score: Score, plan: Interventions
) -> tuple[Notes, ladder.Climb]:
    """Take the next rung of the ladder: the session's circuit has just opened.

    `subject` is the circuit's name. A nudge waits for the agent; every other rung ends its turn,
    and what takes over is told what was tried. To escalate is up to the caller, after the
    transaction: see `hooks.escalation`.
    """
    return take_rung(apply, left_to_hooks(notes, score), subject, plan)


def left_to_hooks(notes: Notes, score: Score) -> Notes:
    """The session's circuit has just opened, and its next hook is to take the rung."""
    return notes._replace(untended=True, points=score.points, indicators=score.evidence)


def take_rung(
    apply: Apply, notes: Notes, subject: str, plan: Interventions
) -> tuple[Notes, ladder.Climb]:
    """Take the next rung for what the notes hold against the session."""
    task = subject.removeprefix(note_name(""))
    seen = texts.Stuck(notes.agent or "agent", task, notes.points, notes.indicators)
    why = "; ".join(notes.indicators) or f"score {notes.points:g}"
    taken = ladder.climb(apply, subject, plan.rungs, why)
    return after_rung(notes._replace(incident=True), taken, seen, plan), taken


def after_rung(notes: Notes, taken: ladder.Climb, seen: texts.Stuck, plan: Interventions) -> Notes:
    """What a rung means to a session."""
    notes = notes._replace(untended=False)
    if taken.rung == ladder.NUDGE:
        return remind(notes, texts.nudge(seen, plan.hint))
    if taken.rung == ladder.SKIP:
        return notes._replace(stop=f"{texts.agent_stuck(seen)}\n\nThe task is given up as blocked.")
    tried = (*taken.tried, taken.rung)
    fresh = remind(notes, texts.fresh_start(seen, tried))
    what = "it must begin afresh" if taken.rung == ladder.RESET else f"{plan.helper} takes over"
    return fresh._replace(stop=f"{texts.agent_stuck(seen)}\n\nThe agent is stopped: {what}.")


def progressed(apply: Apply, notes: Notes, subject: str, plan: Interventions) -> Notes:
    """Progress was measured: the incident is over, if there was one."""
    if not notes.incident:
        return notes
    ladder.progressed(apply, subject, plan.rungs)
    return notes._replace(incident=False)


def deliver(notes: Notes, now_s: float) -> tuple[Notes, Words]:
    """What the agent is told now, once; `stop` is told as long as it holds."""
    notes, warning = _time(notes, now_s)
    waiting = notes.pending if notes.stop is None else ()  # a fresh start is for who begins it
    said = (*waiting, warning) if warning else waiting
    notes = notes._replace(pending=() if notes.stop is None else notes.pending)
    return notes, Words(said, notes.stop)


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
    """The notes, stopped if the time is over; warnings are left for the agent's next hook."""
    limit_s, began_s = notes.limit_s, notes.began_s
    if limit_s is None or began_s is None or now_s - began_s < limit_s:
        return notes
    return _time(notes, now_s)[0]


def extended(notes: Notes, seconds: float, now_s: float) -> Notes:
    """The notes with more time: marks that lie ahead again will be given again, others not."""
    if notes.limit_s is None or notes.began_s is None:
        return notes
    limit_s, used_s = notes.limit_s + seconds, now_s - notes.began_s
    still = timeouts.still_given(used_s, limit_s, notes.warned)
    over = timeouts.OVER in notes.warned and timeouts.OVER not in still
    return notes._replace(limit_s=limit_s, warned=still, stop=None if over else notes.stop)
