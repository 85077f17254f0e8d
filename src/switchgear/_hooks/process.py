"""One hook event from its input to its response, and the tasks after it; ends the process.

Run by the hook process itself (`hooks/entry.py`) and by the processes of the resident
(`_hooks/resident.py`): the same code, so the same responses.
"""

import _thread
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from switchgear._agents.hook_protocol import Reply
from switchgear._core.errors import StoreUnavailable
from switchgear._core.types import Event
from switchgear._hooks.command import AGENTS
from switchgear._hooks.handler import answer, overdue
from switchgear._hooks.hook_config import HookConfig, use_all_modules
from switchgear._hooks.undecided import CIRCUITS_S, Pending
from switchgear._stores.base import Store
from switchgear._stores.url import keep_out_of_git, sqlite_file

if TYPE_CHECKING:
    from switchgear._hooks.resident import Resident

LOOK_S = 0.25
"""How often the thread looks whether the deadline has moved."""


def watch(late: Callable[[], object], due_s: Callable[[], float]) -> Callable[[], object]:
    """Call `late`, which ends the process, at `due_s()` on the monotonic clock, from another thread.

    The returned function must be called before answering: it returns if there is still time, and never
    returns if the deadline has answered already.
    """
    answering = _thread.allocate_lock()

    def wait() -> None:
        while (left_s := due_s() - time.monotonic()) > 0:
            if answering.locked():
                return  # a process may decide further events
            time.sleep(min(left_s, LOOK_S))
        if answering.acquire(blocking=False):
            late()

    try:  # noqa: SIM105  a hook does without contextlib
        _thread.start_new_thread(wait, ())
    except RuntimeError:
        pass  # without a thread, the store's own time limits bound the wait
    return answering.acquire


STORE_S = CIRCUITS_S - 1.0
"""How long a hook waits for other processes that use the store."""

NO_CALLER = 0
"""Instead of a process id: the event came over HTTP."""
Write = Callable[[int, bytes, bytes, bytes], int]
"""Writes a response (exit code, standard output, standard error, refusal); returns the exit code."""


def main(
    words: list[str],
    raw: bytes,
    began_s: float,
    write: Write,
    afterwards: Callable[[], object],
    *,
    event: str,
) -> NoReturn:
    """Decide an event in the hook process: `entry.py AGENT [--root FOLDER]`.

    - `began_s`: when the hook began, on the monotonic clock; `event`: see `client.event_id`.
    - `afterwards`: called last, when the response is written.
    """
    agent = words[0] if words else ""
    if agent not in AGENTS or len(words) not in {1, 3} or words[1:2] not in ([], ["--root"]):
        usage = f"usage: entry.py {'|'.join(AGENTS)} [--root FOLDER], and a hook's JSON on stdin"
        os._exit(write(2, b"", usage.encode(), b""))  # any other code would approve the call

    root = words[2] if len(words) == 3 else None
    left_open = Stores()  # until the process ends
    about = (agent, root, raw, began_s, write)
    os._exit(respond(*about, event=event, stores=left_open, afterwards=afterwards))


def respond(
    agent: str,
    root: str | None,
    raw: bytes,
    began_s: float,
    write: Write,
    *,
    caller: int | None = None,
    event: str = "",
    watches: "Resident | None" = None,
    stores: "Stores | None" = None,
    afterwards: Callable[[], object] = lambda: None,
) -> int:
    """Decide an event, write the response, and do what is left to do. Returns the exit code.

    At the deadline it writes the response that follows from the stage reached, and ends the process.

    - `caller`: the process whose ancestor the agent is; default: this one; `NO_CALLER`: there is none.
    - `event`: identifies the event, see `client.event_id`; default: it is decided only here.
    - `watches`: watches sessions while no hook of them is called; without it no session is watched.
    - `stores`: the stores that the process has open already; default: none.
    """
    kept = stores or Stores()
    opened: list[Store] = []  # closed only after the response
    committed: list[Event] = []
    places: list[str] = []

    def opening(known: HookConfig) -> Store:
        store = kept.open(known)
        if known.listens:
            from switchgear._hooks.after_reply import Recorder  # noqa: PLC0415  seldom configured

            store = Recorder(store, committed)
            places.append(known.root)
        opened.append(store)
        return store

    so_far = Pending(began_s, event)

    def late() -> NoReturn:
        os._exit(_write(write, overdue(agent, so_far)))

    may_answer = watch(late, so_far.due_s)
    reply = answer(agent, raw, root, opening, so_far)
    session = so_far.session_to_watch()
    is_new = (
        watches is not None
        and session is not None
        and (so_far.begins_work() or watches.needs(*session))
    )
    pid, posted = None, caller == NO_CALLER
    if not posted and (
        is_new or reply.interrupt or (reply.errand is not None and reply.errand.notice)
    ):
        # Before the response: the caller may end as soon as it has that.
        from switchgear._hooks.interrupt import agent_process, parent_of  # noqa: PLC0415  seldom

        pid = agent_process(agent, None if caller is None else parent_of(caller))
    may_answer()
    code = _write(write, reply)
    try:
        if reply.interrupt and pid is not None:
            from switchgear._hooks.interrupt import interrupt  # noqa: PLC0415  seldom

            interrupt(agent, pid)
        if reply.errand is not None:
            from switchgear._hooks.after_reply import run  # noqa: PLC0415  seldom

            run(reply.errand, pid)
        if is_new and watches is not None and session is not None:
            watches.add(*session, pid, posted=posted)
        if committed:
            from switchgear._hooks.after_reply import hand_over  # noqa: PLC0415  only after an event

            hand_over(places[-1], committed)
        afterwards()
    except Exception:  # noqa: BLE001, S110  the response is written: nothing changes it
        pass
    return code


def open_store(known: HookConfig) -> Store:
    """The store that hooks share. Raises `StoreError`."""
    url = known.store
    path = sqlite_file(url)
    if path is not None:
        from switchgear._stores.sqlite.store import SqliteStore  # noqa: PLC0415  the usual one

        keep_out_of_git(os.path.dirname(path))
        return SqliteStore(path, busy_timeout_s=STORE_S)
    if url.startswith("memory:"):
        why = "each hook is a separate process, and memory is not shared"
        raise StoreUnavailable(url, why, "use sqlite:///path or redis://host")
    use_all_modules()
    from switchgear._stores.url import open_store as open_any  # noqa: PLC0415  seldom

    return open_any(url)


def has_store(known: HookConfig) -> bool:
    """Whether the store exists; opening the file of one that does not would create it."""
    return sqlite_file(known.store) is None or _identity(known.store) is not None


class Stores:
    """The SQLite stores that a process keeps open for further events. Used by one thread.

    They stay open until it ends: closing the last connection to a file would copy its log into it and
    wait for the disk, at each hook. SQLite does so by itself when the log has grown.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[tuple[int, int], Store]] = {}

    def open(self, known: HookConfig) -> Store:
        """The store of a configuration, opened once per file. Raises `StoreError`."""
        found = self._open.pop(known.store, None)
        if found is not None and found[0] == _identity(known.store):
            self._open[known.store] = found
            return found[1]
        store = open_store(known)
        identity = _identity(known.store)
        if identity is not None:
            self._open[known.store] = (identity, store)
        return store


def _identity(url: str) -> tuple[int, int] | None:
    """The device and inode of the file that a URL names; `None`: there is no file."""
    try:
        found = os.lstat(sqlite_file(url) or "")
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _write(write: Write, reply: Reply) -> int:
    texts = (reply.stdout, reply.stderr, reply.refusal)
    return write(reply.code, *(text.encode(errors="replace") for text in texts))
