"""The tasks of a hook after its response: show a notice, start the escalation agent, emit events.

An agent waits for its hook, so a separate process (`drain.py`) calls the sinks, writes incidents and sends
notifications. It is started only if any of these is configured.

The escalation agent is a separate process, too; no hook waits for it. Its input is on its command line
and in a file, and it inherits the environment of the hook.
"""

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

from switchgear._agents.hook_protocol import WorkAfterReply
from switchgear._core.types import Event
from switchgear._hooks.detached import start_detached
from switchgear._stores.url import default_file, keep_out_of_git
from switchgear._text.fingerprint import digest

T = TypeVar("T")
MAX_EVENTS = 50
"""Maximum number of events to emit after one hook call; the store has all of them."""


class RecordingStore:
    """A store that adds the events of its transactions to a list. Used by one thread."""

    def __init__(self, store: Any, committed: list[Event]) -> None:
        self._store = store
        self._committed = committed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply(self, *given: Any) -> Any:
        done = self._store.apply(*given)
        self._committed.extend(done.events)
        return done

    def transact(self, name: str, work: Callable[[Any], T]) -> T:
        """Transact as the store does; a repeated transaction is recorded once."""
        found: list[Event] = []

        def inside(transaction: Any) -> T:
            found.clear()
            return work(_RecordingTransaction(transaction, found))

        answer: T = self._store.transact(name, inside)
        self._committed.extend(found)
        return answer


class _RecordingTransaction:
    __slots__ = ("_events", "_transaction")

    def __init__(self, transaction: Any, found: list[Event]) -> None:
        object.__setattr__(self, "_transaction", transaction)
        object.__setattr__(self, "_events", found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._transaction, name, value)

    def apply(self, *given: Any) -> Any:
        done = self._transaction.apply(*given)
        self._events.extend(done.events)
        return done


def emit_in_background(root: str, committed: list[Event]) -> None:
    """Start a separate process that passes the events to the sinks. The caller does not wait for it."""
    if not committed:
        return
    from switchgear._core.wire import dump_event  # noqa: PLC0415  rarely needed

    events = [dump_event(event) for event in committed[-MAX_EVENTS:]]
    committed.clear()
    try:
        start_detached("drain", root, stdin=json.dumps({"events": events}).encode())
    except (OSError, ValueError):
        return  # the events are in the store: the next command or hook emits them


HELP_FOLDER = "help"
"""The folder beside the store with the evidence for escalation agents, and their logs."""


def run(work: WorkAfterReply, pid: int | None) -> None:
    """Do the tasks after a reply, except watching. `pid` is the process of the agent, if known."""
    try:
        if work.notice:
            from switchgear._hooks.interrupt import show_headless  # noqa: PLC0415  rarely needed

            show_headless(work.agent, work.notice, pid)
        if work.opinion:
            from switchgear._hooks.opinions import start_request  # noqa: PLC0415  only where configured

            start_request(work.opinion, work.root)
        if work.evidence and work.escalate:
            start_escalation_agent(work.escalate, work.evidence, work.session, work.cwd, work.root)
    except OSError:
        return


def start_escalation_agent(
    escalate: str, evidence: str, subject: str, cwd: str = "", root: str | None = None
) -> str:
    """Start the escalation agent in `cwd`, with the evidence in a file. Returns the path of its log.

    `escalate` is the name of an agent or a command; `subject` identifies the stuck agent.
    """
    folder = os.path.join(os.path.dirname(default_file(root or os.getcwd())), HELP_FOLDER)
    keep_out_of_git(os.path.dirname(folder))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = digest(f"{subject}\0{evidence}\0{os.getpid()}")
    path, log = (os.path.join(folder, f"{name}.{kind}") for kind in ("txt", "log"))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(file, "wb") as opened:
        opened.write(evidence.encode(errors="replace"))
    start_detached("escalation_agent", cwd or root or os.getcwd(), escalate, path, log)
    return log
