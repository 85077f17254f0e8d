"""Handles one hook event: its input, the response, and the tasks after the response.

The hook process (`hooks/entry.py`) and the workers of the resident process (`resident.py`) both run this code,
so their responses are the same.
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
from switchgear._hooks.handler import answer, reply_at_deadline
from switchgear._hooks.hook_config import HookConfig, enable_site_packages
from switchgear._hooks.undecided import CIRCUITS_S, Pending
from switchgear._stores.base import Store
from switchgear._stores.url import keep_out_of_git, sqlite_file

if TYPE_CHECKING:
    from switchgear._hooks.resident import Resident

POLL_S = 0.25
"""Seconds between checks whether the deadline has moved."""


def start_deadline(
    answer_at_deadline: Callable[[], object], due_s: Callable[[], float]
) -> Callable[[], object]:
    """At `due_s()` on the monotonic clock, call `answer_at_deadline`, which ends the process, in a thread.

    The caller must call the returned function before it answers: the function returns if there is still
    time, and blocks until the process ends if the deadline has passed.
    """
    answer_lock = _thread.allocate_lock()

    def wait() -> None:
        while (left_s := due_s() - time.monotonic()) > 0:
            if answer_lock.locked():
                return  # answered in time; the process may handle further events
            time.sleep(min(left_s, POLL_S))
        if answer_lock.acquire(blocking=False):
            answer_at_deadline()

    try:  # noqa: SIM105  importing contextlib would slow down every hook
        _thread.start_new_thread(wait, ())
    except RuntimeError:
        pass  # without a thread, the store's own time limits bound the wait
    return answer_lock.acquire


STORE_TIMEOUT_S = CIRCUITS_S - 1.0
"""Seconds to wait for other processes that use the store."""

NO_CALLER = 0
"""In place of the caller's process id, for an event that came over HTTP."""
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
    """Handle an event in the hook process, `entry.py AGENT [--root FOLDER]`.

    - `began_s`: when the hook began, on the monotonic clock; `event`: see `client.event_id`.
    - `afterwards`: called after the response and all tasks.
    """
    agent = words[0] if words else ""
    if agent not in AGENTS or len(words) not in {1, 3} or words[1:2] not in ([], ["--root"]):
        usage = f"usage: entry.py {'|'.join(AGENTS)} [--root FOLDER], with a hook's JSON on stdin"
        os._exit(write(2, b"", usage.encode(), b""))  # any other code would approve the call

    root = words[2] if len(words) == 3 else None
    request = (agent, root, raw, began_s, write)
    stores = Stores()  # not freed with the arguments: the stores stay open until the process ends
    os._exit(respond(*request, event=event, stores=stores, afterwards=afterwards))


def respond(
    agent: str,
    root: str | None,
    raw: bytes,
    began_s: float,
    write: Write,
    *,
    caller: int | None = None,
    event: str = "",
    resident: "Resident | None" = None,
    stores: "Stores | None" = None,
    afterwards: Callable[[], object] = lambda: None,
) -> int:
    """Decide an event, write the response, and perform the tasks after it. Returns the exit code.

    At the deadline it writes the response for the stage reached so far, and ends the process.

    - `caller`: the hook process, a descendant of the agent; default: this process; `NO_CALLER`: none.
    - `event`: identifies the event, see `client.event_id`; default: no other process decides it.
    - `resident`: the resident process, which watches sessions between their events; default: none.
    - `stores`: the stores that the process has open already; default: none.
    """
    kept_stores = stores or Stores()
    opened: list[Store] = []  # closed only after the response
    committed: list[Event] = []
    roots: list[str] = []

    def open_kept_store(config: HookConfig) -> Store:
        store = kept_stores.open(config)
        if config.listens:
            from switchgear._hooks.after_reply import RecordingStore  # noqa: PLC0415  rarely configured

            store = RecordingStore(store, committed)
            roots.append(config.root)
        opened.append(store)
        return store

    pending = Pending(began_s, event)

    def answer_at_deadline() -> NoReturn:
        os._exit(_write(write, reply_at_deadline(agent, pending)))

    claim_answer = start_deadline(answer_at_deadline, pending.due_s)
    reply = answer(agent, raw, root, open_kept_store, pending)
    session = pending.session_to_watch()
    must_watch = (
        resident is not None
        and session is not None
        and (pending.begins_work() or resident.needs(*session))
    )
    pid, over_http = None, caller == NO_CALLER
    if not over_http and (
        must_watch or reply.interrupt or (reply.work_after is not None and reply.work_after.notice)
    ):
        # Before the response: the caller may end as soon as it has received it.
        from switchgear._hooks.interrupt import agent_process, parent_of  # noqa: PLC0415  rarely needed

        pid = agent_process(agent, None if caller is None else parent_of(caller))
    claim_answer()
    code = _write(write, reply)
    try:
        if reply.interrupt and pid is not None:
            from switchgear._hooks.interrupt import interrupt  # noqa: PLC0415  rarely needed

            interrupt(agent, pid)
        if reply.work_after is not None:
            from switchgear._hooks.after_reply import run  # noqa: PLC0415  rarely needed

            run(reply.work_after, pid)
        if must_watch and resident is not None and session is not None:
            resident.add(*session, pid, over_http=over_http)
        if committed:
            from switchgear._hooks.after_reply import emit_in_background  # noqa: PLC0415  only after an event

            emit_in_background(roots[-1], committed)
        afterwards()
    except Exception:  # noqa: BLE001, S110  the response is written: nothing changes it
        pass
    return code


def open_store(config: HookConfig) -> Store:
    """Open the store that the hooks share. Raises `StoreError`."""
    url = config.store
    path = sqlite_file(url)
    if path is not None:
        from switchgear._stores.sqlite.store import SqliteStore  # noqa: PLC0415  the usual one

        keep_out_of_git(os.path.dirname(path))
        return SqliteStore(path, busy_timeout_s=STORE_TIMEOUT_S)
    if url.startswith("memory:"):
        why = "each hook is a separate process, and memory is not shared"
        raise StoreUnavailable(url, why, "use sqlite:///path or redis://host")
    enable_site_packages()
    from switchgear._stores.url import open_store as open_any  # noqa: PLC0415  rarely needed

    return open_any(url)


def has_store(config: HookConfig) -> bool:
    """Whether the store exists; opening a missing SQLite file would create it."""
    return sqlite_file(config.store) is None or _file_id(config.store) is not None


class Stores:
    """The SQLite stores that a process keeps open for further events. Used by one thread.

    They stay open until the process ends: closing the last connection to a database would write its log back
    and wait for the disk after every hook. SQLite writes the log back itself when it has grown.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[tuple[int, int], Store]] = {}

    def open(self, config: HookConfig) -> Store:
        """The store of a configuration; it is opened once per file. Raises `StoreError`."""
        found = self._open.pop(config.store, None)
        if found is not None and found[0] == _file_id(config.store):
            self._open[config.store] = found
            return found[1]
        store = open_store(config)
        identity = _file_id(config.store)
        if identity is not None:
            self._open[config.store] = (identity, store)
        return store


def _file_id(url: str) -> tuple[int, int] | None:
    """The device and inode of the file that a URL names; `None`: there is no file."""
    try:
        found = os.lstat(sqlite_file(url) or "")
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _write(write: Write, reply: Reply) -> int:
    texts = (reply.stdout, reply.stderr, reply.refusal)
    return write(reply.code, *(text.encode(errors="replace") for text in texts))
