"""The tools of the MCP server: texts about sessions and circuits, read from the store.

No tool changes a circuit. An agent can only make a request, which a person answers. The texts come from
agents and tools, so they are redacted when they are saved and cleaned again here.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from switchgear._breaker.views import View
from switchgear._console.requests import (
    OPEN,
    AgentRequest,
    RequestRefused,
    add_request,
    all_requests,
)
from switchgear._console.sessions import PREFIX, SessionRow, notes_of, session_rows
from switchgear._core.errors import SwitchgearError
from switchgear._core.types import Event, EventKind, Mode, Phase
from switchgear._panel.panel import Panel
from switchgear._stuck.messages import one_line
from switchgear._text.formats import duration

P = ParamSpec("P")
_MOST_LINES = 10
_NEWEST_EVENTS = 400
ONLY_A_PERSON = "Only a person can change this. Do not try to get around it."


def _never_raises(tool: Callable[P, str]) -> Callable[P, str]:
    """The tool, which returns an error of the store as a sentence instead of raising it."""

    @wraps(tool)
    def answer(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return tool(*args, **kwargs)
        except SwitchgearError as error:
            return f"cannot be read now: {_safe(str(error))}"

    return answer


class GuardAnswers:
    """The tools over one store, for the sessions of the project `root`. Used by one thread."""

    def __init__(self, panel: Panel, root: str) -> None:
        self._panel = panel
        self._root = root

    @_never_raises
    def why_refused(self, session: str = "") -> str:
        """Return why tool calls are refused now: the session's state, open circuits, broken rules.

        session: the session id; empty: the session of this project that was active last.
        """
        row = self._session(session)
        if session and row is None:
            return f"No session {_safe(session)!r} is known."
        lines = [] if row is None else [_session_state(row)]
        lines += [_refusing(view) for view in self._refusing(row)]
        broken = self._events(row, {EventKind.RULE_BROKEN, EventKind.UNDECIDED})
        lines += [
            f"refused {_ago(event, self._now_s())}: {_safe(_event_text(event))}" for event in broken
        ]
        if len(lines) == (row is not None):
            lines.append("Nothing refuses calls now.")
        return "\n".join([*lines, ONLY_A_PERSON])

    @_never_raises
    def what_was_tried(self, session: str = "") -> str:
        """Return what was tried in a session: evidence, escalation steps, last steps and failures.

        session: the session id; empty: the session of this project that was active last.
        """
        row = self._session(session)
        if row is None:
            return "No session of this project is known."
        notes = notes_of(self._panel, f"{PREFIX}{row.id}")
        lines = [_session_state(row)]
        lines += [f"evidence: {_safe(each)}" for each in notes.indicators[:_MOST_LINES]]
        if notes.tried:
            lines.append(f"escalation steps so far: {', '.join(map(_safe, notes.tried))}")
        lines += [f"step: {_safe(each)}" for each in notes.recent]
        view = self._panel.view(f"{PREFIX}{row.id}")
        failures = () if view is None else view.circuit.failures[-5:]
        lines += [f"failure: {_safe(each.error or 'no reason given')}" for each in failures]
        events = self._events(row, {EventKind.INTERVENED, EventKind.SECOND_OPINION})
        lines += [f"{_ago(event, self._now_s())}: {_safe(_event_text(event))}" for event in events]
        if len(lines) == 1:
            lines.append("Nothing was tried yet.")
        return "\n".join(lines)

    @_never_raises
    def request_more(self, kind: str, amount: float, reason: str, session: str = "") -> str:
        """Request more time or money from a person, with a reason. Nothing is granted by itself.

        kind: "time" (amount in seconds) or "money" (amount in dollars).
        """
        row = self._session(session)
        try:
            made = add_request(
                self._panel.store.transact, "" if row is None else row.id, kind, amount, reason
            )
        except RequestRefused as refused:
            return f"not recorded: {refused}"
        return (
            f"request {made.id} for {made.wish} waits for a person, who answers with "
            f"`switchgear requests answer {made.id}`. Nothing is granted until then: continue within "
            "your limits, or stop and tell the user."
        )

    @_never_raises
    def request_status(self, request_id: str = "") -> str:
        """Show requests and their answers. request_id: only this one."""
        rows = [
            row for row in all_requests(self._panel.store.transact) if request_id in {"", row.id}
        ]
        return "\n".join(map(request_line, rows[-_MOST_LINES:])) or "There is no such request."

    def _session(self, session: str) -> SessionRow | None:
        """The named session; else the most recent one of this project."""
        rows = session_rows(self._panel, everything=True)
        if session:
            return next((row for row in rows if row.id == session.removeprefix(PREFIX)), None)
        here = [row for row in rows if row.project == self._root and row.state != "ended"]
        return max(here, key=lambda row: row.heard_s, default=None)

    def _refusing(self, row: SessionRow | None) -> list[View]:
        """The circuits that refuse calls now, without those of other sessions."""
        own = None if row is None else f"{PREFIX}{row.id}"
        found = []
        for view in self._panel.circuits():
            other = view.name.startswith(PREFIX) and not (own and view.name.startswith(f"{own}/"))
            held = view.circuit.mode is Mode.HELD_OPEN
            if view.name != own and not other and (view.verdict.phase is Phase.OPEN or held):
                found.append(view)
        return found[:_MOST_LINES]

    def _events(self, row: SessionRow | None, kinds: set[EventKind]) -> list[Event]:
        """The latest events of these kinds: of the session's circuit, or which name the session."""
        if row is None:
            return []
        own = f"{PREFIX}{row.id}"
        found = [
            entry.event
            for entry in self._panel.events(limit=_NEWEST_EVENTS)
            if entry.event.kind in kinds
            and (entry.event.circuit == own or own in _event_text(entry.event).split())
        ]
        return found[-5:]

    def _now_s(self) -> float:
        return self._panel.store.now_s()


def _session_state(row: SessionRow) -> str:
    reason = f": {_safe(row.reason)}" if row.reason else ""
    return f"session {_safe(row.id)} is {row.state} (score {row.score['points']:.0f}/100){reason}"


def _refusing(view: View) -> str:
    wait_s = view.verdict.retry_after_s
    then = "until a person releases it" if wait_s is None else f"retries in {duration(wait_s)}"
    return f"circuit {_safe(view.name)} refuses: {_safe(view.verdict.reason)}; {then}"


def _event_text(event: Event) -> str:
    return event.why or event.reason


def _ago(event: Event, now_s: float) -> str:
    return f"{duration(max(0.0, now_s - event.at_s))} ago"


def _safe(text: str) -> str:
    return one_line(text, 400)


def request_line(row: AgentRequest) -> str:
    answer = f": {_safe(row.answer)}" if row.answer else ""
    state = (
        "waits for an answer" if row.state == OPEN else f"{row.state} by {_safe(row.by)}{answer}"
    )
    return (
        f"{row.id}  {row.wish}  session {_safe(row.session) or '-'}  {state}  ({_safe(row.reason)})"
    )
